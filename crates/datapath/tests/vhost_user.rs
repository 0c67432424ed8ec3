//! Tests a vhost-user port with a guest; the driver of the guest shares no code with the port.

#![expect(clippy::unwrap_used, reason = "a guest that cannot be set up fails the test")]
#![expect(clippy::disallowed_methods, reason = "real threads and a real socket need a real clock")]

use std::{
    os::unix::net::UnixStream,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use shunt_datapath::{
    Packet, Pool, PortError, VirtioHeader,
    port::{
        FrameCopies, Port, PortCopies, Queues, RxReport, TxEnd,
        vhost_user::{SocketMode, VhostUser},
    },
};
use shunt_pipeline::DatapathPort;
use shunt_vhost_user::{
    NetHeader, VirtioFeatures,
    testing::{BufferLayout, MessageOrder, TestFrontEnd, TestGuest},
};
use tempfile::TempDir;

/// A vhost-user port with a connected guest.
struct Setup {
    _folder: TempDir,
    port: VhostUser,
    queues: Vec<Queues>,
    guest: TestGuest,
    _front_end: TestFrontEnd,
    pool: Pool,
}

impl Setup {
    fn new(threads: u16, features: VirtioFeatures) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guest.sock");
        let mut port = VhostUser::new(&path, SocketMode::Server, 7);
        let queues = port.split(threads).unwrap();
        assert!(matches!(port.split(threads), Err(PortError::AlreadySplit { .. })));
        let guest = TestGuest::new(1, 16, features);
        let stream = UnixStream::connect(&path).unwrap();
        let mut front_end = TestFrontEnd::new(stream);
        front_end.start(&guest, MessageOrder::Qemu).unwrap();
        assert!(port.wait_for_link(true, Duration::from_secs(20)), "{:?}", port.link_reason());
        assert_eq!((port.link_up(), port.link_reason()), (true, None));
        Self { _folder: folder, port, queues, guest, _front_end: front_end, pool: Pool::new() }
    }

    fn packet(&mut self, frame: &[u8], virtio: VirtioHeader) -> Packet {
        let mut packet = self.pool.take(frame.len(), DatapathPort::default()).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        packet.virtio = virtio;
        packet
    }

    fn receive(&mut self) -> (Vec<Packet>, RxReport) {
        let mut burst = Vec::new();
        let rx = self.queues[0].rx.as_mut().unwrap();
        let report = rx.rx(&mut self.pool, &mut burst).unwrap();
        (burst, report)
    }

    fn offer(&mut self, buffers: usize) {
        for _ in 0..buffers {
            assert!(self.guest.offer_buffer(0, &BufferLayout::whole(4096)));
        }
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

/// The header of a TCP packet over IPv4 that must still be segmented.
const TSO: VirtioHeader = VirtioHeader {
    needs_checksum: true,
    data_valid: false,
    gso_type: VirtioHeader::GSO_TCPV4,
    gso_size: 1460,
    header_length: 54,
    checksum_start: 34,
    checksum_offset: 16,
    tunnel: None,
};

fn header(virtio: VirtioHeader) -> NetHeader {
    // Correct on little-endian machines only, where the tests run.
    virtio.encode_for_guest()
}

#[test]
fn guest_offloads_become_packet_offloads() {
    let mut setup = Setup::new(1, TestGuest::SPLIT);
    let frame = tcp();
    let layout = BufferLayout { parts: vec![12, 1000, frame.len() - 1000], is_indirect: true };
    assert!(setup.guest.send(0, header(TSO), &frame, &layout));
    let (burst, report) = setup.receive();
    assert!(report.must_poll, "the guest was not asked to kick yet");
    assert_eq!((burst[0].frame(), burst[0].virtio), (&frame[..], TSO));
    // The port sends the packet unchanged to another guest.
    setup.offer(1);
    assert_eq!(setup.queues[0].tx.tx(&burst), 1);
    let received = setup.guest.take_received(0);
    assert_eq!(received[0].1, frame);
    assert_eq!(received[0].0[..10], header(TSO)[..10]);
}

#[test]
fn each_frame_of_a_guest_is_copied_once() {
    let mut setup = Setup::new(1, TestGuest::SPLIT);
    assert_eq!(setup.port.copies(), PortCopies::default());
    let plain = VirtioHeader::default();
    for length in [60, 1500, 4000] {
        let layout = BufferLayout::whole(12 + length);
        assert!(setup.guest.send(0, header(plain), &vec![1; length], &layout));
    }
    let (burst, report) = setup.receive();
    assert_eq!((burst.len(), report.refused), (3, 0));
    let all = FrameCopies { frames: 3, bytes: 60 + 1500 + 4000 };
    assert_eq!(setup.port.copies(), PortCopies { rx: all, ..PortCopies::default() });
    setup.offer(2);
    assert_eq!(setup.queues[0].tx.tx(&burst), 2, "the guest has two buffers");
    let sent = FrameCopies { frames: 2, bytes: 60 + 1500 };
    assert_eq!(setup.port.copies(), PortCopies { rx: all, tx: sent });
}

/// Software completes a copy, and then each segment is copied to the guest.
#[test]
fn a_completed_packet_is_copied_twice() {
    let mut setup = Setup::new(1, VirtioFeatures::VERSION_1);
    let packets = [setup.packet(&tcp(), TSO), setup.packet(&[1; 60], VirtioHeader::default())];
    setup.offer(8);
    assert_eq!(setup.queues[0].tx.tx(&packets), 2);
    let bytes = 3054 + (1514 + 1514 + 54 + 80) + 60;
    assert_eq!(setup.port.copies().tx, FrameCopies { frames: 1 + 3 + 1, bytes });
}

#[test]
fn a_guest_is_not_trusted_about_checksums() {
    let mut setup = Setup::new(1, TestGuest::SPLIT);
    let valid = VirtioHeader { data_valid: true, ..VirtioHeader::default() };
    let outside = VirtioHeader { needs_checksum: true, checksum_start: 60, ..valid };
    for virtio in [valid, outside] {
        assert!(setup.guest.send(0, header(virtio), &[0; 60], &BufferLayout::whole(72)));
    }
    let (burst, report) = setup.receive();
    assert_eq!((burst.len(), report.refused), (1, 1));
    assert!(!burst[0].virtio.data_valid);
}

#[test]
fn a_guest_without_offloads_gets_complete_frames() {
    let mut setup = Setup::new(1, VirtioFeatures::VERSION_1);
    let packets = [setup.packet(&tcp(), TSO), setup.packet(&[1; 60], VirtioHeader::default())];
    setup.offer(8);
    assert_eq!(setup.queues[0].tx.tx(&packets), 2);
    let received = setup.guest.take_received(0);
    let lengths: Vec<usize> = received.iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [1514, 1514, 54 + 80, 60], "segments, and the next packet after them");
    for (header, frame) in &received {
        assert_eq!(header[..10], [0; 10]);
        let checksum = (frame.len() > 60).then(|| &frame[50..52]);
        assert_ne!(checksum, Some(&[0; 2][..]), "the checksum is complete");
    }
}

#[test]
fn packets_without_a_buffer_are_refused() {
    let mut setup = Setup::new(1, TestGuest::SPLIT);
    let packets = [(); 3].map(|()| setup.packet(&[1; 60], VirtioHeader::default()));
    setup.offer(2);
    assert_eq!(setup.queues[0].tx.tx(&packets), 2);
    assert_eq!(setup.queues[0].tx.tx_end(), TxEnd::Full);
}

/// Two packet threads share one queue, and neither waits for the other.
#[test]
fn threads_that_share_a_queue_lose_nothing() {
    let mut setup = Setup::new(2, TestGuest::SPLIT);
    let numbers = 0..2000_u32;
    let (mut first, mut second) = (setup.queues.remove(0).tx, setup.queues.remove(0).tx);
    let (go, done) = (Barrier::new(3), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (thread, queue) in [(0_u8, &mut first), (1, &mut second)] {
            let (go, done, numbers) = (&go, &done, numbers.clone());
            scope.spawn(move || {
                let mut pool = Pool::new();
                go.wait();
                for number in numbers {
                    let mut packet = pool.take(60, DatapathPort::default()).unwrap();
                    packet.frame_mut()[0] = thread;
                    packet.frame_mut()[1..5].copy_from_slice(&number.to_le_bytes());
                    // The guest may have no free buffer for a moment.
                    while queue.tx(std::slice::from_ref(&packet)) == 0 {
                        std::thread::yield_now();
                    }
                    queue.flush();
                    pool.put_back(packet);
                }
                while queue.is_pending() {
                    queue.flush();
                }
                done.fetch_add(1, Relaxed);
            });
        }
        go.wait();
        let mut last = [None; 2];
        let mut received = 0;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let is_done = done.load(Relaxed) == 2;
            while setup.guest.offer_buffer(0, &BufferLayout::whole(100)) {}
            let frames = setup.guest.take_received(0);
            for (_, frame) in &frames {
                let number = u32::from_le_bytes(frame[1..5].try_into().unwrap());
                let last = &mut last[usize::from(frame[0])];
                assert!(
                    last.is_none_or(|last| last < number),
                    "the packets of a thread are in order"
                );
                *last = Some(number);
            }
            received += frames.len();
            if is_done && frames.is_empty() || Instant::now() > deadline {
                break;
            }
        }
        let lost = usize::try_from(setup.port.counters().tx_dropped).unwrap();
        assert_eq!(received + lost, 4000, "each packet arrives once or is counted");
    });
}
