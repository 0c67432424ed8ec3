//! Binary strings, in which P4Runtime encodes numbers.
//!
//! Binary strings are big-endian. The canonical form is the shortest: no leading zero bytes, and
//! one byte for zero. Received values may have leading zeros; sent values have none. Source:
//! P4Runtime, "Bytestrings".

use prost::bytes::{Buf, Bytes};

/// The reason why a binary string is not a value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The string of the value is empty.
    #[error("the value is empty: zero is encoded as one byte")]
    Empty,
    /// The value is too wide.
    #[error("the value has {bits} bits, but the field has only {width}")]
    TooWide {
        /// Number of bits up to the highest set bit.
        bits: usize,
        /// Width of the field in bits.
        width: usize,
    },
}

/// Removes leading zero bytes, but keeps at least one byte.
#[must_use]
pub fn canonical(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let start = zeros.min(bytes.len().saturating_sub(1));
    bytes.get(start..).unwrap_or_default()
}

/// Returns the canonical form of a value of a field of `width` bits.
///
/// # Errors
///
/// The value is empty or too wide.
pub fn checked(bytes: &[u8], width: usize) -> Result<&[u8], ValueError> {
    let shortest = canonical(bytes);
    let first = shortest.first().ok_or(ValueError::Empty)?;
    let bits = (shortest.len().saturating_mul(8)).saturating_sub(first.leading_zeros() as usize);
    if bits > width { Err(ValueError::TooWide { bits, width }) } else { Ok(shortest) }
}

/// Makes a value of a field of `width` bits canonical.
///
/// # Errors
///
/// The value is empty or too wide.
pub fn make_canonical(bytes: &mut Bytes, width: usize) -> Result<(), ValueError> {
    let zeros = bytes.len().saturating_sub(checked(bytes, width)?.len());
    bytes.advance(zeros);
    Ok(())
}

/// Returns the canonical form of a number.
#[must_use]
pub fn encode(number: u128) -> Vec<u8> {
    canonical(&number.to_be_bytes()).to_vec()
}

/// Returns the number; `None` if it has more than 128 bits.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<u128> {
    let shortest = canonical(bytes);
    let mut all = [0; 16];
    let start = all.len().checked_sub(shortest.len())?;
    all.get_mut(start..)?.copy_from_slice(shortest);
    Some(u128::from_be_bytes(all))
}

/// Returns whether all bits of `value` are set in `mask`; both are canonical.
#[must_use]
pub fn is_within(value: &[u8], mask: &[u8]) -> bool {
    is_zero(value)
        || value.len() <= mask.len()
            && value.iter().rev().zip(mask.iter().rev()).all(|(value, mask)| value & !mask == 0)
}

/// Returns whether no bit is set.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Returns whether all bits after the first `prefix` of `width` bits are zero.
#[must_use]
pub fn is_prefix(value: &[u8], prefix: usize, width: usize) -> bool {
    let zeros = value.iter().rev().take_while(|byte| **byte == 0).count();
    let trailing = match value.iter().rev().nth(zeros) {
        Some(byte) => zeros.saturating_mul(8).saturating_add(byte.trailing_zeros() as usize),
        None => width,
    };
    trailing >= width.saturating_sub(prefix)
}

/// Returns whether all bits of a field of `width` bits are set.
#[must_use]
pub fn is_all_ones(value: &[u8], width: usize) -> bool {
    let ones: usize = value.iter().map(|byte| byte.count_ones() as usize).sum();
    ones == width
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_form_is_shortest_and_not_empty() {
        assert_eq!(canonical(&[0, 0, 1, 0]), [1, 0]);
        assert_eq!(canonical(&[0, 0]), [0]);
        assert_eq!(canonical(&[7]), [7]);
        assert_eq!(checked(&[], 8), Err(ValueError::Empty));
        assert_eq!(checked(&[0, 0x01, 0xff], 9), Ok(&[1, 0xff][..]));
        assert_eq!(checked(&[0x02, 0], 9), Err(ValueError::TooWide { bits: 10, width: 9 }));
    }

    proptest! {
        #[test]
        fn a_number_round_trips_through_its_binary_string(number: u128, zeros in 0usize..3) {
            let padded = [vec![0; zeros], encode(number)].concat();
            prop_assert_eq!(decode(&padded), Some(number));
            let bits = 128 - number.leading_zeros() as usize;
            prop_assert_eq!(checked(&padded, bits.max(1)).is_ok(), true);
            prop_assert_eq!(bits > 0 && checked(&padded, bits - 1).is_ok(), false);
        }

        #[test]
        fn masks_and_prefixes_equal_those_of_integers(value: u64, mask: u64, prefix in 0usize..=64) {
            let [value_bytes, mask_bytes] = [value, mask].map(|number| encode(number.into()));
            prop_assert_eq!(is_within(&value_bytes, &mask_bytes), value & !mask == 0);
            let low = if prefix == 0 { u64::MAX } else { (1u64 << (64 - prefix)).wrapping_sub(1) };
            let low = if prefix == 64 { 0 } else { low };
            prop_assert_eq!(is_prefix(&value_bytes, prefix, 64), value & low == 0);
            prop_assert_eq!(is_all_ones(&value_bytes, 64), value == u64::MAX);
        }
    }
}
