//! NuevoMatch experiments: classification by learned indexes.

pub(crate) mod answers;
pub(crate) mod building;
pub(crate) mod bundles;
pub(crate) mod forwarding;
mod lookup_rivals;
pub(crate) mod lookups;
mod partitions;
mod rule_sets;
pub(crate) mod rule_updates;
pub(crate) mod sizes;
