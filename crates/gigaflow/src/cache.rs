//! The Gigaflow cache: a chain of stages; each miss adds entries to them.
//!
//! A packet that misses is translated once through the whole pipeline, which decides its actions.
//! The policy partitions the [`TraversalOutline`] of this traversal into sub-traversals. If a stage
//! holds a sub-traversal already, its entry is reused. Each other sub-traversal becomes a new LTM
//! entry, built from the table lookups that the translation recorded. The partition never changes
//! the forwarding of packets: every entry does what the pipeline does between two partition points.
//!
//! # Traversals that are not partitioned or not cached
//!
//! A traversal with a learn request (a MAC address, an OpenFlow `learn` action) is not cached. A
//! traversal becomes a single megaflow entry if
//!
//! - its translation ended with an error at a bound, such as the number of resubmits,
//! - it recirculates to parse the packet again,
//! - a sub-traversal would spend more than its share of such a bound, or
//! - no tags are left.
//!
//! [`GigaflowCounts`] counts the traversals that are not partitioned or not cached.
//!
//! # Megaflows among sub-traversals
//!
//! In each stage a packet matches the longest entry. A megaflow is put into the first stage with a
//! matching sub-traversal, or into an earlier stage. The megaflow is longer, so its packets match
//! it first. A packet with a partial hit that starts over also gets a megaflow, if the entries that
//! it matches would lead it to the same miss again.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match};
use shunt_pipeline::{
    Continuation, DatapathAction, NotedTraversal, Pipeline, Time, Traversal, Version,
};

use self::{fill::FillScratch, sampler::Sampler};
use crate::{
    adaptive::{Adaptive, Capacity, Granularity, ProbeResult},
    convert::{HeaderMasks, outline_of, start_of},
    ltm::{Eviction, Ltm, Store, Walk},
    outline::TraversalOutline,
    partition::{AnyPolicy, MegaflowPolicy, PolicyName, StageSet, StageView as _},
    tag::{Reuse, TagName, TagSpace, has_other_hidden_state},
};

mod fill;
mod open_stages;
mod sampler;

/// The configuration of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number and the size of the stages.
    pub capacity: Capacity,
    /// The policy that partitions traversals.
    pub policy: PolicyName,
    /// The fallback to megaflows where sub-traversals hit less often.
    pub fallback: Fallback,
    /// The entry that a full stage evicts.
    pub eviction: Eviction,
    /// Number of bits of a tag.
    pub tag_bits: u8,
    /// The seed of all hashes and samples.
    pub seed: u64,
}

/// The fallback to megaflows where sub-traversals hit less often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The cache never falls back to megaflows.
    Off,
    /// Set duelling on one sampled packet in this number of packets: see [`Adaptive`].
    OneIn(u32),
}

/// A chain of stages with the policy that fills it.
#[derive(Debug)]
pub struct Gigaflow {
    ltm: Ltm,
    policy: ActivePolicy,
    /// The policy for traversals that are cached as megaflows.
    megaflow: MegaflowPolicy,
    sampler: Sampler,
    seed: u64,
    /// The outline of the traversal that is filled, reused for the next one.
    outline: TraversalOutline,
    counts: GigaflowCounts,
    /// The empty rewrite, for LTM rules that write no header for a next stage.
    no_rewrite: Match,
    masks: HeaderMasks,
    /// The memory of a fill, reused for the next one.
    scratch: FillScratch,
}

/// The policy in use: a fixed one, or the better of two by set duelling.
#[derive(Debug)]
enum ActivePolicy {
    Fixed(Box<AnyPolicy>),
    SetDuelling(Box<Adaptive<AnyPolicy>>),
}

