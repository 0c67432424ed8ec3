//! Instructions and rules to test with.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, PortNo, text::NoPortNames};

use super::{format_actions, parse_actions, parse_rule, subfield};
use crate::{
    Action, ControllerAction, FlowModCommand, Instructions, PacketInReason, Subfield, TableId,
};

/// Any instructions that text can say, in the form in which text says them.
///
/// Equal actions of two forms, such as a `controller` action that an output could say, are
/// generated in the simpler one.
pub fn any_instructions() -> impl Strategy<Value = Instructions> {
    let set = vec(settable(), 0..4).prop_map(Vec::into_boxed_slice);
    let table = (0..=TableId::MAX.number()).prop_map(TableId::new);
    (any_actions(), any::<bool>(), set, option::of(any::<(u64, u64)>()), option::of(table))
        .prop_map(|(apply, clear, write, metadata, goto)| Instructions {
            apply,
            clear,
            write,
            metadata,
            goto: goto.flatten(),
        })
}

/// Any list of actions.
pub fn any_actions() -> impl Strategy<Value = Box<[Action]>> {
    let leaf = prop_oneof![settable(), applicable()];
    let action = leaf.prop_recursive(3, 16, 4, |inner| {
        vec(inner, 0..4).prop_map(|actions| Action::Clone(actions.into()))
    });
    vec(action, 0..6).prop_map(Vec::into_boxed_slice)
}

/// Reads any bytes as the text of a rule: it is refused with a place in the text, or what is
/// printed reads back the same.
///
/// # Panics
///
/// When it does not.
pub fn fuzz_rule_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for command in COMMANDS {
        match parse_rule(command, text, &NoPortNames) {
            Ok(rule) => assert_reads_back(&rule.instructions),
            Err(error) => {
                let place = text.get(error.span.clone());
                assert!(place.is_some() && !error.to_string().is_empty(), "{error:?}");
            }
        }
    }
    if let Ok(instructions) = parse_actions(text, &NoPortNames) {
        assert_reads_back(&instructions);
    }
}

/// Asserts that what is printed of instructions reads back the same.
///
/// # Panics
///
/// When it does not.
pub fn assert_reads_back(instructions: &Instructions) {
    let text = format_actions(instructions, &NoPortNames);
    assert_eq!(parse_actions(&text, &NoPortNames).as_ref(), Ok(instructions), "{text}");
}

const COMMANDS: [FlowModCommand; 5] = [
    FlowModCommand::Add,
    FlowModCommand::Modify,
    FlowModCommand::ModifyStrict,
    FlowModCommand::Delete,
    FlowModCommand::DeleteStrict,
];

/// Actions that an action set can hold.
fn settable() -> impl Strategy<Value = Action> {
    let output = prop_oneof![single_port(), select(vec![PortNo::FLOOD, PortNo::ALL])]
        .prop_map(|port| Action::Output { port, max_len: 0 });
    let controller =
        any::<u16>().prop_map(|max_len| Action::Output { port: PortNo::CONTROLLER, max_len });
    prop_oneof![
        output,
        controller,
        set_field(),
        load(),
        moved(),
        select(vec![0x8100, 0x88a8]).prop_map(|ethertype| Action::PushVlan { ethertype }),
        Just(Action::PopVlan),
        vec(any::<u16>(), 1..4).prop_map(|ids| Action::DecTtl { controllers: ids.into() }),
        resubmit(),
        any::<u32>().prop_map(Action::SetQueue),
    ]
}

/// Leaves that only a list can hold.
fn applicable() -> impl Strategy<Value = Action> {
    let truncated = (single_port(), 14..=u32::MAX)
        .prop_map(|(port, max_len)| Action::OutputTruncated { port, max_len });
    let output_field = bits(|field| !field.info().oxms.is_empty(), 128)
        .prop_map(|source| Action::OutputField { source, max_len: u16::MAX });
    // Notes fill their action, which is a multiple of eight bytes with a header of ten.
    let note = (0_usize..4).prop_flat_map(|eights| vec(any::<u8>(), 6 + 8 * eights));
    prop_oneof![
        truncated,
        output_field,
        controller(),
        Just(Action::PopQueue),
        note.prop_map(|bytes| Action::Note(bytes.into())),
        Just(Action::Exit),
    ]
}

fn controller() -> impl Strategy<Value = Action> {
    let reasons = vec![
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
        PacketInReason::ActionSet,
        PacketInReason::Group,
        PacketInReason::PacketOut,
    ];
    (any::<u16>(), any::<u16>(), select(reasons), vec(any::<u8>(), 0..20))
        .prop_filter("an output says it", |(_, id, reason, userdata)| {
            *id != 0 || *reason != PacketInReason::Action || !userdata.is_empty()
        })
        .prop_map(|(max_len, controller_id, reason, userdata)| {
            let userdata = userdata.into();
            Action::Controller(Box::new(ControllerAction {
                max_len,
                controller_id,
                reason,
                userdata,
            }))
        })
}

fn resubmit() -> impl Strategy<Value = Action> {
    let table = (0..=TableId::MAX.number()).prop_map(TableId::new);
    let port = single_port().prop_filter("no port", |port| *port != PortNo::IN_PORT);
    (option::of(port), option::of(table))
        .prop_map(|(port, table)| Action::Resubmit { port, table: table.flatten() })
}

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

fn load() -> impl Strategy<Value = Action> {
    (bits(is_writable, 64), any::<u64>()).prop_map(|(target, value)| {
        let value = value & (u64::MAX >> (64 - target.width));
        Action::Load { target, value }
    })
}

fn moved() -> impl Strategy<Value = Action> {
    let ends = (bits(|field| !field.info().oxms.is_empty(), 128), bits(is_writable, 128));
    ends.prop_filter_map("bits of one width", |(source, target)| {
        let width = source.width.min(target.width);
        let source = Subfield::new(source.field, source.offset, width)?;
        Some(Action::Move { source, target: Subfield::new(target.field, target.offset, width)? })
    })
}

/// Up to `width_max` bits of a field that is `eligible`.
fn bits(eligible: impl Fn(&FieldId) -> bool, width_max: u8) -> impl Strategy<Value = Subfield> {
    let fields = FieldId::all().filter(eligible).collect::<Vec<_>>();
    (select(fields), any::<u8>(), any::<u8>()).prop_filter_map("bits", move |(field, a, b)| {
        let offset = a % field.width();
        let width = 1 + b % (field.width() - offset).min(width_max);
        Subfield::new(field, offset, width)
    })
}

fn is_writable(field: &FieldId) -> bool {
    subfield::writable(*field).is_ok()
}

/// One port; some of the 16-bit ones in decimal would mean reserved ones.
fn single_port() -> impl Strategy<Value = PortNo> {
    prop_oneof![
        (0..=PortNo::MAX.number()).prop_map(PortNo::new),
        (0..0x1_0000_u32).prop_map(PortNo::new),
        (0xfff8..=0xffff_u32).prop_map(PortNo::new),
        select(vec![PortNo::IN_PORT, PortNo::LOCAL]),
    ]
}
