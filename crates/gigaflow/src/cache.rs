//! The cache as a whole: a chain of stages, and how misses fill it.
//!
//! A packet that misses is translated once as a whole, which says what becomes of it. Its [`TraversalOutline`] is
//! shown to the policy, which says where to cut. Pieces that are there already are met as any packet
//! meets them; those that are not are made from what the translation has found in the tables, and each
//! becomes a rule. Nothing of that decides what happens to packets: a rule says what the tables say,
//! wherever it was cut.
//!
//! # What is not cut, and what is not cached
//!
//! What teaches is not cached, as in any cache. One entry for all of its way gets what ended at a bound,
//! what is parsed again, what comes too near to a bound for as many pieces as there are stages, and what
//! there are no tags left for. [`Counts`] has the reasons.
//!
//! # Whole ways among pieces
//!
//! A packet takes the longest entry of the first stage that has one for it. So a way that is one entry is
//! put into a stage not behind that in which its packets meet a piece: it is longer, and they meet it
//! first. The same goes for a packet that missed midway, started over, and would be led astray again by
//! what it meets.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match};
use shunt_pipeline::{
    Continuation, DatapathAction, NotedTraversal, Pipeline, Time, Traversal, Version,
};

use self::fill::Desk;
use crate::{
    adaptive::{Adaptive, Capacity, Grain, ProbeResult},
    draw::Draw,
    ltm::{Eviction, Ltm, Store, Walk},
    outline::TraversalOutline,
    partition::{AnyPolicy, PolicyName, StageSet, Stages as _, Whole},
    rule_of::{HeaderMasks, outline_of, start_of},
    tag::{Reuse, TagName, TagSpace, is_hiding},
};

mod fill;

/// What a cache is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its stages.
    pub capacity: Capacity,
    /// Where ways are cut.
    pub policy: PolicyName,
    /// Whether the policy falls back to whole ways where pieces lose.
    pub fallback: Fallback,
    /// What makes room.
    pub eviction: Eviction,
    /// Bits of a tag.
    pub tag_bits: u8,
    /// What hashes begin with.
    pub seed: u64,
}

/// Whether pieces give way to whole entries where those hit more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Never.
    Off,
    /// By a duel on one packet in so many: see [`Adaptive`].
    OneIn(u32),
}

/// A chain of stages, and how it is filled.
#[derive(Debug)]
pub struct Gigaflow {
    ltm: Ltm,
    policy: Chooser,
    whole: Whole,
    draw: Draw,
    seed: u64,
    way: TraversalOutline,
    counts: Counts,
    /// What a rule rewrites that rewrites nothing for the next stage.
    nothing: Match,
    masks: HeaderMasks,
    desk: Desk,
}

#[derive(Debug)]
enum Chooser {
    Plain(Box<AnyPolicy>),
    Duel(Box<Adaptive<AnyPolicy>>),
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that did not come to the end of their way.
    pub misses: u64,
    /// Misses that went on where they missed.
    pub resumed: u64,
    /// Times that a packet, or what was left of its way, went through the tables, also for the duel.
    pub translations: u64,
    /// Lookups in the tables that it took.
    pub visits: u64,
    /// Entries that were made.
    pub made: u64,
    /// Pieces that were entries already.
    pub shared: u64,
    /// Entries that made room.
    pub evicted: u64,
    /// Misses that were not cached, as they teach.
    pub teaching: u64,
    /// Misses that were not cut, as too many of their pieces would come near to a bound.
    pub near_bounds: u64,
    /// Misses that were not cut, or not cached, as there were no tags left.
    pub without_tags: u64,
    /// Misses that were not cached, or not all of them, as there was no room.
    pub without_room: u64,
    /// Pieces that the store refused.
    pub refused: u64,
}

/// A packet that missed.
#[derive(Clone, Copy)]
pub struct Miss<'a> {
    /// The tables that say what becomes of it.
    pub pipeline: &'a Pipeline,
    /// The key that it was looked up by.
    pub key: &'a FlowKey,
    /// Where it goes on, if it was parsed again.
    pub start: Option<&'a Arc<Continuation>>,
    /// The version that its thread is at.
    pub version: Version,
    /// Now.
    pub now: Time,
}

/// What is known of a packet that missed when its way is made into entries.
struct Filling<'a> {
    miss: Miss<'a>,
    /// All of its way, or what is left of it.
    whole: &'a NotedTraversal,
    /// The entries that it met before.
    met: &'a [u32],
    /// The stages that its pieces may go to.
    open: StageSet,
    grain: Grain,
}

