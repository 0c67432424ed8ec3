//! What a partition policy needs to know of a traversal.
//!
//! A [`TraversalOutline`] is a traversal with everything left out that does not decide where it is cut: for each
//! step (one table lookup with the actions behind it) the header fields it looked at and a hash of
//! what it saw, and for each boundary between two steps the name of the state there, if the way may
//! be cut there at all.
//!
//! # Legs
//!
//! Policies do not think in steps but in *legs*: the runs of steps between boundaries that are open.
//! A boundary is closed where the hidden state has no name, or where a name would cost more than it
//! wins; whoever builds the way knows that. A way has at most [`LEGS_MAX`] legs: what comes after the
//! last of them belongs to it, so that a traversal of thousands of visits costs no more time and
//! memory than one of a hundred.
//!
//! # Identities
//!
//! Two pieces are one cache entry if they begin at the same cut and every step of them saw the same.
//! Policies compare identities, which are hashes of just that; the hashes of the steps come from
//! outside, with a seed of the caller's. An identity never decides what a packet meets: two pieces
//! with one identity cost sharing, or a place in a stage, and nothing else.

use std::ops::Range;

use self::fields::Groups;
pub use self::fields::{Coupling, FieldSet};

mod fields;

/// The name of the state between two steps: of the table that comes next, or of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(u32);

impl StateId {
    /// Behind the last step.
    pub const END: Self = Self(u32::MAX);

    /// The cut with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One step of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The coupling fields it looked at.
    pub fields: FieldSet,
    /// A hash of everything that makes it this step and no other: what it matched under which mask,
    /// and what it did. Seeded by who builds the way.
    pub identity: u64,
}

/// A traversal, as far as partition policies look at it.
///
/// It is built in the order of the packet's way, and its memory is used again by [`TraversalOutline::begin`]:
///
/// ```
/// use shunt_gigaflow::outline::{Coupling, StateId, FieldSet, Step, TraversalOutline};
///
/// let ethernet = FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]);
/// let mut way = TraversalOutline::new();
/// way.begin(StateId::new(0));
/// way.step(Step { fields: ethernet, identity: 17 });
/// way.cut(StateId::new(3));
/// way.step(Step { fields: FieldSet::EMPTY, identity: 4 });
/// // No cut here: these two stay together.
/// way.step(Step { fields: FieldSet::of(&[Coupling::IpDst]), identity: 9 });
/// assert_eq!((way.steps_count(), way.legs_count()), (3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct TraversalOutline {
    legs: Vec<Leg>,
    steps_count: u16,
    start: StateId,
    next: Option<StateId>,
    /// A hash of its form.
    shape: u64,
}

/// What decides what the pieces of a way are worth, whatever they are called: where its legs end, and
/// how the fields of each hang together.
#[derive(Clone, Debug)]
pub(crate) struct Form(Box<[(u16, Groups)]>);

/// Steps that no piece divides.
#[derive(Clone, Copy, Debug)]
struct Leg {
    /// The cut that it begins at.
    cut: StateId,
    /// One past its last step.
    end: u16,
    /// What its steps saw.
    identity: u64,
    /// How its fields hang together.
    groups: Groups,
}

impl TraversalOutline {
    /// A way without a step.
    #[must_use]
    pub const fn new() -> Self {
        Self { legs: Vec::new(), steps_count: 0, start: StateId::END, next: None, shape: IDENTITY }
    }

    /// Forgets what was there, and begins at `start`.
    pub fn begin(&mut self, start: StateId) {
        self.legs.clear();
        self.steps_count = 0;
        self.start = start;
        self.next = Some(start);
        self.shape = IDENTITY;
    }

    /// Says that the way may be cut in front of the next step, where the state is called `name`.
    pub const fn cut(&mut self, name: StateId) {
        self.next = Some(name);
    }

    /// Adds a step. What comes after [`STEPS_MAX`] steps belongs to the last of them.
    pub fn step(&mut self, step: Step) {
        self.steps_count = self.steps_count.saturating_add(1);
        let cut = self.next.take().filter(|_| self.legs.len() < LEGS_MAX);
        let seen = u64::from(step.fields.bits()) | u64::from(cut.is_some()) << 32;
        self.shape = fold(self.shape, seen);
        if let Some(cut) = cut {
            self.legs.push(Leg { cut, end: 0, identity: IDENTITY, groups: Groups::NONE });
        }
        if let Some(leg) = self.legs.last_mut() {
            leg.end = self.steps_count;
            leg.identity = fold(leg.identity, step.identity);
            leg.groups.add(step.fields);
        }
    }

