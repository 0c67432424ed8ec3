//! Atomics and locks of the protocols between threads.
//!
//! Under `--cfg loom` these types come from the model checker loom, which then checks the code that
//! runs in production. Counters are no part of a protocol: [`crate::metrics`] always uses the
//! atomics of `std`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
