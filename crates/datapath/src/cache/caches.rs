//! The caches of a packet thread: an exact-match cache in front of a wildcard index, over the thread's
//! entries.
//!
//! The index can be replaced while packets flow. Entries of the former index are still right, but no
//! lookup finds them any more. Each iteration removes a few of these entries.

use std::{iter, sync::Arc};

use shunt_flow::{FlowKey, SparseMask};
use shunt_foresight::ForecastRefusal;
use shunt_pipeline::{IndexedTables, InstallNo, Pipeline, Time};

use super::{
    CacheConfig, EntryRef, ExactCache, FlowsConfig, HitSlots, KeyHasher, MegaflowConfig,
    PositionSet, Reclaimed, TablesReply, TablesTraining, Trainer, Wildcard,
    chain::CoverageLink,
    index::{
        AnyIndex, ForecastUpcall, IndexSeeds, IndexTotals, IngressBurst, Lookup, PartialLookup,
        RepairOutcome, Upcall, UpcallResult,
    },
};
use crate::{
    evict::owner::Owner,
    forecast::{Preload, Preloaded, ROOM_DIVISOR},
    metrics::{CHAIN_MAX, ThreadCounters},
    packet::buffer::BURST,
};

/// The caches of one packet thread.
#[derive(Debug)]
pub(crate) struct Caches {
    /// The store of the entries of the thread.
    pub(crate) owner: Owner,
    /// The settings of the caches.
    config: CacheConfig,
    /// The exact-match cache, which is searched first.
    exact: ExactCache,
    /// The wildcard index, which is searched after an exact-match miss.
    index: AnyIndex,
    /// Entries with an install number up to this belong to a former index.
    outdated: InstallNo,
    /// The random inputs of the index.
    seeds: IndexSeeds,
    /// Scratch: the hash of each packet of a burst.
    hashes: [u64; BURST],
    /// Scratch: the exact-match line that each packet hit.
    lines: [Option<u32>; BURST],
    /// The measurement that decides if the exact-match cache is used.
    trial: ExactTrial,
    /// Number of dead entries that may still be reclaimed in this burst.
    ///
    /// The number is unlimited between bursts. During a burst, only entries that were dead before
    /// the burst may be reclaimed. Packets of the burst may have hit entries that died later, and
    /// still need their actions.
    reclaims_left: usize,
    /// The limit of entries to set when no replaced index has entries; 0: none waits.
    limit: usize,
    /// The counts of replaced indexes.
    totals: IndexTotals,
    /// The counts of the exact-match cache, not published yet.
    tally: ExactTally,
    /// The positions of the last burst that hit the exact-match cache.
    exact_hits: PositionSet,
}

/// An evicted entry that was taken out of the repair queue.
pub(crate) struct RepairedEntry {
    /// The entry that was evicted for repair.
    pub(crate) reclaimed: Reclaimed,
    /// The outcome of the re-translation.
    pub(crate) outcome: RepairOutcome,
    /// Number of translations, whole or of a sub-traversal.
    pub(crate) translations: u64,
}

/// Maximum number of entries reclaimed in an iteration.
const RECLAIMS_PER_ITERATION: usize = 64;

/// The counts of the exact-match cache, before they are published.
#[derive(Clone, Copy, Debug, Default)]
struct ExactTally {
    /// Number of packets that hit.
    hits: u64,
    /// Number of packets that missed.
    misses: u64,
    /// Number of flows inserted into the exact-match cache.
    inserts: u64,
}

/// Decides if the exact-match cache is used, by the cost of wildcard lookups.
#[derive(Debug)]
struct ExactTrial {
    /// True if the exact-match cache is used.
    uses_exact: bool,
    /// Number of wildcard lookups since the last decision.
    packets: u32,
    /// Number of probes of these lookups.
    probes: u32,
}

/// Number of wildcard lookups between two decisions.
const PACKETS_PER_TRIAL: u32 = 1 << 14;

/// Number of probes per packet from which the exact-match cache is faster.
const PROBES_WORTH_EXACT: u32 = 2;

