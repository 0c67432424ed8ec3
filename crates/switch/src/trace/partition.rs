//! The reasons why a policy partitions a traversal at some partition points and not at others.
//!
//! Policies return partitions without reasons, but each policy follows a rule. Between two
//! sub-traversals, the reason compares the scores with and without the partition. For a point
//! inside a sub-traversal, the reason compares the scores of both parts (see [`Score`]).

use std::{collections::HashMap, ops::Range};

use shunt_gigaflow::{
    outline::{FieldSet, TraversalOutline},
    partition::{Placement, PolicyName, Score},
};
use shunt_pipeline::NotedTraversal;

/// The partition of a traversal by a policy.
pub(crate) struct PartitionReasons<'a> {
    /// The policy that made the partition.
    policy: PolicyName,
    /// Number of Gigaflow stages.
    stages: u8,
    /// The traversal with its partition points.
    noted: &'a NotedTraversal,
    /// The sub-traversals, each with its stage.
    parts: &'a [Placement],
    /// Coupling fields that each lookup consults; these fields decide the scores.
    looked_at: Vec<FieldSet>,
    /// Score of each possible sub-traversal, by its range of lookups.
    scores: HashMap<Range<u16>, u16>,
}

/// The reason for a lookup before which the packet's state has no tag.
///
/// Such a state is inside of an incomplete action, or cannot be restored.
const NOT_A_PARTITION_POINT: &str =
    "no partition point inside a clone, bucket or peer bridge, or after a meter";
/// The reason if the policy does not decide: the traversal is one megaflow.
const MEGAFLOW: &str = "the traversal is one megaflow";
/// The reason if the number of partition points exceeds the limit of the policy.
const TOO_MANY_POINTS: &str = "the traversal has more partition points than the policy examines";

impl<'a> PartitionReasons<'a> {
    /// Returns the reasons for the partition of `outline` into `parts` by `policy`.
    pub(crate) fn new(
        policy: PolicyName,
        stages: u8,
        noted: &'a NotedTraversal,
        outline: &'a TraversalOutline,
        parts: &'a [Placement],
    ) -> Self {
        let looked_at = noted.traversal.visits.iter().map(|own| FieldSet::consulted(&own.mask));
        let score =
            |steps: &Range<u16>, coupled| Score::default().worth(steps.end - steps.start, coupled);
        let scores =
            outline.sub_traversals().map(|own| (own.steps.clone(), score(&own.steps, own.coupled)));
        let (looked_at, scores) = (looked_at.collect(), scores.collect());
        Self { policy, stages, noted, parts, looked_at, scores }
    }

    /// Returns the indices of the lookups with which sub-traversals begin.
    pub(crate) fn visits(&self) -> Vec<usize> {
        self.parts.iter().skip(1).map(|part| usize::from(part.steps.start)).collect()
    }

    /// Returns the coupling fields that a range of lookups consults.
    pub(crate) fn fields(&self, steps: &Range<u16>) -> FieldSet {
        let own = self.looked_at.get(usize::from(steps.start)..usize::from(steps.end));
        own.unwrap_or_default().iter().copied().fold(FieldSet::EMPTY, FieldSet::union)
    }

    /// Returns the reason for the partition after a sub-traversal.
    ///
    /// `None` for the last sub-traversal.
    pub(crate) fn reason_to_partition(&self, number: usize) -> Option<String> {
        let (front, behind) = (self.parts.get(number)?, self.parts.get(number + 1)?);
        Some(match self.policy {
            PolicyName::OneToOne => {
                "the policy puts each table in its own sub-traversal".to_owned()
            }
            PolicyName::Random => RANDOM.to_owned(),
            PolicyName::Megaflow => MEGAFLOW.to_owned(),
            PolicyName::Disjoint
            | PolicyName::Joint
            | PolicyName::FirstFit
            | PolicyName::Profiled => {
                let fields = self.difference(&front.steps, &behind.steps);
                self.with_scores(&fields, &front.steps, &behind.steps)
            }
        })
    }

