//! The state of a switch that is saved over a restart: bridges, ports, settings and tables.
//!
//! Rules, groups and meters are saved as texts in the syntax of `ovs-ofctl`, with port numbers, so
//! an operator can read and edit them. Counters, learned MAC addresses and multicast groups are
//! saved, too. The age of rules is not saved: their timeouts begin again.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeContents, BridgeId, FlowModCommand, Group, GroupCommand, GroupKind, GroupMod, Meter,
    MeterCommand, Modification, ModificationError, Pipeline, RejectedMod, Selection,
    text::{
        RuleTextError, format_group, format_meter, format_rule, parse_group_mod, parse_meter_mod,
        parse_rule, parse_saved_rule,
    },
};

use crate::{
    config::{BondOptions, BridgeOptions, Config, MirrorOptions, PortOptions, PortType},
    control::ControlPlane,
    error::{SwitchError, with_causes},
    ports::registry::BridgeRegistry,
    reload::{ReloadReport, reload, resumed},
    saved_counts::{
        FORMAT, SavedCount, SavedCounts, group_counts, meter_counts, restore_counts, rule_counts,
    },
    saved_groups::in_order,
    saved_learned::{
        SavedMac, SavedMulticast, learnings, restore_learned, restore_statics, saved_macs,
        saved_multicast,
    },
    switch::Switch,
};

/// The saved state of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// Number of the format; see [`SavedState::FORMAT`].
    pub format: u32,
    /// Configuration in force, with all bridges and ports that have a device.
    pub config: Config,
    /// Rules, groups and meters of each bridge.
    pub tables: Vec<SavedTables>,
    /// Active members of bonds, by bond name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub active_members: BTreeMap<String, String>,
}

/// The rules, groups and meters of one bridge, as texts for `ovs-ofctl`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTables {
    /// Name of the bridge.
    pub bridge: String,
    /// Meters, as for `ovs-ofctl add-meter`.
    pub meters: Vec<String>,
    /// Groups, as for `ovs-ofctl add-group`, after the groups that they name.
    pub groups: Vec<String>,
    /// Rules, as for `ovs-ofctl add-flow`.
    pub rules: Vec<String>,
    /// Counters of the rules, groups and meters.
    #[serde(default, skip_serializing_if = "SavedCounts::is_empty")]
    pub counts: SavedCounts,
    /// Learned and static MAC addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<SavedMac>,
    /// Learned multicast groups and router ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multicast: Vec<SavedMulticast>,
}

impl SavedState {
    /// The format that this build writes; it also reads earlier formats.
    ///
    /// Format 2 has counters and MAC addresses, format 3 the active members of bonds, format 4
    /// multicast groups, and format 5 static MAC addresses.
    pub const FORMAT: u32 = 5;

    /// Returns the configuration for the start of a switch that resumes this state.
    ///
    /// The configuration has no bridges: [`Switch::resume`](crate::Switch::resume) adds them, with
    /// the same `loaded` and `file`.
    #[must_use]
    pub fn start_config(&self, loaded: &Config, file: &Config) -> Config {
        Config { bridges: Vec::new(), ..resumed(&self.config, loaded, file) }
    }

    /// Returns this state with the keys that the configuration file has changed.
    ///
    /// Bridges, and lists such as ports, are still the same as in the saved state.
    pub(crate) fn with_file(&self, loaded: &Config, file: &Config) -> Self {
        let mut config = resumed(&self.config, loaded, file);
        for (own, saved) in config.bridges.iter_mut().zip(&self.config.bridges) {
            own.ports.clone_from(&saved.ports);
            own.bonds.clone_from(&saved.bonds);
            own.mirrors.clone_from(&saved.mirrors);
            own.collector_sets.clone_from(&saved.collector_sets);
        }
        Self { config, ..self.clone() }
    }
}

impl Switch {
    /// Returns the state, in the form that [`Self::restore`] takes.
    ///
    /// The call takes time proportional to the number of rules.
    #[must_use]
    pub fn save(&self) -> SavedState {
        save(&self.control)
    }

    /// Restores a saved state.
    ///
    /// Bridges and ports of the state are added if they do not exist, and settings get the values
    /// of the state. The rules, groups and meters of its bridges are replaced, each bridge in one
    /// version. Other bridges and ports stay. The report has each applied and each refused change.
    ///
    /// A port that cannot be opened stays down until it can be opened. Sockets of a bridge are also
    /// retried. If a rule, group or meter is refused, the other objects are restored; the objects
    /// before and after it are then separate versions.
    ///
    /// # Errors
    ///
    /// If the state has a newer format, or its configuration is not valid. After an error, nothing
    /// has changed.
    pub async fn restore(&self, state: &SavedState) -> Result<ReloadReport, SwitchError> {
        restore(&self.control, state).await
    }

