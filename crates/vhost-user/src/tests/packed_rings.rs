//! Tests of packed rings: broken rules, positions, and back-ends that were killed.

use std::sync::Arc;

use super::{KeptFrames, attach, duplicate};
use crate::{
    NetHeader, RingError, SendEnd, VirtioFeatures, Worker,
    message::{VhostReply, VhostRequest, VringDescriptor},
    queues::DeviceQueues,
    testing::{BufferLayout, TestGuest},
};

/// Number of descriptors of a ring.
const SIZE: u16 = 8;

/// A guest with packed rings, and the device that serves it.
struct Setup {
    guest: TestGuest,
    queues: Arc<DeviceQueues>,
    worker: Worker,
}

impl Setup {
    /// Returns a guest with queues of `size` descriptors, and a worker.
    fn new(size: u16, features: VirtioFeatures) -> Self {
        let queues = Arc::new(DeviceQueues::new(1).unwrap());
        let worker = Worker::new(&queues, 0);
        Self { guest: TestGuest::new(1, size, features), queues, worker }
    }

    /// Sends a frame to the guest.
    fn put(&mut self, frame: &[u8]) -> SendEnd {
        self.worker.sender.send([(NetHeader::default(), frame)]).end
    }

    /// Returns the frames that the guest has received, without headers.
    fn receive_all(&mut self) -> Vec<Vec<u8>> {
        self.guest.take_received(0).into_iter().map(|(_, frame)| frame).collect()
    }

    /// Returns up to 32 frames that the guest has sent, without headers.
    fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut kept = KeptFrames::default();
        self.worker.receiver.receive(32, &mut kept);
        kept.frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Sends a frame from the guest in buffers of these lengths.
    fn send(&mut self, frame: &[u8], parts: &[usize]) {
        let layout = BufferLayout { parts: parts.to_vec(), is_indirect: false };
        assert!(self.guest.send(0, NetHeader::default(), frame, &layout));
    }

    /// Moves frames in both directions by `count` descriptors.
    fn advance(&mut self, count: u8) {
        for number in 0..count {
            self.send(&[number; 60], &[72]);
            assert_eq!(self.take_all(), [[number; 60]]);
            assert_eq!(self.guest.take_sent(0), 1);
            assert!(self.guest.offer_buffer(0, &BufferLayout::whole(100)));
            assert_eq!(self.put(&[number; 50]), SendEnd::All);
            assert_eq!(self.receive_all(), [[number; 50]]);
        }
    }

    /// Returns the descriptors of a queue, as bytes.
    fn ring(&self, queue: u16) -> Vec<Vec<u8>> {
        (0..self.guest.size).map(|slot| self.guest.descriptor(queue, slot)).collect()
    }

    /// Undoes changes of some descriptors, as if the device had not returned them.
    fn undo(&self, queue: u16, ring: &[Vec<u8>], slots: impl IntoIterator<Item = u16>) {
        for slot in slots {
            let slot = slot % self.guest.size;
            self.guest.corrupt(queue, 16 * u64::from(slot), &ring[usize::from(slot)]);
        }
    }
}

/// A descriptor as bytes.
fn descriptor(address: u64, length: u32, flags: u16) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend([0, flags].into_iter().flat_map(u16::to_le_bytes));
    bytes
}

/// The flag of a descriptor with a successor in its chain.
const NEXT: u16 = 1;
/// The flag of a buffer that the device writes.
const WRITE: u16 = 2;
/// The flag of a table of descriptors.
const INDIRECT: u16 = 4;
/// The bit of the flags that follows the wrap counter of the driver.
const AVAIL: u16 = 1 << 7;

