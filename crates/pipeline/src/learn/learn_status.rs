//! The state of learning: the bridges with packets that can learn, and the number of refused
//! requests.
//!
//! The *learners* of a bridge are its rules and groups with actions that learn. A bridge that fails
//! open is a learner, because NORMAL forwards its packets. A packet may leave its bridge through a
//! patch port. So packets of a bridge with patch ports can learn while any
//! bridge has a learner.
//!
//! Threads may translate by earlier versions. So a learner that a version removes counts until every
//! thread has adopted that version ([`LearnStatus::reclaim`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, RwLock};
use shunt_classifier::Version;
use shunt_flow::PortNo;

use crate::{
    action::Action,
    bridges::{
        bridge::{VersionedBridge, VersionedBridges},
        port::PortKind,
    },
    id::{BridgeId, GroupId, RuleId},
    versions::delta::{Delta, Object, RuleChange},
};

/// The state of learning of a daemon, which threads read without a lock.
pub(crate) struct LearnStatus {
    /// One bit for each bridge; set while its packets can learn.
    learning: Box<[AtomicU64]>,
    /// The bridges that learn, with their numbers of learners.
    learners: Mutex<Learners>,
    /// Number of refused learn requests.
    refused_count: AtomicU64,
}

/// Number of bridges in a word of [`LearnStatus::learning`].
const WORD: usize = u64::BITS as usize;

/// The rules, groups, failed bridges and patch ports by which packets can learn.
#[derive(Default)]
struct Learners {
    /// Learners of the newest version.
    newest: BTreeSet<Learner>,
    /// Learners that a version has removed, oldest version first.
    removed: Vec<(Version, Learner)>,
    /// Number of learners, removed ones included.
    counts: BTreeMap<BridgeId, LearnerCounts>,
}

/// A cause for which packets of a bridge can learn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Learner {
    Rule(BridgeId, RuleId),
    Group(BridgeId, GroupId),
    /// The bridge itself, while it fails open.
    FailOpen(BridgeId),
    /// All patch ports of a bridge, which lead to the learners of other bridges.
    Patches(BridgeId),
}

/// Number of learners of a bridge.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct LearnerCounts {
    /// Number of rules and groups that learn, and one if the bridge fails open.
    own: usize,
    /// Number of patch ports that lead to a learning bridge.
    patches: usize,
}

impl Default for LearnStatus {
    fn default() -> Self {
        let words = (usize::from(u16::MAX) + 1) / WORD;
        Self {
            learning: (0..words).map(|_| AtomicU64::new(0)).collect(),
            learners: Mutex::default(),
            refused_count: AtomicU64::new(0),
        }
    }
}

