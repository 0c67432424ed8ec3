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

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortInfo, RemovedReason, Rule};
use tokio::sync::{Notify, mpsc, oneshot};

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
        /// The bridge that changed.
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
    /// The ports that controllers must be notified of.
    ports: Mutex<BTreeSet<(BridgeId, PortNo)>>,
    /// Notified when a port is added.
    came: Notify,
    /// Receivers of all changes, also of changes that controllers do not see.
    receivers: Mutex<Vec<Weak<StatusChanges>>>,
}

/// A receiver of changes of the status of ports.
///
/// Links, devices and members of bonds change, and ports open or close.
/// [`Switch::take_changed_ports`](crate::Switch::take_changed_ports) returns the changed ports.
#[derive(Debug)]
pub struct PortChanges(Arc<StatusChanges>);

/// The ports that have changed since a receiver last took them.
#[derive(Debug, Default)]
struct StatusChanges {
    /// The ports with a changed status.
    ports: Mutex<StatusPorts>,
    /// Notified when a port is added.
    came: Notify,
}

impl StatusChanges {
    /// Returns whether the status of any port changed.
    fn has_ports(&self) -> bool {
        *self.ports.lock() != StatusPorts::default()
    }
}

/// Ports with a changed status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusPorts {
    /// Any port may have changed.
    All,
    /// Only the listed ports have changed.
    Only(BTreeSet<(BridgeId, PortNo)>),
}

impl Default for StatusPorts {
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl PortChanges {
    /// Waits until a port has a changed status that was not taken yet.
    ///
    /// Cancelling the call loses no change.
    pub async fn changed(&self) {
        while !self.0.has_ports() {
            self.0.came.notified().await;
        }
    }

    /// Returns the changed ports; a second call does not return the same change again.
    pub(crate) fn take(&self) -> StatusPorts {
        std::mem::take(&mut *self.0.ports.lock())
    }
}

/// Removed rules with the flag `send_flow_removed`, oldest first.
#[derive(Default)]
pub(crate) struct Removals {
    /// The removed rules without a message yet.
    waiting: Mutex<Vec<RemovedRule>>,
    /// Notified when a rule is added.
    came: Notify,
}

/// A rule that was removed, for the messages to its controllers.
pub(crate) struct RemovedRule {
    /// First version without the rule.
    pub(crate) version: Version,
    pub(crate) rule: Arc<Rule>,
    /// The reason of the removal.
    pub(crate) reason: RemovedReason,
}

impl ChangedPorts {
    /// Records that a port changed.
    pub(crate) fn add(&self, bridge: BridgeId, port: PortNo) {
        self.ports.lock().insert((bridge, port));
        self.came.notify_one();
        self.note_port(bridge, port);
    }

    /// Records a change of a port that controllers do not see.
    pub(crate) fn note_port(&self, bridge: BridgeId, port: PortNo) {
        self.note_with(|ports| match ports {
            StatusPorts::All => {}
            StatusPorts::Only(ports) => {
                ports.insert((bridge, port));
            }
        });
    }

    /// Records a change of any ports that controllers do not see.
    pub(crate) fn note(&self) {
        self.note_with(|ports| *ports = StatusPorts::All);
    }

    /// Applies `change` to the status of each receiver, and wakes the receiver.
    fn note_with(&self, change: impl Fn(&mut StatusPorts)) {
        self.receivers.lock().retain(|receiver| {
            let receiver = receiver.upgrade();
            if let Some(own) = &receiver {
                change(&mut own.ports.lock());
                own.came.notify_one();
            }
            receiver.is_some()
        });
    }

    /// Returns a receiver of the changes from now on.
    pub(crate) fn subscribe(&self) -> PortChanges {
        let receiver = Arc::<StatusChanges>::default();
        self.receivers.lock().push(Arc::downgrade(&receiver));
        PortChanges(receiver)
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
    /// Adds removed rules, and wakes the task that reports them.
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

    /// Polls a future once.
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
        let changes = [changed.subscribe(), changed.subscribe()];
        let (one, two) = ((BridgeId::new(1), PortNo::new(2)), (BridgeId::new(1), PortNo::new(3)));
        changed.note_port(one.0, one.1);
        changed.add(two.0, two.1);
        for own in &changes {
            assert!(poll(own.changed()).is_ready());
            assert!(poll(own.changed()).is_ready(), "the ports are not taken yet");
            assert_eq!(own.take(), StatusPorts::Only(BTreeSet::from([one, two])));
            assert!(poll(own.changed()).is_pending(), "both changes are one event");
        }
        changed.add(two.0, two.1);
        changed.note();
        changed.add(one.0, one.1);
        assert_eq!(changes[0].take(), StatusPorts::All);
        assert!(poll(changes[0].changed()).is_pending());
        drop(changed);
        assert!(poll(changes[0].changed()).is_pending());
    }

    #[test]
    fn a_waiting_receiver_sees_a_change() {
        let changed = ChangedPorts::default();
        let changes = changed.subscribe();
        let mut waiting = pin!(changes.changed());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        changed.note_port(BridgeId::new(1), PortNo::LOCAL);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_dropped_receiver_is_forgotten() {
        let changed = ChangedPorts::default();
        let kept = changed.subscribe();
        drop(changed.subscribe());
        changed.note();
        assert_eq!(changed.receivers.lock().len(), 1);
        assert_eq!(kept.take(), StatusPorts::All);
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
