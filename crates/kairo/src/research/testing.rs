//! Fault injection: circuits that fail at a point that a test selects.

use std::sync::Arc;

use shunt_pipeline::{
    CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

/// An engine with a circuit that fails when a test requests it.
pub trait Fail: Evictor {
    /// Makes a step panic after `places` more possible points of failure.
    fn fail_after(&mut self, places: usize);
}

/// An engine that fails in some of its changes.
#[derive(Debug)]
pub struct Failing<E, W> {
    engine: E,
    /// Returns the points of failure to pass before the fault; `None` for no fault.
    when: W,
}

impl<E, W> Failing<E, W> {
    /// Wraps an engine so that it fails in the changes that `when` selects.
    /// `when` returns the number of possible points of failure to pass before the fault.
    pub const fn new(engine: E, when: W) -> Self {
        Self { engine, when }
    }
}

impl<E: Fail, W: FnMut() -> Option<usize> + Send> Evictor for Failing<E, W> {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        self.engine.installed(entry, traversal)
    }

    fn removed(&mut self, entry: EntryId) {
        self.engine.removed(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        if let Some(places) = (self.when)() {
            self.engine.fail_after(places);
        }
        self.engine.apply(deltas, version)
    }

    fn causes(&self) -> &[CauseRun] {
        self.engine.causes()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.engine.forget(owner);
    }

    fn is_quick(&self, deltas: &[Delta]) -> bool {
        self.engine.is_quick(deltas)
    }

    fn has_backlog(&self) -> bool {
        self.engine.has_backlog()
    }

    fn run_maintenance(&mut self) -> bool {
        self.engine.run_maintenance()
    }

    fn len(&self) -> usize {
        self.engine.len()
    }

    fn state(&self) -> EngineState {
        self.engine.state()
    }
}

/// A countdown to the point at which a step fails, if a test requested a fault.
#[derive(Debug, Default)]
pub(crate) struct FaultTimer {
    /// Number of possible points of failure to pass before the fault.
    away: Option<usize>,
}

impl FaultTimer {
    /// Makes a step fail after `places` more possible points of failure.
    pub(crate) const fn fail_after(&mut self, places: usize) {
        self.away = Some(places);
    }

    /// Passes a point at which a step may fail: its start, or the end of an object.
    ///
    /// # Panics
    ///
    /// If the fault is due at this point.
    pub(crate) fn pass_point(&mut self) {
        let away = self.away.take();
        assert!(away != Some(0), "the test has requested a fault at this point");
        self.away = away.map(|away| away - 1);
    }
}
