//! Tests that each frame is received as it was sent, or is counted.

use std::{
    collections::HashMap,
    fs,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv,
            setsockopt, socket, sockopt::ReceiveTimeout,
        },
        time::{TimeVal, TimeValLike},
    },
};
use shunt_datapath::{
    Packet, Pool, PortError, TxEnd, VirtioHeader,
    port::{Port, PortSpec, Queues, RxReport, open, tap},
};
use shunt_pipeline::DatapathPort;

use crate::{
    close, in_namespace, ip, packet_port, put_all_back, split_one, switchovers::make_busy, tap_port,
};

fn has_device(name: &str) -> bool {
    fs::read_to_string("/proc/thread-self/net/dev").unwrap().contains(&format!("{name}:"))
}

/// Creates a veth pair; returns a packet port for each end.
pub(crate) fn veth() -> (Box<dyn Port>, Box<dyn Port>) {
    veth_with(None)
}

/// Creates a veth pair with an MTU; returns a packet port for each end.
pub(crate) fn veth_with(mtu: Option<u32>) -> (Box<dyn Port>, Box<dyn Port>) {
    ip("link add a0 type veth peer name b0");
    ip("link set a0 up");
    ip("link set b0 up");
    let port = |device: &str| {
        open(&PortSpec::AfPacket { device: device.to_owned(), mtu, rx_slots: None }, 0).unwrap()
    };
    (port("a0"), port("b0"))
}

/// Waits until a condition is true; returns whether it became true.
///
/// The kernel may update the state of a link a second later, and then sends a netlink event.
pub(crate) fn settles(is_true: impl Fn() -> bool) -> bool {
    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
    let events = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
    let group_of_links = 1;
    bind(events.as_raw_fd(), &NetlinkAddr::new(0, group_of_links)).unwrap();
    setsockopt(&events, ReceiveTimeout, &TimeVal::seconds(10)).unwrap();
    let mut event = [0; 8192];
    while !is_true() {
        if recv(events.as_raw_fd(), &mut event, MsgFlags::empty()).is_err() {
            return is_true();
        }
    }
    true
}

/// Returns a frame with an EtherType that no network stack handles.
pub(crate) fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![number; length.max(14)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame.truncate(length);
    frame
}

fn with_tag(mut frame: Vec<u8>, tag: [u8; 4]) -> Vec<u8> {
    frame.splice(12..12, tag);
    frame
}

pub(crate) fn packets(pool: &mut Pool, frames: &[Vec<u8>]) -> Vec<Packet> {
    let packet = |frame: &Vec<u8>| {
        let mut packet = pool.take(frame.len(), DatapathPort::default()).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        packet
    };
    frames.iter().map(packet).collect()
}

/// Time after which a frame that was sent counts as lost.
pub(crate) const LOST: Duration = Duration::from_secs(20);
/// Time without a frame after which the kernel delivers none of earlier sends.
pub(crate) const LATE: Duration = Duration::from_secs(1);
/// Time for which a test waits for a frame that must not arrive.
pub(crate) const QUIET: Duration = Duration::from_millis(20);

/// Waits until a queue has a packet or is broken, at most for the time `limit`.
///
/// `report` is the report of the last receive: no event announces packets that the queue holds.
pub(crate) fn await_packet(queues: &Queues, report: &RxReport, limit: Duration) {
    let limit = if report.must_poll { Duration::ZERO } else { limit };
    let milliseconds = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
    let fd = queues.rx.as_ref().unwrap().wait_fd().unwrap();
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::from(milliseconds.saturating_add(1))).unwrap();
}

/// Receives from a port until `count` packets have arrived.
///
/// The function also ends after the time `idle` without a packet. `take` gets each burst that
/// arrives.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
pub(crate) fn poll_bursts(
    queues: &mut Queues,
    pool: &mut Pool,
    count: usize,
    idle: Duration,
    mut take: impl FnMut(&mut Pool, Vec<Packet>),
) {
    let (mut arrived, mut end) = (0, Instant::now() + idle);
    while arrived < count {
        let mut burst = Vec::new();
        let report = queues.rx.as_mut().unwrap().rx(pool, &mut burst).unwrap();
        assert_eq!(report.refused, 0);
        if !burst.is_empty() {
            arrived += burst.len();
            take(pool, burst);
            end = Instant::now() + idle;
            continue;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        await_packet(queues, &report, left);
    }
}

/// Receives until `count` frames have arrived, which were sent before.
pub(crate) fn receive(queues: &mut Queues, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    receive_while(queues, pool, count, LOST)
}

/// Receives until no frame has arrived for the time `idle`.
pub(crate) fn receive_all(queues: &mut Queues, pool: &mut Pool, idle: Duration) -> Vec<Vec<u8>> {
    receive_while(queues, pool, usize::MAX, idle)
}

/// Receives until `count` frames have arrived, or no frame for the time `idle`.
fn receive_while(
    queues: &mut Queues,
    pool: &mut Pool,
    count: usize,
    idle: Duration,
) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    poll_bursts(queues, pool, count, idle, |pool, burst| {
        frames.extend(burst.iter().map(|packet| packet.frame().to_vec()));
        put_all_back(pool, burst);
    });
    frames
}

