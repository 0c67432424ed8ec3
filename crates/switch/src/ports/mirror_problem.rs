//! Reasons why a mirror copies no packets, or fewer than configured.

use super::{bonds::BondState, registry::BridgeState};
use crate::config::MirrorOptions;

impl BridgeState {
    /// Returns the reason why a mirror copies no packets, or fewer than configured.
    pub(crate) fn mirror_problem(&self, mirror: &MirrorOptions) -> Option<String> {
        let ports = self.port_names();
        mirror
            .problem(|name| ports.contains(name))
            .or_else(|| self.bond_problem(&mirror.output_port))
    }

    /// Returns the reason why the output, a bond or a member of a bond,
    /// sends no copies.
    fn bond_problem(&self, output: &str) -> Option<String> {
        if self.lacks_member(output) {
            return Some(format!("copies nothing until a member of bond {output} is enabled"));
        }
        let bond = &self.bond_of(output)?.name;
        Some(format!(
            "output_port {output} is a member of bond {bond}, and copies nothing while another \
             member is active: set output_port to {bond}"
        ))
    }

    /// Returns whether `name` is a bond without an active member.
    pub(crate) fn lacks_member(&self, name: &str) -> bool {
        self.settings.bonds.iter().any(|bond| bond.name == name)
            && self.bonds.get(name).and_then(BondState::active).is_none()
    }
}
