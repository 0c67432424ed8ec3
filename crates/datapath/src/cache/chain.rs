//! The Gigaflow index: LTM entries in a chain of stages, which flows share.
//!
//! [`shunt_gigaflow`] partitions traversals and walks packets through the stages. The entries
//! belong to the [`Owner`], like those of every index: the owner reports entries, drops them for an
//! invalidation, and counts their hits. So every entry has one slot and one generation.
//!
//! A packet that hits some stages and misses in a later stage has not changed yet. The translation
//! resumes at the state where the packet missed. The translation starts over if its remaining
//! sub-traversals cannot be cached after the entries that were hit.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_foresight::ForecastRefusal;
pub(super) use shunt_gigaflow::cache::Config as GigaflowConfig;
pub use shunt_gigaflow::ltm::CoverageLink;
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Gigaflow, GigaflowCounts, Miss},
    ltm::{LtmEntryRef, Store, Walk},
    partition::StageId,
};
use shunt_pipeline::{Pipeline, Time, Traversal};

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
    metrics::{CHAIN_MAX, ThreadCounters},
    packet::buffer::BURST,
};

/// A chain of stages as the wildcard index of a packet thread.
#[derive(Debug)]
pub(crate) struct GigaflowIndex {
    /// The stages, and the policy that fills them.
    gigaflow: Gigaflow,
    /// The buffer for the walk of a single packet through the stages.
    walk: Walk,
    /// The walks of a burst.
    walks: Box<[Walk]>,
    /// The packet counts, not published yet.
    tally: ChainTally,
}

/// The walk of a packet that missed in the chain.
#[derive(Debug, Default)]
pub(crate) struct PartialWalk {
    /// The stages that the packet hit before its miss.
    walk: Walk,
    /// True if the packet was sampled for set duelling.
    is_sampled: bool,
}

/// The packet counts of a chain, before they are published.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChainTally {
    /// Number of packets that hit an entry in every stage that they needed.
    hits: u64,
    /// Number of packets that hit no entry.
    misses: u64,
    /// Number of packets that hit entries, and missed in a later stage.
    partial: u64,
    /// Number of entries that packets hit, summed over packets with a complete hit.
    steps: u64,
}

/// The counts of all chains that a packet thread has used.
pub(crate) type ChainTotals = (ChainTally, GigaflowCounts);

/// Entry slots beyond the capacity of a chain, for dead entries.
const RETIRED_MAX: usize = 1024;

impl WildcardIndex for GigaflowIndex {
    type Config = GigaflowConfig;
    type Partial = PartialWalk;
    type Totals = ChainTotals;

    fn new(config: GigaflowConfig, seeds: &IndexSeeds, (tally, counts): ChainTotals) -> Self {
        let mut gigaflow =
            Gigaflow::new(limit_stages(GigaflowConfig { seed: seeds.seed, ..config }));
        gigaflow.count_on(counts);
        let walks = vec![Walk::default(); BURST].into_boxed_slice();
        Self { gigaflow, walk: Walk::default(), walks, tally }
    }

    fn totals(&self) -> ChainTotals {
        (self.tally, self.gigaflow.counts())
    }

    fn capacity(&self) -> IndexCapacity {
        let Capacity { stages_count, stage_entries_max } = self.gigaflow.ltm().capacity();
        let entries_max = stage_entries_max.saturating_mul(stages_count.into());
        IndexCapacity {
            entries_max: Some(entries_max.saturating_add(RETIRED_MAX)),
            hits_per_packet_max: stages_count.into(),
        }
    }

    fn find_burst(
        &mut self,
        owner: &Owner,
        burst: &IngressBurst<'_>,
        selected: PositionSet,
        hits: &mut [HitSlots; BURST],
    ) -> u32 {
        let keys = burst.keys;
        let is_selected = |position: usize| selected.contains(position);
        let walks = &mut self.walks[..keys.len()];
        let probes = self.gigaflow.find_burst(owner, keys, walks, is_selected);
        for (position, (walk, hit)) in walks.iter().zip(hits).enumerate() {
            if is_selected(position) {
                self.tally.count(walk, hit);
            }
        }
        probes
    }

    fn find(&mut self, owner: &Owner, key: &FlowKey) -> Lookup<PartialWalk> {
        let is_sampled = self.gigaflow.is_next_sampled();
        self.gigaflow.find(owner, key, &mut self.walk);
        let mut slots = HitSlots::default();
        self.tally.count(&self.walk, &mut slots);
        if slots.is_miss() {
            Lookup::Miss(PartialWalk { walk: std::mem::take(&mut self.walk), is_sampled })
        } else {
            Lookup::Hit { slots, is_sampled }
        }
    }

    fn uncount_hit(&mut self, _position: usize, hit: &HitSlots) {
        self.tally.hits -= 1;
        self.tally.steps -= hit.slots().len() as u64;
    }

