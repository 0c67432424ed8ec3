//! Bonds in the oracle, by scans of all ports.

use shunt_flow::{FieldId, FlowKey, PortNo};

use super::{effects::Outcome, hash::hash, walker::Walker};
use crate::{
    bridges::{
        bond::{BondBalance, BondHash, LacpAdmission},
        port::{PortInfo, PortKind},
    },
    testing::BridgeModel,
};

impl BridgeModel {
    /// Returns the number of the first member of the bond of a port.
    ///
    /// For a port without a bond, it is the port's own number. NORMAL treats two ports with equal
    /// results as one port.
    pub(in crate::testing) fn first_member(&self, number: PortNo) -> PortNo {
        let bond = |number| {
            let own = self.ports.iter().find(|port| port.number == number);
            own.and_then(|port| port.bond.as_ref()).map(|member| member.bond.clone())
        };
        let Some(own) = bond(number) else { return number };
        let members = self.ports.iter().map(|port| port.number);
        members.filter(|other| bond(*other).as_ref() == Some(&own)).min().unwrap_or(number)
    }

    /// Returns the active member of the bond of a port, or the port without a bond.
    ///
    /// `None` if no member is active.
    pub(in crate::testing) fn active(&self, number: PortNo) -> Option<PortNo> {
        let members = self.ports.iter().filter(|port| {
            self.first_member(port.number) == self.first_member(number)
                && port.bond.as_ref().is_none_or(|member| member.is_active)
        });
        members.map(|port| port.number).min()
    }

    /// Returns the buckets of the bond of a port, if it balances.
    pub(super) fn balance<'a>(&self, port: &'a PortInfo) -> Option<&'a BondBalance> {
        port.bond.as_ref().and_then(|member| member.balance.as_deref())
    }

    /// Returns the packets of a port that LACP lets NORMAL take.
    pub(super) fn lacp(&self, port: &PortInfo) -> LacpAdmission {
        port.bond.as_ref().map_or(LacpAdmission::Off, |member| member.lacp)
    }

    /// Returns whether the network may send frames of the bridge back to a port.
    pub(in crate::testing) fn receives_copies(&self, port: &PortInfo) -> bool {
        self.balance(port).is_some() && self.lacp(port) != LacpAdmission::All
    }

    /// Returns whether NORMAL takes frames to `target` that arrive on a port of a bond.
    pub(super) fn takes(&self, port: &PortInfo, target: [u8; 6]) -> bool {
        match self.lacp(port) {
            LacpAdmission::All => return true,
            LacpAdmission::None => return false,
            LacpAdmission::Off | LacpAdmission::Fallback => {}
        }
        let is_unicast = target[0] & 1 == 0;
        self.active(port.number) == Some(port.number) || self.balance(port).is_some() && is_unicast
    }
}

impl Walker<'_> {
    /// Returns whether a packet is for the LACP actor of its port.
    pub(super) fn goes_to_lacp(&self, key: &FlowKey) -> bool {
        let has_lacp =
            |port: &PortInfo| self.model.bridges[&self.id()].lacp(port) != LacpAdmission::Off;
        self.port(key.in_port()).is_some_and(has_lacp)
            && key.eth_type() == 0x8809
            && key.field(FieldId::EthDst) == 0x0180_c200_0002
    }

    /// Sends the packet, as it arrived, to the LACP actor of its port.
    pub(super) fn punt_to_lacp(&mut self) {
        let port = self.packet.key.in_port();
        let headers = Outcome::headers(&self.packet.frame().view());
        self.passes.emit(Outcome::ToLacp(self.id(), port, headers));
    }

    /// Returns whether a flood by `FLOOD` leaves on a port.
    ///
    /// A bond that balances sends the flood on the member for the packet's VLAN.
    pub(super) fn floods_on(&mut self, port: &PortInfo, ingress: PortNo) -> bool {
        let vlan = self.packet.tags.first().map_or(0, |(_, tci)| tci & 0xfff);
        let bridge = &self.model.bridges[&self.id()];
        bridge.first_member(port.number) != bridge.first_member(ingress)
            && port.kind != PortKind::Unbound
            && !self.has_exited
            && self.is_sender(port, vlan)
    }

    /// Returns whether a port sends the packets of its bond in this VLAN.
    ///
    /// True for a port without a bond. Counts the packet in its bucket.
    pub(super) fn is_sender(&mut self, port: &PortInfo, vlan: u16) -> bool {
        let bridge = &self.model.bridges[&self.id()];
        let Some(balance) = bridge.balance(port) else {
            return bridge.active(port.number) == Some(port.number);
        };
        let bucket = match balance.hash() {
            BondHash::Source => {
                let [.., a, b, c, d, e, f] = self.packet.key.field(FieldId::EthSrc).to_be_bytes();
                BondBalance::bucket([a, b, c, d, e, f], vlan, balance.basis())
            }
            BondHash::Connection => {
                let values = [self.packet.connection(), vec![vlan.into()]].concat();
                hash(balance.basis().into(), &values).to_be_bytes()[0]
            }
        };
        let is_sender = balance.members()[usize::from(bucket)] == Some(port.number);
        if is_sender {
            let bond = port.bond.as_ref().map(|member| member.bond.to_string());
            self.passes.note_mirror(&format!("{} {bucket}", bond.unwrap_or_default()));
        }
        is_sender
    }

    /// Returns whether the packet is a gratuitous ARP packet, sent to `target`.
    pub(super) fn is_announcement(&self, target: [u8; 6]) -> bool {
        let key = self.packet.key();
        let ends = [FieldId::ArpSpa, FieldId::ArpTpa].map(|field| key.field(field));
        let operation = key.field(FieldId::ArpOp);
        target == [0xff; 6]
            && key.eth_type() == 0x0806
            && (operation == 2 || operation == 1 && ends[0] == ends[1])
    }
}
