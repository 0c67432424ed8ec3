//! Short texts of messages for the log, also of messages that cannot be decoded.
//!
//! The log line of a refused request shows the content of the request. If decoding failed, the text
//! has the fields of fixed position, the match or its first mistake, and the first illegal action.

use std::fmt::Write;

use shunt_flow::text::{NoPortNames, format_match};
use shunt_pipeline::{
    FlowMod, FlowModCommand, GroupCommand, GroupKind, MeterCommand, TableSelector,
    text::format_actions,
};

use super::{
    action::{ActionFormat, find_bad_action},
    body::{bundle::bundled_bytes, flow_mod::read_command},
    codec::decode,
    instruction::find_bad_instruction,
    kind,
    multipart::multipart_type,
    oxm::{find_bad_field, read_match},
};
use crate::{
    message::{Message, RoleName},
    wire::{ByteReader, MessageLengthError, header::Header},
};

/// Maximum length of a text in bytes.
const TEXT_LEN_MAX: usize = 240;
/// Length of the header of a multipart request after its type.
const MULTIPART_HEADER_LEN: usize = 6;
/// Length of the filters before a match (`ofp_flow_stats_request`).
const RULE_FILTER_LEN: usize = 32;

/// Returns a text such as `flow_mod add table=1,tcp,tp_dst=80 actions=output:2`.
pub(crate) fn describe(frame: &[u8]) -> String {
    shorten(describe_whole(frame))
}

/// Cuts a text after its maximum length.
pub(in crate::wire) fn shorten(mut text: String) -> String {
    if text.len() > TEXT_LEN_MAX {
        text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
        text += "..";
    }
    text
}

/// Describes a whole frame, decoded if that succeeds.
fn describe_whole(frame: &[u8]) -> String {
    let Some(header) = Header::parse(frame) else { return "message without a header".to_owned() };
    let mut text = name(header.kind);
    let detail = match decode(frame) {
        Ok((_, message)) => detail(&message, frame),
        Err(_) => raw_detail(&header, frame.get(Header::LEN..).unwrap_or_default()),
    };
    if let Some(detail) = detail {
        text = format!("{text} {detail}");
    }
    text
}

/// Returns the name of a message type without its prefix.
fn name(number: u8) -> String {
    const NAMES: [&str; 30] = [
        "hello",
        "error",
        "echo_request",
        "echo_reply",
        "experimenter",
        "features_request",
        "features_reply",
        "get_config_request",
        "get_config_reply",
        "set_config",
        "packet_in",
        "flow_removed",
        "port_status",
        "packet_out",
        "flow_mod",
        "group_mod",
        "port_mod",
        "table_mod",
        "multipart_request",
        "multipart_reply",
        "barrier_request",
        "barrier_reply",
        "queue_get_config_request",
        "queue_get_config_reply",
        "role_request",
        "role_reply",
        "get_async_request",
        "get_async_reply",
        "set_async",
        "meter_mod",
    ];
    let name = NAMES.get(usize::from(number));
    name.map_or_else(|| format!("message of type {number}"), |name| (*name).to_owned())
}

