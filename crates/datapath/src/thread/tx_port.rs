//! The transmit side of one port: its queue, and the batch of packets to send.
//!
//! Also the limits of the frames that it passes to the control plane.

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

/// The transmit side of one port.
pub(crate) struct TxPort {
    pub(crate) port: DatapathPort,
    pub(crate) queue: Box<dyn TxQueue>,
    pub(crate) capabilities: Capabilities,
    pub(crate) traffic: Arc<PortTraffic>,
    pub(super) batch: Vec<Packet>,
    /// The quality of service of the packets that are sent.
    pub(super) qos: Option<TxQos>,
    /// The limit of received frames of slow protocols.
    pub(super) slow_protocols: SlowProtocolLimit,
    /// The limit of received packets of BFD.
    pub(super) bfd: BfdLimit,
    /// The limit of received messages of IGMP and MLD, on a bridge that snoops.
    pub(super) snooping: SnoopingLimit,
    /// Set if the port is in the list of ports to flush.
    pub(super) is_unflushed: bool,
}

/// The index of a transmit queue; valid until a port is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxPortIndex(pub(super) u32);

impl TxPortIndex {
    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Initial capacity of a batch: a nearly full batch and a burst.
///
/// Only segments may need more.
pub(crate) const BATCH_MAX: usize = 2 * BURST;

impl TxPort {
    pub(crate) fn new(
        port: DatapathPort,
        queue: Box<dyn TxQueue>,
        capabilities: Capabilities,
        traffic: Arc<PortTraffic>,
    ) -> Self {
        let batch = Vec::with_capacity(BATCH_MAX);
        Self {
            port,
            queue,
            capabilities,
            traffic,
            batch,
            qos: None,
            slow_protocols: SlowProtocolLimit::default(),
            bfd: BfdLimit::default(),
            snooping: SnoopingLimit::default(),
            is_unflushed: false,
        }
    }

    /// Puts the port into the list of ports to flush.
    #[inline]
    pub(super) fn mark(&mut self, place: TxPortIndex, unflushed: &mut Vec<u32>) {
        if !self.is_unflushed {
            self.is_unflushed = true;
            unflushed.push(place.0);
        }
    }

    /// Returns whether the port can send a packet unchanged.
    #[inline]
    pub(super) const fn can_send_unchanged(&self, packet: &Packet) -> bool {
        packet.len() <= self.capabilities.frame_max
            && !packet.virtio.needs_checksum
            && !packet.virtio.is_segmented()
    }

    /// Sends the batch, except packets that have to wait.
    ///
    /// Packets that exceed a limit or find no room are dropped.
    pub(super) fn send(&mut self, now: Time, pool: &mut Pool, tally: &mut Tally, taps: &mut Taps) {
        if self.qos.is_some() {
            self.send_with_qos(now, pool, tally, taps);
        } else {
            self.transmit(pool, tally, taps);
        }
    }

    /// Gives the batch to the transmit queue.
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
            // After two refusals in a row for lack of space, the rest is dropped too.
            let (dropped, reason) = match self.queue.tx_end() {
                TxEnd::Refused => (1, DropReason::TxRefused),
                TxEnd::Crowded if taken > 0 || !was_crowded => (1, DropReason::TxQueueFull),
                TxEnd::Crowded | TxEnd::Full => (left.len(), DropReason::TxQueueFull),
            };
            was_crowded = self.queue.tx_end() == TxEnd::Crowded;
            let (dropped, behind) = left.split_at(dropped);
            self.traffic.drop_many(reason, dropped.len() as u64);
            tally.dropped[reason as usize] += dropped.len() as u64;
            taps.at_drop(dropped);
            rest = behind;
        }
        self.batch.drain(..).for_each(|packet| pool.give(packet));
    }
}
