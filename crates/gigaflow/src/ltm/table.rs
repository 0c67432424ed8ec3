//! The LTM table of one stage: rules by tag, and for each tag by mask and value.
//!
//! The hash tables of [`TagRules`] store the entry and the next tag after the masked words of each
//! rule. A walk needs only the entry and the next tag to continue. A walk reads the rule itself
//! only if the rule rewrites headers.

use std::hash::BuildHasher as _;

use shunt_flow::{FlowKey, hash::KeyHasher};

use self::tag_rules::TagRules;
pub(super) use self::{
    packet_set::{CHUNK_MAX, Chunk, PacketSet},
    tag_rules::{ChunkMatches, MatchedEntry},
};
use super::{LtmEntryRef, LtmRule, Tag};

mod family;
mod packet_set;
mod short_lists;
mod tag_rules;

/// The LTM table of one stage.
#[derive(Debug)]
pub(super) struct LtmTable {
    hasher: KeyHasher,
    mask_hasher: foldhash::fast::FixedState,
    /// The rules of each tag, indexed by the number of the tag.
    tags: Vec<TagRules>,
    /// Number of masks of all tags.
    masks_count: usize,
}

impl LtmTable {
    /// Returns a table without rules.
    pub(super) fn new(seed: u64) -> Self {
        let mask_hasher = foldhash::fast::FixedState::with_seed(seed);
        Self { hasher: KeyHasher::new(seed), mask_hasher, tags: Vec::new(), masks_count: 0 }
    }

    /// Returns the longest live rule that a packet with this tag matches.
    #[inline]
    pub(super) fn find(
        &self,
        tag: Tag,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<MatchedEntry> {
        self.tags.get(tag.index())?.find(&self.hasher, key, is_live)
    }

    /// Records in `found` the longest rule that each of the `pending` packets matches.
    ///
    /// The packets must have this tag, and no recorded rule yet. The first rule that is found is
    /// recorded, even if its entry is dead.
    pub(super) fn find_chunk(
        &mut self,
        tag: Tag,
        chunk: Chunk<'_>,
        pending: PacketSet,
        found: &mut ChunkMatches,
    ) {
        if let Some(groups) = self.tags.get_mut(tag.index()) {
            groups.find_chunk(&self.hasher, chunk, pending, found);
        }
    }

    /// Returns the slot of the rule with exactly this tag, match and length.
    ///
    /// `mask_hash` is the [hash](Self::mask_hash_of) of the mask and length of the rule.
    pub(super) fn find_exact(&self, rule: &LtmRule, mask_hash: u64) -> Option<u32> {
        let groups = self.tags.get(rule.tag.index())?;
        groups.find_exact(&self.hasher, rule, mask_hash)
    }

    /// Adds a rule. The table must have no rule with the same tag, match and length.
    pub(super) fn insert(&mut self, rule: &LtmRule, mask_hash: u64, entry: LtmEntryRef) {
        if self.tags.len() <= rule.tag.index() {
            self.tags.resize_with(rule.tag.index() + 1, TagRules::default);
        }
        let groups = &mut self.tags[rule.tag.index()];
        let before = groups.masks_count();
        groups.insert(&self.hasher, rule, mask_hash, entry);
        self.masks_count += groups.masks_count() - before;
    }

    /// Removes a rule from the table of the stage.
    pub(super) fn remove(&mut self, rule: &LtmRule) {
        let mask_hash = self.mask_hash_of(rule);
        let Some(groups) = self.tags.get_mut(rule.tag.index()) else { return };
        let before = groups.masks_count();
        groups.remove(&self.hasher, rule, mask_hash);
        self.masks_count -= before - groups.masks_count();
        // The last tags may have no rules now, since high tag numbers are seldom in use.
        while self.tags.last().is_some_and(TagRules::is_empty) {
            self.tags.pop();
        }
    }

    /// Returns the number of masks, summed over the tags.
    pub(super) const fn masks_count(&self) -> usize {
        self.masks_count
    }

    /// Returns the hash of mask and length, by which a rule finds its mask group.
    pub(super) fn mask_hash_of(&self, rule: &LtmRule) -> u64 {
        self.mask_hasher.hash_one((rule.matching.mask(), rule.length))
    }
}
