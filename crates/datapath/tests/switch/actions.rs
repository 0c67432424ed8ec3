//! Tests actions on packets: outputs, header changes, VLAN tags, punts, offloads.

use shunt_datapath::{
    Command, DropReason, NO_INGRESS, ThreadConfig, VirtioHeader,
    command::{Injection, Tuning},
    packet::virtio::UdpTunnel,
};
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, extract::VlanLimit, testing::packet::PacketBuilder,
};
use shunt_pipeline::{Action, ControllerAction, PacketInReason, Subfield, TableId};

use crate::harness::{BRIDGE, Switch, output, rule};

fn udp() -> PacketBuilder {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 53).payload(b"payload".to_vec())
}

/// Checks the frames, by output port, that one rule sends for a frame from port 1.
fn check(actions: Vec<Action>, frame: &[u8], expected: &[(u32, Vec<u8>)]) -> Switch {
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&[rule(1, Match::any(), actions)]);
    // The rounds use translation, the wildcard cache and the exact-match cache.
    for round in 0..3 {
        assert!(switch.send(0, 1, frame));
        switch.settle();
        for port in 1..=4 {
            let wanted: Vec<&Vec<u8>> =
                expected.iter().filter(|(own, _)| *own == port).map(|(_, frame)| frame).collect();
            let came = switch.receive(0, port);
            assert_eq!(came.iter().collect::<Vec<_>>(), wanted, "port {port} in round {round}");
        }
    }
    assert_eq!(switch.counters(0).unaccounted(), 0);
    switch
}

fn set_field(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

#[test]
fn packet_leaves_by_port_of_its_rule() {
    if !super::HAS_CACHE {
        return;
    }
    let frame = udp().build();
    let switch = check(vec![output(2)], &frame, &[(2, frame.clone())]);
    assert_eq!(switch.counters(0).upcalls.get(), 1);
    assert_eq!(switch.counters(0).copied.get(), 0, "a single output is a move");
}

#[test]
fn each_output_sends_the_packet_as_rewritten_before() {
    let before = udp().build();
    let after = PacketBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1])
        .udp(1000, 53)
        .payload(b"payload".to_vec());
    let actions = vec![output(2), set_field(FieldId::Ipv4Dst, 0xc000_0201), output(3), output(4)];
    let after = after.build();
    check(actions, &before, &[(2, before.clone()), (3, after.clone()), (4, after)]);
}

#[test]
fn tags_are_pushed_set_and_popped() {
    let plain = udp().build();
    let tagged = udp().tag(0x8100, 7).build();
    let push =
        [Action::PushVlan { ethertype: 0x8100 }, set_field(FieldId::VlanVid, 0x1007), output(2)];
    check(push.to_vec(), &plain, &[(2, tagged.clone())]);
    check(vec![output(3), Action::PopVlan, output(2)], &tagged, &[(3, tagged.clone()), (2, plain)]);
}

/// Cache entries of the other limit stay, and decide no packet wrongly.
#[test]
fn the_limit_of_tags_changes_while_packets_flow() {
    let config = super::thread_config();
    let mut switch = Switch::new(1, 3, config);
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::EthType, 0x0800);
    mask.add_field(FieldId::EthType);
    let is_ip = rule(2, Match::new(&key, &mask), vec![output(2)]);
    switch.apply(&[is_ip, rule(1, Match::any(), vec![output(3)])]);
    let frame = udp().tag(0x8100, 5).tag(0x8100, 100).build();
    for (vlan_limit, port) in [(VlanLimit::One, 3), (VlanLimit::Two, 2), (VlanLimit::One, 3)] {
        let ThreadConfig { max_idle, translations_per_iteration, verify_one_in, .. } = config;
        let tuning = Tuning {
            max_idle,
            translations_per_iteration,
            verify_one_in,
            repair: config.repair,
            wildcard: config.caches.wildcard,
            entries_max: ThreadConfig::default().caches.entries_max,
            sleep_max: config.sleep_max,
            vlan_limit,
        };
        switch.controls[0].send(Command::Tune(tuning)).unwrap();
        switch.settle();
        for _ in 0..2 {
            assert!(switch.send(0, 1, &frame));
            switch.settle();
            assert_eq!(switch.receive(0, port).len(), 1, "{vlan_limit:?}");
        }
    }
}

#[test]
fn header_behind_pushed_tag_is_still_found() {
    let plain = udp().build();
    let changed = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(1000, 54)
        .payload(b"payload".to_vec())
        .tag(0x8100, 7)
        .build();
    let actions = vec![
        Action::PushVlan { ethertype: 0x8100 },
        set_field(FieldId::VlanVid, 0x1007),
        set_field(FieldId::UdpDst, 54),
        output(2),
    ];
    check(actions, &plain, &[(2, changed)]);
}

#[test]
fn a_truncated_copy_leaves_the_packet_whole() {
    let frame = udp().build();
    let cut = Action::OutputTruncated { port: PortNo::new(2), max_len: 20 };
    let expected = [(2, frame[..20].to_vec()), (3, frame.clone())];
    check(vec![cut.clone(), output(3)], &frame, &expected);
    check(vec![output(3), cut], &frame, &expected);
}

