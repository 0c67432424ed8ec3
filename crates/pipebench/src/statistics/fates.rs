//! What becomes of the flows of a workload: the way of each through the tables, and the cache entries
//! that a switch with one cache of masked headers makes for them.
//!
//! The rules are those of the workload as text, read and looked up as a switch does it, so the figures
//! hold what the rules do and not what their maker had in mind.

use std::collections::{BTreeMap, HashMap, HashSet};

use shunt_flow::{Match, SparseMask, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathAction, FlowModCommand, Pipeline, PortInfo, TableId, Time,
    text::parse_rule,
};

use crate::{Progress, WorkloadError, statistics::Row, traffic::Flow};

/// What became of flows.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    flows: usize,
    /// Masks of the entries.
    masks: HashSet<SparseMask, foldhash::fast::FixedState>,
    /// Entries, with their numbers.
    entries: HashMap<Match, u32, foldhash::fast::FixedState>,
    /// The number of each flow's entry.
    entry_of: Vec<u32>,
    /// Table lookups, and how many of them differ in the bits that they look at.
    lookups: usize,
    steps: HashSet<(TableId, Match), foldhash::fast::FixedState>,
    /// How many flows of each class went through these tables.
    ways: BTreeMap<(u16, Vec<TableId>), usize>,
    /// How many were sent to a port.
    forwarded: usize,
    /// Rules that were left out.
    refused: usize,
}

/// What flows were drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: String,
    /// The tables that its flows are meant to go through, if any are.
    pub way: Option<Vec<u8>>,
}

/// Rules that refer to what a dump does not have: the flows below fare as if they were not there.
const LEFT_OUT: &str =
    "rules on groups and the like that are not there: what follows is without them";

/// Seed of the hashes of the tables; no figure depends on it.
const SEED: u64 = 1;
/// Flows after which progress is told.
const STEP: usize = 1000;
/// Ports that the bridge has at least.
const PORTS: u32 = 256;
/// Most ports that it has, those that OpenFlow has numbers for.
const PORTS_MAX: u32 = 0xff00;

impl Fates {
    /// Sends the first packet of each flow through these rules.
    ///
    /// # Errors
    ///
    /// A rule that cannot be read. One that refers to what is not there, such as a group, is left out.
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
        // The bridge is there: it was added above.
        let _ = pipeline.set_ports(bridge, ports);
        let mut mods = Vec::new();
        for text in rules {
            let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames);
            mods.push(rule.map_err(|error| WorkloadError::rule(text, &error))?);
        }
        let mut fates = Self::default();
        if pipeline.apply(bridge, &mods, Time::ZERO).is_err() {
            // What another switch knows and this one does not is left out, and told.
            let refused =
                mods.chunks(1).filter(|one| pipeline.apply(bridge, one, Time::ZERO).is_err());
            fates.refused = refused.count();
        }
        for some in flows.chunks(STEP) {
            some.iter().for_each(|flow| fates.add(&pipeline, bridge, flow));
            progress.advance(u64::try_from(some.len()).unwrap_or(0));
        }
        Ok(fates)
    }

    fn add(&mut self, pipeline: &Pipeline, bridge: BridgeId, flow: &Flow) {
        let mut key = flow.key();
        key.set_bridge(bridge.number().into());
        let traversal = pipeline.translate(&key, pipeline.version());
        let entry = Match::of(&traversal.key, &traversal.mask);
        self.masks.insert(entry.mask().clone());
        let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entry_of.push(*self.entries.entry(entry).or_insert(next));
        for visit in &traversal.visits {
            self.lookups += 1;
            self.steps.insert((visit.table, Match::of(&visit.key, &visit.mask)));
        }
        let path = traversal.lookups().map(|visit| visit.table).collect();
        *self.ways.entry((flow.class, path)).or_default() += 1;
        self.forwarded += usize::from(traversal.actions.iter().any(is_output));
        self.flows += 1;
    }

    /// How many entries of masked headers the flows need.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Which of these entries each flow needs: entries of one version never overlap, so it is one.
    #[must_use]
    pub fn entry_of_flows(&self) -> &[u32] {
        &self.entry_of
    }

    /// How many masks those have.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// The figures; `classes` tells what flows were drawn from.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn rows(&self, classes: &[Class]) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.refused > 0 {
            rows.push(Row::count(LEFT_OUT, self.refused));
        }
        rows.extend([
            Row::count("entries of one cache for all flows", self.entries()),
            Row::count("masks of those entries", self.masks()),
            Row::count("lookups of all flows", self.lookups),
            Row::new(
                "lookups that share a step",
                self.lookups as f64 / self.steps.len().max(1) as f64,
                "each",
            ),
            Row::new("flows that are forwarded", share(self.forwarded, self.flows), "%"),
        ]);
        rows.extend(self.class_rows(classes));
        rows.extend(self.way_rows());
        rows
    }

    /// How many flows there are of each class, and how many of them take its way.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn class_rows(&self, classes: &[Class]) -> Vec<Row> {
        let even = 100.0 / classes.len().max(1) as f64;
        let mut rows = Vec::new();
        for (number, class) in (0..).zip(classes).take(CLASSES_SHOWN) {
            let ways =
                || self.ways.range((number, Vec::new())..).take_while(|way| way.0.0 == number);
            let flows = ways().map(|(_, count)| count).sum();
            let row = Row::new(format!("flows of {}", class.name), share(flows, self.flows), "%");
            rows.push(row.against(even, "even"));
            if let Some(way) = &class.way {
                let is_meant =
                    |path: &[TableId]| path.iter().map(|id| id.number()).eq(way.iter().copied());
                let meant = ways().filter(|((_, path), _)| is_meant(path));
                let meant = share(meant.map(|(_, count)| count).sum(), flows);
                let row = Row::new(format!("of those, by the way of {}", class.name), meant, "%");
                rows.push(row.against(100.0, "the pipeline"));
            }
        }
        rows
    }

    /// How many flows take each way.
    fn way_rows(&self) -> Vec<Row> {
        let mut counts: BTreeMap<&[TableId], usize> = BTreeMap::new();
        for ((_, path), count) in &self.ways {
            *counts.entry(path).or_default() += count;
        }
        let ways = counts.len();
        let mut counts: Vec<(&[TableId], usize)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let counts = counts.into_iter().take(WAYS_SHOWN);
        let mut rows: Vec<Row> = counts
            .map(|(path, count)| {
                Row::new(format!("flows through {}", listed(path)), share(count, self.flows), "%")
            })
            .collect();
        if ways > WAYS_SHOWN {
            rows.push(Row::count("further ways through the tables", ways - WAYS_SHOWN));
        }
        rows
    }
}

