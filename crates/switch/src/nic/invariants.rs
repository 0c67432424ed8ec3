//! Randomized tests with devices that fail and replace each other.
//!
//! While the current device answers, it forwards every packet as the acknowledged version does.
//! When no work is left, the current device holds the intended entries, and previous devices hold
//! no entries.

use std::{cell::Cell, collections::VecDeque, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestError, TestRunner},
};
use shunt_datapath::{
    EvictionCoordinator, Waker,
    forecast::EntryForecast,
    offload::{OffloadAgent, OffloadCandidates, OffloadConfig, OffloadHandle, offload_endpoint},
};
use shunt_flow::{FlowKey, layout::HEADER_START};
use shunt_foresight::ForecastSource;
use shunt_gigaflow::{
    ltm::{LtmRule, Tag},
    offload::{
        Lost, LtmIndex, OffloadCapabilities, OffloadDevice, OffloadEvent, Operation, Ticket,
    },
    partition::StageId,
};
use shunt_pipeline::{
    BridgeId, Change, Iterative, OwnerId, Time, Traversal,
    testing::{
        CheckedPipeline,
        generate::{self, Op},
        visible,
    },
};
use shunt_testkit::offload::{Chaos, ChaosSettings, SoftwareDevice};

use super::device_exchange::{DeviceExchange, PredecessorState, SuccessorSender};

/// Bridge on which the packets of the tests arrive.
const BRIDGE: BridgeId = generate::BRIDGES[0];
/// Tag of a packet that enters the NIC.
const START: Tag = Tag::new(0);

/// A device with faults, which the test also reads.
type SharedDevice = Arc<Mutex<Chaos<SoftwareDevice>>>;

/// A device for tests, of which the test can read the entries.
///
/// The device is available after the first poll.
struct ObservedDevice {
    device: SharedDevice,
    capabilities: OffloadCapabilities,
    /// True until the first poll, which makes the device available.
    is_new: bool,
}

impl ObservedDevice {
    /// Returns a device that shares its entries with the test.
    fn new(device: &SharedDevice) -> Self {
        let capabilities = software_device().capabilities().clone();
        Self { device: Arc::clone(device), capabilities, is_new: true }
    }
}

impl OffloadDevice for ObservedDevice {
    fn capabilities(&self) -> &OffloadCapabilities {
        &self.capabilities
    }

    fn is_connected(&self) -> bool {
        !self.is_new && self.device.lock().is_connected()
    }

    fn room(&self, stage: StageId) -> usize {
        self.device.lock().room(stage)
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        if self.is_new { Err(Lost) } else { self.device.lock().submit(batch) }
    }

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        if std::mem::take(&mut self.is_new) {
            events.push(OffloadEvent::Restored);
        } else {
            self.device.lock().poll(events);
        }
    }

    fn forget(&mut self, entry: LtmIndex) {
        self.device.lock().forget(entry);
    }
}

/// An event of a test case.
#[derive(Clone, Debug)]
enum NicEvent {
    /// A packet misses the caches.
    Packet(Box<FlowKey>),
    /// A flow is forecast before its first packet.
    Forecast(Box<FlowKey>),
    /// The tables change, and the eviction coordinator receives the change.
    Change(Op),
    /// Agent and coordinator run one iteration.
    Turn,
    /// Time passes, in milliseconds.
    Wait(u64),
    /// Another device, or no device, replaces the current device.
    DeviceExchange { before: PredecessorState, is_other: bool, seed: u64 },
}

/// Returns any event of a NIC.
fn event() -> impl Strategy<Value = NicEvent> {
    let changing =
        generate::change().prop_filter("versions are kept", |op| !matches!(op, Op::Reclaim));
    let before = prop_oneof![2 => Just(PredecessorState::Runs), 1 => Just(PredecessorState::Ended)];
    let exchange = (before, prop_oneof![3 => Just(true), 1 => Just(false)], any::<u64>());
    prop_oneof![
        8 => generate::packet().prop_map(|key| NicEvent::Packet(Box::new(key))),
        3 => generate::packet().prop_map(|key| NicEvent::Forecast(Box::new(key))),
        2 => changing.prop_map(NicEvent::Change),
        10 => Just(NicEvent::Turn),
        1 => prop_oneof![Just(1), Just(20), Just(1100)].prop_map(NicEvent::Wait),
        1 => exchange.prop_map(|(before, is_other, seed)| NicEvent::DeviceExchange { before, is_other, seed }),
    ]
}

/// Returns any faults of a device.
fn chaos() -> impl Strategy<Value = ChaosSettings> {
    let often = || prop_oneof![2 => Just(0_u8), 1 => 16..=128_u8];
    let rare = prop_oneof![2 => Just(0_u8), 1 => 8..=64_u8];
    let made_up_room = prop_oneof![1 => Just(0), 1 => 1..100_usize];
    (often(), often(), often(), rare, 0..4_u32, made_up_room).prop_map(
        |(delay, hold_back, reject, disconnect, away, made_up_room)| ChaosSettings {
            delay,
            hold_back,
            reject,
            disconnect,
            away,
            made_up_room,
        },
    )
}

