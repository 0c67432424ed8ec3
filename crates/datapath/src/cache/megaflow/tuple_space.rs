//! Tuple space search over the masks of megaflows.
//!
//! Entries with the same mask form a subtable, a hash table of masked words. A lookup probes the
//! subtables one after another. Entries have no priorities: entries that overlap agree (invariant
//! 1), so the first hit is the result.
//!
//! A subtable is probed for all packets of a burst together: first all hashes, then all index
//! slots, all rows, and all entries (see [`MaskedTable`]). Packets that miss go on to the next
//! subtable. Subtables are ordered by their recent hits, as Open vSwitch's `dpcls` orders them per
//! port. The order by hits keeps the average number of probes near one.

use hashbrown::HashMap;
use shunt_flow::{
    FlowKey, SparseMask,
    masked_table::{MaskedTable, RowCandidate},
};

use super::{MegaflowConfig, MissedPackets, RowAddress};
use crate::{
    cache::{EntryRef, KeyHasher},
    packet::buffer::BURST,
};

/// A tuple space of entries, one subtable per mask.
#[derive(Debug)]
pub struct MegaflowCache {
    hasher: KeyHasher,
    /// The subtables by number. The number of an empty subtable is reused.
    subtables: Vec<MegaflowSubtable>,
    unused: Vec<u32>,
    numbers: HashMap<SparseMask, u32, foldhash::fast::FixedState>,
    /// The numbers of all subtables with entries, ordered by recent hits.
    order: Vec<u32>,
    /// The numbers of subtables that may have entries outside of the learned index.
    searched: Vec<u32>,
    entries: usize,
    /// The address of the entry of each slot; [`RowAddress::NONE`] without an entry.
    addresses: Vec<RowAddress>,
    probes_per_ordering: u32,
    /// Probes since the last ordering.
    probes: u32,
    /// Number of packets that missed; older misses count less.
    missed: u32,
    /// Mean number of probes of a packet, computed at the last ordering.
    /// All masks are searched in that order.
    probes_per_packet: u32,
}

/// The entries of one mask.
#[derive(Debug)]
struct MegaflowSubtable {
    /// The entry of each row.
    table: MaskedTable<1>,
    hits: u32,
    /// Number of entries with an address in the subtable, dead entries included.
    entries: u32,
    /// Number of entries that are not in the learned index.
    unindexed: u32,
    /// True while the number of the subtable is in [`MegaflowCache::searched`].
    is_searched: bool,
}

