//! Multipart requests and replies (OpenFlow 1.3.5, 7.3.5).
//!
//! The connection joins a request that spans several messages before it is decoded. A
//! [`PartWriter`] splits a reply with many entries into messages.

mod codec;
mod description;
mod flow;
mod group;
mod meter;
mod parts;
mod port;
mod queue;
mod table;

pub(crate) use codec::{PartHeader, read_part_header, read_request};
pub(super) use codec::{put_reply, put_request, read_reply_message, read_request_message};
pub use parts::{PartWriter, ReplyEntry, encode_reply};
