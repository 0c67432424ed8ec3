//! The traversals of a workload's flows, and their entries in a megaflow cache.
//!
//! The rules are parsed from text, and Shunt's pipeline looks up the flows. So the results depend
//! on the rules, not on the intention of the generator.

use std::collections::{BTreeMap, HashMap, HashSet};

use shunt_flow::{Match, SparseMask, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathAction, FlowModCommand, Pipeline, PortInfo, TableId, Time,
    text::parse_rule,
};

use crate::{Progress, WorkloadError, statistics::StatisticRow, traffic::Flow};

/// The traversals and cache entries of flows.
#[derive(Clone, Debug, Default)]
pub struct FlowTraversals {
    flows: usize,
    /// The distinct masks of the cache entries.
    masks: HashSet<SparseMask, foldhash::fast::FixedState>,
    /// The cache entries with their numbers.
    entries: HashMap<Match, u32, foldhash::fast::FixedState>,
    /// The number of the cache entry of each flow.
    entry_of: Vec<u32>,
    /// Number of table lookups of all flows.
    lookups: usize,
    steps: HashSet<(TableId, Match), foldhash::fast::FixedState>,
    /// Number of flows of each class with this sequence of tables.
    traversals: BTreeMap<(u16, Vec<TableId>), usize>,
    /// Number of flows sent to a port.
    forwarded: usize,
    /// Number of rules that were left out.
    refused: usize,
}

/// The class from which a flow was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowOrigin {
    /// The name of the class.
    pub name: String,
    /// The intended sequence of tables, if any.
    pub table_ids: Option<Vec<u8>>,
}

/// The label of the row that counts rules with missing references.
const LEFT_OUT: &str = "rules with missing groups and similar references: left out";

/// Seed of the table hashes; no result depends on it.
const SEED: u64 = 1;
/// Number of flows between two progress updates.
const STEP: usize = 1000;
/// Minimum number of ports of the bridge.
const PORTS: u32 = 256;
/// Maximum number of ports of the bridge: OpenFlow has no more port numbers.
const PORTS_MAX: u32 = 0xff00;

