//! The dynamic program that finds the best partition of a traversal and its stages.
//!
//! # The program
//!
//! Let `n` be the number of segments and `K` the number of stages. `best[g][i]` is the best value
//! of the traversal from segment `i` on, in the stages from number `g` on:
//!
//! ```text
//! best[g][n] = 0                                        nothing is left to place
//! best[K][i] = never                                    no stage is left, i < n
//! best[g][i] = max( best[g+1][i],                       stage g is skipped
//!                   gain(i, j) - cost(i, j, g) + best[g+1][j]   for i < j <= n )
//! ```
//!
//! `gain(i, j)` is the gain of the sub-traversal of the segments `i..j`. `cost(i, j, g)` is the
//! cost of its entry, which is 0 if stage `g` holds the entry already. A partition may skip stages,
//! since a packet that misses in one stage goes on to the next stage. So the program finds the
//! partition and the stages together, in `O(n² K)` operations. The program asks the stages once for
//! each of the `n (n + 1) / 2` candidate sub-traversals.
//!
//! With [`SkippedStages::Front`] a partition skips no stage after its first sub-traversal. So the
//! last sub-traversal goes to the last stage and the sub-traversal before it to the stage before,
//! as in the paper.
//!
//! # Ties
//!
//! The program compares partitions by score, then by the cost of new entries and by the number of
//! sub-traversals, as [`Preference`] defines. Score and costs are digits of one number. Among equal
//! values the program prefers to skip a stage. After that, it prefers the longest first
//! sub-traversal, then the longest second one, and so on.
//!
//! So the choice does not depend on the order in which entries were installed, which has a useful
//! consequence. *Take two traversals with a common prefix, and let both have a partition point at
//! the end of the prefix, after the same number of sub-traversals. Then both partition the prefix
//! in the same way*, if the stages treat their sub-traversals alike. Proof: each partition of the
//! prefix is the best one with its number of sub-traversals, since a better one would improve the
//! whole partition. Among equally good partitions both traversals get the same one.

use super::{
    contract::{Placement, StageId, StageSet, StageView},
    score::Score,
    shape_cache::{self, HeldCandidate, ShapeCache},
};
use crate::outline::{SubTraversalOutline, TraversalOutline};

/// The memory of the dynamic program, reused from traversal to traversal.
#[derive(Clone, Debug, Default)]
pub(in crate::partition) struct DpTable {
    values: DpValues,
    /// The gain of each candidate that begins with the current segment.
    gains: Vec<i64>,
    /// The stages that hold each candidate of the current segment.
    holders: Vec<StageSet>,
    shapes: ShapeCache,
    /// The candidates that some stage holds.
    held: Vec<HeldCandidate>,
}

/// The best values and choices for the part of a traversal from each segment on.
#[derive(Clone, Debug, Default)]
struct DpValues {
    /// The best values: one layer per usable stage, and one layer after the last stage.
    ///
    /// Each layer has one value per segment and one for the end of the traversal.
    best: Vec<i64>,
    /// The ends of the chosen sub-traversals, or [`UNUSED`], in the layout of `best`.
    ends: Vec<u8>,
    /// The usable stages, one for each layer.
    layers: Vec<StageId>,
    /// The value that a new entry adds in each layer; it is negative.
    costs: Vec<i64>,
    /// Number of segments of the traversal.
    segments_count: usize,
    skipped: SkippedStages,
}

/// The candidate sub-traversals that begin with one segment, shortest first.
#[derive(Clone, Copy)]
pub(in crate::partition) struct CandidateRow<'a> {
    /// The segment with which the candidates begin.
    pub(in crate::partition) first: usize,
    /// The gain of each candidate.
    pub(in crate::partition) gains: &'a [i64],
    /// The holders of each candidate; empty if no stage holds any candidate of the row.
    pub(in crate::partition) holders: &'a [StageSet],
}

/// The input of the dynamic program: a traversal, and the stages for its entries.
pub(in crate::partition) struct Problem<'a, S> {
    pub(in crate::partition) outline: &'a TraversalOutline,
    pub(in crate::partition) stages: &'a S,
    /// The stages that new entries of the partition may use.
    pub(in crate::partition) usable: StageSet,
    pub(in crate::partition) preference: Preference,
}

