//! Pairs of sources and destinations: sources that open flows to the same destinations.

mod destination_set;
mod destination_table;
pub(super) mod pair_table;
mod source_group;
