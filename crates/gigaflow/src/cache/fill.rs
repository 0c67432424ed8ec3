//! How a way becomes entries: planned, met or made piece by piece, and put into the stages.
//!
//! A piece that its stage holds is not made again. Whatever a policy calls it: if the entry lives, has
//! the tag that the packet has by then, matches its headers, and makes as many visits as are planned, it
//! says what the tables would, as any entry that a packet meets does. So the packet goes on with the
//! headers and the tag that it gives. Only what no stage holds is made: put together from the visits
//! of the whole, or translated from where the piece begins to where it ends, without a lookup. Where a
//! way is one piece, its translation is there.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::{SubTraversal, Traversal};

use super::{Chooser, Filling, Gigaflow, Miss};
use crate::{
    adaptive::Grain,
    ltm::{
        Arrival, Candidacy, Headers, LtmEntryRef, LtmRule, Next, Origin, Put, Store, Tag, place_of,
    },
    outline::{Candidate, Name, StateId},
    partition::{Piece, Policy as _, StageSet, Stages},
    plan::Places,
    rule_of::rule_of,
    tag::{TagName, TagsFull},
};

/// What a fill needs room for, and leaves empty for the next.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// What was planned.
    plan: Vec<Piece>,
    /// What was made of it.
    parts: Vec<Part>,
    /// Tags that are held meanwhile, the first of each part.
    tags: Vec<Tag>,
    /// Entries that stay, whatever makes room.
    kept: Vec<LtmEntryRef>,
    headers: Headers,
}

/// A piece of the plan.
#[derive(Debug)]
enum Part {
    /// An entry that was there.
    Met(LtmEntryRef),
    /// One that is to be made.
    Fresh { traversal: Arc<Traversal>, rule: LtmRule, name: Name },
}

/// Why a plan came to nothing.
enum Failure {
    TagsFull,
    /// Its pieces come too near to a bound.
    NearBounds,
    /// The store does not admit one of them: what leads to it is of no use.
    Refused,
}

impl From<TagsFull> for Failure {
    fn from(_: TagsFull) -> Self {
        Self::TagsFull
    }
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

/// What no way has.
const NAMELESS: Name = Name { identity: 0, begin: StateId::END };

impl Gigaflow {
    /// Makes entries of a way, and says whether there was room. What goes on behind other entries is
    /// not put where that presses, nor where it is cramped: another cut may find room.
    pub(super) fn fill(&mut self, store: &mut impl Store, filling: &Filling<'_>) -> bool {
        let mut desk = std::mem::take(&mut self.desk);
        self.plan(store, filling, &mut desk.plan);
        let is_planned = !desk.plan.is_empty();
        if is_planned {
            self.carry_out(store, filling, &mut desk);
        } else {
            // One that cannot go on starts over, and may find room then.
            self.counts.without_room += u64::from(filling.met.is_empty());
        }
        self.desk = desk;
        is_planned
    }

    fn carry_out(&mut self, store: &mut impl Store, filling: &Filling<'_>, desk: &mut Desk) {
        desk.kept.clear();
        desk.kept.extend(self.ltm.names(filling.met));
        if let Err(failure) = self.make_parts(store, filling, desk) {
            match failure {
                Failure::TagsFull => self.counts.without_tags += 1,
                Failure::NearBounds => self.counts.near_bounds += 1,
                Failure::Refused => {}
            }
            self.let_go(desk);
            if let [first, _, ..] = &desk.plan[..] {
                let one = Piece { steps: 0..self.way.steps_count(), stage: first.stage };
                desk.plan.clear();
                desk.plan.push(one);
                // Without a tag to begin with, nothing of it is cached.
                if self.make_parts(store, filling, desk).is_err() {
                    desk.parts.clear();
                }
            }
        }
        self.put_parts(store, filling, desk);
        self.let_go(desk);
    }

