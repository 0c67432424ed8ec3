//! The capture file format.
//!
//! A header of 24 bytes, then records of 16 bytes and a frame each, in the byte order of whoever
//! wrote them; the magic number says which, and whether fractions of a second are micro- or
//! nanoseconds. Source: draft-ietf-opsawg-pcap (PCAP Capture File Format), sections 4 and 5.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::{ops::Range, time::Duration};

use crate::packet::buffer::Pool;
use crate::port::PortError;

/// Bytes in front of each frame.
pub(super) const RECORD: usize = 16;

const HEADER: usize = 24;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_NEXT_GENERATION: u32 = 0x0a0d_0d0a;
const LINK_ETHERNET: u32 = 1;
/// Says that frames end with their check sequence.
const LINK_HAS_FCS: u32 = 1 << 26;
/// An Ethernet header.
const FRAME_MIN: usize = 14;

/// A capture file in memory, every record of it found and judged.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    /// Where the frames lie; `None` where a frame is not whole or no Ethernet frame.
    frames: Vec<Option<Range<usize>>>,
}

impl Capture {
    /// Finds the frames in the bytes of a capture file; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// When the bytes are no capture of Ethernet frames, or end within a record.
    pub fn parse(name: &str, bytes: Vec<u8>) -> Result<Self, PortError> {
        let order = header_order(&bytes)
            .map_err(|what| PortError::NotPcap { name: name.to_owned(), what })?;
        let mut frames = Vec::new();
        let mut at = HEADER;
        while at < bytes.len() {
            let frame = record(&bytes, at, order).map_err(|what| PortError::BadRecord {
                name: name.to_owned(),
                number: frames.len().saturating_add(1),
                what,
            })?;
            at = frame.range.end;
            let usable = frame.is_whole && (FRAME_MIN..=Pool::LARGE).contains(&frame.range.len());
            frames.push(usable.then_some(frame.range));
        }
        Ok(Self { bytes, frames })
    }

    /// How many packets the file holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The frame of packet `index`; `None` where the file holds only a part of the frame, or one that
    /// is no Ethernet frame or longer than [`Pool::LARGE`].
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let range = self.frames.get(index)?.clone()?;
        self.bytes.get(range)
    }
}

/// Reads a word in the file's byte order.
type Order = fn([u8; 4]) -> u32;

fn word(bytes: &[u8], at: usize, order: Order) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(order)
}

fn header_order(bytes: &[u8]) -> Result<Order, &'static str> {
    if bytes.len() < HEADER {
        return Err("it is shorter than its header");
    }
    let orders: [Order; 2] = [u32::from_le_bytes, u32::from_be_bytes];
    let is_capture = |order: &Order| {
        matches!(word(bytes, 0, *order), Some(MAGIC_MICROSECONDS | MAGIC_NANOSECONDS))
    };
    let Some(order) = orders.into_iter().find(is_capture) else {
        return Err(match word(bytes, 0, u32::from_le_bytes) {
            Some(MAGIC_NEXT_GENERATION) => "it is a pcapng file: convert it to pcap",
            _ => "it does not begin with the magic number",
        });
    };
    let version = match order([1, 0, 0, 0]) {
        1 => [2, 0, 4, 0],
        _ => [0, 2, 0, 4],
    };
    if bytes.get(4..8) != Some(&version) {
        return Err("its version is not 2.4");
    }
    let link = word(bytes, 20, order).unwrap_or(0);
    if link & 0xffff != LINK_ETHERNET {
        return Err("its packets are not Ethernet frames");
    }
    if link & LINK_HAS_FCS != 0 {
        return Err("its frames carry their check sequence");
    }
    Ok(order)
}

struct Record {
    range: Range<usize>,
    /// Nothing of the frame was cut off when it was captured.
    is_whole: bool,
}

fn record(bytes: &[u8], at: usize, order: Order) -> Result<Record, &'static str> {
    const CUT: &str = "the file ends within it";
    let field = |offset| word(bytes, at.checked_add(offset)?, order);
    let captured = field(8).ok_or(CUT)?;
    let original = field(12).ok_or(CUT)?;
    let start = at.checked_add(RECORD).ok_or(CUT)?;
    let end = usize::try_from(captured).ok().and_then(|length| start.checked_add(length));
    match end {
        Some(end) if end <= bytes.len() => {
            Ok(Record { range: start..end, is_whole: captured >= original })
        }
        _ => Err(CUT),
    }
}

