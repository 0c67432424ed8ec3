//! Bonds, port by port.

use shunt_flow::PortNo;

use super::walker::Walker;
use crate::{bridges::port::PortInfo, testing::WorldBridge};

impl WorldBridge {
    /// Returns the number of the first member of the bond of a port.
    ///
    /// Without a bond it is its own number. Two ports are one for NORMAL if these numbers are equal.
    pub(in crate::testing) fn logical(&self, number: PortNo) -> PortNo {
        let bond = |number| {
            let own = self.ports.iter().find(|port| port.number == number);
            own.and_then(|port| port.bond.as_ref()).map(|member| member.bond.clone())
        };
        let Some(own) = bond(number) else { return number };
        let members = self.ports.iter().map(|port| port.number);
        members.filter(|other| bond(*other).as_ref() == Some(&own)).min().unwrap_or(number)
    }

    /// Returns the port on which packets to a logical port leave.
    ///
    /// `None` if no member is active.
    pub(in crate::testing) fn egress(&self, number: PortNo) -> Option<PortNo> {
        let members = self.ports.iter().filter(|port| {
            self.logical(port.number) == self.logical(number)
                && port.bond.as_ref().is_none_or(|member| member.is_active)
        });
        members.map(|port| port.number).min()
    }
}

impl Walker<'_> {
    /// Returns whether a flood leaves out a port for the sake of its bond.
    pub(super) fn is_left_out(&self, port: &PortInfo, ingress: PortNo) -> bool {
        let bridge = &self.world.bridges[&self.id()];
        bridge.egress(port.number) != Some(port.number)
            || bridge.logical(port.number) == bridge.logical(ingress)
    }
}
