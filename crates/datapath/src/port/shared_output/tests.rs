//! Tests with an output that announces offloads and refuses packets that need them.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;

use super::*;
use crate::packet::virtio::VirtioHeader;

/// The state of an output that announces every offload.
#[derive(Default)]
struct FakeState {
    /// True while another thread uses the output.
    is_busy: AtomicBool,
    /// Number of `send` calls after which another thread uses the output; 0: no limit.
    calls_until_busy: AtomicUsize,
    /// True if the output refuses every packet, even complete packets.
    takes_nothing: AtomicBool,
    sent: Mutex<Vec<Vec<u8>>>,
}

/// An output that announces all offloads and refuses packets that need them.
struct FakeOutput(Arc<FakeState>);

impl SharedOutput for FakeOutput {
    fn capabilities_for(&self, _: &Packet) -> Capabilities {
        Capabilities { tx_checksum: true, tx_segmentation: true, ..Capabilities::WIRE }
    }

    fn send<'a>(&mut self, packets: impl ExactSizeIterator<Item = &'a Packet>) -> SentFrames {
        if self.0.is_busy.load(Relaxed) {
            return SentFrames::none(SendEnd::Busy);
        }
        let calls = self.0.calls_until_busy.load(Relaxed);
        if calls > 0 {
            self.0.calls_until_busy.store(calls - 1, Relaxed);
            self.0.is_busy.store(calls == 1, Relaxed);
        }
        let offered = packets.len();
        for (sent, packet) in packets.enumerate() {
            if self.0.takes_nothing.load(Relaxed) || needs_work(packet) {
                return SentFrames { frames: sent, end: SendEnd::Refused };
            }
            self.0.sent.lock().push(packet.frame().to_vec());
        }
        SentFrames { frames: offered, end: SendEnd::All }
    }
}

/// Returns a transmit queue over a fake output.
fn queue() -> (Arc<FakeState>, SharedTx<FakeOutput>, Arc<AtomicU64>) {
    let (state, lost) = (Arc::<FakeState>::default(), Arc::<AtomicU64>::default());
    let output = FakeOutput(Arc::clone(&state));
    let queue = SharedTx::new(output, Arc::clone(&lost), Arc::default());
    (state, queue, lost)
}

/// Returns a packet that needs no offload.
fn plain(pool: &mut Pool, byte: u8) -> Packet {
    let mut packet = pool.take(60, DatapathPort::default()).unwrap();
    packet.frame_mut().fill(byte);
    packet
}

/// Returns a TCP packet over IPv4 without its checksum.
///
/// The packet must be cut into segments of `size` bytes unless `size` is 0.
fn tcp(pool: &mut Pool, payload: u16, size: u16) -> Packet {
    let mut packet = pool.take(54 + usize::from(payload), DatapathPort::default()).unwrap();
    let frame = packet.frame_mut();
    frame.fill(7);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&(40 + payload).to_be_bytes());
    frame[20..24].copy_from_slice(&[0, 0, 64, 6]);
    frame[46] = 5 << 4;
    let pseudo = [&frame[26..34], &[0, 6], &(20 + payload).to_be_bytes()].concat();
    let pseudo = slow_sum(&pseudo);
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    packet.virtio = VirtioHeader {
        needs_checksum: true,
        checksum_start: 34,
        checksum_offset: 16,
        ..VirtioHeader::default()
    };
    if size > 0 {
        packet.virtio.gso_type = VirtioHeader::GSO_TCPV4;
        (packet.virtio.gso_size, packet.virtio.header_length) = (size, 54);
    }
    packet
}

/// Computes the Internet checksum (RFC 1071) word by word.
fn slow_sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    words.fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// Returns whether a TCP packet of [`tcp`] has the correct checksum.
fn is_complete(frame: &[u8]) -> bool {
    let length = u16::try_from(frame.len() - 34).unwrap();
    let pseudo = [&frame[26..34], &[0, 6], &length.to_be_bytes()].concat();
    slow_sum(&[&pseudo, &frame[34..]].concat()) == u16::MAX
}

/// Checks that the output got one plain frame, three of TCP, and another plain one.
fn assert_sent(state: &FakeState) {
    let sent = state.sent.lock();
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [60, 754, 1054, 554, 60]);
    assert!(sent[1..4].iter().all(|frame| is_complete(frame)));
    assert_eq!((sent[0][0], sent[4][0]), (1, 2));
}

/// Returns four packets.
fn packets(pool: &mut Pool) -> [Packet; 4] {
    [plain(pool, 1), tcp(pool, 700, 0), tcp(pool, 1500, 1000), plain(pool, 2)]
}

#[test]
fn refused_work_is_done_in_software() {
    let (state, mut queue, lost) = queue();
    let mut pool = Pool::new();
    let packets = packets(&mut pool);
    assert_eq!(queue.tx(&packets), 4);
    assert_sent(&state);
    assert_eq!((lost.load(Relaxed), queue.pool.out()), (0, 0));
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}

#[test]
fn work_of_waiting_packets_is_done_in_software() {
    let (state, mut queue, lost) = queue();
    let mut pool = Pool::new();
    let packets = packets(&mut pool);
    state.is_busy.store(true, Relaxed);
    assert_eq!(queue.tx(&packets), 4);
    assert!(queue.is_pending());
    state.is_busy.store(false, Relaxed);
    queue.flush();
    assert!(!queue.is_pending());
    assert_sent(&state);
    assert_eq!((lost.load(Relaxed), queue.pool.out()), (0, 0));
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}

