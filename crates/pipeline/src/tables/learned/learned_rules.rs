//! The rules of a table in a learned index, at all versions.
//!
//! The index compares a few header fields, the lanes ([`LaneSelection`]). The bits of a rule
//! outside of the lanes are its *rest*, which is compared for each rule that the index finds. The
//! rules have few different masks outside of the lanes, because most rules of a table match the
//! same fields there.
//!
//! A rule and its later revisions have one slot. Slots are in the order of age, so the order of the
//! index (priority, then slot) is the total order of the table. A slot stays until no version sees
//! a revision of its rule.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use shunt_classifier::{Lifetime, Version};
use shunt_flow::{FlowKey, FlowMask, Match, layout::FLOW_WORDS};
use shunt_nuevomatch::{
    AnyStartIndex, KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule, StartIndexKind,
};

use super::{
    lanes::{CatalogueBox, LANES, LaneSelection},
    learned_table::ChangeTime,
};
use crate::{id::RuleId, tables::rule::Rule};

/// The most keys of one lookup.
pub(crate) const LOOKUP_MAX: usize = 32;

/// The classifier of the rules in their lanes.
pub(super) type LaneClassifier = NuevoMatch<LANES, AnyStartIndex>;

/// The rules of a table, and the index that finds them.
pub(crate) struct LearnedRules {
    /// The index, which returns slots.
    index: LaneClassifier,
    /// The kind of the index over the starts of buckets.
    kind: StartIndexKind,
    /// The parts of the key that the index compares.
    selection: LaneSelection,
    /// The form of the keys of the index.
    schema: KeySchema,
    /// The rules, by the numbers that the index returns.
    slots: Vec<RuleSlot>,
    /// Number of slots with revisions.
    live: usize,
    /// Removed revisions: the version of the removal, and the rule.
    retired: BinaryHeap<Reverse<(Version, RuleId)>>,
    /// The distinct rests of rules.
    rests: Vec<Match>,
    /// Rules that the last training left in the remainder.
    remainder_trained: usize,
}

/// One rule with its revisions.
struct RuleSlot {
    /// The id that all revisions of the rule share.
    id: RuleId,
    /// Index in `rests`; [`NO_REST`] if the match has no bit outside of the lanes.
    rest: u32,
    /// The newest revision; `None` after a removal.
    newest: Option<RuleRevision>,
    /// The earlier revisions that some version still sees.
    older: Vec<RuleRevision>,
}

/// A revision of a rule, and the versions that contain it.
struct RuleRevision {
    /// The versions that see this revision.
    lifetime: Lifetime,
    rule: Arc<Rule>,
}

/// The index of a match that has no bit outside of the lanes.
const NO_REST: u32 = u32::MAX;

/// Number of rules in the remainder that never make a training due.
const REMAINDER_MIN: usize = 64;

impl LearnedRules {
    /// Trains an index of a kind over rules, in any order.
    ///
    /// Returns `None` if the index cannot hold the rules.
    pub(crate) fn train(
        mut rules: Vec<(Lifetime, Arc<Rule>)>,
        kind: StartIndexKind,
    ) -> Option<Self> {
        let boxes: Vec<_> = rules.iter().map(|(_, rule)| box_of(rule)).collect();
        let selection = LaneSelection::choose(boxes.iter());
        let schema = selection.schema();
        let settings = NuevoMatchSettings::default();
        let empty = NuevoMatch::build_with(&schema, &[], &settings, &kind).ok()?;
        let mut own = Self {
            index: empty,
            kind,
            selection,
            schema,
            slots: Vec::with_capacity(rules.len()),
            live: 0,
            retired: BinaryHeap::new(),
            rests: Vec::new(),
            remainder_trained: 0,
        };
        rules.sort_by_key(|(lifetime, rule)| (rule.id, lifetime.added));
        let mut indexed = Vec::with_capacity(rules.len());
        for (lifetime, rule) in rules {
            if let Some(removed) = lifetime.removed() {
                own.retired.push(Reverse((removed, rule.id)));
            }
            indexed.extend(own.add(lifetime, rule)?);
        }
        own.index = NuevoMatch::build_with(&own.schema, &indexed, &settings, &kind).ok()?;
        own.remainder_trained = own.index.remainder_len();
        Some(own)
    }

