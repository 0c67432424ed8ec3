//! Megaflows with both of their indexes: the learned index, and tuple space.

use std::sync::Arc;

use shunt_flow::{FlowKey, SparseMask};

use super::{
    MegaflowConfig, MissedPackets, RowAddress, Trainer, learned::LearnedIndex,
    tuple_space::MaskSet, tuple_space::MegaflowCache,
};
use crate::cache::EntryRef;

/// Tuple space with a learned index over most of its entries.
#[derive(Debug)]
pub(super) struct IndexedMegaflows {
    /// The megaflow entries, by mask.
    pub(super) cache: MegaflowCache,
    /// The learned index over the entries.
    learned: LearnedIndex,
    /// Probes per packet from which the learned index is used.
    probes_min: u32,
}

/// Counts of the lookups of a burst: packets, hits and probes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookupWork {
    /// Packets looked up in the learned index.
    pub(super) learned: u32,
    /// Packets for which the learned index had an entry.
    pub(super) learned_hits: u32,
    /// Subtables probed, summed over packets.
    pub(super) probes: u32,
}

/// Number of probes that take as long as a lookup in the learned index.
const PROBES_PER_LEARNED_LOOKUP: u32 = 2;

impl LookupWork {
    /// Returns the cost of the lookups, in probes.
    pub(super) const fn cost(self) -> u32 {
        self.probes + self.learned * PROBES_PER_LEARNED_LOOKUP
    }
}

impl IndexedMegaflows {
    /// Creates the lookup for a cache; `trainer` trains its learned index.
    pub(super) fn new(
        mut cache: MegaflowCache,
        config: MegaflowConfig,
        trainer: &Arc<Trainer>,
    ) -> Self {
        cache.order_every(config.probes_per_ordering);
        let learned = LearnedIndex::new(Arc::clone(trainer), &config);
        Self { cache, learned, probes_min: config.lookup_probes_min }
    }

    /// Returns the learned index, for statistics.
    pub(super) const fn learned(&self) -> &LearnedIndex {
        &self.learned
    }

    /// Adds an entry for every key that agrees with `key` under `mask`.
    pub(super) fn insert(&mut self, key: &FlowKey, mask: &SparseMask, entry: EntryRef) {
        self.cache.insert(key, mask, entry);
        self.learned.insert(&mut self.cache, key, mask, entry.slot);
    }

    /// Removes an entry. Returns whether the entry was one of this cache.
    pub(super) fn remove(&mut self, entry: EntryRef) -> bool {
        self.learned.remove(&mut self.cache, entry.slot);
        self.cache.remove(entry)
    }

    /// Does a bounded amount of deferred work; returns whether there was any.
    pub(super) fn maintain(&mut self) -> bool {
        self.learned.maintain(&mut self.cache)
    }

    /// Returns the live entry that covers `key`.
    pub(super) fn find(
        &mut self,
        key: &FlowKey,
        is_live: impl Fn(EntryRef) -> bool,
    ) -> Option<EntryRef> {
        if !self.learned.is_ready() {
            return self.cache.find(key, is_live);
        }
        let indexed = self.learned.find(&mut self.cache, key, &is_live);
        indexed.or_else(|| self.cache.find_in(MaskSet::Unindexed, key, is_live))
    }

    /// Looks up the packets of `missing`, and removes those that hit from it.
    ///
    /// A match is a hit if `is_hit(position, entry, address)` returns true. With few probes per
    /// packet, tuple space is searched instead of the learned index, because that is faster.
    pub(super) fn find_burst(
        &mut self,
        keys: &[FlowKey],
        missing: &mut MissedPackets,
        mut is_hit: impl FnMut(usize, EntryRef, RowAddress) -> bool,
    ) -> LookupWork {
        let is_slow = self.cache.probes_per_packet() >= self.probes_min;
        let (mut work, mut masks) = (LookupWork::default(), MaskSet::All);
        if self.learned.is_ready() && is_slow {
            work.learned = missing.len();
            self.learned.find_burst(&mut self.cache, keys, missing, &mut is_hit);
            work.learned_hits = work.learned - missing.len();
            self.cache.count_unprobed(work.learned_hits);
            masks = MaskSet::Unindexed;
        }
        work.probes = self.cache.find_burst_in(masks, keys, missing, is_hit);
        self.cache.count_missed(missing.len());
        work
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::{FieldId, FlowMask, hash::KeyHasher};
    use shunt_nuevomatch::StartIndexKind;

    use super::*;
    use crate::{cache::megaflow::Training, packet::buffer::BURST};

    /// An operation on the cache and on its model.
    #[derive(Clone, Debug)]
    enum Op {
        Insert { key: [u8; 3], mask: [u8; 3] },
        Kill { which: usize },
        Reclaim { which: usize },
        Maintain,
        Find { key: [u8; 3] },
    }

    /// Returns a key with three values.
    fn key(values: [u8; 3]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for (field, value) in FIELDS.into_iter().zip(values) {
            key.set_field(field, value.into());
        }
        key
    }

    /// Returns a mask of the bits of three fields.
    fn mask(bits: [u8; 3]) -> FlowMask {
        let mut mask = FlowMask::EMPTY;
        for (field, bits) in FIELDS.into_iter().zip(bits) {
            mask.add_bits(field, bits.into());
        }
        mask
    }

    /// The fields of generated keys and masks.
    const FIELDS: [FieldId; 3] = [FieldId::Ipv4Src, FieldId::TcpDst, FieldId::IpProto];

    /// Generates operations on a cache.
    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let keys = || proptest::array::uniform3(0..8_u8);
        // Masks with and without gaps.
        let masks = proptest::array::uniform3(prop::sample::select(vec![0_u8, 1, 4, 5, 6, 7, 7]));
        let op = prop_oneof![
            6 => (keys(), masks).prop_map(|(key, mask)| Op::Insert { key, mask }),
            2 => any::<usize>().prop_map(|which| Op::Kill { which }),
            2 => any::<usize>().prop_map(|which| Op::Reclaim { which }),
            2 => Just(Op::Maintain),
            4 => keys().prop_map(|key| Op::Find { key }),
        ];
        prop::collection::vec(op, 1..300)
    }

