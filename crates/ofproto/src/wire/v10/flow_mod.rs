//! `OFPT_FLOW_MOD` and `NXT_FLOW_MOD` (OpenFlow 1.0.0, 5.3.3; `struct nx_flow_mod`).
//!
//! A modify command differs from that of later versions: it sets the cookie of the rules that it
//! modifies, and adds a rule if there is none to modify. An addition always resets the counters of
//! the rule that it replaces.
//!
//! The messages have no field for a table. Without `NXT_FLOW_MOD_TABLE_ID`, a rule is added to
//! table 0, and the other commands select rules in every table. With it, the high byte of the
//! command is the table.

use std::time::Duration;

use bytes::BufMut;
use shunt_flow::{Match, PortNo};
use shunt_pipeline::{
    Cookie, FlowFlags, FlowMod, FlowModCommand, Instructions, Priority, RuleFilter, TableId,
    TableSelector,
};

use super::{
    action::put_instructions,
    ofp_match::{self, ReadMatch, ReadNxMatch},
    port::put_port_number,
    settings::{FlowFormat, V10Settings},
};
use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{
            COOKIE_UNCHANGED, NO_BUFFER,
            action::{ActionFormat, read_applied},
            body::flow_mod::{command_number, read_command, seconds, table_selector},
            length, port_no,
        },
    },
};

/// `OFPFF_SEND_FLOW_REM`.
const SEND_FLOW_REMOVED: u16 = 1;
/// `OFPFF_CHECK_OVERLAP`.
const CHECK_OVERLAP: u16 = 1 << 1;
/// `OFPFF_EMERG`: the rule is for the time without a controller.
const EMERGENCY: u16 = 1 << 2;

/// The fields that both forms of a flow-mod have.
struct CommonFields {
    matching: Match,
    priority: Priority,
    /// The cookie and its mask that select rules.
    selected: (Cookie, u64),
    /// The cookie of a new rule.
    new_cookie: Cookie,
    /// The command, such as `OFPFC_ADD`.
    command: u16,
    idle_timeout: u16,
    hard_timeout: u16,
    /// The buffered packet to process.
    buffer: u32,
    out_port: PortNo,
    flags: u16,
}

