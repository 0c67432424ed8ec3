//! Mask groups, which hold the rules of one mask and length, and families of mask groups.
//!
//! The masks of one family have bits in the same words of the key. A lookup searches the groups of
//! greater length first, and among groups of equal length the group with the most hits. The
//! megaflow cache also orders its masks by hits. A family with many groups keeps [`ShortLists`],
//! and a lookup then searches only the groups on one of these lists.

use std::cmp::Reverse;

use shunt_flow::{
    FlowKey, SparseMask, WordMap,
    hash::KeyHasher,
    masked_table::{MaskedTable, RowCandidate},
};

use super::{
    packet_set::{CHUNK_MAX, Chunk, PacketSet},
    short_lists::{LOOKUPS_PER_ORDERING, NO_LIST, ShortLists, rows_of},
    tag_rules::{ChunkMatches, MatchedEntry, RuleMatch},
};
use crate::ltm::{LtmEntryRef, LtmRule, Next, Tag};

/// Mask groups that have their mask bits in the same words of the key.
#[derive(Debug)]
pub(super) struct MaskFamily {
    /// The words of the key in which the masks have bits.
    words: WordMap,
    /// The greatest length of all rules of the family.
    length_max: u16,
    /// The groups by their numbers. The number of an empty group is reused.
    groups: Vec<MaskGroup>,
    /// The numbers of the groups that are not empty, in the order of search.
    order: Vec<u32>,
    /// Number of lookups since the groups were last sorted.
    lookups: u32,
    /// The short lists; `None` while the family has few groups.
    lists: Option<ShortLists>,
}

/// The rules of one tag, mask and length.
#[derive(Debug)]
pub(super) struct MaskGroup {
    /// A hash of mask and length, compared before the mask itself.
    mask_hash: u64,
    pub(super) mask: SparseMask,
    /// Number of table lookups that each entry of the group replaces.
    pub(super) length: u16,
    /// Number of hits, of which each sorting halves the value.
    pub(super) hits: u32,
    /// The rules by masked value.
    ///
    /// The tail words of a row are the entry and the next tag.
    pub(super) rules: MaskedTable<2>,
}

/// Number of groups up to which a family keeps no short lists.
const GROUPS_MIN: usize = 2;

/// The flag bit of a row: its rule ends the traversal.
const END: u64 = 1 << 63;
/// The flag bit of a row: its rule rewrites headers.
const REWRITES: u64 = 1 << 62;

impl MaskFamily {
    /// Creates an empty family for the masked words of a rule.
    pub(super) fn of(rule: &LtmRule) -> Self {
        Self {
            words: rule.matching.mask().map(),
            length_max: 0,
            groups: Vec::new(),
            order: Vec::new(),
            lookups: 0,
            lists: None,
        }
    }

    /// Returns the words that the masks of the family use.
    pub(super) const fn words(&self) -> WordMap {
        self.words
    }

    /// Returns whether no group has a rule.
    pub(super) const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the greatest length of the rules of the family.
    #[inline]
    pub(super) const fn length_max(&self) -> u16 {
        self.length_max
    }

    /// Returns the number of masks of the family.
    pub(super) const fn masks_count(&self) -> usize {
        self.order.len()
    }

