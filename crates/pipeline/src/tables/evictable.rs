//! Which rules of a full table make room for new ones: the least important first, then those that
//! would expire first, then the oldest (OpenFlow 1.4, 6.5 and 7.3.4.7). Rules without timeouts stay.
//!
//! An index, kept from the first time that a table was full, holds the rules by that order, so that
//! an addition costs O(log n) and no look at all rules. It learns nothing of hits, which only put
//! the end of a rule off: what stands first is judged anew when it is asked for, and takes its later
//! place. A rule whose timeouts a packet has lowered is placed anew before the next change.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{expiry::deadline, rule::Rule};
use crate::{id::RuleId, time::Time};

/// The rules of a table that may be evicted.
#[derive(Default)]
pub(crate) struct Evictable {
    queue: BTreeMap<Place, Arc<Rule>>,
    places: HashMap<RuleId, Place, foldhash::fast::FixedState>,
}

/// A place in the order in which rules go: importance, end, age.
type Place = (u16, Time, RuleId);

impl Evictable {
    /// The index of a table with these rules.
    pub(crate) fn of<'a>(rules: impl Iterator<Item = &'a Arc<Rule>>) -> Self {
        let mut evictable = Self::default();
        rules.for_each(|rule| evictable.insert(rule));
        evictable
    }

    /// How many rules may be evicted.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The rule that goes first.
    pub(crate) fn first(&mut self) -> Option<Arc<Rule>> {
        loop {
            let (held, rule) = self.queue.first_key_value()?;
            let rule = Arc::clone(rule);
            if place(&rule) == Some(*held) {
                return Some(rule);
            }
            self.requeue(&rule);
        }
    }

    pub(crate) fn insert(&mut self, rule: &Arc<Rule>) {
        if let Some(place) = place(rule) {
            self.queue.insert(place, Arc::clone(rule));
            self.places.insert(rule.id, place);
        }
    }

    pub(crate) fn remove(&mut self, rule: RuleId) {
        if let Some(place) = self.places.remove(&rule) {
            self.queue.remove(&place);
        }
    }

    /// Gives a rule its place anew.
    pub(crate) fn requeue(&mut self, rule: &Arc<Rule>) {
        self.remove(rule.id);
        self.insert(rule);
    }
}

/// The place of a rule now; `None` if it stays.
fn place(rule: &Rule) -> Option<Place> {
    deadline(rule).map(|(end, _)| (rule.importance, end, rule.id))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use shunt_flow::text::NoPortNames;

    use super::*;
    use crate::{
        bridges::settings::{BridgeSettings, Overflow},
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
    const RULES_MAX: usize = 6;

    /// Something that happens to a full table.
    #[derive(Clone, Debug)]
    enum Op {
        /// Importance, idle timeout, hard timeout.
        Add(u16, u64, u64),
        /// One of the rules, by its place.
        Hit(usize),
        Lower(usize, u16),
        Delete(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0u16..2, 0u64..9, 0u64..9).prop_map(|(one, two, three)| Op::Add(one, two, three)),
            2 => (0..RULES_MAX).prop_map(Op::Hit),
            1 => (0..RULES_MAX, 1u16..5).prop_map(|(rule, to)| Op::Lower(rule, to)),
            1 => (0..RULES_MAX).prop_map(Op::Delete),
        ]
    }

    fn request(number: usize, (importance, idle, hard): (u16, u64, u64)) -> FlowMod {
        let text = format!(
            "table=0,reg0={number},idle_timeout={idle},hard_timeout={hard},importance={importance},\
             actions=drop"
        );
        parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap()
    }

    /// The rules that are left when one more is added, by a look at all of them.
    fn survivors(rules: &[Arc<Rule>]) -> Vec<RuleId> {
        let mut left: Vec<RuleId> = rules.iter().map(|rule| rule.id).collect();
        if rules.len() == RULES_MAX {
            let first = rules.iter().filter_map(|rule| place(rule)).min();
            left.retain(|id| first.is_none_or(|(_, _, least)| least != *id));
        }
        left
    }

    proptest! {
        #[test]
        fn what_goes_first_is_what_a_look_at_all_rules_says(
            ops in prop::collection::vec(op(), 1..60),
        ) {
            let pipeline = Pipeline::new(1);
            let rules_max = [(TableId::FIRST, RULES_MAX)].into();
            let overflow = Overflow::Evict;
            let settings = BridgeSettings { rules_max, overflow, ..BridgeSettings::default() };
            pipeline.add_bridge(BRIDGE, settings);
            for (number, op) in ops.into_iter().enumerate() {
                let now = Time::ZERO.after(Duration::from_secs(number as u64));
                let rules = pipeline.rules(BRIDGE, &RuleFilter::all());
                match op {
                    Op::Add(importance, idle, hard) => {
                        let add = request(number, (importance, idle, hard));
                        let added = pipeline.apply(BRIDGE, &[add], now);
                        let all = pipeline.rules(BRIDGE, &RuleFilter::all());
                        let stay = rules.iter().all(|rule| deadline(rule).is_none());
                        prop_assert_eq!(added.is_err(), rules.len() == RULES_MAX && stay);
                        let left = all.iter().map(|rule| rule.id);
                        let left: Vec<_> = left.take(all.len() - usize::from(added.is_ok())).collect();
                        prop_assert_eq!(left, survivors(&rules));
                    }
                    Op::Hit(index) => {
                        let hit = rules.get(index);
                        hit.into_iter().for_each(|rule| rule.stats.credit(1, 60, now));
                    }
                    Op::Lower(index, to) => {
                        let Some(rule) = rules.get(index).cloned() else { continue };
                        let refresh = Refresh::FinTimeout { rule, idle: to, hard: 0 };
                        let key = shunt_flow::FlowKey::ZERO;
                        let mut traversal = pipeline.translate(&key, pipeline.version());
                        traversal.refreshes = [refresh].into();
                        pipeline.credit(&traversal, 1, 60, now);
                    }
                    Op::Delete(index) => {
                        let Some(rule) = rules.get(index) else { continue };
                        let delete = FlowMod {
                            command: FlowModCommand::DeleteStrict,
                            matching: rule.matching.clone(),
                            ..request(0, (0, 0, 0))
                        };
                        pipeline.apply(BRIDGE, &[delete], now).unwrap();
                    }
                }
            }
        }
    }
}
