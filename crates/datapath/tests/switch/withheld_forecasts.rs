//! Tests the control group of forecasts: predictors that save misses, and predictors that do not.
//!
//! Each rule matches one port, so each flow needs an entry of its own.

use std::time::Duration;

use shunt_datapath::{
    cache::Wildcard,
    forecast::{ForecastConfig, ForecastSender},
};
use shunt_flow::{FieldId, FlowKey, SparseKey, testing::packet::PacketBuilder};
use shunt_foresight::{
    Confidence, FlowEvent, Forecast, ForecastSource, Foresight, GovernorConfig, GovernorState,
    OutcomeCounts, PauseReason, Predictor, PredictorStatus,
};
use shunt_gigaflow::partition::PolicyName;

use super::thread_config;
use crate::harness::{Switch, added};

/// A predictor that forecasts one flow for some flows.
#[derive(Debug)]
struct Scripted {
    /// Changes the ports of a flow to those of its forecast; `false` means no forecast.
    next: fn(&mut [u16; 2]) -> bool,
    due: Vec<Forecast>,
}

/// Time after which the entry of a forecast expires.
const VALID: Duration = Duration::from_secs(1);

/// The fields of the source and the destination port.
const PORTS: [FieldId; 2] = [FieldId::UdpSrc, FieldId::UdpDst];

impl Predictor for Scripted {
    fn source(&self) -> ForecastSource {
        ForecastSource::Successor
    }

    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        let FlowEvent::Started(flow) = event else { return };
        let mut ports = PORTS.map(|field| u16::try_from(flow.key.field(field)).unwrap());
        if !(self.next)(&mut ports) {
            return;
        }
        let mut key: FlowKey = flow.key.clone();
        PORTS.iter().zip(ports).for_each(|(field, port)| key.set_field(*field, port.into()));
        self.due.push(Forecast {
            key: SparseKey::from(&key),
            known: None,
            confidence: Confidence::MAX,
            made: now,
            valid_until: now + VALID,
            source: self.source(),
        });
    }

    fn forecast(&mut self, _now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        self.due.truncate(budget);
        forecasts.append(&mut self.due);
    }

    fn next_due(&self) -> Option<Duration> {
        None
    }

    fn len(&self) -> usize {
        self.due.len()
    }

    fn capacity(&self) -> usize {
        1000
    }
}

/// A switch with a scripted predictor.
struct ScriptedSwitch {
    switch: Switch,
    sender: ForecastSender,
}

impl ScriptedSwitch {
    fn new(rules: &[String], next: fn(&mut [u16; 2]) -> bool) -> Self {
        let mut config = thread_config();
        if let Wildcard::Gigaflow(chain) = &mut config.caches.wildcard {
            // An entry for each table.
            chain.policy = PolicyName::OneToOne;
        }
        let mut switch = Switch::new(1, 3, config);
        let mut senders = switch.attach_predictors(ForecastConfig::default(), || {
            let mut predictors = Foresight::new(GovernorConfig::default());
            predictors.add(Box::new(Scripted { next, due: Vec::new() }));
            predictors
        });
        switch.apply(&added(&rules.iter().map(String::as_str).collect::<Vec<_>>()));
        Self { switch, sender: senders.remove(0) }
    }

    /// Sends a packet between two ports, and waits until its forecast is handled.
    fn send(&mut self, source: u16, destination: u16) {
        let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(source, destination);
        assert!(self.switch.send(0, 1, &packet.build()));
        self.switch.settle();
        self.switch.settle();
        assert_eq!(self.switch.receive(0, 2).len(), 1);
    }

    fn wait(&mut self, time: Duration) {
        self.switch.wait(time);
        self.switch.settle();
    }

    fn status(&self) -> PredictorStatus {
        self.sender.counters().predictors.lock()[0]
    }

    fn is_paused(&self) -> bool {
        matches!(self.status().state, GovernorState::Paused { .. })
    }

    fn counts(&self) -> OutcomeCounts {
        self.sender.counters().of(ForecastSource::Successor).counts()
    }
}

