//! OpenFlow on the wire and the connections of controllers.
//!
//! Three layers, each usable without the ones above it:
//!
//! | module | what | knows nothing of |
//! | --- | --- | --- |
//! | [`message`], [`wire`] | messages as values, and their bytes in OpenFlow 1.3.5 | connections |
//! | [`connection`] | one connection: order, roles, bundles, events | sockets, clocks |
//! | [`server`] | sockets, tasks and time around connections | rules |
//!
//! The switch itself is behind the [`Host`] trait. Packets on ports are none of this crate's
//! business, and neither are tables: a flow-mod that was read is a
//! [`FlowMod`](shunt_pipeline::FlowMod) for a pipeline.
//!
//! Nothing is accepted and ignored: what this switch cannot do is refused with the
//! [`ErrorCode`] that says so. What Open vSwitch refuses is refused with the same numbers, but for
//! the departures that [`wire::v13`] lists.
//!
//! ```
//! use shunt_flow::text::{NoPortNames, parse_match};
//! use shunt_ofproto::{message::{Message, MultipartRequest, Xid}, wire::v13};
//! use shunt_pipeline::RuleFilter;
//!
//! // A controller asks for the rules that web traffic can hit...
//! let matching = parse_match("tcp,tp_dst=80", &NoPortNames)?;
//! let filter = RuleFilter { matching, ..RuleFilter::all() };
//! let question = Message::MultipartRequest(MultipartRequest::Flow(filter));
//! let bytes = v13::encode(Xid::new(7), &question)?;
//! assert_eq!(bytes.len(), usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
//!
//! // ...and the switch reads what was asked.
//! assert_eq!(v13::decode(&bytes)?, (Xid::new(7), question));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod connection;
mod consistency;
mod error;
pub mod framing;
mod host;
pub mod message;
mod paused;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;

pub use consistency::{check_flow_mod, check_group_mod, check_packet_out};
pub use error::{
    CloseReason, ErrorCode, ErrorNumber, NICIRA_EXPERIMENTER, ONF_EXPERIMENTER, TooLong,
};
pub use host::{Host, HostStep};
pub use paused::{PAUSED_MAX, PauseToken, Paused};