    /// Restores a saved state in a switch that has just started.
    ///
    /// The switch must have been started with [`SavedState::start_config`]. The call also adds and
    /// removes bridges and ports in which `file`, the configuration file of this start, differs
    /// from `loaded`, the file of the last run. Returns the report of the restored state, then the
    /// report of these differences.
    ///
    /// # Errors
    ///
    /// Like [`Self::restore`].
    pub async fn resume(
        &self,
        state: &SavedState,
        loaded: &Config,
        file: &Config,
    ) -> Result<[ReloadReport; 2], SwitchError> {
        // Packets are held until all bridges, rules and ports are restored.
        self.hold_packets(true).await;
        let restored = self.restore(&state.with_file(loaded, file)).await;
        let report = match &restored {
            Ok(_) => self.reload(loaded, file).await,
            Err(_) => ReloadReport::default(),
        };
        self.hold_packets(false).await;
        Ok([restored?, report])
    }

    /// Holds the packets of ports that are opened from now on, or releases them.
    ///
    /// The kernel queues held packets, as many as its queues take.
    pub async fn hold_packets(&self, hold: bool) {
        let structure = self.control.structure().await;
        if hold {
            structure.ports().hold();
        } else {
            structure.ports().release().await;
        }
    }

    /// Returns whether the packets of opened ports are held.
    pub async fn holds_packets(&self) -> bool {
        self.control.structure().await.ports().is_held()
    }
}

/// A request to change the tables, with its text; a deletion has no text.
struct TableRequest {
    /// Kind of the object: `rule`, `group` or `meter`.
    kind: &'static str,
    /// The text of the object; empty for a deletion.
    text: String,
    /// The request that restores the object.
    modification: Modification,
}

impl TableRequest {
    /// Returns the group if the request is for a group.
    const fn group(&self) -> Option<&GroupMod> {
        match &self.modification {
            Modification::Group(group) => Some(group),
            Modification::Flow(_) | Modification::Meter(_) => None,
        }
    }
}

/// The requests that fill the tables of one bridge.
struct BridgeRequests {
    /// Number of saved rules, groups and meters, including texts that are not valid.
    saved: usize,
    /// The requests, in their order.
    requests: Vec<TableRequest>,
}

/// Returns the state of a switch, to be saved.
pub(crate) fn save(control: &ControlPlane) -> SavedState {
    let config = running_config(control);
    let (ids, active_members) = {
        let bridges = control.bridges.lock();
        let ids = bridges.iter().map(|bridge| (bridge.id, bridge.settings.name.clone()));
        (ids.collect::<Vec<_>>(), bridges.active_members())
    };
    let pipeline = control.plane.pipeline();
    let tables = ids.into_iter().map(|(id, name)| saved_tables(pipeline, id, &name)).collect();
    SavedState { format: SavedState::FORMAT, config, tables, active_members }
}

/// Returns the configured settings, with the bridges that exist.
pub(crate) fn running_config(control: &ControlPlane) -> Config {
    let settings = control.configured.lock().clone();
    config_in_force(&settings, &control.bridges.lock())
}

