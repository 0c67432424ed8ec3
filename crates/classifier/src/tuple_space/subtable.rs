//! A subtable: all rules with one mask.

use std::{collections::BTreeMap, ops::Bound};

use hashbrown::{HashTable, hash_table::Entry};
use shunt_flow::{FlowKey, FlowMask, Match, SparseMask};

use super::{
    addresses::PrefixLengths,
    gates::GateId,
    ports::{PORTS, PortTrie},
    stages::SubtableStages,
    words::{HashedWord, Hashing, add_words, has_words},
};
use crate::{Lifetime, Priority, Rank, Version};

/// All rules with one mask, by their values under this mask.
///
/// Ports and positions include every rule of the subtable that is not reclaimed, whichever versions
/// see it.
#[derive(Clone, Debug)]
pub(super) struct RuleSubtable<R> {
    /// The words of the mask, with the secrets of their hash.
    words: Box<[HashedWord]>,
    /// The rules by the hash of their value.
    chains: HashTable<RuleChain<R>>,
    /// The ports of the rules, if the mask has port bits.
    ports: Option<PortTrie>,
    /// The stages that can end a search early.
    stages: SubtableStages,
    /// The gate of the subtable, if its mask has words before the network layer.
    gate: Option<GateId>,
    /// The prefix lengths of the address fields in the mask.
    prefix_lengths: PrefixLengths,
    /// Number of rules per position; a position has several rules after a replacement.
    positions: BTreeMap<RulePosition, u32>,
    /// The mask of all rules of the subtable.
    mask: SparseMask,
}

/// The position of a rule in its subtable.
///
/// The position is the same until the rule is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RulePosition {
    /// The rank of the rule.
    rank: Rank,
    /// The hash of the value of the rule.
    hash: u64,
}

/// The rules with one value, highest rank first. A chain is never empty.
///
/// Among rules of one priority, and among revisions of one rank, the newest is the last. Removed
/// rules stay until they are reclaimed, so a rule that is often replaced has a long chain.
#[derive(Clone, Debug)]
pub(super) struct RuleChain<R> {
    /// The hash of the value of the chain.
    hash: u64,
    /// The rules of the chain, highest rank first.
    rules: Vec<SubtableRule<R>>,
}

/// A rule as the table stores it.
#[derive(Clone, Debug)]
pub(super) struct SubtableRule<R> {
    /// The match of the rule.
    pub(super) matching: Match,
    /// The priority and the age of the rule.
    pub(super) rank: Rank,
    /// The versions that contain the rule.
    pub(super) lifetime: Lifetime,
    /// The value of the caller for this rule.
    pub(super) rule: R,
}

impl<R> RuleSubtable<R> {
    /// Creates a subtable without rules.
    pub(super) fn new(mask: SparseMask, gate: Option<GateId>, hashing: &Hashing) -> Self {
        Self {
            words: hashing.words(&mask),
            chains: HashTable::new(),
            ports: PortTrie::new(&mask),
            stages: SubtableStages::new(&mask, hashing),
            gate,
            prefix_lengths: PrefixLengths::of(&mask),
            positions: BTreeMap::new(),
            mask,
        }
    }

    /// Returns the mask that all rules of the subtable share.
    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Returns the words of the mask, each with its secret for the hash.
    pub(super) const fn words(&self) -> &[HashedWord] {
        &self.words
    }

    /// Returns the stages of the subtable.
    pub(super) const fn stages(&self) -> &SubtableStages {
        &self.stages
    }

    /// Returns the gate that the subtable is behind.
    pub(super) const fn gate(&self) -> Option<GateId> {
        self.gate
    }

    /// Returns the lengths of the address prefixes in the mask.
    pub(super) const fn prefix_lengths(&self) -> PrefixLengths {
        self.prefix_lengths
    }

    /// Returns the highest rank of the subtable; `None` if it has no rules.
    pub(super) fn rank_max(&self) -> Option<Rank> {
        self.positions.last_key_value().map(|(position, _)| position.rank)
    }

    /// Returns whether the subtable has a rule of this priority.
    pub(super) fn has_priority(&self, priority: Priority) -> bool {
        let position = |age, hash| RulePosition { rank: Rank { priority, age }, hash };
        self.positions.range(position(u64::MAX, 0)..=position(0, u64::MAX)).next().is_some()
    }