/// Returns the first burst that arrives in time; empty without packets.
fn first_burst(queues: &mut Queues, pool: &mut Pool) -> Vec<Packet> {
    let mut first = Vec::new();
    poll_bursts(queues, pool, 1, LOST, |_, burst| first = burst);
    first
}

/// Checks that `to` receives the frames of `from`, and that `from` receives none.
pub(crate) fn crosses(from: &mut Queues, to: &mut Queues, frames: &[Vec<u8>]) {
    let mut pool = Pool::new();
    let sent = packets(&mut pool, frames);
    assert_eq!(from.tx.tx(&sent), frames.len());
    from.tx.flush();
    assert_eq!(receive(to, &mut pool, frames.len()), frames);
    assert_eq!(receive_all(from, &mut pool, QUIET), Vec::<Vec<u8>>::new(), "no port hears itself");
    put_all_back(&mut pool, sent);
    assert_eq!(pool.out(), 0);
}

pub(crate) fn every_kind_of_frame() -> Vec<Vec<u8>> {
    let plain = (0..100).map(|number| frame(number, 60 + usize::from(number)));
    let customer = with_tag(frame(200, 60), [0x81, 0x00, 0xe0, 0x07]);
    let service = with_tag(frame(201, 1500), [0x88, 0xa8, 0x10, 0x08]);
    let both =
        with_tag(with_tag(frame(202, 60), [0x81, 0x00, 0x00, 0x01]), [0x88, 0xa8, 0x0f, 0xff]);
    let priority = with_tag(frame(203, 60), [0x81, 0x00, 0x60, 0x00]);
    plain.chain([customer, service, both, priority, frame(204, 1514)]).collect()
}

#[test]
fn frames_and_their_tags_cross_a_veth() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        assert!(settles(|| a.link_up() && b.link_up()));
        assert_ne!(a.mac(), b.mac());
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        for round in 0..5 {
            // From round 2 on, one end reads a ring, and the other a socket.
            if round == 2 {
                make_busy(b.as_mut(), &mut right, &mut left);
            }
            crosses(&mut left, &mut right, &every_kind_of_frame());
            crosses(&mut right, &mut left, &every_kind_of_frame());
        }
        assert_eq!((a.counters(), b.counters()), Default::default());
        assert!(matches!(a.split(1), Err(PortError::AlreadySplit { .. })));
    });
}

#[test]
fn long_and_short_frames_stay_in_order() {
    in_namespace(|| {
        let (mut a, mut b) = veth_with(Some(9000));
        assert!(settles(|| a.link_up() && b.link_up()));
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        // One end reads a ring, the other a socket.
        make_busy(b.as_mut(), &mut right, &mut left);
        let length = |number: u8| {
            if number.is_multiple_of(3) { 60 } else { 1400 + 100 * usize::from(number) }
        };
        let mut frames: Vec<_> = (0..30).map(|number| frame(number, length(number))).collect();
        frames.push(with_tag(frame(31, 8000), [0x81, 0x00, 0x20, 0x07]));
        for _ in 0..3 {
            crosses(&mut left, &mut right, &frames);
            crosses(&mut right, &mut left, &frames);
        }
        assert_eq!((a.counters(), b.counters()), Default::default());
    });
}

