//! Flow samples: the header of one packet in N, with its interfaces and VLANs.

use crate::xdr::XdrBuffer;

/// A sampled packet (`struct flow_sample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// The data source of the sample.
    pub source: SourceId,
    /// One packet in `rate` is sampled.
    pub rate: u32,
    /// Number of packets that were candidates for sampling; it wraps around.
    pub pool: u32,
    /// Number of samples that were lost because of a lack of resources.
    pub drops: u32,
    /// Interface that received the packet.
    pub input: SampledInterface,
    /// Interface on which the packet is sent.
    pub output: SampledInterface,
    /// Outermost VLAN tag of the packet as received.
    pub vlan_in: SampledTag,
    /// Outermost VLAN tag of the packet as sent.
    pub vlan_out: SampledTag,
    /// Length of the frame in bytes, without the frame check sequence.
    pub frame_length: u32,
    /// The first bytes of the frame, as received.
    pub header: &'a [u8],
}

/// A data source (`sflow_data_source`).
///
/// The value has the class of the index in 8 bits, and the index in 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceId(u32);

/// The input or output interface of a sampled packet (`interface`).
///
/// The two highest bits of the value are its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledInterface {
    /// The interface is not known.
    Unknown,
    /// The switch itself sent or consumed the packet.
    Internal,
    /// One interface, identified by its `ifIndex`.
    Index(u32),
    /// The sampled packet is discarded.
    Discarded(DiscardReason),
    /// Several interfaces, given as their number; 0:
    /// several interfaces of unknown number.
    Multiple(u32),
}

/// The reason why a sampled packet is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// Any reason without a separate code.
    Unknown,
}

/// The VLAN id and the priority of a VLAN tag; both are 0 for an untagged packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledTag {
    /// VLAN id (12 bits).
    pub vid: u16,
    /// Priority code point (3 bits).
    pub pcp: u8,
}

/// Format numbers of the records in a flow sample.
pub(crate) const RAW_PACKET_HEADER: u32 = 1;
/// The type of a record about VLANs of a sampled packet.
pub(crate) const EXTENDED_SWITCH: u32 = 1001;

/// The header protocol number of Ethernet (`header_protocol`).
pub(crate) const ETHERNET: u32 = 1;

/// Length of the frame check sequence of a frame on the wire, in bytes.
pub(crate) const FCS_BYTES: u32 = 4;

/// The largest value without the format bits: 30 bits.
const INTERFACE_MAX: u32 = (1 << 30) - 1;

impl SourceId {
    /// The class of `SourceId` values for physical entities (`entPhysicalEntry`).
    const ENTITY: u32 = 2;

    /// The index for a bridge; a datagram stream has only one bridge.
    const BRIDGE: u32 = 1000;

    /// Number of bits for the index in a `SourceId`.
    const INDEX_BITS: u32 = 24;

    /// Returns the data source of flow samples of a bridge.
    ///
    /// The packets of a bridge are sampled together, not per interface. Open vSwitch uses the same
    /// value.
    #[must_use]
    pub const fn bridge() -> Self {
        Self(Self::ENTITY << Self::INDEX_BITS | Self::BRIDGE)
    }

    /// Returns the data source of the counters of an interface.
    ///
    /// Only the low 24 bits of `index` are used.
    #[must_use]
    pub const fn interface(index: u32) -> Self {
        Self(index & ((1 << Self::INDEX_BITS) - 1))
    }

    /// Returns the value in a datagram.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl SampledInterface {
    /// Returns the value in a datagram.
    #[must_use]
    pub fn value(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Internal => INTERFACE_MAX,
            Self::Index(index) => index.min(INTERFACE_MAX - 1),
            Self::Discarded(reason) => 1 << 30 | reason.code(),
            Self::Multiple(count) => 2 << 30 | count.min(INTERFACE_MAX),
        }
    }
}

impl DiscardReason {
    /// Returns the sFlow code of the reason.
    const fn code(self) -> u32 {
        match self {
            Self::Unknown => 256,
        }
    }
}

impl SampledTag {
    /// Returns the fields of a TCI; `None` means that the packet is untagged.
    #[must_use]
    pub fn of_tci(tci: Option<u16>) -> Self {
        let tci = tci.unwrap_or_default();
        let [high, _] = tci.to_be_bytes();
        Self { vid: tci & 0x0fff, pcp: high >> 5 }
    }
}

/// Appends a flow sample, with its sequence number.
pub(super) fn encode(buffer: &mut XdrBuffer, sequence: u32, sample: &FlowSample<'_>) {
    buffer.push_u32(sequence);
    buffer.push_u32(sample.source.value());
    buffer.push_u32(sample.rate);
    buffer.push_u32(sample.pool);
    buffer.push_u32(sample.drops);
    buffer.push_u32(sample.input.value());
    buffer.push_u32(sample.output.value());
    buffer.push_u32(2);
    buffer.push_u32(EXTENDED_SWITCH);
    buffer.push_nested(|record| {
        for tag in [sample.vlan_in, sample.vlan_out] {
            record.push_u32(tag.vid.into());
            record.push_u32(tag.pcp.into());
        }
    });
    buffer.push_u32(RAW_PACKET_HEADER);
    buffer.push_nested(|record| {
        record.push_u32(ETHERNET);
        record.push_u32(sample.frame_length.saturating_add(FCS_BYTES));
        record.push_u32(FCS_BYTES);
        record.push_opaque(sample.header);
    });
}
