//! The engine: what it pushes into the circuit, and what it does when that fails.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use shunt_pipeline::{
    Cause, CauseRun, Delta, EngineState, EntryId, Evictor, Installed, OwnerId, RuleChange,
    RuleDelta, Traversal, Version,
};

use super::{
    circuit::{Circuit, locked},
    relation::{FoundRow, Relation, Rows},
};
use crate::{
    bound::{Bound, DELTAS_MAX},
    circuits::CircuitStats,
    deltas::{note_cause, removed_rules},
    entries::Held,
    region::{is_decided, is_taken_over},
};

/// Watches entries by a circuit of dbsp's own operators. A change costs what it touches, and a step
/// of the circuit or two.
///
/// Entries that were translated at the version of a change or later know of it, and stay.
pub struct Relational {
    version: Version,
    seed: u64,
    circuit: Option<Circuit>,
    relation: Arc<Mutex<Relation>>,
    /// What the next step is given.
    rows: Rows,
    /// Entries whose rows are among these.
    installs: usize,
    /// Entries whose rows came or went since the traces were last told to merge.
    churned: usize,
    /// Entries that nothing watches since a circuit failed: the next change evicts them.
    lost: BTreeSet<EntryId>,
    bound: Bound,
    /// Why the entries of the last change went.
    causes: Vec<CauseRun>,
    stats: CircuitStats,
}

/// Entries that are taken in with one step, unless a change comes before.
const INSTALLS_AT_ONCE: usize = 128;

