//! P4Runtime: a client for NICs that hold LTM entries, a server, and the LTM P4 program.
//!
//! * [`program`] describes the tables of the LTM program. The P4Info, the bmv2 program, [`codec`]
//!   and the tests of `p4/gigaflow.p4` derive from it.
//! * [`client`] drives a P4Runtime device as an offload device.
//! * [`server`] serves a [`Device`](server::Device) over P4Runtime.
//! * [`wire`] has the protocol messages, and [`value`] their binary strings.
//! * [`schema`] is a checked P4Info, and [`entry`] checks table entries against it.
//! * [`error`] maps errors to gRPC status codes.
//!
//! ```
//! use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
//! use shunt_gigaflow::{
//!     ltm::{LtmRule, Next, Tag},
//!     partition::StageId,
//! };
//! use shunt_p4runtime::{
//!     codec::{Meaning, Ports, decode, encode},
//!     program::Program,
//! };
//!
//! // An LTM rule: packets to 10.0.0.1 with tag 3 continue with tag 4.
//! let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
//! key.set_field(FieldId::Ipv4Dst, 0x0a00_0001);
//! mask.add_field(FieldId::Ipv4Dst);
//! let rule = LtmRule {
//!     tag: Tag::new(3),
//!     matching: Match::new(&key, &mask),
//!     length: 2,
//!     actions: [].into(),
//!     rewrite: Match::any(),
//!     next: Next::Tag(Tag::new(4)),
//! };
//!
//! // The rule is encoded as a table entry of stage 1, and decoded again.
//! let program = Program::default();
//! let stage = StageId::new(1).ok_or("a stage")?;
//! let entry = encode(&program, &Ports::default(), stage, &rule)?;
//! assert_eq!((entry.table_id, entry.priority), (program.table_id(1), 2));
//! let decoded = decode(&program, &entry)?;
//! assert_eq!((decoded.stage, decoded.meaning), (stage, Meaning::Rule(rule)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod value;
pub mod wire;

pub mod error;
pub mod schema;

pub mod entry;
pub mod program;

pub mod codec;

pub mod client;
pub mod server;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