    /// Where the way begins.
    #[must_use]
    pub const fn start(&self) -> StateId {
        self.start
    }

    /// How many steps it has.
    #[must_use]
    pub const fn steps_count(&self) -> u16 {
        self.steps_count
    }

    /// How many legs it has, which is how many pieces it can have.
    #[must_use]
    pub fn legs_count(&self) -> usize {
        self.legs.len()
    }

    /// The name of the state in front of leg `leg`, or behind the last one.
    pub(crate) fn cut_before(&self, leg: usize) -> StateId {
        self.legs.get(leg).map_or(StateId::END, |leg| leg.cut)
    }

    /// The first step of leg `leg`, or one past the last step.
    pub(crate) fn step_before(&self, leg: usize) -> u16 {
        leg.checked_sub(1).and_then(|before| self.legs.get(before)).map_or(0, |leg| leg.end)
    }

    /// The pieces that begin with leg `first`, shortest first.
    pub(crate) fn candidates(&self, first: usize) -> Candidates<'_> {
        let legs = self.legs.get(first..).unwrap_or_default();
        Candidates {
            legs: legs.iter(),
            first_step: self.step_before(first),
            identity: fold(IDENTITY, u64::from(self.cut_before(first).0)),
            groups: Groups::NONE,
        }
    }

    /// As [`Self::candidates`], where it is known which of them are coupled.
    pub(crate) fn candidates_known(
        &self,
        first: usize,
        coupled: &[bool],
    ) -> impl Iterator<Item = Candidate> {
        let (first_step, legs) = (self.step_before(first), self.legs.get(first..));
        let mut identity = fold(IDENTITY, u64::from(self.cut_before(first).0));
        legs.unwrap_or_default().iter().zip(coupled).map(move |(leg, coupled)| {
            identity = fold(identity, leg.identity);
            Candidate { steps: first_step..leg.end, identity, coupled: *coupled }
        })
    }

    /// A hash of its form.
    pub(crate) const fn shape(&self) -> u64 {
        self.shape
    }

    pub(crate) fn form(&self) -> Form {
        Form(self.legs.iter().map(|leg| (leg.end, leg.groups)).collect())
    }

    /// Whether this is its form.
    pub(crate) fn is_of(&self, form: &Form) -> bool {
        let own = self.legs.iter().map(|leg| (leg.end, leg.groups.known()));
        own.eq(form.0.iter().map(|(end, groups)| (*end, groups.known())))
    }

    /// What the piece of these steps is called; none if no piece has just these. A way without a step
    /// is one piece.
    #[must_use]
    pub fn name(&self, steps: &Range<u16>) -> Option<Name> {
        if self.legs.is_empty() && *steps == (0..0) {
            let begin = self.start;
            return Some(Name { identity: fold(IDENTITY, u64::from(begin.0)), begin });
        }
        let first = match steps.start {
            0 => 0,
            start => self.legs.partition_point(|leg| leg.end < start) + 1,
        };
        if self.step_before(first) != steps.start {
            return None;
        }
        let begin = self.cut_before(first);
        let mut identity = fold(IDENTITY, u64::from(begin.0));
        for leg in self.legs.get(first..)? {
            identity = fold(identity, leg.identity);
            if leg.end >= steps.end {
                return (leg.end == steps.end).then_some(Name { identity, begin });
            }
        }
        None
    }

    /// The [identity](Name::identity) of the piece of these steps.
    #[must_use]
    pub fn identity(&self, steps: &Range<u16>) -> Option<u64> {
        self.name(steps).map(|name| name.identity)
    }

    /// Every piece that the way could be cut into.
    pub fn pieces(&self) -> impl Iterator<Item = Candidate> {
        (0..self.legs_count()).flat_map(|first| self.candidates(first))
    }

    /// The piece from leg `first` up to and without leg `end`; none if that is no leg at all.
    pub(crate) fn candidate(&self, first: usize, end: usize) -> Option<Candidate> {
        self.candidates(first).nth(end.checked_sub(first + 1)?)
    }

    /// The whole way as one piece; none if it has no step.
    pub(crate) fn whole(&self) -> Option<Candidate> {
        self.candidates(0).last()
    }
}

impl Default for TraversalOutline {
    fn default() -> Self {
        Self::new()
    }
}

/// What a piece is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// A hash of the cut it begins at and of what its steps saw.
    pub identity: u64,
    /// That cut.
    pub begin: StateId,
}

