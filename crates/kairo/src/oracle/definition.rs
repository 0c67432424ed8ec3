//! The definition of a stale entry, checked entry by entry and visit by visit.
//!
//! The code is short enough to compare with the text of the definition. Tests compare the engines
//! with this engine, and no switch uses it.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::{FieldId, FlowKey, FlowMask};
use shunt_pipeline::{
    Delta, EntryId, Evictor, Installed, OwnerId, Rule, RuleChange, RuleDelta, Traversal, Version,
    Visit,
};

/// An engine that checks every entry against every delta.
#[derive(Default)]
pub struct Definition {
    version: Version,
    entries: BTreeMap<EntryId, Arc<Traversal>>,
}

impl Definition {
    /// Creates an engine without entries, at `version`.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self { version, entries: BTreeMap::new() }
    }

    /// Returns whether the delta with this number makes an entry of `traversal` stale.
    ///
    /// An engine may then report the delta as the cause. `deltas` has the deltas of the last
    /// version.
    #[must_use]
    pub fn is_cause(&self, number: usize, deltas: &[Delta], traversal: &Traversal) -> bool {
        deltas.get(number).is_some_and(|delta| is_ended_by(traversal, delta, deltas, self.version))
    }
}

impl Evictor for Definition {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        if traversal.version < self.version {
            return Installed::Late;
        }
        self.entries.insert(entry, Arc::clone(traversal));
        Installed::Recorded
    }

    fn removed(&mut self, entry: EntryId) {
        self.entries.remove(&entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let version = self.version.max(version);
        self.version = version;
        let is_stale = |traversal: &Traversal| {
            deltas.iter().any(|delta| is_ended_by(traversal, delta, deltas, version))
        };
        self.entries.extract_if(.., |_, traversal| is_stale(traversal)).map(|(id, _)| id).collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.entries.retain(|id, _| id.owner != owner);
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Returns whether `delta`, one of the deltas of `version`, makes an entry stale.
fn is_ended_by(traversal: &Traversal, delta: &Delta, deltas: &[Delta], version: Version) -> bool {
    let RuleDelta { rule, change } = match delta {
        Delta::Changed(object) => {
            return traversal.version < version && traversal.reads.contains(object);
        }
        Delta::Rule(delta) => delta,
    };
    let stays = || {
        !deltas.iter().any(|delta| {
            matches!(delta, Delta::Rule(RuleDelta { rule: gone, change: RuleChange::Removed(_) })
                if gone.id == rule.id)
        })
    };
    let here = |visit: &&Visit| (visit.bridge, visit.table) == (rule.bridge, rule.table);
    traversal.visits.iter().filter(here).any(|visit| match change {
        RuleChange::Added => decides_now(traversal, visit, rule) && stays(),
        RuleChange::Removed(_) => has_decided(visit, rule, |_| true),
        RuleChange::Modified(_) => {
            has_decided(visit, rule, |own| own.revision != rule.revision)
                || decides_now(traversal, visit, rule) && stays()
        }
    })
}

/// Returns whether a stale rule decided a visit, alone or in a conjunctive match.
fn has_decided(visit: &Visit, rule: &Rule, is_stale: impl Fn(&Rule) -> bool) -> bool {
    let all = visit.rule.iter().chain(&visit.clauses);
    let mut own = all.filter(|own| own.id == rule.id);
    own.any(|own| is_stale(own))
}

/// Returns whether a rule overlaps a visit and outranks the rule that decided it.
fn decides_now(traversal: &Traversal, visit: &Visit, rule: &Rule) -> bool {
    if visit.rank().is_some_and(|rank| rank >= rule.rank()) {
        return false;
    }
    let (key, matching) = (FlowKey::from(&visit.key), rule.matching.key());
    let came_in = FlowKey::from(&traversal.key);
    // `fixed` has the bits that all packets of the entry have in common when they enter the table.
    let mut fixed = FlowMask::from(&visit.mask);
    fixed.add_sparse(&traversal.mask);
    let mut written = FlowMask::EMPTY;
    let words = written.words_mut().iter_mut().zip(key.words().iter().zip(came_in.words()));
    words.for_each(|(written, (now, then))| *written = now ^ then);
    // A fragment is looked up without its ports, although no action wrote the ports. If all packets
    // of the entry are fragments, the ports are zero in all lookups.
    let are_fragments = came_in.field(FieldId::NwFrag) & fixed.field(FieldId::NwFrag) & 1 == 1;
    if are_fragments {
        [FieldId::TcpSrc, FieldId::TcpDst].into_iter().for_each(|field| fixed.add_field(field));
    }
    if key.field(FieldId::TcpSrc) == 0 && key.field(FieldId::TcpDst) == 0 {
        for field in [FieldId::TcpSrc, FieldId::TcpDst] {
            written.remove_bits(field, u128::MAX);
        }
    }
    fixed.add(&written);
    // `looked_at` becomes the fixed bits that the rule compares.
    let looked_at = FlowMask::from(rule.matching.mask());
    let words = fixed.words_mut().iter_mut().zip(looked_at.words());
    words.for_each(|(fixed, looked_at)| *fixed &= looked_at);
    key.agrees_with(&matching, &fixed)
}
