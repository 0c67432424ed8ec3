//! The state of learning: can packets learn, and how many requests were refused?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use shunt_classifier::Version;
use shunt_flow::PortNo;

use crate::{
    action::Action,
    bridges::bridge::VersionedBridges,
    versions::delta::{Delta, Object},
};

/// The state of learning of a daemon, which any thread reads.
#[derive(Default)]
pub(crate) struct LearnStatus {
    learns: AtomicBool,
    refused_count: AtomicU64,
}

impl LearnStatus {
    /// Returns whether packets can cause learn requests.
    pub(crate) fn learns(&self) -> bool {
        self.learns.load(Ordering::Relaxed)
    }

    /// Returns the number of learn requests that were refused.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Counts a refused learn request.
    pub(crate) fn count_refused(&self) {
        self.refused_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Follows the deltas of a version that is about to be published.
    ///
    /// Packets can learn from the first rule or bucket that learns.
    pub(crate) fn follow(
        &self,
        deltas: &[Delta],
        bridges: &RwLock<VersionedBridges>,
        version: Version,
    ) {
        if deltas.iter().any(|delta| is_learner(delta, bridges, version)) {
            // Relaxed: a thread that adopts the version has it from the thread that published it.
            self.learns.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns whether the delta adds or changes a rule or a group that learns.
fn is_learner(delta: &Delta, bridges: &RwLock<VersionedBridges>, version: Version) -> bool {
    match delta {
        Delta::Rule(delta) => delta.rule.instructions.any(may_learn),
        Delta::Changed(Object::Group(bridge, group)) => {
            let bridges = bridges.read();
            let found = bridges.get(bridge).and_then(|own| own.groups.find(*group, version));
            let mut buckets = found.into_iter().flat_map(|group| &group.buckets);
            // Of the learning actions a bucket runs outputs alone, and these are in no clone.
            buckets.any(|bucket| bucket.actions.iter().any(outputs_normally))
        }
        Delta::Changed(_) => false,
    }
}

/// Returns whether packets may learn by an action.
///
/// That is `learn`, or an output to NORMAL, which a field or a bundle member can name too.
fn may_learn(action: &Action) -> bool {
    match action {
        Action::Learn(_) | Action::OutputField { .. } => true,
        Action::Bundle(bundle) => bundle.members.contains(&PortNo::NORMAL),
        action => outputs_normally(action),
    }
}

const fn outputs_normally(action: &Action) -> bool {
    matches!(action, Action::Output { port: PortNo::NORMAL, .. })
}
