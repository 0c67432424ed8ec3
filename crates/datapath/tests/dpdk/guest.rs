//! Offloads between a DPDK port with the virtio driver and a vhost-user port.

use std::{
    thread,
    time::{Duration, Instant},
};

use shunt_datapath::{
    Packet, Pool, VirtioHeader,
    port::{
        Port, Queues,
        vhost_user::{SocketMode, VhostUser},
    },
};

use crate::ports::{is_complete, open, packet, partial};

/// A vhost-user port, and a DPDK port that acts as its guest.
struct Ends {
    _folder: tempfile::TempDir,
    _host: VhostUser,
    host_queues: Vec<Queues>,
    guest_queues: Vec<Queues>,
}

/// Connects a vhost-user port with a DPDK device of the given number.
fn connect(number: u8) -> Ends {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.sock");
    let mut host = VhostUser::new(&path, SocketMode::Server, 7);
    let host_queues = host.split(1).unwrap();
    let (guest, guest_queues) =
        open(&format!("net_virtio_user{number},path={}", path.display()), 1);
    wait_until(|| host.link_up());
    assert!(guest.capabilities().tx_checksum);
    // The queues keep the device open.
    drop(guest);
    Ends { _folder: folder, _host: host, host_queues, guest_queues }
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a real socket needs a real clock")]
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        #[expect(clippy::disallowed_methods, reason = "a deadline of the test needs the clock")]
        let now = Instant::now();
        assert!(now < deadline, "nothing arrives");
        thread::yield_now();
    }
}

/// Sends a packet from one port; returns the packets that the other port receives.
fn send_and_receive(
    from: &mut Queues,
    to: &mut Queues,
    pool: &mut Pool,
    sent: Packet,
    count: usize,
) -> Vec<Packet> {
    assert_eq!(from.tx.tx(std::slice::from_ref(&sent)), 1);
    from.tx.flush();
    pool.put_back(sent);
    let rx = to.rx.as_mut().unwrap();
    let mut received = Vec::new();
    wait_until(|| {
        rx.rx(pool, &mut received).unwrap();
        received.len() >= count
    });
    assert_eq!(received.len(), count);
    received
}

/// The virtio device offers checksums, so packets arrive without their checksums.
///
/// The device offers no IPv4 checksum, which segments need, so the port makes segments in software.
#[test]
fn checksums_are_left_to_a_capable_device() {
    let Ends { _folder, _host, mut host_queues, mut guest_queues } = connect(3);
    let (from, to) = (&mut guest_queues[0], &mut host_queues[0]);
    let mut pool = Pool::new();
    for protocol in [6, 17] {
        let (frame, virtio) = partial(protocol, 700);
        let whole = packet(&mut pool, &frame, virtio);
        let [received] = &send_and_receive(from, to, &mut pool, whole, 1)[..] else {
            panic!("one packet")
        };
        assert!(received.virtio.needs_checksum, "protocol {protocol}");
        assert_eq!(received.virtio.checksum_start, 34);
        assert_eq!(received.frame(), frame);
    }
    let (frame, virtio) = partial(6, 4000);
    let gso_type = VirtioHeader::GSO_TCPV4;
    let virtio = VirtioHeader { gso_type, gso_size: 1000, header_length: 54, ..virtio };
    let whole = packet(&mut pool, &frame, virtio);
    let received = send_and_receive(from, to, &mut pool, whole, 4);
    assert!(received.iter().all(|segment| is_complete(segment.frame())));
}

/// The DPDK driver cannot report that a checksum is incomplete.
///
/// So the DPDK port requests complete packets from the virtio device.
#[test]
fn a_dpdk_port_requests_complete_packets() {
    let Ends { _folder, _host, mut host_queues, mut guest_queues } = connect(4);
    let (from, to) = (&mut host_queues[0], &mut guest_queues[0]);
    let mut pool = Pool::new();
    for protocol in [6, 17] {
        let (frame, virtio) = partial(protocol, 700);
        let whole = packet(&mut pool, &frame, virtio);
        let [received] = &send_and_receive(from, to, &mut pool, whole, 1)[..] else {
            panic!("one packet")
        };
        assert_eq!(received.virtio, VirtioHeader::default());
        assert!(is_complete(received.frame()), "protocol {protocol}");
    }
    let (frame, virtio) = partial(6, 4000);
    let gso_type = VirtioHeader::GSO_TCPV4;
    let virtio = VirtioHeader { gso_type, gso_size: 1000, header_length: 54, ..virtio };
    let whole = packet(&mut pool, &frame, virtio);
    let received = send_and_receive(from, to, &mut pool, whole, 4);
    assert!(received.iter().all(|segment| is_complete(segment.frame())));
}