/// Generates the number of polls, of 256, that restart a device.
fn restarts() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0), 1 => 2..=24_u8]
}

/// A switch with an offload agent and exchangeable devices as its only cache owner.
struct OffloadFixture {
    checked: CheckedPipeline,
    coordinator: EvictionCoordinator,
    handle: OffloadHandle,
    /// The queue by which the agent gets its offload candidates.
    candidates: OffloadCandidates,
    owner: OffloadAgent<DeviceExchange<ObservedDevice>>,
    successors: SuccessorSender<ObservedDevice>,
    /// The faults that devices inject.
    chaos: ChaosSettings,
    /// Probability of a restart of a device per poll, in 256ths.
    restarts: u8,
    /// The time of the fixture, which starts at one second.
    now: Time,
    /// The current or the next device.
    device: Option<SharedDevice>,
    /// Previous devices that were still running when they were replaced.
    replaced: Vec<SharedDevice>,
    /// All devices of the test.
    devices: Vec<SharedDevice>,
    /// The headers of all packets so far.
    seen: Vec<FlowKey>,
    /// Number of packets that hit an entry of a device.
    hits: u64,
}

/// Clears the registers and metadata: a packet that arrives has none.
fn clear_hidden_state(key: &mut FlowKey) {
    let in_port = key.in_port();
    key.words_mut()[..HEADER_START].fill(0);
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(in_port);
}

/// Returns a device in software.
fn software_device() -> SoftwareDevice {
    SoftwareDevice::new(4, 20)
}

impl OffloadFixture {
    /// Returns a switch with the bridges of `ops`, and its first device.
    fn new(ops: &[Op], chaos: ChaosSettings, restarts: u8) -> Self {
        let checked = CheckedPipeline::new(ops);
        let version = checked.pipeline.version();
        let waker = Arc::new(Waker::new().unwrap());
        let (handle, ends, coordinator_endpoint, mut candidates) =
            offload_endpoint(OwnerId(0), version, 1, Arc::clone(&waker)).unwrap();
        let mut engine = Box::new(Iterative::new(Arc::clone(&checked.pipeline)));
        let _ = shunt_pipeline::Evictor::apply(&mut *engine, &[], version);
        let (coordinator, _) =
            EvictionCoordinator::new(engine, version, vec![coordinator_endpoint], waker);
        // The clock of the exchange does not advance, so that no device is abandoned before it is
        // empty.
        let nothing = software_device().capabilities().clone();
        let (exchange, successors) = DeviceExchange::new(nothing, || Time::ZERO);
        let config = OffloadConfig::new(BRIDGE);
        let owner = OffloadAgent::new(config, Arc::clone(&checked.pipeline), exchange, ends);
        let now = Time::ZERO.after(Duration::from_secs(1));
        let candidates = candidates.remove(0);
        let mut fixture = Self {
            checked,
            coordinator,
            handle,
            candidates,
            owner,
            successors,
            chaos,
            restarts,
            now,
            device: None,
            replaced: Vec::new(),
            devices: Vec::new(),
            seen: Vec::new(),
            hits: 0,
        };
        fixture.exchange(PredecessorState::Runs, Some(1));
        fixture
    }

    /// Replaces the offload device.
    fn exchange(&mut self, before: PredecessorState, seed: Option<u64>) {
        let next = seed.map(|seed| {
            let chaos = Chaos::new(software_device(), self.chaos, seed);
            Arc::new(Mutex::new(chaos.restarting(self.restarts, SoftwareDevice::restart)))
        });
        self.devices.extend(next.clone());
        let target = next.as_ref().map(ObservedDevice::new);
        self.successors.send(target, before);
        let left = std::mem::replace(&mut self.device, next);
        self.replaced.extend(left.filter(|_| before == PredecessorState::Runs));
    }

    /// Executes an event of the test case.
    fn apply(&mut self, event: NicEvent) {
        match event {
            NicEvent::Packet(mut key) => {
                clear_hidden_state(&mut key);
                self.candidates.offer(&visible(&key), self.now);
                self.seen.push(*key);
            }
            NicEvent::Forecast(mut key) => {
                clear_hidden_state(&mut key);
                let expires = self.now.after(Duration::from_secs(1));
                let entry = EntryForecast { source: ForecastSource::Reply, expires };
                drop(self.candidates.offer_forecast(&visible(&key), self.now, entry, None));
                self.seen.push(*key);
            }
            NicEvent::Change(op) => {
                if let Some(change) = self.checked.apply(&op) {
                    self.send_change(&change);
                }
            }
            NicEvent::Turn => self.run_iteration(),
            NicEvent::Wait(milliseconds) => {
                self.now = self.now.after(Duration::from_millis(milliseconds));
            }
            NicEvent::DeviceExchange { before, is_other, seed } => {
                self.exchange(before, is_other.then_some(seed));
            }
        }
    }

    /// Sends a change to the coordinator.
    fn send_change(&mut self, change: &Change) {
        self.coordinator.take_reports();
        if change.version > self.coordinator.version() {
            self.coordinator.apply(change.version, &change.deltas);
        }
    }

