//! Generators of single actions, in canonical form.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, PortNo};

use super::{
    super::subfield::{self, Writes},
    choice, connection, learn,
};
use crate::{
    action::{Action, ControllerAction, PacketInReason, SampleAction, SampleDirection, Subfield},
    id::{GroupId, MeterId, TableId},
};

/// Actions that an action set can hold.
pub(super) fn settable() -> impl Strategy<Value = Action> {
    let named = vec![PortNo::FLOOD, PortNo::ALL, PortNo::NORMAL];
    let output = prop_oneof![single_port(), select(named)]
        .prop_map(|port| Action::Output { port, max_len: 0 });
    let controller =
        any::<u16>().prop_map(|max_len| Action::Output { port: PortNo::CONTROLLER, max_len });
    prop_oneof![
        output,
        controller,
        group_id().prop_map(Action::Group),
        set_field(),
        load(),
        move_action(),
        tag(),
        ttl(),
        resubmit(),
        any::<u32>().prop_map(Action::SetQueue),
        connection::ct(),
    ]
}

/// Actions that push or pop a header.
fn tag() -> impl Strategy<Value = Action> {
    prop_oneof![
        select(vec![0x8100, 0x88a8]).prop_map(|ethertype| Action::PushVlan { ethertype }),
        Just(Action::PopVlan),
        select(vec![0x8847, 0x8848]).prop_map(|ethertype| Action::PushMpls { ethertype }),
        any::<u16>().prop_map(|ethertype| Action::PopMpls { ethertype }),
    ]
}

/// Generates an action on the TTL.
fn ttl() -> impl Strategy<Value = Action> {
    prop_oneof![
        vec(any::<u16>(), 0..4).prop_map(|ids| Action::DecTtl { controllers: ids.into() }),
        any::<u8>().prop_map(Action::SetNwTtl),
        any::<u8>().prop_map(Action::SetMplsTtl),
        select(vec![Action::DecMplsTtl, Action::CopyTtlIn, Action::CopyTtlOut]),
    ]
}

/// Actions that a list can hold and an action set cannot, without nested actions.
pub(super) fn applicable() -> impl Strategy<Value = Action> {
    let truncated = (single_port(), 14..=u32::MAX)
        .prop_map(|(port, max_len)| Action::OutputTruncated { port, max_len });
    let output_field =
        readable(128).prop_map(|source| Action::OutputField { source, max_len: u16::MAX });
    let timeouts =
        (any::<u16>(), any::<u16>()).prop_map(|(idle, hard)| Action::FinTimeout { idle, hard });
    let larger = (any::<u16>(), bits(is_writable, 1))
        .prop_map(|(length, target)| Action::CheckPktLarger { length, target });
    prop_oneof![
        truncated,
        output_field,
        controller(),
        select(vec![Action::PopQueue { ends_enqueue: false }, Action::Exit, Action::CtClear]),
        note(),
        meter_id().prop_map(Action::Meter),
        readable(128).prop_map(Action::Push),
        bits(is_writable, 128).prop_map(Action::Pop),
        learn::learn(),
        choice::multipath(),
        choice::bundle(),
        timeouts,
        larger,
        sample(),
    ]
}

/// A `conjunction`, which may only be combined with `note`.
pub(super) fn clause() -> impl Strategy<Value = Action> {
    let clause = (any::<u32>(), 2..=64_u8, any::<u8>()).prop_map(|(id, clauses_count, clause)| {
        Action::Conjunction { id, clause: clause % clauses_count, clauses_count }
    });
    prop_oneof![clause, note()]
}

/// A `note` with bytes that need no padding.
/// The action has a header of ten bytes, and a multiple of eight bytes in all.
fn note() -> impl Strategy<Value = Action> {
    let bytes = (0_usize..4).prop_flat_map(|eights| vec(any::<u8>(), 6 + 8 * eights));
    bytes.prop_map(|bytes| Action::Note(bytes.into()))
}

/// Generates a `controller` action.
fn controller() -> impl Strategy<Value = Action> {
    let reasons = vec![
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
        PacketInReason::ActionSet,
        PacketInReason::Group,
        PacketInReason::PacketOut,
    ];
    let numbers = (any::<u16>(), any::<u16>(), option::of(meter_id()), any::<bool>());
    (numbers, select(reasons), vec(any::<u8>(), 0..20))
        .prop_filter(
            "the text is not that of a plain output",
            |((_, id, meter, pause), reason, userdata)| {
                let is_plain = *id == 0 && meter.is_none() && !pause && userdata.is_empty();
                !is_plain || *reason != PacketInReason::Action
            },
        )
        .prop_map(|((max_len, controller_id, meter, pause), reason, userdata)| {
            let userdata = userdata.into();
            let action =
                ControllerAction { max_len, controller_id, reason, userdata, meter, pause };
            Action::Controller(Box::new(action))
        })
}

