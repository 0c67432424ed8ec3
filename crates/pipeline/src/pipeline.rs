//! All tables of a daemon: control changes them, and packet threads translate packets by them.
//!
//! A change is written into the shared tables under the next version. No translation sees that
//! version until the whole change is written; then the version is published. Translations name the
//! version that they see. Changes, reclaims and reads of many rules release the lock on the tables
//! regularly, so packet threads can translate by older versions meanwhile.

mod bridge_changes;
mod contents;
mod crediting;
mod expiry;
mod holds;
mod learned;
mod scans;
mod selections;
mod sub_traversals;
pub(crate) mod training;
mod translations;

pub use contents::BridgeContents;
pub use crediting::{Crediting, TraversalCredit};
pub use scans::RuleListing;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use shunt_classifier::Version;

use crate::{
    action::Action,
    bridges::{
        bridge::{VersionedBridge, VersionedBridges},
        output_counter::OutputCounter,
        port::PortInfo,
        settings::BridgeSettings,
    },
    continuations::continuation::Continuations,
    error::RejectedMod,
    groups::group::GroupCheck,
    id::{BridgeId, RuleId},
    learn::{
        learn_status::LearnStatus,
        learning::{LearnError, Learning},
    },
    tables::{
        expiry::Deadlines,
        flow_mod::{FlowMod, FlowModError},
        rule::Rule,
        table::TableTotals,
    },
    time::Time,
    update::{batch::UpdateBatch, bundle::own, check::check_actions, modification::Modification},
    versions::delta::Delta,
};

/// All bridges of a daemon, with their tables and ports.
///
/// The pipeline is shared: every method takes `&self`.
pub struct Pipeline {
    /// The start value of the random numbers of all bridges.
    seed: u64,
    /// The newest version that translations may see.
    published: AtomicU64,
    /// The oldest version by which threads may still translate.
    oldest: AtomicU64,
    /// The version of the last complete reclaim.
    reclaimed: AtomicU64,
    bridges: RwLock<VersionedBridges>,
    continuations: Continuations,
    /// The state of changes; its lock admits one change at a time.
    control: Mutex<ControlState>,
    learn_status: LearnStatus,
    /// The check of groups that insertions of buckets make; `None` accepts all.
    group_check: Option<GroupCheck>,
    /// Rules with timeouts that packets have lowered, not queued again yet.
    lowered: Mutex<Vec<Arc<Rule>>>,
    /// The versions that readers of many rules retain, with their numbers of readers.
    retained: Mutex<BTreeMap<Version, usize>>,
    /// [`Self::INDEXED_RULES_MIN`], or another number in tests.
    indexed_rules_min: AtomicUsize,
    /// Number of times that a change of many rules has released the lock.
    #[cfg(test)]
    releases: AtomicU64,
    /// Number of times that a read of many rules or objects has released the lock.
    #[cfg(test)]
    shared_holds: AtomicU64,
}

/// State of control, which changes of the tables update one after the other.
struct ControlState {
    /// The id of the next added rule.
    next_rule: RuleId,
    /// The rules that expire, soonest first.
    deadlines: Deadlines,
}

/// A published version and its deltas.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version; the newest existing version if nothing changed.
    pub version: Version,
    /// The deltas of the version, in the order of the changes.
    pub deltas: Vec<Delta>,
}

