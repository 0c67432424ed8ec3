//! Continuations of plain states, in which the next lookup is the only remaining step.
//!
//! Most traversals begin with rules that only lead to another table. Before such a lookup, the
//! state is the same for every packet. No hidden bit is set, nothing was written, the action set is
//! empty, and no resubmit returns. So there is one continuation for each table, in all versions
//! with the same live fields ([`ReadableFields`](crate::continuations::liveness::ReadableFields)).
//! The continuation is stored here when a translation first ends there. Later sub-traversals find
//! the continuation without a translation.

use std::sync::{Arc, OnceLock};

use super::continuation::Continuation;
use crate::id::TableId;

/// The continuations of plain states, by the next table.
#[derive(Default)]
pub(crate) struct PlainContinuations(OnceLock<Box<[PlainContinuation]>>);

/// The continuation of the plain state before one table, and its name.
#[derive(Default)]
struct PlainContinuation {
    /// The name of the continuation, which may be known before the continuation is
    /// made.
    name: OnceLock<u64>,
    /// The continuation, created when it is first needed.
    continuation: OnceLock<Arc<Continuation>>,
}

impl PlainContinuations {
    /// Returns the continuation before a lookup in `table`, if it was stored.
    pub(crate) fn find(&self, table: TableId) -> Option<&Arc<Continuation>> {
        self.entry_of(table)?.continuation.get()
    }

    /// Returns whether `continuation` is the stored one before a lookup in `table`.
    pub(crate) fn has(&self, table: TableId, continuation: &Arc<Continuation>) -> bool {
        self.find(table).is_some_and(|own| Arc::ptr_eq(own, continuation))
    }

    /// Stores the continuation before a lookup in `table`.
    pub(crate) fn insert(&self, table: TableId, continuation: &Arc<Continuation>) {
        if let Some(own) = self.entry_of(table) {
            let kept = own.continuation.get_or_init(|| Arc::clone(continuation));
            debug_assert!(Arc::ptr_eq(kept, continuation), "a table has one plain continuation");
        }
    }

    /// Returns the name of the plain state before a lookup in `table`.
    /// `name` computes the name at first use.
    pub(crate) fn name(&self, table: TableId, name: impl FnOnce() -> u64) -> u64 {
        match self.entry_of(table) {
            Some(own) => *own.name.get_or_init(name),
            None => name(),
        }
    }

    /// Returns the slot of a table; the first call allocates all slots.
    fn entry_of(&self, table: TableId) -> Option<&PlainContinuation> {
        let tables = || (0..TableId::COUNT).map(|_| PlainContinuation::default()).collect();
        self.0.get_or_init(tables).get(table.index())
    }
}
