//! The engine: what it pushes into the circuit, what it asks of it, and what it does when that fails.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use dbsp::Error;
use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

use super::{
    circuit::{Circuit, locked},
    questions::Found,
    relation::{Relation, Rows},
    search::Asked,
};
use crate::{
    bound::{Bound, DELTAS_MAX, LOOKS_MAX, Left},
    deltas::{note_cause, removed_rules},
    research::CircuitStats,
};

/// Watches entries by a circuit of dbsp's own operators. A change costs what it touches.
///
/// Entries that were translated at the version of a change or later know of it, and stay.
pub struct Relational {
    version: Version,
    seed: u64,
    circuit: Option<Circuit>,
    relation: Arc<Mutex<Relation>>,
    /// What the next step is given.
    rows: Rows,
    /// Slots of the entries whose rows are among these.
    waiting: Vec<u32>,
    /// Entries whose rows came or went since the traces were last told to merge.
    churned: usize,
    /// Entries that nothing watches since a circuit failed: the next change evicts them.
    lost: BTreeSet<EntryId>,
    bound: Bound,
    looks_max: usize,
    few: usize,
    /// Why the entries of the last change went.
    causes: Vec<CauseRun>,
    stats: CircuitStats,
}

/// Entries that are taken in with one step, unless a change comes before that has many rules.
const INSTALLS_AT_ONCE: usize = 128;

/// Entries that are taken out with one step of tidying.
const TIDIED_AT_ONCE: usize = 256;

/// Rows of a group that a rule looks at before it asks for its print.
const FEW: usize = 16;

/// Entries that wait for a step are looked at one by one for so many of these.
const WAITING_PER_FEW: usize = 32;

/// Traces are told to merge once this part of the entries came or went, and so many: a question looks
/// into every batch that was not merged.
const CHURN: usize = 4;
const CHURNED_MIN: usize = 1024;

/// Entries that are gone and still wait to be taken out, beyond which every step takes some out.
const LEAVING_MAX: usize = 4096;

impl Relational {
    /// An engine without entries, at a version. The seed goes into every hash.
    #[must_use]
    pub fn new(version: Version, seed: u64) -> Self {
        Self {
            version,
            seed,
            circuit: None,
            relation: Arc::new(Mutex::new(Relation::new(seed))),
            rows: Rows::default(),
            waiting: Vec::new(),
            churned: 0,
            lost: BTreeSet::new(),
            bound: Bound::new(DELTAS_MAX),
            looks_max: LOOKS_MAX,
            few: FEW,
            causes: Vec::new(),
            stats: CircuitStats::default(),
        }
    }

    /// The same, which evicts all entries of the tables that a change of more rules than this
    /// touches.
    #[must_use]
    pub fn with_deltas_max(mut self, deltas_max: usize) -> Self {
        self.bound = Bound::new(deltas_max);
        self
    }

    /// The same, which looks for the rules of one change among so many visits, about: beyond that it
    /// evicts all entries of the tables of these rules.
    #[must_use]
    pub const fn with_looks_max(mut self, looks_max: usize) -> Self {
        self.looks_max = looks_max;
        self
    }

    /// The same, where a rule looks at so many visits of a group one by one before it asks for its
    /// print; without any, it asks for nothing else.
    #[must_use]
    pub const fn with_few(mut self, few: usize) -> Self {
        self.few = few;
        self
    }

    /// What has happened to it.
    #[must_use]
    pub const fn stats(&self) -> CircuitStats {
        CircuitStats { overflows: self.bound.overflows(), ..self.stats }
    }

    /// Makes a step with the rows that wait, and the retractions of at most so many entries that
    /// are not watched any more. Answers whether it was made.
    fn step(&mut self, leaving_max: usize) -> bool {
        let leaving = self.retract(leaving_max);
        self.churned += self.waiting.len() + leaving.len();
        self.waiting.clear();
        self.stats.steps += 1;
        match self.step_circuit() {
            Ok(()) => {
                let mut relation = locked(&self.relation);
                leaving.into_iter().for_each(|slot| drop(relation.entries.release(slot)));
                true
            }
            Err(reason) => {
                self.fail(&reason);
                false
            }
        }
    }

    /// Makes a step of the circuit, which is built if there is none; says why it fails.
    fn step_circuit(&mut self) -> Result<(), String> {
        let Self { circuit, relation, rows, .. } = self;
        let circuit = match circuit {
            Some(circuit) => circuit,
            None => circuit.insert(told(unless_it_fails(|| Circuit::build(relation)))?),
        };
        told(unless_it_fails(|| circuit.step(rows)))
    }

    /// Ends the circuit in a thread of its own: there is a runtime of tokio in it, which may not end where
    /// another one runs, and what has failed may fail once more.
    fn end_circuit(&mut self) {
        if let Some(circuit) = self.circuit.take() {
            let end = thread::Builder::new().name("kairo-end".to_owned());
            let _ = end.spawn(move || drop(circuit)).map(thread::JoinHandle::join);
        }
    }

