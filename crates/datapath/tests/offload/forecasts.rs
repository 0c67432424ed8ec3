//! Tests forecasts in the device: outcomes, expiry, and eviction for space.

use std::time::Duration;

use shunt_datapath::{
    command::DumpedEntry,
    forecast::{DeviceOutcome, DeviceWatch},
    offload::OffloadRefusal,
};
use shunt_foresight::ForecastSource;
use shunt_pipeline::{FlowModCommand, testing::visible};
use shunt_testkit::offload::SoftwareDevice;

use crate::harness::{OffloadSwitch, START, TWO_TABLES, config, network, packet, request};

/// A time shorter than the idle timeout of entries with traffic.
const SHORT: Duration = Duration::from_secs(3);
/// A time longer than the idle timeout of entries with traffic.
const LONG: Duration = Duration::from_secs(60);

/// Sends a forecast that expires after `time`.
fn forecast(
    switch: &mut OffloadSwitch<SoftwareDevice>,
    flow: (u8, u8),
    time: Duration,
) -> DeviceWatch {
    let watch = switch.offer_forecast(&packet(flow.0, flow.1), time);
    switch.settle();
    watch
}

/// Waits until a reading of the device's counters has begun and finished.
fn read_counters(switch: &mut OffloadSwitch<SoftwareDevice>) {
    for _ in 0..2 {
        switch.wait(config().count_every);
        switch.settle();
    }
}

fn send(switch: &mut OffloadSwitch<SoftwareDevice>, source: u8, device: u8) {
    assert!(switch.device().send(START, &visible(&packet(source, device)), 60));
}

fn dump_entries(switch: &mut OffloadSwitch<SoftwareDevice>) -> Vec<DumpedEntry> {
    let (sender, answer) = std::sync::mpsc::channel();
    switch.handle.dump(Box::new(move |entries| sender.send(entries).unwrap()));
    switch.settle();
    answer.recv().unwrap()
}

#[test]
fn a_hit_in_the_device_settles_its_forecast() {
    let mut switch = OffloadSwitch::two_tables();
    let watch = forecast(&mut switch, (1, 9), SHORT);
    assert!(switch.hits(&packet(1, 9)), "the entry is in the device before the packet");
    let entries = dump_entries(&mut switch);
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|own| own.forecast == Some(ForecastSource::Reply)));
    assert_eq!(watch.outcome(), None);
    send(&mut switch, 1, 9);
    let sent = switch.now;
    read_counters(&mut switch);
    let Some(DeviceOutcome::Hit(found)) = watch.outcome() else { panic!("{watch:?}") };
    assert!(found > sent && found <= switch.now);
    // The entries have had traffic, so they outlive the time of the forecast.
    switch.wait(SHORT);
    read_counters(&mut switch);
    assert!(switch.hits(&packet(1, 9)));
}

#[test]
fn a_forecast_without_a_hit_leaves_the_device() {
    for time in [SHORT, LONG] {
        let mut switch = OffloadSwitch::two_tables();
        let watch = forecast(&mut switch, (1, 9), time);
        let before = config().count_every * 3;
        while switch.now < shunt_pipeline::Time::ZERO.after(time.saturating_sub(before)) {
            read_counters(&mut switch);
        }
        // Speculative entries stay for the time of their forecast, whatever the idle timeout is.
        assert!(switch.hits(&packet(1, 9)), "{time:?}");
        switch.wait(before);
        read_counters(&mut switch);
        read_counters(&mut switch);
        assert!(!switch.hits(&packet(1, 9)), "{time:?}");
        assert_eq!((switch.held().len(), switch.coordinator.watched()), (0, 0));
        assert_eq!(watch.outcome(), Some(DeviceOutcome::Unused));
    }
}

#[test]
fn a_flow_that_the_device_forwards_is_covered() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    let watch = forecast(&mut switch, (1, 9), SHORT);
    assert_eq!(watch.outcome(), Some(DeviceOutcome::Covered));
}

