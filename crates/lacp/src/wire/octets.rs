//! A reader of octets that never reads past their end.

use crate::error::PduError;

/// The unread octets of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets<'a> {
    unread: &'a [u8],
    length: usize,
}

impl<'a> Octets<'a> {
    /// Returns the whole frame as unread octets.
    pub(crate) const fn new(frame: &'a [u8]) -> Self {
        Self { unread: frame, length: frame.len() }
    }

    /// Returns the next octets of the frame.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], PduError> {
        let short = PduError::Short { length: self.length };
        let (first, rest) = self.unread.split_first_chunk().ok_or(short)?;
        self.unread = rest;
        Ok(*first)
    }

    /// Returns the next octet of the frame.
    pub(crate) fn take_u8(&mut self) -> Result<u8, PduError> {
        self.take::<1>().map(|[octet]| octet)
    }

    /// Returns the next two octets as a number in network byte order.
    pub(crate) fn take_u16(&mut self) -> Result<u16, PduError> {
        self.take().map(u16::from_be_bytes)
    }
}
