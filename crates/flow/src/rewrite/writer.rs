//! Masked writes into a frame, and the changes that they made.

use crate::checksum::ChecksumDifference;

/// Bits to write, right-aligned, and their value.
#[derive(Clone, Copy)]
pub(super) struct WrittenBits {
    /// The bits to write.
    pub(super) mask: u64,
    /// The value of the bits.
    pub(super) value: u64,
}

impl WrittenBits {
    /// A write of no bit.
    pub(super) const NONE: Self = Self { mask: 0, value: 0 };

    /// Returns the `width` bits from bit `shift` on.
    pub(super) const fn part(self, shift: u32, width: u32) -> Self {
        let ones = u64::MAX.unbounded_shr(u64::BITS.saturating_sub(width));
        Self {
            mask: self.mask.unbounded_shr(shift) & ones,
            value: self.value.unbounded_shr(shift) & ones,
        }
    }

    /// Returns these bits, shifted left by `shift`, together with those of `other`.
    pub(super) const fn joined(self, shift: u32, other: Self) -> Self {
        Self {
            mask: self.mask.unbounded_shl(shift) | other.mask,
            value: self.value.unbounded_shl(shift) | other.value,
        }
    }

    /// Returns `word` with these bits written.
    pub(super) const fn write(self, word: u64) -> u64 {
        word & !self.mask | self.value & self.mask
    }
}

/// The bytes of one write, before and after it.
#[derive(Clone, Copy, Default)]
pub(super) struct WordChange {
    /// The bytes before the write.
    pub(super) old: u64,
    /// The bytes after the write.
    pub(super) new: u64,
}

impl From<WordChange> for ChecksumDifference {
    fn from(change: WordChange) -> Self {
        let mut difference = Self::default();
        difference.add(change.old, change.new);
        difference
    }
}

/// Writes into the `N` bytes at `offset` of the header that starts at `header`.
///
/// If the frame does not have these bytes, nothing is written, and the change is empty.
pub(super) fn replace<const N: usize>(
    frame: &mut [u8],
    header: usize,
    offset: usize,
    bits: WrittenBits,
) -> WordChange {
    const { assert!(N <= 8, "the N bytes fit into a word of 64 bits") };
    if bits.mask == 0 {
        return WordChange::default();
    }
    let place = frame.get_mut(header..).and_then(|header| header.get_mut(offset..));
    let Some(bytes) = place.and_then(|place| place.first_chunk_mut::<N>()) else {
        return WordChange::default();
    };
    let mut old = [0; 8];
    old.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(old, byte)| *old = *byte);
    let old = u64::from_be_bytes(old);
    let new = bits.write(old);
    let written = new.to_be_bytes();
    bytes.iter_mut().rev().zip(written.iter().rev()).for_each(|(byte, new)| *byte = *new);
    WordChange { old, new }
}

/// Changes the 16-bit checksum at `offset` of a header, if there is one.
/// The header starts at `header`.
pub(super) fn update(
    frame: &mut [u8],
    header: usize,
    offset: usize,
    updated: impl FnOnce(u16) -> u16,
) {
    let place = frame.get_mut(header..).and_then(|header| header.get_mut(offset..));
    if let Some(checksum) = place.and_then(|place| place.first_chunk_mut()) {
        *checksum = updated(u16::from_be_bytes(*checksum)).to_be_bytes();
    }
}
