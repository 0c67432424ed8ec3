//! P4Runtime: the LTM cache as a P4 program, a server for whatever holds its entries, and a client
//! that is a target of LTM rules.
//!
//! [`program`] describes the tables once; P4Info, the program for bmv2, [`codec`] and the checks of
//! `p4/gigaflow.p4` follow from it. [`server`] is a P4Runtime server around a
//! [`Device`](server::Device); [`client`] drives a device of anybody's.
//! [`wire`] has the messages, [`value`] their binary strings, [`schema`] what a P4Info says, [`entry`]
//! table entries in their one form, [`error`] what is said when something cannot be done.
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
//! let program = Program::default();
//! let stage = StageId::new(1).ok_or("a stage")?;
//! let entry = encode(&program, &Ports::default(), (stage, &rule))?;
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
