//! Generators of actions and instructions that OpenFlow 1.3 can express.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, PortNo, field::Access};
use shunt_pipeline::{
    Action, BundleAction, BundleAlgorithm, Cookie, CtAction, CtZone, GroupId, HashFields,
    Instructions, LearnAction, LearnSource, LearnSpec, LearnTarget, MeterId, MultipathAction,
    MultipathAlgorithm, NatAction, NatKind, NatRange, Priority, SampleAction, SampleDirection,
    Subfield, TableId, text::testing as pipeline,
};

/// Generates action lists that OpenFlow 1.3 can express.
pub fn any_actions() -> impl Strategy<Value = Vec<Action>> {
    let leaf = prop_oneof![any_set_action(), any_list_only_action()];
    let nested = vec(leaf.clone(), 0..3).prop_map(|actions| Action::Clone(actions.into()));
    (pipeline::any_actions(), vec(prop_oneof![4 => leaf, 1 => nested], 0..3)).prop_map(
        |(plain, more)| plain.into_iter().filter(has_wire_form).chain(more).collect::<Vec<_>>(),
    )
}

/// Generates actions that an action set can hold.
pub fn any_action_set() -> impl Strategy<Value = Vec<Action>> {
    let plain = pipeline::any_instructions().prop_map(|instructions| instructions.write);
    (plain, vec(any_set_action(), 0..3)).prop_map(|(plain, more)| {
        plain.into_iter().filter(has_wire_form).chain(more).collect::<Vec<_>>()
    })
}

/// Generates instructions that OpenFlow 1.3 can express.
pub fn any_instructions() -> impl Strategy<Value = Instructions> {
    let meter = option::of((1..=MeterId::MAX.number()).prop_map(MeterId::new));
    let metadata = option::of(any::<(u64, u64)>());
    let goto = option::of(any_table());
    (meter, any_actions(), any::<bool>(), any_action_set(), metadata, goto).prop_map(
        |(meter, apply, clear, write, metadata, goto)| Instructions {
            meter,
            apply: apply.into(),
            clear,
            write: write.into(),
            metadata: metadata.map(|(value, mask)| (value & mask, mask)),
            goto,
        },
    )
}

/// Generates tables that controllers may use.
pub fn any_table() -> impl Strategy<Value = TableId> {
    (0..=TableId::MAX.number()).prop_filter_map("a table", TableId::new)
}

/// Returns whether an action has its own wire format.
///
/// Ports must fit into 16 bits, the width of an output field into 6 bits, and the header of a
/// written field into 32 bits.
fn has_wire_form(action: &Action) -> bool {
    match action {
        Action::OutputTruncated { port, .. } => is_short(*port),
        Action::Resubmit { port, .. } => port.is_none_or(is_short),
        Action::OutputField { source, .. } => source.width <= 64,
        Action::Load { target, .. } => {
            target.field.info().oxms.iter().any(|oxm| oxm.class.experimenter().is_none())
        }
        Action::Clone(actions) => actions.iter().all(has_wire_form),
        Action::Controller(action) => action.meter != Some(MeterId::new(0)),
        Action::Multipath(multipath) => is_packed(multipath.target),
        Action::Bundle(bundle) => {
            bundle.members.iter().all(|port| is_short(*port))
                && bundle.target.is_none_or(|target| target.width >= 16 && is_packed(target))
        }
        Action::Ct(ct) => {
            let has_zone = match ct.zone {
                CtZone::Number(_) => true,
                CtZone::Field(source) => is_packed(source),
            };
            has_zone && ct.actions.iter().all(has_wire_form)
        }
        Action::Sample(sample) => {
            let port = sample.sampling_port;
            port.is_none_or(|port| is_short(port) && port != PortNo::ANY)
        }
        // A meter is sent as an instruction.
        Action::Meter(_) => false,
        // The codec refuses these actions.
        Action::CopyTtlOut | Action::CopyTtlIn => false,
        Action::Output { .. }
        | Action::SetField { .. }
        | Action::Move { .. }
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::DecTtl { .. }
        | Action::SetQueue(_)
        | Action::PopQueue { .. }
        | Action::Note(_)
        | Action::Exit
        | Action::Group(_)
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::Push(_)
        | Action::Pop(_)
        | Action::Learn(_)
        | Action::Conjunction { .. }
        | Action::FinTimeout { .. }
        | Action::CheckPktLarger { .. }
        | Action::CtClear
        | Action::Nat(_) => true,
    }
}

