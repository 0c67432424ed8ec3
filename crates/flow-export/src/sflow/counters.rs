//! Counters samples: the counters of one interface.

use crate::xdr::XdrBuffer;

/// The counters and the state of an interface.
///
/// The generic interface counters are `struct if_counters`. Counters that are `None` are encoded as
/// unknown, which is the largest value of their type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// `ifIndex` of the interface.
    pub index: u32,
    /// Speed in bits per second; 0: unknown.
    pub speed_bps: u64,
    /// Duplex mode of the interface.
    pub duplex: LinkDuplex,
    /// True if the interface is set up (`ifAdminStatus`).
    pub is_admin_up: bool,
    /// True if the link of the interface is up (`ifOperStatus`).
    pub is_link_up: bool,
    /// Bytes that the interface received.
    pub rx_bytes: u64,
    /// Packets received: unicast, multicast and broadcast together.
    pub rx_packets: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Bytes that the interface sent.
    pub tx_bytes: u64,
    /// Packets sent: unicast, multicast and broadcast together.
    pub tx_packets: u64,
    /// Packets that could not be sent.
    pub tx_dropped: u64,
    /// Datapath id of the bridge.
    pub datapath_id: u64,
    /// OpenFlow number of the port.
    pub port_number: u32,
    /// Name of the port.
    pub name: String,
}

/// The duplex mode of an interface (`ifDirection`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkDuplex {
    /// The duplex mode is not known.
    #[default]
    Unknown,
    /// The link is in full duplex mode.
    Full,
    /// The link is in half duplex mode.
    Half,
}

/// Format number of generic interface counters in a counters sample.
pub(crate) const GENERIC_INTERFACE: u32 = 1;
/// Format number of an OpenFlow port ("sFlow OpenFlow Structures", sflow.org,
/// 2014).
pub(crate) const OPENFLOW_PORT: u32 = 1004;
/// Format number of a port name ("sFlow OpenFlow Structures", sflow.org, 2014).
pub(crate) const PORT_NAME: u32 = 1005;

/// The type of Ethernet interfaces (`ifType`, RFC 2863: `ethernetCsmacd`).
pub(crate) const ETHERNET_INTERFACE: u32 = 6;

/// The encoded value of an unknown 32-bit counter.
const UNKNOWN: u32 = u32::MAX;

/// Appends the records of a counters sample;
/// its sequence number and source precede them.
pub(super) fn encode(buffer: &mut XdrBuffer, statistics: &InterfaceStatistics) {
    buffer.push_u32(3);
    buffer.push_u32(GENERIC_INTERFACE);
    buffer.push_nested(|record| encode_generic(record, statistics));
    buffer.push_u32(OPENFLOW_PORT);
    buffer.push_nested(|record| {
        record.push_u64(statistics.datapath_id);
        record.push_u32(statistics.port_number);
    });
    buffer.push_u32(PORT_NAME);
    buffer.push_nested(|record| record.push_opaque(statistics.name.as_bytes()));
}

/// Appends generic interface counters (`struct if_counters`).
///
/// Counters of 32 bits wrap around. All packets are encoded as unicast, and the numbers of
/// multicast and broadcast packets as unknown.
fn encode_generic(record: &mut XdrBuffer, statistics: &InterfaceStatistics) {
    record.push_u32(statistics.index);
    record.push_u32(ETHERNET_INTERFACE);
    record.push_u64(statistics.speed_bps);
    record.push_u32(match statistics.duplex {
        LinkDuplex::Unknown => 0,
        LinkDuplex::Full => 1,
        LinkDuplex::Half => 2,
    });
    record.push_u32(u32::from(statistics.is_admin_up) | u32::from(statistics.is_link_up) << 1);
    record.push_u64(statistics.rx_bytes);
    for count in [Some(statistics.rx_packets), None, None, Some(statistics.rx_dropped), None, None]
    {
        record.push_u32(count.map_or(UNKNOWN, wrapped));
    }
    record.push_u64(statistics.tx_bytes);
    for count in [Some(statistics.tx_packets), None, None, Some(statistics.tx_dropped), None] {
        record.push_u32(count.map_or(UNKNOWN, wrapped));
    }
    // The field for promiscuous mode.
    record.push_u32(UNKNOWN);
}

/// Returns the low 32 bits of a counter.
#[expect(clippy::cast_possible_truncation, reason = "counters of 32 bits wrap around")]
const fn wrapped(count: u64) -> u32 {
    count as u32
}
