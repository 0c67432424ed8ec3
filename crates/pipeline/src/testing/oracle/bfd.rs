//! BFD sessions in the oracle, by a scan of all ports.

use shunt_flow::{FieldId, FlowKey};

use super::{effects::Outcome, walker::Walker};
use crate::bridges::port::PortInfo;

impl Walker<'_> {
    /// Returns whether a packet is for the BFD session of its port.
    pub(super) fn goes_to_bfd(&self, key: &FlowKey) -> bool {
        let Some(session) = self.port(key.in_port()).and_then(|port| port.bfd) else {
            return false;
        };
        let address = key.field(FieldId::EthDst).to_be_bytes();
        let [.., a, b, c, d, e, f] = address;
        session.destination.is_none_or(|wanted| wanted == [a, b, c, d, e, f])
            && key.eth_type() == 0x0800
            && key.field(FieldId::IpProto) == 17
            && key.field(FieldId::UdpDst) == 3784
            && key.field(FieldId::NwTtl) == 255
    }

    /// Sends the packet, as it arrived, to the BFD session of its port.
    pub(super) fn punt_to_bfd(&mut self) {
        let port = self.packet.key.in_port();
        let headers = Outcome::headers(&self.packet.frame().view());
        self.passes.emit(Outcome::ToBfd(self.id(), port, headers));
    }

    /// Returns whether link, settings and BFD session let a port carry packets.
    pub(super) fn is_usable(&self, port: &PortInfo) -> bool {
        let is_forwarding = port.bfd.is_none_or(|session| session.is_forwarding);
        port.link_up && !port.config.port_down && is_forwarding
    }
}
