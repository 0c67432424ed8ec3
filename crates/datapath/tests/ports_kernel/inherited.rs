//! Tests inherited queues: a later port continues with the first frame that was not read.

use std::fs::File;

use shunt_datapath::{
    Packet, Pool,
    port::{
        EalOptions, Port, PortCounters, PortSpec, Queues, StoredDescriptor, af_xdp::XdpMode, open,
        open_inheriting, tap::TapSettings,
    },
};

use crate::{
    close,
    frames::{self, frame},
    in_namespace, ip, packet_port, put_all_back, split_one,
    switchovers::make_busy,
    xdp::{cable, with_xdp, xdp_spec},
};

/// Number of slots of the receive ring, which has one block.
const SLOTS: u8 = 32;

fn ring_port() -> PortSpec {
    let rx_slots = Some(SLOTS.into());
    PortSpec::AfPacket { device: "b0".to_owned(), mtu: None, rx_slots }
}

/// Sends one frame for each number.
fn send(queues: &mut Queues, pool: &mut Pool, numbers: impl IntoIterator<Item = u8>) {
    for number in numbers {
        let bytes = frame(number, 60);
        let mut packet = pool.take(bytes.len(), shunt_pipeline::DatapathPort::default()).unwrap();
        packet.frame_mut().copy_from_slice(&bytes);
        assert_eq!(queues.tx.tx(std::slice::from_ref(&packet)), 1);
        pool.put_back(packet);
    }
}

/// Receives all frames that wait, and returns their numbers.
fn receive(queues: &mut Queues, pool: &mut Pool) -> Vec<u8> {
    let mut numbers = Vec::new();
    let rx = queues.rx.as_mut().unwrap();
    loop {
        let mut burst: Vec<Packet> = Vec::new();
        rx.rx(pool, &mut burst).unwrap();
        if burst.is_empty() {
            return numbers;
        }
        numbers.extend(burst.iter().filter_map(|packet| packet.frame().last().copied()));
        put_all_back(pool, burst);
    }
}

/// Closes a port, and opens a new port with its descriptors.
pub(crate) fn handed_over(
    port: Box<dyn Port>,
    queues: Queues,
    spec: &PortSpec,
) -> (Box<dyn Port>, Queues) {
    let stored = port.stored_descriptors();
    let count = stored.len();
    close((port, queues));
    let mut port = open_inheriting(spec, 0, &EalOptions::default(), stored).unwrap();
    let queues = split_one(&mut *port);
    let again = port.stored_descriptors();
    assert!(again.len() == count && again.iter().all(|own| own.is_inherited), "{again:?}");
    (port, queues)
}

/// The kernel does not reveal its position in the ring, so the test tries several.
#[test]
fn a_ring_continues_with_its_first_frame() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let mut pool = Pool::new();
        let (mut sender, mut port) = (packet_port("a0"), open(&ring_port(), 0).unwrap());
        let (mut sending, mut queues) = (split_one(&mut *sender), split_one(&mut *port));
        make_busy(&mut *port, &mut queues, &mut sending);
        assert_eq!(port.stored_descriptors().len(), 2, "a socket and a ring");
        for read in 0..3 {
            for unread in [0, 1, SLOTS / 2, SLOTS - 1, SLOTS] {
                send(&mut sending, &mut pool, 0..read);
                assert_eq!(receive(&mut queues, &mut pool), (0..read).collect::<Vec<_>>());
                send(&mut sending, &mut pool, 0..unread);
                (port, queues) = handed_over(port, queues, &ring_port());
                let expected: Vec<_> = (0..unread).collect();
                assert_eq!(receive(&mut queues, &mut pool), expected, "after {read}");
                // The port receives later frames of the ring as well.
                send(&mut sending, &mut pool, 100..105);
                let expected: Vec<_> = (100..105).collect();
                assert_eq!(receive(&mut queues, &mut pool), expected, "after {read} and {unread}");
            }
        }
    });
}

#[test]
fn a_socket_keeps_its_frames() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let mut pool = Pool::new();
        let (mut sender, mut port) = (packet_port("a0"), packet_port("b0"));
        let (mut sending, mut queues) = (split_one(&mut *sender), split_one(&mut *port));
        let spec = PortSpec::AfPacket { device: "b0".to_owned(), mtu: None, rx_slots: None };
        for _ in 0..3 {
            send(&mut sending, &mut pool, 0..200);
            (port, queues) = handed_over(port, queues, &spec);
            assert_eq!(receive(&mut queues, &mut pool), (0..200).collect::<Vec<_>>());
        }
        make_busy(&mut *port, &mut queues, &mut sending);
    });
}

