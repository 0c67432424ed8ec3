//! The packets of a port that wait for a translation.
//!
//! They are in order of arrival, and leave in this order, except that one flow can be served before the
//! others. Each packet has a hash of its flow, and the packets of each hash are counted. So
//! a hit finds out quickly whether an earlier packet of its flow waits.

use std::collections::VecDeque;

use shunt_flow::{FieldId, FlowKey, layout::word};
use shunt_pipeline::Time;

use crate::packet::buffer::Packet;

/// Number of counters by flow hash; a power of two.
const FLOWS: usize = 1024;

/// The packets of a port that wait for a translation, oldest first.
pub(in crate::thread) struct WaitingPackets {
    packets: VecDeque<WaitingPacket>,
    /// Number of packets by the low bits of [`WaitingPacket::flow`].
    flows: Box<[u32]>,
}

/// A packet that waits for a translation, with its original headers.
pub(in crate::thread) struct WaitingPacket {
    pub(in crate::thread) packet: Packet,
    /// Number of frames that its port had received before its burst.
    pub(in crate::thread) received_before: u64,
    /// The hash of its flow.
    pub(in crate::thread) flow: u32,
    /// Start of the iteration that received it.
    pub(in crate::thread) since: Time,
    /// Its choice between waiting for its source address and leaving at once.
    pub(in crate::thread) source: SourceLearning,
}

/// The choice between waiting for a source address and leaving at once.
///
/// See [`Learning::precede_packet`](shunt_pipeline::Learning::precede_packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread) enum SourceLearning {
    /// The packet may wait: it sent no request yet.
    MayWait,
    /// The packet is sent at once.
    ///
    /// It waited for its request, or it cannot wait, because it has no longer its original headers.
    SentAtOnce,
}

impl WaitingPackets {
    pub(in crate::thread) fn new(capacity: usize) -> Self {
        let flows = vec![0; FLOWS].into_boxed_slice();
        Self { packets: VecDeque::with_capacity(capacity), flows }
    }

    pub(in crate::thread) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub(in crate::thread) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(in crate::thread) fn oldest(&self) -> Option<&WaitingPacket> {
        self.packets.front()
    }

    /// Adds a packet after all others.
    pub(in crate::thread) fn push(&mut self, waiting: WaitingPacket) {
        self.insert(self.packets.len(), waiting);
    }

    /// Adds a packet at the position from which it was taken.
    pub(in crate::thread) fn insert(&mut self, position: usize, waiting: WaitingPacket) {
        self.flows[waiting.flow as usize % FLOWS] += 1;
        self.packets.insert(position, waiting);
    }

    /// Takes the packet at a position; 0 is the oldest.
    pub(in crate::thread) fn take(&mut self, position: usize) -> Option<WaitingPacket> {
        let taken = self.packets.remove(position)?;
        self.flows[taken.flow as usize % FLOWS] -= 1;
        Some(taken)
    }

    /// Returns whether a packet of a flow waits, or of another flow with the same hash.
    pub(in crate::thread) fn has_flow(&self, flow: u32) -> bool {
        self.position_of(flow).is_some()
    }

    /// Returns the position of the oldest packet of a flow.
    pub(in crate::thread) fn position_of(&self, flow: u32) -> Option<usize> {
        if self.flows[flow as usize % FLOWS] == 0 {
            return None;
        }
        self.packets.iter().position(|waiting| waiting.flow == flow)
    }

    /// Takes all packets.
    pub(in crate::thread) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.packets.into_iter().map(|waiting| waiting.packet)
    }
}

/// Returns a hash that is equal for all packets of a flow.
///
/// A flow has the same addresses, tags and ports. Of fragments only the first has ports, so
/// theirs do not count.
pub(in crate::thread) fn flow_of(key: &FlowKey) -> u32 {
    let ports =
        if key.field(FieldId::NwFrag) == 0 { word_of(key, word::TRANSPORT) >> 32 } else { 0 };
    let link = word::ETH_DST..=word::VLAN;
    let network = word::IPV4..word::IP_MISC;
    let words = link.chain(network).map(|index| word_of(key, index));
    let mixed = words.fold(ports, |sum, word| (sum.rotate_left(5) ^ word).wrapping_mul(FACTOR));
    // The high half depends on all bits.
    (mixed >> 32) as u32
}

/// The golden ratio as an odd number; multiplying by it spreads the input bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn word_of(key: &FlowKey, index: u8) -> u64 {
    key.words()[usize::from(index)]
}
