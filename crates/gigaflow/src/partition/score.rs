//! The score of a sub-traversal by the fields that its steps consult.
//!
//! A sub-traversal with connected fields scores its length. A sub-traversal that crosses a boundary
//! between disjoint fields scores zero (Gigaflow, 3.4.3.2). In the partition with the highest sum,
//! fields that vary together are in one sub-traversal, and fields that vary independently are in
//! different ones. Among equally disjoint partitions, longer sub-traversals win, which need fewer
//! entries.
//!
//! # Coupled fields
//!
//! The paper defines overlapping fields for two tables. With more tables, the order of the tables
//! should not matter, for example if a bridge consults the MAC source, then the MAC destination,
//! then both. So the fields are the vertices of a graph, and a step connects the fields that it
//! consults. A sub-traversal is coupled if the fields of its steps form one connected component. A
//! step that consults no coupling field can be combined with any other step. A part of a coupled
//! sub-traversal may be uncoupled. Two uncoupled sub-traversals may be coupled when combined.
//!
//! # Length or joins
//!
//! With [`Score::Length`] all partitions that cross no boundary have the same sum, so then the
//! number of sub-traversals decides. With [`Score::Joins`] a coupled sub-traversal scores its
//! number of steps minus one. So the sum of the scores is higher for partitions with fewer coupled
//! sub-traversals. However, a sub-traversal across a boundary scores 0, as single steps do.

use crate::outline::SubTraversalOutline;

/// The score of a coupled sub-traversal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Score {
    /// A coupled sub-traversal scores its number of steps.
    #[default]
    Length,
    /// A coupled sub-traversal scores its number of steps minus one.
    Joins,
}

impl Score {
    /// Returns the score of a sub-traversal with this number of steps.
    #[must_use]
    pub const fn worth(self, steps_count: u16, coupled: bool) -> u16 {
        match (self, coupled) {
            (_, false) => 0,
            (Self::Length, true) => steps_count,
            (Self::Joins, true) => steps_count.saturating_sub(1),
        }
    }

    /// Returns the score of a sub-traversal.
    pub(in crate::partition) fn of(self, sub_traversal: &SubTraversalOutline) -> i64 {
        let steps_count = sub_traversal.steps.end - sub_traversal.steps.start;
        self.worth(steps_count, sub_traversal.coupled).into()
    }
}
