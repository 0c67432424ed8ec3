//! Queue configuration (OpenFlow 1.3.5, 7.2.2 and 7.3.6).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::QueueId;

use crate::{
    error::ErrorCode,
    message::{QueueConfig, QueueDescription},
    wire::ByteReader,
};

/// `OFPQT_MIN_RATE`.
const MIN_RATE: u16 = 1;
/// `OFPQT_MAX_RATE`.
const MAX_RATE: u16 = 2;
/// Length of a queue without properties.
const QUEUE_LENGTH: u16 = 16;
/// Length of a property with a rate, and of the header of any property.
const RATE_LENGTH: u16 = 16;
const PROPERTY_HEADER: u16 = 8;
/// The largest valid rate; a larger rate disables the property.
const RATE_LARGEST: u16 = 1000;

/// Reads the body of a queue configuration request.
pub(in crate::wire) fn read_request(reader: &mut ByteReader<'_>) -> Result<PortNo, ErrorCode> {
    let port = PortNo::new(reader.u32()?);
    reader.skip(4)?;
    Ok(port)
}

/// Writes the body of a queue configuration request.
pub(in crate::wire) fn put_request(out: &mut Vec<u8>, port: PortNo) {
    out.put_u32(port.number());
    out.put_u32(0);
}

/// Reads the body of a queue configuration reply.
pub(in crate::wire) fn read_config(reader: &mut ByteReader<'_>) -> Result<QueueConfig, ErrorCode> {
    let port = read_request(reader)?;
    let mut queues = Vec::new();
    while !reader.is_empty() {
        queues.push(read_queue(reader)?);
    }
    Ok(QueueConfig { port, queues })
}

/// Writes the body of a queue configuration reply.
pub(in crate::wire) fn put_config(out: &mut Vec<u8>, config: &QueueConfig) {
    put_request(out, config.port);
    for queue in &config.queues {
        out.put_u32(queue.queue.number());
        out.put_u32(queue.port.number());
        out.put_u16(QUEUE_LENGTH.saturating_add(rates_len(queue)));
        out.put_bytes(0, 6);
        put_rates(out, queue);
    }
}

/// Returns the rates of a queue by property type.
fn rates(queue: &QueueDescription) -> impl Iterator<Item = (u16, u16)> {
    let rates = [(MIN_RATE, queue.min_rate), (MAX_RATE, queue.max_rate)];
    rates.into_iter().filter_map(|(kind, rate)| Some((kind, rate?)))
}

/// Returns the length of the properties of a queue.
pub(in crate::wire) fn rates_len(queue: &QueueDescription) -> u16 {
    // A queue has at most two rates, so the sum does not saturate.
    rates(queue).fold(0, |sum, _| sum.saturating_add(RATE_LENGTH))
}

/// Writes the properties of a queue, which are the same in OpenFlow 1.0.
pub(in crate::wire) fn put_rates(out: &mut Vec<u8>, queue: &QueueDescription) {
    for (kind, rate) in rates(queue) {
        out.put_u16(kind);
        out.put_u16(RATE_LENGTH);
        out.put_bytes(0, 4);
        out.put_u16(rate);
        out.put_bytes(0, 6);
    }
}

/// Reads the description of an egress queue.
fn read_queue(reader: &mut ByteReader<'_>) -> Result<QueueDescription, ErrorCode> {
    let (queue, port) = (QueueId::new(reader.u32()?), PortNo::new(reader.u32()?));
    let length = reader.u16()?;
    reader.skip(6)?;
    let left = length.checked_sub(QUEUE_LENGTH).ok_or(ErrorCode::BadLength)?;
    let (min_rate, max_rate) = read_rates(reader, left)?;
    Ok(QueueDescription { port, queue, min_rate, max_rate })
}

/// The minimum and maximum rate of a queue.
type Rates = (Option<u16>, Option<u16>);

/// Reads the properties of a queue, of `left` bytes.
pub(in crate::wire) fn read_rates(
    reader: &mut ByteReader<'_>,
    mut left: u16,
) -> Result<Rates, ErrorCode> {
    let (mut min_rate, mut max_rate) = (None, None);
    while left > 0 {
        let (kind, length) = (reader.u16()?, reader.u16()?);
        left = left.checked_sub(length).ok_or(ErrorCode::BadLength)?;
        reader.skip(4)?;
        match kind {
            MIN_RATE | MAX_RATE if length == RATE_LENGTH => {
                let rate = Some(reader.u16()?).filter(|rate| *rate <= RATE_LARGEST);
                reader.skip(6)?;
                if kind == MIN_RATE {
                    min_rate = rate;
                } else {
                    max_rate = rate;
                }
            }
            _ => {
                let rest = length.checked_sub(PROPERTY_HEADER).ok_or(ErrorCode::BadLength)?;
                reader.skip(rest.into())?;
            }
        }
    }
    Ok((min_rate, max_rate))
}
