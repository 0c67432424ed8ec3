//! Search in a window of sorted starts.
//!
//! A learned index predicts a position and knows the greatest error of the prediction. The window
//! of positions around the prediction is searched without branches on the key: long windows are
//! halved, and the remaining window is compared as whole vectors. The windows of all keys of a
//! batch are halved equally often, so that no loop depends on a single key.

use std::hint::select_unpredictable;

use crate::simd::{Vector, VectorWork};

/// Number of keys for which a lookup interleaves the search.
const LANES: usize = 32;

/// Number of starts that one vector comparison covers.
const VECTOR_STARTS: usize = 16;

/// Length of the longest window that is compared without halving.
///
/// One halving costs about as much as the comparison of two vectors.
const COMPARED_MAX: usize = 4 * VECTOR_STARTS;

/// Sorted starts, with padding for whole vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortedStarts {
    /// The starts, and after them the largest key, [`COMPARED_MAX`] times.
    padded: Vec<u32>,
    /// Number of starts without the padding.
    count: u32,
}

/// One window for each of `N` keys, which contains the position of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows<const N: usize> {
    /// The first position of each window.
    firsts: [u32; N],
    /// The number of positions in each window.
    /// Windows end before the end of the starts.
    lengths: [u32; N],
    /// The maximum length of a window.
    longest: u32,
}

impl<const N: usize> Windows<N> {
    /// Creates windows from the first position and the length of each window.
    #[inline(always)]
    pub(crate) fn of(mut window: impl FnMut(usize) -> (u32, u32)) -> Self {
        let mut longest = 0;
        let mut windows = Self { firsts: [0; N], lengths: [0; N], longest };
        for lane in 0..N {
            let (first, length) = window(lane);
            windows.firsts[lane] = first;
            windows.lengths[lane] = length;
            longest = longest.max(length);
        }
        windows.longest = longest;
        windows
    }
}

/// An index that finds the positions of several keys at once.
pub(crate) trait FindLanes {
    /// Writes the position of each key.
    fn find_lanes<V: Vector, const N: usize>(
        &self,
        vector: V,
        keys: &[u32; N],
        positions: &mut [u32; N],
    );
}

/// A lookup of any number of keys: [`LANES`] at once, and the rest one by one.
pub(crate) struct FindBatch<'a, I> {
    pub(crate) index: &'a I,
    pub(crate) keys: &'a [u32],
    /// The position of each key, which the lookup writes.
    pub(crate) positions: &'a mut [u32],
}

impl<I: FindLanes> VectorWork for FindBatch<'_, I> {
    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let (keys, keys_rest) = self.keys.as_chunks::<LANES>();
        let (positions, positions_rest) = self.positions.as_chunks_mut::<LANES>();
        for (keys, positions) in keys.iter().zip(positions) {
            self.index.find_lanes(vector, keys, positions);
        }
        let keys_rest = keys_rest.as_chunks::<1>().0;
        let positions_rest = positions_rest.as_chunks_mut::<1>().0;
        for (keys, positions) in keys_rest.iter().zip(positions_rest) {
            self.index.find_lanes(vector, keys, positions);
        }
    }
}

