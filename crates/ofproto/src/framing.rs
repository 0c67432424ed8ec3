//! Splits a byte stream into OpenFlow messages.
//!
//! The header states the length of a message; there is no other delimiter (OpenFlow 1.3.5, 7.1).
//! The buffer holds at most one incomplete message. The size of the buffer is therefore bounded by
//! a 16-bit length plus the bytes of one `push`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use bytes::{Bytes, BytesMut};

use crate::{error::CloseReason, wire::header::Header};

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
pub struct Framer {
    /// The received bytes without a complete message.
    buffer: BytesMut,
}

impl Framer {
    /// Appends bytes that the peer sent.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the header of the next message; the message may be incomplete.
    #[must_use]
    pub fn next_header(&self) -> Option<Header> {
        Header::parse(&self.buffer)
    }

    /// Returns the next complete message, including its header.
    ///
    /// # Errors
    ///
    /// The header states a length below the length of a header. The next message cannot be found,
    /// so the connection must end.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, CloseReason> {
        let Some(header) = self.next_header() else { return Ok(None) };
        let length = usize::from(header.length);
        if length < Header::LEN {
            return Err(CloseReason::Framing { length: header.length });
        }
        let is_whole = self.buffer.len() >= length;
        Ok(is_whole.then(|| self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an echo request with a length of payload.
    fn echo(payload: usize) -> Vec<u8> {
        let length = u16::try_from(Header::LEN + payload).unwrap();
        let header = Header { version: 4, kind: 2, length, xid: crate::message::Xid::new(7) };
        let mut frame = header.emit().to_vec();
        frame.resize(usize::from(length), 0xaa);
        frame
    }

    #[test]
    fn messages_are_framed_for_any_chunk_size() {
        let stream = [echo(0), echo(5), echo(65_527)].concat();
        for step in [1, 7, 8, 9, 1000, stream.len()] {
            let mut framer = Framer::default();
            let mut frames = Vec::new();
            for chunk in stream.chunks(step) {
                framer.push(chunk);
                while let Some(frame) = framer.next_frame().unwrap() {
                    frames.push(frame.len());
                }
            }
            assert_eq!(frames, [8, 13, 65_535], "in steps of {step}");
        }
    }

    #[test]
    fn length_shorter_than_header_closes_stream() {
        for length in 0..8 {
            let mut framer = Framer::default();
            framer.push(&[4, 2, 0, length, 0, 0, 0, 0]);
            let error = CloseReason::Framing { length: u16::from(length) };
            assert_eq!(framer.next_frame(), Err(error));
        }
    }
}
