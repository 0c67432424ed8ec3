//! The region index: visits of entries, found by the rules that they depend on.
//!
//! The relation is that of a region join. A visit is a table, the packet as it entered, the bits
//! that the lookup consulted, and the rule that won. A rule that goes ends the entries with a visit
//! that it decided. A rule that comes ends those with a visit that it outranks and whose region it
//! overlaps: some packet of the region is decided otherwise now.
//!
//! The *region* of a visit is what all packets of the entry have in common there. It is searched by
//! the bits that the lookup consulted ([`group`]), and then compared by all that the entry fixes.
//!
//! What costs time and nobody waits for is put off: rows of entries that are gone, and projections
//! for new masks, are dealt with in [`RegionIndex::run_maintenance`].

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
