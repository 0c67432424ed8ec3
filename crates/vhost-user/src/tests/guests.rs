//! Tests of notifications, of offloads, and of guests that break rules.

use std::sync::Arc;

use super::{KeptFrames, attach, duplicate};
use crate::{
    GuestLink, NetHeader, RingError, SendEnd, VirtioFeatures, Worker,
    device::VhostDevice,
    message::{VhostReply, VhostRequest, VringDescriptor},
    queues::{DeviceQueues, QueueFailure},
    testing::{BufferLayout, TestGuest},
};

/// Returns the queues of a device, and its guest.
fn device(pairs: u16, workers: u16, features: VirtioFeatures) -> (Arc<DeviceQueues>, TestGuest) {
    (Arc::new(DeviceQueues::new(workers).unwrap()), TestGuest::new(pairs, 8, features))
}

/// Sends a frame of 60 bytes from the guest. Panics if the queue is full.
fn send(guest: &mut TestGuest, pair: u16) {
    assert!(guest.send(pair, NetHeader::default(), &[9; 60], &BufferLayout::whole(72)));
}

/// Polls until the worker would sleep; returns the number of received frames.
fn poll_to_sleep(worker: &mut Worker) -> usize {
    let mut frames = 0;
    for _ in 0..1000 {
        let polled = worker.receiver.receive(32, &mut KeptFrames::default());
        frames += polled.frames;
        if !polled.may_have_more {
            return frames;
        }
    }
    panic!("the worker never sleeps");
}

/// Returns whether the wait descriptor of the worker signals now.
fn is_readable(worker: &Worker) -> bool {
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    epoll.add(worker.receiver.wait_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() > 0
}

/// Features of a guest with split rings and without any option.
const PLAIN: VirtioFeatures = VirtioFeatures::VERSION_1;
/// Features of a guest with packed rings and without any option.
const PLAIN_PACKED: VirtioFeatures = PLAIN.with(VirtioFeatures::RING_PACKED);

#[test]
fn a_worker_sleeps_until_the_guest_kicks() {
    for features in [PLAIN, PLAIN_PACKED, TestGuest::SPLIT, TestGuest::PACKED] {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        assert!(is_readable(&worker), "a new queue is polled once");
        assert_eq!(poll_to_sleep(&mut worker), 0);
        for _ in 0..20 {
            assert!(!is_readable(&worker));
            send(&mut guest, 0);
            assert!(is_readable(&worker), "the guest has kicked");
            assert_eq!(poll_to_sleep(&mut worker), 1);
            guest.take_sent(0);
        }
    }
}

#[test]
fn a_guest_kicks_only_a_worker_that_sleeps() {
    for features in [TestGuest::SPLIT, TestGuest::PACKED] {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        for _ in 0..3 {
            send(&mut guest, 0);
        }
        let _ = guest.take_kicks(1);
        assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 3);
        send(&mut guest, 0);
        assert_eq!(guest.take_kicks(1), 0, "the worker polls");
    }
}

#[test]
fn a_running_guest_is_detected_without_a_kick() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    send(&mut guest, 0);
    guest.offer_buffer(0, &BufferLayout::whole(2000));
    let _ = (guest.take_kicks(0), guest.take_kicks(1));
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    assert!(is_readable(&worker));
    assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 1);
    let sent = worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
    assert_eq!((sent.frames, sent.end), (1, SendEnd::All));
}

#[test]
fn a_guest_gets_calls_only_on_request() {
    for features in [PLAIN, PLAIN_PACKED] {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        let _ = guest.take_calls(0);
        let mut calls = |is_suppressed| {
            guest.suppress_calls(0, is_suppressed);
            guest.offer_buffer(0, &BufferLayout::whole(100));
            let sent = worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
            assert_eq!(sent.frames, 1);
            guest.take_received(0);
            guest.take_calls(0)
        };
        assert_eq!((calls(false), calls(true), calls(false)), (1, 0, 1));
    }
}

