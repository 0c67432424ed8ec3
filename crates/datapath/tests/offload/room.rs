//! Tests entries that the device refuses, and eviction for space.

use std::collections::BTreeSet;

use shunt_datapath::offload::OffloadRefusal;
use shunt_flow::{FieldId, FlowMask, PortNo};
use shunt_gigaflow::offload::Effects;
use shunt_pipeline::DatapathPort;
use shunt_testkit::offload::SoftwareDevice;

use crate::harness::{OffloadSwitch, START, TWO_TABLES, config, network, packet};

fn switch(device: SoftwareDevice) -> OffloadSwitch<SoftwareDevice> {
    OffloadSwitch::new(&network(TWO_TABLES), config(), device)
}

fn refusal_counts(switch: &OffloadSwitch<SoftwareDevice>) -> Vec<(OffloadRefusal, u64)> {
    switch.status().refused.into_iter().collect()
}

#[test]
fn refused_rule_is_counted_by_reason() {
    let mut source = FlowMask::EMPTY;
    source.add_field(FieldId::Ipv4Src);
    let outputs: BTreeSet<_> = [DatapathPort::new(3)].into();
    type Case = (SoftwareDevice, OffloadRefusal);
    let cases: [Case; 4] = [
        (
            SoftwareDevice::new(4, 100).with(|own| own.matches.remove(&source)),
            OffloadRefusal::Match(FieldId::Ipv4Src),
        ),
        (SoftwareDevice::new(4, 100).with(|own| own.length_max = 0), OffloadRefusal::Length),
        (
            SoftwareDevice::new(4, 100).with(|own| own.outputs = Some(outputs)),
            OffloadRefusal::Output,
        ),
        (
            SoftwareDevice::new(4, 100).with(|own| own.outputs = Some(BTreeSet::new())),
            OffloadRefusal::Output,
        ),
    ];
    for (device, reason) in cases {
        let mut switch = switch(device);
        switch.fill(&[(1, 8)]);
        assert_eq!(refusal_counts(&switch), [(reason, 1)]);
        assert_eq!(
            (switch.log(), switch.held().len(), switch.coordinator.watched()),
            ((vec![], 0), 0, 0)
        );
    }
}

#[test]
fn refused_parts_are_inserted_as_one_entry() {
    // Table 0 outputs the packet, so a device with plain effects must combine both tables.
    let rules = [
        "table=0,priority=1,ip,actions=output:2,goto_table:1",
        "table=1,priority=1,ip,nw_dst=10.0.0.8,actions=drop",
    ];
    let device = SoftwareDevice::new(4, 100).with(|own| own.effects = Effects::Plain);
    let mut switch = OffloadSwitch::new(&network(&rules), config(), device);
    switch.fill(&[(1, 8)]);
    assert_eq!((switch.held().len(), refusal_counts(&switch)), (1, vec![]));
    assert!(switch.hits(&packet(1, 8)));
}

#[test]
fn packets_outside_the_device_ports_make_no_rules() {
    let mut switch = switch(SoftwareDevice::new(4, 100));
    switch.handle.set_ports(Some([PortNo::new(2)].into()));
    switch.fill(&[(1, 8)]);
    let mut by_port_2 = packet(1, 9);
    by_port_2.set_in_port(PortNo::new(2));
    switch.offer(&by_port_2);
    let mut elsewhere = by_port_2.clone();
    elsewhere.set_bridge(77);
    switch.offer(&elsewhere);
    switch.settle();
    assert_eq!((switch.status().candidates_elsewhere, switch.status().candidates_offered), (2, 3));
    assert!(!switch.hits(&packet(1, 8)) && switch.hits(&by_port_2));
}

#[test]
fn a_full_stage_evicts_and_is_never_overfilled() {
    let mut switch = switch(SoftwareDevice::new(2, 1));
    for (source, device) in [(1, 8), (2, 9), (1, 9), (3, 9), (2, 8)] {
        switch.fill(&[(source, device)]);
        assert!(switch.hits(&packet(source, device)), "{source} to {device}");
        assert_eq!(switch.held(), switch.intended());
    }
    assert_eq!((refusal_counts(&switch), switch.status().held), (vec![], vec![1, 1]));
    assert!(switch.status().partitioned.evicted >= 6);
    assert_eq!(switch.coordinator.watched(), 2);
    // The space of a removed entry is free only after the device has confirmed the removal.
    switch.log();
    switch.device().is_silent = true;
    switch.fill(&[(1, 9)]);
    assert_eq!((switch.log(), switch.status().waiting), ((vec![], 2), 2));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!(switch.log(), (vec![1, 0], 0));
}

#[test]
fn a_device_smaller_than_claimed_forwards_right() {
    let mut device = SoftwareDevice::new(2, 100);
    device.stage_entries = 1;
    let mut switch = switch(device);
    switch.fill(&[(1, 8), (2, 9), (3, 9)]);
    assert!(switch.hits(&packet(1, 8)));
    assert!(!switch.hits(&packet(2, 9)) && !switch.hits(&packet(3, 9)));
    assert_eq!(refusal_counts(&switch), [(OffloadRefusal::NoRoom, 4)]);
    assert_eq!(switch.held(), switch.intended());
    assert_eq!((switch.coordinator.watched(), switch.status().held), (2, vec![1, 1]));
}

#[test]
fn a_smaller_reconnected_device_is_not_overfilled() {
    let mut switch = switch(SoftwareDevice::new(2, 2));
    switch.device().lose();
    switch.fill(&[(1, 8), (2, 9)]);
    *switch.device() = SoftwareDevice::new(2, 1);
    switch.device().is_connected = false;
    switch.device().restore();
    switch.settle();
    assert_eq!(switch.held(), switch.intended());
    assert_eq!((switch.status().held, switch.status().waiting), (vec![1, 1], 0));
    assert_eq!(refusal_counts(&switch), [(OffloadRefusal::NoRoom, 2)]);
}

#[test]
fn entries_that_the_device_reports_idle_are_removed() {
    let device = SoftwareDevice::new(4, 100).with(|own| own.counts = false);
    let mut switch = switch(device);
    switch.fill(&[(1, 8)]);
    let index = *switch
        .device()
        .walk(START, &shunt_pipeline::testing::visible(&packet(1, 8)))
        .unwrap()
        .first()
        .unwrap();
    switch.device().report_idle(index);
    switch.settle();
    assert_eq!((switch.held().len(), switch.coordinator.watched()), (1, 1));
    assert_eq!(switch.held(), switch.intended());
    switch.wait(config().max_idle * 3);
    switch.settle();
    assert_eq!(switch.held().len(), 1, "who does not count is not judged by counts");
}
