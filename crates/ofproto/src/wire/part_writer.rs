//! Replies that are split into messages of less than 64 KiB.

use super::{Codec, v13::length};
use crate::{
    error::{EncodeError, TooLong},
    message::{
        FlowStatistics, FlowUpdate, GroupDescription, GroupStatistics, Message, MeterDescription,
        MeterStatistics, MultipartReply, PortDescription, PortStatistics, QueueStatistics,
        TableFeatures, TableStatistics, Xid,
    },
};

/// The header of one part of a multipart message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartHeader {
    /// The type of the multipart message.
    pub(crate) kind: u16,
    /// True if another part follows.
    pub(crate) more: bool,
}

/// Writes the entries of one reply into as many messages as necessary.
///
/// Every message but the last sets `OFPMPF_REPLY_MORE`. A message is returned as soon as it is
/// full, so a reply of a million entries is never in memory as a whole.
#[derive(Debug)]
pub(crate) struct PartWriter {
    /// The version and the form of the messages.
    codec: Codec,
    /// A message of the reply without entries.
    empty: Vec<u8>,
    /// The message that is being filled.
    part: Vec<u8>,
}

/// An entry of a multipart reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyEntry<'a> {
    /// An entry of a reply `OFPMP_FLOW`.
    Flow(&'a FlowStatistics),
    /// An entry of a reply `NXST_FLOW`.
    NiciraFlow(&'a FlowStatistics),
    /// Entry of `NXST_FLOW_MONITOR` and `ONFST_FLOW_MONITOR`.
    FlowUpdate(&'a FlowUpdate),
    /// An entry of a reply `OFPMP_TABLE`.
    Table(&'a TableStatistics),
    /// An entry of a reply `OFPMP_PORT_STATS`.
    Port(&'a PortStatistics),
    /// An entry of a reply `OFPMP_QUEUE`.
    Queue(&'a QueueStatistics),
    /// An entry of a reply `OFPMP_GROUP`.
    Group(&'a GroupStatistics),
    /// An entry of a reply `OFPMP_GROUP_DESC`.
    GroupDescription(&'a GroupDescription),
    /// An entry of a reply `OFPMP_METER`.
    Meter(&'a MeterStatistics),
    /// An entry of a reply `OFPMP_METER_CONFIG`.
    MeterConfig(&'a MeterDescription),
    /// An entry of a reply `OFPMP_TABLE_FEATURES`.
    TableFeatures(&'a TableFeatures),
    /// An entry of a reply `OFPMP_PORT_DESC`.
    PortDescription(&'a PortDescription),
}

impl PartWriter {
    /// Position of the flags in a part, in every version.
    const FLAGS: std::ops::Range<usize> = 10..12;
    /// `OFPMPF_REPLY_MORE`, in every version.
    const MORE: u16 = 1;

    /// Begins a reply to request `xid` of the type of `reply`; ignores its entries.
    pub(crate) fn new(codec: Codec, xid: Xid, reply: &MultipartReply) -> Self {
        let empty = codec.begin_reply(xid, reply);
        Self { codec, part: empty.clone(), empty }
    }

    /// Writes an entry; returns the previous message if it is full.
    ///
    /// # Errors
    ///
    /// The entry alone does not fit into a message and is left out.
    pub(crate) fn push(&mut self, entry: ReplyEntry<'_>) -> Result<Option<Vec<u8>>, TooLong> {
        let start = self.part.len();
        self.codec.put_entry(&mut self.part, entry);
        if self.part.len() <= usize::from(u16::MAX) {
            return Ok(None);
        }
        let entry = self.part.split_off(start);
        let mut next = self.empty.clone();
        let length = next.len().saturating_add(entry.len());
        if length > usize::from(u16::MAX) {
            return Err(TooLong { length });
        }
        next.extend_from_slice(&entry);
        let mut full = std::mem::replace(&mut self.part, next);
        if let Some(flags) = full.get_mut(Self::FLAGS) {
            flags.copy_from_slice(&Self::MORE.to_be_bytes());
        }
        length::finish(full).map(Some)
    }

    /// Returns the last message.
    ///
    /// # Errors
    ///
    /// Never: [`Self::push`] keeps messages within their limit.
    pub(crate) fn finish(self) -> Result<Vec<u8>, TooLong> {
        length::finish(self.part)
    }
}

/// Encodes a reply as one or more messages.
///
/// An entry that alone does not fit into a message is left out, so a client still gets a reply.
/// `leave_out` is called for each of them.
///
/// # Errors
///
/// A reply without entries does not fit into a message.
pub(crate) fn encode_reply(
    codec: Codec,
    xid: Xid,
    reply: &MultipartReply,
    leave_out: &mut dyn FnMut(TooLong),
) -> Result<Vec<Vec<u8>>, EncodeError> {
    let mut writer = PartWriter::new(codec, xid, reply);
    let mut parts = Vec::new();
    let mut push = |entry| match writer.push(entry) {
        Ok(full) => parts.extend(full),
        Err(error) => leave_out(error),
    };
    match reply {
        MultipartReply::Flow(flows) => {
            flows.iter().map(ReplyEntry::Flow).for_each(&mut push);
        }
        MultipartReply::NiciraFlow(flows) => {
            flows.iter().map(ReplyEntry::NiciraFlow).for_each(&mut push);
        }
        MultipartReply::FlowMonitor(updates) => {
            updates.iter().map(ReplyEntry::FlowUpdate).for_each(&mut push);
        }
        MultipartReply::Table(tables) => {
            tables.iter().map(ReplyEntry::Table).for_each(&mut push);
        }
        MultipartReply::Port(ports) => {
            ports.iter().map(ReplyEntry::Port).for_each(&mut push);
        }
        MultipartReply::Queue(queues) => {
            queues.iter().map(ReplyEntry::Queue).for_each(&mut push);
        }
        MultipartReply::Group(groups) => {
            groups.iter().map(ReplyEntry::Group).for_each(&mut push);
        }
        MultipartReply::GroupDescription(groups) => {
            groups.iter().map(ReplyEntry::GroupDescription).for_each(&mut push);
        }
        MultipartReply::Meter(meters) => {
            meters.iter().map(ReplyEntry::Meter).for_each(&mut push);
        }
        MultipartReply::MeterConfig(meters) => {
            meters.iter().map(ReplyEntry::MeterConfig).for_each(&mut push);
        }
        MultipartReply::TableFeatures(tables) => {
            tables.iter().map(ReplyEntry::TableFeatures).for_each(&mut push);
        }
        MultipartReply::PortDescription(ports) => {
            ports.iter().map(ReplyEntry::PortDescription).for_each(&mut push);
        }
        MultipartReply::Description(_)
        | MultipartReply::Aggregate(_)
        | MultipartReply::NiciraAggregate(_)
        | MultipartReply::GroupFeatures(_)
        | MultipartReply::MeterFeatures(_) => {
            let message = Message::MultipartReply { more: false, reply: reply.clone() };
            return Ok(vec![codec.encode(xid, &message)?]);
        }
    }
    parts.push(writer.finish()?);
    Ok(parts)
}
