//! The LTM cache as a P4 program: one description, from which everything else follows.
//!
//! [`Program`] says which tables there are, which fields they match, which actions an entry can have,
//! and the number and width of each. The P4Info ([`Program::p4info`]), the program for the bmv2 switch
//! ([`Program::bmv2`]), what the client encodes and what the server decodes are made from it;
//! `p4/gigaflow.p4` is written by hand, and a test holds it against the description.

mod bmv2;
mod description;
mod graph;
mod lengths;
mod p4info;
mod parser;
mod primitives;
mod text;

pub use description::{
    ActionSpec, CPU_PORT, End, KeyField, MISS_ACTION, MatchKind, Meta, PACKET_IN, PACKET_OUT,
    PUNT_ACTION, PacketHeader, Param, ParamRole, Place, Program, START_ACTION, START_TABLE,
    TAG_FIRST, TAG_WIDTH, UnknownStages, actions, key_fields,
};
pub use text::p4info_text;
