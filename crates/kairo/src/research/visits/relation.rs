//! What the operator of the circuit keeps, and how it joins.

use dbsp::{IndexedZSetReader, OrdZSet, ZWeight, utils::Tup2};
use shunt_pipeline::{Delta, EntryId, RuleChange, RuleDelta, Version};

use crate::{
    bound::EXAMINED_MAX,
    deltas::removed_rules,
    index::{DeciderChange, RegionIndex},
    positions,
};

/// A visit: the slot of its entry, and its number there.
pub(super) type VisitRow = Tup2<u32, u32>;

/// A rule: its place among the deltas of the step, and [`DECIDED`] or [`OVERLAPPED`].
pub(super) type ChangedRuleRow = Tup2<u32, u8>;

/// An object: its place among the deltas of the step.
pub(super) type ObjectRow = u32;

/// Entries that are evicted: the first of them among those that the step has evicted, and the one
/// behind the last. A row for each would be sorted, to no end.
pub(super) type EvictedRange = Tup2<u32, u32>;

/// The rule, as it was, decides nothing any more.
const DECIDED: u8 = 0;
/// The rule, as it is, decides what it matches and outranks.
const OVERLAPPED: u8 = 1;

/// The relation over visits, and what changes in a step.
pub(crate) struct VisitRelation {
    pub(super) index: RegionIndex,
    /// What rows of rules and objects refer to.
    deltas: Vec<Delta>,
    version: Version,
    /// Visits and entries that the rules of the step are looked for among, about.
    examined_max: usize,
    /// The place of the first rule of the step that was not looked for, as they were passed.
    first_unsearched: Option<u32>,
    /// Entries that the step has ended so far.
    pub(super) evicted: Vec<EntryId>,
    /// How many of these each delta has evicted, one behind the other, by its place.
    evicted_by: Vec<(u32, usize)>,
    /// What came out of the circuit.
    pub(super) output: Vec<EvictedRange>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fault: crate::testing::FaultTimer,
}

/// What came of the deltas of a step.
pub(super) struct StepResult {
    /// Entries that they evict.
    pub(super) evicted: Vec<EntryId>,
    /// How many of these each delta evicts, one behind the other, by its place.
    pub(super) evicted_by: Vec<(u32, usize)>,
    /// The place from which on rules were not looked for.
    pub(super) first_unsearched: Option<u32>,
}

/// Entries that a step ends for which room is kept.
const RESULTS_CAPACITY: usize = 2048;

/// Rows that wait for the next step, each with its weight.
#[derive(Default)]
pub(super) struct VisitStepRows {
    pub(super) visits: Vec<Tup2<VisitRow, ZWeight>>,
    pub(super) rules: Vec<Tup2<ChangedRuleRow, ZWeight>>,
    pub(super) objects: Vec<Tup2<ObjectRow, ZWeight>>,
}

impl VisitStepRows {
    /// Pushes all visits of an entry.
    pub(super) fn push_visits(&mut self, slot: u32, count: u32, weight: ZWeight) {
        self.visits.extend((0..count).map(|number| Tup2(Tup2(slot, number), weight)));
    }
}

