//! The replacement of the ports of a bridge, and its effect on learned entries.
//!
//! A port loses its MAC addresses, also the static ones, and its multicast groups in these cases:
//!
//! * The port is removed.
//! * The port has other VLANs.
//! * The port joins or leaves a bond.
//! * The port becomes the output of a mirror.
//!
//! A translation that reads an address or group reads the port and the bridge too, so the removal
//! needs no delta.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{
    multicast_table::{MulticastKey, MulticastTable},
    port::PortInfo,
    port_table::{PortTable, different_parts},
};
use crate::{id::BridgeId, versions::delta::Object};

/// The ports of a bridge before and after a change.
pub(crate) struct PortChange {
    /// The ports before; `None` for a new bridge.
    before: Option<Arc<PortTable>>,
    now: Arc<PortTable>,
    /// The ports that lose their learned entries.
    cleared: Vec<PortNo>,
}

impl PortChange {
    /// Compares the ports of two versions, and finds those that lose their entries.
    pub(crate) fn new(before: Option<Arc<PortTable>>, now: Arc<PortTable>) -> Self {
        let mut cleared = Vec::new();
        if let Some(before) = &before {
            let is_same = |old: &PortInfo| {
                now.find(old.number)
                    .is_some_and(|own| own.vlans == old.vlans && own.bond_name() == old.bond_name())
            };
            let is_cleared = |old: &&Arc<PortInfo>| {
                let is_output = now.mirrors.is_output(old.number);
                !is_same(old) || is_output && !before.mirrors.is_output(old.number)
            };
            // Other mirrors may clear ports that have not changed themselves.
            let old: &[Arc<PortInfo>] = if before.mirrors == now.mirrors {
                different_parts(before.ports(), now.ports())[0]
            } else {
                before.ports()
            };
            cleared.extend(old.iter().filter(is_cleared).map(|old| old.number));
        }
        Self { before, now, cleared }
    }

    /// Returns the objects that change; `id` is the number of the bridge.
    pub(crate) fn objects(&self, id: BridgeId) -> Vec<Object> {
        self.now.changed_from(self.before.as_deref(), id)
    }

    /// Returns the ports after the change.
    pub(crate) const fn now(&self) -> &Arc<PortTable> {
        &self.now
    }

    /// Returns the ports that lose their learned entries.
    pub(crate) fn cleared(&self) -> &[PortNo] {
        &self.cleared
    }

    /// Applies the change to the ports of a group, or to the router ports of a VLAN.
    pub(crate) fn apply_to_group(
        &self,
        table: &mut MulticastTable,
        key: MulticastKey,
        version: Version,
    ) {
        table.move_ports(key, version, |port| self.successor(port));
        table.retain_in(key, version, |entry| !self.cleared.contains(&entry.port));
    }

    /// Returns the port that takes over the multicast groups of a port.
    ///
    /// When a port leaves a bond, a remaining member takes them over, since it reaches the same
    /// hosts.
    fn successor(&self, number: PortNo) -> Option<PortNo> {
        let before = self.before.as_deref()?;
        let bond = before.find(number)?.bond_name()?;
        let is_in_bond = |port: &PortInfo| port.bond_name() == Some(bond);
        if self.now.find(number).is_some_and(is_in_bond) {
            return None;
        }
        let is_successor = |port: &&Arc<PortInfo>| {
            is_in_bond(port)
                && before.find(port.number).is_some()
                && !self.cleared.contains(&port.number)
                && !self.now.mirrors.is_output(port.number)
        };
        self.now.ports().iter().find(is_successor).map(|port| port.number)
    }
}
