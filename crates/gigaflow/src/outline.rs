//! The outline of a traversal: the part of it that partition policies need.
//!
//! A [`TraversalOutline`] has one step for each table lookup and the actions that follow it. A step
//! holds the header fields that the lookup consulted, and a hash of the masked key and the matched
//! rules. Between two steps there may be a partition point, with the id of the hidden state there.
//!
//! # Segments
//!
//! Policies work with *segments*: a segment is the steps between two successive partition points.
//! Two steps have no partition point between them if the hidden state there has no tag, or if a tag
//! would cost more than it gains. The builder of the outline decides where partition points are. An
//! outline has at most [`SEGMENTS_MAX`] segments, and the last segment takes all further steps. So
//! a traversal of thousands of visits costs no more time and memory than one of a hundred.
//!
//! # Identities
//!
//! Two sub-traversals are one cache entry if they begin at the same state, and their steps
//! consulted and matched the same bits and rules. Policies compare *identities*, which are hashes
//! of the start state and the steps. The caller computes the hashes of the steps with its own seed.
//! The lookup of a packet never uses identities. If two sub-traversals have the same
//! identity by chance, only some sharing or some room in a stage is lost.

use std::ops::Range;

use self::fields::FieldGroups;
pub use self::fields::{Coupling, FieldSet};

mod fields;

/// The id of the state between two steps: the next table, or a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(u32);

impl StateId {
    /// The state after the last step.
    pub const END: Self = Self(u32::MAX);

    /// Creates the id with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the state.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One step of a traversal: a table lookup and the actions that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlineStep {
    /// The coupling fields that the step consulted.
    pub fields: FieldSet,
    /// A seeded hash of the mask, the matched value and the effect of the step.
    pub identity: u64,
}

/// The outline of a traversal: the steps and partition points that policies need.
///
/// The caller adds steps in the order of the table lookups. [`TraversalOutline::begin`] clears an
/// outline and reuses its memory:
///
/// ```
/// use shunt_gigaflow::outline::{Coupling, StateId, FieldSet, OutlineStep, TraversalOutline};
///
/// let ethernet = FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]);
/// let mut outline = TraversalOutline::new();
/// outline.begin(StateId::new(0));
/// outline.step(OutlineStep { fields: ethernet, identity: 17 });
/// outline.partition_point(StateId::new(3));
/// outline.step(OutlineStep { fields: FieldSet::EMPTY, identity: 4 });
/// // Without a partition point, this step and the step before stay together.
/// outline.step(OutlineStep { fields: FieldSet::of(&[Coupling::IpDst]), identity: 9 });
/// assert_eq!((outline.steps_count(), outline.segments_count()), (3, 2));
/// ```
#[derive(Clone, Debug)]
pub struct TraversalOutline {
    /// The segments between partition points, first to last.
    segments: Vec<OutlineSegment>,
    /// Number of table lookups of the traversal.
    steps_count: u16,
    /// The state at which the traversal starts.
    start: StateId,
    /// The state at its end; `None` if the packet is done.
    next: Option<StateId>,
    /// A hash of the [`OutlineShape`].
    shape_hash: u64,
}

/// The shape of an outline: the end and the connected field groups of each segment.
///
/// Outlines of one shape have the same scores for all of their sub-traversals.
#[derive(Clone, Debug)]
pub(crate) struct OutlineShape(Box<[(u16, FieldGroups)]>);

/// Consecutive steps without a partition point inside.
#[derive(Clone, Copy, Debug)]
struct OutlineSegment {
    /// The state that the segment begins at.
    begin: StateId,
    /// The index after the last step of the segment.
    end: u16,
    /// A hash of the steps of the segment.
    identity: u64,
    /// The connected groups of the fields of the segment.
    groups: FieldGroups,
}

