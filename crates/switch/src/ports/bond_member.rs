//! An operator's changes of the members of a bond.

use super::registry::{BridgeRegistry, listed};
use crate::{control::bonds::BondMemberChange, error::SwitchError};

impl BridgeRegistry {
    /// Applies an operator's change of a member of a bond.
    pub(crate) fn change_bond_member(
        &mut self,
        name: &str,
        member: &str,
        change: BondMemberChange,
    ) -> Result<(), SwitchError> {
        let bonds = self.iter().flat_map(|bridge| &bridge.settings.bonds);
        let known = listed(bonds.map(|bond| bond.name.as_str()));
        let mut bridges = self.iter_mut();
        let found = bridges.find_map(|bridge| {
            let options = bridge.settings.bonds.iter().find(|bond| bond.name == name)?;
            Some((options, bridge.bonds.get_mut(name)?))
        });
        let Some((options, state)) = found else {
            return Err(SwitchError::NoSuchBond { name: name.to_owned(), known });
        };
        let (bond, own) = (name.to_owned(), member.to_owned());
        if !options.members.contains(&own) {
            let known = listed(options.members.iter().map(String::as_str));
            return Err(SwitchError::NoSuchMember { bond, member: own, known });
        }
        let Some(now) = state.member(member) else {
            return Err(SwitchError::MemberWithoutPort { bond, member: own });
        };
        match change {
            BondMemberChange::Enable if !now.may_enable => {
                return Err(SwitchError::MemberWithoutLink { bond, member: own });
            }
            BondMemberChange::Activate if !state.is_enabled(member) => {
                return Err(SwitchError::MemberDisabled { bond, member: own });
            }
            BondMemberChange::Activate
                if member != options.primary && state.is_enabled(&options.primary) =>
            {
                let primary = options.primary.clone();
                return Err(SwitchError::PrimaryEnabled { bond, member: own, primary });
            }
            BondMemberChange::Activate => state.set_active(member),
            BondMemberChange::TakeBucket(_) if state.buckets().is_none() => {
                return Err(SwitchError::BondWithoutBuckets { bond });
            }
            BondMemberChange::TakeBucket(_) if !state.is_enabled(member) => {
                return Err(SwitchError::MemberDisabled { bond, member: own });
            }
            BondMemberChange::TakeBucket(bucket) => state.migrate(bucket, member),
            BondMemberChange::Enable => state.set_enabled(member, true),
            BondMemberChange::Disable => state.set_enabled(member, false),
        }
        Ok(())
    }
}
