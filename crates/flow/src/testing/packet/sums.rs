//! Checksums as their standards define them, bit by bit and word by word.

/// The one's complement sum of big-endian 16-bit words (RFC 1071).
/// A zero byte follows an odd length.
#[must_use]
pub fn internet_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// The CRC32c of SCTP (RFC 9260, appendix A).
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}
