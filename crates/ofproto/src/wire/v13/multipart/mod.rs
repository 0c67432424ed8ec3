//! Multipart requests and replies (OpenFlow 1.3.5, 7.3.5).
//!
//! A request that comes in parts is put together by the connection, which then asks
//! for the whole. A reply of many entries is written by a [`PartWriter`], which
//! starts a new message whenever one is full.

mod codec;
mod description;
mod flow;
mod group;
mod meter;
mod parts;
mod port;
mod table;

pub(crate) use codec::{PartHeader, read_part_header, read_request};
pub(super) use codec::{put_reply, put_request, read_reply_message, read_request_message};
pub use parts::{PartWriter, ReplyEntry, encode_reply};
