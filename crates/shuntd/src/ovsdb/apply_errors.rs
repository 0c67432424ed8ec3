//! The rows that could not be applied, with the reasons.

use std::collections::BTreeMap;

use shunt_ovsdb::value::RowUuid;
use shunt_switch::{ApplyReport, DesiredState, ObjectId, ObjectOutcome};
use tracing::warn;

use super::{
    desired::{DesiredBridge, DesiredBridges, DesiredPort, add_reason},
    exports::RefusedExports,
};

/// The rows that could not be applied, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ApplyErrors {
    /// Rows in `Interface` for which the switch has no port, with the reasons.
    pub(super) interfaces: BTreeMap<RowUuid, String>,
    /// Rows in `Interface` with a setting that the switch refuses, with the reasons.
    pub(super) settings: BTreeMap<RowUuid, String>,
    /// Errors of rows in `Controller`, by row.
    pub(super) controllers: BTreeMap<RowUuid, String>,
    /// Errors of the controllers of a bridge, by bridge name.
    pub(super) bridge_controllers: BTreeMap<String, String>,
    /// Reasons why the rule for `NORMAL` cannot be changed, by bridge name.
    pub(super) normal_rules: BTreeMap<String, String>,
}

/// The rows without effect that are only logged.
pub(super) struct LoggedRows {
    /// Rows in `Mirror`, with the reasons.
    pub(super) mirrors: BTreeMap<RowUuid, String>,
    /// Rows of sFlow, NetFlow and IPFIX, with the reasons.
    pub(super) exports: RefusedExports,
}

impl ApplyErrors {
    /// Returns whether a row in `Interface` has other errors than in `other`.
    pub(super) fn differs_at(&self, other: &Self, row: RowUuid) -> bool {
        self.interfaces.get(&row) != other.interfaces.get(&row)
            || self.settings.get(&row) != other.settings.get(&row)
    }

    /// Returns whether other errors than those of interfaces differ.
    pub(super) fn differs_beside_ports(&self, other: &Self) -> bool {
        self.controllers != other.controllers
            || self.bridge_controllers != other.bridge_controllers
            || self.normal_rules != other.normal_rules
    }

    /// Adds the refused changes of a report to the rows of their objects.
    ///
    /// `in_force` is the state after the changes.
    pub(super) fn add_refused(
        &mut self,
        report: &ApplyReport,
        desired: &DesiredBridges,
        in_force: &DesiredState,
        logged: &mut LoggedRows,
    ) {
        for (own, reason) in report.refused() {
            match &own.object {
                ObjectId::Settings => warn!(error = reason, "ovsdb: {}", own.change),
                ObjectId::Bridge(name) => self.add_bridge(name, &own.outcome, desired),
                ObjectId::Controllers(bridge) => {
                    self.bridge_controllers.insert(bridge.clone(), reason.to_owned());
                }
                ObjectId::Sflow(bridge)
                | ObjectId::Netflow(bridge)
                | ObjectId::Ipfix(bridge)
                | ObjectId::CollectorSets(bridge) => {
                    if let Some(bridge) = desired.bridges.get(bridge) {
                        logged.add_export(&own.object, bridge, reason);
                    }
                }
                ObjectId::Bonds(bridge) => {
                    warn!(error = reason, "bridge {bridge}: its bonds cannot be removed, retrying");
                }
                ObjectId::Bond(name) => self.add_bond(name, reason, desired, in_force),
                ObjectId::Port(name) => self.add_port(name, &own.outcome, desired),
                ObjectId::Mirror { bridge, name } => {
                    let bridge = desired.bridges.get(bridge);
                    let row = bridge.and_then(|own| own.mirrors.get(name)).copied();
                    logged.mirrors.extend(row.map(|row| (row, reason.to_owned())));
                }
            }
        }
    }

