//! Sub-traversals, for caches that store them as separate entries (Gigaflow).

use std::sync::Arc;

use shunt_flow::{Match, SparseMask};

use super::traversal::Traversal;
use crate::translate::TraversalTail;

/// A point at which a traversal can be partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionPoint {
    /// Index of the visit after the partition point; the first visit is 0.
    pub visit: usize,
    /// A hash of the state at the partition point.
    ///
    /// Equal states have equal names. Different states have different names, except for rare
    /// collisions.
    pub name: u64,
}

/// A traversal with its partition points.
#[derive(Clone, Debug)]
pub struct NotedTraversal {
    /// The traversal, with the masks of its visits and actions.
    pub traversal: Arc<Traversal>,
    /// The bits that the lookup of each visit consulted, without the bits of actions.
    ///
    /// `None`: the mask of the visit has these bits, because actions consulted no further bits.
    pub(crate) lookups: Vec<Option<SparseMask>>,
    /// The tail of the traversal, if the traversal began in a plain state.
    pub(crate) tail: Option<TraversalTail>,
    /// The partition points, in order.
    pub points: Vec<PartitionPoint>,
    /// The share of the limits of a translation that the traversal uses.
    pub limit_use: LimitUse,
}

/// Consecutive visits of a packet between two partition points, as a traversal.
///
/// The sub-traversals of a packet, executed in order, have the effect of the whole traversal. Each
/// sub-traversal begins with the key that the previous one has rewritten.
#[derive(Clone, Debug)]
pub struct SubTraversal {
    /// The visits, mask, reads and actions from its `continuation` to its `next`.
    pub traversal: Traversal,
    /// The header bits that the sub-traversal wrote, even without a change of value.
    ///
    /// Empty in the last sub-traversal.
    pub rewrite: Match,
    /// The share of the limits of a translation that the sub-traversal uses.
    pub limit_use: LimitUse,
}

/// The amounts that a sub-traversal uses of the limits of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// Number of lookups, buckets and patch ports.
    pub lookups: usize,
    /// Number of datapath actions, including those inside copies.
    pub actions: usize,
    /// Number of rules and addresses that each hit refreshes.
    pub refreshes: usize,
}
