//! The ports of a bridge at one version.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::PortNo;

use super::{mirror_table::MirrorTable, port::PortInfo};
use crate::{id::BridgeId, versions::delta::Object};

/// The ports of a bridge by number, and the properties that some port has.
#[derive(Debug)]
pub(crate) struct PortTable {
    ports: Arc<[PortInfo]>,
    /// True if some port drops received packets:
    /// translations then check the ingress port.
    pub(crate) filters_ingress: bool,
    /// True if some port drops packets that are sent on it.
    pub(crate) filters_egress: bool,
    /// The index in `ports` of the active member of each bond.
    active_members: BTreeMap<Arc<str>, usize>,
    /// True if frames may come back on some port: see [`PortInfo::receives_copies`].
    pub(crate) receives_copies: bool,
    /// The protocols of all ports together.
    pub(crate) protocols: PortProtocols,
    pub(crate) mirrors: MirrorTable,
    /// The ports on which multicast packets leave unconditionally.
    ///
    /// Only a bridge that snoops uses them.
    pub(crate) flooded: FloodedPorts,
}

/// Ports on which multicast packets leave unconditionally.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FloodedPorts {
    /// The ports for packets.
    pub(crate) packets: Vec<PortNo>,
    /// The ports for reports of hosts.
    pub(crate) reports: Vec<PortNo>,
}

impl FloodedPorts {
    fn of(ports: &[PortInfo]) -> Self {
        let with = |is: fn(&PortInfo) -> bool| {
            ports.iter().filter(|port| is(port)).map(|port| port.number).collect()
        };
        Self {
            packets: with(|port| port.multicast.packets),
            reports: with(|port| port.multicast.reports),
        }
    }
}

/// The protocols of ports.
///
/// Frames of these protocols go to the control plane, and not to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortProtocols {
    /// True if some port is a member of a bond with LACP.
    pub(crate) lacp: bool,
    /// True if some port has a BFD session.
    pub(crate) bfd: bool,
}

impl PortProtocols {
    /// Returns the protocols of these ports.
    fn of(ports: &[PortInfo]) -> Self {
        Self {
            lacp: ports.iter().any(PortInfo::has_lacp),
            bfd: ports.iter().any(|port| port.bfd.is_some()),
        }
    }

    /// Returns whether some port has a protocol.
    pub(crate) const fn any(self) -> bool {
        self.lacp || self.bfd
    }
}

impl PortTable {
    /// Sorts ports by number. `mirrors` finds the ports of the mirrors.
    pub(crate) fn new(
        mut ports: Vec<PortInfo>,
        mirrors: impl FnOnce(&[PortInfo]) -> MirrorTable,
    ) -> Self {
        ports.sort_by_key(|port| port.number);
        let active = |(index, port): (usize, &PortInfo)| {
            let bond = port.bond.as_ref().filter(|own| own.is_active)?;
            Some((Arc::clone(&bond.bond), index))
        };
        Self {
            active_members: ports.iter().enumerate().filter_map(active).collect(),
            mirrors: mirrors(&ports),
            filters_ingress: ports.iter().any(|port| !port.may_receive()),
            protocols: PortProtocols::of(&ports),
            filters_egress: ports.iter().any(|port| !port.may_send()),
            receives_copies: ports.iter().any(PortInfo::receives_copies),
            flooded: FloodedPorts::of(&ports),
            ports: ports.into(),
        }
    }

    pub(crate) const fn ports(&self) -> &Arc<[PortInfo]> {
        &self.ports
    }

