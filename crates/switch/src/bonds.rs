//! The bonds of a switch, for programs that embed it.

use shunt_pipeline::BondBalance;

use crate::{control::bonds::BondMemberChange, error::SwitchError, switch::Switch};

/// Returns the bond bucket of a source MAC address in a VLAN.
///
/// Bonds in the mode `balance-slb` choose a member by this bucket. VLAN 0 means packets without a
/// tag. `basis` is the `hash_basis` of the bond.
#[must_use]
pub fn bond_bucket(mac: [u8; 6], vlan: u16, basis: u32) -> u8 {
    BondBalance::bucket(mac, vlan, basis)
}

impl Switch {
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