/// What a file begins with: nanoseconds, little-endian, Ethernet.
pub(super) fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_le_bytes());
    header[4..8].copy_from_slice(&[2, 0, 4, 0]);
    #[expect(clippy::cast_possible_truncation, reason = "far below 4 GiB")]
    header[16..20].copy_from_slice(&(Pool::LARGE as u32).to_le_bytes());
    header[20..].copy_from_slice(&LINK_ETHERNET.to_le_bytes());
    header
}

/// Appends a record.
pub(super) fn append(file: &mut Vec<u8>, time: Duration, frame: &[u8]) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the format ends in 2106; frames are short"
    )]
    let (seconds, length) = (time.as_secs() as u32, frame.len() as u32);
    for word in [seconds, time.subsec_nanos(), length, length] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(frame);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(magic: u32, big: bool, frames: &[Vec<u8>]) -> Vec<u8> {
        let put = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes =
            [&put(magic)[..], &half(2), &half(4), &[0; 8], &put(65535), &put(1)].concat();
        for frame in frames {
            let length = put(u32::try_from(frame.len()).unwrap());
            bytes.extend([&put(1)[..], &put(2), &length, &length, frame].concat());
        }
        bytes
    }

    fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 14..100), 0..8)
    }

    fn all(capture: &Capture) -> Vec<Vec<u8>> {
        (0..capture.len()).map(|i| capture.frame(i).unwrap().to_vec()).collect()
    }

    proptest! {
        #[test]
        fn every_byte_order_and_resolution_is_read(
            frames in frames(), big in any::<bool>(), nano in any::<bool>(),
        ) {
            let magic = if nano { MAGIC_NANOSECONDS } else { MAGIC_MICROSECONDS };
            let capture = Capture::parse("x", file(magic, big, &frames)).unwrap();
            prop_assert_eq!(all(&capture), frames);
        }

        #[test]
        fn what_is_written_is_read(frames in frames(), seconds in any::<u32>(), nano in 0..1_000_000_000u32) {
            let mut bytes = header().to_vec();
            for frame in &frames {
                append(&mut bytes, Duration::new(seconds.into(), nano), frame);
            }
            prop_assert_eq!(all(&Capture::parse("x", bytes).unwrap()), frames);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(
            frames in frames(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = file(MAGIC_MICROSECONDS, false, &frames);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(capture) = Capture::parse("x", bytes) {
                prop_assert!((0..capture.len()).all(|index| capture.frame(index).is_none_or(|f| f.len() >= 14)));
            }
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_with_the_file() {
        let good = file(MAGIC_MICROSECONDS, false, &[vec![0; 60], vec![0; 60]]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let cases = [
            (good[..23].to_vec(), "x is not a capture file: it is shorter than its header"),
            (with(0, 0), "x is not a capture file: it does not begin with the magic number"),
            (
                [&[0x0a, 0x0d, 0x0d, 0x0a][..], &good[4..]].concat(),
                "x is not a capture file: it is a pcapng file: convert it to pcap",
            ),
            (with(6, 3), "x is not a capture file: its version is not 2.4"),
            (with(20, 101), "x is not a capture file: its packets are not Ethernet frames"),
            (with(23, 0x44), "x is not a capture file: its frames carry their check sequence"),
            (
                good[..good.len() - 1].to_vec(),
                "packet 2 of x is not usable: the file ends within it",
            ),
            (good[..24 + 15].to_vec(), "packet 1 of x is not usable: the file ends within it"),
            (with(24 + 11, 0xff), "packet 1 of x is not usable: the file ends within it"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Capture::parse("x", bytes).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_frame_that_was_cut_or_is_too_short_is_not_given() {
        let mut bytes = file(MAGIC_MICROSECONDS, false, &[vec![0; 60], vec![0; 13], vec![0; 14]]);
        bytes[24 + 12] = 61;
        let capture = Capture::parse("x", bytes).unwrap();
        assert_eq!(capture.len(), 3);
        assert_eq!((capture.frame(0), capture.frame(1)), (None, None));
        assert_eq!(capture.frame(2), Some(&[0; 14][..]));
    }
}
