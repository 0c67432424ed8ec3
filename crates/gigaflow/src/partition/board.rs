//! The dynamic program behind the policies that weigh pieces.
//!
//! # The program
//!
//! `best[g][i]` is the best value of the way from leg `i` on, in the stages from the `g`-th on:
//!
//! ```text
//! best[g][n] = 0                                        nothing is left to place
//! best[K][i] = never                                    no stage is left, i < n
//! best[g][i] = max( best[g+1][i],                       stage g stays unused
//!                   gain(i, j) + fresh(i, j, g) + best[g+1][j]   for i < j <= n )
//! ```
//!
//! A piece may go into a later stage than the one behind its predecessor, since a packet that misses
//! in a stage only passes on. So partition and stages are found together, in `O(N² K)` steps for `N`
//! legs and `K` stages, with one question to the stages for each of the `N (N + 1) / 2` pieces.
//!
//! [`Slack::Front`] forbids to leave a stage unused behind the first piece: the last piece is in the
//! last stage, the one before it in the one before, as the paper aligns them.
//!
//! # Ties
//!
//! Values are ordered by worth, then by what [`Preference`] says of new entries and of the number of
//! pieces; all three are digits of one number. Among equals a stage rather stays unused, and then the
//! longest first piece wins, the longest second one, and so on. So which cuts are chosen depends on no
//! order of insertion, and this follows: *two ways that share a prefix, and are both cut at its end
//! after equally many pieces, are cut alike inside of it*, if the stages make no difference between
//! the pieces. For suppose that they were not. Both cut the prefix at its best for that many pieces,
//! or the way as a whole could be better; both then took the same first of the best.

use super::contract::{Piece, StageId, StageSet, Stages};
use crate::way::{Candidate, Way};

/// The memory of the program, used again from way to way.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// A layer for each usable stage and one behind the last; in it a value for each leg and one for
    /// the end.
    best: Vec<i64>,
    /// As `best`: the leg behind the piece that begins here, or [`UNUSED`].
    ends: Vec<u8>,
    layers: Vec<StageId>,
    gains: Vec<i64>,
    holders: Vec<StageSet>,
    legs_count: usize,
}

/// What is to be solved.
pub(super) struct Problem<'a, S> {
    pub(super) way: &'a Way,
    pub(super) stages: &'a S,
    /// The stages that may be used.
    pub(super) usable: StageSet,
    pub(super) preference: Preference,
}

/// How partitions of equal worth compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preference {
    /// What a piece costs that is in its stage not yet.
    pub(super) fresh: i64,
    /// What it costs besides in a stage that is [pressed](Stages::pressed).
    pub(super) pressed: i64,
    /// What every piece costs.
    pub(super) piece: i64,
    pub(super) slack: Slack,
}

/// Which stages may stay unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slack {
    /// Any.
    Anywhere,
    /// Those in front of the first piece.
    Front,
}

impl Board {
    /// Finds the best pieces, where a piece of legs `i..j` adds `gain(i, j, candidate)`; in `out`,
    /// which stays empty if the way does not fit.
    pub(super) fn solve<S: Stages>(
        &mut self,
        problem: &Problem<'_, S>,
        mut gain: impl FnMut(usize, &Candidate) -> i64,
        out: &mut Vec<Piece>,
    ) {
        out.clear();
        self.reset(problem);
        let (room, pressed) = (problem.stages.room(), problem.stages.pressed());
        for first in (0..self.legs_count).rev() {
            self.gains.clear();
            self.holders.clear();
            for (at, candidate) in problem.way.candidates(first).enumerate() {
                let worth = gain(first + at + 1, &candidate);
                self.gains.push(worth * WORTH - problem.preference.piece);
                self.holders.push(problem.stages.holders(&candidate));
            }
            let may_skip = problem.preference.slack == Slack::Anywhere || first == 0;
            for layer in (0..self.layers.len()).rev() {
                let stage = self.layers[layer];
                let Preference { fresh, pressed: more, .. } = problem.preference;
                let fresh = match (room.contains(stage), pressed.contains(stage)) {
                    (false, _) => NEVER,
                    (true, false) => -fresh,
                    (true, true) => -fresh - more,
                };
                self.choose(first, layer, fresh, may_skip);
            }
        }
        self.read(problem.way, out);
    }

    fn reset<S: Stages>(&mut self, problem: &Problem<'_, S>) {
        self.legs_count = problem.way.legs_count();
        self.layers.clear();
        self.layers.extend(problem.usable.iter());
        let (width, layers) = (self.legs_count + 1, self.layers.len());
        self.best.clear();
        self.best.resize(width * (layers + 1), NEVER);
        self.ends.clear();
        self.ends.resize(width * (layers + 1), UNUSED);
        for layer in 0..=layers {
            let ended = problem.preference.slack == Slack::Anywhere || layer == layers;
            self.best[layer * width + self.legs_count] = if ended { 0 } else { NEVER };
        }
    }

    /// Decides what begins at leg `first` in this layer.
    fn choose(&mut self, first: usize, layer: usize, fresh: i64, may_skip: bool) {
        let width = self.legs_count + 1;
        let (upper, lower) = self.best.split_at_mut((layer + 1) * width);
        let stage = self.layers[layer];
        let mut value = if may_skip { lower[first] } else { NEVER };
        let mut length = 0;
        let rest = lower[first + 1..width].iter().zip(&self.gains).zip(&self.holders);
        // Behind the last stage there is only the end.
        let shortest = if layer + 1 == self.layers.len() { rest.len() - 1 } else { 0 };
        for (at, ((rest, gain), holders)) in rest.enumerate().skip(shortest).rev() {
            let cost = if holders.contains(stage) { 0 } else { fresh };
            let offered = rest + gain + cost;
            if offered > value {
                value = offered;
                length = at + 1;
            }
        }
        upper[layer * width + first] = value;
        let end = if length == 0 { UNUSED } else { u8::try_from(first + length).unwrap_or(UNUSED) };
        self.ends[layer * width + first] = end;
    }

    /// Follows the choices from the start to the end.
    fn read(&self, way: &Way, out: &mut Vec<Piece>) {
        let width = self.legs_count + 1;
        if self.best.first().is_none_or(|value| *value < NEVER / 2) {
            return;
        }
        let mut first = 0;
        for (layer, stage) in self.layers.iter().enumerate() {
            let end = usize::from(self.ends[layer * width + first]);
            if first < self.legs_count && end != usize::from(UNUSED) {
                let steps = way.step_before(first)..way.step_before(end);
                out.push(Piece { steps, stage: *stage });
                first = end;
            }
        }
    }
}

/// One unit of worth; below it there are the digits of fresh pieces and of pieces.
const WORTH: i64 = 1 << 24;

/// The digit above worth.
pub(super) const PRESSED: i64 = 1 << 48;

/// The higher of the two digits below worth.
pub(super) const FIRST: i64 = 1 << 12;

/// The lower of the two.
pub(super) const SECOND: i64 = 1;

/// Cannot be. A few of these add up without overflow, and no worth makes up for one.
const NEVER: i64 = i64::MIN / 8;

/// No piece begins here in this stage; no piece ends before leg 0.
const UNUSED: u8 = 0;

const _: () = assert!(crate::way::LEGS_MAX <= u8::MAX as usize, "a leg is a byte of the board");
const _: () = assert!((super::contract::STAGES_MAX as i64) < FIRST, "digits do not run over");