    /// Resumes the translation where the packet missed, or starts over.
    fn handle_miss(
        &mut self,
        owner: &mut Owner,
        upcall: Upcall<'_>,
        PartialWalk { walk, is_sampled }: PartialWalk,
    ) -> UpcallResult {
        let miss = miss_of(upcall);
        let hit: Vec<LtmEntryRef> = self.gigaflow.ltm().names(walk.slots()).collect();
        let traversal = |entry: &LtmEntryRef| owner.entries().traversal(entry.slot).map(Arc::clone);
        let mut traversals: Vec<Arc<Traversal>> = hit.iter().filter_map(traversal).collect();
        let probe = if is_sampled { ProbeResult::Sampled } else { ProbeResult::Missed };
        let before = self.gigaflow.counts().translations;
        if let Some(rest) = self.gigaflow.resume(owner, miss, &walk, probe) {
            hit.iter().for_each(|entry| owner.touch((*entry).into(), upcall.now));
            traversals.push(rest);
        } else {
            traversals = vec![self.gigaflow.start_over(owner, miss, &walk, probe)];
        }
        // The next lookup reuses the buffer.
        self.walk = walk;
        let translations = self.gigaflow.counts().translations - before;
        UpcallResult { traversals, entry: None, translations }
    }

    fn remove(&mut self, entry: EntryRef) {
        self.gigaflow.ltm_mut().forget(entry.into());
    }

    /// Translates again from the start if `old` was the first sub-traversal.
    ///
    /// Packets that miss at the state of a later sub-traversal create its entry again.
    fn repair(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> (RepairOutcome, u64) {
        self.remove(old.reference);
        let before = self.gigaflow.counts().translations;
        let outcome = self.translate_again(owner, pipeline, old);
        (outcome, self.gigaflow.counts().translations - before)
    }

    /// Translates a forecast as a miss, but does not train set duelling.
    fn preload(&mut self, owner: &mut Owner, forecast: &ForecastUpcall<'_>) -> Preload {
        let ForecastUpcall { upcall, known, has_room } = *forecast;
        let mut walk = Walk::default();
        if self.gigaflow.find(owner, upcall.key, &mut walk) {
            let covering = self.gigaflow.ltm().names(walk.slots()).map(EntryRef::from);
            let newest = covering.max_by_key(|entry| owner.entries().install_no(entry.slot));
            return newest.map_or(
                Preload::Refused { reason: ForecastRefusal::NoEntries, translations: 0 },
                Preload::Covered,
            );
        }
        if let Some(reason) = room_refusal(owner, has_room) {
            return Preload::Refused { reason, translations: 0 };
        }
        // The chain also caches errors, and installs entries before all consulted bits are known.
        // So the forecast is checked first.
        let checked = u64::from(known.is_some());
        if known.is_some()
            && let Some(reason) = refusal_of(&upcall.translate(), known)
        {
            return Preload::Refused { reason, translations: checked };
        }
        let before = self.gigaflow.counts().translations;
        // No packet uses the entries now. Shared entries keep their time of last use (invariant 7),
        // and new entries are the first to be replaced.
        let miss = Miss { now: Time::ZERO, ..miss_of(upcall) };
        let traversal = self.gigaflow.handle_miss(owner, miss, ProbeResult::Retranslated);
        let translations = checked + self.gigaflow.counts().translations - before;
        match refusal_of(&traversal, None) {
            Some(reason) => Preload::Refused { reason, translations },
            None => Preload::Installed { translations },
        }
    }

    /// Returns whether every stage has room for a new entry, and a reserve.
    fn has_room(&self, divisor: usize) -> bool {
        let ltm = self.gigaflow.ltm();
        let Capacity { stages_count, stage_entries_max } = ltm.capacity();
        let stages = (0..stages_count).map_while(StageId::new);
        let reserve = stage_entries_max / divisor;
        stages.into_iter().all(|stage| ltm.len(stage) < stage_entries_max - reserve)
    }

    /// Returns the number of masks of all stages.
    fn masks(&self) -> usize {
        self.gigaflow.ltm().masks_count()
    }

    fn publish(&self, counters: &ThreadCounters) {
        let counters = &counters.chain;
        let (tally, counts, ltm) = (self.tally, self.gigaflow.counts(), self.gigaflow.ltm());
        for (counter, count) in [
            (&counters.hits, tally.hits),
            (&counters.steps, tally.steps),
            (&counters.misses, tally.misses),
            (&counters.partial, tally.partial),
            (&counters.resumed, counts.resumed),
            (&counters.made, counts.made),
            (&counters.shared, counts.shared),
            (&counters.evicted, counts.evicted),
            (&counters.learning, counts.learning),
            (&counters.near_bounds, counts.near_bounds),
            (&counters.without_tags, counts.without_tags),
            (&counters.without_room, counts.without_room),
            (&counters.refused, counts.refused),
            (&counters.tags, ltm.tags().len() as u64),
        ] {
            counter.set(count);
        }
        for (stage, own) in (0..).map_while(StageId::new).zip(&counters.stages) {
            own.entries.set(ltm.len(stage) as u64);
            own.masks.set(ltm.masks_of(stage) as u64);
        }
    }

    fn sample_burst(&mut self, hits: &[HitSlots]) -> PositionSet {
        let mut sampled = PositionSet::EMPTY;
        for (position, hit) in hits.iter().enumerate() {
            if self.gigaflow.is_next_sampled() && !hit.is_miss() {
                sampled.insert(position);
            }
        }
        sampled
    }

    fn observe(&mut self, upcall: Upcall<'_>) {
        self.gigaflow.observe(miss_of(upcall));
    }

    fn link(&self, entry: EntryRef) -> Option<CoverageLink> {
        let (ltm, entry) = (self.gigaflow.ltm(), LtmEntryRef::from(entry));
        let is_own = ltm.names(&[entry.slot]).next() == Some(entry);
        if is_own { ltm.link(entry.slot) } else { None }
    }
}

impl GigaflowIndex {
    /// Translates an evicted entry again, and installs the result.
    fn translate_again(
        &mut self,
        owner: &mut Owner,
        pipeline: &Pipeline,
        old: &Reclaimed,
    ) -> RepairOutcome {
        if old.traversal.continuation.is_some() {
            return RepairOutcome::Dropped;
        }
        let (key, mut walk) = (FlowKey::from(&old.traversal.key), Walk::default());
        if self.gigaflow.find(owner, &key, &mut walk) {
            return RepairOutcome::Covered;
        }
        let (version, now) = (owner.version(), old.used);
        let miss = Miss { pipeline, key: &key, start: None, version, now };
        self.gigaflow.handle_miss(owner, miss, ProbeResult::Retranslated);
        if !self.gigaflow.find(owner, &key, &mut walk) {
            return RepairOutcome::Dropped;
        }
        let first = walk.slots().first().and_then(|slot| owner.entries().traversal(*slot));
        RepairOutcome::of(first.is_some_and(|own| {
            own.actions == old.traversal.actions && own.next == old.traversal.next
        }))
    }
}

/// The owner stores the LTM entries of its chain.
impl Store for Owner {
    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef> {
        self.install(Arc::clone(traversal), now).ok().map(LtmEntryRef::from)
    }

