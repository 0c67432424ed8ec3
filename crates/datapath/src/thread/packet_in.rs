//! The queue from a packet thread to the control plane: packet-ins and protocol frames.
//!
//! A second ring returns the memory of the frames to the packet thread, so a packet-in allocates
//! nothing there. The memory of frames longer than [`FRAME_KEPT`] is freed instead, because a full
//! ring of the longest frames would take 64 MiB.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_pipeline::{Punt, PuntReceiver, PuntedPacket};

use crate::packet::buffer::{Packet, Pool};

/// Number of places in the queue that only LACP, BFD and snooping may use.
///
/// Without these places, a flood of packet-ins could break bonds and multicast groups. Each port
/// has its own rate limit ([`FrameLimit`](super::frame_limit::FrameLimit)), so the frames of one
/// port cannot fill the places for all ports.
const PLACES_FOR_PROTOCOLS: usize = 512;

/// Number of these places that only LACP and BFD may use.
///
/// Hosts on many ports may send IGMP and MLD reports at the same time, while LACP and BFD peers
/// send few frames.
const PLACES_FOR_PARTNERS: usize = 256;

/// Capacity of the frame buffers that return to the packet thread.
const FRAME_KEPT: usize = Pool::SMALL;

/// The packet thread's end of the queue to the control plane.
#[derive(Debug)]
pub(crate) struct PacketInSender {
    /// The ring of packets.
    packets: Producer<PuntedPacket>,
    /// The ring of returned frame memory.
    frames: Consumer<Vec<u8>>,
}

/// The control plane's end of the queue from a packet thread.
#[derive(Debug)]
pub struct PacketInReceiver {
    /// The ring of packets.
    packets: Consumer<PuntedPacket>,
    /// The ring of returned frame memory.
    frames: Producer<Vec<u8>>,
}

/// Creates a queue with `size` places for packet-ins, and places for protocols.
pub(crate) fn packet_in_queue(size: usize) -> (PacketInSender, PacketInReceiver) {
    let size = size.saturating_add(PLACES_FOR_PROTOCOLS);
    let (packets, received) = RingBuffer::new(size);
    let (returned, frames) = RingBuffer::new(size);
    (PacketInSender { packets, frames }, PacketInReceiver { packets: received, frames: returned })
}

impl PacketInSender {
    /// Returns whether the queue has no place for a packet to `receiver`.
    pub(crate) fn is_full(&self, receiver: PuntReceiver) -> bool {
        let kept = match receiver {
            PuntReceiver::Controllers => PLACES_FOR_PROTOCOLS,
            PuntReceiver::Multicast { .. } => PLACES_FOR_PARTNERS,
            PuntReceiver::Lacp(_) | PuntReceiver::Bfd(_) => 0,
        };
        self.packets.slots() <= kept
    }

    /// Queues a copy of a packet; returns false if the queue has no place.
    pub(crate) fn push(&mut self, punt: &Arc<Punt>, packet: &Packet) -> bool {
        if self.is_full(punt.receiver) {
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
    /// Takes the oldest packet from the queue, with a copy of its frame.
    pub fn pop(&mut self) -> Option<PuntedPacket> {
        let PuntedPacket { punt, frame } = self.packets.pop().ok()?;
        let copy = frame.clone();
        if frame.capacity() <= FRAME_KEPT {
            // A full ring already has memory for all places of the queue.
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

#[cfg(test)]
mod tests {
    use shunt_flow::{Match, PortNo};
    use shunt_pipeline::{BridgeId, Cookie, DatapathPort, PacketInReason, TableId};

    use super::*;

    /// Returns a punt to a receiver.
    fn punt(receiver: PuntReceiver) -> Arc<Punt> {
        Arc::new(Punt {
            receiver,
            bridge: BridgeId::new(1),
            reason: PacketInReason::Action,
            miss: None,
            table: TableId::FIRST,
            cookie: Cookie::new(0),
            controller_id: 0,
            max_len: u16::MAX,
            userdata: Box::default(),
            metadata: Match::any(),
            continuation: None,
        })
    }

    #[test]
    fn packet_ins_leave_space_for_protocol_packets() {
        let (mut sender, mut receiver) = packet_in_queue(2);
        let packet = Pool::new().take(60, DatapathPort::new(1)).unwrap();
        let controllers = punt(PuntReceiver::Controllers);
        assert!(sender.push(&controllers, &packet) && sender.push(&controllers, &packet));
        assert!(!sender.push(&controllers, &packet), "the queue is full for controllers");
        let multicast = punt(PuntReceiver::Multicast { port: PortNo::new(1), vlan: 0 });
        for _place in 0..PLACES_FOR_PROTOCOLS - PLACES_FOR_PARTNERS {
            assert!(sender.push(&multicast, &packet));
        }
        assert!(!sender.push(&multicast, &packet), "the rest is for LACP and BFD");
        let lacp = punt(PuntReceiver::Lacp(PortNo::new(1)));
        for _place in 0..PLACES_FOR_PARTNERS {
            assert!(sender.push(&lacp, &packet));
        }
        assert!(!sender.push(&lacp, &packet));
        assert_eq!(receiver.len(), 2 + PLACES_FOR_PROTOCOLS);
        assert_eq!(
            receiver.pop().map(|packet| packet.punt.receiver),
            Some(PuntReceiver::Controllers)
        );
        assert!(!sender.push(&controllers, &packet) && sender.push(&lacp, &packet));
    }
}
