//! Tests of packets in a UDP tunnel: headers, segments, and header changes before them.
//!
//! The tunnel is built around a sample without a tunnel. The checks know its offsets from the
//! generator, and reassemble what is in the tunnel like the segments of the sample.

use proptest::prelude::*;
use shunt_flow::rewrite::push_vlan;
use shunt_pipeline::DatapathPort;

use super::{
    tests::{Sample, frames, ones, reassemble, samples, word},
    *,
};
use crate::{packet::virtio::finish, port::Capabilities};

/// A packet to segment in a UDP tunnel, and the offsets of its headers.
#[derive(Clone, Debug)]
struct Tunnelled {
    inner: Sample,
    frame: Vec<u8>,
    network: usize,
    transport: usize,
    /// Offset of the Ethernet header in the tunnel.
    content: usize,
    is_ipv4: bool,
    has_checksum: bool,
}

impl Tunnelled {
    /// Returns the header as a packet socket has it, without the tunnel.
    fn virtio(&self) -> VirtioHeader {
        let content = u16::try_from(self.content).unwrap();
        let mut virtio = self.inner.virtio();
        virtio.checksum_start += content;
        virtio.header_length += content;
        virtio
    }

    /// Returns the kind of the tunnel.
    fn kind(&self) -> UdpTunnel {
        if self.has_checksum { UdpTunnel::Checked } else { UdpTunnel::Unchecked }
    }

    /// Returns the packet in a buffer.
    fn packet(&self, pool: &mut Pool) -> Packet {
        let mut packet = pool.take(self.frame.len(), DatapathPort::new(3)).unwrap();
        packet.frame_mut().copy_from_slice(&self.frame);
        packet.virtio = VirtioHeader::receive(self.virtio().encode(), &self.frame).unwrap();
        packet
    }

    /// Returns the sum of the pseudo-header of the tunnel for a UDP length.
    fn pseudo_header(&self, frame: &[u8], length: usize) -> usize {
        let addresses = if self.is_ipv4 { 12..20 } else { 8..40 };
        ones(&frame[self.network..][addresses], 17 + length)
    }

    /// Checks the tunnel of a segment; returns its headers with the original numbers.
    fn checked_headers(&self, frame: &[u8], index: usize) -> Vec<u8> {
        let (network, transport) = (self.network, self.transport);
        let length = frame.len() - transport;
        assert_eq!(word(frame, transport + 4), length, "UDP length");
        if self.has_checksum {
            assert_ne!(word(frame, transport + 6), 0, "a UDP checksum of 0 would mean none");
            let pseudo = self.pseudo_header(frame, length);
            assert_eq!(ones(&frame[transport..], pseudo), 0xffff, "UDP checksum");
        } else {
            assert_eq!(word(frame, transport + 6), 0, "no UDP checksum");
        }
        let mut restored = vec![transport + 4, transport + 6];
        if self.is_ipv4 {
            assert_eq!(word(frame, network + 2), frame.len() - network, "IPv4 length");
            assert_eq!(ones(&frame[network..transport], 0), 0xffff, "IPv4 checksum");
            let identification = (word(&self.frame, network + 4) + index) & 0xffff;
            assert_eq!(word(frame, network + 4), identification, "identification");
            restored.extend([network + 2, network + 4, network + 10]);
        } else {
            assert_eq!(word(frame, network + 4), frame.len() - network - 40, "IPv6 length");
            restored.push(network + 4);
        }
        let mut headers = frame[..self.content].to_vec();
        for at in restored {
            headers[at..at + 2].copy_from_slice(&self.frame[at..at + 2]);
        }
        headers
    }

    /// Checks that segments with their tunnels are those of the packet.
    fn check(&self, segments: &[Vec<u8>]) {
        for (index, frame) in segments.iter().enumerate() {
            assert!(self.checked_headers(frame, index) == self.frame[..self.content]);
        }
        let contents: Vec<_> = segments.iter().map(|own| own[self.content..].to_vec()).collect();
        assert!(reassemble(&self.inner, &contents) == self.inner.canonical());
    }
}

