//! Connections that have not agreed on a version yet.
//!
//! A connection without a hello costs its peer nothing. So silent peers could take all places of a
//! listener until their time for a hello is over. In a full listener, the oldest of these
//! connections makes room for a new one. A connection with a hello keeps its place.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::AbortHandle;

/// The connections of a listener that wait for a hello, the oldest first.
#[derive(Default)]
pub(super) struct HelloQueue {
    waiting: VecDeque<AwaitedHello>,
}

/// A connection that waited for a hello when it was last checked.
struct AwaitedHello {
    peer: String,
    /// Set when a version is agreed on.
    is_open: Arc<AtomicBool>,
    task: AbortHandle,
}

impl HelloQueue {
    /// Adds the connection of a task, which sets `is_open` when a version is agreed on.
    pub(super) fn push(&mut self, peer: String, is_open: Arc<AtomicBool>, task: AbortHandle) {
        self.waiting.retain(AwaitedHello::is_waiting);
        self.waiting.push_back(AwaitedHello { peer, is_open, task });
    }

    /// Ends the connection that has waited longest, and returns its peer.
    ///
    /// Returns `None` if no connection waits for a hello. The task ends a moment later.
    pub(super) fn end_oldest(&mut self) -> Option<String> {
        self.waiting.retain(AwaitedHello::is_waiting);
        let oldest = self.waiting.pop_front()?;
        oldest.task.abort();
        Some(oldest.peer)
    }
}

impl AwaitedHello {
    fn is_waiting(&self) -> bool {
        // The task of the connection sets the flag (`serve_accepted`), which orders nothing else.
        !self.is_open.load(Ordering::Relaxed) && !self.task.is_finished()
    }
}