#[test]
fn excess_long_frames_count_as_ring_full() {
    in_namespace(|| {
        let (mut a, mut b) = veth_with(Some(65_000));
        assert!(settles(|| a.link_up() && b.link_up()));
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        make_busy(b.as_mut(), &mut right, &mut left);
        let mut pool = Pool::new();
        let long = packets(&mut pool, &[frame(1, 60_000)]);
        let sent = 400_u32;
        (0..sent).for_each(|_| assert_eq!(left.tx.tx(&long), 1));
        let short = packets(&mut pool, &[frame(2, 60)]);
        assert_eq!(left.tx.tx(&short), 1);
        let (mut received, mut full, mut last) = (0, 0, Vec::new());
        while received + full < sent + 1 {
            let mut burst = Vec::new();
            let report = right.rx.as_mut().unwrap().rx(&mut pool, &mut burst).unwrap();
            assert_eq!(report.refused, report.ring_full);
            full += report.ring_full;
            received += u32::try_from(burst.len()).unwrap();
            last = burst.last().map_or(last, |packet| packet.frame().to_vec());
            put_all_back(&mut pool, burst);
        }
        assert!(full > 0 && received > 100, "{received} received, {full} lost");
        assert_eq!(last, frame(2, 60), "slots without a frame in the queue are skipped");
    });
}

/// Returns the size in bytes of each receive ring of this process.
pub(crate) fn ring_bytes() -> Vec<u64> {
    let maps = fs::read_to_string("/proc/thread-self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("socket:"));
    let bytes = rings.map(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        address(end) - address(start)
    });
    bytes.collect()
}

#[test]
fn an_unsendable_frame_does_not_stop_the_others() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let frames = [frame(1, 60), frame(2, 4000), frame(3, 60), frame(4, 10), frame(5, 60)]
            .map(|frame| frame.to_vec());
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &frames);
        for refused in [1, 3] {
            let from = if refused == 1 { 0 } else { 2 };
            assert_eq!(left.tx.tx(&sent[from..]), refused - from);
            assert_eq!(left.tx.tx_end(), TxEnd::Refused);
        }
        assert_eq!(left.tx.tx(&sent[4..]), 1);
        let received = receive(&mut right, &mut pool, 3);
        assert_eq!(received, [frame(1, 60), frame(3, 60), frame(5, 60)]);
    });
}

/// Sends more frames than the queue holds; checks that each is received or counted.
fn check_received_or_counted(
    port: &dyn Port,
    sender: &mut Queues,
    queues: &mut Queues,
    bursts: u64,
) {
    let mut pool = Pool::new();
    let frames: Vec<_> = (0..250).map(|number| frame(number, 60)).collect();
    let sent = packets(&mut pool, &frames);
    for _ in 0..bursts {
        assert_eq!(sender.tx.tx(&sent), 250);
    }
    let count = 250 * bursts;
    let received = receive_all(queues, &mut pool, LATE).len() as u64;
    assert!(received < count);
    assert_eq!(port.counters().rx_dropped, count - received);
    assert_eq!(port.counters().rx_dropped, count - received, "asked for twice, counted once");
}

#[test]
fn the_port_counts_losses_of_a_full_ring() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        make_busy(b.as_mut(), &mut right, &mut left);
        check_received_or_counted(&*b, &mut left, &mut right, 4);
    });
}

#[test]
fn the_port_counts_losses_of_a_full_socket() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        check_received_or_counted(&*b, &mut left, &mut right, 200);
    });
}

#[test]
fn frames_without_a_buffer_are_refused() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let (mut pool, mut empty) = (Pool::new(), Pool::new());
        let held: Vec<_> = std::iter::from_fn(|| empty.take(60, DatapathPort::default())).collect();
        let sent = packets(&mut pool, &[frame(1, 60), frame(2, 60)]);
        assert_eq!(left.tx.tx(&sent), 2);
        let mut refused = 0;
        for _ in 0..3 {
            let mut burst = Vec::new();
            let report = right.rx.as_mut().unwrap().rx(&mut empty, &mut burst).unwrap();
            assert_eq!((burst.len(), report.refused), (0, report.no_buffer));
            refused += report.refused;
        }
        assert_eq!(refused, 2);
        put_all_back(&mut empty, held);
        crosses(&mut left, &mut right, &[frame(3, 60)]);
    });
}

#[test]
fn a_port_reports_a_removed_device() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        crosses(&mut left, &mut right, &[frame(1, 60)]);
        ip("link del a0");
        let mut pool = Pool::new();
        for (port, queues) in [(&a, &mut left), (&b, &mut right)] {
            let sent = packets(&mut pool, &[frame(1, 60)]);
            assert_eq!(queues.tx.tx(&sent), 0);
            put_all_back(&mut pool, sent);
            let rx = queues.rx.as_mut().unwrap();
            let error = (0..1000).find_map(|_| rx.rx(&mut pool, &mut Vec::new()).err());
            assert!(matches!(error, Some(PortError::DeviceGone { .. })), "{error:?}");
            assert!(!port.link_up());
        }
    });
}

