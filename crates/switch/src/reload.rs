//! Reload: changes a running switch from one configuration to another.
//!
//! Both configurations become a [`DesiredState`]. Only bridges, ports and settings that differ
//! between them are changed. So objects that were only added by `shuntctl` or a program stay. A
//! change that is refused does not prevent the other changes.
//!
//! A start with a saved state compares the configuration file in the same way with the file of the
//! last run (`resumed`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::{
        BridgeOptions, Config,
        changed_settings::with_saved,
        setting::{BRIDGE_SETTINGS, SETTINGS},
    },
    control::structure::{Structure, TableFiller},
    desired::{
        ApplyPolicy, ApplyReport, DesiredState, ObjectId, ObjectOutcome, ObjectReport,
        apply::apply, with_nic_bridges,
    },
    switch::Switch,
};

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Changes that were applied, such as `port eth1: added`.
    pub applied: Vec<String>,
    /// Problems of applied changes, such as an MTU without effect.
    pub remarks: Vec<String>,
    /// Changes that were refused, each with the reason.
    pub refused: Vec<String>,
    /// Changed keys that take effect when the switch starts again.
    pub at_restart: Vec<String>,
    /// The report for each object.
    report: ApplyReport,
}

impl ReloadReport {
    /// Returns the texts of a report.
    fn of(report: ApplyReport) -> Self {
        let mut texts = Self::default();
        for ObjectReport { change, outcome, .. } in &report.objects {
            match outcome {
                ObjectOutcome::Added | ObjectOutcome::Removed | ObjectOutcome::Changed => {
                    texts.applied.push(change.clone());
                }
                ObjectOutcome::AddedDown(problem) => {
                    texts.applied.push(format!("{change}, but down: {problem}"));
                }
                ObjectOutcome::NotAdded(reason)
                | ObjectOutcome::NotRemoved(reason)
                | ObjectOutcome::NotChanged(reason) => {
                    texts.refused.push(format!("{change}: {reason}"));
                }
                ObjectOutcome::AtRestart => texts.at_restart.push(change.clone()),
            }
        }
        Self { report, ..texts }
    }

    /// Returns whether the compared configurations are equal.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.refused.is_empty() && self.at_restart.is_empty()
    }

    /// Returns the configuration `after` without the changes that were refused.
    ///
    /// `before` and `after` are the configurations of the reload. A later reload from the result
    /// retries the refused changes, and only these.
    #[must_use]
    pub fn without_refused(&self, before: &Config, after: &Config) -> Config {
        let [before, after] = [before, after].map(DesiredState::of);
        self.report.without_refused(&before, &after).config()
    }

    /// Returns the configuration `after` without the changes that are not in force.
    ///
    /// These changes were refused, or wait for the next start. `before` and `after` are the
    /// configurations of the reload of a running switch.
    #[must_use]
    pub fn in_force(&self, before: &Config, after: &Config) -> Config {
        let [before, after] = [before, after].map(DesiredState::of);
        self.report.in_force(&before, &after).config()
    }
}

impl Switch {
    /// Applies the differences between two configurations.
    ///
    /// The report names keys that need a restart. Ports and listeners that cannot be opened are
    /// retried.
    ///
    /// `before` is the configuration that was loaded last. Bridges, ports and settings that are
    /// equal in both stay as they are, even if they were changed at run time.
    pub async fn reload(&self, before: &Config, after: &Config) -> ReloadReport {
        reload(&*self.control.structure().await, before, after, &mut |_| ()).await
    }
}

/// Applies the differences between two configurations.
///
/// A port that cannot be opened is added nevertheless, because no later reload would add it. `fill`
/// fills the tables of new bridges before they have ports.
pub(crate) async fn reload(
    structure: &Structure,
    before: &Config,
    after: &Config,
    fill: &mut TableFiller<'_>,
) -> ReloadReport {
    let [old, new] = [before, after].map(DesiredState::of);
    let report = apply(structure, &old, &new, ApplyPolicy::Once, fill).await;
    let mut remarks = port_remarks(structure, &report);
    remarks.extend(management_remarks(structure, &report));
    remarks.extend(listen_remarks(structure, &report));
    remarks.extend(datapath_id_remarks(structure, before, after));
    ReloadReport { remarks, ..ReloadReport::of(report) }
}