#[test]
fn guest_that_breaks_rule_loses_its_ring() {
    let (own, inside) = (TestGuest::base(1), TestGuest::base(0));
    let outside = |address, length| RingError::Buffer { address, length };
    let endless = descriptor(inside, 9, AVAIL | NEXT).repeat(SIZE.into());
    let cases = [
        (1, descriptor(0x1000, 72, AVAIL), outside(0x1000, 72)),
        (1, descriptor(u64::MAX - 3, 72, AVAIL), outside(u64::MAX - 3, 72)),
        (1, endless, RingError::LongChain(SIZE)),
        (1, descriptor(inside, 72, AVAIL | WRITE), RingError::Direction),
        (0, descriptor(inside, 72, AVAIL), RingError::Direction),
        (1, descriptor(inside, 72, AVAIL | INDIRECT), RingError::IndirectTable(72)),
        (1, descriptor(inside, 0, AVAIL | INDIRECT), RingError::IndirectTable(0)),
        (1, descriptor(inside, 64, AVAIL | INDIRECT | NEXT), RingError::IndirectTable(64)),
        (1, descriptor(0x1000, 64, AVAIL | INDIRECT), outside(0x1000, 64)),
        // The table has the descriptor itself.
        (1, descriptor(own, 16, AVAIL | INDIRECT), RingError::IndirectTable(16)),
    ];
    for (queue, bytes, expected) in cases {
        let mut setup = Setup::new(SIZE, TestGuest::PACKED);
        let _device = attach(&setup.queues, &setup.guest);
        setup.send(&[9; 60], &[72]);
        setup.guest.offer_buffer(0, &BufferLayout::whole(2000));
        setup.guest.corrupt(queue, 0, &bytes);
        setup.take_all();
        setup.put(&[1; 60]);
        let failures = setup.queues.take_failures();
        let found: Vec<_> = failures.iter().map(|own| (own.queue, own.error)).collect();
        assert_eq!(found, [(queue, expected)]);
    }
}

#[test]
fn an_indirect_table_must_be_negotiated() {
    let features = TestGuest::PACKED.without(VirtioFeatures::INDIRECT_DESC);
    let mut setup = Setup::new(SIZE, features);
    let _device = attach(&setup.queues, &setup.guest);
    setup.guest.corrupt(1, 0, &descriptor(TestGuest::base(0), 64, AVAIL | INDIRECT));
    setup.take_all();
    assert_eq!(setup.queues.take_failures()[0].error, RingError::IndirectRefused);
}

/// A split ring has a power of two, and a packed ring any number of descriptors.
#[test]
fn a_packed_ring_has_any_size() {
    for size in [1, 3, 7, 12] {
        let mut setup = Setup::new(size, TestGuest::PACKED);
        let mut device = attach(&setup.queues, &setup.guest);
        for _ in 0..5 {
            setup.advance(5);
            drop(device);
            device = attach(&setup.queues, &setup.guest);
        }
        assert_eq!(setup.queues.take_failures(), []);
    }
}

#[test]
fn a_size_outside_the_standard_is_refused() {
    for size in [32_769, 65_536, u32::MAX] {
        let setup = Setup::new(SIZE, TestGuest::PACKED);
        let mut device = attach(&setup.queues, &setup.guest);
        device.handle(VhostRequest::SetVringNum { queue: 1, size }, Vec::new()).unwrap();
        let address = TestGuest::address(1);
        device.handle(VhostRequest::SetVringAddr { queue: 1, address }, Vec::new()).unwrap();
        let [failure] = setup.queues.take_failures()[..] else { panic!("the queue fails") };
        assert_eq!(failure.error, RingError::PackedSize(size));
    }
}

#[test]
fn position_of_ring_has_its_wrap_counter() {
    for (frames, position) in [(0, 0x8000), (3, 0x8003), (8, 0), (9, 1), (16, 0x8000)] {
        let mut setup = Setup::new(SIZE, TestGuest::PACKED);
        let mut device = attach(&setup.queues, &setup.guest);
        setup.advance(frames);
        setup.send(&[1; 60], &[72]);
        let base = position | position << 16;
        for queue in [0, 1] {
            let reply = device.handle(VhostRequest::GetVringBase { queue }, Vec::new()).unwrap();
            assert_eq!(reply, Some(VhostReply::VringState { queue, base }), "{frames} frames");
        }
    }
}

