//! The queries of the deltas of a change, and the test of the found rows.
//!
//! For an added rule, each group of its table gets a query. The query first examines the visits of
//! the lowest ranks, which are in order. A rule that was removed and added again outranks only the
//! visits made between both changes. If a rule outranks more than a few visits, its fingerprint
//! under the best projection of the group is looked up. For a new mask, the next call of
//! `run_maintenance` adds the projection. If several rules have the new mask, the projection is
//! added before the search.

use std::collections::BTreeSet;

use shunt_pipeline::{Delta, Rule, RuleChange, RuleDelta, RuleId, Traversal, Version, Visit};

use super::{
    queries::{DeltaQuery, FoundLink, HIGHEST, LinkTraces, RemainingTest, answer, lowest, rank},
    relation::{LinkRelation, LinkStepRows, ordered_rank},
};
use crate::region::{is_decided, is_outranked_by, is_overlapped};

/// The deltas of one change.
#[derive(Clone, Copy)]
pub(super) struct ChangeQuery<'d> {
    pub(super) deltas: &'d [Delta],
    pub(super) version: Version,
    /// The rules that the change removes.
    /// If the change also adds one of these rules, that rule decides no lookup of a later version.
    pub(super) removed_rules_of_change: &'d BTreeSet<RuleId>,
    /// Number of rows of a group that are examined before a fingerprint is looked up.
    pub(super) scan_threshold: usize,
}

/// The queries of a change, by the trace in which they are searched.
#[derive(Default)]
pub(super) struct DeltaQueries {
    /// Queries for all visits of a group.
    by_group: Vec<(u32, DeltaQuery)>,
    /// Queries for a fingerprint, or for the key of a rule or an object.
    by_key: Vec<(u64, DeltaQuery)>,
}

/// Number of rules that scan a group in one change without a new projection.
/// For more rules, a missing projection is added before the search.
const SCANS_MAX: usize = 4;

/// Number of visits that are compared together.
/// The memory of the visits then stays in the L1 cache.
const EXAMINED_TOGETHER: usize = 64;

impl ChangeQuery<'_> {
    /// Returns the deltas of the change, each with its position.
    fn all(&self) -> impl Iterator<Item = (u32, &Delta)> {
        (0..).zip(self.deltas)
    }

    /// Returns the delta of a query.
    fn at(&self, position: u32) -> Option<&Delta> {
        self.deltas.get(position as usize)
    }

    /// Returns the rule of a query; `None` for an object.
    fn rule_at(&self, position: u32) -> Option<&Rule> {
        match self.at(position)? {
            Delta::Rule(RuleDelta { rule, .. }) => Some(rule),
            Delta::Changed(_) => None,
        }
    }

    /// Returns the rule of a delta, if the rule is in force after the change.
    fn added_rule<'d>(&self, delta: &'d Delta) -> Option<&'d Rule> {
        let Delta::Rule(RuleDelta { rule, change }) = delta else { return None };
        let is_gone = matches!(change, RuleChange::Removed(_))
            || self.removed_rules_of_change.contains(&rule.id);
        (!is_gone).then_some(rule)
    }

    /// Returns whether a delta makes an entry stale.
    fn invalidates(&self, traversal: &Traversal, delta: &Delta) -> bool {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(_) => return self.passes(RemainingTest::Read, traversal, None, delta),
            Delta::Rule(delta) => delta,
        };
        let is_added = self.added_rule(delta).is_some();
        traversal.visits.iter().any(|visit| {
            let is_here = (visit.bridge, visit.table) == (rule.bridge, rule.table);
            let is_ended = || match change {
                RuleChange::Added => false,
                RuleChange::Removed(_) => is_decided(visit, rule, |_| true),
                RuleChange::Modified(_) => {
                    self.passes(RemainingTest::Decided, traversal, Some(visit), delta)
                }
            };
            let is_taken = || is_added && is_outranked_by(traversal, visit, rule);
            is_here && (is_ended() || is_taken())
        })
    }

    /// Returns whether a found row makes its entry stale, by its remaining test.
    fn passes(
        &self,
        test: RemainingTest,
        traversal: &Traversal,
        visit: Option<&Visit>,
        delta: &Delta,
    ) -> bool {
        match (test, delta) {
            (RemainingTest::Nothing, Delta::Rule(_) | Delta::Changed(_)) => true,
            (
                RemainingTest::Read | RemainingTest::Decided | RemainingTest::Overlapped,
                Delta::Changed(object),
            ) => traversal.version < self.version && traversal.reads.contains(object),
            (RemainingTest::Decided, Delta::Rule(RuleDelta { rule, .. })) => visit
                .is_some_and(|visit| is_decided(visit, rule, |own| own.revision != rule.revision)),
            // The query has compared the rank of the row already.
            (
                RemainingTest::Read | RemainingTest::Overlapped,
                Delta::Rule(RuleDelta { rule, .. }),
            ) => visit.is_some_and(|visit| is_overlapped(traversal, visit, &rule.matching)),
        }
    }
}

