//! Tests inherited queues: a later port continues with the first frame that was not read.

use std::fs::File;

use shunt_datapath::{
    Packet, Pool,
    port::{
        EalOptions, Port, PortSpec, Queues, StoredDescriptor, open, open_inheriting,
        tap::TapSettings,
    },
};

use crate::{
    close, frames::frame, give_all, in_namespace, ip, one, packet_port, switchovers::make_busy,
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
        pool.give(packet);
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
        give_all(pool, burst);
    }
}

/// Closes a port, and opens a new port with its descriptors.
fn handed_over(port: Box<dyn Port>, queues: Queues, spec: &PortSpec) -> (Box<dyn Port>, Queues) {
    let stored = port.stored_descriptors();
    let count = stored.len();
    close((port, queues));
    let mut port = open_inheriting(spec, 0, &EalOptions::default(), stored).unwrap();
    let queues = one(&mut *port);
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
        let (mut sending, mut queues) = (one(&mut *sender), one(&mut *port));
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
        let (mut sending, mut queues) = (one(&mut *sender), one(&mut *port));
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
        let queues = one(&mut *port);
        let mut pool = Pool::new();
        let mut sender = packet_port("t0");
        let mut sending = one(&mut *sender);
        send(&mut sending, &mut pool, 7..10);
        let (_port, mut queues) = handed_over(port, queues, &spec);
        assert_eq!(receive(&mut queues, &mut pool), [7, 8, 9]);
    });
}

/// If a port refuses TAP queue 0, queue 1 becomes queue 0 and is stored again.
///
/// Of the sockets of a packet port, either all are used or none.
#[test]
fn a_queue_with_a_new_number_is_stored_again() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set b0 up");
        let tap = PortSpec::Tap { device: "t0".to_owned(), settings: TapSettings::default() };
        for (spec, of_second) in [(tap, true), (ring_port(), false)] {
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
    let _queues = one(&mut *port);
    port.stored_descriptors().iter().all(|own| !own.is_inherited)
}

#[test]
fn a_descriptor_of_another_device_is_refused() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        let tap = |device: &str| PortSpec::Tap {
            device: device.to_owned(),
            settings: TapSettings::default(),
        };
        let stored = |spec: &PortSpec, name: &str| {
            let mut port = open(spec, 0).unwrap();
            let _queues = one(&mut *port);
            let fd = port.stored_descriptors().remove(0).fd;
            StoredDescriptor { name: name.to_owned(), fd, is_inherited: true }
        };
        assert!(is_refused(&tap("t1"), stored(&tap("t0"), "tap/t1/0000")));
        let other = PortSpec::AfPacket { device: "a0".to_owned(), mtu: None, rx_slots: Some(32) };
        let name = "af_packet/b0/0000/socket";
        assert!(is_refused(&ring_port(), stored(&other, name)));
        assert!(is_refused(&ring_port(), stored(&tap("t0"), name)));
        // The ring has another layout than this name says.
        let ring = "af_packet/b0/0000/2x65536x2048";
        assert!(is_refused(&ring_port(), stored(&ring_port(), ring)));
        assert!(!is_refused(&ring_port(), stored(&ring_port(), name)));
    });
}
