//! Tests of segmentation: segments are reassembled and compared with the packet.
//!
//! [`reassemble`] shares no code with the segmentation: it walks the frames by fixed offsets that
//! the generator knows, and sums checksums word by word.

use proptest::prelude::*;
use shunt_pipeline::DatapathPort;

use super::*;

/// A packet to segment, and the offsets of its headers and payload.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) frame: Vec<u8>,
    pub(super) network: usize,
    pub(super) transport: usize,
    pub(super) payload: usize,
    pub(super) is_ipv4: bool,
    pub(super) is_tcp: bool,
    pub(super) size: u16,
}

impl Sample {
    /// Returns the metadata of the packet.
    pub(super) fn virtio(&self) -> VirtioHeader {
        VirtioHeader {
            needs_checksum: true,
            data_valid: false,
            gso_type: match (self.is_tcp, self.is_ipv4) {
                (true, true) => VirtioHeader::GSO_TCPV4,
                (true, false) => VirtioHeader::GSO_TCPV6,
                (false, _) => VirtioHeader::GSO_UDP_L4,
            },
            gso_size: self.size,
            header_length: u16::try_from(self.payload).unwrap(),
            checksum_start: u16::try_from(self.transport).unwrap(),
            checksum_offset: if self.is_tcp { 16 } else { 6 },
            tunnel: None,
        }
    }

    /// Returns the packet in a buffer.
    fn packet(&self, pool: &mut Pool) -> Packet {
        let mut packet = pool.take(self.frame.len(), DatapathPort::new(3)).unwrap();
        packet.frame_mut().copy_from_slice(&self.frame);
        packet.virtio = VirtioHeader::receive(self.virtio().encode(), &self.frame).unwrap();
        packet
    }

    /// Returns the frame without the checksum fields, which segmentation may change.
    pub(super) fn canonical(&self) -> Vec<u8> {
        let mut frame = self.frame.clone();
        self.clear_checksums(&mut frame);
        frame
    }

    fn clear_checksums(&self, frame: &mut [u8]) {
        if self.is_ipv4 {
            frame[self.network + 10..self.network + 12].fill(0);
        }
        let at = self.transport + if self.is_tcp { 16 } else { 6 };
        frame[at..at + 2].fill(0);
    }
}

/// Returns the 16-bit word at an offset.
pub(super) fn word(frame: &[u8], at: usize) -> usize {
    usize::from(frame[at]) << 8 | usize::from(frame[at + 1])
}