    /// A megaflow that the test has inserted, live or dead.
    struct ModelEntry {
        key: FlowKey,
        mask: FlowMask,
        generation: u32,
        is_live: bool,
    }

    /// A cache with an index, and a list of the entries that it must hold.
    struct Model {
        megaflows: IndexedMegaflows,
        /// The newest entry of each slot.
        entries: Vec<ModelEntry>,
        /// Slots of the cache without an entry.
        free: Vec<u32>,
        learned_hits: u32,
    }

    impl Model {
        fn new(seed: u64, training: Training, learned_kind: StartIndexKind) -> Self {
            let cache = MegaflowCache::new(KeyHasher::new(seed), seed);
            let config = MegaflowConfig {
                lookup_probes_min: 0,
                learned_masks_min: 2,
                learned_kind,
                ..MegaflowConfig::DEFAULT
            };
            let trainer = Arc::new(Trainer::new(training, shunt_pipeline::OwnerId(0)));
            let megaflows = IndexedMegaflows::new(cache, config, &trainer);
            Self { megaflows, entries: Vec::new(), free: Vec::new(), learned_hits: 0 }
        }

        /// Returns the slots of the entries that cover a key.
        fn covering(&self, key: &FlowKey) -> Vec<u32> {
            let covers =
                |(_, own): &(u32, &ModelEntry)| own.is_live && own.key.agrees_with(key, &own.mask);
            (0..).zip(&self.entries).filter(covers).map(|(slot, _)| slot).collect()
        }

        /// Compares the lookup of some keys with the list of entries.
        fn check(&mut self, keys: &[FlowKey]) {
            let entries = &self.entries;
            let is_live = |entry: EntryRef| {
                let own = &entries[entry.slot as usize];
                own.is_live && own.generation == entry.generation
            };
            let (mut missing, mut found) = (MissedPackets::default(), vec![None; keys.len()]);
            (0..keys.len()).for_each(|position| missing.push(position));
            let work = self.megaflows.find_burst(keys, &mut missing, |position, entry, _| {
                let is_hit = is_live(entry);
                found[position] = found[position].or_else(|| is_hit.then_some(entry.slot));
                is_hit
            });
            self.learned_hits += work.learned_hits;
            for (position, key) in keys.iter().enumerate() {
                let single = self.megaflows.find(key, is_live).map(|entry| entry.slot);
                let covering = self.covering(key);
                for found in [single, found[position]] {
                    assert_eq!(found.is_none(), covering.is_empty(), "{key:?}");
                    assert!(found.is_none_or(|slot| covering.contains(&slot)));
                }
            }
        }

        /// Runs an operation on the cache and on the list of entries.
        fn run(&mut self, op: &Op) {
            match *op {
                Op::Insert { key: values, mask: bits } => {
                    let (key, mask) = (key(values), mask(bits));
                    // A packet thread inserts an entry only after a miss.
                    if self.covering(&key).is_empty() {
                        self.insert(key, mask);
                    }
                }
                Op::Kill { which } => {
                    let count = self.entries.len();
                    if let Some(dead) = self.entries.get_mut(which % count.max(1)) {
                        dead.is_live = false;
                    }
                }
                Op::Reclaim { which } => self.reclaim(which),
                Op::Maintain => self.maintain(1),
                Op::Find { key: values } => self.check(&[key(values)]),
            }
        }

        fn insert(&mut self, key: FlowKey, mask: FlowMask) {
            let new = || u32::try_from(self.entries.len()).unwrap();
            let slot = self.free.pop().unwrap_or_else(new);
            let generation = self.entries.get(slot as usize).map_or(0, |old| old.generation + 1);
            let entry = EntryRef { slot, generation };
            self.megaflows.insert(&key, &SparseMask::from(&mask), entry);
            let own = ModelEntry { key, mask, generation, is_live: true };
            match self.entries.get_mut(slot as usize) {
                Some(old) => *old = own,
                None => self.entries.push(own),
            }
        }