impl FlowTraversals {
    /// Translates the first packet of each flow by the rules.
    ///
    /// # Errors
    ///
    /// If a rule cannot be parsed. A rule with a missing reference, such as a group, is left out.
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a str>,
        flows: &[Flow],
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let (pipeline, bridge) = (Pipeline::new(SEED), BridgeId::new(1));
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let entered = flows.iter().map(|flow| flow.in_port().number()).max().unwrap_or(0);
        let ports = 1..=entered.clamp(PORTS, PORTS_MAX);
        let ports = ports.map(PortInfo::datapath).collect();
        // The bridge exists: it was added above.
        let _ = pipeline.set_ports(bridge, ports);
        let mut mods = Vec::new();
        for text in rules {
            let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames);
            mods.push(rule.map_err(|error| WorkloadError::rule(text, &error))?);
        }
        let mut flow_traversals = Self::default();
        if pipeline.apply(bridge, &mods, Time::ZERO).is_err() {
            // Rules that only other switches accept are left out, and counted.
            let refused =
                mods.chunks(1).filter(|one| pipeline.apply(bridge, one, Time::ZERO).is_err());
            flow_traversals.refused = refused.count();
        }
        for some in flows.chunks(STEP) {
            some.iter().for_each(|flow| flow_traversals.add(&pipeline, bridge, flow));
            progress.advance(u64::try_from(some.len()).unwrap_or(0));
        }
        Ok(flow_traversals)
    }

    /// Translates the headers of a flow, and counts its lookups and cache entry.
    fn add(&mut self, pipeline: &Pipeline, bridge: BridgeId, flow: &Flow) {
        let mut key = flow.key();
        key.set_bridge(bridge.number().into());
        let traversal = pipeline.translate(&key, pipeline.version());
        let entry = Match::of(&traversal.key, &traversal.mask);
        self.masks.insert(entry.mask().clone());
        #[expect(clippy::expect_used, reason = "that many entries would fill terabytes")]
        let next =
            u32::try_from(self.entries.len()).expect("a workload has fewer than 2^32 entries");
        self.entry_of.push(*self.entries.entry(entry).or_insert(next));
        for visit in &traversal.visits {
            self.lookups += 1;
            self.steps.insert((visit.table, Match::of(&visit.key, &visit.mask)));
        }
        let path = traversal.lookups().map(|visit| visit.table).collect();
        *self.traversals.entry((flow.class, path)).or_default() += 1;
        self.forwarded += usize::from(traversal.actions.iter().any(is_output));
        self.flows += 1;
    }

    /// Returns the number of masked entries that the flows need.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry number of each flow.
    ///
    /// The entries of one version never overlap, so each flow has one entry.
    #[must_use]
    pub fn entry_of_flows(&self) -> &[u32] {
        &self.entry_of
    }

    /// Returns the number of distinct masks of the entries.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// Returns the rows of the statistics; `classes` gives the origins of the flows.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    pub fn rows(&self, classes: &[FlowOrigin]) -> Vec<StatisticRow> {
        let mut rows = Vec::new();
        if self.refused > 0 {
            rows.push(StatisticRow::count(LEFT_OUT, self.refused));
        }
        rows.extend([
            StatisticRow::count("entries of one cache for all flows", self.entries()),
            StatisticRow::count("masks of those entries", self.masks()),
            StatisticRow::count("lookups of all flows", self.lookups),
            StatisticRow::new(
                "lookups for each distinct table visit",
                self.lookups as f64 / self.steps.len().max(1) as f64,
                "each",
            ),
            StatisticRow::new("flows that are forwarded", share(self.forwarded, self.flows), "%"),
        ]);
        rows.extend(self.class_rows(classes));
        rows.extend(self.traversal_rows());
        rows
    }

    /// Returns the flows of each class, and their share with the intended traversal.
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    fn class_rows(&self, classes: &[FlowOrigin]) -> Vec<StatisticRow> {
        let even = 100.0 / classes.len().max(1) as f64;
        let mut rows = Vec::new();
        for (number, class) in (0..).zip(classes).take(CLASSES_SHOWN) {
            let traversals = || {
                self.traversals
                    .range((number, Vec::new())..)
                    .take_while(|table_ids| table_ids.0.0 == number)
            };
            let flows = traversals().map(|(_, count)| count).sum();
            let row = StatisticRow::new(
                format!("flows of {}", class.name),
                share(flows, self.flows),
                "%",
            );
            rows.push(row.against(even, "even"));
            if let Some(table_ids) = &class.table_ids {
                let is_intended = |path: &[TableId]| {
                    path.iter().map(|id| id.number()).eq(table_ids.iter().copied())
                };
                let intended = traversals().filter(|((_, path), _)| is_intended(path));
                let intended = share(intended.map(|(_, count)| count).sum(), flows);
                let row = StatisticRow::new(
                    format!("flows of {0} with the traversal of {0}", class.name),
                    intended,
                    "%",
                );
                rows.push(row.against(100.0, "the pipeline"));
            }
        }
        rows
    }

    /// Returns the number of flows of each traversal.
    fn traversal_rows(&self) -> Vec<StatisticRow> {
        let mut counts: BTreeMap<&[TableId], usize> = BTreeMap::new();
        for ((_, path), count) in &self.traversals {
            *counts.entry(path).or_default() += count;
        }
        let traversals = counts.len();
        let mut counts: Vec<(&[TableId], usize)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let counts = counts.into_iter().take(TRAVERSALS_SHOWN);
        let mut rows: Vec<StatisticRow> = counts
            .map(|(path, count)| {
                StatisticRow::new(
                    format!("flows through {}", format_path(path)),
                    share(count, self.flows),
                    "%",
                )
            })
            .collect();
        if traversals > TRAVERSALS_SHOWN {
            rows.push(StatisticRow::count("further traversals", traversals - TRAVERSALS_SHOWN));
        }
        rows
    }
}

/// Returns `count` in percent of `of`.
#[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
fn share(count: usize, of: usize) -> f64 {
    100.0 * count as f64 / of.max(1) as f64
}

/// Returns whether an action sends a packet to a port.
///
/// The generator limits the nesting of clones.
fn is_output(action: &DatapathAction) -> bool {
    match action {
        DatapathAction::Output { .. } | DatapathAction::OutputIngress { .. } => true,
        DatapathAction::Copy(actions) => actions.iter().any(is_output),
        _ => false,
    }
}

/// Maximum number of classes with their own rows.
const CLASSES_SHOWN: usize = 64;
/// Maximum number of traversals with their own rows.
const TRAVERSALS_SHOWN: usize = 24;

