//! The chain: stages that a packet walks, and the tags that it has in between.
//!
//! A walk changes nothing. It gathers the entries that the packet meets, and the headers that it has
//! by then; only whoever finds that it came to the end does what they say. A packet that misses
//! midway has done nothing, and starts over, or goes on in the tables at the tag where it stopped.
//!
//! # Room
//!
//! Rules that are equal are one entry. Where a stage is full, what its [`Eviction`] says makes room.
//! Any entry may go at any time: what is left is right on its own.
//!
//! What the [`Store`] has ended is dead to a walk at once; its piece is unlinked when the chain is
//! [told](Ltm::forget), or comes across it while it looks for room.

use std::sync::Arc;

use shunt_flow::FlowKey;
use shunt_pipeline::{Time, Traversal};

use super::{
    Coverage, Eviction, Link, LtmEntryRef, LtmRule, Next, Origin, Store, Tag, Walk,
    gone::Gone,
    groups::FoundFew,
    held::Held,
    origin::{Made, place_of},
    piece::{Piece, Pieces, Rank},
    places::{FEW, Places},
    table::Table,
};
use crate::{
    adaptive::Capacity,
    outline::{Candidate, Name, StateId},
    partition::{STAGES_MAX, StageId, StageSet, Stages},
    tag::{TagName, TagSpace, TagsFull},
};

/// K stages in software, with their tags.
#[derive(Debug)]
pub struct Ltm {
    capacity: Capacity,
    eviction: Eviction,
    stages: Vec<Table>,
    pieces: Pieces,
    tags: TagSpace,
    held: Held,
    made: u64,
    evicted: u64,
    /// Entries up to this number make room first.
    outdated: u64,
    /// What went and may come again.
    gone: Gone,
}

/// What became of a rule that was put into a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is an entry.
    Fresh(LtmEntryRef),
    /// It was one already.
    Shared(LtmEntryRef),
    /// There is no room in the stage.
    Full,
    /// The store takes no entry, or cannot let go of one, just now.
    Refused,
}

/// A rule to put into a stage.
#[derive(Debug)]
pub struct Candidacy {
    /// The rule.
    pub rule: LtmRule,
    /// The piece that it is.
    pub traversal: Arc<Traversal>,
    /// What policies call it.
    pub name: Name,
    /// The stage.
    pub stage: StageId,
    /// The partition that it is a piece of.
    pub origin: Origin,
}

/// A packet in front of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// The tag that it has.
    pub(crate) tag: Tag,
    /// Its headers; the hidden words are any.
    pub(crate) key: &'a FlowKey,
    /// How many visits the piece makes.
    pub(crate) visits_count: u16,
    /// Whether the way of the packet ends with it.
    pub(crate) is_last: bool,
}

/// How many of the least recent entries are compared by what they share.
const SHARING_SAMPLE: usize = 8;

/// The part of a stage that is for pieces that nobody has used yet.
const NEW_SHARE: usize = 8;

/// How many pieces that were used since they got their place are put behind others in one go.
const CHANCES_MAX: usize = 64;

impl Ltm {
    /// Empty stages, with tags from a space of which none is in use.
    #[must_use]
    pub fn new(capacity: Capacity, eviction: Eviction, tags: TagSpace, seed: u64) -> Self {
        let stages_count = capacity.stages_count.clamp(1, STAGES_MAX);
        Self {
            capacity: Capacity { stages_count, ..capacity },
            eviction,
            stages: (0..stages_count).map(|_| Table::new(seed)).collect(),
            pieces: Pieces::new(stages_count),
            tags,
            held: Held::new(capacity),
            made: 0,
            evicted: 0,
            outdated: 0,
            gone: Gone::new(capacity, seed),
        }
    }

    /// Walks a packet through the stages, and says whether it came to the end of its way.
    pub fn find(&self, store: &impl Store, key: &FlowKey, walk: &mut Walk) -> bool {
        walk.begin(self.tags.start_of(key));
        for stage in 0..self.stages.len() {
            if walk.is_over() {
                break;
            }
            self.step(stage, key, walk, |entry| store.is_live(entry));
        }
        walk.is_hit()
    }