/// Restores a saved state.
///
/// Bridges and ports of the state are added if they do not exist, and settings get the values of
/// the state. The rules, groups and meters of its bridges are replaced, each bridge in one version.
/// Other bridges and ports stay.
///
/// # Errors
///
/// If the format is later, or the configuration is not valid. After an error, nothing has changed.
pub(crate) async fn restore(
    control: &ControlPlane,
    state: &SavedState,
) -> Result<ReloadReport, SwitchError> {
    if state.format > SavedState::FORMAT {
        return Err(SwitchError::SavedFormat { found: state.format, known: SavedState::FORMAT });
    }
    let (config, left_out) = state.config.without_refused_values();
    // An operator may have removed the peer of a patch port, or the bridge of the NIC.
    config.check_parts()?;
    let mut tables = ReloadReport::default();
    let requests = state.tables.iter().map(|own| {
        let saved = own.meters.len() + own.groups.len() + own.rules.len();
        let requests = own.requests(&mut tables.refused);
        (own.bridge.as_str(), BridgeRequests { saved, requests })
    });
    let mut requests: BTreeMap<&str, BridgeRequests> = requests.collect();
    let structure = control.structure().await;
    let before = running_config(control);
    let after = merge(&before, &config);
    let mut fill = |bridge: &str| {
        // A new bridge gets its rules before any packet or controller reaches it.
        if let Some(requests) = requests.remove(bridge) {
            report_tables(control, bridge, &requests, &mut tables);
        }
    };
    control.bridges.lock().set_last_active(state.active_members.clone());
    let mut report = reload(&structure, &before, &after, &mut fill).await;
    control.bridges.lock().set_last_active(BTreeMap::new());
    for (bridge, requests) in requests {
        report_tables(control, bridge, &requests, &mut tables);
        control.plane.adopted_newest().await;
    }
    for saved in &state.tables {
        // If the bridge was refused, the report already has the reason.
        let Ok(id) = control.bridges.id(&saved.bridge) else { continue };
        restore_counts(control.plane.pipeline(), id, &saved.counts);
        tables.refused.extend(restore_statics(control, id, saved));
        restore_learned(control, &learnings(id, saved));
    }
    report.applied.extend(tables.applied);
    report.refused.extend(tables.refused);
    report.remarks.extend(left_out);
    Ok(report)
}

/// Replaces the tables of a bridge, and adds the result to a report.
fn report_tables(
    control: &ControlPlane,
    bridge: &str,
    BridgeRequests { saved, requests }: &BridgeRequests,
    report: &mut ReloadReport,
) {
    match replace_tables(control, bridge, requests) {
        Ok(refused) => {
            let done = restored_text(requests.len() - refused.len(), *saved);
            report.applied.push(format!("bridge {bridge}: {done}"));
            report.refused.extend(refused);
        }
        Err(error) => {
            let refused =
                format!("bridge {bridge}: {saved} rules, groups and meters not restored: {error}");
            report.refused.push(refused);
        }
    }
}

/// Returns the number of restored rules, groups and meters, as text.
fn restored_text(restored: usize, saved: usize) -> String {
    let objects = "rules, groups and meters restored";
    if restored == saved {
        return format!("{restored} {objects}");
    }
    let loss = if restored == 0 { ", so its tables are empty" } else { "" };
    format!(
        "{restored} of {saved} {objects}{loss}: correct the refused lines and restore the file again"
    )
}

/// Replaces the tables of a bridge.
///
/// Returns a line for each refused request.
///
/// If no request is refused, the change is one version. Otherwise see [`apply_in_parts`].
fn replace_tables(
    control: &ControlPlane,
    bridge: &str,
    requests: &[TableRequest],
) -> Result<Vec<String>, SwitchError> {
    let id = control.bridges.id(bridge)?;
    let modify = |mods: Vec<Modification>| {
        let now = control.plane.now();
        control.plane.publisher().change(|pipeline| pipeline.modify(id, mods, now)).map(drop)
    };
    let refused = apply_in_parts(deletions(), requests, modify)?;
    let line = |(index, error): (usize, ModificationError)| {
        let TableRequest { kind, text, .. } = &requests[index];
        format!("bridge {bridge}: {kind} `{text}`: {}", with_causes(&error))
    };
    Ok(refused.into_iter().map(line).collect())
}

/// Applies `first` and the requests; skips requests that `modify` refuses.
///
/// Returns the index of each refused request, with the reason.
///
/// The first part has all requests. If one request is refused, the requests before it become a
/// version, and the next part has a single request. Each applied part doubles the size of the next
/// part. So a refused request does not repeat the work of many others.
///
/// # Errors
///
/// If a modification of `first` is refused.
fn apply_in_parts(
    mut first: Vec<Modification>,
    requests: &[TableRequest],
    mut modify: impl FnMut(Vec<Modification>) -> Result<(), RejectedMod>,
) -> Result<Vec<(usize, ModificationError)>, RejectedMod> {
    let (mut done, mut step, mut refused) = (0_usize, usize::MAX, Vec::new());
    loop {
        let end = done.saturating_add(step).min(requests.len());
        let of = |part: &[TableRequest]| {
            let own = part.iter().map(|request| request.modification.clone());
            first.iter().cloned().chain(own).collect::<Vec<_>>()
        };
        match modify(of(&requests[done..end])) {
            Ok(()) => {
                done = end;
                step = step.saturating_mul(2);
            }
            Err(rejected) => {
                let index = rejected.index.checked_sub(first.len()).map(|at| done + at);
                let Some(index) = index.filter(|at| *at < end) else { return Err(rejected) };
                let accepted = of(&requests[done..index]);
                if !accepted.is_empty() {
                    modify(accepted)?;
                }
                refused.push((index, rejected.error));
                done = index + 1;
                step = 1;
            }
        }
        first.clear();
        if done == requests.len() {
            return Ok(refused);
        }
    }
}

