//! Longest traversal matching: rules that are pieces of traversals, and the stages that hold them.
//!
//! [`Ltm`] is the chain in software: [`Ltm::find`] walks a packet through it, [`Ltm::put`] adds rules.

mod chain;
mod entry;
mod rule;
mod table;

pub use chain::{Candidacy, Eviction, Ltm, Put, Walk};
pub use entry::{EntryRef, Hits};
pub use rule::{LtmRule, Next, Plain, Tag};
