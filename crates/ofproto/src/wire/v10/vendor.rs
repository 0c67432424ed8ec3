//! Vendor messages: Nicira's extensions (`nicira_type`).

use bytes::BufMut;

use super::{
    flow_mod, flow_removed, group,
    settings::{FlowFormat, V10Settings},
};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    message::{FlowMonitorId, Message, RoleMessage, RoleName, Xid},
    wire::{
        ByteReader,
        header::Header,
        v13::body::{experimenter, role},
    },
};

/// The values of `nicira_type` that this module handles itself.
///
/// The module `experimenter` handles the other values, as in OpenFlow 1.3.
mod nicira_type {
    pub(super) const ROLE_REQUEST: u32 = 10;
    pub(super) const ROLE_REPLY: u32 = 11;
    pub(super) const SET_FLOW_FORMAT: u32 = 12;
    pub(super) const FLOW_MOD: u32 = 13;
    pub(super) const FLOW_REMOVED: u32 = 14;
    pub(super) const FLOW_MOD_TABLE_ID: u32 = 15;
    pub(super) const SET_ASYNC_CONFIG: u32 = 19;
    pub(super) const FLOW_MONITOR_CANCEL: u32 = 21;
    pub(super) const FLOW_MONITOR_PAUSED: u32 = 22;
    pub(super) const FLOW_MONITOR_RESUMED: u32 = 23;
    pub(super) const GROUP_MOD: u32 = 31;
}

/// `NXFF_OPENFLOW10`.
const FORMAT_OPENFLOW10: u32 = 0;
/// `NXFF_NXM`.
const FORMAT_NXM: u32 = 2;

/// Returns whether a vendor message changes rules or groups.
pub(super) fn is_lasting_change(frame: &[u8]) -> bool {
    let mut body = ByteReader::new(frame.get(Header::LEN..).unwrap_or_default());
    let (vendor, kind) = (body.u32(), body.u32());
    vendor == Ok(NICIRA_EXPERIMENTER)
        && matches!(kind, Ok(nicira_type::FLOW_MOD | nicira_type::GROUP_MOD))
}

/// Reads the body of a vendor message.
pub(super) fn read(
    xid: Xid,
    reader: &mut ByteReader<'_>,
    settings: V10Settings,
) -> Result<Message, ErrorCode> {
    let mut header = reader.clone();
    let (vendor, kind) = (header.u32()?, header.u32()?);
    if vendor == ONF_EXPERIMENTER {
        // Bundles of the ONF are for OpenFlow 1.3.
        return Err(ErrorCode::BadExperimenterType);
    }
    if vendor != NICIRA_EXPERIMENTER {
        return Err(ErrorCode::BadExperimenter);
    }
    let is_common = !matches!(
        kind,
        nicira_type::ROLE_REQUEST..=nicira_type::FLOW_MOD_TABLE_ID
            | nicira_type::SET_ASYNC_CONFIG
            | nicira_type::FLOW_MONITOR_CANCEL..=nicira_type::FLOW_MONITOR_RESUMED
            | nicira_type::GROUP_MOD
    );
    if is_common {
        return experimenter::read(xid, reader);
    }
    *reader = header;
    Ok(match kind {
        nicira_type::ROLE_REQUEST => Message::RoleRequest(read_role(reader)?),
        nicira_type::ROLE_REPLY => Message::RoleReply(read_role(reader)?),
        nicira_type::SET_FLOW_FORMAT => match reader.u32()? {
            FORMAT_OPENFLOW10 => Message::SetFlowFormat(FlowFormat::OpenFlow10),
            FORMAT_NXM => Message::SetFlowFormat(FlowFormat::Nxm),
            _ => return Err(ErrorCode::Permission),
        },
        nicira_type::FLOW_MOD => Message::FlowMod(flow_mod::read_nicira(reader, settings)?),
        nicira_type::FLOW_REMOVED => Message::FlowRemoved(flow_removed::read_nicira(reader)?),
        nicira_type::FLOW_MOD_TABLE_ID => {
            let is_on = reader.u8()? != 0;
            reader.skip(7)?;
            Message::FlowModTableId(is_on)
        }
        nicira_type::FLOW_MONITOR_CANCEL => {
            Message::FlowMonitorCancel(FlowMonitorId(reader.u32()?))
        }
        nicira_type::FLOW_MONITOR_PAUSED => Message::FlowMonitorPaused,
        nicira_type::FLOW_MONITOR_RESUMED => Message::FlowMonitorResumed,
        nicira_type::GROUP_MOD => Message::GroupMod(group::read(reader)?),
        _ => Message::SetAsync(role::read_async(reader)?),
    })
}

/// Reads a role message, which has no generation id.
fn read_role(reader: &mut ByteReader<'_>) -> Result<RoleMessage, ErrorCode> {
    let role = match reader.u32()? {
        0 => RoleName::Equal,
        1 => RoleName::Master,
        2 => RoleName::Slave,
        _ => return Err(ErrorCode::RoleUnknown),
    };
    Ok(RoleMessage { role, generation: None })
}

/// Writes the body of a vendor message; writes nothing for other messages.
pub(super) fn put(out: &mut Vec<u8>, message: &Message, settings: V10Settings) {
    let mut begin = |kind: u32| {
        out.put_u32(NICIRA_EXPERIMENTER);
        out.put_u32(kind);
    };
    match message {
        Message::RoleRequest(role) => {
            begin(nicira_type::ROLE_REQUEST);
            put_role(out, *role);
        }
        Message::RoleReply(role) => {
            begin(nicira_type::ROLE_REPLY);
            put_role(out, *role);
        }
        Message::SetFlowFormat(format) => {
            begin(nicira_type::SET_FLOW_FORMAT);
            out.put_u32(match format {
                FlowFormat::OpenFlow10 => FORMAT_OPENFLOW10,
                FlowFormat::Nxm => FORMAT_NXM,
            });
        }
        Message::FlowMod(flow_mod) => {
            begin(nicira_type::FLOW_MOD);
            flow_mod::put(out, flow_mod, settings);
        }
        Message::FlowRemoved(removed) => {
            begin(nicira_type::FLOW_REMOVED);
            flow_removed::put(out, removed, settings.flow_format);
        }
        Message::FlowModTableId(is_on) => {
            begin(nicira_type::FLOW_MOD_TABLE_ID);
            out.put_u8(u8::from(*is_on));
            out.put_bytes(0, 7);
        }
        Message::GroupMod(group_mod) => {
            begin(nicira_type::GROUP_MOD);
            group::put(out, group_mod);
        }
        Message::SetAsync(config) => {
            begin(nicira_type::SET_ASYNC_CONFIG);
            role::put_async(out, config);
        }
        Message::FlowMonitorCancel(id) => {
            begin(nicira_type::FLOW_MONITOR_CANCEL);
            out.put_u32(id.0);
        }
        Message::FlowMonitorPaused => begin(nicira_type::FLOW_MONITOR_PAUSED),
        Message::FlowMonitorResumed => begin(nicira_type::FLOW_MONITOR_RESUMED),
        _ => experimenter::put(out, message),
    }
}

/// Writes a Nicira message about the role of a controller.
fn put_role(out: &mut Vec<u8>, message: RoleMessage) {
    out.put_u32(match message.role {
        // The extension has no query of the role.
        RoleName::Equal | RoleName::NoChange => 0,
        RoleName::Master => 1,
        RoleName::Slave => 2,
    });
}
