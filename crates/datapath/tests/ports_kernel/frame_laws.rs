//! Law: a frame and its offloads pass through packet ports unchanged.

use std::cell::RefCell;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use shunt_datapath::{
    Packet, Pool, VirtioHeader,
    packet::virtio::finish,
    port::{Capabilities, PortCounters, Queues},
};
use shunt_pipeline::DatapathPort;

use crate::{
    frames::{LOST, frame, poll_bursts, settles},
    in_namespace, ip, packet_port, put_all_back, split_one,
};

/// Number of sets of frames.
const CASES: u32 = 100;

/// A random frame, with its VLAN tags from the outside in.
#[derive(Clone, Debug)]
struct CableFrame {
    tags: Vec<[u8; 4]>,
    content: CableContent,
}

/// The work that is left to the receiver of a frame.
#[derive(Clone, Debug)]
enum CableContent {
    /// The frame has no IP packet.
    Complete(Vec<u8>),
    /// The checksum of a datagram with this payload.
    Checksum(Vec<u8>),
    /// The segments of a TCP packet with this payload.
    Segments { gso_size: u16, payload: Vec<u8> },
}

/// The length of a UDP header.
const UDP: usize = 8;
/// The length of a TCP header without options.
const TCP: usize = 20;

fn to_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap()
}

