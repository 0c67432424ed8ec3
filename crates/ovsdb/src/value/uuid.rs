//! UUIDs of rows, and their generator.

use std::{fmt, str::FromStr};

use sha1::{Digest, Sha1};
use thiserror::Error;

/// The UUID of a row, of a version of a row, or of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowUuid(u128);

impl RowUuid {
    /// The UUID of 128 zeros, which is the default of columns with one reference.
    pub const NIL: Self = Self(0);

    /// Creates a UUID from its 128 bits.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the 128 bits of the UUID.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for RowUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message may have thousands of UUIDs, so the text needs no memory of its own.
        let mut text = [b'-'; 36];
        let digits = self.0.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let places = text.iter_mut().enumerate().filter(|(index, _)| !DASHES.contains(index));
        for ((_, place), digit) in places.zip(digits) {
            *place = DIGITS.get(usize::from(digit)).copied().unwrap_or_default();
        }
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for RowUuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        // A message may have thousands of UUIDs, so the text is not split.
        let text: &[u8; 36] = text.as_bytes().try_into().map_err(|_| InvalidUuid)?;
        let mut bits = 0_u128;
        for (index, byte) in text.iter().enumerate() {
            if DASHES.contains(&index) {
                if *byte != b'-' {
                    return Err(InvalidUuid);
                }
                continue;
            }
            let digit = char::from(*byte).to_digit(16).ok_or(InvalidUuid)?;
            bits = bits << 4 | u128::from(digit);
        }
        Ok(Self(bits))
    }
}

/// A text that is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the text is not a UUID: write 36 characters in 5 groups of hexadecimal digits")]
pub struct InvalidUuid;

/// Positions of the dashes between groups.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The hexadecimal digits by value.
const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// A sequence of UUIDs that cannot be guessed without the seed.
///
/// Equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct UuidGenerator {
    /// The start of every hash from which UUIDs are made.
    seed: [u8; 20],
    /// The number of the next UUID.
    next: u64,
}

impl UuidGenerator {
    /// Creates a generator. The seed of a real server is random.
    #[must_use]
    pub const fn new(seed: [u8; 20]) -> Self {
        Self { seed, next: 0 }
    }

    /// Returns the next UUID, of version 4.
    pub fn generate(&mut self) -> RowUuid {
        let digest =
            Sha1::new().chain_update(self.seed).chain_update(self.next.to_be_bytes()).finalize();
        self.next = self.next.wrapping_add(1);
        let bits = digest.iter().take(16).fold(0u128, |bits, byte| bits << 8 | u128::from(*byte));
        let (version, variant) = (0xf_u128 << 76, 0b11_u128 << 62);
        RowUuid(bits & !version & !variant | 0x4 << 76 | 0b10 << 62)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the groups between the dashes.
    fn reference(text: &str) -> Option<RowUuid> {
        let groups: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let digits = groups.concat();
        let is_uuid =
            lengths == [8, 4, 4, 4, 12] && digits.bytes().all(|own| own.is_ascii_hexdigit());
        is_uuid.then(|| RowUuid(u128::from_str_radix(&digits, 16).unwrap()))
    }

    proptest! {
        /// A text with a changed character is a UUID if its groups still are.
        #[test]
        fn a_uuid_has_five_groups_of_digits(
            bits in any::<u128>(),
            place in 0..36_usize,
            character in prop::sample::select(vec!['-', '+', 'g', 'A', 'f', '0', ' ', 'ß']),
            is_longer in any::<bool>(),
        ) {
            let mut text = RowUuid(bits).to_string();
            let end = if is_longer { place } else { place + 1 };
            text.replace_range(place..end, character.encode_utf8(&mut [0; 4]));
            prop_assert_eq!(text.parse().ok(), reference(&text), "{}", text);
        }
    }

    #[test]
    fn a_uuid_survives_its_text() {
        let mut uuids = UuidGenerator::new([7; 20]);
        for _ in 0..100 {
            let uuid = uuids.generate();
            assert_eq!(uuid.to_string().parse(), Ok(uuid));
            assert_eq!(uuid.to_string().get(14..15), Some("4"));
        }
        assert_eq!(RowUuid::NIL.to_string(), "00000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn malformed_uuids_are_refused() {
        for text in ["", "x", "0000000-00000-0000-0000-000000000000", &"0".repeat(36)] {
            assert_eq!(text.parse::<RowUuid>(), Err(InvalidUuid), "{text}");
        }
        assert_eq!("+0000000-0000-0000-0000-000000000000".parse::<RowUuid>(), Err(InvalidUuid));
    }
}
