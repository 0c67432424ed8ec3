//! Tests of rings: against a model, and with peers that break rules.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::testing::{RingFrames, RingPair};

/// Puts a frame into a ring, and publishes it.
fn send(ring: &mut TransmitRing, frame: &[u8]) -> MemifPut {
    ring.look(1).unwrap();
    let put = ring.put_frame(frame).unwrap();
    ring.publish();
    put
}

/// Receives at most `max` frames.
fn receive(ring: &mut ReceiveRing, max: usize) -> Vec<Vec<u8>> {
    let mut sink = RingFrames::default();
    let (taken, result) = ring.take_frames(max, &mut sink);
    result.unwrap();
    assert_eq!(taken, sink.frames.len());
    sink.frames
}

/// A step of a test case, in one direction.
#[derive(Clone, Debug)]
enum RingStep {
    Send(Vec<u16>),
    Receive(usize),
}

/// Generates steps of both ends of a ring.
fn steps() -> impl Strategy<Value = Vec<RingStep>> {
    let step = prop_oneof![
        prop::collection::vec(1_u16..400, 0..5).prop_map(RingStep::Send),
        (0_usize..6).prop_map(RingStep::Receive),
    ];
    prop::collection::vec(step, 0..60)
}

/// Compares one direction with a queue of frames as its model.
fn check(
    sender: &mut TransmitRing,
    receiver: &mut ReceiveRing,
    steps: &[RingStep],
    (buffers, buffer_bytes): (usize, usize),
) {
    let mut queue: VecDeque<Vec<u8>> = VecDeque::new();
    let mut number = 0_u8;
    for step in steps {
        match step {
            RingStep::Send(lengths) => {
                sender.look(lengths.len()).unwrap();
                for length in lengths {
                    number = number.wrapping_add(1);
                    let frame = vec![number; usize::from(*length)];
                    let used: usize =
                        queue.iter().map(|frame| frame.len().div_ceil(buffer_bytes)).sum();
                    let needed = frame.len().div_ceil(buffer_bytes);
                    let expected = if used + needed <= buffers {
                        queue.push_back(frame.clone());
                        MemifPut::Done
                    } else if used == 0 {
                        MemifPut::Refused
                    } else {
                        MemifPut::Full
                    };
                    assert_eq!(sender.put_frame(&frame).unwrap(), expected);
                }
                sender.publish();
            }
            RingStep::Receive(max) => {
                let expected: Vec<Vec<u8>> = queue.drain(..queue.len().min(*max)).collect();
                assert_eq!(receive(receiver, *max), expected);
            }
        }
    }
    let rest: Vec<Vec<u8>> = queue.into();
    assert_eq!(receive(receiver, usize::MAX), rest);
}

proptest! {
    #[test]
    fn a_ring_to_the_server_keeps_frame_order(steps in steps()) {
        let mut pair = RingPair::new(2, 100);
        check(&mut pair.client_sends, &mut pair.server_receives, &steps, (4, 100));
    }

    #[test]
    fn a_ring_to_the_client_keeps_frame_order(steps in steps()) {
        let mut pair = RingPair::new(2, 100);
        check(&mut pair.server_sends, &mut pair.client_receives, &steps, (4, 100));
    }
}

#[test]
fn indices_wrap_after_all_numbers() {
    let mut pair = RingPair::new(3, 64);
    for number in 0..70_000_u32 {
        let frame = number.to_ne_bytes();
        assert_eq!(send(&mut pair.client_sends, &frame), MemifPut::Done);
        assert_eq!(receive(&mut pair.server_receives, 8), [frame]);
        assert_eq!(send(&mut pair.server_sends, &frame), MemifPut::Done);
        assert_eq!(receive(&mut pair.client_receives, 8), [frame]);
    }
}

#[test]
fn a_notification_is_sent_on_request_alone() {
    let mut pair = RingPair::new(3, 64);
    let both = [
        (&mut pair.client_sends, &mut pair.server_receives),
        (&mut pair.server_sends, &mut pair.client_receives),
    ];
    for (sender, receiver) in both {
        for is_wanted in [false, true, false] {
            receiver.set_interrupts(is_wanted);
            sender.look(1).unwrap();
            assert!(!sender.publish(), "nothing was sent");
            sender.put_frame(&[1; 60]).unwrap();
            assert_eq!(sender.publish(), is_wanted);
            assert_eq!(receive(receiver, 1).len(), 1);
        }
    }
}

/// Overwrites bytes in the ring to the server (0) or to the client (1).
fn corrupt(pair: &RingPair, ring: usize, offset: usize, bytes: &[u8]) {
    assert!(pair.memory[0].write(ring * ring_bytes(3) + offset, bytes));
}

#[test]
fn an_index_beyond_the_ring_is_refused() {
    let beyond = Err(MemifRingError::Index { announced: 9, size: 8 });
    let mut pair = RingPair::new(3, 64);
    corrupt(&pair, 0, offset_of(RingWord::Head), &9_u16.to_ne_bytes());
    let received = pair.server_receives.take_frames(4, &mut RingFrames::default());
    assert_eq!(received, (0, beyond));
    corrupt(&pair, 0, offset_of(RingWord::Tail), &(-9_i16).to_ne_bytes());
    assert_eq!(pair.client_sends.look(1), beyond);
    corrupt(&pair, 1, offset_of(RingWord::Tail), &9_u16.to_ne_bytes());
    let received = pair.client_receives.take_frames(4, &mut RingFrames::default());
    assert_eq!(received, (0, beyond));
    corrupt(&pair, 1, offset_of(RingWord::Head), &9_u16.to_ne_bytes());
    assert_eq!(pair.server_sends.look(1), beyond);
}