impl ExactTrial {
    /// Counts lookups of megaflows; a trial decides on the exact-match cache.
    fn count(&mut self, packets: u32, probes: u32, may_use: bool) {
        self.packets += packets;
        self.probes += probes;
        if self.packets >= PACKETS_PER_TRIAL {
            self.uses_exact = may_use && self.probes / self.packets >= PROBES_WORTH_EXACT;
            (self.packets, self.probes) = (0, 0);
        }
    }
}

impl Caches {
    /// Creates empty caches; `seed` is for all hash functions.
    pub(crate) fn new(config: &CacheConfig, mut owner: Owner, seed: u64) -> Self {
        let trainer = Arc::new(Trainer::new(config.training, owner.id()));
        let seeds = IndexSeeds { hasher: KeyHasher::new(seed), seed, trainer };
        let totals = IndexTotals::default();
        let index = AnyIndex::new(config.wildcard, &seeds, &totals);
        let capacity = index.capacity();
        owner.entries_mut().set_limit(capacity.entries_max.unwrap_or(config.entries_max));
        Self {
            outdated: owner.last_install(),
            owner,
            config: *config,
            exact: ExactCache::new(config.exact, capacity.hits_per_packet_max, seed),
            index,
            seeds,
            hashes: [0; BURST],
            lines: [None; BURST],
            trial: ExactTrial {
                uses_exact: config.exact.insert_inverse != 0,
                packets: 0,
                probes: 0,
            },
            reclaims_left: usize::MAX,
            limit: 0,
            totals,
            tally: ExactTally::default(),
            exact_hits: PositionSet::EMPTY,
        }
    }

    /// Replaces the wildcard index by an empty one, if the setting differs.
    pub(crate) fn replace(&mut self, wildcard: Wildcard) {
        if self.config.wildcard == wildcard {
            return;
        }
        self.config.wildcard = wildcard;
        self.empty();
    }

    /// Replaces all indexes by empty ones.
    ///
    /// The entries of the replaced indexes expire in the next iterations.
    pub(crate) fn empty(&mut self) {
        self.index.save_totals(&mut self.totals);
        self.index = AnyIndex::new(self.config.wildcard, &self.seeds, &self.totals);
        let capacity = self.index.capacity();
        self.exact.empty(capacity.hits_per_packet_max);
        let limit = capacity.entries_max.unwrap_or(self.config.entries_max);
        self.limit = limit;
        // The limit includes the slots of old entries, so that new entries find free slots
        // meanwhile.
        let most = limit.max(self.config.entries_max).saturating_mul(2);
        let entries = self.owner.entries_mut();
        let both = limit.saturating_add(entries.len() + entries.retired());
        entries.set_limit(both.min(most));
        self.outdated = self.owner.last_install();
    }

    /// Trains the learned indexes of the tables that need a training.
    ///
    /// The trainer thread sends the outcome to `reply`.
    pub(crate) fn train_tables(
        &self,
        pipeline: &Arc<Pipeline>,
        tables: IndexedTables,
        now: Time,
        reply: &TablesReply,
    ) -> TablesTraining {
        self.seeds.trainer.train_tables(pipeline, tables, now, reply)
    }

    /// Returns the tables that need a learned index.
    ///
    /// Without computational flows, the index only serves translations.
    pub(crate) const fn indexed_tables(&self) -> IndexedTables {
        match self.config.wildcard {
            Wildcard::Flows(FlowsConfig { learned_rules_min, learned_kind }) => {
                IndexedTables::for_decisions(learned_rules_min).by(learned_kind)
            }
            Wildcard::Megaflow(MegaflowConfig { learned_masks_min: usize::MAX, .. }) => {
                IndexedTables::NONE
            }
            Wildcard::Megaflow(MegaflowConfig { learned_kind, .. }) => {
                IndexedTables::for_translations(Pipeline::INDEXED_RULES_MIN).by(learned_kind)
            }
            Wildcard::Gigaflow(_) => IndexedTables::for_translations(Pipeline::INDEXED_RULES_MIN),
        }
    }

