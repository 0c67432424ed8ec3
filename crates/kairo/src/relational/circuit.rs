//! The circuit, and the thread that steps it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dbsp::{
    BatchReader, DBSPHandle, DynZWeight, Error, IndexedZSetHandle, IndexedZSetReader,
    OrdIndexedZSet, OrdZSet, RootCircuit, Runtime, Stream, ZWeight,
    circuit::{CircuitConfig, StepSize},
    dynamic::{DowncastTrait, DynData},
    trace::{BatchReader as _, Cursor},
    typed_batch::Spine,
    utils::{Tup2, Tup3, Tup4},
};

use super::relation::{FoundRow, LinkRow, QuestionRow, Relation, Rows};

type Links = OrdIndexedZSet<u64, LinkRow>;
type Questions = OrdIndexedZSet<u64, QuestionRow>;

/// A circuit and its inputs.
pub(super) struct Circuit {
    handle: DBSPHandle,
    inputs: Inputs,
}

struct Inputs {
    visits: IndexedZSetHandle<u32, LinkRow>,
    projections: IndexedZSetHandle<u32, u32>,
    names: IndexedZSetHandle<u64, LinkRow>,
    questions: IndexedZSetHandle<u64, QuestionRow>,
}

impl Circuit {
    /// A circuit over what its rows refer to, in a thread of its own.
    pub(super) fn build(relation: &Arc<Mutex<Relation>>) -> Result<Self, Error> {
        let config = CircuitConfig::with_workers(1).with_step_size(StepSize::FullSteps);
        let relation = Arc::clone(relation);
        let (handle, inputs) =
            Runtime::init_circuit(config, move |circuit| Ok(connect(circuit, &relation)))?;
        // A cursor passes over what is gone at the beginning of a trace, each time it is opened: so
        // something that stays is first there.
        inputs.names.push(0, (LinkRow::default(), 1));
        Ok(Self { handle, inputs })
    }

    /// Makes a step with these rows.
    pub(super) fn step(&mut self, rows: &mut Rows) -> Result<(), Error> {
        self.inputs.visits.append(&mut rows.visits);
        self.inputs.projections.append(&mut rows.projections);
        self.inputs.names.append(&mut rows.names);
        self.inputs.questions.append(&mut rows.questions);
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
    let (questions, questions_input) = circuit.add_input_indexed_zset::<u64, QuestionRow>();
    let (joined, output) = (Arc::clone(relation), Arc::clone(relation));
    let prints = visits.join_index(&projections, move |group, row, mask| {
        Some((locked(&joined).print_of_visit((*group, *mask), row), *row))
    });
    let links = prints.plus(&names).accumulate_integrate_trace();
    half_join(&questions, &links).inspect(move |found: &OrdZSet<FoundRow>| {
        let mut relation = locked(&output);
        #[cfg(test)]
        relation.fault.come_nearer();
        relation.found.extend(found.iter().map(|(row, (), _)| row));
    });
    Inputs {
        visits: visits_input,
        projections: projections_input,
        names: names_input,
        questions: questions_input,
    }
}

/// Joins questions, which are forgotten, with all links.
fn half_join(
    questions: &Stream<RootCircuit, Questions>,
    links: &Stream<RootCircuit, Spine<Links>>,
) -> Stream<RootCircuit, OrdZSet<FoundRow>> {
    questions.apply2(links, |questions, links| {
        let mut found = Vec::new();
        let questions = BatchReader::inner(questions);
        // A cursor over the trace has its price.
        if questions.len() > 0 {
            answer(questions.cursor(), BatchReader::inner(links).cursor(), &mut found);
        }
        OrdZSet::from_keys((), found)
    })
}

/// Finds what each question's print or name leads to, as far as the question outranks it.
fn answer(
    mut questions: impl Cursor<DynData, DynData, (), DynZWeight>,
    mut links: impl Cursor<DynData, DynData, (), DynZWeight>,
    found: &mut Vec<Tup2<FoundRow, ZWeight>>,
) {
    let mut asked: Vec<QuestionRow> = Vec::new();
    while questions.key_valid() {
        links.seek_key(questions.key());
        if !links.key_valid() {
            return;
        }
        if links.key() == questions.key() {
            asked.clear();
            while questions.val_valid() {
                asked.push(*questions.val().downcast_checked());
                questions.step_val();
            }
            while links.val_valid() {
                let Tup4(priority, lateness, slot, _) = links.val().downcast_checked::<LinkRow>();
                // Both are in the order of their ranks.
                let asking = asked.iter().rev();
                let asking =
                    asking.take_while(|Tup3(own, late, _)| (own, late) > (priority, lateness));
                let before = found.len();
                found.extend(asking.map(|Tup3(_, _, place)| Tup2(Tup2(*place, *slot), 1)));
                if found.len() == before {
                    break;
                }
                links.step_val();
            }
        }
        questions.step_key();
    }
}
