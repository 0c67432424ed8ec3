//! A subtable: all rules with one mask.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table::Entry};
use shunt_flow::{FlowKey, FlowMask, Match, SparseMask, layout::Stage};

use super::{
    addresses::{AddressWalks, PrefixLengths},
    ports::{PORTS, PortTrie},
    stage::StageIndex,
    words::{MaskWord, Scan},
};
use crate::{Lifetime, Priority, Rank, Version};

/// All rules with one mask, by their value under it.
///
/// Stages, ports and ranks cover every rule that is held, whether or not a version sees it.
#[derive(Clone, Debug)]
pub(super) struct Subtable<R> {
    words: Box<[MaskWord]>,
    /// One index for each stage that has words, but the last: that one is `chains` itself.
    stages: Vec<StageIndex>,
    /// How many of the stages come before the addresses.
    stages_before_addresses: usize,
    prefix_lengths: PrefixLengths,
    chains: HashTable<Chain<R>>,
    ports: Option<PortTrie>,
    /// How many rules hold each rank: more than one where a rule replaced another in its place.
    ranks: BTreeMap<Rank, u32>,
    mask: SparseMask,
}

/// The rules of one value, the highest rank first; never empty.
#[derive(Clone, Debug)]
struct Chain<R> {
    hash: u64,
    rules: Vec<Held<R>>,
}

/// A rule as the table holds it.
#[derive(Clone, Debug)]
pub(super) struct Held<R> {
    pub(super) matching: Match,
    pub(super) rank: Rank,
    pub(super) lifetime: Lifetime,
    pub(super) rule: R,
}

/// One lookup: what it asks for, and what it has read so far.
pub(super) struct Search<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) version: Version,
    pub(super) hashing: &'a FixedState,
    pub(super) addresses: AddressWalks<'a>,
    /// Where the bits that the answer depends on are added.
    pub(super) mask: &'a mut FlowMask,
}

impl<R> Subtable<R> {
    pub(super) fn new(mask: SparseMask) -> Self {
        let words = MaskWord::all(&mask);
        let mut ends = vec![];
        let mut stages_before_addresses = 0;
        for stage in [Stage::Metadata, Stage::Link, Stage::Network] {
            let end = mask.words_until(stage);
            if end > ends.last().copied().unwrap_or(0) && end < words.len() {
                ends.push(end);
                stages_before_addresses += usize::from(stage < Stage::Network);
            }
        }
        Self {
            words,
            stages: ends.into_iter().map(StageIndex::new).collect(),
            stages_before_addresses,
            prefix_lengths: PrefixLengths::of(&mask),
            chains: HashTable::new(),
            ports: PortTrie::new(&mask),
            ranks: BTreeMap::new(),
            mask,
        }
    }

    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    pub(super) const fn prefix_lengths(&self) -> PrefixLengths {
        self.prefix_lengths
    }

    /// The highest rank held; `None` when no rule is.
    pub(super) fn rank_max(&self) -> Option<Rank> {
        self.ranks.last_key_value().map(|(rank, _)| *rank)
    }

