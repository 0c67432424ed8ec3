//! Rules with priorities, and the fields that they match.

use crate::{BoxRule, Error, KeySchema, box_rule::widths, schema::lane_max};

/// Largest priority of a rule.
pub const PRIORITY_MAX: u32 = u32::MAX - 1;

/// The values of one field that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldMatch {
    /// The rule matches every value.
    Any,
    /// The rule matches one value.
    Exact(u128),
    /// The values with the same leading bits.
    Prefix {
        /// The leading bits. Bits after the prefix are ignored.
        value: u128,
        /// Number of leading bits.
        length: u32,
    },
    /// The values from `low` to `high`, both included.
    Range {
        /// First value that the rule matches.
        low: u128,
        /// Last value that the rule matches.
        high: u128,
    },
    /// The values that agree with `value` in the bits of `mask`.
    Mask {
        /// The values of the compared bits. Bits outside the mask are ignored.
        value: u128,
        /// The bits that are compared.
        mask: u128,
    },
}

/// A rule of a classifier: a range or a mask in each of `N` lanes, with a priority.
///
/// Of the rules that match a key, the rule with the smallest priority wins: 0 wins over 1. In
/// OpenFlow the largest priority wins, so subtract OpenFlow priorities from the largest one. Among
/// equal priorities, the rule with the smallest value wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PriorityRule<const N: usize> {
    /// The least matching value of each lane.
    pub(crate) low: [u32; N],
    /// The greatest matching value of each lane.
    pub(crate) high: [u32; N],
    /// The bits of each lane that must agree with `low`, if its mask is not a prefix.
    pub(crate) mask: [u32; N],
    /// The priority; the smallest one wins.
    pub(crate) priority: u32,
    /// The number that a lookup returns for the rule.
    pub(crate) value: u32,
}

impl<const N: usize> PriorityRule<N> {
    /// Creates a rule from a match for each field of a schema.
    ///
    /// # Errors
    ///
    /// - [`Error::LaneCount`] or [`Error::FieldCount`] if the schema has another number of lanes or
    ///   fields.
    /// - [`Error::InvalidField`] for a range or prefix beyond the width of the field.
    /// - [`Error::WideRange`] for a range of a field over several lanes that is not a box of lanes.
    /// - [`Error::Priority`] if the priority is above [`PRIORITY_MAX`].
    pub fn new(
        schema: &KeySchema,
        fields: &[FieldMatch],
        priority: u32,
        value: u32,
    ) -> Result<Self, Error> {
        let widths = widths::<N>(schema)?;
        let expected = schema.fields_count();
        if fields.len() != expected {
            return Err(Error::FieldCount { fields: fields.len(), expected });
        }
        check_priority(priority)?;
        let mut rule = Self { low: [0; N], high: [0; N], mask: [0; N], priority, value };
        for (field, matching) in fields.iter().enumerate() {
            let bits: u32 = schema.lanes(field).map(|lane| u32::from(widths[lane])).sum();
            let max = u128::MAX.checked_shr(128 - bits).unwrap_or(0);
            let invalid = Error::InvalidField { field, bits };
            match *matching {
                FieldMatch::Any => rule.set_mask(schema, field, 0, 0),
                FieldMatch::Exact(value) if value <= max => {
                    rule.set_mask(schema, field, value, max);
                }
                FieldMatch::Prefix { value, length } if value <= max && length <= bits => {
                    let free = max.checked_shr(length).unwrap_or(0);
                    rule.set_mask(schema, field, value, max & !free);
                }
                FieldMatch::Mask { value, mask } if value <= max && mask <= max => {
                    rule.set_mask(schema, field, value, mask);
                }
                FieldMatch::Range { low, high } if low <= high && high <= max => {
                    rule.set_range(schema, field, low, high)?;
                }
                _ => return Err(invalid),
            }
        }
        Ok(rule)
    }

    /// Creates a rule from a box.
    ///
    /// # Errors
    ///
    /// [`Error::Priority`] if the priority is above [`PRIORITY_MAX`].
    pub fn from_box(rule: &BoxRule<N>, priority: u32) -> Result<Self, Error> {
        check_priority(priority)?;
        Ok(Self { priority, ..Self::from(rule) })
    }

    /// Returns whether the rule matches a key.
    #[must_use]
    pub fn matches(&self, key: &[u32; N]) -> bool {
        (0..N).all(|lane| {
            let key = key[lane];
            self.low[lane] <= key
                && key <= self.high[lane]
                && (key ^ self.low[lane]) & self.mask[lane] == 0
        })
    }

    /// Returns the smallest box that contains all keys that the rule matches.
    #[must_use]
    pub const fn as_box(&self) -> BoxRule<N> {
        BoxRule { low: self.low, high: self.high, value: self.value }
    }

    /// Returns the priority; smaller numbers win.
    #[must_use]
    pub const fn priority(&self) -> u32 {
        self.priority
    }

    /// Returns the value that the caller gave the rule.
    #[must_use]
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// Returns the rank of the rule: of the rules that match, the smallest rank wins.
    pub(crate) const fn rank(&self) -> u64 {
        rank(self.priority, self.value)
    }

    /// Returns the bits of a lane that are equal in all keys that the rule matches.
    pub(crate) fn fixed_bits(&self, lane: usize) -> u32 {
        let differ = self.low[lane] ^ self.high[lane];
        let free = u32::MAX.checked_shr(differ.leading_zeros()).unwrap_or(0);
        !free | self.mask[lane]
    }