    /// Walks many packets through the stages, all of them through one before the next, and there through
    /// one group of rules before the next: so a packet waits for its memory while others do, and not for
    /// each of its stages alone. The packets come in by one bridge, and have no hidden state.
    ///
    /// Whether entries live is asked last, of all that were met at once. A packet that met a dead one, which
    /// is seldom, walks again.
    ///
    /// Only the places that `goes` accepts are looked up, and the walk of another is empty. Answers in how
    /// many tables packets were looked up, for each packet and table one.
    pub fn find_burst(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        goes: impl Fn(usize) -> bool,
    ) -> u32 {
        let few = keys.chunks(FEW).zip(walks.chunks_mut(FEW)).zip((0..).step_by(FEW));
        few.map(|((keys, walks), start)| {
            self.find_few(store, keys, walks, |place| goes(start + place))
        })
        .sum()
    }

    fn find_few(
        &mut self,
        store: &impl Store,
        keys: &[FlowKey],
        walks: &mut [Walk],
        goes: impl Fn(usize) -> bool,
    ) -> u32 {
        let start = keys.first().and_then(|key| self.tags.start_of(key));
        for (place, (key, walk)) in keys.iter().zip(&mut *walks).enumerate() {
            debug_assert_eq!(self.tags.start_of(key), start, "of one bridge, nothing hidden");
            walk.begin(start.filter(|_| goes(place)));
        }
        let mut probes = 0;
        for stage in &mut self.stages {
            let (mut waiting, mut found) = (Places::NONE, FoundFew::NONE);
            let going = |(_, walk): &(usize, &Walk)| !walk.is_over();
            walks
                .iter()
                .enumerate()
                .take(keys.len())
                .filter(going)
                .for_each(|(place, _)| waiting.push(place));
            while let Some(tag) = waiting.first().and_then(|place| walks[place].tag()) {
                let alike = waiting.take(|place| walks[place].tag() == Some(tag));
                stage.find_few(tag, (keys, walks), alike, &mut found);
            }
            probes += found.probes;
            for ((key, walk), found) in keys.iter().zip(&mut *walks).zip(found.longest()) {
                let Some(found) = found else { continue };
                walk.go(found.step);
                if let Some(slot) = walk.take_rewriting()
                    && let Some(piece) = self.pieces.get(slot)
                {
                    walk.rewrite(key, &piece.rule.rewrite);
                }
            }
        }
        for (key, walk) in keys.iter().zip(walks) {
            if !walk.entries().all(|entry| store.is_live(entry)) {
                self.find(store, key, walk);
            }
        }
        probes
    }

    /// Takes a packet through one stage.
    #[inline]
    fn step(
        &self,
        stage: usize,
        key: &FlowKey,
        walk: &mut Walk,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) {
        let Some(tag) = walk.tag() else { return };
        let found = self.stages[stage].find(tag, walk.key(key), is_live);
        let Some(step) = found else { return };
        walk.go(step);
        if let Some(slot) = walk.take_rewriting()
            && let Some(piece) = self.pieces.get(slot)
        {
            walk.rewrite(key, &piece.rule.rewrite);
        }
    }

    /// What an entry of a walk says; the walk has been made since an entry was last made.
    #[must_use]
    pub fn rule(&self, slot: u32) -> Option<&LtmRule> {
        self.pieces.get(slot).map(|piece| &piece.rule)
    }

