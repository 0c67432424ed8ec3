//! A capture file in memory, ready to be replayed.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::ops::Range;

use shunt_pcap::{PcapError, PcapReader};

use crate::packet::buffer::Pool;

/// Number of bytes of an Ethernet header, the least length of a frame.
const FRAME_MIN: usize = 14;

/// A capture file in memory, with the offset of each frame.
#[derive(Debug)]
pub struct Capture {
    /// The content of the file.
    bytes: Vec<u8>,
    /// The frames; `None` for a frame that is truncated or is no Ethernet frame.
    frames: Vec<Option<Range<usize>>>,
}

impl Capture {
    /// Finds the frames in the bytes of a capture file; errors name the file `name`.
    ///
    /// # Errors
    ///
    /// If the bytes are not a capture of Ethernet frames, or end within a record.
    pub fn parse(name: &str, bytes: Vec<u8>) -> Result<Self, PcapError> {
        let mut reader = PcapReader::new(name, bytes.as_slice())?;
        let mut frames = Vec::new();
        while let Some(record) = reader.next_record()? {
            let length = record.frame.len();
            let is_whole = u32::try_from(length).is_ok_and(|held| held >= record.original_length);
            let is_usable = is_whole && (FRAME_MIN..=Pool::LARGE).contains(&length);
            // The frame ends at the position of the reader.
            let end = bytes.len().saturating_sub(reader.source().len());
            frames.push(is_usable.then_some(end.saturating_sub(length)..end));
        }
        Ok(Self { bytes, frames })
    }

    /// Returns the number of packets in the file.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether the file holds no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the frame of packet `index`.
    ///
    /// `None` if the frame is truncated in the file, is no Ethernet frame, or is longer than
    /// [`Pool::LARGE`].
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let range = self.frames.get(index)?.clone()?;
        self.bytes.get(range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_pcap::PcapWriter;

    use super::*;

    /// Returns the content of a file with some frames.
    fn file(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        frames.iter().for_each(|frame| writer.write(1, frame).unwrap());
        writer.into_inner()
    }

    /// Generates the frames of a capture.
    fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 14..100), 0..8)
    }

    proptest! {
        #[test]
        fn a_pcap_port_replays_its_file(frames in frames()) {
            let capture = Capture::parse("x", file(&frames)).unwrap();
            let found: Vec<Vec<u8>> =
                (0..capture.len()).map(|index| capture.frame(index).unwrap().to_vec()).collect();
            prop_assert_eq!(found, frames);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            frames in frames(), at: prop::sample::Index, byte: u8, end: prop::sample::Index,
        ) {
            let mut bytes = file(&frames);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(end.index(bytes.len() + 1));
            if let Ok(capture) = Capture::parse("x", bytes) {
                let is_frame = |index| capture.frame(index).is_none_or(|frame| frame.len() >= 14);
                prop_assert!((0..capture.len()).all(is_frame));
            }
        }
    }

    #[test]
    fn truncated_and_short_frames_are_left_out() {
        let mut bytes = file(&[vec![0; 60], vec![0; 13], vec![0; 14]]);
        // The record says that the first frame had one byte more on the wire.
        bytes[24 + 12] = 61;
        let capture = Capture::parse("x", bytes).unwrap();
        assert_eq!(capture.len(), 3);
        assert_eq!((capture.frame(0), capture.frame(1)), (None, None));
        assert_eq!(capture.frame(2), Some(&[0; 14][..]));
    }

    #[test]
    fn file_that_ends_within_packet_is_refused() {
        let bytes = file(&[vec![0; 60], vec![0; 60]]);
        let error = Capture::parse("x", bytes[..bytes.len() - 1].to_vec()).unwrap_err();
        assert!(error.to_string().starts_with("x ends within packet 2"), "{error}");
    }
}
