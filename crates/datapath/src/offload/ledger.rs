//! What a target has of each piece that is meant to be there, and what is to be asked of it next.
//!
//! ```text
//!   waiting ──insert──► inserting ──done──► held ──remove──► removing ──done──► gone
//!      │                   └── refused ──► refused ─┐
//!      └── doomed ──────────────────────────────────┴──► gone
//! ```
//!
//! A piece is *doomed* when it is not meant to be there any more: stale, idle, or in the way of another.
//! From then on it goes towards *gone*, by the answers that are still to come, and it is told of only
//! then: its tags are free, its place is, and a version that waited for it may be answered.
//!
//! *Stale* is more than what a version named. Whatever is doomed and not gone when a version is adopted
//! is waited for: it was left by the eviction engine when it was doomed, and nobody knows what the
//! version made of it.

use std::{collections::BTreeSet, ops::Bound, sync::Arc, time::Duration};

use hashbrown::HashMap;
use shunt_flow::Match;
use shunt_gigaflow::{
    ltm::{LtmEntryRef, LtmRule, Next, Tag},
    offload::{Counters, LtmIndex, OffloadError, Operation, Ticket},
    partition::StageId,
};
use shunt_pipeline::{Time, Traversal};

use super::{Operations, Reason};

/// Every piece that is meant to be in the target, or may be there still.
#[derive(Debug)]
pub(super) struct Ledger {
    pieces: HashMap<LtmIndex, Piece, Hasher>,
    by_entry: HashMap<LtmEntryRef, LtmIndex, Hasher>,
    /// Who has a place in the target, or is about to leave it.
    places: HashMap<Place, LtmIndex, Hasher>,
    /// To be inserted, by stage, oldest first.
    inserts: Vec<BTreeSet<LtmIndex>>,
    /// To be removed, first stage first.
    removals: BTreeSet<(StageId, LtmIndex)>,
    /// Removals that the target refused, to be asked for again some time.
    clinging: BTreeSet<(StageId, LtmIndex)>,
    /// What versions made stale and is not gone, by when.
    stale: BTreeSet<(Time, LtmIndex)>,
    doomed_count: usize,
    /// Of what the target has or may have of each stage, that which is doomed.
    leaving: Vec<usize>,
    under_way: HashMap<Ticket, LtmIndex, Hasher>,
    /// Of these, insertions.
    inserting_count: usize,
    /// Entries of each stage that the target has or may have.
    occupied: Vec<usize>,
    capacity: Vec<usize>,
    next_index: u64,
    next_ticket: u64,
    pub(super) operations: Operations,
}

/// A piece.
#[derive(Debug)]
pub(super) struct Piece {
    /// The owner's entry.
    pub(super) entry: LtmEntryRef,
    pub(super) stage: StageId,
    pub(super) rule: Arc<LtmRule>,
    pub(super) traversal: Arc<Traversal>,
    /// The way that it was made for.
    pub(super) way: u64,
    state: State,
    doomed: Option<Doomed>,
    /// What the target had counted when it was read last.
    counted: Counters,
    /// Of these, those that were counted before the target forgot.
    counted_before: Counters,
    /// When a reading found a hit last, or the piece was confirmed.
    used: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Inserting,
    Held,
    Removing,
    /// The target was lost before it answered the insertion: it is there no more, or not yet, when the
    /// target is back, and what it is now nobody knows.
    Unknown,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Doomed {
    stale_since: Option<Time>,
}

/// Where an entry is found: there is one at most.
type Place = (StageId, Tag, u16, Match);

type Hasher = foldhash::fast::FixedState;

/// A piece to be inserted.
pub(super) struct NewEntry {
    pub(super) entry: LtmEntryRef,
    pub(super) stage: StageId,
    pub(super) rule: LtmRule,
    pub(super) traversal: Arc<Traversal>,
    pub(super) way: u64,
}

/// What an answer came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// A piece of this way is confirmed, or will never be.
    pub(super) way: Option<(u64, Confirmed)>,
    /// A piece is gone for good.
    pub(super) gone: Option<Piece>,
    /// A piece is not taken: its entry is to be ended.
    pub(super) refused: Option<(LtmEntryRef, Reason)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    Yes,
    Never,
}

