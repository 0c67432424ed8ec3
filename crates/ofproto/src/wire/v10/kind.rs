//! Message types (`ofp_type`; OpenFlow 1.0.0, 5.1).

use super::vendor;
use crate::wire::header::Header;

pub(super) const HELLO: u8 = Header::HELLO;
pub(super) const ERROR: u8 = 1;
pub(super) const ECHO_REQUEST: u8 = Header::ECHO_REQUEST;
pub(super) const ECHO_REPLY: u8 = Header::ECHO_REPLY;
pub(super) const VENDOR: u8 = 4;
pub(super) const FEATURES_REQUEST: u8 = 5;
pub(super) const FEATURES_REPLY: u8 = 6;
pub(super) const GET_CONFIG_REQUEST: u8 = 7;
pub(super) const GET_CONFIG_REPLY: u8 = 8;
pub(super) const SET_CONFIG: u8 = 9;
pub(super) const PACKET_IN: u8 = 10;
pub(super) const FLOW_REMOVED: u8 = 11;
pub(super) const PORT_STATUS: u8 = 12;
pub(super) const PACKET_OUT: u8 = 13;
pub(super) const FLOW_MOD: u8 = 14;
pub(super) const PORT_MOD: u8 = 15;
pub(crate) const STATS_REQUEST: u8 = 16;
pub(super) const STATS_REPLY: u8 = 17;
pub(super) const BARRIER_REQUEST: u8 = 18;
pub(super) const BARRIER_REPLY: u8 = 19;
pub(super) const QUEUE_GET_CONFIG_REQUEST: u8 = 20;
pub(super) const QUEUE_GET_CONFIG_REPLY: u8 = 21;

/// Returns whether a message changes rules, groups or ports.
pub(crate) fn is_lasting_change(kind: u8, frame: &[u8]) -> bool {
    match kind {
        FLOW_MOD | PORT_MOD => true,
        VENDOR => vendor::is_lasting_change(frame),
        _ => false,
    }
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
            | STATS_REPLY
            | BARRIER_REPLY
            | QUEUE_GET_CONFIG_REPLY
    )
}

/// Returns the name of a message type without its prefix.
pub(super) fn message_name(number: u8) -> Option<&'static str> {
    const NAMES: [&str; 22] = [
        "hello",
        "error",
        "echo_request",
        "echo_reply",
        "vendor",
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
        "port_mod",
        "stats_request",
        "stats_reply",
        "barrier_request",
        "barrier_reply",
        "queue_get_config_request",
        "queue_get_config_reply",
    ];
    NAMES.get(usize::from(number)).copied()
}
