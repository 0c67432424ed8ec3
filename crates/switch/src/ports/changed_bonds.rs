//! Bonds that have changed, for the tasks that react to changes.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use shunt_pipeline::BridgeId;
use tokio::sync::Notify;

/// Bonds that have changed.
///
/// One task applies delayed changes, and another task sends learning packets.
#[derive(Default)]
pub(crate) struct ChangedBonds {
    /// Bonds with another active member or with moved buckets.
    moved: Mutex<BTreeSet<(BridgeId, String)>>,
    /// Notified when a bond is added to `moved`.
    moved_came: Notify,
    /// Notified when the time of a delayed change may have changed.
    arrival: Notify,
}

impl ChangedBonds {
    /// Records that bonds have changed, and wakes the tasks.
    ///
    /// `moved` has the bonds that now send on other members.
    pub(crate) fn add(&self, moved: impl IntoIterator<Item = (BridgeId, String)>) {
        // The time of the next delayed change may have changed.
        self.arrival.notify_one();
        let mut waiting = self.moved.lock();
        waiting.extend(moved);
        if !waiting.is_empty() {
            self.moved_came.notify_one();
        }
    }

    /// Waits for the next call of [`Self::add`].
    pub(crate) async fn changed(&self) {
        self.arrival.notified().await;
    }

    /// Waits until bonds have moved, and takes these bonds.
    ///
    /// Cancelling the call loses no bond.
    pub(crate) async fn take_moved(&self) -> BTreeSet<(BridgeId, String)> {
        loop {
            let moved = std::mem::take(&mut *self.moved.lock());
            if !moved.is_empty() {
                return moved;
            }
            self.moved_came.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::Arc,
        task::{Context, Poll, Waker},
        thread,
    };

    use tokio::{
        runtime::Builder,
        time::{Duration, timeout},
    };

    use super::*;

    #[test]
    fn a_moved_bond_wakes_both_tasks() {
        let changed = ChangedBonds::default();
        let mut delays = pin!(changed.changed());
        let mut moved = pin!(changed.take_moved());
        let mut context = Context::from_waker(Waker::noop());
        assert!(delays.as_mut().poll(&mut context).is_pending());
        assert!(moved.as_mut().poll(&mut context).is_pending());
        changed.add([]);
        assert!(delays.as_mut().poll(&mut context).is_ready());
        assert!(moved.as_mut().poll(&mut context).is_pending(), "no bond sends on another member");
        changed.add([(BridgeId::new(1), "bond0".to_owned())]);
        changed.add([(BridgeId::new(1), "bond1".to_owned())]);
        let both = ["bond0", "bond1"].map(|bond| (BridgeId::new(1), bond.to_owned()));
        assert_eq!(moved.as_mut().poll(&mut context), Poll::Ready(both.into()));
        // A call is woken whether it began before or after the change.
        assert!(pin!(changed.changed()).poll(&mut context).is_ready());
    }

    /// No moved bond is lost, however adding and taking interleave.
    #[test]
    fn each_moved_bond_is_reported_once() {
        /// Number of changes that each thread makes.
        const EACH: usize = 2000;
        let changed = Arc::new(ChangedBonds::default());
        let adders = (1..=3).map(|bridge| {
            let changed = Arc::clone(&changed);
            thread::spawn(move || {
                for bond in 0..EACH {
                    changed.add([(BridgeId::new(bridge), format!("bond{bond}"))]);
                }
            })
        });
        let adders: Vec<_> = adders.collect();
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let mut taken = BTreeSet::new();
        while taken.len() < 3 * EACH {
            let soon = async { timeout(Duration::from_secs(20), changed.take_moved()).await };
            let moved = runtime.block_on(soon);
            taken.extend(moved.expect("a bond that was added wakes the task"));
        }
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert!(changed.moved.lock().is_empty());
    }
}
