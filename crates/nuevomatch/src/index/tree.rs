//! A static 16-ary tree over sorted starts.
//!
//! A node has 16 starts, which fill one vector register. The number of starts in the node that are
//! at most the key selects the child, so a search has no branches. All keys of a batch descend one
//! level before any key descends the next level, so that their loads from memory overlap. Four
//! levels hold 65,536 starts.
//!
//! The last node of a level is padded with the largest value. The key `u32::MAX` equals this
//! padding, so each level limits positions to its last start.

use super::start_index::{StartIndex, check_starts};
use crate::{
    Error,
    simd::{InstructionSet, LINE_WORDS, Line},
};

/// A static 16-ary tree: the default index over the starts of buckets.
#[derive(Clone, Debug)]
pub struct StaticTree {
    /// The vector instructions that lookups use.
    instructions: InstructionSet,
    /// The nodes of all levels, from the root to the starts themselves.
    nodes: Vec<Line>,
    /// The levels, the root first.
    levels: Vec<TreeLevel>,
}

/// The extent of one level of the tree.
#[derive(Clone, Copy, Debug)]
struct TreeLevel {
    /// The index of the first node of the level.
    first: usize,
    /// Number of nodes of the level.
    nodes: usize,
    /// The position of the last start of the level that is not padding.
    last: u32,
}

impl StaticTree {
    /// Builds the tree for one instruction set.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^32 starts")]
    fn with_instructions(starts: &[u32], instructions: InstructionSet) -> Self {
        check_starts(starts);
        let mut levels = vec![starts.to_vec()];
        while let Some(below) = levels.last().filter(|level| level.len() > LINE_WORDS) {
            levels.push(below.iter().copied().step_by(LINE_WORDS).collect());
        }
        let mut tree = Self { instructions, nodes: Vec::new(), levels: Vec::new() };
        for level in levels.iter().rev() {
            let nodes = level.chunks(LINE_WORDS).map(|chunk| {
                let mut node = Line([u32::MAX; LINE_WORDS]);
                node.0[..chunk.len()].copy_from_slice(chunk);
                node
            });
            let first = tree.nodes.len();
            tree.nodes.extend(nodes);
            let last = level.len() as u32 - 1;
            tree.levels.push(TreeLevel { first, nodes: tree.nodes.len() - first, last });
        }
        tree
    }
}

impl StartIndex for StaticTree {
    type Settings = ();

    /// Builds the tree, which can number all starts: there are at most 2^32.
    fn build(starts: &[u32], (): &()) -> Result<Self, Error> {
        Ok(Self::with_instructions(starts, InstructionSet::best()))
    }

    fn find_batch(&self, keys: &[u32], positions: &mut [u32]) {
        let positions = &mut positions[..keys.len()];
        positions.fill(0);
        for level in &self.levels {
            let nodes = &self.nodes[level.first..level.first + level.nodes];
            self.instructions.descend(nodes, level.last, keys, positions);
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.nodes[..]) + size_of_val(&self.levels[..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    /// Returns the position of a key, by comparing all starts.
    fn expected(starts: &[u32], key: u32) -> usize {
        starts.partition_point(|start| *start <= key) - 1
    }

    /// Compares the tree with the list of starts.
    fn check(starts: &[u32], keys: &[u32]) {
        for instructions in InstructionSet::all() {
            let tree = StaticTree::with_instructions(starts, instructions);
            let mut positions = vec![0; keys.len()];
            tree.find_batch(keys, &mut positions);
            for (key, position) in keys.iter().zip(positions) {
                let expected = expected(starts, *key);
                assert_eq!(position as usize, expected, "{instructions:?}: {key}");
                assert_eq!(tree.find(*key), expected, "{instructions:?}: {key}");
            }
        }
    }

    /// Tests sizes around each change of depth, and keys next to starts.
    #[test]
    fn sizes_around_full_nodes_are_found() {
        for count in [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 5000] {
            let starts: Vec<u32> = (0..count).map(|i| i * 9).collect();
            let around = starts.iter().flat_map(|s| [s.saturating_sub(1), *s, s + 1]);
            let keys: Vec<u32> = around.chain([u32::MAX - 1, u32::MAX]).collect();
            check(&starts, &keys);
        }
    }

    #[test]
    fn the_bucket_of_the_largest_start_is_found() {
        check(&[0, u32::MAX], &[0, 1, u32::MAX - 1, u32::MAX]);
        let starts: Vec<u32> = std::iter::once(0).chain(u32::MAX - 40..=u32::MAX).collect();
        check(&starts, &(u32::MAX - 60..=u32::MAX).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn random_starts_are_found(
            starts in btree_set(any::<u32>(), 0..700),
            keys in prop::collection::vec(any::<u32>(), 1..100),
        ) {
            let mut starts: Vec<u32> = starts.into_iter().filter(|start| *start != 0).collect();
            starts.insert(0, 0);
            let near = starts.iter().flat_map(|s| [*s, s.saturating_sub(1), s.saturating_add(1)]);
            let keys: Vec<u32> = keys.into_iter().chain(near).collect();
            check(&starts, &keys);
        }
    }
}
