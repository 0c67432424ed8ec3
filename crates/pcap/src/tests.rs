//! Tests properties of reader and writer, and the texts of errors.
use proptest::prelude::*;

use crate::{
    PcapError, PcapReader, PcapWriter,
    format::{HEADER_BYTES, MAGIC_MICROSECONDS, MAGIC_NANOSECONDS, SECOND_NS},
    writer::RECORD_BYTES,
};

/// The times and frames of packets.
type Packets = Vec<(u64, Vec<u8>)>;

fn write_capture(packets: &Packets) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (time, frame) in packets {
        writer.write(*time, frame).unwrap();
    }
    writer.into_inner()
}

/// Reads the packets of a file.
fn read(bytes: &[u8]) -> Result<Packets, PcapError> {
    let mut reader = PcapReader::new("x.pcap", bytes)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        packets.push((packet.time_ns, packet.frame.to_vec()));
    }
    Ok(packets)
}

/// Generates packets.
fn packets() -> impl Strategy<Value = Packets> {
    let frame = prop::collection::vec(any::<u8>(), 0..100);
    prop::collection::vec((0_u64..u64::from(u32::MAX) * SECOND_NS, frame), 0..8)
}

proptest! {
    #[test]
    fn written_packets_are_read(packets in packets()) {
        prop_assert_eq!(read(&write_capture(&packets)).unwrap(), packets);
    }

    #[test]
    fn every_byte_order_and_resolution_is_read(packets in packets(), is_micro: bool) {
        let mut bytes = write_capture(&packets);
        let magic = if is_micro { MAGIC_MICROSECONDS } else { MAGIC_NANOSECONDS };
        bytes[..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..8].copy_from_slice(&[0, 2, 0, 4]);
        bytes[16..24].copy_from_slice(&[0, 4, 0, 0, 0, 0, 0, 1]);
        let mut at = HEADER_BYTES;
        for (_, frame) in &packets {
            bytes[at..at + RECORD_BYTES].as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
            at += RECORD_BYTES + frame.len();
        }
        let unit = if is_micro { 1000 } else { 1 };
        let expected: Packets = packets
            .iter()
            .map(|(time, frame)| (time / SECOND_NS * SECOND_NS + time % SECOND_NS * unit, frame.clone()))
            .collect();
        prop_assert_eq!(read(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_truncated_file_is_refused(packets in packets(), place: prop::sample::Index) {
        let bytes = write_capture(&packets);
        let end = place.index(bytes.len());
        let whole = packets.iter().scan(HEADER_BYTES, |at, (_, frame)| {
            *at += RECORD_BYTES + frame.len();
            Some(*at)
        });
        let is_end = end == HEADER_BYTES || whole.into_iter().any(|at| at == end);
        prop_assert_eq!(read(&bytes[..end]).is_ok(), is_end);
    }
}

#[test]
fn errors_name_the_repair_tool() {
    let good = write_capture(&vec![(5, vec![0; 60]), (6, vec![0; 60])]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (
            good[..23].to_vec(),
            "x.pcap is not a capture: it is shorter than the 24 bytes of the header of a pcap file",
        ),
        (with(6, 3), "x.pcap is not a pcap file of version 2.4: convert it with `editcap -F pcap`"),
        (with(0, 0), "x.pcap is not a capture: it does not begin with the magic number of pcap"),
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
            "x.pcap has frames that end with their check sequence (FCS): strip it with `editcap \
             -C -4 -L`",
        ),
        (
            good[..good.len() - 1].to_vec(),
            "x.pcap ends within packet 2: it was truncated, or is still being written; capture it again, or keep its whole packets (`tcpdump -r x.pcap -w whole.pcap`)",
        ),
        (
            with(24 + 12, 61),
            "packet 1 of x.pcap was truncated to 60 of 61 bytes when it was captured: capture whole \
             packets (`tcpdump -s 0`)",
        ),
        (
            with(24 + 12, 59),
            "packet 1 of x.pcap has 60 captured bytes, but the packet itself had 59: the file is \
             damaged, so capture again",
        ),
        (
            with(24 + 11, 0xff),
            "packet 1 of x.pcap has 4278190140 bytes, and at most 262144 are possible: the file \
             is damaged, so capture again",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(read(&bytes).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_record_may_hold_part_of_a_frame() {
    let mut bytes = write_capture(&vec![(5, vec![7; 60])]);
    bytes[HEADER_BYTES + 12] = 61;
    let mut reader = PcapReader::new("x.pcap", bytes.as_slice()).unwrap();
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!((record.time_ns, record.frame, record.original_length), (5, &[7; 60][..], 61));
    assert_eq!(reader.next_record().unwrap(), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        packets in packets(), at: prop::sample::Index, byte: u8, end: prop::sample::Index,
    ) {
        let mut bytes = write_capture(&packets);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(end.index(bytes.len() + 1));
        let Ok(mut reader) = PcapReader::new("x.pcap", bytes.as_slice()) else { return Ok(()) };
        while let Ok(Some(_)) = reader.next_record() {}
    }
}
