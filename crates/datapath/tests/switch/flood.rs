//! Tests floods to many ports: every copy is sent, or is counted as dropped at its port.

use shunt_datapath::{
    Command, DropReason, Pool, Repair, ThreadConfig,
    command::Tuning,
    metrics::PortTraffic,
    packet::virtio::VirtioHeader,
    port::{PortSpec, Repeat, open},
    thread::QueueSizes,
};
use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{FlowMod, PortInfo};

use crate::harness::{BRIDGE, Switch, added};

/// Returns a switch with pair ports 1 to `pairs`, and with the ports `others`.
fn switch(pairs: u32, others: impl IntoIterator<Item = PortSpec>, config: ThreadConfig) -> Switch {
    let others: Vec<PortSpec> = others.into_iter().collect();
    let last = pairs + u32::try_from(others.len()).unwrap();
    let sizes = QueueSizes { commands: 8192, ..QueueSizes::default() };
    let mut switch = Switch::with_sizes(1, pairs, config, sizes);
    switch.pipeline.set_ports(BRIDGE, (1..=last).map(PortInfo::datapath).collect()).unwrap();
    for (number, spec) in (pairs + 1..).zip(others) {
        let mut port = open(&spec, 0).unwrap();
        switch.attach(number, BRIDGE, PortNo::new(number), port.as_mut());
    }
    switch.settle();
    switch
}

fn null_ports(count: usize) -> impl Iterator<Item = PortSpec> {
    std::iter::repeat_n(PortSpec::Null, count)
}

fn flood() -> Vec<FlowMod> {
    added(&["in_port=1,actions=ALL"])
}

fn traffic(switch: &Switch, port: u32) -> &PortTraffic {
    &switch.traffic[&port][0]
}

fn count_dropped(switch: &Switch, reason: DropReason) -> u64 {
    switch.counters(0).dropped[reason as usize].get()
}

fn frame(number: usize, length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; length];
    frame[length - 8..].copy_from_slice(&(number as u64).to_be_bytes());
    frame
}

/// Returns a TCP packet of 60 KB, to be cut into 480 segments.
fn to_segment() -> (Vec<u8>, VirtioHeader) {
    let payload = vec![7; 480 * 125];
    let frame =
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).payload(payload).build();
    let header = VirtioHeader {
        needs_checksum: true,
        data_valid: false,
        gso_type: VirtioHeader::GSO_TCPV4,
        gso_size: 125,
        header_length: 54,
        checksum_start: 34,
        checksum_offset: 16,
        tunnel: None,
    };
    (frame, header)
}

#[test]
fn copies_reach_every_port_however_many_there_are() {
    for (others, length, count) in [(300, 50, 40), (600, 50, 70), (40, 65_000, 40), (300, 9000, 33)]
    {
        let mut switch = switch(3, null_ports(others), ThreadConfig::default());
        switch.apply(&flood());
        let frames: Vec<_> = (0..count).map(|number| frame(number, length)).collect();
        frames.iter().for_each(|frame| assert!(switch.send(0, 1, frame)));
        switch.settle();
        let case = format!("{others} ports, {length} bytes");
        for port in [2, 3] {
            assert_eq!(switch.receive(0, port).len(), count, "{case}");
        }
        for port in 2..=u32::try_from(others).unwrap() + 3 {
            let own = traffic(&switch, port);
            assert_eq!((own.tx_packets.get(), own.tx_dropped_total()), (count as u64, 0), "{case}");
        }
        assert_eq!(switch.counters(0).dropped_total(), 0, "{case}");
        assert_eq!(switch.counters(0).unaccounted(), 0, "{case}");
    }
}

#[test]
fn copies_keep_their_order_and_bytes() {
    let mut switch = switch(3, null_ports(600), ThreadConfig::default());
    switch.apply(&flood());
    let frames: Vec<_> = (0..64).map(|number| frame(number, 60 + number)).collect();
    frames.iter().for_each(|frame| assert!(switch.send(0, 1, frame)));
    switch.settle();
    assert_eq!(switch.receive(0, 2), frames);
    assert_eq!(switch.receive(0, 3), frames);
}

