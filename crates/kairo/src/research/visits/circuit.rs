//! The circuit of a visits engine, which the thread that steps it keeps.
//!
//! A circuit cannot move between threads, but an engine can. Each thread keeps the circuits that it
//! has stepped, by number. An engine that moves to another thread builds a new circuit there. The
//! new circuit needs no data of the old one, because the state of its operator is the
//! [`VisitRelation`], which moves with the engine. No operator of this circuit keeps traces, so it
//! needs no runtime and no threads of dbsp.

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use dbsp::{
    CircuitHandle, Error, IndexedZSetReader, OrdZSet, RootCircuit, ZSetHandle, utils::Tup2,
};

use crate::research::lock::locked;

use super::{
    error::StepError,
    relation::{ChangedRuleRow, EvictedRange, ObjectRow, VisitRelation, VisitRow, VisitStepRows},
};

/// The circuit of a visits engine, and its inputs.
struct VisitCircuit {
    handle: CircuitHandle,
    visits: ZSetHandle<VisitRow>,
    rules: ZSetHandle<ChangedRuleRow>,
    objects: ZSetHandle<ObjectRow>,
}

/// The number of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CircuitNo(u64);

thread_local! {
    /// The circuits of this thread.
    ///
    /// The circuits are not dropped at the end of the thread, because other thread-local data may
    /// be dropped before them.
    static CIRCUITS: RefCell<Vec<(CircuitNo, ManuallyDrop<VisitCircuit>)>> = const { RefCell::new(Vec::new()) };
}

impl CircuitNo {
    /// Returns a number that no other circuit of the process has.
    pub(super) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs a step with these rows in the circuit that this thread has for the number.
    pub(super) fn step(
        self,
        relation: &Arc<Mutex<VisitRelation>>,
        rows: &mut VisitStepRows,
    ) -> Result<(), StepError> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            CIRCUITS.with_borrow_mut(|all| {
                let own = all.iter().position(|(number, _)| *number == self);
                let own = match own {
                    Some(own) => own,
                    None => {
                        all.push((self, ManuallyDrop::new(VisitCircuit::build(relation)?)));
                        all.len() - 1
                    }
                };
                all[own].1.step(rows)
            })
        }));
        Ok(made.map_err(|payload| StepError::panicked(&*payload))??)
    }

    /// Drops the circuit that this thread has for the number.
    pub(super) fn drop_here(self) {
        let taken = CIRCUITS.try_with(|all| {
            let mut all = all.try_borrow_mut().ok()?;
            let own = all.iter().position(|(number, _)| *number == self)?;
            Some(all.swap_remove(own).1)
        });
        if let Ok(Some(circuit)) = taken {
            // A failed circuit may panic again when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ManuallyDrop::into_inner(circuit))));
        }
    }
}

impl VisitCircuit {
    fn build(relation: &Arc<Mutex<VisitRelation>>) -> Result<Self, Error> {
        let (joined, output) = (Arc::clone(relation), Arc::clone(relation));
        let (handle, (visits, rules, objects)) = RootCircuit::build(move |circuit| {
            let (visits, visits_input) = circuit.add_input_zset::<VisitRow>();
            let (rules, rules_input) = circuit.add_input_zset::<ChangedRuleRow>();
            let (objects, objects_input) = circuit.add_input_zset::<ObjectRow>();
            let evictions = visits.apply3(&rules, &objects, move |visits, rules, objects| {
                let mut relation = locked(&joined);
                let evictions = relation.join(&visits, &rules, &objects);
                OrdZSet::from_keys((), evictions.map(|row| Tup2(row, 1)).into_iter().collect())
            });
            evictions.inspect(move |rows: &OrdZSet<EvictedRange>| {
                let mut relation = locked(&output);
                relation.output.extend(rows.iter().map(|(row, (), _)| row));
            });
            Ok((visits_input, rules_input, objects_input))
        })?;
        Ok(Self { handle, visits, rules, objects })
    }

    fn step(&self, rows: &mut VisitStepRows) -> Result<(), Error> {
        self.visits.append(&mut rows.visits);
        self.rules.append(&mut rows.rules);
        self.objects.append(&mut rows.objects);
        self.handle.transaction()
    }
}
