//! Limits of NIC hardware that the embedded NIC imitates.

use std::time::Duration;

/// The limits of a NIC in addition to the limits of its P4 program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicLimits {
    /// Maximum number of masks per stage, over all tags and priorities.
    /// `None` means that there is no limit.
    pub masks_max: Option<usize>,
    /// Maximum number of bits that one entry may match; `None`: no limit.
    pub key_bits_max: Option<u32>,
    /// The time that each update takes before it is acknowledged.
    pub update_latency: Duration,
}
