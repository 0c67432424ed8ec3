//! What the operator of the circuit keeps, and how it joins.

use dbsp::{IndexedZSetReader, OrdZSet, ZWeight, utils::Tup2};
use shunt_pipeline::{Delta, EntryId, RuleChange, RuleDelta, Version};

use crate::{
    bound::LOOKS_MAX,
    deltas::removed_rules,
    index::{Fate, RegionIndex},
};

/// A visit: the slot of its entry, and its number there.
pub(super) type VisitRow = Tup2<u32, u32>;

/// A rule: its place among the deltas of the step, and [`WENT`] or [`CAME`].
pub(super) type RuleRow = Tup2<u32, u8>;

/// An object: its place among the deltas of the step.
pub(super) type ObjectRow = u32;

/// Entries that are evicted: the first of them among those that the step has ended, and the one
/// behind the last. A row for each would be sorted, to no end.
pub(super) type EvictionRow = Tup2<u32, u32>;

/// The rule, as it was, decides nothing any more.
const WENT: u8 = 0;
/// The rule, as it is, decides what it matches and outranks.
const CAME: u8 = 1;

/// The relation over visits, and what changes in a step.
pub(crate) struct Relation {
    pub(super) index: RegionIndex,
    /// What rows of rules and objects refer to.
    deltas: Vec<Delta>,
    version: Version,
    /// Visits and entries that the rules of the step are looked for among, about.
    looks_max: usize,
    /// The place of the first rule of the step that was not looked for, as they were passed.
    unseen: Option<u32>,
    /// Entries that the step has ended so far.
    pub(super) ended: Vec<EntryId>,
    /// How many of these each delta has ended, one behind the other, by its place.
    ended_by: Vec<(u32, usize)>,
    /// What came out of the circuit.
    pub(super) output: Vec<EvictionRow>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fault: crate::testing::Fault,
}

/// What came of the deltas of a step.
pub(super) struct Finished {
    /// Entries that they evict.
    pub(super) ended: Vec<EntryId>,
    /// How many of these each delta evicts, one behind the other, by its place.
    pub(super) ended_by: Vec<(u32, usize)>,
    /// The place from which on rules were not looked for.
    pub(super) unseen: Option<u32>,
}

/// Entries that a step ends for which room is kept.
const ROOM: usize = 2048;

/// Rows that wait for the next step, each with its weight.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) visits: Vec<Tup2<VisitRow, ZWeight>>,
    pub(super) rules: Vec<Tup2<RuleRow, ZWeight>>,
    pub(super) objects: Vec<Tup2<ObjectRow, ZWeight>>,
}

impl Rows {
    /// Pushes all visits of an entry.
    pub(super) fn push_visits(&mut self, slot: u32, count: u32, weight: ZWeight) {
        self.visits.extend((0..count).map(|number| Tup2(Tup2(slot, number), weight)));
    }
}

impl Relation {
    /// Of no visits. The seed goes into every hash.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            index: RegionIndex::new(seed),
            deltas: Vec::new(),
            version: Version::default(),
            looks_max: LOOKS_MAX,
            unseen: None,
            ended: Vec::new(),
            ended_by: Vec::new(),
            output: Vec::new(),
            #[cfg(any(test, feature = "testing"))]
            fault: crate::testing::Fault::default(),
        }
    }

    /// Takes up the deltas of a step, and puts their rows to those that wait for it.
    pub(super) fn begin(
        &mut self,
        deltas: &[Delta],
        (version, looks_max): (Version, usize),
        rows: &mut Rows,
    ) {
        // What is gone at once decides nothing.
        let brief = removed_rules(deltas);
        self.deltas = deltas.to_vec();
        (self.version, self.looks_max) = (version, looks_max);
        for (delta, place) in deltas.iter().zip(0..) {
            let mut rule = |fate| rows.rules.push(Tup2(Tup2(place, fate), 1));
            match delta {
                Delta::Changed(_) => rows.objects.push(Tup2(place, 1)),
                Delta::Rule(RuleDelta { rule: own, change }) => match change {
                    RuleChange::Added if brief.contains(&own.id) => {}
                    RuleChange::Added => rule(CAME),
                    RuleChange::Removed(_) => rule(WENT),
                    RuleChange::Modified(_) if brief.contains(&own.id) => rule(WENT),
                    // As a clause of a conjunction it did not decide what it matched.
                    RuleChange::Modified(_) => [WENT, CAME].into_iter().for_each(rule),
                },
            }
        }
    }

    /// The deltas of the step have been dealt with. Answers with what came of them.
    pub(super) fn finish(&mut self) -> Finished {
        self.deltas = Vec::new();
        let rows = std::mem::take(&mut self.output);
        let ended = |Tup2(from, to)| self.ended.get(from as usize..to as usize);
        let ended = rows.into_iter().filter_map(ended).flatten().copied().collect();
        self.ended.clear();
        self.ended.shrink_to(ROOM);
        let (ended_by, unseen) = (std::mem::take(&mut self.ended_by), self.unseen.take());
        Finished { ended, ended_by, unseen }
    }

    /// The operator: takes visits in and out, then finds what the deltas end.
    pub(super) fn join(
        &mut self,
        visits: &OrdZSet<VisitRow>,
        rules: &OrdZSet<RuleRow>,
        objects: &OrdZSet<ObjectRow>,
    ) -> Option<EvictionRow> {
        #[cfg(any(test, feature = "testing"))]
        self.fault.come_nearer();
        self.take_up(visits);
        let count = |ended: &[EntryId]| u32::try_from(ended.len()).unwrap_or(u32::MAX);
        let before = count(&self.ended);
        let mut looks = 0;
        for (Tup2(place, fate), (), _) in rules.iter() {
            if looks > self.looks_max {
                self.unseen = Some(place);
                break;
            }
            let Some(Delta::Rule(RuleDelta { rule, change })) = self.deltas.get(place as usize)
            else {
                continue;
            };
            let known = self.ended.len();
            looks += if fate == CAME {
                self.index.end_overlapped(rule, self.deltas.len() - 1, &mut self.ended)
            } else {
                let fate = if matches!(change, RuleChange::Removed(_)) {
                    Fate::Gone
                } else {
                    Fate::Changed
                };
                self.index.end_decided(rule, fate, &mut self.ended)
            };
            self.ended_by.push((place, self.ended.len() - known));
        }
        for (place, (), _) in objects.iter() {
            let known = self.ended.len();
            if let Some(Delta::Changed(object)) = self.deltas.get(place as usize) {
                self.index.end_readers(*object, self.version, &mut self.ended);
            }
            self.ended_by.push((place, self.ended.len() - known));
            #[cfg(any(test, feature = "testing"))]
            self.fault.come_nearer();
        }
        let after = count(&self.ended);
        (before < after).then_some(Tup2(before, after))
    }

    /// Rows come in the order of their slots, and all of an entry in one step.
    fn take_up(&mut self, visits: &OrdZSet<VisitRow>) {
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
