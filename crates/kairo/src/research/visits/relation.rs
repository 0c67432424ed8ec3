//! The state of the operator of the circuit, and the join that it computes.

use std::mem;

use dbsp::{ZWeight, utils::Tup2};
use shunt_pipeline::{Delta, EntryId, RuleChange, RuleDelta, Version};

use crate::{
    bound::EXAMINED_MAX,
    deltas::removed_rules,
    index::{DeciderChange, RegionIndex},
};

/// The row of an entry: its slot. The row represents all visits of the entry.
pub(super) type EntryRow = u32;

/// The row of a rule: its position in the change, [`DECIDED`] or [`OVERLAPPED`].
pub(super) type ChangedRuleRow = Tup2<u32, u8>;

/// The row of an object: its position in the change.
pub(super) type ObjectRow = u32;

/// Marks a removed rule, or the old revision of a rule: its visits are stale.
const DECIDED: u8 = 0;
/// Marks an added rule, or the new revision of a rule.
/// Visits that the rule outranks and overlaps are stale.
const OVERLAPPED: u8 = 1;

/// The relation over visits, and the change of the current step.
pub(crate) struct VisitRelation {
    pub(super) index: RegionIndex,
    /// The rows of the next step.
    pub(super) rows: VisitStepRows,
    /// The deltas that rows of rules and objects refer to.
    deltas: Vec<Delta>,
    version: Version,
    /// Approximate number of visits and entries that the rules of the step may examine.
    examined_max: usize,
    /// The position of the first rule for which no search ran.
    /// The search stopped at this rule because the bound was exceeded.
    pub(super) first_unsearched: Option<u32>,
    /// The output of the circuit: the entries that the step has evicted so far.
    ///
    /// The list is allocated before the change: an allocation of its size may take longer than the
    /// search, because the allocator first consolidates its free lists.
    pub(super) evicted: Vec<EntryId>,
    /// Number of entries that each delta evicted, by the position of the delta.
    pub(super) evicted_by: Vec<(u32, usize)>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fault: crate::testing::FaultTimer,
}

/// Number of evicted entries for which memory is reserved before a step.
const RESULTS_CAPACITY: usize = 2048;

/// Number of deltas and of their rows for which memory is kept between steps.
const DELTAS_CAPACITY: usize = 64;

/// The Z-sets of a step: rows, each with its weight.
///
/// The Z-sets are lists. A batch of dbsp would be sorted, and allocated for each step. The join
/// needs no order among entries, and the other lists are in the order of the change.
#[derive(Clone, Default)]
pub(super) struct VisitStepRows {
    pub(super) entries: Vec<Tup2<EntryRow, ZWeight>>,
    pub(super) rules: Vec<Tup2<ChangedRuleRow, ZWeight>>,
    pub(super) objects: Vec<Tup2<ObjectRow, ZWeight>>,
}

impl VisitStepRows {
    /// Removes all rows, and keeps memory for a few.
    fn clear(&mut self) {
        self.entries.clear();
        self.rules.clear();
        self.rules.shrink_to(DELTAS_CAPACITY);
        self.objects.clear();
        self.objects.shrink_to(DELTAS_CAPACITY);
    }
}

