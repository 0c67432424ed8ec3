//! Tests AF_XDP ports of devices with jumbo frames, which fill several chunks.

use std::time::Instant;

use shunt_datapath::{
    Packet, Pool, TxEnd,
    port::{
        Port, PortCounters, PortSpec, Queues, RxReport,
        af_xdp::{AfXdp, XdpMode},
        open,
    },
};
use shunt_pipeline::DatapathPort;

use crate::{
    frames::{LATE, LOST, QUIET, await_packet, crosses, frame, packets, receive, receive_all},
    inherited::handed_over,
    ip, packet_port, put_all_back, split_one,
    xdp::{MODES, cable, with_xdp, xdp_spec},
};

/// Length of a frame of three chunks, which fills an MTU of 9000 bytes.
const JUMBO: usize = 9014;

/// Runs `test` with a veth pair and an MTU of 9000, if the kernel permits it.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn with_jumbo_frames(test: impl FnOnce() + Send + 'static) {
    with_xdp(|| {
        if AfXdp::mtu_max() < 9000 {
            eprintln!("SKIPPED: frames of several chunks need Linux 6.6");
            return;
        }
        cable(1);
        ip("link set a0 mtu 9000");
        ip("link set b0 mtu 9000");
        test();
    });
}

fn xdp_port(device: &str, mtu: Option<u32>, mode: XdpMode) -> Box<dyn Port> {
    open(&PortSpec::AfXdp { device: device.to_owned(), mtu, mode, busy_poll_us: 0 }, 0).unwrap()
}

/// Returns frames around the limits of chunks, with short frames between them.
///
/// The kernel writes 3840 bytes into a chunk, and the port 4096.
fn frames_of_all_lengths() -> Vec<Vec<u8>> {
    let limits = [3840, 4096, 2 * 3840, 2 * 4096].into_iter();
    let lengths = limits.flat_map(|limit| [limit - 1, limit, limit + 1]).chain([9000, JUMBO]);
    (0..)
        .zip(lengths.flat_map(|length| [length, 60]))
        .map(|(n, length)| numbered(n, length))
        .collect()
}

/// Returns a frame in which each part has other bytes.
fn numbered(number: u8, length: usize) -> Vec<u8> {
    let mut frame = frame(number, length);
    for (position, byte) in frame.iter_mut().enumerate().skip(14) {
        let [low, high, ..] = position.to_le_bytes();
        *byte = byte.wrapping_add(low).wrapping_add(high);
    }
    frame
}

/// Sends all packets, although the socket may take only some of them at a time.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn send_all(queues: &mut Queues, sent: &[Packet]) {
    let (mut rest, start) = (sent, Instant::now());
    while !rest.is_empty() {
        rest = &rest[queues.tx.tx(rest)..];
        assert!(start.elapsed() < LOST, "{} frames are not sent", rest.len());
    }
}

#[test]
fn jumbo_frames_cross_in_every_mode() {
    for mode in MODES {
        with_jumbo_frames(move || {
            let (mut a, mut b) = (open(&xdp_spec(mode), 0).unwrap(), packet_port("b0"));
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            // 25 rounds fill more chunks than the rings have entries.
            for _ in 0..25 {
                crosses(&mut xdp, &mut peer, &frames_of_all_lengths());
                crosses(&mut peer, &mut xdp, &frames_of_all_lengths());
            }
            assert_eq!((a.counters(), b.counters()), Default::default(), "{mode}");
        });
    }
}

#[test]
fn jumbo_frames_cross_between_two_xdp_ports() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_jumbo_frames(move || {
            let (mut a, mut b) = (xdp_port("a0", None, mode), xdp_port("b0", None, mode));
            let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
            for _ in 0..3 {
                crosses(&mut left, &mut right, &frames_of_all_lengths());
                crosses(&mut right, &mut left, &frames_of_all_lengths());
            }
            assert_eq!((a.counters(), b.counters()), Default::default(), "{mode}");
        });
    }
}

/// A frame without enough free chunks is dropped as a whole.
#[test]
fn jumbo_frames_beyond_the_ring_are_counted() {
    with_jumbo_frames(|| {
        let (mut a, mut b) = (open(&xdp_spec(XdpMode::Generic), 0).unwrap(), packet_port("b0"));
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let jumbo = numbered(1, JUMBO);
        let sent = packets(&mut pool, &vec![jumbo.clone(); 50]);
        for _ in 0..10 {
            send_all(&mut peer, &sent);
        }
        let received = receive_all(&mut xdp, &mut pool, LATE);
        assert!((300..=341).contains(&received.len()), "three of 1,024 entries for each");
        assert!(received.iter().all(|own| *own == jumbo), "no frame lacks a part");
        let lost = 500 - received.len() as u64;
        assert_eq!(a.counters().rx_dropped, lost);
        // All chunks are free again.
        for _ in 0..6 {
            send_all(&mut peer, &sent);
        }
        assert_eq!(receive(&mut xdp, &mut pool, 300), vec![jumbo; 300]);
        assert_eq!(a.counters().rx_dropped, lost);
    });
}

