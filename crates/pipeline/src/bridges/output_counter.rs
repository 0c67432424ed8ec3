//! Counters of the copies of mirrors, and of the packets of each bucket of a bond.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::packet_count::{PacketCount, PacketTotals};

/// The counter of the packets of a mirror, or of a bucket of a bond.
///
/// The counter of a mirror lasts while the bridge has a mirror of this name.
#[derive(Debug)]
pub struct OutputCounter {
    name: String,
    count: PacketCount,
}

/// An output of a packet that a counter counts; hits of one counter are equal.
#[derive(Clone, Debug)]
pub struct OutputHit(pub(crate) Arc<OutputCounter>);

impl OutputCounter {
    /// Returns a counter at zero for the mirror or bond bucket `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), count: PacketCount::default() }
    }

    /// Returns the name of the mirror, or of the bond with the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the numbers of packets and of their bytes.
    ///
    /// Bytes are counted before a mirror truncates a packet.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.count.totals()
    }
}

impl OutputHit {
    /// Returns the name of the counter.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Adds packets and bytes to the counter.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        self.0.count.credit(packets, bytes);
    }
}

impl PartialEq for OutputHit {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OutputHit {}

impl Hash for OutputHit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
