//! memif ports: a server and a client in one process.

#![expect(clippy::unwrap_used, reason = "ports that cannot be set up fail the test")]

use std::{path::Path, time::Duration};

use shunt_datapath::{
    Packet, Pool, PortError, VirtioHeader,
    port::{
        FrameCopies, Port, PortCopies, Queues, TxEnd,
        memif::{Memif, MemifOptions, MemifRole},
    },
};
use shunt_pipeline::DatapathPort;

/// A connected server and client, each with queues for one packet thread.
struct MemifEnds {
    _folder: tempfile::TempDir,
    ports: [Memif; 2],
    queues: [Queues; 2],
    pool: Pool,
}

fn options(socket: &Path, role: MemifRole) -> MemifOptions {
    MemifOptions { role, ring_log2: 4, buffer_bytes: 1024, ..MemifOptions::new(socket) }
}

fn await_link(port: &Memif, is_up: bool) {
    assert!(port.wait_for_link(is_up, Duration::from_secs(20)), "{:?}", port.link_reason());
    assert_eq!(port.link_up(), is_up);
}

impl MemifEnds {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("memif.sock");
        let mut ports = [MemifRole::Server, MemifRole::Client]
            .map(|role| Memif::new(options(&socket, role), 7).unwrap());
        let queues = ports.each_mut().map(|port| port.split(1).unwrap().remove(0));
        assert!(matches!(ports[0].split(1), Err(PortError::AlreadySplit { .. })));
        ports.iter().for_each(|port| await_link(port, true));
        Self { _folder: folder, ports, queues, pool: Pool::new() }
    }

    fn packet(&mut self, frame: &[u8], virtio: VirtioHeader) -> Packet {
        let mut packet = self.pool.take(frame.len(), DatapathPort::default()).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        packet.virtio = virtio;
        packet
    }

    /// Receives all frames that wait at one of the ends.
    fn receive(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut burst = Vec::new();
        let rx = self.queues[end].rx.as_mut().unwrap();
        let report = rx.rx(&mut self.pool, &mut burst).unwrap();
        assert_eq!((report.refused, report.must_poll), (0, true));
        let frames = burst.iter().map(|packet| packet.frame().to_vec()).collect();
        burst.into_iter().for_each(|packet| self.pool.put_back(packet));
        frames
    }
}

/// Returns a TCP segment over IPv4 with 3000 bytes of payload.
fn tcp() -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(3040_u16.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.resize(54 + 3000, 7);
    frame
}

#[test]
fn frames_of_all_lengths_pass_both_ways() {
    let mut ends = MemifEnds::new();
    for (from, to) in [(0, 1), (1, 0)] {
        for length in [14, 60, 1024, 1025, 9000] {
            let frame = vec![u8::try_from(length % 251).unwrap(); length];
            let packet = ends.packet(&frame, VirtioHeader::default());
            assert_eq!(ends.queues[from].tx.tx(std::slice::from_ref(&packet)), 1);
            ends.pool.put_back(packet);
            assert_eq!(ends.receive(to), [frame]);
        }
    }
}

/// Each end copies a frame once: into the ring, or out of it.
#[test]
fn each_frame_is_copied_once_at_each_end() {
    let mut ends = MemifEnds::new();
    for (from, to) in [(0, 1), (1, 0)] {
        let before = ends.ports.each_ref().map(|port| port.copies());
        let lengths = [60, 1025, 9000];
        for length in lengths {
            let packet = ends.packet(&vec![1; length], VirtioHeader::default());
            assert_eq!(ends.queues[from].tx.tx(std::slice::from_ref(&packet)), 1);
            ends.pool.put_back(packet);
        }
        assert_eq!(ends.receive(to).len(), lengths.len());
        let bytes = lengths.iter().map(|length| *length as u64).sum();
        let mut expected = before;
        expected[from].tx += FrameCopies { frames: 3, bytes };
        expected[to].rx += FrameCopies { frames: 3, bytes };
        assert_eq!(ends.ports.each_ref().map(|port| port.copies()), expected);
    }
    // The ring takes 16 of these packets.
    let packets: Vec<Packet> =
        (0..20).map(|_| ends.packet(&[1; 60], VirtioHeader::default())).collect();
    let PortCopies { tx, .. } = ends.ports[1].copies();
    assert_eq!(ends.queues[1].tx.tx(&packets), 16);
    assert_eq!(ends.ports[1].copies().tx.frames, tx.frames + 16);
}

/// Memif has no offloads, so software segments the packet.
#[test]
fn a_packet_to_be_segmented_leaves_complete() {
    let mut ends = MemifEnds::new();
    let segmented = VirtioHeader {
        needs_checksum: true,
        data_valid: false,
        gso_type: VirtioHeader::GSO_TCPV4,
        gso_size: 1460,
        header_length: 54,
        checksum_start: 34,
        checksum_offset: 16,
        tunnel: None,
    };
    let packet = ends.packet(&tcp(), segmented);
    assert_eq!(ends.queues[0].tx.tx(&[packet]), 1);
    let lengths: Vec<usize> = ends.receive(1).iter().map(Vec::len).collect();
    assert_eq!(lengths, [1514, 1514, 54 + 80]);
}

#[test]
fn full_rings_and_oversized_frames_are_refused() {
    let mut ends = MemifEnds::new();
    let long = ends.packet(&[1; 17 * 1024], VirtioHeader::default());
    assert_eq!(ends.queues[1].tx.tx(&[long]), 0);
    assert_eq!(ends.queues[1].tx.tx_end(), TxEnd::Refused);
    let packets: Vec<Packet> =
        (0..20).map(|_| ends.packet(&[1; 60], VirtioHeader::default())).collect();
    assert_eq!(ends.queues[1].tx.tx(&packets), 16);
    assert_eq!(ends.queues[1].tx.tx_end(), TxEnd::Full);
    assert_eq!(ends.receive(0).len(), 16);
}

#[test]
fn port_without_peer_is_down_with_reason() {
    let mut ends = MemifEnds::new();
    let [server, client] = ends.ports;
    drop(server);
    await_link(&client, false);
    let reason = client.link_reason().unwrap();
    assert!(reason.starts_with("no peer is connected: "), "{reason}");
    let mut pool = Pool::new();
    let packet = pool.take(60, DatapathPort::default()).unwrap();
    assert_eq!(ends.queues[1].tx.tx(&[packet]), 0);
    let wrong = MemifOptions { ring_log2: 15, ..options(Path::new("@x"), MemifRole::Client) };
    let error = Memif::new(wrong, 7).unwrap_err().to_string();
    assert_eq!(error, "rsize is 15: it must be 1 to 14");
}
