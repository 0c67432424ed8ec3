//! Pieces by what traffic has shared, with no knowledge of fields.
//!
//! Behind a stage, a packet goes on hitting if the piece that it needs next is there. If pieces from
//! one cut to another are new to the cache with probability `p`, a partition hits with the product of
//! all `1 - p`. So a piece costs `-ln(1 - p)`, and the cheapest partition is the one that hits most.
//! The whole way is one of the candidates, so that traffic that shares nothing is not cut.
//!
//! # What is measured
//!
//! For each pair of cuts there is a [`Sketch`] of the pieces between them. It takes in [`LEARNED`]
//! ways that have this pair, and then by how much it grows over [`MEASURED`] more is the rate of
//! growth, `p`. Counts of distinct pieces would not do, as they tell of the past: whatever is common
//! was new once. Then the sketch begins anew, so that it stays as sharp as it was and forgets the
//! traffic of yesterday. Ways are those that are asked for, hence missed.
//!
//! # Until it is known, and afterwards
//!
//! As long as a pair of a way has no rate, the way is cut as [`Joint`] does: a rule that knows the
//! fields is a better guess than a rate that was taken while everything was new, and every pair has a
//! clock of its own, so that a rare way is not judged by its first packets.
//! A rate that is there gives way only to one that is [`MARGIN`] away from it. Rates that wander would
//! move the cuts, and each time the pieces of before are worth nothing.
//!
//! # What it does not weigh
//!
//! Room: where stages are full, two pieces that are each new as often as the whole way take twice its
//! place. [`Adaptive`](crate::adaptive::Adaptive) is the guard against that.

use hashbrown::HashTable;

use super::{
    contract::{Piece, Policy, Stages},
    joint::Joint,
    score::Score,
};
use crate::{
    outline::{Candidate, StateId, TraversalOutline, fold},
    sketch::Sketch,
};

/// Cuts where traffic has shown that pieces are shared; until then as [`Joint`].
#[derive(Clone, Debug)]
pub struct Profiled {
    joint: Joint,
    score: Score,
    pairs: HashTable<Pair>,
    /// What the pieces of this way cost, in the order in which [`Joint::weigh`] asks.
    costs: Vec<i64>,
}

/// What lies between two cuts.
#[derive(Clone, Debug)]
struct Pair {
    cuts: (StateId, StateId),
    sketch: Sketch,
    /// Ways that are in the sketch.
    seen: u16,
    /// By how much it has grown since it has learned enough.
    grown: f64,
    rate: Option<f64>,
    cost: Option<i64>,
}

impl Profiled {
    /// The policy, with this score for what is not settled yet.
    #[must_use]
    pub fn new(score: Score) -> Self {
        let (joint, pairs) = (Joint::new(score), HashTable::new());
        Self { joint, score, pairs, costs: Vec::new() }
    }

    /// Learns from a way and finds the costs of its pieces; says whether all of them are settled.
    fn observe(&mut self, way: &TraversalOutline) -> bool {
        self.costs.clear();
        let mut settled = true;
        for first in (0..way.legs_count()).rev() {
            for (at, piece) in way.candidates(first).enumerate() {
                let cuts = (way.cut_before(first), way.cut_before(first + at + 1));
                let cost = self.pair(cuts).and_then(|pair| pair.see(&piece));
                settled &= cost.is_some();
                self.costs.push(cost.unwrap_or_default());
            }
        }
        settled
    }

    fn pair(&mut self, cuts: (StateId, StateId)) -> Option<&mut Pair> {
        let hash = |cuts: (StateId, StateId)| {
            fold(fold(0, cuts.0.number().into()), cuts.1.number().into())
        };
        let full = self.pairs.len() >= PAIRS_MAX;
        match self.pairs.entry(hash(cuts), |pair| pair.cuts == cuts, |pair| hash(pair.cuts)) {
            hashbrown::hash_table::Entry::Occupied(pair) => Some(pair.into_mut()),
            hashbrown::hash_table::Entry::Vacant(_) if full => None,
            hashbrown::hash_table::Entry::Vacant(place) => {
                Some(place.insert(Pair::new(cuts)).into_mut())
            }
        }
    }
}

impl Default for Profiled {
    fn default() -> Self {
        Self::new(Score::default())
    }
}

impl Policy for Profiled {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        if self.observe(way) {
            let mut costs = self.costs.iter();
            self.joint.weigh(way, stages, |_, _| -costs.next().copied().unwrap_or_default())
        } else {
            let score = self.score;
            self.joint.weigh(way, stages, |_, piece| score.of(piece))
        }
    }
}

impl Pair {
    const fn new(cuts: (StateId, StateId)) -> Self {
        Self { cuts, sketch: Sketch::new(), seen: 0, grown: 0.0, rate: None, cost: None }
    }

    /// Takes in one more piece between these cuts, and tells what it costs, if that is known.
    fn see(&mut self, piece: &Candidate) -> Option<i64> {
        let growth = self.sketch.add(piece.identity);
        self.seen += 1;
        if self.seen > LEARNED {
            self.grown += growth;
        }
        if self.seen == LEARNED + MEASURED {
            let rate = (self.grown / f64::from(MEASURED)).min(1.0);
            if self.rate.is_none_or(|before| (rate - before).abs() > MARGIN) {
                (self.rate, self.cost) = (Some(rate), Some(cost(rate)));
            }
            (self.sketch, self.seen, self.grown) = (Sketch::new(), 0, 0.0);
        }
        self.cost
    }
}

/// `-ln(1 - rate)` in [`UNIT`]s.
fn cost(rate: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 4 units")]
    {
        (-(1.0 - rate).max(RATE_LEFT_MIN).ln() * UNIT).round() as i64
    }
}

/// Ways that a sketch takes in before its growth is measured.
const LEARNED: u16 = 4096;

/// Ways over which it is.
const MEASURED: u16 = 2048;

/// How far from a rate another one must be to replace it.
const MARGIN: f64 = 0.2;

/// Parts of the unit of cost, finer than any rate is known.
const UNIT: f64 = 64.0;

/// The least `1 - p` that a sketch can tell from nothing.
const RATE_LEFT_MIN: f64 = 0.02;

/// Pairs of cuts that are measured; ways with others are cut by score.
const PAIRS_MAX: usize = 4096;
