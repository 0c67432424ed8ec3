//! Bonds: ports that NORMAL, floods and mirrors use as one.
//!
//! See `bond_mode` in `ovs-vswitchd.conf.db(5)`. Each member keeps its own number, and an output to this
//! number leaves on this member. In the mode `active-backup` one member is active: NORMAL and floods
//! send on it alone, and NORMAL drops the packets that arrive on another. The caller chooses the
//! active member.

use std::sync::Arc;

use super::port::PortInfo;

/// The bond of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondMember {
    /// Name of the bond.
    pub bond: Arc<str>,
    /// True for the active member: at most one member of a bond.
    pub is_active: bool,
}

impl PortInfo {
    /// Returns the name of the bond of the port.
    pub(crate) fn bond_name(&self) -> Option<&str> {
        self.bond.as_ref().map(|member| &*member.bond)
    }

    /// Returns whether the port is a member of a bond, and not the active one.
    pub(crate) fn is_backup(&self) -> bool {
        self.bond.as_ref().is_some_and(|member| !member.is_active)
    }

    /// Returns whether both are one port, or members of one bond.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.number == other.number || self.bond.is_some() && self.bond_name() == other.bond_name()
    }

    /// Returns whether `name` is the name of the port or of its bond.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.bond_name() == Some(name)
    }
}
