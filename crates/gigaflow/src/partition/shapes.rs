//! What is the same for all ways of one shape.
//!
//! Flows that go through the same tables make ways whose legs look at the same fields. Such ways have
//! one *shape*: they differ in the names of their pieces, but not in what each piece would be worth. So
//! what the program of the [board](super::board) finds where no stage holds any of the pieces is found
//! once for a shape, and for each of the few [`conditions`](Shape::empty) that stages are in.
//!
//! There are only so many shapes: where there would be more, all are forgotten. Ways of very many legs
//! have none.

use hashbrown::HashTable;

use super::{board::Row, contract::StageSet};
use crate::way::{Candidate, Form, Way};

/// The shapes of the ways so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    known: HashTable<Shape>,
}

/// A shape, and what is known of its ways.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    name: u64,
    form: Form,
    gains: Gains,
    empties: Vec<Values>,
    /// The one that gives way to another.
    oldest: usize,
}

/// What each piece adds, and whether it is coupled, from leg to leg.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    gains: Vec<i64>,
    coupled: Vec<bool>,
    legs_count: usize,
}

/// What the program finds under some conditions.
#[derive(Clone, Debug, Default)]
struct Values {
    conditions: [StageSet; 3],
    best: Vec<i64>,
    ends: Vec<u8>,
}

/// What is known of a way under the conditions of now where no stage holds any of its pieces.
pub(super) struct Empty<'a> {
    pub(super) gains: &'a Gains,
    pub(super) best: &'a Vec<i64>,
    pub(super) ends: &'a Vec<u8>,
}

/// Shapes that are told apart.
const SHAPES_MAX: usize = 256;
/// Conditions of which something is kept for each shape.
const CONDITIONS_MAX: usize = 4;
/// Legs of a way, and stages, of which something is kept: so a shape takes 32 kB at most.
const LEGS_MAX: usize = 40;
const STAGES_MAX: usize = 15;

/// Whether something is kept of ways like this one, in so many stages.
pub(super) fn is_kept(way: &Way, stages_count: usize) -> bool {
    way.legs_count() <= LEGS_MAX && stages_count <= STAGES_MAX
}

impl Shapes {
    /// The shape of a way. If it is new, `gain` says what each piece is worth, and always the same.
    pub(super) fn of(&mut self, way: &Way, gain: impl Fn(&Candidate) -> i64) -> &mut Shape {
        let name = way.shape();
        if self.known.len() >= SHAPES_MAX
            && self.known.find(name, |shape| shape.is_of(name, way)).is_none()
        {
            self.known.clear();
        }
        let entry = self.known.entry(name, |shape| shape.is_of(name, way), |shape| shape.name);
        entry.or_insert_with(|| Shape::new(way, gain)).into_mut()
    }
}

impl Shape {
    fn new(way: &Way, gain: impl Fn(&Candidate) -> i64) -> Self {
        let pieces: Vec<Candidate> = way.pieces().collect();
        let gains = Gains {
            gains: pieces.iter().map(gain).collect(),
            coupled: pieces.iter().map(|piece| piece.coupled).collect(),
            legs_count: way.legs_count(),
        };
        Self { name: way.shape(), form: way.form(), gains, empties: Vec::new(), oldest: 0 }
    }

    fn is_of(&self, name: u64, way: &Way) -> bool {
        self.name == name && way.is_of(&self.form)
    }

    /// What is known under these conditions: the stages that may be used, those that have room, and
    /// those that are pressed. If it is not known yet, `solve` finds it.
    pub(super) fn empty(
        &mut self,
        conditions: [StageSet; 3],
        solve: impl FnOnce(&Gains, &mut Vec<i64>, &mut Vec<u8>),
    ) -> Empty<'_> {
        let Self { gains, empties, oldest, .. } = self;
        let known = empties.iter().position(|values| values.conditions == conditions);
        let at = known.unwrap_or_else(|| {
            let at = if empties.len() < CONDITIONS_MAX {
                empties.push(Values::default());
                empties.len() - 1
            } else {
                *oldest = (*oldest + 1) % CONDITIONS_MAX;
                *oldest
            };
            let values = &mut empties[at];
            values.conditions = conditions;
            solve(gains, &mut values.best, &mut values.ends);
            at
        });
        let Values { best, ends, .. } = &empties[at];
        Empty { gains, best, ends }
    }
}

impl Gains {
    /// The pieces that begin with leg `first`.
    pub(super) fn row<'a>(&'a self, first: usize, holders: &'a [StageSet]) -> Row<'a> {
        Row { first, gains: self.part(first, &self.gains), holders }
    }

    /// Whether the pieces that begin with leg `first` are coupled.
    pub(super) fn coupled(&self, first: usize) -> &[bool] {
        self.part(first, &self.coupled)
    }

    fn part<'a, T>(&self, first: usize, all: &'a [T]) -> &'a [T] {
        // Before them lie those that begin with an earlier leg, of which each has one less.
        let start = first * (2 * self.legs_count + 1 - first) / 2;
        &all[start..start + self.legs_count - first]
    }
}