/// Returns `saved` with the bridges and ports that only `running` has.
fn merge(running: &Config, saved: &Config) -> Config {
    let mut merged = saved.clone();
    for bridge in &running.bridges {
        match merged.bridges.iter_mut().find(|own| own.name == bridge.name) {
            None => merged.bridges.push(bridge.clone()),
            Some(own) => {
                let is_other =
                    |port: &&PortOptions| !own.ports.iter().any(|own| own.name == port.name);
                let others: Vec<_> = bridge.ports.iter().filter(is_other).cloned().collect();
                own.ports.extend(others);
                let is_other =
                    |bond: &&BondOptions| !own.bonds.iter().any(|own| own.conflicts_with(bond));
                let others: Vec<_> = bridge.bonds.iter().filter(is_other).cloned().collect();
                own.bonds.extend(others);
                let is_other = |mirror: &&MirrorOptions| {
                    !own.mirrors.iter().any(|own| own.name == mirror.name)
                };
                let others: Vec<_> = bridge.mirrors.iter().filter(is_other).cloned().collect();
                own.mirrors.extend(others);
            }
        }
    }
    merged
}

/// Returns the configuration in force.
///
/// The state has all bridges, and the ports that the switch opens itself.
pub(crate) fn config_in_force(settings: &Config, bridges: &BridgeRegistry) -> Config {
    let bridges = bridges.iter().map(|bridge| {
        let ports = bridge.ports.values().filter(|port| {
            // The local port belongs to its bridge. A program that embeds the switch opens unbound
            // ports itself.
            port.settings.name != bridge.settings.name && port.settings.kind != PortType::Unbound
        });
        let ports = ports.map(|port| {
            let mut settings = port.settings.clone();
            settings.number = port.number.number();
            settings
        });
        BridgeOptions { ports: ports.collect(), ..bridge.settings.clone() }
    });
    Config { bridges: bridges.collect(), ..settings.clone() }
}

/// Returns the rules, groups and meters of a bridge, as one version has them.
pub(crate) fn saved_tables(pipeline: &Pipeline, id: BridgeId, name: &str) -> SavedTables {
    let BridgeContents { rules, groups, meters } = pipeline.contents(id);
    let mut counts = SavedCounts::new();
    let mut saved = |text: String, own: Vec<SavedCount>| {
        if !own.is_empty() {
            counts.insert(text.clone(), own);
        }
        text
    };
    let meter = |own: &Arc<Meter>| saved(format_meter(own.id, &own.config), meter_counts(own));
    let meters = meters.iter().map(meter).collect();
    let group = |own: &Arc<Group>| saved(format_group(own, &NoPortNames), group_counts(own));
    let groups = groups.iter().map(group).collect();
    let rules = rules.iter().map(|own| saved(format_rule(own, FORMAT), rule_counts(own)));
    SavedTables {
        bridge: name.to_owned(),
        meters,
        groups,
        rules: rules.collect(),
        counts,
        macs: saved_macs(pipeline, id),
        multicast: saved_multicast(pipeline, id),
    }
}

impl SavedTables {
    /// Returns the requests that fill the tables of an empty bridge.
    ///
    /// Adds a line to `refused` for each text that is not a rule, group or meter.
    fn requests(&self, refused: &mut Vec<String>) -> Vec<TableRequest> {
        let mut request = |kind: &'static str, text: &String, parsed: Result<_, RuleTextError>| {
            let refuse = |error: &RuleTextError| {
                refused.push(format!("bridge {}: {kind} `{text}`: {error}", self.bridge));
            };
            let modification = parsed.inspect_err(refuse).ok()?;
            Some(TableRequest { kind, text: text.clone(), modification })
        };
        let meters = self.meters.iter().filter_map(|text| {
            let meter = parse_meter_mod(MeterCommand::Add, text);
            request("meter", text, meter.map(Modification::Meter))
        });
        let mut requests: Vec<_> = meters.collect();
        let groups = self.groups.iter().filter_map(|text| {
            let group = parse_group_mod(GroupCommand::Add, text, &NoPortNames);
            request("group", text, group.map(Modification::Group))
        });
        requests.extend(in_order(groups.collect(), TableRequest::group));
        let rules = self.rules.iter().filter_map(|text| {
            let rule = parse_saved_rule(text);
            request("rule", text, rule.map(Modification::Flow))
        });
        requests.extend(rules);
        requests
    }
}

