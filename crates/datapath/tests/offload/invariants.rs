//! Tests the invariants of offload with random rules, random events and a faulty device.
//!
//! While the device confirms removals, it forwards each packet as the acknowledged version does.
//! Once no work is left, the device holds the entries that the agent intends.

use std::{collections::VecDeque, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestError, TestRunner},
};
use shunt_flow::{FlowKey, layout::HEADER_START};
use shunt_gigaflow::{ltm::Eviction, offload::Effects, partition::PolicyName};
use shunt_pipeline::{
    Change, Traversal,
    testing::{
        generate::{self, Op},
        visible,
    },
};
use shunt_testkit::offload::{Chaos, ChaosSettings, SoftwareDevice};

use crate::harness::{BRIDGE, OffloadSwitch, START, config, held};
use shunt_datapath::offload::OffloadConfig;

type Misbehaving = OffloadSwitch<Chaos<SoftwareDevice>>;

/// One event of a run.
#[derive(Clone, Debug)]
enum Event {
    /// A packet misses the caches, and is offered to the device.
    Packet(Box<FlowKey>),
    /// A packet misses that has the same consulted bits as an earlier packet.
    Sibling(prop::sample::Index),
    /// A packet is forecast to arrive within a time in milliseconds.
    Forecast(Box<FlowKey>, u64),
    /// The tables change; the coordinator receives the change later.
    Change(Op),
    /// The coordinator applies a change, if one waits.
    Apply,
    /// The coordinator takes one report.
    TakeOne,
    /// The agent runs an iteration.
    Turn,
    /// Time passes without another event.
    Wait(u64),
    /// The device restarts without a notification.
    Restart,
    /// Old versions of the tables are reclaimed.
    Reclaim,
}

fn event() -> impl Strategy<Value = Event> {
    let changing =
        generate::change().prop_filter("versions are kept", |op| !matches!(op, Op::Reclaim));
    prop_oneof![
        4 => generate::packet().prop_map(|key| Event::Packet(Box::new(key))),
        6 => any::<prop::sample::Index>().prop_map(Event::Sibling),
        3 => (generate::packet(), 1..3000_u64)
            .prop_map(|(key, milliseconds)| Event::Forecast(Box::new(key), milliseconds)),
        2 => changing.prop_map(Event::Change),
        3 => Just(Event::Apply),
        2 => Just(Event::TakeOne),
        8 => Just(Event::Turn),
        1 => prop_oneof![Just(1), Just(20), Just(700), Just(11_000)].prop_map(Event::Wait),
        1 => Just(Event::Restart),
        1 => Just(Event::Reclaim),
    ]
}

fn chaos() -> impl Strategy<Value = ChaosSettings> {
    let often = || prop_oneof![2 => Just(0_u8), 1 => 16..=128_u8];
    let rare = prop_oneof![2 => Just(0_u8), 1 => 8..=64_u8];
    (often(), often(), often(), rare, 0..4_u32, 0..100_usize).prop_map(
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

/// Number of polls, of 256, at which the device restarts.
fn restarts() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0_u8), 1 => 2..=24_u8]
}

/// The random settings of a device.
#[derive(Clone, Copy, Debug)]
struct Plan {
    stages: usize,
    /// The announced and the real capacity of a stage, in entries.
    entries: (usize, usize),
    effects: Effects,
    tag_bits: u8,
}

impl Plan {
    fn build(self) -> SoftwareDevice {
        let mut device = SoftwareDevice::new(self.stages, self.entries.0).with(|own| {
            own.effects = self.effects;
            own.tag_bits = self.tag_bits;
        });
        device.stage_entries = self.entries.1;
        device
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let entries = prop_oneof![1..=4_usize, Just(100)];
    let less = prop_oneof![4 => Just(0_usize), 1 => 1..=2_usize];
    let effects = prop_oneof![3 => Just(Effects::All), 1 => Just(Effects::Plain)];
    (1..=5_usize, entries, less, effects, prop_oneof![1 => 1..=4_u8, 3 => Just(16)]).prop_map(
        |(stages, entries, less, effects, tag_bits)| Plan {
            stages,
            entries: (entries, entries.saturating_sub(less).max(1)),
            effects,
            tag_bits,
        },
    )
}

fn settings() -> impl Strategy<Value = OffloadConfig> {
    let policy = prop_oneof![
        prop::sample::select(&PolicyName::ALL[..]),
        Just(PolicyName::OneToOne),
        Just(PolicyName::Random),
    ];
    let rest =
        (0..Eviction::ALL.len(), prop_oneof![Just(1), Just(64)], prop_oneof![Just(2), Just(4096)]);
    (policy, rest).prop_map(
        |(policy, (eviction, candidates_per_iteration, operations_per_iteration))| OffloadConfig {
            policy,
            eviction: Eviction::ALL[eviction],
            candidates_per_iteration,
            operations_per_iteration,
            ..config()
        },
    )
}

/// A switch in a random run, with the packets and changes so far.
struct Run {
    switch: Misbehaving,
    changes: VecDeque<Change>,
    seen: Vec<FlowKey>,
    runner: TestRunner,
    hits: u64,
}

impl Run {
    fn apply_event(&mut self, event: Event) {
        let switch = &mut self.switch;
        match event {
            Event::Packet(mut key) => {
                clear_hidden_state(&mut key);
                switch.offer(&key);
                self.seen.push(*key);
            }
            Event::Sibling(which) => {
                if self.seen.is_empty() {
                    return;
                }
                let key: &FlowKey = which.get(&self.seen);
                let mask = (&switch.checked.translate(key).mask).into();
                let sibling = generate::sibling(key, &mask).new_tree(&mut self.runner).unwrap();
                let mut sibling = sibling.current();
                clear_hidden_state(&mut sibling);
                switch.offer(&sibling);
                self.seen.push(sibling);
            }
            Event::Forecast(mut key, milliseconds) => {
                clear_hidden_state(&mut key);
                drop(switch.offer_forecast(&key, Duration::from_millis(milliseconds)));
                self.seen.push(*key);
            }
            Event::Change(op) => self.changes.extend(switch.checked.apply(&op)),
            Event::Apply => {
                // The device stays correct even if this change is not yet queued (rule 6).
                if let Some(change) = self.changes.pop_front()
                    && change.version > switch.coordinator.version()
                {
                    switch.coordinator.apply(change.version, &change.deltas);
                }
            }
            Event::TakeOne => drop(switch.coordinator.take_report(0)),
            Event::Turn => drop(switch.run_iteration()),
            Event::Wait(milliseconds) => switch.wait(Duration::from_millis(milliseconds)),
            Event::Restart => switch.owner.device().inner().restart(),
            Event::Reclaim => switch.checked.pipeline.reclaim(switch.acked_version()),
        }
    }

