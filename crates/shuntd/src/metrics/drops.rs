//! The metrics of packets and of lost packets.

use shunt_switch::{DropStatus, PacketInOutcomes, PortDropStatus};

use super::text::{Metric, MetricsText};

/// The metrics of all packets of a switch.
const PACKETS: [Metric<DropStatus>; 6] = [
    ("shunt_injected_packets_total", "counter", "Packet-outs of controllers.", |own| {
        own.injected.into()
    }),
    ("shunt_copied_packets_total", "counter", "Copies made for further outputs.", |own| {
        own.copied.into()
    }),
    ("shunt_sent_packets_total", "counter", "Packets that transmit queues accepted.", |own| {
        own.sent.into()
    }),
    (
        "shunt_device_lost_packets_total",
        "counter",
        "Packets that are counted as sent, although the device could not send them.",
        |own| own.device_lost.into(),
    ),
    (
        "shunt_punted_packets_total",
        "counter",
        "Packet-ins for controllers, and frames for LACP, BFD and multicast snooping.",
        |own| own.punted.into(),
    ),
    (
        "shunt_held_packets",
        "gauge",
        "Packets that wait in upcall queues for a translation, or in egress queues.",
        |own| own.held.into(),
    ),
];

/// Returns the metrics of packets and of lost packets.
pub(crate) fn drops(status: &DropStatus) -> String {
    let mut text = MetricsText::default();
    text.singles(status, &PACKETS);
    text.family(
        "shunt_dropped_packets_total",
        "counter",
        "Packets dropped after they were received, by reason.",
    );
    text.pairs("reason", &status.dropped);
    text.family(
        "shunt_not_received_packets_total",
        "counter",
        "Frames lost at a port before a packet thread looked them up, by reason.",
    );
    text.pairs("reason", &status.not_received);
    let PacketInOutcomes { handed_over, listener_full, no_connection, no_bridge } =
        status.packet_ins;
    text.family(
        "shunt_packet_ins_total",
        "counter",
        "Punted packets by outcome: handed to the OpenFlow connections, or dropped.",
    );
    for (end, packets) in [
        ("handed_over", handed_over),
        ("listener_full", listener_full),
        ("no_connection", no_connection),
        ("no_bridge", no_bridge),
    ] {
        text.value(&[("end", end)], packets);
    }
    text.family(
        "shunt_port_dropped_packets_total",
        "counter",
        "Packets lost at a port, or in the switch after the port received them, by direction and \
         reason; each is also in one of the totals.",
    );
    for PortDropStatus { bridge, name, drops, .. } in &status.ports {
        let labels = [
            ("bridge", bridge.as_str()),
            ("port", name),
            ("direction", drops.direction),
            ("reason", drops.reason),
        ];
        text.value(&labels, drops.packets);
    }
    text.into_text()
}