    /// Adds a rule that versions from `added` on see.
    ///
    /// Returns false if the index cannot hold the rule, or not in this time.
    pub(crate) fn insert(&mut self, rule: &Arc<Rule>, added: Version, time: ChangeTime) -> bool {
        match self.add(Lifetime::since(added), Arc::clone(rule)) {
            Some(Some(indexed)) => match time {
                ChangeTime::Bounded => self.index.insert_bounded(&indexed),
                ChangeTime::Unbounded => self.index.insert(&indexed),
            },
            Some(None) => true,
            None => false,
        }
    }

    /// Ends the visible revision of a rule; returns false if the rule has none.
    pub(crate) fn remove(&mut self, id: RuleId, removed: Version) -> bool {
        let Some(slot) = self.find_slot(id) else { return false };
        let slot = &mut self.slots[slot];
        let mut revisions = slot.newest.iter_mut().chain(slot.older.iter_mut().rev());
        let Some(open) = revisions.find(|own| own.lifetime.removed().is_none()) else {
            return false;
        };
        open.lifetime.end(Some(removed));
        self.retired.push(Reverse((removed, id)));
        true
    }

    /// Drops revisions of rules that only versions before `oldest` see.
    ///
    /// Drops at most `removals_max` revisions; returns their number.
    pub(crate) fn reclaim(&mut self, oldest: Version, removals_max: usize) -> usize {
        let mut count = 0;
        while count < removals_max
            && let Some(Reverse((removed, id))) = self.retired.peek().copied()
            && removed <= oldest
        {
            self.retired.pop();
            count += 1;
            let Some(index) = self.find_slot(id) else { continue };
            let slot = &mut self.slots[index];
            slot.older.retain(|own| !own.lifetime.is_over(oldest));
            if slot.newest.as_ref().is_some_and(|own| own.lifetime.is_over(oldest)) {
                let ended = std::mem::replace(&mut slot.newest, slot.older.pop());
                let is_last = slot.newest.is_none();
                if let Some(ended) = ended.filter(|_| is_last) {
                    self.live -= 1;
                    if let Some(indexed) = self.indexed(&ended.rule, index) {
                        self.index.remove(&indexed);
                    }
                }
            }
        }
        count
    }

    /// Writes the rule that wins for each key, as a version sees the table.
    ///
    /// A call has at most [`LOOKUP_MAX`] keys.
    pub(crate) fn find_burst<'a>(
        &'a self,
        keys: &[FlowKey],
        version: Version,
        found: &mut [Option<&'a Arc<Rule>>],
    ) {
        let (mut lanes, mut best) = ([[0; LANES]; LOOKUP_MAX], [None; LOOKUP_MAX]);
        for (lanes, key) in lanes.iter_mut().zip(keys) {
            *lanes = self.selection.of_key(key.words());
        }
        let count = keys.len().min(LOOKUP_MAX);
        self.index.lookup_accepted(&lanes[..count], &mut best[..count], |position, slot| {
            let slot = &self.slots[slot as usize];
            self.has_rest(slot.rest, &keys[position]) && slot.visible(version).is_some()
        });
        for (found, best) in found.iter_mut().zip(&best[..count]) {
            *found = best.and_then(|best| self.slots[best.value as usize].visible(version));
        }
    }

    /// Returns the rule that wins for a key, as a version sees the table.
    pub(crate) fn find(&self, key: &FlowKey, version: Version) -> Option<&Arc<Rule>> {
        let mut found = [None];
        self.find_burst(std::slice::from_ref(key), version, &mut found);
        found[0]
    }

    /// Returns the number of rules that a version sees.
    pub(super) const fn rules_count(&self) -> usize {
        self.live
    }

    /// Returns the index over the lanes, in which the value of a rule is its slot.
    pub(super) const fn index(&self) -> &LaneClassifier {
        &self.index
    }

    /// Returns the kind of the index over the starts of buckets.
    pub(crate) const fn kind(&self) -> StartIndexKind {
        self.kind
    }

    /// Returns the lanes that the index compares.
    pub(super) const fn selection(&self) -> LaneSelection {
        self.selection
    }

    /// Returns the rule of a slot, as a version sees it.
    #[inline]
    pub(super) fn visible(&self, slot: u32, version: Version) -> Option<&Arc<Rule>> {
        self.slots[slot as usize].visible(version)
    }

