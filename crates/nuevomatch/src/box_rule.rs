//! Rules as boxes: one range in each lane.

use crate::{Error, KeySchema, schema::lane_max};

/// A box of keys: one inclusive range for each of `N` lanes, with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoxRule<const N: usize> {
    /// First value of each lane.
    pub low: [u32; N],
    /// Last value of each lane.
    pub high: [u32; N],
    /// The value that the caller gave the box.
    pub value: u32,
}

impl<const N: usize> BoxRule<N> {
    /// Returns whether the box contains the key.
    #[must_use]
    pub fn contains(&self, key: &[u32; N]) -> bool {
        (0..N).all(|lane| self.low[lane] <= key[lane] && key[lane] <= self.high[lane])
    }

    /// Checks that each range has values, and that all of them fit into the lane.
    ///
    /// `rule` is the position of the rule, for the error.
    pub(crate) fn check(&self, widths: &[u8; N], rule: usize) -> Result<(), Error> {
        for (lane, &width) in widths.iter().enumerate() {
            let (low, high, max) = (self.low[lane], self.high[lane], lane_max(width));
            if low > high {
                return Err(Error::EmptyRange { rule, lane, low, high });
            }
            if high > max {
                return Err(Error::OutsideLane { rule, lane, high, max });
            }
        }
        Ok(())
    }
}

/// Returns the widths of the lanes of a schema with `N` lanes.
pub(crate) fn widths<const N: usize>(schema: &KeySchema) -> Result<[u8; N], Error> {
    let widths = schema.lane_widths();
    widths.try_into().map_err(|_| Error::LaneCount { lanes: widths.len(), expected: N })
}