#[test]
fn a_port_continues_after_its_device_was_down() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        ip("link set b0 down");
        assert!(settles(|| !a.link_up() && !b.link_up()));
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &[frame(1, 60)]);
        assert_eq!(right.tx.tx(&sent), 0, "the device is down");
        assert_eq!(right.tx.tx_end(), TxEnd::Down);
        left.tx.tx(&sent);
        left.tx.flush();
        put_all_back(&mut pool, sent);
        assert_eq!(receive_all(&mut right, &mut pool, QUIET).len(), 0);
        ip("link set b0 up");
        assert!(settles(|| a.link_up() && b.link_up()));
        crosses(&mut left, &mut right, &[frame(2, 60)]);
        crosses(&mut right, &mut left, &[frame(3, 60)]);
        ip("link set b0 down");
        ip("link del b0");
        let rx = right.rx.as_mut().unwrap();
        let error = (0..1000).find_map(|_| rx.rx(&mut pool, &mut Vec::new()).err());
        assert!(matches!(error, Some(PortError::DeviceGone { .. })), "{error:?}");
    });
}

#[test]
fn a_missing_device_is_named() {
    in_namespace(|| {
        let Err(error) =
            open(&PortSpec::AfPacket { device: "eth7".to_owned(), mtu: None, rx_slots: None }, 0)
        else {
            panic!("the port was opened")
        };
        assert_eq!(error.to_string(), "there is no device eth7");
        ip("link add a0 type veth peer name b0");
        let Err(error) = open(
            &PortSpec::Tap { device: "a0".to_owned(), settings: tap::TapSettings::default() },
            0,
        ) else {
            panic!("the port was opened")
        };
        assert!(matches!(error, PortError::NotTap { .. }), "{error:?}");
    });
}

/// Returns a UDP datagram of a flow.
pub(crate) fn datagram(flow: u8, number: u8) -> Vec<u8> {
    let mut frame = frame(number, 60);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 1, 0, 1,
    ]);
    frame[34..42].copy_from_slice(&[flow, 1, 0, 53, 0, 26, 0, 0]);
    frame
}

#[test]
fn each_flow_of_a_device_has_one_thread() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let mut left = split_one(a.as_mut());
        let mut right = b.split(3).unwrap();
        let frames: Vec<_> =
            (0..3u8).flat_map(|number| (0..40).map(move |flow| datagram(flow, number))).collect();
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &frames);
        assert_eq!(left.tx.tx(&sent), frames.len());
        let (mut owner, mut received) = (HashMap::new(), 0);
        for (thread, queues) in right.iter_mut().enumerate() {
            let mut numbers: HashMap<u8, Vec<u8>> = HashMap::new();
            for frame in receive_all(queues, &mut pool, LATE) {
                assert_eq!(*owner.entry(frame[29]).or_insert(thread), thread);
                numbers.entry(frame[29]).or_default().push(frame[59]);
                received += 1;
            }
            assert!(numbers.values().all(|numbers| numbers == &[0, 1, 2]), "in order");
        }
        assert_eq!(received, frames.len());
        assert!(owner.values().any(|thread| *thread != owner[&0]), "more than one receives");
        for queues in &mut right {
            assert_eq!(queues.tx.tx(&sent[..1]), 1);
        }
        assert_eq!(receive(&mut left, &mut pool, 3).len(), 3);
        assert!(right.iter_mut().all(|queues| receive_all(queues, &mut pool, QUIET).is_empty()));
    });
}

#[test]
fn frames_and_their_tags_cross_a_tap() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        assert!(settles(|| tap.link_up()));
        let mut host = packet_port("tap0");
        assert_eq!(tap.mac(), host.mac());
        let (mut switch, mut host) = (split_one(tap.as_mut()), split_one(host.as_mut()));
        for _ in 0..3 {
            crosses(&mut switch, &mut host, &every_kind_of_frame());
            crosses(&mut host, &mut switch, &every_kind_of_frame());
        }
        assert_eq!(tap.counters(), Default::default());
    });
}

