//! Tests of faults, threads and bounds of the engines in circuits. The folder `tests` checks their
//! evictions.

use std::sync::Arc;

use shunt_flow::{FlowKey, text::NoPortNames};
use shunt_pipeline::{
    Cause, CauseRun, Change, Delta, EntryId, Evictor as _, FlowModCommand, Installed, Object,
    OwnerId, TableId, Time, Traversal, Version,
    testing::{CheckedPipeline, generate},
    text::parse_rule,
};

use crate::{CircuitStats, Relational, Visits, testing::Fail};

/// An engine that runs in a circuit of dbsp.
trait InCircuit: Fail + Sized + 'static {
    /// Returns an engine that searches at most `deltas_max` rules of a change.
    fn new(version: Version, deltas_max: usize) -> Self;
    /// Limits the visits that the engine examines for the rules of a change.
    fn with_examined_max(self, examined_max: usize) -> Self;
    /// Returns the numbers of steps, failed steps and too large changes.
    fn stats(&self) -> CircuitStats;
}

impl InCircuit for Visits {
    fn new(version: Version, deltas_max: usize) -> Self {
        Self::new(version, 1).with_deltas_max(deltas_max)
    }

    fn with_examined_max(self, examined_max: usize) -> Self {
        self.with_examined_max(examined_max)
    }

    fn stats(&self) -> CircuitStats {
        self.stats()
    }
}

impl InCircuit for Relational {
    fn new(version: Version, deltas_max: usize) -> Self {
        Self::new(version, 1).with_deltas_max(deltas_max)
    }

    fn with_examined_max(self, examined_max: usize) -> Self {
        self.with_examined_max(examined_max)
    }

    fn stats(&self) -> CircuitStats {
        self.stats()
    }
}

/// Returns the entry in a slot, with generation 0.
const fn entry(slot: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation: 0 }
}

/// An engine with three entries of one packet, before their bridge is removed.
struct FaultFixture<E> {
    checked: CheckedPipeline,
    engine: E,
}

impl<E: InCircuit> FaultFixture<E> {
    /// Returns an engine with three entries that searches up to `deltas_max` rules.
    fn new(deltas_max: usize) -> Self {
        Self::with(CheckedPipeline::new(&[]), deltas_max, |engine| engine)
    }

    /// Returns an engine with three entries, after `settings` has changed it.
    fn with(checked: CheckedPipeline, deltas_max: usize, settings: impl Fn(E) -> E) -> Self {
        let engine = settings(E::new(checked.pipeline.version(), deltas_max));
        let mut fixture = Self { checked, engine };
        let traversal = fixture.traversal();
        for slot in 0..3 {
            assert_eq!(fixture.engine.installed(entry(slot), &traversal), Installed::Recorded);
        }
        fixture
    }

    /// Returns the traversal of the packet that all entries hold.
    fn traversal(&self) -> Arc<Traversal> {
        let mut key = FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        Arc::new(self.checked.translate(&key))
    }

    /// Adds a rule to the table that all entries visit.
    fn new_rule(&self) -> Change {
        self.rule("arp,actions=drop")
    }

    /// Adds a rule, and returns the change to apply.
    fn rule(&self, rule: &str) -> Change {
        let rule = parse_rule(FlowModCommand::Add, rule, &NoPortNames).unwrap();
        self.checked.pipeline.apply(generate::BRIDGES[0], &[rule], Time::ZERO).unwrap()
    }

    /// Removes the bridge of all entries, and returns the change to apply.
    fn last_change(&self) -> Change {
        self.checked.pipeline.remove_bridge(generate::BRIDGES[0])
    }

    /// Applies a change, and returns the evicted entries in order.
    fn evicted_entries(&mut self, change: &Change) -> Vec<EntryId> {
        let mut evicted = self.engine.apply(&change.deltas, change.version);
        evicted.sort_unstable();
        evicted
    }
}

/// Checks that a failed step evicts all entries once, and counts one error.
fn a_failed_step_evicts_all_entries_and_recovers<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    fixture.engine.fail_after(0);
    let change = fixture.last_change();
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
    assert_eq!((fixture.engine.stats().errors, fixture.engine.len()), (1, 0));
    assert_eq!(fixture.engine.causes(), [CauseRun { cause: Cause::Fault, count: 3 }]);
    assert_eq!(fixture.engine.state().faults, 1);
    assert!(fixture.evicted_entries(&change).is_empty());
    assert_eq!(fixture.engine.stats().errors, 1);
}

