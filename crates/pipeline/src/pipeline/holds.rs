//! Makes, and reclaims, long changes in steps of bounded length under the lock of the tables.
//!
//! A thread that waits for the lock waits for at most [`CHANGES_PER_HOLD`] requests or rules. The
//! new version is not published between two steps, so no translation sees a part of a change.

use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;
use shunt_classifier::Version;

use super::{Change, Pipeline};
use crate::{
    bridges::bridge::{VersionedBridge, VersionedBridges},
    error::RejectedMod,
    id::BridgeId,
    time::Time,
    update::{batch::UpdateBatch, bundle::own, modification::ModificationError},
    versions::versioned_map::MapPage,
};

/// Maximum number of changes under one exclusive lock of the tables.
///
/// A request, a rule that a request changes, and a reclaimed or expired rule each count as one
/// change. So does an entry of a table of learned addresses or groups that is visited.
pub(super) const CHANGES_PER_HOLD: usize = 64;

impl Pipeline {
    /// Drops rules and objects that only versions before `oldest` see.
    ///
    /// After the call, no translation may use a version before `oldest`. Readers of many rules may
    /// still retain earlier versions, and a later call reclaims these.
    pub fn reclaim(&self, oldest: Version) {
        let _control = self.control.lock();
        let oldest = self.oldest_retained(oldest.min(self.version()));
        let ids: Vec<_> = {
            let bridges = self.bridges.write();
            self.oldest.fetch_max(oldest.number(), Ordering::Relaxed);
            bridges.keys().copied().collect()
        };
        for id in ids {
            self.hold_until_done(id, |bridge| {
                let mut left = CHANGES_PER_HOLD;
                bridge.reclaim_others(oldest, &mut left)
            });
            self.hold_until_done(id, |bridge| bridge.reclaim_rules(oldest, CHANGES_PER_HOLD));
            if let Some(mut interner) = self.hold(id, VersionedBridge::take_interner) {
                interner.reclaim();
                self.hold(id, |bridge| bridge.interner = interner);
            }
        }
        let is_gone = |_: &BridgeId, bridge: &mut VersionedBridge| bridge.is_gone();
        let gone: Vec<_> = self.bridges.write().extract_if(.., is_gone).collect();
        // The bridges are dropped after the lock is released.
        drop(gone);
        self.learn_status.reclaim(oldest);
        // Partner: the `Acquire` in `Self::reclaimed_version`.
        self.reclaimed.fetch_max(oldest.number(), Ordering::Release);
    }

    /// Applies requests to a bridge, and publishes them as one version.
    pub(crate) fn change<T>(
        &self,
        id: BridgeId,
        requests: impl IntoIterator<Item = T>,
        now: Time,
        mut apply: impl FnMut(
            &mut UpdateBatch,
            &mut VersionedBridges,
            T,
        ) -> Result<(), ModificationError>,
    ) -> Result<Change, RejectedMod> {
        let mut control = self.control.lock();
        let before = self.version();
        let version = before.next();
        let mut batch = UpdateBatch::new(version, now, control.next_rule);
        batch.group_check = self.group_check;
        self.requeue_lowered(&mut control.deadlines, before);
        let mut requests = NumberedRequests { requests: requests.into_iter(), last: None };
        let applied = loop {
            let mut bridges = self.bridges.write();
            let found = bridges.get(&id).filter(|own| own.settings(before).is_some());
            if found.is_none() {
                break Err(ModificationError::NoSuchBridge(id));
            }
            let applied = requests.apply_some(&mut batch, id, &mut bridges, &mut apply);
            self.let_go(bridges);
            if applied != Ok(ChangeProgress::Partial) {
                break applied;
            }
            if let Err(error) = self.select(&mut batch, id) {
                break Err(error.into());
            }
        };
        if let Err(error) = applied {
            self.hold_until_done(id, |bridge| batch.undo_some(bridge, CHANGES_PER_HOLD));
            control.next_rule = batch.finish().1;
            return Err(RejectedMod { index: requests.last.unwrap_or_default(), error });
        }
        let (deltas, next_rule) = batch.finish();
        control.next_rule = next_rule;
        Ok(self.publish(control, version, deltas))
    }