/// Percent of flows.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn share(count: usize, of: usize) -> f64 {
    100.0 * count as f64 / of.max(1) as f64
}

/// Whether an action sends a packet to a port; how deep copies nest is bounded where they are made.
fn is_output(action: &DatapathAction) -> bool {
    match action {
        DatapathAction::Output { .. } | DatapathAction::OutputIngress { .. } => true,
        DatapathAction::Copy(actions) => actions.iter().any(is_output),
        _ => false,
    }
}

/// Classes that are named.
const CLASSES_SHOWN: usize = 64;
/// Ways through the tables that are named.
const WAYS_SHOWN: usize = 24;

/// A way as text: of a long one how it begins and ends.
fn listed(path: &[TableId]) -> String {
    let text =
        |path: &[TableId]| path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    match (path.first_chunk::<WAY_BEGINS>(), path.last_chunk::<WAY_ENDS>()) {
        (Some(first), Some(last)) if path.len() > WAY_SHOWN => {
            format!("{} .. {} ({} tables)", text(first), text(last), path.len())
        }
        _ => text(path),
    }
}

/// Tables of a way that are named, and if there are more, of its beginning and end.
const WAY_SHOWN: usize = 32;
const WAY_BEGINS: usize = 16;
const WAY_ENDS: usize = 8;

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, FlowKey, PortNo};

    use super::*;

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
    fn flows_that_agree_in_what_matters_share_an_entry() {
        let rules = [
            "priority=9,ip,nw_dst=10.0.0.0/8,actions=resubmit(,1)",
            "priority=1,actions=drop",
            "table=1,actions=output:2",
        ];
        let flows = [flow(0x0a00_0001, 1), flow(0x0a00_0002, 2), flow(0, 3)];
        let fates = Fates::of(rules, &flows, &Progress::hidden()).unwrap();
        assert_eq!((fates.entries(), fates.entry_of_flows()), (2, &[0, 0, 1][..]));
        // Two ways out of the first table, and one through the second that two flows share.
        assert_eq!((fates.lookups, fates.steps.len()), (5, 3));
        let class = |name: &str, way| Class { name: name.to_owned(), way };
        let rows = fates.rows(&[class("a", Some(vec![0, 1])), class("b", Some(vec![0, 1]))]);
        let value = |what: &str| rows.iter().find(|row| row.what == what).unwrap().value;
        assert!((value("flows that are forwarded") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows through 0 1") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows of b") - 100.0 / 3.0).abs() < 1e-9);
        assert_eq!(value("of those, by the way of a"), 100.0);
        assert_eq!(value("of those, by the way of b"), 0.0);
    }

    #[test]
    fn a_packet_that_goes_to_a_controller_alone_is_not_forwarded() {
        let rules =
            ["priority=9,ip,nw_dst=10.0.0.0/8,actions=controller", "priority=1,actions=output:2"];
        let flows = [flow(0x0a00_0001, 1), flow(0, 3)];
        let fates = Fates::of(rules, &flows, &Progress::hidden()).unwrap();
        assert_eq!(fates.forwarded, 1);
    }

    #[test]
    fn rules_that_refer_to_what_is_not_there_are_left_out_and_told() {
        let rules = ["priority=9,actions=group:7", "actions=output:2"];
        let fates = Fates::of(rules, &[flow(1, 1)], &Progress::hidden()).unwrap();
        assert_eq!((fates.refused, fates.forwarded), (1, 1));
        let rows = fates.rows(&[]);
        assert!(rows.iter().any(|row| row.what == LEFT_OUT));
    }

    #[test]
    fn packets_come_in_by_ports_of_any_number() {
        let mut key = flow(1, 1).key();
        key.set_in_port(PortNo::new(1000));
        let flows = [Flow::new(&key, 0)];
        let fates = Fates::of(["in_port=1000,actions=output:2"], &flows, &Progress::hidden());
        assert_eq!(fates.unwrap().forwarded, 1);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_shown() {
        let error = Fates::of(["ip,actions=ouptut:1"], &[], &Progress::hidden()).unwrap_err();
        assert!(error.to_string().contains("ip,actions=ouptut:1"), "{error}");
    }
}