#[test]
fn jumbo_frames_without_a_buffer_are_refused() {
    with_jumbo_frames(|| {
        let (mut a, mut b) = (open(&xdp_spec(XdpMode::Native), 0).unwrap(), packet_port("b0"));
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let (mut pool, mut empty) = (Pool::new(), Pool::new());
        let large = || empty.take(JUMBO, DatapathPort::default());
        let held: Vec<_> = std::iter::from_fn(large).collect();
        let mut frames = vec![numbered(1, JUMBO); 50];
        frames.insert(25, numbered(2, 60));
        let sent = packets(&mut pool, &frames);
        // 12 rounds fill more chunks than the port has.
        for _ in 0..12 {
            send_all(&mut peer, &sent);
            let (mut refused, mut received) = (0, Vec::new());
            while refused < 50 || received.is_empty() {
                await_packet(&xdp, &RxReport::default(), LOST);
                let mut burst = Vec::new();
                let report = xdp.rx.as_mut().unwrap().rx(&mut empty, &mut burst).unwrap();
                assert!(report.refused > 0 || !burst.is_empty(), "a frame is lost");
                assert_eq!(report.refused, report.no_buffer);
                refused += report.refused;
                received.extend(burst.iter().map(|packet| packet.frame().to_vec()));
                put_all_back(&mut empty, burst);
            }
            assert_eq!((refused, received), (50, vec![numbered(2, 60)]));
        }
        put_all_back(&mut empty, held);
        assert_eq!(a.counters().rx_dropped, 0);
        crosses(&mut peer, &mut xdp, &frames_of_all_lengths());
    });
}

/// The ring never takes a part of a frame.
#[test]
fn a_full_transmit_ring_takes_whole_frames() {
    with_jumbo_frames(|| {
        let (mut a, mut b) = (open(&xdp_spec(XdpMode::Native), 0).unwrap(), packet_port("b0"));
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let (jumbo, short) = (numbered(1, JUMBO), numbered(2, 60));
        let sent = packets(&mut pool, &vec![jumbo.clone(); 100]);
        let taken: usize = (0..4).map(|_| xdp.tx.tx(&sent)).sum();
        assert_eq!((taken, xdp.tx.tx_end()), (341, TxEnd::Full), "three of 1,024 entries for each");
        let two = packets(&mut pool, &[short.clone(), short.clone()]);
        assert_eq!(xdp.tx.tx(&two), 1, "one entry is left");
        let mut arrived = Vec::new();
        for _ in 0..100 {
            // A system call may end between two parts of a frame.
            xdp.tx.flush();
            arrived.extend(receive_all(&mut peer, &mut pool, QUIET));
            if arrived.len() as u64 + b.counters().rx_dropped == 342 {
                break;
            }
        }
        assert_eq!(arrived.len() as u64 + b.counters().rx_dropped, 342);
        assert!(arrived.contains(&jumbo), "not all frames are dropped");
        assert!(arrived.iter().all(|own| *own == jumbo || *own == short), "no frame lacks a part");
        assert_eq!(a.counters().tx_dropped, 0);
        assert_eq!(xdp.tx.tx(&sent), 100, "the frames that were sent made room");
    });
}

#[test]
fn a_jumbo_mtu_is_set_and_may_change() {
    with_jumbo_frames(|| {
        ip("link set a0 mtu 1500");
        let mut a = xdp_port("a0", Some(9000), XdpMode::BestEffort);
        assert_eq!((a.mtu(), a.mtu_refusal()), (Some(9000), None));
        assert_eq!(a.capabilities().frame_max, 9216 + 22);
        let mut b = packet_port("b0");
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        crosses(&mut xdp, &mut peer, &frames_of_all_lengths());
        for device in ["a0", "b0"] {
            ip(&format!("link set {device} mtu 9216"));
        }
        assert_eq!((a.mtu(), a.lost()), (Some(9216), None));
        let longest = [numbered(1, 9230), numbered(2, 60)];
        crosses(&mut xdp, &mut peer, &longest);
        crosses(&mut peer, &mut xdp, &longest);
        ip("link set a0 mtu 9300");
        assert!(a.lost().is_some_and(|reason| reason.contains("at most 9216")));
    });
}

/// A system call sends 128 parts at most, so it ends between two parts of a frame.
#[test]
fn the_next_process_sends_rest_of_frame() {
    with_jumbo_frames(|| {
        let spec = xdp_spec(XdpMode::Native);
        let (mut port, mut b) = (open(&spec, 0).unwrap(), packet_port("b0"));
        let (mut queues, mut peer) = (split_one(port.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let jumbo = vec![numbered(1, JUMBO); 60];
        let sent = packets(&mut pool, &jumbo);
        for round in 0..3 {
            assert_eq!(queues.tx.tx(&sent), 60);
            queues.tx.flush();
            send_all(&mut peer, &sent);
            (port, queues) = handed_over(port, queues, &spec);
            assert!(receive(&mut peer, &mut pool, 60) == jumbo, "sent in round {round}");
            assert!(receive(&mut queues, &mut pool, 60) == jumbo, "received in round {round}");
        }
        assert!(!port.must_discard_stored());
        assert_eq!(port.counters(), PortCounters::default());
    });
}
