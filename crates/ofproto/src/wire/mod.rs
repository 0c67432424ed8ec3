//! Encoding and decoding of messages.
//!
//! Decoding reads a message once from front to back, with a reader that cannot read past its end.
//! The result holds only meaningful content, or an [`ErrorCode`](crate::ErrorCode) that names the
//! error of the peer. Encoding is exact: `decode(encode(x)) == x` for every message.
//!
//! | module | contents |
//! | --- | --- |
//! | [`Codec`] | the supported versions, and the one place to add another |
//! | [`header`] | the eight bytes that all versions share |
//! | [`v10`] | OpenFlow 1.0.0 with the extensions that its clients use |
//! | [`v13`] | OpenFlow 1.3.5 with the extensions that its clients use |

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub(crate) mod codec;
pub mod header;
pub(crate) mod part_writer;
mod reader;
pub mod v10;
pub mod v13;

pub use codec::Codec;
pub(crate) use reader::{ByteReader, MessageLengthError};
