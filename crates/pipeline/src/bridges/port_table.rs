//! The ports of a bridge at one version.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::PortNo;

use super::{mirror_table::MirrorTable, port::PortInfo};
use crate::{id::BridgeId, versions::delta::Object};

/// The ports of a bridge by number, and the properties that a port has.
#[derive(Debug)]
pub(crate) struct PortTable {
    ports: Arc<[Arc<PortInfo>]>,
    /// Number of ports with each property.
    counts: PortCounts,
    /// True if any port drops received packets:
    /// translations then check the ingress port.
    pub(crate) filters_ingress: bool,
    /// True if any port drops packets that are sent on it.
    pub(crate) filters_egress: bool,
    /// The active member of each bond.
    active_members: Arc<BTreeMap<Arc<str>, PortNo>>,
    /// True if frames may come back on some port: see [`PortInfo::receives_copies`].
    pub(crate) receives_copies: bool,
    /// The protocols of all ports together.
    pub(crate) protocols: PortProtocols,
    pub(crate) mirrors: MirrorTable,
    /// The ports on which multicast packets leave unconditionally.
    ///
    /// Only a bridge with multicast snooping uses these ports.
    pub(crate) flooded: Arc<FloodedPorts>,
}

/// Ports on which multicast packets leave unconditionally.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FloodedPorts {
    /// The ports that send every multicast packet.
    pub(crate) packets: Vec<PortNo>,
    /// The ports that send the IGMP and MLD reports of hosts.
    pub(crate) reports: Vec<PortNo>,
}

impl FloodedPorts {
    /// Returns the ports that receive all multicast packets or reports.
    fn of(ports: &[Arc<PortInfo>]) -> Self {
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
    /// True if any port is a member of a bond with LACP.
    pub(crate) lacp: bool,
    /// True if any port has a BFD session.
    pub(crate) bfd: bool,
}

impl PortProtocols {
    /// Returns whether any port has a protocol.
    pub(crate) const fn any(self) -> bool {
        self.lacp || self.bfd
    }
}

/// The number of ports with each property of [`Self::properties`].
///
/// A [`PortTable`] has a property if any port has it.
#[derive(Clone, Copy, Debug, Default)]
struct PortCounts([usize; 5]);

impl PortCounts {
    /// Returns the properties of a port that are counted.
    fn properties(port: &PortInfo) -> [bool; 5] {
        [
            !port.may_receive(),
            !port.may_send(),
            port.receives_copies(),
            port.has_lacp(),
            port.bfd.is_some(),
        ]
    }

    /// Counts a port by its properties.
    fn add(&mut self, port: &PortInfo) {
        for (count, has) in self.0.iter_mut().zip(Self::properties(port)) {
            *count += usize::from(has);
        }
    }

    /// Subtracts a port from the counts of its properties.
    fn remove(&mut self, port: &PortInfo) {
        for (count, has) in self.0.iter_mut().zip(Self::properties(port)) {
            *count = count.saturating_sub(usize::from(has));
        }
    }
}

impl PortTable {
    /// Sorts ports by number. `mirrors` finds the ports of the mirrors.
    pub(crate) fn new(
        mut ports: Vec<Arc<PortInfo>>,
        mirrors: impl FnOnce(&[Arc<PortInfo>]) -> MirrorTable,
    ) -> Self {
        ports.sort_by_key(|port| port.number);
        let mut counts = PortCounts::default();
        ports.iter().for_each(|port| counts.add(port));
        let active_members = Arc::new(active_members(&ports));
        let flooded = Arc::new(FloodedPorts::of(&ports));
        let mirrors = mirrors(&ports);
        Self { active_members, flooded, mirrors, ..Self::with_counts(ports, counts) }
    }