/// Formats a sequence of tables; a long one is abbreviated in the middle.
fn format_path(path: &[TableId]) -> String {
    let text =
        |path: &[TableId]| path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    match (path.first_chunk::<TABLES_AT_BEGIN>(), path.last_chunk::<TABLES_AT_END>()) {
        (Some(first), Some(last)) if path.len() > TABLES_SHOWN => {
            format!("{} .. {} ({} tables)", text(first), text(last), path.len())
        }
        _ => text(path),
    }
}

/// Maximum number of tables in the name of a traversal.
///
/// The name of a longer traversal shows its beginning and end.
const TABLES_SHOWN: usize = 32;
/// Number of tables at the beginning of a shortened name.
const TABLES_AT_BEGIN: usize = 16;
/// Number of tables at the end of a shortened name.
const TABLES_AT_END: usize = 8;

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, FlowKey, PortNo};

    use super::*;

    /// Returns a flow to an address and port.
    fn flow(address: u32, port: u16) -> Flow {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo::new(1));
        for (field, value) in [
            (FieldId::EthType, 0x0800),
            (FieldId::IpProto, 6),
            (FieldId::Ipv4Dst, address.into()),
            (FieldId::TcpDst, port.into()),
        ] {
            key.set_field(field, value);
        }
        Flow::new(&key, u16::from(address == 0))
    }

    #[test]
    fn flows_with_equal_masked_bits_share_an_entry() {
        let rules = [
            "priority=9,ip,nw_dst=10.0.0.0/8,actions=resubmit(,1)",
            "priority=1,actions=drop",
            "table=1,actions=output:2",
        ];
        let flows = [flow(0x0a00_0001, 1), flow(0x0a00_0002, 2), flow(0, 3)];
        let flow_traversals = FlowTraversals::of(rules, &flows, &Progress::hidden()).unwrap();
        assert_eq!(
            (flow_traversals.entries(), flow_traversals.entry_of_flows()),
            (2, &[0, 0, 1][..])
        );
        // Two sequences from the first table, and one visit of the second that two flows share.
        assert_eq!((flow_traversals.lookups, flow_traversals.steps.len()), (5, 3));
        let class = |name: &str, table_ids| FlowOrigin { name: name.to_owned(), table_ids };
        let rows =
            flow_traversals.rows(&[class("a", Some(vec![0, 1])), class("b", Some(vec![0, 1]))]);
        let value = |what: &str| rows.iter().find(|row| row.what == what).unwrap().value;
        assert!((value("flows that are forwarded") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows through 0 1") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows of b") - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(value("flows of a with the traversal of a"), 100.0);
        assert_eq!(value("flows of b with the traversal of b"), 0.0);
    }

    #[test]
    fn a_packet_in_alone_is_not_forwarded() {
        let rules =
            ["priority=9,ip,nw_dst=10.0.0.0/8,actions=controller", "priority=1,actions=output:2"];
        let flows = [flow(0x0a00_0001, 1), flow(0, 3)];
        let flow_traversals = FlowTraversals::of(rules, &flows, &Progress::hidden()).unwrap();
        assert_eq!(flow_traversals.forwarded, 1);
    }

    #[test]
    fn rules_with_missing_references_are_left_out() {
        let rules = ["priority=9,actions=group:7", "actions=output:2"];
        let flow_traversals =
            FlowTraversals::of(rules, &[flow(1, 1)], &Progress::hidden()).unwrap();
        assert_eq!((flow_traversals.refused, flow_traversals.forwarded), (1, 1));
        let rows = flow_traversals.rows(&[]);
        assert!(rows.iter().any(|row| row.what == LEFT_OUT));
    }

    #[test]
    fn packets_arrive_on_ports_of_any_number() {
        let mut key = flow(1, 1).key();
        key.set_in_port(PortNo::new(1000));
        let flows = [Flow::new(&key, 0)];
        let flow_traversals =
            FlowTraversals::of(["in_port=1000,actions=output:2"], &flows, &Progress::hidden());
        assert_eq!(flow_traversals.unwrap().forwarded, 1);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_shown() {
        let error =
            FlowTraversals::of(["ip,actions=ouptut:1"], &[], &Progress::hidden()).unwrap_err();
        assert!(error.to_string().contains("ip,actions=ouptut:1"), "{error}");
    }
}
