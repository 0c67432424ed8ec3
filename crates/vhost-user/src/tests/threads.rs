//! Tests of a guest and a switch that run at the same time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{scope, yield_now},
    time::{Duration, Instant},
};

use super::{KeptFrames, attach};
use crate::{
    NetHeader, Worker,
    queues::DeviceQueues,
    testing::{BufferLayout, TestGuest},
};

/// Number of frames that the guest sends.
const FRAMES: u32 = 2000;

/// A frame in three receive buffers, with a number of its own.
fn frame(number: u32) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(2500).collect()
}

/// Sends frames, and checks that they come back in order.
#[expect(clippy::disallowed_methods, reason = "a thread that hangs needs a real clock")]
fn run_guest(mut guest: TestGuest) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut sent, mut received) = (0, 0);
    while received < FRAMES {
        assert!(Instant::now() < deadline, "{sent} frames sent, {received} received");
        while guest.offer_buffer(0, &BufferLayout::whole(1000)) {}
        // The switch drops frames for which the guest has no buffers.
        while sent < FRAMES && sent - received < 8 {
            let layout = BufferLayout { parts: vec![12, 1000, 1500], is_indirect: false };
            if !guest.send(0, NetHeader::default(), &frame(sent), &layout) {
                break;
            }
            sent += 1;
        }
        guest.take_sent(0);
        // All buffers of a frame are there as soon as the first one is.
        for (_, bytes) in guest.take_received(0) {
            assert!(bytes == frame(received), "frame {received} is whole");
            received += 1;
        }
        yield_now();
    }
}

#[test]
fn a_guest_that_polls_sees_whole_frames() {
    for features in [TestGuest::SPLIT, TestGuest::PACKED] {
        let queues = Arc::new(DeviceQueues::new(1).unwrap());
        let guest = TestGuest::new(1, 32, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        let is_done = AtomicBool::new(false);
        scope(|scope| {
            let guest = scope.spawn(|| run_guest(guest));
            let switch = scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    let mut kept = KeptFrames::default();
                    worker.receiver.receive(8, &mut kept);
                    let frames = kept.frames.iter().map(|(_, frame)| frame.as_slice());
                    let count = frames.len();
                    let sent =
                        worker.sender.send(frames.map(|frame| (NetHeader::default(), frame)));
                    assert_eq!(sent.frames, count);
                    yield_now();
                }
            });
            let guest = guest.join();
            is_done.store(true, Relaxed);
            guest.and_then(|()| switch.join()).unwrap();
        });
        assert_eq!(queues.take_failures(), []);
    }
}
