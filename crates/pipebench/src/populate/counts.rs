//! Counts of a filled pipeline, for comparison with published counts.

use std::collections::{BTreeMap, BTreeSet};

use super::fill::Population;

/// Counts of a filled pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopulationCounts {
    /// Number of tables that have rules.
    pub tables: usize,
    /// Number of traversals that have rules.
    pub traversals: usize,
    /// Number of rules of all tables.
    pub rules: usize,
    /// Number of rules of each table.
    pub rules_by_table: BTreeMap<u8, usize>,
    /// Number of base rules that were placed.
    pub placed: usize,
    /// Number of base rules for which no traversal was found.
    pub rejected: usize,
    /// Number of distinct sequences of rules, which is the number of megaflow entries.
    pub whole: usize,
    /// Number of distinct sub-traversals, which is the number of LTM entries.
    pub parts: usize,
    /// Number of traversals that can be combined from these sub-traversals.
    pub combinations: u64,
}

impl Population {
    /// Counts tables, traversals, rules and cache entries.
    #[must_use]
    pub fn counts(&self) -> PopulationCounts {
        let mut rules_by_table: BTreeMap<u8, usize> = BTreeMap::new();
        for rule in &self.rules {
            let count = rules_by_table.entry(rule.table).or_default();
            *count = count.saturating_add(1);
        }
        let whole: BTreeSet<&[usize]> = self.chains.iter().map(|(_, chain)| &**chain).collect();
        let mut parts = BTreeSet::new();
        let mut of_path: BTreeMap<(usize, usize), BTreeSet<&[usize]>> = BTreeMap::new();
        for (path, chain) in &self.chains {
            for (place, part) in self.cut(*path, chain).into_iter().enumerate() {
                parts.insert(part);
                of_path.entry((*path, place)).or_default().insert(part);
            }
        }
        let combinations_of = |path: usize| {
            let parts = of_path.range((path, 0)..(path.saturating_add(1), 0));
            parts.fold(1_u64, |combinations_of, (_, parts)| {
                combinations_of.saturating_mul(u64::try_from(parts.len()).unwrap_or(u64::MAX))
            })
        };
        let used: BTreeSet<usize> = self.chains.iter().map(|(path, _)| *path).collect();
        PopulationCounts {
            tables: rules_by_table.len(),
            traversals: used.len(),
            rules: self.rules.len(),
            rules_by_table,
            placed: self.chains.len(),
            rejected: self.rejected,
            whole: whole.len(),
            parts: parts.len(),
            combinations: used.into_iter().map(combinations_of).fold(0, u64::saturating_add),
        }
    }

    /// Divides a chain of rules at the partition points of its traversal.
    fn cut<'a>(&self, path: usize, chain: &'a [usize]) -> Vec<&'a [usize]> {
        let partition_points = self.paths.get(path).map_or(&[][..], |path| &path.partition_points);
        let mut parts = Vec::new();
        let mut rest = chain;
        for cut in partition_points.iter().rev() {
            if let Some((before, after)) = rest.split_at_checked(*cut) {
                parts.push(after);
                rest = before;
            }
        }
        parts.push(rest);
        parts.reverse();
        parts
    }
}
