//! The cache as a whole: a chain of stages, and how misses fill it.
//!
//! A packet that misses is translated once as a whole, which says what becomes of it. Its [`Way`] is
//! shown to the policy, which says where to cut; if it cuts anywhere, the packet goes through the
//! tables once more, piece by piece, and each piece becomes a rule. Nothing of that decides what
//! happens to packets: a rule says what the tables say, wherever it was cut.
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
    Continuation, DatapathAction, NotedTraversal, Pipeline, Time, Traversal, TraversalPiece,
    Version,
};

use crate::{
    adaptive::{Adaptive, Capacity, Grain, Sight},
    draw::Draw,
    ltm::{Candidacy, EntryRef, Eviction, Ltm, LtmRule, Next, Put, Store, Tag, Walk},
    partition::{AnyPolicy, Piece, Policy, PolicyName, StageId, StageSet, Stages, Whole},
    plan::Places,
    rule_of::{rule_of, start_of, way_of},
    tag::{Reuse, TagName, TagSpace, TagsFull, is_hiding},
    way::{Candidate, Way},
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
    whole: Whole,
    draw: Draw,
    seed: u64,
    way: Way,
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

/// Whether rules may be entries of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Admitted,
    Refused,
}

/// What is known of a packet that missed when its way is made into entries.
struct Filling<'a> {
    noted: &'a NotedTraversal,
    /// The entries that it met before.
    met: &'a [u32],
    /// The stages that its pieces may go to.
    open: StageSet,
    grain: Grain,
}

/// So many stages that hold nothing.
struct Unused(u8);

