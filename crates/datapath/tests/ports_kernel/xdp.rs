//! Tests AF_XDP ports, with a packet port at the other end of a veth pair.

use std::{
    collections::HashMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shunt_datapath::{
    Pool, PortError, TxEnd,
    port::{
        DeviceLosses, MtuRefusal, MtuRefusalReason, Port, PortCounters, PortSpec, Queues,
        af_xdp::{AfXdp, XdpMode},
        open,
    },
};
use shunt_pipeline::DatapathPort;

use crate::{
    close,
    frames::{
        LATE, LOST, QUIET, crosses, datagram, every_kind_of_frame, frame, packets, receive,
        receive_all, settles,
    },
    in_namespace, ip, packet_port, put_all_back, split_one,
};

/// Runs `test` in a new network namespace, if the kernel permits AF_XDP.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
pub(crate) fn with_xdp(test: impl FnOnce() + Send + 'static) {
    in_namespace(|| {
        cable(1);
        if let Some(error @ PortError::NotPermitted { .. }) =
            try_open(&xdp_spec(XdpMode::BestEffort))
        {
            eprintln!("SKIPPED: {error}");
            return;
        }
        ip("link del a0");
        test();
    });
}

/// Opens and closes a port with queues for one thread; returns the error.
fn try_open(spec: &PortSpec) -> Option<PortError> {
    let error = open(spec, 0).and_then(|mut port| port.split(1)).err();
    // Waits for child processes that have copies of the closed port's descriptors.
    close(());
    error
}

pub(crate) fn xdp_spec(mode: XdpMode) -> PortSpec {
    PortSpec::AfXdp { device: "a0".to_owned(), mtu: None, mode, busy_poll_us: 0 }
}

/// Returns the error of opening a port that must not open.
fn opening_error(spec: &PortSpec) -> PortError {
    try_open(spec).unwrap()
}

/// Creates a veth pair with `queues` queues in each direction.
pub(crate) fn cable(queues: u8) {
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    ip(&format!("link add a0 {queues} type veth peer name b0 {queues}"));
    ip("link set a0 up");
    ip("link set b0 up");
}

/// Creates a veth pair, with an AF_XDP port and a packet port at its ends.
fn open_ends(mode: XdpMode) -> (Box<dyn Port>, Box<dyn Port>) {
    cable(1);
    (open(&xdp_spec(mode), 0).unwrap(), packet_port("b0"))
}

pub(crate) const MODES: [XdpMode; 3] = [XdpMode::BestEffort, XdpMode::Native, XdpMode::Generic];

#[test]
fn frames_and_their_tags_cross_in_every_mode() {
    for mode in MODES {
        with_xdp(move || {
            let (mut a, mut b) = open_ends(mode);
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            assert!(settles(|| a.link_up() && b.link_up()));
            // 25 rounds send more frames than the rings have entries.
            for _ in 0..25 {
                crosses(&mut xdp, &mut peer, &every_kind_of_frame());
                crosses(&mut peer, &mut xdp, &every_kind_of_frame());
            }
            assert_eq!((a.counters(), b.counters()), Default::default(), "{mode}");
            assert!(matches!(a.split(1), Err(PortError::AlreadySplit { .. })));
        });
    }
}

/// Opens an AF_XDP port again on the same device.
///
/// Between fork and exec, a child process of another test also holds the earlier XDP program.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn attached_again(mode: XdpMode) -> Box<dyn Port> {
    let start = Instant::now();
    loop {
        match open(&xdp_spec(mode), 0) {
            // Waits for the child processes of other tests.
            Err(PortError::XdpAttached { .. }) if start.elapsed() < LOST => close(()),
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_device_can_be_attached_again_at_once() {
    with_xdp(|| {
        cable(1);
        let mut b = packet_port("b0");
        let mut peer = split_one(b.as_mut());
        for mode in MODES.into_iter().cycle().take(9) {
            let mut a = attached_again(mode);
            let mut xdp = split_one(a.as_mut());
            crosses(&mut peer, &mut xdp, &[frame(1, 60)]);
            close((a, xdp));
        }
    });
}

#[test]
fn more_threads_than_queues_all_send() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::BestEffort);
        let mut threads = a.split(3).unwrap();
        let mut peer = split_one(b.as_mut());
        let mut pool = Pool::new();
        assert_eq!(threads.iter().filter(|queues| queues.rx.is_some()).count(), 1);
        for (number, queues) in (0..).zip(&mut threads) {
            let sent = packets(&mut pool, &[frame(number, 60)]);
            assert_eq!(queues.tx.tx(&sent), 1);
            queues.tx.flush();
            put_all_back(&mut pool, sent);
            assert_eq!(receive(&mut peer, &mut pool, 1), [frame(number, 60)]);
        }
        crosses(&mut peer, &mut threads[0], &[frame(9, 60)]);
    });
}