/// Returns a rule for each destination port in the last table.
fn rules_of_destinations(table: u8, ports: u16) -> Vec<String> {
    (0..ports).map(|port| format!("table={table},udp,tp_dst={port},actions=output:2")).collect()
}

#[test]
fn withheld_flows_of_a_useful_predictor_miss() {
    const FLOWS: u16 = 500;
    let mut own = ScriptedSwitch::new(&rules_of_destinations(0, FLOWS), |ports| {
        ports[1] += 1;
        ports[1] < FLOWS
    });
    for port in 0..FLOWS {
        own.send(7, port);
        own.wait(Duration::from_millis(20));
    }
    let (status, counts) = (own.status(), own.counts());
    assert_eq!((status.state, status.pauses), (GovernorState::On, 0), "{counts:?}");
    assert!(counts.withheld >= 20 && counts.hits > 400, "{counts:?}");
    // Each forecast is of the next flow, which misses if the forecast is withheld.
    assert_eq!((counts.arrived, counts.unneeded), (counts.withheld, 0), "{counts:?}");
    assert_eq!(own.switch.counters(0).upcalls.get(), 1 + counts.withheld);
    assert_eq!(counts.saved_misses(), counts.hits);
}

#[test]
fn withheld_flows_that_never_arrive_are_unneeded() {
    const FLOWS: u16 = 200;
    let mut own = ScriptedSwitch::new(&rules_of_destinations(0, 2 * FLOWS), |ports| {
        ports[1] += FLOWS;
        true
    });
    for port in 0..FLOWS {
        own.send(7, port);
        own.wait(Duration::from_millis(50));
    }
    own.wait(VALID * 2);
    own.wait(VALID);
    let counts = own.counts();
    assert!(own.is_paused(), "{:?}", own.status());
    assert_eq!(own.status().pause_reason, Some(PauseReason::FewHits));
    assert!(counts.withheld >= 2, "{counts:?}");
    assert_eq!((counts.arrived, counts.unneeded), (0, counts.withheld), "{counts:?}");
    assert_eq!((counts.hits, counts.saved_misses()), (0, 0));
}

/// Two other flows miss in any case.
/// In a chain, their entries together cover the forecast flow.
///
/// Megaflows are not shared, so the same predictor saves a miss for each forecast there.
#[test]
fn flows_that_shared_entries_cover_need_no_forecast() {
    const ROUNDS: u16 = 600;
    let mut rules = rules_of_destinations(1, 3 * ROUNDS);
    let sources = (0..3 * ROUNDS).map(|port| format!("udp,tp_src={port},actions=goto_table:1"));
    rules.extend(sources);
    // The first flow of a round has equal ports, which are multiples of three.
    let mut own = ScriptedSwitch::new(&rules, |ports| {
        let is_first = ports[0] == ports[1] && ports[0].is_multiple_of(3);
        *ports = ports.map(|port| port + 1);
        is_first
    });
    let mut pauses = Vec::new();
    for first in (0..ROUNDS).map(|round| 3 * round) {
        own.send(first, first);
        own.send(first + 1, first + 2);
        own.send(first + 2, first + 1);
        own.send(first + 1, first + 1);
        own.wait(Duration::from_millis(50));
        if own.is_paused() && pauses.len() < usize::try_from(own.status().pauses).unwrap() {
            pauses.extend(own.status().pause_reason);
        }
    }
    let (counts, is_chain) = (own.counts(), own.switch.counters(0).chain.hits.get() > 0);
    // All forecasts were hit: without the control group, the predictor would stay on.
    assert!(counts.hits > 100 && counts.wrong + counts.evicted == 0, "{counts:?}");
    if is_chain {
        assert_eq!(pauses.first(), Some(&PauseReason::FewSavedMisses), "{counts:?}");
        assert!(counts.arrived == 0 && counts.saved_misses() == 0, "{counts:?}");
    } else {
        assert!(pauses.is_empty() && counts.unneeded == 0, "{counts:?}");
    }
}
