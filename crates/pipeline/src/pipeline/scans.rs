//! Reads of many rules or objects, in steps of bounded length under the lock of the tables.
//!
//! A read of all rules sees one version, as if it took no time: it retains the version, so that no
//! reclaim drops a rule of it ([`RetainedVersion`]). The scan releases the lock after
//! [`VISITS_PER_HOLD`] rules or objects. So changes go on meanwhile, and translations that wait
//! behind a change wait for at most one step.

#[cfg(test)]
use std::sync::atomic::Ordering;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_classifier::{Lifetime, Version};
use shunt_flow::Match;

use super::Pipeline;
use crate::{
    bridges::bridge::{RuleScan, VersionedBridge, in_order},
    groups::group::Group,
    id::{BridgeId, GroupId, MeterId},
    meters::meter::Meter,
    tables::{
        flow_mod::TableSelector,
        rule::{Instructions, Rule},
        rule_filter::RuleFilter,
    },
    versions::versioned_map::MapPage,
};

/// Maximum number of rules or objects that one shared lock of the tables covers.
pub(super) const VISITS_PER_HOLD: usize = 512;

/// Rules of one version of the tables.
#[derive(Clone, Debug)]
pub struct RuleListing {
    /// The version of the rules that the listing shows.
    pub version: Version,
    /// The rules, by table and then by age.
    pub rules: Vec<Arc<Rule>>,
}

/// A version that [`Pipeline::reclaim`] leaves complete while this value exists.
pub(super) struct RetainedVersion<'a> {
    pipeline: &'a Pipeline,
    /// The version that stays readable.
    version: Version,
}

impl RetainedVersion<'_> {
    /// Returns the version of the rules that are scanned.
    pub(super) const fn version(&self) -> Version {
        self.version
    }
}

impl Drop for RetainedVersion<'_> {
    fn drop(&mut self) {
        let mut retained = self.pipeline.retained.lock();
        if let Some(count) = retained.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                retained.remove(&self.version);
            }
        }
    }
}

