//! Atomics and locks of the protocols between threads, by one name.
//!
//! Under `--cfg loom` they are those of the model checker, so that what is checked is what runs.
//! Counters are not protocol: [`crate::metrics`] uses the atomics of `std` always.

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