    /// Checks that the device forwards each packet as the acknowledged version does.
    /// Does nothing while the device is stale.
    fn check(&mut self) -> Result<(), TestCaseError> {
        if self.switch.status().state.is_stale() {
            return Ok(());
        }
        let version = self.switch.handle.acked_version();
        for key in &self.seen {
            let shown = visible(key);
            let Some(actions) = self.switch.owner.device().inner().actions(START, &shown) else {
                continue;
            };
            self.hits += 1;
            let right = self.switch.checked.pipeline.translate(&shown, version);
            let own = Traversal { actions: actions.clone().into(), ..right.clone() };
            let (own, right) =
                (self.switch.checked.effects(&own, key), self.switch.checked.effects(&right, key));
            prop_assert_eq!(
                own,
                right,
                "at version {:?}: {:?} instead of {:?}",
                version,
                actions,
                key
            );
        }
        Ok(())
    }

    /// Applies all changes, runs until no work is left, and checks the device.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        while let Some(change) = self.changes.pop_front() {
            self.switch.send_change(&change);
            self.switch.run_iteration();
            self.check()?;
        }
        // Random faults pause now and then, so most work is done after 400 iterations.
        for _ in 0..400 {
            self.switch.run_iteration();
            self.switch.coordinator.run_iteration();
            self.switch.wait(Duration::from_millis(10));
        }
        let newest = self.switch.checked.pipeline.version();
        let mut iterations = 0;
        while self.switch.status().state.is_stale()
            || self.switch.acked_version() < newest
            || held(self.switch.owner.device().inner()) != self.switch.intended()
        {
            iterations += 1;
            prop_assert!(iterations < 5000, "work never ends: {:?}", self.switch.status());
            self.switch.run_iteration();
            self.switch.coordinator.run_iteration();
            self.switch.wait(Duration::from_millis(10));
        }
        self.check()?;
        let status = self.switch.status();
        prop_assert_eq!((status.waiting, status.stale), (0, 0));
        let held = self.switch.owner.device().inner().entries().len();
        prop_assert_eq!(
            (held, self.switch.coordinator.watched()),
            (status.held.iter().sum(), held)
        );
        Ok(())
    }
}

/// Clears hidden state, which an arriving packet does not have.
fn clear_hidden_state(key: &mut FlowKey) {
    let in_port = key.in_port();
    key.words_mut()[..HEADER_START].fill(0);
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(in_port);
}

#[test]
fn a_confirming_device_forwards_as_the_acknowledged_version() {
    let config = ProptestConfig {
        cases: 128,
        max_shrink_iters: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let events = prop::collection::vec(event(), 1..120);
    let targets = (plan(), chaos(), restarts(), any::<u64>());
    let networks = (generate::network(), settings(), targets, events);
    let [hits, stale, restarted, forgotten] = [const { std::cell::Cell::new(0) }; 4];
    let mut runner = TestRunner::new(config);
    let result =
        runner.run(&networks, |(network, settings, (plan, chaos, restarts, seed), events)| {
            let device = Chaos::new(plan.build(), chaos, seed);
            let device = device.restarting(restarts, SoftwareDevice::restart);
            let switch = OffloadSwitch::new(&network, settings, device);
            let mut run = Run {
                switch,
                changes: VecDeque::new(),
                seen: Vec::new(),
                runner: TestRunner::deterministic(),
                hits: 0,
            };
            for event in events {
                run.apply_event(event);
                run.check()?;
            }
            run.rest()?;
            hits.set(hits.get() + run.hits);
            stale.set(stale.get() + run.switch.status().stale_count);
            let device = run.switch.owner.device();
            restarted.set(restarted.get() + device.restarts_count());
            forgotten.set(forgotten.get() + device.forgotten_count());
            Ok(())
        });
    if let Err(TestError::Fail(reason, case)) = &result {
        panic!("{reason}\n{case:#?}");
    }
    assert!(hits.get() > 2000 && stale.get() > 10, "{} {}", hits.get(), stale.get());
    let (restarted, forgotten) = (restarted.get(), forgotten.get());
    assert!(restarted > 100 && forgotten > 10, "{restarted} {forgotten}");
}
