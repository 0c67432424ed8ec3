//! The queue of packet-ins and of frames of protocols, from a packet thread to the control plane.
//!
//! The memory of the frames goes back to the packet thread by a second ring, so a packet-in allocates
//! nothing there. A frame that is longer than [`FRAME_KEPT`] is the exception: its memory is not kept, since
//! a full ring of the longest frames would take 64 MiB.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_pipeline::{Punt, PuntReceiver, PuntedPacket};

use crate::packet::buffer::{Packet, Pool};

/// Places that only protocols use.
///
/// So no flood of packet-ins costs a link its partner, or a host its multicast groups. Each port has a
/// limit of its own ([`FrameLimit`](super::frame_limit::FrameLimit)), so no flood of one link takes the
/// places of another.
const PLACES_FOR_PROTOCOLS: usize = 512;

/// Places of these that only LACP and BFD use.
///
/// Hosts on many ports may report at the same time, and a partner sends few frames.
const PLACES_FOR_PARTNERS: usize = 256;

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

/// Creates a queue for `size` packets for controllers, and some for protocols.
pub(crate) fn packet_in_queue(size: usize) -> (PacketInSender, PacketInReceiver) {
    let size = size.saturating_add(PLACES_FOR_PROTOCOLS);
    let (packets, received) = RingBuffer::new(size);
    let (returned, frames) = RingBuffer::new(size);
    (PacketInSender { packets, frames }, PacketInReceiver { packets: received, frames: returned })
}

impl PacketInSender {
    /// Returns whether no packet for this receiver fits.
    pub(crate) fn is_full(&self, receiver: PuntReceiver) -> bool {
        let kept = match receiver {
            PuntReceiver::Controllers => PLACES_FOR_PROTOCOLS,
            PuntReceiver::Multicast { .. } => PLACES_FOR_PARTNERS,
            PuntReceiver::Lacp(_) | PuntReceiver::Bfd(_) => 0,
        };
        self.packets.slots() <= kept
    }

    /// Queues a copy of a packet; returns false if the queue is full.
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

#[cfg(test)]
mod tests {
    use shunt_flow::{Match, PortNo};
    use shunt_pipeline::{BridgeId, Cookie, DatapathPort, PacketInReason, TableId};

    use super::*;

    fn punt(receiver: PuntReceiver) -> Arc<Punt> {
        Arc::new(Punt {
            receiver,
            bridge: BridgeId::new(1),
            reason: PacketInReason::Action,
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
    fn packet_ins_leave_places_for_protocols() {
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