/// The counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GigaflowCounts {
    /// Packets that did not reach the end of their traversal in the stages.
    pub misses: u64,
    /// Partial hits that resumed in the pipeline at the tag where they missed.
    pub resumed: u64,
    /// Translations of whole or remaining traversals, also for set duelling.
    pub translations: u64,
    /// Table lookups of all translations that `translations` counts.
    pub visits: u64,
    /// Entries that were installed.
    pub made: u64,
    /// Sub-traversals of misses for which an existing entry was reused.
    pub shared: u64,
    /// Entries that full stages evicted for new entries.
    pub evicted: u64,
    /// Misses that were not cached because the traversal has a learn request.
    pub learning: u64,
    /// Misses that became one megaflow because a sub-traversal came near a bound.
    pub near_bounds: u64,
    /// Misses that became one megaflow, or were not cached, because no tags were left.
    pub without_tags: u64,
    /// Misses for which the stages had no room for some or all entries.
    pub without_room: u64,
    /// Entries that the store refused.
    pub refused: u64,
}

/// A packet that missed, with the inputs of its translation.
#[derive(Clone, Copy)]
pub struct Miss<'a> {
    /// The pipeline that translates the packet.
    pub pipeline: &'a Pipeline,
    /// The flow key of the packet at the lookup.
    pub key: &'a FlowKey,
    /// The continuation to start from, if the packet was recirculated.
    pub start: Option<&'a Arc<Continuation>>,
    /// The version that the thread has adopted.
    pub version: Version,
    /// The time of the miss.
    pub now: Time,
}

/// A traversal to install as entries.
struct FillRequest<'a> {
    miss: Miss<'a>,
    /// The recorded traversal: the whole one, or the rest after `matched`.
    whole: &'a NotedTraversal,
    /// The slots of the entries that the packet matched before it missed.
    matched: &'a [u32],
    /// The stages that new entries may go to.
    open: StageSet,
    /// The size of the entries: sub-traversals or the whole traversal.
    granularity: Granularity,
}