    /// An entry of a walk as a piece of the way that it was met on.
    pub(crate) fn made(&self, slot: u32) -> Option<Made<'_>> {
        self.pieces.get(slot).map(|piece| (piece.place, piece.stage, &piece.rule))
    }

    /// The stage of an entry of a walk.
    #[must_use]
    pub fn stage(&self, slot: u32) -> Option<StageId> {
        self.pieces.get(slot).map(|piece| piece.stage)
    }

    /// The names of entries of a walk.
    pub fn names<'a>(&'a self, slots: &'a [u32]) -> impl Iterator<Item = LtmEntryRef> + 'a {
        slots.iter().filter_map(|slot| self.pieces.named(*slot))
    }

    /// The tag of a name, to make a rule with. It is to be released when that is done.
    ///
    /// # Errors
    ///
    /// There are no tags left.
    pub fn hold(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        self.tags.hold(name)
    }

    /// A tag of an entry is held once more: somebody else has the entry too.
    pub fn hold_again(&mut self, tag: Tag) {
        self.tags.hold_again(tag);
    }

    /// Nothing is under way any more with the first `count` tags that were ever retired.
    pub fn drained(&mut self, count: u64) {
        self.tags.drained(count);
    }

    /// Gives back what [`Self::hold`] or [`Self::hold_again`] gave.
    pub fn release(&mut self, tag: Tag) {
        self.tags.release(tag);
    }

    /// Its tags.
    #[must_use]
    pub const fn tags(&self) -> &TagSpace {
        &self.tags
    }

    /// Puts a rule into a stage. One that is there and says something else gives way to it. Where the
    /// stage is full another makes room, if any may go; entries of `kept` stay.
    pub fn put(
        &mut self,
        store: &mut impl Store,
        candidacy: Candidacy,
        kept: &[LtmEntryRef],
        now: Time,
    ) -> Put {
        let stage = candidacy.stage;
        let Some(table) = self.stages.get(stage.index()) else { return Put::Full };
        let group = table.name_of(&candidacy.rule);
        if let Some(slot) = table.find_exact(&candidacy.rule, group) {
            if let Some(shared) = self.share(store, slot, &candidacy, now) {
                return Put::Shared(shared);
            }
            if !self.take_out(store, slot) {
                return Put::Refused;
            }
        }
        if self.is_full(stage) && store.has_room() {
            self.make_room(store, stage, kept);
        }
        if self.is_full(stage) {
            return Put::Full;
        }
        let Candidacy { rule, traversal, name, origin, .. } = candidacy;
        let Some(entry) = store.make(&traversal, now) else { return Put::Refused };
        // What is left of the former use of the slot, if nobody has told of its end.
        self.unlink(entry.slot);
        self.tags.hold_again(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.hold_again(next);
        }
        self.made += 1;
        self.stages[stage.index()].insert(&rule, group, entry);
        let (shares, made, generation) = (0, self.made, entry.generation);
        let place = place_of(&traversal);
        let piece =
            Piece { rule, generation, stage, name, origin, place, shares, made, placed: now };
        let rank = match self.eviction {
            Eviction::SecondUse if !self.gone.has(name.identity) => Rank::New,
            Eviction::Never
            | Eviction::LeastRecent
            | Eviction::SecondUse
            | Eviction::LeastShared => Rank::Used,
        };
        self.pieces.insert(entry.slot, piece, rank);
        self.held.add(name, stage, entry.slot);
        Put::Fresh(entry)
    }

    /// The entry in a slot, if it lives and says just what a rule does.
    fn share(
        &mut self,
        store: &mut impl Store,
        slot: u32,
        one: &Candidacy,
        now: Time,
    ) -> Option<LtmEntryRef> {
        let name = self.pieces.named(slot).filter(|name| store.is_live(*name))?;
        let held = self.pieces.get_mut(slot).filter(|held| held.rule == one.rule)?;
        held.shares += 1;
        store.touch(slot, now);
        let (stage, before) = (held.stage, std::mem::replace(&mut held.name, one.name));
        if before != one.name {
            self.held.remove(before, stage, slot);
            self.held.add(one.name, stage, slot);
        }
        Some(name)
    }

    /// The live entry of a stage that policies call this, if it says what is to be said of a packet that
    /// arrives like this. It is of use now.
    pub(crate) fn meet(
        &mut self,
        store: &mut impl Store,
        (identity, stage): (u64, StageId),
        arrival: &Arrival<'_>,
        now: Time,
    ) -> Option<LtmEntryRef> {
        let says_so = |slot: &u32| {
            self.pieces.get(*slot).is_some_and(|piece| {
                let LtmRule { tag, length, matching, next, .. } = &piece.rule;
                (*tag, *length) == (arrival.tag, arrival.visits_count)
                    && (*next == Next::End) == arrival.is_last
                    && matching.matches(arrival.key)
            })
        };
        let slot = self.held.slots(identity, stage).find(says_so)?;
        let name = self.pieces.named(slot).filter(|name| store.is_live(*name))?;
        self.pieces.share(slot);
        store.touch(slot, now);
        Some(name)
    }

    /// One flow more was installed behind the entries of a walk.
    pub(crate) fn share_walked(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.pieces.share(*slot));
    }

    /// Unlinks an entry that the store has ended; nothing happens if that was done.
    pub fn forget(&mut self, entry: LtmEntryRef) {
        if self.pieces.named(entry.slot) == Some(entry) {
            self.unlink(entry.slot);
        }
    }

    /// Makes room for one entry more in a stage that is full, if anything may go.
    fn make_room(&mut self, store: &mut impl Store, stage: StageId, kept: &[LtmEntryRef]) {
        self.put_in_order(store, stage);
        if self.is_full(stage)
            && let Some(slot) = self.victim(stage, kept)
        {
            self.take_out(store, slot);
        }
    }

    /// When the entry was used last that would make room in a stage; `None`: none may go.
    #[must_use]
    pub fn oldest_use(&mut self, store: &impl Store, stage: StageId) -> Option<Time> {
        self.put_in_order(store, stage);
        Some(store.used(self.victim(stage, &[])?))
    }

    /// Whether a stage has room for one entry more.
    #[must_use]
    pub fn has_room(&self, stage: StageId) -> bool {
        !self.is_full(stage)
    }

    /// What is there now is not what is made from now on: it makes room whatever the eviction says.
    pub const fn outdate(&mut self) {
        self.outdated = self.made;
    }

    /// The stages that hold what policies call this.
    #[must_use]
    pub fn holders_of(&self, identity: u64) -> StageSet {
        self.held.stages(identity)
    }

    /// How many entries a stage has.
    #[must_use]
    pub fn len(&self, stage: StageId) -> usize {
        self.pieces.count(stage, Rank::New) + self.pieces.count(stage, Rank::Used)
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries_count(&self) -> usize {
        StageSet::first_of(self.capacity.stages_count).iter().map(|stage| self.len(stage)).sum()
    }

    /// How many entries made room, or gave way to others, so far.
    #[must_use]
    pub const fn evicted_count(&self) -> u64 {
        self.evicted
    }

    /// How often entries were found there when flows were installed.
    #[must_use]
    pub fn shares_count(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| u64::from(piece.shares)).sum()
    }

    /// How many different ways lead from a beginning to an end through the entries.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let links: Vec<Link> =
            self.pieces.iter().filter_map(|(name, _)| self.link(name.slot)).collect();
        Coverage::of(&links)
    }

    /// Where an entry stands among the others.
    #[must_use]
    pub fn link(&self, slot: u32) -> Option<Link> {
        let Piece { rule, stage, origin, .. } = self.pieces.get(slot)?;
        // A packet that is parsed again begins with a tag too, but its way has begun before.
        let is_start = matches!(self.tags.name(rule.tag), Some(TagName::Start(_)));
        Some(Link { stage: *stage, tag: rule.tag, next: rule.next, is_start, origin: *origin })
    }

    /// All entries, with their stages.
    pub fn entries(&self) -> impl Iterator<Item = (LtmEntryRef, StageId, &LtmRule)> {
        self.pieces.iter().map(|(name, piece)| (name, piece.stage, &piece.rule))
    }

    /// Masks of a stage, those of different tags counted apart.
    #[must_use]
    pub fn masks_of(&self, stage: StageId) -> usize {
        self.stages.get(stage.index()).map_or(0, Table::masks_count)
    }

    /// Masks of all stages, those of different tags counted apart.
    #[must_use]
    pub fn masks_count(&self) -> usize {
        self.stages.iter().map(Table::masks_count).sum()
    }

    /// How large it is.
    #[must_use]
    pub const fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn is_full(&self, stage: StageId) -> bool {
        self.len(stage) >= self.capacity.stage_entries_max
    }

    /// Puts pieces that were used since they got their place behind the others, and unlinks what is
    /// dead, until the first is one that was not used.
    fn put_in_order(&mut self, store: &impl Store, stage: StageId) {
        for _ in 0..CHANCES_MAX {
            let rank = self.rank_to_go(stage);
            let Some((slot, piece)) = self.pieces.oldest(stage, rank).next() else { return };
            let (name, used) =
                (LtmEntryRef { slot, generation: piece.generation }, store.used(slot));
            if !store.is_live(name) {
                self.unlink(slot);
            } else if self.eviction != Eviction::Never && used > piece.placed {
                self.pieces.put_last(slot, used, Rank::Used);
            } else {
                return;
            }
        }
    }

    /// Among which pieces of a stage one is found that makes room: those that are new keep an eighth
    /// of it.
    fn rank_to_go(&self, stage: StageId) -> Rank {
        let new_max = (self.capacity.stage_entries_max / NEW_SHARE).max(1);
        let (new, used) =
            (self.pieces.count(stage, Rank::New), self.pieces.count(stage, Rank::Used));
        let is_new = used == 0 || (self.eviction == Eviction::SecondUse && new > new_max);
        if is_new { Rank::New } else { Rank::Used }
    }

    fn victim(&self, stage: StageId, kept: &[LtmEntryRef]) -> Option<u32> {
        let is_free = |(slot, _): &(u32, &Piece)| kept.iter().all(|kept| kept.slot != *slot);
        let first = self.rank_to_go(stage);
        let ranks = [first, first.other()];
        let mut oldest =
            ranks.into_iter().flat_map(|rank| self.pieces.oldest(stage, rank)).filter(is_free);
        let victim = match self.eviction {
            Eviction::Never => oldest.next().filter(|(_, piece)| piece.made <= self.outdated),
            Eviction::LeastRecent | Eviction::SecondUse => oldest.next(),
            Eviction::LeastShared => {
                oldest.take(SHARING_SAMPLE).min_by_key(|(_, piece)| (piece.shares, piece.made))
            }
        };
        victim.map(|(slot, _)| slot)
    }

    /// Ends an entry, if it lives and may go, and unlinks it. Answers whether it is gone.
    fn take_out(&mut self, store: &mut impl Store, slot: u32) -> bool {
        let Some(name) = self.pieces.named(slot) else { return true };
        if store.is_live(name) {
            if !store.end(name) {
                return false;
            }
            self.evicted += 1;
            if self.eviction == Eviction::SecondUse
                && let Some(piece) = self.pieces.get(slot)
            {
                self.gone.note(piece.name.identity);
            }
        }
        self.unlink(slot);
        true
    }

    fn unlink(&mut self, slot: u32) {
        let Some(Piece { rule, stage, name, .. }) = self.pieces.remove(slot) else { return };
        if let Some(table) = self.stages.get_mut(stage.index()) {
            table.remove(&rule);
        }
        self.held.remove(name, stage, slot);
        self.tags.release(rule.tag);
        if let Next::Tag(next) = rule.next {
            self.tags.release(next);
        }
    }
}

impl Stages for Ltm {
    fn count(&self) -> u8 {
        self.capacity.stages_count
    }

    fn holders(&self, piece: &Candidate) -> StageSet {
        self.holders_of(piece.identity)
    }

    fn may_begin(&self, cut: StateId) -> bool {
        self.held.has_begun(cut)
    }

    fn room(&self) -> StageSet {
        let all = StageSet::first_of(self.capacity.stages_count);
        all.iter().filter(|stage| !self.is_full(*stage)).fold(StageSet::EMPTY, StageSet::with)
    }
}
