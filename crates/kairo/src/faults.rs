//! Faults, threads and bounds of the engines in circuits; what they evict is judged in `tests`.

use std::sync::Arc;

use shunt_pipeline::{
    Change, EntryId, Evictor, Installed, OwnerId, Version,
    testing::{Twin, generate},
};

use crate::{CircuitStats, Relational, Visits};

/// An engine in a circuit, which can be made to fail.
trait InCircuit: Evictor + Sized + 'static {
    fn new(version: Version, deltas_max: usize) -> Self;
    fn stats(&self) -> CircuitStats;
    fn fail_next_step(&self);
}

impl InCircuit for Visits {
    fn new(version: Version, deltas_max: usize) -> Self {
        Self::with_deltas_max(version, deltas_max)
    }

    fn stats(&self) -> CircuitStats {
        self.stats()
    }

    fn fail_next_step(&self) {
        self.relation().is_failing = true;
    }
}

impl InCircuit for Relational {
    fn new(version: Version, deltas_max: usize) -> Self {
        Self::with_deltas_max(version, deltas_max)
    }

    fn stats(&self) -> CircuitStats {
        self.stats()
    }

    fn fail_next_step(&self) {
        self.relation().is_failing = true;
    }
}

const fn entry(slot: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation: 0 }
}

/// An engine with three entries of one packet, which is of a bridge that is about to go.
struct Scene<E> {
    twin: Twin,
    engine: E,
}

impl<E: InCircuit> Scene<E> {
    fn new(deltas_max: usize) -> Self {
        let twin = Twin::new(&[]);
        let mut engine = E::new(twin.pipeline.version(), deltas_max);
        let mut key = shunt_flow::FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        let traversal = Arc::new(twin.translate(&key));
        for slot in 0..3 {
            assert_eq!(engine.installed(entry(slot), &traversal), Installed::Recorded);
        }
        Self { twin, engine }
    }

    fn last_change(&self) -> Change {
        self.twin.pipeline.remove_bridge(generate::BRIDGES[0])
    }

    fn evicted(&mut self, change: &Change) -> Vec<EntryId> {
        let mut evicted = self.engine.apply(&change.deltas, change.version);
        evicted.sort_unstable();
        evicted
    }
}

fn a_fault_in_a_step_evicts_every_entry_and_the_next_step_works<E: InCircuit>() {
    let mut scene = Scene::<E>::new(99);
    scene.engine.fail_next_step();
    let change = scene.last_change();
    assert_eq!(scene.evicted(&change), [entry(0), entry(1), entry(2)]);
    assert_eq!((scene.engine.stats().errors, scene.engine.len()), (1, 0));
    assert!(scene.evicted(&change).is_empty());
    assert_eq!(scene.engine.stats().errors, 1);
}

fn what_a_fault_between_changes_has_lost_goes_with_the_next_change<E: InCircuit>() {
    let mut scene = Scene::<E>::new(99);
    scene.engine.fail_next_step();
    while scene.engine.tidy() {}
    assert_eq!((scene.engine.stats().errors, scene.engine.len()), (1, 3));
    scene.engine.removed(entry(1));
    let change = Change { deltas: Vec::new(), ..scene.last_change() };
    assert_eq!(scene.evicted(&change), [entry(0), entry(2)]);
}

fn an_engine_goes_on_in_another_thread<E: InCircuit>() {
    let mut scene = Scene::<E>::new(99);
    while scene.engine.tidy() {}
    let change = scene.last_change();
    let evicted = std::thread::spawn(move || scene.evicted(&change));
    assert_eq!(evicted.join().unwrap(), [entry(0), entry(1), entry(2)]);
}

macro_rules! of_each {
    ($($test:ident),*) => {
        mod visits {
            $(#[test] fn $test() { super::$test::<crate::Visits>(); })*
        }
        mod relational {
            $(#[test] fn $test() { super::$test::<crate::Relational>(); })*
        }
    };
}

of_each!(
    a_fault_in_a_step_evicts_every_entry_and_the_next_step_works,
    what_a_fault_between_changes_has_lost_goes_with_the_next_change,
    an_engine_goes_on_in_another_thread
);
