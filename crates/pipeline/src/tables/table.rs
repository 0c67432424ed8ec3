//! One flow table of a bridge: its rules, their number, its counters.
//!
//! Clauses of conjunctions are in a separate classifier. A clause alone does not decide a packet,
//! so the classifier of the other rules must not find clauses.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use shunt_classifier::{
    Classifier, Lifetime, Matches, Priority, ScanPosition, TupleSpace, Version,
};
use shunt_flow::{FlowKey, FlowMask, Match};

use super::{
    conjunction::LookupDecisions,
    learned::{learned_rules::LearnedRules, learned_table::LearnedTable, masked::IndexedFrom},
    rule::Rule,
};
use crate::{
    id::TableId,
    pipeline::training::{IndexedTables, TrainingStep},
    time::Time,
};

/// The type of the classifier of every table.
type TableClassifier = TupleSpace<Arc<Rule>>;

/// One flow table, including rules that only older versions see.
pub(crate) struct RuleTable {
    /// The rules without a `conjunction` action.
    rules: TableClassifier,
    /// The rules with a `conjunction` action.
    clauses: TableClassifier,
    /// Number of rules and clauses in the newest version.
    rules_count: usize,
    /// The learned index: decides packets without a cache, and finds rules of large
    /// tables.
    learned: LearnedTable,
}

impl RuleTable {
    /// Returns a table without rules and without a learned index.
    pub(crate) fn new(seed: u64) -> Self {
        let empty = || TableClassifier::new(seed);
        Self { rules: empty(), clauses: empty(), rules_count: 0, learned: LearnedTable::default() }
    }

    /// Returns the number of rules of the newest version, published or in preparation.
    pub(crate) const fn rules_count(&self) -> usize {
        self.rules_count
    }

    /// Adds a rule from a version on.
    pub(crate) fn insert(&mut self, rule: Arc<Rule>, added: Version) {
        let (matching, rank) = (rule.matching.clone(), rule.rank());
        if rule.instructions.is_clause() {
            self.clauses.insert(matching, rank, added, rule);
        } else {
            self.learned.insert(&rule, added);
            self.rules.insert(matching, rank, added, rule);
        }
        self.rules_count += 1;
    }

    /// Removes a rule from a version on.
    pub(crate) fn remove(&mut self, rule: &Rule, removed: Version) {
        let found = if rule.instructions.is_clause() {
            self.clauses.remove(&rule.matching, rule.rank(), removed)
        } else {
            self.learned.remove(rule.id, removed);
            self.rules.remove(&rule.matching, rule.rank(), removed)
        };
        debug_assert!(found.is_some(), "a removed rule was in its table");
        self.rules_count -= usize::from(found.is_some());
    }

    /// Returns the rule with exactly this match and priority.
    pub(crate) fn find_exact(
        &self,
        matching: &Match,
        priority: Priority,
        version: Version,
    ) -> Option<&Arc<Rule>> {
        let found = self.rules.find_exact(matching, priority, version);
        found.or_else(|| self.clauses.find_exact(matching, priority, version))
    }

    /// Returns whether any rules are clauses, in any version.
    pub(crate) fn has_clauses(&self) -> bool {
        !self.clauses.is_empty()
    }

