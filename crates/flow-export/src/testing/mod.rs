//! Slow decoders of all datagrams, which share no code with the encoders.
//!
//! The decoders read one field after the other, and refuse wrong lengths, padding that is not zero,
//! and extra bytes at the end.

mod ipfix;
mod netflow;
mod reader;
mod sflow;

pub use ipfix::{DecodedIpfix, DecodedIpfixRecord, IpfixDecoder};
pub use netflow::{DecodedNetflow, DecodedNetflowHeader, decode_netflow};
pub use sflow::{DecodedDatagram, DecodedSample, decode_sflow};
