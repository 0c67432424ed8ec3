//! Bounds of the size of an iSet that cost less than the iSet.
//!
//! A partition examines every lane, but most lanes cannot win: a lane of wildcards has one bucket.
//! Two exact bounds show it without sorting the rules.

/// Widest lane of which the starts are counted, in bits.
const COUNTED_BITS_MAX: u8 = 16;

/// Returns a bound of the number of rules that a relaxed iSet in a lane can hold.
///
/// All rules with the full range are in one bucket, and so are all rules with the same start.
pub(crate) fn rules_max(
    ranges: impl Iterator<Item = (u32, u32)>,
    width: u8,
    max: u32,
    capacity: usize,
) -> usize {
    let counts_starts = width <= COUNTED_BITS_MAX;
    let mut starts = vec![0_u8; if counts_starts { 1 << width } else { 0 }];
    let (mut full, mut others) = (0, 0);
    for (low, high) in ranges {
        if low == 0 && high == max {
            full += 1;
        } else {
            others += 1;
        }
        if counts_starts {
            let count = &mut starts[low as usize];
            *count = count.saturating_add(1);
        }
    }
    // One rule with the full range makes one bucket of all.
    let by_range = if full == 0 { others } else { others.max(capacity.min(full + others)) };
    if counts_starts {
        let by_start = starts.iter().map(|count| usize::from(*count).min(capacity)).sum();
        by_range.min(by_start)
    } else {
        by_range
    }
}

#[cfg(test)]
mod tests {
    use super::rules_max;

    #[test]
    fn wildcards_are_one_bucket() {
        let rules = std::iter::repeat_n((0, 255), 100).chain((0..10).map(|i| (i, i)));
        assert_eq!(rules_max(rules.clone(), 8, 255, 40), 40);
        assert_eq!(rules_max(rules.clone(), 32, 255, 40), 40);
        assert_eq!(rules_max(rules, 32, 255, 4), 10);
    }

    #[test]
    fn equal_starts_are_one_bucket() {
        let rules = std::iter::repeat_n((7, 7), 100);
        assert_eq!(rules_max(rules.clone(), 16, 65535, 40), 40);
        assert_eq!(rules_max(rules, 32, u32::MAX, 40), 100);
    }
}
