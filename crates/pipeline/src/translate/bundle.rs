//! `bundle` and `bundle_load`: one of several ports whose links are up (`nx_action_bundle`).

use shunt_flow::PortNo;

use super::context::Translation;
use crate::{
    action::{BundleAction, BundleAlgorithm},
    bridges::port::PortInfo,
    traversals::traversal::TraversalError,
};

impl Translation<'_> {
    /// Sends the packet to the chosen port, or writes its number; without a live one, sends it
    /// nowhere, or writes `OFPP_NONE`.
    pub(super) fn bundle(&mut self, action: &BundleAction) -> Result<(), TraversalError> {
        let chosen = match action.algorithm {
            BundleAlgorithm::ActiveBackup => {
                action.members.iter().copied().find(|port| self.is_live_member(*port))
            }
            BundleAlgorithm::HighestRandomWeight => self.heaviest_member(action),
        };
        match (action.target, chosen) {
            (Some(target), chosen) => {
                // In 16 bits, as the action has it on the wire.
                let number = chosen.unwrap_or(PortNo::NONE).number() & 0xffff;
                let value = u128::from(number) << target.offset & target.bits();
                self.set_field(target.field, value, target.bits());
                Ok(())
            }
            (None, Some(port)) => self.output(port, 0),
            (None, None) => Ok(()),
        }
    }

    /// The live port with the highest random weight: a port that goes down moves only what was its.
    fn heaviest_member(&mut self, action: &BundleAction) -> Option<PortNo> {
        if let [only] = *action.members {
            return Some(only).filter(|port| self.is_live_member(*port));
        }
        let hash = self.hash_fields(action.fields, action.basis);
        let members =
            (0_u32..).zip(&action.members).filter(|(_, port)| self.is_live_member(**port));
        let heaviest = members.max_by_key(|(place, _)| hash.with(u128::from(*place)).whole());
        heaviest.map(|(_, port)| *port)
    }

    /// Whether a member is one to choose; reserved ports always are, but for the controller.
    fn is_live_member(&mut self, port: PortNo) -> bool {
        match port {
            PortNo::IN_PORT | PortNo::TABLE | PortNo::NORMAL | PortNo::FLOOD | PortNo::ALL => true,
            _ => self.find_port(port).is_some_and(PortInfo::is_live),
        }
    }
}