#[test]
fn only_in_port_returns_packet_to_port() {
    let frame = udp().build();
    let switch = check(vec![output(1)], &frame, &[]);
    assert_eq!(switch.counters(0).dropped[DropReason::Hairpin as usize].get(), 3);
    let back = Action::Output { port: PortNo::IN_PORT, max_len: 0 };
    check(vec![back], &frame, &[(1, frame.clone())]);
}

#[test]
fn drop_is_counted_by_its_bound() {
    let resubmit = |table| Action::Resubmit { port: None, table: TableId::new(table) };
    let push = Action::Push(Subfield::whole(FieldId::Metadata));
    for (actions, reason) in [
        (vec![resubmit(0)], DropReason::RecursionTooDeep),
        (vec![resubmit(1); 4097], DropReason::TooManyResubmits),
        (vec![output(2); 65_537], DropReason::TooManyActions),
        (vec![push; 65_537], DropReason::StackTooDeep),
    ] {
        // Outputs before the error do not happen either.
        let switch = check([vec![output(3)], actions].concat(), &udp().build(), &[]);
        let counters = switch.counters(0);
        let dropped =
            DropReason::ALL.iter().filter(|own| counters.dropped[**own as usize].get() > 0);
        assert!(dropped.eq([&reason]), "{reason:?}");
    }
}

#[test]
fn a_flood_reaches_all_other_ports() {
    let frame = udp().build();
    let flood = Action::Output { port: PortNo::FLOOD, max_len: 0 };
    let expected: Vec<_> = (2..=4).map(|port| (port, frame.clone())).collect();
    check(vec![flood], &frame, &expected);
}

#[test]
fn hits_of_a_cached_drop_count_its_cause() {
    if !super::HAS_CACHE {
        return;
    }
    let resubmit = |table| Action::Resubmit { port: None, table: TableId::new(table) };
    let gone = Action::Output { port: PortNo::new(77), max_len: 0 };
    for (actions, reason) in [
        (vec![], DropReason::RuleWithoutOutput),
        (vec![resubmit(9)], DropReason::NoMatchingRule),
        (vec![resubmit(9), gone], DropReason::OutputPortMissing),
    ] {
        let switch = check(actions, &udp().build(), &[]);
        let counters = switch.counters(0);
        assert_eq!(counters.dropped[reason as usize].get(), 3, "{reason:?}");
        assert_eq!(counters.dropped_total(), 3, "{reason:?}");
        assert_eq!(counters.upcalls.get(), 1, "the drop is cached");
    }
}

#[test]
fn a_packet_in_names_its_ingress_port() {
    let frame = udp().build();
    let controller = Action::Controller(Box::new(ControllerAction {
        meter: None,
        pause: false,
        max_len: 128,
        controller_id: 5,
        reason: PacketInReason::Action,
        userdata: Box::new([1, 2, 3]),
    }));
    let mut switch = check(vec![controller, output(2)], &frame, &[(2, frame.clone())]);
    assert_eq!(switch.counters(0).punted.get(), 3);
    for _ in 0..3 {
        let packet_in = switch.controls[0].packet_ins.pop().unwrap();
        assert_eq!(packet_in.frame, frame);
        assert_eq!((packet_in.punt.bridge, packet_in.punt.controller_id), (BRIDGE, 5));
        assert_eq!(&packet_in.punt.userdata[..], [1, 2, 3]);
    }
}

/// Writes the sum of the pseudo-header into the UDP header behind an IPv4 header.
fn put_partial_checksum(frame: &mut [u8], network: usize) {
    let header = &frame[network + 12..network + 20];
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>() + 17 + u32::try_from(frame.len() - network - 20).unwrap();
    let folded = u16::try_from(sum % 0xffff).unwrap();
    frame[network + 26..network + 28].copy_from_slice(&folded.to_be_bytes());
}

#[test]
fn a_partial_checksum_stays_partial_through_a_rewrite() {
    let mut switch = Switch::new(1, 2, Default::default());
    let actions = vec![set_field(FieldId::Ipv4Dst, 0xc000_0201), output(2)];
    switch.apply(&[rule(1, Match::any(), actions)]);
    let mut sent = udp().build();
    put_partial_checksum(&mut sent, 14);
    let virtio = VirtioHeader {
        needs_checksum: true,
        checksum_start: 34,
        checksum_offset: 6,
        ..VirtioHeader::default()
    };
    assert!(switch.send_with(0, 1, &sent, |packet| packet.virtio = virtio));
    switch.settle();
    let target = PacketBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1]);
    let mut expected = target.udp(1000, 53).payload(b"payload".to_vec()).build();
    put_partial_checksum(&mut expected, 14);
    assert_eq!(switch.receive(0, 2), [expected]);
}

/// Offset of the IPv4 header of [`udp`] in a VXLAN packet.
const IN_VXLAN: usize = 14 + 20 + 8 + 8 + 14;