#[test]
fn created_tap_is_removed_with_last_queue() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        let mut queues = tap.split(4).unwrap();
        assert_eq!(queues.len(), 4);
        assert!(matches!(tap.split(1), Err(PortError::AlreadySplit { .. })));
        queues.truncate(1);
        assert!(has_device("tap0"));
        drop(queues);
        assert!(has_device("tap0"), "the port has its queues until it closes");
        close(tap);
        assert!(!has_device("tap0"));
        close(tap_port("tap0"));
    });
}

#[test]
fn a_removed_tap_is_reported() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        let mut queues = split_one(tap.as_mut());
        let mut pool = Pool::new();
        ip("link set tap0 down");
        let sent = packets(&mut pool, &[frame(1, 60)]);
        assert_eq!(queues.tx.tx(&sent), 0, "the device is down");
        assert_eq!(queues.tx.tx_end(), TxEnd::Down);
        assert!(!tap.link_up());
        assert_eq!(receive_all(&mut queues, &mut pool, QUIET).len(), 0);
        ip("link del tap0");
        assert_eq!(queues.tx.tx(&sent), 0);
        assert_eq!(queues.tx.tx_end(), TxEnd::Down);
        put_all_back(&mut pool, sent);
        let error = queues.rx.as_mut().unwrap().rx(&mut pool, &mut Vec::new()).err();
        assert!(matches!(error, Some(PortError::DeviceGone { .. })), "{error:?}");
        assert_eq!(pool.out(), 0);
    });
}

#[test]
fn a_tap_without_buffers_continues_later() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        let mut host = packet_port("tap0");
        let (mut switch, mut host) = (split_one(tap.as_mut()), split_one(host.as_mut()));
        let (mut pool, mut empty) = (Pool::new(), Pool::new());
        let held: Vec<_> = std::iter::from_fn(|| empty.take(60, DatapathPort::default())).collect();
        let sent = packets(&mut pool, &[frame(1, 60), frame(2, 60)]);
        assert_eq!(host.tx.tx(&sent), 2);
        let mut burst = Vec::new();
        let report = switch.rx.as_mut().unwrap().rx(&mut empty, &mut burst).unwrap();
        assert_eq!((burst.len(), report.refused), (0, 2));
        put_all_back(&mut empty, held);
        crosses(&mut host, &mut switch, &[frame(3, 60)]);
    });
}

#[test]
fn an_offloaded_checksum_is_completed() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let mut sent = packets(&mut pool, &[datagram(1, 9)]);
        sent[0].virtio = VirtioHeader {
            needs_checksum: true,
            checksum_start: 34,
            checksum_offset: 6,
            ..VirtioHeader::default()
        };
        assert_eq!(left.tx.tx(&sent), 1);
        let burst = first_burst(&mut right, &mut pool);
        assert_eq!(burst[0].virtio, sent[0].virtio, "a veth leaves it to the receiver");
        assert_eq!(burst[0].frame(), sent[0].frame());
    });
}

/// Returns a TCP packet with a VLAN tag, to be cut into five segments.
fn tagged_segments(pool: &mut Pool) -> Packet {
    let mut frame = with_tag(frame(0, 14), [0x81, 0x00, 0x00, 0x05]);
    frame[16..18].copy_from_slice(&[8, 0]);
    frame.extend([0x45, 0, 0x13, 0xb0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 80, 0, 81, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..5000).map(|number: u32| number.to_be_bytes()[3]));
    let mut packet = packets(pool, &[frame]).remove(0);
    packet.virtio = VirtioHeader {
        needs_checksum: true,
        gso_type: VirtioHeader::GSO_TCPV4,
        gso_size: 1000,
        header_length: 58,
        checksum_start: 38,
        checksum_offset: 16,
        ..VirtioHeader::default()
    };
    packet
}

#[test]
fn tagged_tso_packets_cross_a_veth_and_tap() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        let (mut tap, mut host) = (tap_port("tap0"), packet_port("tap0"));
        let (left, right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let (switch, host) = (split_one(tap.as_mut()), split_one(host.as_mut()));
        let mut pool = Pool::new();
        for (mut from, mut to) in [(left, right), (switch, host)] {
            let sent = [tagged_segments(&mut pool)];
            assert_eq!(from.tx.tx(&sent), 1);
            let burst = first_burst(&mut to, &mut pool);
            assert_eq!((burst[0].frame(), burst[0].virtio), (sent[0].frame(), sent[0].virtio));
            put_all_back(&mut pool, burst);
            put_all_back(&mut pool, sent.into());
        }
    });
}
