//! The LTM cache as a P4 program: one description, from which everything else derives.
//!
//! [`Program`] defines the tables, their match fields and actions, and the id and width of each.
//! The P4Info ([`Program::p4info`]), the bmv2 program ([`Program::bmv2_json`]), the client's encoder
//! and the server's decoder derive from it. `p4/gigaflow.p4` is written by hand, and a test compares
//! it with the description.

mod bmv2;
mod description;
mod graph;
mod lengths;
mod p4info;
mod parser;
mod primitives;
mod text;

pub use description::{
    ActionSpec, CPU_PORT, Disposition, FieldSource, KeyField, MISS_ACTION, MatchKind, PACKET_IN,
    PACKET_OUT, PUNT_ACTION, PacketField, PacketHeader, Param, ParamRole, Program, START_ACTION,
    START_TABLE, TAG_FIRST, TAG_WIDTH, UnknownStages, actions, key_fields,
};
pub use text::p4info_text;