impl Pipeline {
    /// Retains the newest published version.
    pub(super) fn retain_newest(&self) -> RetainedVersion<'_> {
        let mut retained = self.retained.lock();
        // A reclaim that has not seen this entry drops nothing that the newest version sees.
        let version = self.version();
        *retained.entry(version).or_default() += 1;
        RetainedVersion { pipeline: self, version }
    }

    /// Returns the oldest version that a reclaim up to `oldest` must leave complete.
    pub(super) fn oldest_retained(&self, oldest: Version) -> Version {
        let retained = self.retained.lock();
        retained.first_key_value().map_or(oldest, |(version, _)| oldest.min(*version))
    }

    /// Returns the rules of a bridge that match a filter, by table and then by age.
    ///
    /// One version has all these rules. Changes that are made meanwhile do not wait for the
    /// call, which takes the lock of the tables for short times only.
    #[must_use]
    pub fn rules(&self, id: BridgeId, filter: &RuleFilter) -> Vec<Arc<Rule>> {
        self.list_rules(id, filter).rules
    }

    /// Returns the rules of [`Self::rules`], with the version that they are of.
    #[must_use]
    pub fn list_rules(&self, id: BridgeId, filter: &RuleFilter) -> RuleListing {
        let retained = self.retain_newest();
        let version = retained.version();
        RuleListing { version, rules: self.rules_at(id, filter, version) }
    }

    /// Returns the rules of a bridge that match a filter, by table and then by age.
    ///
    /// `version` is retained, or the caller holds the lock of control.
    pub(super) fn rules_at(
        &self,
        id: BridgeId,
        filter: &RuleFilter,
        version: Version,
    ) -> Vec<Arc<Rule>> {
        let mut rules = Vec::new();
        self.scan(id, filter, version, |rule| rules.push(Arc::clone(rule)));
        in_order(rules)
    }

    /// Calls `visit` with the rules of a bridge that match a filter, in any order.
    ///
    /// `version` is retained, or the caller holds the lock of control.
    pub(super) fn scan(
        &self,
        id: BridgeId,
        filter: &RuleFilter,
        version: Version,
        mut visit: impl FnMut(&Arc<Rule>),
    ) {
        self.scan_lifetimes(id, filter.table, &filter.matching, |lifetime, rule| {
            if lifetime.is_visible(version) && filter.admits(rule) {
                visit(rule);
            }
        });
    }

    /// Calls `visit` with the rules of some tables and their lifetimes, in any order.
    ///
    /// The rules have the match `matching` or a narrower one.
    pub(super) fn scan_lifetimes(
        &self,
        id: BridgeId,
        tables: TableSelector,
        matching: &Match,
        mut visit: impl FnMut(Lifetime, &Arc<Rule>),
    ) {
        let mut scan = RuleScan::default();
        loop {
            let mut left = VISITS_PER_HOLD;
            let bridges = self.bridges.read();
            let Some(bridge) = bridges.get(&id) else { return };
            let is_complete = bridge.scan_some(&mut scan, tables, matching, &mut left, &mut visit);
            drop(bridges);
            #[cfg(test)]
            self.shared_holds.fetch_add(1, Ordering::Relaxed);
            if is_complete {
                return;
            }
        }
    }

    /// Returns the values of a map of a bridge, by number.
    ///
    /// `read` returns a page of at most [`VISITS_PER_HOLD`] entries.
    pub(super) fn pages<K: Copy, T>(
        &self,
        id: BridgeId,
        read: impl Fn(&VersionedBridge, Option<K>) -> MapPage<K, T>,
    ) -> Vec<(K, Arc<T>)> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.bridges.read().get(&id).map(|bridge| read(bridge, after));
            #[cfg(test)]
            self.shared_holds.fetch_add(1, Ordering::Relaxed);
            let Some(MapPage { values, last }) = page else { return all };
            all.extend(values);
            if last.is_none() {
                return all;
            }
            after = last;
        }
    }

    /// Returns the groups of a bridge, by number.
    #[must_use]
    pub fn groups(&self, id: BridgeId) -> Vec<Arc<Group>> {
        let retained = self.retain_newest();
        self.groups_at(id, retained.version())
    }

    /// Returns the groups of all bridges.
    #[must_use]
    pub fn all_groups(&self) -> Vec<Arc<Group>> {
        let retained = self.retain_newest();
        let ids = self.bridge_ids().into_iter();
        ids.flat_map(|id| self.groups_at(id, retained.version())).collect()
    }

    /// Returns the groups of a bridge at a retained version.
    pub(super) fn groups_at(&self, id: BridgeId, version: Version) -> Vec<Arc<Group>> {
        let page =
            |bridge: &VersionedBridge, after| bridge.groups.page(after, version, VISITS_PER_HOLD);
        self.pages(id, page).into_iter().map(|(_, group)| group).collect()
    }

    /// Returns the meters of a bridge, by number.
    #[must_use]
    pub fn meters(&self, id: BridgeId) -> Vec<Arc<Meter>> {
        let retained = self.retain_newest();
        self.meters_at(id, retained.version())
    }

    /// Returns the meters of a bridge at a retained version.
    pub(super) fn meters_at(&self, id: BridgeId, version: Version) -> Vec<Arc<Meter>> {
        let page =
            |bridge: &VersionedBridge, after| bridge.meters.page(after, version, VISITS_PER_HOLD);
        self.pages(id, page).into_iter().map(|(_, meter)| meter).collect()
    }

    /// Returns the number of rules that name each group (`ref_count`).
    ///
    /// Groups that no rule names are left out. The cost is linear in the number of rules of the
    /// bridge.
    #[must_use]
    pub fn group_users(&self, id: BridgeId) -> BTreeMap<GroupId, u32> {
        self.users(id, Instructions::groups)
    }

    /// Returns the number of rules that pass each meter (`flow_count`).
    ///
    /// See [`Self::group_users`].
    #[must_use]
    pub fn meter_users(&self, id: BridgeId) -> BTreeMap<MeterId, u32> {
        self.users(id, Instructions::meters)
    }

    /// Returns the number of rules that name each object.
    fn users<K: Ord>(
        &self,
        id: BridgeId,
        named: impl Fn(&Instructions) -> BTreeSet<K>,
    ) -> BTreeMap<K, u32> {
        let retained = self.retain_newest();
        let mut users = BTreeMap::new();
        self.scan(id, &RuleFilter::all(), retained.version(), |rule| {
            for name in named(&rule.instructions) {
                *users.entry(name).or_insert(0) += 1;
            }
        });
        users
    }

    /// Returns the numbers of all bridges that a version sees.
    pub(super) fn bridge_ids(&self) -> Vec<BridgeId> {
        self.bridges.read().keys().copied().collect()
    }
}
