//! One stage: rules by tag, and under each tag by mask and value (see [`Groups`]).
//!
//! Behind the masked words of a rule is all that a walk needs to go on: the entry, and the next tag.
//! Only a rule that rewrites headers is looked at itself.

use std::hash::BuildHasher as _;

use shunt_flow::{FlowKey, hash::KeyHasher};

use super::{
    LtmEntryRef, LtmRule, Tag, Walk,
    groups::{FoundFew, Groups, Step},
    places::Places,
};

/// One stage of a chain.
#[derive(Debug)]
pub(super) struct Table {
    hasher: KeyHasher,
    names: foldhash::fast::FixedState,
    /// By number of tag.
    tags: Vec<Groups>,
    masks_count: usize,
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        let names = foldhash::fast::FixedState::with_seed(seed);
        Self { hasher: KeyHasher::new(seed), names, tags: Vec::new(), masks_count: 0 }
    }

    /// The longest rule that lives and that a packet with this tag matches.
    #[inline]
    pub(super) fn find(
        &self,
        tag: Tag,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<Step> {
        self.tags.get(tag.index())?.find(&self.hasher, key, is_live)
    }

    /// Notes the longest rules that these packets match, which have this tag and of which nothing is noted
    /// yet. The first one that is found counts, also if it is dead.
    pub(super) fn find_few(
        &mut self,
        tag: Tag,
        packets: (&[FlowKey], &[Walk]),
        asking: Places,
        found: &mut FoundFew,
    ) {
        if let Some(groups) = self.tags.get_mut(tag.index()) {
            groups.find_few(&self.hasher, packets, asking, found);
        }
    }

    /// The slot of the rule with just this tag, match and length, whose group is [called](Self::name_of)
    /// so.
    pub(super) fn find_exact(&self, rule: &LtmRule, name: u64) -> Option<u32> {
        let groups = self.tags.get(rule.tag.index())?;
        groups.find_exact(&self.hasher, rule, name)
    }

    /// Adds a rule; there is none with its tag, match and length.
    pub(super) fn insert(&mut self, rule: &LtmRule, name: u64, entry: LtmEntryRef) {
        if self.tags.len() <= rule.tag.index() {
            self.tags.resize_with(rule.tag.index() + 1, Groups::default);
        }
        let groups = &mut self.tags[rule.tag.index()];
        let before = groups.masks_count();
        groups.insert(&self.hasher, rule, name, entry);
        self.masks_count += groups.masks_count() - before;
    }

    /// Takes out a rule.
    pub(super) fn remove(&mut self, rule: &LtmRule) {
        let name = self.name_of(rule);
        let Some(groups) = self.tags.get_mut(rule.tag.index()) else { return };
        let before = groups.masks_count();
        groups.remove(&self.hasher, rule, name);
        self.masks_count -= before - groups.masks_count();
        // Numbers of tags that are high are seldom in use.
        while self.tags.last().is_some_and(Groups::is_empty) {
            self.tags.pop();
        }
    }

    /// How many masks there are, those of different tags counted apart.
    pub(super) const fn masks_count(&self) -> usize {
        self.masks_count
    }

    /// What the group of a rule is called.
    pub(super) fn name_of(&self, rule: &LtmRule) -> u64 {
        self.names.hash_one((rule.matching.mask(), rule.length))
    }
}
