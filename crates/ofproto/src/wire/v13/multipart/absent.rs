//! Questions about what this switch does not have: groups, meters, queues, experimenters' own.

use bytes::BufMut;
use shunt_flow::PortNo;

use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    message::QueueFilter,
    wire::Reader,
};

/// Length of `ofp_group_features`; all zero: no type of group, none of any.
pub(super) const GROUP_FEATURES_LEN: usize = 40;
/// Length of `ofp_meter_features`; all zero: no meter.
pub(super) const METER_FEATURES_LEN: usize = 16;
/// `OFPQ_ALL`.
const QUEUE_ALL: u32 = 0xffff_ffff;
/// `OFPM_ALL`.
const METER_ALL: u32 = 0xffff_ffff;

pub(super) fn read_queue_filter(body: &mut Reader<'_>) -> Result<QueueFilter, ErrorCode> {
    let (port, queue) = (PortNo::new(body.u32()?), body.u32()?);
    Ok(QueueFilter { port, queue: (queue != QUEUE_ALL).then_some(queue) })
}

pub(super) fn put_queue_filter(out: &mut Vec<u8>, filter: QueueFilter) {
    out.put_u32(filter.port.number());
    out.put_u32(filter.queue.unwrap_or(QUEUE_ALL));
}

pub(super) fn read_meter_filter(body: &mut Reader<'_>) -> Result<Option<u32>, ErrorCode> {
    let meter = body.u32()?;
    body.skip(4)?;
    Ok((meter != METER_ALL).then_some(meter))
}

pub(super) fn put_meter_filter(out: &mut Vec<u8>, meter: Option<u32>) {
    out.put_u32(meter.unwrap_or(METER_ALL));
    out.put_u32(0);
}

/// What an experimenter's question is refused with; fails if it cannot even be read.
pub(super) fn refuse_experimenter(body: &mut Reader<'_>) -> Result<ErrorCode, ErrorCode> {
    let (experimenter, _) = (body.u32()?, body.u32()?);
    Ok(match experimenter {
        ONF_EXPERIMENTER | NICIRA_EXPERIMENTER => ErrorCode::BadExperimenterType,
        _ => ErrorCode::BadExperimenter,
    })
}
