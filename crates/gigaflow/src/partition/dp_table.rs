//! The dynamic program that finds the best partition and its stages.
//!
//! # The program
//!
//! `best[g][i]` is the best value of the rest of the traversal from segment `i` on, in the stages from
//! the `g`-th on:
//!
//! ```text
//! best[g][n] = 0                                        nothing is left to place
//! best[K][i] = never                                    no stage is left, i < n
//! best[g][i] = max( best[g+1][i],                       stage g is skipped
//!                   gain(i, j) - cost(i, j, g) + best[g+1][j]   for i < j <= n )
//! ```
//!
//! `gain(i, j)` is the gain of the sub-traversal of the segments `i..j`, and `cost(i, j, g)` is the cost
//! of its entry, which is 0 if stage `g` holds it. A sub-traversal may skip stages, since a packet that
//! misses in a stage only passes to the next one. So the program finds the partition and the stages
//! together, in `O(N² K)` steps for `N` segments and `K` stages. It asks the stages once for each of the
//! `N (N + 1) / 2` candidate sub-traversals.
//!
//! With [`SkippedStages::Front`] no stage after the first sub-traversal is skipped. So the last
//! sub-traversal is in the last stage and the one before it in the stage before, as in the paper.
//!
//! # Ties
//!
//! Partitions compare by their score, then by the cost of new entries and by the number of
//! sub-traversals, as [`Preference`] defines. All of these are digits of one number. Among equal values
//! the program rather skips a stage. Then the longest first sub-traversal wins, then the longest second
//! one, and so on.
//!
//! So the choice does not depend on an order of insertion, which has a useful consequence. *Take two
//! traversals with a common prefix. If both have a partition point at its end after equally many
//! sub-traversals, they partition the prefix alike*, provided that the stages treat their
//! sub-traversals alike. Proof: both partition the prefix in the best form for that number of
//! sub-traversals, since otherwise the whole partition could be improved. Among the equally good forms
//! both take the same first one.

use super::{
    contract::{Placement, StageId, StageSet, StageView},
    score::Score,
    shape_cache::{self, Holding, ShapeCache},
};
use crate::outline::{SubTraversalOutline, TraversalOutline};

/// The memory of the dynamic program, reused from traversal to traversal.
#[derive(Clone, Debug, Default)]
pub(in crate::partition) struct DpTable {
    values: DpValues,
    gains: Vec<i64>,
    holders: Vec<StageSet>,
    shapes: ShapeCache,
    held: Vec<Holding>,
}

/// The best values and choices for the rest of a traversal from each segment on.
#[derive(Clone, Debug, Default)]
struct DpValues {
    /// One layer per usable stage and one after the last.
    ///
    /// Each has a value per segment and one for the end.
    best: Vec<i64>,
    /// Like `best`: the end of the sub-traversal that begins here, or [`UNUSED`].
    ends: Vec<u8>,
    layers: Vec<StageId>,
    /// The value that a new entry adds in each layer; it is negative.
    costs: Vec<i64>,
    segments_count: usize,
    skipped: SkippedStages,
}

/// The candidate sub-traversals that begin with one segment, shortest first.
#[derive(Clone, Copy)]
pub(in crate::partition) struct CandidateRow<'a> {
    pub(in crate::partition) first: usize,
    pub(in crate::partition) gains: &'a [i64],
    /// One set per gain, or empty if no stage holds any of them.
    pub(in crate::partition) holders: &'a [StageSet],
}

/// A partition problem.
pub(in crate::partition) struct Problem<'a, S> {
    pub(in crate::partition) outline: &'a TraversalOutline,
    pub(in crate::partition) stages: &'a S,
    /// The stages that may be used.
    pub(in crate::partition) usable: StageSet,
    pub(in crate::partition) preference: Preference,
}

/// How partitions of equal worth compare.
#[derive(Clone, Copy, Debug)]
pub(in crate::partition) struct Preference {
    /// The cost of a new entry.
    pub(in crate::partition) new_entry: i64,
    /// The additional cost of a new entry in a [contended](StageView::contended) stage.
    pub(in crate::partition) contended: i64,
    /// The cost of every sub-traversal.
    pub(in crate::partition) sub_traversal: i64,
    pub(in crate::partition) skipped: SkippedStages,
}

