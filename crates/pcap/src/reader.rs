//! The reader of capture files.

use std::io::{self, Read};

use crate::{
    error::{PcapError, PcapProblem},
    format::{
        FRAME_BYTES_MAX, HEADER_BYTES, LINK_ETHERNET, LINK_HAS_FCS, MAGIC_MICROSECONDS,
        MAGIC_NANOSECONDS, MAGIC_PCAPNG, SECOND_NS,
    },
    writer::RECORD_BYTES,
};

/// Reads a capture file packet by packet.
#[derive(Debug)]
pub struct PcapReader<R> {
    name: String,
    source: R,
    order: ByteOrder,
    /// The file's unit of time, in nanoseconds.
    unit_ns: u64,
    /// The number of the last packet that was read, counted from 1.
    number: u64,
    frame: Vec<u8>,
}

/// A complete packet of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapPacket<'a> {
    /// The time of capture in nanoseconds since 1970.
    pub time_ns: u64,
    /// The complete frame, without its check sequence.
    pub frame: &'a [u8],
}

/// A record of a capture file: a packet, or the beginning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapRecord<'a> {
    /// The time of capture in nanoseconds since 1970.
    pub time_ns: u64,
    /// The bytes of the frame that the file contains.
    pub frame: &'a [u8],
    /// The length of the frame on the wire.
    pub original_length: u32,
}

/// The function that reads a word in the byte order of the file.
type ByteOrder = fn([u8; 4]) -> u32;

impl<R: Read> PcapReader<R> {
    /// Reads the header of a capture file; errors use `name` as the file name.
    ///
    /// # Errors
    ///
    /// If the source is not a capture of Ethernet frames.
    pub fn new(name: &str, mut source: R) -> Result<Self, PcapError> {
        let failed = |problem| PcapError { name: name.to_owned(), number: 0, problem };
        let mut header = [0; HEADER_BYTES];
        match fill(&mut source, &mut header) {
            Ok(HEADER_BYTES) => {}
            Ok(_) => return Err(failed(PcapProblem::NoHeader)),
            Err(error) => return Err(failed(PcapProblem::Unreadable(error))),
        }
        let (order, unit_ns) = parse_header(&header).map_err(failed)?;
        Ok(Self { name: name.to_owned(), source, order, unit_ns, number: 0, frame: Vec::new() })
    }

    /// Returns the next packet, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// If the file ends within the packet, or contains only a part of the packet.
    pub fn next_packet(&mut self) -> Result<Option<PcapPacket<'_>>, PcapError> {
        let Some((time_ns, original)) = self.read_record()? else { return Ok(None) };
        debug_assert!(
            u32::try_from(self.frame.len()).is_ok(),
            "a frame has at most FRAME_BYTES_MAX bytes"
        );
        let captured = u32::try_from(self.frame.len()).unwrap_or(u32::MAX);
        if captured < original {
            return Err(self.failed(PcapProblem::Snapped { captured, original }));
        }
        if captured > original {
            return Err(self.failed(PcapProblem::Longer { captured, original }));
        }
        Ok(Some(PcapPacket { time_ns, frame: &self.frame }))
    }

    /// Returns the next record, or `None` at the end of the file.
    /// The record may contain a truncated frame.
    ///
    /// # Errors
    ///
    /// If the file ends within the record.
    pub fn next_record(&mut self) -> Result<Option<PcapRecord<'_>>, PcapError> {
        let Some((time_ns, original_length)) = self.read_record()? else { return Ok(None) };
        Ok(Some(PcapRecord { time_ns, frame: &self.frame, original_length }))
    }

    /// Returns the source, positioned after the last record read.
    pub const fn source(&self) -> &R {
        &self.source
    }

    /// Reads a record into `self.frame`.
    /// Returns the time of the record, and the length of its frame on the wire.
    fn read_record(&mut self) -> Result<Option<(u64, u32)>, PcapError> {
        self.number = self.number.saturating_add(1);
        self.parse_record().map_err(|problem| self.failed(problem))
    }

    /// Reads a record into `frame`; returns its time and original length.
    fn parse_record(&mut self) -> Result<Option<(u64, u32)>, PcapProblem> {
        let mut header = [0; RECORD_BYTES];
        match fill(&mut self.source, &mut header).map_err(PcapProblem::Unreadable)? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            _ => return Err(PcapProblem::EndsWithin),
        }
        let word = |index: usize| word(&header, index, self.order);
        let (captured, original) = (word(2), word(3));
        if captured > FRAME_BYTES_MAX {
            return Err(PcapProblem::TooLong { length: captured });
        }
        // The captured length is at most FRAME_BYTES_MAX.
        let length = usize::try_from(captured).unwrap_or(usize::MAX);
        self.frame.resize(length, 0);
        if fill(&mut self.source, &mut self.frame).map_err(PcapProblem::Unreadable)? < length {
            return Err(PcapProblem::EndsWithin);
        }
        let fraction = u64::from(word(1)).saturating_mul(self.unit_ns);
        let time = u64::from(word(0)).saturating_mul(SECOND_NS).saturating_add(fraction);
        Ok(Some((time, original)))
    }

    /// Returns the error of this file at the current packet.
    fn failed(&self, problem: PcapProblem) -> PcapError {
        PcapError { name: self.name.clone(), number: self.number, problem }
    }
}

/// Reads until the buffer is full or the source ends.
/// Returns the number of bytes read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads the number at index `index` of 32-bit numbers.
fn word(bytes: &[u8], index: usize, order: ByteOrder) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    words.get(index).copied().map_or(0, order)
}

/// Returns the byte order of a file, and its unit of time in nanoseconds.
fn parse_header(header: &[u8; HEADER_BYTES]) -> Result<(ByteOrder, u64), PcapProblem> {
    let orders: [(ByteOrder, [u8; 4]); 2] =
        [(u32::from_le_bytes, [2, 0, 4, 0]), (u32::from_be_bytes, [0, 2, 0, 4])];
    let known = orders.into_iter().find_map(|(order, version)| match word(header, 0, order) {
        MAGIC_MICROSECONDS => Some((order, version, 1000)),
        MAGIC_NANOSECONDS => Some((order, version, 1)),
        _ => None,
    });
    let Some((order, version, unit_ns)) = known else {
        return Err(match word(header, 0, u32::from_le_bytes) {
            MAGIC_PCAPNG => PcapProblem::Pcapng,
            _ => PcapProblem::NoMagic,
        });
    };
    if header.get(4..8) != Some(&version) {
        return Err(PcapProblem::Version);
    }
    let link = word(header, 5, order);
    match link & 0xffff {
        LINK_ETHERNET if link & LINK_HAS_FCS == 0 => Ok((order, unit_ns)),
        LINK_ETHERNET => Err(PcapProblem::CheckSequences),
        link => Err(PcapProblem::LinkType { link }),
    }
}