impl VisitRelation {
    /// Of no visits. The seed goes into every hash.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            index: RegionIndex::new(seed),
            deltas: Vec::new(),
            version: Version::default(),
            examined_max: EXAMINED_MAX,
            first_unsearched: None,
            evicted: Vec::new(),
            evicted_by: Vec::new(),
            output: Vec::new(),
            #[cfg(any(test, feature = "testing"))]
            fault: crate::testing::FaultTimer::default(),
        }
    }

    /// Takes up the deltas of a step, and puts their rows to those that wait for it.
    pub(super) fn begin(
        &mut self,
        deltas: &[Delta],
        version: Version,
        examined_max: usize,
        rows: &mut VisitStepRows,
    ) {
        // What is gone at once decides nothing.
        let removed_rules_of_change = removed_rules(deltas);
        self.deltas = deltas.to_vec();
        (self.version, self.examined_max) = (version, examined_max);
        for (delta, position) in deltas.iter().zip(0..) {
            let mut rule = |fate| rows.rules.push(Tup2(Tup2(position, fate), 1));
            match delta {
                Delta::Changed(_) => rows.objects.push(Tup2(position, 1)),
                Delta::Rule(RuleDelta { rule: own, change }) => match change {
                    RuleChange::Added if removed_rules_of_change.contains(&own.id) => {}
                    RuleChange::Added => rule(OVERLAPPED),
                    RuleChange::Removed(_) => rule(DECIDED),
                    RuleChange::Modified(_) if removed_rules_of_change.contains(&own.id) => {
                        rule(DECIDED)
                    }
                    // As a clause of a conjunction it did not decide what it matched.
                    RuleChange::Modified(_) => [DECIDED, OVERLAPPED].into_iter().for_each(rule),
                },
            }
        }
    }

    /// The deltas of the step have been dealt with. Answers with what came of them.
    pub(super) fn finish(&mut self) -> StepResult {
        self.deltas = Vec::new();
        let rows = std::mem::take(&mut self.output);
        let evicted = |Tup2(from, to)| self.evicted.get(from as usize..to as usize);
        let evicted = rows.into_iter().filter_map(evicted).flatten().copied().collect();
        self.evicted.clear();
        self.evicted.shrink_to(RESULTS_CAPACITY);
        let (evicted_by, first_unsearched) =
            (std::mem::take(&mut self.evicted_by), self.first_unsearched.take());
        StepResult { evicted, evicted_by, first_unsearched }
    }

    /// The operator: takes visits in and out, then finds what the deltas end.
    pub(super) fn join(
        &mut self,
        visits: &OrdZSet<VisitRow>,
        rules: &OrdZSet<ChangedRuleRow>,
        objects: &OrdZSet<ObjectRow>,
    ) -> Option<EvictedRange> {
        #[cfg(any(test, feature = "testing"))]
        self.fault.pass_point();
        self.link_visits(visits);
        let count = |evicted: &[EntryId]| positions::position(evicted.len());
        let before = count(&self.evicted);
        let mut examined = 0;
        for (Tup2(position, fate), (), _) in rules.iter() {
            if examined > self.examined_max {
                self.first_unsearched = Some(position);
                break;
            }
            let Some(Delta::Rule(RuleDelta { rule, change })) = self.deltas.get(position as usize)
            else {
                continue;
            };
            let known = self.evicted.len();
            examined += if fate == OVERLAPPED {
                self.index.evict_overlapped(rule, self.deltas.len() - 1, &mut self.evicted)
            } else {
                let fate = if matches!(change, RuleChange::Removed(_)) {
                    DeciderChange::Removed
                } else {
                    DeciderChange::Modified
                };
                self.index.evict_decided(rule, fate, &mut self.evicted)
            };
            self.evicted_by.push((position, self.evicted.len() - known));
        }
        for (position, (), _) in objects.iter() {
            let known = self.evicted.len();
            if let Some(Delta::Changed(object)) = self.deltas.get(position as usize) {
                self.index.evict_readers(*object, self.version, &mut self.evicted);
            }
            self.evicted_by.push((position, self.evicted.len() - known));
            #[cfg(any(test, feature = "testing"))]
            self.fault.pass_point();
        }
        let after = count(&self.evicted);
        (before < after).then_some(Tup2(before, after))
    }

    /// Rows come in the order of their slots, and all of an entry in one step.
    fn link_visits(&mut self, visits: &OrdZSet<VisitRow>) {
        let mut rows = visits.iter().peekable();
        let mut numbers = Vec::new();
        while let Some((Tup2(slot, number), (), weight)) = rows.next() {
            if weight > 0 {
                numbers.push(number);
            }
            if rows.peek().is_none_or(|(Tup2(next, _), ..)| *next != slot) {
                if weight > 0 {
                    self.index.link(slot, numbers.drain(..));
                } else {
                    self.index.unlink(slot);
                }
            }
        }
    }
}
