//! A reader of octets that returns an error instead of reading past their end.

use crate::error::MembershipError;

/// The unread octets of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOctets<'a> {
    unread: &'a [u8],
    /// Length of the whole frame, for errors.
    frame_length: usize,
}

impl<'a> MessageOctets<'a> {
    /// Returns the whole frame as unread octets.
    pub(crate) const fn new(frame: &'a [u8]) -> Self {
        Self { unread: frame, frame_length: frame.len() }
    }

    /// Returns the next `COUNT` octets.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], MembershipError> {
        let (first, rest) = self.unread.split_first_chunk().ok_or_else(|| self.short())?;
        self.unread = rest;
        Ok(*first)
    }

    /// Returns the next two octets as a number in network byte order.
    pub(crate) fn take_u16(&mut self) -> Result<u16, MembershipError> {
        self.take().map(u16::from_be_bytes)
    }

    /// Skips the next `count` octets.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), MembershipError> {
        self.unread = self.unread.get(count..).ok_or_else(|| self.short())?;
        Ok(())
    }

    /// Keeps the first `count` unread octets, and drops padding after them.
    pub(crate) fn keep(&mut self, count: usize) -> Result<(), MembershipError> {
        self.unread = self.unread.get(..count).ok_or_else(|| self.short())?;
        Ok(())
    }

    /// Returns a reader of `part`, a part of the same frame.
    pub(crate) const fn at(self, part: &'a [u8]) -> Self {
        Self { unread: part, ..self }
    }

    /// Returns the octets that were not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.unread
    }

    /// Returns the error that the frame ends too early.
    pub(crate) const fn short(&self) -> MembershipError {
        MembershipError::Short { length: self.frame_length }
    }
}
