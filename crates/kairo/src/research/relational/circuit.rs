//! The circuit, and the thread that steps it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dbsp::{
    DBSPHandle, Error, IndexedZSetHandle, RootCircuit, Runtime,
    circuit::{CircuitConfig, StepSize},
};

use super::relation::{LinkRow, Relation, Rows};

/// A circuit and its inputs.
pub(super) struct Circuit {
    handle: DBSPHandle,
    inputs: Inputs,
}

struct Inputs {
    visits: IndexedZSetHandle<u32, LinkRow>,
    projections: IndexedZSetHandle<u32, u32>,
    names: IndexedZSetHandle<u64, LinkRow>,
}

impl Circuit {
    /// A circuit over what its rows refer to, in a thread of its own.
    pub(super) fn build(relation: &Arc<Mutex<Relation>>) -> Result<Self, Error> {
        let config = CircuitConfig::with_workers(1).with_step_size(StepSize::FullSteps);
        let relation = Arc::clone(relation);
        let (handle, inputs) =
            Runtime::init_circuit(config, move |circuit| Ok(connect(circuit, &relation)))?;
        Ok(Self { handle, inputs })
    }

    /// Makes a step with these rows.
    pub(super) fn step(&mut self, rows: &mut Rows) -> Result<(), Error> {
        self.inputs.visits.append(&mut rows.visits);
        self.inputs.projections.append(&mut rows.projections);
        self.inputs.names.append(&mut rows.names);
        self.handle.transaction()
    }

    /// Has what lies in many batches merged into few, by other threads.
    pub(super) fn merge(&mut self) -> Result<(), Error> {
        self.handle.start_compaction()
    }
}

/// The relation, also after a panic of who held it: a step that failed is the end of it.
pub(super) fn locked(relation: &Mutex<Relation>) -> MutexGuard<'_, Relation> {
    relation.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(circuit: &mut RootCircuit, relation: &Arc<Mutex<Relation>>) -> Inputs {
    let (visits, visits_input) = circuit.add_input_indexed_zset::<u32, LinkRow>();
    let (projections, projections_input) = circuit.add_input_indexed_zset::<u32, u32>();
    let (names, names_input) = circuit.add_input_indexed_zset::<u64, LinkRow>();
    let [joined, visited, linked] = [(); 3].map(|()| Arc::clone(relation));
    let prints = visits.join_index(&projections, move |group, row, mask| {
        Some((locked(&joined).print_of_visit((*group, *mask), row), *row))
    });
    // The join has this trace as well.
    visits.accumulate_integrate_trace().apply(move |trace| {
        locked(&visited).traces.visits = Some(trace.ro_snapshot());
    });
    prints.plus(&names).accumulate_integrate_trace().apply(move |trace| {
        let mut relation = locked(&linked);
        #[cfg(any(test, feature = "testing"))]
        relation.fault.come_nearer();
        relation.traces.links = Some(trace.ro_snapshot());
    });
    Inputs { visits: visits_input, projections: projections_input, names: names_input }
}
