//! Generators of legal and of hostile values, for the property tests of this crate and of others,
//! and what fuzz targets call.

pub mod matching;
pub mod packet;
mod replay;

pub use matching::{any_match, field_bits, fuzz_match_text, fuzz_oxm};
pub use packet::{PacketBuilder, fuzz_extract, fuzz_rewrite};
pub use replay::replay;