impl Stages for Unused {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, _: &Candidate) -> StageSet {
        StageSet::EMPTY
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
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
    pub fn of_target(config: Config) -> Self {
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
            way: Way::new(),
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
    #[inline]
    pub fn draws(&mut self) -> bool {
        self.draw.next(self.counts.misses)
    }

    /// Shows the way of a packet that was drawn and has hit to the duel, if there is one now.
    pub fn witness(&mut self, packet: Miss<'_>) {
        if self.is_contested(Sight::Sampled) && packet.start.is_none() {
            self.show(packet, Sight::Sampled);
        }
    }

    /// Translates a packet that missed, and makes entries for those that come after it.
    pub fn miss(&mut self, store: &mut impl Store, miss: Miss<'_>, sight: Sight) -> Traversal {
        self.begin(store, miss, sight, None)
    }

    /// As [`Self::miss`], for a packet that missed on this walk and could not [go on](Self::go_on): if what
    /// it meets would lead it there again, its way becomes one entry, which it meets before.
    pub fn start_over(
        &mut self,
        store: &mut impl Store,
        miss: Miss<'_>,
        walk: &Walk,
        sight: Sight,
    ) -> Traversal {
        self.begin(store, miss, sight, Some(walk))
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
        sight: Sight,
    ) -> Option<Traversal> {
        let Some(TagName::Cut(start)) = self.ltm.tags().name(walk.tag()?).cloned() else {
            return None;
        };
        let last = self.ltm.stage(*walk.slots().last()?)?;
        if walk.is_hit() || self.grain(miss.key, miss.start) == Grain::Whole {
            return None;
        }
        let key = &start.entering(walk.key(miss.key));
        let noted = self.noting(Miss { key, start: Some(&start), ..miss });
        let rest = &noted.traversal;
        if !rest.learnings.is_empty()
            || rest.error.is_some()
            || rest.actions.iter().any(DatapathAction::recirculates)
            || !noted.spending.fits(usize::from(self.ltm.capacity().stages_count))
        {
            return None;
        }
        way_of(&noted, self.seed, &mut self.way);
        let open = StageSet::first_of(self.ltm.capacity().stages_count).since(last.number() + 1);
        let filling = Filling { noted: &noted, met: walk.slots(), open, grain: Grain::Pieces };
        if !self.fill(store, Miss { key, start: Some(&start), ..miss }, &filling) {
            return None;
        }
        self.counts.misses += 1;
        self.counts.resumed += 1;
        if miss.start.is_none() && self.is_contested(sight) {
            self.show(miss, sight);
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
        sight: Sight,
        walk: Option<&Walk>,
    ) -> Traversal {
        self.counts.misses += 1;
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
        way_of(&noted, self.seed, &mut self.way);
        if miss.start.is_none() && self.is_contested(sight) {
            self.judge(sight);
        }
        let is_uncut = self.way.legs_count() == 1 && self.way.steps_count() > 1;
        let grain = if is_uncut { Grain::Whole } else { self.grain(miss.key, miss.start) };
        let open = self.stages_met_by(store, miss.key, grain);
        let mut filling = Filling { noted: &noted, met: &[], open, grain };
        let is_filled = self.fill(store, miss, &filling);
        let has_met = walk.is_some_and(|walk| !walk.slots().is_empty());
        if is_filled && has_met && grain == Grain::Pieces && !self.is_hit(store, miss.key) {
            // What it meets leads it another way.
            filling.grain = Grain::Whole;
            filling.open = self.stages_met_by(store, miss.key, Grain::Whole);
            self.fill(store, miss, &filling);
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

    /// Makes entries of a way, and says whether there was room. What goes on behind other entries is
    /// not put where that presses, nor where it is cramped: another cut may find room.
    fn fill(&mut self, store: &mut impl Store, miss: Miss<'_>, filling: &Filling<'_>) -> bool {
        let mut kept: Vec<EntryRef> = self.ltm.names(filling.met).collect();
        let parts = self.plan(store, filling, miss.now);
        let Some(first) = parts.first().map(|part| part.stage) else {
            // One that cannot go on starts over, and may find room then.
            self.counts.without_room += u64::from(filling.met.is_empty());
            return false;
        };
        let pieces = self.cut(miss, &parts, filling.noted);
        let is_cut = pieces.len() > 1;
        let one = [Piece { steps: 0..self.way.steps_count(), stage: first }];
        let parts = if pieces.len() == parts.len() { &parts[..] } else { &one[..] };
        let installed = self.install(store, (pieces, parts), miss, &mut kept);
        self.counts.without_tags += u64::from(installed.is_err());
        if is_cut && installed != Ok(Admission::Admitted) {
            // Without a tag to begin with, nothing of it is cached.
            let whole = vec![whole(filling.noted)];
            let _ = self.install(store, (whole, &one[..]), miss, &mut kept);
        }
        true
    }

    /// Whether pieces and whole ways contend: there is a duel, and no room for both.
    fn is_contested(&mut self, sight: Sight) -> bool {
        let Chooser::Duel(duel) = &mut self.policy else { return false };
        let has_room = self.ltm.room() != StageSet::EMPTY;
        if has_room && sight == Sight::Sampled {
            duel.relax();
        }
        !has_room
    }

    /// Shows the whole way of a packet to the duel.
    fn show(&mut self, packet: Miss<'_>, sight: Sight) {
        let noted = self.noting(packet);
        way_of(&noted, self.seed, &mut self.way);
        self.judge(sight);
    }

    /// Shows the way to the duel. Where it has changed its mind, what is there is outdated.
    fn judge(&mut self, sight: Sight) {
        let Chooser::Duel(duel) = &mut self.policy else { return };
        let start = self.way.start();
        let before = duel.grain(start);
        duel.witness(&self.way, sight);
        if duel.grain(start) != before {
            self.ltm.outdate();
        }
    }

    /// Where the way is cut, and where its pieces go; nothing if there is no place for them.
    fn plan(&mut self, store: &impl Store, filling: &Filling<'_>, now: Time) -> Vec<Piece> {
        let places = Places::new(&mut self.ltm, store, filling.open, now);
        let pressed = places.pressed();
        if self.way.steps_count() == 0 {
            // What goes on behind a cut may look up nothing more.
            let stage = places.best(filling.open);
            return stage.map(|stage| Piece { steps: 0..0, stage }).into_iter().collect();
        }
        let parts = match (filling.grain, &mut self.policy) {
            (Grain::Whole, _) => self.whole.partition(&self.way, &places).to_vec(),
            (_, Chooser::Plain(policy)) => policy.partition(&self.way, &places).to_vec(),
            (_, Chooser::Duel(duel)) => duel.partition(&self.way, &places).to_vec(),
        };
        let presses = |part: &Piece| {
            let is_held = |identity| self.ltm.holders_of(identity).contains(part.stage);
            pressed.contains(part.stage) && !self.way.identity(&part.steps).is_some_and(is_held)
        };
        if !filling.met.is_empty()
            && (parts.iter().any(presses) || self.is_cramped(&parts, filling))
        {
            return Vec::new();
        }
        parts
    }

    /// Whether the way would be in more pieces if there were more stages.
    fn is_cramped(&mut self, parts: &[Piece], filling: &Filling<'_>) -> bool {
        let most = self.way.legs_count().min(self.ltm.capacity().stages_count.into());
        if parts.len() < filling.open.count().into() || parts.len() == most {
            return false;
        }
        let all = Unused(self.ltm.capacity().stages_count);
        let wanted = match &mut self.policy {
            Chooser::Plain(policy) => policy.partition(&self.way, &all).len(),
            Chooser::Duel(duel) => duel.partition(&self.way, &all).len(),
        };
        wanted > parts.len()
    }

    /// The pieces of a plan; one piece if they are too near to a bound. What is not cut needs no
    /// translation of its own.
    fn cut(
        &mut self,
        miss: Miss<'_>,
        parts: &[Piece],
        noted: &NotedTraversal,
    ) -> Vec<TraversalPiece> {
        let starts = parts.iter().skip(1).map(|part| usize::from(part.steps.start));
        let cuts: Vec<usize> =
            starts.filter(|start| noted.points.iter().any(|point| point.visit == *start)).collect();
        if cuts.is_empty() {
            return vec![whole(noted)];
        }
        let Miss { pipeline, key, start, version, .. } = miss;
        let pieces = pipeline.translate_pieces(key, start, version, &cuts);
        self.counts.translations += 1;
        let visits = pieces.iter().map(|piece| piece.traversal.visits.len() as u64);
        self.counts.visits += visits.sum::<u64>();
        let stages_count = usize::from(self.ltm.capacity().stages_count);
        let fits = |piece: &TraversalPiece| {
            piece.spending.fits(stages_count) && piece.traversal.error.is_none()
        };
        if pieces.iter().all(fits) {
            return pieces;
        }
        self.counts.near_bounds += 1;
        vec![whole(noted)]
    }

    /// Makes rules of pieces, and puts them into their stages, if the store admits all of them: what
    /// leads to one that it does not is of no use.
    fn install(
        &mut self,
        store: &mut impl Store,
        (pieces, parts): (Vec<TraversalPiece>, &[Piece]),
        miss: Miss<'_>,
        kept: &mut Vec<EntryRef>,
    ) -> Result<Admission, TagsFull> {
        let mut tags = Vec::with_capacity(pieces.len());
        let mut result = self.name(&pieces, miss, &mut tags).map(|()| Admission::Admitted);
        if result.is_ok() {
            let rule = |(number, piece): (usize, &TraversalPiece)| {
                let next = tags.get(number + 1).map_or(Next::End, |tag| Next::Tag(*tag));
                rule_of(piece, tags[number], next)
            };
            let rules: Vec<LtmRule> = pieces.iter().enumerate().map(rule).collect();
            if rules.iter().all(|rule| store.admits(rule)) {
                for ((piece, rule), part) in pieces.into_iter().zip(rules).zip(parts) {
                    let identity = self.way.identity(&part.steps).unwrap_or_default();
                    let traversal = Arc::new(piece.traversal);
                    let one = Candidacy { rule, traversal, identity };
                    let held = self.put(store, one, part.stage, (&*kept, miss.now));
                    kept.extend(held);
                }
            } else {
                result = Ok(Admission::Refused);
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

    /// Puts a rule into its stage, and answers which entry it is now. Those of `kept` stay.
    fn put(
        &mut self,
        store: &mut impl Store,
        one: Candidacy,
        stage: StageId,
        (kept, now): (&[EntryRef], Time),
    ) -> Option<EntryRef> {
        let mut put = self.ltm.put(store, one.clone(), stage, now);
        if put == Put::Full && store.has_room() {
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

/// A way that is not cut as its only piece.
fn whole(noted: &NotedTraversal) -> TraversalPiece {
    let (traversal, spending) = (noted.traversal.clone(), noted.spending);
    TraversalPiece { traversal, rewrite: Match::any(), spending }
}
