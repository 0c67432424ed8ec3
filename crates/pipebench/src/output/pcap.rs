//! Capture files: written with nanoseconds, read in either resolution and byte order.
//!
//! A header of 24 bytes, then records of 16 bytes and a frame each. Both directions are streams: no
//! more than a frame is held. Source: draft-ietf-opsawg-pcap (PCAP Capture File Format), sections 4
//! and 5.

use std::io::{self, Read, Write};

use crate::{PcapError, PcapProblem};

const HEADER: usize = 24;
const RECORD: usize = 16;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_NEXT_GENERATION: u32 = 0x0a0d_0d0a;
const LINK_ETHERNET: u32 = 1;
/// Says that frames end with their check sequence.
const LINK_HAS_FCS: u32 = 1 << 26;
/// The longest frame of a capture, and what a file says of itself.
const SNAP_LENGTH: u32 = 262_144;
const SECOND: u64 = 1_000_000_000;

/// Writes a capture.
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a capture of Ethernet frames without check sequences.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        out.write_all(&SNAP_LENGTH.to_le_bytes())?;
        out.write_all(&LINK_ETHERNET.to_le_bytes())?;
        Ok(Self { out })
    }

    /// Appends a packet.
    ///
    /// # Errors
    ///
    /// Those of the writer; a time beyond 136 years or a frame that is too long for the format.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> io::Result<()> {
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let seconds = u32::try_from(time_ns / SECOND).map_err(too_large)?;
        let rest = u32::try_from(time_ns % SECOND).map_err(too_large)?;
        let length = u32::try_from(frame.len()).map_err(too_large)?;
        let mut record = [0; RECORD];
        let (words, _) = record.as_chunks_mut::<4>();
        for (target, word) in words.iter_mut().zip([seconds, rest, length, length]) {
            *target = word.to_le_bytes();
        }
        self.out.write_all(&record)?;
        self.out.write_all(frame)
    }

    /// What was written to.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Reads a capture, one packet after the other.
#[derive(Debug)]
pub struct PcapReader<R> {
    name: String,
    source: R,
    order: Order,
    /// Nanoseconds of the smallest unit of time.
    unit_ns: u64,
    number: u64,
    frame: Vec<u8>,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it was captured.
    pub time_ns: u64,
    /// The whole frame, without its check sequence.
    pub frame: &'a [u8],
}

/// Reads a word in the file's byte order.
type Order = fn([u8; 4]) -> u32;

impl<R: Read> PcapReader<R> {
    /// Begins to read a capture; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// When it is no capture of Ethernet frames.
    pub fn new(name: &str, mut source: R) -> Result<Self, PcapError> {
        let failed = |problem| PcapError { name: name.to_owned(), number: 0, problem };
        let mut header = [0; HEADER];
        match fill(&mut source, &mut header) {
            Ok(HEADER) => {}
            Ok(_) => return Err(failed(PcapProblem::NoHeader)),
            Err(error) => return Err(failed(PcapProblem::Unreadable(error))),
        }
        let (order, unit_ns) = header_order(&header).map_err(failed)?;
        Ok(Self { name: name.to_owned(), source, order, unit_ns, number: 0, frame: Vec::new() })
    }

    /// The next packet, `None` at the end.
    ///
    /// # Errors
    ///
    /// When the file ends within it, or does not hold the whole of it.
    pub fn next_packet(&mut self) -> Result<Option<Captured<'_>>, PcapError> {
        self.number = self.number.saturating_add(1);
        match self.record() {
            Ok(time) => Ok(time.map(|time_ns| Captured { time_ns, frame: &self.frame })),
            Err(problem) => {
                Err(PcapError { name: self.name.clone(), number: self.number, problem })
            }
        }
    }

    /// Reads a record; answers its time.
    fn record(&mut self) -> Result<Option<u64>, PcapProblem> {
        let mut header = [0; RECORD];
        match fill(&mut self.source, &mut header).map_err(PcapProblem::Unreadable)? {
            0 => return Ok(None),
            RECORD => {}
            _ => return Err(PcapProblem::Cut),
        }
        let word = |index: usize| word(&header, index, self.order);
        let (captured, original) = (word(2), word(3));
        if captured > SNAP_LENGTH {
            return Err(PcapProblem::TooLong { length: captured });
        }
        let length = usize::try_from(captured).unwrap_or(usize::MAX);
        self.frame.resize(length, 0);
        if fill(&mut self.source, &mut self.frame).map_err(PcapProblem::Unreadable)? < length {
            return Err(PcapProblem::Cut);
        }
        if captured < original {
            return Err(PcapProblem::Snapped { captured, original });
        }
        if captured > original {
            return Err(PcapProblem::Longer { captured, original });
        }
        let fraction = u64::from(word(1)).saturating_mul(self.unit_ns);
        Ok(Some(u64::from(word(0)).saturating_mul(SECOND).saturating_add(fraction)))
    }
}

/// Reads until the buffer is full or the source ends; answers how much there was.
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