    /// Returns whether the tables decide each packet, without a cache.
    #[inline]
    pub(crate) const fn is_bypassed(&self) -> bool {
        matches!(self.config.wildcard, Wildcard::Flows(_))
    }

    /// Does some of the index's deferred work; returns whether there was any.
    pub(crate) fn maintain(&mut self) -> bool {
        self.index.maintain()
    }

    /// Changes the maximum number of megaflows; the oldest ones above it expire.
    ///
    /// Later iterations expire them. A Gigaflow cache has limits of its own, so the number takes
    /// effect when megaflows replace it.
    pub(crate) fn set_entries_max(&mut self, entries_max: usize) {
        self.config.entries_max = entries_max;
        if self.index.capacity().entries_max.is_some() {
            return;
        }
        if self.limit == 0 {
            self.owner.entries_mut().set_limit(entries_max);
        } else {
            self.limit = entries_max;
        }
    }

    /// Expires some entries of a former index, and some above the limit.
    ///
    /// Returns whether some are left.
    pub(crate) fn clear_out(&mut self) -> bool {
        for _ in 0..RECLAIMS_PER_ITERATION {
            let Some(entry) = self.oldest_unwanted() else { break };
            if !self.owner.expire(entry) {
                return true;
            }
        }
        if self.limit != 0 && self.oldest_unwanted().is_none() {
            let limit = std::mem::take(&mut self.limit);
            self.owner.entries_mut().set_limit(limit);
        }
        self.oldest_unwanted().is_some()
    }

    /// Returns the oldest entry, if it is of a former index or above the limit.
    fn oldest_unwanted(&self) -> Option<EntryRef> {
        let entries = self.owner.entries();
        let (entry, number) = entries.oldest()?;
        (number <= self.outdated || entries.excess() > 0).then_some(entry)
    }

    /// Returns whether no entry is left that [`Self::clear_out`] would expire.
    pub(crate) fn is_cleared_out(&self) -> bool {
        self.oldest_unwanted().is_none()
    }

    /// Returns whether idle entries should expire sooner.
    ///
    /// An index that evicts by itself needs no help.
    pub(crate) fn is_crowded(&self) -> bool {
        let entries = self.owner.entries().len();
        self.index.capacity().entries_max.is_none() && entries > self.config.entries_max / 8 * 7
    }

    /// Looks up the packets of a burst by their ingress keys, and sets their `hits`.
    ///
    /// Returns the positions of the hits to pass to [`Self::observe`].
    pub(crate) fn find_burst(
        &mut self,
        keys: &[FlowKey],
        hits: &mut [HitSlots; BURST],
    ) -> PositionSet {
        let uses_exact = self.trial.uses_exact;
        if uses_exact || self.index.uses_hashes() {
            for (hash, key) in self.hashes.iter_mut().zip(keys) {
                *hash = ExactCache::hash(&self.seeds.hasher, key);
            }
        }
        self.exact_hits = if uses_exact { self.find_exact(keys, hits) } else { PositionSet::EMPTY };
        let missing = PositionSet::first(keys.len()).without(self.exact_hits);
        if !missing.is_empty() {
            let burst = IngressBurst { keys, hashes: &self.hashes };
            let probes = self.index.find_burst(&self.owner, &burst, missing, hits);
            self.trial.count(missing.len(), probes, self.exact.is_on());
            if uses_exact {
                self.insert_exact(keys, hits, missing);
            }
        }
        self.index.sample_burst(&hits[..keys.len()])
    }

    /// Subtracts a hit of the last burst from the counts.
    ///
    /// The packet waits behind others, and is looked up again.
    pub(crate) fn uncount_hit(&mut self, position: usize, hit: &HitSlots) {
        if self.exact_hits.contains(position) {
            self.tally.hits -= 1;
        } else {
            self.index.uncount_hit(position, hit);
        }
    }

