//! The writer of capture files.

use std::io::{self, Write};

use crate::format::{FRAME_BYTES_MAX, LINK_ETHERNET, MAGIC_NANOSECONDS, SECOND_NS};

/// Length in bytes of the record header before each frame.
pub const RECORD_BYTES: usize = 16;

/// Writes a capture file of Ethernet frames, with times in nanoseconds.
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture file: writes the file header.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        // Version 2.4 of the format, and two reserved words.
        out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        out.write_all(&FRAME_BYTES_MAX.to_le_bytes())?;
        out.write_all(&LINK_ETHERNET.to_le_bytes())?;
        Ok(Self { out })
    }

    /// Continues a capture that has its header already.
    pub const fn append(out: W) -> Self {
        Self { out }
    }

    /// Writes a packet.
    ///
    /// # Errors
    ///
    /// If `out` fails, if the time is more than 136 years after 1970, or if the frame is too long
    /// for the format.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let seconds = u32::try_from(time_ns / SECOND_NS).map_err(too_large)?;
        let fraction = u32::try_from(time_ns % SECOND_NS).map_err(too_large)?;
        let length = u32::try_from(frame.len()).map_err(too_large)?;
        let mut record = [0; RECORD_BYTES];
        let (words, _) = record.as_chunks_mut::<4>();
        for (bytes, word) in words.iter_mut().zip([seconds, fraction, length, length]) {
            *bytes = word.to_le_bytes();
        }
        self.out.write_all(&record)?;
        self.out.write_all(frame)
    }

    /// Returns the writer below the capture writer.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.out
    }
}