impl SortedStarts {
    /// Pads `starts`, which must not be empty.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a key has 32 bits, and starts are distinct"
    )]
    pub(crate) fn new(mut starts: Vec<u32>) -> Self {
        let count = starts.len() as u32;
        starts.extend([u32::MAX; COMPARED_MAX]);
        Self { padded: starts, count }
    }

    /// Returns the starts without the padding.
    pub(crate) fn starts(&self) -> &[u32] {
        &self.padded[..self.count as usize]
    }

    /// Returns the number of starts.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Returns the number of bytes of the starts.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.padded)
    }

    /// Writes the position of the last start that is at most the key, for each key.
    ///
    /// Keys below all starts have position 0.
    ///
    /// This function and its callers write results to the arrays of their caller word by word, and
    /// read them word by word. A copy of an array would read vectors just after their words were
    /// written, which stalls the processor.
    #[inline(always)]
    pub(crate) fn search<V: Vector, const N: usize>(
        &self,
        vector: V,
        keys: &[u32; N],
        windows: &mut Windows<N>,
        positions: &mut [u32; N],
    ) {
        let padded = &*self.padded;
        let last = self.count - 1;
        let mut longest = windows.longest;
        while longest as usize > COMPARED_MAX {
            for (lane, key) in keys.iter().enumerate() {
                // The position is in the upper half exactly if the first start of that half is at
                // most the key. The lower half is not longer, so the window gets the length of the
                // upper half in both cases.
                let half = windows.lengths[lane] / 2;
                let middle = padded[(windows.firsts[lane] + half) as usize];
                windows.firsts[lane] += select_unpredictable(middle <= *key, half, 0);
                windows.lengths[lane] -= half;
            }
            longest -= longest / 2;
        }
        // Starts after the window are greater than the key, so they do not change the count.
        if longest as usize <= VECTOR_STARTS {
            for (lane, key) in keys.iter().enumerate() {
                let first = windows.firsts[lane];
                let count = count_at_most(vector, padded, first as usize, *key);
                positions[lane] = last_counted(first, count, last);
            }
            return;
        }
        let vectors = (longest as usize).div_ceil(VECTOR_STARTS);
        for (lane, key) in keys.iter().enumerate() {
            let first = windows.firsts[lane];
            let mut count = 0;
            for number in 0..vectors {
                count +=
                    count_at_most(vector, padded, first as usize + number * VECTOR_STARTS, *key);
            }
            positions[lane] = last_counted(first, count, last);
        }
    }
}

/// Returns the number of starts in the vector at `first` that are at most `key`.
#[inline(always)]
fn count_at_most<V: Vector>(vector: V, padded: &[u32], first: usize, key: u32) -> u32 {
    let (vectors, _) = padded[first..first + VECTOR_STARTS].as_chunks();
    vector.count16(&vectors[0], key)
}

/// Returns the position of the last of `count` starts from `first` on.
///
/// If `count` is 0, the result is `first`. For the largest key, `count` may include padding, so the
/// result is limited to `last`.
#[inline(always)]
fn last_counted(first: u32, count: u32, last: u32) -> u32 {
    (first + count.saturating_sub(1)).min(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rqrmi::position;
    use crate::simd::{InstructionSet, VectorWork};

    struct Search<'a>(&'a SortedStarts, &'a [u32; 2], Windows<2>, &'a mut [u32; 2]);

    impl VectorWork for Search<'_> {
        fn run<V: Vector>(self, vector: V) {
            let mut windows = self.2;
            self.0.search(vector, self.1, &mut windows, self.3);
        }
    }

    proptest! {
        /// Tests two keys with windows of different lengths, anywhere in the starts.
        #[test]
        fn positions_in_windows_are_found(
            starts in prop::collection::btree_set(any::<u32>(), 1..900),
            keys in any::<[u32; 2]>(),
            near in any::<[prop::sample::Index; 2]>(),
            before in [0..300_u32, 0..300_u32],
            after in [0..300_u32, 0..300_u32],
        ) {
            let starts: Vec<u32> = starts.into_iter().collect();
            let count = u32::try_from(starts.len()).unwrap();
            // One key is random. The other key is a start, or next to a start.
            let keys = [keys[0], starts[near[0].index(starts.len())].wrapping_sub(keys[1] % 2)];
            let expected = keys.map(|key| position(&starts, key));
            let firsts = [0, 1].map(|lane| expected[lane].saturating_sub(before[lane]));
            let lengths = [0, 1].map(|lane| {
                (expected[lane] - firsts[lane] + 1 + after[lane]).min(count - firsts[lane])
            });
            let sorted = SortedStarts::new(starts);
            for instructions in InstructionSet::all() {
                let mut found = [u32::MAX; 2];
                let windows = Windows::of(|lane| (firsts[lane], lengths[lane]));
                instructions.run(Search(&sorted, &keys, windows, &mut found));
                prop_assert_eq!(found, expected, "{:?}", instructions);
            }
        }
    }
}
