//! The region index: finds the visits of entries by the rules that the visits depend on.
//!
//! A visit is one table lookup: the table, the headers of the packet there, the bits that the
//! lookup consulted, and the rule that matched. Two kinds of changes of a rule affect a visit:
//!
//! - The removal of a rule makes the visits stale that the rule decided.
//! - An added rule makes a visit stale if it outranks the visit and overlaps its region. In this
//!   case a packet of the region now matches the added rule.
//!
//! The *region* of a visit is given by the bits that all packets of the entry have in common at
//! that table. A search first compares the bits that the lookup consulted ([`group`]), and then all
//! bits that the entry fixes.
//!
//! [`RegionIndex::run_maintenance`] does slow work that is not urgent: it reclaims the rows of
//! retired entries, and fills projections for new masks.

mod chains;
mod columns;
mod group;
mod quick;
mod ranks;
mod readers;
mod region_index;
mod row;
mod rule_query;
mod visit_groups;

pub(crate) use region_index::state;
pub use region_index::{DeciderChange, IndexSize, RegionIndex};
