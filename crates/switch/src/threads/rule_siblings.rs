//! Sets of back ends in rule changes: rules added together that differ only in the destination.
//!
//! A controller that adds a service sends the rules of its back ends together, in a bundle or in
//! consecutive flow-mods. A client that talks to one back end is likely to talk to the others.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    time::Duration,
};

use shunt_flow::{FieldId, FlowMask, Match};
use shunt_foresight::{SiblingSet, SiblingSets};
use shunt_pipeline::{
    BridgeId, Delta, Priority, Rule, RuleChange, RuleDelta, RuleId, TableId, Time,
};

use super::sibling_sets::{ADDRESSES, whole};

/// The sets of back ends that the rules in force form.
#[derive(Debug, Default)]
pub(crate) struct RuleSiblings {
    /// Sets by the id of their first rule.
    sets: BTreeMap<RuleId, SiblingRules>,
    /// The set of each rule, as the id of the set's first rule.
    set_of: BTreeMap<RuleId, RuleId>,
    /// The newest rule shapes; a later rule of the same shape joins the set.
    open: HashMap<RuleShape, OpenSet>,
    /// Creation time of the first rule in `open`.
    opened: Time,
    /// Number of changes of the sets so far.
    changes: u64,
}

/// A set of rules that differ only in one address.
#[derive(Debug)]
struct SiblingRules {
    /// The address field in which the rules differ.
    field: FieldId,
    /// The value of this field in each rule.
    values: BTreeMap<RuleId, u128>,
}

/// A rule without one of its addresses.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RuleShape {
    bridge: BridgeId,
    table: TableId,
    priority: Priority,
    /// The address field that is left out.
    field: FieldId,
    /// The match without this field.
    others: Match,
}

/// The first rule of a shape, and the number of rules with this shape so far.
#[derive(Clone, Copy, Debug)]
struct OpenSet {
    /// The first rule of the shape.
    first: RuleId,
    /// The value of the field in the first rule.
    value: u128,
    /// Number of rules of the shape so far.
    count: usize,
}

/// Maximum time between rules that count as added together.
const GATHER_TIME: Duration = Duration::from_secs(1);

/// Maximum number of rules in a set: larger sets are routes, not a service.
const MEMBERS_MAX: usize = 64;

/// Maximum number of rules in all sets; beyond it, the oldest set is removed.
const RULES_MAX: usize = SiblingSets::VALUES_MAX / 2;

/// Maximum number of entries of `open`.
const OPEN_MAX: usize = 4096;

impl RuleSiblings {
    /// Updates the sets for the added and removed rules of a change.
    pub(crate) fn apply(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            let Delta::Rule(RuleDelta { rule, change }) = delta else { continue };
            match change {
                RuleChange::Added => self.add(rule),
                RuleChange::Removed(_) => self.remove(rule),
                RuleChange::Modified(_) => {}
            }
        }
    }

    /// Returns the number of changes of the sets so far.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the sets, the newest last.
    pub(crate) fn sets(&self) -> impl Iterator<Item = SiblingSet> {
        self.sets.values().map(|set| SiblingSet {
            field: set.field,
            values: set.values.values().copied().collect(),
        })
    }

    /// Adds a rule to the set of rules with its shape.
    fn add(&mut self, rule: &Rule) {
        if rule.created.since(self.opened) > GATHER_TIME {
            self.open.clear();
            self.opened = rule.created;
        }
        for (shape, value) in ADDRESSES.iter().filter_map(|field| shape(rule, *field)) {
            let (field, is_full) = (shape.field, self.open.len() >= OPEN_MAX);
            let earlier = match self.open.entry(shape) {
                Entry::Occupied(mut own) => {
                    own.get_mut().count += 1;
                    Some(*own.get())
                }
                Entry::Vacant(_) if is_full => None,
                Entry::Vacant(own) => {
                    own.insert(OpenSet { first: rule.id, value, count: 1 });
                    None
                }
            };
            if let Some(earlier) = earlier {
                self.join(field, earlier, rule.id, value);
            }
        }
    }

    /// Adds a rule to the set of an earlier rule with the same shape.
    fn join(&mut self, field: FieldId, open: OpenSet, rule: RuleId, value: u128) {
        let OpenSet { first, value: first_value, count } = open;
        self.changes += 1;
        if count > MEMBERS_MAX {
            return self.forget(first);
        }
        let set = self.sets.entry(first).or_insert_with(|| SiblingRules {
            field,
            values: BTreeMap::from([(first, first_value)]),
        });
        set.values.insert(rule, value);
        self.set_of.extend([(first, first), (rule, first)]);
        while self.set_of.len() > RULES_MAX
            && let Some(oldest) = self.sets.first_key_value().map(|(first, _)| *first)
        {
            self.forget(oldest);
        }
    }

    /// Removes a rule from its set.
    fn remove(&mut self, rule: &Rule) {
        if rule.created >= self.opened {
            self.open.retain(|_, own| own.first != rule.id);
        }
        let Some(first) = self.set_of.remove(&rule.id) else { return };
        self.changes += 1;
        if let Some(set) = self.sets.get_mut(&first) {
            set.values.remove(&rule.id);
            if set.values.len() < 2 {
                self.forget(first);
            }
        }
    }

    /// Removes the set that begins with rule `first`, if there is such a set.
    fn forget(&mut self, first: RuleId) {
        let Some(set) = self.sets.remove(&first) else { return };
        for rule in set.values.keys() {
            self.set_of.remove(rule);
        }
    }
}