    /// Returns the objects that change when this table replaces `before`.
    ///
    /// The object of all ports always changes. The object of the bridge has the mirrors, the
    /// protocols and the ports that get all multicast packets.
    pub(crate) fn changed_from(&self, before: Option<&Self>, bridge: BridgeId) -> Vec<Object> {
        let mut objects = vec![Object::Ports(bridge)];
        let filters = |own: &Self| (own.filters_ingress, own.filters_egress);
        if before.map(filters) != Some(filters(self)) {
            objects.push(Object::PortFilters(bridge));
        }
        if before.is_some_and(|before| {
            before.mirrors != self.mirrors
                || before.protocols != self.protocols
                || before.flooded != self.flooded
        }) {
            objects.push(Object::Bridge(bridge));
        }
        let old = before.map(|before| &*before.ports).unwrap_or_default();
        let changed = different_ports(old, &self.ports).into_iter();
        objects.extend(changed.map(|number| Object::Port(bridge, number)));
        objects
    }

    /// Returns whether each packet that arrives goes to the tables, and nowhere else.
    ///
    /// Frames of LACP and BFD do not go to the tables; see [`Self::protocols`].
    pub(crate) fn has_plain_ingress(&self) -> bool {
        !self.filters_ingress && self.mirrors.is_empty()
    }

    /// Returns the active member of a bond.
    pub(crate) fn active_member(&self, bond: &str) -> Option<&PortInfo> {
        self.ports.get(*self.active_members.get(bond)?)
    }

    /// Returns the port with a number.
    pub(crate) fn find(&self, number: PortNo) -> Option<&PortInfo> {
        let index = self.ports.binary_search_by_key(&number, |port| port.number).ok()?;
        self.ports.get(index)
    }
}

/// Returns the numbers of the ports that differ between two lists.
///
/// Both lists are sorted by number. A bridge may have thousands of ports, so a port is compared
/// once, and is not searched for.
fn different_ports(old: &[PortInfo], new: &[PortInfo]) -> Vec<PortNo> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut different = Vec::new();
    loop {
        let number = match (old.peek(), new.peek()) {
            (None, None) => return different,
            (Some(port), None) | (None, Some(port)) => port.number,
            (Some(one), Some(other)) => one.number.min(other.number),
        };
        let is_next = |port: &&PortInfo| port.number == number;
        if old.next_if(is_next) != new.next_if(is_next) {
            different.push(number);
        }
    }
}

impl PortInfo {
    /// Returns whether packets received on this port go through the tables.
    pub(crate) const fn may_receive(&self) -> bool {
        !self.config.no_recv && !self.config.port_down
    }

    /// Returns whether the port carries packets.
    ///
    /// Groups that watch the port, actions that choose among ports, and controllers use this
    /// (`OFPPS_LIVE`).
    #[must_use]
    pub const fn is_live(&self) -> bool {
        let is_forwarding = match self.bfd {
            Some(session) => session.is_forwarding,
            None => true,
        };
        self.link_up && !self.config.port_down && is_forwarding
    }

    /// Returns whether packets are sent on this port.
    pub(crate) const fn may_send(&self) -> bool {
        !self.config.no_fwd && !self.config.port_down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridges::port::PortKind;

    /// Returns the ports 1, 2 and 5, each missing, with a link or without one.
    ///
    /// `state` has the three states as digits of base 3.
    fn ports(state: usize) -> Vec<PortInfo> {
        let port = |(place, number): (u32, u32)| {
            let link_up = match state / 3_usize.pow(place) % 3 {
                0 => return None,
                own => own == 1,
            };
            Some(PortInfo { link_up, ..PortInfo::new(PortNo::new(number), PortKind::Unbound) })
        };
        (0..).zip([1, 2, 5]).filter_map(port).collect()
    }

    /// All changes of three ports are found, as by searching for each port.
    #[test]
    fn different_ports_are_found_in_order() {
        for (old, new) in (0..27).flat_map(|old| (0..27).map(move |new| (ports(old), ports(new)))) {
            let find = |all: &[PortInfo], number: &u32| {
                all.iter().find(|port| port.number.number() == *number).cloned()
            };
            let differs = |number: &u32| find(&old, number) != find(&new, number);
            let expected: Vec<_> = (0..9).filter(differs).map(PortNo::new).collect();
            assert_eq!(different_ports(&old, &new), expected, "{old:?} {new:?}");
        }
    }
}
