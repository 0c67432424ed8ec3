//! NetFlow datagrams with flow records, and their sequence numbers.

use std::{mem, time::Duration};

use super::record::{NetflowRecord, RECORD_BYTES};
use crate::{DATAGRAM_MAX, ExportDatagram};

/// The version of the NetFlow format.
const VERSION: u16 = 5;

/// Length of the header of a datagram, in bytes.
const HEADER_BYTES: usize = 24;

/// Maximum number of records in a datagram.
///
/// The format allows 30 records, but these do not fit a frame of 1500 bytes with an additional
/// tunnel header.
const RECORDS_MAX: u16 = 28;

const _: () = assert!(HEADER_BYTES + RECORDS_MAX as usize * RECORD_BYTES <= DATAGRAM_MAX);

/// The identity of the exporter in its datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetflowEngine {
    /// Type of the flow switching engine (`engine_type`).
    pub kind: u8,
    /// Number of the flow switching engine (`engine_id`).
    pub id: u8,
}

/// The time of a datagram: since the start of the exporter, and since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetflowClock {
    /// Milliseconds since the exporter started, modulo 2^32 (`sysUptime`).
    pub uptime_ms: u32,
    /// Time since 1970 (`unix_secs`, `unix_nsecs`).
    pub since_epoch: Duration,
}

/// Encodes flow records into datagrams.
///
/// Memory is bounded by the records that are added between two calls of [`Self::take_datagrams`].
#[derive(Clone, Debug, Default)]
pub struct NetflowExporter {
    /// The engine that the header of a datagram names.
    engine: NetflowEngine,
    /// Number of records in all earlier datagrams; it wraps around (`flow_sequence`).
    sequence: u32,
    /// Records that were not sent yet.
    records: Vec<NetflowRecord>,
}

impl NetflowExporter {
    /// Creates an exporter; its sequence number starts with 0.
    #[must_use]
    pub const fn new(engine: NetflowEngine) -> Self {
        Self { engine, sequence: 0, records: Vec::new() }
    }

    /// Changes the identity of the exporter; its sequence number continues.
    pub const fn set_engine(&mut self, engine: NetflowEngine) {
        self.engine = engine;
    }

    /// Adds a flow.
    ///
    /// A flow of more than 2^32 - 1 packets or bytes is encoded as several records.
    pub fn add(&mut self, flow: &NetflowRecord) {
        self.records.extend(flow.parts());
    }

    /// Returns datagrams with all records that were added.
    pub fn take_datagrams(&mut self, clock: NetflowClock) -> Vec<ExportDatagram> {
        let records = mem::take(&mut self.records);
        let datagrams = records.chunks(RECORDS_MAX.into());
        datagrams.map(|records| self.datagram(records, clock)).collect()
    }

    /// Returns a datagram with these records.
    fn datagram(&mut self, records: &[NetflowRecord], clock: NetflowClock) -> ExportDatagram {
        let count = u16::try_from(records.len()).unwrap_or(RECORDS_MAX);
        // The 32-bit field overflows in the year 2106.
        let seconds = u32::try_from(clock.since_epoch.as_secs()).unwrap_or(u32::MAX);
        let mut buffer = Vec::with_capacity(HEADER_BYTES + records.len() * RECORD_BYTES);
        buffer.extend_from_slice(&VERSION.to_be_bytes());
        buffer.extend_from_slice(&count.to_be_bytes());
        buffer.extend_from_slice(&clock.uptime_ms.to_be_bytes());
        buffer.extend_from_slice(&seconds.to_be_bytes());
        buffer.extend_from_slice(&clock.since_epoch.subsec_nanos().to_be_bytes());
        buffer.extend_from_slice(&self.sequence.to_be_bytes());
        buffer.extend_from_slice(&[self.engine.kind, self.engine.id]);
        // The sampling field is zero, because every packet is counted.
        buffer.extend_from_slice(&[0; 2]);
        for record in records {
            record.encode(&mut buffer);
        }
        self.sequence = self.sequence.wrapping_add(count.into());
        ExportDatagram { bytes: buffer, records: count.into() }
    }
}

#[cfg(test)]
mod tests;