/// Checks that a fault in an install leads to evictions by the next change.
fn the_change_after_a_fault_evicts_lost_entries<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    fixture.engine.fail_after(0);
    // The step of an install may be the install itself, or the next maintenance.
    let traversal = fixture.traversal();
    assert_eq!(fixture.engine.installed(entry(2), &traversal), Installed::Recorded);
    while fixture.engine.run_maintenance() {}
    assert_eq!((fixture.engine.stats().errors, fixture.engine.len()), (1, 3));
    fixture.engine.removed(entry(1));
    let change = Change { deltas: Vec::new(), ..fixture.last_change() };
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(2)]);
}

/// Checks that another thread can apply a change to the engine.
fn an_engine_can_move_to_another_thread<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    while fixture.engine.run_maintenance() {}
    let change = fixture.last_change();
    let evicted = std::thread::spawn(move || fixture.evicted_entries(&change));
    assert_eq!(evicted.join().unwrap(), [entry(0), entry(1), entry(2)]);
}

/// Checks that an engine works on another thread and back on the first one.
fn an_engine_can_return_to_a_thread<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    while fixture.engine.run_maintenance() {}
    let moved = std::thread::spawn(move || {
        let change = fixture.new_rule();
        assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
        let traversal = fixture.traversal();
        assert_eq!(fixture.engine.installed(entry(3), &traversal), Installed::Recorded);
        fixture
    });
    let mut fixture = moved.join().unwrap();
    let change = fixture.last_change();
    assert_eq!(
        (fixture.evicted_entries(&change), fixture.engine.stats().errors),
        (vec![entry(3)], 0)
    );
}

/// Where an async runtime runs, another one can neither run nor be dropped.
fn step_works_in_an_async_task<E: InCircuit>() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let task = runtime.spawn(async {
        let mut fixture = FaultFixture::<E>::new(99);
        while fixture.engine.run_maintenance() {}
        let change = fixture.new_rule();
        assert!(fixture.engine.is_quick(&change.deltas), "the thread of the change applies it");
        assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
        assert_eq!(fixture.engine.stats().errors, 0);
        // The failed circuit is dropped in the task.
        a_failed_step_evicts_all_entries_and_recovers::<E>();
    });
    runtime.block_on(task).unwrap();
}

/// Checks that a fault of one engine evicts correctly and leaves others alone.
fn a_fault_does_not_affect_other_engines<E: InCircuit>() {
    let [mut fixture, mut other] = [(); 2].map(|()| FaultFixture::<E>::new(99));
    fixture.engine.fail_after(0);
    for (fixture, errors) in [(&mut fixture, 1), (&mut other, 0)] {
        let change = fixture.last_change();
        assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
        assert_eq!(fixture.engine.stats().errors, errors);
    }
}

/// Checks that a fault after the first step of a change evicts all entries.
fn a_fault_also_evicts_pending_evictions<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    fixture.engine.fail_after(1);
    let Change { version, deltas } = fixture.last_change();
    let change = Change { version, deltas: deltas.into_iter().rev().collect() };
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
    assert_eq!(fixture.engine.len(), 0);
}

/// Checks that a step that fails while entries are added loses no entry.
fn a_fault_while_entries_are_added_loses_none<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(99);
    fixture.engine.fail_after(0);
    let traversal = fixture.traversal();
    for slot in 3..300 {
        assert_eq!(fixture.engine.installed(entry(slot), &traversal), Installed::Recorded);
    }
    assert_eq!(fixture.engine.len(), 300);
    let change = fixture.last_change();
    assert_eq!(fixture.evicted_entries(&change), (0..300).map(entry).collect::<Vec<_>>());
    assert_eq!(fixture.engine.len(), 0);
}

/// Checks that a change with too many rules evicts all entries of their table.
fn a_too_large_change_evicts_pending_entries<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(0);
    let change = fixture.new_rule();
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
    assert_eq!((fixture.engine.stats().overflows, fixture.engine.stats().errors), (1, 0));
    let cause = Cause::Bound(generate::BRIDGES[0], TableId::FIRST);
    assert_eq!(fixture.engine.causes(), [CauseRun { cause, count: 3 }]);
}