    /// Changes a bridge under one exclusive lock of the tables.
    ///
    /// Returns `None` if the bridge does not exist. Threads that wait for the lock get it before
    /// the next step.
    pub(super) fn hold<T>(
        &self,
        id: BridgeId,
        change: impl FnOnce(&mut VersionedBridge) -> T,
    ) -> Option<T> {
        let mut bridges = self.bridges.write();
        let changed = bridges.get_mut(&id).map(change);
        self.let_go(bridges);
        changed
    }

    /// Repeats a step of a change until it returns true.
    ///
    /// Each step has one exclusive lock of the tables.
    pub(super) fn hold_until_done(
        &self,
        id: BridgeId,
        mut step: impl FnMut(&mut VersionedBridge) -> bool,
    ) {
        while self.hold(id, &mut step) == Some(false) {}
    }

    /// Changes all entries of a map of a bridge, a page under each exclusive lock.
    ///
    /// `read` returns a page of at most [`CHANGES_PER_HOLD`] entries.
    pub(super) fn sweep<K: Copy, T>(
        &self,
        id: BridgeId,
        read: impl Fn(&VersionedBridge, Option<K>) -> MapPage<K, T>,
        mut change: impl FnMut(&mut VersionedBridge, K),
    ) {
        let mut after = None;
        self.hold_until_done(id, |bridge| {
            let page = read(bridge, after);
            page.values.iter().for_each(|(key, _)| change(bridge, *key));
            after = page.last;
            after.is_none()
        });
    }

    /// Releases the exclusive lock of the tables to the threads that wait for it.
    pub(super) fn let_go(&self, bridges: RwLockWriteGuard<'_, VersionedBridges>) {
        RwLockWriteGuard::unlock_fair(bridges);
        #[cfg(test)]
        self.releases.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes all pending changes of rules of a batch, step by step.
    ///
    /// If the bridge does not exist, its rules do not either, and their pending changes are
    /// dropped. So none of them is made on the bridge of a later call.
    pub(super) fn change_rest(&self, batch: &mut UpdateBatch, id: BridgeId) {
        loop {
            let mut left = CHANGES_PER_HOLD;
            let is_done = self.hold(id, |bridge| {
                // Only learn requests add rules here.
                if batch.add_missing(id, bridge).is_err() {
                    self.learn_status.count_refused();
                }
                batch.change_some(bridge, &mut left)
            });
            // The selections are removals of learned rules, and orders of eviction. The selected
            // removals are never refused.
            if is_done != Some(false) || self.select(batch, id).is_err() {
                break;
            }
        }
        batch.drop_pending();
    }
}

/// The requests of a change, with the position of the last request taken.
struct NumberedRequests<I> {
    /// The iterator of the requests.
    requests: I,
    /// The position of the last request taken.
    last: Option<usize>,
}

/// The progress of a change after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeProgress {
    /// Further requests, or changes of the last request, are left.
    Partial,
    /// The change of the tables is complete.
    Complete,
}

impl<I: Iterator> NumberedRequests<I> {
    /// Applies at most [`CHANGES_PER_HOLD`] requests and changes of rules: one step.
    ///
    /// Ends early after a request that must select its rules, or that has scanned rules.
    fn apply_some(
        &mut self,
        batch: &mut UpdateBatch,
        id: BridgeId,
        bridges: &mut VersionedBridges,
        mut apply: impl FnMut(
            &mut UpdateBatch,
            &mut VersionedBridges,
            I::Item,
        ) -> Result<(), ModificationError>,
    ) -> Result<ChangeProgress, ModificationError> {
        let mut left = CHANGES_PER_HOLD;
        batch.add_missing(id, own(bridges, id)?)?;
        loop {
            if batch.must_select()
                || !batch.change_some(own(bridges, id)?, &mut left)
                || left == 0
                || batch.take_scanned()
            {
                return Ok(ChangeProgress::Partial);
            }
            let Some(request) = self.requests.next() else { return Ok(ChangeProgress::Complete) };
            self.last = Some(self.last.map_or(0, |last| last + 1));
            left -= 1;
            apply(batch, bridges, request)?;
        }
    }
}