    /// Has the traces merged aside, if enough has come and gone.
    fn merge(&mut self) {
        let due = (locked(&self.relation).entries.len() / CHURN).max(CHURNED_MIN);
        let Some(circuit) = &mut self.circuit else { return };
        if self.churned < due {
            return;
        }
        self.churned = 0;
        // What is merged would be kept beside what comes of it.
        locked(&self.relation).traces = Default::default();
        if let Err(reason) = told(unless_it_fails(|| circuit.merge())) {
            self.fail(&reason);
        }
    }

    /// Pushes what takes out entries that are not watched any more. Answers with their slots.
    fn retract(&mut self, leaving_max: usize) -> Vec<u32> {
        let mut relation = locked(&self.relation);
        let next = || relation.entries.next_dead();
        let slots: Vec<u32> = std::iter::from_fn(next).take(leaving_max).collect();
        slots.iter().for_each(|slot| relation.push_entry(*slot, -1, &mut self.rows));
        slots
    }

    /// After something that failed: nothing is watched any more, and all that was watched is lost.
    fn fail(&mut self, reason: &str) {
        self.stats.errors += 1;
        tracing::warn!(reason, "a circuit failed: all entries are evicted");
        self.lost.extend(locked(&self.relation).entries.all().map(|(id, _)| id));
        self.end_circuit();
        self.relation = Arc::new(Mutex::new(Relation::new(self.seed)));
        self.rows = Rows::default();
        self.waiting.clear();
    }

    #[cfg(test)]
    pub(crate) fn relation(&self) -> std::sync::MutexGuard<'_, Relation> {
        locked(&self.relation)
    }

    /// Finds what deltas may end: nothing if that fails, and `None` if it is more than `looks_max`.
    fn find(&mut self, asked: &Asked<'_>, looks_max: usize) -> Option<Vec<Found>> {
        if asked.deltas.is_empty() {
            return Some(Vec::new());
        }
        let is_many = self.waiting.len() * asked.deltas.len() > self.few * WAITING_PER_FEW;
        let is_absent = self.circuit.is_some() && locked(&self.relation).traces.are_absent();
        if (is_many || is_absent) && !self.step(0) {
            return Some(Vec::new());
        }
        let mut found = Vec::new();
        let Self { relation, rows, waiting, .. } = self;
        let questions = unless_it_fails(|| {
            let mut relation = locked(relation);
            relation.look_at(waiting, asked, &mut found);
            relation.questions(asked, rows, &mut found)
        });
        let is_projected = !self.rows.projections.is_empty();
        if questions.is_some() && is_projected && !self.step(0) {
            return Some(Vec::new());
        }
        let relation = &self.relation;
        let answered = questions.and_then(|questions| {
            unless_it_fails(|| locked(relation).answer(&questions, looks_max, &mut found))
        });
        match answered {
            Some(true) => {}
            Some(false) => return None,
            None => {
                self.fail("a question was not answered");
                return Some(Vec::new());
            }
        }
        // In the order of the deltas, so that their causes are.
        if asked.deltas.len() > 1 {
            found.sort_by_key(|found| found.place);
        }
        Some(found)
    }
}

/// What comes of `run`, unless it panics: what it asks is written by others.
fn unless_it_fails<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// What came of something that may fail, or why it did.
fn told<T>(made: Option<Result<T, Error>>) -> Result<T, String> {
    match made {
        Some(made) => made.map_err(|error| error.to_string()),
        None => Err("it panicked".to_owned()),
    }
}

