//! The cache as a whole: a chain of stages, and how misses fill it.
//!
//! A packet that misses is translated once as a whole, which says what becomes of it. Its [`Way`] is
//! shown to the policy, which says where to cut; if it cuts anywhere, the packet goes through the
//! tables once more, piece by piece, and each piece becomes a rule. Nothing of that decides what
//! happens to packets: a rule says what the tables say, wherever it was cut.
//!
//! # What is not cut, and what is not cached
//!
//! Counted by reason, in [`Counts`]. What teaches is not cached, as in any cache. One entry for all of
//! its way gets what ended at a bound, what is parsed again, what comes too near to a bound for as many
//! pieces as there are stages, and what there are no tags left for.

use std::sync::Arc;

use hashbrown::HashMap;
use shunt_flow::FlowKey;
use shunt_pipeline::{
    Continuation, CutPoint, DatapathAction, Pipeline, Time, Traversal, TraversalPiece, Version,
};

use crate::{
    adaptive::{Adaptive, Capacity, Grain, Sight},
    ltm::{Candidacy, EntryRef, Eviction, Ltm, Next, Put, Store, Tag, Walk},
    partition::{AnyPolicy, Piece, Policy, PolicyName, StageId, StageSet, Stages},
    rule_of::{rule_of, start_of, way_of},
    tag::{TagName, TagsFull},
    way::{Candidate, Cut, Way},
};

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
    sample_every: u32,
    until_sample: u32,
    seed: u64,
    way: Way,
    /// What ways were cached as when one that begins so was made into entries last.
    grains: HashMap<Cut, Grain, foldhash::fast::FixedState>,
    counts: Counts,
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
    /// Lookups that misses made in the tables to know what becomes of their packets.
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

/// The stages from one on.
struct Rest<'a> {
    ltm: &'a Ltm,
    from: u8,
}

impl Stages for Rest<'_> {
    fn count(&self) -> u8 {
        self.ltm.count()
    }

    fn holders(&self, piece: &Candidate) -> StageSet {
        self.ltm.holders(piece).since(self.from)
    }

    fn room(&self) -> StageSet {
        self.ltm.room_to_make().since(self.from)
    }
}