/// With event indexes, a guest that does not read its queue is called once.
#[test]
fn a_guest_gets_one_call_until_it_reads() {
    for features in [TestGuest::SPLIT, TestGuest::PACKED] {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        guest.take_received(0);
        let _ = guest.take_calls(0);
        for _ in 0..5 {
            for buffers in 1..=4 {
                guest.offer_buffer(0, &BufferLayout::whole(100));
                let sent = worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
                assert_eq!(sent.frames, 1);
                assert_eq!(guest.take_calls(0), u64::from(buffers == 1));
            }
            assert_eq!(guest.take_received(0).len(), 4);
        }
    }
}

/// A guest may request a notification for a later buffer than the next one.
#[test]
fn guests_get_calls_at_requested_buffers() {
    // The event index of the split ring, and the driver area of the packed ring.
    let events =
        [(TestGuest::SPLIT, 0x2014, vec![3, 0]), (TestGuest::PACKED, 0x2000, vec![3, 0x80, 2, 0])];
    for (features, offset, event) in events {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        guest.corrupt(0, offset, &event);
        let _ = guest.take_calls(0);
        let calls: Vec<u64> = (0..6)
            .map(|_| {
                guest.offer_buffer(0, &BufferLayout::whole(100));
                worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
                guest.take_calls(0)
            })
            .collect();
        assert_eq!(calls, [0, 0, 0, 1, 0, 0]);
    }
}

#[test]
fn an_offload_that_was_not_negotiated_is_refused() {
    let partial: NetHeader = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0];
    let tcp = |kind| -> NetHeader { [1, kind, 54, 0, 0xb4, 5, 34, 0, 16, 0, 0, 0] };
    let valid: NetHeader = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let ends = |features| {
        let (queues, mut guest) = device(1, 1, features);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        guest.offer_buffer(0, &BufferLayout::whole(2000));
        let mut end = |header| worker.sender.send([(header, &[1; 60][..])]).end;
        let refused = [partial, tcp(1), tcp(4), tcp(5), tcp(0x81), tcp(3)].map(|header| {
            let end = end(header);
            guest.offer_buffer(0, &BufferLayout::whole(2000));
            end == SendEnd::Refused
        });
        assert_eq!(end(valid), SendEnd::All);
        let seen = guest.take_received(0).pop().unwrap().0;
        (refused, seen[0])
    };
    assert_eq!(ends(VirtioFeatures::VERSION_1), ([true; 6], 0), "DATA_VALID is cleared");
    let checksum = VirtioFeatures::VERSION_1.with(VirtioFeatures::GUEST_CSUM);
    assert_eq!(ends(checksum), ([false, true, true, true, true, true], 2));
    let offered = [false, false, false, false, false, true];
    assert_eq!(ends(TestGuest::SPLIT), (offered, 2));
}

/// The header of an old driver has ten bytes; the test guest uses twelve.
#[test]
fn the_header_of_an_old_driver_is_shorter() {
    let (queues, mut guest) = device(1, 1, VirtioFeatures::default());
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    send(&mut guest, 0);
    let mut kept = KeptFrames::default();
    worker.receiver.receive(32, &mut kept);
    let frame: Vec<u8> = [0; 2].into_iter().chain([9; 60]).collect();
    assert_eq!(kept.frames, [(NetHeader::default(), frame)]);
    guest.offer_buffer(0, &BufferLayout::whole(100));
    // The test guest reads the first two bytes of the frame as the number of buffers.
    let frame: Vec<u8> = [1, 0].into_iter().chain([7; 58]).collect();
    assert_eq!(worker.sender.send([(NetHeader::default(), &frame[..])]).frames, 1);
    let (header, rest) = &guest.take_received(0)[0];
    assert_eq!((&header[10..], &rest[..]), frame.split_at(2));
}

#[test]
fn pairs_are_spread_over_workers() {
    let (queues, mut guest) = device(3, 2, TestGuest::SPLIT);
    let mut workers = [0, 1].map(|worker| Worker::new(&queues, worker));
    let _device = attach(&queues, &guest);
    (0..3).for_each(|pair| send(&mut guest, pair));
    let mut polled =
        |worker: usize| workers[worker].receiver.receive(32, &mut KeptFrames::default()).frames;
    assert_eq!((polled(0), polled(1)), (2, 1), "pairs 0 and 2, and pair 1");
    (0..3).for_each(|pair| assert!(guest.offer_buffer(pair, &BufferLayout::whole(100))));
    for worker in &mut workers {
        assert_eq!(worker.sender.send([(NetHeader::default(), &[1; 60][..])]).frames, 1);
    }
    let received = [0, 1, 2].map(|pair| guest.take_received(pair).len());
    assert_eq!(received, [1, 1, 0]);
}