#[test]
fn a_tap_keeps_its_frames() {
    in_namespace(|| {
        let spec = PortSpec::Tap { device: "t0".to_owned(), settings: TapSettings::default() };
        let mut port = open(&spec, 0).unwrap();
        let queues = split_one(&mut *port);
        let mut pool = Pool::new();
        let mut sender = packet_port("t0");
        let mut sending = split_one(&mut *sender);
        send(&mut sending, &mut pool, 7..10);
        let (_port, mut queues) = handed_over(port, queues, &spec);
        assert_eq!(receive(&mut queues, &mut pool), [7, 8, 9]);
    });
}

/// If a port refuses TAP queue 0, queue 1 becomes queue 0 and is stored again.
///
/// Of the sockets of a packet port, either all are used or none.
#[test]
fn queue_with_new_number_is_stored_again() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set b0 up");
        for (spec, of_second) in [(tap_spec("t0"), true), (ring_port(), false)] {
            for (refused, expected) in [(0, [false, false]), (1, [of_second, false])] {
                let mut port = open(&spec, 0).unwrap();
                let queues = port.split(2).unwrap();
                let mut stored = port.stored_descriptors();
                let names: Vec<_> = stored.iter().map(|own| own.name.clone()).collect();
                close((port, queues));
                stored[refused].fd = File::open("/dev/null").unwrap().into();
                let mut port = open_inheriting(&spec, 0, &EalOptions::default(), stored).unwrap();
                let _queues = port.split(2).unwrap();
                let again = port.stored_descriptors();
                assert!(again.iter().map(|own| &own.name).eq(&names), "{again:?}");
                assert!(again.iter().map(|own| own.is_inherited).eq(expected), "{again:?}");
            }
        }
    });
}

/// Returns whether a port opens but refuses an inherited descriptor.
fn is_refused(spec: &PortSpec, stored: StoredDescriptor) -> bool {
    let mut port = open_inheriting(spec, 0, &EalOptions::default(), vec![stored]).unwrap();
    let _queues = split_one(&mut *port);
    port.stored_descriptors().iter().all(|own| !own.is_inherited)
}

fn tap_spec(device: &str) -> PortSpec {
    PortSpec::Tap { device: device.to_owned(), settings: TapSettings::default() }
}

/// Opens and closes a port, and returns its first descriptor under another name.
fn stored(spec: &PortSpec, name: &str) -> StoredDescriptor {
    let mut port = open(spec, 0).unwrap();
    let _queues = split_one(&mut *port);
    let fd = port.stored_descriptors().remove(0).fd;
    StoredDescriptor { name: name.to_owned(), fd, is_inherited: true }
}

/// The kernel reports only the first name of the device of a queue.
#[test]
fn a_tap_keeps_queues_under_second_name() {
    in_namespace(|| {
        let queue = stored(&tap_spec("t0"), "tap/second/0000");
        ip("link property add dev t0 altname second");
        assert!(!is_refused(&tap_spec("second"), queue));
    });
}

#[test]
fn a_descriptor_of_another_device_is_refused() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        assert!(is_refused(&tap_spec("t1"), stored(&tap_spec("t0"), "tap/t1/0000")));
        let other = PortSpec::AfPacket { device: "a0".to_owned(), mtu: None, rx_slots: Some(32) };
        let name = "af_packet/b0/0000/socket";
        assert!(is_refused(&ring_port(), stored(&other, name)));
        assert!(is_refused(&ring_port(), stored(&tap_spec("t0"), name)));
        // The ring has another layout than this name says.
        let ring = "af_packet/b0/0000/2x65536x2048";
        assert!(is_refused(&ring_port(), stored(&ring_port(), ring)));
        assert!(!is_refused(&ring_port(), stored(&ring_port(), name)));
    });
}

/// Returns the numbers of `count` frames, which may arrive late.
fn await_frames(queues: &mut Queues, pool: &mut Pool, count: usize) -> Vec<u8> {
    let frames = frames::receive(queues, pool, count);
    frames.iter().filter_map(|frame| frame.last().copied()).collect()
}

/// Frames wait in both directions during each hand-over.
///
/// The rounds use each chunk of the memory several times, so a chunk with two owners or without
/// an owner would change or lose a frame.
#[test]
fn an_xdp_port_keeps_its_frames() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_xdp(move || {
            cable(1);
            let spec = xdp_spec(mode);
            let (mut port, mut peer) = (open(&spec, 0).unwrap(), packet_port("b0"));
            let (mut queues, mut far) = (split_one(&mut *port), split_one(&mut *peer));
            let mut pool = Pool::new();
            for round in 0..30 {
                send(&mut far, &mut pool, 0..200);
                // The frames are published and not flushed.
                send(&mut queues, &mut pool, 100..250);
                (port, queues) = handed_over(port, queues, &spec);
                let received = await_frames(&mut queues, &mut pool, 200);
                assert_eq!(received, (0..200).collect::<Vec<_>>(), "{mode}, round {round}");
                let sent = await_frames(&mut far, &mut pool, 150);
                assert_eq!(sent, (100..250).collect::<Vec<_>>(), "{mode}, round {round}");
                frames::crosses(&mut queues, &mut far, &[frame(1, 60), frame(2, 1500)]);
                frames::crosses(&mut far, &mut queues, &[frame(3, 60), frame(4, 1500)]);
            }
            assert_eq!(port.counters(), PortCounters::default(), "{mode}");
        });
    }
}

