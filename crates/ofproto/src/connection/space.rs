//! Memory that several connections share: who may connect often can otherwise take it often.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the bundles of several connections may take together.
#[derive(Debug)]
pub struct BundleSpace {
    left: AtomicUsize,
}

impl BundleSpace {
    /// The bytes that the connections of one listener share.
    const DEFAULT: usize = 1 << 28;

    /// A space of so many bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { left: AtomicUsize::new(bytes) }
    }

    /// Takes bytes, if there are as many; answers whether there were.
    ///
    /// Nothing else hangs on the number, so relaxed will do, here and below.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let taken = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Gives bytes back.
    pub(super) fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Default for BundleSpace {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}
