//! NetFlow records: the counts of a flow in an interval of time.

use std::net::Ipv4Addr;

/// The counts of a flow in an interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetflowRecord {
    /// IPv4 source address (`srcaddr`).
    pub source: Ipv4Addr,
    /// IPv4 destination address (`dstaddr`).
    pub destination: Ipv4Addr,
    /// Interface that received the packets (`input`).
    pub input: u16,
    /// Interface that sent the packets (`output`).
    pub output: u16,
    /// Number of packets in the interval (`dPkts`).
    pub packets: u64,
    /// Number of bytes in these packets (`dOctets`).
    pub bytes: u64,
    /// Uptime at the first packet, in milliseconds (`First`).
    pub first_ms: u32,
    /// Uptime at the last packet, in milliseconds (`Last`).
    pub last_ms: u32,
    /// Source port of TCP or UDP; 0 for other protocols (`srcport`).
    pub source_port: u16,
    /// Destination port of TCP or UDP (`dstport`).
    ///
    /// For ICMP, the high byte is the type of the message, and the low byte its code.
    pub destination_port: u16,
    /// Flags of all TCP segments of the flow, combined by OR (`tcp_flags`).
    pub tcp_flags: u8,
    /// IP protocol of the flow (`prot`).
    pub protocol: u8,
    /// IP type of service (`tos`).
    pub tos: u8,
}

/// Length of an encoded record, in bytes.
pub(crate) const RECORD_BYTES: usize = 48;

impl NetflowRecord {
    /// Splits the flow into records with counts of at most 32 bits.
    ///
    /// The counts are divided evenly, and add up to the counts of the flow. A flow at 100 Gbit/s
    /// has 175 records for a minute.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let largest = self.packets.max(self.bytes);
        let count = largest.div_ceil(u32::MAX.into()).max(1);
        (0..count).map(move |index| Self {
            packets: share(self.packets, index, count),
            bytes: share(self.bytes, index, count),
            ..self
        })
    }

    /// Appends the encoding of a record with counts of at most 32 bits.
    pub(super) fn encode(&self, buffer: &mut Vec<u8>) {
        let next_hop = [0; 4];
        let (source_as, destination_as, masks) = ([0; 2], [0; 2], [0; 2]);
        buffer.extend_from_slice(&self.source.octets());
        buffer.extend_from_slice(&self.destination.octets());
        buffer.extend_from_slice(&next_hop);
        buffer.extend_from_slice(&self.input.to_be_bytes());
        buffer.extend_from_slice(&self.output.to_be_bytes());
        for count in [self.packets, self.bytes] {
            buffer.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        }
        buffer.extend_from_slice(&self.first_ms.to_be_bytes());
        buffer.extend_from_slice(&self.last_ms.to_be_bytes());
        buffer.extend_from_slice(&self.source_port.to_be_bytes());
        buffer.extend_from_slice(&self.destination_port.to_be_bytes());
        // The first byte of this group is padding.
        buffer.extend_from_slice(&[0, self.tcp_flags, self.protocol, self.tos]);
        buffer.extend_from_slice(&[source_as, destination_as, masks].concat());
        buffer.extend_from_slice(&[0; 2]);
    }
}

/// Returns part `index` of `count` nearly equal parts of a number.
fn share(whole: u64, index: u64, count: u64) -> u64 {
    let until = |parts: u64| u128::from(whole) * u128::from(parts) / u128::from(count);
    // A part of a 64-bit number always fits 64 bits.
    u64::try_from(until(index + 1) - until(index)).unwrap_or(u64::MAX)
}
