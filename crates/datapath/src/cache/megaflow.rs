//! The megaflow cache: tuple space search over the masks of traversals.
//!
//! Entries with the same mask form a subtable, a hash table of masked words. A lookup probes the
//! subtables one after another. There are no priorities: entries that overlap agree (law 1), so the
//! first hit is the result.
//!
//! The packets of a burst go through a subtable in lockstep: all hashes, all index slots, all rows, all
//! entries (see [`MaskedTable`]). Packets that miss go on to the next subtable. Subtables are ordered by
//! their recent hits, as Open vSwitch's `dpcls` orders them per port. This keeps the average number of
//! probes near one.

use std::sync::Arc;

use hashbrown::HashMap;
use shunt_flow::{
    FlowKey, SparseMask,
    masked_table::{MaskedTable, RowCandidate},
};
use shunt_pipeline::{Pipeline, Time, Traversal};

use super::{
    EntryRef, HitSlots, KeyHasher, PositionSet, Reclaimed,
    index::{
        IndexCapacity, IndexSeeds, Lookup, RepairOutcome, Upcall, UpcallResult, WildcardIndex,
    },
};
use crate::{evict::owner::Owner, metrics::ThreadCounters, packet::buffer::BURST};

/// The megaflow cache as the wildcard index of a packet thread.
#[derive(Debug)]
pub(crate) struct MegaflowIndex {
    cache: MegaflowCache,
    tally: MegaflowTally,
}

/// The counts of a megaflow index as plain integers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MegaflowTally {
    hits: u64,
    misses: u64,
    inserts: u64,
    probes: u64,
}

/// The address of an entry: the number of its subtable, and its row there.
#[derive(Clone, Copy, Debug)]
struct RowAddress {
    subtable: u32,
    row: u32,
}

/// A tuple space of entries, one subtable per mask.
#[derive(Debug)]
pub struct MegaflowCache {
    hasher: KeyHasher,
    /// The subtables by number. The number of an empty subtable is used again.
    subtables: Vec<MegaflowSubtable>,
    unused: Vec<u32>,
    numbers: HashMap<SparseMask, u32, foldhash::fast::FixedState>,
    /// The numbers of all subtables that are not empty, those with most hits first.
    order: Vec<u32>,
    /// The address of each entry by slot; [`RowAddress::NONE`] if there is none.
    addresses: Vec<RowAddress>,
    probes: u32,
}

/// The entries of one mask.
#[derive(Debug)]
struct MegaflowSubtable {
    /// The entry of each row.
    table: MaskedTable<1>,
    hits: u32,
}

/// The packets of a burst that have missed so far, by their positions.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    places: [u8; BURST],
    count: usize,
}

/// Number of probes between two orderings of the subtables.
const PROBES_PER_ORDERING: u32 = 1 << 16;

impl RowAddress {
    /// No address.
    const NONE: Self = Self { subtable: u32::MAX, row: u32::MAX };
}

impl MegaflowIndex {
    /// Installs a traversal; `None` if it learns or the owner refuses.
    fn install(
        &mut self,
        owner: &mut Owner,
        traversal: &Arc<Traversal>,
        now: Time,
    ) -> Option<EntryRef> {
        if !traversal.learnings.is_empty() {
            return None;
        }
        let entry = owner.install(Arc::clone(traversal), now).ok()?;
        self.cache.insert(&FlowKey::from(&traversal.key), &traversal.mask, entry);
        self.tally.inserts += 1;
        Some(entry)
    }
}

impl WildcardIndex for MegaflowIndex {
    type Config = ();
    type Partial = ();
    type Totals = MegaflowTally;

    fn new((): (), seeds: &IndexSeeds, tally: MegaflowTally) -> Self {
        Self { cache: MegaflowCache::new(seeds.hasher.clone(), seeds.seed), tally }
    }

    fn totals(&self) -> MegaflowTally {
        self.tally
    }

    fn capacity(&self) -> IndexCapacity {
        IndexCapacity { entries_max: None, hits_per_packet_max: 1 }
    }

