//! Lengths that are known only once what they count is written, and padding to eight bytes.

use bytes::BufMut;

use crate::{error::TooLong, message::Xid, wire::header::Header};

/// Bytes that `length` lacks to be a multiple of eight.
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 7
}

/// Writes a 16-bit length that [`fill`] sets later; answers where it is.
pub(crate) fn reserve(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.put_u16(0);
    at
}

/// Sets the length at `at` to the number of bytes since `start`.
///
/// What does not fit into 16 bits is found when the whole message is finished.
pub(crate) fn fill(out: &mut [u8], at: usize, start: usize) {
    let length = u16::try_from(out.len().saturating_sub(start)).unwrap_or(u16::MAX);
    if let Some(field) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = length.to_be_bytes();
    }
}

/// Fills up with zeros to a multiple of eight bytes since `start`.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize) {
    out.put_bytes(0, padding(out.len().saturating_sub(start)));
}

/// Begins a message of OpenFlow 1.3.
pub(crate) fn begin(kind: u8, xid: Xid) -> Vec<u8> {
    Header { version: super::VERSION, kind, length: 0, xid }.emit().to_vec()
}

/// Ends a message: its length is now known.
pub(crate) fn finish(mut message: Vec<u8>) -> Result<Vec<u8>, TooLong> {
    let length = message.len();
    let Ok(number) = u16::try_from(length) else { return Err(TooLong { length }) };
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&number.to_be_bytes());
    }
    Ok(message)
}