/// Generates packets in tunnels over IPv4 and IPv6, with tags and options.
fn tunnelled() -> impl Strategy<Value = Tunnelled> {
    let shape = (0usize..3, prop_oneof![3 => Just(0u32), 1 => 1..3u32], 0usize..3, 0usize..80);
    let kinds = (any::<bool>(), any::<bool>());
    (samples(), shape, kinds, prop::collection::vec(any::<u8>(), 250)).prop_map(
        |(inner, (tags, labels, extensions, tunnel), (is_ipv4, has_checksum), noise)| {
            let mut noise = noise.into_iter();
            let mut some = |count: usize| noise.by_ref().take(count).collect::<Vec<u8>>();
            let mut frame = some(12);
            for _ in 0..tags {
                frame.extend([0x81, 0x00]);
                frame.extend(some(2));
            }
            frame.extend(match (labels, is_ipv4) {
                (0, true) => [0x08, 0x00],
                (0, false) => [0x86, 0xdd],
                _ => [0x88, 0x47],
            });
            for left in (0..labels).rev() {
                frame.extend((16 << 12 | u32::from(left == 0) << 8 | 64).to_be_bytes());
            }
            let network = frame.len();
            let length = 8 + tunnel + inner.frame.len();
            let to_bytes = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
            if is_ipv4 {
                frame.push(0x45 + u8::try_from(extensions).unwrap());
                frame.extend(some(1));
                frame.extend(to_bytes(20 + extensions * 4 + length));
                frame.extend(some(2));
                frame.extend([0x40, 0, 64, 17, 0, 0]);
                frame.extend(some(8 + extensions * 4));
            } else {
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(to_bytes(extensions * 8 + length));
                frame.extend([if extensions > 0 { 0 } else { 17 }, 64]);
                frame.extend(some(32));
                for left in (0..extensions).rev() {
                    frame.extend([if left > 0 { 60 } else { 17 }, 0]);
                    frame.extend(some(6));
                }
            }
            let transport = frame.len();
            frame.extend(some(4));
            frame.extend(to_bytes(length));
            frame.extend([0, 0]);
            frame.extend(some(tunnel));
            let content = frame.len();
            frame.extend(&inner.frame);
            let mut whole =
                Tunnelled { inner, frame, network, transport, content, is_ipv4, has_checksum };
            if has_checksum {
                let pseudo = to_bytes(whole.pseudo_header(&whole.frame, length));
                whole.frame[transport + 6..transport + 8].copy_from_slice(&pseudo);
            }
            whole
        },
    )
}

/// Returns the segments of a packet; all buffers are back in the pool.
fn segments_of(packet: Packet, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    segment(&packet, pool, &mut out).unwrap();
    let made = frames(&out);
    out.into_iter().chain([packet]).for_each(|packet| pool.put_back(packet));
    assert_eq!(pool.out(), 0);
    made
}