fn word(bytes: &[u8], index: usize, order: Order) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    words.get(index).copied().map_or(0, order)
}

/// The byte order of a file, and the nanoseconds of its unit of time.
fn header_order(header: &[u8; HEADER]) -> Result<(Order, u64), PcapProblem> {
    let orders: [Order; 2] = [u32::from_le_bytes, u32::from_be_bytes];
    let known = orders.into_iter().find_map(|order| match word(header, 0, order) {
        MAGIC_MICROSECONDS => Some((order, 1000)),
        MAGIC_NANOSECONDS => Some((order, 1)),
        _ => None,
    });
    let Some((order, unit_ns)) = known else {
        return Err(match word(header, 0, u32::from_le_bytes) {
            MAGIC_NEXT_GENERATION => PcapProblem::NextGeneration,
            _ => PcapProblem::NoMagic,
        });
    };
    let link = word(header, 5, order);
    match link & 0xffff {
        LINK_ETHERNET if link & LINK_HAS_FCS == 0 => Ok((order, unit_ns)),
        LINK_ETHERNET => Err(PcapProblem::CheckSequences),
        link => Err(PcapProblem::LinkType { link }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Packets = Vec<(u64, Vec<u8>)>;

    fn written(packets: &Packets) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for (time, frame) in packets {
            writer.write(*time, frame).unwrap();
        }
        writer.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<Packets, PcapError> {
        let mut reader = PcapReader::new("x.pcap", bytes)?;
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet()? {
            packets.push((packet.time_ns, packet.frame.to_vec()));
        }
        Ok(packets)
    }

    fn packets() -> impl Strategy<Value = Packets> {
        let frame = prop::collection::vec(any::<u8>(), 0..100);
        prop::collection::vec((0_u64..u64::from(u32::MAX) * SECOND, frame), 0..8)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(packets in packets()) {
            prop_assert_eq!(read(&written(&packets)).unwrap(), packets);
        }

        #[test]
        fn the_other_byte_order_and_microseconds_are_read(packets in packets(), is_micro: bool) {
            let mut bytes = written(&packets);
            let magic = if is_micro { MAGIC_MICROSECONDS } else { MAGIC_NANOSECONDS };
            bytes[..4].copy_from_slice(&magic.to_be_bytes());
            bytes[4..8].copy_from_slice(&[0, 2, 0, 4]);
            bytes[16..24].copy_from_slice(&[0, 4, 0, 0, 0, 0, 0, 1]);
            let mut at = HEADER;
            for (_, frame) in &packets {
                bytes[at..at + RECORD].as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
                at += RECORD + frame.len();
            }
            let unit = if is_micro { 1000 } else { 1 };
            let expected: Packets = packets
                .iter()
                .map(|(time, frame)| (time / SECOND * SECOND + time % SECOND * unit, frame.clone()))
                .collect();
            prop_assert_eq!(read(&bytes).unwrap(), expected);
        }

        #[test]
        fn no_cut_is_taken_for_an_end(packets in packets(), place: prop::sample::Index) {
            let bytes = written(&packets);
            let end = place.index(bytes.len());
            let whole = packets.iter().scan(HEADER, |at, (_, frame)| {
                *at += RECORD + frame.len();
                Some(*at)
            });
            let is_end = end == HEADER || whole.into_iter().any(|at| at == end);
            prop_assert_eq!(read(&bytes[..end]).is_ok(), is_end);
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_to_do() {
        let good = written(&vec![(5, vec![0; 60]), (6, vec![0; 60])]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let cases = [
            (good[..23].to_vec(), "x.pcap is no capture: it is shorter than the header of one"),
            (with(0, 0), "x.pcap is no capture: it does not begin with the magic number of pcap"),
            (
                [&[0x0a, 0x0d, 0x0d, 0x0a][..], &good[4..]].concat(),
                "x.pcap is a pcapng file: convert it with `editcap -F pcap`",
            ),
            (
                with(20, 113),
                "x.pcap has packets of link type 113, not Ethernet frames: capture on an Ethernet device",
            ),
            (
                with(23, 0x04),
                "x.pcap has frames with their check sequences: strip them with `editcap -C -4 -L`",
            ),
            (
                good[..good.len() - 1].to_vec(),
                "x.pcap ends within packet 2: it was cut, or is still being written; capture it again, or \
                 take what is whole of it (`tcpdump -r x.pcap -w whole.pcap`)",
            ),
            (
                with(24 + 12, 61),
                "packet 1 of x.pcap was cut to 60 of 61 bytes when it was captured: capture whole \
                 packets (`tcpdump -s 0`)",
            ),
            (
                with(24 + 12, 59),
                "packet 1 of x.pcap says it has 60 of 59 bytes: the file is damaged",
            ),
            (
                with(24 + 11, 0xff),
                "packet 1 of x.pcap says it has 4278190140 bytes, more than 262144: the file is damaged",
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(&bytes).unwrap_err().to_string(), expected);
        }
    }
}
