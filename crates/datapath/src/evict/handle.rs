//! The shared handle of the [`EvictionCoordinator`]: its holder runs the coordinator.
//!
//! The eviction thread runs the coordinator. But a wake-up of this thread for a change, and a
//! second one for the acknowledgement, cost many times as much as a quick engine needs for one
//! rule. So the sender of a small change locks the handle if it is free
//! ([`ChangeSender::helping`]), and applies the change itself. If the handle is locked, the sender
//! wakes the eviction thread. Only the eviction thread does long work: large batches, changes with
//! a wide search, retired owners, and deferred maintenance.
//!
//! ```text
//!   send the change
//!   handle free, and all waiting changes quick?  ── no ──► wake the eviction thread
//!     │ yes                                                         ▲
//!     ▼                                                             │
//!   apply them, notify of acks; much work deferred?  ── yes ────────┘
//! ```
//!
//! A panic of the engine always ends the eviction thread. If the engine panics in another thread,
//! the handle stores the panic, and the eviction thread resumes it.
//!
//! [`ChangeSender::helping`]: crate::evict::coordinator::ChangeSender::helping

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, PoisonError, TryLockError},
};

use shunt_classifier::Version;

use crate::{
    evict::{
        coordinator::{CoordinatorEndpoint, EvictionCoordinator},
        waker::Waker,
    },
    sync::{Mutex, MutexGuard},
};

/// A coordinator, run by the eviction thread and sometimes by a sender of changes.
pub struct CoordinatorHandle {
    /// Wakes the eviction thread when a change arrives.
    waker: Arc<Waker>,
    /// The coordinator, under its lock.
    state: Mutex<HandleState>,
}

/// The state of the shared coordinator.
enum HandleState {
    Open(Box<OpenCoordinator>),
    /// The engine has panicked in another thread.
    /// The eviction thread resumes the panic.
    Panicked(Box<dyn Any + Send>),
    Closed,
}

/// The coordinator, and the last version that all owners acknowledged.
struct OpenCoordinator {
    /// The eviction coordinator that the threads share.
    coordinator: EvictionCoordinator,
    /// The last version that all owners acknowledged.
    acked: Version,
    /// Called when all owners have acknowledged a later version.
    on_acked: Box<dyn FnMut(Version) + Send>,
}

/// The result of an attempt to run the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IterationResult {
    /// All waiting changes are applied.
    Done,
    /// All changes are applied, and deferred work needs the eviction thread.
    HasBacklog,
    /// The changes wait for the eviction thread, which must be woken.
    NotNow,
}

impl OpenCoordinator {
    /// Runs one iteration; returns whether anything was done or acknowledged.
    fn run_iteration(&mut self) -> bool {
        let worked = self.coordinator.run_iteration();
        self.notify_acked() || worked
    }

    /// Runs one iteration, if it is quick.
    fn run_if_quick(&mut self) -> IterationResult {
        if !self.coordinator.run_if_quick() {
            return IterationResult::NotNow;
        }
        self.notify_acked();
        if self.coordinator.has_backlog() {
            IterationResult::HasBacklog
        } else {
            IterationResult::Done
        }
    }

    /// Calls `on_acked` if a new version is acknowledged; returns whether it is new.
    fn notify_acked(&mut self) -> bool {
        let newest = self.coordinator.note_acked();
        let is_news = newest != self.acked;
        if is_news {
            self.acked = newest;
            (self.on_acked)(newest);
        }
        is_news
    }
}

impl CoordinatorHandle {
    /// Creates the shared handle of a coordinator.
    ///
    /// `on_acked` is called with versions that all owners have acknowledged. A waiter may not see
    /// every version: some may be skipped.
    #[must_use]
    pub fn new(
        coordinator: EvictionCoordinator,
        on_acked: impl FnMut(Version) + Send + 'static,
    ) -> Arc<Self> {
        let (waker, acked) = (Arc::clone(coordinator.waker()), coordinator.acked_version());
        let open = OpenCoordinator { coordinator, acked, on_acked: Box::new(on_acked) };
        Arc::new(Self { waker, state: Mutex::new(HandleState::Open(Box::new(open))) })
    }

    /// Runs one iteration in the eviction thread.
    /// Returns whether there was anything to do.
    ///
    /// # Panics
    ///
    /// If the engine panics, or has panicked since the last iteration.
    pub fn run_iteration(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = match &mut *state {
            HandleState::Open(open) => {
                match catch_unwind(AssertUnwindSafe(|| open.run_iteration())) {
                    Ok(worked) => return worked,
                    Err(panic) => panic,
                }
            }
            HandleState::Panicked(_) => match std::mem::replace(&mut *state, HandleState::Closed) {
                HandleState::Panicked(panic) => panic,
                HandleState::Open(_) | HandleState::Closed => return false,
            },
            HandleState::Closed => return false,
        };
        *state = HandleState::Closed;
        drop(state);
        resume_unwind(panic)
    }

    /// Runs one iteration in another thread than the eviction thread.
    /// Does so only if the handle is free and all waiting changes are quick.
    pub(crate) fn try_iteration(&self) -> IterationResult {
        let Some(mut state) = self.try_lock() else { return IterationResult::NotNow };
        let HandleState::Open(open) = &mut *state else { return IterationResult::NotNow };
        catch_unwind(AssertUnwindSafe(|| open.run_if_quick())).unwrap_or_else(|panic| {
            *state = HandleState::Panicked(panic);
            IterationResult::NotNow
        })
    }

    /// Takes the lock of the coordinator if no other thread holds it.
    fn try_lock(&self) -> Option<MutexGuard<'_, HandleState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Closes the handle; returns the coordinator, unless its engine has panicked.
    ///
    /// Changes that are sent from now on are dropped.
    #[must_use]
    pub fn close(&self) -> Option<EvictionCoordinator> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, HandleState::Closed) {
            HandleState::Open(open) => Some(open.coordinator),
            HandleState::Panicked(_) | HandleState::Closed => None,
        }
    }

    /// Calls `inspect` with the coordinator, between two iterations.
    /// Returns `None` if the coordinator is closed.
    ///
    /// The coordinator takes all waiting reports first. The call waits for a running iteration, and
    /// the next iteration waits for `inspect`.
    pub fn inspect<T>(&self, inspect: impl FnOnce(&EvictionCoordinator) -> T) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let HandleState::Open(open) = &mut *state else { return None };
        match catch_unwind(AssertUnwindSafe(|| open.coordinator.take_reports())) {
            Ok(_) => Some(inspect(&open.coordinator)),
            Err(panic) => {
                *state = HandleState::Panicked(panic);
                self.waker.wake();
                None
            }
        }
    }

    /// Adds an owner between two iterations; `None` if the coordinator is closed.
    ///
    /// `make` creates the endpoint for the version with which it is called.
    ///
    /// # Errors
    ///
    /// Returns the error of `make`; then no owner is added.
    pub fn join<T, E>(
        &self,
        make: impl FnOnce(Version) -> Result<(T, CoordinatorEndpoint), E>,
    ) -> Option<Result<T, E>> {
        match &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            HandleState::Open(open) => {
                Some(make(open.coordinator.version()).map(|(made, endpoint)| {
                    open.coordinator.join(endpoint);
                    made
                }))
            }
            HandleState::Panicked(_) | HandleState::Closed => None,
        }
    }

    /// Returns the waker of the eviction thread.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

impl std::fmt::Debug for CoordinatorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoordinatorHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