/// A piece that a way could be cut into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its steps.
    pub steps: Range<u16>,
    /// A hash of the cut it begins at and of what its steps saw.
    pub identity: u64,
    /// Whether its fields hang together: see [`Score`](crate::partition::Score).
    pub coupled: bool,
}

/// Iterates over the pieces that begin at one leg.
pub(crate) struct Candidates<'a> {
    legs: std::slice::Iter<'a, Leg>,
    first_step: u16,
    identity: u64,
    groups: Groups,
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        let leg = self.legs.next()?;
        self.identity = fold(self.identity, leg.identity);
        self.groups.join(&leg.groups);
        Some(Candidate {
            steps: self.first_step..leg.end,
            identity: self.identity,
            coupled: self.groups.are_one(),
        })
    }
}

/// Where a hash of a sequence begins.
const IDENTITY: u64 = 0x243f_6a88_85a3_08d3;

/// Adds to the hash of a sequence. Multiplying by an odd number and folding the halves together is
/// enough here: what comes in are hashes already, or small numbers.
pub(crate) const fn fold(sequence: u64, next: u64) -> u64 {
    let product = (sequence.rotate_left(23) ^ next) as u128 * 0x9e37_79b9_7f4a_7c15_u128;
    #[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
    {
        (product >> 64) as u64 ^ product as u64
    }
}

/// Steps of a way that are told apart, far beyond the visits that a translation may make.
pub const STEPS_MAX: u16 = u16::MAX;

/// Legs of a way: in how many pieces it can be cut at all.
pub const LEGS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn way(steps: u16) -> TraversalOutline {
        let mut way = TraversalOutline::new();
        way.begin(StateId::new(0));
        for number in 0..steps {
            way.cut(StateId::new(u32::from(number)));
            way.step(Step { fields: FieldSet::of(&[Coupling::IpDst]), identity: number.into() });
        }
        way
    }

    #[test]
    fn a_way_of_4096_steps_has_no_more_legs_than_any_other() {
        let way = way(4096);
        assert_eq!((way.steps_count(), way.legs_count()), (4096, LEGS_MAX));
        assert_eq!(way.whole().map(|whole| whole.steps), Some(0..4096));
        assert_eq!(way.step_before(LEGS_MAX), 4096);
    }

    #[test]
    fn a_piece_is_named_by_its_start_and_by_all_it_saw() {
        let identity = |start, seen: &[u64]| {
            let mut way = TraversalOutline::new();
            way.begin(StateId::new(start));
            for identity in seen {
                way.step(Step { fields: FieldSet::EMPTY, identity: *identity });
            }
            way.whole().map(|whole| whole.identity)
        };
        assert_eq!(identity(1, &[2, 3]), identity(1, &[2, 3]));
        for other in [identity(2, &[2, 3]), identity(1, &[3, 2]), identity(1, &[2]), None] {
            assert_ne!(identity(1, &[2, 3]), other);
        }
    }

    #[test]
    fn a_piece_is_found_by_its_steps_alone() {
        let way = way(6);
        for piece in way.pieces() {
            assert_eq!(way.identity(&piece.steps), Some(piece.identity));
        }
        for steps in [3..3, 0..7, 6..7] {
            assert_eq!(way.identity(&steps), None, "{steps:?}");
        }
    }

    #[test]
    fn ways_without_a_step_are_told_apart_by_their_starts() {
        let identity = |start| {
            let mut way = TraversalOutline::new();
            way.begin(StateId::new(start));
            way.identity(&(0..0))
        };
        assert!(identity(1).is_some());
        assert_ne!(identity(1), identity(2));
    }

    #[test]
    fn a_way_is_of_the_shape_of_those_that_look_at_the_same_fields() {
        let (one, mut same, longer) = (way(6), way(6), way(7));
        same.begin(StateId::new(9));
        for number in 0..6 {
            same.cut(StateId::new(9 - number));
            same.step(Step { fields: FieldSet::of(&[Coupling::IpDst]), identity: 7 });
        }
        let form = one.form();
        assert!(same.shape() == one.shape() && same.is_of(&form));
        assert!(longer.shape() != one.shape() && !longer.is_of(&form));
    }

    #[test]
    fn the_same_piece_of_two_ways_has_one_identity() {
        let (long, short) = (way(6), way(4));
        let of = |way: &TraversalOutline| way.candidates(2).take(2).collect::<Vec<_>>();
        assert_eq!(of(&long), of(&short));
    }
}
