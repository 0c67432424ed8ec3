//! A sort of ranges by their starts and ends, in linear time for many distinct starts.

/// Number of bits of a digit of the radix sort.
const DIGIT_BITS: u32 = 11;

/// Number of ranges below which a list is sorted by comparisons.
const RANGES_MIN: usize = 4096;

/// Sorts ranges with the positions of their rules.
///
/// The upper half of a range number is the start of the range. Stable passes sort the ranges by the
/// digits of their starts. After the passes, runs of equal starts are sorted by comparisons.
#[expect(clippy::cast_possible_truncation, reason = "a digit has 11 bits")]
pub(super) fn sort_ranges(ranges: &mut Vec<(u64, u32)>) {
    if ranges.len() < RANGES_MIN {
        ranges.sort_unstable();
        return;
    }
    let mut other = vec![(0, 0); ranges.len()];
    for shift in (u32::BITS..u64::BITS).step_by(DIGIT_BITS as usize) {
        let digit = |range: u64| (range >> shift) as usize & ((1 << DIGIT_BITS) - 1);
        let mut next = [0_usize; 1 << DIGIT_BITS];
        ranges.iter().for_each(|(range, _)| next[digit(*range)] += 1);
        if next.contains(&ranges.len()) {
            continue;
        }
        let mut before = 0;
        for next in &mut next {
            before += std::mem::replace(next, before);
        }
        for range in &*ranges {
            let next = &mut next[digit(range.0)];
            other[*next] = *range;
            *next += 1;
        }
        std::mem::swap(ranges, &mut other);
    }
    for run in ranges.chunk_by_mut(|a, b| a.0 >> u32::BITS == b.0 >> u32::BITS) {
        run.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..Default::default() })]

        #[test]
        fn many_ranges_are_sorted_like_few(
            ranges in vec((any::<u64>(), any::<u32>()), RANGES_MIN..RANGES_MIN + 100),
            kept in prop::sample::select(vec![u64::MAX, 0xff_0000_0003_ffff, 0xffff, 7 << 60]),
        ) {
            let mut sorted: Vec<_> = ranges.iter().map(|(range, rule)| (range & kept, *rule)).collect();
            let mut expected = sorted.clone();
            sort_ranges(&mut sorted);
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }
    }
}
