//! A cursor over received bytes.

use crate::error::ErrorCode;

/// Reads a message front to back, never past its end.
#[derive(Clone)]
pub(crate) struct ByteReader<'a>(&'a [u8]);

/// The error of a message with too few or too many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageLengthError;

impl From<MessageLengthError> for ErrorCode {
    fn from(MessageLengthError: MessageLengthError) -> Self {
        Self::BadLength
    }
}

impl<'a> ByteReader<'a> {
    /// Returns a reader at the first byte of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that were not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether all bytes were read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of bytes that were not read yet.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageLengthError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(MessageLengthError)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Reads the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MessageLengthError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(MessageLengthError)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Skips the next `count` bytes, whatever they are.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), MessageLengthError> {
        self.bytes(count).map(|_| ())
    }

    /// Reads one byte. Fails at the end of the message.
    pub(crate) fn u8(&mut self) -> Result<u8, MessageLengthError> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads two bytes, the high one first. Fails if the message is too short.
    pub(crate) fn u16(&mut self) -> Result<u16, MessageLengthError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads four bytes, the highest first. Fails if the message is too short.
    pub(crate) fn u32(&mut self) -> Result<u32, MessageLengthError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads eight bytes, the highest first. Fails if the message is too short.
    pub(crate) fn u64(&mut self) -> Result<u64, MessageLengthError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a string from a field of `count` bytes, up to its first zero.
    ///
    /// The last byte of the field counts as zero. If the string is not UTF-8, each non-ASCII byte
    /// becomes a question mark.
    pub(crate) fn text(&mut self, count: usize) -> Result<String, MessageLengthError> {
        let bytes = self.bytes(count)?;
        let within = bytes.split_last().map_or(bytes, |(_, within)| within);
        let text = within.split(|byte| *byte == 0).next().unwrap_or_default();
        let shown = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
        Ok(match std::str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(_) => text.iter().map(shown).collect(),
        })
    }

    /// Checks that all bytes are read.
    pub(crate) const fn finish(self) -> Result<(), MessageLengthError> {
        if self.0.is_empty() { Ok(()) } else { Err(MessageLengthError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_within_their_field_and_are_utf8() {
        let read = |bytes: &[u8]| ByteReader::new(bytes).text(4).unwrap();
        assert_eq!(read(b"ab\0d"), "ab");
        assert_eq!(read(b"abcd"), "abc");
        assert_eq!(read(b"a\xff\xfe\0"), "a??");
        assert_eq!(read("a\u{e9}\0".as_bytes()), "a\u{e9}");
        // The field ends inside a multi-byte character.
        assert_eq!(read("ab\u{e9}".as_bytes()), "ab?");
    }
}
