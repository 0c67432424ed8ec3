//! Generators of requests for groups and meters.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{
    FieldId, PortNo,
    testing::field_bits,
    text::{format_value, parse_value},
};

use super::action::{group_id, is_readable, meter_id, settable, single_port};
use crate::{
    groups::group::{Bucket, Group, GroupCommand, GroupKind, GroupMod, GroupStats, Selection},
    id::BridgeId,
    meters::meter::{MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterUnit},
    time::Time,
};

/// Generates a group-mod that text can express.
pub fn any_group_mod() -> impl Strategy<Value = GroupMod> {
    let kinds =
        vec![GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];
    let commands = vec![GroupCommand::Add, GroupCommand::Modify, GroupCommand::AddOrModify];
    let buckets = select(kinds).prop_flat_map(|kind| (Just(kind), vec(bucket(kind), 0..4)));
    (select(commands), group_id(), selection(), buckets).prop_map(
        |(command, group, selection, (kind, buckets))| {
            let (group, buckets) = (Some(group), buckets.into());
            GroupMod { command, group, kind, selection, buckets }
        },
    )
}

/// Generates a bucket of a group.
fn bucket(kind: GroupKind) -> impl Strategy<Value = Bucket> {
    let port =
        single_port().prop_filter("the port is not a reserved port", |port| *port <= PortNo::MAX);
    let watch_port = option::of(port).prop_map(|port| port.unwrap_or(PortNo::ANY));
    let watches = (watch_port, option::of(group_id()));
    let watches = watches.prop_filter("fast_failover watches a port", move |(port, group)| {
        kind != GroupKind::FastFailover || *port != PortNo::ANY || group.is_some()
    });
    let weight = if kind == GroupKind::Select { any::<u16>().boxed() } else { Just(0).boxed() };
    (0..=0xffff_ff00_u32, weight, watches, vec(settable(), 0..4)).prop_map(
        |(id, weight, (watch_port, watch_group), actions)| Bucket {
            id,
            weight,
            watch_port,
            watch_group,
            actions: actions.into(),
        },
    )
}

/// Generates the selection method of a group.
fn selection() -> impl Strategy<Value = Selection> {
    let field = select(FieldId::all().filter(is_readable).collect::<Vec<_>>());
    let masked = field.prop_flat_map(|field| (Just(field), field_bits(field)));
    // A mask is printed as a value of its field, and some fields have no text for some values.
    let legal =
        masked.prop_filter_map("the mask can be written as a value", |(field, (_, mask))| {
            let (all, word) = (field.value_max(), format_value(field, mask, field.value_max()));
            let is_written = mask == all || parse_value(field, &word) == Ok((mask, all));
            is_written.then_some((field, mask))
        });
    let fields =
        vec(legal, 0..4).prop_map(|fields| BTreeMap::from_iter(fields).into_iter().collect());
    prop_oneof![
        Just(Selection::Default),
        any::<u64>().prop_map(|basis| Selection::DatapathHash { basis }),
        (any::<u64>(), fields).prop_map(|(basis, fields)| Selection::Fields { basis, fields }),
    ]
}

/// Returns the group that a request would add.
pub(super) fn made(request: &GroupMod) -> Group {
    Group {
        id: request.group.unwrap_or_default(),
        bridge: BridgeId::new(1),
        kind: request.kind,
        selection: request.selection.clone(),
        buckets: request.buckets.clone(),
        created: Time::ZERO,
        stats: Arc::new(GroupStats::new(request.buckets.len())),
    }
}

/// Generates a meter-mod that text can express.
pub fn any_meter_mod() -> impl Strategy<Value = MeterMod> {
    let commands = vec![MeterCommand::Add, MeterCommand::Modify];
    let units = vec![MeterUnit::Kilobits, MeterUnit::Packets];
    let bands = any::<bool>().prop_flat_map(|burst| (Just(burst), vec(band(burst), 0..4)));
    (select(commands), meter_id(), select(units), any::<bool>(), bands).prop_map(
        |(command, meter, unit, stats, (burst, bands))| {
            let config = MeterConfig { unit, burst, stats, bands: bands.into() };
            MeterMod { command, meter: Some(meter), config }
        },
    )
}

/// Generates a band of a meter.
fn band(has_bursts: bool) -> impl Strategy<Value = MeterBand> {
    let kind = option::of(any::<u8>()).prop_map(|precedence| match precedence {
        Some(precedence) => MeterBandKind::DscpRemark { precedence },
        None => MeterBandKind::Drop,
    });
    (kind, 1..=u32::MAX, any::<u32>()).prop_map(move |(kind, rate, burst)| MeterBand {
        kind,
        rate,
        burst_size: if has_bursts { burst } else { 0 },
    })
}