/// The stages that a partition may skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::partition) enum SkippedStages {
    /// Any stages.
    #[default]
    Anywhere,
    /// Only stages before the first sub-traversal.
    Front,
}

impl DpTable {
    /// Writes the best partition to `out`, or nothing if the traversal does not fit.
    ///
    /// A sub-traversal that ends before segment `j` has the score `gain(j, candidate)`.
    pub(in crate::partition) fn solve<S: StageView>(
        &mut self,
        problem: &Problem<'_, S>,
        mut gain: impl FnMut(usize, &SubTraversalOutline) -> i64,
        out: &mut Vec<Placement>,
    ) {
        self.values.begin(problem);
        self.values.clear();
        for first in (0..self.values.segments_count).rev() {
            self.gains.clear();
            self.holders.clear();
            for (at, candidate) in problem.outline.candidates(first).enumerate() {
                let worth = gain(first + at + 1, &candidate);
                self.gains.push(problem.preference.gain(worth));
                self.holders.push(problem.stages.holders(&candidate));
            }
            let Self { values, gains, holders, .. } = self;
            values.choose(&CandidateRow { first, gains, holders });
        }
        self.values.read(problem.outline, out);
    }

    /// Does [`Self::solve`] with a [`Score`].
    ///
    /// Every call on a table has the same score and preference.
    ///
    /// For traversals of one [shape](shape_cache) the result depends only on the state of the stages and
    /// on the sub-traversals that they hold. So a result is reused if these are equal.
    pub(in crate::partition) fn solve_scored<S: StageView>(
        &mut self,
        problem: &Problem<'_, S>,
        score: Score,
        out: &mut Vec<Placement>,
    ) {
        let (outline, stages) = (problem.outline, problem.stages);
        if !shape_cache::is_kept(outline, usize::from(problem.usable.count())) {
            return self.solve(problem, |_, sub_traversal| score.of(sub_traversal), out);
        }
        let Self { values, holders, shapes, held, .. } = self;
        let shape =
            shapes.of(outline, |sub_traversal| problem.preference.gain(score.of(sub_traversal)));
        let conditions = [problem.usable, stages.room(), stages.contended()];
        shape.gains().held_by(outline, stages, held);
        if let Some(known) = shape.find(&conditions, held) {
            out.clear();
            out.extend_from_slice(known);
            return;
        }
        values.begin(problem);
        values.clear();
        let mut rest = &held[..];
        for first in (0..values.segments_count).rev() {
            let own = rest.iter().take_while(|own| usize::from(own.first) == first).count();
            let (own, others) = rest.split_at(own);
            rest = others;
            holders.clear();
            if !own.is_empty() {
                holders.resize(values.segments_count - first, StageSet::EMPTY);
                own.iter().for_each(|own| holders[usize::from(own.at)] = own.stages);
            }
            values.choose(&shape.gains().row(first, holders));
        }
        values.read(outline, out);
        shape.insert(conditions, held, out);
    }
}

impl Preference {
    /// Returns the gain of a sub-traversal with this score in any stage.
    const fn gain(&self, worth: i64) -> i64 {
        worth * WORTH - self.sub_traversal
    }
}

impl DpValues {
    fn begin<S: StageView>(&mut self, problem: &Problem<'_, S>) {
        let (room, contended) = (problem.stages.room(), problem.stages.contended());
        let Preference { new_entry, contended: more, skipped, .. } = problem.preference;
        (self.segments_count, self.skipped) = (problem.outline.segments_count(), skipped);
        self.layers.clear();
        self.layers.extend(problem.usable.iter());
        self.costs.clear();
        let cost = |stage: &StageId| match (room.contains(*stage), contended.contains(*stage)) {
            (false, _) => NEVER,
            (true, false) => -new_entry,
            (true, true) => -new_entry - more,
        };
        self.costs.extend(self.layers.iter().map(cost));
    }