        /// Removes a dead entry; dead entries are reclaimed in any order.
        fn reclaim(&mut self, which: usize) {
            let is_dead =
                |(slot, own): &(u32, &ModelEntry)| !own.is_live && !self.free.contains(slot);
            let dead: Vec<_> = (0..).zip(&self.entries).filter(is_dead).collect();
            let Some((slot, own)) = dead.get(which % dead.len().max(1)) else { return };
            let entry = EntryRef { slot: *slot, generation: own.generation };
            assert!(self.megaflows.remove(entry));
            self.free.push(entry.slot);
        }

        fn maintain(&mut self, times: u32) {
            for _ in 0..times {
                self.megaflows.maintain();
            }
        }

        fn check_all(&mut self) {
            let values = |number: u16| [0, 3, 6].map(|shift| (number >> shift & 7) as u8);
            let keys: Vec<FlowKey> = (0..512).map(|number| key(values(number))).collect();
            keys.chunks(BURST).for_each(|keys| self.check(keys));
        }
    }

    /// Generates trainers that finish at once, later, or never.
    fn trainings() -> impl Strategy<Value = Training> {
        let delayed = |polls| Training::Delayed { polls };
        prop::sample::select(vec![
            Training::Inline,
            delayed(2),
            delayed(8),
            delayed(u32::MAX),
            Training::Lost,
        ])
    }

    /// Generates kinds of learned indexes.
    fn kinds() -> impl Strategy<Value = StartIndexKind> {
        prop::sample::select(vec![
            StartIndexKind::Tree,
            StartIndexKind::Segments,
            StartIndexKind::Rqrmi,
        ])
    }

    proptest! {
        #[test]
        fn a_lookup_finds_exactly_the_live_entries(
            ops in ops(),
            seed: u64,
            training in trainings(),
            kind in kinds(),
        ) {
            let mut model = Model::new(seed, training, kind);
            for op in &ops {
                model.run(op);
            }
            model.check_all();
            model.maintain(4);
            model.check_all();
        }
    }

    #[test]
    fn an_index_without_trainer_is_disabled() {
        let mut model = Model::new(1, Training::Lost, StartIndexKind::Tree);
        for number in 0..64_u8 {
            let bits = if number % 2 == 0 { [7, 7, 0] } else { [7, 7, 7] };
            model.run(&Op::Insert { key: [number & 7, number >> 3, 0], mask: bits });
        }
        assert!(!model.megaflows.learned().has_lost_trainer());
        model.maintain(2);
        assert!(model.megaflows.learned().has_lost_trainer());
        assert!(!model.megaflows.maintain(), "no further work is due");
        model.run(&Op::Kill { which: 3 });
        model.run(&Op::Reclaim { which: 0 });
        model.check_all();
        assert_eq!(model.learned_hits, 0);
    }

    #[test]
    fn a_trained_index_replaces_the_search_of_masks() {
        let mut model = Model::new(1, Training::Inline, StartIndexKind::Tree);
        for number in 0..64_u8 {
            let bits = if number % 2 == 0 { [7, 7, 0] } else { [7, 7, 7] };
            model.run(&Op::Insert { key: [number & 7, number >> 3, 0], mask: bits });
        }
        // The iterations record the entries, begin and end the training, and take the index.
        model.maintain(4);
        assert_eq!(
            (model.megaflows.learned().trainings(), model.megaflows.learned().len()),
            (1, 64)
        );
        let (mut missing, keys) = (MissedPackets::default(), [key([3, 5, 0])]);
        missing.push(0);
        let work = model.megaflows.find_burst(&keys, &mut missing, |_, _, _| true);
        assert_eq!((work.learned_hits, work.probes), (1, 0));
    }

    #[test]
    fn entries_that_come_during_a_training_are_found() {
        let mut model = Model::new(1, Training::Inline, StartIndexKind::Tree);
        let mut next = 0_u8;
        let mut insert = |model: &mut Model, count: u8| {
            for number in next..next + count {
                let bits = if number % 2 == 0 { [7, 7, 0] } else { [7, 7, 7] };
                model.run(&Op::Insert { key: [number & 7, number >> 3, 0], mask: bits });
            }
            next += count;
        };
        insert(&mut model, 16);
        // The iterations record the boxes, and begin the training.
        model.maintain(2);
        insert(&mut model, 16);
        model.run(&Op::Kill { which: 3 });
        model.run(&Op::Kill { which: 20 });
        model.run(&Op::Reclaim { which: 1 });
        model.check_all();
        model.maintain(1);
        assert_eq!(model.megaflows.learned().trainings(), 1);
        model.check_all();
        assert!(model.learned_hits > 0);
    }
}
