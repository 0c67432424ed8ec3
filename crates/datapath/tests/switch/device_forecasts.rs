//! Tests forecasts of flows that hit in an offload device, with each cache.

use std::time::Duration;

use shunt_datapath::{
    forecast::{ForecastConfig, ForecastSender},
    offload::{OffloadAgent, OffloadConfig},
};
use shunt_flow::FlowKey;
use shunt_gigaflow::ltm::Tag;
use shunt_testkit::offload::SoftwareDevice;

use super::{
    forecasts::{IDLE, counts, dump, forecast, frame},
    thread_config,
};
use crate::harness::{BRIDGE, Switch, added};

/// Returns a switch behind an offload device, a sender of forecasts, and the agent.
fn behind_device() -> (Switch, ForecastSender, OffloadAgent<SoftwareDevice>) {
    let mut switch = Switch::behind_device(1, 3, thread_config());
    let forecasts = ForecastConfig { idle: IDLE, ..ForecastConfig::default() };
    let sender = switch.attach_forecasts(forecasts).remove(0);
    let (_, ends) = switch.device.take().unwrap();
    let (pipeline, device) = (switch.pipeline.clone(), SoftwareDevice::new(4, 100));
    let mut agent = OffloadAgent::new(OffloadConfig::new(BRIDGE), pipeline, device, ends);
    switch.apply(&added(&["priority=9,udp,nw_dst=10.1.0.0/16,actions=output:2"]));
    run_device(&mut switch, &mut agent);
    (switch, sender, agent)
}

/// Reads the counters of the device, and makes the switch take the outcomes.
fn run_device(switch: &mut Switch, agent: &mut OffloadAgent<SoftwareDevice>) {
    for _ in 0..2 {
        switch.wait(Duration::from_secs(1));
        while agent.run_iteration(switch.now) {}
        switch.settle();
    }
}

/// The device forwards the packets, so the entry in software has no hit.
#[test]
fn hit_in_device_counts_for_its_forecast() {
    let (mut switch, mut sender, mut agent) = behind_device();
    let flow = forecast(&switch, [10, 1, 0, 1]);
    assert!(sender.send(flow.clone()));
    switch.settle();
    while agent.run_iteration(switch.now) {}
    assert!(agent.device().send(Tag::new(0), &FlowKey::from(&flow.key), 60));
    run_device(&mut switch, &mut agent);
    assert_eq!((counts(&sender).installed, counts(&sender).hits), (1, 1));
    // The entry in software is now useless, so it is removed.
    assert!(dump(&mut switch).is_empty());
    switch.wait(IDLE);
    run_device(&mut switch, &mut agent);
    assert_eq!((counts(&sender).hits, counts(&sender).wrong), (1, 0));
}

/// The agent reads the counters only after the entry in software has expired.
#[test]
fn a_late_reading_of_the_device_counts() {
    let (mut switch, mut sender, mut agent) = behind_device();
    let flow = forecast(&switch, [10, 1, 0, 1]);
    assert!(sender.send(flow.clone()));
    switch.settle();
    while agent.run_iteration(switch.now) {}
    assert!(agent.device().send(Tag::new(0), &FlowKey::from(&flow.key), 60));
    switch.wait(IDLE + Duration::from_millis(1));
    switch.settle();
    assert!(dump(&mut switch).is_empty());
    assert_eq!(counts(&sender).settled(), 0, "the device has the outcome");
    run_device(&mut switch, &mut agent);
    assert_eq!((counts(&sender).hits, counts(&sender).wrong), (1, 0));
}

/// The device may lose its entries, so the entries in software stay.
#[test]
fn flow_that_device_forwards_keeps_its_entries() {
    let (mut switch, mut sender, mut agent) = behind_device();
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    while agent.run_iteration(switch.now) {}
    assert!(!agent.device().entries().is_empty());
    // The entry in software expires without a hit.
    let flow = FlowKey::from(&forecast(&switch, [10, 1, 0, 1]).key);
    for _ in 0..8 {
        assert!(agent.device().send(Tag::new(0), &flow, 60));
        run_device(&mut switch, &mut agent);
    }
    assert!(dump(&mut switch).is_empty());
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    while agent.run_iteration(switch.now) {}
    switch.settle();
    assert!(!dump(&mut switch).is_empty(), "the device has an entry of a packet");
    assert_eq!((counts(&sender).installed, counts(&sender).covered), (1, 0));
    switch.wait(IDLE + Duration::from_millis(1));
    switch.settle();
    let counts = counts(&sender);
    assert_eq!((counts.device_covered, counts.wrong, counts.covered), (1, 0, 0));
    assert!(dump(&mut switch).is_empty());
}

#[test]
fn a_forecast_without_hits_counts_as_wrong() {
    let (mut switch, mut sender, mut agent) = behind_device();
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    while agent.run_iteration(switch.now) {}
    assert!(!agent.device().entries().is_empty());
    switch.wait(IDLE);
    (0..3).for_each(|_| run_device(&mut switch, &mut agent));
    assert_eq!((counts(&sender).hits, counts(&sender).wrong), (0, 1));
    assert!(agent.device().entries().is_empty());
    // Without an agent, only the entry in software counts.
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    drop(agent);
    switch.wait(IDLE + Duration::from_millis(1));
    switch.settle();
    assert_eq!(counts(&sender).wrong, 2);
}
