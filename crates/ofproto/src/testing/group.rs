//! Generators of groups and meters.

use std::collections::BTreeMap;

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};
use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{
    Action, Bucket, BucketPlace, BucketSelector, GroupCommand, GroupId, GroupKind, GroupMod,
    MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterId, MeterMod, MeterUnit,
    PacketTotals, Selection,
};

use super::{action::any_action_set, message::any_duration};
use crate::{
    message::{
        GroupDescription, GroupFeatures, GroupStatistics, MeterDescription, MeterFeatures,
        MeterStatistics, MultipartReply,
    },
    wire::v13,
};

/// Generates group-mods that decoding returns unchanged after encoding.
pub fn any_group_mod() -> impl Strategy<Value = GroupMod> {
    let commands = vec![GroupCommand::Add, GroupCommand::Modify, GroupCommand::AddOrModify];
    let change = (select(commands), any::<u32>(), any_kind(), any_buckets()).prop_map(
        |(command, group, kind, buckets)| GroupMod {
            command,
            group: Some(GroupId::new(group)),
            kind,
            selection: Selection::Default,
            buckets,
        },
    );
    let delete = option::of(any_group()).prop_map(|group| GroupMod {
        command: GroupCommand::Delete,
        group,
        kind: GroupKind::All,
        selection: Selection::Default,
        buckets: Box::default(),
    });
    prop_oneof![2 => change, 1 => delete]
}

/// Generates group-mods that OpenFlow 1.0 encodes and decodes without a change.
pub fn any_nicira_group_mod() -> impl Strategy<Value = GroupMod> {
    let id = || 0..=0xffff_ff00_u32;
    let place = prop_oneof![
        Just(BucketPlace::First),
        Just(BucketPlace::Last),
        id().prop_map(BucketPlace::After),
    ];
    let selector = prop_oneof![
        Just(BucketSelector::First),
        Just(BucketSelector::Last),
        Just(BucketSelector::All),
        id().prop_map(BucketSelector::Id),
    ];
    let ids = btree_map(id(), any::<u16>(), 0..4);
    let change = (any_group_mod(), ids, any_selection());
    let with_ids = |(request, ids, selection): (GroupMod, BTreeMap<u32, u16>, _)| {
        let bucket = |(id, port): (u32, u16)| Bucket {
            id,
            weight: port,
            watch_port: PortNo::ANY,
            watch_group: (port % 2 == 1).then_some(GroupId::new(id)),
            actions: Box::new([Action::Output {
                port: PortNo::new((port % 256).into()),
                max_len: 0,
            }]),
        };
        let is_delete = request.command == GroupCommand::Delete;
        let is_select = request.kind == GroupKind::Select;
        let buckets = ids.into_iter().filter(|_| !is_delete).map(bucket).collect();
        let selection = if is_select { selection } else { Selection::Default };
        GroupMod { buckets, selection, ..request }
    };
    let change = change.prop_map(with_ids);
    let change = (change, option::of(place), option::of(selector));
    change.prop_map(|(request, place, selector)| {
        let keeping = |command, buckets| {
            let (kind, selection) = (GroupKind::All, Selection::Default);
            GroupMod { command, group: request.group, kind, selection, buckets }
        };
        match (request.command, place, selector) {
            (GroupCommand::Modify, Some(place), _) => {
                keeping(GroupCommand::InsertBuckets(place), request.buckets.clone())
            }
            (GroupCommand::Modify, None, Some(selector)) => {
                keeping(GroupCommand::RemoveBuckets(selector), Box::default())
            }
            _ => request,
        }
    })
}

/// Generates a bucket selection: default, hash of the datapath, or fields.
fn any_selection() -> impl Strategy<Value = Selection> {
    let field = select(vec![FieldId::EthDst, FieldId::Ipv4Src, FieldId::Ipv6Src, FieldId::TcpDst]);
    let fields = btree_map(field, any::<u128>(), 0..4).prop_map(|fields| {
        fields
            .into_iter()
            .map(|(field, mask)| (field, mask & field.value_max()))
            .collect::<Box<[_]>>()
    });
    prop_oneof![
        Just(Selection::Default),
        any::<u64>().prop_map(|basis| Selection::DatapathHash { basis }),
        (any::<u64>(), fields).prop_map(|(basis, fields)| Selection::Fields { basis, fields }),
    ]
}

/// Generates group ids other than `OFPG_ALL`.
pub(super) fn any_group() -> impl Strategy<Value = GroupId> {
    (0..GroupId::ALL.number()).prop_map(GroupId::new)
}

/// Generates one of the four group types.
fn any_kind() -> impl Strategy<Value = GroupKind> {
    select(vec![GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover])
}

