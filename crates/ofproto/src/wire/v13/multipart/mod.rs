//! Multipart requests and replies (OpenFlow 1.3.5, 7.3.5).
//!
//! The connection joins a request that spans several messages before it is decoded. A
//! [`PartWriter`](crate::wire::part_writer::PartWriter) splits a reply with many entries into
//! messages.

mod codec;
pub(in crate::wire) mod description;
mod entry;
mod flow;
pub(in crate::wire) mod flow_monitor;
pub(in crate::wire) mod group;
mod meter;
mod port;
mod queue;
mod table;

pub(in crate::wire) use codec::{entries, multipart_type, reply_kind, request_kind};
pub(super) use codec::{put_reply, put_request, read_reply_message, read_request_message};
pub(crate) use codec::{read_part_header, read_request};
pub(crate) use entry::{begin_reply, put_entry};
pub(in crate::wire) use flow::{put_aggregate, read_aggregate};
pub(in crate::wire) use port::{put_counters, read_counters};
