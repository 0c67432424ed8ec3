//! The training of learned indexes over tables, in a thread of the caller.

use super::Pipeline;
use crate::tables::learned::learned_rules::LearnedRules;

impl Pipeline {
    /// Trains the learned indexes of the tables that need a training.
    ///
    /// These are the tables with at least `rules_min` rules and no index, and the tables with an
    /// index that changes have made slow. Tables with fewer than `rules_min` rules lose their
    /// index. Takes milliseconds for each ten thousand rules, mostly without a lock.
    pub fn train_tables(&self, rules_min: usize) {
        let tables: Vec<_> = {
            let bridges = self.bridges.read();
            let of_bridge = |(id, bridge): (&_, &crate::bridges::bridge::VersionedBridge)| {
                let id = *id;
                bridge
                    .tables()
                    .map(move |(table, own)| (id, table, own.learns_from(rules_min)))
                    .collect::<Vec<_>>()
            };
            bridges.iter().flat_map(of_bridge).collect()
        };
        for (bridge, table, step) in tables {
            let former = match step {
                TrainingStep::Keep => continue,
                TrainingStep::Forget => {
                    let mut bridges = self.bridges.write();
                    let found = bridges.get_mut(&bridge).and_then(|own| own.table_mut(table));
                    found.and_then(|own| own.learned_mut().clear())
                }
                TrainingStep::Train => {
                    let rules = {
                        let bridges = self.bridges.read();
                        let found = bridges.get(&bridge).and_then(|own| own.table(table));
                        found.and_then(|own| own.begin_training())
                    };
                    let Some(rules) = rules else { continue };
                    let trained = LearnedRules::train(rules);
                    let mut bridges = self.bridges.write();
                    let found = bridges.get_mut(&bridge).and_then(|own| own.table_mut(table));
                    found.and_then(|own| own.learned_mut().end_training(trained))
                }
            };
            // Dropped without a lock, because the index may free many rules.
            drop(former);
        }
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
