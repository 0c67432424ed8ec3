//! Bytes to messages and back.
//!
//! Decoding reads a message once, front to back, through a reader that cannot run over its end;
//! what comes out holds only what is meaningful, or an [`ErrorCode`](crate::ErrorCode) says what
//! the peer did wrong. Encoding is exact: `decode(encode(x)) == x` for every message.
//!
//! | module | what |
//! | --- | --- |
//! | [`Codec`] | the versions, and the one place to add another |
//! | [`header`] | the eight bytes that all versions share |
//! | [`v13`] | OpenFlow 1.3.5 with the extensions that its clients use |

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub(crate) mod codec;
pub mod header;
mod reader;
pub mod v13;

pub use codec::Codec;
pub(crate) use reader::{ByteReader, Short};