/// Entries that are taken out with one step of tidying.
const TIDIED_AT_ONCE: usize = 256;

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
            installs: 0,
            churned: 0,
            lost: BTreeSet::new(),
            bound: Bound::new(DELTAS_MAX),
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

    /// What has happened to it.
    #[must_use]
    pub const fn stats(&self) -> CircuitStats {
        CircuitStats { overflows: self.bound.overflows(), ..self.stats }
    }

    /// Makes a step with the rows that wait, and the retractions of at most so many entries that
    /// are not watched any more.
    fn step(&mut self, leaving_max: usize) {
        let leaving = self.retract(leaving_max);
        self.churned += self.installs + leaving.len();
        self.installs = 0;
        self.stats.steps += 1;
        let circuit = self.circuit.take().map_or_else(|| Circuit::build(&self.relation), Ok);
        let made = circuit.and_then(|mut circuit| {
            circuit.step(&mut self.rows)?;
            Ok(circuit)
        });
        match made {
            Ok(circuit) => {
                self.circuit = Some(circuit);
                let mut relation = locked(&self.relation);
                leaving.into_iter().for_each(|slot| drop(relation.entries.release(slot)));
            }
            Err(error) => self.fail(&error.to_string()),
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
        if let Err(error) = circuit.merge() {
            self.circuit = None;
            self.fail(&error.to_string());
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

    /// After a step that failed: nothing is watched any more, and all that was watched is lost.
    fn fail(&mut self, reason: &str) {
        self.stats.errors += 1;
        tracing::warn!(reason, "a circuit failed: all entries are evicted");
        self.lost.extend(locked(&self.relation).entries.all().map(|(id, _)| id));
        self.relation = Arc::new(Mutex::new(Relation::new(self.seed)));
        self.rows = Rows::default();
    }

    #[cfg(test)]
    pub(crate) fn relation(&self) -> std::sync::MutexGuard<'_, Relation> {
        locked(&self.relation)
    }

    /// Asks what deltas may end.
    fn ask(&mut self, deltas: &[Delta]) -> Vec<FoundRow> {
        let removed = removed_rules(deltas);
        for delta in deltas.iter().zip(0..) {
            let is_brief = |rule| removed.contains(&rule);
            locked(&self.relation).push_questions(delta, is_brief, &mut self.rows);
        }
        if self.rows.questions.is_empty() {
            return Vec::new();
        }
        if self.rows.change_links() {
            let questions = std::mem::take(&mut self.rows.questions);
            self.step(0);
            if self.circuit.is_none() {
                return Vec::new();
            }
            self.rows.questions = questions;
        }
        self.step(0);
        std::mem::take(&mut locked(&self.relation).found)
    }
}

impl Evictor for Relational {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.removed(entry);
        let leaving = {
            let mut relation = locked(&self.relation);
            let groups = relation.groups_for(traversal);
            let slot = relation.entries.reserve();
            relation.entries.put(slot, Held::new(entry, traversal, groups));
            relation.push_entry(slot, 1, &mut self.rows);
            relation.entries.dead_count()
        };
        self.installs += 1;
        if self.installs >= INSTALLS_AT_ONCE {
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
        self.version = version;
        self.causes.clear();
        let is_passed = self.bound.is_passed_by(deltas);
        let mut visitors = Vec::new();
        let end_visitors = |table| {
            let own = locked(&self.relation).visitors(table);
            visitors.extend(own.into_iter().map(|slot| (table, slot)));
        };
        let left = self.bound.flush(deltas, end_visitors);
        let found = self.ask(&left);
        let mut evicted: Vec<EntryId> = std::mem::take(&mut self.lost).into_iter().collect();
        note_cause(&mut self.causes, Cause::Fault, evicted.len());
        let entries = &mut locked(&self.relation).entries;
        for ((bridge, table), slot) in visitors {
            let ended = entries.end(slot);
            note_cause(&mut self.causes, Cause::Bound(bridge, table), usize::from(ended.is_some()));
            evicted.extend(ended);
        }
        for place_and_slot in found {
            let (place, slot) = (place_and_slot.0, place_and_slot.1);
            let Some(delta) = left.get(place as usize) else { continue };
            // Wider than the region, and by prints.
            let is_stale = |held: &Held<_>| is_ended_by(&held.traversal, delta, version);
            if entries.watched(slot).is_some_and(is_stale) {
                evicted.extend(entries.end(slot));
                // Of a change beyond the bound, places are those of what was left of it.
                if !is_passed {
                    note_cause(&mut self.causes, Cause::Delta(place as usize), 1);
                }
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
            |own: &Self| own.installs > 0 || locked(&own.relation).entries.dead_count() > 0;
        if is_untidy(self) {
            self.step(TIDIED_AT_ONCE);
        }
        if is_untidy(self) {
            return true;
        }
        self.merge();
        false
    }

    fn state(&self) -> EngineState {
        let relations = {
            let relation = locked(&self.relation);
            let (entries, leaving) = (relation.entries.len(), relation.entries.dead_count());
            vec![("entries", entries), ("tombstones", leaving)]
        };
        EngineState {
            name: "relational",
            relations,
            bytes: None,
            overflows: self.bound.overflows(),
            faults: self.stats.errors,
        }
    }

    fn len(&self) -> usize {
        locked(&self.relation).entries.len() + self.lost.len()
    }
}

/// Whether a delta ends an entry that was found by it: what is found is wider than what it ends.
fn is_ended_by(traversal: &Traversal, delta: &Delta, version: Version) -> bool {
    let RuleDelta { rule, change } = match delta {
        Delta::Changed(object) => {
            return traversal.version < version && traversal.reads.contains(object);
        }
        Delta::Rule(delta) => delta,
    };
    let mut visits = traversal.visits.iter();
    visits.any(|visit| {
        let is_here = (visit.bridge, visit.table) == (rule.bridge, rule.table);
        is_here
            && match change {
                RuleChange::Added => is_taken_over(traversal, visit, rule),
                RuleChange::Removed(_) => is_decided(visit, rule, |_| true),
                RuleChange::Modified(_) => {
                    is_decided(visit, rule, |own| own.revision != rule.revision)
                        || is_taken_over(traversal, visit, rule)
                }
            }
    })
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
}
