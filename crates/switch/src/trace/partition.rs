//! Why a policy cuts a way where it does, and why not elsewhere, in words.
//!
//! Policies answer with pieces and no reasons. But each has a rule, and the rule says the reason: of two
//! neighbouring pieces what they are worth apart and together, of a boundary inside a piece what the
//! parts at its sides would be worth (see [`Score`] for what hangs together).

use std::{collections::HashMap, ops::Range};

use shunt_gigaflow::{
    outline::{FieldSet, TraversalOutline},
    partition::{Placement, PolicyName, Score},
};
use shunt_pipeline::NotedTraversal;

/// How a policy has cut a way.
pub(crate) struct Cuts<'a> {
    policy: PolicyName,
    stages: u8,
    noted: &'a NotedTraversal,
    parts: &'a [Placement],
    /// The fields that each visit looks at, as far as they couple.
    looked_at: Vec<FieldSet>,
    /// What each piece that there may be is worth, by its steps.
    worths: HashMap<Range<u16>, u16>,
}

/// No state has a name there: something is to be put back, or cannot be told.
const NAMELESS: &str = "inside a clone, bucket or peer bridge, or behind a meter";
/// It is not the policy that decides.
const ONE: &str = "the way is one entry";
/// There are more boundaries than policies look at.
const BEYOND: &str = "the way has more places to cut than are looked at";

impl<'a> Cuts<'a> {
    /// How `policy` has cut the way of a packet into `parts`, for so many stages.
    pub(crate) fn new(
        (policy, stages): (PolicyName, u8),
        noted: &'a NotedTraversal,
        (way, parts): (&'a TraversalOutline, &'a [Placement]),
    ) -> Self {
        let looked_at = noted.traversal.visits.iter().map(|own| FieldSet::consulted(&own.mask));
        let worth =
            |steps: &Range<u16>, coupled| Score::default().worth(steps.end - steps.start, coupled);
        let worths =
            way.sub_traversals().map(|own| (own.steps.clone(), worth(&own.steps, own.coupled)));
        let (looked_at, worths) = (looked_at.collect(), worths.collect());
        Self { policy, stages, noted, parts, looked_at, worths }
    }

    /// The visits in front of which it is cut.
    pub(crate) fn visits(&self) -> Vec<usize> {
        self.parts.iter().skip(1).map(|part| usize::from(part.steps.start)).collect()
    }

    /// The fields that these steps look at, as far as they couple.
    pub(crate) fn fields(&self, steps: &Range<u16>) -> FieldSet {
        let own = self.looked_at.get(usize::from(steps.start)..usize::from(steps.end));
        own.unwrap_or_default().iter().copied().fold(FieldSet::EMPTY, FieldSet::union)
    }

    /// Why it is cut behind this piece; `None`: it is the last.
    pub(crate) fn why_cut(&self, number: usize) -> Option<String> {
        let (front, behind) = (self.parts.get(number)?, self.parts.get(number + 1)?);
        Some(match self.policy {
            PolicyName::OneToOne => "every table is a piece of its own".to_owned(),
            PolicyName::Random => DRAWN.to_owned(),
            PolicyName::Megaflow => ONE.to_owned(),
            PolicyName::Disjoint
            | PolicyName::Joint
            | PolicyName::FirstFit
            | PolicyName::Profiled => {
                let fields = self.apart(&front.steps, &behind.steps);
                self.scored(&fields, (&front.steps, &behind.steps))
            }
        })
    }

    /// Why it is not cut in front of a visit that no piece begins with. `is_one`: nothing could be cut.
    pub(crate) fn why_uncut(&self, visit: usize, is_one: bool) -> String {
        if self.noted.points.binary_search_by_key(&visit, |point| point.visit).is_err() {
            return NAMELESS.to_owned();
        }
        let at = u16::try_from(visit).unwrap_or(u16::MAX);
        let inside = |part: &&Placement| part.steps.start < at && at < part.steps.end;
        let Some(part) = self.parts.iter().find(inside).filter(|_| !is_one) else {
            return ONE.to_owned();
        };
        let (front, behind) = (part.steps.start..at, at..part.steps.end);
        match self.policy {
            PolicyName::OneToOne => NO_STAGES.to_owned(),
            PolicyName::Random => DRAWN.to_owned(),
            PolicyName::Megaflow => "the policy never cuts".to_owned(),
            PolicyName::Disjoint
            | PolicyName::Joint
            | PolicyName::FirstFit
            | PolicyName::Profiled => {
                let fields = self.together(&front, &behind);
                self.scored(&fields, (&front, &behind))
            }
        }
    }

    /// What parts two pieces.
    fn apart(&self, front: &Range<u16>, behind: &Range<u16>) -> String {
        let (before, after) = (self.fields(front), self.fields(behind));
        if before.intersects(after) {
            "the fields in front and behind do not all hang together".to_owned()
        } else {
            format!("{} in front and {} behind have nothing in common", named(before), named(after))
        }
    }

    /// What keeps two parts of a piece together.
    fn together(&self, front: &Range<u16>, behind: &Range<u16>) -> String {
        let (before, after) = (self.fields(front), self.fields(behind));
        let both = before.intersection(after);
        let worth = |steps: &Range<u16>| self.worth(steps).unwrap_or_default();
        let whole = front.start..behind.end;
        if worth(front) + worth(behind) > worth(&whole)
            && self.parts.len() >= usize::from(self.stages)
        {
            NO_STAGES.to_owned()
        } else if !both.is_empty() {
            format!("both look at {both}")
        } else if before.is_empty() {
            "what is in front looks at no field that couples, and goes with any".to_owned()
        } else if after.is_empty() {
            "what is behind looks at no field that couples, and goes with any".to_owned()
        } else {
            "nothing is won by it".to_owned()
        }
    }

    /// A reason by fields, with the scores that decided.
    fn scored(&self, fields: &str, (front, behind): (&Range<u16>, &Range<u16>)) -> String {
        let whole = front.start..behind.end;
        let worths = [front, behind, &whole].map(|steps| self.worth(steps));
        let [Some(first), Some(second), Some(together)] = worths else {
            return BEYOND.to_owned();
        };
        // A policy that is asked by a trace has seen no traffic.
        let unmeasured = match self.policy {
            PolicyName::Profiled => "; by score, as until sharing is measured",
            _ => "",
        };
        format!("{fields} (worth {first} + {second} apart, {together} together{unmeasured})")
    }

    /// What a piece of these steps is worth; `None`: it is none.
    fn worth(&self, steps: &Range<u16>) -> Option<u16> {
        self.worths.get(steps).copied()
    }
}

const DRAWN: &str = "drawn at random";
const NO_STAGES: &str = "there are no more stages";

/// A set of fields in a sentence.
fn named(fields: FieldSet) -> String {
    if fields.is_empty() { "no coupling field".to_owned() } else { fields.to_string() }
}
