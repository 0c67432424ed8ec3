//! A workload in the tables of this process.

use std::sync::Arc;

use shunt_flow::{FlowKey, text::NoPortNames};
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, FlowMod, FlowModCommand, Pipeline, PortInfo, Time, Traversal,
    text::parse_rule,
};

/// The five published pipelines.
pub(crate) const PIPELINES: [&str; 5] = ["ofd", "psc", "ols", "ant", "otl"];
/// The names of high and low locality.
pub(crate) const LOCALITIES: [&str; 2] = ["high", "low"];

/// Reason why LTM entries of the longest pipeline save less than published.
pub(crate) const WHY_OLS: &str = "in thirty tables, most mask bits of a sub-traversal prove that \
                                  no rule of higher priority matches. These bits are required, \
                                  and they differ between flows. The published rules are unknown";

/// Returns the reason why misses differ by over 10 % from the published misses.
pub(crate) fn why_entries(workload: &str, is_more: bool) -> &'static str {
    if is_more && !workload.starts_with("otl") {
        "nearly each of these flows needs its own entry, and the cache has room for a third of \
         them; the published number of entries is unknown"
    } else if workload.starts_with("otl") {
        "only a low diversity of its matched fields is known. The OpenFlow table type pattern of \
         that name matches whole addresses. These differ between flows in low locality, but not \
         in high locality"
    } else {
        "the published flows hardly share masked headers, so they need as many entries as flows; \
         ours share them where a traversal reads few fields"
    }
}

const BRIDGE: BridgeId = BridgeId::new(1);
/// Number of ports: more than any pipeline has traversals.
const PORTS: u32 = 64;

/// A rule for a port that no bridge of the experiments has.
pub(crate) const UNUSED_PORT_RULE: &str = "table=0,priority=1,in_port=60000,actions=drop";

/// Returns the published number of packets: misses divided by the miss rate.
fn published_packets(pipeline: &str) -> usize {
    if pipeline == "otl" { 3_000_000 } else { 300_000 }
}

/// Returns the name of a workload of published size divided by `scale`.
pub(crate) fn published_name(pipeline: &str, locality: &str, scale: usize) -> String {
    let (flows, packets) = (100_000 / scale, published_packets(pipeline) / scale);
    format!("{pipeline}:{locality}:{flows}:packets={packets}")
}

/// Returns the workload with the name `name`.
pub(crate) fn workload(name: &str) -> Workload {
    let parsed = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    Workload::of(&parsed, &Progress::hidden()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A pipeline with the rules of a workload, and the headers of its flows.
pub(crate) struct Loaded {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) rules: Vec<FlowMod>,
    pub(crate) keys: Vec<FlowKey>,
}

impl Loaded {
    pub(crate) fn new(workload: &Workload) -> Self {
        Self::with(workload, |_| {})
    }

    /// Loads the workload with edited rules.
    pub(crate) fn with(workload: &Workload, edit: impl FnOnce(&mut Vec<String>)) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let _ = pipeline.set_ports(BRIDGE, (1..=PORTS).map(PortInfo::datapath).collect());
        let read = |text: &str| parse_rule(FlowModCommand::Add, text, &NoPortNames);
        let mut texts = workload.base_rules().map(|rule| rule.text.clone()).collect();
        edit(&mut texts);
        let rules: Vec<FlowMod> = texts
            .iter()
            .map(|rule| read(rule).unwrap_or_else(|error| panic!("{rule}: {error}")))
            .collect();
        let pipeline = Arc::new(pipeline);
        let loaded = Self { pipeline, rules, keys: keys(workload) };
        loaded.add(&loaded.rules);
        loaded
    }

    /// Translates the headers `key` with the current tables.
    pub(crate) fn translate(&self, key: &FlowKey) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(key, self.pipeline.version()))
    }

    /// Adds a rule that no packet of any workload matches.
    pub(crate) fn change(&self) -> Change {
        let rule = parse_rule(FlowModCommand::Add, UNUSED_PORT_RULE, &NoPortNames);
        let rule = rule.unwrap_or_else(|error| panic!("{UNUSED_PORT_RULE}: {error}"));
        self.add(&[rule])
    }

    fn add(&self, rules: &[FlowMod]) -> Change {
        let done = self.pipeline.apply(BRIDGE, rules, Time::ZERO);
        done.unwrap_or_else(|error| panic!("the rules are refused: {error}"))
    }
}

fn keys(workload: &Workload) -> Vec<FlowKey> {
    let key = |flow: &shunt_pipebench::traffic::Flow| {
        let mut key = flow.key();
        key.set_bridge(BRIDGE.number().into());
        key
    };
    workload.flows().iter().map(key).collect()
}
