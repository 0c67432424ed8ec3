//! Compares the software stages with the model: the same packets hit, and the stages have equally
//! many entries.
//!
//! The model distinguishes steps only by numbers, and `tests/model.rs` compares the model with
//! recorded results. In this test the numbers come from translated traversals. Two visits are the
//! same step if they consulted the same bits of one table and matched the same values and rule.

#![expect(clippy::unwrap_used, reason = "the generated workload is valid")]

use std::{collections::BTreeMap, fmt::Write as _};

use shunt_flow::{FlowKey, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, VecStore, Walk},
    outline::{Coupling, FieldSet},
    partition::PolicyName,
};
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, Pipeline, PortInfo, Time, Visit, text::parse_rule,
};
use shunt_testkit::partition::{model, workload};

const BRIDGE: BridgeId = BridgeId::new(1);

/// A pipeline with flows, and the packets to replay as indices of flows.
struct Testbed {
    pipeline: Pipeline,
    flows: Vec<FlowKey>,
    packets: Vec<usize>,
}

impl Testbed {
    fn new(name: &str) -> Self {
        let workload = Workload::of(&name.parse().unwrap(), &Progress::hidden()).unwrap();
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=64).map(PortInfo::datapath).collect()).unwrap();
        let rule = |text: &str| parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
        let rules: Vec<_> = workload.base_rules().map(|line| rule(&line.text)).collect();
        pipeline.apply(BRIDGE, &rules, Time::ZERO).unwrap();
        let key = |flow: &shunt_pipebench::traffic::Flow| {
            let mut key = flow.key();
            key.set_bridge(BRIDGE.number().into());
            key
        };
        Self {
            pipeline,
            flows: workload.flows().iter().map(key).collect(),
            packets: workload.packets().map(|packet| packet.flow as usize).collect(),
        }
    }

    /// Returns the workload with numbered steps, for the model.
    fn steps(&self) -> workload::RecordedWorkload {
        let mut numbers = BTreeMap::new();
        let (mut steps, mut paths) = ("steps\n".to_owned(), "paths\n".to_owned());
        for key in &self.flows {
            let traversal = self.pipeline.translate(key, self.pipeline.version());
            for visit in &traversal.visits {
                let next = numbers.len();
                let number = *numbers.entry(step(visit)).or_insert_with(|| {
                    let fields = initials(FieldSet::consulted(&visit.mask));
                    writeln!(steps, "{} {fields}", visit.table.number()).unwrap();
                    next
                });
                write!(paths, "{number} ").unwrap();
            }
            paths.push('\n');
        }
        let packets: Vec<String> = self.packets.iter().map(ToString::to_string).collect();
        let text = format!("{steps}{paths}packets\n{}\n", packets.join(" "));
        workload::RecordedWorkload::parse(&text).unwrap()
    }

    /// Returns the hit of each packet, and the final number of entries per stage.
    fn replay(&self, policy: PolicyName, capacity: Capacity) -> (Vec<bool>, Vec<usize>) {
        let mut cache = Gigaflow::new(Config {
            capacity,
            policy,
            fallback: Fallback::Off,
            eviction: Eviction::Never,
            tag_bits: 16,
            seed: 1,
        });
        let (mut store, mut walk) = (VecStore::default(), Walk::default());
        let (pipeline, version) = (&self.pipeline, self.pipeline.version());
        let mut packet = |flow: &usize| {
            let key = &self.flows[*flow];
            let is_hit = cache.find(&store, key, &mut walk);
            if !is_hit {
                let miss = Miss { pipeline, key, start: None, version, now: Time::ZERO };
                cache.handle_miss(&mut store, miss, ProbeResult::Missed);
            }
            is_hit
        };
        let hits = self.packets.iter().map(&mut packet).collect();
        let stages = (0..capacity.stages_count)
            .filter_map(shunt_gigaflow::partition::StageId::new)
            .map(|stage| cache.ltm().len(stage));
        (hits, stages.collect())
    }
}

type SeenBits = Vec<(usize, u64, u64)>;

fn step(visit: &Visit) -> (u8, Option<u64>, SeenBits) {
    let seen = visit.mask.iter().map(|(index, mask)| (index, mask, mask & visit.key.word(index)));
    let seen = seen.collect();
    (visit.table.number(), visit.rule.as_ref().map(|rule| rule.id.number()), seen)
}

fn initials(fields: FieldSet) -> String {
    let names = [
        (Coupling::EthSrc, "es"),
        (Coupling::EthDst, "ed"),
        (Coupling::IpSrc, "is"),
        (Coupling::IpDst, "id"),
        (Coupling::IpProto, "pr"),
        (Coupling::TpSrc, "ts"),
        (Coupling::TpDst, "td"),
    ];
    let named: Vec<_> =
        names.iter().filter(|(field, _)| fields.contains(*field)).map(|(_, name)| *name).collect();
    if named.is_empty() { "-".to_owned() } else { named.join(",") }
}

fn compare(name: &str) {
    let testbed = Testbed::new(name);
    let steps = testbed.steps();
    for policy in [PolicyName::Megaflow, PolicyName::Disjoint, PolicyName::Joint] {
        for (stages_count, stage_entries_max) in [(1, 400), (4, 100), (4, 10_000)] {
            let capacity = Capacity { stages_count, stage_entries_max };
            let expected = model::replay(&steps, capacity, &mut policy.policy(1));
            let (hits, entries) = testbed.replay(policy, capacity);
            let differs = hits.iter().zip(&expected.hits).position(|(own, model)| own != model);
            assert_eq!(differs, None, "{name} {policy} {capacity:?}");
            assert_eq!(entries, expected.entries, "{name} {policy} {capacity:?}");
            assert!(hits.iter().any(|hit| *hit) && !hits.iter().all(|hit| *hit));
        }
    }
}

#[test]
fn packets_of_psc_hit_where_the_model_says() {
    compare("psc:high:400:rules=300:packets=2000");
}

#[test]
fn packets_of_ofd_hit_where_the_model_says() {
    compare("ofd:low:400:rules=300:packets=2000");
}

#[test]
fn packets_of_ols_hit_where_the_model_says() {
    compare("ols:high:400:rules=300:packets=2000:seed=2");
}

#[test]
fn packets_of_ant_hit_where_the_model_says() {
    compare("ant:low:400:rules=300:packets=2000");
}

#[test]
fn packets_of_otl_hit_where_the_model_says() {
    compare("otl:high:400:rules=300:packets=2000");
}
