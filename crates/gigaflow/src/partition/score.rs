//! The score of a sub-traversal by its fields.
//!
//! A sub-traversal with connected fields scores its length. One that crosses a boundary between
//! disjoint fields scores zero (Gigaflow, 3.4.3.2). The partition with the highest sum keeps fields
//! together that vary together, and separates fields that vary independently. Among equally disjoint
//! partitions it prefers longer sub-traversals, which cost fewer entries.
//!
//! # Coupled fields
//!
//! The paper defines overlapping fields for two tables. With more tables their order should not matter.
//! Example: a bridge consults the MAC source, then the MAC destination, then both. So the fields are the
//! vertices of a graph, and a step connects the fields that it consults. A sub-traversal is coupled if
//! the fields of its steps form one connected component. A step that consults no coupling field can
//! be combined with any other. A part of a coupled sub-traversal may be uncoupled, and two uncoupled ones together
//! may be coupled.
//!
//! # Length or joins
//!
//! With [`Score::Length`] all partitions that cross no boundary have the same sum, so the number of
//! sub-traversals decides next. [`Score::Joins`] counts the steps that a sub-traversal joins. It includes
//! the number of sub-traversals, but scores a sub-traversal across a boundary like two single steps.

use crate::outline::SubTraversalOutline;

/// The score of a coupled sub-traversal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Score {
    /// The number of steps.
    #[default]
    Length,
    /// The number of steps minus one.
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

    pub(in crate::partition) fn of(self, sub_traversal: &SubTraversalOutline) -> i64 {
        let steps_count = sub_traversal.steps.end - sub_traversal.steps.start;
        self.worth(steps_count, sub_traversal.coupled).into()
    }
}
