//! Helpers that build requests: groups, meters, and rules that name them.

use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, Bucket, Change, FlowMod, FlowModCommand, GroupCommand, GroupId, GroupKind, GroupMod,
    Meter, MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod, MeterUnit,
    Modification, ModificationError, Selection, Time,
};

use crate::switch::{BRIDGE, Switch, request};

pub(crate) fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

pub(crate) fn group(number: u32) -> Action {
    Action::Group(GroupId::new(number))
}

/// Returns a rule with these actions.
pub(crate) fn rule(matching: &str, actions: Vec<Action>) -> FlowMod {
    let mut rule = request(FlowModCommand::Add, &format!("{matching},actions=drop"));
    rule.instructions.apply = actions.into();
    rule
}

/// Returns a bucket of weight 0 that watches no port or group.
pub(crate) fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket { id: 0, weight: 0, watch_port: PortNo::ANY, watch_group: None, actions: actions.into() }
}

/// Returns a bucket that watches a port.
pub(crate) fn watching(port: u32, actions: Vec<Action>) -> Bucket {
    Bucket { watch_port: PortNo::new(port), ..bucket(actions) }
}

/// Returns a bucket of a select group.
pub(crate) fn weighted(weight: u16, actions: Vec<Action>) -> Bucket {
    Bucket { weight, ..bucket(actions) }
}

pub(crate) fn group_mod(
    command: GroupCommand,
    number: u32,
    kind: GroupKind,
    buckets: Vec<Bucket>,
) -> GroupMod {
    let numbered = |(id, bucket)| Bucket { id, ..bucket };
    GroupMod {
        command,
        group: Some(GroupId::new(number)),
        kind,
        selection: Selection::Default,
        buckets: (0..).zip(buckets).map(numbered).collect(),
    }
}

pub(crate) fn add_group(number: u32, kind: GroupKind, buckets: Vec<Bucket>) -> Modification {
    group_mod(GroupCommand::Add, number, kind, buckets).into()
}

pub(crate) fn delete_group(number: u32) -> Modification {
    group_mod(GroupCommand::Delete, number, GroupKind::All, Vec::new()).into()
}

pub(crate) fn drop_band(rate: u32, burst_size: u32) -> MeterBand {
    MeterBand { kind: MeterBandKind::Drop, rate, burst_size }
}

pub(crate) fn config(unit: MeterUnit, bands: Vec<MeterBand>) -> MeterConfig {
    let burst = bands.iter().any(|band| band.burst_size > 0);
    MeterConfig { unit, burst, stats: true, bands: bands.into() }
}

pub(crate) fn meter(number: u32, config: MeterConfig) -> Meter {
    Meter::new(MeterId::new(number), BRIDGE, config, Time::ZERO)
}

pub(crate) fn meter_mod(command: MeterCommand, number: u32, bands: Vec<MeterBand>) -> Modification {
    let config = config(MeterUnit::Packets, bands);
    MeterMod { command, meter: Some(MeterId::new(number)), config }.into()
}

impl Switch {
    /// Applies requests as one version.
    pub(crate) fn modify(
        &self,
        mods: impl IntoIterator<Item = Modification>,
    ) -> Result<Change, ModificationError> {
        self.pipeline.modify(BRIDGE, mods, Time::ZERO).map_err(|rejected| rejected.error)
    }

    /// Applies requests as one version; the switch must accept all of them.
    pub(crate) fn make(&self, mods: impl IntoIterator<Item = Modification>) -> Change {
        self.modify(mods).expect("the requests are legal")
    }

    /// Returns the numbers of all groups.
    pub(crate) fn group_numbers(&self) -> Vec<u32> {
        self.pipeline.groups(BRIDGE).iter().map(|group| group.id.number()).collect()
    }

    /// Returns the numbers of all meters.
    pub(crate) fn meter_numbers(&self) -> Vec<u32> {
        self.pipeline.meters(BRIDGE).iter().map(|meter| meter.id.number()).collect()
    }
}