#[test]
fn one_thread_serves_several_queues() {
    with_xdp(|| {
        cable(4);
        let mut a = open(&xdp_spec(XdpMode::Native), 0).unwrap();
        let mut b = packet_port("b0");
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let frames: Vec<_> = (0..64).map(|flow| datagram(flow, 0)).collect();
        let sent = packets(&mut pool, &frames);
        assert_eq!(peer.tx.tx(&sent), frames.len());
        put_all_back(&mut pool, sent);
        assert!(is_readable(&xdp), "a thread that waits is woken");
        let mut received: HashMap<_, usize> = HashMap::new();
        for frame in receive(&mut xdp, &mut pool, frames.len()) {
            *received.entry(frame).or_default() += 1;
        }
        assert!(frames.iter().all(|frame| received[frame] == 1));
        assert!(!is_readable(&xdp), "nothing is left");
    });
}

/// Returns whether the descriptor of a receive queue wakes a thread.
fn is_readable(queues: &Queues) -> bool {
    let fd = queues.rx.as_ref().unwrap().wait_fd().unwrap();
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn frames_beyond_the_ring_are_counted() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::Generic);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &vec![frame(1, 60); 100]);
        for _ in 0..20 {
            assert_eq!(peer.tx.tx(&sent), 100);
        }
        let received = receive_all(&mut xdp, &mut pool, LATE).len() as u64;
        assert!(received < 2000, "the ring has 1,024 entries");
        assert_eq!(a.counters().rx_dropped, 2000 - received);
    });
}

/// The kernel drops these frames before the XDP program.
#[test]
fn the_device_counts_frames_longer_than_its_mtu() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_xdp(move || {
            let (mut a, mut b) = open_ends(mode);
            ip("link set a0 mtu 1000");
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            let mut pool = Pool::new();
            let long = packets(&mut pool, &[frame(1, 1200)]);
            for _ in 0..3 {
                // The kernel may report each drop to the sender as a full queue.
                peer.tx.tx(&long);
                peer.tx.flush();
            }
            put_all_back(&mut pool, long);
            crosses(&mut peer, &mut xdp, &[frame(2, 60)]);
            assert_eq!(a.driver_counters(), [], "{mode}");
            a.note_losses(&DeviceLosses::read());
            assert_eq!(a.driver_counters(), [("device_rx_dropped".to_owned(), 3)], "{mode}");
            assert_eq!(a.counters(), PortCounters::default(), "{mode}");
        });
    }
}

/// The kernel may pass on a frame before it releases the ring entry of the chunk.
#[test]
fn frames_during_a_read_are_received_or_counted() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_xdp(move || {
            let (mut a, mut b) = open_ends(mode);
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            let sending = thread::spawn(move || {
                let mut pool = Pool::new();
                let sent = packets(&mut pool, &[frame(1, 60)]);
                (0..200_000).map(|_| peer.tx.tx(&sent) as u64).sum::<u64>()
            });
            let mut pool = Pool::new();
            let mut received = 0;
            while !sending.is_finished() {
                received += receive_all(&mut xdp, &mut pool, QUIET).len() as u64;
            }
            received += receive_all(&mut xdp, &mut pool, LATE).len() as u64;
            let sent = sending.join().unwrap();
            assert!(received > 1000, "{received} of {sent}");
            assert_eq!(received + a.counters().rx_dropped, sent, "{mode}");
        });
    }
}