    fn find_burst(
        &mut self,
        owner: &Owner,
        keys: &[FlowKey],
        asked: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> u32 {
        let (mut missing, entries) = (Missing::default(), owner.entries());
        asked.positions().for_each(|position| missing.push(position));
        let probes = self.cache.find_burst(keys, &mut missing, |position, entry| {
            let is_hit = entries.is_live(entry);
            if is_hit {
                hits[position].set_one(entry.slot);
            }
            is_hit
        });
        self.tally.probes += u64::from(probes);
        self.tally.misses += missing.len() as u64;
        self.tally.hits += (asked.len() - missing.len()) as u64;
        missing.places().for_each(|position| hits[position].clear());
        probes
    }

    fn find(&mut self, owner: &Owner, key: &FlowKey) -> Lookup<()> {
        let entries = owner.entries();
        let Some(entry) = self.cache.find(key, |entry| entries.is_live(entry)) else {
            self.tally.misses += 1;
            return Lookup::Miss(());
        };
        self.tally.hits += 1;
        let mut slots = HitSlots::default();
        slots.set_one(entry.slot);
        Lookup::Hit { slots, is_sampled: false }
    }

    fn uncount_hit(&mut self, _hit: &HitSlots) {
        self.tally.hits -= 1;
    }

    fn handle_miss(&mut self, owner: &mut Owner, upcall: Upcall<'_>, (): ()) -> UpcallResult {
        let traversal = Arc::new(upcall.translate());
        let entry = self.install(owner, &traversal, upcall.now);
        UpcallResult { traversals: vec![traversal], entry, translations: 1 }
    }

    fn remove(&mut self, entry: EntryRef) {
        self.cache.remove(entry);
    }

    fn repair(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> (RepairOutcome, u64) {
        if !self.cache.remove(old.reference) {
            // The entry may be an LTM entry of a former chain, which holds only for packets with its tag.
            return (RepairOutcome::Dropped, 0);
        }
        let (key, entries) = (FlowKey::from(&old.traversal.key), owner.entries());
        if self.cache.find(&key, |entry| entries.is_live(entry)).is_some() {
            return (RepairOutcome::Covered, 0);
        }
        let fresh = Arc::new(pipeline.translate_again(&old.traversal, owner.version()));
        let outcome = match self.install(owner, &fresh, old.used) {
            None => RepairOutcome::Dropped,
            Some(_) => RepairOutcome::of(old.traversal.actions == fresh.actions),
        };
        (outcome, 1)
    }

    fn masks(&self) -> usize {
        self.cache.subtables()
    }

    fn publish(&self, counters: &ThreadCounters) {
        counters.megaflow.hits.set(self.tally.hits);
        counters.megaflow.misses.set(self.tally.misses);
        counters.megaflow.inserts.set(self.tally.inserts);
        counters.probes.set(self.tally.probes);
    }
}

impl MegaflowCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(hasher: KeyHasher, seed: u64) -> Self {
        Self {
            hasher,
            subtables: Vec::new(),
            unused: Vec::new(),
            numbers: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            order: Vec::new(),
            addresses: Vec::new(),
            probes: 0,
        }
    }

    /// Returns the number of masks in use.
    #[must_use]
    pub fn subtables(&self) -> usize {
        self.order.len()
    }

    /// Looks up the packets of `missing`, and removes those that hit from it.
    ///
    /// A match is a hit if `is_hit(position, entry)` returns true. Returns the number of subtables probed,
    /// summed over packets.
    pub fn find_burst(
        &mut self,
        keys: &[FlowKey],
        missing: &mut Missing,
        mut is_hit: impl FnMut(usize, EntryRef) -> bool,
    ) -> u32 {
        let mut probes = 0;
        for &number in &self.order {
            if missing.is_empty() {
                break;
            }
            let subtable = &mut self.subtables[number as usize];
            let asked = missing.count;
            subtable.find_burst(&self.hasher, keys, missing, &mut is_hit);
            probes += asked;
        }
        #[expect(clippy::cast_possible_truncation, reason = "subtables times BURST")]
        let probes = probes as u32;
        self.probes = self.probes.wrapping_add(probes);
        if self.probes >= PROBES_PER_ORDERING {
            self.put_in_order();
        }
        probes
    }

    /// Returns the live entry that covers `key`.
    #[must_use]
    pub fn find(&self, key: &FlowKey, is_live: impl Fn(EntryRef) -> bool) -> Option<EntryRef> {
        let covering = self
            .order
            .iter()
            .filter_map(|number| self.subtables[*number as usize].find(&self.hasher, key));
        covering.into_iter().find(|entry| is_live(*entry))
    }

    /// Adds an entry for every key that agrees with `key` under `mask`.
    ///
    /// A dead entry with the same bits loses its row.
    pub fn insert(&mut self, key: &FlowKey, mask: &SparseMask, entry: EntryRef) {
        let subtable = match self.numbers.get(mask) {
            Some(number) => *number,
            None => self.add_subtable(mask),
        };
        let row = self.subtables[subtable as usize].insert(&self.hasher, key, entry);
        let slot = entry.slot as usize;
        if slot >= self.addresses.len() {
            self.addresses.resize(slot + 1, RowAddress::NONE);
        }
        self.addresses[slot] = RowAddress { subtable, row };
    }

    /// Removes a dead entry, but not its row if that already belongs to another entry.
    ///
    /// Returns whether the entry had been inserted here.
    pub fn remove(&mut self, entry: EntryRef) -> bool {
        let Some(address) = self.addresses.get_mut(entry.slot as usize) else { return false };
        let RowAddress { subtable: number, row } = std::mem::replace(address, RowAddress::NONE);
        let Some(subtable) = self.subtables.get_mut(number as usize) else { return false };
        subtable.remove(&self.hasher, row, entry);
        if subtable.table.is_empty() && self.order.contains(&number) {
            self.order.retain(|other| *other != number);
            self.numbers.retain(|_, other| *other != number);
            self.unused.push(number);
        }
        true
    }

    #[expect(clippy::cast_possible_truncation, reason = "indices of subtables")]
    fn add_subtable(&mut self, mask: &SparseMask) -> u32 {
        let subtable = MegaflowSubtable { table: MaskedTable::new(mask), hits: 0 };
        let number = match self.unused.pop() {
            Some(number) => {
                self.subtables[number as usize] = subtable;
                number
            }
            None => {
                self.subtables.push(subtable);
                self.subtables.len() as u32 - 1
            }
        };
        self.numbers.insert(mask.clone(), number);
        self.order.push(number);
        number
    }

    fn put_in_order(&mut self) {
        self.probes = 0;
        let subtables = &mut self.subtables;
        self.order
            .sort_unstable_by_key(|number| std::cmp::Reverse(subtables[*number as usize].hits));
        // Old hits count less and less.
        subtables.iter_mut().for_each(|subtable| subtable.hits /= 2);
    }
}

impl MegaflowSubtable {
    fn find_burst(
        &mut self,
        hasher: &KeyHasher,
        keys: &[FlowKey],
        missing: &mut Missing,
        mut is_hit: impl FnMut(usize, EntryRef) -> bool,
    ) {
        let table = &self.table;
        let mut tags = [0; BURST];
        for (tag, place) in tags.iter_mut().zip(missing.places()) {
            *tag = table.tag(hasher, keys[place].words());
        }
        let mut candidates = [RowCandidate::NONE; BURST];
        for (candidate, tag) in candidates.iter_mut().zip(&tags).take(missing.count) {
            *candidate = table.candidate(*tag);
        }
        let mut entries = [None; BURST];
        for (index, place) in missing.places().enumerate() {
            let row = table.confirm(candidates[index], tags[index], keys[place].words());
            entries[index] = row.map(|row| self.entry(row));
        }
        let mut left = 0;
        for (index, entry) in entries.into_iter().enumerate().take(missing.count) {
            let place = missing.places[index];
            if !entry.is_some_and(|entry| is_hit(usize::from(place), entry)) {
                missing.places[left] = place;
                left += 1;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most BURST")]
        let hits = (missing.count - left) as u32;
        self.hits = self.hits.saturating_add(hits);
        missing.count = left;
    }

    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<EntryRef> {
        self.table.find(hasher, key.words()).map(|row| self.entry(row))
    }

    #[inline]
    fn entry(&self, row: u32) -> EntryRef {
        let [entry] = self.table.tail(row);
        unpacked(entry)
    }

    fn insert(&mut self, hasher: &KeyHasher, key: &FlowKey, entry: EntryRef) -> u32 {
        let words: Vec<u64> = self.table.masked(key.words()).collect();
        self.table.put(hasher, &words, [packed(entry)])
    }

    fn remove(&mut self, hasher: &KeyHasher, row: u32, entry: EntryRef) {
        if self.table.has(row) && self.entry(row) == entry {
            self.table.remove(hasher, row);
        }
    }
}

impl Missing {
    /// Removes all packets.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds the packet at a position of the burst.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a burst has fewer than 256 positions")]
    pub const fn push(&mut self, place: usize) {
        self.places[self.count] = place as u8;
        self.count += 1;
    }

    /// Returns whether no packet is missing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of missing packets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns the positions in ascending order.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..self.count].iter().map(|place| usize::from(*place))
    }
}

const _: () = assert!(BURST <= 256, "a position in a burst is a byte");

const fn packed(entry: EntryRef) -> u64 {
    (entry.generation as u64) << 32 | entry.slot as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
const fn unpacked(word: u64) -> EntryRef {
    EntryRef { slot: word as u32, generation: (word >> 32) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shunt_flow::{FieldId, FlowMask};

    fn entry(slot: u32) -> EntryRef {
        EntryRef { slot, generation: 0 }
    }

    /// Returns a key with two small fields.
    fn key(source: u8, target: u8) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::Ipv4Src, u128::from(source));
        key.set_field(FieldId::TcpDst, u128::from(target));
        key
    }

    fn mask(source: u8, target: u8) -> FlowMask {
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::Ipv4Src, u128::from(source));
        mask.add_bits(FieldId::TcpDst, u128::from(target));
        mask
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert { key: (u8, u8), mask: (u8, u8) },
        Kill { which: usize },
        Reclaim,
        Find { key: (u8, u8) },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let masks = || prop::sample::select(vec![0_u8, 1, 6, 7]);
        let insert = ((0..8_u8, 0..8_u8), (masks(), masks()));
        let op = prop_oneof![
            3 => insert.prop_map(|(key, mask)| Op::Insert { key, mask }),
            2 => (0..64_usize).prop_map(|which| Op::Kill { which }),
            1 => Just(Op::Reclaim),
            4 => (0..8_u8, 0..8_u8).prop_map(|key| Op::Find { key }),
        ];
        prop::collection::vec(op, 1..120)
    }