/// Reads the body of `OFPT_FLOW_MOD`.
pub(super) fn read(
    reader: &mut ByteReader<'_>,
    settings: V10Settings,
) -> Result<FlowMod, ErrorCode> {
    let ReadMatch { matching, is_exact } = ofp_match::read(reader)?;
    let new_cookie = Cookie::new(reader.u64()?);
    let (command, idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let (priority, buffer) = (Priority::new(reader.u16()?), reader.u32()?);
    let (out_port, flags) = (port_no::widen(reader.u16()?), reader.u16()?);
    let common = CommonFields {
        matching,
        // A match without wildcards has the highest priority (OpenFlow 1.0.0, 3.4).
        priority: if is_exact { Priority::new(u16::MAX) } else { priority },
        selected: (Cookie::new(0), 0),
        new_cookie,
        command,
        idle_timeout,
        hard_timeout,
        buffer,
        out_port,
        flags,
    };
    common.finish(reader, settings)
}

/// Reads the body of `NXT_FLOW_MOD`.
pub(super) fn read_nicira(
    reader: &mut ByteReader<'_>,
    settings: V10Settings,
) -> Result<FlowMod, ErrorCode> {
    let (new_cookie, command) = (Cookie::new(reader.u64()?), reader.u16()?);
    let (idle_timeout, hard_timeout) = (reader.u16()?, reader.u16()?);
    let (priority, buffer) = (Priority::new(reader.u16()?), reader.u32()?);
    let (out_port, flags) = (port_no::widen(reader.u16()?), reader.u16()?);
    let match_len = reader.u16()?;
    reader.skip(6)?;
    let ReadNxMatch { matching, cookie, cookie_mask } = ofp_match::read_nxm(reader, match_len)?;
    let common = CommonFields {
        matching,
        priority,
        selected: (cookie, cookie_mask),
        new_cookie,
        command,
        idle_timeout,
        hard_timeout,
        buffer,
        out_port,
        flags,
    };
    common.finish(reader, settings)
}

impl CommonFields {
    /// Reads the actions, and checks the fields in the order of Open vSwitch.
    fn finish(
        self,
        reader: &mut ByteReader<'_>,
        settings: V10Settings,
    ) -> Result<FlowMod, ErrorCode> {
        let (table, command) = self.target(settings)?;
        let is_add = command == FlowModCommand::Add;
        if is_add && self.selected.1 != 0 {
            return Err(ErrorCode::MatchNicira);
        }
        let (actions, metadata) = read_applied(reader.rest(), ActionFormat::V10)?;
        *reader = ByteReader::new(&[]);
        let mut flags = self.read_flags()?;
        flags.reset_counts = is_add;
        let is_delete = matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        let is_modify = matches!(command, FlowModCommand::Modify | FlowModCommand::ModifyStrict);
        flags.modify_or_add = is_modify && self.new_cookie != COOKIE_UNCHANGED;
        if flags.modify_or_add && self.selected.1 != 0 {
            // A flow-mod holds one cookie: it selects rules, or it is the new cookie.
            return Err(ErrorCode::FlowUnknown);
        }
        if self.buffer != NO_BUFFER && !is_delete {
            return Err(ErrorCode::BufferUnknown);
        }
        let selects = is_delete || self.selected.1 != 0;
        let (cookie, cookie_mask) = if selects { self.selected } else { (self.new_cookie, 0) };
        let instructions = Instructions { apply: actions.into(), metadata, ..Default::default() };
        // Fields that a command ignores are not stored, so equal requests are equal values.
        Ok(FlowMod {
            command,
            table,
            matching: self.matching,
            priority: self.priority,
            cookie,
            cookie_mask,
            idle_timeout: Duration::from_secs(self.idle_timeout.into()),
            hard_timeout: Duration::from_secs(self.hard_timeout.into()),
            importance: 0,
            flags,
            out_port: if is_delete { self.out_port } else { PortNo::ANY },
            out_group: RuleFilter::GROUP_ANY,
            instructions: if is_delete { Instructions::default() } else { instructions },
        })
    }

    /// Returns the tables and the command.
    fn target(&self, settings: V10Settings) -> Result<(TableSelector, FlowModCommand), ErrorCode> {
        let [table, command] = self.command.to_be_bytes();
        let is_known = settings.has_table_ids || table == 0;
        let command = read_command(command).ok().filter(|_| is_known);
        let command = command.ok_or(ErrorCode::FlowCommand)?;
        let table = match settings.has_table_ids {
            true => table_selector(table).ok_or(ErrorCode::TableReserved)?,
            false => TableSelector::All,
        };
        // A rule is added to the first table, unless the request names another one.
        let is_add = command == FlowModCommand::Add;
        let table = match table {
            TableSelector::All if is_add => TableSelector::One(TableId::FIRST),
            table => table,
        };
        Ok((table, command))
    }

    /// Reads the flags, or refuses unknown ones.
    fn read_flags(&self) -> Result<FlowFlags, ErrorCode> {
        if self.flags & !(SEND_FLOW_REMOVED | CHECK_OVERLAP | EMERGENCY) != 0 {
            return Err(ErrorCode::FlowFlags);
        }
        if self.flags & EMERGENCY != 0 {
            // The switch has no table for the time without a controller.
            let has_timeout = self.idle_timeout != 0 || self.hard_timeout != 0;
            return Err(if has_timeout {
                ErrorCode::FlowEmergencyTimeout
            } else {
                ErrorCode::FlowTableFull
            });
        }
        Ok(FlowFlags {
            send_flow_removed: self.flags & SEND_FLOW_REMOVED != 0,
            check_overlap: self.flags & CHECK_OVERLAP != 0,
            ..FlowFlags::default()
        })
    }
}

/// Writes the body of a flow-mod in the form of the connection.
pub(super) fn put(out: &mut Vec<u8>, flow_mod: &FlowMod, settings: V10Settings) {
    match settings.flow_format {
        FlowFormat::OpenFlow10 => {
            let is_exact = ofp_match::put(out, &flow_mod.matching);
            out.put_u64(new_cookie(flow_mod).number());
            put_command(out, flow_mod, settings);
            let highest = Priority::new(u16::MAX);
            put_common(out, flow_mod, if is_exact { highest } else { flow_mod.priority });
        }
        FlowFormat::Nxm => {
            out.put_u64(new_cookie(flow_mod).number());
            put_command(out, flow_mod, settings);
            put_common(out, flow_mod, flow_mod.priority);
            let length_at = length::reserve(out);
            out.put_bytes(0, 6);
            let (cookie, cookie_mask) = (flow_mod.cookie, flow_mod.cookie_mask);
            let match_len = ofp_match::put_nxm(out, &flow_mod.matching, cookie, cookie_mask);
            length::set(out, length_at, match_len);
        }
    }
    put_instructions(out, &flow_mod.instructions);
}

/// Returns the cookie of a new or modified rule; all ones keep the cookie.
fn new_cookie(flow_mod: &FlowMod) -> Cookie {
    match flow_mod.command {
        FlowModCommand::Add => flow_mod.cookie,
        FlowModCommand::Modify | FlowModCommand::ModifyStrict if flow_mod.flags.modify_or_add => {
            flow_mod.cookie
        }
        FlowModCommand::Modify | FlowModCommand::ModifyStrict => COOKIE_UNCHANGED,
        FlowModCommand::Delete | FlowModCommand::DeleteStrict => Cookie::new(0),
    }
}

/// Writes the command, and the table before it if the client chose that form.
fn put_command(out: &mut Vec<u8>, flow_mod: &FlowMod, settings: V10Settings) {
    let table = match flow_mod.table {
        TableSelector::One(table) if settings.has_table_ids => table.number(),
        TableSelector::All if settings.has_table_ids => u8::MAX,
        TableSelector::One(_) | TableSelector::All => 0,
    };
    out.put_u8(table);
    out.put_u8(command_number(flow_mod.command));
}

/// Writes the fields between the command and the match or the actions.
fn put_common(out: &mut Vec<u8>, flow_mod: &FlowMod, priority: Priority) {
    out.put_u16(seconds(flow_mod.idle_timeout));
    out.put_u16(seconds(flow_mod.hard_timeout));
    out.put_u16(priority.number());
    out.put_u32(NO_BUFFER);
    put_port_number(out, flow_mod.out_port);
    let flags = flow_mod.flags;
    let send = if flags.send_flow_removed { SEND_FLOW_REMOVED } else { 0 };
    out.put_u16(send | if flags.check_overlap { CHECK_OVERLAP } else { 0 });
}
