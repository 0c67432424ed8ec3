//! Longest traversal matching (LTM): sub-traversals as rules, and the stages that hold them.
//!
//! [`Ltm`] is the chain of stages in software: [`Ltm::find`] looks up a packet, and [`Ltm::put`]
//! adds rules. The entries of the chain live in a [`Store`].

mod chain;
mod coverage;
mod eviction;
mod ghost_queue;
mod headers;
mod identity_index;
mod partition_origin;
mod rule;
mod stage_entries;
mod store;
mod table;
mod victim_choice;
mod walk;

pub(crate) use chain::EntryQuery;
pub use chain::{Ltm, NewLtmEntry, PutResult};
pub use coverage::{Coverage, CoverageLink};
pub use eviction::Eviction;
pub(crate) use headers::RewrittenHeaders;
pub use partition_origin::PartitionOrigin;
pub(crate) use partition_origin::{PartitionMember, first_table_of};
pub use rule::{LtmRule, Next, PlainRule, Tag};
pub use store::{Hits, LtmEntryRef, Store, VecStore};
pub use walk::Walk;
