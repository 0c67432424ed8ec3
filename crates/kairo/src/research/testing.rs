//! Circuits that fail when a test wants it.

use std::sync::Arc;

use shunt_pipeline::{
    CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

/// An engine whose circuit can be made to fail.
pub trait Fail: Evictor {
    /// Has a step panic: at the next place where it may, or so many later.
    fn fail_after(&mut self, places: usize);
}

/// An engine that fails with some of its changes.
#[derive(Debug)]
pub struct Failing<E, W> {
    engine: E,
    when: W,
}

impl<E, W> Failing<E, W> {
    /// This engine, which is asked for a fault before each change for which `when` answers in how many
    /// places.
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

/// When the next step fails, if one does.
#[derive(Debug, Default)]
pub(crate) struct FaultTimer {
    /// Places that it still passes.
    away: Option<usize>,
}

impl FaultTimer {
    /// A step fails at the next place where it may, or so many later.
    pub(crate) const fn fail_after(&mut self, places: usize) {
        self.away = Some(places);
    }

    /// At one of the places where a step may fail: at its beginning, or behind an object.
    ///
    /// # Panics
    ///
    /// When it is to fail here.
    pub(crate) fn pass_point(&mut self) {
        let away = self.away.take();
        assert!(away != Some(0), "a fault was asked for");
        self.away = away.map(|away| away - 1);
    }
}
