//! Length fields that are filled in after their content, and padding to eight bytes.

use bytes::BufMut;

use crate::{error::TooLong, message::Xid, wire::header::Header};

/// Returns the number of bytes from `length` to the next multiple of eight.
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 7
}

/// Writes a placeholder for a 16-bit length; returns its offset for [`fill`].
pub(crate) fn reserve(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.put_u16(0);
    at
}

/// Sets the length at offset `at` to the number of bytes since `start`.
///
/// A length beyond 16 bits is detected when the whole message is finished.
pub(crate) fn fill(out: &mut [u8], at: usize, start: usize) {
    // The largest length marks a message that is too long.
    set(out, at, u16::try_from(out.len().saturating_sub(start)).unwrap_or(u16::MAX));
}

/// Sets the length at offset `at`.
pub(crate) fn set(out: &mut [u8], at: usize, length: u16) {
    if let Some(field) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = length.to_be_bytes();
    }
}

/// Pads with zeros to a multiple of eight bytes since `start`.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize) {
    out.put_bytes(0, padding(out.len().saturating_sub(start)));
}

/// Begins a message.
pub(crate) fn begin(version: u8, kind: u8, xid: Xid) -> Vec<u8> {
    Header { version, kind, length: 0, xid }.emit().to_vec()
}

/// Fills in the length of a message.
pub(crate) fn finish(mut message: Vec<u8>) -> Result<Vec<u8>, TooLong> {
    let length = message.len();
    let Ok(number) = u16::try_from(length) else { return Err(TooLong { length }) };
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&number.to_be_bytes());
    }
    Ok(message)
}