/// Returns the requests that delete all rules, groups and meters.
fn deletions() -> Vec<Modification> {
    let groups = GroupMod {
        command: GroupCommand::Delete,
        group: None,
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: Box::default(),
    };
    // The empty match selects every rule, and `meter=all` every meter.
    let rules = parse_rule(FlowModCommand::Delete, "", &NoPortNames).map(Modification::Flow);
    let meters = parse_meter_mod(MeterCommand::Delete, "meter=all").map(Modification::Meter);
    [rules, Ok(Modification::Group(groups)), meters].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restored bond replaces a running bond with another name and a common member.
    #[test]
    fn saved_bonds_replace_running_ones_with_their_members() {
        let config = |bonds: &[(&str, [&str; 2])]| {
            let bond = |(name, members): &(&str, [&str; 2])| BondOptions {
                name: (*name).to_owned(),
                members: members.map(str::to_owned).into(),
                ..BondOptions::default()
            };
            let bonds = bonds.iter().map(bond).collect();
            let bridge = BridgeOptions { name: "br0".into(), bonds, ..BridgeOptions::default() };
            Config { bridges: vec![bridge], ..Config::default() }
        };
        let running = config(&[("uplink", ["p2", "p1"]), ("other", ["p5", "p6"])]);
        let saved = config(&[("bond0", ["p1", "p3"])]);
        let merged = merge(&running, &saved);
        let names: Vec<_> = merged.bridges[0].bonds.iter().map(|own| own.name.as_str()).collect();
        assert_eq!(names, ["bond0", "other"]);
        assert!(merged.bridges[0].check_bonds().is_ok());
    }

    /// The work is proportional to the requests when most of them are refused.
    #[test]
    fn refused_requests_cost_linear_work() {
        /// Number of rules that the test restores.
        const RULES: usize = 2000;
        /// Number of rules that the tables accept.
        const LIMIT: usize = 10;
        let rules = (0..RULES).map(|priority| format!("priority={priority},actions=drop"));
        let tables = SavedTables { rules: rules.collect(), ..SavedTables::default() };
        let requests = tables.requests(&mut Vec::new());
        let (mut applied, mut passed) = (0, 0);
        let modify = |mods: Vec<Modification>| {
            passed += mods.len();
            let room = LIMIT - applied;
            if mods.len() > room {
                let error = ModificationError::NoSuchBridge(BridgeId::new(1));
                return Err(RejectedMod { index: room, error });
            }
            applied += mods.len();
            Ok(())
        };
        let refused = apply_in_parts(Vec::new(), &requests, modify).unwrap();
        let indices: Vec<_> = refused.into_iter().map(|(index, _)| index).collect();
        assert_eq!(indices, (LIMIT..RULES).collect::<Vec<_>>());
        assert_eq!(applied, LIMIT);
        assert!(passed <= 3 * RULES, "{passed} requests passed");
    }

    /// The work is proportional even with refused requests between accepted requests.
    #[test]
    fn scattered_refusals_cost_linear_work() {
        /// Number of rules that the test restores.
        const RULES: usize = 2000;
        let rules = (0..RULES).map(|priority| format!("priority={priority},actions=drop"));
        let tables = SavedTables { rules: rules.collect(), ..SavedTables::default() };
        let requests = tables.requests(&mut Vec::new());
        let is_refused = |request: &Modification| {
            let Modification::Flow(rule) = request else { return false };
            rule.priority.number().is_multiple_of(9)
        };
        let (mut applied, mut passed) = (0, 0);
        let modify = |mods: Vec<Modification>| {
            passed += mods.len();
            if let Some(index) = mods.iter().position(is_refused) {
                let error = ModificationError::NoSuchBridge(BridgeId::new(1));
                return Err(RejectedMod { index, error });
            }
            applied += mods.len();
            Ok(())
        };
        let refused = apply_in_parts(Vec::new(), &requests, modify).unwrap();
        assert_eq!(refused.len(), RULES.div_ceil(9));
        assert!(refused.iter().all(|(index, _)| index.is_multiple_of(9)), "{refused:?}");
        assert_eq!(applied, RULES - refused.len());
        assert!(passed <= 4 * RULES, "{passed} requests passed");
    }
}
