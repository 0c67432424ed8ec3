//! Incremental checksums: the Internet checksum (RFC 1071) and the CRC32c of SCTP (RFC 9260,
//! appendix A).
//!
//! A rewrite never computes a checksum from the whole packet. A rewrite applies the *difference*
//! that the changed bytes make. An update by difference costs the same for any packet length, and
//! needs no payload, for example of a fragment. A corrupt packet stays exactly as corrupt as it
//! was, while a new checksum would hide the corruption from the receiver.
//!
//! The Internet checksum is a sum of 16-bit words modulo 65535. The difference of a change is the
//! new words minus the old ones, `m' - m = m' + !m` (RFC 1624, equation 3). CRC32c is linear over
//! exclusive or. So the difference is the CRC, started from zero, of the changed bits and of one
//! zero byte for each later byte.

/// The difference that a change of bytes makes to an Internet checksum.
///
/// ```
/// use shunt_flow::checksum::{ChecksumDifference, sum};
///
/// let mut difference = ChecksumDifference::default();
/// difference.add(0x0a00_0001, 0x0a00_0002);
/// let before = !sum(&[10, 0, 0, 1]);
/// assert_eq!(difference.update(before), !sum(&[10, 0, 0, 2]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumDifference {
    /// The sum of the differences of 16-bit words.
    sum: u64,
}

impl ChecksumDifference {
    /// Adds the change of up to four 16-bit words, right-aligned.
    ///
    /// The words start at an even offset of the bytes that the checksum covers.
    pub const fn add(&mut self, old: u64, new: u64) {
        if old != new {
            self.sum += words_sum(!old) + words_sum(new);
        }
    }

    /// Adds another difference of the same checksum.
    pub const fn combine(&mut self, other: Self) {
        self.sum += other.sum;
    }

    /// Returns whether the checksum stays the same.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.sum == 0
    }

    /// Returns a checksum (the complement of a sum) after the change.
    #[must_use]
    pub const fn update(self, checksum: u16) -> u16 {
        !self.update_partial(!checksum)
    }

    /// Returns a sum after the change, for a checksum that is still to be completed.
    #[must_use]
    pub const fn update_partial(self, sum: u16) -> u16 {
        fold(self.sum + sum as u64)
    }
}

/// Returns the sum of bytes as big-endian 16-bit words in one's complement.
///
/// An odd length is padded with a zero. The complement of the sum is the checksum.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    // Addition is the same in either byte order up to a swap of the result, so the loop adds
    // whole words as they lie in memory (RFC 1071, 2 (B)).
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(last, byte)| *last = *byte);
    let add = |sum: u64, word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        sum + (word >> 32) + (word & 0xffff_ffff)
    };
    u16::from_be_bytes(fold(add(words.iter().fold(0, add), &last)).to_ne_bytes())
}

/// Returns the exclusive or of the CRC32c before and after four bytes change.
///
/// `behind` bytes of the packet follow the four bytes.
#[must_use]
pub const fn crc32c_difference(old: [u8; 4], new: [u8; 4], behind: usize) -> u32 {
    let changed = u32::from_le_bytes(old) ^ u32::from_le_bytes(new);
    append_zeros(changed, behind + 4)
}

/// Returns the sum of the four 16-bit words of `words`.
const fn words_sum(words: u64) -> u64 {
    (words >> 48) + (words >> 32 & 0xffff) + (words >> 16 & 0xffff) + (words & 0xffff)
}

