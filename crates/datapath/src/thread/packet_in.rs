//! The queue of packet-ins, from a packet thread to the control plane.
//!
//! The memory of the frames goes back to the packet thread by a second ring, so a packet-in allocates
//! nothing there. A frame that is longer than [`FRAME_KEPT`] is the exception: its memory is not kept, since
//! a full ring of the longest frames would take 64 MiB.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_pipeline::{Punt, PuntedPacket};

use crate::packet::buffer::{Packet, Pool};

/// Capacity of frames that are used again.
const FRAME_KEPT: usize = Pool::SMALL;

/// The endpoint of the packet thread.
#[derive(Debug)]
pub(crate) struct PacketInSender {
    packets: Producer<PuntedPacket>,
    frames: Consumer<Vec<u8>>,
}

/// The endpoint of the control plane.
#[derive(Debug)]
pub struct PacketInReceiver {
    packets: Consumer<PuntedPacket>,
    frames: Producer<Vec<u8>>,
}

/// Creates a queue for `size` packets.
pub(crate) fn packet_in_queue(size: usize) -> (PacketInSender, PacketInReceiver) {
    let (packets, received) = RingBuffer::new(size);
    let (returned, frames) = RingBuffer::new(size);
    (PacketInSender { packets, frames }, PacketInReceiver { packets: received, frames: returned })
}

impl PacketInSender {
    pub(crate) fn is_full(&self) -> bool {
        self.packets.is_full()
    }

    /// Queues a copy of a packet; returns false if the queue is full.
    pub(crate) fn push(&mut self, punt: &Arc<Punt>, packet: &Packet) -> bool {
        if self.is_full() {
            return false;
        }
        let frame = self.frames.pop();
        let mut frame = frame.unwrap_or_else(|_| Vec::with_capacity(FRAME_KEPT));
        frame.clear();
        frame.extend_from_slice(packet.frame());
        self.packets.push(PuntedPacket { punt: Arc::clone(punt), frame }).is_ok()
    }
}

impl PacketInReceiver {
    /// Takes the oldest packet. Its frame is a copy, made by the caller's thread.
    pub fn pop(&mut self) -> Option<PuntedPacket> {
        let PuntedPacket { punt, frame } = self.packets.pop().ok()?;
        let copy = frame.clone();
        if frame.capacity() <= FRAME_KEPT {
            // A full ring has memory for as many packets as fit the queue.
            let _ = self.frames.push(frame);
        }
        Some(PuntedPacket { punt, frame: copy })
    }

    /// Returns the number of packets in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.slots()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}
