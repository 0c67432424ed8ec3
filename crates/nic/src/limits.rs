//! What a NIC can do less than software could.

use std::time::Duration;

/// The limits of a NIC, besides those of its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Different masks that one stage may hold, whatever tags and priorities their entries have;
    /// `None`: as many as there are.
    pub masks_max: Option<usize>,
    /// Bits that one entry may match, as a key is so wide; `None`: all that there are.
    pub key_bits_max: Option<u32>,
    /// Time that each update takes before it is answered.
    pub update_latency: Duration,
}
