//! Tests that each port of the kernel counts exactly the copies that it makes.

use shunt_datapath::{
    Pool,
    port::{FrameCopies, PortCopies, Queues, af_xdp::XdpMode, open},
};

use crate::{
    frames::{crosses, frame, packets, receive, settles, veth, veth_with},
    in_namespace, ip, packet_port, put_all_back, split_one,
    switchovers::make_busy,
    tap_port,
    xdp::{MODES, cable, with_xdp, xdp_spec},
};

/// Number of bytes of a long frame in the first of its two buffers.
const START: u64 = Pool::SMALL as u64;

/// Returns the copies of some received and sent frames.
const fn copies(rx: (u64, u64), tx: (u64, u64)) -> PortCopies {
    PortCopies {
        rx: FrameCopies { frames: rx.0, bytes: rx.1 },
        tx: FrameCopies { frames: tx.0, bytes: tx.1 },
    }
}

/// Returns `count` frames of 60 bytes.
fn short_frames(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, 60)).collect()
}

/// Sends frames from one port to the other and back.
fn exchange(left: &mut Queues, right: &mut Queues, frames: &[Vec<u8>]) {
    crosses(left, right, frames);
    crosses(right, left, frames);
}

#[test]
fn a_packet_socket_copies_only_starts_of_long_frames() {
    in_namespace(|| {
        let (mut a, mut b) = veth_with(Some(9000));
        assert!(settles(|| a.link_up() && b.link_up()));
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        exchange(&mut left, &mut right, &short_frames(20));
        crosses(&mut left, &mut right, &[frame(1, 2000)]);
        assert_eq!([a.copies(), b.copies()], [PortCopies::default(); 2], "the kernel copies");
        crosses(&mut left, &mut right, &[frame(1, 4000), frame(2, 9000)]);
        let long = copies((2, 2 * START), (0, 0));
        assert_eq!([a.copies(), b.copies()], [PortCopies::default(), long]);
    });
}

#[test]
fn a_receive_ring_copies_every_frame_once() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        assert!(settles(|| a.link_up() && b.link_up()));
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        make_busy(b.as_mut(), &mut right, &mut left);
        assert_eq!(b.copies(), PortCopies::default(), "all frames came from the socket");
        exchange(&mut left, &mut right, &short_frames(25));
        assert_eq!(b.copies(), copies((25, 25 * 60), (0, 0)));
        crosses(&mut left, &mut right, &[frame(1, 1514)]);
        assert_eq!(b.copies(), copies((26, 25 * 60 + 1514), (0, 0)));
        assert_eq!(a.copies(), PortCopies::default());
    });
}

#[test]
fn a_tap_copies_only_starts_of_long_frames() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        assert!(settles(|| tap.link_up()));
        ip("link set tap0 mtu 9000");
        let mut host = packet_port("tap0");
        let (mut switch, mut host) = (split_one(tap.as_mut()), split_one(host.as_mut()));
        exchange(&mut switch, &mut host, &short_frames(20));
        exchange(&mut switch, &mut host, &[frame(1, 2048)]);
        assert_eq!(tap.copies(), PortCopies::default(), "the kernel copies");
        exchange(&mut switch, &mut host, &[frame(1, 2049), frame(2, 9000)]);
        assert_eq!(tap.copies(), copies((2, 2 * START), (0, 0)));
    });
}

#[test]
fn af_xdp_copies_every_frame_once_each_way() {
    for mode in MODES {
        with_xdp(move || {
            cable(1);
            let (mut a, mut b) = (open(&xdp_spec(mode), 0).unwrap(), packet_port("b0"));
            let (mut xdp, mut peer) = (split_one(a.as_mut()), split_one(b.as_mut()));
            assert!(settles(|| a.link_up() && b.link_up()));
            assert_eq!(a.copies(), PortCopies::default(), "{mode}");
            crosses(&mut peer, &mut xdp, &short_frames(30));
            assert_eq!(a.copies(), copies((30, 30 * 60), (0, 0)), "{mode}");
            crosses(&mut xdp, &mut peer, &[frame(1, 60), frame(2, 1514)]);
            assert_eq!(a.copies(), copies((30, 30 * 60), (2, 60 + 1514)), "{mode}");
            assert_eq!(b.copies(), PortCopies::default(), "{mode}");
        });
    }
}

/// Threads without a queue of the device send by packet sockets.
#[test]
fn af_xdp_counts_the_copies_of_each_queue() {
    with_xdp(|| {
        cable(1);
        let (mut a, mut b) = (open(&xdp_spec(XdpMode::BestEffort), 0).unwrap(), packet_port("b0"));
        let (mut threads, mut peer) = (a.split(3).unwrap(), split_one(b.as_mut()));
        assert!(settles(|| a.link_up() && b.link_up()));
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &short_frames(5));
        // The first thread has the queue of the device.
        for queues in &mut threads {
            assert_eq!(queues.tx.tx(&sent), sent.len());
            queues.tx.flush();
            assert_eq!(receive(&mut peer, &mut pool, sent.len()).len(), sent.len());
            assert_eq!(a.copies(), copies((0, 0), (5, 5 * 60)));
        }
        put_all_back(&mut pool, sent);
    });
}
