//! What is the same for all ways of one shape.
//!
//! Flows that go through the same tables make ways whose legs look at the same fields. Such ways have
//! one *shape*: they differ in the names of their pieces, but not in what each piece would be worth. So
//! what the program of the [board](super::board) finds depends on the [`Conditions`] that stages are in,
//! and on which pieces they hold, and on nothing else. Of each shape the last few answers are kept, with
//! all that they depended on.
//!
//! There are only so many shapes: where there would be more, all are forgotten. Ways of very many legs
//! have none.

use hashbrown::HashTable;

use super::{
    board::Row,
    contract::{Piece, StageSet, Stages},
};
use crate::outline::{Candidate, Form, TraversalOutline, fold};

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
    /// Hashes of what answers depended on, in the order of these.
    hashes: Vec<u64>,
    answers: Vec<Answer>,
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

/// The stages that may be used, those that have room, and those that are pressed.
pub(super) type Conditions = [StageSet; 3];

/// A piece that some stage holds: the `at`th of those that begin with leg `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) first: u8,
    pub(super) at: u8,
    pub(super) stages: StageSet,
}

/// What the program found, and what that depended on.
#[derive(Clone, Debug, Default)]
struct Answer {
    conditions: Conditions,
    held: Vec<Holding>,
    pieces: Vec<Piece>,
}

/// Shapes that are told apart.
const SHAPES_MAX: usize = 256;
/// Answers that are kept for each shape.
const ANSWERS_MAX: usize = 32;
/// Pieces that stages hold of a way of which an answer is kept: so a shape takes 64 kB at most.
const HELD_MAX: usize = 64;
/// Legs of a way, and stages, of which something is kept.
const LEGS_MAX: usize = 40;
const STAGES_MAX: usize = 15;

/// Whether something is kept of ways like this one, in so many stages.
pub(super) fn is_kept(way: &TraversalOutline, stages_count: usize) -> bool {
    way.legs_count() <= LEGS_MAX && stages_count <= STAGES_MAX
}

impl Shapes {
    /// The shape of a way. If it is new, `gain` says what each piece is worth, and always the same.
    pub(super) fn of(
        &mut self,
        way: &TraversalOutline,
        gain: impl Fn(&Candidate) -> i64,
    ) -> &mut Shape {
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
    fn new(way: &TraversalOutline, gain: impl Fn(&Candidate) -> i64) -> Self {
        let pieces: Vec<Candidate> = way.pieces().collect();
        let gains = Gains {
            gains: pieces.iter().map(gain).collect(),
            coupled: pieces.iter().map(|piece| piece.coupled).collect(),
            legs_count: way.legs_count(),
        };
        let (hashes, answers) = (Vec::new(), Vec::new());
        Self { name: way.shape(), form: way.form(), gains, hashes, answers, oldest: 0 }
    }

    fn is_of(&self, name: u64, way: &TraversalOutline) -> bool {
        self.name == name && way.is_of(&self.form)
    }

    pub(super) const fn gains(&self) -> &Gains {
        &self.gains
    }

    /// What was found under these conditions where stages held these pieces, if that is known.
    pub(super) fn find(&self, conditions: &Conditions, held: &[Holding]) -> Option<&[Piece]> {
        let hash = hash_of(conditions, held);
        let mut hits = self.hashes.iter().zip(&self.answers).filter(|(own, _)| **own == hash);
        let found = hits.find(|(_, own)| own.conditions == *conditions && own.held == held)?;
        Some(&found.1.pieces)
    }

    /// Keeps what was found.
    pub(super) fn keep(&mut self, conditions: Conditions, held: &[Holding], pieces: &[Piece]) {
        if held.len() > HELD_MAX {
            return;
        }
        let at = if self.answers.len() < ANSWERS_MAX {
            self.hashes.push(0);
            self.answers.push(Answer::default());
            self.answers.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % ANSWERS_MAX;
            self.oldest
        };
        self.hashes[at] = hash_of(&conditions, held);
        let own = &mut self.answers[at];
        own.conditions = conditions;
        own.held.clear();
        own.held.extend_from_slice(held);
        own.pieces.clear();
        own.pieces.extend_from_slice(pieces);
    }
}

/// A hash of what an answer depends on.
fn hash_of(conditions: &Conditions, held: &[Holding]) -> u64 {
    let begun = conditions.iter().fold(0, |hash, stages| fold(hash, stages.bits()));
    held.iter().fold(begun, |hash, Holding { first, at, stages }| {
        fold(hash, stages.bits() ^ u64::from(*first) << 56 ^ u64::from(*at) << 48)
    })
}

impl Gains {
    /// The pieces that begin with leg `first`.
    pub(super) fn row<'a>(&'a self, first: usize, holders: &'a [StageSet]) -> Row<'a> {
        Row { first, gains: self.part(first, &self.gains), holders }
    }

    /// The pieces of a way that stages hold, from the last leg on backwards, in `held`.
    pub(super) fn held_by(
        &self,
        way: &TraversalOutline,
        stages: &impl Stages,
        held: &mut Vec<Holding>,
    ) {
        held.clear();
        for first in (0..self.legs_count).rev() {
            if !stages.may_begin(way.cut_before(first)) {
                continue;
            }
            let candidates = way.candidates_known(first, self.part(first, &self.coupled));
            for (at, candidate) in (0..).zip(candidates) {
                let own = stages.holders(&candidate);
                if own != StageSet::EMPTY {
                    #[expect(clippy::cast_possible_truncation, reason = "few legs are kept")]
                    held.push(Holding { first: first as u8, at, stages: own });
                }
            }
        }
    }

    fn part<'a, T>(&self, first: usize, all: &'a [T]) -> &'a [T] {
        // Before them lie those that begin with an earlier leg, of which each has one less.
        let start = first * (2 * self.legs_count + 1 - first) / 2;
        &all[start..start + self.legs_count - first]
    }
}
