//! A slow decoder of NetFlow version 5.

use super::reader::{half, take, word};
use crate::netflow::{NetflowEngine, NetflowRecord};

/// A decoded NetFlow datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedNetflow {
    /// The header of the datagram.
    pub header: DecodedNetflowHeader,
    /// The records of the datagram, in order.
    pub records: Vec<NetflowRecord>,
}

/// The header of a NetFlow datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedNetflowHeader {
    /// Milliseconds since the exporter started.
    pub uptime_ms: u32,
    /// Time of the datagram in seconds since 1970.
    pub seconds: u32,
    /// Nanoseconds within the second of the datagram.
    pub nanoseconds: u32,
    /// Number of records in earlier datagrams.
    pub sequence: u32,
    /// The identity of the exporter.
    pub engine: NetflowEngine,
}

/// Decodes a datagram; `None` if the bytes are not exactly one unsampled datagram.
#[must_use]
pub fn decode_netflow(datagram: &[u8]) -> Option<DecodedNetflow> {
    let rest = &mut &*datagram;
    if half(rest)? != 5 {
        return None;
    }
    let count = half(rest)?;
    let (uptime_ms, seconds, nanoseconds) = (word(rest)?, word(rest)?, word(rest)?);
    let sequence = word(rest)?;
    let engine = NetflowEngine { kind: byte(rest)?, id: byte(rest)? };
    if half(rest)? != 0 || count == 0 || count > 30 {
        return None;
    }
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(record(rest)?);
    }
    let header = DecodedNetflowHeader { uptime_ms, seconds, nanoseconds, sequence, engine };
    rest.is_empty().then_some(DecodedNetflow { header, records })
}

/// Decodes a flow record.
fn record(rest: &mut &[u8]) -> Option<NetflowRecord> {
    let (source, destination, next_hop) = (word(rest)?, word(rest)?, word(rest)?);
    let (input, output) = (half(rest)?, half(rest)?);
    let (packets, bytes) = (word(rest)?, word(rest)?);
    let (first_ms, last_ms) = (word(rest)?, word(rest)?);
    let (source_port, destination_port) = (half(rest)?, half(rest)?);
    let padding = byte(rest)?;
    let (tcp_flags, protocol, tos) = (byte(rest)?, byte(rest)?, byte(rest)?);
    let autonomous_systems = word(rest)?;
    let (masks, end) = (half(rest)?, half(rest)?);
    let are_zero =
        next_hop == 0 && padding == 0 && autonomous_systems == 0 && masks == 0 && end == 0;
    are_zero.then_some(NetflowRecord {
        source: source.into(),
        destination: destination.into(),
        input,
        output,
        packets: packets.into(),
        bytes: bytes.into(),
        first_ms,
        last_ms,
        source_port,
        destination_port,
        tcp_flags,
        protocol,
        tos,
    })
}

/// Takes a byte.
fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1)?.first().copied()
}