impl TraversalOutline {
    /// Creates an outline without a step.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            segments: Vec::new(),
            steps_count: 0,
            start: StateId::END,
            next: None,
            shape_hash: IDENTITY,
        }
    }

    /// Clears the outline, and begins at `start`.
    pub fn begin(&mut self, start: StateId) {
        self.segments.clear();
        self.steps_count = 0;
        self.start = start;
        self.next = Some(start);
        self.shape_hash = IDENTITY;
    }

    /// Adds a partition point with the id of its state before the next step.
    pub const fn partition_point(&mut self, state: StateId) {
        self.next = Some(state);
    }

    /// Adds a step. Steps beyond [`STEPS_MAX`] become part of the last step.
    pub fn step(&mut self, step: OutlineStep) {
        self.steps_count = self.steps_count.saturating_add(1);
        let begin = self.next.take().filter(|_| self.segments.len() < SEGMENTS_MAX);
        let form = u64::from(step.fields.bits()) | u64::from(begin.is_some()) << 32;
        self.shape_hash = fold(self.shape_hash, form);
        if let Some(begin) = begin {
            let (identity, groups) = (IDENTITY, FieldGroups::NONE);
            self.segments.push(OutlineSegment { begin, end: 0, identity, groups });
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.end = self.steps_count;
            segment.identity = fold(segment.identity, step.identity);
            segment.groups.add(step.fields);
        }
    }

    /// Returns the state that the traversal begins at.
    #[must_use]
    pub const fn start(&self) -> StateId {
        self.start
    }

    /// Returns the number of table lookups of the traversal.
    #[must_use]
    pub const fn steps_count(&self) -> u16 {
        self.steps_count
    }

    /// Returns the number of segments, the greatest number of sub-traversals.
    #[must_use]
    pub fn segments_count(&self) -> usize {
        self.segments.len()
    }

    /// Returns the state before a segment; `segments_count` means after the last one.
    pub(crate) fn state_before(&self, segment: usize) -> StateId {
        self.segments.get(segment).map_or(StateId::END, |segment| segment.begin)
    }

    /// Returns the first step of a segment; `segments_count` gives the number of steps.
    pub(crate) fn step_before(&self, segment: usize) -> u16 {
        segment
            .checked_sub(1)
            .and_then(|before| self.segments.get(before))
            .map_or(0, |segment| segment.end)
    }

    /// Returns the sub-traversals that begin with segment `first`, shortest first.
    pub(crate) fn candidates(&self, first: usize) -> Candidates<'_> {
        let segments = self.segments.get(first..).unwrap_or_default();
        Candidates {
            segments: segments.iter(),
            first_step: self.step_before(first),
            identity: fold(IDENTITY, u64::from(self.state_before(first).0)),
            groups: FieldGroups::NONE,
        }
    }

    /// Returns the sub-traversals of [`Self::candidates`], with known `coupled` flags.
    pub(crate) fn candidates_known(
        &self,
        first: usize,
        coupled: &[bool],
    ) -> impl Iterator<Item = SubTraversalOutline> {
        let (first_step, segments) = (self.step_before(first), self.segments.get(first..));
        let mut identity = fold(IDENTITY, u64::from(self.state_before(first).0));
        segments.unwrap_or_default().iter().zip(coupled).map(move |(segment, coupled)| {
            identity = fold(identity, segment.identity);
            SubTraversalOutline { steps: first_step..segment.end, identity, coupled: *coupled }
        })
    }

    /// Returns a hash of the shape of the outline.
    pub(crate) const fn shape_hash(&self) -> u64 {
        self.shape_hash
    }

    /// Returns the parts of the traversal that select its cached partition.
    pub(crate) fn shape(&self) -> OutlineShape {
        OutlineShape(self.segments.iter().map(|segment| (segment.end, segment.groups)).collect())
    }

    /// Returns whether the outline has this shape.
    pub(crate) fn has_shape(&self, shape: &OutlineShape) -> bool {
        let own = self.segments.iter().map(|segment| (segment.end, segment.groups.sets()));
        own.eq(shape.0.iter().map(|(end, groups)| (*end, groups.sets())))
    }

    /// Returns the id of the sub-traversal with exactly these steps, if there is one.
    ///
    /// A traversal without a step is one sub-traversal.
    #[must_use]
    pub fn id(&self, steps: &Range<u16>) -> Option<SubTraversalId> {
        if self.segments.is_empty() && *steps == (0..0) {
            let begin = self.start;
            return Some(SubTraversalId { identity: fold(IDENTITY, u64::from(begin.0)), begin });
        }
        let first = match steps.start {
            0 => 0,
            start => self.segments.partition_point(|segment| segment.end < start) + 1,
        };
        if self.step_before(first) != steps.start {
            return None;
        }
        let begin = self.state_before(first);
        let mut identity = fold(IDENTITY, u64::from(begin.0));
        for segment in self.segments.get(first..)? {
            identity = fold(identity, segment.identity);
            if segment.end >= steps.end {
                return (segment.end == steps.end).then_some(SubTraversalId { identity, begin });
            }
        }
        None
    }

    /// Returns the identity of the sub-traversal with exactly these steps.
    #[must_use]
    pub fn identity(&self, steps: &Range<u16>) -> Option<u64> {
        self.id(steps).map(|id| id.identity)
    }

    /// Returns every sub-traversal that a partition of this traversal could have.
    pub fn sub_traversals(&self) -> impl Iterator<Item = SubTraversalOutline> {
        (0..self.segments_count()).flat_map(|first| self.candidates(first))
    }

    /// Returns the sub-traversal of the segments `first..end`, if they have a step.
    pub(crate) fn candidate(&self, first: usize, end: usize) -> Option<SubTraversalOutline> {
        self.candidates(first).nth(end.checked_sub(first + 1)?)
    }

    /// Returns the whole traversal as one sub-traversal; `None` if it has no step.
    pub(crate) fn whole(&self) -> Option<SubTraversalOutline> {
        self.candidates(0).last()
    }
}

impl Default for TraversalOutline {
    fn default() -> Self {
        Self::new()
    }
}

/// The id of a sub-traversal, which policies compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubTraversalId {
    /// A hash of the steps of the sub-traversal and of the state before them.
    pub identity: u64,
    /// The state that the sub-traversal begins at.
    pub begin: StateId,
}

