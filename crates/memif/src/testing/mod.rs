//! Rings with both ends in one process, and the functions of the fuzz targets.
#![expect(clippy::expect_used, reason = "memory that cannot be set up fails the test")]

mod fuzz;
mod pair;

pub use fuzz::{fuzz_messages, fuzz_ring};
pub(crate) use pair::{RingFrames, RingPair};
