//! Groups of all kinds, in chains, meters that every packet or none exceeds, and choices by hash.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, PortNo};

use super::{BRIDGES, Op, plain_action, subfield};
use crate::{
    action::{
        Action, BundleAction, BundleAlgorithm, HashFields, MultipathAction, MultipathAlgorithm,
        Subfield,
    },
    bridges::port::PortInfo,
    groups::group::{
        Bucket, BucketPlace, BucketSelector, GroupCommand, GroupKind, GroupMod, Selection,
    },
    id::{GroupId, MeterId},
    meters::meter::{MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterUnit},
    update::modification::Modification,
    versions::delta::Object,
};

/// The highest number of a group; rules name all of them.
const GROUP_MAX: u32 = 4;
/// The highest number of a meter; rules name all of them.
const METER_MAX: u32 = 3;

/// All groups and meters of a bridge, so that rules can name them.
pub(super) fn all() -> impl Strategy<Value = Vec<Modification>> {
    let meters = (1..=METER_MAX).map(|id| meter_mod(MeterCommand::Add, id)).collect::<Vec<_>>();
    let groups = (1..=GROUP_MAX).map(|id| group_mod(GroupCommand::Add, id, id.max(2) - 1));
    let groups = groups.collect::<Vec<_>>();
    (meters, groups).prop_map(|(meters, groups)| {
        let groups = groups.into_iter().map(Modification::Group);
        meters.into_iter().map(Modification::Meter).chain(groups).collect()
    })
}

/// A change of groups and meters of a bridge, as one version.
pub(super) fn op() -> impl Strategy<Value = Op> {
    (select(&BRIDGES[..]), vec(request(), 1..3)).prop_map(|(id, mods)| Op::Modify(id, mods))
}

/// A change of a group or a meter, or a new rule.
pub(super) fn request() -> impl Strategy<Value = Modification> {
    let groups = (1..=GROUP_MAX).prop_flat_map(|id| {
        let (either, modify) = (GroupCommand::AddOrModify, GroupCommand::Modify);
        let change = vec![either, either, modify, modify, GroupCommand::Add];
        prop_oneof![
            8 => select(change).prop_flat_map(move |command| group_mod(command, id, GROUP_MAX)),
            1 => group_mod(GroupCommand::Delete, id, GROUP_MAX),
            2 => bucket_mod(id),
        ]
    });
    let meters = (1..=METER_MAX).prop_flat_map(|id| {
        let modify = MeterCommand::Modify;
        let command = vec![modify, modify, modify, MeterCommand::Add, MeterCommand::Delete];
        select(command).prop_flat_map(move |command| meter_mod(command, id))
    });
    prop_oneof![
        3 => groups.prop_map(Modification::Group),
        3 => meters.prop_map(Modification::Meter),
        1 => super::add().prop_map(Modification::Flow),
    ]
}

/// A change of the group or meter that `object` names.
pub(super) fn change_of(object: Object) -> Option<BoxedStrategy<Op>> {
    let modify = |id, request: BoxedStrategy<Modification>| {
        Some(request.prop_map(move |request| Op::Modify(id, vec![request])).boxed())
    };
    match object {
        Object::Group(bridge, id) => {
            let id = id.number();
            let group = group_mod(GroupCommand::Modify, id, id.max(2) - 1);
            modify(bridge, group.prop_map(Modification::Group).boxed())
        }
        Object::Meter(bridge, id) => {
            let meter = meter_mod(MeterCommand::Modify, id.number());
            modify(bridge, meter.prop_map(Modification::Meter).boxed())
        }
        Object::MulticastGroup(bridge, vlan, group) => {
            Some(super::multicast::change_of_group(bridge, vlan, group))
        }
        Object::MulticastRouters(bridge, vlan) => {
            Some(super::multicast::change_of_routers(bridge, vlan))
        }
        Object::Bridge(_)
        | Object::Ports(_)
        | Object::Port(..)
        | Object::PortFilters(_)
        | Object::Mac(..)
        | Object::Live(_)
        | Object::Learned(..) => None,
    }
}