/// The costs by which partitions with the same score compare.
#[derive(Clone, Copy, Debug)]
pub(in crate::partition) struct Preference {
    /// The cost of a new entry.
    pub(in crate::partition) new_entry: i64,
    /// The additional cost of a new entry in a [contended](StageView::contended) stage.
    pub(in crate::partition) contended: i64,
    /// The cost of every sub-traversal.
    pub(in crate::partition) sub_traversal: i64,
    /// The stages that the partition may skip.
    pub(in crate::partition) skipped: SkippedStages,
}

/// The stages that a partition may skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::partition) enum SkippedStages {
    /// A partition may skip any stage.
    #[default]
    Anywhere,
    /// A partition may skip only stages before its first sub-traversal.
    Front,
}

impl DpTable {
    /// Writes the best partition to `out`, or nothing if none fits into the stages.
    ///
    /// `gain(j, candidate)` is the score of a candidate sub-traversal that ends before segment `j`.
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

    /// Writes the best partition by a [`Score`] to `out`, or nothing if none fits.
    ///
    /// Every call on one table must have the same score and preference.
    ///
    /// For traversals of one [shape](shape_cache) the result depends only on the sets of usable,
    /// free and contended stages, and on the sub-traversals that the stages hold. If all these sets
    /// are equal, the cached result is reused.
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
    /// Returns the gain of a sub-traversal with this score, without entry costs.
    const fn gain(&self, worth: i64) -> i64 {
        worth * WORTH - self.sub_traversal
    }
}

impl DpValues {
    /// Prepares the table for a traversal: the usable stages and their costs.
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

    /// Clears all values and choices.
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

    /// Chooses one candidate of a row, or none, in every layer.
    ///
    /// In the first layer only a candidate that begins the traversal is chosen.
    fn choose(&mut self, row: &CandidateRow<'_>) {
        for layer in (usize::from(row.first > 0)..self.layers.len()).rev() {
            self.choose_in(layer, row);
        }
    }

    /// Finds the best sub-traversal of a row for one stage.
    fn choose_in(&mut self, layer: usize, row: &CandidateRow<'_>) {
        let CandidateRow { first, gains, holders } = *row;
        let (width, new_entry) = (self.segments_count + 1, self.costs[layer]);
        let (upper, lower) = self.best.split_at_mut((layer + 1) * width);
        let may_skip = self.skipped == SkippedStages::Anywhere || first == 0;
        let unused = if may_skip { lower[first] } else { NEVER };
        let rests = &lower[first + 1..width];
        // In the last stage only the candidate up to the end of the traversal is possible.
        let shortest = if layer + 1 == self.layers.len() { rests.len() - 1 } else { 0 };
        let (value, length) = if holders.is_empty() {
            // No stage holds a candidate, so all candidates have the same cost.
            let (value, length) =
                longest_best(unused - new_entry, shortest, rests, gains.iter().copied());
            (value + new_entry, length)
        } else {
            // The loop has no branch that depends on the holders of a candidate, because the
            // processor could not predict such a branch.
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

    /// Writes the chosen partition to `out`, from the first sub-traversal to the last.
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

/// Returns the highest of `unused` and the sums of rest and gain, with its length.
///
/// Sums count from the index `shortest` on. If a sum only equals `unused`, then `unused` wins, with
/// length 0. Of equal sums, the longest candidate wins.
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

/// One unit of score.
/// The two digits below the score count new entries and sub-traversals.
const WORTH: i64 = 1 << 24;

/// The unit of the digit above the score.
pub(in crate::partition) const CONTENDED: i64 = 1 << 48;

/// The unit of the higher of the two digits below the score.
pub(in crate::partition) const FIRST: i64 = 1 << 12;

/// The unit of the lower of the two digits below the score.
pub(in crate::partition) const SECOND: i64 = 1;

/// The value of an impossible partition.
///
/// A few such values add up without overflow, and no score outweighs a single one.
const NEVER: i64 = i64::MIN / 8;

/// Marks a stage in which no sub-traversal ends.
///
/// The number 0 is free for this mark, since no sub-traversal ends before segment 0.
const UNUSED: u8 = 0;

const _: () =
    assert!(crate::outline::SEGMENTS_MAX <= u8::MAX as usize, "a segment number is a byte");
const _: () = assert!(
    (super::contract::STAGES_MAX as i64) < FIRST,
    "a number of stages, the lower digit, is below the unit of the higher digit"
);