#[test]
fn a_disabled_queue_discards_what_the_guest_sends() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let mut device = attach(&queues, &guest);
    for queue in [0, 1] {
        device
            .handle(VhostRequest::SetVringEnable { queue, is_enabled: false }, Vec::new())
            .unwrap();
    }
    send(&mut guest, 0);
    let mut kept = KeptFrames::default();
    worker.receiver.receive(32, &mut kept);
    assert_eq!((kept.frames.len(), guest.take_sent(0)), (0, 1));
    guest.offer_buffer(0, &BufferLayout::whole(100));
    assert_eq!(worker.sender.send([(NetHeader::default(), &[1; 60][..])]).end, SendEnd::Full);
}

#[test]
fn a_stopped_queue_resumes_at_its_base() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let mut device = attach(&queues, &guest);
    (0..3).for_each(|_| send(&mut guest, 0));
    assert_eq!(worker.receiver.receive(2, &mut KeptFrames::default()).frames, 2);
    let reply = device.handle(VhostRequest::GetVringBase { queue: 1 }, Vec::new()).unwrap();
    assert_eq!(reply, Some(VhostReply::VringState { queue: 1, base: 2 }));
    assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 0);
}

/// The control thread may handle a message while its back-end is dropped.
#[test]
fn closed_queues_never_start_again() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    send(&mut guest, 0);
    queues.close();
    let late = attach(&queues, &guest);
    guest.offer_buffer(0, &BufferLayout::whole(100));
    assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 0);
    assert_eq!(worker.sender.send([(NetHeader::default(), &[1; 60][..])]).end, SendEnd::Full);
    drop(late);
    assert_eq!((guest.take_sent(0), queues.take_failures()), (0, vec![]));
}

/// Overwrites bytes of a queue; returns the rule that this breaks.
fn error_of_bytes(queue: u16, offset: u64, bytes: &[u8]) -> RingError {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let mut device = attach(&queues, &guest);
    send(&mut guest, 0);
    guest.offer_buffer(0, &BufferLayout::whole(2000));
    guest.corrupt(queue, offset, bytes);
    worker.receiver.receive(32, &mut KeptFrames::default());
    worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
    let failures = queues.take_failures();
    let [failure] = failures[..] else { panic!("one queue fails, not {failures:?}") };
    assert_eq!(failure.queue, queue);
    assert!(device.fail(failure), "the failure is new");
    assert!(!device.fail(failure), "the failure is new only once");
    assert_eq!(device.failure(), Some(failure));
    assert_eq!(poll_to_sleep(&mut worker), 0);
    assert!(!is_readable(&worker), "a broken queue wakes nobody");
    // The driver is loaded again.
    device.handle(VhostRequest::GetVringBase { queue: queue.into() }, Vec::new()).unwrap();
    assert_eq!(device.failure(), None);
    failure.error
}

