//! Cache lines of 16 words, the unit of all loads.

/// Number of words of a line.
pub(crate) const LINE_WORDS: usize = 16;

/// Number of rules of a block: one for each word of a line.
pub(crate) const BLOCK_RULES: usize = LINE_WORDS;

/// Maximum number of keys in a batch.
pub(crate) const BATCH_MAX: usize = 32;

/// One cache line: 16 words of 32 bits.
///
/// A line also holds 32 values of 16 bits or 64 of 8 bits, the first in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; LINE_WORDS]);

impl Line {
    pub(crate) const ZERO: Self = Self([0; LINE_WORDS]);
}

const _: () = assert!(size_of::<Line>() == 64);

/// One comparison: a key with the rules of consecutive blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MatchJob {
    /// The index of the first line of the first block.
    pub(crate) first: u32,
    /// The position of the key in the batch.
    pub(crate) key: u16,
    /// Number of rules, at most 64.
    /// The rules fill the blocks from the start.
    pub(crate) rules: u16,
}

impl MatchJob {
    /// Returns the first block of the job.
    #[inline]
    pub(super) fn block(self, lines: &[Line], block_lines: usize) -> &[Line] {
        &lines[self.first as usize..self.first as usize + block_lines]
    }

    /// Returns the job for the blocks after the first one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a block has few lines")]
    pub(super) fn after_block(self, block_lines: usize) -> Self {
        Self {
            first: self.first.wrapping_add(block_lines as u32),
            rules: self.rules.wrapping_sub(BLOCK_RULES as u16),
            ..self
        }
    }
}