/// Generates up to three buckets with ids from 0 up.
fn any_buckets() -> impl Strategy<Value = Box<[Bucket]>> {
    let watch_port =
        prop_oneof![Just(PortNo::ANY), Just(PortNo::LOCAL), (1..99_u32).prop_map(PortNo::new)];
    let watch_group = option::of(any_group());
    let bucket = (any::<u16>(), watch_port, watch_group, any_action_set());
    vec(bucket, 0..4).prop_map(|buckets| {
        let numbered = (0..).zip(buckets);
        let bucket = numbered.map(|(id, (weight, watch_port, watch_group, actions))| Bucket {
            id,
            weight,
            watch_port,
            watch_group,
            actions: actions.into(),
        });
        bucket.collect()
    })
}

/// Generates meter-mods that decoding returns unchanged after encoding.
pub fn any_meter_mod() -> impl Strategy<Value = MeterMod> {
    let commands = vec![MeterCommand::Add, MeterCommand::Modify];
    let change =
        (select(commands), any::<u32>(), any_config()).prop_map(|(command, meter, config)| {
            MeterMod { command, meter: Some(MeterId::new(meter)), config }
        });
    let delete = option::of(any_meter()).prop_map(|meter| MeterMod {
        command: MeterCommand::Delete,
        meter,
        config: v13::empty_meter_config(),
    });
    prop_oneof![2 => change, 1 => delete]
}

/// Generates meter ids other than `OFPM_ALL`.
pub(super) fn any_meter() -> impl Strategy<Value = MeterId> {
    (0..MeterId::ALL.number()).prop_map(MeterId::new)
}

/// Generates a meter with up to three bands.
fn any_config() -> impl Strategy<Value = MeterConfig> {
    let kind = prop_oneof![
        Just(MeterBandKind::Drop),
        any::<u8>().prop_map(|precedence| MeterBandKind::DscpRemark { precedence }),
    ];
    let band = (kind, 1..=u32::MAX, any::<u32>()).prop_map(|(kind, rate, burst_size)| MeterBand {
        kind,
        rate,
        burst_size,
    });
    let unit = select(vec![MeterUnit::Kilobits, MeterUnit::Packets]);
    (unit, any::<bool>(), any::<bool>(), vec(band, 0..4)).prop_map(|(unit, burst, stats, bands)| {
        MeterConfig { unit, burst, stats, bands: bands.into() }
    })
}

/// Generates counts of packets and bytes.
fn any_totals() -> impl Strategy<Value = PacketTotals> {
    any::<(u64, u64)>().prop_map(|(packets, bytes)| PacketTotals { packets, bytes })
}

/// Generates parts of replies about groups and meters.
pub(super) fn any_reply() -> impl Strategy<Value = MultipartReply> {
    let numbers = (any::<(u32, u32)>(), any_duration(), any_totals(), vec(any_totals(), 0..4));
    let group = numbers.prop_map(|((group, references), duration, total, buckets)| {
        GroupStatistics { group: GroupId::new(group), references, duration, total, buckets }
    });
    let description =
        (any::<u32>(), any_kind(), any_buckets()).prop_map(|(group, kind, buckets)| {
            let (group, selection) = (GroupId::new(group), Selection::Default);
            GroupDescription { group, kind, selection, buckets }
        });
    let features = any::<(u32, u32, [u32; 4], [u32; 4])>().prop_map(
        |(kinds, capabilities, groups_max, actions)| GroupFeatures {
            kinds,
            capabilities,
            groups_max,
            actions,
        },
    );
    let numbers = (any::<(u32, u32)>(), any_duration(), any_totals(), vec(any_totals(), 0..4));
    let meter = numbers.prop_map(|((meter, flows), duration, total, bands)| MeterStatistics {
        meter: MeterId::new(meter),
        flows,
        duration,
        total,
        bands,
    });
    let config = (any::<u32>(), any_config())
        .prop_map(|(meter, config)| MeterDescription { meter: MeterId::new(meter), config });
    let meter_features = any::<(u32, u32, u32, u8, u8)>().prop_map(
        |(meters_max, band_kinds, capabilities, bands_max, colors_max)| MeterFeatures {
            meters_max,
            band_kinds,
            capabilities,
            bands_max,
            colors_max,
        },
    );
    prop_oneof![
        vec(group, 0..4).prop_map(MultipartReply::Group),
        vec(description, 0..4).prop_map(MultipartReply::GroupDescription),
        features.prop_map(MultipartReply::GroupFeatures),
        vec(meter, 0..4).prop_map(MultipartReply::Meter),
        vec(config, 0..4).prop_map(MultipartReply::MeterConfig),
        meter_features.prop_map(MultipartReply::MeterFeatures),
    ]
}
