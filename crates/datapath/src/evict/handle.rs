//! The seat at the desk: whoever takes it turns the [`EvictionCoordinator`].
//!
//! It belongs to the eviction thread. But to hand a change over to a thread that sleeps, and to hear
//! of its answer, is two wakings, and costs many times what a quick engine needs for a change of one
//! rule. So whoever hands in a small change takes the seat if it is free
//! ([`ChangeSender::helping`]), and does the step itself. If the seat is taken, the eviction thread is
//! awake, or about to look once more before it sleeps; it is told as ever. Its thread alone does what
//! takes long: changes that are many or that the engine has to look far for, owners that are gone,
//! what was put off.
//!
//! ```text
//!   hand in the change
//!   handle free, and all that waits is done at once?  ── no ──► wake the eviction thread
//!     │ yes                                                              ▲
//!     ▼                                                                  │
//!   apply it, tell of what is answered; much put off?  ── yes ───────────┘
//! ```
//!
//! A panic of the engine ends the eviction thread, whoever had the seat: a panic elsewhere is kept
//! here and goes on in that thread.
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

/// A desk that its thread turns, and sometimes others.
pub struct CoordinatorHandle {
    waker: Arc<Waker>,
    place: Mutex<Place>,
}

/// What there is to turn.
enum Place {
    Open(Box<OpenCoordinator>),
    /// The engine has panicked in the hands of another than its thread, which hears of it next.
    Panicked(Box<dyn Any + Send>),
    Closed,
}

struct OpenCoordinator {
    coordinator: EvictionCoordinator,
    answered: Version,
    on_acked: Box<dyn FnMut(Version) + Send>,
}

/// What came of an attempt to turn the desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// All that waited is done.
    Done,
    /// It is done, and has left so much behind that the eviction thread is to be woken for it.
    Untidy,
    /// It waits for the eviction thread, which is to be woken.
    NotNow,
}

impl OpenCoordinator {
    /// One turn; answers whether anything was done or has become known.
    fn turn(&mut self) -> bool {
        let worked = self.coordinator.turn();
        self.tell() || worked
    }

    /// One turn, if it is done at once.
    fn run_at_once(&mut self) -> Turned {
        if !self.coordinator.run_at_once() {
            return Turned::NotNow;
        }
        self.tell();
        if self.coordinator.is_untidy() { Turned::Untidy } else { Turned::Done }
    }

    /// Tells of what is answered; answers whether it was news.
    fn tell(&mut self) -> bool {
        let newest = self.coordinator.note_acked();
        let is_news = newest != self.answered;
        if is_news {
            self.answered = newest;
            (self.on_acked)(newest);
        }
        is_news
    }
}

impl CoordinatorHandle {
    /// A seat at a desk. `on_acked` hears of every version that all packet threads have answered;
    /// some may be passed over.
    #[must_use]
    pub fn new(
        coordinator: EvictionCoordinator,
        on_acked: impl FnMut(Version) + Send + 'static,
    ) -> Arc<Self> {
        let (waker, answered) = (Arc::clone(coordinator.waker()), coordinator.answered());
        let open = OpenCoordinator { coordinator, answered, on_acked: Box::new(on_acked) };
        Arc::new(Self { waker, place: Mutex::new(Place::Open(Box::new(open))) })
    }

    /// Turns the desk, as its own thread; answers whether there was anything to do.
    ///
    /// # Panics
    ///
    /// When the engine does, or has done so since the last turn.
    pub fn turn(&self) -> bool {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = match &mut *place {
            Place::Open(open) => match catch_unwind(AssertUnwindSafe(|| open.turn())) {
                Ok(worked) => return worked,
                Err(panic) => panic,
            },
            Place::Panicked(_) => match std::mem::replace(&mut *place, Place::Closed) {
                Place::Panicked(panic) => panic,
                Place::Open(_) | Place::Closed => return false,
            },
            Place::Closed => return false,
        };
        *place = Place::Closed;
        drop(place);
        resume_unwind(panic)
    }

    /// Turns the desk as somebody else, if the seat is free and all that waits is done at once.
    pub(crate) fn try_iteration(&self) -> Turned {
        let Some(mut place) = self.try_sit() else { return Turned::NotNow };
        let Place::Open(open) = &mut *place else { return Turned::NotNow };
        catch_unwind(AssertUnwindSafe(|| open.run_at_once())).unwrap_or_else(|panic| {
            *place = Place::Panicked(panic);
            Turned::NotNow
        })
    }

    fn try_sit(&self) -> Option<MutexGuard<'_, Place>> {
        match self.place.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends it: changes that are handed in from now on are dropped. Answers with the desk, unless
    /// its engine has panicked.
    #[must_use]
    pub fn close(&self) -> Option<EvictionCoordinator> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Place::Closed) {
            Place::Open(open) => Some(open.coordinator),
            Place::Panicked(_) | Place::Closed => None,
        }
    }

    /// Looks at the desk, between two turns; `None` if it is closed. A turn that is under way is
    /// waited for, and the next one waits for the look.
    pub fn look<T>(&self, look: impl FnOnce(&EvictionCoordinator) -> T) -> Option<T> {
        match &*self.place.lock().unwrap_or_else(PoisonError::into_inner) {
            Place::Open(open) => Some(look(&open.coordinator)),
            Place::Panicked(_) | Place::Closed => None,
        }
    }

    /// Has one more owner join the desk, between two turns: `make` makes its ends for the version that it
    /// is told. `None` if the desk is closed.
    ///
    /// # Errors
    ///
    /// Those of `make`; then none joins.
    pub fn join<T, E>(
        &self,
        make: impl FnOnce(Version) -> Result<(T, CoordinatorEndpoint), E>,
    ) -> Option<Result<T, E>> {
        match &mut *self.place.lock().unwrap_or_else(PoisonError::into_inner) {
            Place::Open(open) => Some(make(open.coordinator.version()).map(|(made, ends)| {
                open.coordinator.join(ends);
                made
            })),
            Place::Panicked(_) | Place::Closed => None,
        }
    }

    /// Where others wake the thread that the seat belongs to.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

impl std::fmt::Debug for CoordinatorHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeskSeat").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