    struct Model {
        cache: MegaflowCache,
        /// Every entry ever made: key, mask, and true while it lives.
        entries: Vec<(FlowKey, FlowMask, bool)>,
    }

    impl Model {
        fn covering(&self, key: &FlowKey) -> Vec<u32> {
            let covers = |(_, (own, mask, live)): &(usize, &(FlowKey, FlowMask, bool))| {
                *live && own.agrees_with(key, mask)
            };
            let all = self.entries.iter().enumerate().filter(covers);
            all.map(|(slot, _)| u32::try_from(slot).unwrap()).collect()
        }

        fn check(&mut self, key: &FlowKey) {
            let entries = &self.entries;
            let is_live = |entry: EntryRef| entries[entry.slot as usize].2;
            let single = self.cache.find(key, is_live);
            let mut missing = Missing::default();
            missing.push(0);
            let (mut found, keys) = (u32::MAX, [key.clone()]);
            self.cache.find_burst(&keys, &mut missing, |_, entry| {
                found = if is_live(entry) { entry.slot } else { found };
                is_live(entry)
            });
            let covering = self.covering(key);
            let single = single.map_or(u32::MAX, |entry| entry.slot);
            for found in [single, found] {
                assert_eq!(found == u32::MAX, covering.is_empty());
                assert!(found == u32::MAX || covering.contains(&found));
            }
            assert_eq!(missing.is_empty(), !covering.is_empty());
        }