/// What the operations to be handed over are for.
pub(super) type Batch = Vec<(Ticket, Operation)>;

impl Ledger {
    /// An empty ledger of a target with these stages.
    pub(super) fn new(capacity: &[usize], seed: u64) -> Self {
        let hasher = Hasher::with_seed(seed);
        Self {
            pieces: HashMap::with_hasher(hasher.clone()),
            by_entry: HashMap::with_hasher(hasher.clone()),
            places: HashMap::with_hasher(hasher.clone()),
            inserts: vec![BTreeSet::new(); capacity.len()],
            removals: BTreeSet::new(),
            clinging: BTreeSet::new(),
            stale: BTreeSet::new(),
            doomed_count: 0,
            leaving: vec![0; capacity.len()],
            under_way: HashMap::with_hasher(hasher),
            inserting_count: 0,
            occupied: vec![0; capacity.len()],
            capacity: capacity.to_vec(),
            next_index: 1,
            next_ticket: 1,
            operations: Operations::default(),
        }
    }

    /// A piece is meant to be in the target.
    pub(super) fn add(&mut self, new: NewEntry) {
        let index = LtmIndex(self.next_index);
        self.next_index += 1;
        let NewEntry { entry, stage, rule, traversal, way } = new;
        self.by_entry.insert(entry, index);
        let piece = Piece {
            entry,
            stage,
            rule: Arc::new(rule),
            traversal,
            way,
            state: State::Waiting,
            doomed: None,
            counted: Counters::default(),
            counted_before: Counters::default(),
            used: Time::ZERO,
        };
        self.pieces.insert(index, piece);
        self.inserts[stage.index()].insert(index);
    }

    /// The owner has ended an entry: its piece is not meant to be in the target any more. `stale_since`:
    /// a version made it stale. Answers with the piece if it is gone at once.
    pub(super) fn doom(&mut self, entry: LtmEntryRef, stale_since: Option<Time>) -> Option<Piece> {
        let index = self.by_entry.remove(&entry)?;
        let piece = self.pieces.get_mut(&index)?;
        piece.doomed = Some(Doomed { stale_since: None });
        self.doomed_count += 1;
        let (state, stage) = (piece.state, piece.stage);
        match state {
            State::Waiting | State::Refused => return self.end(index),
            State::Held => {
                self.removals.insert((stage, index));
            }
            State::Inserting | State::Removing | State::Unknown => {}
        }
        self.leaving[stage.index()] += 1;
        if let Some(since) = stale_since {
            self.make_stale(index, since);
        }
        None
    }

    /// A version is adopted: all that is doomed and not gone is waited for.
    pub(super) fn adopt(&mut self, now: Time) {
        if self.doomed_count == self.stale.len() {
            return;
        }
        let is_new = |piece: &Piece| piece.doomed == Some(Doomed { stale_since: None });
        let doomed = self.pieces.iter().filter(|(_, piece)| is_new(piece));
        let doomed: Vec<LtmIndex> = doomed.map(|(index, _)| *index).collect();
        doomed.into_iter().for_each(|index| self.make_stale(index, now));
    }

    fn make_stale(&mut self, index: LtmIndex, since: Time) {
        if let Some(piece) = self.pieces.get_mut(&index) {
            piece.doomed = Some(Doomed { stale_since: Some(since) });
            self.stale.insert((since, index));
        }
    }

    /// Fills a batch with what can be asked for now, up to so many operations: removals, first stage
    /// first; then, if nothing stale is left, insertions, last stage first, of which no more are to be
    /// under way than the second number says. Answers with entries for which there will be no room.
    pub(super) fn next(
        &mut self,
        batch: &mut Batch,
        (count, inserting_max): (usize, usize),
    ) -> Vec<LtmEntryRef> {
        while batch.len() < count
            && let Some((stage, index)) = self.removals.pop_first()
        {
            if let Some(piece) = self.pieces.get_mut(&index) {
                debug_assert!(piece.state == State::Held && piece.stage == stage);
                piece.state = State::Removing;
                batch.push((self.ticket(index), Operation::Remove { entry: index }));
                self.operations.removes += 1;
            }
        }
        let mut without_room = Vec::new();
        let left = inserting_max.saturating_sub(self.inserting_count);
        let count = count.min(batch.len() + left);
        let mut held_up = BTreeSet::new();
        if self.stale.is_empty() {
            for stage in (0..self.inserts.len()).rev() {
                if !self.next_inserts(stage, batch, (count, &mut without_room), &mut held_up) {
                    break;
                }
            }
        }
        without_room
    }

