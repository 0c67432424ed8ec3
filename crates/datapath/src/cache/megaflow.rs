//! The megaflow cache: one entry for each complete traversal, found by the bits that it consulted.
//!
//! Entries that overlap agree (invariant 1), so the first entry that covers a packet is the result.
//! The cache has three kinds of lookup, which return only live entries that cover the packet:
//!
//! 1. The [`SignatureCache`], by the hash of all header bits. The signature cache is used while
//!    tuple space search takes two probes or more per packet
//!    ([`MegaflowConfig::lookup_probes_min`]).
//! 2. The [`LearnedIndex`], by a few fields at once. The learned index is used if there are at
//!    least [`MegaflowConfig::learned_masks_min`] masks, and tuple space search would take two
//!    probes or more per packet.
//! 3. Tuple space search over the masks ([`MegaflowCache`]): over all masks, or with a learned
//!    index only over the masks of entries outside of this index.
//!
//! Hits of the learned index and of tuple space search enter the signature cache.

mod learned;
mod lookup;
mod missed_packets;
mod signature;
mod tuple_space;

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_nuevomatch::StartIndexKind;
use shunt_pipeline::{Pipeline, Time, Traversal};

pub(crate) use self::learned::{TablesReply, TablesTraining, Trainer};
use self::lookup::{IndexedMegaflows, LookupWork};
pub use self::{
    learned::Training,
    missed_packets::MissedPackets,
    signature::{RowAddress, SignatureCache},
    tuple_space::MegaflowCache,
};
use super::{
    EntryRef, HitSlots, PositionSet, Reclaimed,
    index::{
        ForecastUpcall, IndexCapacity, IndexSeeds, IngressBurst, Lookup, RepairOutcome, Upcall,
        UpcallResult, WildcardIndex, room_refusal,
    },
};
use crate::{
    evict::owner::Owner,
    forecast::{Preload, refusal_of},
    metrics::ThreadCounters,
    packet::buffer::BURST,
};

/// Settings of a megaflow cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MegaflowConfig {
    /// Number of flows in the signature cache, rounded up to a power of two.
    ///
    /// 0 switches the signature cache off.
    pub signatures: usize,
    /// Probes per packet from which the signature cache and the learned index are used.
    pub lookup_probes_min: u32,
    /// Minimum number of masks with which the learned index is used.
    pub learned_masks_min: usize,
    /// The kind of the learned index, also of those of tables.
    pub learned_kind: StartIndexKind,
    /// Number of probes after which the subtables are ordered by their hits.
    pub probes_per_ordering: u32,
}

/// The megaflow cache as the wildcard index of a packet thread.
#[derive(Debug)]
pub(crate) struct MegaflowIndex {
    /// The entries by mask, with the learned index over them.
    megaflows: IndexedMegaflows,
    /// The signature cache, allocated at its first use.
    signatures: Option<SignatureCache>,
    /// The positions of the last burst that hit in the signature cache.
    signature_hits: PositionSet,
    /// The settings of the cache.
    config: MegaflowConfig,
    /// The start value of the signature cache's random numbers.
    seed: u64,
    /// The counts, not published yet.
    tally: MegaflowTally,
}

/// The counts of a megaflow index, before they are published.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MegaflowTally {
    /// Number of lookups with a hit.
    hits: u64,
    /// Number of lookups without a hit.
    misses: u64,
    /// Number of inserted entries.
    inserts: u64,
    /// Number of subtables that lookups have searched.
    probes: u64,
    /// The counts of the signature cache.
    signature: LookupTally,
    /// The counts of the learned index.
    learned: LookupTally,
}

/// The counts of one kind of lookup.
#[derive(Clone, Copy, Debug, Default)]
struct LookupTally {
    /// Number of lookups with a hit.
    hits: u64,
    /// Number of lookups without a hit.
    misses: u64,
    /// Number of inserted entries.
    inserts: u64,
}

/// Minimum number of masks for which the signature cache is allocated.
const MASKS_WORTH_SIGNATURES: usize = 2;

impl MegaflowConfig {
    /// The default settings of a megaflow cache.
    pub const DEFAULT: Self = Self {
        signatures: 262_144,
        lookup_probes_min: 2,
        learned_masks_min: 16,
        learned_kind: StartIndexKind::Tree,
        probes_per_ordering: 1 << 16,
    };
}

