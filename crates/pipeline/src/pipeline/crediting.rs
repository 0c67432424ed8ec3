//! Credits of hits: packet threads add the hits of cache entries to rules.
//!
//! Hits also count for the tables, groups and outputs of a traversal.
//! The objects of a credit are spread over memory: the traversal, its visits, and the counters of
//! each rule. Atomic additions wait for one another, so a credit after the other would wait for
//! each of these loads. [`Crediting::credit_all`] reads the objects of a whole batch first, in
//! steps that do not depend on each other. So the processor loads many of them at once. Most
//! traversals of a batch also visit the same few tables, and so each table is counted once.

use std::{hint::black_box, sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLockReadGuard};

use super::Pipeline;
use crate::{
    bridges::bridge::VersionedBridges,
    id::{BridgeId, TableId},
    tables::rule::Rule,
    time::Time,
    traversals::traversal::{Traversal, Visit},
};

/// The tables, locked to credit hits: see [`Pipeline::crediting`].
pub struct Crediting<'a> {
    bridges: RwLockReadGuard<'a, VersionedBridges>,
    /// Rules with timeouts that packets have lowered, not queued again yet.
    lowered: &'a Mutex<Vec<Arc<Rule>>>,
}

/// Hits of a traversal to credit.
#[derive(Clone, Copy, Debug)]
pub struct TraversalCredit<'a> {
    /// The traversal that the packets took.
    pub traversal: &'a Traversal,
    /// Number of packets that hit.
    pub packets: u64,
    /// Bytes of the packets at ingress.
    pub bytes: u64,
    /// Time of the last packet.
    pub used: Time,
}

/// Counted lookups of tables that are not yet added to the tables.
///
/// A slot has the counts of one table. If another table needs the slot, its counts are added first.
struct TableTallies<'a> {
    bridges: &'a VersionedBridges,
    /// The counts, in the slot that the number of the table selects.
    slots: [Option<TableTally>; TALLIES],
}

/// The counted lookups of one table.
#[derive(Clone, Copy)]
struct TableTally {
    bridge: BridgeId,
    table: TableId,
    /// Number of packets that matched a rule.
    matched: u64,
    /// Number of packets that matched no rule.
    missed: u64,
}

/// Number of tables that are counted at the same time.
const TALLIES: usize = 16;

impl Pipeline {
    /// Credits the hits of one traversal; see [`Crediting::credit`].
    ///
    /// A traversal without credits takes no lock, so a frame that the switch itself sends waits for
    /// no change of the tables.
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        if !traversal.credits_nothing() {
            self.crediting().credit(traversal, packets, bytes, used);
        }
    }

    /// Locks the tables to credit the hits of several traversals.
    ///
    /// Changes of the tables wait until the result is dropped.
    pub fn crediting(&self) -> Crediting<'_> {
        Crediting { bridges: self.bridges.read(), lowered: &self.lowered }
    }

    /// Locks the tables to credit hits, but waits at most `wait` for the lock.
    ///
    /// Returns `None` if a change of the tables holds the lock longer. A caller with other work
    /// tries again later.
    #[must_use]
    pub fn try_crediting(&self, wait: Duration) -> Option<Crediting<'_>> {
        let bridges = self.bridges.try_read_for(wait)?;
        Some(Crediting { bridges, lowered: &self.lowered })
    }
}

impl Crediting<'_> {
    /// Credits hits of a traversal to its rules, tables, groups and mirrors.
    ///
    /// The groups are those that chose buckets. The hits also repeat the refreshes of the traversal
    /// (invariant 7).
    pub fn credit(&self, traversal: &Traversal, packets: u64, bytes: u64, used: Time) {
        let mut tallies = TableTallies::new(&self.bridges);
        self.credit_one(TraversalCredit { traversal, packets, bytes, used }, &mut tallies);
        tallies.add_all();
    }

    /// Credits hits of several traversals, as [`Self::credit`] does for one.
    ///
    /// Takes less time than a call for each traversal: the loads of all traversals overlap.
    pub fn credit_all<'a>(&self, credits: impl Iterator<Item = TraversalCredit<'a>> + Clone) {
        // Plain loads of different traversals do not wait for each other, but those after an atomic
        // addition do. So each step reads one object of every traversal, before the first addition.
        for own in credits.clone() {
            black_box(own.traversal.visits.first().is_some_and(|visit| visit.rule.is_some()));
        }
        for own in credits.clone() {
            for rule in own.traversal.visits.iter().filter_map(|visit| visit.rule.as_ref()) {
                black_box(rule.stats.totals());
            }
        }
        let mut tallies = TableTallies::new(&self.bridges);
        credits.for_each(|own| self.credit_one(own, &mut tallies));
        tallies.add_all();
    }

    /// Credits hits of a traversal, and counts its tables in `tallies`.
    fn credit_one(&self, own: TraversalCredit<'_>, tallies: &mut TableTallies<'_>) {
        let TraversalCredit { traversal, packets, bytes, used } = own;
        for visit in traversal.lookups() {
            if let Some(rule) = &visit.rule {
                rule.stats.credit(packets, bytes, used);
            }
            tallies.count(visit, packets);
        }
        for hit in &traversal.group_hits {
            hit.credit(packets, bytes);
        }
        for hit in &traversal.output_hits {
            hit.credit(packets, bytes);
        }
        for lowered in traversal.refreshes.iter().filter_map(|refresh| refresh.touch(used)) {
            self.lowered.lock().push(Arc::clone(lowered));
        }
    }
}