/// Checks that evictions by an object name its delta, also beyond the bound.
fn beyond_the_bound_objects_keep_their_delta_number<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(0);
    // No entry visits table 1.
    let rule = fixture.rule("table=1,arp,actions=drop");
    let Change { version, deltas } = fixture.last_change();
    let deltas = rule.deltas.into_iter().chain(deltas).collect();
    let change = Change { version, deltas };
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
    let of_bridge = Object::Bridge(generate::BRIDGES[0]);
    let is_read = |delta: &Delta| matches!(delta, Delta::Changed(own) if *own == of_bridge);
    let cause = Cause::Delta(change.deltas.iter().position(is_read).unwrap());
    assert_eq!(fixture.engine.causes(), [CauseRun { cause, count: 3 }]);
    assert_eq!(fixture.engine.stats().overflows, 1);
}

/// Checks that beyond the bound of visits all entries of the table are evicted.
fn beyond_the_bound_only_objects_are_examined<E: InCircuit>() {
    let evict_with = |examined_max, is_bridge_changed| {
        // Because of this rule every lookup consults the Ethernet type, so that no entry covers
        // ARP.
        let checked =
            CheckedPipeline::with_rules(generate::BRIDGES[0], &["priority=1,ip,actions=drop"]);
        let set = |engine: E| engine.with_examined_max(examined_max);
        let mut fixture = FaultFixture::<E>::with(checked, 99, set);
        while fixture.engine.run_maintenance() {}
        // The fourth entry may still wait for a step.
        let traversal = fixture.traversal();
        assert_eq!(fixture.engine.installed(entry(3), &traversal), Installed::Recorded);
        let rules = ["priority=9,arp,actions=drop", "priority=8,arp,actions=drop"];
        let mut change = Change { version: Version::default(), deltas: Vec::new() };
        for next in rules.map(|rule| fixture.rule(rule)) {
            change.version = next.version;
            change.deltas.extend(next.deltas);
        }
        if is_bridge_changed {
            let Change { version, deltas } = fixture.last_change();
            change.version = version;
            let objects = deltas.into_iter().filter(|own| matches!(own, Delta::Changed(_)));
            change.deltas.extend(objects);
        }
        let evicted = fixture.evicted_entries(&change).len();
        assert_eq!(fixture.engine.stats().errors, 0);
        (evicted, fixture.engine.causes().to_vec(), fixture.engine.stats().overflows)
    };
    assert_eq!(evict_with(1000, false), (0, Vec::new(), 0), "no entry depends on the rules");
    let cause = Cause::Bound(generate::BRIDGES[0], TableId::FIRST);
    assert_eq!(evict_with(0, false), (4, vec![CauseRun { cause, count: 4 }], 1));
    let (evicted, _, overflows) = evict_with(0, true);
    assert_eq!((evicted, overflows), (4, 1));
    let (evicted, causes, overflows) = evict_with(1000, true);
    assert_eq!((evicted, overflows), (4, 0));
    assert!(causes.iter().all(|run| matches!(run.cause, Cause::Delta(_))), "{causes:?}");
}

/// Checks that a fault and a change with too many rules evict each entry once.
fn a_fault_before_a_large_change_evicts_every_entry<E: InCircuit>() {
    let mut fixture = FaultFixture::<E>::new(0);
    fixture.engine.fail_after(0);
    let change = fixture.new_rule();
    assert_eq!(fixture.evicted_entries(&change), [entry(0), entry(1), entry(2)]);
    assert_eq!(fixture.engine.len(), 0);
}

#[test]
fn a_visits_step_works_in_an_async_task() {
    step_works_in_an_async_task::<Visits>();
}

#[test]
fn an_install_of_visits_leaves_no_work() {
    let mut fixture = FaultFixture::<Visits>::new(99);
    let visits = fixture.engine.size().visits;
    assert!(visits >= 3, "each entry has at least one visit");
    assert!(!fixture.engine.run_maintenance());
    assert_eq!((fixture.engine.stats().steps, fixture.engine.size().visits), (3, visits));
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
    a_failed_step_evicts_all_entries_and_recovers,
    the_change_after_a_fault_evicts_lost_entries,
    a_fault_also_evicts_pending_evictions,
    a_fault_while_entries_are_added_loses_none,
    a_too_large_change_evicts_pending_entries,
    a_fault_before_a_large_change_evicts_every_entry,
    beyond_the_bound_only_objects_are_examined,
    beyond_the_bound_objects_keep_their_delta_number,
    a_fault_does_not_affect_other_engines,
    an_engine_can_move_to_another_thread,
    an_engine_can_return_to_a_thread
);