/// Describes a decoded message.
pub(in crate::wire) fn detail(message: &Message, frame: &[u8]) -> Option<String> {
    Some(match message {
        Message::FlowMod(flow_mod) => of_flow_mod(flow_mod),
        Message::GroupMod(group_mod) => {
            let group = group_mod.group.map_or_else(|| "all".to_owned(), |group| group.to_string());
            let command = group_command(group_mod.command);
            let (kind, count) = (group_kind(group_mod.kind), group_mod.buckets.len());
            match group_mod.command {
                GroupCommand::InsertBuckets(_) => {
                    format!("{command} group_id={group},buckets={count}")
                }
                GroupCommand::Delete | GroupCommand::RemoveBuckets(_) => {
                    format!("{command} group_id={group}")
                }
                GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify => {
                    format!("{command} group_id={group},type={kind},buckets={count}")
                }
            }
        }
        Message::MeterMod(meter_mod) => {
            let meter = meter_mod.meter.map_or_else(|| "all".to_owned(), |meter| meter.to_string());
            let command = match meter_mod.command {
                MeterCommand::Add => "add",
                MeterCommand::Modify => "modify",
                MeterCommand::Delete => "delete",
            };
            format!("{command} meter={meter}")
        }
        Message::PortMod(port_mod) => format!("port={}", port_mod.port),
        Message::PacketOut(packet) => {
            let instructions = shunt_pipeline::Instructions {
                apply: packet.actions.clone().into(),
                ..Default::default()
            };
            let actions = format_actions(&instructions, &NoPortNames);
            format!("in_port={} actions={actions}", packet.in_port)
        }
        Message::RoleRequest(request) => {
            let role = match request.role {
                RoleName::NoChange => "nochange",
                RoleName::Equal => "equal",
                RoleName::Master => "master",
                RoleName::Slave => "slave",
            };
            match request.generation {
                Some(generation) => format!("{role} generation_id={}", generation.0),
                None => role.to_owned(),
            }
        }
        Message::BundleControl(control) => {
            format!("bundle_control bundle_id={} {:?}", control.bundle.0, control.command)
        }
        Message::BundleAdd(add) => {
            let inside = bundled_bytes(frame);
            format!("bundle_add bundle_id={}: {}", add.bundle.0, describe(inside))
        }
        Message::MultipartRequest(request) => {
            // The name of the enum variant is the name of the standard without its prefix.
            let request = format!("{request:?}");
            request.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
        }
        _ => return None,
    })
}

/// Describes a flow-mod: its command, match and actions.
fn of_flow_mod(flow_mod: &FlowMod) -> String {
    let mut text = command(flow_mod.command).to_owned();
    let mut items = Vec::new();
    if let TableSelector::One(table) = flow_mod.table {
        items.push(format!("table={table}"));
    }
    items.push(format!("priority={}", flow_mod.priority));
    let matching = format_match(&flow_mod.matching, &NoPortNames);
    items.extend(Some(matching).filter(|text| !text.is_empty()));
    let _ = write!(text, " {}", items.join(","));
    if !matches!(flow_mod.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict) {
        let _ = write!(text, " actions={}", format_actions(&flow_mod.instructions, &NoPortNames));
    }
    text
}

/// Returns the name of a flow-mod command.
const fn command(command: FlowModCommand) -> &'static str {
    match command {
        FlowModCommand::Add => "add",
        FlowModCommand::Modify => "modify",
        FlowModCommand::ModifyStrict => "modify_strict",
        FlowModCommand::Delete => "delete",
        FlowModCommand::DeleteStrict => "delete_strict",
    }
}

/// Returns the name of a group-mod command.
const fn group_command(command: GroupCommand) -> &'static str {
    match command {
        GroupCommand::Add => "add",
        GroupCommand::Modify => "modify",
        GroupCommand::AddOrModify => "add_or_modify",
        GroupCommand::Delete => "delete",
        GroupCommand::InsertBuckets(_) => "insert_buckets",
        GroupCommand::RemoveBuckets(_) => "remove_buckets",
    }
}

/// Returns the name of a group type.
const fn group_kind(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::All => "all",
        GroupKind::Select => "select",
        GroupKind::Indirect => "indirect",
        GroupKind::FastFailover => "fast_failover",
    }
}

/// Describes a message that cannot be decoded by its fields of fixed position.
fn raw_detail(header: &Header, body: &[u8]) -> Option<String> {
    let mut body = ByteReader::new(body);
    let text = match header.kind {
        kind::FLOW_MOD => raw_flow_mod(&mut body),
        kind::GROUP_MOD => raw_group_mod(&mut body),
        kind::METER_MOD => raw_meter_mod(&mut body),
        kind::PACKET_OUT => raw_packet_out(&mut body),
        kind::MULTIPART_REQUEST => raw_multipart(&mut body),
        kind::EXPERIMENTER => raw_experimenter(&mut body),
        _ => return None,
    };
    // A message that is too short for these fields is described by its length.
    Some(text.unwrap_or_else(|MessageLengthError| format!("of {} bytes", header.length)))
}