/// Adds bytes to a ones' complement sum.
pub(super) fn ones(bytes: &[u8], mut sum: usize) -> usize {
    for pair in bytes.chunks(2) {
        sum += usize::from(pair[0]) << 8 | usize::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Returns the frames of segments, from which no work is left.
pub(super) fn frames(segments: &[Packet]) -> Vec<Vec<u8>> {
    let frame = |segment: &Packet| {
        assert_eq!(segment.virtio, VirtioHeader::default());
        assert_eq!(segment.ingress, DatapathPort::new(3));
        segment.frame().to_vec()
    };
    segments.iter().map(frame).collect()
}

/// Returns the packet that these segments form, with cleared checksum fields.
pub(super) fn reassemble(sample: &Sample, segments: &[Vec<u8>]) -> Vec<u8> {
    let mut whole: Vec<u8> = Vec::new();
    let first = &segments[0];
    for (index, segment) in segments.iter().enumerate() {
        let mut frame = segment.clone();
        let last = index + 1 == segments.len();
        assert!(frame.len() - sample.payload <= sample.size.into());
        assert!(last || frame.len() - sample.payload == usize::from(sample.size));

        let (network, transport) = (sample.network, sample.transport);
        let part = frame.len() - transport;
        if sample.is_ipv4 {
            assert_eq!(word(&frame, network + 2), frame.len() - network);
            assert_eq!(ones(&frame[network..transport], 0), 0xffff, "IPv4 checksum");
            let expected = (word(first, network + 4) + index) & 0xffff;
            assert_eq!(word(&frame, network + 4), expected, "identification");
            assert_eq!(
                ones(&frame[network + 12..network + 20], 0),
                ones(&first[network + 12..network + 20], 0)
            );
        } else {
            assert_eq!(word(&frame, network + 4), frame.len() - network - 40);
        }
        let (addresses, protocol) = match sample.is_ipv4 {
            true => (&frame[network + 12..network + 20], if sample.is_tcp { 6 } else { 17 }),
            false => (&frame[network + 8..network + 40], if sample.is_tcp { 6 } else { 17 }),
        };
        let pseudo = ones(addresses, protocol + part);
        assert_eq!(ones(&frame[transport..], pseudo), 0xffff, "transport checksum");

        if sample.is_tcp {
            let sequence =
                |frame: &[u8]| word(frame, transport + 4) << 16 | word(frame, transport + 6);
            let expected = sequence(first) + index * usize::from(sample.size);
            assert_eq!(sequence(&frame), expected & 0xffff_ffff);
            let original = sample.frame[transport + 13];
            let mut flags = original;
            if index > 0 {
                flags &= !0x80;
            }
            if !last {
                flags &= !0x09;
            }
            assert_eq!(frame[transport + 13], flags, "flags");
            frame[transport + 13] = original;
        } else {
            assert_eq!(word(&frame, transport + 4), part);
            assert_ne!(word(&frame, transport + 6), 0, "a UDP checksum of 0 would mean none");
        }
        if index == 0 {
            whole.extend(&frame[..sample.payload]);
        }
        whole.extend(&frame[sample.payload..]);
    }
    let (length, part) = (whole.len() - sample.network, whole.len() - sample.transport);
    let mut put = |at: usize, value: usize| {
        whole[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_be_bytes());
    };
    if sample.is_ipv4 {
        put(sample.network + 2, length);
    } else {
        put(sample.network + 4, length - 40);
    }
    if !sample.is_tcp {
        put(sample.transport + 4, part);
    }
    if sample.is_tcp {
        whole[sample.transport + 13] = sample.frame[sample.transport + 13];
    }
    sample.clear_checksums(&mut whole);
    whole
}

/// Generates frames that can be segmented.
/// The frames have random tags, labels, options, extension headers and flags.
pub(super) fn samples() -> impl Strategy<Value = Sample> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..300),
        (1usize..60_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ];
    let shims = (0usize..3, prop_oneof![3 => Just(0u32), 1 => 1..4u32]);
    let shape = (shims, any::<bool>(), any::<bool>(), 0usize..11, 0usize..3);
    (shape, payload, prop::collection::vec(any::<u8>(), 200), 1u16..2000).prop_map(
        |(((tags, labels), is_ipv4, is_tcp, options, extensions), payload, noise, size)| {
            let mut noise = noise.into_iter();
            let mut some = |count: usize| noise.by_ref().take(count).collect::<Vec<u8>>();
            let mut frame = some(12);
            for tag in 0..tags {
                frame.extend(if tag == 0 { [0x88, 0xa8] } else { [0x81, 0x00] });
                frame.extend(some(2));
            }
            let protocol = if is_tcp { 6 } else { 17 };
            let transport_length = if is_tcp { 20 + options.min(10) * 4 } else { 8 };
            let rest = transport_length + payload.len();
            frame.extend(match (labels, is_ipv4) {
                (0, true) => [0x08, 0x00],
                (0, false) => [0x86, 0xdd],
                _ => [0x88, 0x47],
            });
            for left in (0..labels).rev() {
                frame.extend((16 << 12 | u32::from(left == 0) << 8 | 64).to_be_bytes());
            }
            let network = frame.len();
            if is_ipv4 {
                let total = u16::try_from(20 + extensions * 4 + rest).unwrap().to_be_bytes();
                frame.push(0x45 + u8::try_from(extensions).unwrap());
                frame.extend(some(1));
                frame.extend(total);
                frame.extend(some(2));
                frame.extend([0x40, 0, 64, protocol, 0, 0]);
                frame.extend(some(8 + extensions * 4));
            } else {
                let length = u16::try_from(extensions * 8 + rest).unwrap().to_be_bytes();
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(length);
                frame.extend([if extensions > 0 { 60 } else { protocol }, 64]);
                frame.extend(some(32));
                for left in (0..extensions).rev() {
                    frame.extend([if left > 0 { 60 } else { protocol }, 0]);
                    frame.extend(some(6));
                }
            }
            let transport = frame.len();
            if is_tcp {
                frame.extend(some(12));
                frame.push(u8::try_from(transport_length / 4).unwrap() << 4);
                frame.extend(some(transport_length - 13));
            } else {
                frame.extend(some(4));
                frame.extend(u16::try_from(rest).unwrap().to_be_bytes());
                frame.extend(some(2));
            }
            let at = frame.len();
            frame.extend(&payload);
            // The least segment size with which the packet has at most `SEGMENTS_MAX` segments.
            let least = u16::try_from(payload.len().div_ceil(SEGMENTS_MAX)).unwrap();
            let size = size.clamp(least, u16::try_from(frame.len()).unwrap());
            Sample { frame, network, transport, payload: at, is_ipv4, is_tcp, size }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn joined_segments_equal_the_packet(sample in samples()) {
        let (mut pool, mut out) = (Pool::new(), Vec::new());
        let packet = sample.packet(&mut pool);
        let count = segment(&packet, &mut pool, &mut out).unwrap();
        prop_assert_eq!(count, out.len());
        prop_assert_eq!(count, (sample.frame.len() - sample.payload).div_ceil(sample.size.into()));
        prop_assert_eq!(reassemble(&sample, &frames(&out)), sample.canonical());
        out.drain(..).chain([packet]).for_each(|packet| pool.put_back(packet));
        prop_assert_eq!(pool.out(), 0);
    }

    #[test]
    fn no_frame_makes_segmentation_panic(
        sample in samples(), at in any::<prop::sample::Index>(), byte in any::<u8>(), gso_type in any::<u8>(),
    ) {
        let (mut pool, mut out) = (Pool::new(), Vec::new());
        let mut packet = sample.packet(&mut pool);
        let headers = sample.payload;
        packet.frame_mut()[at.index(headers)] = byte;
        packet.virtio.gso_type = gso_type;
        let _ = segment(&packet, &mut pool, &mut out);
    }
}

/// Returns a TCP packet with a length of payload.
fn tcp(payload: usize) -> Sample {
    let mut frame = vec![0; 54 + payload];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&u16::try_from(40 + payload).unwrap().to_be_bytes());
    frame[23] = 6;
    frame[46] = 0x50;
    Sample { frame, network: 14, transport: 34, payload: 54, is_ipv4: true, is_tcp: true, size: 1 }
}

#[test]
fn more_segments_than_the_bound_are_refused() {
    let (mut pool, mut out) = (Pool::new(), Vec::new());
    let packet = tcp(SEGMENTS_MAX + 1).packet(&mut pool);
    let refused = segment(&packet, &mut pool, &mut out);
    assert_eq!(refused, Err(SegmentError::TooMany { count: SEGMENTS_MAX + 1 }));
    let packet = tcp(SEGMENTS_MAX).packet(&mut pool);
    assert_eq!(segment(&packet, &mut pool, &mut out), Ok(SEGMENTS_MAX));
}

#[test]
fn an_exhausted_pool_gets_all_segments_back() {
    let (mut pool, mut out) = (Pool::new(), Vec::new());
    let packet = tcp(100).packet(&mut pool);
    let held: Vec<_> = std::iter::from_fn(|| pool.take(60, DatapathPort::default())).collect();
    held.into_iter().take(50).for_each(|packet| pool.put_back(packet));
    let before = pool.out();
    assert_eq!(segment(&packet, &mut pool, &mut out), Err(SegmentError::PoolEmpty));
    assert_eq!((pool.out(), out.len()), (before, 0));
}

#[test]
fn fragments_and_routing_headers_are_not_segmented() {
    let parse = |frame: &[u8], gso_type| {
        Headers::parse(frame, &VirtioHeader { gso_type, ..VirtioHeader::default() })
    };
    let mut fragment = tcp(100).frame;
    fragment[20] = 0x20;
    assert!(parse(&fragment, VirtioHeader::GSO_TCPV4).is_none());
    let mut whole = tcp(100).frame;
    assert!(parse(&whole, VirtioHeader::GSO_TCPV4).is_some());
    assert!(parse(&whole, VirtioHeader::GSO_TCPV4 | VirtioHeader::GSO_ECN).is_some());
    assert!(parse(&whole, VirtioHeader::GSO_TCPV6).is_none());
    whole.truncate(100);
    assert!(parse(&whole, VirtioHeader::GSO_TCPV4).is_none(), "shorter than its length says");
}