    /// Returns the positions of rules after a position, in the order of ranks.
    pub(super) fn positions_after(
        &self,
        after: Option<RulePosition>,
    ) -> impl Iterator<Item = RulePosition> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.positions.range((from, Bound::Unbounded)).map(|(position, _)| *position)
    }

    /// Returns the chains with the hash of a position.
    pub(super) fn chains_at(&self, position: RulePosition) -> impl Iterator<Item = &RuleChain<R>> {
        self.chains.iter_hash(position.hash).filter(move |chain| chain.hash == position.hash)
    }

    /// Returns the chains of rules, one per value.
    pub(super) fn chains(&self) -> impl Iterator<Item = &RuleChain<R>> {
        self.chains.iter()
    }

    /// Returns the chain of rules with the value of a key.
    pub(super) fn chain(&self, key: &FlowKey, hashing: &Hashing) -> Option<&RuleChain<R>> {
        let hash = hashing.hash(&self.words, key);
        self.chains.find(hash, |chain| {
            let value = self.words.iter().map(|word| word.apply(key));
            chain.hash == hash && value.eq(chain.value().iter().copied())
        })
    }

    /// Does [`Self::chain`], and adds the bits that prove the result to a mask.
    pub(super) fn chain_masked(
        &self,
        key: &FlowKey,
        hashing: &Hashing,
        mask: &mut FlowMask,
    ) -> Option<&RuleChain<R>> {
        if self.stages.lacking(key, hashing).is_some() {
            self.stages.prove_lacking(key, hashing, mask);
            return None;
        }
        let chain = self.chain(key, hashing);
        if chain.is_some() {
            add_words(mask, &self.words);
        } else if !has_words(mask, &self.words) && !self.stages.prove_behind(key, hashing, mask) {
            self.add_absence(key, mask);
        }
        chain
    }

    /// Adds the bits that prove that no rule has the whole value of a key.
    fn add_absence(&self, key: &FlowKey, mask: &mut FlowMask) {
        let Some((ports, (last, words))) = self.ports.as_ref().zip(self.words.split_last()) else {
            add_words(mask, &self.words);
            return;
        };
        add_words(mask, words);
        mask.words_mut()[last.index] |= last.bits & !PORTS | ports.proof(key);
    }

    /// Adds a rule, and returns whether it is the first with its value.
    ///
    /// Stages, gates and tries are updated once per value. So a rule that replaces another rule
    /// costs one probe, and no walk through tries.
    pub(super) fn insert(
        &mut self,
        key: &FlowKey,
        stored: SubtableRule<R>,
        hashing: &Hashing,
    ) -> bool {
        let hash = hashing.hash(&self.words, key);
        *self.positions.entry(RulePosition { rank: stored.rank, hash }).or_insert(0) += 1;
        let same =
            |chain: &RuleChain<R>| chain.hash == hash && chain.value() == stored.matching.value();
        match self.chains.entry(hash, same, |chain| chain.hash) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().insert(stored);
                return false;
            }
            Entry::Vacant(entry) => entry.insert(RuleChain { hash, rules: vec![stored] }),
        };
        self.stages.insert(key, hashing);
        if let Some(ports) = &mut self.ports {
            ports.insert(key);
        }
        true
    }

    /// Ends the lifetime of the rule with this value and rank.
    ///
    /// Returns the rule, and the hash by which [`Self::reclaim`] finds the rule.
    pub(super) fn end(
        &mut self,
        matching: &Match,
        rank: Rank,
        removed: Version,
        hashing: &Hashing,
    ) -> Option<(&R, u64)> {
        let hash = hashing.hash(&self.words, &matching.key());
        let same = |chain: &RuleChain<R>| chain.hash == hash && chain.value() == matching.value();
        let chain = self.chains.find_mut(hash, same)?;
        let stored = chain.newest_mut(rank).filter(|own| own.lifetime.removed().is_none())?;
        stored.lifetime.end(Some(removed));
        Some((&stored.rule, hash))
    }

    /// Removes all rules with a hash that no version from `oldest` on sees.
    ///
    /// Returns the number of removed rules, and the values that no rule has any more.
    pub(super) fn reclaim(
        &mut self,
        hash: u64,
        oldest: Version,
        hashing: &Hashing,
    ) -> (usize, Vec<FlowKey>) {
        let is_over = |stored: &SubtableRule<R>| stored.lifetime.is_over(oldest);
        let has_ended =
            |chain: &RuleChain<R>| chain.hash == hash && chain.rules.iter().any(is_over);
        let (mut count, mut values) = (0, Vec::new());
        while let Ok(mut entry) = self.chains.find_entry(hash, has_ended) {
            let rules = &mut entry.get_mut().rules;
            let ended: Vec<_> = rules.extract_if(.., |stored| is_over(stored)).collect();
            if rules.is_empty() {
                entry.remove();
                values.extend(ended.first().map(|stored| stored.matching.key()));
            }
            count += ended.len();
            ended
                .iter()
                .for_each(|stored| self.remove_position(RulePosition { rank: stored.rank, hash }));
        }
        values.iter().for_each(|key| self.forget_value(key, hashing));
        (count, values)
    }

    /// Frees the hash table of a subtable without rules.
    pub(super) fn clear(&mut self, hashing: &Hashing) {
        self.chains = HashTable::new();
        self.stages = SubtableStages::new(&self.mask, hashing);
        self.ports = PortTrie::new(&self.mask);
    }

    /// Removes a value that no rule has any more from stages and ports.
    fn forget_value(&mut self, key: &FlowKey, hashing: &Hashing) {
        self.stages.remove(key, hashing);
        if let Some(ports) = &mut self.ports {
            ports.remove(key);
        }
    }

    /// Subtracts a rule from the count of a position.
    fn remove_position(&mut self, position: RulePosition) {
        if let Some(count) = self.positions.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                self.positions.remove(&position);
            }
        }
    }
}