#[test]
fn a_buffer_outside_of_its_region_is_refused() {
    for (region, length, offset) in
        [(1, 1, 0), (0, u32::MAX, 0), (0, 2, u32::MAX), (0, 0, u32::MAX)]
    {
        let mut pair = RingPair::new(3, 64);
        let bytes = MemifDescriptor { flags: 0, region, length, offset }.encode();
        send(&mut pair.client_sends, &[1; 60]);
        corrupt(&pair, 0, DESCRIPTORS, &bytes);
        let expected = MemifRingError::Buffer { region, offset, length };
        let received = pair.server_receives.take_frames(4, &mut RingFrames::default());
        assert_eq!(received, (0, Err(expected)));
        corrupt(&pair, 1, DESCRIPTORS, &bytes);
        pair.server_sends.look(1).unwrap();
        assert_eq!(pair.server_sends.put_frame(&[1; 60]), Err(expected));
    }
}

#[test]
fn a_short_buffer_for_frames_is_refused() {
    for length in [0, 1, 63, 64] {
        let mut pair = RingPair::new(3, 64);
        let short = MemifDescriptor { flags: 0, region: 0, length, offset: 1024 };
        corrupt(&pair, 1, DESCRIPTORS, &short.encode());
        pair.server_sends.look(1).unwrap();
        let expected = match length {
            64 => Ok(MemifPut::Done),
            _ => Err(MemifRingError::ShortBuffer(length)),
        };
        assert_eq!(pair.server_sends.put_frame(&[1; 60]), expected);
    }
}

/// The descriptors must be clear: some clients do not set flags for short frames.
#[test]
fn a_server_returns_buffers_without_their_flags() {
    let mut pair = RingPair::new(3, 64);
    for number in 0..20 {
        assert_eq!(send(&mut pair.client_sends, &[number; 150]), MemifPut::Done);
        assert_eq!(receive(&mut pair.server_receives, 1), [[number; 150]]);
        for slot in 0..8 {
            let mut flags = [9; 2];
            assert!(pair.memory[0].read(DESCRIPTORS + slot * DESCRIPTOR_BYTES, &mut flags));
            assert_eq!(flags, [0; 2], "descriptor {slot}");
        }
    }
}

/// The client uses its own positions, whatever the server writes into descriptors.
#[test]
fn server_cannot_move_buffers_of_client() {
    let mut pair = RingPair::new(3, 64);
    send(&mut pair.server_sends, &[1; 60]);
    let moved = MemifDescriptor { flags: 0, region: 9, length: 60, offset: u32::MAX };
    corrupt(&pair, 1, DESCRIPTORS, &moved.encode());
    assert_eq!(receive(&mut pair.client_receives, 1), [[1; 60]]);
    send(&mut pair.server_sends, &[2; 60]);
    let long = MemifDescriptor { length: 65, ..moved };
    corrupt(&pair, 1, DESCRIPTORS + DESCRIPTOR_BYTES, &long.encode());
    let (taken, result) = pair.client_receives.take_frames(1, &mut RingFrames::default());
    assert_eq!(taken, 0);
    assert!(matches!(result, Err(MemifRingError::Buffer { length: 65, .. })));
}

#[test]
fn an_endless_frame_is_refused_partial_ones_wait() {
    let mut pair = RingPair::new(3, 64);
    assert_eq!(send(&mut pair.client_sends, &[1; 100]), MemifPut::Done);
    corrupt(&pair, 0, offset_of(RingWord::Head), &1_u16.to_ne_bytes());
    assert_eq!(receive(&mut pair.server_receives, 4), Vec::<Vec<u8>>::new());
    corrupt(&pair, 0, offset_of(RingWord::Head), &2_u16.to_ne_bytes());
    assert_eq!(receive(&mut pair.server_receives, 4), [[1; 100]]);
    for slot in 0..8 {
        let endless = MemifDescriptor { flags: NEXT, region: 0, length: 1, offset: 0 };
        corrupt(&pair, 0, DESCRIPTORS + slot * DESCRIPTOR_BYTES, &endless.encode());
    }
    corrupt(&pair, 0, offset_of(RingWord::Head), &10_u16.to_ne_bytes());
    let received = pair.server_receives.take_frames(4, &mut RingFrames::default());
    assert_eq!(received, (0, Err(MemifRingError::LongChain(8))));
}

#[test]
fn memory_without_a_ring_is_refused() {
    let pair = RingPair::new(3, 64);
    let open = |region, offset, log2_size| {
        let direction = crate::message::RingDirection::ToServer;
        let message = RingMessage { direction, index: 0, region, offset, log2_size };
        RingMemory::open(Arc::clone(&pair.memory), &message, BufferOwner::Peer).map(drop)
    };
    assert_eq!(open(0, 0, 3), Ok(()));
    assert_eq!(open(0, 0, 15), Err(MemifRingError::Size(15)));
    assert_eq!(open(0, 0, 255), Err(MemifRingError::Size(255)));
    for (region, offset, log2_size) in [(1, 0, 3), (0, 1, 3), (0, u32::MAX, 3), (0, 0, 14)] {
        let expected = MemifRingError::Place { region, offset };
        assert_eq!(open(region, offset, log2_size), Err(expected));
    }
    assert_eq!(open(0, 16, 3), Err(MemifRingError::Cookie(0)));
}
