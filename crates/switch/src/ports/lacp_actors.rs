//! The LACP actors of all bonds, for the LACP task, and LACP numbers that must be unique.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
};

use shunt_flow::PortNo;
use shunt_lacp::LacpEvent;
use shunt_pipeline::{BridgeId, Time};

use crate::{
    config::BondOptions,
    error::SwitchError,
    ports::{
        bonds::BondState,
        lacp::{LacpActor, LacpFrame, TakenLacpKeys},
        registry::BridgeRegistry,
    },
};

/// The frames and events that all LACP actors produced.
#[derive(Default)]
pub(crate) struct LacpOutputs {
    /// Frames to send, each with its bridge.
    pub(crate) frames: Vec<(BridgeId, LacpFrame)>,
    /// Changes of members, by bond and member.
    pub(crate) events: Vec<(String, String, LacpEvent)>,
}

impl BridgeRegistry {
    /// Returns whether any bond uses LACP.
    pub(crate) fn uses_lacp(&self) -> bool {
        self.iter().flat_map(|bridge| bridge.bonds.values()).any(|bond| bond.lacp().is_some())
    }

    /// Returns the time of the next call of [`Self::run_lacp`].
    pub(crate) fn next_lacp_deadline(&self) -> Option<Time> {
        let bonds = self.iter().flat_map(|bridge| bridge.bonds.values());
        bonds.filter_map(|bond| bond.lacp()?.deadline()).min()
    }

    /// Runs the LACP actors of all bonds.
    pub(crate) fn run_lacp(&mut self, now: Time) -> LacpOutputs {
        let mut outputs = LacpOutputs::default();
        for bridge in self.iter_mut() {
            for (bond, state) in &mut bridge.bonds {
                let Some(actor) = state.lacp_mut() else { continue };
                let (frames, events) = actor.run(now);
                let id = bridge.id;
                outputs.frames.extend(frames.into_iter().map(|frame| (id, frame)));
                let named = events.into_iter().map(|(member, event)| (bond.clone(), member, event));
                outputs.events.extend(named);
            }
        }
        outputs
    }

    /// Removes members from their LACP actors; returns their last LACPDUs.
    ///
    /// `leaves` selects members by bridge, bond and member name.
    pub(crate) fn leave_lacp(
        &mut self,
        leaves: impl Fn(BridgeId, &str, &str) -> bool,
        now: Time,
    ) -> Vec<(BridgeId, LacpFrame)> {
        let mut frames = Vec::new();
        for bridge in self.iter_mut() {
            let id = bridge.id;
            for (bond, state) in &mut bridge.bonds {
                let Some(actor) = state.lacp_mut() else { continue };
                let names = actor.member_names().into_iter();
                let leaving = names.filter(|member| leaves(id, bond, member));
                let last = leaving.filter_map(|member| actor.leave(&member, now));
                frames.extend(last.map(|frame| (id, frame)));
            }
        }
        frames
    }

    /// Returns the LACP actor of the bond that has a port, with the name of the bond.
    pub(crate) fn lacp_actor_mut(
        &mut self,
        bridge: BridgeId,
        port: PortNo,
    ) -> Option<(&str, &mut LacpActor)> {
        let mut bonds = self.by_id_mut(bridge)?.bonds.iter_mut();
        bonds.find_map(|(bond, state)| {
            let actor = state.lacp_mut().filter(|actor| actor.has(port))?;
            Some((bond.as_str(), actor))
        })
    }
}

/// Returns the LACP keys that other bonds of the bridge use.
///
/// With equal keys, a partner could aggregate members of both bonds. `all` has the bonds of the
/// bridge, and `states` the states of these bonds.
pub(crate) fn other_keys(
    all: &[BondOptions],
    states: &BTreeMap<String, BondState>,
    bond: &str,
) -> TakenLacpKeys {
    let others = || all.iter().filter(|other| other.name != bond && other.has_lacp());
    let chosen = |other: &BondOptions| states.get(&other.name)?.lacp()?.key();
    let configured = others().flat_map(|other| other.lacp_aggregation_key.values());
    TakenLacpKeys {
        configured: configured.filter_map(|key| NonZeroU16::new(*key)).collect(),
        chosen: others().filter_map(chosen).collect(),
    }
}

/// Returns the `lacp_port_id` of all members other than a port.
pub(crate) fn lacp_port_ids(bonds: &[BondOptions], port: &str) -> BTreeSet<PortNo> {
    let ids = bonds.iter().filter(|bond| bond.has_lacp()).flat_map(|bond| &bond.lacp_port_id);
    ids.filter(|(member, _)| *member != port).map(|(_, id)| PortNo::new((*id).into())).collect()
}

/// Refuses a port number that is the `lacp_port_id` of another member.
///
/// A port number is only used if the member has no `lacp_port_id`.
pub(crate) fn check_lacp_number(
    bonds: &[BondOptions],
    port: &str,
    number: PortNo,
) -> Result<(), SwitchError> {
    let uses_number = bonds.iter().any(|bond| {
        let is_member = bond.members.iter().any(|member| member == port);
        bond.has_lacp() && is_member && !bond.lacp_port_id.contains_key(port)
    });
    if uses_number && lacp_port_ids(bonds, port).contains(&number) {
        let problem = "another member of a bond has the number of this port as `lacp_port_id` \
                       (`other_config:lacp-port-id`): change that id";
        return Err(SwitchError::PortSetting { port: port.to_owned(), problem });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BondLacp;

    #[test]
    fn members_have_different_port_numbers_of_lacp() {
        let bonds = [BondOptions {
            name: "b".to_owned(),
            members: vec!["p1".to_owned(), "p2".to_owned()],
            lacp: BondLacp::Active,
            lacp_port_id: [("p2".to_owned(), 1)].into(),
            ..BondOptions::default()
        }];
        let check = |port: &str, number| check_lacp_number(&bonds, port, PortNo::new(number));
        assert_eq!(lacp_port_ids(&bonds, "p1"), BTreeSet::from([PortNo::new(1)]));
        assert!(lacp_port_ids(&bonds, "p2").is_empty());
        assert!(check("p1", 1).is_err(), "p2 has the number for LACP");
        assert!(check("p1", 2).is_ok() && check("p2", 1).is_ok());
        assert!(check("p3", 1).is_ok(), "p3 is no member");
        let without = [BondOptions { lacp: BondLacp::Off, ..bonds[0].clone() }];
        assert!(check_lacp_number(&without, "p1", PortNo::new(1)).is_ok());
    }
}
