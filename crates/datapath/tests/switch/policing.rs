//! Tests ingress and egress policing on packet threads: passed packets and drop counters.

use std::{sync::Arc, time::Duration};

use shunt_datapath::{
    BURST, Command, DropReason, RxLoss,
    egress::PortQos,
    metrics::PortTraffic,
    packet::{
        egress_policer::{EgressPolicer, EgressPolicing},
        ingress_policer::{IngressPolicer, IngressPolicing},
    },
};
use shunt_flow::{Match, PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::DatapathPort;

use crate::harness::{BRIDGE, Switch, output, rule};

/// Length of the frames in bytes.
const LENGTH: usize = 100;

fn frame() -> Vec<u8> {
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let frame = packet.udp(1000, 53).payload(vec![7; LENGTH - 42]).build();
    assert_eq!(frame.len(), LENGTH);
    frame
}

/// Returns a switch that forwards from ports 1 and 2 to port 3.
fn forwarding(threads: u16) -> Switch {
    let mut switch = Switch::new(threads, 3, super::thread_config());
    switch.modify([rule(1, Match::any(), vec![output(3)]).into()]);
    switch
}

fn police(switch: &mut Switch, port: u32, limits: IngressPolicing) {
    let policer = IngressPolicer::new(limits, switch.now).map(Arc::new);
    for control in &mut switch.controls {
        control.send(Command::PoliceIngress(DatapathPort::new(port), policer.clone())).unwrap();
    }
    switch.settle();
}

fn count_policed(switch: &Switch, port: u32) -> u64 {
    let lost = |traffic: &Arc<PortTraffic>| traffic.rx_lost[RxLoss::Policed as usize].get();
    switch.traffic[&port].iter().map(lost).sum()
}

/// Sends frames in bursts; returns the number of frames that leave.
fn send_and_count(switch: &mut Switch, thread: usize, port: u32, count: usize) -> usize {
    for sent in 0..count {
        assert!(switch.send(thread, port, &frame()));
        if sent % BURST == BURST - 1 {
            switch.settle();
        }
    }
    switch.settle();
    assert_eq!(switch.counters(thread).unaccounted(), 0);
    switch.receive(thread, 3).len()
}

#[test]
fn policing_passes_the_burst_and_then_the_rate() {
    let mut switch = forwarding(1);
    // The policer passes a burst of ten frames, and then ten frames per second.
    police(&mut switch, 1, IngressPolicing { kbps: 8, burst_kb: 8, ..Default::default() });
    for (wait, expected) in [(0, 10), (50, 0), (50, 1), (500, 5), (60_000, 10)] {
        switch.wait(Duration::from_millis(wait));
        assert_eq!(send_and_count(&mut switch, 0, 1, 40), expected, "after {wait} ms");
    }
    assert_eq!(count_policed(&switch, 1), 200 - 26);
    assert_eq!(switch.counters(0).received.get(), 26);
    assert_eq!(
        (send_and_count(&mut switch, 0, 2, 40), count_policed(&switch, 2)),
        (40, 0),
        "another port"
    );
    police(&mut switch, 1, IngressPolicing::default());
    assert_eq!(send_and_count(&mut switch, 0, 1, 40), 40, "the limit has ended");
}

#[test]
fn a_port_with_two_threads_has_one_rate() {
    let mut switch = forwarding(2);
    let limits = IngressPolicing { kpkts_rate: 1, kpkts_burst: 1, ..Default::default() };
    police(&mut switch, 1, limits);
    let both: usize = (0..2).map(|thread| send_and_count(&mut switch, thread, 1, 600)).sum();
    assert_eq!((both, count_policed(&switch, 1)), (1000, 200));
}

#[test]
fn a_receive_queue_comes_with_its_limit() {
    let mut switch = forwarding(1);
    let limits = IngressPolicing { kbps: 8, burst_kb: 8, ..Default::default() };
    let policer = IngressPolicer::new(limits, switch.now).map(Arc::new);
    for (policer, expected) in [(policer, 10), (None, 40)] {
        switch.add_policed_port(1, BRIDGE, PortNo::new(1), policer.as_ref());
        switch.settle();
        assert_eq!(send_and_count(&mut switch, 0, 1, 40), expected);
    }
}

/// A thread that drops all its packets is as busy as a thread that forwards them.
#[test]
fn an_iteration_with_policed_packets_is_busy() {
    let mut switch = forwarding(1);
    police(&mut switch, 1, IngressPolicing { kpkts_rate: 1, kpkts_burst: 1, ..Default::default() });
    assert_eq!(send_and_count(&mut switch, 0, 1, 1000), 1000);
    for _ in 0..BURST {
        assert!(switch.send(0, 1, &frame()));
    }
    assert!(switch.run_iteration(0));
    assert_eq!(count_policed(&switch, 1), BURST as u64);
}

#[test]
fn egress_policer_passes_burst_and_rate() {
    let mut switch = forwarding(1);
    let port = DatapathPort::new(3);
    // The rate excludes the Ethernet header of 14 bytes: a burst of ten frames, and then ten frames
    // per second.
    let policer = Arc::new(EgressPolicer::new(EgressPolicing { cir: 860, cbs: 860 }, switch.now));
    let set = |switch: &mut Switch, policer: Option<Arc<EgressPolicer>>| {
        let qos = policer.map(PortQos::Policer);
        switch.controls[0].send(Command::SetQos(port, qos)).unwrap();
        switch.settle();
    };
    set(&mut switch, Some(policer));
    for (wait, expected) in [(0, 10), (50, 0), (50, 1), (500, 5), (60_000, 10)] {
        switch.wait(Duration::from_millis(wait));
        assert_eq!(send_and_count(&mut switch, 0, 1, 40), expected, "after {wait} ms");
    }
    let dropped = switch.counters(0).dropped[DropReason::EgressPoliced as usize].get();
    let of_port = &switch.traffic[&3][0];
    assert_eq!((dropped, of_port.tx_dropped_total()), (200 - 26, 200 - 26));
    assert_eq!((of_port.tx_packets.get(), switch.counters(0).received.get()), (26, 200));
    set(&mut switch, None);
    assert_eq!(send_and_count(&mut switch, 0, 1, 40), 40, "the limit has ended");
}