    /// Adds an error for a bridge: for all of its ports, or for its settings.
    fn add_bridge(&mut self, name: &str, outcome: &ObjectOutcome, desired: &DesiredBridges) {
        let bridge = desired.bridges.get(name);
        match (outcome, bridge) {
            (ObjectOutcome::NotAdded(reason) | ObjectOutcome::NotRemoved(reason), Some(bridge)) => {
                let rows = bridge.ports.values().map(|port| port.interface).chain(bridge.local);
                self.interfaces.extend(rows.map(|row| (row, reason.clone())));
            }
            (ObjectOutcome::NotRemoved(reason), None) => {
                warn!(error = reason, "bridge {name}: cannot be removed, retrying");
            }
            (ObjectOutcome::NotChanged(reason), Some(bridge)) => {
                if let Some(local) = bridge.local {
                    add_reason(&mut self.settings, local, reason);
                }
            }
            // The row was deleted while the change was made.
            (ObjectOutcome::NotAdded(_) | ObjectOutcome::NotChanged(_), None)
            // These outcomes are no refusals.
            | (
                ObjectOutcome::Added
                | ObjectOutcome::AddedDown(_)
                | ObjectOutcome::Removed
                | ObjectOutcome::Changed
                | ObjectOutcome::AtRestart,
                _,
            ) => {}
        }
    }

    /// Adds the error of a port to its row.
    fn add_port(&mut self, name: &str, outcome: &ObjectOutcome, desired: &DesiredBridges) {
        let row = find_port(desired, name).map(|port| port.interface);
        match (outcome, row) {
            (ObjectOutcome::NotAdded(reason), Some(row)) => {
                self.interfaces.insert(row, reason.clone());
            }
            (ObjectOutcome::NotRemoved(reason), row) => {
                warn!(error = reason, "port {name}: cannot be removed, retrying");
                if let Some(row) = row {
                    add_reason(&mut self.settings, row, reason);
                }
            }
            (ObjectOutcome::NotChanged(reason), Some(row)) => {
                add_reason(&mut self.settings, row, reason);
            }
            // A member of a removed bond, or another port without a row, has nowhere to report.
            (ObjectOutcome::NotAdded(_) | ObjectOutcome::NotChanged(_), None)
            // These outcomes are no refusals.
            | (
                ObjectOutcome::Added
                | ObjectOutcome::AddedDown(_)
                | ObjectOutcome::Removed
                | ObjectOutcome::Changed
                | ObjectOutcome::AtRestart,
                _,
            ) => {}
        }
    }

    /// Adds an error for the members of a refused bond.
    ///
    /// A member of a bond that keeps its old options has a port.
    fn add_bond(
        &mut self,
        name: &str,
        reason: &str,
        desired: &DesiredBridges,
        in_force: &DesiredState,
    ) {
        let of = |bridge: &DesiredBridge| {
            let bonds = bridge.options.bonds.iter();
            bonds.filter(|bond| bond.name == name).flat_map(|bond| bond.members.clone()).collect()
        };
        for bridge in desired.bridges.values() {
            let members: Vec<String> = of(bridge);
            let kept = in_force.bridge(&bridge.options.name).map(|own| &own.options.bonds);
            for member in members {
                let Some(port) = bridge.ports.get(&member) else { continue };
                let mut kept = kept.into_iter().flatten();
                if kept.any(|bond| bond.members.contains(&member)) {
                    add_reason(&mut self.settings, port.interface, reason);
                } else {
                    self.interfaces.insert(port.interface, reason.to_owned());
                }
            }
        }
    }
}

impl LoggedRows {
    /// Adds the error of an export to its row.
    fn add_export(&mut self, object: &ObjectId, bridge: &DesiredBridge, reason: &str) {
        let (rows, refused) = (bridge.exports, &mut self.exports);
        match object {
            ObjectId::Sflow(_) => refused.refuse_sflow(rows, reason),
            ObjectId::Netflow(_) => refused.refuse_netflow(rows, reason),
            ObjectId::Ipfix(_) => refused.refuse_ipfix(rows, reason),
            ObjectId::CollectorSets(_) => {
                let rows = bridge.collector_sets.rows();
                refused.collector_sets.extend(rows.map(|row| (row, reason.to_owned())));
            }
            ObjectId::Settings
            | ObjectId::Bridge(_)
            | ObjectId::Controllers(_)
            | ObjectId::Bonds(_)
            | ObjectId::Bond(_)
            | ObjectId::Port(_)
            | ObjectId::Mirror { .. } => {}
        }
    }
}

/// Returns the desired port with a name.
fn find_port<'a>(desired: &'a DesiredBridges, name: &str) -> Option<&'a DesiredPort> {
    desired.bridges.values().find_map(|bridge| bridge.ports.get(name))
}
