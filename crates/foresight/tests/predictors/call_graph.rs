//! Tests predictors with calls between services.
//!
//! Requests overlap, and services share hosts. Most flows of a host are independent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shunt_flow::{FlowKey, PortNo, testing::UdpFlow};
use shunt_foresight::{
    FlowEvent, Forecast, ForecastSource, Foresight, GovernorConfig, NewFlow, OutcomeCounts,
    Predictor, Reply, SuccessorTable,
};

use crate::udp;

/// Time between a request and its reply, and between two calls of a service.
const SERVICE_TIME: Duration = Duration::from_micros(300);

/// Time between two requests to the front end.
const GAP: Duration = Duration::from_micros(400);

/// The services that each service calls.
const CALLS: [&[u16]; 12] =
    [&[1, 2, 3], &[4], &[4, 5, 6, 8], &[7, 9], &[8, 10], &[7], &[11], &[], &[9], &[], &[11], &[]];

/// Number of hosts; services share them.
const HOSTS: u16 = 5;

/// A flow: addresses and ports of source and destination.
type Ends = [(u32, u16); 2];

fn key_of([source, destination]: Ends) -> FlowKey {
    udp(source.0, source, destination)
}

/// Returns the address of the host of a service.
fn host(service: u16) -> u32 {
    u32::from(service % HOSTS) + 1
}

/// Returns the flows of these requests with their replies, in order of time.
fn flows(requests: u32) -> Vec<(Duration, Ends)> {
    let mut ports: BTreeMap<(u32, u16), u16> = BTreeMap::new();
    let mut calls = Vec::new();
    for request in 0..requests {
        let mut due = vec![(GAP * request, 100, 0_u16)];
        while let Some((time, client, service)) = due.pop() {
            calls.push((time, client, service));
            for (callee, order) in CALLS[usize::from(service)].iter().zip(1..) {
                due.push((time + SERVICE_TIME * order, host(service), *callee));
            }
        }
    }
    calls.sort_unstable();
    let mut flows = Vec::new();
    for (time, client, service) in calls {
        // A client increases its source port by two for each flow to a service.
        let next = ports.entry((client, service)).or_insert(32_768);
        let port = *next;
        *next = if port > 65_000 { 32_768 } else { port + 2 };
        let ends = [(client, port), (host(service), 8000 + service)];
        flows.push((time, ends));
        flows.push((time + SERVICE_TIME, [ends[1], ends[0]]));
    }
    flows.sort_unstable();
    flows
}

/// Returns the share of flows for which a forecast was in time.
fn share_of_hits(predictors: Vec<Box<dyn Predictor>>) -> f64 {
    let flows = flows(4000);
    let mut foresight = Foresight::new(GovernorConfig::default());
    predictors.into_iter().for_each(|predictor| foresight.add(predictor));
    let mut entries: BTreeMap<Ends, ForecastSource> = BTreeMap::new();
    let mut counts: BTreeMap<ForecastSource, OutcomeCounts> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let (mut hits, mut made): (u32, Vec<Forecast>) = (0, Vec::new());
    for (time, ends) in &flows {
        let cause = entries.remove(ends);
        if let Some(source) = cause {
            counts.entry(source).or_default().hits += 1;
            hits += 1;
        }
        seen.insert(*ends);
        let key = key_of(*ends);
        let mut egress = key.clone();
        egress.set_in_port(PortNo::new(ends[1].0));
        let flow = NewFlow { key, egress: Some(egress), forecast: cause };
        foresight.observe(&FlowEvent::Started(&flow), *time);
        foresight.forecast(*time, 32, &mut made);
        for forecast in made.drain(..) {
            let UdpFlow { source, destination, .. } = UdpFlow::of(&FlowKey::from(&forecast.key));
            let ends = [source, destination];
            let own = counts.entry(forecast.source).or_default();
            own.received += 1;
            if seen.contains(&ends) || entries.contains_key(&ends) {
                own.covered += 1;
            } else {
                own.installed += 1;
                entries.insert(ends, forecast.source);
            }
        }
        foresight.update(*time, |source| counts.get(&source).copied().unwrap_or_default());
    }
    f64::from(hits) / flows.len() as f64
}

#[test]
fn replies_are_half_of_all_flows() {
    let share = share_of_hits(vec![Box::new(Reply::default())]);
    assert!((0.49..=0.5).contains(&share), "{share}");
}

#[test]
fn a_successor_table_predicts_repeated_calls() {
    let share = share_of_hits(vec![Box::new(SuccessorTable::new(4096))]);
    assert!(share > 0.4, "{share}");
}

#[test]
fn savings_of_replies_and_calls_add_up() {
    let share =
        share_of_hits(vec![Box::new(Reply::default()), Box::new(SuccessorTable::new(4096))]);
    assert!(share > 0.9, "{share}");
}