    /// Returns the longest live rule of the family that matches the key.
    #[inline]
    pub(super) fn find(
        &self,
        hasher: &KeyHasher,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<RuleMatch> {
        let ask = |group: u32| {
            let found = self.groups[group as usize].find(hasher, key);
            found.filter(|found| is_live(found.matched.entry))
        };
        match &self.lists {
            None => self.order.iter().find_map(|group| ask(*group)),
            Some(lists) => lists.find(hasher, key)?.groups().find_map(ask),
        }
    }

    /// Records for each pending packet a matching rule longer than its match so far.
    pub(super) fn find_chunk(
        &mut self,
        hasher: &KeyHasher,
        chunk: Chunk<'_>,
        pending: PacketSet,
        found: &mut ChunkMatches,
    ) {
        if self.lists.is_some() {
            return self.find_listed(hasher, chunk, pending, found);
        }
        self.lookups += pending.count();
        let mut pending = pending;
        for group in &self.order {
            if pending.first().is_none() {
                break;
            }
            self.groups[*group as usize].find_chunk(hasher, chunk, &mut pending, found);
        }
        if self.lookups >= LOOKUPS_PER_ORDERING {
            self.lookups = 0;
            self.put_in_order();
        }
    }

    /// Does the work of [`Self::find_chunk`] for a family with short lists.
    ///
    /// All packets look up their short list first. After the lists are made, all packets look up
    /// the first group on their list, then the second, and so on.
    fn find_listed(
        &mut self,
        hasher: &KeyHasher,
        chunk: Chunk<'_>,
        pending: PacketSet,
        found: &mut ChunkMatches,
    ) {
        let Self { groups, lists: Some(lists), .. } = self else { return };
        let mut list_of = [0; CHUNK_MAX];
        found.probes += pending.count();
        let with_list = lists.find_chunk(hasher, chunk, pending, &mut list_of);
        let mut pending = with_list;
        let mut round = 0;
        while pending.first().is_some() {
            found.probes += pending.count();
            let (mut group_of, mut tags) = ([0_u32; CHUNK_MAX], [0; CHUNK_MAX]);
            for (index, packet) in pending.iter().enumerate() {
                let group = lists.group(list_of[packet], round).unwrap_or_default();
                group_of[index] = group;
                let key = chunk.key(packet).words();
                tags[index] = groups[group as usize].rules.tag(hasher, key);
            }
            let mut candidates = [RowCandidate::NONE; CHUNK_MAX];
            for (index, _) in pending.iter().enumerate() {
                candidates[index] = groups[group_of[index] as usize].rules.candidate(tags[index]);
            }
            let mut left = PacketSet::EMPTY;
            for (index, packet) in pending.iter().enumerate() {
                let group = &mut groups[group_of[index] as usize];
                let key = chunk.key(packet).words();
                if let Some(row) = group.rules.confirm(candidates[index], tags[index], key) {
                    group.hits = group.hits.saturating_add(1);
                    found.note(packet, group.match_of_row(row));
                } else if lists.group(list_of[packet], round + 1).is_some() {
                    left.push(packet);
                }
            }
            pending = left;
            round += 1;
        }
        for packet in with_list.iter().filter(|packet| list_of[*packet] != NO_LIST) {
            lists.note(list_of[packet], groups);
        }
    }

    /// Returns the slot of the rule with exactly this match and length.
    pub(super) fn find_exact(
        &self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        mask_hash: u64,
    ) -> Option<u32> {
        let group = &self.groups[self.number_of(rule, mask_hash)? as usize];
        let row = group.rules.find_words(hasher, rule.matching.value())?;
        Some(group.match_of_row(row).matched.entry.slot)
    }

    /// Adds a rule. The family must have no rule with the same match and length.
    pub(super) fn insert(
        &mut self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        mask_hash: u64,
        entry: LtmEntryRef,
    ) {
        let known = self.number_of(rule, mask_hash);
        let number = known.unwrap_or_else(|| self.add_group(MaskGroup::new(rule, mask_hash)));
        self.groups[number as usize].insert(hasher, rule, entry);
        self.length_max = self.length_max.max(rule.length);
        match &mut self.lists {
            Some(lists) if lists.has_common_bits_of(&rule.matching) => {
                lists.add(hasher, &rule.matching, number, &self.groups);
            }
            None if self.order.len() <= GROUPS_MIN => {}
            _ => self.lists = Some(ShortLists::of(hasher, &self.groups, &self.order)),
        }
    }

    /// Removes a rule from its mask group.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, rule: &LtmRule, mask_hash: u64) {
        let Some(number) = self.number_of(rule, mask_hash) else { return };
        let group = &mut self.groups[number as usize];
        let Some(row) = group.rules.find_words(hasher, rule.matching.value()) else { return };
        group.rules.remove(hasher, row);
        if group.rules.is_empty() {
            self.order.retain(|own| *own != number);
            let first = self.order.first().map(|own| self.groups[*own as usize].length);
            self.length_max = first.unwrap_or_default();
        }
        if let Some(lists) = &mut self.lists {
            lists.remove(hasher, &rule.matching, number);
        }
    }

