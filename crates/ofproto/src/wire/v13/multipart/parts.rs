//! Replies of many entries in messages of less than 64 KB.

use shunt_pipeline::TableId;

use super::{
    codec::{MORE, PartHeader, put_part_header, reply_kind},
    flow, group, meter, port, table,
};
use crate::{
    error::TooLong,
    message::{
        FlowStatistics, GroupDescription, GroupStatistics, Message, MeterDescription,
        MeterStatistics, MultipartReply, PortDescription, PortStatistics, TableStatistics, Xid,
    },
    wire::v13::{self, length},
};
/// Writes entries of one reply into as many messages as they need.
///
/// Every message but the last says that more follow (`OFPMPF_REPLY_MORE`), and is handed out as
/// soon as it is full, so that a reply of a million entries never lies in memory whole.
#[derive(Debug)]
pub struct PartWriter {
    xid: Xid,
    kind: u16,
    part: Vec<u8>,
}

/// An entry of a reply of many.
#[derive(Clone, Copy, Debug)]
pub enum ReplyEntry<'a> {
    /// Of `OFPMP_FLOW`.
    Flow(&'a FlowStatistics),
    /// Of `OFPMP_TABLE`.
    Table(&'a TableStatistics),
    /// Of `OFPMP_PORT_STATS`.
    Port(&'a PortStatistics),
    /// Of `OFPMP_GROUP`.
    Group(&'a GroupStatistics),
    /// Of `OFPMP_GROUP_DESC`.
    GroupDescription(&'a GroupDescription),
    /// Of `OFPMP_METER`.
    Meter(&'a MeterStatistics),
    /// Of `OFPMP_METER_CONFIG`.
    MeterConfig(&'a MeterDescription),
    /// Of `OFPMP_TABLE_FEATURES`.
    TableFeatures(TableId),
    /// Of `OFPMP_PORT_DESC`.
    PortDescription(&'a PortDescription),
}

impl PartWriter {
    /// Where the kind and the flags of a part stand.
    const FLAGS: std::ops::Range<usize> = 10..12;

    /// Begins the reply to the request `xid` that has the kind of `reply`; its entries are not
    /// looked at.
    #[must_use]
    pub fn new(xid: Xid, reply: &MultipartReply) -> Self {
        let kind = reply_kind(reply);
        Self { xid, kind, part: Self::begin(xid, kind) }
    }

    /// Writes an entry; answers with the message before it if that is full now.
    ///
    /// # Errors
    ///
    /// The entry alone does not fit into a message; it is left out.
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

    /// The last message.
    ///
    /// # Errors
    ///
    /// Never: [`Self::push`] keeps messages within their bound.
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
        ReplyEntry::Group(entry) => group::put(out, entry),
        ReplyEntry::GroupDescription(entry) => group::put_description(out, entry),
        ReplyEntry::Meter(entry) => meter::put(out, entry),
        ReplyEntry::MeterConfig(entry) => meter::put_description(out, entry),
        ReplyEntry::TableFeatures(table) => table::put_features(out, table),
        ReplyEntry::PortDescription(port) => v13::port::put_port(out, port),
    }
}

/// Writes a whole reply into as many messages as it needs.
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
            flows.iter().map(ReplyEntry::Flow).try_for_each(&mut push)?
        }
        MultipartReply::Table(tables) => {
            tables.iter().map(ReplyEntry::Table).try_for_each(&mut push)?
        }
        MultipartReply::Port(ports) => {
            ports.iter().map(ReplyEntry::Port).try_for_each(&mut push)?
        }
        MultipartReply::Group(groups) => {
            groups.iter().map(ReplyEntry::Group).try_for_each(&mut push)?
        }
        MultipartReply::GroupDescription(groups) => {
            groups.iter().map(ReplyEntry::GroupDescription).try_for_each(&mut push)?;
        }
        MultipartReply::Meter(meters) => {
            meters.iter().map(ReplyEntry::Meter).try_for_each(&mut push)?
        }
        MultipartReply::MeterConfig(meters) => {
            meters.iter().map(ReplyEntry::MeterConfig).try_for_each(&mut push)?;
        }
        MultipartReply::TableFeatures(tables) => {
            tables.iter().map(|table| ReplyEntry::TableFeatures(*table)).try_for_each(&mut push)?;
        }
        MultipartReply::PortDescription(ports) => {
            ports.iter().map(ReplyEntry::PortDescription).try_for_each(&mut push)?;
        }
        MultipartReply::Description(_)
        | MultipartReply::Aggregate(_)
        | MultipartReply::Queue
        | MultipartReply::GroupFeatures(_)
        | MultipartReply::MeterFeatures(_) => {
            let message = Message::MultipartReply { more: false, reply: reply.clone() };
            return Ok(vec![v13::encode(xid, &message)?]);
        }
    }
    parts.push(writer.finish()?);
    Ok(parts)
}