/// Empty descriptors take no room, and a frame may need many buffers.
#[test]
fn a_frame_has_a_bounded_number_of_descriptors() {
    let queues = Arc::new(DeviceQueues::new(1).unwrap());
    let mut guest = TestGuest::new(1, 128, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    while guest.offer_buffer(0, &BufferLayout::whole(100)) {}
    let mut chain: Vec<u8> = (1..128).flat_map(|next| descriptor(0, 0, 3, next)).collect();
    chain.extend(descriptor(0x4010_0000, 12, 2, 0));
    guest.corrupt(0, 0, &chain);
    // All entries of the available ring name the first descriptor.
    guest.corrupt(0, 0x2004, &[0; 256]);
    worker.sender.send([(NetHeader::default(), &[1; 1500][..])]);
    let failure = QueueFailure { queue: 0, error: RingError::LongChain(128), base: Some(0) };
    assert_eq!(queues.take_failures(), [failure]);
}

#[test]
fn a_buffer_too_short_for_headers_is_refused() {
    for length in [1, 11, 12] {
        let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
        let mut worker = Worker::new(&queues, 0);
        let _device = attach(&queues, &guest);
        for _ in 0..7 {
            assert!(guest.offer_buffer(0, &BufferLayout::whole(length)));
        }
        let sent = worker.sender.send([(NetHeader::default(), &[1; 60][..])]);
        let errors: Vec<RingError> = queues.take_failures().iter().map(|own| own.error).collect();
        let short = RingError::ShortBuffer(length);
        assert_eq!(
            (sent.frames, errors),
            if length == 12 { (1, vec![]) } else { (0, vec![short]) }
        );
    }
}

/// A hypervisor may unplug memory and plug it again while frames pass.
#[test]
fn a_queue_resumes_when_its_memory_returns() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let mut device = attach(&queues, &guest);
    let [_, region] = guest.regions();
    send(&mut guest, 0);
    assert_eq!(poll_to_sleep(&mut worker), 1);
    device.handle(VhostRequest::RemMemReg(region), Vec::new()).unwrap();
    send(&mut guest, 0);
    assert_eq!(poll_to_sleep(&mut worker), 0);
    let [failure] = queues.take_failures()[..] else { panic!("the queue fails") };
    assert!(matches!(failure.error, RingError::Buffer { .. }), "{failure:?}");
    assert!(device.fail(failure));
    device.handle(VhostRequest::AddMemReg(region), vec![duplicate(&guest.file)]).unwrap();
    assert_eq!(device.failure(), None);
    assert_eq!(poll_to_sleep(&mut worker), 1);
}

/// A front-end also requests the index of a queue after its guest broke a rule.
#[test]
fn a_stopped_queue_has_a_position() {
    let position = |device: &mut VhostDevice| {
        device.handle(VhostRequest::GetVringBase { queue: 1 }, Vec::new()).unwrap()
    };
    let expected = Some(VhostReply::VringState { queue: 1, base: 1 });
    for request in [VhostRequest::ResetOwner, VhostRequest::SetOwner] {
        let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
        let mut worker = Worker::new(&queues, 0);
        let mut device = attach(&queues, &guest);
        send(&mut guest, 0);
        assert_eq!(poll_to_sleep(&mut worker), 1);
        device.handle(request, Vec::new()).unwrap();
        send(&mut guest, 0);
        guest.corrupt(1, 0, &descriptor(0x1000, 72, 0, 0));
        guest.corrupt(1, 16, &descriptor(0x1000, 72, 0, 0));
        poll_to_sleep(&mut worker);
        for failure in queues.take_failures() {
            device.fail(failure);
        }
        assert_eq!(position(&mut device), expected);
    }
}

/// A message without a kick descriptor requests that the queue is polled.
#[test]
fn a_queue_without_a_kick_is_polled() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let mut device = attach(&queues, &guest);
    let vring = VringDescriptor { queue: 1, has_descriptor: false };
    device.handle(VhostRequest::SetVringKick(vring), Vec::new()).unwrap();
    for _ in 0..200 {
        assert!(worker.receiver.receive(32, &mut KeptFrames::default()).may_have_more);
    }
    send(&mut guest, 0);
    assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 1);
}

/// A descriptor as bytes.
fn descriptor(address: u64, length: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend([flags, next].into_iter().flat_map(u16::to_le_bytes));
    bytes
}