        fn run(&mut self, op: &Op) {
            match *op {
                Op::Insert { key: (a, b), mask: (c, d) } => {
                    let (key, mask) = (key(a, b), mask(c, d));
                    // A thread inserts only after a miss.
                    if self.covering(&key).is_empty() {
                        let slot = u32::try_from(self.entries.len()).unwrap();
                        self.cache.insert(&key, &SparseMask::from(&mask), entry(slot));
                        self.entries.push((key, mask, true));
                    }
                }
                Op::Kill { which } => {
                    let count = self.entries.len();
                    if let Some(dead) = self.entries.get_mut(which % count.max(1)) {
                        dead.2 = false;
                    }
                }
                Op::Reclaim => {
                    for (slot, (_, _, live)) in self.entries.iter().enumerate() {
                        if !live {
                            self.cache.remove(entry(u32::try_from(slot).unwrap()));
                        }
                    }
                }
                Op::Find { key: (a, b) } => self.check(&key(a, b)),
            }
        }
    }

    proptest! {
        #[test]
        fn a_lookup_finds_exactly_the_live_entries(ops in ops(), seed: u64) {
            let cache = MegaflowCache::new(KeyHasher::new(seed), seed);
            let mut model = Model { cache, entries: Vec::new() };
            ops.iter().for_each(|op| model.run(op));
            for a in 0..8 {
                for b in 0..8 {
                    model.check(&key(a, b));
                }
            }
        }
    }

    #[test]
    fn an_empty_subtable_is_not_probed() {
        let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
        cache.insert(&key(1, 1), &SparseMask::from(&mask(7, 0)), entry(0));
        cache.insert(&key(1, 1), &SparseMask::from(&mask(7, 7)), entry(1));
        assert_eq!(cache.subtables(), 2);
        assert!(cache.remove(entry(0)));
        assert_eq!(cache.subtables(), 1);
        assert_eq!(cache.find(&key(1, 1), |_| true), Some(entry(1)));
    }

    #[test]
    fn the_subtable_with_most_hits_is_probed_first() {
        let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
        cache.insert(&key(1, 0), &SparseMask::from(&mask(7, 0)), entry(0));
        cache.insert(&key(0, 2), &SparseMask::from(&mask(0, 7)), entry(1));
        let keys = vec![key(0, 2); BURST];
        let mut probes = 0;
        for _ in 0..PROBES_PER_ORDERING / 32 {
            let mut missing = Missing::default();
            (0..BURST).for_each(|place| missing.push(place));
            probes = cache.find_burst(&keys, &mut missing, |_, _| true);
        }
        assert_eq!(probes, 32, "one subtable for each packet");
    }
}