/// An action that runs a group, passes a meter, or chooses by a hash.
pub(super) fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..=GROUP_MAX).prop_map(|id| Action::Group(GroupId::new(id))),
        1 => (1..=METER_MAX).prop_map(|id| Action::Meter(MeterId::new(id))),
        1 => multipath().prop_map(|action| Action::Multipath(Box::new(action))),
        1 => bundle().prop_map(|action| Action::Bundle(Box::new(action))),
    ]
}

/// The number of a meter.
pub(super) fn meter() -> impl Strategy<Value = MeterId> {
    (1..=METER_MAX).prop_map(MeterId::new)
}

/// Strategy: the ports `ports`, with links that are up or down at random.
pub(super) fn with_links(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    let links = vec(prop::bool::weighted(0.8), ports.len());
    links.prop_map(move |links| {
        let ports = ports.iter().zip(links);
        ports.map(|(port, link_up)| PortInfo { link_up, ..port.clone() }).collect()
    })
}

/// A group-mod with buckets that mostly name groups up to `target_max`.
fn group_mod(
    command: GroupCommand,
    id: u32,
    target_max: u32,
) -> impl Strategy<Value = GroupMod> + use<> {
    let kinds =
        vec![GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];
    let shape = (select(kinds), selection());
    shape.prop_flat_map(move |(kind, selection)| {
        let count = if kind == GroupKind::Indirect { 1..=1 } else { 0..=3 };
        vec(bucket(kind, id, target_max), count).prop_map(move |buckets| GroupMod {
            command,
            group: Some(GroupId::new(id)),
            kind,
            selection: selection.clone(),
            buckets: (0..).zip(buckets).map(|(id, bucket)| Bucket { id, ..bucket }).collect(),
        })
    })
}

/// A request that inserts or removes buckets.
///
/// The switch refuses the request if the buckets do not fit.
fn bucket_mod(id: u32) -> impl Strategy<Value = GroupMod> + use<> {
    let bucket_id = || 0u32..6;
    let place = prop_oneof![
        Just(BucketPlace::First),
        Just(BucketPlace::Last),
        bucket_id().prop_map(BucketPlace::After),
    ];
    let selector = prop_oneof![
        Just(BucketSelector::First),
        Just(BucketSelector::Last),
        Just(BucketSelector::All),
        bucket_id().prop_map(BucketSelector::Id),
    ];
    let insert = (place, bucket_id(), group_mod(GroupCommand::Add, id, id.max(2) - 1));
    prop_oneof![
        2 => insert.prop_map(|(place, first, request)| GroupMod {
            command: GroupCommand::InsertBuckets(place),
            buckets: (first..).zip(request.buckets).map(|(id, bucket)| Bucket { id, ..bucket }).collect(),
            ..request
        }),
        1 => selector.prop_map(move |selector| GroupMod {
            command: GroupCommand::RemoveBuckets(selector),
            group: Some(GroupId::new(id)),
            kind: GroupKind::All,
            selection: Selection::Default,
            buckets: Box::default(),
        }),
    ]
}

/// Generates a bucket of a group.
fn bucket(kind: GroupKind, group: u32, target_max: u32) -> impl Strategy<Value = Bucket> + use<> {
    let lower = move || {
        let id = prop_oneof![20 => 1..group.max(2), 1 => 1..=target_max];
        id.prop_map(GroupId::new)
    };
    let action: BoxedStrategy<Action> = if group == 1 {
        plain_action().boxed()
    } else {
        prop_oneof![4 => plain_action(), 1 => lower().prop_map(Action::Group)].boxed()
    };
    let watch_group = option::weighted(0.3, lower());
    let watch_group = watch_group.prop_map(move |watched| watched.filter(|_| group > 1));
    let parts = (vec(action, 0..4), 0u16..4, option::weighted(0.7, 1u32..6), watch_group);
    parts.prop_map(move |(actions, weight, port, watch_group)| {
        let port = port.map_or(PortNo::ANY, PortNo::new);
        let watches = matches!(kind, GroupKind::Select | GroupKind::FastFailover);
        let is_bare = port == PortNo::ANY && watch_group.is_none();
        Bucket {
            id: 0,
            weight: if kind == GroupKind::Select { weight } else { 0 },
            watch_port: match kind {
                GroupKind::FastFailover if is_bare => PortNo::new(1),
                _ if watches => port,
                _ => PortNo::ANY,
            },
            watch_group: watch_group.filter(|_| watches),
            actions: actions.into(),
        }
    })
}