impl Gigaflow {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_reuse(config, Reuse::AtOnce)
    }

    /// Creates the image of an empty offload device.
    ///
    /// The number of a tag is reused only after [`Ltm::free_retired`] has freed it.
    #[must_use]
    pub fn of_device(config: Config) -> Self {
        Self::with_reuse(config, Reuse::Drained)
    }

    /// Creates a cache; `reuse` determines when numbers of tags are reused.
    fn with_reuse(config: Config, reuse: Reuse) -> Self {
        let policy = config.policy.policy(config.seed);
        let tags = TagSpace::new(config.tag_bits, reuse, config.seed);
        let ltm = Ltm::new(config.capacity, config.eviction, tags, config.seed);
        let (policy, one_in) = match config.fallback {
            Fallback::Off => (ActivePolicy::Fixed(Box::new(policy)), 0),
            Fallback::OneIn(every) => (
                ActivePolicy::SetDuelling(Box::new(Adaptive::new(policy, ltm.capacity()))),
                every.max(1),
            ),
        };
        Self {
            ltm,
            policy,
            megaflow: MegaflowPolicy::default(),
            sampler: Sampler::new(one_in, config.seed),
            seed: config.seed,
            outline: TraversalOutline::new(),
            counts: GigaflowCounts::default(),
            no_rewrite: Match::any(),
            masks: HeaderMasks::default(),
            scratch: FillScratch::default(),
        }
    }

    /// Looks up a packet in the stages one by one, and returns whether it hits.
    ///
    /// `walk` receives the entries that the packet matched.
    #[inline]
    pub fn find(&self, store: &impl Store, key: &FlowKey, walk: &mut Walk) -> bool {
        self.ltm.find(store, key, walk)
    }

    /// Looks up many packets at once; returns the number of hash table lookups.
    ///
    /// Only the packets at the indexes that `is_selected` accepts are looked up.
    pub fn find_burst(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        is_selected: impl Fn(usize) -> bool,
    ) -> u32 {
        self.ltm.find_burst(store, keys, walks, is_selected)
    }

    /// Returns whether the next packet is sampled for set duelling.
    ///
    /// Call this function once for each packet. Pass a sampled packet to [`Self::observe`] even if
    /// it hits.
    #[inline]
    pub fn is_next_sampled(&mut self) -> bool {
        self.sampler.next(self.counts.misses)
    }

    /// Passes the traversal of a sampled hit to set duelling, if that is on.
    pub fn observe(&mut self, packet: Miss<'_>) {
        if self.is_contested(ProbeResult::Sampled) && packet.start.is_none() {
            self.translate_and_judge(packet, ProbeResult::Sampled);
        }
    }

    /// Translates a packet that missed, and installs entries for later packets.
    pub fn handle_miss(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        probe: ProbeResult,
    ) -> Arc<Traversal> {
        self.begin(store, miss, probe, None)
    }

    /// Handles the miss of a packet that cannot [resume](Self::resume).
    ///
    /// If the packet would match the same entries and miss again, its traversal becomes one
    /// megaflow, which the packet matches first.
    pub fn start_over(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
        probe: ProbeResult,
    ) -> Arc<Traversal> {
        self.begin(store, miss, probe, Some(walk))
    }

    /// Resumes a packet with a partial hit in the pipeline, at the tag where it missed.
    ///
    /// The caller executes the actions of the matched entries, then the actions of the returned
    /// traversal. `None` means that the packet must [start over](Self::start_over), for one of
    /// these reasons:
    ///
    /// - the bridge of the packet caches megaflows;
    /// - no stage after the last matched entry has room for the rest of the traversal;
    /// - the rest of the traversal has a learn request, recirculates, or comes near a bound.
    pub fn resume(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
        probe: ProbeResult,
    ) -> Option<Arc<Traversal>> {
        let Some(TagName::Continuation(start)) = self.ltm.tags().name(walk.tag()?).cloned() else {
            return None;
        };
        let last = self.ltm.stage(*walk.slots().last()?)?;
        if walk.is_hit() || self.granularity(miss.key, miss.start) == Granularity::Megaflows {
            return None;
        }
        let key = &start.entering(walk.key(miss.key));
        let from_here = Miss { key, start: Some(&start), ..miss };
        let noted = self.record_translation(from_here);
        let rest = &noted.traversal;
        if !rest.learnings.is_empty()
            || rest.error.is_some()
            || rest.actions.iter().any(DatapathAction::recirculates)
            || !noted.limit_use.fits(usize::from(self.ltm.capacity().stages_count))
        {
            return None;
        }
        outline_of(&noted, self.seed, &mut self.outline);
        let open = StageSet::first_of(self.ltm.capacity().stages_count).since(last.number() + 1);
        let (whole, matched) = (&noted, walk.slots());
        let request = FillRequest {
            miss: from_here,
            whole,
            matched,
            open,
            granularity: Granularity::SubTraversals,
        };
        if !self.fill(store, &request) {
            return None;
        }
        // A packet that starts over also counts as a share of the matched entries.
        self.ltm.share_walked(walk.slots());
        self.counts.shared += walk.slots().len() as u64;
        self.counts.misses += 1;
        self.counts.resumed += 1;
        if miss.start.is_none() && self.is_contested(probe) {
            self.translate_and_judge(miss, probe);
        }
        Some(noted.traversal)
    }

    /// Returns the stages of the cache.
    #[must_use]
    pub const fn ltm(&self) -> &Ltm {
        &self.ltm
    }

    /// Returns the stages of the cache, to remove entries that the store has ended.
    pub const fn ltm_mut(&mut self) -> &mut Ltm {
        &mut self.ltm
    }

    /// Returns the counters of the cache so far.
    #[must_use]
    pub const fn counts(&self) -> GigaflowCounts {
        GigaflowCounts { evicted: self.counts.evicted + self.ltm.evicted_count(), ..self.counts }
    }

    /// Continues from the counters of the replaced cache.
    pub const fn count_on(&mut self, counts: GigaflowCounts) {
        self.counts = counts;
    }

    /// Returns the granularity in which the traversals of this bridge are cached.
    #[must_use]
    pub fn granularity(&self, key: &FlowKey, start: Option<&Arc<Continuation>>) -> Granularity {
        match &self.policy {
            ActivePolicy::SetDuelling(adaptive) if start.is_none() => {
                adaptive.granularity(start_of(key.bridge(), start))
            }
            ActivePolicy::Fixed(_) | ActivePolicy::SetDuelling(_) => Granularity::SubTraversals,
        }
    }

    /// Translates a packet, and installs entries for its whole traversal.
    ///
    /// `walk` has the matched entries of a packet that could not resume.
    fn begin(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        probe: ProbeResult,
        walk: Option<&Walk>,
    ) -> Arc<Traversal> {
        self.counts.misses += u64::from(probe != ProbeResult::Retranslated);
        let mut noted = self.record_translation(miss);
        if !noted.traversal.learnings.is_empty() {
            self.counts.learning += 1;
            return noted.traversal;
        }
        if miss.start.is_none() && has_other_hidden_state(miss.key) {
            // A packet that arrives with hidden state has no tag.
            self.counts.without_tags += 1;
            return noted.traversal;
        }
        if noted.traversal.error.is_some() {
            noted.points.clear();
        }
        outline_of(&noted, self.seed, &mut self.outline);
        // Set duelling observes traversals of packets, and no re-translated entries.
        if miss.start.is_none() && probe != ProbeResult::Retranslated && self.is_contested(probe) {
            self.judge(probe);
        }
        let has_no_partition_point =
            self.outline.segments_count() == 1 && self.outline.steps_count() > 1;
        let granularity = if has_no_partition_point {
            Granularity::Megaflows
        } else {
            self.granularity(miss.key, miss.start)
        };
        let open = self.stages_matched_first(store, miss.key, granularity);
        let mut request = FillRequest { miss, whole: &noted, matched: &[], open, granularity };
        let is_filled = self.fill(store, &request);
        let has_matched = walk.is_some_and(|walk| !walk.slots().is_empty());
        if is_filled
            && has_matched
            && granularity == Granularity::SubTraversals
            && !self.is_hit(store, miss.key)
        {
            // The packet still matches entries of other flows that lead it to a miss.
            request.granularity = Granularity::Megaflows;
            request.open = self.stages_matched_first(store, miss.key, Granularity::Megaflows);
            self.fill(store, &request);
        }
        noted.traversal
    }

    /// Returns whether the entries form a whole traversal for a key.
    fn is_hit(&self, store: &impl Store, key: &FlowKey) -> bool {
        self.ltm.find(store, key, &mut Walk::default())
    }

    /// Returns the stages in which a packet matches the first entry of its traversal.
    ///
    /// For a megaflow the result is the stages up to the first stage in which the packet now
    /// matches a sub-traversal, because the megaflow is longer.
    fn stages_matched_first(
        &self,
        store: &impl Store,
        key: &FlowKey,
        granularity: Granularity,
    ) -> StageSet {
        let mut until = self.ltm.capacity().stages_count;
        if granularity == Granularity::Megaflows {
            let mut walk = Walk::default();
            self.ltm.find(store, key, &mut walk);
            let first = walk.slots().first().and_then(|slot| self.ltm.stage(*slot));
            until = first.map_or(until, |first| first.number() + 1);
        }
        StageSet::first_of(until)
    }

    /// Translates a missed packet, and counts the translation.
    fn record_translation(&mut self, miss: Miss<'_>) -> NotedTraversal {
        let noted = miss.pipeline.translate_noted(miss.key, miss.start, miss.version);
        self.counts.translations += 1;
        self.counts.visits += noted.traversal.visits.len() as u64;
        noted
    }

    /// Returns whether set duelling is on and no stage has room.
    fn is_contested(&mut self, probe: ProbeResult) -> bool {
        let ActivePolicy::SetDuelling(adaptive) = &mut self.policy else { return false };
        let has_room = self.ltm.room() != StageSet::EMPTY;
        if has_room && probe == ProbeResult::Sampled {
            adaptive.relax();
        }
        !has_room
    }

    /// Translates a packet, and passes its whole traversal to set duelling.
    fn translate_and_judge(&mut self, packet: Miss<'_>, probe: ProbeResult) {
        let noted = self.record_translation(packet);
        outline_of(&noted, self.seed, &mut self.outline);
        self.judge(probe);
    }

    /// Passes the current outline to set duelling.
    ///
    /// If the granularity of the start changes, all present entries are marked as outdated.
    fn judge(&mut self, probe: ProbeResult) {
        let ActivePolicy::SetDuelling(adaptive) = &mut self.policy else { return };
        let start = self.outline.start();
        let before = adaptive.granularity(start);
        adaptive.observe(&self.outline, probe);
        if adaptive.granularity(start) != before {
            self.ltm.mark_outdated();
        }
    }
}
