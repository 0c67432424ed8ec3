//! Pieces of traversals, for caches that keep them apart.

use std::sync::Arc;

use shunt_flow::{Match, SparseMask};

use super::traversal::Traversal;
use crate::translate::Tail;

/// A place where a traversal can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionPoint {
    /// The number of the visit behind it; the first is 0.
    pub visit: usize,
    /// A hash of the state there: equal states have equal names, and other states nearly never.
    pub name: u64,
}

/// A traversal, and where it can be cut.
#[derive(Clone, Debug)]
pub struct NotedTraversal {
    /// What was decided, and what it depended on.
    pub traversal: Arc<Traversal>,
    /// What the lookup of each visit depended on, without what its actions did; `None`: there were none.
    pub(crate) lookups: Vec<Option<SparseMask>>,
    /// What it did behind the visits that only led to others, if it began plainly.
    pub(crate) tail: Option<Tail>,
    /// Where it can be cut, in order.
    pub points: Vec<PartitionPoint>,
    /// What it needs of the bounds of a translation.
    pub spending: Spending,
}

/// Some visits of a packet by themselves: a traversal from where the one before it was cut.
///
/// Done one after the other, with the key of each rewritten for the next, the pieces of a packet do
/// what its whole traversal does.
#[derive(Clone, Debug)]
pub struct SubTraversal {
    /// What was decided, and what it depended on, from its `continuation` to its `next`.
    pub traversal: Traversal,
    /// The header bits that it wrote, with their values: also where the packet had these before.
    /// Empty in the last piece.
    pub rewrite: Match,
    /// What it needs of the bounds of a translation.
    pub spending: Spending,
}

/// How much a piece needs of what is bounded for a whole translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Lookups, buckets and patch ports.
    pub lookups: usize,
    /// Datapath actions, those inside copies too.
    pub actions: usize,
    /// Refreshes.
    pub refreshes: usize,
}