impl LearnStatus {
    /// Returns whether packets of a bridge can cause learn requests.
    pub(crate) fn learns(&self, bridge: BridgeId) -> bool {
        let (word, bit) = position(bridge);
        self.learning[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Returns the number of learn requests that were refused.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Counts a refused learn request.
    pub(crate) fn count_refused(&self) {
        self.refused_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Updates the learners by the deltas of a version that is about to be published.
    pub(crate) fn follow(
        &self,
        deltas: &[Delta],
        bridges: &RwLock<VersionedBridges>,
        version: Version,
    ) {
        let mut learners = self.learners.lock();
        let mut is_changed = false;
        for delta in deltas {
            is_changed |= match delta {
                Delta::Rule(delta) => {
                    let learner = Learner::Rule(delta.rule.bridge, delta.rule.id);
                    let is_there = !matches!(delta.change, RuleChange::Removed(_));
                    let learns = is_there && delta.rule.instructions.any(may_learn);
                    learners.set(learner, learns, version)
                }
                Delta::Changed(object) => learners.follow_object(*object, &bridges.read(), version),
            };
        }
        if is_changed {
            self.publish(&learners);
        }
    }

    /// Forgets the learners that only versions before `oldest` have.
    pub(crate) fn reclaim(&self, oldest: Version) {
        let mut learners = self.learners.lock();
        if learners.reclaim(oldest) {
            self.publish(&learners);
        }
    }

    /// Publishes for each bridge whether its packets can learn.
    fn publish(&self, learners: &Learners) {
        let learns_anywhere = learners.counts.values().any(|counts| counts.own > 0);
        for (bridge, counts) in &learners.counts {
            let learns = counts.own > 0 || learns_anywhere && counts.patches > 0;
            let (word, bit) = position(*bridge);
            // Relaxed suffices: the publication of the version orders this store before its
            // adoption by a thread.
            if learns {
                self.learning[word].fetch_or(bit, Ordering::Relaxed);
            } else {
                self.learning[word].fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }
}

impl Learners {
    /// Adds or removes a learner; returns whether it is the first of its bridge.
    fn set(&mut self, learner: Learner, learns: bool, version: Version) -> bool {
        if learns {
            return self.newest.insert(learner) && self.count(learner, 1);
        }
        // Most rules are no learners.
        if !self.newest.is_empty() && self.newest.remove(&learner) {
            self.removed.push((version, learner));
        }
        false
    }

    /// Updates the learners after a change of an object.
    fn follow_object(
        &mut self,
        object: Object,
        bridges: &VersionedBridges,
        version: Version,
    ) -> bool {
        let find = |id: BridgeId| bridges.get(&id);
        match object {
            Object::Group(bridge, group) => {
                let learns = find(bridge).is_some_and(|own| has_learner(own, group, version));
                self.set(Learner::Group(bridge, group), learns, version)
            }
            Object::Ports(bridge) => {
                let is_patched = find(bridge).is_some_and(|own| has_patch(own, version));
                self.set(Learner::Patches(bridge), is_patched, version)
            }
            Object::Bridge(bridge) => {
                let settings = find(bridge).and_then(|own| own.settings(version));
                if settings.is_none() {
                    self.remove_bridge(bridge, version);
                }
                let fails_open = settings.is_some_and(|own| own.fails_open);
                self.set(Learner::FailOpen(bridge), fails_open, version)
            }
            Object::Port(..)
            | Object::PortFilters(_)
            | Object::Meter(..)
            | Object::Mac(..)
            | Object::MulticastGroup(..)
            | Object::MulticastRouters(..)
            | Object::Live(_)
            | Object::Learned(..) => false,
        }
    }

    /// Removes the groups of a removed bridge, for which there are no deltas.
    fn remove_bridge(&mut self, bridge: BridgeId, version: Version) {
        let groups = self
            .newest
            .extract_if(.., |learner| matches!(learner, Learner::Group(own, _) if *own == bridge));
        self.removed.extend(groups.map(|learner| (version, learner)));
    }

    /// Forgets removed learners; returns whether a bridge has lost its last learner.
    fn reclaim(&mut self, oldest: Version) -> bool {
        let end = self.removed.partition_point(|(version, _)| *version <= oldest);
        let forgotten: Vec<_> = self.removed.drain(..end).collect();
        forgotten.into_iter().fold(false, |changed, (_, learner)| self.count(learner, -1) | changed)
    }

    /// Counts a learner in or out; returns whether its bridge has got or lost learners.
    fn count(&mut self, learner: Learner, by: isize) -> bool {
        let counts = self.counts.entry(learner.bridge()).or_default();
        let count = match learner {
            Learner::Rule(..) | Learner::Group(..) | Learner::FailOpen(_) => &mut counts.own,
            Learner::Patches(_) => &mut counts.patches,
        };
        let before = *count;
        *count = before.saturating_add_signed(by);
        debug_assert!(before != *count, "a learner is subtracted only once");
        before == 0 || *count == 0
    }
}

impl Learner {
    /// Returns the bridge of the learner.
    const fn bridge(self) -> BridgeId {
        match self {
            Self::Rule(bridge, _)
            | Self::Group(bridge, _)
            | Self::FailOpen(bridge)
            | Self::Patches(bridge) => bridge,
        }
    }
}

/// Returns the word and the bit of a bridge.
fn position(bridge: BridgeId) -> (usize, u64) {
    let number = usize::from(bridge.number());
    (number / WORD, 1 << (number % WORD))
}

/// Returns whether the group has a bucket that learns.
fn has_learner(bridge: &VersionedBridge, group: GroupId, version: Version) -> bool {
    let found = bridge.groups.find(group, version);
    let mut buckets = found.into_iter().flat_map(|group| &group.buckets);
    // A bucket ignores `learn` and `clone`. So only an output to `NORMAL` can learn.
    buckets.any(|bucket| bucket.actions.iter().any(outputs_normally))
}

/// Returns whether a bridge has a patch port.
fn has_patch(bridge: &VersionedBridge, version: Version) -> bool {
    let ports = bridge.ports(version).into_iter().flat_map(|table| table.ports().iter());
    ports.into_iter().any(|port| matches!(port.kind, PortKind::Patch { .. }))
}

/// Returns whether packets may learn by an action.
///
/// Packets learn by `learn`, and by an output to NORMAL, which a field or a bundle member can name,
/// too.
fn may_learn(action: &Action) -> bool {
    match action {
        Action::Learn(_) | Action::OutputField { .. } => true,
        Action::Bundle(bundle) => bundle.members.contains(&PortNo::NORMAL),
        action => outputs_normally(action),
    }
}

/// Returns whether an action outputs to `NORMAL`.
const fn outputs_normally(action: &Action) -> bool {
    matches!(action, Action::Output { port: PortNo::NORMAL, .. })
}
