//! The limits of a NIC that software does not have.

use std::time::Duration;

/// The limits of a NIC in addition to those of its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicLimits {
    /// Greatest number of masks per stage, over all tags and priorities.
    pub masks_max: Option<usize>,
    /// Greatest number of bits that one entry may match; `None`: no limit.
    pub key_bits_max: Option<u32>,
    /// Time that each update takes before it is acknowledged.
    pub update_latency: Duration,
}
