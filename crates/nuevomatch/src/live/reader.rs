//! The readers of a live classifier.

use std::sync::Arc;

use super::double_buffer::DoubleBuffer;
use crate::{BestMatch, NuevoMatch, StartIndex, StaticTree};

/// A reader of a [`LiveNuevoMatch`](crate::LiveNuevoMatch).
///
/// Each thread uses its own clone of the reader.
///
/// A lookup never waits for a change. All keys of a batch are looked up in the same rules.
#[derive(Debug)]
pub struct LiveReader<const N: usize, I = StaticTree> {
    copies: Arc<DoubleBuffer<NuevoMatch<N, I>>>,
}

impl<const N: usize, I> Clone for LiveReader<N, I> {
    fn clone(&self) -> Self {
        Self { copies: Arc::clone(&self.copies) }
    }
}

impl<const N: usize, I: StartIndex + Clone> LiveReader<N, I> {
    /// Returns a reader of the copies.
    pub(super) fn new(copies: Arc<DoubleBuffer<NuevoMatch<N, I>>>) -> Self {
        Self { copies }
    }

    /// Returns the rule that wins for a key.
    #[must_use]
    pub fn lookup(&self, key: &[u32; N]) -> Option<BestMatch> {
        self.copies.read(|classifier| classifier.lookup(key))
    }

    /// Writes the rule that wins for each key, looked up in the same rules.
    ///
    /// A change waits for the longest running batch, so pass at most a few dozen keys at once.
    ///
    /// # Panics
    ///
    /// If `best` is shorter than `keys`.
    pub fn lookup_batch(&self, keys: &[[u32; N]], best: &mut [Option<BestMatch>]) {
        self.copies.read(|classifier| classifier.lookup_batch(keys, best));
    }
}
