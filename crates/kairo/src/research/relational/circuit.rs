//! The circuit of the relational engine, and the thread that steps it.

use std::sync::{Arc, Mutex};

use dbsp::{
    DBSPHandle, Error, IndexedZSetHandle, RootCircuit, Runtime,
    circuit::{CircuitConfig, StepSize},
};

use crate::research::lock::locked;

use super::relation::{LinkRelation, LinkRow, LinkStepRows};

/// The circuit of the relational engine, and its inputs.
pub(super) struct LinkCircuit {
    /// The handle of the thread that runs the circuit.
    handle: DBSPHandle,
    inputs: LinkInputs,
}

/// The inputs of the circuit.
struct LinkInputs {
    /// The visits, by the number of their group.
    visits: IndexedZSetHandle<u32, LinkRow>,
    /// The masks under which groups are projected, by the number of the group.
    projections: IndexedZSetHandle<u32, u32>,
    /// The visits by the keys of rules, and entries by the keys of objects.
    names: IndexedZSetHandle<u64, LinkRow>,
}

impl LinkCircuit {
    /// Builds a circuit that uses `relation`, in its own thread.
    pub(super) fn build(relation: &Arc<Mutex<LinkRelation>>) -> Result<Self, Error> {
        let config = CircuitConfig::with_workers(1).with_step_size(StepSize::FullSteps);
        let relation = Arc::clone(relation);
        let (handle, inputs) =
            Runtime::init_circuit(config, move |circuit| Ok(connect(circuit, &relation)))?;
        Ok(Self { handle, inputs })
    }

    /// Runs a step with these rows.
    pub(super) fn step(&mut self, rows: &mut LinkStepRows) -> Result<(), Error> {
        self.inputs.visits.append(&mut rows.visits);
        self.inputs.projections.append(&mut rows.projections);
        self.inputs.names.append(&mut rows.names);
        self.handle.transaction()
    }

    /// Makes the threads of dbsp merge the many batches of the traces into few.
    pub(super) fn merge(&mut self) -> Result<(), Error> {
        self.handle.start_compaction()
    }
}

/// Connects the inputs and the joins of the circuit.
fn connect(circuit: &mut RootCircuit, relation: &Arc<Mutex<LinkRelation>>) -> LinkInputs {
    let (visits, visits_input) = circuit.add_input_indexed_zset::<u32, LinkRow>();
    let (projections, projections_input) = circuit.add_input_indexed_zset::<u32, u32>();
    let (names, names_input) = circuit.add_input_indexed_zset::<u64, LinkRow>();
    let [joined, visited, linked] = [(); 3].map(|()| Arc::clone(relation));
    let fingerprints = visits.join_index(&projections, move |group, row, mask| {
        Some((locked(&joined).fingerprint_of_visit((*group, *mask), row), *row))
    });
    // The join with the projections needs this trace as well.
    visits.accumulate_integrate_trace().apply(move |trace| {
        locked(&visited).traces.visits = Some(trace.ro_snapshot());
    });
    fingerprints.plus(&names).accumulate_integrate_trace().apply(move |trace| {
        let mut relation = locked(&linked);
        #[cfg(any(test, feature = "testing"))]
        relation.fault.pass_point();
        relation.traces.links = Some(trace.ro_snapshot());
    });
    LinkInputs { visits: visits_input, projections: projections_input, names: names_input }
}
