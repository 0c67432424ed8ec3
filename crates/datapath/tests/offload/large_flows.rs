//! Tests that a full device keeps entries of large flows, also in pauses of the flow.

use shunt_pipeline::testing::visible;
use shunt_testkit::offload::SoftwareDevice;

use crate::harness::{OffloadSwitch, START, config, network, packet};

/// Returns a switch with rules for 60 hosts, and a device with eight entries.
fn switch_with_small_device() -> OffloadSwitch<SoftwareDevice> {
    let hosts: Vec<_> = (0..60_u8)
        .map(|host| format!("table=0,priority=1,ip,nw_dst=10.0.0.{host},actions=output:2"))
        .collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    OffloadSwitch::new(&network(&hosts), config(), SoftwareDevice::new(1, 8))
}

/// Sends `to_first` packets to host 0, one to each other host; reads the counters.
fn send(switch: &mut OffloadSwitch<SoftwareDevice>, to_first: usize) {
    for host in 0..8 {
        let count = if host == 0 { to_first } else { 1 };
        for _ in 0..count {
            switch.device().send(START, &visible(&packet(1, host)), 60);
        }
    }
    for _ in 0..2 {
        switch.wait(config().count_every);
        switch.settle();
    }
}

/// Returns the number of new flows (at most 40) that the entry of host 0 survives.
fn new_flows_survived(packets_to_first: usize) -> u8 {
    let mut switch = switch_with_small_device();
    switch.fill(&(0..8).map(|host| (1, host)).collect::<Vec<_>>());
    // Two readings, because the first reading has no earlier reading to compare with.
    (0..2).for_each(|_| send(&mut switch, packets_to_first));
    let news = (8..48).take_while(|host| {
        switch.fill(&[(1, *host)]);
        switch.hits(&packet(1, 0))
    });
    u8::try_from(news.count()).unwrap()
}

#[test]
fn a_large_flow_stays_in_a_full_device() {
    assert_eq!(new_flows_survived(200), 40);
    assert!(new_flows_survived(1) < 40, "a small flow leaves for new ones");
}
