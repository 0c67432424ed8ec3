//! Ingress policing: the rate limit of the packets that a port receives.

use std::{slice, sync::Arc};

use shunt_pipeline::DatapathPort;

use super::{PacketThread, receive::RxPorts};
use crate::{metrics::RxLoss, packet::ingress_policer::IngressPolicer};

impl RxPorts {
    /// Sets the rate limit of packets received from a port; `None` removes the limit.
    pub(super) fn police(&mut self, port: DatapathPort, policer: Option<&Arc<IngressPolicer>>) {
        for own in self.list.iter_mut().filter(|own| own.port == port) {
            own.policer = policer.cloned();
        }
    }
}

impl PacketThread {
    /// Drops the packets of the burst that exceed the rate limit of their port.
    ///
    /// For a port without a limit, the cost is one branch per burst.
    #[inline]
    pub(super) fn police_batch(&mut self, input: usize) {
        let Some(policer) = &self.rx_ports.list[input].policer else { return };
        let packets = &mut self.batch.packets;
        let received = packets.len();
        let exceeding = packets.extract_if(.., |packet| !policer.admit(self.now, packet.len()));
        for packet in exceeding {
            self.outputs.taps.at_drop(slice::from_ref(&packet));
            self.pool.put_back(packet);
        }
        let dropped = (received - packets.len()) as u64;
        if dropped > 0 {
            self.rx_ports.list[input].traffic.rx_lost[RxLoss::Policed as usize].add(dropped);
            self.rx_ports.count_received(input, dropped);
        }
    }
}
