//! What the deltas of a change ask, and which of what was found they end.
//!
//! A rule that comes asks in each group of its table. It looks at the visits of the lowest ranks
//! first, as they are in order: a rule that has gone and comes again outranks little else than what
//! was made while it was away. Where it outranks more than a few, it asks for its print under the best
//! mask that the group is projected under. A mask that no rule had before is projected when nobody
//! waits, unless several rules come with it.

use std::collections::BTreeSet;

use shunt_pipeline::{Delta, Rule, RuleChange, RuleDelta, RuleId, Traversal, Version, Visit};

use super::{
    questions::{Found, HIGHEST, Question, Test, Traces, answer, lowest, rank},
    relation::{Relation, Rows, ordered},
};
use crate::region::{is_decided, is_overlapped, is_taken_over};

/// Deltas of one change.
#[derive(Clone, Copy)]
pub(super) struct Asked<'d> {
    pub(super) deltas: &'d [Delta],
    pub(super) version: Version,
    /// Rules that the change removes: one that it adds as well decides nothing.
    pub(super) brief: &'d BTreeSet<RuleId>,
    /// Rows of a group that a rule looks at before it asks for its print.
    pub(super) few: usize,
}

/// Questions, by where their answers are.
#[derive(Default)]
pub(super) struct Questions {
    /// Among the visits of a group.
    by_group: Vec<(u32, Question)>,
    /// By print or name.
    by_print: Vec<(u64, Question)>,
}

/// Rules that look through a group together for want of a projection; more wait for it.
const WALKS_MAX: usize = 4;

/// What is read of so many visits side by side stays in the nearest cache.
const LOOKED_AT_TOGETHER: usize = 64;

impl Asked<'_> {
    /// The deltas, each with its place.
    fn all(&self) -> impl Iterator<Item = (u32, &Delta)> {
        (0..).zip(self.deltas)
    }

    fn at(&self, place: u32) -> Option<&Delta> {
        self.deltas.get(place as usize)
    }

    fn rule_at(&self, place: u32) -> Option<&Rule> {
        match self.at(place)? {
            Delta::Rule(RuleDelta { rule, .. }) => Some(rule),
            Delta::Changed(_) => None,
        }
    }

    /// The rule of a delta, if it decides what it matches and outranks from now on.
    fn coming<'d>(&self, delta: &'d Delta) -> Option<&'d Rule> {
        let Delta::Rule(RuleDelta { rule, change }) = delta else { return None };
        let is_gone = matches!(change, RuleChange::Removed(_)) || self.brief.contains(&rule.id);
        (!is_gone).then_some(rule)
    }

    /// Whether a delta ends an entry.
    fn ends(&self, traversal: &Traversal, delta: &Delta) -> bool {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(_) => return self.passes(Test::Read, traversal, None, delta),
            Delta::Rule(delta) => delta,
        };
        let is_coming = self.coming(delta).is_some();
        traversal.visits.iter().any(|visit| {
            let is_here = (visit.bridge, visit.table) == (rule.bridge, rule.table);
            let is_ended = || match change {
                RuleChange::Added => false,
                RuleChange::Removed(_) => is_decided(visit, rule, |_| true),
                RuleChange::Modified(_) => {
                    self.passes(Test::Decided, traversal, Some(visit), delta)
                }
            };
            let is_taken = || is_coming && is_taken_over(traversal, visit, rule);
            is_here && (is_ended() || is_taken())
        })
    }

    /// Whether what a delta has found passes what has yet to be asked of it.
    fn passes(
        &self,
        test: Test,
        traversal: &Traversal,
        visit: Option<&Visit>,
        delta: &Delta,
    ) -> bool {
        match (test, delta) {
            (Test::Known, Delta::Rule(_) | Delta::Changed(_)) => true,
            (Test::Read | Test::Decided | Test::Overlapped, Delta::Changed(object)) => {
                traversal.version < self.version && traversal.reads.contains(object)
            }
            (Test::Decided, Delta::Rule(RuleDelta { rule, .. })) => visit
                .is_some_and(|visit| is_decided(visit, rule, |own| own.revision != rule.revision)),
            // That it is outranked is known by its row.
            (Test::Read | Test::Overlapped, Delta::Rule(RuleDelta { rule, .. })) => {
                visit.is_some_and(|visit| is_overlapped(traversal, visit, &rule.matching))
            }
        }
    }
}

impl Relation {
    /// Finds those of these entries that the deltas end.
    pub(super) fn look_at(&self, slots: &[u32], asked: &Asked<'_>, found: &mut Vec<Found>) {
        let held = |slot: &u32| Some((*slot, self.entries.watched(*slot)?));
        let all: Vec<_> = slots.iter().filter_map(held).collect();
        for (place, delta) in asked.all() {
            let ended = all.iter().filter(|(_, held)| asked.ends(&held.traversal, delta));
            found.extend(ended.map(|(slot, held)| Found::known(place, *slot, held.links.birth)));
        }
    }

