//! `OFPMP_QUEUE` (OpenFlow 1.3.5, 7.3.5.8).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::QueueId;

use crate::{
    error::ErrorCode,
    message::{QueueFilter, QueueStatistics},
    wire::{
        ByteReader,
        v13::body::flow_removed::{put_duration, read_duration},
    },
};

/// `OFPQ_ALL`.
const QUEUE_ALL: u32 = 0xffff_ffff;

/// Reads the port and the queue that a request selects.
pub(super) fn read_filter(reader: &mut ByteReader<'_>) -> Result<QueueFilter, ErrorCode> {
    let (port, queue) = (PortNo::new(reader.u32()?), reader.u32()?);
    Ok(QueueFilter { port, queue: (queue != QUEUE_ALL).then_some(QueueId::new(queue)) })
}

/// Writes the port and the queue that a request selects.
pub(super) fn put_filter(out: &mut Vec<u8>, filter: QueueFilter) {
    out.put_u32(filter.port.number());
    out.put_u32(filter.queue.map_or(QUEUE_ALL, QueueId::number));
}

/// Reads the statistics of a queue.
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<QueueStatistics, ErrorCode> {
    Ok(QueueStatistics {
        port: PortNo::new(reader.u32()?),
        queue: QueueId::new(reader.u32()?),
        tx_bytes: reader.u64()?,
        tx_packets: reader.u64()?,
        tx_errors: reader.u64()?,
        duration: read_duration(reader)?,
    })
}

/// Writes the statistics of a queue.
pub(super) fn put(out: &mut Vec<u8>, queue: &QueueStatistics) {
    out.put_u32(queue.port.number());
    out.put_u32(queue.queue.number());
    out.put_u64(queue.tx_bytes);
    out.put_u64(queue.tx_packets);
    out.put_u64(queue.tx_errors);
    put_duration(out, queue.duration);
}
