//! The contract of an index over sorted starts.

use std::fmt::Debug;

use crate::Error;

/// An index over sorted starts of intervals.
///
/// The first start is 0, so every key has an interval. Starts are distinct and in ascending order.
pub trait StartIndex: Debug + Send + Sync + Sized {
    /// The settings of a build, for example sizes and a seed.
    type Settings: Clone + Debug + Default;

    /// Builds the index over starts.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyStarts`] if the index cannot number the starts.
    ///
    /// # Panics
    ///
    /// If `starts` is empty, does not begin with 0, or is not strictly ascending.
    fn build(starts: &[u32], settings: &Self::Settings) -> Result<Self, Error>;

    /// Writes the position of the last start that is at most the key, for each key.
    ///
    /// Keys are searched in batches: a call with 32 keys costs much less than 32 calls.
    ///
    /// # Panics
    ///
    /// If `positions` is shorter than `keys`.
    fn find_batch(&self, keys: &[u32], positions: &mut [u32]);

    /// Returns the position of the last start that is at most the key.
    fn find(&self, key: u32) -> usize {
        let mut position = [0];
        self.find_batch(&[key], &mut position);
        position[0] as usize
    }

    /// Returns the number of bytes that the index occupies.
    fn bytes(&self) -> usize;

    /// Returns the largest error of a prediction over all keys, in positions.
    ///
    /// `None`: the index predicts nothing, as a search tree.
    fn certified_error(&self) -> Option<u32> {
        None
    }
}

/// Checks that an index can number the starts.
pub(crate) fn check_count(starts: &[u32], max: usize) -> Result<(), Error> {
    if starts.len() > max {
        return Err(Error::TooManyStarts { starts: starts.len(), max });
    }
    Ok(())
}

/// Checks the starts that are given to [`StartIndex::build`].
///
/// # Panics
///
/// If `starts` is empty, does not begin with 0, or is not strictly ascending.
pub(crate) fn check_starts(starts: &[u32]) {
    assert_eq!(starts.first(), Some(&0), "the first interval starts at 0");
    assert!(starts.is_sorted_by(|a, b| a < b), "the starts are in strictly ascending order");
}
