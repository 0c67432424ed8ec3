//! Tests of what a front-end requests for migrations, and of the MTU.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    memfd::{MFdFlags, memfd_create},
};

use super::{KeptFrames, attach, duplicate};
use crate::{
    NetHeader, SendEnd, VirtioFeatures, Worker,
    device::VhostDevice,
    message::{VhostReply, VhostRequest},
    queues::DeviceQueues,
    testing::{BufferLayout, TestGuest},
};

/// Bytes of a page of the log.
const PAGE: usize = 4096;

/// The log of a migration, and the memory when the log began.
struct Migration {
    log: File,
    before: Vec<u8>,
}

impl Migration {
    /// The number of bytes for the bits of all pages.
    const LOG_BYTES: u64 = 0x9000;

    /// Starts the log of dirty pages, and keeps the present memory to compare.
    fn start(device: &mut VhostDevice, guest: &TestGuest) -> Self {
        let log = File::from(memfd_create(c"log", MFdFlags::MFD_CLOEXEC).unwrap());
        log.set_len(Self::LOG_BYTES).unwrap();
        let request = VhostRequest::SetLogBase { length: Self::LOG_BYTES, offset: 0 };
        let reply = device.handle(request, vec![duplicate(&log)]).unwrap();
        assert_eq!(reply, Some(VhostReply::Empty));
        let features = guest.features.with(VirtioFeatures::LOG_ALL);
        device.handle(VhostRequest::SetFeatures(features.bits()), Vec::new()).unwrap();
        Self { log, before: guest.contents() }
    }

    /// Compares the log with the changed pages; returns the number of marked pages.
    fn check(&self, guest: &TestGuest) -> usize {
        let mut log = vec![0; usize::try_from(Self::LOG_BYTES).unwrap()];
        self.log.read_exact_at(&mut log, 0).unwrap();
        let first = usize::try_from(TestGuest::base(0)).unwrap() / PAGE;
        let after = guest.contents();
        let pages = self.before.chunks(PAGE).zip(after.chunks(PAGE));
        for (page, (before, after)) in (first..).zip(pages) {
            let is_marked = log[page / 8] & 1 << (page % 8) != 0;
            assert!(is_marked || before == after, "page {page:#x} has changed");
        }
        log.iter().map(|byte| byte.count_ones() as usize).sum()
    }
}

#[test]
fn changed_pages_are_in_the_log() {
    for features in [TestGuest::SPLIT, TestGuest::PACKED] {
        let queues = Arc::new(DeviceQueues::new(1).unwrap());
        let mut guest = TestGuest::new(1, 8, features);
        let mut worker = Worker::new(&queues, 0);
        let mut device = attach(&queues, &guest);
        for length in [100, 6000, 3000] {
            assert!(guest.offer_buffer(0, &BufferLayout::whole(length)));
            let layout = BufferLayout { parts: vec![12, length], is_indirect: true };
            assert!(guest.send(0, NetHeader::default(), &vec![3; length], &layout));
        }
        let migration = Migration::start(&mut device, &guest);
        assert_eq!(worker.receiver.receive(32, &mut KeptFrames::default()).frames, 3);
        let frames = [&[5; 60][..], &[6; 8000]];
        let sent = worker.sender.send(frames.map(|frame| (NetHeader::default(), frame)));
        assert_eq!(sent.end, SendEnd::All);
        let marked = migration.check(&guest);
        // The buffers have up to five pages, and each queue up to three.
        assert!((5..=11).contains(&marked), "{marked} pages");
        // The migration ends.
        device.handle(VhostRequest::SetFeatures(features.bits()), Vec::new()).unwrap();
        assert_eq!(guest.take_received(0).len(), 2);
        migration.log.write_all_at(&[0; PAGE], 0x8000).unwrap();
        assert!(guest.offer_buffer(0, &BufferLayout::whole(100)));
        assert_eq!(worker.sender.send([(NetHeader::default(), &[1; 60][..])]).frames, 1);
        let mut log = vec![0; PAGE];
        migration.log.read_exact_at(&mut log, 0x8000).unwrap();
        assert_eq!(log, vec![0; PAGE]);
    }
}

/// Returns whether the wait descriptor of the worker signals now.
fn is_readable(worker: &Worker) -> bool {
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    epoll.add(worker.receiver.wait_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() > 0
}

#[test]
fn a_migrated_guest_is_announced_once() {
    let queues = Arc::new(DeviceQueues::new(2).unwrap());
    let guest = TestGuest::new(2, 8, TestGuest::SPLIT);
    let mut workers = [0, 1].map(|worker| Worker::new(&queues, worker));
    let mut device = attach(&queues, &guest);
    let mut sink = KeptFrames::default();
    for worker in &mut workers {
        while worker.receiver.receive(32, &mut sink).may_have_more {}
        assert!(!is_readable(worker));
    }
    let mac = [2, 0, 0, 0, 0, 9];
    device.handle(VhostRequest::SendRarp { mac }, Vec::new()).unwrap();
    assert!(is_readable(&workers[0]), "the announcement wakes the worker");
    assert_eq!(workers[1].receiver.receive(32, &mut sink).frames, 0);
    assert_eq!(workers[0].receiver.receive(0, &mut sink).frames, 0);
    assert_eq!(workers[0].receiver.receive(32, &mut sink).frames, 1);
    assert_eq!(workers[0].receiver.receive(32, &mut sink).frames, 0);
    let [(header, frame)] = &sink.frames[..] else { panic!("{:?}", sink.frames) };
    assert_eq!((header, frame.len()), (&NetHeader::default(), 60));
    assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x80, 0x35]);
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused() {
    let tcp: NetHeader = [1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0, 0, 0];
    let plain = NetHeader::default();
    let without = TestGuest::SPLIT.without(VirtioFeatures::MTU);
    for (features, too_long) in [(TestGuest::SPLIT, SendEnd::Refused), (without, SendEnd::All)] {
        let queues = Arc::new(DeviceQueues::new(1).unwrap());
        let mut guest = TestGuest::new(1, 8, features);
        let mut worker = Worker::new(&queues, 0);
        let mut device = attach(&queues, &guest);
        device.handle(VhostRequest::NetSetMtu(1500), Vec::new()).unwrap();
        let mut end = |header, length| {
            assert!(guest.offer_buffer(0, &BufferLayout::whole(4000)));
            worker.sender.send([(header, &vec![1; length][..])]).end
        };
        // An Ethernet header and two VLAN tags are not counted.
        assert_eq!((end(plain, 1522), end(plain, 1523)), (SendEnd::All, too_long));
        assert_eq!(end(tcp, 3000), SendEnd::All, "a frame to be segmented has any length");
    }
}

#[test]
fn an_mtu_outside_its_range_is_refused() {
    let queues = Arc::new(DeviceQueues::new(1).unwrap());
    let mut device = VhostDevice::new(queues);
    for mtu in [68, 65_535] {
        device.handle(VhostRequest::NetSetMtu(mtu), Vec::new()).unwrap();
    }
    for mtu in [0, 67, 65_536, u64::MAX] {
        let refused = device.handle(VhostRequest::NetSetMtu(mtu), Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("it must be from 68 to 65535"), "{refused}");
    }
}
