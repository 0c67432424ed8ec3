//! Frames for tests: built by hand, generated, and malformed on purpose.
//!
//! [`PacketBuilder`] describes a packet by its fields and builds the frame with right lengths and
//! checksums. The builder knows the fields, so it is also the oracle of extraction
//! ([`PacketBuilder::key`]) and of rewriting ([`PacketBuilder::set`], then build again). The
//! builder shares no code with extraction or rewriting.
//!
//! ```
//! use shunt_flow::testing::packet::PacketBuilder;
//!
//! let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 53).tag(0x8100, 5).build();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8);
//! ```

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test with an impossible packet is wrong, and panics"
)]

mod builder;
mod fuzz;
mod model;
mod strategy;
mod sums;

pub use builder::{Checksums, Neighbour, PacketBuilder};
pub use fuzz::{fuzz_extract, fuzz_rewrite};
pub use strategy::{header_sets, hostile_frames, packets};
pub use sums::{crc32c, internet_sum};
