//! A test switch: a device, its agent, the coordinator and the tables; tests run each step.

use std::{sync::Arc, time::Duration};

use shunt_classifier::Version;
use shunt_datapath::{
    EvictionCoordinator, Waker,
    forecast::{DeviceWatch, EntryForecast},
    offload::{
        OffloadAgent, OffloadCandidates, OffloadConfig, OffloadHandle, OffloadStatus,
        offload_endpoint,
    },
};
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_foresight::ForecastSource;
use shunt_gigaflow::{
    ltm::{LtmRule, Tag},
    offload::{OffloadDevice, Operation},
    partition::{PolicyName, StageId},
};
use shunt_pipeline::{
    BridgeId, Change, FlowModCommand, Iterative, OwnerId, Time,
    testing::{
        CheckedPipeline, bridge_with_rules,
        generate::{self, Op},
        set_test_word, visible,
    },
    text::parse_rule,
};
use shunt_testkit::offload::SoftwareDevice;

/// The bridge on which packets arrive.
pub(crate) const BRIDGE: BridgeId = generate::BRIDGES[0];

/// The tag of a packet before its first lookup in the device.
pub(crate) const START: Tag = Tag::new(0);

/// A switch with the agent of an offload device as its only owner.
pub(crate) struct OffloadSwitch<T: OffloadDevice> {
    pub(crate) checked: CheckedPipeline,
    pub(crate) coordinator: EvictionCoordinator,
    pub(crate) handle: OffloadHandle,
    pub(crate) offers: OffloadCandidates,
    pub(crate) owner: OffloadAgent<T>,
    pub(crate) now: Time,
}

pub(crate) fn config() -> OffloadConfig {
    OffloadConfig { policy: PolicyName::OneToOne, ..OffloadConfig::new(BRIDGE) }
}

/// Returns the operations that create a bridge with ports 1 to 4 and these rules.
pub(crate) fn network(rules: &[&str]) -> Vec<Op> {
    let ops = bridge_with_rules(BRIDGE, rules);
    // Panics if the tables refuse a rule, because the tests would then test nothing.
    drop(CheckedPipeline::taking(&ops));
    ops
}

/// Rules of two tables.
/// Table 0 decides by the source address, and table 1 by the destination address.
pub(crate) const TWO_TABLES: &[&str] = &[
    "table=0,priority=1,ip,nw_src=10.0.0.1,actions=set_field:1->metadata,goto_table:1",
    "table=0,priority=1,ip,nw_src=10.0.0.2,actions=set_field:1->metadata,goto_table:1",
    "table=0,priority=1,ip,nw_src=10.0.0.3,actions=set_field:2->metadata,goto_table:1",
    "table=1,priority=2,metadata=2,ip,nw_dst=10.0.0.9,actions=output:4",
    "table=1,priority=1,ip,nw_dst=10.0.0.8,actions=output:2",
    "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:3",
];

/// Returns the flow key of a packet between two hosts of 10.0.0.0/24.
pub(crate) fn packet(source: u8, device: u8) -> FlowKey {
    let text = format!("ip,nw_src=10.0.0.{source},nw_dst=10.0.0.{device},actions=drop");
    let parsed = parse_rule(FlowModCommand::Add, &text, &NoPortNames).expect("a legal match");
    let mut key = parsed.matching.key();
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::NwTtl, 64);
    set_test_word(&mut key, 0x0800, 100);
    key
}

pub(crate) fn request(command: FlowModCommand, rule: &str) -> Op {
    Op::Apply(BRIDGE, vec![parse_rule(command, rule, &NoPortNames).expect("a legal rule")])
}

impl<T: OffloadDevice> OffloadSwitch<T> {
    pub(crate) fn new(ops: &[Op], config: OffloadConfig, device: T) -> Self {
        let checked = CheckedPipeline::new(ops);
        let version = checked.pipeline.version();
        let waker = Arc::new(Waker::new().unwrap());
        let (handle, ends, coordinator_endpoint, mut offers) =
            offload_endpoint(OwnerId(0), version, 1, Arc::clone(&waker)).unwrap();
        let mut engine = Box::new(Iterative::new(Arc::clone(&checked.pipeline)));
        let _ = shunt_pipeline::Evictor::apply(&mut *engine, &[], version);
        let (coordinator, _) =
            EvictionCoordinator::new(engine, version, vec![coordinator_endpoint], waker);
        let owner = OffloadAgent::new(config, Arc::clone(&checked.pipeline), device, ends);
        let now = Time::ZERO.after(Duration::from_secs(1));
        Self { checked, coordinator, handle, offers: offers.remove(0), owner, now }
    }