    /// The insertions of one stage; answers whether those of the stages before it may follow: no packet
    /// is to be led to a piece that is still to come. A piece whose place is taken waits, and what leads
    /// to its tag waits with it; the others do not, as a target may keep what it was asked to remove.
    fn next_inserts(
        &mut self,
        stage: usize,
        batch: &mut Batch,
        (count, without_room): (usize, &mut Vec<LtmEntryRef>),
        held_up: &mut BTreeSet<Tag>,
    ) -> bool {
        let mut behind = Bound::Unbounded;
        while let Some(index) =
            self.inserts[stage].range((behind, Bound::Unbounded)).next().copied()
        {
            behind = Bound::Excluded(index);
            if batch.len() >= count {
                return false;
            }
            let Some(piece) = self.pieces.get(&index) else { return false };
            let is_led_to = matches!(&piece.rule.next, Next::Tag(tag) if held_up.contains(tag));
            let place = place(piece);
            if is_led_to || self.places.contains_key(&place) {
                held_up.insert(piece.rule.tag);
                continue;
            }
            if self.occupied[stage] >= self.capacity[stage] {
                if self.leaving[stage] > 0 {
                    return false;
                }
                without_room.push(piece.entry);
                self.inserts[stage].remove(&index);
                self.set_state(index, State::Refused);
                continue;
            }
            let (at, rule) = (piece.stage, Arc::clone(&piece.rule));
            self.inserts[stage].remove(&index);
            self.places.insert(place, index);
            self.occupied[stage] += 1;
            self.set_state(index, State::Inserting);
            self.inserting_count += 1;
            let operation = Operation::Insert { entry: index, stage: at, rule };
            batch.push((self.ticket(index), operation));
            self.operations.inserts += 1;
        }
        true
    }

    /// What was not taken of a batch is to be asked for again.
    pub(super) fn give_back(&mut self, batch: &mut Batch) {
        for (ticket, operation) in batch.drain(..) {
            let Some(index) = self.under_way.remove(&ticket) else { continue };
            match operation {
                Operation::Insert { stage, .. } => {
                    self.operations.inserts -= 1;
                    self.inserting_count -= 1;
                    // Nothing was doomed while the batch was made.
                    self.leave(index);
                    self.set_state(index, State::Waiting);
                    self.inserts[stage.index()].insert(index);
                }
                Operation::Remove { .. } => {
                    self.operations.removes -= 1;
                    if let Some(stage) = self.set_state(index, State::Held) {
                        self.removals.insert((stage, index));
                    }
                }
                Operation::Modify { .. } | Operation::Count { .. } => {}
            }
        }
    }

    /// Takes in the answer to an operation; `None`: it is not one of the ledger's.
    pub(super) fn complete(
        &mut self,
        ticket: Ticket,
        result: &Result<(), OffloadError>,
        now: Time,
    ) -> Option<Outcome> {
        let index = self.under_way.remove(&ticket)?;
        match result {
            Ok(()) => self.operations.done += 1,
            Err(OffloadError::Lost(_)) => self.operations.lost += 1,
            Err(_) => self.operations.failed += 1,
        }
        let state = self.pieces.get(&index)?.state;
        Some(match state {
            State::Inserting => self.inserted(index, result, now),
            State::Removing => self.removed(index, result),
            State::Waiting | State::Held | State::Unknown | State::Refused => Outcome::default(),
        })
    }

