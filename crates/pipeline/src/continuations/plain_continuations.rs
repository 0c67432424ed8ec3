//! Plain cuts: where nothing is left of a traversal but the lookup that comes next.
//!
//! Most traversals begin with rules that only lead to another table. In front of each of these lookups
//! the state is the same whatever the packet: no hidden bit is set, nothing was written, the action set
//! is empty, nothing comes back. So what a packet goes on with there is one continuation for each table,
//! at all versions at which as much can be read ([`Readable`](crate::continuations::liveness::Readable)), which decides
//! what of the state is in a name. It is kept here when a translation first ends there, and found here by those that need
//! not run for it.

use std::sync::{Arc, OnceLock};

use super::continuation::Continuation;
use crate::id::TableId;

/// The continuations of plain cuts, by the table in front of which they are.
#[derive(Default)]
pub(crate) struct PlainCuts(OnceLock<Box<[PlainCut]>>);

#[derive(Default)]
struct PlainCut {
    /// What the continuation is called, also where none was made yet.
    name: OnceLock<u64>,
    continuation: OnceLock<Arc<Continuation>>,
}

impl PlainCuts {
    /// How packets go on in front of this table, if it is known.
    pub(crate) fn find(&self, table: TableId) -> Option<&Arc<Continuation>> {
        self.at(table)?.continuation.get()
    }

    /// Whether packets go on in front of this table like this.
    pub(crate) fn has(&self, table: TableId, continuation: &Arc<Continuation>) -> bool {
        self.find(table).is_some_and(|own| Arc::ptr_eq(own, continuation))
    }

    /// Packets go on in front of this table like this.
    pub(crate) fn keep(&self, table: TableId, continuation: &Arc<Continuation>) {
        if let Some(own) = self.at(table) {
            let kept = own.continuation.get_or_init(|| Arc::clone(continuation));
            debug_assert!(Arc::ptr_eq(kept, continuation), "plain cuts of a table are one");
        }
    }

    /// What the state in front of this table is called, which `name` finds out.
    pub(crate) fn name(&self, table: TableId, name: impl FnOnce() -> u64) -> u64 {
        match self.at(table) {
            Some(own) => *own.name.get_or_init(name),
            None => name(),
        }
    }

    fn at(&self, table: TableId) -> Option<&PlainCut> {
        let tables = || (0..TableId::COUNT).map(|_| PlainCut::default()).collect();
        self.0.get_or_init(tables).get(table.index())
    }
}
