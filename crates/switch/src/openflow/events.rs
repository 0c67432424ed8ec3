//! What happens on the control side that controllers may want to hear of.
//!
//! Nothing of it is lost, nobody waits for a controller, and everything has a bound:
//!
//! * bridges and ports come and go one at a time, and whoever makes them come and go waits for room;
//! * of a port that changes again before controllers heard of it, they hear once, how it is then;
//! * removed rules lie in [`Removals`] until every thread has let go of them, of which so many
//!   versions can wait as the eviction thread takes; then they go to the queues of connections, each
//!   of which has a bound of its own.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortInfo, PuntedPacket, RemovedReason, Rule};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::SwitchError;

/// Where what happens comes out.
pub(crate) struct News {
    /// What happened on the control side.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Packets for controllers.
    pub(crate) packet_ins: mpsc::Receiver<PuntedPacket>,
}

/// Something that happened.
pub(crate) enum Event {
    /// A bridge is there; controllers may connect once its sockets are open.
    BridgeAdded(BridgeId, oneshot::Sender<Result<(), SwitchError>>),
    /// A bridge is going.
    BridgeRemoved(BridgeId),
    /// A port is there.
    PortAdded(BridgeId, PortNo),
    /// A port is gone; this is what it was.
    PortRemoved(BridgeId, Box<PortInfo>),
}

/// Events that may wait.
pub(crate) const EVENTS_MAX: usize = 64;

/// Ports that changed since controllers heard of them.
#[derive(Default)]
pub(crate) struct ChangedPorts {
    ports: Mutex<BTreeSet<(BridgeId, PortNo)>>,
    came: Notify,
}

/// Rules that were removed and asked for it to be told, oldest first.
#[derive(Default)]
pub(crate) struct Removals {
    waiting: Mutex<Vec<Removed>>,
    came: Notify,
}

/// A rule that was removed.
pub(crate) struct Removed {
    /// The first version without it.
    pub(crate) version: Version,
    pub(crate) rule: Arc<Rule>,
    pub(crate) reason: RemovedReason,
}

impl ChangedPorts {
    pub(crate) fn add(&self, bridge: BridgeId, port: PortNo) {
        self.ports.lock().insert((bridge, port));
        self.came.notify_one();
    }

    /// Waits until there are some, and takes them. Whoever stops waiting has taken none.
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
    pub(crate) fn add(&self, removed: Vec<Removed>) {
        if !removed.is_empty() {
            self.waiting.lock().extend(removed);
            self.came.notify_one();
        }
    }

    /// Waits until there are some, and takes them. Whoever stops waiting has taken none.
    pub(crate) async fn take(&self) -> Vec<Removed> {
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
    fn of_a_port_that_changes_often_controllers_hear_once() {
        let (changed, port) = (ChangedPorts::default(), (BridgeId::new(1), PortNo::new(2)));
        assert!(poll(changed.take()).is_pending());
        (0..1000).for_each(|_| changed.add(port.0, port.1));
        assert_eq!(poll(changed.take()), Poll::Ready(BTreeSet::from([port])));
        // A word that was said before is not said again.
        assert!(poll(changed.take()).is_pending());
    }

    #[test]
    fn a_port_that_changes_while_somebody_waits_is_heard_of() {
        let changed = ChangedPorts::default();
        let mut take = pin!(changed.take());
        let mut context = Context::from_waker(Waker::noop());
        assert!(take.as_mut().poll(&mut context).is_pending());
        changed.add(BridgeId::new(1), PortNo::LOCAL);
        assert!(take.as_mut().poll(&mut context).is_ready());
    }
}
