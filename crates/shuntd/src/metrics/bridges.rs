//! The metrics of bridges, ports, controllers and tables.

use shunt_bfd::BfdState;
use shunt_flow::PortNo;
use shunt_switch::{
    BfdPortStatus, BondMemberLacpStatus, BondMemberStatus, BridgePortStatus, BridgeStatus,
    ControllerState, FlowTableStatus, MirrorStatus, MulticastMessages, MulticastStatus,
    PacketInTotals,
};

use super::{
    exports::exports,
    text::{Labels, Metric, MetricsText},
};

/// The metrics of a bridge.
const BRIDGE: [Metric<BridgeStatus>; 3] = [
    ("shunt_bridge_rules", "gauge", "Rules in all tables of a bridge.", |own| own.rules.into()),
    (
        "shunt_bridge_openflow_connections",
        "gauge",
        "OpenFlow connections of a bridge, those of management clients included.",
        |own| (own.connections.len() as u64).into(),
    ),
    (
        "shunt_bridge_fail_open",
        "gauge",
        "1 if a bridge forwards as a learning switch, because no controller is reachable, else 0.",
        |own| u64::from(own.fail_open).into(),
    ),
];

/// The metrics of a port.
const PORT: [Metric<BridgePortStatus>; 9] = [
    ("shunt_port_up", "gauge", "1 if the port is open and its link is up, else 0.", |own| {
        u64::from(own.link == "up").into()
    }),
    ("shunt_port_received_packets_total", "counter", "Packets received on a port.", |own| {
        own.rx_packets.into()
    }),
    ("shunt_port_received_bytes_total", "counter", "Bytes received on a port.", |own| {
        own.rx_bytes.into()
    }),
    ("shunt_port_sent_packets_total", "counter", "Packets sent on a port.", |own| {
        own.tx_packets.into()
    }),
    ("shunt_port_sent_bytes_total", "counter", "Bytes sent on a port.", |own| own.tx_bytes.into()),
    (
        "shunt_port_received_copies_total",
        "counter",
        "Copies that a port made of received frames.",
        |own| own.copies.rx_copies.into(),
    ),
    (
        "shunt_port_received_copied_bytes_total",
        "counter",
        "Bytes in the copies that a port made of received frames.",
        |own| own.copies.rx_copied_bytes.into(),
    ),
    (
        "shunt_port_sent_copies_total",
        "counter",
        "Copies that a port made of sent packets.",
        |own| own.copies.tx_copies.into(),
    ),
    (
        "shunt_port_sent_copied_bytes_total",
        "counter",
        "Bytes in the copies that a port made of sent packets.",
        |own| own.copies.tx_copied_bytes.into(),
    ),
];

/// The metrics of the BFD session of a port.
const PORT_BFD: [Metric<BfdPortStatus>; 6] = [
    ("shunt_port_bfd_up", "gauge", "1 if the BFD session of a port is up, else 0.", |own| {
        u64::from(own.session.state == BfdState::Up).into()
    }),
    (
        "shunt_port_bfd_forwarding",
        "gauge",
        "1 if a port is used because its BFD session is forwarding, else 0.",
        |own| u64::from(own.session.forwarding).into(),
    ),
    (
        "shunt_port_bfd_flaps_total",
        "counter",
        "Number of times that the BFD session of a port began or stopped forwarding.",
        |own| own.session.flap_count.into(),
    ),
    (
        "shunt_port_bfd_received_total",
        "counter",
        "BFD packets that a session received and used.",
        |own| own.session.counters.rx_packets.into(),
    ),
    ("shunt_port_bfd_sent_total", "counter", "BFD packets that a session sent.", |own| {
        own.session.counters.tx_packets.into()
    }),
    (
        "shunt_port_bfd_refused_total",
        "counter",
        "BFD packets that a session received and refused: malformed, or of another session.",
        |own| own.session.counters.rx_bad_packets.into(),
    ),
];

/// The metrics of a member of a bond.
const BOND_MEMBER: [Metric<BondMemberStatus>; 2] = [
    ("shunt_bond_member_enabled", "gauge", "1 if a member of a bond is enabled, else 0.", |own| {
        u64::from(own.enabled).into()
    }),
    (
        "shunt_bond_member_active",
        "gauge",
        "1 if a member of a bond is the active one, else 0.",
        |own| u64::from(own.active).into(),
    ),
];