    /// Checks that each range has values, and that all of them fit into the lane.
    pub(crate) fn check(&self, widths: &[u8; N], rule: usize) -> Result<(), Error> {
        self.as_box().check(widths, rule)
    }

    /// Sets the ranges of a field to those of a value and mask.
    fn set_mask(&mut self, schema: &KeySchema, field: usize, value: u128, mask: u128) {
        let mut masks = [0; N];
        schema.split(field, mask, &mut masks);
        schema.split(field, value & mask, &mut self.low);
        for lane in schema.lanes(field) {
            let max = lane_max(schema.lane_widths()[lane]);
            let free = max & !masks[lane];
            self.high[lane] = self.low[lane] | free;
            let is_prefix = free & free.wrapping_add(1) == 0;
            self.mask[lane] = if is_prefix { 0 } else { masks[lane] };
        }
    }

    /// Sets the range of a field.
    fn set_range(
        &mut self,
        schema: &KeySchema,
        field: usize,
        low: u128,
        high: u128,
    ) -> Result<(), Error> {
        schema.split(field, low, &mut self.low);
        schema.split(field, high, &mut self.high);
        let lanes = schema.lanes(field);
        let first = lanes.clone().find(|lane| self.low[*lane] != self.high[*lane]);
        let mut after = first.map_or(lanes.end, |first| first + 1)..lanes.end;
        let max = |lane: usize| lane_max(schema.lane_widths()[lane]);
        if after.all(|lane| self.low[lane] == 0 && self.high[lane] == max(lane)) {
            Ok(())
        } else {
            Err(Error::WideRange { field })
        }
    }
}

impl<const N: usize> From<&BoxRule<N>> for PriorityRule<N> {
    fn from(rule: &BoxRule<N>) -> Self {
        let BoxRule { low, high, value } = *rule;
        Self { low, high, mask: [0; N], priority: 0, value }
    }
}

/// Returns the rank of a rule: of the rules that match, the smallest rank wins.
pub(crate) const fn rank(priority: u32, value: u32) -> u64 {
    (priority as u64) << 32 | value as u64
}

/// Refuses a priority that is too large for a rank.
fn check_priority(priority: u32) -> Result<(), Error> {
    if priority > PRIORITY_MAX {
        return Err(Error::Priority { priority, max: PRIORITY_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the schema of a key with several fields.
    fn schema() -> KeySchema {
        KeySchema::new(&[48, 16, 0]).unwrap()
    }

    /// Returns a rule that matches one field.
    fn rule(field: FieldMatch) -> Result<PriorityRule<4>, Error> {
        PriorityRule::new(&schema(), &[field, FieldMatch::Any, FieldMatch::Any], 1, 2)
    }

    fn is_match(field: &FieldMatch, key: u128) -> bool {
        match *field {
            FieldMatch::Any => true,
            FieldMatch::Exact(value) => key == value,
            FieldMatch::Prefix { value, length } => {
                let free = 48 - length;
                key >> free == value >> free
            }
            FieldMatch::Range { low, high } => low <= key && key <= high,
            FieldMatch::Mask { value, mask } => key & mask == value & mask,
        }
    }

    proptest! {
        #[test]
        fn lanes_match_what_the_field_matches(
            kind in 0..5,
            a in 0_u128..1 << 48,
            mask in 0_u128..1 << 48,
            length in 0_u32..49,
            flip in 0_u32..48,
        ) {
            let free = (1 << (48 - length)) - 1;
            let field = match kind {
                0 => FieldMatch::Any,
                1 => FieldMatch::Exact(a),
                2 => FieldMatch::Prefix { value: a, length },
                3 => FieldMatch::Range { low: a & !free, high: a | free },
                _ => FieldMatch::Mask { value: a, mask },
            };
            let rule = rule(field).unwrap();
            for key in [a, a ^ 1 << flip, mask, a & mask, a | !mask & ((1 << 48) - 1)] {
                let mut lanes = [0; 4];
                schema().split(0, key, &mut lanes);
                prop_assert_eq!(rule.matches(&lanes), is_match(&field, key), "{:?} {}", field, key);
                let same = (0..4).all(|lane| {
                    (lanes[lane] ^ rule.low[lane]) & rule.fixed_bits(lane) == 0
                });
                prop_assert!(same || !rule.matches(&lanes));
            }
        }
    }

    #[test]
    fn fields_out_of_their_bits_are_refused() {
        let invalid = Error::InvalidField { field: 0, bits: 48 };
        for field in [
            FieldMatch::Exact(1 << 48),
            FieldMatch::Prefix { value: 0, length: 49 },
            FieldMatch::Range { low: 2, high: 1 },
            FieldMatch::Range { low: 2, high: 1 << 48 },
            FieldMatch::Mask { value: 0, mask: 1 << 48 },
        ] {
            assert_eq!(rule(field).unwrap_err(), invalid, "{field:?}");
        }
        let wide = FieldMatch::Range { low: 0x1_0001, high: 0x3_ffff };
        assert_eq!(rule(wide).unwrap_err(), Error::WideRange { field: 0 });
        let any = [FieldMatch::Any; 3];
        let error = PriorityRule::<4>::new(&schema(), &any, u32::MAX, 0).unwrap_err();
        assert_eq!(error, Error::Priority { priority: u32::MAX, max: PRIORITY_MAX });
        let error = PriorityRule::<4>::new(&schema(), &any[..2], 0, 0).unwrap_err();
        assert_eq!(error, Error::FieldCount { fields: 2, expected: 3 });
    }
}
