//! Port ranges, and the masked matches that cover them.
//!
//! OpenFlow matches a port by value and mask, so a range becomes several matches. The number of
//! matches is smallest if each match is the largest aligned block that fits, from the low end on.

use std::fmt;

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// The range of all ports.
    pub const ANY: Self = Self { low: 0, high: u16::MAX };
    /// The range of the ports below 1024.
    pub const LOW: Self = Self { low: 0, high: 1023 };
    /// The range of the ports from 1024.
    pub const HIGH: Self = Self { low: 1024, high: u16::MAX };

    /// Returns the ports from `low` to `high`; `None` if `low` is greater.
    #[must_use]
    pub const fn new(low: u16, high: u16) -> Option<Self> {
        if low <= high { Some(Self { low, high }) } else { None }
    }

    /// Returns a single port.
    #[must_use]
    pub const fn exact(port: u16) -> Self {
        Self { low: port, high: port }
    }

    /// Returns the lowest port of the range.
    #[must_use]
    pub const fn low(self) -> u16 {
        self.low
    }

    /// Returns the highest port of the range.
    #[must_use]
    pub const fn high(self) -> u16 {
        self.high
    }

    /// Returns the number of ports minus one.
    #[must_use]
    pub const fn span(self) -> u16 {
        self.high.saturating_sub(self.low)
    }

    /// Returns the smallest list of masked values, at most 30, that cover the range.
    ///
    /// ```
    /// use shunt_pipebench::classbench::PortRange;
    ///
    /// let masks: Vec<String> =
    ///     PortRange::HIGH.masks().map(|mask| mask.to_string()).collect();
    /// assert_eq!(masks[0], "0x0400/0xfc00");
    /// assert_eq!(masks.len(), 6);
    /// ```
    pub fn masks(self) -> impl Iterator<Item = PortMask> {
        let mut next = Some(self.low);
        std::iter::from_fn(move || {
            let value = next?;
            // The largest block to which the value is aligned, halved until it fits the range.
            let mut block = if value == 0 { u16::MAX } else { low_bits(value) };
            while value | block > self.high {
                block >>= 1;
            }
            let last = value | block;
            next = if last < self.high { last.checked_add(1) } else { None };
            Some(PortMask { value, mask: !block })
        })
    }
}

/// Returns the bits below the lowest set bit of a nonzero value.
const fn low_bits(value: u16) -> u16 {
    !value & value.wrapping_sub(1)
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", self.low, self.high)
    }
}

/// A value under a mask of leading ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortMask {
    /// The values of the matched bits; zero outside the mask.
    pub value: u16,
    /// The mask: leading ones, which select the matched bits.
    pub mask: u16,
}

impl fmt::Display for PortMask {
    /// Formats as OpenFlow text: `80`, or `0x0400/0xfc00`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mask == u16::MAX {
            write!(f, "{}", self.value)
        } else {
            write!(f, "{:#06x}/{:#06x}", self.value, self.mask)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count_covering(range: PortRange, port: u16) -> usize {
        range.masks().filter(|mask| port & mask.mask == mask.value).count()
    }

    /// Returns the smallest number of prefixes for a range, by halving the space.
    fn fewest(low: u32, high: u32, from: u32, to: u32) -> usize {
        if high < from || low > to {
            0
        } else if low <= from && to <= high {
            1
        } else {
            let middle = from.midpoint(to);
            fewest(low, high, from, middle) + fewest(low, high, middle + 1, to)
        }
    }

    #[test]
    fn masks_cover_the_ends_of_the_space() {
        let masks = |low, high| PortRange::new(low, high).unwrap().masks().count();
        assert_eq!(PortRange::ANY.masks().collect::<Vec<_>>(), [PortMask { value: 0, mask: 0 }]);
        assert_eq!((masks(65_535, 65_535), masks(0, 65_534), masks(1, 65_534)), (1, 16, 30));
    }

    proptest! {
        #[test]
        fn masks_cover_the_range_once_and_nothing_else(a: u16, b: u16, port: u16) {
            let range = PortRange::new(a.min(b), a.max(b)).unwrap();
            let inside = (range.low..=range.high).contains(&port);
            prop_assert_eq!(count_covering(range, port), usize::from(inside));
            prop_assert_eq!((count_covering(range, range.low), count_covering(range, range.high)), (1, 1));
        }

        #[test]
        fn the_number_of_masks_is_minimal(a: u16, b: u16) {
            let range = PortRange::new(a.min(b), a.max(b)).unwrap();
            let expected = fewest(range.low.into(), range.high.into(), 0, 65_535);
            prop_assert_eq!(range.masks().count(), expected);
        }
    }
}