#[test]
fn a_full_port_loses_its_own_copies_only() {
    for length in [50, 65_000] {
        let mut switch = switch(3, null_ports(300), ThreadConfig::default());
        switch.apply(&flood());
        let (mut sent, mut arrived) = (0, 0);
        // The test does not receive from port 2. The ring of port 2 has 1024 places and 256 long
        // buffers.
        while sent < 1100 {
            for _ in 0..20 {
                assert!(switch.send(0, 1, &frame(sent, length)));
                sent += 1;
            }
            switch.settle();
            arrived += switch.receive(0, 3).len();
        }
        assert_eq!(arrived, sent);
        let own = traffic(&switch, 2);
        let kept = if length > Pool::SMALL { Pool::LARGE_MAX } else { 1024 } as u64;
        assert_eq!((own.tx_packets.get(), own.tx_dropped_total()), (kept, sent as u64 - kept));
        assert_eq!(traffic(&switch, 303).tx_packets.get(), sent as u64);
        let full = own.tx_dropped.get(DropReason::TxQueueFull);
        assert_eq!(count_dropped(&switch, DropReason::TxQueueFull), full);
        assert_eq!(switch.counters(0).dropped_total(), own.tx_dropped_total());
    }
}

#[test]
fn segments_for_port_find_buffers_behind_flood() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("segments.pcap");
    let pcap = PortSpec::Pcap { rx: None, tx: Some(path), repeat: Repeat::Once };
    let mut switch = switch(3, null_ports(300).chain([pcap]), ThreadConfig::default());
    switch.apply(&flood());
    let (long, header) = to_segment();
    for number in 0..28 {
        assert!(switch.send(0, 1, &frame(number, 50)));
    }
    for _ in 0..4 {
        assert!(switch.send_with(0, 1, &long, |packet| packet.virtio = header));
    }
    switch.settle();
    assert_eq!(traffic(&switch, 304).tx_packets.get(), 28 + 4 * 480);
    assert_eq!(switch.counters(0).dropped_total(), 0);
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn full_transmit_batches_refuse_no_received_frame() {
    const PORTS: u32 = 300;
    let config = ThreadConfig { translations_per_iteration: 10_000, ..ThreadConfig::default() };
    let mut switch = switch(PORTS, null_ports(PORTS as usize), config);
    let to_own = |port| format!("in_port={port},actions=output:{}", PORTS + port);
    let rules: Vec<String> = (1..=PORTS).map(to_own).collect();
    switch.apply(&added(&rules.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut send = |count: usize| {
        for port in 1..=PORTS {
            (0..count).for_each(|number| assert!(switch.send(0, port, &frame(number, 60))));
        }
        switch.settle();
    };
    send(1);
    send(31);
    for port in 1..=PORTS {
        assert_eq!(traffic(&switch, port).rx_lost_total(), 0);
        assert_eq!(traffic(&switch, PORTS + port).tx_packets.get(), 32);
    }
    assert_eq!(switch.counters(0).dropped_total(), 0);
}

#[test]
fn waiting_packets_leave_buffers_for_a_flood() {
    const PORTS: u32 = 40;
    let mut switch = switch(PORTS, null_ports(300), ThreadConfig::default());
    switch.apply(&flood());
    assert!(switch.send(0, 1, &frame(0, 60)));
    switch.settle();
    // From now on the thread translates nothing, so packets of new flows stay in the upcall queue.
    let tuning = Tuning {
        max_idle: ThreadConfig::default().max_idle,
        translations_per_iteration: 0,
        verify_one_in: 0,
        repair: Repair::Off,
        wildcard: ThreadConfig::default().caches.wildcard,
        entries_max: ThreadConfig::default().caches.entries_max,
        sleep_max: ThreadConfig::default().sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    };
    switch.controls[0].send(Command::Tune(tuning)).unwrap();
    // An iteration takes new settings after its start, so they apply to the next iteration.
    switch.run_iteration(0);
    for length in [60, 60_000] {
        for _ in 0..9 {
            for port in 2..=PORTS {
                for _ in 0..28 {
                    assert!(switch.send(0, port, &frame(1, length)));
                }
            }
            switch.run_iteration(0);
            switch.run_iteration(0);
        }
        let before = traffic(&switch, PORTS + 300).tx_packets.get();
        (0..32).for_each(|number| assert!(switch.send(0, 1, &frame(number, length))));
        switch.run_iteration(0);
        let after = traffic(&switch, PORTS + 300).tx_packets.get();
        assert_eq!(after - before, 32, "{length} bytes");
        assert_eq!(count_dropped(&switch, DropReason::NoBuffer), 0);
        (1..=PORTS).for_each(|port| assert_eq!(traffic(&switch, port).rx_lost_total(), 0));
    }
    assert!(count_dropped(&switch, DropReason::UpcallQueueFull) > 0);
}
