//! What becomes of the flows of a workload: the way of each through the tables, and the cache entries
//! that a switch with one cache of masked headers makes for them.
//!
//! The rules are those of the workload as text, read and looked up as a switch does it, so the figures
//! hold what the rules do and not what their maker had in mind.

use std::collections::{BTreeMap, HashSet};

use shunt_flow::{Match, SparseMask, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, Pipeline, PortInfo, TableId, Time, text::parse_rule,
};

use crate::{Progress, WorkloadError, statistics::Row, traffic::Flow};

/// What became of flows.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    flows: usize,
    /// Masks of the entries.
    masks: HashSet<SparseMask, foldhash::fast::FixedState>,
    /// Entries.
    entries: HashSet<Match, foldhash::fast::FixedState>,
    /// Table lookups, and how many of them differ in the bits that they look at.
    lookups: usize,
    steps: HashSet<(TableId, Match), foldhash::fast::FixedState>,
    /// How many flows went through these tables.
    paths: BTreeMap<Vec<TableId>, usize>,
    classes: BTreeMap<u16, usize>,
    /// How many were forwarded.
    forwarded: usize,
}

/// Seed of the hashes of the tables; no figure depends on it.
const SEED: u64 = 1;
/// Flows after which progress is told.
const STEP: usize = 1000;
/// Ports that the bridge has.
const PORTS: u32 = 256;

impl Fates {
    /// Sends the first packet of each flow through these rules.
    ///
    /// # Errors
    ///
    /// A rule that cannot be read or added.
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a str>,
        flows: &[Flow],
        progress: &Progress,
    ) -> Result<Self, WorkloadError> {
        let (pipeline, bridge) = (Pipeline::new(SEED), BridgeId::new(1));
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let ports = (1..=PORTS).map(PortInfo::datapath).collect();
        // The bridge is there: it was added above.
        let _ = pipeline.set_ports(bridge, ports);
        let mut mods = Vec::new();
        for text in rules {
            let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames);
            mods.push(rule.map_err(|error| WorkloadError::rule(text, &error))?);
        }
        pipeline
            .apply(bridge, &mods, Time::ZERO)
            .map_err(|error| WorkloadError::Rules(error.to_string()))?;
        let mut fates = Self::default();
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
        self.entries.insert(entry);
        for visit in &traversal.visits {
            self.lookups += 1;
            self.steps.insert((visit.table, Match::of(&visit.key, &visit.mask)));
        }
        let path = traversal.lookups().map(|visit| visit.table).collect();
        *self.paths.entry(path).or_default() += 1;
        *self.classes.entry(flow.class).or_default() += 1;
        self.forwarded += usize::from(!traversal.actions.is_empty());
        self.flows += 1;
    }

    /// How many entries of masked headers the flows need.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// How many masks those have.
    #[must_use]
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// The figures; `classes` names what flows were drawn from.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn rows(&self, classes: &[String]) -> Vec<Row> {
        let share = |count: usize| 100.0 * count as f64 / self.flows.max(1) as f64;
        let mut rows = vec![
            Row::count("entries of one cache for all flows", self.entries()),
            Row::count("masks of those entries", self.masks()),
            Row::count("lookups of all flows", self.lookups),
            Row::new(
                "lookups that share a step",
                self.lookups as f64 / self.steps.len().max(1) as f64,
                "each",
            ),
            Row::new("flows that are forwarded", share(self.forwarded), "%"),
        ];
        let even = 100.0 / classes.len().max(1) as f64;
        for (class, name) in classes.iter().enumerate() {
            let count = u16::try_from(class).ok().and_then(|class| self.classes.get(&class));
            let value = share(count.copied().unwrap_or(0));
            rows.push(
                Row::new(format!("flows meant for {name}"), value, "%").against(even, "even"),
            );
        }
        let mut paths: Vec<(&Vec<TableId>, &usize)> = self.paths.iter().collect();
        paths.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        for (path, count) in paths.into_iter().take(PATHS_SHOWN) {
            rows.push(Row::new(format!("flows through {}", listed(path)), share(*count), "%"));
        }
        if self.paths.len() > PATHS_SHOWN {
            rows.push(Row::count(
                "further ways through the tables",
                self.paths.len() - PATHS_SHOWN,
            ));
        }
        rows
    }
}

/// Ways through the tables that are named.
const PATHS_SHOWN: usize = 24;

fn listed(path: &[TableId]) -> String {
    path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

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
        assert_eq!(fates.entries(), 2);
        // Two ways out of the first table, and one through the second that two flows share.
        assert_eq!((fates.lookups, fates.steps.len()), (5, 3));
        let rows = fates.rows(&["a".to_owned(), "b".to_owned()]);
        let value = |what: &str| rows.iter().find(|row| row.what == what).unwrap().value;
        assert!((value("flows that are forwarded") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows through 0 1") - 200.0 / 3.0).abs() < 1e-9);
        assert!((value("flows meant for b") - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_shown() {
        let error = Fates::of(["ip,actions=ouptut:1"], &[], &Progress::hidden()).unwrap_err();
        assert!(error.to_string().contains("ip,actions=ouptut:1"), "{error}");
    }
}