/// Generates the selection method of a group.
fn selection() -> impl Strategy<Value = Selection> {
    let field = select(vec![
        (FieldId::Ipv4Src, 0xff),
        (FieldId::Ipv4Dst, u128::MAX),
        (FieldId::TcpDst, u128::MAX),
        (FieldId::VlanVid, u128::MAX),
        (FieldId::Reg0, u128::MAX),
        (FieldId::InPort, u128::MAX),
    ]);
    prop_oneof![
        2 => Just(Selection::Default),
        1 => (0u64..3).prop_map(|basis| Selection::DatapathHash { basis }),
        2 => (0u64..3, vec(field, 0..3))
            .prop_map(|(basis, fields)| Selection::Fields { basis, fields: fields.into() }),
    ]
}

/// A meter with bands that every packet exceeds, and with bands that none exceeds.
///
/// A packet exceeds a band if it is longer than the burst size of the band.
fn meter_mod(command: MeterCommand, id: u32) -> impl Strategy<Value = MeterMod> {
    let kind = prop_oneof![
        2 => Just(MeterBandKind::Drop),
        1 => (1u8..3).prop_map(|precedence| MeterBandKind::DscpRemark { precedence }),
    ];
    let band =
        (kind, 1u32..3, prop::bool::weighted(0.8)).prop_map(|(kind, rate, exceeded)| MeterBand {
            kind,
            rate: if exceeded { rate } else { u32::MAX },
            burst_size: u32::from(exceeded),
        });
    let unit = prop_oneof![6 => Just(MeterUnit::Kilobits), 1 => Just(MeterUnit::Packets)];
    (unit, vec(band, 1..3)).prop_map(move |(unit, mut bands)| {
        if unit == MeterUnit::Packets {
            bands.retain(|band| band.rate == u32::MAX);
        }
        let config = MeterConfig { unit, burst: true, stats: false, bands: bands.into() };
        MeterMod { command, meter: Some(MeterId::new(id)), config }
    })
}

/// Generates a choice of the fields that a hash includes.
fn hash_fields() -> impl Strategy<Value = HashFields> {
    select(vec![
        HashFields::EthSrc,
        HashFields::SymmetricL4,
        HashFields::SymmetricL3L4,
        HashFields::SymmetricL3L4Udp,
        HashFields::NwSrc,
        HashFields::NwDst,
        HashFields::SymmetricL3,
    ])
}

/// Generates a `multipath` action.
fn multipath() -> impl Strategy<Value = MultipathAction> {
    let algorithm = select(vec![
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::HighestRandomWeight,
        MultipathAlgorithm::IterativeHash,
    ]);
    let link_max = select(vec![0u16, 1, 2, 3, 63, 64]);
    let parts = (hash_fields(), 0u16..3, algorithm, link_max, 0u32..6, subfield());
    parts.prop_map(|(fields, basis, algorithm, link_max, argument, target)| {
        // The target needs enough bits for the number of the highest link.
        let needed = 16 - u8::try_from(link_max.leading_zeros()).unwrap_or(0);
        let fits = target.width >= needed;
        let target = if fits { target } else { Subfield::whole(FieldId::Reg1) };
        MultipathAction { fields, basis, algorithm, link_max, argument, target }
    })
}

/// Generates a `bundle` action.
fn bundle() -> impl Strategy<Value = BundleAction> {
    let algorithm =
        select(vec![BundleAlgorithm::ActiveBackup, BundleAlgorithm::HighestRandomWeight]);
    let member = prop_oneof![
        8 => (1u32..=6).prop_map(PortNo::new),
        1 => select(vec![PortNo::LOCAL, PortNo::IN_PORT, PortNo::FLOOD, PortNo::CONTROLLER]),
    ];
    let target = option::weighted(0.5, Just(Subfield::whole(FieldId::Reg0)));
    let parts = (hash_fields(), 0u16..3, algorithm, vec(member, 0..4), target);
    parts.prop_map(|(fields, basis, algorithm, members, target)| BundleAction {
        fields,
        basis,
        algorithm,
        members: members.into(),
        target,
    })
}