impl Gigaflow {
    /// An empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let policy = config.policy.policy(config.seed);
        let ltm = Ltm::new(config.capacity, config.eviction, config.tag_bits, config.seed);
        let (policy, sample_every) = match config.fallback {
            Fallback::Off => (Chooser::Plain(Box::new(policy)), 0),
            Fallback::OneIn(every) => {
                (Chooser::Duel(Box::new(Adaptive::new(policy, ltm.capacity()))), every.max(1))
            }
        };
        Self {
            ltm,
            policy,
            sample_every,
            until_sample: 0,
            seed: config.seed,
            way: Way::new(),
            grains: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(config.seed)),
            counts: Counts::default(),
        }
    }

    /// Walks a packet through the stages; the walk says what it met, and whether it came to the end.
    #[inline]
    pub fn find(&self, store: &impl Store, key: &FlowKey, walk: &mut Walk) -> bool {
        self.ltm.find(store, key, walk)
    }

    /// As [`Self::find`], for many packets at once.
    pub fn find_burst(&self, store: &impl Store, keys: &[FlowKey], walks: &mut [Walk]) {
        self.ltm.find_burst(store, keys, walks);
    }

    /// Whether the next packet is one that is drawn for the duel: then its way is to be shown to
    /// [`Self::witness`] also if it hits. To be asked once for each packet.
    pub fn draws(&mut self) -> bool {
        if self.sample_every == 0 {
            return false;
        }
        let is_drawn = self.until_sample == 0;
        self.until_sample = if is_drawn { self.sample_every } else { self.until_sample } - 1;
        is_drawn
    }

    /// Shows the way of a packet that was drawn and has hit to the duel.
    pub fn witness(&mut self, packet: Miss<'_>) {
        let Miss { pipeline, key, start, version, .. } = packet;
        let noted = pipeline.translate_noting(key, start, version);
        way_of(&noted, self.seed, &mut self.way);
        if let Chooser::Duel(duel) = &mut self.policy {
            duel.witness(&self.way, Sight::Sampled);
        }
    }

    /// Translates a packet that missed, and makes entries for those that come after it.
    pub fn miss(&mut self, store: &mut impl Store, miss: Miss<'_>, sight: Sight) -> Traversal {
        self.counts.misses += 1;
        let Miss { pipeline, key, start, version, .. } = miss;
        let mut noted = pipeline.translate_noting(key, start, version);
        if !noted.traversal.learnings.is_empty() {
            self.counts.teaching += 1;
            return noted.traversal;
        }
        if noted.traversal.error.is_some() {
            noted.points.clear();
        }
        way_of(&noted, self.seed, &mut self.way);
        self.judge(sight);
        self.counts.visits += noted.traversal.visits.len() as u64;
        self.fill(store, miss, &noted.points, &Walk::default());
        noted.traversal
    }

    /// Goes on with a packet that missed midway, where it missed: what the entries of its walk say is
    /// done to it, and then what is answered. `None`: it starts over, by [`Self::miss`].
    ///
    /// It starts over if what is left could not be cached behind the entry that it met last, if it
    /// teaches, and if it comes near to a bound.
    pub fn go_on(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
    ) -> Option<Traversal> {
        let Some(TagName::Cut(start)) = self.ltm.tags().name(walk.tag()?).cloned() else {
            return None;
        };
        if walk.is_hit() || walk.slots().is_empty() {
            return None;
        }
        let key = &start.entering(walk.key(miss.key));
        let noted = miss.pipeline.translate_noting(key, Some(&start), miss.version);
        let rest = &noted.traversal;
        let stages_count = usize::from(self.ltm.capacity().stages_count);
        if !rest.learnings.is_empty()
            || rest.error.is_some()
            || rest.actions.iter().any(DatapathAction::recirculates)
            || !noted.spending.fits(stages_count)
        {
            return None;
        }
        way_of(&noted, self.seed, &mut self.way);
        let rest_of = Miss { key, start: Some(&start), ..miss };
        if !self.fill(store, rest_of, &noted.points, walk) {
            return None;
        }
        self.counts.misses += 1;
        self.counts.resumed += 1;
        self.counts.visits += noted.traversal.visits.len() as u64;
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
            Chooser::Plain(_) => Grain::Pieces,
            Chooser::Duel(duel) => duel.grain(start_of(key.bridge(), start)),
        }
    }

    /// Makes entries of the way behind what a walk has met, and says whether there was room.
    fn fill(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        points: &[CutPoint],
        behind: &Walk,
    ) -> bool {
        let mut kept: Vec<EntryRef> = self.ltm.names(behind.slots()).collect();
        let last = behind.slots().last().and_then(|slot| self.ltm.stage(*slot));
        let parts = self.plan(store, last.map_or(0, |stage| stage.number() + 1));
        let Some(first) = parts.first().map(|part| part.stage) else {
            self.counts.without_room += 1;
            return false;
        };
        let pieces = self.cut(miss, &parts, points);
        let is_cut = pieces.len() > 1;
        let one = [Piece { steps: 0..self.way.steps_count(), stage: first }];
        let parts = if pieces.len() == parts.len() { &parts[..] } else { &one[..] };
        if self.install(store, (pieces, parts), miss, &mut kept).is_err() {
            self.counts.without_tags += 1;
            if is_cut {
                let whole = translated(miss, &[]);
                // Without a tag to begin with, nothing of it is cached.
                let _ = self.install(store, (whole, &one[..]), miss, &mut kept);
            }
        }
        true
    }

    /// Shows the way to the duel. Where it has changed its mind, what is there is outdated.
    fn judge(&mut self, sight: Sight) {
        let Chooser::Duel(duel) = &mut self.policy else { return };
        duel.witness(&self.way, sight);
        let (start, grain) = (self.way.start(), duel.grain(self.way.start()));
        if self.grains.insert(start, grain).unwrap_or_default() != grain {
            self.ltm.outdate();
        }
    }

    /// Where the way is cut, and where its pieces go. Of the stages between its neighbours, a piece that
    /// is new goes to one with room, or else to the one whose oldest entry is the oldest.
    fn plan(&mut self, store: &impl Store, stages_from: u8) -> Vec<Piece> {
        let stages = Rest { ltm: &self.ltm, from: stages_from };
        let mut parts = match &mut self.policy {
            Chooser::Plain(policy) => policy.partition(&self.way, &stages).to_vec(),
            Chooser::Duel(duel) => duel.partition(&self.way, &stages).to_vec(),
        };
        if self.way.steps_count() == 0 {
            // What goes on behind a cut may look up nothing more.
            parts = StageId::new(stages_from)
                .map(|stage| Piece { steps: 0..0, stage })
                .into_iter()
                .collect();
        }
        let mut from = stages_from;
        for at in 0..parts.len() {
            let next = parts.get(at + 1).map(|next| next.stage.number());
            let until = next.unwrap_or_else(|| self.ltm.capacity().stages_count);
            let stage = parts[at].stage;
            if !self.ltm.has_room(stage) && !self.is_held(&parts[at]) {
                let between = StageSet::first_of(until).since(from);
                let with_room = between.intersection(self.ltm.room()).first();
                let mut oldest = || {
                    let age = |one| Some((self.ltm.oldest_use(store, one)?, one));
                    between.iter().filter_map(age).min().map(|(_, one)| one)
                };
                parts[at].stage = with_room.or_else(&mut oldest).unwrap_or(stage);
            }
            from = parts[at].stage.number() + 1;
        }
        parts
    }

    fn is_held(&self, part: &Piece) -> bool {
        let candidate = self.way.pieces().find(|held| held.steps == part.steps);
        candidate.is_some_and(|held| self.ltm.holders(&held).contains(part.stage))
    }

    /// The pieces of a plan; one piece if they are too near to a bound.
    fn cut(&mut self, miss: Miss<'_>, parts: &[Piece], points: &[CutPoint]) -> Vec<TraversalPiece> {
        let starts = parts.iter().skip(1).map(|part| usize::from(part.steps.start));
        let cuts: Vec<usize> =
            starts.filter(|start| points.iter().any(|point| point.visit == *start)).collect();
        let pieces = translated(miss, &cuts);
        let stages_count = usize::from(self.ltm.capacity().stages_count);
        let fits = |piece: &TraversalPiece| {
            piece.spending.fits(stages_count) && piece.traversal.error.is_none()
        };
        if pieces.len() == 1 || pieces.iter().all(fits) {
            return pieces;
        }
        self.counts.near_bounds += 1;
        translated(miss, &[])
    }

    /// Makes rules of pieces, and puts them into their stages.
    fn install(
        &mut self,
        store: &mut impl Store,
        (pieces, parts): (Vec<TraversalPiece>, &[Piece]),
        miss: Miss<'_>,
        kept: &mut Vec<EntryRef>,
    ) -> Result<(), TagsFull> {
        let mut tags = Vec::with_capacity(pieces.len());
        let result = self.name(&pieces, miss, &mut tags);
        if result.is_ok() {
            self.clear_the_way(store, &pieces, &tags);
            for (number, (piece, part)) in pieces.into_iter().zip(parts).enumerate() {
                let next = tags.get(number + 1).map_or(Next::End, |tag| Next::Tag(*tag));
                let rule = rule_of(&piece, tags[number], next);
                let held = self.way.pieces().find(|held| held.steps == part.steps);
                let identity = held.map_or(0, |held| held.identity);
                let traversal = Arc::new(piece.traversal);
                let one = Candidacy { rule, traversal, identity };
                let held = self.put(store, one, part.stage, (&*kept, miss.now));
                kept.extend(held);
            }
        }
        tags.into_iter().for_each(|tag| self.ltm.release(tag));
        result
    }

    /// Names the states in front of pieces.
    fn name(
        &mut self,
        pieces: &[TraversalPiece],
        miss: Miss<'_>,
        tags: &mut Vec<Tag>,
    ) -> Result<(), TagsFull> {
        tags.push(self.ltm.hold(&TagName::of_start(miss.key, miss.start))?);
        for next in pieces.iter().filter_map(|piece| piece.traversal.next.as_ref()) {
            tags.push(self.ltm.hold(&TagName::Cut(Arc::clone(next)))?);
        }
        Ok(())
    }

    /// A whole way is not to be missed for the sake of shorter pieces.
    fn clear_the_way(&mut self, store: &mut impl Store, pieces: &[TraversalPiece], tags: &[Tag]) {
        if let (Chooser::Duel(_), [whole], [tag]) = (&self.policy, pieces, tags) {
            let traversal = &whole.traversal;
            let length = u16::try_from(traversal.visits.len()).unwrap_or(u16::MAX);
            self.ltm.clear_the_way(store, *tag, &FlowKey::from(&traversal.key), length);
        }
    }

    /// Puts a rule into its stage, and answers which entry it is now. Those of `kept` stay.
    fn put(
        &mut self,
        store: &mut impl Store,
        one: Candidacy,
        stage: StageId,
        (kept, now): (&[EntryRef], Time),
    ) -> Option<EntryRef> {
        let mut put = self.ltm.put(store, one.clone(), stage, now);
        if put == Put::Full {
            self.ltm.make_room(store, stage, kept);
            put = self.ltm.put(store, one, stage, now);
        }
        match put {
            Put::Fresh(name) => {
                self.counts.made += 1;
                return Some(name);
            }
            Put::Shared(name) => {
                self.counts.shared += 1;
                return Some(name);
            }
            Put::Full => self.counts.without_room += 1,
            Put::Refused => self.counts.refused += 1,
        }
        None
    }
}

fn translated(miss: Miss<'_>, cuts: &[usize]) -> Vec<TraversalPiece> {
    miss.pipeline.translate_pieces(miss.key, miss.start, miss.version, cuts)
}