impl<'a> TableTallies<'a> {
    /// Creates tallies without counts.
    const fn new(bridges: &'a VersionedBridges) -> Self {
        Self { bridges, slots: [None; TALLIES] }
    }

    /// Counts the packets of a lookup.
    fn count(&mut self, visit: &Visit, packets: u64) {
        let Visit { bridge, table, .. } = *visit;
        let slot = &mut self.slots[table.index() % TALLIES];
        let tally = match slot {
            Some(own) if own.bridge == bridge && own.table == table => own,
            _ => {
                if let Some(other) = slot.take() {
                    other.add(self.bridges);
                }
                slot.insert(TableTally { bridge, table, matched: 0, missed: 0 })
            }
        };
        let count = if visit.rule.is_some() { &mut tally.matched } else { &mut tally.missed };
        *count += packets;
    }

    /// Adds all counts to the counters of the tables.
    fn add_all(self) {
        self.slots.into_iter().flatten().for_each(|tally| tally.add(self.bridges));
    }
}

impl TableTally {
    /// Adds the counts to the counters of the table, if its bridge still exists.
    fn add(self, bridges: &VersionedBridges) {
        let Some(bridge) = bridges.get(&self.bridge) else { return };
        for (packets, is_match) in [(self.matched, true), (self.missed, false)] {
            if packets > 0 {
                bridge.credit(self.table, packets, is_match);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::{FlowKey, PortNo};

    use super::*;
    use crate::{
        tables::{rule::RuleTotals, rule_filter::RuleFilter, table::TableTotals},
        testing::{
            CheckedPipeline, cases,
            generate::{self, BRIDGES},
        },
    };

    /// The counters of all rules, tables and groups of all bridges.
    #[derive(Debug, PartialEq)]
    struct Counters {
        rules: Vec<RuleTotals>,
        tables: Vec<TableTotals>,
        groups: String,
    }

    /// Returns the counters of a pipeline.
    fn counters(pipeline: &Pipeline) -> Counters {
        let rules = BRIDGES.map(|id| pipeline.rules(id, &RuleFilter::all()));
        let groups = BRIDGES.map(|id| {
            let groups = pipeline.groups(id);
            groups.iter().map(|group| format!("{:?}", group.stats)).collect::<Vec<_>>()
        });
        Counters {
            rules: rules.iter().flatten().map(|rule| rule.stats.totals()).collect(),
            tables: BRIDGES.iter().flat_map(|id| pipeline.table_stats(*id)).collect(),
            groups: format!("{groups:?}"),
        }
    }

    proptest! {
        #![proptest_config(cases(200))]

        /// Two equal pipelines count the same hits, one by one and in batches.
        #[test]
        fn credits_of_a_batch_equal_single_credits(
            network in generate::network(),
            hits in prop::collection::vec((generate::packet(), 1_u64..9, 60_u64..900), 1..40),
        ) {
            let pipelines = [(); 2].map(|()| CheckedPipeline::new(&network));
            let translated = pipelines.each_ref().map(|own| {
                let keys = hits.iter().map(|(key, ..)| own.translate(key));
                keys.collect::<Vec<_>>()
            });
            let times = || (1..).map(Time::from_nanoseconds);
            let single = pipelines[0].pipeline.crediting();
            for ((traversal, (_, packets, bytes)), used) in
                translated[0].iter().zip(&hits).zip(times())
            {
                single.credit(traversal, *packets, *bytes, used);
            }
            drop(single);
            let credits = translated[1].iter().zip(&hits).zip(times());
            let batch = credits.map(|((traversal, (_, packets, bytes)), used)| {
                TraversalCredit { traversal, packets: *packets, bytes: *bytes, used }
            });
            pipelines[1].pipeline.crediting().credit_all(batch);
            let [single, batch] = pipelines.map(|own| counters(&own.pipeline));
            prop_assert_eq!(single, batch);
        }
    }

    /// The tables 0, 16, 32 and so on share a slot of the tallies.
    #[test]
    fn tables_that_share_a_tally_are_counted() {
        let id = BRIDGES[0];
        // The last table has no rule.
        let rules: Vec<String> = (0_u8..39)
            .map(|table| format!("table={table},actions=goto_table:{}", table + 1))
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let pipeline = CheckedPipeline::with_rules(id, &rules).pipeline;
        let mut key = FlowKey::ZERO;
        key.set_bridge(id.number().into());
        key.set_in_port(PortNo::new(1));
        let traversal = pipeline.translate(&key, pipeline.version());
        let mut expected = vec![(0, 0); 256];
        for visit in traversal.lookups() {
            let (lookups, matches) = &mut expected[visit.table.index()];
            *lookups += 6;
            *matches += if visit.rule.is_some() { 6 } else { 0 };
        }
        assert_eq!(
            [0, 16, 32, 38, 39].map(|table| expected[table]),
            [(6, 6), (6, 6), (6, 6), (6, 6), (6, 0)]
        );
        let credit =
            TraversalCredit { traversal: &traversal, packets: 3, bytes: 9, used: Time::ZERO };
        pipeline.crediting().credit_all([credit, credit].into_iter());
        for own in pipeline.table_stats(id) {
            let counts = (own.lookups, own.matches);
            assert_eq!(counts, expected[own.table.index()], "table {}", own.table.number());
        }
    }
}
