//! A reader of octets that returns an error instead of reading past their end.

use crate::error::BfdError;

/// The unread octets of a frame, or of a part of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BfdOctets<'a> {
    /// The octets that were not read yet.
    unread: &'a [u8],
}

impl<'a> BfdOctets<'a> {
    /// Creates a reader of all octets.
    pub(crate) const fn new(octets: &'a [u8]) -> Self {
        Self { unread: octets }
    }

    /// Returns the unread octets.
    pub(crate) const fn unread(&self) -> &'a [u8] {
        self.unread
    }

    /// Returns the next `COUNT` octets.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], BfdError> {
        let short = BfdError::Short { length: self.unread.len(), needed: COUNT };
        let (first, rest) = self.unread.split_first_chunk().ok_or(short)?;
        self.unread = rest;
        Ok(*first)
    }

    /// Returns a reader of the next `count` octets.
    pub(crate) fn take_part(&mut self, count: usize) -> Result<Self, BfdError> {
        let short = BfdError::Short { length: self.unread.len(), needed: count };
        let (first, rest) = self.unread.split_at_checked(count).ok_or(short)?;
        self.unread = rest;
        Ok(Self { unread: first })
    }

    /// Returns the next two octets as a number in network byte order.
    pub(crate) fn take_u16(&mut self) -> Result<u16, BfdError> {
        self.take().map(u16::from_be_bytes)
    }

    /// Returns the next four octets as a number in network byte order.
    pub(crate) fn take_u32(&mut self) -> Result<u32, BfdError> {
        self.take().map(u32::from_be_bytes)
    }
}