/// A sub-traversal that a partition of the outlined traversal could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubTraversalOutline {
    /// Steps of the sub-traversal.
    pub steps: Range<u16>,
    /// A hash of the steps of the sub-traversal and of the state before them.
    pub identity: u64,
    /// True if the fields are connected: see [`Score`](crate::partition::Score).
    pub coupled: bool,
}

/// Iterates over the sub-traversals that begin with one segment.
pub(crate) struct Candidates<'a> {
    segments: std::slice::Iter<'a, OutlineSegment>,
    /// Index of the first step of the sub-traversals.
    first_step: u16,
    /// The hash of the start state and of the steps so far.
    identity: u64,
    /// The field groups of the steps so far.
    groups: FieldGroups,
}

impl Iterator for Candidates<'_> {
    type Item = SubTraversalOutline;

    fn next(&mut self) -> Option<SubTraversalOutline> {
        let segment = self.segments.next()?;
        self.identity = fold(self.identity, segment.identity);
        self.groups.join(&segment.groups);
        Some(SubTraversalOutline {
            steps: self.first_step..segment.end,
            identity: self.identity,
            coupled: self.groups.is_connected(),
        })
    }
}

/// The initial value of the hash of a sequence of numbers.
const IDENTITY: u64 = 0x243f_6a88_85a3_08d3;

/// Adds a number to the hash of a sequence of numbers.
///
/// The added numbers are small, or are hashes already. So one multiplication by an odd number is
/// enough, with the halves of the product folded together.
pub(crate) const fn fold(sequence: u64, next: u64) -> u64 {
    let product = (sequence.rotate_left(23) ^ next) as u128 * 0x9e37_79b9_7f4a_7c15_u128;
    #[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
    {
        (product >> 64) as u64 ^ product as u64
    }
}

/// Maximum number of steps, far beyond the bound of visits of a translation.
pub const STEPS_MAX: u16 = u16::MAX;

/// Maximum number of segments, and so of sub-traversals in a partition.
pub const SEGMENTS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outline of a traversal with some steps.
    fn outline(steps: u16) -> TraversalOutline {
        let mut outline = TraversalOutline::new();
        outline.begin(StateId::new(0));
        for number in 0..steps {
            outline.partition_point(StateId::new(u32::from(number)));
            outline.step(OutlineStep {
                fields: FieldSet::of(&[Coupling::IpDst]),
                identity: number.into(),
            });
        }
        outline
    }

    #[test]
    fn outline_of_4096_steps_has_bounded_segments() {
        let outline = outline(4096);
        assert_eq!((outline.steps_count(), outline.segments_count()), (4096, SEGMENTS_MAX));
        assert_eq!(outline.whole().map(|whole| whole.steps), Some(0..4096));
        assert_eq!(outline.step_before(SEGMENTS_MAX), 4096);
    }

    #[test]
    fn an_identity_depends_on_start_and_steps() {
        let identity = |start, seen: &[u64]| {
            let mut outline = TraversalOutline::new();
            outline.begin(StateId::new(start));
            for identity in seen {
                outline.step(OutlineStep { fields: FieldSet::EMPTY, identity: *identity });
            }
            outline.whole().map(|whole| whole.identity)
        };
        assert_eq!(identity(1, &[2, 3]), identity(1, &[2, 3]));
        for other in [identity(2, &[2, 3]), identity(1, &[3, 2]), identity(1, &[2]), None] {
            assert_ne!(identity(1, &[2, 3]), other);
        }
    }

    #[test]
    fn a_sub_traversal_is_found_by_its_steps() {
        let outline = outline(6);
        for candidate in outline.sub_traversals() {
            assert_eq!(outline.identity(&candidate.steps), Some(candidate.identity));
        }
        for steps in [3..3, 0..7, 6..7] {
            assert_eq!(outline.identity(&steps), None, "{steps:?}");
        }
    }

    #[test]
    fn traversals_without_a_step_differ_by_their_starts() {
        let identity = |start| {
            let mut outline = TraversalOutline::new();
            outline.begin(StateId::new(start));
            outline.identity(&(0..0))
        };
        assert!(identity(1).is_some());
        assert_ne!(identity(1), identity(2));
    }

    #[test]
    fn traversals_with_equal_fields_share_shape() {
        let (one, mut same, longer) = (outline(6), outline(6), outline(7));
        same.begin(StateId::new(9));
        for number in 0..6 {
            same.partition_point(StateId::new(9 - number));
            same.step(OutlineStep { fields: FieldSet::of(&[Coupling::IpDst]), identity: 7 });
        }
        let shape = one.shape();
        assert!(same.shape_hash() == one.shape_hash() && same.has_shape(&shape));
        assert!(longer.shape_hash() != one.shape_hash() && !longer.has_shape(&shape));
    }

    #[test]
    fn equal_sub_traversals_have_one_identity() {
        let (long, short) = (outline(6), outline(4));
        let of = |outline: &TraversalOutline| outline.candidates(2).take(2).collect::<Vec<_>>();
        assert_eq!(of(&long), of(&short));
    }
}