    fn has_room(&self) -> bool {
        self.can_install()
    }

    fn end(&mut self, entry: LtmEntryRef) -> bool {
        self.expire(entry.into())
    }

    #[inline]
    fn is_live(&self, entry: LtmEntryRef) -> bool {
        self.entries().is_live(entry.into())
    }

    fn used(&self, slot: u32) -> Time {
        self.entries().used_at(slot).map_or(Time::ZERO, |(_, used)| used)
    }

    fn touch(&mut self, slot: u32, now: Time) {
        self.entries_mut().touch(slot, now);
    }
}

impl ChainTally {
    /// Counts a walk, and sets `hit` to its entries if the walk is complete.
    #[inline]
    fn count(&mut self, walk: &Walk, hit: &mut HitSlots) {
        let slots = walk.slots();
        if walk.is_hit() {
            self.hits += 1;
            self.steps += slots.len() as u64;
            hit.set(slots);
            return;
        }
        hit.clear();
        self.misses += u64::from(slots.is_empty());
        self.partial += u64::from(!slots.is_empty());
    }
}

/// Returns the arguments for a translation after a miss.
fn miss_of(upcall: Upcall<'_>) -> Miss<'_> {
    let Upcall { pipeline, key, start, version, now } = upcall;
    Miss { pipeline, key, start, version, now }
}

impl From<EntryRef> for LtmEntryRef {
    #[inline]
    fn from(EntryRef { slot, generation }: EntryRef) -> Self {
        Self { slot, generation }
    }
}

impl From<LtmEntryRef> for EntryRef {
    #[inline]
    fn from(LtmEntryRef { slot, generation }: LtmEntryRef) -> Self {
        Self { slot, generation }
    }
}

/// Limits the stages of a configuration to [`CHAIN_MAX`].
fn limit_stages(config: GigaflowConfig) -> GigaflowConfig {
    // `CHAIN_MAX` fits into a byte, as its definition asserts.
    let stages_max = u8::try_from(CHAIN_MAX).unwrap_or(u8::MAX);
    let stages_count = config.capacity.stages_count.clamp(1, stages_max);
    let stage_entries_max = config.capacity.stage_entries_max.max(1);
    GigaflowConfig { capacity: Capacity { stages_count, stage_entries_max }, ..config }
}
