//! OpenFlow messages, controller connections and the server of a bridge.
//!
//! The crate has three layers. Each layer works without the layers above it:
//!
//! | module | contents | has no |
//! | --- | --- | --- |
//! | [`message`], [`wire`] | messages as values, and their bytes in OpenFlow 1.0 and 1.3.5 | connections |
//! | [`connection`] | one connection: request order, roles, bundles, events | sockets, clocks |
//! | [`server`] | the sockets, tasks and timers of connections | rules |
//!
//! The switch implements the [`Host`] trait. This crate owns no ports and no tables: it decodes a
//! flow-mod into a [`FlowMod`](shunt_pipeline::FlowMod), which the pipeline applies.
//!
//! Every request is executed, or refused with an [`ErrorCode`]. `docs/openflow.md` names the few
//! requests that are accepted without effect. The error numbers agree with Open vSwitch, except
//! for the departures that [`wire::v13`] lists.
//!
//! ```
//! use shunt_flow::text::{NoPortNames, parse_match};
//! use shunt_ofproto::{message::{Message, MultipartRequest, Xid}, wire::v13};
//! use shunt_pipeline::RuleFilter;
//!
//! // A controller asks for the rules that match web traffic.
//! let matching = parse_match("tcp,tp_dst=80", &NoPortNames)?;
//! let filter = RuleFilter { matching, ..RuleFilter::all() };
//! let request = Message::MultipartRequest(MultipartRequest::Flow(filter));
//! let bytes = v13::encode(Xid::new(7), &request)?;
//! assert_eq!(bytes.len(), usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
//!
//! // The switch decodes the same request.
//! assert_eq!(v13::decode(&bytes)?, (Xid::new(7), request));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod connection;
mod consistency;
mod error;
pub mod framing;
mod host;
pub mod message;
mod monitor;
mod paused_packets;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;

pub use consistency::{AbsentFields, check_flow_mod, check_group_mod, check_packet_out};
pub use error::{
    CloseReason, EncodeError, ErrorCode, ErrorNumber, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER,
    RequestRefusal, TooLong,
};
pub use host::{Host, HostStep};
pub use monitor::{ChangeOrigin, MonitorQueue, MonitorQueues};
pub use paused_packets::{PAUSED_MAX, PauseToken, PausedPackets};