/// The masks that a lookup searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaskSet {
    /// All masks of the cache.
    All,
    /// Masks of entries that the learned index does not have.
    Unindexed,
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
            searched: Vec::new(),
            entries: 0,
            addresses: Vec::new(),
            probes_per_ordering: MegaflowConfig::DEFAULT.probes_per_ordering,
            probes: 0,
            missed: 0,
            probes_per_packet: 0,
        }
    }

    /// Returns the number of masks in use.
    #[must_use]
    pub fn subtables(&self) -> usize {
        self.order.len()
    }

    /// Sets the number of probes after which the subtables are ordered by their hits.
    pub const fn order_every(&mut self, probes: u32) {
        self.probes_per_ordering = probes;
    }

    /// Returns the mean number of probes of a packet if all masks are searched.
    #[must_use]
    pub const fn probes_per_packet(&self) -> u32 {
        self.probes_per_packet
    }

    /// Counts packets that missed, because each would probe every subtable.
    pub(super) const fn count_missed(&mut self, packets: u32) {
        self.missed = self.missed.saturating_add(packets);
    }

    /// Loads the row at an address, so that the loads of many packets overlap.
    #[inline]
    pub fn fetch(&self, address: RowAddress) {
        if let Some(subtable) = self.subtables.get(address.subtable as usize) {
            subtable.table.fetch(address.row);
        }
    }

    /// Returns the entry at an address if it covers `key`, and counts a hit.
    ///
    /// The address may be stale: the row may not exist, or belong to another entry by now.
    #[inline]
    pub fn confirm(&mut self, address: RowAddress, key: &FlowKey) -> Option<EntryRef> {
        let subtable = self.subtables.get_mut(address.subtable as usize)?;
        if !subtable.table.covers(address.row, key.words()) {
            return None;
        }
        subtable.hits = subtable.hits.saturating_add(1);
        Some(subtable.entry(address.row))
    }

    /// Counts packets that were looked up without a probe.
    ///
    /// Without this count, subtables would not be ordered while other lookups find all packets.
    #[inline]
    pub fn count_unprobed(&mut self, packets: u32) {
        self.probes = self.probes.wrapping_add(packets);
        if self.probes >= self.probes_per_ordering {
            self.put_in_order();
        }
    }

    /// Looks up the packets of `missing`, and removes those that hit from it.
    ///
    /// A match is a hit if `is_hit(position, entry, address)` returns true. Returns the number of
    /// subtables probed, summed over packets.
    pub fn find_burst(
        &mut self,
        keys: &[FlowKey],
        missing: &mut MissedPackets,
        is_hit: impl FnMut(usize, EntryRef, RowAddress) -> bool,
    ) -> u32 {
        self.find_burst_in(MaskSet::All, keys, missing, is_hit)
    }

    /// Looks up packets under `masks`; [`Self::find_burst`] explains the arguments.
    pub(super) fn find_burst_in(
        &mut self,
        masks: MaskSet,
        keys: &[FlowKey],
        missing: &mut MissedPackets,
        mut is_hit: impl FnMut(usize, EntryRef, RowAddress) -> bool,
    ) -> u32 {
        let mut probes = 0;
        let numbers = match masks {
            MaskSet::All => &self.order,
            MaskSet::Unindexed => &self.searched,
        };
        for &number in numbers {
            if missing.is_empty() {
                break;
            }
            let subtable = &mut self.subtables[number as usize];
            let packets_count = missing.count;
            subtable.find_burst(&self.hasher, keys, missing, |position, entry, row| {
                is_hit(position, entry, RowAddress { subtable: number, row })
            });
            probes += packets_count;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "each subtable has at most BURST probes"
        )]
        let probes = probes as u32;
        self.probes = self.probes.wrapping_add(probes);
        if self.probes >= self.probes_per_ordering {
            self.put_in_order();
        }
        probes
    }

    /// Returns the live entry that covers `key`.
    #[must_use]
    pub fn find(&self, key: &FlowKey, is_live: impl Fn(EntryRef) -> bool) -> Option<EntryRef> {
        self.find_in(MaskSet::All, key, is_live)
    }

    /// Returns the live entry that covers `key` under some of the masks.
    pub(super) fn find_in(
        &self,
        masks: MaskSet,
        key: &FlowKey,
        is_live: impl Fn(EntryRef) -> bool,
    ) -> Option<EntryRef> {
        let numbers = match masks {
            MaskSet::All => &self.order,
            MaskSet::Unindexed => &self.searched,
        };
        let covering = numbers
            .iter()
            .filter_map(|number| self.subtables[*number as usize].find(&self.hasher, key));
        covering.into_iter().find(|entry| is_live(*entry))
    }

    /// Adds an entry for every key that agrees with `key` under `mask`.
    ///
    /// The entry takes the row of a dead entry with the same masked bits.
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
        self.subtables[subtable as usize].entries += 1;
        self.entries += 1;
    }

    /// Removes a dead entry, and its row unless another entry has taken the row.
    ///
    /// Returns whether the entry was one of this cache.
    pub fn remove(&mut self, entry: EntryRef) -> bool {
        let Some(address) = self.addresses.get_mut(entry.slot as usize) else { return false };
        let RowAddress { subtable: number, row } = std::mem::replace(address, RowAddress::NONE);
        let Some(subtable) = self.subtables.get_mut(number as usize) else { return false };
        self.entries -= 1;
        subtable.entries -= 1;
        subtable.remove(&self.hasher, row, entry);
        // The number is reused only when no entry has an address in the subtable.
        if subtable.entries == 0 {
            self.order.retain(|other| *other != number);
            self.searched.retain(|other| *other != number);
            self.numbers.retain(|_, other| *other != number);
            self.unused.push(number);
        }
        true
    }

    /// Returns the number of entries, dead entries included.
    pub(super) const fn entries(&self) -> usize {
        self.entries
    }

    /// Returns a number above every slot that had an entry.
    pub(super) const fn slots(&self) -> usize {
        self.addresses.len()
    }

    /// Returns the entry of a slot with its address, if it covers `key`.
    ///
    /// Counts a hit.
    #[inline]
    pub(super) fn confirm_slot(
        &mut self,
        slot: u32,
        key: &FlowKey,
    ) -> Option<(EntryRef, RowAddress)> {
        let address = *self.addresses.get(slot as usize)?;
        self.confirm(address, key).map(|entry| (entry, address))
    }

    /// Returns the words of the mask of an entry: index, bits, masked value.
    pub(super) fn box_words(&self, slot: u32) -> Option<impl Iterator<Item = (usize, u64, u64)>> {
        let address = self.addresses.get(slot as usize)?;
        let subtable = self.subtables.get(address.subtable as usize)?;
        subtable.table.has(address.row).then(|| subtable.table.masked_row(address.row))
    }

    /// Makes lookups search the mask of an entry that is not in the learned index.
    ///
    /// Returns whether the slot has an entry.
    pub(super) fn search_mask_of(&mut self, slot: u32) -> bool {
        let Some(address) = self.addresses.get(slot as usize) else { return false };
        let Some(subtable) = self.subtables.get_mut(address.subtable as usize) else {
            return false;
        };
        subtable.unindexed += 1;
        if !subtable.is_searched {
            subtable.is_searched = true;
            self.searched.push(address.subtable);
        }
        true
    }

    /// Undoes [`Self::search_mask_of`] for an entry that will be removed.
    pub(super) fn unsearch_mask_of(&mut self, slot: u32) {
        let Some(address) = self.addresses.get(slot as usize) else { return };
        let Some(subtable) = self.subtables.get_mut(address.subtable as usize) else { return };
        subtable.unindexed = subtable.unindexed.saturating_sub(1);
        if subtable.unindexed == 0 && subtable.is_searched {
            subtable.is_searched = false;
            let number = address.subtable;
            self.searched.retain(|other| *other != number);
        }
    }

    /// Makes lookups search no mask, because all entries are in the learned index.
    pub(super) fn search_no_mask(&mut self) {
        for number in self.searched.drain(..) {
            let subtable = &mut self.subtables[number as usize];
            (subtable.unindexed, subtable.is_searched) = (0, false);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are few subtables")]
    fn add_subtable(&mut self, mask: &SparseMask) -> u32 {
        let subtable = MegaflowSubtable {
            table: MaskedTable::new(mask),
            hits: 0,
            entries: 0,
            unindexed: 0,
            is_searched: false,
        };
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

    /// Sorts the subtables by hits, and resets their counts.
    fn put_in_order(&mut self) {
        self.probes = 0;
        let subtables = &mut self.subtables;
        self.order
            .sort_unstable_by_key(|number| std::cmp::Reverse(subtables[*number as usize].hits));
        let hits = self.order.iter().map(|number| u64::from(subtables[*number as usize].hits));
        let (all, probes) = hits
            .zip(1..)
            .fold((0, 0), |(all, probes), (hits, position)| (all + hits, probes + hits * position));
        let missed = u64::from(self.missed);
        let (all, probes) = (all + missed, probes + missed * self.order.len() as u64);
        if let Some(mean) = u64::checked_div(probes, all) {
            debug_assert!(mean <= self.order.len() as u64, "a mean is at most the largest value");
            self.probes_per_packet = u32::try_from(mean).unwrap_or(u32::MAX);
        }
        self.missed /= 2;
        // Older hits count less.
        subtables.iter_mut().for_each(|subtable| subtable.hits /= 2);
    }
}

impl MegaflowSubtable {
    fn find_burst(
        &mut self,
        hasher: &KeyHasher,
        keys: &[FlowKey],
        missing: &mut MissedPackets,
        mut is_hit: impl FnMut(usize, EntryRef, u32) -> bool,
    ) {
        let table = &self.table;
        let mut tags = [0; BURST];
        for (tag, position) in tags.iter_mut().zip(missing.positions()) {
            *tag = table.tag(hasher, keys[position].words());
        }
        let mut candidates = [RowCandidate::NONE; BURST];
        for (candidate, tag) in candidates.iter_mut().zip(&tags).take(missing.count) {
            *candidate = table.candidate(*tag);
        }
        let mut entries = [None; BURST];
        for (index, position) in missing.positions().enumerate() {
            let row = table.confirm(candidates[index], tags[index], keys[position].words());
            entries[index] = row.map(|row| (self.entry(row), row));
        }
        let mut left = 0;
        for (index, entry) in entries.into_iter().enumerate().take(missing.count) {
            let position = missing.positions[index];
            if !entry.is_some_and(|(entry, row)| is_hit(usize::from(position), entry, row)) {
                missing.positions[left] = position;
                left += 1;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "the count is at most BURST")]
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
        unpack(entry)
    }

    fn insert(&mut self, hasher: &KeyHasher, key: &FlowKey, entry: EntryRef) -> u32 {
        let words: Vec<u64> = self.table.masked(key.words()).collect();
        self.table.put(hasher, &words, [pack(entry)])
    }

    fn remove(&mut self, hasher: &KeyHasher, row: u32, entry: EntryRef) {
        if self.table.has(row) && self.entry(row) == entry {
            self.table.remove(hasher, row);
        }
    }
}

const fn pack(entry: EntryRef) -> u64 {
    (entry.generation as u64) << 32 | entry.slot as u64
}

#[expect(clippy::cast_possible_truncation, reason = "each cast takes one half of the word")]
const fn unpack(word: u64) -> EntryRef {
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

    /// An operation on the cache and on its model.
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

    /// A cache, and a list of the entries that it must hold.
    struct Model {
        cache: MegaflowCache,
        /// Every entry so far: key, mask, and true while the entry is live.
        entries: Vec<(FlowKey, FlowMask, bool)>,
        /// Every address that an entry has had.
        addresses: Vec<RowAddress>,
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
            let mut missing = MissedPackets::default();
            missing.push(0);
            let (mut found, keys) = (u32::MAX, [key.clone()]);
            self.cache.find_burst(&keys, &mut missing, |_, entry, _| {
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
            // The entry at an old address covers the key, or is dead.
            for address in self.addresses.clone() {
                let Some(entry) = self.cache.confirm(address, key) else { continue };
                let is_live = self.entries[entry.slot as usize].2;
                assert!(!is_live || covering.contains(&entry.slot), "{address:?}");
            }
            // Each entry that covers the key is also found by its address.
            for slot in &covering {
                let address = self.cache.addresses[*slot as usize];
                let found = self.cache.confirm(address, key).map(|entry| entry.slot);
                assert_eq!(found, Some(*slot));
            }
        }

        fn run(&mut self, op: &Op) {
            match *op {
                Op::Insert { key: (a, b), mask: (c, d) } => {
                    let (key, mask) = (key(a, b), mask(c, d));
                    // A packet thread inserts an entry only after a miss.
                    if self.covering(&key).is_empty() {
                        let slot = u32::try_from(self.entries.len()).unwrap();
                        self.cache.insert(&key, &SparseMask::from(&mask), entry(slot));
                        self.addresses.push(self.cache.addresses[slot as usize]);
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
            let mut model = Model { cache, entries: Vec::new(), addresses: Vec::new() };
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
        for _ in 0..cache.probes_per_ordering / 32 {
            let mut missing = MissedPackets::default();
            (0..BURST).for_each(|position| missing.push(position));
            probes = cache.find_burst(&keys, &mut missing, |_, _, _| true);
        }
        assert_eq!(probes, 32, "one subtable for each packet");
    }
}
