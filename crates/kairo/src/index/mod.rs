//! The region index: visits of entries, found by the rules that they depend on.
//!
//! A visit is one table lookup: the table, the packet as it entered, the bits that the lookup
//! consulted, and the rule that won. Two changes of a rule affect a visit:
//!
//! - A removed rule invalidates the visits that it decided.
//! - An added rule invalidates the visits that it outranks if it overlaps their region, because some
//!   packet of the region now matches the new rule.
//!
//! The *region* of a visit is the set of bits that all packets of the entry have in common there. A
//! search first compares the bits that the lookup consulted ([`group`]), and then all bits that the
//! entry fixes.
//!
//! Slow work without urgency is deferred to [`RegionIndex::run_maintenance`]: reclaiming the rows of retired
//! entries, and filling projections for new masks.

mod chains;
mod columns;
mod group;
mod ranks;
mod readers;
mod region_index;
mod row;
mod rule_query;
mod visit_groups;

pub(crate) use region_index::state;
#[cfg(feature = "dbsp")]
pub(crate) use region_index::visits_count;
pub use region_index::{DeciderChange, IndexSize, RegionIndex};
