//! Our classifier on a workload.

use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
};

use shunt_classifier::{Classifier, TupleSpace, Version};
use shunt_flow::{FlowMask, SparseMask};

use super::{Workload, measure::Figures};
use crate::cpu;

type Table = TupleSpace<u64>;

/// Number of tables over which memory is averaged.
const COPIES: u64 = 8;

/// A table filled with the rules of a workload.
pub(crate) struct OurTable<'a> {
    workload: &'a Workload,
    table: Table,
    bytes: f64,
}

impl<'a> OurTable<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let table = table_with_rules(workload);
        // The first table reuses memory that workload generation has freed.
        let before = cpu::resident_bytes(std::process::id());
        let copies: Vec<_> = (0..COPIES).map(|_| table_with_rules(workload)).collect();
        let bytes = (cpu::resident_bytes(std::process::id()) - before).max(0.0) / COPIES as f64;
        drop(copies);
        Self { workload, table, bytes }
    }

    /// Returns the priority of the rule of each packet, and -1 without a rule.
    pub(crate) fn answers(&self) -> Vec<i32> {
        let priority = |age: &u64| {
            let index = usize::try_from(*age).unwrap_or_default();
            i32::from(self.workload.rules[index].1.priority.number())
        };
        let answer = |key| self.table.lookup(key, Version::ZERO).map_or(-1, priority);
        self.workload.packets.iter().map(answer).collect()
    }

    pub(crate) fn figures(&mut self) -> Figures {
        let (packets, rules) = (&self.workload.packets, &self.workload.rules);
        let each = |ns: u64, count: usize| ns as f64 / count as f64;
        let masked_ns = cpu::measure_ns(|| {
            for key in packets {
                let mut mask = FlowMask::EMPTY;
                black_box(self.table.lookup_masked(key, Version::ZERO, &mut mask));
                black_box(&mask);
            }
        });
        let plain_ns = cpu::measure_ns(|| {
            for key in packets {
                black_box(self.table.lookup(key, Version::ZERO));
            }
        });
        let remove_ns = cpu::measure_ns(|| {
            for (matching, rank) in rules {
                self.table.remove(matching, *rank, Version::ZERO);
            }
            self.table.reclaim(Version::ZERO);
        });
        let insert_ns = cpu::measure_ns(|| self.table = table_with_rules(self.workload));
        [
            each(masked_ns, packets.len()),
            each(plain_ns, packets.len()),
            each(insert_ns, rules.len()),
            each(remove_ns, rules.len()),
            self.bytes / rules.len() as f64,
        ]
    }

    /// Returns the numbers of entries and masks of an unbounded cache.
    ///
    /// A packet that an earlier entry covers adds no entry.
    pub(crate) fn megaflows(&self) -> (usize, usize) {
        let mut entries: HashMap<SparseMask, HashSet<Vec<u64>>> = HashMap::new();
        let mut count = 0;
        for key in &self.workload.packets {
            let value = |mask: &SparseMask| mask.apply(key).collect::<Vec<_>>();
            if entries.iter().any(|(mask, values)| values.contains(&value(mask))) {
                continue;
            }
            let mut mask = FlowMask::EMPTY;
            self.table.lookup_masked(key, Version::ZERO, &mut mask);
            let mask = SparseMask::from(&mask);
            let value = value(&mask);
            entries.entry(mask).or_default().insert(value);
            count += 1;
        }
        (count, entries.len())
    }
}

fn table_with_rules(workload: &Workload) -> Table {
    let mut table = Table::new(1);
    for (matching, rank) in &workload.rules {
        table.insert(matching.clone(), *rank, Version::ZERO, rank.age);
    }
    table
}