    /// What the deltas ask. What is found without more ado is put to `found`; a projection that has to
    /// be there first, to `rows`.
    pub(super) fn questions(
        &mut self,
        asked: &Asked<'_>,
        rows: &mut Rows,
        found: &mut Vec<Found>,
    ) -> Questions {
        let mut questions = Questions::default();
        let mut overlaps = Vec::new();
        for (place, delta) in asked.all() {
            #[cfg(any(test, feature = "testing"))]
            self.fault.come_nearer();
            if let Some((name, test)) = self.name_in(delta) {
                questions.by_print.push((name, Question { rank: HIGHEST, place, test }));
            }
            if let Some(rule) = asked.coming(delta) {
                let (rank, test) = (ordered(rule.rank()), Test::Overlapped);
                let groups = self.groups.of((rule.bridge, rule.table)).iter();
                overlaps.extend(groups.map(|group| (*group, Question { rank, place, test })));
            }
        }
        overlaps.sort_unstable();
        for of_group in overlaps.chunk_by(|(group, _), (next, _)| group == next) {
            let left = self.ask_lowest(of_group, asked.few, found);
            self.ask_group(&of_group[of_group.len() - left..], asked, &mut questions, rows);
        }
        questions.by_group.sort_unstable();
        questions.by_print.sort_unstable();
        questions
    }

    /// Answers questions by what the traces have. Answers whether that is no more than `max`, with what
    /// was found before.
    pub(super) fn answer(&self, questions: &Questions, max: usize, found: &mut Vec<Found>) -> bool {
        let Traces { visits, links } = &self.traces;
        let (visits, links) = (visits.as_ref(), links.as_ref());
        found.len() <= max
            && visits.is_none_or(|visits| answer(visits, &questions.by_group, max, found))
            && links.is_none_or(|links| answer(links, &questions.by_print, max, found))
    }

    /// The places and slots of what was found and is ended.
    pub(super) fn ended(&self, found: &[Found], asked: &Asked<'_>) -> Vec<(u32, u32)> {
        let mut ended = Vec::with_capacity(found.len());
        // What is compared lies behind four pointers, each somewhere else in memory. They are
        // followed for many visits side by side.
        for together in found.chunks(LOOKED_AT_TOGETHER) {
            let held = |own: &Found| Some((*own, &*self.watched(own.slot, own.birth)?.traversal));
            let held: Vec<_> = together.iter().filter_map(held).collect();
            let visits: Vec<_> = held
                .iter()
                .map(|(own, traversal)| {
                    let is_looked_at = own.test != Test::Known;
                    let visit = is_looked_at.then(|| traversal.visits.get(own.visit as usize));
                    (own, *traversal, visit.flatten())
                })
                .collect();
            let passing = visits.iter().filter(|(own, traversal, visit)| {
                let delta = asked.at(own.place);
                delta.is_some_and(|delta| asked.passes(own.test, traversal, *visit, delta))
            });
            ended.extend(passing.map(|(own, ..)| (own.place, own.slot)));
        }
        ended
    }

    /// What a delta asks for by name.
    fn name_in(&self, delta: &Delta) -> Option<(u64, Test)> {
        match delta {
            Delta::Changed(object) => Some((self.name_of(object), Test::Read)),
            Delta::Rule(RuleDelta { rule, change }) => match change {
                RuleChange::Added => None,
                // Another name that is hashed to the same would be found as well, and evicted in vain.
                RuleChange::Removed(_) => Some((self.name_of_rule(rule.id), Test::Known)),
                RuleChange::Modified(_) => Some((self.name_of_rule(rule.id), Test::Decided)),
            },
        }
    }

    /// Answers those questions about a group that outrank only a few visits. How many are left: the
    /// last of them, as they are in the order of their ranks.
    fn ask_lowest(&self, asking: &[(u32, Question)], few: usize, found: &mut Vec<Found>) -> usize {
        let ([(group, first), ..], [.., (_, last)]) = (asking, asking) else { return 0 };
        let Some(visits) = &self.traces.visits else { return 0 };
        let rows = lowest(visits, *group, (first.rank, last.rank), few);
        for (place, (_, question)) in asking.iter().enumerate() {
            let below = rows.partition_point(|row| rank(row) < question.rank);
            if below > few {
                return asking.len() - place;
            }
            found.extend(rows[..below].iter().map(|row| Found::new(question, row)));
        }
        0
    }

    /// Puts questions about a group to those that are asked by print, or among all of its visits.
    fn ask_group(
        &mut self,
        asking: &[(u32, Question)],
        asked: &Asked<'_>,
        questions: &mut Questions,
        rows: &mut Rows,
    ) {
        let walks_max = if asked.few == 0 { 0 } else { WALKS_MAX };
        for (group, question) in asking {
            let Some(rule) = asked.rule_at(question.place) else { continue };
            let mut way = self.groups.way(*group, rule.matching.mask());
            if let Some(lacks) = way.lacks.take() {
                if asking.len() <= walks_max {
                    self.note_lacking(*group, lacks);
                } else if self.push_projection(*group, &lacks, rows).is_some() {
                    way = self.groups.way(*group, rule.matching.mask());
                }
            }
            let test = if way.is_all { Test::Known } else { Test::Overlapped };
            let question = Question { test, ..*question };
            let Some(projection) = way.projection else {
                questions.by_group.push((*group, question));
                continue;
            };
            let (own, values) = (rule.matching.mask().map(), rule.matching.value());
            let word = |word| values.get(own.count_below(word)).copied().unwrap_or_default();
            questions.by_print.push((self.print(projection, word), question));
        }
    }
}