#[test]
fn guest_that_breaks_rule_loses_its_queue() {
    /// Offset of the available ring.
    const AVAILABLE: u64 = 0x2000;
    let inside = TestGuest::base(0);
    let cases: Vec<(u16, u64, Vec<u8>, RingError)> = vec![
        (1, AVAILABLE + 2, vec![9, 0], RingError::Offered { offered: 9, size: 8 }),
        (1, AVAILABLE + 4, vec![8, 0], RingError::NoDescriptor { index: 8, size: 8 }),
        (1, 0, descriptor(0x1000, 72, 0, 0), RingError::Buffer { address: 0x1000, length: 72 }),
        (
            1,
            0,
            descriptor(u64::MAX - 3, 72, 0, 0),
            RingError::Buffer { address: u64::MAX - 3, length: 72 },
        ),
        (1, 0, descriptor(inside, 72, 1, 0), RingError::LongChain(8)),
        (1, 0, descriptor(inside, 72, 1, 9), RingError::NoDescriptor { index: 9, size: 8 }),
        (1, 0, descriptor(inside, 72, 2, 0), RingError::Direction),
        (0, 0, descriptor(inside, 72, 0, 0), RingError::Direction),
        (1, 0, descriptor(inside, 72, 4, 0), RingError::IndirectTable(72)),
        (1, 0, descriptor(inside, 64, 5, 0), RingError::IndirectTable(64)),
        (1, 0, descriptor(inside, 0, 4, 0), RingError::IndirectTable(0)),
        (1, 0, descriptor(0x1000, 64, 4, 0), RingError::Buffer { address: 0x1000, length: 64 }),
    ];
    for (queue, offset, bytes, expected) in cases {
        assert_eq!(error_of_bytes(queue, offset, &bytes), expected);
    }
    // A table inside a table: the first descriptor of queue 1 refers to itself.
    let own = TestGuest::base(1);
    assert_eq!(error_of_bytes(1, 0, &descriptor(own, 16, 4, 0)), RingError::IndirectTable(16));
}

#[test]
fn frames_before_a_broken_chain_pass() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    (0..3).for_each(|_| send(&mut guest, 0));
    (0..3).for_each(|_| assert!(guest.offer_buffer(0, &BufferLayout::whole(72))));
    // In each queue two chains are read ahead, and the third entry names a descriptor that does not
    // exist.
    for queue in [0, 1] {
        guest.corrupt(queue, 0x2000 + 4 + 2 * 2, &[8, 0]);
    }
    let mut kept = KeptFrames::default();
    let polled = worker.receiver.receive(32, &mut kept);
    assert_eq!((polled.frames, kept.frames.len()), (2, 2));
    let sent = worker.sender.send([(NetHeader::default(), &[1; 60][..]); 3]);
    assert_eq!((sent.frames, sent.end), (2, SendEnd::Full));
    let failed = queues.take_failures().into_iter().map(|failure| (failure.queue, failure.error));
    let error = RingError::NoDescriptor { index: 8, size: 8 };
    assert_eq!(failed.collect::<Vec<_>>(), [(1, error), (0, error)]);
}

#[test]
fn a_frame_without_a_header_is_refused_alone() {
    let (queues, mut guest) = device(1, 1, TestGuest::SPLIT);
    let mut worker = Worker::new(&queues, 0);
    let _device = attach(&queues, &guest);
    send(&mut guest, 0);
    guest.corrupt(1, 8, &12_u32.to_le_bytes());
    send(&mut guest, 0);
    let mut kept = KeptFrames::default();
    let polled = worker.receiver.receive(32, &mut kept);
    assert_eq!((polled.frames, kept.frames.len()), (2, 1));
    assert_eq!(queues.take_failures(), []);
}

#[test]
fn a_queue_outside_the_memory_is_named() {
    let (queues, guest) = device(1, 1, TestGuest::SPLIT);
    let mut device = attach(&queues, &guest);
    let mut address = TestGuest::address(0);
    address.used += 1;
    device.handle(VhostRequest::SetVringAddr { queue: 0, address }, Vec::new()).unwrap();
    let error = RingError::Misaligned { part: "used ring", address: address.used };
    assert_eq!(queues.take_failures(), [QueueFailure { queue: 0, error, base: None }]);
    address.used = 0x10;
    device.handle(VhostRequest::SetVringAddr { queue: 0, address }, Vec::new()).unwrap();
    let error = RingError::Unmapped { part: "used ring", address: 0x10 };
    assert_eq!(queues.take_failures(), [QueueFailure { queue: 0, error, base: None }]);
    let text = GuestLink::Stopped { queue: 0, error }.to_string();
    let expected = "queue 0 was stopped: the used ring of the queue at 0x10 is outside the memory \
                    of the guest; load the network driver of the guest again";
    assert_eq!(text, expected);
}
