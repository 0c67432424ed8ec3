//! The lock of the state that an engine and its circuit share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `shared`, also after a panic of the thread that held it.
///
/// A step that panics ends its circuit, and the engine then replaces the shared state.
pub(super) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