impl VisitRelation {
    /// Creates a relation without visits, with the seed of all its hashes.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            index: RegionIndex::new(seed),
            rows: VisitStepRows::default(),
            deltas: Vec::new(),
            version: Version::default(),
            examined_max: EXAMINED_MAX,
            first_unsearched: None,
            evicted: Vec::new(),
            evicted_by: Vec::new(),
            #[cfg(any(test, feature = "testing"))]
            fault: crate::testing::FaultTimer::default(),
        }
    }

    /// Reserves memory for the entries that the next change evicts.
    pub(super) fn reserve_results(&mut self) {
        if self.evicted.capacity() < RESULTS_CAPACITY {
            self.evicted.reserve_exact(RESULTS_CAPACITY);
        }
    }

    /// Starts a step with these deltas, and adds the rows of the deltas.
    pub(super) fn begin(&mut self, deltas: &[Delta], version: Version, examined_max: usize) {
        // A rule that the same change removes again decides no lookup.
        let removed_rules_of_change = removed_rules(deltas);
        self.deltas.extend_from_slice(deltas);
        (self.version, self.examined_max) = (version, examined_max);
        let rows = &mut self.rows;
        for (delta, position) in deltas.iter().zip(0..) {
            let mut rule = |effect| rows.rules.push(Tup2(Tup2(position, effect), 1));
            match delta {
                Delta::Changed(_) => rows.objects.push(Tup2(position, 1)),
                Delta::Rule(RuleDelta { rule: own, change }) => match change {
                    RuleChange::Added if removed_rules_of_change.contains(&own.id) => {}
                    RuleChange::Added => rule(OVERLAPPED),
                    RuleChange::Removed(_) => rule(DECIDED),
                    RuleChange::Modified(_) if removed_rules_of_change.contains(&own.id) => {
                        rule(DECIDED);
                    }
                    // The rule may have been a clause of a conjunction, and other clauses then
                    // decided the same lookups.
                    RuleChange::Modified(_) => [DECIDED, OVERLAPPED].into_iter().for_each(rule),
                },
            }
        }
    }

    /// Ends a step with deltas.
    ///
    /// Returns the entries that the deltas make stale. [`Self::evicted_by`] and
    /// [`Self::first_unsearched`] keep their values until the next step.
    pub(super) fn finish(&mut self) -> Vec<EntryId> {
        self.deltas.clear();
        self.deltas.shrink_to(DELTAS_CAPACITY);
        if self.evicted.is_empty() {
            return Vec::new();
        }
        mem::take(&mut self.evicted)
    }

    /// Applies the rows of a step.
    ///
    /// The operator adds and removes the visits of entries. After the update, it finds the entries
    /// that the deltas make stale.
    pub(super) fn join(&mut self, mut rows: VisitStepRows) {
        #[cfg(any(test, feature = "testing"))]
        self.fault.pass_point();
        self.link_entries(&rows.entries);
        self.join_rules(&rows.rules);
        self.join_objects(&rows.objects);
        rows.clear();
        self.rows = rows;
    }

    /// Adds and removes the visits of entries.
    fn link_entries(&mut self, rows: &[Tup2<EntryRow, ZWeight>]) {
        for Tup2(slot, weight) in rows {
            if *weight > 0 {
                self.index.link(*slot);
            } else {
                self.index.unlink(*slot);
            }
        }
    }

    /// Evicts the entries that the rules make stale.
    fn join_rules(&mut self, rows: &[Tup2<ChangedRuleRow, ZWeight>]) {
        let mut examined = 0;
        for Tup2(Tup2(position, effect), _) in rows {
            if examined > self.examined_max {
                self.first_unsearched = Some(*position);
                break;
            }
            let Some(Delta::Rule(RuleDelta { rule, change })) = self.deltas.get(*position as usize)
            else {
                continue;
            };
            let known = self.evicted.len();
            examined += if *effect == OVERLAPPED {
                self.index.evict_overlapped(rule, self.deltas.len() - 1, &mut self.evicted)
            } else {
                let effect = if matches!(change, RuleChange::Removed(_)) {
                    DeciderChange::Removed
                } else {
                    DeciderChange::Modified
                };
                self.index.evict_decided(rule, effect, &mut self.evicted)
            };
            self.evicted_by.push((*position, self.evicted.len() - known));
        }
    }

    /// Evicts the entries that read the changed objects.
    fn join_objects(&mut self, rows: &[Tup2<ObjectRow, ZWeight>]) {
        for Tup2(position, _) in rows {
            let known = self.evicted.len();
            if let Some(Delta::Changed(object)) = self.deltas.get(*position as usize) {
                self.index.evict_readers(*object, self.version, &mut self.evicted);
            }
            self.evicted_by.push((*position, self.evicted.len() - known));
            #[cfg(any(test, feature = "testing"))]
            self.fault.pass_point();
        }
    }
}
