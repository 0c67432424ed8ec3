//! The circuit of the visits engines of a thread, and its steps.
//!
//! A circuit cannot move between threads, but an engine can. So each thread builds one circuit when
//! it first steps an engine, and uses this circuit for all its engines. The circuit has no data of
//! its own: the state of its operator is the [`VisitRelation`], which moves with the engine. A step
//! borrows the relation of its engine. No operator of this circuit keeps traces, so it needs no
//! runtime and no threads of dbsp.
//!
//! # Operators
//!
//! The circuit has two operators: a source of the rows of the step, and the join. Between two
//! changes, other code replaces the circuit in the caches of the processor. A step then waits for
//! the memory of each operator, stream and Z-set that it uses. With a source for each Z-set and an
//! operator for the output, a step took three times as long.
//!
//! # Steps without a scheduler
//!
//! The scheduler of dbsp spawns an async task for each operator, and reads the CPU clock of the
//! thread before and after each. Both cost more than the operators. A step here evaluates each
//! operator in the calling thread, in the order in which the operators were added. Each operator
//! reads only streams of earlier ones, because the circuit has no feedback. No operator waits, so
//! one poll completes each operator. No operator has work at the start or the end of a transaction,
//! so a step does not announce them.
//!
//! The step enters no async runtime either, so the engine may be called inside another one.

use std::{
    cell::RefCell,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use dbsp::{
    Circuit, CircuitBase, CircuitHandle, Error, RootCircuit, circuit::NodeId, operator::Generator,
};

use super::{error::StepError, relation::VisitRelation};

/// The relation of the current step.
/// Between steps the input is an empty relation.
type StepRelation = Rc<RefCell<Box<VisitRelation>>>;

/// A circuit, which joins the visits of a relation with changes.
struct VisitCircuit {
    circuit: RootCircuit,
    /// The operators, each after the operators of its inputs.
    operators: Vec<NodeId>,
    /// The relation of the current step; empty between steps.
    relation: StepRelation,
    /// The owner of the operators.
    _handle: CircuitHandle,
}

/// The circuit that a thread builds in its first step, and then keeps.
struct ThreadCircuit(Option<Box<VisitCircuit>>);

thread_local! {
    /// The circuit of this thread; absent until its first step.
    static CIRCUIT: RefCell<ThreadCircuit> = const { RefCell::new(ThreadCircuit(None)) };
}

/// Runs a step with the rows of the relation, in the circuit of this thread.
///
/// # Errors
///
/// If the step failed. The relation must not be used then, and the thread has no circuit.
pub(super) fn step(relation: &mut Box<VisitRelation>) -> Result<(), StepError> {
    CIRCUIT.with_borrow_mut(|own| own.step(relation))
}

impl ThreadCircuit {
    /// Runs one step of the circuit.
    fn step(&mut self, relation: &mut Box<VisitRelation>) -> Result<(), StepError> {
        // A failed circuit is dropped while the panic unwinds. dbsp and its async runtime then skip
        // the parts of the drop that could panic again.
        let circuit = self.0.take();
        let stepped = catch_unwind(AssertUnwindSafe(move || {
            let circuit = match circuit {
                Some(circuit) => circuit,
                None => Box::new(VisitCircuit::build()?),
            };
            circuit.step(relation)?;
            Ok(circuit)
        }));
        let circuit = stepped.map_err(|payload| StepError::panicked(&*payload)).flatten()?;
        self.0 = Some(circuit);
        Ok(())
    }
}

impl Drop for ThreadCircuit {
    /// Drops the circuit at the end of the thread.
    ///
    /// Other thread-local data may be dropped before, so a panic is possible here.
    fn drop(&mut self) {
        let circuit = self.0.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(circuit)));
    }
}

impl VisitCircuit {
    /// Builds the dbsp circuit of the engine.
    fn build() -> Result<Self, Error> {
        let relation = StepRelation::new(RefCell::new(Box::new(VisitRelation::new(0))));
        let (source, joined) = (Rc::clone(&relation), Rc::clone(&relation));
        let (handle, circuit) = RootCircuit::build(move |circuit| {
            let next_rows = move || mem::take(&mut source.borrow_mut().rows);
            let rows = circuit.add_source(Generator::new(next_rows));
            rows.apply_mut_owned(move |rows| joined.borrow_mut().join(rows));
            Ok(circuit.clone())
        })?;
        let operators = circuit.node_ids();
        Ok(Self { circuit, operators, relation, _handle: handle })
    }

    /// Runs a step with the rows of `relation`.
    fn step(&self, relation: &mut Box<VisitRelation>) -> Result<(), StepError> {
        mem::swap(relation, &mut *self.relation.borrow_mut());
        let stepped = catch_unwind(AssertUnwindSafe(|| self.evaluate()));
        mem::swap(relation, &mut *self.relation.borrow_mut());
        match stepped {
            Ok(evaluated) => evaluated,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Evaluates each operator of the circuit once.
    fn evaluate(&self) -> Result<(), StepError> {
        let mut context = Context::from_waker(Waker::noop());
        for operator in &self.operators {
            let evaluated = self
                .circuit
                .map_local_node_mut(*operator, &mut |node| node.eval().as_mut().poll(&mut context));
            match evaluated {
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return Err(StepError::Incomplete),
                Poll::Ready(Err(error)) => return Err(Error::Scheduler(error).into()),
            }
        }
        self.circuit.tick();
        Ok(())
    }
}
