//! Generators of legal and malformed values for property tests, and functions for fuzz targets.

pub mod matching;
pub mod packet;
mod replay;
mod udp_flow;

pub use matching::{any_match, field_bits, fuzz_match_text, fuzz_oxm};
pub use packet::{PacketBuilder, fuzz_extract, fuzz_rewrite};
pub use replay::replay;
pub use udp_flow::UdpFlow;