    /// Returns the match of a slot outside of the lanes, if it has any.
    #[inline]
    pub(super) fn rest(&self, slot: u32) -> Option<&Match> {
        self.rests.get(self.slots[slot as usize].rest as usize)
    }

    /// Returns whether a key has the bits of a slot outside of the lanes.
    #[inline]
    pub(super) fn rest_matches(&self, slot: u32, key: &FlowKey) -> bool {
        self.has_rest(self.slots[slot as usize].rest, key)
    }

    /// Returns whether another training would make lookups faster.
    pub(crate) fn is_outdated(&self) -> bool {
        let (remainder, trained) = (self.index.remainder_len(), self.remainder_trained);
        let has_unindexed = remainder > trained + REMAINDER_MIN.max(self.live / 10);
        has_unindexed || self.slots.len() > 2 * self.live + 1024
    }

    /// Adds a revision. Returns the rule to index, if it is the first of its slot.
    ///
    /// Returns `None` if the slots would not be in the order of age.
    #[expect(
        clippy::option_option,
        reason = "the outer option is failure, the inner one no new rule"
    )]
    fn add(&mut self, lifetime: Lifetime, rule: Arc<Rule>) -> Option<Option<PriorityRule<LANES>>> {
        let index = match self.find_slot(rule.id) {
            Some(index) => index,
            None if self.slots.last().is_none_or(|last| last.id < rule.id) => {
                let rest = self.rest_of(&rule);
                let slot = RuleSlot { id: rule.id, rest, newest: None, older: Vec::new() };
                self.slots.push(slot);
                self.slots.len() - 1
            }
            None => return None,
        };
        let indexed = self.indexed(&rule, index);
        let slot = &mut self.slots[index];
        match slot.newest.replace(RuleRevision { lifetime, rule }) {
            Some(earlier) => {
                slot.older.push(earlier);
                Some(None)
            }
            None => {
                self.live += 1;
                indexed.map(Some)
            }
        }
    }

    /// Returns the slot of a rule.
    fn find_slot(&self, id: RuleId) -> Option<usize> {
        self.slots.binary_search_by_key(&id, |slot| slot.id).ok()
    }

    /// Returns the rule of the index for a slot: the match in the lanes, and the rank.
    fn indexed(&self, rule: &Rule, slot: usize) -> Option<PriorityRule<LANES>> {
        let priority = u32::from(u16::MAX - rule.priority.number());
        let slot = u32::try_from(slot).ok()?;
        self.selection.rule(&self.schema, &box_of(rule), priority, slot).ok()
    }

    /// Returns the index in `rests` of a rule's bits outside of the lanes.
    fn rest_of(&mut self, rule: &Rule) -> u32 {
        let mut mask = FlowMask::EMPTY;
        for (word, bits) in rule.matching.mask().iter() {
            mask.words_mut()[word] = bits & !self.selection.bits_of_word(word);
        }
        debug_assert!(mask.words().len() == FLOW_WORDS);
        if mask.is_empty() {
            return NO_REST;
        }
        let rest = Match::new(&rule.matching.key(), &mask);
        // Most tables have few different rests. Only the last ones are searched for an equal one.
        let known = self.rests.iter().rev().take(RESTS_SEARCHED).position(|own| *own == rest);
        let last = self.rests.len();
        let index = known.map_or(last, |back| last - 1 - back);
        if index == last {
            self.rests.push(rest);
        }
        u32::try_from(index).unwrap_or(NO_REST - 1)
    }

    /// Returns whether `key` matches the fields of a rule outside of the lanes.
    #[inline]
    fn has_rest(&self, rest: u32, key: &FlowKey) -> bool {
        rest == NO_REST || self.rests.get(rest as usize).is_some_and(|rest| rest.matches(key))
    }
}

/// Number of rests that are searched for an equal one.
const RESTS_SEARCHED: usize = 16;

impl RuleSlot {
    /// Returns the revision that a version sees.
    #[inline]
    fn visible(&self, version: Version) -> Option<&Arc<Rule>> {
        let newest = self.newest.as_ref()?;
        if newest.lifetime.is_visible(version) {
            return Some(&newest.rule);
        }
        let mut older = self.older.iter();
        older.find(|own| own.lifetime.is_visible(version)).map(|own| &own.rule)
    }
}

/// Returns the box of the keys that a rule matches.
fn box_of(rule: &Rule) -> CatalogueBox {
    CatalogueBox::new(&rule.matching.key(), rule.matching.mask())
}