/// Returns whether the 16-bit form of OpenFlow 1.0 can hold the port number.
fn is_short(port: PortNo) -> bool {
    port.number() < 0xff00 || port.number() >= 0xffff_ff00
}

/// Returns whether a subfield fits into `ofs_nbits` and a 32-bit header.
fn is_packed(bits: Subfield) -> bool {
    bits.width <= 64 && is_short_field(bits.field)
}

/// Returns whether the first OXM number of a field has no experimenter id.
fn is_short_field(field: FieldId) -> bool {
    field.info().oxms.first().is_some_and(|oxm| oxm.class.experimenter().is_none())
}

/// Generates ports with a form in 16 bits.
pub(super) fn short_port() -> impl Strategy<Value = PortNo> {
    prop_oneof![0..0xff00_u32, 0xffff_ff00..=u32::MAX].prop_map(PortNo::new)
}

/// Generates subfields of fields that satisfy `is_eligible`, within a width range.
fn bits(
    is_eligible: impl Fn(&FieldId) -> bool,
    widths: std::ops::RangeInclusive<u8>,
) -> impl Strategy<Value = Subfield> {
    let is_wide = |field: &FieldId| field.width() >= *widths.start();
    // Tunnel options have no wire numbers without a TLV table.
    let is_bound = |field: &FieldId| field.tunnel_option().is_none();
    let fields: Vec<_> = FieldId::all()
        .filter(|field| is_eligible(field) && is_wide(field) && is_bound(field))
        .collect();
    (select(fields), widths, any::<u8>()).prop_map(|(field, width, offset)| {
        let width = width.min(field.width());
        Subfield { field, offset: offset % (field.width() - width + 1), width }
    })
}

/// Returns whether a field has an OXM number, so that messages can name it.
fn has_number(field: &FieldId) -> bool {
    !field.info().oxms.is_empty()
}

/// Returns whether messages can name a field and actions can write it.
fn is_writable(field: &FieldId) -> bool {
    has_number(field) && field.info().access == Access::ReadWrite
}

/// Returns whether a field is writable and its number has no experimenter id.
fn is_packed_target(field: &FieldId) -> bool {
    is_writable(field) && is_short_field(*field)
}

/// Generates actions of action sets that [`pipeline`] does not generate.
fn any_set_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..=GroupId::MAX.number()).prop_map(|group| Action::Group(GroupId::new(group))),
        any::<u8>().prop_map(Action::SetNwTtl),
        any::<u16>().prop_map(Action::SetTpSrc),
        any::<u16>().prop_map(Action::SetTpDst),
        any::<u8>().prop_map(Action::SetMplsTtl),
        Just(Action::DecMplsTtl),
        select(vec![0x8847, 0x8848]).prop_map(|ethertype| Action::PushMpls { ethertype }),
        any::<u16>().prop_map(|ethertype| Action::PopMpls { ethertype }),
    ]
}