/// Returns the changed bridges with the datapath id of another bridge.
///
/// A bridge is changed if its configured datapath id or MAC address differs, or if it is new.
fn datapath_id_remarks(structure: &Structure, before: &Config, after: &Config) -> Vec<String> {
    let registry = structure.bridges().lock();
    let before = bridges(before);
    let identity = |own: &BridgeOptions| (own.datapath_id.clone(), own.mac.clone());
    let is_changed = |own: &&BridgeOptions| {
        before.get(own.name.as_str()).is_none_or(|old| identity(old) != identity(own))
    };
    let remark = |own: &BridgeOptions| {
        let bridge = registry.find(&own.name).ok()?;
        Some(format!("bridge {}: {}", own.name, registry.datapath_id_problem(bridge)?))
    };
    after.bridges.iter().filter(is_changed).filter_map(remark).collect()
}

/// Returns the added bridges that have no management socket yet.
fn management_remarks(structure: &Structure, report: &ApplyReport) -> Vec<String> {
    let registry = structure.bridges().lock();
    let remark = |own: &ObjectReport| {
        let (ObjectId::Bridge(name), ObjectOutcome::Added) = (&own.object, &own.outcome) else {
            return None;
        };
        let problem = registry.find(name).ok()?.management_problem.as_ref()?;
        Some(format!("bridge {name}: {problem}"))
    };
    report.objects.iter().filter_map(remark).collect()
}

/// Returns the listeners of added and changed bridges that are not open yet.
fn listen_remarks(structure: &Structure, report: &ApplyReport) -> Vec<String> {
    let registry = structure.bridges().lock();
    let name = |own: &ObjectReport| match (&own.object, &own.outcome) {
        (ObjectId::Bridge(name), ObjectOutcome::Added | ObjectOutcome::Changed) => {
            Some(name.clone())
        }
        _ => None,
    };
    // A bridge with several changes has several reports.
    let names: BTreeSet<String> = report.objects.iter().filter_map(name).collect();
    let mut remarks = Vec::new();
    for name in names {
        let Ok(bridge) = registry.find(&name) else { continue };
        let problems = bridge.listen_problems.iter();
        remarks.extend(problems.map(|problem| format!("bridge {name}: {problem}")));
    }
    remarks
}

/// Returns the problems of added ports: an MTU without effect, and device users.
///
/// If the device of an open port refuses another MTU, the change of the port is refused.
fn port_remarks(structure: &Structure, report: &ApplyReport) -> Vec<String> {
    let bridges = structure.bridges().lock();
    let added = report.objects.iter().filter(|own| own.outcome == ObjectOutcome::Added);
    let remarks = |own: &ObjectReport| -> Vec<String> {
        // The local port of a bridge has the name of the bridge.
        let (ObjectId::Port(name) | ObjectId::Bridge(name)) = &own.object else {
            return Vec::new();
        };
        let Ok((_, port)) = bridges.find_port(name) else { return Vec::new() };
        let problems = [port.mtu_problem(), port.user_problem()].into_iter().flatten();
        problems.map(|problem| format!("port {name}: {problem}")).collect()
    };
    added.flat_map(remarks).collect()
}

/// Returns the configuration to start with, from the saved one and the file.
///
/// The bridges have no ports.
///
/// A key keeps its saved value if it can change at run time, and the file has not changed it since
/// the last run. Bridges that only the saved configuration has stay as saved.
///
/// `loaded` is the configuration file of the last run, and `file` the file of this start.
pub(crate) fn resumed(saved: &Config, loaded: &Config, file: &Config) -> Config {
    let own = Config { bridges: Vec::new(), ..saved.clone() };
    let states = [loaded, file].map(DesiredState::of);
    let [old, new] = with_nic_bridges([&states[0], &states[1]]).map(Option::unwrap_or_default);
    let mut resumed = with_saved(&own, &old, &new, SETTINGS);
    let bridge = |own: &BridgeOptions| {
        let [old, new] =
            [loaded, file].map(|config| bridges(config).get(own.name.as_str()).copied());
        let default = BridgeOptions { name: own.name.clone(), ..BridgeOptions::default() };
        let changed = new.map(|new| with_saved(own, old.unwrap_or(&default), new, BRIDGE_SETTINGS));
        BridgeOptions { ports: Vec::new(), ..changed.unwrap_or_else(|| own.clone()) }
    };
    resumed.bridges = saved.bridges.iter().map(bridge).collect();
    let nic_bridge = &mut resumed.caches.gigaflow.offload.bridge;
    if let Some(first) = file.bridges.first().or_else(|| saved.bridges.first())
        && nic_bridge.is_empty()
    {
        nic_bridge.clone_from(&first.name);
    }
    resumed
}

/// Returns the bridges of a configuration by name.
fn bridges(config: &Config) -> BTreeMap<&str, &BridgeOptions> {
    config.bridges.iter().map(|bridge| (bridge.name.as_str(), bridge)).collect()
}

#[cfg(test)]
mod tests;