/// Returns the fields of a header for a TAP: flags, type and tunnel offsets.
fn for_tap(packet: &Packet) -> (u8, u8, usize, usize) {
    let bytes = packet.virtio.encode_with_tunnel(packet.frame()).unwrap();
    let offset = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    assert_eq!(bytes[10..20], [0; 10]);
    (bytes[0], bytes[1], offset(20), offset(22))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn joined_segments_in_tunnels_equal_the_packet(sample in tunnelled()) {
        let mut pool = Pool::new();
        let packet = sample.packet(&mut pool);
        prop_assert_eq!(packet.virtio, VirtioHeader { tunnel: Some(sample.kind()), ..sample.virtio() });
        let made = segments_of(packet, &mut pool);
        let payload = sample.inner.frame.len() - sample.inner.payload;
        prop_assert_eq!(made.len(), payload.div_ceil(sample.inner.size.into()));
        sample.check(&made);
    }

    #[test]
    fn the_header_of_a_tunnel_round_trips(sample in tunnelled()) {
        let mut pool = Pool::new();
        let packet = sample.packet(&mut pool);
        let (flags, gso_type, outer, inner) = for_tap(&packet);
        prop_assert_eq!(flags, if sample.has_checksum { 0b1001 } else { 0b0001 });
        let version = if sample.is_ipv4 { 0x20 } else { 0x40 };
        prop_assert_eq!(gso_type, sample.virtio().gso_type | version);
        prop_assert_eq!((outer, inner), (sample.transport, sample.content + sample.inner.network));
        let bytes = packet.virtio.encode_with_tunnel(packet.frame()).unwrap();
        let received = VirtioHeader::receive(*bytes.first_chunk().unwrap(), packet.frame());
        prop_assert_eq!(received, Ok(packet.virtio));
    }

    #[test]
    fn both_checksums_of_a_whole_packet_are_completed(sample in tunnelled()) {
        let mut inner = sample.inner.clone();
        let mut whole = sample.clone();
        let part = inner.frame.len() - inner.transport;
        let addresses = if inner.is_ipv4 { 12..20 } else { 8..40 };
        let protocol = if inner.is_tcp { 6 } else { 17 };
        let pseudo = ones(&inner.frame[inner.network..][addresses], protocol + part);
        let at = inner.transport + if inner.is_tcp { 16 } else { 6 };
        inner.frame[at..at + 2].copy_from_slice(&u16::try_from(pseudo).unwrap().to_be_bytes());
        whole.frame[sample.content..].copy_from_slice(&inner.frame);

        let mut frame = whole.frame.clone();
        let virtio = VirtioHeader::receive(whole.virtio().encode(), &frame).unwrap();
        virtio.complete_checksums(&mut frame);
        prop_assert_eq!(ones(&frame[sample.content + inner.transport..], pseudo), 0xffff);
        let length = frame.len() - sample.transport;
        if sample.has_checksum {
            let pseudo = sample.pseudo_header(&frame, length);
            prop_assert_eq!(ones(&frame[sample.transport..], pseudo), 0xffff);
        } else {
            prop_assert_eq!(word(&frame, sample.transport + 6), 0);
        }
    }

    #[test]
    fn a_pushed_tag_moves_the_tunnel(sample in tunnelled()) {
        let mut pool = Pool::new();
        let mut packet = sample.packet(&mut pool);
        prop_assert!(packet.push_front(4));
        push_vlan(packet.frame_mut(), 0x8100, 5);
        // The parser of segments accepts two tags.
        if payload(&sample.frame).unwrap().0 < 22 {
            let offsets = (sample.transport + 4, sample.content + sample.inner.network + 4);
            let (_, _, outer, inner) = for_tap(&packet);
            prop_assert_eq!((outer, inner), offsets);
            let tagged = segments_of(packet, &mut pool);
            let untag = |frame: &Vec<u8>| {
                assert_eq!(frame[12..16], [0x81, 0, 0, 5]);
                [&frame[..12], &frame[16..]].concat()
            };
            sample.check(&tagged.iter().map(untag).collect::<Vec<_>>());
        }
    }

    #[test]
    fn content_without_its_tunnel_has_plain_segments(sample in tunnelled()) {
        let mut pool = Pool::new();
        let mut packet = sample.packet(&mut pool);
        packet.pop_front(sample.content);
        prop_assert_eq!(packet.wire_len(), sample.inner.payload + usize::from(sample.inner.size));
        let made = segments_of(packet, &mut pool);
        prop_assert!(reassemble(&sample.inner, &made) == sample.inner.canonical());
    }

    #[test]
    fn no_tunnel_makes_segmentation_panic(
        sample in tunnelled(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        gso_type in any::<u8>(), start in any::<u16>(),
    ) {
        let (mut pool, mut out) = (Pool::new(), Vec::new());
        let mut packet = sample.packet(&mut pool);
        let headers = sample.content + sample.inner.payload;
        packet.frame_mut()[at.index(headers)] = byte;
        let _ = segment(&packet, &mut pool, &mut out);
        packet.virtio.gso_type = gso_type;
        let _ = segment(&packet, &mut pool, &mut out);
        packet.virtio.checksum_start = start;
        let _ = segment(&packet, &mut pool, &mut out);
        let _ = packet.virtio.encode_with_tunnel(packet.frame());
    }

    #[test]
    fn only_a_port_that_knows_tunnels_gets_whole_packets(
        sample in tunnelled(), knows_segments in any::<bool>(), knows_tunnels in any::<bool>(),
    ) {
        let (mut pool, mut out) = (Pool::new(), Vec::new());
        let packet = sample.packet(&mut pool);
        let port = Capabilities {
            tx_checksum: true,
            tx_segmentation: knows_segments,
            tx_tunnel_segmentation: knows_tunnels,
            frame_max: Pool::LARGE,
            can_wait: false,
        };
        finish(packet, &port, &mut pool, &mut out).unwrap();
        if knows_segments && knows_tunnels && !is_labelled(&sample.frame) {
            prop_assert_eq!(out.len(), 1);
            prop_assert_eq!(out[0].virtio.tunnel, Some(sample.kind()));
            prop_assert!(out[0].frame() == sample.frame);
        } else {
            sample.check(&frames(&out));
        }
    }
}

/// Returns whether the header of a packet in a tunnel is refused after a change.
fn refused(change: impl FnOnce(&mut VirtioHeader, &mut [u8])) -> bool {
    let mut frame = vec![0; 14 + 20 + 8 + 8 + 14 + 20 + 20 + 100];
    let length = u16::try_from(frame.len()).unwrap();
    for (network, protocol) in [(14, 17), (64, 6)] {
        frame[network - 2] = 8;
        frame[network] = 0x45;
        let total = length - u16::try_from(network).unwrap();
        frame[network + 2..network + 4].copy_from_slice(&total.to_be_bytes());
        frame[network + 9] = protocol;
    }
    frame[96] = 0x50;
    let mut virtio = VirtioHeader {
        needs_checksum: true,
        gso_type: VirtioHeader::GSO_TCPV4,
        gso_size: 40,
        checksum_start: 84,
        checksum_offset: 16,
        ..VirtioHeader::default()
    };
    change(&mut virtio, &mut frame);
    VirtioHeader::receive(virtio.encode(), &frame).is_err()
}

#[test]
fn a_header_without_its_tunnel_is_refused() {
    assert!(!refused(|_, _| {}));
    // The flag of a tunnel over IPv4, with and without a tunnel.
    assert!(!refused(|virtio, _| virtio.gso_type |= 0x20));
    assert!(refused(|virtio, frame| {
        virtio.gso_type |= 0x20;
        virtio.checksum_start = 34;
        frame[23] = 6;
        frame[46] = 0x50;
    }));
    assert!(refused(|virtio, _| virtio.gso_type = 0x20), "a tunnel without segments");
    assert!(refused(|virtio, _| virtio.gso_type = VirtioHeader::GSO_TCPV6));
    assert!(refused(|virtio, _| virtio.checksum_start = 88), "no IP header ends there");
    assert!(refused(|virtio, _| virtio.needs_checksum = false));
    assert!(refused(|_, frame| frame[14 + 6] = 0x20), "a fragment");
    assert!(refused(|_, frame| frame[64 + 3] -= 1), "the packets have different ends");
}