    /// Finds or makes the pieces of the plan.
    fn make_parts(
        &mut self,
        store: &mut impl Store,
        filling: &Filling<'_>,
        desk: &mut Desk,
    ) -> Result<(), Failure> {
        let (miss, before) = (filling.miss, self.counts.visits);
        desk.headers.begin();
        desk.tags.push(self.ltm.hold(&TagName::of_start(miss.key, miss.start))?);
        let made: Result<(), Failure> = (0..desk.plan.len()).try_for_each(|number| {
            let part = self.make_part(store, filling, (desk, number))?;
            self.pass(miss.key, &part, desk);
            desk.parts.push(part);
            Ok(())
        });
        self.counts.translations += u64::from(self.counts.visits > before);
        made?;
        let rule = |part| match part {
            &Part::Met(entry) => self.ltm.rule(entry.slot),
            Part::Fresh { rule, .. } => Some(rule),
        };
        let admits = desk.parts.iter().filter_map(rule).all(|rule| store.admits(rule));
        if admits { Ok(()) } else { Err(Failure::Refused) }
    }

    /// Finds or makes one piece of the plan, which the packet has come to.
    fn make_part(
        &mut self,
        store: &mut impl Store,
        filling: &Filling<'_>,
        (desk, number): (&Desk, usize),
    ) -> Result<Part, Failure> {
        let Miss { pipeline, key, start, now, .. } = filling.miss;
        let (piece, is_last) = (&desk.plan[number], number + 1 == desk.plan.len());
        let (headers, tag) = (desk.headers.of(key), desk.tags[number]);
        let name = self.way.name(&piece.steps).unwrap_or(NAMELESS);
        let visits_count = piece.steps.end - piece.steps.start;
        let arrival = Arrival { tag, key: headers, visits_count, is_last };
        if let Some(met) = self.ltm.meet(store, (name.identity, piece.stage), &arrival, now) {
            return Ok(Part::Met(met));
        }
        if desk.plan.len() == 1 {
            let whole = &filling.whole.traversal;
            let nothing = self.nothing.clone();
            let rule = rule_of(whole, nothing, (tag, Next::End), &mut self.masks);
            return Ok(Part::Fresh { traversal: Arc::clone(whole), rule, name });
        }
        let (whole, visits) = (filling.whole, piece.steps.start.into()..piece.steps.end.into());
        let made = match self.ltm.tags().name(tag) {
            Some(TagName::StateId(start)) if number > 0 => {
                pipeline.translate_sub_traversal(headers, Some(start), whole, visits)
            }
            _ => pipeline.translate_sub_traversal(key, start, whole, visits),
        };
        let SubTraversal { traversal, rewrite, spending } = made;
        self.counts.visits += traversal.visits.len() as u64;
        debug_assert_eq!(traversal.next.is_none(), is_last, "it is cut where it was said to be");
        let fits = spending.fits(self.ltm.capacity().stages_count.into());
        if !fits || traversal.error.is_some() || traversal.next.is_none() != is_last {
            return Err(Failure::NearBounds);
        }
        let next = match &traversal.next {
            Some(next) => Next::Tag(self.ltm.hold(&TagName::StateId(Arc::clone(next)))?),
            None => Next::End,
        };
        let rule = rule_of(&traversal, rewrite, (tag, next), &mut self.masks);
        Ok(Part::Fresh { traversal: Arc::new(traversal), rule, name })
    }

    /// The packet passes a piece, and goes on with what that has made of it.
    fn pass(&mut self, ingress: &FlowKey, part: &Part, desk: &mut Desk) {
        let rule = match part {
            Part::Met(entry) => self.ltm.rule(entry.slot),
            Part::Fresh { rule, .. } => Some(rule),
        };
        let Some(LtmRule { rewrite, next, .. }) = rule else { return };
        desk.headers.rewrite(ingress, rewrite);
        let &Next::Tag(next) = next else { return };
        desk.tags.push(next);
        if let Part::Met(_) = part {
            self.ltm.hold_again(next);
        }
    }

