//! The state of a switch that survives its end: bridges, ports, settings, rules, groups and meters.
//!
//! Rules, groups and meters are texts in the syntax of `ovs-ofctl`, with port numbers, so an operator
//! can read and edit them. Counters, learned MAC addresses and the age of rules are not saved: timeouts
//! begin again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    Action, BridgeId, FlowModCommand, GroupCommand, GroupId, GroupKind, GroupMod, MeterCommand,
    Modification, Pipeline, RuleFilter, Selection,
    text::{
        RuleFormat, RuleTextError, format_group, format_meter, format_rule, parse_group_mod,
        parse_meter_mod, parse_rule,
    },
};

use crate::{
    config::{BridgeOptions, Config, PortOptions, PortType},
    control::ControlPlane,
    error::SwitchError,
    ports::registry::BridgeRegistry,
    reload::{ReloadReport, reload},
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
}

/// The rules, groups and meters of one bridge, as texts of `ovs-ofctl`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTables {
    /// Name of the bridge.
    pub bridge: String,
    /// Meters, as for `ovs-ofctl add-meter`.
    pub meters: Vec<String>,
    /// Groups, as for `ovs-ofctl add-group`; a group follows those that it names.
    pub groups: Vec<String>,
    /// Rules, as for `ovs-ofctl add-flow`.
    pub rules: Vec<String>,
}

impl SavedState {
    /// The format that this build writes and reads.
    pub const FORMAT: u32 = 1;
}

/// Returns the state of a switch.
pub(crate) fn save(control: &ControlPlane) -> SavedState {
    let settings = control.config.lock().clone();
    let (config, ids) = {
        let bridges = control.bridges.lock();
        let ids = bridges.iter().map(|bridge| (bridge.id, bridge.settings.name.clone()));
        (config_in_force(&settings, &bridges), ids.collect::<Vec<_>>())
    };
    let pipeline = control.plane.pipeline();
    let tables = ids.into_iter().map(|(id, name)| saved_tables(pipeline, id, &name)).collect();
    SavedState { format: SavedState::FORMAT, config, tables }
}

/// Restores a state.
///
/// Bridges and ports of the state are added if they do not exist, and settings get its values. The
/// rules, groups and meters of its bridges are replaced, each bridge as one version. Other bridges and
/// ports stay.
///
/// # Errors
///
/// If the format is of another version, or the state contains a text that is not valid; then nothing
/// changes.
pub(crate) async fn restore(
    control: &ControlPlane,
    state: &SavedState,
) -> Result<ReloadReport, SwitchError> {
    if state.format != SavedState::FORMAT {
        return Err(SwitchError::SavedFormat { found: state.format, known: SavedState::FORMAT });
    }
    state.config.check()?;
    let requests: Vec<(&str, Vec<Modification>)> = state
        .tables
        .iter()
        .map(|tables| Ok((tables.bridge.as_str(), tables.requests()?)))
        .collect::<Result<_, SwitchError>>()?;
    let structure = control.structure().await;
    let before = config_in_force(&control.config.lock(), &control.bridges.lock());
    let after = merged(&before, &state.config);
    let mut report = reload(&structure, &before, &after).await;
    for (bridge, requests) in requests {
        let count = requests.len() - deletions().len();
        match replace_tables(control, bridge, requests).await {
            Ok(()) => report
                .applied
                .push(format!("bridge {bridge}: {count} rules, groups and meters restored")),
            Err(error) => report.refused.push(format!("bridge {bridge}: rules: {error}")),
        }
    }
    Ok(report)
}

/// Replaces the tables of a bridge as one version.
async fn replace_tables(
    control: &ControlPlane,
    bridge: &str,
    requests: Vec<Modification>,
) -> Result<(), SwitchError> {
    let id = control.bridges.id(bridge)?;
    let now = control.plane.now();
    control.plane.publisher().change(|pipeline| pipeline.modify(id, requests, now))?;
    control.plane.adopted_newest().await;
    Ok(())
}

/// Returns `saved` with the bridges and ports that only `running` has.
fn merged(running: &Config, saved: &Config) -> Config {
    let mut merged = saved.clone();
    for bridge in &running.bridges {
        match merged.bridges.iter_mut().find(|own| own.name == bridge.name) {
            None => merged.bridges.push(bridge.clone()),
            Some(own) => {
                let is_other =
                    |port: &&PortOptions| !own.ports.iter().any(|own| own.name == port.name);
                let others: Vec<_> = bridge.ports.iter().filter(is_other).cloned().collect();
                own.ports.extend(others);
            }
        }
    }
    merged
}

