//! The locks and atomics of the protocol between writer and readers of a live classifier.
//!
//! With `--cfg loom` the types of the model checker loom are used, so that loom checks the
//! production code. Loom has no sharded lock, so its plain lock with the same contract is used.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use crossbeam_utils::sync::ShardedLock as ReadLock;
#[cfg(loom)]
pub(crate) use loom::sync::{
    RwLock as ReadLock,
    atomic::{AtomicUsize, Ordering},
};