    /// Returns the number of the mask group of a rule.
    fn number_of(&self, rule: &LtmRule, mask_hash: u64) -> Option<u32> {
        let is_it = |number: &&u32| self.groups[**number as usize].is_of(rule, mask_hash);
        self.order.iter().find(is_it).copied()
    }

    /// Adds a group of rules with one mask, and returns its number.
    #[expect(clippy::cast_possible_truncation, reason = "the rules, and so the groups, fit in u32")]
    fn add_group(&mut self, group: MaskGroup) -> u32 {
        let length = group.length;
        let number = match self.groups.iter().position(|group| group.rules.is_empty()) {
            Some(number) => {
                self.groups[number] = group;
                number as u32
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        let groups = &self.groups;
        let position = self.order.partition_point(|own| groups[*own as usize].length >= length);
        self.order.insert(position, number);
        number
    }

    /// Sorts the groups by length, and by recent hits within a length.
    fn put_in_order(&mut self) {
        let groups = &mut self.groups;
        self.order.sort_by_key(|number| groups[*number as usize].rank());
        // Halving reduces the weight of old hits.
        groups.iter_mut().for_each(|group| group.hits /= 2);
    }
}

impl MaskGroup {
    /// Returns a group without rules, with the mask and length of `rule`.
    fn new(rule: &LtmRule, mask_hash: u64) -> Self {
        let (mask, length) = (rule.matching.mask().clone(), rule.length);
        let rules = MaskedTable::new(&mask);
        Self { mask_hash, mask, length, hits: 0, rules }
    }

    /// Returns whether the group has the mask and the length of a rule.
    fn is_of(&self, rule: &LtmRule, mask_hash: u64) -> bool {
        self.mask_hash == mask_hash
            && self.length == rule.length
            && self.mask == *rule.matching.mask()
    }

    /// Returns the sort key of the group in the search order.
    pub(super) const fn rank(&self) -> (Reverse<u16>, Reverse<u32>) {
        (Reverse(self.length), Reverse(self.hits))
    }

    /// Returns the rule of the group that matches a key.
    #[inline]
    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<RuleMatch> {
        self.rules.find(hasher, key.words()).map(|row| self.match_of_row(row))
    }

    /// Looks up the pending packets of a chunk in the group.
    fn find_chunk(
        &mut self,
        hasher: &KeyHasher,
        chunk: Chunk<'_>,
        pending: &mut PacketSet,
        found: &mut ChunkMatches,
    ) {
        let mut rows = [None; CHUNK_MAX];
        found.probes += pending.count();
        rows_of(&self.rules, hasher, chunk, *pending, &mut rows);
        let mut left = PacketSet::EMPTY;
        for (row, packet) in rows.into_iter().zip(pending.iter()) {
            match row {
                Some(row) => found.note(packet, self.match_of_row(row)),
                None => left.push(packet),
            }
        }
        self.hits = self.hits.saturating_add(pending.count() - left.count());
        *pending = left;
    }

    /// Returns the match by the rule of a row.
    #[inline]
    fn match_of_row(&self, row: u32) -> RuleMatch {
        let [entry, next] = self.rules.tail(row);
        #[expect(clippy::cast_possible_truncation, reason = "each cast takes one half of a word")]
        let (slot, generation, tag) = (entry as u32, (entry >> 32) as u32, next as u32);
        let then = if next & END == 0 { Next::Tag(Tag::new(tag)) } else { Next::End };
        let entry = LtmEntryRef { slot, generation };
        let matched = MatchedEntry { entry, next: then, rewrites: next & REWRITES != 0 };
        RuleMatch { length: self.length, matched }
    }

    /// Inserts a rule with the mask of the group.
    fn insert(&mut self, hasher: &KeyHasher, rule: &LtmRule, entry: LtmEntryRef) {
        let next = match rule.next {
            Next::Tag(tag) => u64::from(tag.number()),
            Next::End => END,
        };
        let rewrites = if rule.rewrite.mask().is_empty() { 0 } else { REWRITES };
        let entry = u64::from(entry.generation) << 32 | u64::from(entry.slot);
        self.rules.put_new(hasher, rule.matching.value(), [entry, next | rewrites]);
    }
}
