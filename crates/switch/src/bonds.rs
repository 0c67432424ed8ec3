//! The bonds of a switch, for programs that embed it.

use shunt_pipeline::BondBalance;

use crate::{
    config::BondOptions, control::bonds::BondMemberChange, error::SwitchError, switch::Switch,
};

/// Returns the bond bucket of a source MAC address in a VLAN.
///
/// Bonds in the mode `balance-slb` choose a member by this bucket. VLAN 0 means packets without a
/// tag. `basis` is the `hash_basis` of the bond.
#[must_use]
pub fn bond_bucket(mac: [u8; 6], vlan: u16, basis: u32) -> u8 {
    BondBalance::bucket(mac, vlan, basis)
}

impl Switch {
    /// Adds a bond to a bridge.
    ///
    /// A member may name a port that does not exist yet; the bond uses the port once it is added.
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
    /// Returns when no packet uses the old bonds. A bond that keeps its name keeps its active
    /// member.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid. After an error, no bond has changed.
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
    /// If the bond or the member does not exist, or the member has no port. If `change` enables a
    /// member without a link, or a disabled member should become active or get a bucket. If another
    /// member should become active while the primary member is enabled. If `change` moves a bucket
    /// of a bond without buckets.
    pub async fn change_bond_member(
        &self,
        bond: &str,
        member: &str,
        change: BondMemberChange,
    ) -> Result<(), SwitchError> {
        self.control.structure().await.change_bond_member(bond, member, change).await
    }
}