/// Describes a flow-mod that cannot be decoded.
fn raw_flow_mod(body: &mut ByteReader<'_>) -> Result<String, MessageLengthError> {
    body.skip(16)?;
    let (table, number) = (body.u8()?, body.u8()?);
    body.skip(4)?;
    let priority = body.u16()?;
    body.skip(16)?;
    let command = read_command(number)
        .map_or_else(|_| format!("command={number}"), |own| command(own).into());
    let mut text = format!("{command} table={table},priority={priority}");
    let bytes = body.clone();
    let Ok(matching) = read_match(body) else {
        match find_bad_field(bytes) {
            Some(mistake) => _ = write!(text, " ({mistake})"),
            None => text += ",(a match that is not legal)",
        }
        return Ok(text);
    };
    let matching = format_match(&matching, &NoPortNames);
    if !matching.is_empty() {
        let _ = write!(text, ",{matching}");
    }
    if let Some(bad) = find_bad_instruction(body.rest()) {
        let _ = write!(text, " ({bad})");
    }
    Ok(text)
}

/// Describes a multipart request that cannot be decoded.
fn raw_multipart(body: &mut ByteReader<'_>) -> Result<String, MessageLengthError> {
    let number = body.u16()?;
    let mut text = format!("type={number}");
    let has_match = matches!(number, multipart_type::FLOW | multipart_type::AGGREGATE);
    // The match follows the header of the request, and the other filters of rules.
    if has_match
        && body.skip(MULTIPART_HEADER_LEN + RULE_FILTER_LEN).is_ok()
        && let Some(mistake) = find_bad_field(body.clone())
    {
        let _ = write!(text, " ({mistake})");
    }
    Ok(text)
}

/// Describes a group-mod that cannot be decoded.
fn raw_group_mod(body: &mut ByteReader<'_>) -> Result<String, MessageLengthError> {
    let (command, kind) = (body.u16()?, body.u8()?);
    body.skip(1)?;
    Ok(format!("command={command} group_id={},type={kind}", body.u32()?))
}

/// Describes a meter-mod that cannot be decoded.
fn raw_meter_mod(body: &mut ByteReader<'_>) -> Result<String, MessageLengthError> {
    let (command, flags) = (body.u16()?, body.u16()?);
    Ok(format!("command={command} meter={},flags={flags:#x}", body.u32()?))
}

/// Describes a packet-out that cannot be decoded.
fn raw_packet_out(body: &mut ByteReader<'_>) -> Result<String, MessageLengthError> {
    body.skip(4)?;
    let (in_port, length) = (shunt_flow::PortNo::new(body.u32()?), body.u16()?);
    body.skip(6)?;
    let mut text = format!("in_port={in_port}");
    let actions = body.rest();
    let actions = actions.get(..usize::from(length)).unwrap_or(actions);
    if let Some(bad) = find_bad_action(actions, ActionFormat::V13) {
        let _ = write!(text, " ({bad})");
    }
    Ok(text)
}

