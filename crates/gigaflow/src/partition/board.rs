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

use super::{
    contract::{Piece, StageId, StageSet, Stages},
    score::Score,
    shapes::{self, Holding, Shapes},
};
use crate::outline::{Candidate, TraversalOutline};

/// The memory of the program, used again from way to way.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    values: Values,
    gains: Vec<i64>,
    holders: Vec<StageSet>,
    shapes: Shapes,
    held: Vec<Holding>,
}

/// What is found of a way from each leg on.
#[derive(Clone, Debug, Default)]
struct Values {
    /// A layer for each usable stage and one behind the last; in it a value for each leg and one for
    /// the end.
    best: Vec<i64>,
    /// As `best`: the leg behind the piece that begins here, or [`UNUSED`].
    ends: Vec<u8>,
    layers: Vec<StageId>,
    /// What a piece costs in each of them that is not there yet.
    costs: Vec<i64>,
    legs_count: usize,
    slack: Slack,
}

/// The pieces that begin with one leg, shortest first.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) first: usize,
    pub(super) gains: &'a [i64],
    /// As many as gains, or none where no stage holds one of them.
    pub(super) holders: &'a [StageSet],
}

/// What is to be solved.
pub(super) struct Problem<'a, S> {
    pub(super) way: &'a TraversalOutline,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Slack {
    /// Any.
    #[default]
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
        self.values.begin(problem);
        self.values.clear();
        for first in (0..self.values.legs_count).rev() {
            self.gains.clear();
            self.holders.clear();
            for (at, candidate) in problem.way.candidates(first).enumerate() {
                let worth = gain(first + at + 1, &candidate);
                self.gains.push(problem.preference.gain(worth));
                self.holders.push(problem.stages.holders(&candidate));
            }
            let Self { values, gains, holders, .. } = self;
            values.choose(&Row { first, gains, holders });
        }
        self.values.read(problem.way, out);
    }

    /// As [`Self::solve`], where pieces are worth what they score. A board is always asked with the
    /// same score and preference.
    ///
    /// Of ways of one [shape](shapes), what is found depends on nothing but the state of the stages and
    /// which pieces they hold. So where that is as it was for a way before, so is what is found.
    pub(super) fn solve_scored<S: Stages>(
        &mut self,
        problem: &Problem<'_, S>,
        score: Score,
        out: &mut Vec<Piece>,
    ) {
        let (way, stages) = (problem.way, problem.stages);
        if !shapes::is_kept(way, usize::from(problem.usable.count())) {
            return self.solve(problem, |_, piece| score.of(piece), out);
        }
        let Self { values, holders, shapes, held, .. } = self;
        let shape = shapes.of(way, |piece| problem.preference.gain(score.of(piece)));
        let conditions = [problem.usable, stages.room(), stages.pressed()];
        shape.gains().held_by(way, stages, held);
        if let Some(known) = shape.find(&conditions, held) {
            out.clear();
            out.extend_from_slice(known);
            return;
        }
        values.begin(problem);
        values.clear();
        let mut rest = &held[..];
        for first in (0..values.legs_count).rev() {
            let own = rest.iter().take_while(|own| usize::from(own.first) == first).count();
            let (own, others) = rest.split_at(own);
            rest = others;
            holders.clear();
            if !own.is_empty() {
                holders.resize(values.legs_count - first, StageSet::EMPTY);
                own.iter().for_each(|own| holders[usize::from(own.at)] = own.stages);
            }
            values.choose(&shape.gains().row(first, holders));
        }
        values.read(way, out);
        shape.keep(conditions, held, out);
    }
}

impl Preference {
    /// What a piece of this worth adds, wherever it goes.
    const fn gain(&self, worth: i64) -> i64 {
        worth * WORTH - self.piece
    }
}

impl Values {
    fn begin<S: Stages>(&mut self, problem: &Problem<'_, S>) {
        let (room, pressed) = (problem.stages.room(), problem.stages.pressed());
        let Preference { fresh, pressed: more, slack, .. } = problem.preference;
        (self.legs_count, self.slack) = (problem.way.legs_count(), slack);
        self.layers.clear();
        self.layers.extend(problem.usable.iter());
        self.costs.clear();
        let cost = |stage: &StageId| match (room.contains(*stage), pressed.contains(*stage)) {
            (false, _) => NEVER,
            (true, false) => -fresh,
            (true, true) => -fresh - more,
        };
        self.costs.extend(self.layers.iter().map(cost));
    }

    /// Nothing is decided yet.
    fn clear(&mut self) {
        let (width, layers) = (self.legs_count + 1, self.layers.len());
        self.best.clear();
        self.best.resize(width * (layers + 1), NEVER);
        self.ends.clear();
        self.ends.resize(width * (layers + 1), UNUSED);
        for layer in 0..=layers {
            let ended = self.slack == Slack::Anywhere || layer == layers;
            self.best[layer * width + self.legs_count] = if ended { 0 } else { NEVER };
        }
    }

    /// Decides what begins at the first leg of these pieces. Nothing but the first piece begins in the
    /// first layer.
    fn choose(&mut self, row: &Row<'_>) {
        for layer in (usize::from(row.first > 0)..self.layers.len()).rev() {
            self.choose_in(layer, row);
        }
    }

    fn choose_in(&mut self, layer: usize, row: &Row<'_>) {
        let Row { first, gains, holders } = *row;
        let (width, fresh) = (self.legs_count + 1, self.costs[layer]);
        let (upper, lower) = self.best.split_at_mut((layer + 1) * width);
        let may_skip = self.slack == Slack::Anywhere || first == 0;
        let unused = if may_skip { lower[first] } else { NEVER };
        let rests = &lower[first + 1..width];
        // Behind the last stage there is only the end.
        let shortest = if layer + 1 == self.layers.len() { rests.len() - 1 } else { 0 };
        let (value, length) = if holders.is_empty() {
            // All cost the same.
            let (value, length) =
                longest_best(unused - fresh, shortest, rests, gains.iter().copied());
            (value + fresh, length)
        } else {
            // What a stage does not hold is no branch: which pieces it holds cannot be foreseen.
            let stage = self.layers[layer];
            let costs = holders.iter().map(|holders| fresh * i64::from(!holders.contains(stage)));
            let worths = gains.iter().zip(costs).map(|(gain, cost)| gain + cost);
            longest_best(unused, shortest, rests, worths)
        };
        upper[layer * width + first] = value;
        let end = if length == 0 { UNUSED } else { u8::try_from(first + length).unwrap_or(UNUSED) };
        self.ends[layer * width + first] = end;
    }

    /// Follows the choices from the start to the end.
    fn read(&self, way: &TraversalOutline, out: &mut Vec<Piece>) {
        out.clear();
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

/// The highest of `unused` and of the sums from the `shortest`-th on, and the length of what has it:
/// nothing first, then the longest.
fn longest_best(
    unused: i64,
    shortest: usize,
    rests: &[i64],
    gains: impl DoubleEndedIterator<Item = i64> + ExactSizeIterator,
) -> (i64, usize) {
    let (mut value, mut length) = (unused, 0);
    for (at, (rest, gain)) in rests.iter().zip(gains).enumerate().skip(shortest).rev() {
        let offered = rest + gain;
        (value, length) = if offered > value { (offered, at + 1) } else { (value, length) };
    }
    (value, length)
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

const _: () = assert!(crate::outline::LEGS_MAX <= u8::MAX as usize, "a leg is a byte of the board");
const _: () = assert!((super::contract::STAGES_MAX as i64) < FIRST, "digits do not run over");