    /// Returns the reason why no sub-traversal begins with a lookup.
    ///
    /// `is_megaflow` is true if the traversal was not partitioned at all.
    pub(crate) fn reason_to_join(&self, visit: usize, is_megaflow: bool) -> String {
        if self.noted.points.binary_search_by_key(&visit, |point| point.visit).is_err() {
            return NOT_A_PARTITION_POINT.to_owned();
        }
        // A traversal has at most a few thousand lookups.
        let at = u16::try_from(visit).unwrap_or(u16::MAX);
        let inside = |part: &&Placement| part.steps.start < at && at < part.steps.end;
        let Some(part) = self.parts.iter().find(inside).filter(|_| !is_megaflow) else {
            return MEGAFLOW.to_owned();
        };
        let (front, behind) = (part.steps.start..at, at..part.steps.end);
        match self.policy {
            PolicyName::OneToOne => NO_STAGES.to_owned(),
            PolicyName::Random => RANDOM.to_owned(),
            PolicyName::Megaflow => "the policy never partitions".to_owned(),
            PolicyName::Disjoint
            | PolicyName::Joint
            | PolicyName::FirstFit
            | PolicyName::Profiled => {
                let fields = self.reason_by_fields(&front, &behind);
                self.with_scores(&fields, &front, &behind)
            }
        }
    }

    /// Describes how the fields of two sub-traversals differ.
    fn difference(&self, front: &Range<u16>, behind: &Range<u16>) -> String {
        let (before, after) = (self.fields(front), self.fields(behind));
        if before.intersects(after) {
            "some fields matched before are unrelated to the fields matched after".to_owned()
        } else {
            format!("{} before and {} after are unrelated", words_of(before), words_of(after))
        }
    }

    /// Describes why two parts are not partitioned: their fields, or a lack of stages.
    fn reason_by_fields(&self, front: &Range<u16>, behind: &Range<u16>) -> String {
        let (before, after) = (self.fields(front), self.fields(behind));
        let both = before.intersection(after);
        let score = |steps: &Range<u16>| self.score(steps).unwrap_or_default();
        let whole = front.start..behind.end;
        if score(front) + score(behind) > score(&whole)
            && self.parts.len() >= usize::from(self.stages)
        {
            NO_STAGES.to_owned()
        } else if !both.is_empty() {
            format!("both sides match {both}")
        } else if before.is_empty() {
            format!("the tables before match {NO_COUPLING_FIELD}")
        } else if after.is_empty() {
            format!("the tables after match {NO_COUPLING_FIELD}")
        } else {
            "a partition would not raise the score".to_owned()
        }
    }

    /// Returns a reason, with the scores that decided.
    fn with_scores(&self, fields: &str, front: &Range<u16>, behind: &Range<u16>) -> String {
        let whole = front.start..behind.end;
        let scores = [front, behind, &whole].map(|steps| self.score(steps));
        let [Some(first), Some(second), Some(together)] = scores else {
            return TOO_MANY_POINTS.to_owned();
        };
        // The policy instance of a trace has seen no traffic, so it has no measured sharing.
        let unmeasured = match self.policy {
            PolicyName::Profiled => "; the policy uses scores until it has measured sharing",
            _ => "",
        };
        format!("{fields} (score {first} + {second} if partitioned, {together} if not{unmeasured})")
    }

    /// Returns the score of a range of lookups as one sub-traversal.
    ///
    /// `None` if the lookups cannot be one sub-traversal.
    fn score(&self, steps: &Range<u16>) -> Option<u16> {
        self.scores.get(steps).copied()
    }
}

/// The reason of a partition point that a random number chose.
const RANDOM: &str = "random choice";
/// The reason of a missing partition point when all stages are used.
const NO_STAGES: &str = "no stage is left";
/// The end of a reason if tables match no coupling field.
const NO_COUPLING_FIELD: &str = "no address, IP protocol, transport port, VLAN or MPLS label";

/// Returns a set of fields as words of a sentence.
fn words_of(fields: FieldSet) -> String {
    if fields.is_empty() { "no field".to_owned() } else { fields.to_string() }
}