/// A receive queue moves to another thread only when its packets are sent.
#[test]
fn transmit_ring_knows_ports_of_its_packets() {
    with_xdp(|| {
        let (mut a, _b) = open_ends(XdpMode::Native);
        let mut xdp = split_one(a.as_mut());
        let mut pool = Pool::new();
        let holds =
            |xdp: &Queues| [7, 8].map(|port| xdp.tx.holds_packets_of(DatapathPort::new(port)));
        // The ring has 1,024 entries, so these packets use each entry twice.
        for (port, expected) in [(7, [true, false]), (8, [false, true]), (7, [true, false])] {
            let mut sent = packets(&mut pool, &vec![frame(1, 60); 700]);
            sent.iter_mut().for_each(|packet| packet.ingress = DatapathPort::new(port));
            assert_eq!(xdp.tx.tx(&sent), sent.len());
            put_all_back(&mut pool, sent);
            assert_eq!(holds(&xdp), expected);
            (0..100).for_each(|_| xdp.tx.flush());
            assert_eq!(holds(&xdp), [false, false]);
        }
    });
}

#[test]
fn a_half_full_receive_ring_may_overflow() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::Generic);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let may_overflow = |xdp: &Queues, pause| xdp.rx.as_ref().unwrap().may_overflow(pause);
        let sent = packets(&mut pool, &vec![frame(1, 60); 100]);
        // The ring has 1,024 entries.
        for count in 1..=6 {
            assert_eq!(peer.tx.tx(&sent), sent.len());
            assert_eq!(may_overflow(&xdp, Duration::ZERO), count == 6);
        }
        assert_eq!(receive(&mut xdp, &mut pool, 600).len(), 600);
        assert!(!may_overflow(&xdp, Duration::ZERO));
        assert!(may_overflow(&xdp, Duration::from_millis(1)));
    });
}

#[test]
fn a_full_transmit_ring_takes_no_more() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::Native);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &vec![frame(1, 60); 1000]);
        assert_eq!(xdp.tx.tx(&sent), 1000);
        assert_eq!(xdp.tx.tx(&sent), 24, "nothing was flushed");
        assert_eq!(xdp.tx.tx_end(), TxEnd::Full);
        let mut arrived = 0;
        for _ in 0..100 {
            xdp.tx.flush();
            arrived += receive_all(&mut peer, &mut pool, QUIET).len();
            if arrived as u64 + b.counters().rx_dropped == 1024 {
                break;
            }
        }
        assert_eq!(arrived as u64 + b.counters().rx_dropped, 1024);
        assert_eq!(xdp.tx.tx(&sent), 1000, "the frames that were sent made room");
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::BestEffort);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &[frame(1, 60), frame(2, 1700), frame(3, 60)]);
        assert_eq!(xdp.tx.tx(&sent), 1);
        assert_eq!(xdp.tx.tx_end(), TxEnd::Refused);
        assert_eq!(xdp.tx.tx(&sent[2..]), 1);
        xdp.tx.flush();
        assert_eq!(receive(&mut peer, &mut pool, 2), [frame(1, 60), frame(3, 60)]);
        ip("link set a0 mtu 1650");
        ip("link set b0 mtu 1700");
        assert_eq!(a.mtu(), Some(1650));
        let sent = packets(&mut pool, &[frame(4, 1660)]);
        assert_eq!(xdp.tx.tx(&sent), 1, "the new MTU is in force");
        xdp.tx.flush();
        assert_eq!(receive(&mut peer, &mut pool, 1), [frame(4, 1660)]);
    });
}

#[test]
fn jumbo_frames_are_refused_with_the_limit() {
    with_xdp(|| {
        cable(1);
        let (max, mtu) = (AfXdp::mtu_max(), AfXdp::mtu_max() + 1);
        ip(&format!("link set a0 mtu {mtu}"));
        let text = opening_error(&xdp_spec(XdpMode::BestEffort)).to_string();
        let expected =
            format!("the MTU of a0 is {mtu}, and an af_xdp port takes at most {max}: lower it");
        assert!(text.starts_with(&expected), "{text}");
        // The MTU allows frames as long as a memory page.
        for device in ["a0", "b0"] {
            ip(&format!("link set {device} mtu 3000"));
        }
        let mut a = open(&xdp_spec(XdpMode::Generic), 0).unwrap();
        let mut b = packet_port("b0");
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        crosses(&mut xdp, &mut peer, &[frame(1, 3014), frame(2, 60)]);
        crosses(&mut peer, &mut xdp, &[frame(3, 3014), frame(4, 60)]);
    });
}

