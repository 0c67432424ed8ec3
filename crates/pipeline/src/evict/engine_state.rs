//! What an eviction engine says of itself: how large it is, and why entries went.
//!
//! Both are for people and tests: whoever drops entries needs neither.

use crate::id::{BridgeId, TableId};

/// How large what an engine keeps is, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineState {
    /// What the configuration calls it; empty: it has no name there.
    pub name: &'static str,
    /// What it keeps, by relation, with the number of rows of each.
    pub relations: Vec<(&'static str, usize)>,
    /// Bytes on the heap, about, traversals not counted; `None`: it does not know.
    pub bytes: Option<usize>,
    /// Changes that were too much to be looked at one by one: each took all entries of its tables.
    pub overflows: u64,
    /// Faults of the engine itself: each took all entries.
    pub faults: u64,
}

/// Why entries went, of those that one call of [`Evictor::apply`](crate::Evictor::apply) answered
/// with: so many, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseRun {
    /// Why they went.
    pub cause: Cause,
    /// How many of them.
    pub count: usize,
}

/// Why an engine ended an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// By the delta with this number among those that it was given.
    Delta(usize),
    /// The change was too much to be looked at one by one, and the entry visits this table.
    Bound(BridgeId, TableId),
    /// The engine has failed, and forgot what it watched.
    Fault,
}