/// The metrics of a member of a bond with LACP.
const BOND_MEMBER_LACP: [Metric<BondMemberLacpStatus>; 5] = [
    (
        "shunt_bond_member_lacp_current",
        "gauge",
        "1 if the LACP partner of a member of a bond has sent a recent LACPDU, else 0.",
        |own| u64::from(own.is_current()).into(),
    ),
    (
        "shunt_bond_member_lacp_received_total",
        "counter",
        "LACPDUs that a member of a bond received.",
        |own| own.member.counters.rx_pdus.into(),
    ),
    (
        "shunt_bond_member_lacp_sent_total",
        "counter",
        "LACPDUs that a member of a bond sent.",
        |own| own.member.counters.tx_pdus.into(),
    ),
    (
        "shunt_bond_member_lacp_malformed_total",
        "counter",
        "Malformed frames of LACP that a member of a bond received.",
        |own| own.member.counters.rx_bad_pdus.into(),
    ),
    (
        "shunt_bond_member_lacp_refused_total",
        "counter",
        "Frames of LACP that a member of a bond received and dropped, because they were too many.",
        |own| own.refused.into(),
    ),
];

/// The metrics of a mirror.
const MIRROR: [Metric<MirrorStatus>; 2] = [
    ("shunt_mirror_packets_total", "counter", "Packets that a mirror copied.", |own| {
        own.tx_packets.into()
    }),
    (
        "shunt_mirror_bytes_total",
        "counter",
        "Bytes of the packets that a mirror copied, before they were truncated.",
        |own| own.tx_bytes.into(),
    ),
];

/// The metrics of multicast snooping on a bridge.
const MULTICAST: [Metric<MulticastStatus>; 6] = [
    (
        "shunt_bridge_multicast_groups",
        "gauge",
        "Multicast groups that a bridge with snooping has learned, counted in each VLAN.",
        |own| own.multicast_groups.into(),
    ),
    (
        "shunt_bridge_multicast_groups_max",
        "gauge",
        "Maximum number of multicast groups of a bridge with snooping.",
        |own| own.multicast_groups_max.into(),
    ),
    (
        "shunt_bridge_multicast_router_ports",
        "gauge",
        "Ports of a bridge with snooping that have multicast routers, counted in each VLAN.",
        |own| own.router_ports.into(),
    ),
    (
        "shunt_bridge_multicast_learned_total",
        "counter",
        "Ports that joined a multicast group, or became router ports.",
        |own| own.multicast_learned.into(),
    ),
    (
        "shunt_bridge_multicast_expired_total",
        "counter",
        "Ports that left a multicast group, or ceased to be router ports, because of their age.",
        |own| own.multicast_expired.into(),
    ),
    (
        "shunt_bridge_multicast_evicted_total",
        "counter",
        "Ports that were taken out of a multicast group because a bridge had too many groups.",
        |own| own.multicast_evicted.into(),
    ),
];

/// The metrics of a table.
const TABLE: [Metric<FlowTableStatus>; 3] = [
    (
        "shunt_table_rules",
        "gauge",
        "Rules in a table; tables without rules and lookups are omitted.",
        |own| own.rules.into(),
    ),
    (
        "shunt_table_lookups_total",
        "counter",
        "Packets looked up in a table, also by hits of a cache.",
        |own| own.lookups.into(),
    ),
    ("shunt_table_matches_total", "counter", "Packets that matched a rule of a table.", |own| {
        own.matches.into()
    }),
];

/// Returns the metrics of bridges, their ports, controllers and tables.
pub(crate) fn bridges(bridges: &[BridgeStatus], tables: &[FlowTableStatus]) -> String {
    let mut text = MetricsText::default();
    let own: Vec<_> =
        bridges.iter().map(|own| (vec![("bridge", own.name.as_str())], own)).collect();
    text.families(&own, &BRIDGE);
    packet_ins(&mut text, bridges);
    controllers(&mut text, bridges);
    let ports: Vec<&BridgePortStatus> = bridges.iter().flat_map(|own| &own.ports).collect();
    port_info(&mut text, &ports);
    let ports: Vec<_> = ports.into_iter().map(|port| (port_labels(port), port)).collect();
    text.families(&ports, &PORT);
    let sessions =
        ports.iter().filter_map(|(labels, own)| Some((labels.clone(), own.bfd.as_ref()?)));
    text.families(&sessions.collect::<Vec<_>>(), &PORT_BFD);
    let members: Vec<_> = bridges.iter().flat_map(bond_members).collect();
    let with_lacp =
        members.iter().filter_map(|(labels, own)| Some((labels.clone(), own.lacp.as_ref()?)));
    text.families(&with_lacp.collect::<Vec<_>>(), &BOND_MEMBER_LACP);
    text.families(&members, &BOND_MEMBER);
    let mirrors = bridges
        .iter()
        .flat_map(|bridge| bridge.mirrors.iter().map(|own| (mirror_labels(bridge, own), own)));
    text.families(&mirrors.collect::<Vec<_>>(), &MIRROR);
    let snooping = bridges
        .iter()
        .filter_map(|own| Some((vec![("bridge", own.name.as_str())], own.multicast.as_ref()?)));
    text.families(&snooping.collect::<Vec<_>>(), &MULTICAST);
    exports(&mut text, bridges);
    let numbers: Vec<String> = tables.iter().map(|own| own.table.to_string()).collect();
    let tables: Vec<_> = tables
        .iter()
        .zip(&numbers)
        .map(|(own, number)| {
            (vec![("bridge", own.bridge.as_str()), ("table", number.as_str())], own)
        })
        .collect();
    text.families(&tables, &TABLE);
    text.into_text()
}

