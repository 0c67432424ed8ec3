//! Bonds for NORMAL and floods: the member that sends, and the packets that a member takes.

use shunt_flow::FieldId;

use super::{
    hash::hash_connection,
    normal::{BROADCAST, GROUP_ADDRESS, address, bytes, is_at},
    output::Egress,
    port_tags::vlan_id,
};
use crate::{
    bridges::{
        bond::{BondBalance, BondHash, BondMember, LacpAdmission},
        output_counter::OutputHit,
        port::PortInfo,
    },
    translate::working_packet::vlan::VLAN,
    traversals::drop_cause::NotedDecision,
};

/// The Ethernet type of ARP.
const ARP: u128 = 0x0806;

impl<'a> Egress<'_, 'a> {
    /// Returns the member of a bond that sends the packet, tagged with VLAN id `vlan`.
    ///
    /// The function also returns the counter of the packet's bucket, if the bond balances.
    #[cold]
    pub(super) fn bond_sender(
        &mut self,
        own: &BondMember,
        vlan: u16,
    ) -> Option<(&'a PortInfo, Option<OutputHit>)> {
        let Some(balance) = &own.balance else {
            let active = self.bridge.active_member(&own.bond, &mut self.packet.recorder)?;
            return Some((active, None));
        };
        let (number, hit) = balance.sender(self.bucket(balance, vlan))?;
        let port = self.bridge.find_port(number, &mut self.packet.recorder)?;
        Some((port, Some(hit)))
    }

    /// Returns the bucket of the packet, which leaves with VLAN id `vlan`.
    fn bucket(&mut self, balance: &BondBalance, vlan: u16) -> u8 {
        let basis = balance.basis();
        match balance.hash() {
            BondHash::Source => {
                let source = address(self.packet, FieldId::EthSrc);
                BondBalance::bucket(bytes(source), vlan, basis)
            }
            BondHash::Connection => {
                let hash = hash_connection(self.packet, basis.into()).with(vlan.into());
                hash.whole().to_be_bytes()[0]
            }
        }
    }

    /// Returns whether this member of a bond sends the packet in a flood.
    ///
    /// A flood leaves on one member of a bond, and on no member of the ingress port's bond.
    #[cold]
    pub(super) fn floods_on_member(
        &mut self,
        port: &PortInfo,
        member: &BondMember,
        vlan: u16,
    ) -> bool {
        if member.balance.is_none() && !member.is_active {
            return false;
        }
        let ingress = self.packet.in_port();
        let arrived = self.bridge.find_port(ingress, &mut self.packet.recorder);
        if arrived.is_some_and(|arrived| arrived.is_one_with(port)) {
            return false;
        }
        let Some(balance) = &member.balance else { return true };
        let sender = balance.sender(self.bucket(balance, vlan));
        match sender.filter(|(number, _)| *number == port.number) {
            Some((_, hit)) => {
                self.packet.output_hits.push(hit);
                true
            }
            None => false,
        }
    }

    /// Returns whether this member of a bond sends the packet for the action `FLOOD`.
    #[cold]
    pub(super) fn floods_in_bond(&mut self, port: &PortInfo, member: &BondMember) -> bool {
        if member.balance.is_some() {
            self.packet.recorder.consult_word(VLAN, u64::MAX);
        }
        let vlan = vlan_id(self.packet);
        self.floods_on_member(port, member, vlan)
    }

    /// Returns whether NORMAL takes a packet that arrives on a member of a bond.
    ///
    /// If not, the reason is noted for the explanation.
    #[cold]
    pub(super) fn is_admitted(&mut self, port: &PortInfo, vlan: u16, ends: [u64; 2]) -> bool {
        let [source, target] = ends;
        let Some(member) = &port.bond else { return true };
        match member.lacp {
            LacpAdmission::Off | LacpAdmission::Fallback => {}
            LacpAdmission::All => return true,
            LacpAdmission::None => {
                self.note(NotedDecision::BondMemberInactive(port.number));
                return false;
            }
        }
        let takes_all = member.balance.is_some() && target & GROUP_ADDRESS == 0;
        if !member.is_active && !takes_all {
            self.note(NotedDecision::BondMemberInactive(port.number));
            return false;
        }
        if member.balance.is_none() {
            return true;
        }
        if self.bridge.floods_vlan(vlan) {
            return true;
        }
        let known = self.bridge.find_mac(vlan, bytes(source), &mut self.packet.recorder);
        let Some(known) = known else { return true };
        let is_moved = !is_at(self, known.port, port);
        if is_moved && (known.is_announced() || target != BROADCAST || !self.is_announcement()) {
            self.note(NotedDecision::BondLoop { port: port.number, learned: known.port });
            return false;
        }
        true
    }

    /// Returns whether a broadcast is a gratuitous ARP packet.
    ///
    /// A host sends such a packet to announce its address: a reply, or a request for its own
    /// address (RFC 5227, section 3).
    #[cold]
    pub(super) fn is_announcement(&mut self) -> bool {
        self.packet.recorder.consult(FieldId::EthType, u128::MAX);
        if u128::from(self.packet.key().eth_type()) != ARP {
            return false;
        }
        let read = |own: &mut Self, field| {
            own.packet.recorder.consult(field, u128::MAX);
            own.packet.key().field(field)
        };
        match read(self, FieldId::ArpOp) {
            1 => read(self, FieldId::ArpSpa) == read(self, FieldId::ArpTpa),
            operation => operation == 2,
        }
    }

    /// Returns whether a broadcast is an announcement that NORMAL records.
    ///
    /// Only bridges that receive copies of their own broadcasts record announcements.
    #[cold]
    pub(super) fn learns_announcement(&mut self) -> bool {
        self.bridge.receives_copies(&mut self.packet.recorder) && self.is_announcement()
    }
}