impl<R> RuleChain<R> {
    /// Returns the common value of the rules, one word per word of the mask.
    pub(super) fn value(&self) -> &[u64] {
        self.rules.first().map_or(&[], |stored| stored.matching.value())
    }

    /// Returns the rules of the chain that a version sees, highest rank first.
    pub(super) fn visible(&self, version: Version) -> impl Iterator<Item = &SubtableRule<R>> {
        self.rules.iter().filter(move |stored| stored.lifetime.is_visible(version))
    }

    /// Returns every rule of the chain with the rank of a position, newest last.
    pub(super) fn rules_at(&self, position: RulePosition) -> &[SubtableRule<R>] {
        let start = self.rules.partition_point(|stored| stored.rank > position.rank);
        let end = self.rules.partition_point(|stored| stored.rank >= position.rank);
        &self.rules[start..end]
    }

    /// Returns the rules after a position by their ranks, highest rank first.
    pub(super) fn after(
        &self,
        after: Option<RulePosition>,
    ) -> impl Iterator<Item = (RulePosition, &[SubtableRule<R>])> {
        let start =
            after.map_or(0, |after| self.rules.partition_point(|stored| stored.rank >= after.rank));
        let of_one_rank = self.rules[start..].chunk_by(|one, next| one.rank == next.rank);
        of_one_rank.filter_map(|rules| {
            Some((RulePosition { rank: rules.first()?.rank, hash: self.hash }, rules))
        })
    }

    /// Returns the newest rule of a priority that a version sees.
    ///
    /// For the newest version, this takes O(log n) steps.
    pub(super) fn find(&self, priority: Priority, version: Version) -> Option<&SubtableRule<R>> {
        let end = self.rules.partition_point(|stored| stored.rank.priority >= priority);
        let newest_first = self.rules[..end].iter().rev();
        let mut own = newest_first.take_while(|stored| stored.rank.priority == priority);
        own.find(|stored| stored.lifetime.is_visible(version))
    }

    /// Returns the newest rule of a rank.
    fn newest_mut(&mut self, rank: Rank) -> Option<&mut SubtableRule<R>> {
        let end = self.rules.partition_point(|stored| stored.rank >= rank);
        self.rules[..end].last_mut().filter(|stored| stored.rank == rank)
    }

    /// Inserts a rule in the order of ranks.
    fn insert(&mut self, stored: SubtableRule<R>) {
        let position = self.rules.partition_point(|other| other.rank >= stored.rank);
        self.rules.insert(position, stored);
    }
}