    /// Returns the decisions of a lookup of `key`, in order.
    pub(crate) fn decisions<'a>(
        &'a self,
        key: &FlowKey,
        version: Version,
    ) -> LookupDecisions<impl Matches<'a, Arc<Rule>>> {
        LookupDecisions::new(self.rules.matches(key, version), self.clauses.matches(key, version))
    }

    /// Returns the rule that wins for `key` among those that are not clauses.
    ///
    /// Adds to `mask` the bits that the lookup depends on. `from` decides if the lookup uses the
    /// learned index. Without an index, and in a table with clauses, it is a tuple space search.
    pub(crate) fn find_rule(
        &self,
        key: &FlowKey,
        version: Version,
        from: IndexedFrom,
        mask: &mut FlowMask,
    ) -> Option<&Arc<Rule>> {
        match self.learned.index().filter(|index| index.is_fast_with_masks(from)) {
            Some(learned) => learned.find_masked(key, version, mask),
            None => self.rules.lookup_masked(key, version, mask),
        }
    }

    /// Returns the rule that wins for `key`, and records no mask.
    ///
    /// Clauses of conjunctions do not take part.
    pub(crate) fn find_unrecorded(&self, key: &FlowKey, version: Version) -> Option<&Arc<Rule>> {
        match self.learned.index() {
            Some(learned) => learned.find(key, version),
            None => self.rules.lookup(key, version),
        }
    }

    /// Returns the learned index, if the table has one.
    #[inline]
    pub(crate) fn learned(&self) -> Option<&LearnedRules> {
        self.learned.index()
    }

    /// Returns the next step for the learned index.
    pub(crate) fn learns_from(&self, tables: IndexedTables) -> TrainingStep {
        let rules = self.rules.len();
        let is_next_used = || tables.may_use_next(rules, self.learned.changes());
        match self.learned.index() {
            None if tables.includes(rules) && is_next_used() => TrainingStep::Train,
            Some(_) if !tables.includes(rules) => TrainingStep::Forget,
            Some(index) if !tables.uses(index) => {
                if is_next_used() {
                    TrainingStep::Train
                } else {
                    TrainingStep::Forget
                }
            }
            Some(index) if index.is_outdated() || !tables.has_kind_of(index) => TrainingStep::Train,
            _ if self.learned.has_retired() => TrainingStep::Free,
            _ => TrainingStep::Keep,
        }
    }

    /// Returns the earliest time of the next training, if the last one failed.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.learned.retry_at()
    }

    /// Returns the learned index for changes.
    pub(crate) const fn learned_mut(&mut self) -> &mut LearnedTable {
        &mut self.learned
    }

    /// Returns the rules that a version sees.
    pub(crate) fn rules(&self, version: Version) -> impl Iterator<Item = &Arc<Rule>> {
        let listed = self.rules.rules(version).chain(self.clauses.rules(version));
        listed.map(|(_, _, rule)| rule)
    }

    /// Continues a scan of the rules with the match `matching` or a narrower one.
    ///
    /// See [`TupleSpace::scan_some`].
    pub(crate) fn scan_some<'a>(
        &'a self,
        scan: &mut TableScan,
        matching: &Match,
        left: &mut usize,
        mut visit: impl FnMut(Lifetime, &'a Arc<Rule>),
    ) -> bool {
        if !scan.is_at_clauses {
            if !self.rules.scan_some(&mut scan.rules, matching, left, &mut visit) {
                return false;
            }
            scan.is_at_clauses = true;
        }
        self.clauses.scan_some(&mut scan.clauses, matching, left, visit)
    }

    /// Returns whether any rule of this priority overlaps `matching`.
    pub(crate) fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool {
        self.rules.overlaps(matching, priority, version)
            || self.clauses.overlaps(matching, priority, version)
    }

    /// Drops rules that only versions before `oldest` see.
    ///
    /// Drops at most `removals_max` rules; returns their number.
    pub(crate) fn reclaim(&mut self, oldest: Version, removals_max: usize) -> usize {
        let rules = self.rules.reclaim_some(oldest, removals_max);
        self.learned.count_reclaimed(rules);
        let clauses = self.clauses.reclaim_some(oldest, removals_max - rules);
        let learned = self.learned.reclaim(oldest, removals_max);
        learned.max(rules + clauses)
    }

    /// Returns whether the table has neither rules nor clauses of conjunctions.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.clauses.is_empty()
    }
}

/// The position of a scan of the rules of a table, and then of the clauses.
#[derive(Clone, Copy, Default)]
pub(crate) struct TableScan {
    /// The position among the rules.
    rules: ScanPosition,
    /// True after the last rule.
    is_at_clauses: bool,
    /// The position among the clauses.
    clauses: ScanPosition,
}

/// Counters of a table.
#[derive(Debug, Default)]
pub(crate) struct TableStats {
    /// Number of packets that were looked up.
    lookups: AtomicU64,
    /// Number of packets that matched a rule.
    matches: AtomicU64,
}

impl TableStats {
    /// Adds the packets of a lookup, as matched or missed.
    pub(crate) fn credit(&self, packets: u64, matched: bool) {
        self.lookups.fetch_add(packets, Ordering::Relaxed);
        if matched {
            self.matches.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Returns the counts of the table.
    pub(crate) fn totals(&self, table: TableId, rules_count: usize) -> TableTotals {
        TableTotals {
            table,
            rules_count,
            lookups: self.lookups.load(Ordering::Relaxed),
            matches: self.matches.load(Ordering::Relaxed),
        }
    }
}

/// The counters of a table (`ofp_table_stats`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableTotals {
    /// Number of the counted table.
    pub table: TableId,
    /// Number of rules (`active_count`).
    pub rules_count: usize,
    /// Number of packets looked up in the table (`lookup_count`).
    pub lookups: u64,
    /// Number of packets that matched a rule of the table (`matched_count`).
    pub matches: u64,
}