    /// Every rule held.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Held<R>> {
        self.chains.iter().flat_map(|chain| &chain.rules)
    }

    /// The highest-ranking rule for the key of a search.
    pub(super) fn find(&self, search: &mut Search<'_>) -> Option<&Held<R>> {
        let mut scan = Scan::new(search.key, &self.words, search.hashing);
        let (before, after) = self.stages.split_at(self.stages_before_addresses);
        if let Some(stage) = first_without(before, &mut scan) {
            search.depends_on(&self.words[..stage.words_count()]);
            return None;
        }
        if search.addresses.exclude(self.prefix_lengths, search.mask) {
            return None;
        }
        if let Some(stage) = first_without(after, &mut scan) {
            search.depends_on(&self.words[..stage.words_count()]);
            return None;
        }
        match self.chain(search.key, scan.hash_until(self.words.len())) {
            Some(chain) => {
                search.depends_on(&self.words);
                chain.rules.iter().find(|held| held.lifetime.is_visible(search.version))
            }
            None => {
                self.add_absence(search);
                None
            }
        }
    }

    /// The rules of exactly this value that `version` sees with this priority, the oldest first.
    pub(super) fn find_exact(
        &self,
        matching: &Match,
        priority: Priority,
        version: Version,
        hashing: &FixedState,
    ) -> Option<&Held<R>> {
        let key = matching.key();
        let chain = self.chain(&key, self.hash(&key, hashing))?;
        chain
            .rules
            .iter()
            .find(|held| held.rank.priority == priority && held.lifetime.is_visible(version))
    }

    pub(super) fn insert(&mut self, key: &FlowKey, held: Held<R>, hashing: &FixedState) {
        let mut scan = Scan::new(key, &self.words, hashing);
        for stage in &mut self.stages {
            stage.insert(scan.hash_until(stage.words_count()));
        }
        if let Some(ports) = &mut self.ports {
            ports.insert(key);
        }
        *self.ranks.entry(held.rank).or_insert(0) += 1;
        let hash = scan.hash_until(self.words.len());
        let same = |chain: &Chain<R>| chain.hash == hash && chain.value() == held.matching.value();
        match self.chains.entry(hash, same, |chain| chain.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().insert(held),
            Entry::Vacant(entry) => {
                entry.insert(Chain { hash, rules: vec![held] });
            }
        }
    }

    /// Ends the life of the rule with this value and rank whose life has not ended. Answers with
    /// it, and with the hash by which [`Self::take_ended`] finds it.
    pub(super) fn end(
        &mut self,
        matching: &Match,
        rank: Rank,
        removed: Version,
        hashing: &FixedState,
    ) -> Option<(&R, u64)> {
        let hash = self.hash(&matching.key(), hashing);
        let same = |chain: &Chain<R>| chain.hash == hash && chain.value() == matching.value();
        let chain = self.chains.find_mut(hash, same)?;
        let is_meant = |held: &&mut Held<R>| held.rank == rank && held.lifetime.removed.is_none();
        let held = chain.rules.iter_mut().find(is_meant)?;
        held.lifetime.removed = Some(removed);
        Some((&held.rule, hash))
    }

    /// Takes out one rule with this hash that no version from `oldest` on sees.
    pub(super) fn take_ended(
        &mut self,
        hash: u64,
        oldest: Version,
        hashing: &FixedState,
    ) -> Option<Held<R>> {
        let ended =
            |chain: &Chain<R>| chain.rules.iter().position(|held| held.lifetime.is_over(oldest));
        let has_ended = |chain: &Chain<R>| chain.hash == hash && ended(chain).is_some();
        let mut entry = self.chains.find_entry(hash, has_ended).ok()?;
        let position = ended(entry.get())?;
        let held = entry.get_mut().rules.remove(position);
        if entry.get().rules.is_empty() {
            entry.remove();
        }
        self.forget(&held, hashing);
        Some(held)
    }

    /// Takes a rule out of everything but its chain.
    fn forget(&mut self, held: &Held<R>, hashing: &FixedState) {
        let key = held.matching.key();
        let mut scan = Scan::new(&key, &self.words, hashing);
        for stage in &mut self.stages {
            stage.remove(scan.hash_until(stage.words_count()));
        }
        if let Some(ports) = &mut self.ports {
            ports.remove(&key);
        }
        if let Some(count) = self.ranks.get_mut(&held.rank) {
            *count -= 1;
            if *count == 0 {
                self.ranks.remove(&held.rank);
            }
        }
    }

    fn hash(&self, key: &FlowKey, hashing: &FixedState) -> u64 {
        Scan::new(key, &self.words, hashing).hash_until(self.words.len())
    }

    fn chain(&self, key: &FlowKey, hash: u64) -> Option<&Chain<R>> {
        self.chains.find(hash, |chain| {
            let value = self.words.iter().map(|word| word.apply(key));
            chain.hash == hash && value.eq(chain.value().iter().copied())
        })
    }

    /// Adds the bits that prove that no rule has the whole value of the key.
    fn add_absence(&self, search: &mut Search<'_>) {
        let Some((ports, (last, words))) = self.ports.as_ref().zip(self.words.split_last()) else {
            search.depends_on(&self.words);
            return;
        };
        search.depends_on(words);
        let bits = last.bits & !PORTS | ports.proof(search.key);
        search.depends_on(&[MaskWord { bits, ..*last }]);
    }
}

impl<R> Chain<R> {
    fn value(&self) -> &[u64] {
        self.rules.first().map_or(&[], |held| held.matching.value())
    }

    fn insert(&mut self, held: Held<R>) {
        let position = self.rules.partition_point(|other| other.rank > held.rank);
        self.rules.insert(position, held);
    }
}

impl Search<'_> {
    fn depends_on(&mut self, words: &[MaskWord]) {
        words.iter().for_each(|word| self.mask.words_mut()[word.index] |= word.bits);
    }
}

/// The first of these stages where no rule has the value that is scanned.
fn first_without<'a>(stages: &'a [StageIndex], scan: &mut Scan<'_>) -> Option<&'a StageIndex> {
    stages.iter().find(|stage| !stage.contains(scan.hash_until(stage.words_count())))
}
