//! Experimenter messages: bundles and flow monitors of the ONF, and Nicira's extensions.

use bytes::BufMut;

use super::{bundle, packet};
use crate::{
    error::{ErrorCode, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER},
    message::{FlowMonitorId, Message, PacketInFormat, Xid},
    wire::{ByteReader, v10},
};

/// `onf_exttype`.
mod onf {
    pub(super) const FLOW_MONITOR_CANCEL: u32 = 1870;
    pub(super) const FLOW_MONITOR_PAUSED: u32 = 1871;
    pub(super) const FLOW_MONITOR_RESUMED: u32 = 1872;
    pub(super) const BUNDLE_CONTROL: u32 = 2300;
    pub(super) const BUNDLE_ADD: u32 = 2301;
}

/// `nicira_type`.
mod nicira {
    pub(super) const SET_PACKET_IN_FORMAT: u32 = 16;
    pub(super) const PACKET_IN: u32 = 17;
    pub(super) const SET_CONTROLLER_ID: u32 = 20;
    pub(super) const RESUME: u32 = 28;
    pub(super) const PACKET_IN2: u32 = 30;
}

/// Reads the body of an experimenter message with transaction id `xid`.
pub(in crate::wire) fn read(xid: Xid, reader: &mut ByteReader<'_>) -> Result<Message, ErrorCode> {
    let (experimenter, kind) = (reader.u32()?, reader.u32()?);
    match (experimenter, kind) {
        (ONF_EXPERIMENTER, onf::BUNDLE_CONTROL) => {
            bundle::read_control(reader).map(Message::BundleControl)
        }
        (ONF_EXPERIMENTER, onf::BUNDLE_ADD) => {
            bundle::read_add(xid, reader).map(Message::BundleAdd)
        }
        (ONF_EXPERIMENTER, onf::FLOW_MONITOR_CANCEL) => {
            Ok(Message::FlowMonitorCancel(FlowMonitorId(reader.u32()?)))
        }
        (ONF_EXPERIMENTER, onf::FLOW_MONITOR_PAUSED) => Ok(Message::FlowMonitorPaused),
        (ONF_EXPERIMENTER, onf::FLOW_MONITOR_RESUMED) => Ok(Message::FlowMonitorResumed),
        (NICIRA_EXPERIMENTER, nicira::SET_PACKET_IN_FORMAT) => match reader.u32()? {
            0 => Ok(Message::SetPacketInFormat(PacketInFormat::Standard)),
            1 => Ok(Message::SetPacketInFormat(PacketInFormat::Nicira)),
            2 => Ok(Message::SetPacketInFormat(PacketInFormat::Nicira2)),
            _ => Err(ErrorCode::Permission),
        },
        (NICIRA_EXPERIMENTER, nicira::SET_CONTROLLER_ID) => {
            reader.skip(6)?;
            Ok(Message::SetControllerId(reader.u16()?))
        }
        (NICIRA_EXPERIMENTER, nicira::PACKET_IN) => {
            v10::read_nicira_packet_in(reader).map(Message::NiciraPacketIn)
        }
        (NICIRA_EXPERIMENTER, nicira::PACKET_IN2) => {
            packet::read_in2(reader).map(Message::PacketIn2)
        }
        (NICIRA_EXPERIMENTER, nicira::RESUME) => packet::read_in2(reader).map(Message::Resume),
        (ONF_EXPERIMENTER | NICIRA_EXPERIMENTER, _) => Err(ErrorCode::BadExperimenterType),
        _ => Err(ErrorCode::BadExperimenter),
    }
}

/// Writes the body of an experimenter message; writes nothing for other messages.
pub(in crate::wire) fn put(out: &mut Vec<u8>, message: &Message) {
    let mut begin = |experimenter: u32, kind: u32| {
        out.put_u32(experimenter);
        out.put_u32(kind);
    };
    match message {
        Message::BundleControl(control) => {
            begin(ONF_EXPERIMENTER, onf::BUNDLE_CONTROL);
            bundle::put_control(out, *control);
        }
        Message::BundleAdd(add) => {
            begin(ONF_EXPERIMENTER, onf::BUNDLE_ADD);
            bundle::put_add(out, add);
        }
        Message::FlowMonitorCancel(id) => {
            begin(ONF_EXPERIMENTER, onf::FLOW_MONITOR_CANCEL);
            out.put_u32(id.0);
        }
        Message::FlowMonitorPaused => begin(ONF_EXPERIMENTER, onf::FLOW_MONITOR_PAUSED),
        Message::FlowMonitorResumed => begin(ONF_EXPERIMENTER, onf::FLOW_MONITOR_RESUMED),
        Message::SetPacketInFormat(format) => {
            begin(NICIRA_EXPERIMENTER, nicira::SET_PACKET_IN_FORMAT);
            out.put_u32(match format {
                PacketInFormat::Standard => 0,
                PacketInFormat::Nicira => 1,
                PacketInFormat::Nicira2 => 2,
            });
        }
        Message::SetControllerId(id) => {
            begin(NICIRA_EXPERIMENTER, nicira::SET_CONTROLLER_ID);
            out.put_bytes(0, 6);
            out.put_u16(*id);
        }
        Message::NiciraPacketIn(packet) => {
            begin(NICIRA_EXPERIMENTER, nicira::PACKET_IN);
            v10::put_nicira_packet_in(out, packet);
        }
        Message::PacketIn2(packet) => {
            begin(NICIRA_EXPERIMENTER, nicira::PACKET_IN2);
            packet::put_in2(out, packet);
        }
        Message::Resume(packet) => {
            begin(NICIRA_EXPERIMENTER, nicira::RESUME);
            packet::put_in2(out, packet);
        }
        _ => {}
    }
}