#[test]
fn full_ring_of_xdp_port_is_kept() {
    with_xdp(|| {
        cable(1);
        let spec = xdp_spec(XdpMode::Generic);
        let (mut port, mut peer) = (open(&spec, 0).unwrap(), packet_port("b0"));
        let (mut queues, mut far) = (split_one(&mut *port), split_one(&mut *peer));
        let mut pool = Pool::new();
        for round in 0..3 {
            let numbers = (0..=u8::MAX).cycle();
            send(&mut far, &mut pool, numbers.clone().take(1100));
            (port, queues) = handed_over(port, queues, &spec);
            let received = await_frames(&mut queues, &mut pool, 1024);
            assert_eq!(received, numbers.take(1024).collect::<Vec<_>>(), "round {round}");
            let more = frames::receive_all(&mut queues, &mut pool, frames::QUIET);
            assert!(more.is_empty(), "round {round}");
        }
    });
}

#[test]
fn queues_of_xdp_port_get_other_threads() {
    with_xdp(|| {
        cable(4);
        let spec = xdp_spec(XdpMode::Native);
        let mut port = open(&spec, 0).unwrap();
        let queues = port.split(4).unwrap();
        let stored = port.stored_descriptors();
        assert_eq!(stored.len(), 10, "a link, a packet socket, four sockets with their memory");
        close((port, queues));
        let mut port = open_inheriting(&spec, 0, &EalOptions::default(), stored).unwrap();
        assert!(!port.must_discard_stored());
        let mut peer = packet_port("b0");
        let (mut queues, mut far) = (split_one(&mut *port), split_one(&mut *peer));
        let mut pool = Pool::new();
        let sent: Vec<_> = (0..64).map(|flow| frames::datagram(flow, 0)).collect();
        let packets = frames::packets(&mut pool, &sent);
        assert_eq!(far.tx.tx(&packets), sent.len());
        put_all_back(&mut pool, packets);
        let mut received = frames::receive(&mut queues, &mut pool, sent.len());
        let mut expected = sent;
        received.sort();
        expected.sort();
        assert!(received == expected, "each queue reaches the one thread");
    });
}

/// Opens a port with stored descriptors; returns whether it refuses them.
///
/// As a service manager does, the test keeps a copy of the link, which alone would keep the program
/// attached.
fn xdp_is_refused(spec: &PortSpec, stored: Vec<StoredDescriptor>) -> bool {
    let links = stored.iter().filter(|own| own.name.contains("/link/"));
    let _kept: Vec<_> = links.map(|own| own.fd.try_clone().unwrap()).collect();
    let mut port = open_inheriting(spec, 0, &EalOptions::default(), stored).unwrap();
    let is_refused = port.must_discard_stored();
    // The port attaches its own program, or uses the stored one.
    let mut queues = split_one(&mut *port);
    let mut peer = packet_port("b0");
    let mut far = split_one(&mut *peer);
    frames::crosses(&mut far, &mut queues, &[frame(1, 60)]);
    port.release_device();
    close((port, queues));
    is_refused
}

#[test]
fn foreign_descriptors_of_an_xdp_port_are_refused() {
    with_xdp(|| {
        cable(1);
        let spec = xdp_spec(XdpMode::Native);
        let stored = || {
            let mut port = open(&spec, 0).unwrap();
            let queues = split_one(&mut *port);
            let stored = port.stored_descriptors();
            close((port, queues));
            stored
        };
        assert!(!xdp_is_refused(&spec, stored()));
        assert!(!xdp_is_refused(&spec, Vec::new()), "nothing is stored");
        assert!(xdp_is_refused(&xdp_spec(XdpMode::Generic), stored()), "another mode");
        for part in ["/socket", "/2048x2048", "/promiscuous"] {
            let mut wrong = stored();
            let place = wrong.iter().position(|own| own.name.ends_with(part)).unwrap();
            wrong[place].fd = File::open("/dev/null").unwrap().into();
            assert!(xdp_is_refused(&spec, wrong), "a wrong {part}");
            let mut missing = stored();
            missing.retain(|own| !own.name.ends_with(part));
            assert!(xdp_is_refused(&spec, missing), "no {part}");
        }
        let mut surplus = stored();
        let (name, fd) = ("af_xdp/a0/0001/socket".to_owned(), surplus[0].fd.try_clone().unwrap());
        surplus.push(StoredDescriptor { name, fd, is_inherited: true });
        assert!(xdp_is_refused(&spec, surplus), "a queue more");
        // The larger MTU needs larger chunks.
        let small = stored();
        for device in ["a0", "b0"] {
            ip(&format!("link set {device} mtu 3000"));
        }
        assert!(xdp_is_refused(&spec, small), "another MTU");
    });
}
