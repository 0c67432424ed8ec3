//! `OFPT_FLOW_MOD` (OpenFlow 1.3.5, 7.3.4.1).

use std::time::Duration;

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::{
    Cookie, FlowFlags, FlowMod, FlowModCommand, Instructions, Priority, RuleFilter, TableId,
    TableSelector,
};

use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{
            NO_BUFFER,
            instruction::{put_instructions, read_instructions},
            oxm::{put_match, read_match},
            port_no,
        },
    },
};

/// The table number for all tables (`OFPTT_ALL`).
const TABLE_ALL: u8 = 255;

/// The cookie of a modify command, which keeps the cookie of the rule (1.3.5, 6.4).
///
/// Only OpenFlow 1.0 could change the cookie of a rule.
pub(crate) const COOKIE_UNCHANGED: Cookie = Cookie::new(u64::MAX);

/// A wire bit and the field of [`FlowFlags`] that holds it.
type Flag = (u16, fn(&mut FlowFlags) -> &mut bool);

/// Bits of `ofp_flow_mod_flags`.
const FLAGS: [Flag; 5] = [
    (1, |flags| &mut flags.send_flow_removed),
    (1 << 1, |flags| &mut flags.check_overlap),
    (1 << 2, |flags| &mut flags.reset_counts),
    (1 << 3, |flags| &mut flags.no_packet_counts),
    (1 << 4, |flags| &mut flags.no_byte_counts),
];

/// Reads the body of a flow-mod.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<FlowMod, ErrorCode> {
    let (cookie, cookie_mask) = (Cookie::new(reader.u64()?), reader.u64()?);
    let (table, command) = (reader.u8()?, reader.u8()?);
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let (priority, buffer) = (Priority::new(reader.u16()?), reader.u32()?);
    let (out_port, out_group) = (reader.u32()?, reader.u32()?);
    let flags = reader.u16()?;
    reader.skip(2)?;
    let matching = read_match(reader)?;
    let out_port = port_no::read_out_port(out_port)?;
    let instructions = read_instructions(reader)?;
    let command = read_command(command)?;
    let flags = read_flags(flags)?;
    let is_delete = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let table = read_table(table, is_delete)?;
    if buffer != NO_BUFFER && !is_delete {
        return Err(ErrorCode::BufferUnknown);
    }
    // Fields that a command ignores are not stored, so equal requests are equal values.
    Ok(FlowMod {
        command,
        table,
        matching,
        priority,
        cookie: if is_modify(command) && cookie_mask == 0 { COOKIE_UNCHANGED } else { cookie },
        cookie_mask: if command == FlowModCommand::Add { 0 } else { cookie_mask },
        idle_timeout: Duration::from_secs(idle_timeout.into()),
        hard_timeout: Duration::from_secs(hard_timeout.into()),
        importance: 0,
        flags,
        out_port: if is_delete { out_port } else { PortNo::ANY },
        out_group: if is_delete { out_group } else { RuleFilter::GROUP_ANY },
        instructions: if is_delete { Instructions::default() } else { instructions },
    })
}

/// Returns whether a command modifies existing rules.
const fn is_modify(command: FlowModCommand) -> bool {
    matches!(command, FlowModCommand::Modify | FlowModCommand::ModifyStrict)
}

/// Returns the flow-mod command for a number of `ofp_flow_mod_command`.
pub(in crate::wire) const fn read_command(number: u8) -> Result<FlowModCommand, ErrorCode> {
    Ok(match number {
        0 => FlowModCommand::Add,
        1 => FlowModCommand::Modify,
        2 => FlowModCommand::ModifyStrict,
        3 => FlowModCommand::Delete,
        4 => FlowModCommand::DeleteStrict,
        _ => return Err(ErrorCode::FlowCommand),
    })
}

/// Returns the number of a command in `ofp_flow_mod_command`.
pub(in crate::wire) const fn command_number(command: FlowModCommand) -> u8 {
    match command {
        FlowModCommand::Add => 0,
        FlowModCommand::Modify => 1,
        FlowModCommand::ModifyStrict => 2,
        FlowModCommand::Delete => 3,
        FlowModCommand::DeleteStrict => 4,
    }
}

/// Returns the table of a flow-mod; only a deletion may select all tables.
const fn read_table(number: u8, is_delete: bool) -> Result<TableSelector, ErrorCode> {
    match TableId::new(number) {
        Some(table) => Ok(TableSelector::One(table)),
        None if number == TABLE_ALL && is_delete => Ok(TableSelector::All),
        None if number == TABLE_ALL => Err(ErrorCode::FlowTableId),
        None => Err(ErrorCode::TableReserved),
    }
}

/// Reads the flags of a rule.
pub(in crate::wire) fn read_flags(bits: u16) -> Result<FlowFlags, ErrorCode> {
    let mut flags = FlowFlags::default();
    let mut rest = bits;
    for (bit, flag) in FLAGS {
        *flag(&mut flags) = bits & bit != 0;
        rest &= !bit;
    }
    if rest == 0 { Ok(flags) } else { Err(ErrorCode::FlowFlags) }
}

/// Writes the flags of a rule.
pub(in crate::wire) fn flags_bits(mut flags: FlowFlags) -> u16 {
    FLAGS.iter().fold(0, |bits, (bit, flag)| if *flag(&mut flags) { bits | bit } else { bits })
}

/// Returns a timeout in whole seconds.
pub(in crate::wire) fn seconds(timeout: Duration) -> u16 {
    // The field has 16 bits; a longer timeout is written as 65535 seconds.
    u16::try_from(timeout.as_secs()).unwrap_or(u16::MAX)
}

/// Returns the wire number of a table selector.
pub(in crate::wire) const fn table_number(table: TableSelector) -> u8 {
    match table {
        TableSelector::One(table) => table.number(),
        TableSelector::All => TABLE_ALL,
    }
}

/// Returns the tables that a request selects; `None` for the reserved table.
pub(in crate::wire) const fn table_selector(number: u8) -> Option<TableSelector> {
    match TableId::new(number) {
        Some(table) => Some(TableSelector::One(table)),
        None if number == TABLE_ALL => Some(TableSelector::All),
        None => None,
    }
}

/// Writes the body of a flow-mod.
pub(in crate::wire) fn put(out: &mut Vec<u8>, flow_mod: &FlowMod) {
    let is_unchanged = flow_mod.cookie == COOKIE_UNCHANGED && is_modify(flow_mod.command);
    // An unchanged cookie is zero on the wire, as ovs-ofctl sends it.
    out.put_u64(if is_unchanged && flow_mod.cookie_mask == 0 {
        0
    } else {
        flow_mod.cookie.number()
    });
    out.put_u64(flow_mod.cookie_mask);
    out.put_u8(table_number(flow_mod.table));
    out.put_u8(command_number(flow_mod.command));
    out.put_u16(seconds(flow_mod.idle_timeout));
    out.put_u16(seconds(flow_mod.hard_timeout));
    out.put_u16(flow_mod.priority.number());
    out.put_u32(NO_BUFFER);
    out.put_u32(flow_mod.out_port.number());
    out.put_u32(flow_mod.out_group);
    out.put_u16(flags_bits(flow_mod.flags));
    out.put_u16(0);
    put_match(out, &flow_mod.matching);
    put_instructions(out, &flow_mod.instructions);
}