/// Returns the configuration in force.
///
/// It has all bridges, and the ports that the switch opens.
pub(crate) fn config_in_force(settings: &Config, bridges: &BridgeRegistry) -> Config {
    let bridges = bridges.iter().map(|bridge| {
        let ports = bridge.ports.values().filter(|port| {
            // The local port belongs to the bridge, and only its program can open an unbound port.
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

/// Returns the rules, groups and meters of a bridge.
pub(crate) fn saved_tables(pipeline: &Pipeline, id: BridgeId, name: &str) -> SavedTables {
    let format = RuleFormat { ports: &NoPortNames, stats_at: None };
    let rules = pipeline.rules(id, &RuleFilter::all());
    let groups = pipeline.groups(id);
    let meters = pipeline.meters(id);
    SavedTables {
        bridge: name.to_owned(),
        meters: meters.iter().map(|meter| format_meter(meter.id, &meter.config)).collect(),
        groups: groups.iter().map(|group| format_group(group, &NoPortNames)).collect(),
        rules: rules.iter().map(|rule| format_rule(rule, format)).collect(),
    }
}

impl SavedTables {
    /// Returns the requests that replace the tables of a bridge by these.
    ///
    /// # Errors
    ///
    /// If a text is not a rule, group or meter.
    pub(crate) fn requests(&self) -> Result<Vec<Modification>, SwitchError> {
        let mut requests = deletions();
        for text in &self.meters {
            let meter = parse_meter_mod(MeterCommand::Add, text);
            requests.push(Modification::Meter(meter.map_err(|error| wrong(text, &error))?));
        }
        let groups = self.groups.iter().map(|text| {
            let group = parse_group_mod(GroupCommand::Add, text, &NoPortNames);
            group.map_err(|error| wrong(text, &error))
        });
        let groups = in_order(groups.collect::<Result<_, _>>()?);
        requests.extend(groups.into_iter().map(Modification::Group));
        for text in &self.rules {
            let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames);
            requests.push(Modification::Flow(rule.map_err(|error| wrong(text, &error))?));
        }
        Ok(requests)
    }
}

fn wrong(text: &str, error: &RuleTextError) -> SwitchError {
    SwitchError::SavedText { text: text.to_owned(), problem: error.to_string() }
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
    // These texts name every rule and every meter.
    let rules = parse_rule(FlowModCommand::Delete, "", &NoPortNames).map(Modification::Flow);
    let meters = parse_meter_mod(MeterCommand::Delete, "meter=all").map(Modification::Meter);
    [rules, Ok(Modification::Group(groups)), meters].into_iter().flatten().collect()
}

/// Returns groups in an order in which each can be added.
///
/// A group follows the groups that it names.
///
/// Groups that name each other keep their order; the switch refuses them.
fn in_order(mut groups: Vec<GroupMod>) -> Vec<GroupMod> {
    let mut ordered: Vec<GroupMod> = Vec::with_capacity(groups.len());
    let mut waiting: BTreeSet<GroupId> = groups.iter().filter_map(|group| group.group).collect();
    while !groups.is_empty() {
        let is_ready = |group: &GroupMod| named(group).is_disjoint(&waiting);
        let (ready, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_ready);
        if ready.is_empty() {
            ordered.extend(rest);
            break;
        }
        for id in ready.iter().filter_map(|group| group.group) {
            waiting.remove(&id);
        }
        ordered.extend(ready);
        groups = rest;
    }
    ordered
}

/// Returns the other groups that a group names.
fn named(group: &GroupMod) -> BTreeSet<GroupId> {
    let mut found = BTreeSet::new();
    for bucket in &group.buckets {
        found.extend(bucket.watch_group);
        let mut lists = vec![&*bucket.actions];
        while let Some(list) = lists.pop() {
            for action in list {
                match action {
                    Action::Group(id) => {
                        found.insert(*id);
                    }
                    Action::Clone(inner) => lists.push(inner),
                    _ => {}
                }
            }
        }
    }
    found.retain(|id| Some(*id) != group.group);
    found
}