impl Default for MegaflowConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl MegaflowTally {
    /// Counts the lookups of a burst, without the lookups in the signature cache.
    fn count(&mut self, selected: u32, missing: u32, work: LookupWork) {
        self.probes += u64::from(work.probes);
        self.misses += u64::from(missing);
        self.hits += u64::from(selected - missing);
        self.learned.hits += u64::from(work.learned_hits);
        self.learned.misses += u64::from(work.learned - work.learned_hits);
    }
}

impl MegaflowIndex {
    /// Installs a traversal; `None` if it has learn requests or the owner refuses it.
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
        let (key, mask) = (FlowKey::from(&traversal.key), &traversal.mask);
        self.megaflows.insert(&key, mask, entry);
        self.tally.inserts += 1;
        if self.signatures.is_none()
            && self.config.signatures > 0
            && self.megaflows.cache.subtables() >= MASKS_WORTH_SIGNATURES
        {
            self.signatures = Some(SignatureCache::new(self.config.signatures, self.seed));
        }
        Some(entry)
    }

    /// Looks up the packets at the positions `selected` in the signature cache.
    ///
    /// The lookup reads buckets, then rows, then entries of all packets, so that memory accesses
    /// overlap. Returns the positions that hit.
    fn find_signatures(
        &mut self,
        owner: &Owner,
        burst: &IngressBurst<'_>,
        selected: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> PositionSet {
        let mut hit_positions = PositionSet::EMPTY;
        let Some(signatures) = &self.signatures else { return hit_positions };
        let mut candidates = [None; BURST];
        for position in selected.positions() {
            candidates[position] = signatures.candidate(burst.hashes[position]);
        }
        for address in candidates.iter().flatten() {
            self.megaflows.cache.fetch(*address);
        }
        let mut found = [None; BURST];
        for position in selected.positions() {
            found[position] = candidates[position]
                .and_then(|address| self.megaflows.cache.confirm(address, &burst.keys[position]));
        }
        let entries = owner.entries();
        for position in selected.positions() {
            if let Some(entry) = found[position]
                && entries.is_live(entry)
            {
                hits[position].set_one(entry.slot);
                hit_positions.insert(position);
            }
        }
        self.tally.signature.hits += u64::from(hit_positions.len());
        self.tally.signature.misses += u64::from(selected.len() - hit_positions.len());
        self.megaflows.cache.count_unprobed(hit_positions.len());
        hit_positions
    }
}

impl WildcardIndex for MegaflowIndex {
    type Config = MegaflowConfig;
    type Partial = ();
    type Totals = MegaflowTally;

    fn new(config: MegaflowConfig, seeds: &IndexSeeds, tally: MegaflowTally) -> Self {
        let cache = MegaflowCache::new(seeds.hasher.clone(), seeds.seed);
        let megaflows = IndexedMegaflows::new(cache, config, &seeds.trainer);
        Self {
            megaflows,
            signatures: None,
            signature_hits: PositionSet::EMPTY,
            config,
            seed: seeds.seed,
            tally,
        }
    }

