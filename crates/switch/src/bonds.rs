//! The bonds of a switch, for programs.

use shunt_pipeline::BondBalance;

use crate::{
    config::BondOptions, control::bonds::BondMemberChange, error::SwitchError, switch::Switch,
};

/// Returns the bucket of a source address in a VLAN.
///
/// Bonds in the mode `balance-slb` choose a member by it.
/// VLAN 0 is that of packets without a tag. `basis` is the `hash_basis` of the bond.
#[must_use]
pub fn bond_bucket(mac: [u8; 6], vlan: u16, basis: u32) -> u8 {
    BondBalance::bucket(mac, vlan, basis)
}

impl Switch {
    /// Adds a bond to a bridge.
    ///
    /// Members that do not exist yet are used once they are added.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the name is in use, or a value is not valid.
    pub async fn add_bond(&self, bridge: &str, bond: BondOptions) -> Result<(), SwitchError> {
        self.control.structure().await.add_bond(bridge, bond).await
    }

    /// Removes a bond of a bridge; its members stay as ports.
    ///
    /// # Errors
    ///
    /// If the bridge or the bond does not exist.
    pub async fn remove_bond(&self, bridge: &str, name: &str) -> Result<(), SwitchError> {
        self.control.structure().await.remove_bond(bridge, name).await
    }

    /// Replaces the bonds of a bridge.
    ///
    /// Returns when no packet uses the old ones. A bond with an old name keeps its active member.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid; then nothing changes.
    pub async fn set_bonds(
        &self,
        bridge: &str,
        bonds: Vec<BondOptions>,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.set_bonds(bridge, bonds).await
    }

    /// Changes a member of a bond, and returns when every packet follows the change.
    ///
    /// # Errors
    ///
    /// If the bond or the member does not exist, or the member has no port. If a member without a link
    /// should be enabled. If a disabled member should become active or get a bucket, or another member
    /// than an enabled primary one should become active. If a bond without buckets should move one.
    pub async fn change_bond_member(
        &self,
        bond: &str,
        member: &str,
        change: BondMemberChange,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.change_bond_member(bond, member, change).await
    }
}