impl Drop for Relational {
    fn drop(&mut self) {
        self.end_circuit();
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::testing::Fail for Relational {
    fn fail_in(&mut self, places: usize) {
        locked(&self.relation).fault.fail_in(places);
    }
}

impl Evictor for Relational {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.removed(entry);
        let (slot, leaving) = {
            let mut relation = locked(&self.relation);
            let slot = relation.insert(entry, traversal, &mut self.rows);
            (slot, relation.entries.dead_count())
        };
        self.waiting.push(slot);
        if self.waiting.len() >= INSTALLS_AT_ONCE {
            self.step(if leaving > LEAVING_MAX { 2 * INSTALLS_AT_ONCE } else { 0 });
        }
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.lost.remove(&entry);
        let mut relation = locked(&self.relation);
        if let Some(slot) = relation.entries.slot(entry) {
            relation.entries.end(slot);
        }
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        self.causes.clear();
        let mut visitors = Vec::new();
        let mut end_visitors = |relation: &Mutex<Relation>, table| {
            let own = locked(relation).visitors(table);
            visitors.extend(own.into_iter().map(|slot| (table, slot)));
        };
        let relation = Arc::clone(&self.relation);
        let mut left = self.bound.flush(deltas, |table| end_visitors(&relation, table));
        let brief = removed_rules(&left.deltas);
        let few = self.few;
        let asked = Asked { deltas: &left.deltas, version, brief: &brief, few };
        let looks_max = if left.has_rules() { self.looks_max } else { usize::MAX };
        let found = self.find(&asked, looks_max);
        let found = found.unwrap_or_else(|| {
            self.bound.flush_tables(deltas, |table| end_visitors(&relation, table));
            left = Left::without_rules(deltas);
            let asked = Asked { deltas: &left.deltas, version, brief: &brief, few };
            self.find(&asked, usize::MAX).unwrap_or_default()
        });
        let asked = Asked { deltas: &left.deltas, version, brief: &brief, few };
        let mut evicted: Vec<EntryId> = std::mem::take(&mut self.lost).into_iter().collect();
        note_cause(&mut self.causes, Cause::Fault, evicted.len());
        let relation = &mut *locked(&self.relation);
        for ((bridge, table), slot) in visitors {
            let ended = relation.entries.end(slot);
            note_cause(&mut self.causes, Cause::Bound(bridge, table), usize::from(ended.is_some()));
            evicted.extend(ended);
        }
        for (place, slot) in relation.ended(&found, &asked) {
            if let Some(ended) = relation.entries.end(slot) {
                evicted.push(ended);
                note_cause(&mut self.causes, left.cause(place as usize), 1);
            }
        }
        evicted
    }

    fn causes(&self) -> &[CauseRun] {
        &self.causes
    }

    fn forget(&mut self, owner: OwnerId) {
        self.lost.retain(|entry| entry.owner != owner);
        let entries = &mut locked(&self.relation).entries;
        for slot in entries.of_owner(owner) {
            entries.end(slot);
        }
    }

    fn tidy(&mut self) -> bool {
        let is_untidy =
            |own: &Self| !own.waiting.is_empty() || locked(&own.relation).entries.dead_count() > 0;
        if is_untidy(self) {
            self.step(TIDIED_AT_ONCE);
            if is_untidy(self) {
                return true;
            }
        }
        let is_lacking = locked(&self.relation).is_lacking();
        if is_lacking {
            locked(&self.relation).push_lacking(&mut self.rows);
            self.step(0);
            return true;
        }
        self.merge();
        false
    }

    fn state(&self) -> EngineState {
        let (relations, bytes) = {
            let relation = locked(&self.relation);
            (relation.sizes(), relation.bytes())
        };
        EngineState {
            name: "relational",
            relations,
            bytes: Some(bytes),
            overflows: self.bound.overflows(),
            faults: self.stats.errors,
        }
    }

    fn len(&self) -> usize {
        locked(&self.relation).entries.len() + self.lost.len()
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FlowKey;
    use shunt_pipeline::testing::{Twin, generate};

    use super::*;

    #[test]
    fn traces_are_merged_after_a_load_and_still_find_every_entry() {
        let twin = Twin::new(&[]);
        let mut engine = Relational::new(twin.pipeline.version(), 1);
        let mut key = FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        let traversal = Arc::new(twin.translate(&key));
        let entry = |slot| EntryId { owner: OwnerId(0), slot, generation: 0 };
        let count = u32::try_from(2 * CHURNED_MIN).unwrap();
        for slot in 0..count {
            assert_eq!(engine.installed(entry(slot), &traversal), Installed::Recorded);
        }
        assert!(engine.churned >= CHURNED_MIN, "{}", engine.churned);
        while engine.tidy() {}
        assert_eq!((engine.churned, engine.stats().errors), (0, 0), "it was told to merge");
        // A change does not wait for the merge to end.
        let change = twin.pipeline.remove_bridge(generate::BRIDGES[0]);
        let mut evicted = engine.apply(&change.deltas, change.version);
        evicted.sort_unstable();
        assert_eq!(evicted, (0..count).map(entry).collect::<Vec<_>>());
        assert_eq!(engine.stats().errors, 0);
    }

    #[test]
    fn what_is_said_of_its_memory_is_what_dbsp_says_of_its_batches_about() {
        let twin = Twin::new(&[]);
        let mut engine = Relational::new(twin.pipeline.version(), 1);
        let mut key = FlowKey::ZERO;
        key.set_bridge(generate::BRIDGES[0].number().into());
        let traversal = Arc::new(twin.translate(&key));
        for slot in 0..1000 {
            engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, &traversal);
        }
        while engine.tidy() {}
        let relation = engine.relation();
        let (said, own) = (relation.bytes(), relation.entries.bytes());
        let batches = relation.traces.bytes();
        assert!(
            batches > 0 && (batches..2 * batches).contains(&(said - own)),
            "{said} {own} {batches}"
        );
    }
}