/// Describes a message by its experimenter and the number of that.
pub(in crate::wire) fn raw_experimenter(
    body: &mut ByteReader<'_>,
) -> Result<String, MessageLengthError> {
    Ok(format!("experimenter={:#x},type={}", body.u32()?, body.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{message::Xid, testing::any_message, wire::v13::encode};
    use proptest::prelude::*;

    /// Checks the description of a frame.
    #[track_caller]
    fn check(hex: &str, expected: &str) {
        let digits: Vec<_> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
        let byte =
            |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let mut frame: Vec<_> = digits.chunks(2).map(byte).collect();
        let length = u16::try_from(frame.len()).unwrap().to_be_bytes();
        frame[2..4].copy_from_slice(&length);
        assert_eq!(describe(&frame), expected);
    }

    /// A flow-mod up to its match.
    const ADD: &str = "040e0000 00000007 0000000000000000 0000000000000000 01 00 0000 0000 0005
        ffffffff ffffffff ffffffff 0000 0000";

    #[test]
    fn rule_description_has_table_match_actions() {
        let matching = "0001000a 80000a02 0800 000000000000";
        let output = "0004001800000000 0000001000000001 ffff000000000000";
        check(
            &format!("{ADD}{matching}{output}"),
            "flow_mod add table=1,priority=5,ip actions=output:1",
        );
        let delete = ADD.replace("01 00 0000", "ff 03 0000");
        check(&format!("{delete}{matching}"), "flow_mod delete priority=5,ip");
    }

    #[test]
    fn malformed_rule_is_described_partly() {
        let matching = "0001000a 80000a02 0800 000000000000";
        let reserved = ADD.replace("01 00 0000", "fe 00 0000");
        check(&format!("{reserved}{matching}"), "flow_mod add table=254,priority=5,ip");
        let unknown = "0004001800000000 ffff0010 00002320 002e 000000000000";
        check(
            &format!("{ADD}{matching}{unknown}"),
            "flow_mod add table=1,priority=5,ip (action 1 of experimenter 0x2320, type 46)",
        );
        let second = "0004002000000000 0000001000000001 ffff000000000000 001a000888e70000";
        check(
            &format!("{ADD}{matching}{second}"),
            "flow_mod add table=1,priority=5,ip (action 2 of type 26)",
        );
        check(
            &format!("{ADD}{matching}0001000802000000 0063000800000000"),
            "flow_mod add table=1,priority=5,ip (instruction 2 of type 99)",
        );
        check(
            &format!("{ADD}0001000a 80007e02 0800 000000000000"),
            "flow_mod add table=1,priority=5 (field 63 of class 0x8000 with 2 bytes cannot be \
             matched, because the switch does not know this field: leave it out)",
        );
        check(
            &format!("{ADD}0000000a 80000a02 0800 000000000000"),
            "flow_mod add table=1,priority=5,(a match that is not legal)",
        );
        check(
            &format!("{ADD}{matching}00010008ff000000"),
            "flow_mod add table=1,priority=5,ip (instruction 1, goto_table:255)",
        );
        let field = "0004001800000000 0019001080007e02 0800000000000000";
        check(
            &format!("{ADD}{matching}{field}"),
            "flow_mod add table=1,priority=5,ip (action 1 of type 25: field 63 of class 0x8000 \
             with 2 bytes cannot be matched, because the switch does not know this field: leave \
             it out)",
        );
        let load = "0004002000000000 ffff0018 00002320 0007 0003 00010004 0000000000000010";
        check(
            &format!("{ADD}{matching}{load}"),
            "flow_mod add table=1,priority=5,ip (action 1 of experimenter 0x2320, type 7: \
             load:0x10->reg0[0..3]: the value needs 5 bits, and the target has 4)",
        );
        check(
            &format!("{ADD}{matching}0004001000000000 0011000812340000"),
            "flow_mod add table=1,priority=5,ip (action 1 of type 17: push_vlan:0x1234, and not \
             0x8100 or 0x88a8)",
        );
        check("040e0000 00000007 0000", "flow_mod of 10 bytes");
    }

    #[test]
    fn experimenter_and_unknown_messages_show_their_type() {
        check("041d0000 00000007 0001 0001 00000000", "meter_mod command=1 meter=0,flags=0x1");
        check("04040000 00000007 00002320 00000012", "experimenter experimenter=0x2320,type=18");
        check("04630000 00000007", "message of type 99");
        check("04120000 00000007 0063000000000000", "multipart_request type=99");
        let filters = "ff000000 ffffffff ffffffff 00000000 0000000000000000 0000000000000000";
        let unknown = "0001000a 80007e02 0800 000000000000";
        check(
            &format!("04120000 00000007 0001000000000000 {filters} {unknown}"),
            "multipart_request type=1 (field 63 of class 0x8000 with 2 bytes cannot be matched, \
             because the switch does not know this field: leave it out)",
        );
        check(
            "04180000 00000007 00000002 00000000 0000000000000005",
            "role_request master generation_id=5",
        );
    }

    proptest! {
        #[test]
        fn no_description_exceeds_the_maximum_length(
            message in any_message(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut frame = encode(Xid::new(1), &message).unwrap();
            prop_assert!(describe(&frame).len() <= TEXT_LEN_MAX + 2);
            frame.truncate(cut.index(frame.len()));
            prop_assert!(describe(&frame).len() <= TEXT_LEN_MAX + 2);
        }
    }
}
