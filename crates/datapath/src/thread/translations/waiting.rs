//! The upcall queue of a port: the packets that wait for a translation.
//!
//! Packets are in order of arrival and leave in this order, but the thread may serve one flow
//! before others. The queue counts its packets by a hash of their flow. So a packet that hits can
//! check quickly whether an earlier packet of its flow waits.
//!
//! Most ports are idle, so a queue has no memory before its first packet, and then grows with the
//! number of its packets.

use std::collections::VecDeque;

use shunt_flow::{FieldId, FlowKey, layout::word};
use shunt_pipeline::Time;

use crate::packet::buffer::Packet;

/// Number of counters of packets by flow hash; a power of two.
const FLOWS: usize = 1024;

/// The upcall queue of a port: packets that wait for a translation, oldest first.
#[derive(Default)]
pub(in crate::thread) struct WaitingPackets {
    /// The packets that wait, oldest first.
    packets: VecDeque<WaitingPacket>,
    /// Number of packets by the low bits of [`WaitingPacket::flow`].
    ///
    /// The list is empty before the first packet.
    flows: Box<[u32]>,
}

/// A packet that waits for a translation, with its original headers.
pub(in crate::thread) struct WaitingPacket {
    /// The packet that waits.
    pub(in crate::thread) packet: Packet,
    /// Number of frames that the receive queue had returned before the packet's burst.
    pub(in crate::thread) received_before: u64,
    /// The hash of the packet's flow.
    pub(in crate::thread) flow: u32,
    /// Start of the iteration that received the packet.
    pub(in crate::thread) since: Time,
    /// Tells if the packet may still wait until its source address is learned.
    pub(in crate::thread) source: SourceLearning,
}

/// Tells if a packet may wait until its source address is learned.
///
/// See [`Learning::precede_packet`](shunt_pipeline::Learning::precede_packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread) enum SourceLearning {
    /// The packet may wait, because it has not sent a learn request.
    MayWait,
    /// The packet is sent at once.
    ///
    /// The packet has waited for its learn request, or no longer has its original headers.
    SentAtOnce,
}

impl WaitingPackets {
    /// Returns the number of packets.
    pub(in crate::thread) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether no packet waits.
    #[inline]
    pub(in crate::thread) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the packet that has waited longest.
    pub(in crate::thread) fn oldest(&self) -> Option<&WaitingPacket> {
        self.packets.front()
    }

    /// Appends a packet to those that wait.
    pub(in crate::thread) fn push(&mut self, waiting: WaitingPacket) {
        self.insert(self.packets.len(), waiting);
    }

    /// Inserts a packet at the position from which it was taken.
    pub(in crate::thread) fn insert(&mut self, position: usize, waiting: WaitingPacket) {
        if self.flows.is_empty() {
            self.flows = vec![0; FLOWS].into_boxed_slice();
        }
        self.flows[waiting.flow as usize % FLOWS] += 1;
        self.packets.insert(position, waiting);
    }

    /// Takes the packet at a position; position 0 is the oldest packet.
    pub(in crate::thread) fn take(&mut self, position: usize) -> Option<WaitingPacket> {
        let taken = self.packets.remove(position)?;
        self.flows[taken.flow as usize % FLOWS] -= 1;
        Some(taken)
    }

    /// Returns whether a packet with this flow hash waits.
    pub(in crate::thread) fn has_flow(&self, flow: u32) -> bool {
        self.position_of(flow).is_some()
    }

    /// Returns the position of the oldest packet with a flow hash.
    pub(in crate::thread) fn position_of(&self, flow: u32) -> Option<usize> {
        if self.flows.get(flow as usize % FLOWS).is_none_or(|count| *count == 0) {
            return None;
        }
        self.packets.iter().position(|waiting| waiting.flow == flow)
    }

    /// Takes all packets out of the queue.
    pub(in crate::thread) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.packets.into_iter().map(|waiting| waiting.packet)
    }
}

/// Returns a flow hash: packets of a flow have equal hashes.
///
/// Packets of a flow have the same addresses, VLAN tags and transport ports. The hash of a fragment
/// excludes the ports, because only the first fragment has them.
pub(in crate::thread) fn flow_of(key: &FlowKey) -> u32 {
    let ports =
        if key.field(FieldId::NwFrag) == 0 { word_of(key, word::TRANSPORT) >> 32 } else { 0 };
    let link = word::ETH_DST..=word::VLAN;
    let network = word::IPV4..word::IP_MISC;
    let words = link.chain(network).map(|index| word_of(key, index));
    let mixed = words.fold(ports, |sum, word| (sum.rotate_left(5) ^ word).wrapping_mul(FACTOR));
    // The high half of the product depends on all input bits.
    (mixed >> 32) as u32
}

/// The golden ratio as an odd number: a multiplication spreads the input bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the word of a key at an index.
fn word_of(key: &FlowKey, index: u8) -> u64 {
    key.words()[usize::from(index)]
}