    /// Runs one iteration of the agent.
    fn run_iteration(&mut self) {
        self.owner.run_iteration(self.now);
        self.coordinator.run_iteration();
    }

    /// Returns the rules that the device has.
    fn held_rules(&self) -> Vec<(StageId, LtmRule)> {
        let Some(device) = &self.device else { return Vec::new() };
        let mut device = device.lock();
        let entries = device.inner().entries().values();
        sort_rules(entries.map(|entry| (entry.stage, (*entry.rule).clone())))
    }

    /// Returns whether the device may forward by stale entries.
    fn is_stale(&self) -> bool {
        self.handle.status().state.is_stale()
    }

    /// Checks that an answering device forwards as the acknowledged version does.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let Some(device) = self.device.as_ref().filter(|_| !self.is_stale()) else { return Ok(()) };
        let version = self.handle.acked_version();
        for key in &self.seen {
            let shown = visible(key);
            let Some(actions) = device.lock().inner().actions(START, &shown) else { continue };
            self.hits += 1;
            let right = self.checked.pipeline.translate(&shown, version);
            let own = Traversal { actions: actions.into(), ..right.clone() };
            let (own, right) = (self.checked.effects(&own, key), self.checked.effects(&right, key));
            prop_assert_eq!(own, right, "at version {:?}: {:?}", version, key);
        }
        Ok(())
    }

    /// Runs until no work is left and the current device is connected.
    fn run_to_rest(&mut self) -> Result<(), TestCaseError> {
        if self.device.is_none() {
            self.exchange(PredecessorState::Runs, Some(5));
        }
        let newest = self.checked.pipeline.version();
        let mut waiting: VecDeque<FlowKey> = self.seen.iter().cloned().collect();
        let mut turns = 0;
        loop {
            if let Some(key) = waiting.pop_front() {
                self.candidates.offer(&visible(&key), self.now);
            }
            self.run_iteration();
            self.now = self.now.after(Duration::from_millis(10));
            self.check()?;
            turns += 1;
            let is_quiet = waiting.is_empty()
                && turns > 100
                && !self.successors.is_pending()
                && !self.is_stale()
                && self.coordinator.acked_version() >= newest;
            if is_quiet
                && self.held_rules()
                    == sort_rules(
                        self.owner.intended_rules().map(|(stage, rule)| (stage, rule.clone())),
                    )
            {
                break;
            }
            prop_assert!(turns < 20_000, "the agent is never idle: {:?}", self.handle.status());
        }
        for device in &self.replaced {
            let held = device.lock().inner().entries().len();
            prop_assert_eq!(held, 0, "an abandoned device keeps no entries");
        }
        Ok(())
    }
}

/// Returns the seed in `SHUNT_SEED`, or 0.
///
/// With a fixed seed, each run has the same cases, so the totals at the end are comparable.
fn seed() -> u64 {
    std::env::var("SHUNT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default()
}

/// Sorts rules, so that two lists can be compared.
fn sort_rules(rules: impl Iterator<Item = (StageId, LtmRule)>) -> Vec<(StageId, LtmRule)> {
    let mut rules: Vec<_> = rules.collect();
    rules.sort_by_key(|(stage, rule)| {
        let matching = (rule.matching.mask().iter().collect::<Vec<_>>(), rule.matching.value());
        format!("{stage:?} {:?} {} {matching:?} {:?}", rule.tag, rule.length, rule.next)
    });
    rules
}

/// The networks and events of a case take two megabytes of the stack.
#[test]
fn exchanged_devices_forward_by_the_acknowledged_version() {
    let builder = thread::Builder::new().stack_size(8 << 20);
    builder.spawn(check_exchanged_devices).unwrap().join().unwrap();
}

/// Checks devices that are exchanged at random times.
fn check_exchanged_devices() {
    let rng_seed = RngSeed::Fixed(seed());
    let config =
        ProptestConfig { cases: 96, rng_seed, failure_persistence: None, ..Default::default() };
    let events = prop::collection::vec(event(), 1..120);
    let (hits, exchanges, restarted) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let result = TestRunner::new(config).run(
        &(generate::network(), chaos(), restarts(), events),
        |(ops, chaos, restarts, events)| {
            let mut fixture = OffloadFixture::new(&ops, chaos, restarts);
            for event in events {
                let is_exchange = matches!(event, NicEvent::DeviceExchange { .. });
                exchanges.set(exchanges.get() + u32::from(is_exchange));
                fixture.apply(event);
                fixture.check()?;
            }
            fixture.run_to_rest()?;
            hits.set(hits.get() + fixture.hits);
            let restarts = fixture.devices.iter().map(|device| device.lock().restarts_count());
            restarted.set(restarted.get() + restarts.sum::<u64>());
            Ok(())
        },
    );
    if let Err(TestError::Fail(reason, case)) = &result {
        panic!("{reason}\n{case:#?}");
    }
    assert!(hits.get() > 2000 && exchanges.get() > 50, "{} {}", hits.get(), exchanges.get());
    assert!(restarted.get() > 50, "devices restarted {} times", restarted.get());
}
