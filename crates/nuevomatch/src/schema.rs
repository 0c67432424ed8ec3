//! Fields of a key, and the lanes of at most 32 bits that hold them.
//!
//! Searches and comparisons work on 32-bit integers. A field of up to 32 bits is one lane. A wider
//! field has several lanes: its most significant 32 bits are the first lane, and the last lane has
//! the remaining bits. With several lanes, a prefix or an exact value of a wide field is a box of
//! lanes. A general range of a wide field is contained in a box of lanes.

use crate::Error;

/// Largest width of a field in bits.
pub const FIELD_BITS_MAX: u32 = 128;

/// Largest width of a lane in bits.
pub const LANE_BITS_MAX: u32 = 32;

/// The fields of a key in order, and the lanes into which they are split.
///
/// ```
/// use shunt_nuevomatch::KeySchema;
///
/// // IPv6 source, IPv6 destination, next header.
/// let schema = KeySchema::new(&[128, 128, 8])?;
/// assert_eq!(schema.lane_widths(), [32, 32, 32, 32, 32, 32, 32, 32, 8]);
/// let mut key = [0; 9];
/// schema.split(0, 0x2001_0db8_0000_0000_0000_0000_0000_0001, &mut key);
/// assert_eq!(key[..4], [0x2001_0db8, 0, 0, 1]);
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySchema {
    /// The first lane of each field, and the number of all lanes at the end.
    firsts: Vec<usize>,
    /// Number of bits of each lane.
    widths: Vec<u8>,
}

impl KeySchema {
    /// Creates a schema from the widths of its fields in bits.
    ///
    /// A field of 0 bits is one lane, in which every key has the value 0.
    ///
    /// # Errors
    ///
    /// [`Error::FieldTooWide`] if a field has more than [`FIELD_BITS_MAX`] bits.
    pub fn new(fields: &[u32]) -> Result<Self, Error> {
        let (mut firsts, mut widths) = (vec![0], Vec::new());
        for (field, &bits) in fields.iter().enumerate() {
            if bits > FIELD_BITS_MAX {
                return Err(Error::FieldTooWide { field, bits });
            }
            let mut rest = bits;
            loop {
                let width = rest.min(LANE_BITS_MAX);
                widths.push(width as u8);
                rest -= width;
                if rest == 0 {
                    break;
                }
            }
            firsts.push(widths.len());
        }
        Ok(Self { firsts, widths })
    }

    /// Returns the schema of the IPv4 5-tuple.
    ///
    /// The lanes are source, destination, source port, destination port and protocol.
    #[must_use]
    pub fn five_tuple() -> Self {
        Self { firsts: (0..=5).collect(), widths: vec![32, 32, 16, 16, 8] }
    }

    /// Returns the number of fields that a rule matches.
    #[must_use]
    pub fn fields_count(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Returns the width of each lane in bits.
    #[must_use]
    pub fn lane_widths(&self) -> &[u8] {
        &self.widths
    }

    /// Returns the lanes of a field.
    ///
    /// # Panics
    ///
    /// If the schema has no field with this number.
    #[must_use]
    pub fn lanes(&self, field: usize) -> std::ops::Range<usize> {
        self.firsts[field]..self.firsts[field + 1]
    }

    /// Writes a value of a field into its lanes of a key.
    ///
    /// Bits above the width of the field are dropped.
    ///
    /// # Panics
    ///
    /// If the schema has no field with this number, or the key has too few lanes.
    #[expect(clippy::cast_possible_truncation, reason = "the value is masked to a lane")]
    pub fn split(&self, field: usize, value: u128, key: &mut [u32]) {
        let mut rest = value;
        for lane in self.lanes(field).rev() {
            let width = self.widths[lane];
            key[lane] = (rest & u128::from(lane_max(width))) as u32;
            rest >>= width;
        }
    }
}

/// Returns the last value of a lane of `width` bits.
pub(crate) const fn lane_max(width: u8) -> u32 {
    match width {
        0 => 0,
        width => u32::MAX >> (32 - width as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_fields_are_split_from_the_top() {
        let schema = KeySchema::new(&[48, 0, 12]).unwrap();
        assert_eq!((schema.lane_widths(), schema.fields_count()), (&[32, 16, 0, 12][..], 3));
        assert_eq!((schema.lanes(0), schema.lanes(1), schema.lanes(2)), (0..2, 2..3, 3..4));
        let mut key = [9; 4];
        schema.split(0, 0xffff_1234_5678_9abc, &mut key);
        schema.split(1, 7, &mut key);
        schema.split(2, 0xabcd, &mut key);
        assert_eq!(key, [0x1234_5678, 0x9abc, 0, 0xbcd]);
    }

    #[test]
    fn a_field_has_at_most_128_bits() {
        let error = KeySchema::new(&[128, 129]).unwrap_err();
        assert_eq!(error, Error::FieldTooWide { field: 1, bits: 129 });
    }

    #[test]
    fn the_five_tuple_is_five_fields() {
        assert_eq!(KeySchema::five_tuple(), KeySchema::new(&[32, 32, 16, 16, 8]).unwrap());
    }
}
