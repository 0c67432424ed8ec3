//! Replies that are split into messages of less than 64 KiB.

use super::{
    codec::{MORE, PartHeader, put_part_header, reply_kind},
    flow, group, meter, port, queue, table,
};
use crate::{
    error::TooLong,
    message::{
        FlowStatistics, GroupDescription, GroupStatistics, Message, MeterDescription,
        MeterStatistics, MultipartReply, PortDescription, PortStatistics, QueueStatistics,
        TableFeatures, TableStatistics, Xid,
    },
    wire::v13::{self, length},
};
/// Writes the entries of one reply into as many messages as necessary.
///
/// Every message but the last sets `OFPMPF_REPLY_MORE`. A message is returned as soon as it is
/// full, so a reply of a million entries is never in memory as a whole.
#[derive(Debug)]
pub struct PartWriter {
    xid: Xid,
    kind: u16,
    part: Vec<u8>,
}

/// An entry of a multipart reply.
#[derive(Clone, Copy, Debug)]
pub enum ReplyEntry<'a> {
    /// Entry of `OFPMP_FLOW`.
    Flow(&'a FlowStatistics),
    /// Entry of `OFPMP_TABLE`.
    Table(&'a TableStatistics),
    /// Entry of `OFPMP_PORT_STATS`.
    Port(&'a PortStatistics),
    /// Entry of `OFPMP_QUEUE`.
    Queue(&'a QueueStatistics),
    /// Entry of `OFPMP_GROUP`.
    Group(&'a GroupStatistics),
    /// Entry of `OFPMP_GROUP_DESC`.
    GroupDescription(&'a GroupDescription),
    /// Entry of `OFPMP_METER`.
    Meter(&'a MeterStatistics),
    /// Entry of `OFPMP_METER_CONFIG`.
    MeterConfig(&'a MeterDescription),
    /// Entry of `OFPMP_TABLE_FEATURES`.
    TableFeatures(&'a TableFeatures),
    /// Entry of `OFPMP_PORT_DESC`.
    PortDescription(&'a PortDescription),
}

impl PartWriter {
    /// Position of the flags in a part.
    const FLAGS: std::ops::Range<usize> = 10..12;

    /// Begins a reply to request `xid` of the type of `reply`; ignores its entries.
    #[must_use]
    pub fn new(xid: Xid, reply: &MultipartReply) -> Self {
        let kind = reply_kind(reply);
        Self { xid, kind, part: Self::begin(xid, kind) }
    }

    /// Writes an entry; returns the previous message if it is full.
    ///
    /// # Errors
    ///
    /// The entry alone does not fit into a message and is left out.
    pub fn push(&mut self, entry: ReplyEntry<'_>) -> Result<Option<Vec<u8>>, TooLong> {
        let start = self.part.len();
        put(&mut self.part, entry);
        if self.part.len() <= usize::from(u16::MAX) {
            return Ok(None);
        }
        let entry = self.part.split_off(start);
        let mut next = Self::begin(self.xid, self.kind);
        let length = next.len().saturating_add(entry.len());
        if length > usize::from(u16::MAX) {
            return Err(TooLong { length });
        }
        next.extend_from_slice(&entry);
        let mut full = std::mem::replace(&mut self.part, next);
        if let Some(flags) = full.get_mut(Self::FLAGS) {
            flags.copy_from_slice(&MORE.to_be_bytes());
        }
        length::finish(full).map(Some)
    }

    /// Returns the last message.
    ///
    /// # Errors
    ///
    /// Never: [`Self::push`] keeps messages within their limit.
    pub fn finish(self) -> Result<Vec<u8>, TooLong> {
        length::finish(self.part)
    }

    fn begin(xid: Xid, kind: u16) -> Vec<u8> {
        let mut part = length::begin(v13::kind::MULTIPART_REPLY, xid);
        put_part_header(&mut part, PartHeader { kind, more: false });
        part
    }
}

fn put(out: &mut Vec<u8>, entry: ReplyEntry<'_>) {
    match entry {
        ReplyEntry::Flow(entry) => flow::put(out, entry),
        ReplyEntry::Table(entry) => table::put_statistics(out, entry),
        ReplyEntry::Port(entry) => port::put(out, entry),
        ReplyEntry::Queue(entry) => queue::put(out, entry),
        ReplyEntry::Group(entry) => group::put(out, entry),
        ReplyEntry::GroupDescription(entry) => group::put_description(out, entry),
        ReplyEntry::Meter(entry) => meter::put(out, entry),
        ReplyEntry::MeterConfig(entry) => meter::put_description(out, entry),
        ReplyEntry::TableFeatures(table) => table::put_features(out, table),
        ReplyEntry::PortDescription(port) => v13::body::port::put_port(out, port),
    }
}

/// Encodes a reply as one or more messages.
///
/// # Errors
///
/// An entry alone does not fit into a message.
pub fn encode_reply(xid: Xid, reply: &MultipartReply) -> Result<Vec<Vec<u8>>, TooLong> {
    let mut writer = PartWriter::new(xid, reply);
    let mut parts = Vec::new();
    let mut push = |entry| writer.push(entry).map(|full| parts.extend(full));
    match reply {
        MultipartReply::Flow(flows) => {
            flows.iter().map(ReplyEntry::Flow).try_for_each(&mut push)?;
        }
        MultipartReply::Table(tables) => {
            tables.iter().map(ReplyEntry::Table).try_for_each(&mut push)?;
        }
        MultipartReply::Port(ports) => {
            ports.iter().map(ReplyEntry::Port).try_for_each(&mut push)?;
        }
        MultipartReply::Queue(queues) => {
            queues.iter().map(ReplyEntry::Queue).try_for_each(&mut push)?;
        }
        MultipartReply::Group(groups) => {
            groups.iter().map(ReplyEntry::Group).try_for_each(&mut push)?;
        }
        MultipartReply::GroupDescription(groups) => {
            groups.iter().map(ReplyEntry::GroupDescription).try_for_each(&mut push)?;
        }
        MultipartReply::Meter(meters) => {
            meters.iter().map(ReplyEntry::Meter).try_for_each(&mut push)?;
        }
        MultipartReply::MeterConfig(meters) => {
            meters.iter().map(ReplyEntry::MeterConfig).try_for_each(&mut push)?;
        }
        MultipartReply::TableFeatures(tables) => {
            tables.iter().map(ReplyEntry::TableFeatures).try_for_each(&mut push)?;
        }
        MultipartReply::PortDescription(ports) => {
            ports.iter().map(ReplyEntry::PortDescription).try_for_each(&mut push)?;
        }
        MultipartReply::Description(_)
        | MultipartReply::Aggregate(_)
        | MultipartReply::GroupFeatures(_)
        | MultipartReply::MeterFeatures(_) => {
            let message = Message::MultipartReply { more: false, reply: reply.clone() };
            return Ok(vec![v13::encode(xid, &message)?]);
        }
    }
    parts.push(writer.finish()?);
    Ok(parts)
}