    /// Clears all choices.
    fn clear(&mut self) {
        let (width, layers) = (self.segments_count + 1, self.layers.len());
        self.best.clear();
        self.best.resize(width * (layers + 1), NEVER);
        self.ends.clear();
        self.ends.resize(width * (layers + 1), UNUSED);
        for layer in 0..=layers {
            let ended = self.skipped == SkippedStages::Anywhere || layer == layers;
            self.best[layer * width + self.segments_count] = if ended { 0 } else { NEVER };
        }
    }

    /// Chooses the sub-traversal of a row in every layer.
    ///
    /// In the first layer only the first sub-traversal begins.
    fn choose(&mut self, row: &CandidateRow<'_>) {
        for layer in (usize::from(row.first > 0)..self.layers.len()).rev() {
            self.choose_in(layer, row);
        }
    }

    fn choose_in(&mut self, layer: usize, row: &CandidateRow<'_>) {
        let CandidateRow { first, gains, holders } = *row;
        let (width, new_entry) = (self.segments_count + 1, self.costs[layer]);
        let (upper, lower) = self.best.split_at_mut((layer + 1) * width);
        let may_skip = self.skipped == SkippedStages::Anywhere || first == 0;
        let unused = if may_skip { lower[first] } else { NEVER };
        let rests = &lower[first + 1..width];
        // After the last stage only the end is possible.
        let shortest = if layer + 1 == self.layers.len() { rests.len() - 1 } else { 0 };
        let (value, length) = if holders.is_empty() {
            // All cost the same.
            let (value, length) =
                longest_best(unused - new_entry, shortest, rests, gains.iter().copied());
            (value + new_entry, length)
        } else {
            // No branch depends on the stages that hold a candidate: the processor could not
            // predict it.
            let stage = self.layers[layer];
            let costs =
                holders.iter().map(|holders| new_entry * i64::from(!holders.contains(stage)));
            let worths = gains.iter().zip(costs).map(|(gain, cost)| gain + cost);
            longest_best(unused, shortest, rests, worths)
        };
        upper[layer * width + first] = value;
        let end = if length == 0 { UNUSED } else { u8::try_from(first + length).unwrap_or(UNUSED) };
        self.ends[layer * width + first] = end;
    }

    /// Follows the choices from the start to the end.
    fn read(&self, outline: &TraversalOutline, out: &mut Vec<Placement>) {
        out.clear();
        let width = self.segments_count + 1;
        if self.best.first().is_none_or(|value| *value < NEVER / 2) {
            return;
        }
        let mut first = 0;
        for (layer, stage) in self.layers.iter().enumerate() {
            let end = usize::from(self.ends[layer * width + first]);
            if first < self.segments_count && end != usize::from(UNUSED) {
                let steps = outline.step_before(first)..outline.step_before(end);
                out.push(Placement { steps, stage: *stage });
                first = end;
            }
        }
    }
}

/// Returns the highest of `unused` and the sums from `shortest` on, and its length.
///
/// Among equal values `unused`, with length 0, wins, then the longest.
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

/// One unit of score. The two digits below it count new entries and sub-traversals.
const WORTH: i64 = 1 << 24;

/// The digit above the score.
pub(in crate::partition) const CONTENDED: i64 = 1 << 48;

/// The higher of the two digits below the score.
pub(in crate::partition) const FIRST: i64 = 1 << 12;

/// The lower of the two digits below the score.
pub(in crate::partition) const SECOND: i64 = 1;

/// The value of the impossible.
///
/// A few of them add up without overflow, and no score outweighs one.
const NEVER: i64 = i64::MIN / 8;

/// Marks a skipped stage.
///
/// It is not a valid end, since no sub-traversal ends before segment 0.
const UNUSED: u8 = 0;

const _: () =
    assert!(crate::outline::SEGMENTS_MAX <= u8::MAX as usize, "a segment number is a byte");
const _: () = assert!((super::contract::STAGES_MAX as i64) < FIRST, "digits do not run over");
