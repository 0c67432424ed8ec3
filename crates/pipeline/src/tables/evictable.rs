//! The order in which a full table evicts its rules for new ones.
//!
//! The least important rules go first, then those that would expire first, then the oldest
//! (OpenFlow 1.4, 6.5 and 7.3.4.7). Rules without timeouts stay.
//!
//! An index holds the rules in that order, from the first time that the table was full. So an
//! addition costs O(log n). Hits do not update the index, because a hit only postpones the expiry
//! of a rule. When the first rule is requested, its expiry is computed, and the rule moves if it
//! was hit. If a packet has lowered the timeouts of a rule, the rule is queued again before the
//! next change.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{expiry::deadline, rule::Rule};
use crate::{id::RuleId, time::Time};

/// The rules of a table that may be evicted.
#[derive(Default)]
pub(crate) struct Evictable {
    /// The rules, in the order of eviction.
    queue: BTreeMap<EvictionRank, Arc<Rule>>,
    /// The rank of each rule in the queue.
    ranks: HashMap<RuleId, EvictionRank, foldhash::fast::FixedState>,
}

/// The position of a rule in the order of eviction: importance, expiry, age.
type EvictionRank = (u16, Time, RuleId);

impl Evictable {
    /// Creates the index of a table with these rules.
    pub(crate) fn of<'a>(rules: impl Iterator<Item = &'a Arc<Rule>>) -> Self {
        let mut evictable = Self::default();
        rules.for_each(|rule| evictable.insert(rule));
        evictable
    }

    /// Returns the number of rules that may be evicted.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the rule that is evicted first.
    pub(crate) fn first(&mut self) -> Option<Arc<Rule>> {
        loop {
            let (existing, rule) = self.queue.first_key_value()?;
            let rule = Arc::clone(rule);
            if eviction_rank(&rule) == Some(*existing) {
                return Some(rule);
            }
            self.requeue(&rule);
        }
    }

    /// Adds a rule that may be evicted for a new one.
    pub(crate) fn insert(&mut self, rule: &Arc<Rule>) {
        if let Some(eviction_rank) = eviction_rank(rule) {
            self.queue.insert(eviction_rank, Arc::clone(rule));
            self.ranks.insert(rule.id, eviction_rank);
        }
    }

    /// Removes a rule that can no longer be evicted.
    pub(crate) fn remove(&mut self, rule: RuleId) {
        if let Some(eviction_rank) = self.ranks.remove(&rule) {
            self.queue.remove(&eviction_rank);
        }
    }

    /// Moves a rule to its current position in the order of eviction.
    pub(crate) fn requeue(&mut self, rule: &Arc<Rule>) {
        self.remove(rule.id);
        self.insert(rule);
    }
}

/// Returns the current position of a rule; `None` if the rule is never evicted.
fn eviction_rank(rule: &Rule) -> Option<EvictionRank> {
    deadline(rule).map(|(end, _)| (rule.importance, end, rule.id))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use shunt_flow::text::NoPortNames;

    use super::*;
    use crate::{
        bridges::settings::{BridgeSettings, OverflowPolicy},
        id::{BridgeId, TableId},
        pipeline::Pipeline,
        tables::{
            flow_mod::{FlowMod, FlowModCommand},
            rule_filter::RuleFilter,
        },
        text::parse_rule,
        traversals::traversal::Refresh,
    };

    const BRIDGE: BridgeId = BridgeId::new(1);
    /// Maximum number of rules of the table.
    const RULES_MAX: usize = 6;

    /// An operation on a full table.
    #[derive(Clone, Debug)]
    enum EvictableOp {
        /// The addition of a rule: importance, idle timeout, hard timeout.
        Add(u16, u64, u64),
        /// A hit of a rule, by its index.
        Hit(usize),
        Lower(usize, u16),
        Delete(usize),
    }

    /// Generates an operation on a table.
    fn op() -> impl Strategy<Value = EvictableOp> {
        prop_oneof![
            4 => (0u16..2, 0u64..9, 0u64..9).prop_map(|(one, two, three)| EvictableOp::Add(one, two, three)),
            2 => (0..RULES_MAX).prop_map(EvictableOp::Hit),
            1 => (0..RULES_MAX, 1u16..5).prop_map(|(rule, to)| EvictableOp::Lower(rule, to)),
            1 => (0..RULES_MAX).prop_map(EvictableOp::Delete),
        ]
    }

    /// Returns the addition of a rule.
    fn request(number: usize, importance: u16, idle: u64, hard: u64) -> FlowMod {
        let text = format!(
            "table=0,reg0={number},idle_timeout={idle},hard_timeout={hard},importance={importance},\
             actions=drop"
        );
        parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap()
    }

    /// Returns the rules that stay when a rule is added, by a scan of all rules.
    fn survivors(rules: &[Arc<Rule>]) -> Vec<RuleId> {
        let mut left: Vec<RuleId> = rules.iter().map(|rule| rule.id).collect();
        if rules.len() == RULES_MAX {
            let first = rules.iter().filter_map(|rule| eviction_rank(rule)).min();
            left.retain(|id| first.is_none_or(|(_, _, least)| least != *id));
        }
        left
    }

    proptest! {
        #[test]
        fn the_evicted_rule_is_that_of_a_scan(
            ops in prop::collection::vec(op(), 1..60),
        ) {
            let pipeline = Pipeline::new(1);
            let rules_max = [(TableId::FIRST, RULES_MAX)].into();
            let overflow = OverflowPolicy::Evict;
            let settings = BridgeSettings { rules_max, overflow, ..BridgeSettings::default() };
            pipeline.add_bridge(BRIDGE, settings);
            for (number, op) in ops.into_iter().enumerate() {
                let now = Time::ZERO.after(Duration::from_secs(number as u64));
                let rules = pipeline.rules(BRIDGE, &RuleFilter::all());
                match op {
                    EvictableOp::Add(importance, idle, hard) => {
                        let add = request(number, importance, idle, hard);
                        let added = pipeline.apply(BRIDGE, &[add], now);
                        let all = pipeline.rules(BRIDGE, &RuleFilter::all());
                        let stay = rules.iter().all(|rule| deadline(rule).is_none());
                        prop_assert_eq!(added.is_err(), rules.len() == RULES_MAX && stay);
                        let left = all.iter().map(|rule| rule.id);
                        let left: Vec<_> = left.take(all.len() - usize::from(added.is_ok())).collect();
                        prop_assert_eq!(left, survivors(&rules));
                    }
                    EvictableOp::Hit(index) => {
                        let hit = rules.get(index);
                        hit.into_iter().for_each(|rule| rule.stats.credit(1, 60, now));
                    }
                    EvictableOp::Lower(index, to) => {
                        let Some(rule) = rules.get(index).cloned() else { continue };
                        let refresh = Refresh::FinTimeout { rule, idle: to, hard: 0 };
                        let key = shunt_flow::FlowKey::ZERO;
                        let mut traversal = pipeline.translate(&key, pipeline.version());
                        traversal.refreshes = [refresh].into();
                        pipeline.credit(&traversal, 1, 60, now);
                    }
                    EvictableOp::Delete(index) => {
                        let Some(rule) = rules.get(index) else { continue };
                        let delete = FlowMod {
                            command: FlowModCommand::DeleteStrict,
                            matching: rule.matching.clone(),
                            ..request(0, 0, 0, 0)
                        };
                        pipeline.apply(BRIDGE, &[delete], now).unwrap();
                    }
                }
            }
        }
    }
}
