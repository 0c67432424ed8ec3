//! Tests that frames which the kernel drops before the port are counted.

use std::net::UdpSocket;

use shunt_datapath::{
    Pool,
    port::{DeviceLosses, PortCounters, PortSpec, open, tap},
};

use crate::{
    close,
    frames::{crosses, frame, packets, veth},
    in_namespace, ip, put_all_back, split_one,
};

/// The kernel drops these frames before any socket.
#[test]
fn the_port_counts_frames_longer_than_its_mtu() {
    in_namespace(|| {
        let (mut a, mut b) = veth();
        ip("link set b0 mtu 1000");
        let (mut left, mut right) = (split_one(a.as_mut()), split_one(b.as_mut()));
        let mut pool = Pool::new();
        let long = packets(&mut pool, &[frame(1, 1200)]);
        for _ in 0..3 {
            // The kernel may report each drop to the sender as a full queue.
            left.tx.tx(&long);
            left.tx.flush();
        }
        put_all_back(&mut pool, long);
        crosses(&mut left, &mut right, &[frame(2, 60)]);
        assert_eq!(b.driver_counters(), []);
        b.note_losses(&DeviceLosses::read());
        assert_eq!(b.driver_counters(), [("device_rx_dropped".to_owned(), 3)]);
        assert_eq!(b.counters(), PortCounters::default());
    });
}

/// The drop counter of an older device does not start at zero.
#[test]
fn the_port_counts_losses_of_a_full_tap() {
    in_namespace(|| {
        let persistent = tap::TapSettings { persistent: true, ..tap::TapSettings::default() };
        let spec = PortSpec::Tap { device: "t0".to_owned(), settings: persistent };
        let mut pool = Pool::new();
        for _ in 0..2 {
            let mut port = open(&spec, 0).unwrap();
            let mut queues = split_one(port.as_mut());
            ip("address replace 10.9.0.1/24 dev t0");
            ip("neighbor replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev t0");
            assert_eq!(port.counters(), PortCounters::default());
            let host = UdpSocket::bind("10.9.0.1:0").unwrap();
            for _ in 0..FLOOD {
                host.send_to(&[0; 18], "10.9.0.2:9").unwrap();
            }
            port.note_losses(&DeviceLosses::read());
            let lost = port.counters().rx_dropped;
            let mut received = 0;
            loop {
                let mut burst = Vec::new();
                queues.rx.as_mut().unwrap().rx(&mut pool, &mut burst).unwrap();
                if burst.is_empty() {
                    break;
                }
                received += burst.len() as u64;
                put_all_back(&mut pool, burst);
            }
            assert_eq!(received + lost, FLOOD);
            assert!(lost > 0 && received > 0, "{lost} {received}");
            ip("link set t0 down");
            ip("link set t0 name t1");
            port.note_losses(&DeviceLosses::read());
            assert_eq!(port.counters().rx_dropped, lost, "a count does not go back");
            ip("link set t1 name t0");
            close((port, queues));
        }
        open(&spec, 0).unwrap().remove_device().unwrap();
    });
}

/// Number of frames in a burst that is longer than the queue of a TAP.
const FLOOD: u64 = 2000;
