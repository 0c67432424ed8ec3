//! Message types (`ofp_type`).

use crate::wire::header::Header;

pub(crate) const HELLO: u8 = Header::HELLO;
pub(crate) const ERROR: u8 = 1;
pub(crate) const ECHO_REQUEST: u8 = Header::ECHO_REQUEST;
pub(crate) const ECHO_REPLY: u8 = Header::ECHO_REPLY;
pub(crate) const EXPERIMENTER: u8 = 4;
pub(crate) const FEATURES_REQUEST: u8 = 5;
pub(crate) const FEATURES_REPLY: u8 = 6;
pub(crate) const GET_CONFIG_REQUEST: u8 = 7;
pub(crate) const GET_CONFIG_REPLY: u8 = 8;
pub(crate) const SET_CONFIG: u8 = 9;
pub(crate) const PACKET_IN: u8 = 10;
pub(crate) const FLOW_REMOVED: u8 = 11;
pub(crate) const PORT_STATUS: u8 = 12;
pub(crate) const PACKET_OUT: u8 = 13;
pub(crate) const FLOW_MOD: u8 = 14;
pub(crate) const GROUP_MOD: u8 = 15;
pub(crate) const PORT_MOD: u8 = 16;
pub(crate) const TABLE_MOD: u8 = 17;
pub(crate) const MULTIPART_REQUEST: u8 = 18;
pub(crate) const MULTIPART_REPLY: u8 = 19;
pub(crate) const BARRIER_REQUEST: u8 = 20;
pub(crate) const BARRIER_REPLY: u8 = 21;
pub(crate) const QUEUE_GET_CONFIG_REQUEST: u8 = 22;
pub(crate) const QUEUE_GET_CONFIG_REPLY: u8 = 23;
pub(crate) const ROLE_REQUEST: u8 = 24;
pub(crate) const ROLE_REPLY: u8 = 25;
pub(crate) const GET_ASYNC_REQUEST: u8 = 26;
pub(crate) const GET_ASYNC_REPLY: u8 = 27;
pub(crate) const SET_ASYNC: u8 = 28;
pub(crate) const METER_MOD: u8 = 29;

/// Returns whether a message of this type changes rules, groups, meters or ports.
pub(crate) const fn is_lasting_change(kind: u8) -> bool {
    matches!(kind, FLOW_MOD | GROUP_MOD | METER_MOD | PORT_MOD)
}

/// Returns whether only a switch sends messages of this type.
pub(crate) const fn is_from_switch(kind: u8) -> bool {
    matches!(
        kind,
        FEATURES_REPLY
            | GET_CONFIG_REPLY
            | PACKET_IN
            | FLOW_REMOVED
            | PORT_STATUS
            | MULTIPART_REPLY
            | BARRIER_REPLY
            | QUEUE_GET_CONFIG_REPLY
            | ROLE_REPLY
            | GET_ASYNC_REPLY
    )
}