    /// Returns a table with some ports replaced, added or removed (`None`).
    ///
    /// The new table shares all other ports, and the call copies the references to them. All other
    /// cost depends on the changes. Three cases are exceptions: a bridge with mirrors, and a
    /// changed port that is in a bond or gets all multicast packets.
    pub(crate) fn with_changes(
        &self,
        changes: BTreeMap<PortNo, Option<PortInfo>>,
        mirrors: impl FnOnce(&[Arc<PortInfo>]) -> MirrorTable,
    ) -> Self {
        let mut counts = self.counts;
        let (mut has_member, mut is_flooded) = (false, false);
        let mut note = |port: &PortInfo| {
            has_member |= port.bond.is_some();
            is_flooded |= port.multicast.packets || port.multicast.reports;
        };
        let mut ports = Vec::with_capacity(self.ports.len() + changes.len());
        let mut rest = &*self.ports;
        for (number, new) in changes {
            let (before, after) = rest.split_at(rest.partition_point(|port| port.number < number));
            ports.extend_from_slice(before);
            rest = after;
            if let Some((old, others)) = after.split_first()
                && old.number == number
            {
                note(old);
                counts.remove(old);
                rest = others;
            }
            if let Some(new) = new {
                note(&new);
                counts.add(&new);
                ports.push(Arc::new(new));
            }
        }
        ports.extend_from_slice(rest);
        let active_members = if has_member {
            Arc::new(active_members(&ports))
        } else {
            Arc::clone(&self.active_members)
        };
        let flooded =
            if is_flooded { Arc::new(FloodedPorts::of(&ports)) } else { Arc::clone(&self.flooded) };
        let mirrors = mirrors(&ports);
        Self { active_members, flooded, mirrors, ..Self::with_counts(ports, counts) }
    }

    /// Returns a table of sorted ports, without bonds, mirrors and flooded ports.
    fn with_counts(ports: Vec<Arc<PortInfo>>, counts: PortCounts) -> Self {
        let [filters_ingress, filters_egress, receives_copies, lacp, bfd] =
            counts.0.map(|count| count > 0);
        Self {
            ports: ports.into(),
            counts,
            filters_ingress,
            filters_egress,
            active_members: Arc::default(),
            receives_copies,
            protocols: PortProtocols { lacp, bfd },
            mirrors: MirrorTable::default(),
            flooded: Arc::default(),
        }
    }

    /// Returns all ports of the bridge.
    pub(crate) const fn ports(&self) -> &Arc<[Arc<PortInfo>]> {
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
        self.find(*self.active_members.get(bond)?)
    }

    /// Returns the port with the given number.
    pub(crate) fn find(&self, number: PortNo) -> Option<&PortInfo> {
        let index = self.ports.binary_search_by_key(&number, |port| port.number).ok()?;
        self.ports.get(index).map(|port| &**port)
    }
}

/// Returns the active member of each bond.
fn active_members(ports: &[Arc<PortInfo>]) -> BTreeMap<Arc<str>, PortNo> {
    let active = |port: &Arc<PortInfo>| {
        let bond = port.bond.as_ref().filter(|own| own.is_active)?;
        Some((Arc::clone(&bond.bond), port.number))
    };
    ports.iter().filter_map(active).collect()
}

/// Returns two lists without their common first ports and common last ports.
pub(super) fn different_parts<'a>(
    old: &'a [Arc<PortInfo>],
    new: &'a [Arc<PortInfo>],
) -> [&'a [Arc<PortInfo>]; 2] {
    let is_shared = |(old, new): &(&Arc<PortInfo>, &Arc<PortInfo>)| Arc::ptr_eq(old, new);
    let first = old.iter().zip(new).take_while(is_shared).count();
    let (old, new) = (old.split_at(first).1, new.split_at(first).1);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(is_shared).count();
    [old.split_at(old.len() - last).0, new.split_at(new.len() - last).0]
}