/// Several packet threads forecast one flow; the device has its entries once.
#[test]
fn forecast_behind_another_one_waits_for_hit() {
    for is_hit in [true, false] {
        let mut switch = OffloadSwitch::two_tables();
        let watches = [SHORT, LONG].map(|time| forecast(&mut switch, (1, 9), time));
        assert_eq!(watches.each_ref().map(DeviceWatch::outcome), [None, None]);
        if is_hit {
            send(&mut switch, 1, 9);
            read_counters(&mut switch);
            // Entries that were hit cover the flow for any later forecast.
            let later = forecast(&mut switch, (1, 9), SHORT);
            assert_eq!(later.outcome(), Some(DeviceOutcome::Covered));
        } else {
            switch.wait(SHORT);
            (0..2).for_each(|_| read_counters(&mut switch));
        }
        for watch in &watches {
            let outcome = watch.outcome();
            let is_settled_hit = matches!(outcome, Some(DeviceOutcome::Hit(_)));
            assert!(outcome.is_some() && is_settled_hit == is_hit, "{outcome:?}");
        }
    }
}

#[test]
fn a_changed_rule_removes_a_forecast() {
    let mut switch = OffloadSwitch::two_tables();
    let watch = forecast(&mut switch, (1, 9), SHORT);
    let rule = "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:2";
    switch.change(&request(FlowModCommand::Add, rule));
    switch.settle();
    read_counters(&mut switch);
    assert_eq!(watch.outcome(), Some(DeviceOutcome::Unused));
    assert!(!switch.hits(&packet(1, 9)));
    // Without the entry of table 1, the entry of table 0 is useless, so it is removed too.
    assert_eq!((switch.held().len(), switch.coordinator.watched()), (0, 0));
}

#[test]
fn a_device_without_counters_gets_no_forecast() {
    let device = SoftwareDevice::new(4, 100).with(|own| own.counts = false);
    let mut switch = OffloadSwitch::new(&network(TWO_TABLES), config(), device);
    let watch = forecast(&mut switch, (1, 9), SHORT);
    assert_eq!((watch.outcome(), switch.held().len()), (Some(DeviceOutcome::Unused), 0));
}

#[test]
fn a_lost_device_covers_no_forecast() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().lose();
    switch.settle();
    let watch = forecast(&mut switch, (1, 9), SHORT);
    assert_eq!(watch.outcome(), Some(DeviceOutcome::Unused));
}

/// Returns a switch with a rule for each of many hosts, and a small device.
fn switch_with_small_device() -> OffloadSwitch<SoftwareDevice> {
    let hosts: Vec<_> = (0..40_u8)
        .map(|host| format!("table=0,priority=1,ip,nw_dst=10.0.0.{host},actions=output:2"))
        .collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    OffloadSwitch::new(&network(&hosts), config(), SoftwareDevice::new(1, 8))
}

#[test]
fn a_forecast_displaces_no_entry_of_a_packet() {
    let mut switch = switch_with_small_device();
    switch.fill(&(0..7_u8).map(|host| (1, host)).collect::<Vec<_>>());
    let before = switch.held();
    let watch = forecast(&mut switch, (1, 20), LONG);
    assert_eq!((watch.outcome(), switch.held()), (Some(DeviceOutcome::Unused), before));
    assert_eq!(switch.status().refused.get(&OffloadRefusal::NoRoom), Some(&1));
}

#[test]
fn forecast_entries_are_evicted_first() {
    let mut switch = switch_with_small_device();
    let watches: Vec<_> = (20..26_u8).map(|host| forecast(&mut switch, (1, host), LONG)).collect();
    assert_eq!(switch.held().len(), 6);
    for host in 0..8_u8 {
        switch.fill(&[(1, host)]);
    }
    for host in 0..8_u8 {
        assert!(switch.hits(&packet(1, host)), "host {host}");
    }
    let outcomes = watches.iter().map(DeviceWatch::outcome);
    assert!(outcomes.into_iter().all(|own| own == Some(DeviceOutcome::Unused)));
}