    fn inserted(
        &mut self,
        index: LtmIndex,
        result: &Result<(), OffloadError>,
        now: Time,
    ) -> Outcome {
        self.inserting_count -= 1;
        let Some(piece) = self.pieces.get_mut(&index) else { return Outcome::default() };
        let (entry, stage, way) = (piece.entry, piece.stage, piece.way);
        let is_doomed = piece.doomed.is_some();
        match result {
            Ok(()) => {
                (piece.state, piece.used) = (State::Held, now);
                if is_doomed {
                    self.removals.insert((stage, index));
                }
                Outcome { way: Some((way, Confirmed::Yes)), ..Outcome::default() }
            }
            Err(OffloadError::Lost(_)) => {
                piece.state = State::Unknown;
                Outcome::default()
            }
            Err(error) => {
                piece.state = State::Refused;
                self.leave(index);
                let gone = if is_doomed { self.end(index) } else { None };
                let refused = (!is_doomed).then(|| (entry, error.into()));
                Outcome { way: Some((way, Confirmed::Never)), gone, refused }
            }
        }
    }

    fn removed(&mut self, index: LtmIndex, result: &Result<(), OffloadError>) -> Outcome {
        match result {
            Ok(()) | Err(OffloadError::NoSuchEntry) => {
                Outcome { gone: self.end(index), ..Outcome::default() }
            }
            Err(error) => {
                if let Some(stage) = self.set_state(index, State::Held) {
                    let is_lost = matches!(error, OffloadError::Lost(_));
                    let again = if is_lost { &mut self.removals } else { &mut self.clinging };
                    again.insert((stage, index));
                }
                Outcome::default()
            }
        }
    }

    /// The target holds just what it confirmed: insertions that it did not answer are to be asked for
    /// again, or not to be waited for. Answers with what is gone.
    pub(super) fn restored(&mut self, now: Time) -> Vec<Piece> {
        let unknown = self.pieces.iter().filter(|(_, piece)| piece.state == State::Unknown);
        let mut unknown: Vec<LtmIndex> = unknown.map(|(index, _)| *index).collect();
        unknown.sort_unstable();
        let mut gone = Vec::new();
        for index in unknown {
            self.leave(index);
            let Some(piece) = self.pieces.get_mut(&index) else { continue };
            if piece.doomed.is_some() {
                piece.state = State::Refused;
                gone.extend(self.end(index));
            } else {
                piece.state = State::Waiting;
                let stage = piece.stage.index();
                self.inserts[stage].insert(index);
            }
        }
        // From now on the target has time to confirm.
        for (_, index) in std::mem::take(&mut self.stale) {
            self.make_stale(index, now);
        }
        self.ask_again();
        gone
    }

    /// Asks again for what the target refused to remove.
    pub(super) fn ask_again(&mut self) {
        self.removals.append(&mut self.clinging);
    }

    /// What an entry has counted. Answers with the hits since it was last read, and what they are hits
    /// of.
    pub(super) fn counted(
        &mut self,
        index: LtmIndex,
        counters: Counters,
        now: Time,
    ) -> Option<(LtmEntryRef, Arc<Traversal>, Counters)> {
        let piece = self.pieces.get_mut(&index)?;
        if counters.packets < piece.counted.packets || counters.bytes < piece.counted.bytes {
            // The target has begun anew.
            piece.counted_before = piece.totals();
            piece.counted = Counters::default();
        }
        let hits = Counters {
            packets: counters.packets - piece.counted.packets,
            bytes: counters.bytes - piece.counted.bytes,
        };
        piece.counted = counters;
        if hits.packets == 0 {
            return None;
        }
        piece.used = now;
        Some((piece.entry, Arc::clone(&piece.traversal), hits))
    }

    /// The name of an entry that is meant to be in the target.
    pub(super) fn index(&self, entry: LtmEntryRef) -> Option<LtmIndex> {
        self.by_entry.get(&entry).copied()
    }

    /// The entry of a piece that is still meant to be in the target.
    pub(super) fn entry(&self, index: LtmIndex) -> Option<LtmEntryRef> {
        self.pieces.get(&index).filter(|piece| piece.doomed.is_none()).map(|piece| piece.entry)
    }

