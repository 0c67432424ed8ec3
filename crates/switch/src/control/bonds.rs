//! Changes of bonds, by desired states and by commands of operators.

use std::collections::BTreeSet;

use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tracing::info;

use super::structure::Structure;
use crate::{
    config::{BondOptions, BridgeOptions, PortType},
    error::SwitchError,
    lacp_task::leave_partners,
    ports::{lacp_actors::check_lacp_number, registry::BridgeState},
};

/// A change of a member of a bond by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondMemberChange {
    /// Makes the member the active member.
    Activate,
    /// Enables the member without its `updelay_ms`, until its link changes.
    Enable,
    /// Disables the member without its `downdelay_ms`, until its link changes.
    Disable,
    /// Moves a bucket of a balancing bond to the member, until the next rebalancing.
    TakeBucket(u8),
}

impl Structure {
    /// Refuses a new bond of which a member has options that only its bond may have.
    ///
    /// [`Self::set_bonds`] does not check these options, because a later change of the same
    /// difference may remove them.
    pub(crate) fn check_options_of_members(
        &self,
        bridge: &str,
        bond: &BondOptions,
    ) -> Result<(), SwitchError> {
        let bridges = self.bridges.lock();
        let mut ports = bridges.find(bridge)?.ports.values();
        match ports.find_map(|port| port.settings.bond_mistake(bond)) {
            Some(mistake) => Err(*mistake.problem),
            None => Ok(()),
        }
    }

    /// Replaces the bonds of a bridge.
    ///
    /// Returns when no packet uses the old bonds. A bond that keeps its name keeps its active
    /// member.
    pub(crate) async fn set_bonds(
        &self,
        bridge: &str,
        bonds: Vec<BondOptions>,
    ) -> Result<(), SwitchError> {
        let (id, before) = self.bridge_with_bonds(bridge)?;
        let after = BridgeOptions { bonds, ..before.clone() };
        if after == before {
            return Ok(());
        }
        self.check_bond_names(&before, &after)?;
        after.check().map_err(|error| *error.problem)?;
        self.check_bond_members(&after)?;
        let stays = |bond: &str, member: &str| {
            let own = after.bonds.iter().find(|own| own.name == bond && own.lacp.mode().is_some());
            own.is_some_and(|own| own.members.iter().any(|name| name == member))
        };
        let leaves = |own: BridgeId, bond: &str, member: &str| own == id && !stays(bond, member);
        // The options were checked, so the following steps cannot be refused.
        leave_partners(&self.plane, &self.bridges, leaves).await;
        self.bridges.lock().set_options(id, after.clone())?;
        let names = |own: &BridgeOptions| {
            own.bonds.iter().map(|bond| bond.name.clone()).collect::<BTreeSet<_>>()
        };
        let (old, new) = (names(&before), names(&after));
        for name in old.difference(&new) {
            info!("bond {name}: removed from {bridge}");
        }
        for bond in after.bonds.iter().filter(|bond| !before.bonds.contains(bond)) {
            let done = if old.contains(&bond.name) { "changed on" } else { "added to" };
            info!(members = bond.members.join(","), "bond {}: {done} {bridge}", bond.name);
        }
        self.bridges.publish_ports();
        self.plane.adopted_newest().await;
        Ok(())
    }

    /// Changes a member of a bond, and returns when every packet follows the change.
    pub(crate) async fn change_bond_member(
        &self,
        bond: &str,
        member: &str,
        change: BondMemberChange,
    ) -> Result<(), SwitchError> {
        self.bridges.lock().change_bond_member(bond, member, change)?;
        self.bridges.publish_ports();
        self.plane.adopted_newest().await;
        Ok(())
    }

    /// Refuses members that are patch ports or ports of other bridges.
    ///
    /// The function also refuses two members with the same LACP port number.
    fn check_bond_members(&self, after: &BridgeOptions) -> Result<(), SwitchError> {
        let bridges = self.bridges.lock();
        let bridge = bridges.find(&after.name)?;
        for port in bridge.ports.values() {
            check_lacp_number(&after.bonds, &port.settings.name, port.number)?;
        }
        for bond in &after.bonds {
            for member in &bond.members {
                let Ok((bridge, port)) = bridges.find_port(member) else { continue };
                if bridge.settings.name != after.name {
                    let (bond, member) = (bond.name.clone(), member.clone());
                    let bridge = bridge.settings.name.clone();
                    return Err(SwitchError::MemberElsewhere { bond, member, bridge });
                }
                if port.settings.kind == PortType::Patch {
                    let problem =
                        "a patch port cannot be a member of a bond: remove it from the bond";
                    return Err(SwitchError::PortSetting { port: member.clone(), problem });
                }
            }
        }
        Ok(())
    }

    /// Refuses a new bond with the name of a bridge, port or bond of the switch.
    pub(crate) fn check_bond_names(
        &self,
        before: &BridgeOptions,
        after: &BridgeOptions,
    ) -> Result<(), SwitchError> {
        let bridges = self.bridges.lock();
        let is_new =
            |bond: &&BondOptions| !before.bonds.iter().any(|other| other.name == bond.name);
        for BondOptions { name, .. } in after.bonds.iter().filter(is_new) {
            let has_name = |own: &&BridgeState| own.port_names().contains(name.as_str());
            if let Some(bridge) = bridges.iter().find(has_name) {
                let owner = match bridge.port_named(name) {
                    Some(port) if port.number == PortNo::LOCAL => "local port",
                    Some(_) => "port",
                    None => "bond",
                };
                let (bond, bridge) = (name.clone(), bridge.settings.name.clone());
                return Err(SwitchError::BondNameTaken { bond, owner, bridge });
            }
        }
        Ok(())
    }

    /// Returns the options of a bridge that may have bonds.
    fn bridge_with_bonds(&self, name: &str) -> Result<(BridgeId, BridgeOptions), SwitchError> {
        let bridges = self.bridges.lock();
        let bridge = bridges.find(name)?;
        Ok((bridge.id, bridge.settings.clone()))
    }
}
