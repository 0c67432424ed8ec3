//! Sub-traversals, for caches that store them as separate entries (Gigaflow).

use std::sync::Arc;

use shunt_flow::{Match, SparseMask};

use super::traversal::Traversal;
use crate::translate::TraversalTail;

/// A point at which a traversal can be partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionPoint {
    /// Index of the visit after the point; the first visit is 0.
    pub visit: usize,
    /// A hash of the state at the point.
    ///
    /// Equal states have equal names; different states have different names nearly always.
    pub name: u64,
}

/// A traversal with its partition points.
#[derive(Clone, Debug)]
pub struct NotedTraversal {
    /// The traversal.
    pub traversal: Arc<Traversal>,
    /// The bits that the lookup of each visit consulted, without those of its actions.
    ///
    /// `None` if no action consulted more.
    pub(crate) lookups: Vec<Option<SparseMask>>,
    /// The part after the visits that only led to other tables, if the traversal began
    /// in a plain state.
    pub(crate) tail: Option<TraversalTail>,
    /// The partition points, in order.
    pub points: Vec<PartitionPoint>,
    /// The share of the limits of a translation that it uses.
    pub limit_use: LimitUse,
}

/// Some consecutive visits of a packet: a traversal that begins at a partition
/// point.
///
/// Executed in order, each with the key that the one before rewrote, the sub-traversals of a packet
/// have the effect of the whole traversal.
#[derive(Clone, Debug)]
pub struct SubTraversal {
    /// The decisions and what they depend on, from its `continuation` to its `next`.
    pub traversal: Traversal,
    /// The header bits that the sub-traversal wrote, even if they had these values.
    ///
    /// Empty in the last sub-traversal.
    pub rewrite: Match,
    /// The share of the limits of a translation that it uses.
    pub limit_use: LimitUse,
}

/// The amounts that a sub-traversal uses of the limits of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// Number of lookups, buckets and patch ports.
    pub lookups: usize,
    /// Number of datapath actions, including those inside copies.
    pub actions: usize,
    /// Number of refreshes.
    pub refreshes: usize,
}
