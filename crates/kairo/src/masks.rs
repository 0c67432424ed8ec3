//! Intersections of masks, and coarser masks with prefixes of whole bytes.
//!
//! Few masks remain after coarsening, so visits need few groups, and groups few projections.

use shunt_flow::{FlowMask, SparseMask};

/// The high half of a word.
const HIGH: u64 = u64::MAX << 32;
/// The low half of a word.
const LOW: u64 = !HIGH;

/// Returns the bits that both masks have.
pub(crate) fn common(mask: &SparseMask, other: &SparseMask) -> SparseMask {
    let mut common = FlowMask::EMPTY;
    mask.iter().for_each(|(word, bits)| common.words_mut()[word] = bits & other.word(word));
    SparseMask::from(&common)
}

/// Shortens the prefix in each half of a word to whole bytes.
/// Bits after the prefix stay as they are.
pub(crate) fn in_bytes(mask: &SparseMask) -> SparseMask {
    let mut coarse = FlowMask::EMPTY;
    for (word, bits) in mask.iter() {
        coarse.words_mut()[word] = [HIGH, LOW].map(|half| whole(bits & half, half)).iter().sum();
    }
    SparseMask::from(&coarse)
}

/// Returns the half of a word that has the most bits after [`in_bytes`].
pub(crate) fn best_half(mask: &SparseMask) -> SparseMask {
    let halves = mask
        .iter()
        .flat_map(|(word, bits)| [HIGH, LOW].map(|half| (word, whole(bits & half, half))));
    let mut best = FlowMask::EMPTY;
    if let Some((word, bits)) = halves.max_by_key(|(_, bits)| bits.count_ones()) {
        best.words_mut()[word] = bits;
    }
    SparseMask::from(&best)
}

/// Returns the whole bytes at the upper end of a half word.
/// If the half does not begin with a whole byte, all of `bits` are returned.
const fn whole(bits: u64, half: u64) -> u64 {
    let length = (bits << half.leading_zeros()).leading_ones();
    match length / 8 * 8 {
        0 => bits,
        bytes => half & !(half >> bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_shortened_to_whole_bytes() {
        assert_eq!(whole(0xfff0_0000_0000_0000, HIGH), 0xff00_0000_0000_0000);
        assert_eq!(whole(0xffff_ff80, LOW), 0xffff_ff00);
        assert_eq!(whole(0xffff_ffff, LOW), 0xffff_ffff);
        assert_eq!(whole(HIGH, HIGH), HIGH);
    }

    #[test]
    fn a_mask_that_is_no_prefix_stays_whole() {
        assert_eq!(whole(0x0fff_ffff, LOW), 0x0fff_ffff);
        assert_eq!(whole(0x1000 << 32, HIGH), 0x1000 << 32);
        assert_eq!(whole(0, LOW), 0);
    }
}
