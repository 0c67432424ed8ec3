//! The rules that decided visits, each stored once.
//!
//! The caller describes a rule again with every visit. Storing it for each of a million visits
//! would take more memory than the visits themselves, so visits of one rule share it. A rule is
//! dropped with the last entry that has a visit of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use shunt_pipeline::Rule;

/// The key of a rule.
/// Two rules with the same key are the same rule with the same actions.
pub(crate) type RuleKey = (u64, u32, u16, u8);

/// Rules that some visit has, and some that no visit has any more.
#[derive(Default)]
pub(crate) struct SharedRules {
    all: BTreeMap<RuleKey, Weak<Rule>>,
    /// Number of rules at which unused ones are removed.
    sweep_at: usize,
}

/// Number of rules up to which none are removed.
const SWEEP_MIN: usize = 1024;

impl SharedRules {
    /// Returns the rule of a key, and makes it if no visit has it.
    pub(crate) fn shared(
        &mut self,
        name: RuleKey,
        make: impl FnOnce() -> Option<Rule>,
    ) -> Option<Arc<Rule>> {
        if let Some(known) = self.all.get(&name).and_then(Weak::upgrade) {
            return Some(known);
        }
        let made = Arc::new(make()?);
        self.sweep();
        self.all.insert(name, Arc::downgrade(&made));
        Some(made)
    }

    /// Removes unused rules, once there are twice as many as were left the last time.
    fn sweep(&mut self) {
        if self.all.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.all.retain(|_, rule| rule.strong_count() > 0);
        self.sweep_at = 2 * self.all.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CacheEngine, HeaderWords, RuleText, WORDS};

    /// The key of zeros, and the mask without bits.
    const NOTHING: &HeaderWords = &[0; WORDS];

    const fn rule_text(id: u64, revision: u32) -> RuleText<'static> {
        RuleText { id, revision, priority: 1, table: 0, key: NOTHING, mask: NOTHING }
    }

    #[test]
    fn visits_share_their_rule_revision() {
        let mut engine = CacheEngine::new(1, 1);
        let mut decider = |id, revision| {
            let visit = engine.visit(0, NOTHING, NOTHING, Some(&rule_text(id, revision)));
            visit.and_then(|visit| visit.rule).expect("there is such a table")
        };
        let first = decider(7, 0);
        assert!(Arc::ptr_eq(&first, &decider(7, 0)));
        assert!(!Arc::ptr_eq(&first, &decider(7, 1)));
        assert!(!Arc::ptr_eq(&first, &decider(8, 0)));
        assert_eq!(Arc::strong_count(&first), 1, "the engine itself holds none");
    }

    #[test]
    fn unvisited_rules_keep_memory_bounded() {
        let mut rules = SharedRules::default();
        let mut shared = |id| {
            let described = rule_text(id, 0);
            let rule = rules.shared(described.name(), || described.rule());
            rule.expect("there is such a table")
        };
        let kept = shared(0);
        (1..10 * SWEEP_MIN as u64).for_each(|id| drop(shared(id)));
        assert!(Arc::ptr_eq(&kept, &shared(0)));
        assert!(rules.all.len() <= SWEEP_MIN, "{}", rules.all.len());
    }
}
