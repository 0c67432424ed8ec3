//! Completion of a checksum that the sender left to the device.

use crate::checksum::sum;

/// The checksum is outside the frame, so nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checksum at byte {start} + {offset} is outside of the frame of {length} bytes")]
pub struct ChecksumOutside {
    /// Offset of the first byte that the checksum covers.
    start: usize,
    /// Offset of the checksum from `start`.
    offset: usize,
    /// Length of the frame.
    length: usize,
}

/// Completes a [partial](super::ChecksumState::Partial) checksum in software.
///
/// The function adds the bytes from `start` to the end of the frame to the sum at `start + offset`,
/// and writes the checksum there. A checksum of zero becomes 0xffff, which is the same number in
/// one's complement and also right for UDP.
///
/// # Errors
///
/// [`ChecksumOutside`] if the frame has no two bytes at `start + offset`, which the sender of the
/// packet chooses.
pub fn complete_checksum(
    frame: &mut [u8],
    start: usize,
    offset: usize,
) -> Result<(), ChecksumOutside> {
    let outside = ChecksumOutside { start, offset, length: frame.len() };
    let covered = frame.get_mut(start..).ok_or(outside)?;
    let completed = match !sum(covered) {
        0 => 0xffff,
        checksum => checksum,
    };
    let place = covered.get_mut(offset..).and_then(|place| place.first_chunk_mut());
    *place.ok_or(outside)? = completed.to_be_bytes();
    Ok(())
}
