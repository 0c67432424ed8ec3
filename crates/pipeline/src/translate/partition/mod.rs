//! Partitioning of traversals into sub-traversals.

pub(super) mod compose;
pub(super) mod live_state;
pub(super) mod partitioner;
pub(super) mod sub_traversals;
