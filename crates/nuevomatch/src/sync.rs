//! Locks and atomics of the protocol between writer and readers.
//!
//! Under `--cfg loom` they are those of the model checker, so loom checks the code that runs. Loom has
//! no sharded lock: its plain one stands in, with the same contract.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(not(loom))]
pub(crate) use crossbeam_utils::sync::ShardedLock as ReadLock;
#[cfg(loom)]
pub(crate) use loom::sync::{
    RwLock as ReadLock,
    atomic::{AtomicUsize, Ordering},
};