impl LinkRelation {
    /// Finds the entries in these slots that the deltas make stale.
    pub(super) fn examine_pending(
        &self,
        slots: &[u32],
        query: &ChangeQuery<'_>,
        found: &mut Vec<FoundLink>,
    ) {
        let held = |slot: &u32| Some((*slot, self.entries.watched(*slot)?));
        let all: Vec<_> = slots.iter().filter_map(held).collect();
        for (position, delta) in query.all() {
            let ended = all.iter().filter(|(_, held)| query.invalidates(&held.traversal, delta));
            found.extend(ended.map(|(slot, held)| {
                FoundLink::certain(position, *slot, held.links.slot_generation)
            }));
        }
    }

    /// Returns the queries for the deltas of a change.
    ///
    /// Rows of lowest rank that are found already are added to `found`. The rows of a projection
    /// that is needed before the search are added to `rows`.
    pub(super) fn delta_queries(
        &mut self,
        query: &ChangeQuery<'_>,
        rows: &mut LinkStepRows,
        found: &mut Vec<FoundLink>,
    ) -> DeltaQueries {
        let mut delta_queries = DeltaQueries::default();
        let mut overlaps = Vec::new();
        for (position, delta) in query.all() {
            #[cfg(any(test, feature = "testing"))]
            self.fault.pass_point();
            if let Some((name, test)) = self.lookup_key(delta) {
                delta_queries.by_key.push((name, DeltaQuery { rank: HIGHEST, position, test }));
            }
            if let Some(rule) = query.added_rule(delta) {
                let (rank, test) = (ordered_rank(rule.rank()), RemainingTest::Overlapped);
                let groups = self.groups.of((rule.bridge, rule.table)).iter();
                overlaps.extend(groups.map(|group| (*group, DeltaQuery { rank, position, test })));
            }
        }
        overlaps.sort_unstable();
        for of_group in overlaps.chunk_by(|(group, _), (next, _)| group == next) {
            let left = self.ask_lowest(of_group, query.scan_threshold, found);
            self.ask_group(&of_group[of_group.len() - left..], query, &mut delta_queries, rows);
        }
        delta_queries.by_group.sort_unstable();
        delta_queries.by_key.sort_unstable();
        delta_queries
    }

    /// Adds the rows that the queries find in the traces to `found`.
    /// Returns whether `found` has at most `max` rows.
    pub(super) fn answer(
        &self,
        delta_queries: &DeltaQueries,
        max: usize,
        found: &mut Vec<FoundLink>,
    ) -> bool {
        let LinkTraces { visits, links } = &self.traces;
        let (visits, links) = (visits.as_ref(), links.as_ref());
        found.len() <= max
            && visits.is_none_or(|visits| answer(visits, &delta_queries.by_group, max, found))
            && links.is_none_or(|links| answer(links, &delta_queries.by_key, max, found))
    }