/// Adds the carries of a sum back in until there are none.
#[expect(clippy::cast_possible_truncation, reason = "the three steps leave 18, 17 and 16 bits")]
const fn fold(sum: u64) -> u16 {
    let sum = words_sum(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The polynomial of CRC32c, with its lowest power in the highest bit.
/// All polynomials of this module have this bit order.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `POWERS[k]` is x to the power of 8 · 2^k.
/// A CRC is multiplied by `POWERS[k]` to append 2^k zero bytes.
const POWERS: [u32; usize::BITS as usize] = {
    let mut powers = [1 << 23; usize::BITS as usize];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// Returns the product of two polynomials modulo [`POLYNOMIAL`].
const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a >> 31 == 1 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// Returns the CRC of some data and `count` zero bytes.
/// `crc` is the CRC of the data; both CRCs start from zero.
const fn append_zeros(mut crc: u32, mut count: usize) -> u32 {
    while count != 0 {
        crc = multiply(crc, POWERS[count.trailing_zeros() as usize]);
        count &= count - 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::packet::{crc32c, internet_sum};

    #[test]
    fn crc32c_oracle_has_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn sum_agrees_with_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn update_avoids_wrong_zero_of_rfc_1624() {
        let mut difference = ChecksumDifference::default();
        difference.add(0x5555, 0x3285);
        assert_eq!(difference.update(0xdd2f), 0x0000);
    }

    /// Generates bytes, an even offset, and up to four new words at that offset.
    fn changes() -> impl Strategy<Value = (Vec<u8>, usize, [u8; 8])> {
        (
            proptest::collection::vec(any::<u8>(), 8..200),
            any::<prop::sample::Index>(),
            any::<[u8; 8]>(),
        )
            .prop_map(|(bytes, place, new)| {
                let place = place.index(bytes.len() / 2 - 3) * 2;
                (bytes, place, new)
            })
    }

    /// Sums are equal when they are congruent: 0 and 0xffff are two names of zero.
    fn is_same_sum(a: u16, b: u16) -> bool {
        a % 0xffff == b % 0xffff
    }

    proptest! {
        #[test]
        fn the_sum_equals_that_of_single_words(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(sum(&bytes), internet_sum(&bytes));
        }

        #[test]
        fn an_updated_checksum_equals_a_recomputed_one((mut bytes, place, new) in changes()) {
            let before = internet_sum(&bytes);
            let old: [u8; 8] = bytes[place..place + 8].try_into().unwrap();
            bytes[place..place + 8].copy_from_slice(&new);
            let mut difference = ChecksumDifference::default();
            difference.add(u64::from_be_bytes(old), u64::from_be_bytes(new));
            let after = internet_sum(&bytes);
            prop_assert!(is_same_sum(difference.update_partial(before), after));
            prop_assert!(is_same_sum(!difference.update(!before), after));
            prop_assert_eq!(difference.is_none(), old == new);
        }

        #[test]
        fn an_updated_checksum_is_exact_for_nonzero_bytes(
            (mut bytes, place, new) in changes(),
        ) {
            bytes.push(1);
            let before = internet_sum(&bytes);
            let old: [u8; 8] = bytes[place..place + 8].try_into().unwrap();
            bytes[place..place + 8].copy_from_slice(&new);
            let mut difference = ChecksumDifference::default();
            difference.add(u64::from_be_bytes(old), u64::from_be_bytes(new));
            prop_assert_eq!(difference.update(!before), !internet_sum(&bytes));
        }

        #[test]
        fn wrong_checksum_stays_wrong_by_same_amount(
            (bytes, place, new) in changes(), error in 1..0xffff_u32,
        ) {
            let wrong = |bytes: &[u8]| (u32::from(internet_sum(bytes)) + error) % 0xffff;
            let mut changed = bytes.clone();
            changed[place..place + 8].copy_from_slice(&new);
            let old: [u8; 8] = bytes[place..place + 8].try_into().unwrap();
            let mut difference = ChecksumDifference::default();
            difference.add(u64::from_be_bytes(old), u64::from_be_bytes(new));
            let updated = difference.update_partial(u16::try_from(wrong(&bytes)).unwrap());
            prop_assert_eq!(u32::from(updated) % 0xffff, wrong(&changed));
        }

        #[test]
        fn an_incremental_crc_equals_a_recomputed_one(
            bytes in proptest::collection::vec(any::<u8>(), 4..300),
            place in any::<prop::sample::Index>(), new in any::<[u8; 4]>(),
        ) {
            let place = place.index(bytes.len() - 3);
            let mut changed = bytes.clone();
            changed[place..place + 4].copy_from_slice(&new);
            let old: [u8; 4] = bytes[place..place + 4].try_into().unwrap();
            let difference = crc32c_difference(old, new, bytes.len() - place - 4);
            prop_assert_eq!(crc32c(&bytes) ^ difference, crc32c(&changed));
        }
    }
}
