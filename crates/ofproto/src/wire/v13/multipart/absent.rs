//! Questions about what this switch does not have: queues, experimenters' own.

use bytes::BufMut;
use shunt_flow::PortNo;

use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    message::QueueFilter,
    wire::Reader,
};

/// `OFPQ_ALL`.
const QUEUE_ALL: u32 = 0xffff_ffff;

pub(super) fn read_queue_filter(body: &mut Reader<'_>) -> Result<QueueFilter, ErrorCode> {
    let (port, queue) = (PortNo::new(body.u32()?), body.u32()?);
    Ok(QueueFilter { port, queue: (queue != QUEUE_ALL).then_some(queue) })
}

pub(super) fn put_queue_filter(out: &mut Vec<u8>, filter: QueueFilter) {
    out.put_u32(filter.port.number());
    out.put_u32(filter.queue.unwrap_or(QUEUE_ALL));
}

/// What an experimenter's question is refused with; fails if it cannot even be read.
pub(super) fn refuse_experimenter(body: &mut Reader<'_>) -> Result<ErrorCode, ErrorCode> {
    let (experimenter, _) = (body.u32()?, body.u32()?);
    Ok(match experimenter {
        ONF_EXPERIMENTER | NICIRA_EXPERIMENTER => ErrorCode::BadExperimenterType,
        _ => ErrorCode::BadExperimenter,
    })
}
