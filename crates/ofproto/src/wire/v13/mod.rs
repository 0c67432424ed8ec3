//! The OpenFlow 1.3.5 codec, with the ONF and Nicira extensions that clients use.
//!
//! [`decode`] and [`encode`] are inverse for every message that has one form. Each topic has its
//! own module. If several wire forms have the same meaning, the first form in this table is
//! written:
//!
//! | meaning | forms |
//! | --- | --- |
//! | write all bits of a field | set-field; `NXAST_REG_LOAD2` with a full mask |
//! | write the tunnel key | set-field; `NXAST_SET_TUNNEL`, `NXAST_SET_TUNNEL64` |
//! | decrement the TTL | `OFPAT_DEC_NW_TTL`; `NXAST_DEC_TTL_CNT_IDS` for controller 0 |
//! | sample | `NXAST_SAMPLE`; `NXAST_SAMPLE2`, `NXAST_SAMPLE3` without port and direction |
//! | resubmit to the same table | `NXAST_RESUBMIT_TABLE` with table 255; `NXAST_RESUBMIT` |
//!
//! # Departures from Open vSwitch
//!
//! Malformed messages get the errors of Open vSwitch 3.1, with these exceptions:
//!
//! * A message that only a switch sends gets the error for a bad type, regardless of its length.
//! * An error message from the peer is logged; the switch sends no error in reply.
//! * Fragment policies other than normal are refused, not ignored.
//! * Unknown flags and commands of bundles are refused, as the standard requires.
//! * `output:TABLE` is legal in packet-outs only.
//! * Reserved bits of `learn` specifications are refused.

pub(super) mod action;
pub(super) mod body;
mod codec;
pub(super) mod describe;
mod instruction;
mod kind;
pub(super) mod length;
pub(super) mod multipart;
pub(super) mod oxm;
pub(super) mod port_no;
pub(super) mod property;
pub(super) mod reason;
#[cfg(test)]
mod tests;
pub(super) mod text;

pub(crate) use action::STANDARD as STANDARD_ACTIONS;
pub(crate) use body::bundle::bundled_message;
pub(crate) use body::flow_mod::COOKIE_UNCHANGED;
pub(crate) use body::flow_removed::reason_number as flow_removed_reason;
#[cfg(any(test, feature = "testing"))]
pub(crate) use body::meter::empty_config as empty_meter_config;
pub(crate) use body::port::reason_number as port_status_reason;
pub use codec::{decode, encode};
pub(crate) use describe::describe;
pub(crate) use kind::{MULTIPART_REQUEST, is_from_switch, is_lasting_change};
pub(crate) use reason::of_packet_in as packet_in_reason;

/// The wire version of OpenFlow 1.3.
pub const VERSION: u8 = 4;

/// `OFP_NO_BUFFER`.
pub(super) const NO_BUFFER: u32 = 0xffff_ffff;