/// Returns [`udp`], without a complete checksum, in a VXLAN packet to `target`.
fn in_vxlan(target: [u8; 4]) -> Vec<u8> {
    let tunnel = PacketBuilder::ipv4([10, 0, 0, 1], target).udp(1000, 4789);
    let mut frame = tunnel.payload([vec![8; 8], udp().build()].concat()).build();
    put_partial_checksum(&mut frame, IN_VXLAN);
    frame
}

/// Returns the frame that leaves a switch that sets the target of [`in_vxlan`].
fn redirect(frame: &[u8], virtio: VirtioHeader) -> Vec<Vec<u8>> {
    let mut switch = Switch::new(1, 2, Default::default());
    let actions = vec![set_field(FieldId::Ipv4Dst, 0xc000_0201), output(2)];
    switch.apply(&[rule(1, Match::any(), actions)]);
    assert!(switch.send_with(0, 1, frame, |packet| packet.virtio = virtio));
    switch.settle();
    switch.receive(0, 2)
}

/// The header of a packet in VXLAN with a partial checksum.
const PARTIAL_IN_VXLAN: VirtioHeader = VirtioHeader {
    needs_checksum: true,
    data_valid: false,
    gso_type: 0,
    gso_size: 0,
    header_length: 0,
    checksum_start: 84,
    checksum_offset: 6,
    tunnel: None,
};

#[test]
fn a_tunnel_checksum_stays_complete_around_a_partial_one() {
    // The checksum of the tunnel is computed over the complete packet in it.
    let sent = redirect(&in_vxlan([10, 0, 0, 2]), PARTIAL_IN_VXLAN);
    assert_eq!(sent, [in_vxlan([192, 0, 2, 1])]);
}

#[test]
fn a_rewrite_keeps_the_tunnel_of_segments_valid() {
    for tunnel in [UdpTunnel::Checked, UdpTunnel::Unchecked] {
        let to_segment = |target| {
            let mut frame = in_vxlan(target);
            match tunnel {
                UdpTunnel::Checked => put_partial_checksum(&mut frame, 14),
                UdpTunnel::Unchecked => frame[40..42].fill(0),
            }
            frame
        };
        let virtio = VirtioHeader {
            gso_type: VirtioHeader::GSO_UDP_L4,
            gso_size: 4,
            header_length: 92,
            tunnel: Some(tunnel),
            ..PARTIAL_IN_VXLAN
        };
        let frame = to_segment([10, 0, 0, 2]);
        assert_eq!(VirtioHeader::receive(virtio.encode(), &frame), Ok(virtio));
        assert_eq!(redirect(&frame, virtio), [to_segment([192, 0, 2, 1])], "{tunnel:?}");
    }
}

#[test]
fn packet_out_runs_its_actions_without_caches() {
    let mut switch = Switch::new(1, 3, Default::default());
    let frame = udp().build();
    let mut key = FlowKey::ZERO;
    shunt_flow::extract::extract(&frame, Default::default(), &mut key);
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::CONTROLLER);
    let version = switch.pipeline.version();
    let traversal = switch.pipeline.translate_actions(&key, &[output(3), output(2)], version);
    let injection =
        Injection { frame: frame.clone(), ingress: NO_INGRESS, traversal: traversal.into() };
    switch.controls[0].send(Command::Inject(Box::new(injection))).unwrap();
    switch.settle();
    assert_eq!((switch.receive(0, 2), switch.receive(0, 3)), (vec![frame.clone()], vec![frame]));
    let counters = switch.counters(0);
    assert_eq!((counters.injected.get(), counters.unaccounted()), (1, 0));
    assert_eq!(counters.entries.get(), 0);
}

#[test]
fn packet_of_port_without_bridge_is_dropped() {
    let mut switch = Switch::new(1, 2, Default::default());
    let port = shunt_pipeline::DatapathPort::new(1);
    let nowhere = Command::Bind(port, shunt_pipeline::BridgeId::new(9), PortNo::new(1));
    switch.controls[0].send(nowhere).unwrap();
    assert!(switch.send(0, 1, &udp().build()));
    switch.settle();
    assert_eq!(switch.counters(0).dropped[DropReason::BridgeNotFound as usize].get(), 1);
}

#[test]
fn entries_match_only_bits_that_the_rule_consults() {
    let mut switch = Switch::new(1, 2, Default::default());
    let mut key = FlowKey::ZERO;
    let mut mask = FlowMask::EMPTY;
    key.set_in_port(PortNo::new(1));
    mask.add_field(FieldId::InPort);
    switch.apply(&[rule(1, Match::new(&key, &mask), vec![output(2)])]);
    for host in 0..50 {
        let frame = PacketBuilder::ipv4([10, 0, 0, host], [10, 0, 1, host]).udp(1, 2).build();
        assert!(switch.send(0, 1, &frame));
    }
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 50);
    assert_eq!((switch.counters(0).upcalls.get(), switch.counters(0).masks.get()), (1, 1));
}