    /// Returns the position of the delta and the slot of each stale found entry.
    pub(super) fn ended(&self, found: &[FoundLink], query: &ChangeQuery<'_>) -> Vec<(u32, u32)> {
        let mut ended = Vec::with_capacity(found.len());
        // Each comparison follows four pointers into different memory. The pointers of many visits
        // are followed together.
        for together in found.chunks(EXAMINED_TOGETHER) {
            let held = |own: &FoundLink| {
                Some((*own, &*self.watched(own.slot, own.slot_generation)?.traversal))
            };
            let held: Vec<_> = together.iter().filter_map(held).collect();
            let visits: Vec<_> = held
                .iter()
                .map(|(own, traversal)| {
                    let is_compared = own.test != RemainingTest::Nothing;
                    let visit = is_compared.then(|| traversal.visits.get(own.visit as usize));
                    (own, *traversal, visit.flatten())
                })
                .collect();
            let passing = visits.iter().filter(|(own, traversal, visit)| {
                let delta = query.at(own.position);
                delta.is_some_and(|delta| query.passes(own.test, traversal, *visit, delta))
            });
            ended.extend(passing.map(|(own, ..)| (own.position, own.slot)));
        }
        ended
    }

    /// Returns the key to look up for a delta, and the test that found rows must pass.
    ///
    /// `None` for an added rule.
    fn lookup_key(&self, delta: &Delta) -> Option<(u64, RemainingTest)> {
        match delta {
            Delta::Changed(object) => Some((self.object_key(object), RemainingTest::Read)),
            Delta::Rule(RuleDelta { rule, change }) => match change {
                RuleChange::Added => None,
                // After a hash collision with another key, some valid entries are evicted too.
                RuleChange::Removed(_) => Some((self.rule_key(rule.id), RemainingTest::Nothing)),
                RuleChange::Modified(_) => Some((self.rule_key(rule.id), RemainingTest::Decided)),
            },
        }
    }

    /// Finds the rows of the queries of a group that outrank only a few visits.
    ///
    /// Returns the number of remaining queries. The remaining queries are the last ones, because
    /// queries are in the order of their ranks.
    fn ask_lowest(
        &self,
        asking: &[(u32, DeltaQuery)],
        scan_threshold: usize,
        found: &mut Vec<FoundLink>,
    ) -> usize {
        let ([(group, first), ..], [.., (_, last)]) = (asking, asking) else { return 0 };
        let Some(visits) = &self.traces.visits else { return 0 };
        let rows = lowest(visits, *group, first.rank, last.rank, scan_threshold);
        for (position, (_, delta_query)) in asking.iter().enumerate() {
            let below = rows.partition_point(|row| rank(row) < delta_query.rank);
            if below > scan_threshold {
                return asking.len() - position;
            }
            found.extend(rows[..below].iter().map(|row| FoundLink::new(delta_query, row)));
        }
        0
    }

    /// Adds each query of a group to one list of `delta_queries`.
    /// A query searches for a fingerprint if a projection fits, and otherwise for all visits of the
    /// group.
    fn ask_group(
        &mut self,
        asking: &[(u32, DeltaQuery)],
        query: &ChangeQuery<'_>,
        delta_queries: &mut DeltaQueries,
        rows: &mut LinkStepRows,
    ) {
        let walks_max = if query.scan_threshold == 0 { 0 } else { SCANS_MAX };
        for (group, delta_query) in asking {
            let Some(rule) = query.rule_at(delta_query.position) else { continue };
            let mut group_search = self.groups.group_search(*group, rule.matching.mask());
            if let Some(missing_mask) = group_search.missing_mask.take() {
                if asking.len() <= walks_max {
                    self.defer_projection(*group, missing_mask);
                } else if self.push_projection(*group, &missing_mask, rows).is_some() {
                    group_search = self.groups.group_search(*group, rule.matching.mask());
                }
            }
            let test = if group_search.is_exact {
                RemainingTest::Nothing
            } else {
                RemainingTest::Overlapped
            };
            let delta_query = DeltaQuery { test, ..*delta_query };
            let Some(projection) = group_search.projection else {
                delta_queries.by_group.push((*group, delta_query));
                continue;
            };
            let (own, values) = (rule.matching.mask().map(), rule.matching.value());
            let word = |word| values.get(own.count_below(word)).copied().unwrap_or_default();
            delta_queries.by_key.push((self.fingerprint(projection, word), delta_query));
        }
    }
}