    /// Looks up one packet in the wildcard index alone.
    pub(crate) fn find(&mut self, key: &FlowKey) -> Lookup<PartialLookup> {
        self.index.find(&self.owner, key)
    }

    /// Passes a sampled packet that hit to the index.
    pub(crate) fn observe(&mut self, upcall: Upcall<'_>) {
        self.index.observe(upcall);
    }

    /// Translates a packet that missed, and adds entries for it.
    ///
    /// `partial` is the result of [`Self::find`] for the same key, or the default.
    pub(crate) fn handle_miss(
        &mut self,
        upcall: Upcall<'_>,
        partial: PartialLookup,
    ) -> UpcallResult {
        self.index.handle_miss(&mut self.owner, upcall, partial)
    }

    /// Translates a forecast, and adds entries for it if no entry covers it.
    ///
    /// `known` are the bits of the key that the forecast knows; `None`: all bits. `last` is the
    /// number of the last install before the forecast was received.
    pub(crate) fn preload(
        &mut self,
        upcall: Upcall<'_>,
        known: Option<&SparseMask>,
        last: InstallNo,
    ) -> Preloaded {
        let before = self.owner.last_install();
        let has_room = self.has_room_for_forecast();
        let forecast = ForecastUpcall { upcall, known, has_room };
        match self.index.preload(&mut self.owner, &forecast) {
            Preload::Covered(entry) => {
                let is_new = self.owner.entries().is_installed_after(entry, last);
                Preloaded::Covered { entry, is_new }
            }
            Preload::Refused { reason, translations } => {
                let unwanted: Vec<EntryRef> =
                    self.owner.entries().installed_after(before).collect();
                for entry in unwanted {
                    self.owner.expire(entry);
                }
                Preloaded::Refused { reason, translations }
            }
            Preload::Installed { translations } => {
                let entries: Box<[EntryRef]> =
                    self.owner.entries().installed_after(before).collect();
                if entries.is_empty() {
                    let reason = ForecastRefusal::NoRoom;
                    return Preloaded::Refused { reason, translations };
                }
                Preloaded::Installed { entries, translations }
            }
        }
    }

    /// Returns whether a forecast would displace no entry with traffic.
    pub(crate) fn has_room_for_forecast(&self) -> bool {
        let entries = self.owner.entries();
        let limit = self.index.capacity().entries_max.unwrap_or(self.config.entries_max);
        let used = entries.len() + entries.retired();
        self.limit == 0 && used < limit - limit / ROOM_DIVISOR && self.index.has_room(ROOM_DIVISOR)
    }