/// Returns the metrics of the messages that multicast snooping reads.
pub(crate) fn multicast(messages: MulticastMessages) -> String {
    let mut text = MetricsText::default();
    text.family(
        "shunt_multicast_messages_total",
        "counter",
        "Messages of IGMP and MLD on bridges with snooping, by their result: read, ignored or lost.",
    );
    let MulticastMessages { read, ignored, lost } = messages;
    for (result, count) in [("read", read), ("ignored", ignored), ("lost", lost)] {
        text.value(&[("result", result)], count);
    }
    text.into_text()
}

/// Returns the members of the bonds of a bridge, each with its labels.
fn bond_members(bridge: &BridgeStatus) -> Vec<(Labels<'_>, &BondMemberStatus)> {
    let mut members = Vec::new();
    for bond in &bridge.bonds {
        for member in &bond.member_status {
            let (bond, port) = (bond.options.name.as_str(), member.name.as_str());
            members.push((
                vec![("bridge", bridge.name.as_str()), ("bond", bond), ("port", port)],
                member,
            ));
        }
    }
    members
}

/// Returns the labels of a mirror.
fn mirror_labels<'a>(bridge: &'a BridgeStatus, mirror: &'a MirrorStatus) -> Labels<'a> {
    vec![("bridge", bridge.name.as_str()), ("mirror", mirror.options.name.as_str())]
}

/// Returns the labels of a port.
fn port_labels(port: &BridgePortStatus) -> Labels<'_> {
    vec![("bridge", port.bridge.as_str()), ("port", port.name.as_str())]
}

/// Adds the metric with the number and the type of each port.
fn port_info(text: &mut MetricsText, ports: &[&BridgePortStatus]) {
    text.family(
        "shunt_port_info",
        "gauge",
        "Always 1; the labels have the number and the type of a port.",
    );
    for port in ports {
        let number = match PortNo::new(port.number) {
            PortNo::LOCAL => PortNo::LOCAL.to_string(),
            own => own.number().to_string(),
        };
        let mut labels = port_labels(port);
        labels.extend([("number", number.as_str()), ("type", port.kind)]);
        text.value(&labels, 1);
    }
}

/// Adds the packet-ins of each bridge, by their result.
fn packet_ins(text: &mut MetricsText, bridges: &[BridgeStatus]) {
    text.family(
        "shunt_bridge_packet_ins_total",
        "counter",
        "Packet-ins of a bridge by outcome, counted for each connection: delivered, or dropped.",
    );
    for bridge in bridges {
        let PacketInTotals { delivered, dropped_unread, dropped_missed, no_connection } =
            bridge.packet_ins;
        for (end, packets) in [
            ("delivered", delivered),
            ("dropped_unread", dropped_unread),
            ("dropped_missed", dropped_missed),
            ("no_connection", no_connection),
        ] {
            text.value(&[("bridge", &bridge.name), ("end", end)], packets);
        }
    }
}

/// Adds the state of each controller; listening addresses are left out.
fn controllers(text: &mut MetricsText, bridges: &[BridgeStatus]) {
    text.family("shunt_controller_connected", "gauge", "1 if the controller is connected, else 0.");
    for bridge in bridges {
        for controller in &bridge.controllers {
            if controller.is_listener() {
                continue;
            }
            let is_connected = matches!(controller.state, ControllerState::Connected { .. });
            let labels = [("bridge", bridge.name.as_str()), ("target", &controller.target)];
            text.value(&labels, u64::from(is_connected));
        }
    }
}
