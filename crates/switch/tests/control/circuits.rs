//! Switches with a dbsp circuit as eviction engine, and failures of the circuit.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use shunt_flow::text::NoPortNames;
use shunt_kairo::{
    Relational, Visits,
    testing::{Fail, Failing},
};
use shunt_ofproto::message::Message;
use shunt_pipeline::{FlowModCommand, Version, text::parse_rule};
use shunt_switch::{
    Config, EngineMaker, EvictionStatus,
    config::{CacheKind, EvictionEngine},
};

use crate::fixture::{FarEnd, SwitchFixture, frame, wait_until};

/// A switch with three ports; the first two ports send to each other.
struct CircuitFixture {
    fixture: SwitchFixture,
    ports: [FarEnd; 3],
}

impl CircuitFixture {
    async fn of(fixture: SwitchFixture) -> Self {
        fixture.add_bridge("br0").await;
        let mut ports = Vec::new();
        for name in ["p1", "p2", "p3"] {
            ports.push(fixture.add_port(name, 0).await);
        }
        let Ok(ports) = ports.try_into() else { panic!("there are three") };
        let rules =
            ["priority=7,in_port=p1,actions=output:p2", "priority=7,in_port=p2,actions=output:p1"];
        fixture.switch.add_rules("br0", &rules).await.unwrap();
        Self { fixture, ports }
    }

    /// Sends a packet into port `from`, and expects it on port `to` only.
    async fn passes(&self, from: usize, to: usize) {
        let frame = frame(7);
        self.ports[from].send(&frame);
        assert_eq!(self.ports[to].next_received().await, frame);
        assert!(self.ports.iter().all(|port| port.all_received().is_empty()));
    }

    /// Redirects packets of the first port to the third port, with a barrier.
    async fn redirect(&self, priority: u16) {
        let rule = format!("priority={priority},in_port=1,actions=output:3");
        let rule = parse_rule(FlowModCommand::Add, &rule, &NoPortNames).unwrap();
        let mut controller = self.fixture.controller().await;
        controller.send(&Message::FlowMod(rule)).await;
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    }

    async fn status(&self) -> EvictionStatus {
        self.fixture.switch.evictions().await.unwrap()
    }
}

#[tokio::test]
async fn each_circuit_evicts_megaflows_and_ltm_entries() {
    for engine in [EvictionEngine::Visits, EvictionEngine::Relational] {
        for kind in [CacheKind::Megaflow, CacheKind::Gigaflow] {
            let mut config = Config::default();
            config.caches.verify_one_in = 1;
            config.caches.kind = kind;
            config.eviction.engine = engine;
            let circuit = CircuitFixture::of(SwitchFixture::of(&config).await).await;
            for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
                circuit.passes(from, to).await;
            }
            circuit.redirect(9).await;
            for (from, to) in [(0, 2), (1, 0), (0, 2), (1, 0)] {
                circuit.passes(from, to).await;
            }
            let status = circuit.status().await;
            assert_eq!((status.engine, status.evicted), (engine.name(), 1), "{status:?}");
            assert_eq!((status.faults, status.overflows), (0, 0));
            assert_eq!(status.by_cause, [("rule_added", 1)]);
            assert_eq!(circuit.fixture.switch.caches().differences, 0);
        }
    }
}

/// Checks that a failed circuit evicts all entries.
/// The function also checks that packets follow the new rules.
async fn a_fault_flushes_the_caches_only<E: Fail + 'static>(new: fn(Version, u64) -> E) {
    let is_due = Arc::<AtomicBool>::default();
    let own = Arc::clone(&is_due);
    let engine: EngineMaker = Box::new(move |pipeline| {
        let when = move || own.swap(false, Ordering::Relaxed).then_some(0);
        Box::new(Failing::new(new(pipeline.version(), 1), when))
    });
    let circuit = CircuitFixture::of(SwitchFixture::without_bridge(1, engine).await).await;
    for (from, to) in [(0, 1), (1, 0)] {
        circuit.passes(from, to).await;
    }
    is_due.store(true, Ordering::Relaxed);
    circuit.redirect(9).await;
    for (from, to) in [(0, 2), (1, 0)] {
        circuit.passes(from, to).await;
    }
    let status = circuit.status().await;
    assert_eq!(
        (status.faults, status.evicted),
        (1, 2),
        "the fault evicts both entries: {status:?}"
    );
    assert_eq!(status.by_cause, [("fault", 2)]);
    // The rebuilt circuit has the entries that were installed after the failure.
    circuit.fixture.switch.add_rules("br0", &["priority=9,in_port=p1,actions=drop"]).await.unwrap();
    circuit.ports[0].send(&frame(7));
    wait_until(|| circuit.fixture.switch.drops().dropped == [("rule_without_output", 1)]).await;
    circuit.passes(1, 0).await;
    let status = circuit.status().await;
    assert_eq!(
        (status.faults, status.evicted),
        (1, 3),
        "the drop rule evicts one entry: {status:?}"
    );
    assert_eq!(circuit.fixture.switch.caches().differences, 0);
}

#[tokio::test]
async fn fault_of_visits_circuit_evicts_all_entries() {
    a_fault_flushes_the_caches_only(Visits::new).await;
}

#[tokio::test]
async fn fault_of_relational_circuit_evicts_all_entries() {
    a_fault_flushes_the_caches_only(Relational::new).await;
}
