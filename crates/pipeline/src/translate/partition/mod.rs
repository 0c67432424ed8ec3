//! Partitioning of traversals into sub-traversals.

pub(super) mod compose;
pub(super) mod partitioner;
