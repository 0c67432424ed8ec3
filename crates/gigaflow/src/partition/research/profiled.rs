//! Profiled partition: measures in the traffic which sub-traversals flows share.
//!
//! A packet hits if every sub-traversal of its partition is cached. Let `p` be the probability that
//! a sub-traversal between two states is new to the cache. The probability of a hit is then the
//! product of `1 - p` over all sub-traversals. So a sub-traversal has the cost `-ln(1 - p)`, and
//! the partition with the least cost hits most. The whole traversal is also a candidate, so traffic
//! without sharing is not partitioned.
//!
//! # Measurement
//!
//! Each pair of states has a [`Sketch`] of the sub-traversals between them. First [`LEARNED`]
//! traversals with this pair are added to the sketch. The growth of the sketch over the next
//! [`MEASURED`] traversals is the rate `p`. A count of distinct sub-traversals is not enough: it
//! includes the past, in which every common sub-traversal was new once. After the measurement the
//! sketch is reset, so that it stays accurate and forgets old traffic. The policy measures only the
//! traversals that it partitions: the traversals of missed packets.
//!
//! # Before and after the first measurement
//!
//! While a pair of states of a traversal has no rate, the traversal is partitioned by score, as
//! [`JointPolicy`] does. The consulted fields predict sharing better than a rate that was measured
//! while every sub-traversal was new. Each pair counts its own traversals, so the first packets of
//! a rare traversal do not decide its rate.
//!
//! A new rate replaces the old rate only if the two differ by more than [`MARGIN`]. Small changes
//! would move partition points, and existing entries are useless after each move.
//!
//! # Limits
//!
//! The policy does not consider the room of stages. If two sub-traversals are each new as often as
//! the whole traversal, they need twice as many entries. [`Adaptive`](crate::adaptive::Adaptive)
//! then falls back to megaflows.

use hashbrown::HashTable;

use super::sketch::Sketch;
use crate::{
    outline::{StateId, SubTraversalOutline, TraversalOutline, fold},
    partition::{
        contract::{PartitionPolicy, Placement, StageView},
        joint::JointPolicy,
        score::Score,
    },
};

/// Partitions by the measured sharing of sub-traversals.
///
/// Before the first measurement the policy partitions like [`JointPolicy`].
#[derive(Clone, Debug)]
pub struct ProfiledPolicy {
    joint: JointPolicy,
    score: Score,
    /// The measurements of each pair of states.
    pairs: HashTable<StatePair>,
    /// The costs of all candidates, in the order in which [`JointPolicy::weigh`] asks.
    costs: Vec<i64>,
}

/// The sub-traversals seen between two states: their sketch, and their cost.
#[derive(Clone, Debug)]
struct StatePair {
    /// The states at the start and at the end of the sub-traversals.
    states: (StateId, StateId),
    /// The sketch of the distinct sub-traversals.
    sketch: Sketch,
    /// Number of traversals in the sketch.
    seen: u16,
    /// The growth of the sketch since the measurement began.
    grown: f64,
    /// The growth of the sketch per traversal; `None` before it is measured.
    rate: Option<f64>,
    /// The cost by `rate`; `None` before it is measured.
    cost: Option<i64>,
}

impl ProfiledPolicy {
    /// Creates the policy, with this score for traversals that are not measured yet.
    #[must_use]
    pub fn new(score: Score) -> Self {
        let (joint, pairs) = (JointPolicy::new(score), HashTable::new());
        Self { joint, score, pairs, costs: Vec::new() }
    }

    /// Measures a traversal, and writes the costs of its candidates to `costs`.
    ///
    /// Returns whether the costs of all candidates are known.
    fn observe(&mut self, outline: &TraversalOutline) -> bool {
        self.costs.clear();
        let mut settled = true;
        for first in (0..outline.segments_count()).rev() {
            for (at, sub_traversal) in outline.candidates(first).enumerate() {
                let states = (outline.state_before(first), outline.state_before(first + at + 1));
                let cost = self.pair(states).and_then(|pair| pair.add(&sub_traversal));
                settled &= cost.is_some();
                self.costs.push(cost.unwrap_or_default());
            }
        }
        settled
    }

    /// Returns the counts of a pair of states.
    fn pair(&mut self, states: (StateId, StateId)) -> Option<&mut StatePair> {
        let hash = |states: (StateId, StateId)| {
            fold(fold(0, states.0.number().into()), states.1.number().into())
        };
        let full = self.pairs.len() >= PAIRS_MAX;
        match self.pairs.entry(hash(states), |pair| pair.states == states, |pair| hash(pair.states))
        {
            hashbrown::hash_table::Entry::Occupied(pair) => Some(pair.into_mut()),
            hashbrown::hash_table::Entry::Vacant(_) if full => None,
            hashbrown::hash_table::Entry::Vacant(place) => {
                Some(place.insert(StatePair::new(states)).into_mut())
            }
        }
    }
}

impl Default for ProfiledPolicy {
    fn default() -> Self {
        Self::new(Score::default())
    }
}

impl PartitionPolicy for ProfiledPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        if self.observe(outline) {
            let mut costs = self.costs.iter();
            self.joint.weigh(outline, stages, |_, _| -costs.next().copied().unwrap_or_default())
        } else {
            let score = self.score;
            self.joint.weigh(outline, stages, |_, sub_traversal| score.of(sub_traversal))
        }
    }
}

impl StatePair {
    /// Returns a pair of states without measurements.
    const fn new(states: (StateId, StateId)) -> Self {
        Self { states, sketch: Sketch::new(), seen: 0, grown: 0.0, rate: None, cost: None }
    }

    /// Adds a sub-traversal between the two states; returns its cost, if known.
    fn add(&mut self, sub_traversal: &SubTraversalOutline) -> Option<i64> {
        let growth = self.sketch.add(sub_traversal.identity);
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

/// Returns `-ln(1 - rate)` in units of `1 / UNIT`.
fn cost(rate: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the result is at most 4 units")]
    {
        (-(1.0 - rate).max(RATE_LEFT_MIN).ln() * UNIT).round() as i64
    }
}

/// Number of traversals that a sketch takes in before its growth is measured.
const LEARNED: u16 = 4096;

/// Number of traversals over which the growth is measured.
const MEASURED: u16 = 2048;

/// A new rate replaces the old rate if they differ by more than this.
const MARGIN: f64 = 0.2;

/// Number of integer steps per unit of cost, finer than the accuracy of any rate.
const UNIT: f64 = 64.0;

/// The least value of `1 - p` that a sketch can distinguish from zero.
const RATE_LEFT_MIN: f64 = 0.02;

/// Maximum number of measured pairs of states.
/// Traversals with other pairs are partitioned by score.
const PAIRS_MAX: usize = 4096;
