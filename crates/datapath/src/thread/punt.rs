//! Passes packets to the control plane: packet-ins, and frames of LACP, BFD, IGMP and MLD.

use std::{mem, sync::Arc};

use shunt_pipeline::{DatapathPort, Punt, PuntReceiver, Time};

use crate::{
    metrics::DropReason,
    packet::{
        buffer::{Packet, Pool},
        virtio,
    },
    port::Capabilities,
    thread::{execute::Outputs, tx_port::TxPort},
};

impl Outputs {
    /// Queues a packet for the control plane, after software checksums and segments.
    pub(super) fn punt(&mut self, pool: &mut Pool, packet: Packet, punt: &Arc<Punt>) {
        let ingress = packet.ingress;
        let (reason, is_within) = match punt.receiver {
            PuntReceiver::Controllers => (DropReason::PacketInQueueFull, true),
            PuntReceiver::Multicast { .. } => {
                let is_within = self.passes(ingress, |port, now| port.snooping.takes(now));
                (DropReason::SnoopingMessageRefused, is_within)
            }
            PuntReceiver::Lacp(_) => {
                let is_within = self.passes(ingress, |port, now| port.slow_protocols.takes(now));
                (DropReason::LacpFrameRefused, is_within)
            }
            PuntReceiver::Bfd(_) => {
                let is_within = self.passes(ingress, |port, now| port.bfd.takes(now));
                (DropReason::BfdPacketRefused, is_within)
            }
        };
        if !is_within || self.packet_ins.is_full(punt.receiver) {
            return self.drop(pool, packet, reason);
        }
        self.make_room(pool, &packet);
        let finished = virtio::finish(packet, &Capabilities::WIRE, pool, &mut self.wire);
        if let Some(refused) = self.tally.finish(finished, self.wire.len()) {
            self.count_forward_drop(ingress, refused);
        }
        let mut wire = mem::take(&mut self.wire);
        for packet in wire.drain(..) {
            if self.packet_ins.push(punt, &packet) {
                self.tally.punted += 1;
            } else {
                self.tally.dropped[reason as usize] += 1;
                self.count_forward_drop(ingress, reason);
            }
            pool.put_back(packet);
        }
        self.wire = wire;
    }

    /// Returns whether a port may pass one more frame to the control plane.
    fn passes(
        &mut self,
        ingress: DatapathPort,
        takes: impl FnOnce(&mut TxPort, Time) -> bool,
    ) -> bool {
        let (tx_index, now) = (self.find_index(ingress), self.now);
        tx_index.is_none_or(|tx_index| takes(&mut self.ports[tx_index.index()], now))
    }
}