/// Returns the numbers of the ports that differ between two lists.
///
/// The two lists of ports are sorted by number. A bridge may have thousands of ports, so a port is
/// compared once, and is not searched for.
fn different_ports(old: &[Arc<PortInfo>], new: &[Arc<PortInfo>]) -> Vec<PortNo> {
    let [old, new] = different_parts(old, new);
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut different = Vec::new();
    loop {
        let number = match (old.peek(), new.peek()) {
            (None, None) => return different,
            (Some(port), None) | (None, Some(port)) => port.number,
            (Some(one), Some(other)) => one.number.min(other.number),
        };
        let is_next = |port: &&Arc<PortInfo>| port.number == number;
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
    use crate::bridges::{
        bond::{BondMember, LacpAdmission},
        port::{PortBfd, PortKind},
    };

    /// Returns the ports 1, 2 and 5, each missing, with a link or without one.
    ///
    /// `state` has the three states as digits of base 3.
    fn ports(state: usize) -> Vec<Arc<PortInfo>> {
        let port = |(place, number): (u32, u32)| {
            let link_up = match state / 3_usize.pow(place) % 3 {
                0 => return None,
                own => own == 1,
            };
            let port = PortInfo::new(PortNo::new(number), PortKind::Unbound);
            Some(Arc::new(PortInfo { link_up, ..port }))
        };
        (0..).zip([1, 2, 5]).filter_map(port).collect()
    }

    /// All changes of three ports are found, as by searching for each port.
    #[test]
    fn different_ports_are_found_in_order() {
        for (old, new) in (0..27).flat_map(|old| (0..27).map(move |new| (ports(old), ports(new)))) {
            let find = |all: &[Arc<PortInfo>], number: &u32| {
                all.iter().find(|port| port.number.number() == *number).cloned()
            };
            let differs = |number: &u32| find(&old, number) != find(&new, number);
            let expected: Vec<_> = (0..9).filter(differs).map(PortNo::new).collect();
            assert_eq!(different_ports(&old, &new), expected, "{old:?} {new:?}");
        }
    }

    fn without_mirrors(_: &[Arc<PortInfo>]) -> MirrorTable {
        MirrorTable::default()
    }

    /// Returns the differences of `new` from `old`, as changes.
    fn changes_to(
        old: &[Arc<PortInfo>],
        new: &[Arc<PortInfo>],
    ) -> BTreeMap<PortNo, Option<PortInfo>> {
        let find = |number: PortNo| new.iter().find(|port| port.number == number);
        let changed = different_ports(old, new).into_iter();
        changed.map(|number| (number, find(number).map(|port| (**port).clone()))).collect()
    }

    /// All changes of three ports give the table that a new list of ports gives.
    ///
    /// A port without a link also drops packets, is in a bond and gets all multicast packets.
    #[test]
    fn a_changed_table_equals_a_new_table() {
        let with_properties = |state: usize| -> Vec<Arc<PortInfo>> {
            let own = |port: Arc<PortInfo>| {
                let mut port = (*port).clone();
                if !port.link_up {
                    let (is_active, lacp) = (port.number == PortNo::new(2), LacpAdmission::Off);
                    port.bond =
                        Some(BondMember { bond: "b".into(), is_active, balance: None, lacp });
                    (port.config.no_recv, port.config.no_fwd) = (true, is_active);
                    port.multicast.packets = true;
                    let (destination, is_forwarding) = (None, true);
                    port.bfd = Some(PortBfd { destination, is_forwarding });
                }
                Arc::new(port)
            };
            ports(state).into_iter().map(own).collect()
        };
        for (old, new) in (0..27).flat_map(|old| (0..27).map(move |new| (old, new))) {
            let [old, new] =
                [old, new].map(|state| PortTable::new(with_properties(state), without_mirrors));
            let changed = old.with_changes(changes_to(old.ports(), new.ports()), without_mirrors);
            assert_eq!(format!("{changed:?}"), format!("{new:?}"), "from {old:?}");
        }
    }

    /// A change of a port makes that port alone, and compares it alone.
    ///
    /// So port 1,000 costs what port 1 does.
    #[test]
    fn a_change_shares_all_other_ports() {
        let info = |number| PortInfo::new(PortNo::new(number), PortKind::Unbound);
        for count in [2, 1000] {
            let ports = (1..=count).map(|number| Arc::new(info(number))).collect();
            let before = PortTable::new(ports, without_mirrors);
            let middle = PortNo::new(count / 2);
            let down = PortInfo { link_up: false, ..info(count / 2) };
            for (number, port) in [
                (middle, Some(down)),
                (middle, None),
                (PortNo::new(count + 1), Some(info(count + 1))),
            ] {
                let made = usize::from(port.is_some());
                let changes = BTreeMap::from([(number, port)]);
                let after = before.with_changes(changes, without_mirrors);
                let is_made = |own: &&Arc<PortInfo>| Arc::strong_count(own) == 1;
                assert_eq!(after.ports().iter().filter(is_made).count(), made, "of {count}");
                let parts = different_parts(before.ports(), after.ports());
                assert!(parts.iter().all(|part| part.len() <= 1), "of {count}");
                assert_eq!(different_ports(before.ports(), after.ports()), [number]);
            }
        }
    }
}