/// A killed device has returned some descriptors, from the last to the first.
#[test]
fn frame_in_several_buffers_is_returned_whole() {
    for before in 0..20 {
        for undone in 0..=3 {
            let mut setup = Setup::new(SIZE, TestGuest::PACKED);
            let device = attach(&setup.queues, &setup.guest);
            setup.advance(before);
            for _ in 0..5 {
                assert!(setup.guest.offer_buffer(0, &BufferLayout::whole(1000)));
            }
            let ring = setup.ring(0);
            let first: Vec<u8> = (0..=250).cycle().take(2500).collect();
            assert_eq!(setup.put(&first), SendEnd::All);
            setup.undo(0, &ring, (0..undone).map(|index| u16::from(before) + index));
            drop(device);
            let _device = attach(&setup.queues, &setup.guest);
            let second = vec![7; 1500];
            assert_eq!(setup.put(&second), SendEnd::All);
            // A frame that the device had not begun to return is lost.
            let frames = if undone == 3 { vec![second] } else { vec![first, second] };
            assert_eq!(setup.receive_all(), frames, "{before} before, {undone} undone");
            setup.advance(20);
            assert_eq!(setup.queues.take_failures(), []);
        }
    }
}

/// A killed device has returned some descriptors of a chain, but not the first.
#[test]
fn partly_returned_chain_is_used_again() {
    for before in 0..20 {
        for undone in 1..=3 {
            let mut setup = Setup::new(SIZE, TestGuest::PACKED);
            let device = attach(&setup.queues, &setup.guest);
            setup.advance(before);
            let layout = BufferLayout { parts: vec![500; 3], is_indirect: false };
            assert!(setup.guest.offer_buffer(0, &layout));
            setup.send(&[9; 60], &[12, 20, 40]);
            let rings = [0, 1].map(|queue| setup.ring(queue));
            assert_eq!(setup.put(&[5; 1200]), SendEnd::All);
            assert_eq!(setup.take_all(), [[9; 60]]);
            for (queue, ring) in (0..).zip(&rings) {
                setup.undo(queue, ring, (0..undone).map(|index| u16::from(before) + index));
            }
            drop(device);
            let _device = attach(&setup.queues, &setup.guest);
            assert_eq!((setup.receive_all().len(), setup.guest.take_sent(0)), (0, 0));
            assert_eq!(setup.put(&[6; 1300]), SendEnd::All);
            assert_eq!(setup.receive_all(), [[6; 1300]]);
            assert_eq!(setup.take_all(), [[9; 60]], "the killed device had not sent it");
            assert_eq!(setup.guest.take_sent(0), 1);
            setup.advance(20);
            assert_eq!(setup.queues.take_failures(), []);
        }
    }
}

/// Other back-ends change only the used bit of the first descriptor of a chain.
#[test]
fn a_foreign_ring_continues_at_the_negotiated_position() {
    let mut setup = Setup::new(SIZE, TestGuest::PACKED);
    let mut device = attach(&setup.queues, &setup.guest);
    setup.advance(3);
    for _ in 0..2 {
        let ring = setup.ring(1);
        for _ in 0..3 {
            setup.send(&[9; 60], &[12, 60]);
        }
        let offered = setup.ring(1);
        assert_eq!(setup.take_all().len(), 3);
        let reply = device.handle(VhostRequest::GetVringBase { queue: 1 }, Vec::new()).unwrap();
        let Some(VhostReply::VringState { base, .. }) = reply else { panic!("{reply:?}") };
        let is_last = |slot: &u16| {
            let (before, now) = (&ring[usize::from(*slot)], &offered[usize::from(*slot)]);
            before != now && now[14] & 1 == 0
        };
        setup.undo(1, &offered, (0..SIZE).filter(is_last));
        let vring = VringDescriptor { queue: 1, has_descriptor: true };
        let kick = duplicate(&setup.guest.queues[1].kick);
        device.handle(VhostRequest::SetVringBase { queue: 1, base }, Vec::new()).unwrap();
        device.handle(VhostRequest::SetVringKick(vring), vec![kick]).unwrap();
        assert_eq!(setup.guest.take_sent(0), 3);
        setup.send(&[1; 60], &[72]);
        assert_eq!(setup.take_all(), [[1; 60]]);
        assert_eq!(setup.guest.take_sent(0), 1);
    }
    assert_eq!(setup.queues.take_failures(), []);
}