    /// The pieces that the target has, to read their counters.
    pub(super) fn held(&self) -> Vec<LtmIndex> {
        let held = self.pieces.iter().filter(|(_, piece)| piece.state == State::Held);
        held.map(|(index, _)| *index).collect()
    }

    /// Removals that are under way: their answers come with counts.
    pub(super) fn removals_under_way(&self) -> impl Iterator<Item = Ticket> {
        let is_removal = |index: &LtmIndex| {
            self.pieces.get(index).is_some_and(|piece| piece.state == State::Removing)
        };
        self.under_way.iter().filter(move |(_, index)| is_removal(index)).map(|(ticket, _)| *ticket)
    }

    /// Entries that nothing had hit by the reading that began at `read`, for `idle` at least.
    pub(super) fn idle(&self, read: Time, idle: Duration) -> Vec<LtmEntryRef> {
        let is_idle = |piece: &&Piece| {
            piece.doomed.is_none() && piece.state == State::Held && read.since(piece.used) >= idle
        };
        self.pieces.values().filter(is_idle).map(|piece| piece.entry).collect()
    }

    /// The pieces that are meant to be in the target, with what they have counted.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&Piece, Counters)> {
        let pieces = self.pieces.values().filter(|piece| piece.doomed.is_none());
        pieces.map(|piece| (piece, piece.totals()))
    }

    /// When what is stale and not gone became so, the oldest first.
    pub(super) fn stale_since(&self) -> Option<Time> {
        self.stale.first().map(|(since, _)| *since)
    }

    /// How many entries are stale and not gone.
    pub(super) fn stale_count(&self) -> usize {
        self.stale.len()
    }

    /// Pieces that are to be inserted.
    pub(super) fn waiting_count(&self) -> usize {
        self.inserts.iter().map(BTreeSet::len).sum()
    }

    /// Operations that are not answered.
    pub(super) fn under_way_count(&self) -> usize {
        self.under_way.len()
    }

    /// Entries of each stage that the target has or may have.
    pub(super) fn occupied(&self) -> &[usize] {
        &self.occupied
    }

    /// What each stage may hold, as the target says.
    pub(super) fn set_capacity(&mut self, capacity: &[usize]) {
        self.capacity.iter_mut().zip(capacity).for_each(|(own, stage)| *own = *stage);
    }

    /// Another ticket, of nobody yet.
    pub(super) const fn new_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    fn ticket(&mut self, index: LtmIndex) -> Ticket {
        let ticket = self.new_ticket();
        self.under_way.insert(ticket, index);
        ticket
    }

    fn set_state(&mut self, index: LtmIndex, state: State) -> Option<StageId> {
        let piece = self.pieces.get_mut(&index)?;
        piece.state = state;
        Some(piece.stage)
    }

    /// An entry has no place in the target any more.
    fn leave(&mut self, index: LtmIndex) {
        let Some(piece) = self.pieces.get(&index) else { return };
        let (stage, place, is_doomed) = (piece.stage.index(), place(piece), piece.doomed.is_some());
        if self.places.get(&place) == Some(&index) {
            self.places.remove(&place);
            self.occupied[stage] -= 1;
            self.leaving[stage] -= usize::from(is_doomed);
        }
    }

    fn end(&mut self, index: LtmIndex) -> Option<Piece> {
        self.leave(index);
        let piece = self.pieces.remove(&index)?;
        self.inserts[piece.stage.index()].remove(&index);
        if let Some(Doomed { stale_since }) = piece.doomed {
            self.doomed_count -= 1;
            stale_since.map(|since| self.stale.remove(&(since, index)));
        }
        Some(piece)
    }
}

impl Piece {
    /// When it was hit last, as far as is known.
    pub(super) const fn used(&self) -> Time {
        self.used
    }

    fn totals(&self) -> Counters {
        let (before, own) = (self.counted_before, self.counted);
        Counters { packets: before.packets + own.packets, bytes: before.bytes + own.bytes }
    }
}

fn place(piece: &Piece) -> Place {
    let rule = &piece.rule;
    (piece.stage, rule.tag, rule.length, rule.matching.clone())
}