/// Generates actions of action lists only that [`pipeline`] does not generate.
fn any_list_only_action() -> impl Strategy<Value = Action> {
    let conjunction =
        (any::<u32>(), 2..=64_u8, any::<u8>()).prop_map(|(id, clauses_count, clause)| {
            Action::Conjunction { id, clause: clause % clauses_count, clauses_count }
        });
    let larger = (any::<u16>(), bits(is_writable, 1..=1))
        .prop_map(|(length, target)| Action::CheckPktLarger { length, target });
    prop_oneof![
        bits(has_number, 1..=128).prop_map(Action::Push),
        bits(is_writable, 1..=128).prop_map(Action::Pop),
        any_learn().prop_map(|learn| Action::Learn(learn.into())),
        conjunction,
        any_multipath().prop_map(|multipath| Action::Multipath(multipath.into())),
        any_bundle().prop_map(|bundle| Action::Bundle(bundle.into())),
        any::<(u16, u16)>().prop_map(|(idle, hard)| Action::FinTimeout { idle, hard }),
        larger,
        any_ct().prop_map(|ct| Action::Ct(ct.into())),
        Just(Action::CtClear),
        any_nat(true).prop_map(|nat| Action::Nat(nat.into())),
        any_sample().prop_map(|sample| Action::Sample(sample.into())),
    ]
}

/// Generates a `learn` action with up to three specs.
fn any_learn() -> impl Strategy<Value = LearnAction> {
    let numbers = any::<(u16, u16, u16, u16, u16, u64)>();
    let flags = any::<(bool, bool)>();
    let long = (prop_oneof![Just(0), any::<u32>()], option::of(bits(is_writable, 1..=1)));
    (numbers, flags, any_table(), long, vec(any_spec(), 0..4)).prop_map(
        |(numbers, (send_flow_removed, delete_learned), table, (limit, result), specs)| {
            let (idle_timeout, hard_timeout, priority, fin_idle_timeout, fin_hard_timeout, cookie) =
                numbers;
            LearnAction {
                idle_timeout,
                hard_timeout,
                priority: Priority::new(priority),
                cookie: Cookie::new(cookie),
                table,
                fin_idle_timeout,
                fin_hard_timeout,
                send_flow_removed,
                delete_learned,
                limit,
                result,
                specs: specs.into(),
            }
        },
    )
}

/// Generates a spec of a `learn` action with equally wide source and target.
fn any_spec() -> impl Strategy<Value = LearnSpec> {
    let targets = prop_oneof![
        bits(has_number, 1..=128).prop_map(LearnTarget::Match),
        bits(is_writable, 1..=128).prop_map(LearnTarget::Load),
    ];
    let value = (targets, any::<u128>()).prop_map(|(target, value)| {
        let width = width_of(&target);
        let value = value & (u128::MAX >> (128 - width));
        LearnSpec { source: LearnSource::Value(value), target, width }
    });
    let any_target = prop_oneof![
        bits(has_number, 1..=128).prop_map(LearnTarget::Match),
        bits(is_writable, 1..=128).prop_map(LearnTarget::Load),
        Just(LearnTarget::Output),
    ];
    let field = (any_target, bits(has_number, 1..=128)).prop_map(|(target, source)| {
        let width = width_of(&target).min(source.width);
        let cut = |bits: Subfield| Subfield { width, ..bits };
        let target = match target {
            LearnTarget::Match(bits) => LearnTarget::Match(cut(bits)),
            LearnTarget::Load(bits) => LearnTarget::Load(cut(bits)),
            LearnTarget::Output => LearnTarget::Output,
        };
        LearnSpec { source: LearnSource::Field(cut(source)), target, width }
    });
    prop_oneof![value, field]
}

/// Returns the width of a target in bits, 128 for an output.
const fn width_of(target: &LearnTarget) -> u8 {
    match target {
        LearnTarget::Match(bits) | LearnTarget::Load(bits) => bits.width,
        LearnTarget::Output => 128,
    }
}