/// The port opens, and its device keeps its MTU.
#[test]
fn an_mtu_beyond_the_limit_is_not_set() {
    with_xdp(|| {
        cable(1);
        let (device, mode) = ("a0".to_owned(), XdpMode::Generic);
        let (max, mtu) = (AfXdp::mtu_max(), AfXdp::mtu_max() + 1);
        let mut port =
            open(&PortSpec::AfXdp { device, mtu: Some(mtu), mode, busy_poll_us: 0 }, 0).unwrap();
        assert_eq!(port.mtu(), Some(1500));
        let reason = MtuRefusalReason::PortType { max };
        assert_eq!(port.mtu_refusal(), Some(MtuRefusal { mtu, reason }));
        let _queues = port.split(1).unwrap();
    });
}

/// No event wakes a thread, so the test polls as a packet thread does.
#[test]
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn a_busy_polling_port_is_polled() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_xdp(move || {
            cable(1);
            let device = "a0".to_owned();
            let mut a =
                match open(&PortSpec::AfXdp { device, mtu: None, mode, busy_poll_us: 20 }, 0) {
                    // The kernel has this setting if it has CONFIG_NET_RX_BUSY_POLL.
                    Err(error @ PortError::NoBusyPoll { .. })
                        if !Path::new("/proc/sys/net/core/busy_poll").exists() =>
                    {
                        eprintln!("SKIPPED: {error}");
                        return;
                    }
                    opened => opened.unwrap(),
                };
            let mut b = packet_port("b0");
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            assert!(!a.capabilities().can_wait, "{mode}");
            assert!(xdp.rx.as_ref().unwrap().wait_fd().is_none(), "{mode}");
            let mut pool = Pool::new();
            let frames: Vec<_> = (0..60).map(|number| frame(number, 60)).collect();
            let sent = packets(&mut pool, &frames);
            for _ in 0..30 {
                assert_eq!(peer.tx.tx(&sent), frames.len());
                let (mut received, start) = (Vec::new(), Instant::now());
                while received.len() < frames.len() && start.elapsed() < LOST {
                    let mut burst = Vec::new();
                    xdp.rx.as_mut().unwrap().rx(&mut pool, &mut burst).unwrap();
                    received.extend(burst.iter().map(|packet| packet.frame().to_vec()));
                    put_all_back(&mut pool, burst);
                }
                assert!(received == frames, "{mode}: {} frames", received.len());
                assert_eq!(xdp.tx.tx(&sent), frames.len());
                xdp.tx.flush();
                assert!(receive(&mut peer, &mut pool, frames.len()) == frames, "{mode}");
            }
            assert_eq!(a.counters(), PortCounters::default(), "{mode}");
        });
    }
}

#[test]
fn a_device_has_one_port() {
    with_xdp(|| {
        let (mut a, b) = open_ends(XdpMode::Generic);
        assert!(matches!(opening_error(&xdp_spec(XdpMode::BestEffort)), PortError::Claimed { .. }));
        let spec = PortSpec::AfPacket { device: "a0".to_owned(), mtu: None, rx_slots: None };
        assert!(matches!(opening_error(&spec), PortError::Claimed { .. }));
        let _queues = a.split(1).unwrap();
        drop(b);
    });
}

#[test]
fn a_removed_device_is_reported() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::BestEffort);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        crosses(&mut peer, &mut xdp, &[frame(1, 60)]);
        ip("link del a0");
        let mut pool = Pool::new();
        let rx = xdp.rx.as_mut().unwrap();
        let error = (0..1000).find_map(|_| rx.rx(&mut pool, &mut Vec::new()).err());
        assert!(matches!(error, Some(PortError::DeviceGone { .. })), "{error:?}");
        assert!(!a.link_up());
        let sent = packets(&mut pool, &[frame(1, 60)]);
        xdp.tx.tx(&sent);
        xdp.tx.flush();
        assert!(matches!(
            opening_error(&xdp_spec(XdpMode::BestEffort)),
            PortError::NoDevice { .. }
        ));
    });
}