/// A packet that waits or is completed is copied before it is sent.
#[test]
fn every_copy_of_a_packet_is_counted() {
    let (state, mut queue, _) = queue();
    let mut pool = Pool::new();
    let packets = packets(&mut pool);
    let copies = |queue: &SharedTx<FakeOutput>| {
        let FrameCopies { frames, bytes } = queue.copies.total();
        (frames, bytes)
    };
    // Two plain packets, and two that are also copied to be completed: five frames leave.
    let (sent, completed) = (60 + 754 + 1054 + 554 + 60, 754 + 1554);
    assert_eq!(queue.tx(&packets), 4);
    assert_eq!(copies(&queue), (5 + 2, sent + completed));
    // All four wait.
    state.is_busy.store(true, Relaxed);
    let waiting = 60 + 754 + 1554 + 60;
    assert_eq!(queue.tx(&packets), 4);
    assert_eq!(copies(&queue), (7 + 4, sent + completed + waiting));
    queue.flush();
    assert_eq!(copies(&queue).0, 11, "the output is busy");
    state.is_busy.store(false, Relaxed);
    queue.flush();
    assert_eq!(copies(&queue), (11 + 5, 2 * sent + completed + waiting));
    // A refused packet is not copied into the output.
    state.takes_nothing.store(true, Relaxed);
    assert_eq!(queue.tx(&packets[..1]), 0);
    assert_eq!(copies(&queue).0, 16);
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}

/// Waiting packets and segments of them have the port that received them.
#[test]
fn a_queue_knows_the_ports_of_its_packets() {
    let (state, mut queue, _) = queue();
    let mut pool = Pool::new();
    let (mut long, mut last) = (tcp(&mut pool, 1900, 100), plain(&mut pool, 2));
    (long.ingress, last.ingress) = (DatapathPort::new(7), DatapathPort::new(8));
    let holds = |queue: &SharedTx<FakeOutput>| {
        [7, 8, 9].map(|port| queue.holds_packets_of(DatapathPort::new(port)))
    };
    assert_eq!(holds(&queue), [false; 3]);
    state.is_busy.store(true, Relaxed);
    assert_eq!(queue.tx(std::slice::from_ref(&long)), 1);
    assert_eq!(holds(&queue), [true, false, false]);
    assert_eq!(queue.tx(std::slice::from_ref(&last)), 1);
    assert_eq!(holds(&queue), [true, true, false]);
    // The output refuses the first packet. The thread segments it, and finds the output busy.
    state.is_busy.store(false, Relaxed);
    state.calls_until_busy.store(1, Relaxed);
    queue.flush();
    assert_eq!(holds(&queue), [true, true, false]);
    state.is_busy.store(false, Relaxed);
    queue.flush();
    assert_eq!(holds(&queue), [false; 3]);
}

/// The output refuses the first waiting packet, which software then segments.
///
/// Another thread uses the output at that time. The segments take the place of their packet in the
/// backlog, and are sent before the later packets.
#[test]
fn segments_of_a_waiting_packet_take_its_place() {
    let (state, mut queue, lost) = queue();
    let mut pool = Pool::new();
    let (long, last) = (tcp(&mut pool, 1900, 100), plain(&mut pool, 2));
    state.is_busy.store(true, Relaxed);
    for _ in 1..BACKLOG_MAX {
        assert_eq!(queue.tx(std::slice::from_ref(&long)), 1);
    }
    assert_eq!(queue.tx(std::slice::from_ref(&last)), 1);
    let capacity = queue.backlog.capacity();
    for _ in 0..3 {
        state.is_busy.store(false, Relaxed);
        state.calls_until_busy.store(1, Relaxed);
        queue.flush();
        assert_eq!(queue.tx(std::slice::from_ref(&last)), 0);
        assert_eq!(queue.tx_end(), TxEnd::Full);
        assert!(queue.backlog.len() <= BACKLOG_MAX);
        assert_eq!(queue.backlog.capacity(), capacity, "the backlog does not grow");
        // The output takes the segments, and refuses the next packet.
        state.is_busy.store(false, Relaxed);
        state.calls_until_busy.store(1, Relaxed);
        queue.flush();
        assert!(queue.is_pending());
        assert_eq!(queue.tx(std::slice::from_ref(&last)), 1, "one packet is sent");
    }
    state.is_busy.store(false, Relaxed);
    queue.flush();
    assert!(!queue.is_pending());
    let sent = state.sent.lock();
    let lengths = sent.iter().map(Vec::len);
    let segments = (BACKLOG_MAX - 1) * 19;
    assert!(lengths.eq(std::iter::repeat_n(154, segments).chain([60; 4])));
    assert!(sent[..segments].iter().all(|frame| is_complete(frame)));
    assert_eq!((lost.load(Relaxed), queue.pool.out()), (0, 0));
    [long, last].into_iter().for_each(|packet| pool.put_back(packet));
}

#[test]
fn an_unsendable_packet_is_counted_lost_once() {
    let (state, mut queue, lost) = queue();
    let mut pool = Pool::new();
    let packets = packets(&mut pool);
    state.takes_nothing.store(true, Relaxed);
    assert_eq!(queue.tx(&packets[1..]), 0);
    assert_eq!(queue.tx_end(), TxEnd::Refused);
    state.is_busy.store(true, Relaxed);
    assert_eq!(queue.tx(&packets), 4);
    state.is_busy.store(false, Relaxed);
    queue.flush();
    assert!(!queue.is_pending() && state.sent.lock().is_empty());
    // Each segment of a waiting packet counts as one lost packet, as segments count when they are
    // sent.
    assert_eq!((lost.load(Relaxed), queue.pool.out()), (5, 0));
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}