impl Pipeline {
    /// Creates a pipeline without bridges, at [`Version::ZERO`].
    ///
    /// `seed` is part of the hashes of the tables.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let control = ControlState { next_rule: RuleId::new(1), deadlines: Deadlines::default() };
        Self {
            seed,
            published: AtomicU64::new(Version::ZERO.number()),
            oldest: AtomicU64::new(Version::ZERO.number()),
            reclaimed: AtomicU64::new(Version::ZERO.number()),
            bridges: RwLock::new(VersionedBridges::new()),
            continuations: Continuations::new(seed),
            control: Mutex::new(control),
            learn_status: LearnStatus::default(),
            group_check: None,
            lowered: Mutex::default(),
            retained: Mutex::default(),
            indexed_rules_min: AtomicUsize::new(Self::INDEXED_RULES_MIN),
            #[cfg(test)]
            releases: AtomicU64::new(0),
            #[cfg(test)]
            shared_holds: AtomicU64::new(0),
        }
    }

    /// Sets the check of groups that insertions of buckets make.
    ///
    /// An insertion is refused if `check` returns false for its group. Other requests have all
    /// buckets of their groups, so their sender can check them before.
    #[must_use]
    pub const fn with_group_check(mut self, check: GroupCheck) -> Self {
        self.group_check = Some(check);
        self
    }

    /// Returns the newest published version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::new(self.published.load(Ordering::Acquire))
    }

    /// Returns the ports of a bridge, by number.
    #[must_use]
    pub fn ports(&self, id: BridgeId) -> Option<Arc<[Arc<PortInfo>]>> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.ports(self.version()).map(|ports| Arc::clone(ports.ports()))
    }

    /// Returns the settings of a bridge.
    #[must_use]
    pub fn settings(&self, id: BridgeId) -> Option<BridgeSettings> {
        let bridges = self.bridges.read();
        bridges.get(&id)?.settings(self.version()).map(|settings| (**settings).clone())
    }

    /// Returns the counters of the mirrors of a bridge.
    #[must_use]
    pub fn mirror_counters(&self, id: BridgeId) -> Vec<Arc<OutputCounter>> {
        let bridges = self.bridges.read();
        bridges.get(&id).map_or_else(Vec::new, |own| own.mirror_counters().cloned().collect())
    }

    /// Applies flow-mods, in order, as one version: all of them or none.
    ///
    /// # Errors
    ///
    /// As [`Self::modify`].
    pub fn apply(&self, id: BridgeId, mods: &[FlowMod], now: Time) -> Result<Change, RejectedMod> {
        self.change(id, mods, now, |batch, bridges, request| {
            Ok(batch.apply(id, own(bridges, id)?, request)?)
        })
    }

    /// Changes rules, groups and meters, in order, as one version: all or nothing.
    ///
    /// # Errors
    ///
    /// Returns the first request that was refused, and the reason. After an error, nothing has
    /// changed, and no version was published.
    pub fn modify(
        &self,
        id: BridgeId,
        mods: impl IntoIterator<Item = Modification>,
        now: Time,
    ) -> Result<Change, RejectedMod> {
        self.change(id, mods, now, |batch, bridges, request| {
            batch.modify(id, own(bridges, id)?, request)
        })
    }

    /// Checks that actions of a packet-out name existing groups and meters.
    ///
    /// The function also checks that the switch supports the actions.
    ///
    /// # Errors
    ///
    /// Returns the reason for the first action that is refused.
    pub fn check_actions(&self, id: BridgeId, actions: &[Action]) -> Result<(), FlowModError> {
        let version = self.version();
        let bridges = self.bridges.read();
        bridges.get(&id).map_or(Ok(()), |bridge| check_actions(bridge, &[actions], version))
    }

    /// Applies learn requests of packets, in order, as one version.
    ///
    /// A request for an existing rule or address refreshes its timeout, without a new version.
    /// [`Self::learnings_refused`] counts the requests that a limit refuses, and those of removed
    /// learning rules.
    pub fn learn(&self, learnings: &[Learning], now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let mut batch = UpdateBatch::new(before.next(), now, control.next_rule);
        self.requeue_lowered(&mut control.deadlines, before);
        let mut learnings = learnings.iter();
        while !learnings.as_slice().is_empty() {
            let mut bridges = self.bridges.write();
            let (mut changed, mut visits) = (None, 0);
            for learning in learnings.by_ref().take(holds::CHANGES_PER_HOLD) {
                if self.learn_one(&mut batch, &mut bridges, learning).is_err() {
                    self.learn_status.count_refused();
                }
                if let Learning::Rule(rule) = learning
                    && batch.must_select()
                {
                    changed = Some(rule.bridge);
                    break;
                }
                visits += batch.take_visits();
                if visits >= holds::CHANGES_PER_HOLD {
                    break;
                }
            }
            self.let_go(bridges);
            changed.into_iter().for_each(|id| self.change_rest(&mut batch, id));
        }
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        self.publish(control, before.next(), deltas)
    }

    /// Applies one learn request.
    fn learn_one(
        &self,
        batch: &mut UpdateBatch,
        bridges: &mut VersionedBridges,
        learning: &Learning,
    ) -> Result<(), LearnError> {
        match learning {
            Learning::Rule(rule) => {
                let found = bridges.get_mut(&rule.bridge);
                let bridge = found.filter(|own| own.settings(self.version()).is_some());
                bridge.map_or(Ok(()), |bridge| batch.learn(bridge, rule))
            }
            Learning::Mac(observation) => {
                let bridge = bridges.get_mut(&observation.bridge);
                bridge.into_iter().for_each(|bridge| batch.learn_mac(bridge, observation));
                Ok(())
            }
            Learning::Multicast(observation) => {
                let bridge = bridges.get_mut(&observation.bridge);
                bridge.into_iter().for_each(|bridge| batch.learn_multicast(bridge, observation));
                Ok(())
            }
        }
    }

    /// Returns whether packets that arrive on a bridge can cause learn requests.
    ///
    /// True while the bridge fails open, or has a rule or a bucket that learns, in a version that a
    /// thread may use. On a bridge with patch ports, all bridges count. While it returns false,
    /// packets of different flows may be translated in any order.
    #[must_use]
    pub fn learns(&self, bridge: BridgeId) -> bool {
        self.learn_status.learns(bridge)
    }

    /// Returns the number of learn requests that were refused.
    ///
    /// Reasons are the limit of a table, the limit of a `learn`, and a learning rule that was
    /// removed.
    #[must_use]
    pub fn learnings_refused(&self) -> u64 {
        self.learn_status.refused_count()
    }

    /// Returns the version of the last complete reclaim.
    ///
    /// No table has a rule that only earlier versions see.
    #[must_use]
    pub fn reclaimed_version(&self) -> Version {
        // Partner: the `Release` in `Self::reclaim`.
        Version::new(self.reclaimed.load(Ordering::Acquire))
    }

    /// Returns whether all rules and objects of `version` still exist.
    ///
    /// A caller that has not reserved `version` checks this after it has translated several packets
    /// by it.
    #[must_use]
    pub fn is_retained(&self, version: Version) -> bool {
        let _bridges = self.bridges.read();
        version.number() >= self.oldest.load(Ordering::Relaxed)
    }

    /// Returns the counters of every table of a bridge, by number.
    ///
    /// Empty without such a bridge.
    #[must_use]
    pub fn table_stats(&self, id: BridgeId) -> Vec<TableTotals> {
        self.bridges.read().get(&id).map_or_else(Vec::new, VersionedBridge::table_stats)
    }

    /// Records rules that may expire earlier than their queued deadline.
    ///
    /// Packets have lowered their timeouts.
    pub(crate) fn note_lowered(&self, rules: Vec<Arc<Rule>>) {
        if !rules.is_empty() {
            self.lowered.lock().extend(rules);
        }
    }

    /// Publishes `version` if it changed anything.
    fn publish(
        &self,
        mut control: MutexGuard<'_, ControlState>,
        version: Version,
        deltas: Vec<Delta>,
    ) -> Change {
        if deltas.is_empty() {
            return Change { version: self.version(), deltas };
        }
        control.deadlines.follow(&deltas);
        self.learn_status.follow(&deltas, &self.bridges, version);
        self.published.store(version.number(), Ordering::Release);
        Change { version, deltas }
    }
}

#[cfg(test)]
mod tests;
