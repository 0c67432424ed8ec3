//! What a piece is worth by its fields alone.
//!
//! A piece whose steps look at fields that hang together is worth its length; one that crosses a
//! boundary between disjoint fields is worth nothing (Gigaflow, 3.4.3.2). Of all ways to cut, the one
//! of the greatest sum keeps together what varies together and parts what varies alone, and among
//! those pieces that part as well it takes the longer ones, which cost fewer entries.
//!
//! # Coupled
//!
//! The paper says that fields overlap, of two tables. For more than two it is not the order of the
//! tables that should decide: MAC source, then MAC destination, then both is one bridge, in whichever
//! order it asks. So fields are the vertices of a graph, a step joins those that it looks at, and a
//! piece is coupled if what its steps look at is one connected part. A step that looks at none of
//! these fields goes with any others. Coupling is not inherited: a part of a coupled piece can be
//! uncoupled, and the whole of two uncoupled ones coupled.
//!
//! # Length or joins
//!
//! Under [`Score::Length`] all partitions that cross no boundary have the same sum, so the number of
//! pieces comes second. [`Score::Joins`] counts the boundaries that a piece bridges; it has the number
//! of pieces built in, but cannot tell a piece that crosses a boundary from two single steps.

use crate::outline::Candidate;

/// What a coupled piece is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Score {
    /// Its number of steps.
    #[default]
    Length,
    /// Its number of steps, less one.
    Joins,
}

impl Score {
    /// What a piece of this many steps is worth.
    #[must_use]
    pub const fn worth(self, steps_count: u16, coupled: bool) -> u16 {
        match (self, coupled) {
            (_, false) => 0,
            (Self::Length, true) => steps_count,
            (Self::Joins, true) => steps_count.saturating_sub(1),
        }
    }

    pub(super) fn of(self, piece: &Candidate) -> i64 {
        let steps_count = piece.steps.end - piece.steps.start;
        self.worth(steps_count, piece.coupled).into()
    }
}