#[test]
fn a_device_that_is_down_is_attached() {
    with_xdp(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set b0 up");
        let (mut a, mut b) = (open(&xdp_spec(XdpMode::BestEffort), 0).unwrap(), packet_port("b0"));
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        ip("link set a0 up");
        assert!(settles(|| a.link_up() && b.link_up()));
        crosses(&mut peer, &mut xdp, &[frame(2, 60)]);
        crosses(&mut xdp, &mut peer, &[frame(3, 60)]);
    });
}

/// The kernel reports a device that is down only when frames wait for it.
#[test]
fn a_device_that_is_down_takes_no_more() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_xdp(move || {
            let (mut a, mut b) = open_ends(mode);
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            ip("link set a0 down");
            let mut pool = Pool::new();
            let sent = packets(&mut pool, &[frame(1, 60), frame(2, 60), frame(3, 60)]);
            assert_eq!(xdp.tx.tx(&sent[..2]), 2, "the frames wait in the ring");
            xdp.tx.flush();
            for _ in 0..2 {
                assert_eq!(xdp.tx.tx(&sent), 0, "{mode}");
                assert_eq!(xdp.tx.tx_end(), TxEnd::Down, "{mode}");
                xdp.tx.flush();
            }
            ip("link set a0 up");
            assert!(settles(|| a.link_up() && b.link_up()));
            assert_eq!(xdp.tx.tx(&sent[2..]), 1, "the device is up again");
            xdp.tx.flush();
            let expected = [frame(1, 60), frame(2, 60), frame(3, 60)];
            assert_eq!(receive(&mut peer, &mut pool, 3), expected, "{mode}");
            // The socket of a removed device is bound no more.
            ip("link del a0");
            xdp.tx.tx(&sent);
            xdp.tx.flush();
            assert_eq!(xdp.tx.tx(&sent), 0, "{mode}");
            assert_eq!(xdp.tx.tx_end(), TxEnd::Down, "{mode}");
            put_all_back(&mut pool, sent);
        });
    }
}

#[test]
fn a_port_continues_after_its_device_was_down() {
    with_xdp(|| {
        let (mut a, mut b) = open_ends(XdpMode::BestEffort);
        let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
        ip("link set a0 down");
        assert!(settles(|| !a.link_up()));
        let mut pool = Pool::new();
        assert_eq!(receive_all(&mut xdp, &mut pool, QUIET).len(), 0);
        ip("link set a0 up");
        assert!(settles(|| a.link_up() && b.link_up()));
        crosses(&mut peer, &mut xdp, &[frame(2, 60)]);
        crosses(&mut xdp, &mut peer, &[frame(3, 60)]);
    });
}

#[test]
fn an_unusable_mode_names_the_usable_ones() {
    with_xdp(|| {
        cable(1);
        let error = opening_error(&xdp_spec(XdpMode::NativeWithZerocopy)).to_string();
        let expected = "a0 with the driver veth does not support xdp_mode native-with-zerocopy: set \
                        xdp_mode to native or generic or best-effort";
        assert_eq!(error, expected);
    });
}

#[test]
fn a_port_is_lost_when_its_mtu_grows() {
    with_xdp(|| {
        let (mut near, _far) = open_ends(XdpMode::Generic);
        let queues = near.split(1).unwrap();
        assert_eq!(near.lost(), None);
        ip("link set a0 mtu 3000");
        assert_eq!(near.lost().as_deref(), Some("the MTU of a0 was raised to 3000"));
        ip("link set a0 mtu 9217");
        let reason = near.lost().unwrap();
        assert!(reason.starts_with("the MTU of a0 is 9217, and an af_xdp port takes"), "{reason}");
        ip("link set a0 mtu 1500");
        assert_eq!(near.lost(), None);
        close(queues);
    });
}
