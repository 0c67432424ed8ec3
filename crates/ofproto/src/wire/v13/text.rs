//! Strings in fields of fixed length.

use bytes::BufMut;

/// Writes a string into a field of `length` bytes, truncated for a final zero.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, length: usize) {
    let end = (0..length).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = text.get(..end).unwrap_or(text);
    out.extend_from_slice(text.as_bytes());
    out.put_bytes(0, length.saturating_sub(text.len()));
}
