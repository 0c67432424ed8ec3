//! The Internet checksum (RFC 1071).

/// Returns whether the checksum in a message is correct.
///
/// All parts of the message but the last must have an even length.
pub(crate) fn is_right(parts: &[&[u8]]) -> bool {
    let words = parts.iter().flat_map(|part| part.chunks(2)).map(|pair| match *pair {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(u16::from_be_bytes([high, 0])),
        _ => 0,
    });
    // A frame has fewer than 2^48 words, so the sum does not overflow.
    let mut sum = words.fold(0, u64::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    sum == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_detects_a_changed_bit() {
        let report = [0x16, 0, 0xf9, 0xfc, 239, 1, 1, 1];
        assert!(is_right(&[&report]));
        for bit in 0..report.len() * 8 {
            let mut broken = report;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_right(&[&broken]), "bit {bit}");
        }
    }

    #[test]
    fn the_checksum_includes_a_last_odd_octet() {
        assert!(is_right(&[&[0xff, 0xfe], &[], &[0, 1]]));
        assert!(is_right(&[&[0x0f, 0xff], &[0xf0]]));
        assert!(!is_right(&[&[0x0f, 0xff], &[0xf1]]));
    }
}