/// Generates a choice of the fields that a hash includes.
fn any_hash_fields() -> impl Strategy<Value = HashFields> {
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

/// Generates a `multipath` action with a link number that fits its target.
fn any_multipath() -> impl Strategy<Value = MultipathAction> {
    let algorithms = vec![
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::HighestRandomWeight,
        MultipathAlgorithm::IterativeHash,
    ];
    let target = bits(is_packed_target, 1..=64);
    (any_hash_fields(), select(algorithms), target, any::<(u16, u16, u32)>()).prop_map(
        |(fields, algorithm, target, (basis, link_max, argument))| MultipathAction {
            fields,
            basis,
            algorithm,
            link_max: link_max
                & u16::MAX.checked_shr(16 - u32::from(target.width.min(16))).unwrap_or(0),
            argument,
            target,
        },
    )
}

/// Generates a `bundle` action with up to four members.
fn any_bundle() -> impl Strategy<Value = BundleAction> {
    let algorithms = vec![BundleAlgorithm::ActiveBackup, BundleAlgorithm::HighestRandomWeight];
    let target = option::of(bits(is_packed_target, 16..=64));
    let members = vec(short_port(), 0..5);
    (any_hash_fields(), any::<u16>(), select(algorithms), members, target).prop_map(
        |(fields, basis, algorithm, members, target)| BundleAction {
            fields,
            basis,
            algorithm,
            members: members.into(),
            target,
        },
    )
}

/// Generates a `ct` action. Only those that commit can write the mark.
fn any_ct() -> impl Strategy<Value = CtAction> {
    let zone = prop_oneof![
        any::<u16>().prop_map(CtZone::Number),
        bits(|field| has_number(field) && is_short_field(*field), 16..=16).prop_map(CtZone::Field),
    ];
    any::<(bool, bool)>().prop_flat_map(move |(commit, force)| {
        let nat = any_nat(commit).prop_map(|nat| Action::Nat(nat.into()));
        let mark = any::<u32>().prop_map(|value| Action::SetField {
            field: FieldId::CtMark,
            value: value.into(),
            mask: FieldId::CtMark.value_max(),
        });
        let actions =
            if commit { vec(prop_oneof![nat, mark].boxed(), 0..3) } else { vec(nat.boxed(), 0..2) };
        (zone.clone(), option::of(any_table()), any::<u16>(), actions).prop_map(
            move |(zone, table, alg, actions)| CtAction {
                commit,
                force: commit && force,
                zone,
                table,
                alg,
                actions: actions.into(),
            },
        )
    })
}

/// Generates a `nat` action, with a direction if `has_kind` is true.
fn any_nat(has_kind: bool) -> impl Strategy<Value = NatAction> {
    let kinds = [NatKind::Source, NatKind::Destination].map(Some);
    let kind = if has_kind { select(kinds.to_vec()).boxed() } else { Just(None).boxed() };
    let v4 = (1..=u32::MAX, any::<u32>()).prop_map(|(one, other)| {
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(number));
        address(one)..=address(one.max(other))
    });
    let v6 = (1..=u128::MAX, any::<u128>()).prop_map(|(one, other)| {
        let address = |number: u128| IpAddr::V6(Ipv6Addr::from(number));
        address(one)..=address(one.max(other))
    });
    let ports = option::of(any::<(u16, u16)>().prop_map(|(one, other)| one..=one.max(other)));
    let range =
        (prop_oneof![v4, v6], ports).prop_map(|(addresses, ports)| NatRange { addresses, ports });
    let choices = select(vec![(false, false), (true, false), (false, true)]);
    (kind, option::of(range), any::<bool>(), choices).prop_map(
        |(kind, range, persistent, (hash, random))| NatAction {
            kind,
            range,
            persistent,
            hash,
            random,
        },
    )
}

/// Generates a `sample` action with a probability above 0.
fn any_sample() -> impl Strategy<Value = SampleAction> {
    let directions = vec![None, Some(SampleDirection::Ingress), Some(SampleDirection::Egress)];
    let port = option::of(short_port().prop_filter("a port", |port| *port != PortNo::ANY));
    (1..=u16::MAX, any::<(u32, u32, u32)>(), port, select(directions)).prop_map(
        |(probability, numbers, sampling_port, direction)| {
            let (collector_set_id, observation_domain_id, observation_point_id) = numbers;
            SampleAction {
                probability,
                collector_set_id,
                observation_domain_id,
                observation_point_id,
                sampling_port,
                direction,
            }
        },
    )
}
