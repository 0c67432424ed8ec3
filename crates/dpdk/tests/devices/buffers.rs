//! Tests that a closed device loses no buffers, and that an empty pool recovers.

use std::{
    io::{self, Write as _},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use nix::sched::{CloneFlags, unshare};
use shunt_dpdk::{
    BurstEnd, DeviceCounters, DeviceSettings, DpdkDevice, DpdkError, DpdkSender, FrameOffload,
};

use crate::virtual_devices::{ONE_THREAD, eal, frame, receive_all, start};

/// Sends `count` frames of a length; returns the number of frames sent.
fn send(sender: &mut DpdkSender, count: usize, length: usize) -> (usize, BurstEnd) {
    let frames: Vec<_> = (0..count).map(|number| frame(number, length)).collect();
    sender.send(frames.iter().map(|bytes| (bytes.as_slice(), FrameOffload::default())))
}

/// The test closes a ring while it is full.
///
/// Afterwards, its buffers are free, and the next ring with its name has no frames.
#[test]
fn full_rings_lose_no_buffers() {
    for round in 0..20 {
        let settings = DeviceSettings { rx_queues: Some(2), threads: 4, mtu: None };
        let (_device, mut queues) = start("net_ring20", settings);
        // A third transmit queue would lose its frames, because the ring has two receive queues.
        assert_eq!((queues.receivers.len(), queues.senders.len()), (2, 2));
        for (sender, receiver) in queues.senders.iter_mut().zip(&mut queues.receivers) {
            assert_eq!(receive_all(receiver).len(), 0, "frames of another ring in round {round}");
            assert_eq!(send(sender, 1000, 60), (1000, BurstEnd::All), "round {round}");
        }
    }
}

/// Long frames take all buffers before the ring is full.
#[test]
fn a_pool_without_buffers_recovers() {
    let (_device, mut queues) = start("net_ring21", ONE_THREAD);
    for _ in 0..3 {
        let (sent, end) = send(&mut queues.senders[0], 1000, 60_000);
        assert_eq!(end, BurstEnd::Full);
        assert!((30..300).contains(&sent), "{sent}");
        let received = receive_all(&mut queues.receivers[0]);
        assert_eq!(received, (0..sent).map(|number| frame(number, 60_000)).collect::<Vec<_>>());
    }
    assert_eq!(send(&mut queues.senders[0], 1000, 60), (1000, BurstEnd::All));
}

/// Frames that a ring refuses stay with the sender, which counts them.
#[test]
fn refused_frames_are_no_losses_of_the_device() {
    let (device, mut queues) = start("net_ring22", ONE_THREAD);
    let (sent, end) = send(&mut queues.senders[0], 1500, 60);
    assert_eq!(end, BurstEnd::Full);
    assert!(sent < 1500);
    assert_eq!(device.counters(), DeviceCounters::default());
    let sent_packets = u64::try_from(sent).unwrap();
    let found = device.driver_counters().into_iter().find(|(name, _)| name == "tx_good_packets");
    assert_eq!(found, Some(("tx_good_packets".to_owned(), sent_packets)));
    assert_eq!(receive_all(&mut queues.receivers[0]).len(), sent);
}

/// `net_tap` counts a frame that it refuses as an error.
///
/// The driver refuses a frame that is longer than its MTU. The sender has counted the frame, so the
/// device must report no loss.
#[test]
fn frames_refused_by_tap_are_no_losses() {
    // Starts DPDK first, so that no thread of DPDK is in the new namespace.
    eal();
    // The device is in the network namespace of a thread, and is removed with the thread.
    thread::scope(|scope| scope.spawn(refuse_a_frame).join().unwrap());
}

fn refuse_a_frame() {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        // The harness hides the output of `eprintln!` in tests that pass.
        let _ = writeln!(io::stderr(), "SKIPPED: a TAP device in a namespace: {error}");
        return;
    }
    let (device, mut queues) = start("net_tap20,iface=shunt-tap20", ONE_THREAD);
    assert_eq!(send(&mut queues.senders[0], 1, 60), (1, BurstEnd::All));
    assert_eq!(send(&mut queues.senders[0], 1, 2000), (0, BurstEnd::Full));
    let found = device.driver_counters().into_iter().find(|(name, _)| name == "tx_errors");
    assert_eq!(found, Some(("tx_errors".to_owned(), 1)));
    assert_eq!(device.counters(), DeviceCounters::default());
}

/// A device stays open until the polling thread drops its queue.
#[test]
fn a_device_closes_after_its_last_poll() {
    let (device, queues) = start("net_null20", ONE_THREAD);
    let (is_closed, started) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut queues = queues;
            started.wait();
            while !is_closed.load(Relaxed) {
                assert_eq!(queues.receivers[0].receive(32).len(), 32);
            }
        });
        started.wait();
        drop(device);
        let again = DpdkDevice::attach(eal(), "net_null20").map(drop);
        assert_eq!(again, Err(DpdkError::InUse { device: "net_null20".to_owned() }));
        is_closed.store(true, Relaxed);
    });
    assert!(DpdkDevice::attach(eal(), "net_null20").is_ok());
}

#[test]
fn a_refused_start_can_be_repeated() {
    let mut device = DpdkDevice::attach(eal(), "net_null21").unwrap();
    let (min, max) = (device.limits().mtu_min, device.limits().mtu_max);
    assert!((40..100).contains(&min) && max > 9000, "{min} to {max}");
    let low = device.start(DeviceSettings { mtu: Some(min - 1), ..ONE_THREAD });
    let device_name = "net_null21".to_owned();
    let range = DpdkError::MtuRange { device: device_name, mtu: min - 1, min, max };
    let (mtu, text) = (min - 1, range.to_string());
    let takes = format!("DPDK device net_null21 takes {min} to {max} bytes");
    assert_eq!(text, format!("mtu {mtu} is refused: {takes}"));
    assert_eq!(low.map(drop), Err(range));
    assert!(!device.is_removed(), "the device is still open");
    let queues = device.start(ONE_THREAD).unwrap();
    assert_eq!(queues.receivers.len(), 1);
    // A device that refuses a setting is closed, so it can be attached again.
    let mut ring = DpdkDevice::attach(eal(), "net_ring23").unwrap();
    assert!(ring.start(DeviceSettings { mtu: Some(9000), ..ONE_THREAD }).is_err());
    drop(ring);
    let (_ring, mut queues) = start("net_ring23", ONE_THREAD);
    assert_eq!(send(&mut queues.senders[0], 10, 60), (10, BurstEnd::All));
}

#[test]
fn a_ring_with_arguments_is_refused() {
    let attach = |devargs: &str| DpdkDevice::attach(eal(), devargs).map(drop).unwrap_err();
    let error = attach("net_ring24,nodeaction=net_ring20:0:ATTACH");
    assert!(matches!(error, DpdkError::RingArguments { .. }), "{error:?}");
    assert!(matches!(attach("bus=vdev,name=net_null22"), DpdkError::Devargs { .. }));
}