/// Returns an IPv4 header for a payload of `length` bytes.
fn ipv4(protocol: u8, length: usize) -> Vec<u8> {
    let [high, low] = to_u16(20 + length).to_be_bytes();
    vec![0x45, 0, high, low, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

impl CableFrame {
    /// Returns the frame and its virtio header.
    fn build(&self) -> (Vec<u8>, VirtioHeader) {
        let mut bytes = frame(0, 14);
        bytes.splice(12..12, self.tags.concat());
        if !matches!(self.content, CableContent::Complete(_)) {
            let ether_type = bytes.len() - 2;
            bytes[ether_type..].copy_from_slice(&[8, 0]);
        }
        let transport = to_u16(bytes.len() + 20);
        let due = VirtioHeader {
            needs_checksum: true,
            checksum_start: transport,
            ..VirtioHeader::default()
        };
        match &self.content {
            CableContent::Complete(payload) => {
                bytes.extend(payload);
                (bytes, VirtioHeader::default())
            }
            CableContent::Checksum(payload) => {
                bytes.extend(ipv4(17, UDP + payload.len()));
                let [high, low] = to_u16(UDP + payload.len()).to_be_bytes();
                bytes.extend([0, 9, 0, 53, high, low, 0, 0]);
                bytes.extend(payload);
                (bytes, VirtioHeader { checksum_offset: 6, ..due })
            }
            CableContent::Segments { gso_size, payload } => {
                bytes.extend(ipv4(6, TCP + payload.len()));
                bytes.extend([0, 80, 0, 81, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
                bytes.extend(payload);
                let virtio = VirtioHeader {
                    checksum_offset: 16,
                    gso_type: VirtioHeader::GSO_TCPV4,
                    gso_size: *gso_size,
                    header_length: transport + to_u16(TCP),
                    ..due
                };
                (bytes, virtio)
            }
        }
    }

    fn packet(&self, pool: &mut Pool) -> Packet {
        let (bytes, virtio) = self.build();
        let mut packet = pool.take(bytes.len(), DatapathPort::default()).unwrap();
        packet.frame_mut().copy_from_slice(&bytes);
        packet.virtio = virtio;
        packet
    }
}

/// Returns a strategy for tags with a VLAN.
///
/// The kernel removes the outer tag of each frame.
fn tag() -> impl Strategy<Value = [u8; 4]> {
    let ether_type = prop_oneof![Just([0x81, 0x00]), Just([0x88, 0xa8])];
    (ether_type, 0..16_u16, 1..4095_u16).prop_map(|([first, second], priority, vlan)| {
        let [high, low] = ((priority << 12) | vlan).to_be_bytes();
        [first, second, high, low]
    })
}

fn payload(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), lengths)
}

/// Returns a strategy for each kind of frame that fits an MTU of 1500.
fn cable_frame() -> impl Strategy<Value = CableFrame> {
    let segments = (500..1400_u16, payload(2800..12_000))
        .prop_map(|(gso_size, payload)| CableContent::Segments { gso_size, payload });
    let offloaded = prop_oneof![payload(1..1400).prop_map(CableContent::Checksum), segments];
    let complete = payload(46..1490).prop_map(CableContent::Complete);
    let complete = (prop::collection::vec(tag(), 0..3), complete);
    let offloaded = (prop::collection::vec(tag(), 0..2), offloaded);
    let both = prop_oneof![complete, offloaded];
    both.prop_map(|(tags, content)| CableFrame { tags, content })
}

/// Receives until `count` packets have arrived, or no packet for too long.
fn receive_packets(queues: &mut Queues, pool: &mut Pool, count: usize) -> Vec<Packet> {
    let mut packets = Vec::new();
    poll_bursts(queues, pool, count, LOST, |_, burst| packets.extend(burst));
    packets
}

/// Returns the frames of packets after their checksums and segments were made.
fn finish_frames(packets: Vec<Packet>, pool: &mut Pool) -> Vec<Vec<u8>> {
    let nothing = Capabilities {
        tx_checksum: false,
        tx_segmentation: false,
        tx_tunnel_segmentation: false,
        frame_max: Pool::LARGE,
        can_wait: true,
    };
    let mut frames = Vec::new();
    for packet in packets {
        let mut out = Vec::new();
        finish(packet, &nothing, pool, &mut out).unwrap();
        frames.extend(out.iter().map(|packet| packet.frame().to_vec()));
        put_all_back(pool, out);
    }
    frames
}

/// Sends all packets, and puts them back.
fn send_packets(queues: &mut Queues, pool: &mut Pool, packets: Vec<Packet>) {
    assert_eq!(queues.tx.tx(&packets), packets.len());
    queues.tx.flush();
    put_all_back(pool, packets);
}

/// Sends frames over the first cable, and compares them after the second.
fn crosses_both_cables(queues: &mut [Queues; 4], frames: &[CableFrame]) {
    let [first, near, far, last] = queues;
    let mut pool = Pool::new();
    let expected = frames.iter().map(|frame| frame.packet(&mut pool)).collect();
    let expected = finish_frames(expected, &mut pool);
    let sent = frames.iter().map(|frame| frame.packet(&mut pool)).collect();
    send_packets(first, &mut pool, sent);
    let forwarded = receive_packets(near, &mut pool, frames.len());
    assert_eq!(forwarded.len(), frames.len(), "packets at the switch");
    send_packets(far, &mut pool, forwarded);
    let received = receive_packets(last, &mut pool, frames.len());
    assert_eq!(received.len(), frames.len(), "packets at the receiver");
    assert!(finish_frames(received, &mut pool) == expected, "other frames arrive");
    assert_eq!(pool.out(), 0);
}

#[test]
fn random_frames_cross_two_cables_unchanged() {
    in_namespace(|| {
        for (near, far) in [("a0", "b0"), ("c0", "d0")] {
            ip(&format!("link add {near} type veth peer name {far}"));
            ip(&format!("link set {near} up"));
            ip(&format!("link set {far} up"));
        }
        let mut ports = ["a0", "b0", "c0", "d0"].map(packet_port);
        assert!(settles(|| ports.iter().all(|port| port.link_up())));
        let queues = RefCell::new(ports.each_mut().map(|port| split_one(port.as_mut())));
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let frames = prop::collection::vec(cable_frame(), 1..8);
        let law = |frames: Vec<CableFrame>| {
            crosses_both_cables(&mut queues.borrow_mut(), &frames);
            Ok(())
        };
        TestRunner::new(config).run(&frames, law).unwrap();
        for port in &ports {
            assert_eq!(port.counters(), PortCounters::default());
        }
    });
}
