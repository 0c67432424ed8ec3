//! `OFPMP_PORT_STATS` (OpenFlow 1.3.5, 7.3.5.6).

use bytes::BufMut;
use shunt_flow::PortNo;

use crate::{
    error::ErrorCode,
    message::{PortStatistics, ReportedPortCounters},
    wire::{
        ByteReader,
        v13::body::flow_removed::{put_duration, read_duration},
    },
};

/// Reads the statistics of a port.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<PortStatistics, ErrorCode> {
    let port = PortNo::new(reader.u32()?);
    reader.skip(4)?;
    let counters = read_counters(reader)?;
    Ok(PortStatistics { port, counters, duration: read_duration(reader)? })
}

/// Reads the counters of a port, which are the same in OpenFlow 1.0.
pub(in crate::wire) fn read_counters(
    reader: &mut ByteReader<'_>,
) -> Result<ReportedPortCounters, ErrorCode> {
    Ok(ReportedPortCounters {
        rx_packets: reader.u64()?,
        tx_packets: reader.u64()?,
        rx_bytes: reader.u64()?,
        tx_bytes: reader.u64()?,
        rx_dropped: reader.u64()?,
        tx_dropped: reader.u64()?,
        rx_errors: reader.u64()?,
        tx_errors: reader.u64()?,
        rx_frame_errors: reader.u64()?,
        rx_over_errors: reader.u64()?,
        rx_crc_errors: reader.u64()?,
        collisions: reader.u64()?,
    })
}

/// Writes the statistics of a port.
pub(super) fn put(out: &mut Vec<u8>, port: &PortStatistics) {
    out.put_u32(port.port.number());
    out.put_u32(0);
    put_counters(out, &port.counters);
    put_duration(out, port.duration);
}

/// Writes the counters of a port.
pub(in crate::wire) fn put_counters(out: &mut Vec<u8>, counters: &ReportedPortCounters) {
    let in_order = [
        counters.rx_packets,
        counters.tx_packets,
        counters.rx_bytes,
        counters.tx_bytes,
        counters.rx_dropped,
        counters.tx_dropped,
        counters.rx_errors,
        counters.tx_errors,
        counters.rx_frame_errors,
        counters.rx_over_errors,
        counters.rx_crc_errors,
        counters.collisions,
    ];
    in_order.iter().for_each(|counter| out.put_u64(*counter));
}
