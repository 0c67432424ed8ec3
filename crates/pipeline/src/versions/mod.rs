//! Values that change by version, and the deltas between versions.

pub(crate) mod delta;
pub(crate) mod versioned;
pub(crate) mod versioned_map;