    fn uses_hashes(&self) -> bool {
        self.signatures.is_some()
            && self.megaflows.cache.probes_per_packet() >= self.config.lookup_probes_min
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
        burst: &IngressBurst<'_>,
        selected: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> u32 {
        let uses_signatures = self.uses_hashes();
        self.signature_hits = if uses_signatures {
            self.find_signatures(owner, burst, selected, hits)
        } else {
            PositionSet::EMPTY
        };
        let (mut missing, mut work) = (MissedPackets::default(), LookupWork::default());
        selected
            .without(self.signature_hits)
            .positions()
            .for_each(|position| missing.push(position));
        if !missing.is_empty() {
            let entries = owner.entries();
            let mut addresses = [RowAddress::NONE; BURST];
            // The closure is short, so that the compiler inlines it in each search.
            let is_hit = |position: usize, entry, address| {
                let is_hit = entries.is_live(entry);
                if is_hit {
                    hits[position].set_one(entry.slot);
                    addresses[position] = address;
                }
                is_hit
            };
            work = self.megaflows.find_burst(burst.keys, &mut missing, is_hit);
            if let Some(signatures) = self.signatures.as_mut().filter(|_| uses_signatures) {
                let hit =
                    burst.hashes.iter().zip(addresses).filter(|(_, own)| *own != RowAddress::NONE);
                for (hash, address) in hit {
                    signatures.insert(*hash, address);
                    self.tally.signature.inserts += 1;
                }
            }
        }
        missing.positions().for_each(|position| hits[position].clear());
        self.tally.count(selected.without(self.signature_hits).len(), missing.len(), work);
        // A lookup by signature costs about as much as a probe.
        work.cost() + if uses_signatures { selected.len() } else { 0 }
    }

    fn find(&mut self, owner: &Owner, key: &FlowKey) -> Lookup<()> {
        let entries = owner.entries();
        let Some(entry) = self.megaflows.find(key, |entry| entries.is_live(entry)) else {
            self.tally.misses += 1;
            return Lookup::Miss(());
        };
        self.tally.hits += 1;
        let mut slots = HitSlots::default();
        slots.set_one(entry.slot);
        Lookup::Hit { slots, is_sampled: false }
    }

    fn uncount_hit(&mut self, position: usize, _hit: &HitSlots) {
        if self.signature_hits.contains(position) {
            self.tally.signature.hits -= 1;
        } else {
            self.tally.hits -= 1;
        }
    }

    fn handle_miss(&mut self, owner: &mut Owner, upcall: Upcall<'_>, (): ()) -> UpcallResult {
        let traversal = Arc::new(upcall.translate());
        let entry = self.install(owner, &traversal, upcall.now);
        UpcallResult { traversals: vec![traversal], entry, translations: 1 }
    }

    fn remove(&mut self, entry: EntryRef) {
        self.megaflows.remove(entry);
    }

    fn maintain(&mut self) -> bool {
        self.megaflows.maintain()
    }

    fn repair(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> (RepairOutcome, u64) {
        if !self.megaflows.remove(old.reference) {
            // The entry may be an LTM entry of a former chain, which covers only packets with its
            // tag.
            return (RepairOutcome::Dropped, 0);
        }
        let (key, entries) = (FlowKey::from(&old.traversal.key), owner.entries());
        if self.megaflows.find(&key, |entry| entries.is_live(entry)).is_some() {
            return (RepairOutcome::Covered, 0);
        }
        let fresh = Arc::new(pipeline.translate_again(&old.traversal, owner.version()));
        let outcome = match self.install(owner, &fresh, old.used) {
            None => RepairOutcome::Dropped,
            Some(_) => RepairOutcome::of(old.traversal.actions == fresh.actions),
        };
        (outcome, 1)
    }

    fn preload(&mut self, owner: &mut Owner, forecast: &ForecastUpcall<'_>) -> Preload {
        let ForecastUpcall { upcall, known, has_room } = *forecast;
        let entries = owner.entries();
        if let Some(entry) = self.megaflows.find(upcall.key, |entry| entries.is_live(entry)) {
            return Preload::Covered(entry);
        }
        if let Some(reason) = room_refusal(owner, has_room) {
            return Preload::Refused { reason, translations: 0 };
        }
        let traversal = Arc::new(upcall.translate());
        if let Some(reason) = refusal_of(&traversal, known) {
            return Preload::Refused { reason, translations: 1 };
        }
        self.install(owner, &traversal, upcall.now);
        Preload::Installed { translations: 1 }
    }

    fn masks(&self) -> usize {
        self.megaflows.cache.subtables()
    }

    fn publish(&self, counters: &ThreadCounters) {
        counters.megaflow.hits.set(self.tally.hits);
        counters.megaflow.misses.set(self.tally.misses);
        counters.megaflow.inserts.set(self.tally.inserts);
        counters.probes.set(self.tally.probes);
        counters.learned.hits.set(self.tally.learned.hits);
        counters.learned.misses.set(self.tally.learned.misses);
        counters.learned_entries.set(self.megaflows.learned().len() as u64);
        counters.trainings.set(self.megaflows.learned().trainings());
        counters.trainer_lost.set(self.megaflows.learned().has_lost_trainer().into());
        counters.signature.hits.set(self.tally.signature.hits);
        counters.signature.misses.set(self.tally.signature.misses);
        counters.signature.inserts.set(self.tally.signature.inserts);
    }
}
