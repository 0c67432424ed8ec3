//! The OpenFlow 1.0 codec, with the Nicira extensions that clients use.
//!
//! OpenFlow 1.0 has its own match, action numbers and statistics. Nicira's extensions add the
//! fields, tables and actions of later versions, in the form that Open vSwitch defined. A message
//! with a Nicira action or with the fields of the match is the same in both versions, so this codec
//! uses the modules of [`super::v13`] for them.
//!
//! | message | standard form | Nicira's form |
//! | --- | --- | --- |
//! | flow-mod | `OFPT_FLOW_MOD` | `NXT_FLOW_MOD` |
//! | flow statistics | `OFPST_FLOW` | `NXST_FLOW` |
//! | aggregate statistics | `OFPST_AGGREGATE` | `NXST_AGGREGATE` |
//! | flow-removed | `OFPT_FLOW_REMOVED` | `NXT_FLOW_REMOVED` |
//! | flow monitor | | `NXST_FLOW_MONITOR` |
//! | packet-in | `OFPT_PACKET_IN` | `NXT_PACKET_IN`, `NXT_PACKET_IN2` |
//! | group-mod | none | `NXT_GROUP_MOD` |
//! | groups | none | `NXST_GROUP`, `NXST_GROUP_DESC`, `NXST_GROUP_FEATURES` |
//!
//! A client chooses two forms for its connection ([`V10Settings`]): `NXT_SET_FLOW_FORMAT` chooses
//! the form of flow-removed messages, and `NXT_FLOW_MOD_TABLE_ID` the meaning of the command of a
//! flow-mod. The form of a reply follows its request.
//!
//! # Contents that OpenFlow 1.0 lacks
//!
//! A rule that another version added may have contents without a form in OpenFlow 1.0. As in Open
//! vSwitch, a reply leaves them out:
//!
//! * `OFPST_FLOW` has the fields of `ofp_match` only; `NXST_FLOW` has every field.
//! * Meters, `push_vlan`, and the instructions write-actions and clear-actions are left out.
//! * The instruction goto-table is written as `resubmit`, and write-metadata before it as a write to
//!   the field.

mod action;
mod codec;
mod describe;
mod error;
mod flow_mod;
mod flow_monitor;
mod flow_removed;
mod group;
mod kind;
mod ofp_match;
mod packet;
mod port;
mod session;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;
mod vendor;

pub(crate) use action::{STANDARD_ACTIONS, put_actions, read_action, read_nicira_action};
pub use codec::{decode, encode};
pub(crate) use describe::describe;
pub(crate) use error::{error_name, error_number};
pub(crate) use kind::{STATS_REQUEST, is_from_switch, is_lasting_change};
pub(super) use packet::{put_nicira_packet_in, read_nicira_packet_in};
pub use settings::{FlowFormat, V10Settings};
pub(crate) use statistics::{begin_reply, put_entry, read_part_header, read_request};

/// The wire version of OpenFlow 1.0.
pub const VERSION: u8 = 1;