impl Gigaflow {
    /// An empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_reuse(config, Reuse::AtOnce)
    }

    /// What is meant to be in a target that has nothing: the number of a tag is used again only when it
    /// is [drained](Ltm::drained).
    #[must_use]
    pub fn of_device(config: Config) -> Self {
        Self::with_reuse(config, Reuse::Drained)
    }

    fn with_reuse(config: Config, reuse: Reuse) -> Self {
        let policy = config.policy.policy(config.seed);
        let tags = TagSpace::new(config.tag_bits, reuse, config.seed);
        let ltm = Ltm::new(config.capacity, config.eviction, tags, config.seed);
        let (policy, one_in) = match config.fallback {
            Fallback::Off => (Chooser::Plain(Box::new(policy)), 0),
            Fallback::OneIn(every) => {
                (Chooser::Duel(Box::new(Adaptive::new(policy, ltm.capacity()))), every.max(1))
            }
        };
        Self {
            ltm,
            policy,
            whole: Whole::default(),
            draw: Draw::new(one_in, config.seed),
            seed: config.seed,
            way: TraversalOutline::new(),
            counts: Counts::default(),
            nothing: Match::any(),
            masks: HeaderMasks::default(),
            desk: Desk::default(),
        }
    }

    /// Walks a packet through the stages; the walk says what it met, and whether it came to the end.
    #[inline]
    pub fn find(&self, store: &impl Store, key: &FlowKey, walk: &mut Walk) -> bool {
        self.ltm.find(store, key, walk)
    }

    /// As [`Self::find`], for many packets at once: those at the places that `goes` accepts. Answers in
    /// how many tables they were looked up, for each packet and table one.
    pub fn find_burst(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        goes: impl Fn(usize) -> bool,
    ) -> u32 {
        self.ltm.find_burst(store, keys, walks, goes)
    }

    /// Whether the next packet is one that is drawn for the duel: then its way is to be shown to
    /// [`Self::observe`] also if it hits. To be asked once for each packet.
    #[inline]
    pub fn draws(&mut self) -> bool {
        self.draw.next(self.counts.misses)
    }

    /// Shows the way of a packet that was drawn and has hit to the duel, if there is one now.
    pub fn observe(&mut self, packet: Miss<'_>) {
        if self.is_contested(ProbeResult::Sampled) && packet.start.is_none() {
            self.show(packet, ProbeResult::Sampled);
        }
    }

    /// Translates a packet that missed, and makes entries for those that come after it.
    pub fn miss(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        probe: ProbeResult,
    ) -> Arc<Traversal> {
        self.begin(store, miss, probe, None)
    }

    /// As [`Self::miss`], for a packet that missed on this walk and could not [go on](Self::go_on): if what
    /// it meets would lead it there again, its way becomes one entry, which it meets before.
    pub fn start_over(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
        probe: ProbeResult,
    ) -> Arc<Traversal> {
        self.begin(store, miss, probe, Some(walk))
    }

    /// Goes on with a packet that missed midway, where it missed: what the entries of its walk say is
    /// done to it, and then what is answered. `None`: it is to [start over](Self::start_over).
    ///
    /// It starts over where ways are kept whole, and if what is left could not be cached behind the
    /// entry that it met last, if it teaches, and if it comes near to a bound.
    pub fn go_on(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
        probe: ProbeResult,
    ) -> Option<Arc<Traversal>> {
        let Some(TagName::StateId(start)) = self.ltm.tags().name(walk.tag()?).cloned() else {
            return None;
        };
        let last = self.ltm.stage(*walk.slots().last()?)?;
        if walk.is_hit() || self.grain(miss.key, miss.start) == Grain::Whole {
            return None;
        }
        let key = &start.entering(walk.key(miss.key));
        let from_here = Miss { key, start: Some(&start), ..miss };
        let noted = self.noting(from_here);
        let rest = &noted.traversal;
        if !rest.learnings.is_empty()
            || rest.error.is_some()
            || rest.actions.iter().any(DatapathAction::recirculates)
            || !noted.spending.fits(usize::from(self.ltm.capacity().stages_count))
        {
            return None;
        }
        outline_of(&noted, self.seed, &mut self.way);
        let open = StageSet::first_of(self.ltm.capacity().stages_count).since(last.number() + 1);
        let (whole, met) = (&noted, walk.slots());
        let filling = Filling { miss: from_here, whole, met, open, grain: Grain::Pieces };
        if !self.fill(store, &filling) {
            return None;
        }
        // Had it started over, it would have found them there too.
        self.ltm.share_walked(walk.slots());
        self.counts.shared += walk.slots().len() as u64;
        self.counts.misses += 1;
        self.counts.resumed += 1;
        if miss.start.is_none() && self.is_contested(probe) {
            self.show(miss, probe);
        }
        Some(noted.traversal)
    }

    /// The stages.
    #[must_use]
    pub const fn ltm(&self) -> &Ltm {
        &self.ltm
    }

    /// The stages, to tell them of entries that went.
    pub const fn ltm_mut(&mut self) -> &mut Ltm {
        &mut self.ltm
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        Counts { evicted: self.counts.evicted + self.ltm.evicted_count(), ..self.counts }
    }

    /// Begins with what a cache before this one has done.
    pub const fn count_on(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// What ways that begin here are cached as.
    #[must_use]
    pub fn grain(&self, key: &FlowKey, start: Option<&Arc<Continuation>>) -> Grain {
        match &self.policy {
            Chooser::Duel(duel) if start.is_none() => duel.grain(start_of(key.bridge(), start)),
            Chooser::Plain(_) | Chooser::Duel(_) => Grain::Pieces,
        }
    }

    /// Makes entries of a way from its beginning. `walk` is of a packet that could not go on.
    fn begin(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        probe: ProbeResult,
        walk: Option<&Walk>,
    ) -> Arc<Traversal> {
        self.counts.misses += u64::from(probe != ProbeResult::Anew);
        let mut noted = self.noting(miss);
        if !noted.traversal.learnings.is_empty() {
            self.counts.teaching += 1;
            return noted.traversal;
        }
        if miss.start.is_none() && is_hiding(miss.key) {
            // No tag names what no bridge gives to packets that come in.
            self.counts.without_tags += 1;
            return noted.traversal;
        }
        if noted.traversal.error.is_some() {
            noted.points.clear();
        }
        outline_of(&noted, self.seed, &mut self.way);
        // What packets ask for is learned from packets alone.
        if miss.start.is_none() && probe != ProbeResult::Anew && self.is_contested(probe) {
            self.judge(probe);
        }
        let is_uncut = self.way.legs_count() == 1 && self.way.steps_count() > 1;
        let grain = if is_uncut { Grain::Whole } else { self.grain(miss.key, miss.start) };
        let open = self.stages_met_by(store, miss.key, grain);
        let mut filling = Filling { miss, whole: &noted, met: &[], open, grain };
        let is_filled = self.fill(store, &filling);
        let has_met = walk.is_some_and(|walk| !walk.slots().is_empty());
        if is_filled && has_met && grain == Grain::Pieces && !self.is_hit(store, miss.key) {
            // What it meets leads it another way.
            filling.grain = Grain::Whole;
            filling.open = self.stages_met_by(store, miss.key, Grain::Whole);
            self.fill(store, &filling);
        }
        noted.traversal
    }

    fn is_hit(&self, store: &impl Store, key: &FlowKey) -> bool {
        self.ltm.find(store, key, &mut Walk::default())
    }

    /// The stages in which a packet meets what begins its way: of a whole one, those up to the first
    /// in which it now meets a piece, which is shorter.
    fn stages_met_by(&self, store: &impl Store, key: &FlowKey, grain: Grain) -> StageSet {
        let mut until = self.ltm.capacity().stages_count;
        if grain == Grain::Whole {
            let mut walk = Walk::default();
            self.ltm.find(store, key, &mut walk);
            let first = walk.slots().first().and_then(|slot| self.ltm.stage(*slot));
            until = first.map_or(until, |first| first.number() + 1);
        }
        StageSet::first_of(until)
    }

    fn noting(&mut self, miss: Miss<'_>) -> NotedTraversal {
        let noted = miss.pipeline.translate_noting(miss.key, miss.start, miss.version);
        self.counts.translations += 1;
        self.counts.visits += noted.traversal.visits.len() as u64;
        noted
    }

    /// Whether pieces and whole ways contend: there is a duel, and no room for both.
    fn is_contested(&mut self, probe: ProbeResult) -> bool {
        let Chooser::Duel(duel) = &mut self.policy else { return false };
        let has_room = self.ltm.room() != StageSet::EMPTY;
        if has_room && probe == ProbeResult::Sampled {
            duel.relax();
        }
        !has_room
    }

    /// Shows the whole way of a packet to the duel.
    fn show(&mut self, packet: Miss<'_>, probe: ProbeResult) {
        let noted = self.noting(packet);
        outline_of(&noted, self.seed, &mut self.way);
        self.judge(probe);
    }

    /// Shows the way to the duel. Where it has changed its mind, what is there is outdated.
    fn judge(&mut self, probe: ProbeResult) {
        let Chooser::Duel(duel) = &mut self.policy else { return };
        let start = self.way.start();
        let before = duel.grain(start);
        duel.observe(&self.way, probe);
        if duel.grain(start) != before {
            self.ltm.outdate();
        }
    }
}