    /// Puts what was made into its stages.
    fn put_parts(&mut self, store: &mut impl Store, filling: &Filling<'_>, desk: &mut Desk) {
        let (origin, now) = (self.origin(filling, desk), filling.miss.now);
        let Desk { plan, parts, kept, .. } = desk;
        kept.extend(parts.iter().filter_map(|part| match part {
            Part::Met(entry) => Some(*entry),
            Part::Fresh { .. } => None,
        }));
        for (part, piece) in parts.drain(..).zip(plan) {
            let Part::Fresh { traversal, rule, name } = part else {
                self.counts.shared += 1;
                continue;
            };
            let one = Candidacy { rule, traversal, name, stage: piece.stage, origin };
            match self.ltm.put(store, one, kept, now) {
                Put::Fresh(name) => {
                    self.counts.made += 1;
                    kept.push(name);
                }
                Put::Shared(name) => {
                    self.counts.shared += 1;
                    kept.push(name);
                }
                Put::Full => self.counts.without_room += 1,
                Put::Refused => self.counts.refused += 1,
            }
        }
    }

    /// The partition of the way: of what the packet met before, and of what was found or made since.
    /// Where nothing was made no entry is to have it, and it is not looked for.
    fn origin(&self, filling: &Filling<'_>, desk: &Desk) -> Origin {
        if desk.parts.iter().all(|part| matches!(part, Part::Met(_))) {
            return Origin::default();
        }
        let met = filling.met.iter().filter_map(|slot| self.ltm.made(*slot));
        let parts = desk.parts.iter().zip(&desk.plan).filter_map(|(part, piece)| match part {
            Part::Met(entry) => self.ltm.made(entry.slot),
            Part::Fresh { rule, traversal, .. } => Some((place_of(traversal), piece.stage, rule)),
        });
        Origin::of(self.seed, met.chain(parts))
    }

    fn let_go(&mut self, desk: &mut Desk) {
        desk.parts.clear();
        desk.tags.drain(..).for_each(|tag| self.ltm.release(tag));
    }

    /// Where the way is cut, and where its pieces go; nothing if there is no place for them.
    fn plan(&mut self, store: &impl Store, filling: &Filling<'_>, plan: &mut Vec<Piece>) {
        plan.clear();
        let places = Places::new(&mut self.ltm, store, filling.open, filling.miss.now);
        let pressed = places.pressed();
        if self.way.steps_count() == 0 {
            // What goes on behind a cut may look up nothing more.
            let stage = places.best(filling.open);
            plan.extend(stage.map(|stage| Piece { steps: 0..0, stage }));
            return;
        }
        let parts = match (filling.grain, &mut self.policy) {
            (Grain::Whole, _) => self.whole.partition(&self.way, &places),
            (_, Chooser::Plain(policy)) => policy.partition(&self.way, &places),
            (_, Chooser::Duel(duel)) => duel.partition(&self.way, &places),
        };
        plan.extend_from_slice(parts);
        let presses = |part: &Piece| {
            let is_held = |identity| self.ltm.holders_of(identity).contains(part.stage);
            pressed.contains(part.stage) && !self.way.identity(&part.steps).is_some_and(is_held)
        };
        if !filling.met.is_empty()
            && (plan.iter().any(presses) || self.is_cramped(plan.len(), filling))
        {
            plan.clear();
        }
    }

    /// Whether the way would be in more pieces than these if there were more stages.
    fn is_cramped(&mut self, parts_count: usize, filling: &Filling<'_>) -> bool {
        let most = self.way.legs_count().min(self.ltm.capacity().stages_count.into());
        if parts_count < filling.open.count().into() || parts_count == most {
            return false;
        }
        let all = Unused(self.ltm.capacity().stages_count);
        let wanted = match &mut self.policy {
            Chooser::Plain(policy) => policy.partition(&self.way, &all).len(),
            Chooser::Duel(duel) => duel.partition(&self.way, &all).len(),
        };
        wanted > parts_count
    }
}