    /// Returns whether the owner may lack a slot, or the index room, for a miss.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.owner.entries().room() < 2 * CHAIN_MAX || !self.index.has_room(usize::MAX)
    }

    /// Returns whether dead entries must be reclaimed before a miss can be cached.
    pub(crate) fn needs_reclaims(&self) -> bool {
        let entries = self.owner.entries();
        entries.room() < 2 * CHAIN_MAX && entries.retired() > 0
    }

    /// Starts or ends a burst.
    ///
    /// During a burst, only entries that are dead at its start may be reclaimed.
    pub(crate) fn hold_reclaims(&mut self, holds: bool) {
        let dead = self.owner.entries().reclaimable();
        self.reclaims_left = if holds { dead } else { usize::MAX };
    }

    /// Moves entries from the repair queue to the reclaim queue.
    ///
    /// [`Entries::abandon_repairs`](super::Entries::abandon_repairs) selects the entries.
    ///
    /// Entries of the repair queue were dead before the current burst. Abandoned entries are
    /// reclaimed before entries that died during the burst.
    pub(crate) fn abandon_repairs(&mut self, count: usize, until: Option<Time>) -> usize {
        let abandoned = self.owner.entries_mut().abandon_repairs(count, until);
        self.reclaims_left = self.reclaims_left.saturating_add(abandoned);
        abandoned
    }

    /// Reclaims some of the dead entries, and credits their last hits.
    ///
    /// Returns whether an entry was reclaimed.
    pub(crate) fn reclaim_some(&mut self, pipeline: &Pipeline) -> bool {
        // Most dead entries have no hits to credit.
        let mut tables = None;
        for count in 0..RECLAIMS_PER_ITERATION {
            let Some(reclaimed) = self.reclaim() else { return count > 0 };
            if let Some(credit) = reclaimed.credit {
                let tables = tables.get_or_insert_with(|| pipeline.crediting());
                credit.apply(tables, &reclaimed.traversal);
            }
        }
        true
    }

    /// Reclaims a dead entry; `None` if no entry may be reclaimed now.
    fn reclaim(&mut self) -> Option<Reclaimed> {
        self.reclaims_left = self.reclaims_left.checked_sub(1)?;
        let reclaimed = self.owner.entries_mut().reclaim()?;
        self.index.remove(reclaimed.reference);
        Some(reclaimed)
    }

    /// Repairs the most recently hit entry of the repair queue.
    ///
    /// Reclaims the entry and translates its traversal at the owner's version. `None` if the queue
    /// is empty.
    pub(crate) fn repair(&mut self, pipeline: &Pipeline) -> Option<RepairedEntry> {
        let reclaimed = self.owner.entries_mut().reclaim_pending()?;
        let (outcome, translations) = self.index.repair(&mut self.owner, pipeline, &reclaimed);
        Some(RepairedEntry { reclaimed, outcome, translations })
    }

    /// Returns the position of a live entry in a chain, if it is an LTM entry.
    pub(crate) fn link(&self, entry: EntryRef) -> Option<CoverageLink> {
        self.index.link(entry)
    }

    /// Publishes the counts of the caches.
    pub(crate) fn publish(&self, counters: &ThreadCounters) {
        counters.exact.hits.set(self.tally.hits);
        counters.exact.misses.set(self.tally.misses);
        counters.exact.inserts.set(self.tally.inserts);
        counters.masks.set(self.index.masks() as u64);
        counters.entries.set(self.owner.entries().len() as u64);
        counters.refused_full.set(self.owner.refused().full);
        counters.refused_ring.set(self.owner.refused().ring);
        self.index.publish(counters);
    }

    /// Looks up a burst in the exact-match cache. Returns the positions that hit.
    ///
    /// The lookup reads tags, then lines, then entries of all packets, so that memory accesses
    /// overlap.
    fn find_exact(&mut self, keys: &[FlowKey], hits: &mut [HitSlots; BURST]) -> PositionSet {
        for (line, hash) in self.lines.iter_mut().zip(&self.hashes[..keys.len()]) {
            *line = self.exact.candidate(*hash);
        }
        self.lines[..keys.len()].iter().flatten().for_each(|line| self.exact.fetch(*line));
        let mut confirmed = [None; BURST];
        for ((confirmed, line), key) in confirmed.iter_mut().zip(&self.lines).zip(keys) {
            *confirmed = line.and_then(|line| self.exact.confirm(line, key));
        }
        let (entries, mut hit_positions) = (self.owner.entries(), PositionSet::EMPTY);
        for (position, (first, line)) in
            confirmed.into_iter().zip(&self.lines).enumerate().take(keys.len())
        {
            let is_hit = first.zip(*line).is_some_and(|(first, line)| {
                hits[position].clear();
                let further = self.exact.further(line);
                iter::once(first).chain(further).all(|entry| {
                    hits[position].push(entry.slot);
                    entries.is_live(entry)
                })
            });
            if is_hit {
                hit_positions.insert(position);
            }
        }
        self.tally.misses += keys.len() as u64 - u64::from(hit_positions.len());
        self.tally.hits += u64::from(hit_positions.len());
        hit_positions
    }

    /// Inserts some packets that hit in the index into the exact-match cache.
    fn insert_exact(&mut self, keys: &[FlowKey], hits: &[HitSlots; BURST], selected: PositionSet) {
        let entries = self.owner.entries();
        for position in selected.positions() {
            let slots = hits[position].slots();
            if slots.is_empty() || !self.exact.chooses() {
                continue;
            }
            let (mut names, mut count) = ([ExactCache::NO_ENTRY; CHAIN_MAX], 0);
            for name in slots.iter().map_while(|slot| entries.live_at(*slot)) {
                names[count] = name;
                count += 1;
            }
            // A line must have all entries of the packet.
            if count == slots.len() {
                self.exact.insert(self.hashes[position], &keys[position], &names[..count]);
                self.tally.inserts += 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "entries_limit_tests.rs"]
mod entries_limit_tests;

#[cfg(test)]
mod tests {
    use shunt_pipeline::{OwnerId, Pipeline};

    use super::*;

    #[test]
    fn possibly_hit_entries_outlive_the_burst() {
        let ((reports, _coordinator), (learn_requests, _control)) =
            (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(1));
        let (pipeline, key) = (Pipeline::new(1), FlowKey::ZERO);
        let version = pipeline.version();
        let owner = Owner::new(OwnerId(0), version, 4, reports, learn_requests);
        let mut caches = Caches::new(&CacheConfig::default(), owner, 1);
        let dead = |caches: &mut Caches| {
            let now = Time::ZERO;
            let upcall = Upcall { pipeline: &pipeline, key: &key, start: None, version, now };
            let entry = caches.handle_miss(upcall, PartialLookup::default()).entry.unwrap();
            assert!(caches.owner.expire(entry));
            entry
        };
        let before = dead(&mut caches);
        caches.hold_reclaims(true);
        let hit = dead(&mut caches);
        assert_eq!(caches.reclaim().map(|reclaimed| reclaimed.reference), Some(before));
        assert!(caches.reclaim().is_none(), "a packet of the burst may have hit it");
        caches.hold_reclaims(false);
        assert_eq!(caches.reclaim().map(|reclaimed| reclaimed.reference), Some(hit));
    }

    #[test]
    fn a_burst_holds_no_abandoned_repairs() {
        let ((reports, _coordinator), (learn_requests, _control)) =
            (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(1));
        let (pipeline, key) = (Pipeline::new(1), FlowKey::ZERO);
        let version = pipeline.version();
        let owner = Owner::new(OwnerId(0), version, 8, reports, learn_requests);
        let mut caches = Caches::new(&CacheConfig::default(), owner, 1);
        let now = Time::ZERO;
        let mut made = || {
            let upcall = Upcall { pipeline: &pipeline, key: &key, start: None, version, now };
            caches.handle_miss(upcall, PartialLookup::default()).entry.unwrap()
        };
        let [first, second, hit] = [made(), made(), made()];
        for evicted in [first, second] {
            assert!(caches.owner.entries_mut().evict_for_repair(evicted, now));
        }
        caches.hold_reclaims(true);
        assert!(caches.owner.expire(hit));
        assert!(caches.reclaim().is_none(), "the evicted entries are still to be re-translated");
        let reference = |reclaimed: Reclaimed| reclaimed.reference;
        assert_eq!(
            (caches.abandon_repairs(1, None), caches.reclaim().map(reference)),
            (1, Some(first))
        );
        assert!(caches.reclaim().is_none(), "a packet of the burst may have hit it");
        assert_eq!(
            (caches.abandon_repairs(8, None), caches.reclaim().map(reference)),
            (1, Some(second))
        );
        assert!(caches.reclaim().is_none());
        caches.hold_reclaims(false);
        assert_eq!(caches.reclaim().map(reference), Some(hit));
    }

    #[test]
    fn many_probes_enable_exact_match_cache() {
        let mut trial = ExactTrial { uses_exact: true, packets: 0, probes: 0 };
        let mut run = |probes_per_packet: u32, may_use| {
            for _ in 0..PACKETS_PER_TRIAL / 32 {
                trial.count(32, 32 * probes_per_packet, may_use);
            }
            trial.uses_exact
        };
        assert!(!run(1, true));
        assert!(run(2, true));
        assert!(run(30, true));
        assert!(!run(30, false), "the cache is off");
    }
}
