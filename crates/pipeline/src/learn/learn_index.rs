//! The index of the tables that the `learn` actions of a bridge write.
//!
//! The index has:
//!
//! * The tables that are written. A `learn` in a translation consults a rule of such a table as the
//!   object [`Object::Learned`]. So a change of the rule is a delta of that object, too.
//! * The number of rules of each cookie at each version, in the tables where a `learn` has a limit.
//! * The number of `learn` actions with `delete_learned`, for each table and cookie. When the last
//!   such action is removed, the cookie is an *orphan*.
//!
//! A table stays in the index for good: there are few, and an old cache entry may have read its
//! rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use foldhash::fast::FixedState;
use shunt_classifier::{Priority, Version};
use shunt_flow::Match;

use crate::{
    action::{Action, LearnAction},
    id::{BridgeId, Cookie, TableId},
    tables::rule::{Instructions, Rule},
    versions::{delta::Object, versioned_map::VersionedMap},
};

/// The index of the tables that the `learn` actions of a bridge write.
pub(crate) struct LearnIndex {
    /// The hasher of cookies and matches, with a fixed seed.
    hashing: FixedState,
    /// The tables that `learn` actions write.
    tables: BTreeSet<TableId>,
    /// The tables in which a `learn` has a limit, each with the first counted version.
    counted: BTreeMap<TableId, Version>,
    /// Number of rules by cookie, for the counted tables; no entry for 0.
    counts: VersionedMap<(TableId, Cookie), usize>,
    /// Number of `learn` actions with `delete_learned`, in the newest version.
    owners: BTreeMap<(TableId, Cookie), usize>,
    /// The tables and cookies without a `learn` that owns them.
    orphans: BTreeSet<(TableId, Cookie)>,
}

impl LearnIndex {
    /// Returns an index without `learn` actions.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            hashing: FixedState::with_seed(seed),
            tables: BTreeSet::new(),
            counted: BTreeMap::new(),
            counts: VersionedMap::new(),
            owners: BTreeMap::new(),
            orphans: BTreeSet::new(),
        }
    }

    /// Adds the `learn` actions of a new rule.
    ///
    /// Returns the tables with rules that must be counted from `version` on.
    pub(crate) fn add_learner(
        &mut self,
        instructions: &Instructions,
        version: Version,
    ) -> Vec<TableId> {
        let mut counted = Vec::new();
        for learn in instructions.learns() {
            self.tables.insert(learn.table);
            if learn.limit > 0 && self.begin_count(learn.table, version) {
                counted.push(learn.table);
            }
            if learn.delete_learned {
                *self.owners.entry((learn.table, learn.cookie)).or_default() += 1;
            }
        }
        counted
    }

    /// Adds a table with rules that are counted by their cookies.
    ///
    /// Returns whether the table is new. The caller then counts its rules, as `version` sees them.
    pub(crate) fn begin_count(&mut self, table: TableId, version: Version) -> bool {
        let is_new = !self.counted.contains_key(&table);
        self.counted.entry(table).or_insert(version);
        is_new
    }

    /// Removes the `learn` actions of a rule.
    pub(crate) fn remove_learner(&mut self, instructions: &Instructions) {
        for learn in instructions.learns().filter(|learn| learn.delete_learned) {
            let owned = (learn.table, learn.cookie);
            if let Some(count) = self.owners.get_mut(&owned) {
                *count -= 1;
                if *count == 0 {
                    self.owners.remove(&owned);
                    self.orphans.insert(owned);
                }
            }
        }
    }

    /// Counts a rule that `version` adds, if its table is counted.
    pub(crate) fn count_in(&mut self, rule: &Rule, version: Version) {
        self.recount(rule, version, |count| count + 1);
    }

    /// Counts a rule that `version` removes, if its table is counted.
    pub(crate) fn count_out(&mut self, rule: &Rule, version: Version) {
        self.recount(rule, version, |count| count.saturating_sub(1));
    }

    /// Changes the number of rules with the cookie of `rule`.
    fn recount(&mut self, rule: &Rule, version: Version, change: impl Fn(usize) -> usize) {
        if self.counted.contains_key(&rule.table) {
            let name = (rule.table, rule.cookie);
            match change(self.counts.find(name, version).map_or(0, |count| **count)) {
                0 => self.counts.end(name, version),
                count => self.counts.set(name, Arc::new(count), version),
            }
        }
    }

    /// Returns the number of rules of a cookie in a table, as `version` sees it.
    ///
    /// `None` if the table is not counted, or was not at this version.
    pub(crate) fn count(&self, table: TableId, cookie: Cookie, version: Version) -> Option<usize> {
        let is_counted = self.counted.get(&table).is_some_and(|first| *first <= version);
        let count = self.counts.find((table, cookie), version);
        is_counted.then(|| count.map_or(0, |count| **count))
    }

    /// Takes the orphans: the tables and cookies without a `learn` that owns them.
    ///
    /// The caller removes the learned rules.
    pub(crate) fn take_orphans(&mut self) -> Vec<(TableId, Cookie)> {
        let orphans = std::mem::take(&mut self.orphans);
        // If the owner was modified, or replaced by another owner, the cookie is not an orphan.
        orphans.into_iter().filter(|orphan| !self.owners.contains_key(orphan)).collect()
    }

    /// Returns the objects that change with the addition, removal or change of a rule.
    pub(crate) fn objects(&self, rule: &Rule) -> Vec<Object> {
        if !self.tables.contains(&rule.table) {
            return Vec::new();
        }
        let mut objects = vec![self.rule(rule.bridge, rule.table, &rule.matching, rule.priority)];
        if self.counted.contains_key(&rule.table) {
            objects.push(self.cookie(rule.bridge, rule.table, rule.cookie));
        }
        objects
    }

    /// Returns the object for the rule with a match and priority, or for its absence.
    pub(crate) fn rule(
        &self,
        bridge: BridgeId,
        table: TableId,
        matching: &Match,
        priority: Priority,
    ) -> Object {
        self.object(bridge, table, (true, matching, priority))
    }

    /// Returns the object for the number of rules with a cookie in a table.
    pub(crate) fn cookie(&self, bridge: BridgeId, table: TableId, cookie: Cookie) -> Object {
        self.object(bridge, table, (false, cookie))
    }

    /// Returns the object of a count, by a hash of its name.
    fn object(&self, bridge: BridgeId, table: TableId, name: impl Hash) -> Object {
        Object::Learned(bridge, table, self.hashing.hash_one(name))
    }

    /// Calls [`VersionedMap::reclaim`] on the counts.
    pub(crate) fn reclaim(&mut self, oldest: Version, left: &mut usize) -> bool {
        self.counts.reclaim(oldest, left)
    }
}

impl Instructions {
    /// Returns every `learn` action, also inside clones.
    pub(crate) fn learns(&self) -> impl Iterator<Item = &LearnAction> {
        let mut lists = vec![self.apply.iter()];
        std::iter::from_fn(move || {
            loop {
                match lists.last_mut()?.next() {
                    Some(Action::Learn(learn)) => return Some(&**learn),
                    Some(Action::Clone(inner)) => lists.push(inner.iter()),
                    Some(_) => {}
                    None => drop(lists.pop()),
                }
            }
        })
    }
}
