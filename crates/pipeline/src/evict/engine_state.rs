//! The state of an eviction engine: its size, and the causes of evictions.
//!
//! Status output and tests use the state.

use crate::id::{BridgeId, TableId};

/// The size of an engine's state, and its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineState {
    /// The name of the engine in the configuration; empty if it has none.
    pub name: &'static str,
    /// The relations of the engine, with the number of rows of each.
    pub relations: Vec<(&'static str, usize)>,
    /// Approximate bytes on the heap, without traversals; `None`: unknown.
    pub bytes: Option<usize>,
    /// Changes that were too large to be handled one by one: each evicted all entries
    /// of its tables.
    pub overflows: u64,
    /// Internal faults: each evicted all entries.
    pub faults: u64,
}

/// A run of evicted entries with one cause, in a result of
/// [`Evictor::apply`](crate::Evictor::apply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseRun {
    /// The cause of all these evictions.
    pub cause: Cause,
    /// Number of entries of the run.
    pub count: usize,
}

/// The cause of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The delta with this index among the deltas of the call.
    Delta(usize),
    /// The change was too large to be handled one by one, and the entry visits this
    /// table.
    Bound(BridgeId, TableId),
    /// The engine has failed and dropped its state.
    Fault,
}
