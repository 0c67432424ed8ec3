//! OpenFlow 1.3.5 on the wire, with the extensions of the ONF and of Nicira that its clients use.
//!
//! [`decode`] and [`encode`] are inverse for every message that has one form; one module per topic
//! does the work. Where several forms mean the same, the first of these is written:
//!
//! | means | forms |
//! | --- | --- |
//! | write all bits of a field | set-field; `NXAST_REG_LOAD2` with a full mask |
//! | write the tunnel key | set-field; `NXAST_SET_TUNNEL`, `NXAST_SET_TUNNEL64` |
//! | decrement the TTL | `OFPAT_DEC_NW_TTL`; `NXAST_DEC_TTL_CNT_IDS` that names controller 0 |
//! | sample | `NXAST_SAMPLE`; `NXAST_SAMPLE2`, `NXAST_SAMPLE3` that name no port and no direction |
//! | resubmit to the same table | `NXAST_RESUBMIT_TABLE` with table 255; `NXAST_RESUBMIT` |
//!
//! # Departures from Open vSwitch
//!
//! The errors for malformed messages are those of Open vSwitch 3.1 but for these:
//! a message that only a switch sends is a bad type whatever its length;
//! an error from the peer is logged and never answered by an error;
//! fragment policies other than normal are refused and not ignored;
//! unknown flags and commands of bundles are refused, as the standard asks;
//! a port to send to may have 32 bits, and `output:TABLE` belongs to packet-outs only;
//! reserved bits of `ct`, of `sample` and of the specifications of `learn` are refused.

mod action;
mod bundle;
mod codec;
mod experimenter;
mod flow_mod;
mod flow_removed;
mod group;
mod instruction;
mod kind;
mod length;
mod meter;
pub mod multipart;
mod oxm;
mod packet;
mod port;
mod port_no;
mod property;
mod reason;
mod role;
mod switch;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use action::STANDARD as STANDARD_ACTIONS;
pub(crate) use bundle::bundled_message;
pub use codec::{decode, encode};
#[cfg(any(test, feature = "testing"))]
pub(crate) use flow_mod::COOKIE_UNCHANGED;
pub(crate) use flow_removed::reason_number as flow_removed_reason;
pub(crate) use kind::{MULTIPART_REQUEST, is_from_switch};
#[cfg(any(test, feature = "testing"))]
pub(crate) use meter::empty_config as empty_meter_config;
pub(crate) use port::reason_number as port_status_reason;
pub(crate) use reason::of_packet_in as packet_in_reason;

/// OpenFlow 1.3 in the header of its messages.
pub const VERSION: u8 = 4;

/// `OFP_NO_BUFFER`.
const NO_BUFFER: u32 = 0xffff_ffff;