    /// Replaces the agent by another agent with the same owner number and a new device.
    pub(crate) fn succeed(self, config: OffloadConfig, device: T) -> Self {
        let Self { checked, mut coordinator, owner, now, .. } = self;
        drop(owner);
        let waker = Arc::clone(coordinator.waker());
        let made = offload_endpoint(OwnerId(0), coordinator.version(), 1, waker);
        let (handle, ends, coordinator_endpoint, mut offers) = made.unwrap();
        coordinator.join(coordinator_endpoint);
        let owner = OffloadAgent::new(config, Arc::clone(&checked.pipeline), device, ends);
        Self { checked, coordinator, handle, offers: offers.remove(0), owner, now }
    }

    /// Offers the flow of a packet that missed as a candidate.
    pub(crate) fn offer(&mut self, key: &FlowKey) {
        self.offers.offer(&visible(key), self.now);
    }

    /// Offers a forecast of a packet to the device; the forecast expires after `time`.
    pub(crate) fn offer_forecast(&mut self, key: &FlowKey, time: Duration) -> DeviceWatch {
        let entry = EntryForecast { source: ForecastSource::Reply, expires: self.now.after(time) };
        self.offers.offer_forecast(&visible(key), self.now, entry, None)
    }

    pub(crate) fn run_iteration(&mut self) -> bool {
        self.owner.run_iteration(self.now)
    }

    /// Runs the agent and the coordinator until no work is left.
    pub(crate) fn settle(&mut self) {
        while self.run_iteration() | self.coordinator.run_iteration() {}
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// Changes the tables, and sends the change to the coordinator.
    pub(crate) fn change(&mut self, op: &Op) -> Version {
        let change = self.checked.apply(op).expect("the operation changes something");
        self.send_change(&change);
        change.version
    }

    pub(crate) fn send_change(&mut self, change: &Change) {
        self.coordinator.take_reports();
        if change.version > self.coordinator.version() {
            self.coordinator.apply(change.version, &change.deltas);
        }
    }

    pub(crate) fn acked_version(&self) -> Version {
        self.coordinator.acked_version()
    }

    pub(crate) fn status(&self) -> OffloadStatus {
        self.handle.status()
    }

    /// Returns the entries that the agent intends the device to have, in order.
    pub(crate) fn intended(&self) -> Vec<(StageId, LtmRule)> {
        sort_entries(self.owner.intended_rules().map(|(stage, rule)| (stage, rule.clone())))
    }
}

impl OffloadSwitch<SoftwareDevice> {
    /// Creates a switch with the rules [`TWO_TABLES`] and a device of four stages.
    pub(crate) fn two_tables() -> Self {
        Self::new(&network(TWO_TABLES), config(), SoftwareDevice::new(4, 100))
    }

    pub(crate) fn device(&mut self) -> &mut SoftwareDevice {
        self.owner.device()
    }

    /// Offers flows as candidates, and runs until their entries are in the device.
    pub(crate) fn fill(&mut self, flows: &[(u8, u8)]) {
        flows.iter().for_each(|(source, device)| self.offer(&packet(*source, *device)));
        self.settle();
    }

    /// Returns whether a packet hits in the device.
    /// Checks that a hit has the effects of the tables.
    pub(crate) fn hits(&mut self, key: &FlowKey) -> bool {
        let Some(actions) = self.device().actions(START, &visible(key)) else { return false };
        let right = self.checked.translate(key);
        let own = shunt_pipeline::Traversal { actions: actions.into(), ..right.clone() };
        assert_eq!(self.checked.effects(&own, key), self.checked.effects(&right, key));
        true
    }

    /// Returns the entries that the device holds, in order.
    pub(crate) fn held(&mut self) -> Vec<(StageId, LtmRule)> {
        held(self.device())
    }

    /// Returns stages of insertions, and number of removals, since the last call.
    pub(crate) fn log(&mut self) -> (Vec<u8>, usize) {
        let log = std::mem::take(&mut self.device().log);
        let stages = log.iter().filter_map(|operation| match operation {
            Operation::Insert { stage, .. } => Some(stage.number()),
            _ => None,
        });
        let removals = log.iter().filter(|one| matches!(one, Operation::Remove { .. }));
        (stages.collect(), removals.count())
    }
}

pub(crate) fn held(device: &SoftwareDevice) -> Vec<(StageId, LtmRule)> {
    sort_entries(device.entries().values().map(|entry| (entry.stage, (*entry.rule).clone())))
}

fn sort_entries(rules: impl Iterator<Item = (StageId, LtmRule)>) -> Vec<(StageId, LtmRule)> {
    let mut rules: Vec<_> = rules.collect();
    rules.sort_by_key(|(stage, rule)| {
        let matching = (rule.matching.mask().iter().collect::<Vec<_>>(), rule.matching.value());
        format!("{stage:?} {:?} {} {matching:?} {:?}", rule.tag, rule.length, rule.next)
    });
    rules
}