/// Generates a `sample` action.
fn sample() -> impl Strategy<Value = Action> {
    let directions = vec![SampleDirection::Ingress, SampleDirection::Egress];
    let ids = (1..=u16::MAX, any::<[u32; 3]>());
    (ids, option::of(single_port()), option::of(select(directions))).prop_map(
        |((probability, ids), sampling_port, direction)| {
            let [collector_set_id, observation_domain_id, observation_point_id] = ids;
            Action::Sample(Box::new(SampleAction {
                probability,
                collector_set_id,
                observation_domain_id,
                observation_point_id,
                sampling_port,
                direction,
            }))
        },
    )
}

/// A valid group number.
pub(super) fn group_id() -> impl Strategy<Value = GroupId> {
    (0..=GroupId::MAX.number()).prop_map(GroupId::new)
}

/// A valid meter number.
pub(super) fn meter_id() -> impl Strategy<Value = MeterId> {
    (1..=MeterId::MAX.number()).prop_map(MeterId::new)
}

/// Generates a `resubmit` action.
fn resubmit() -> impl Strategy<Value = Action> {
    let table = (0..=TableId::MAX.number()).prop_map(TableId::new);
    let port = single_port().prop_filter("no port", |port| *port != PortNo::IN_PORT);
    (option::of(port), option::of(table))
        .prop_map(|(port, table)| Action::Resubmit { port, table: table.flatten() })
}

/// Generates a write of a field with a mask that is not empty.
fn set_field() -> impl Strategy<Value = Action> {
    let field = select(FieldId::all().filter(is_writable).collect::<Vec<_>>());
    let value = field.prop_flat_map(|field| (Just(field), shunt_flow::testing::field_bits(field)));
    value
        .prop_map(|(field, (value, mask))| match field {
            FieldId::VlanVid => (field, value | mask & 0x1000, mask),
            _ => (field, value, mask),
        })
        .prop_filter("an empty mask writes nothing", |(_, _, mask)| *mask != 0)
        .prop_map(|(field, value, mask)| Action::SetField { field, value, mask })
}

/// Generates a `load` action.
fn load() -> impl Strategy<Value = Action> {
    (bits(is_writable, 64), any::<u64>()).prop_map(|(target, value)| {
        let value = value & (u64::MAX >> (64 - target.width));
        Action::Load { target, value }
    })
}

/// Generates a `move` action between two subfields of the same width.
fn move_action() -> impl Strategy<Value = Action> {
    let ends = (readable(128), bits(is_writable, 128));
    ends.prop_filter_map("source and target have the same width", |(source, target)| {
        let width = source.width.min(target.width);
        let source = Subfield::new(source.field, source.offset, width)?;
        Some(Action::Move { source, target: Subfield::new(target.field, target.offset, width)? })
    })
}

/// At most `width_max` bits of a field that actions can read.
pub(super) fn readable(width_max: u8) -> impl Strategy<Value = Subfield> {
    bits(is_readable, width_max)
}

/// At most `width_max` bits of a field for which `eligible` is true.
pub(super) fn bits(
    eligible: impl Fn(&FieldId) -> bool,
    width_max: u8,
) -> impl Strategy<Value = Subfield> {
    let fields = FieldId::all().filter(eligible).collect::<Vec<_>>();
    (select(fields), any::<u8>(), any::<u8>()).prop_filter_map("bits", move |(field, a, b)| {
        let offset = a % field.width();
        let width = 1 + b % (field.width() - offset).min(width_max);
        Subfield::new(field, offset, width)
    })
}

/// Returns whether the field has a fixed OXM number.
/// A tunnel option has no fixed number.
pub(super) fn is_readable(field: &FieldId) -> bool {
    !field.info().oxms.is_empty() && field.tunnel_option().is_none()
}

/// Returns whether actions can write a field.
pub(super) fn is_writable(field: &FieldId) -> bool {
    subfield::writable(*field, Writes::Packet).is_ok()
}

/// One port: a port of a switch, `IN_PORT` or `LOCAL`.
pub(super) fn single_port() -> impl Strategy<Value = PortNo> {
    prop_oneof![
        (0..=PortNo::MAX.number()).prop_map(PortNo::new),
        select(vec![PortNo::IN_PORT, PortNo::LOCAL]),
    ]
}
