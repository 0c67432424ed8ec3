//! Tests of ports with BFD sessions: packets for a session, and groups that watch the ports.

use shunt_flow::PortNo;
use shunt_pipeline::{DatapathAction, Delta, GroupKind, Object, PortBfd, PortInfo, PuntReceiver};

use crate::{
    build::{add_group, group, output, rule, watching},
    switch::{BRIDGE, Switch, ports},
};

/// A BFD packet that arrives on a port with a session.
pub(crate) const BFD_PACKET: &str =
    "udp,in_port=1,dl_dst=00:23:20:00:00:01,nw_dst=169.254.1.0,nw_ttl=255,tp_dst=3784";

/// Returns the ports 1 to 4 and LOCAL, with a session at port 1.
pub(crate) fn with_bfd(destination: Option<[u8; 6]>, is_forwarding: bool) -> Vec<PortInfo> {
    let mut all = ports();
    all[0].bfd = Some(PortBfd { destination, is_forwarding });
    all
}

fn receiver(switch: &Switch, packet: &str) -> Option<PuntReceiver> {
    match &*switch.translate(packet).actions {
        [DatapathAction::Punt(punt)] => Some(punt.receiver),
        _ => None,
    }
}

#[test]
fn bfd_packets_bypass_the_tables() {
    let switch = Switch::of_actions(&[output(3)]);
    assert_eq!(switch.run(BFD_PACKET), "3", "without BFD");
    let session = Some(PuntReceiver::Bfd(PortNo::new(1)));
    for is_forwarding in [true, false] {
        switch.set_ports(with_bfd(None, is_forwarding));
        assert_eq!(receiver(&switch, BFD_PACKET), session);
        let traversal = switch.translate(BFD_PACKET);
        assert!(traversal.visits.is_empty() && traversal.learnings.is_empty());
        let others = [
            ("in_port=1", "in_port=2"),
            ("3784", "3785"),
            ("udp", "tcp"),
            ("nw_ttl=255", "nw_ttl=254"),
            ("nw_ttl=255", "nw_ttl=1"),
        ];
        for (own, other) in others {
            assert_eq!(switch.run(&BFD_PACKET.replace(own, other)), "3", "{other}");
        }
    }
    switch.set_ports(with_bfd(Some([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]), true));
    assert_eq!(receiver(&switch, BFD_PACKET), session);
    assert_eq!(switch.run(&BFD_PACKET.replace("00:01", "00:02")), "3", "another address");
}

#[test]
fn session_that_is_down_moves_failover_group() {
    let switch = Switch::new(&[]);
    let buckets = vec![watching(1, vec![output(1)]), watching(2, vec![output(2)])];
    switch.make([add_group(1, GroupKind::FastFailover, buckets), rule("", vec![group(1)]).into()]);
    let packet = "tcp,in_port=3,tp_dst=80";
    assert_eq!(switch.run(packet), "1", "without BFD the link decides");
    switch.set_ports(with_bfd(None, false));
    assert_eq!(switch.run(packet), "2");
    switch.set_ports(with_bfd(None, true));
    assert_eq!(switch.run(packet), "1");
}

#[test]
fn first_session_evicts_every_entry_of_bridge() {
    let switch = Switch::of_actions(&[output(3)]);
    let changed = |ports| {
        let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
        let is = |object: Object| {
            let is_own = |delta: &Delta| matches!(delta, Delta::Changed(own) if *own == object);
            change.deltas.iter().any(is_own)
        };
        (is(Object::Bridge(BRIDGE)), is(Object::Port(BRIDGE, PortNo::new(1))))
    };
    assert_eq!(changed(with_bfd(None, false)), (true, true));
    assert_eq!(changed(with_bfd(None, true)), (false, true), "only the port changes");
    assert_eq!(changed(ports()), (true, true));
}
