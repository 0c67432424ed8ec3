//! The training of learned indexes over tables, in a thread of the caller.

use std::sync::{Arc, atomic::Ordering};

use shunt_classifier::Lifetime;
use shunt_flow::Match;

use super::Pipeline;
use crate::{
    bridges::bridge::VersionedBridge,
    id::{BridgeId, TableId},
    tables::{
        flow_mod::TableSelector,
        learned::{learned_rules::LearnedRules, learned_table::LearnedTable, masked::IndexedFrom},
        rule::Rule,
    },
};

impl Pipeline {
    /// Fewest rules of a table in which translations use a learned index, if there is
    /// one.
    ///
    /// The index is used while at most 64 of its rules are in no iSet. A table with clauses of
    /// conjunctions is searched by tuple space search.
    pub const INDEXED_RULES_MIN: usize = 1_000;

    /// Replaces [`Self::INDEXED_RULES_MIN`], so that small tables of tests use their
    /// indexes.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_indexed_rules_min(&self, rules_min: usize) {
        self.indexed_rules_min.store(rules_min, Ordering::Relaxed);
    }

    /// Returns the tables in which translations use learned indexes.
    pub(super) fn indexed_from(&self) -> IndexedFrom {
        IndexedFrom(self.indexed_rules_min.load(Ordering::Relaxed))
    }

    /// Returns whether translations use the learned index of a table.
    #[cfg(test)]
    pub(crate) fn is_indexed(&self, id: BridgeId, table: TableId) -> bool {
        let (bridges, from) = (self.bridges.read(), self.indexed_from());
        bridges.iter().filter(|(own, _)| **own == id).any(|(_, bridge)| {
            bridge
                .tables()
                .filter(|(own, _)| *own == table)
                .filter_map(|(_, own)| own.learned())
                .any(|index| index.is_fast_with_masks(from))
        })
    }

    /// Trains the learned indexes of the tables that need a training.
    ///
    /// The list has the tables with at least `rules_min` rules and no index, and the tables with an
    /// index that changes have made slow. Tables with fewer than `rules_min` rules lose their
    /// index. Takes milliseconds for each ten thousand rules, mostly without a lock.
    pub fn train_tables(&self, rules_min: usize) {
        let tables: Vec<_> = {
            let bridges = self.bridges.read();
            let of_bridge = |(id, bridge): (&BridgeId, &VersionedBridge)| {
                let id = *id;
                bridge
                    .tables()
                    .map(move |(table, own)| (id, table, own.learns_from(rules_min)))
                    .collect::<Vec<_>>()
            };
            bridges.iter().flat_map(of_bridge).collect()
        };
        for (id, table, step) in tables {
            let former = match step {
                TrainingStep::Keep => continue,
                TrainingStep::Forget => self.hold_learned(id, table, LearnedTable::clear),
                TrainingStep::Train => self.begin_training(id, table).map(|rules| {
                    let trained = LearnedRules::train(rules).map(Box::new);
                    self.end_training(id, table, trained)
                }),
            };
            // The former index is dropped without a lock, because it may free many rules.
            drop(former.flatten());
        }
    }

    /// Begins a training. Returns the rules that some published version sees.
    ///
    /// Returns `None` if a training of the table is in progress.
    pub(super) fn begin_training(
        &self,
        id: BridgeId,
        table: TableId,
    ) -> Option<Vec<(Lifetime, Arc<Rule>)>> {
        // No change is in progress when the log begins. So the log has all changes of each later
        // version, and no change of the retained one.
        let control = self.control.lock();
        let retained = self.retain_newest();
        let has_begun = self.hold_learned(id, table, LearnedTable::begin_training);
        drop(control);
        if has_begun != Some(true) {
            return None;
        }
        let (newest, mut rules) = (retained.version(), Vec::new());
        self.scan_lifetimes(id, TableSelector::One(table), &Match::any(), |lifetime, rule| {
            if lifetime.added <= newest && !rule.instructions.is_clause() {
                let removed = lifetime.removed().filter(|removed| *removed <= newest);
                let mut until_newest = Lifetime::since(lifetime.added);
                until_newest.end(removed);
                rules.push((until_newest, Arc::clone(rule)));
            }
        });
        Some(rules)
    }

    /// Ends a training: repeats the changes since its begin, and replaces the index.
    ///
    /// Returns an index to be freed without a lock.
    pub(super) fn end_training(
        &self,
        id: BridgeId,
        table: TableId,
        mut trained: Option<Box<LearnedRules>>,
    ) -> Option<Box<LearnedRules>> {
        let mut repeat = || {
            let log = self.hold_learned(id, table, LearnedTable::take_log).unwrap_or_default();
            if trained.as_mut().is_some_and(|index| !log.iter().all(|own| own.apply(index))) {
                trained = None;
            }
        };
        // Changes wait only while the few changes since the first round are repeated.
        repeat();
        let _control = self.control.lock();
        repeat();
        self.hold_learned(id, table, |own| own.end_training(trained)).flatten()
    }

    /// Changes the learned index of a table under one exclusive lock.
    ///
    /// Returns `None` without such a table.
    fn hold_learned<T>(
        &self,
        id: BridgeId,
        table: TableId,
        change: impl FnOnce(&mut LearnedTable) -> T,
    ) -> Option<T> {
        self.hold(id, |bridge| bridge.table_mut(table).map(|own| change(own.learned_mut())))
            .flatten()
    }
}

/// The next step for the learned index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainingStep {
    /// Change nothing.
    Keep,
    /// Train an index.
    Train,
    /// Remove the index.
    Forget,
}
