//! Expiry: rules with a timeout, MAC addresses, multicast groups and router ports.
//!
//! Each is in a queue by age, so a run visits the expired ones, and those that were used since they
//! were queued. Each step changes a bounded number of them under the lock of the tables.

use std::collections::BTreeMap;

use shunt_classifier::Version;

use super::{Change, Pipeline, holds::CHANGES_PER_HOLD};
use crate::{
    bridges::bridge::VersionedBridge, tables::expiry::Deadlines, time::Time,
    update::batch::UpdateBatch,
};

impl Pipeline {
    /// Removes the rules with an expired idle or hard timeout.
    ///
    /// The function also removes expired MAC addresses, multicast groups and router ports. Before
    /// the call, the caller collects the counters of all threads. So a rule that was hit in time
    /// stays.
    pub fn expire(&self, now: Time) -> Change {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = UpdateBatch::new(version, now, control.next_rule);
        self.requeue_lowered(&mut control.deadlines, before);
        let mut expired = BTreeMap::<_, Vec<_>>::new();
        for (rule, reason) in control.deadlines.take_expired(now) {
            expired.entry(rule.bridge).or_default().push((rule, reason));
        }
        for (id, rules) in expired {
            batch.queue_removals(rules);
            self.change_rest(&mut batch, id);
        }
        for id in self.bridge_ids() {
            let expire = |bridge: &mut VersionedBridge| {
                batch.expire_macs(id, bridge, CHANGES_PER_HOLD)
                    && batch.expire_multicast(id, bridge, CHANGES_PER_HOLD)
            };
            self.hold_until_done(id, expire);
        }
        let (deltas, _) = batch.finish();
        self.publish(control, version, deltas)
    }

    /// Queues rules again after packets have lowered their timeouts.
    pub(super) fn requeue_lowered(&self, deadlines: &mut Deadlines, version: Version) {
        let lowered = std::mem::take(&mut *self.lowered.lock());
        for some in lowered.chunks(CHANGES_PER_HOLD) {
            let mut bridges = self.bridges.write();
            for rule in some {
                let Some(bridge) = bridges.get_mut(&rule.bridge) else { continue };
                let found = bridge.table(rule.table).and_then(|existing| {
                    existing.find_exact(&rule.matching, rule.priority, version)
                });
                // The table may have a later revision of the rule. A rule with another id has
                // timeouts of its own.
                if let Some(current) = found.filter(|found| found.id == rule.id).cloned() {
                    deadlines.requeue(&current);
                    bridge.requeue(&current);
                }
            }
            self.let_go(bridges);
        }
    }
}
