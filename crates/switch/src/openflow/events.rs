//! Events of the control plane, of which some are sent to controllers.
//!
//! No event is lost, no change of the switch waits for a controller, and every queue is bounded:
//!
//! * Bridges and ports are added and removed one at a time. Such a request waits for space in the
//!   queue.
//! * A port that changes several times before controllers are notified causes one notification,
//!   with its last state.
//! * Removed rules stay in [`Removals`] until no packet thread uses them. The queue of the eviction
//!   thread bounds the number of waiting versions. After this wait, the rules enter the bounded
//!   queues of the connections.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortInfo, RemovedReason, Rule};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::{control::structure::OpenPolicy, error::SwitchError, threads::listener::PuntReceivers};

/// The receivers of events and packets for the control plane.
pub(crate) struct ControlReceivers {
    /// Events of the control plane.
    pub(crate) events: mpsc::Receiver<ControlEvent>,
    /// Punted packets from the packet threads.
    pub(crate) punts: PuntReceivers,
}

/// An event of the control plane.
pub(crate) enum ControlEvent {
    /// A bridge was added; the sender receives the result of opening its sockets.
    BridgeAdded(BridgeId, OpenPolicy, oneshot::Sender<Result<(), SwitchError>>),
    /// The datapath id, controllers or listeners of a bridge have changed.
    BridgeChanged {
        /// The changed bridge.
        id: BridgeId,
        closing: SocketsToClose,
        policy: OpenPolicy,
        /// Sender of the result of opening the new sockets.
        ready: oneshot::Sender<Result<(), SwitchError>>,
    },
    /// A bridge is being removed.
    BridgeRemoved(BridgeId),
    /// A port was added.
    PortAdded(BridgeId, PortNo),
    /// A port was removed; the event has its last state.
    PortRemoved(BridgeId, Box<PortInfo>),
}

/// The open sockets of a bridge that a change closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketsToClose {
    /// The sockets of addresses that are not configured any more.
    Removed,
    /// All sockets, so that every peer connects again.
    All,
}

/// Maximum number of waiting events.
pub(crate) const EVENTS_MAX: usize = 64;

/// Ports that have changed since controllers were last notified.
#[derive(Default)]
pub(crate) struct ChangedPorts {
    ports: Mutex<BTreeSet<(BridgeId, PortNo)>>,
    came: Notify,
    /// Number of all changes, also of changes that controllers do not see.
    noted: watch::Sender<u64>,
}

/// A receiver of changes of the status of ports.
///
/// Links, devices and members of bonds change, and ports open or close. Changes between two calls
/// of [`Self::changed`] are reported as one change.
#[derive(Debug)]
pub struct PortChanges(watch::Receiver<u64>);

impl PortChanges {
    /// Waits until the status of a port has changed since the last call.
    ///
    /// Cancelling the call loses no change. The call waits forever once the switch has stopped.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Removed rules with the flag `send_flow_removed`, oldest first.
#[derive(Default)]
pub(crate) struct Removals {
    waiting: Mutex<Vec<RemovedRule>>,
    came: Notify,
}

/// A removed rule.
pub(crate) struct RemovedRule {
    /// First version without the rule.
    pub(crate) version: Version,
    pub(crate) rule: Arc<Rule>,
    pub(crate) reason: RemovedReason,
}

impl ChangedPorts {
    pub(crate) fn add(&self, bridge: BridgeId, port: PortNo) {
        self.ports.lock().insert((bridge, port));
        self.came.notify_one();
        self.note();
    }

    /// Records a change that controllers do not see.
    pub(crate) fn note(&self) {
        self.noted.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns a receiver of the changes from now on.
    pub(crate) fn subscribe(&self) -> PortChanges {
        PortChanges(self.noted.subscribe())
    }

    /// Waits until ports have changed, and takes these ports.
    ///
    /// If the call is cancelled, no changed port is lost.
    pub(crate) async fn take(&self) -> BTreeSet<(BridgeId, PortNo)> {
        loop {
            let ports = std::mem::take(&mut *self.ports.lock());
            if !ports.is_empty() {
                return ports;
            }
            self.came.notified().await;
        }
    }
}

impl Removals {
    pub(crate) fn add(&self, removed: Vec<RemovedRule>) {
        if !removed.is_empty() {
            self.waiting.lock().extend(removed);
            self.came.notify_one();
        }
    }

    /// Waits until rules were removed, and takes these rules.
    ///
    /// Cancelling the call loses no rule.
    pub(crate) async fn take(&self) -> Vec<RemovedRule> {
        loop {
            let removed = std::mem::take(&mut *self.waiting.lock());
            if !removed.is_empty() {
                return removed;
            }
            self.came.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn many_changes_of_a_port_cause_one_notification() {
        let (changed, port) = (ChangedPorts::default(), (BridgeId::new(1), PortNo::new(2)));
        assert!(poll(changed.take()).is_pending());
        (0..1000).for_each(|_| changed.add(port.0, port.1));
        assert_eq!(poll(changed.take()), Poll::Ready(BTreeSet::from([port])));
        // A second call does not return the same port again.
        assert!(poll(changed.take()).is_pending());
    }

    #[test]
    fn every_subscriber_sees_every_change() {
        let changed = ChangedPorts::default();
        let mut changes = [changed.subscribe(), changed.subscribe()];
        changed.note();
        changed.add(BridgeId::new(1), PortNo::new(2));
        for own in &mut changes {
            assert!(poll(own.changed()).is_ready());
            assert!(poll(own.changed()).is_pending(), "both are seen as one");
        }
        drop(changed);
        assert!(poll(changes[0].changed()).is_pending());
    }

    #[test]
    fn a_waiting_watcher_sees_a_port_change() {
        let changed = ChangedPorts::default();
        let mut take = pin!(changed.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(take.as_mut().poll(&mut context).is_pending());
        changed.add(BridgeId::new(1), PortNo::LOCAL);
        assert!(take.as_mut().poll(&mut context).is_ready());
    }
}
