//! Replies that are written entry by entry.

use super::{
    codec::{put_part_header, reply_kind},
    flow, flow_monitor, group, meter, port, queue, table,
};
use crate::{
    message::{MultipartReply, Xid},
    wire::{
        part_writer::{PartHeader, ReplyEntry},
        v13::{VERSION, body, kind, length},
    },
};

/// Begins a reply of the type of `reply`, without entries.
pub(crate) fn begin_reply(xid: Xid, reply: &MultipartReply) -> Vec<u8> {
    let mut part = length::begin(VERSION, kind::MULTIPART_REPLY, xid);
    if let Some(kind) = reply_kind(reply) {
        put_part_header(&mut part, PartHeader { kind, more: false });
    }
    if let MultipartReply::FlowMonitor(_) = reply {
        flow_monitor::put_header(&mut part);
    }
    part
}

/// Writes an entry of a reply; its type must exist in OpenFlow 1.3.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: ReplyEntry<'_>) {
    match entry {
        ReplyEntry::Flow(entry) => flow::put(out, entry),
        ReplyEntry::NiciraFlow(_) => {}
        ReplyEntry::FlowUpdate(update) => flow_monitor::put(out, update),
        ReplyEntry::Table(entry) => table::put_statistics(out, entry),
        ReplyEntry::Port(entry) => port::put(out, entry),
        ReplyEntry::Queue(entry) => queue::put(out, entry),
        ReplyEntry::Group(entry) => group::put(out, entry),
        ReplyEntry::GroupDescription(entry) => group::put_description(out, entry),
        ReplyEntry::Meter(entry) => meter::put(out, entry),
        ReplyEntry::MeterConfig(entry) => meter::put_description(out, entry),
        ReplyEntry::TableFeatures(table) => table::put_features(out, table),
        ReplyEntry::PortDescription(port) => body::port::put_port(out, port),
    }
}
