//! The transmit queue of one port, with the batch of packets to send.
//!
//! The type also has the rate limits of frames from the port to the control plane.

use std::sync::Arc;

use shunt_pipeline::{DatapathPort, Time};

use super::{
    frame_limit::{BfdLimit, SlowProtocolLimit, SnoopingLimit},
    tally::Tally,
};
use crate::{
    capture::Taps,
    metrics::{DropReason, PortTraffic},
    packet::buffer::{BURST, Packet, Pool},
    port::{Capabilities, TxEnd, TxQueue},
    thread::qos::TxQos,
};

/// The transmit queue of one port, and the packets to send.
pub(crate) struct TxPort {
    /// The number of the port in the datapath.
    pub(crate) port: DatapathPort,
    /// The transmit queue of the port.
    pub(crate) queue: Box<dyn TxQueue>,
    /// The offloads that the queue supports.
    pub(crate) capabilities: Capabilities,
    /// The traffic counters of the port.
    pub(crate) traffic: Arc<PortTraffic>,
    /// Packets to send.
    ///
    /// The list has no memory before the first packet, because most ports are idle.
    pub(super) batch: Vec<Packet>,
    /// The quality of service of sent packets: a policer or egress queues.
    pub(super) qos: Option<TxQos>,
    /// The rate limit of received LACP and marker frames.
    pub(super) slow_protocols: SlowProtocolLimit,
    /// The rate limit of received BFD packets.
    pub(super) bfd: BfdLimit,
    /// The rate limit of received IGMP and MLD messages, for multicast snooping.
    pub(super) snooping: SnoopingLimit,
    /// True if the port is in the list of ports to flush.
    pub(super) is_unflushed: bool,
}

/// The index of a transmit queue; valid until a port is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxPortIndex(pub(super) u32);

impl TxPortIndex {
    /// Returns the position of the port in the list of ports.
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Capacity of a batch from its first packet on.
///
/// The batch has room for a nearly full batch and a burst. Only the segments of a packet may need a
/// larger batch.
pub(crate) const BATCH_MAX: usize = 2 * BURST;

impl TxPort {
    /// Creates the transmit queue of a port.
    pub(crate) fn new(
        port: DatapathPort,
        queue: Box<dyn TxQueue>,
        capabilities: Capabilities,
        traffic: Arc<PortTraffic>,
    ) -> Self {
        Self {
            port,
            queue,
            capabilities,
            traffic,
            batch: Vec::new(),
            qos: None,
            slow_protocols: SlowProtocolLimit::default(),
            bfd: BfdLimit::default(),
            snooping: SnoopingLimit::default(),
            is_unflushed: false,
        }
    }

    /// Puts the port into the list of ports to flush, and makes room for a batch.
    #[inline]
    pub(super) fn mark(&mut self, tx_index: TxPortIndex, unflushed: &mut Vec<u32>) {
        if !self.is_unflushed {
            self.is_unflushed = true;
            unflushed.push(tx_index.0);
            self.batch.reserve(BATCH_MAX);
        }
    }

    /// Returns whether the port can send a packet unchanged.
    #[inline]
    pub(super) const fn can_send_unchanged(&self, packet: &Packet) -> bool {
        packet.len() <= self.capabilities.frame_max
            && !packet.virtio.needs_checksum
            && !packet.virtio.is_segmented()
    }

    /// Sends the batch, except packets that QoS drops or delays.
    ///
    /// Drops packets that the transmit queue does not take.
    pub(super) fn send(&mut self, now: Time, pool: &mut Pool, tally: &mut Tally, taps: &mut Taps) {
        if self.qos.is_some() {
            self.send_with_qos(now, pool, tally, taps);
        } else {
            self.transmit(pool, tally, taps);
        }
    }

    /// Sends the batch through the transmit queue, without QoS.
    pub(super) fn transmit(&mut self, pool: &mut Pool, tally: &mut Tally, taps: &mut Taps) {
        let mut rest = self.batch.as_slice();
        let mut was_crowded = false;
        while !rest.is_empty() {
            let taken = self.queue.tx(rest).min(rest.len());
            let (sent, left) = rest.split_at(taken);
            taps.at_port(self.port, sent);
            let bytes: usize = sent.iter().map(Packet::len).sum();
            self.traffic.tx_packets.add(sent.len() as u64);
            self.traffic.tx_bytes.add(bytes as u64);
            tally.sent += sent.len() as u64;
            if left.is_empty() {
                break;
            }
            // After the second refusal in a row for lack of space, all remaining packets are
            // dropped.
            let (dropped, reason) = match self.queue.tx_end() {
                TxEnd::Refused => (1, DropReason::TxRefused),
                TxEnd::Crowded if taken > 0 || !was_crowded => (1, DropReason::TxQueueFull),
                TxEnd::Crowded | TxEnd::Full => (left.len(), DropReason::TxQueueFull),
                TxEnd::Down => (left.len(), DropReason::TxDeviceDown),
            };
            was_crowded = self.queue.tx_end() == TxEnd::Crowded;
            let (dropped, behind) = left.split_at(dropped);
            self.traffic.drop_many(reason, dropped.len() as u64);
            tally.dropped[reason as usize] += dropped.len() as u64;
            taps.at_drop(dropped);
            rest = behind;
        }
        self.batch.drain(..).for_each(|packet| pool.put_back(packet));
    }
}