/// Returns the shape of a rule without an exactly matched address,
/// and this address.
fn shape(rule: &Rule, field: FieldId) -> Option<(RuleShape, u128)> {
    let mut mask = FlowMask::from(rule.matching.mask());
    if mask.field(field) != whole(field) {
        return None;
    }
    mask.remove_bits(field, whole(field));
    let key = rule.matching.key();
    let Rule { bridge, table, priority, .. } = *rule;
    let shape = RuleShape { bridge, table, priority, field, others: Match::new(&key, &mask) };
    Some((shape, key.field(field)))
}

#[cfg(test)]
mod tests {
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeSettings, FlowModCommand, Modification, Pipeline, text::parse_rule,
    };

    use super::*;

    const BRIDGE: BridgeId = BridgeId::new(1);

    /// A pipeline for tests, and the sets that its changes form.
    struct SiblingFixture {
        pipeline: Pipeline,
        siblings: RuleSiblings,
        now: Time,
    }

    impl SiblingFixture {
        fn new() -> Self {
            let pipeline = Pipeline::new(7);
            pipeline.add_bridge(BRIDGE, BridgeSettings::default());
            Self { pipeline, siblings: RuleSiblings::default(), now: Time::ZERO }
        }

        /// Applies flow-mods as one change.
        fn apply(&mut self, command: FlowModCommand, rules: &[String]) {
            let parsed = rules
                .iter()
                .map(|rule| Modification::Flow(parse_rule(command, rule, &NoPortNames).unwrap()));
            let change = self.pipeline.modify(BRIDGE, parsed, self.now).unwrap();
            self.siblings.apply(&change.deltas);
        }

        /// Adds rules, given as text.
        fn add(&mut self, rules: &[String]) {
            self.apply(FlowModCommand::Add, rules);
        }

        /// Returns the values of each set.
        fn sets(&self) -> Vec<Vec<u128>> {
            self.siblings.sets().map(|set| set.values).collect()
        }
    }

    fn back_ends(hosts: impl IntoIterator<Item = u8>, port: u16) -> Vec<String> {
        let rule = |host| format!("tcp,nw_dst=0.0.0.{host},tp_dst={port},actions=output:{host}");
        hosts.into_iter().map(rule).collect()
    }

    #[test]
    fn rules_that_differ_in_address_are_siblings() {
        let mut fixture = SiblingFixture::new();
        fixture.add(&[back_ends(1..=2, 80), back_ends(7..=8, 443), back_ends([9], 22)].concat());
        // The next flow-mod is a separate change, some milliseconds later.
        fixture.now = fixture.now.after(Duration::from_millis(20));
        fixture.add(&back_ends([3], 80));
        fixture.now = fixture.now.after(GATHER_TIME);
        fixture.add(&back_ends([4], 80));
        assert_eq!(fixture.sets(), [vec![1, 2, 3], vec![7, 8]]);
        // Rules with prefixes, or with other priorities, form no set.
        let prefixes = (1..=3).map(|net| format!("ip,nw_dst=10.{net}.0.0/16,actions=output:1"));
        fixture.add(&prefixes.collect::<Vec<_>>());
        let ranks = (1..=3).map(|at| format!("priority={at},ip,nw_dst=9.0.0.{at},actions=drop"));
        fixture.add(&ranks.collect::<Vec<_>>());
        assert_eq!(fixture.sets().len(), 2);
    }

    #[test]
    fn a_removed_rule_leaves_its_set() {
        let mut fixture = SiblingFixture::new();
        fixture.add(&back_ends(1..=3, 80));
        let remove = |host| vec![format!("tcp,nw_dst=0.0.0.{host},tp_dst=80")];
        fixture.apply(FlowModCommand::DeleteStrict, &remove(2));
        assert_eq!(fixture.sets(), [[1, 3]]);
        let changes = fixture.siblings.changes();
        fixture.apply(FlowModCommand::DeleteStrict, &remove(1));
        assert!(fixture.sets().is_empty() && fixture.siblings.changes() > changes);
        assert!(fixture.siblings.set_of.is_empty());
        // A removed rule forms no set with a later rule.
        fixture.add(&back_ends([4], 443));
        fixture.apply(FlowModCommand::DeleteStrict, &["tcp,nw_dst=0.0.0.4,tp_dst=443".to_owned()]);
        fixture.add(&back_ends([5], 443));
        assert!(fixture.sets().is_empty());
    }

    #[test]
    fn many_routes_are_no_back_ends() {
        let mut fixture = SiblingFixture::new();
        fixture.add(&back_ends(0..=u8::MAX, 80));
        assert!(fixture.sets().is_empty() && fixture.siblings.set_of.is_empty());
    }

    #[test]
    fn the_oldest_sets_are_forgotten() {
        let mut fixture = SiblingFixture::new();
        for port in 0..5000 {
            fixture.now = fixture.now.after(GATHER_TIME * 2);
            fixture.add(&back_ends(1..=2, port));
        }
        assert_eq!(
            (fixture.sets().len(), fixture.siblings.set_of.len()),
            (RULES_MAX / 2, RULES_MAX)
        );
    }
}
