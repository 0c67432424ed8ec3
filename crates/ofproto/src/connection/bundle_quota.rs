//! A memory quota for bundles that several connections share.
//!
//! Without a shared quota, a client could use more memory by opening more connections.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes that the bundles of several connections may use together.
#[derive(Debug)]
pub struct BundleQuota {
    /// Number of bytes that are left.
    available: AtomicUsize,
}

impl BundleQuota {
    /// Default number of bytes for the bundles of all connections of one listener.
    const DEFAULT: usize = 1 << 28;

    /// Creates a quota of `bytes`.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { available: AtomicUsize::new(bytes) }
    }

    /// Reserves `bytes` and returns whether that many were available.
    ///
    /// Relaxed ordering suffices for the atomic: no other memory depends on the number of bytes.
    pub(super) fn try_reserve(&self, bytes: usize) -> bool {
        let taken = |available: usize| available.checked_sub(bytes);
        self.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Returns `bytes` to the quota.
    pub(super) fn release(&self, bytes: usize) {
        self.available.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Default for BundleQuota {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}
