//! What happens on the control side that controllers may want to hear of.
//!
//! Nothing of it is lost, and everything has a bound:
//!
//! * bridges and ports come and go one at a time, and whoever makes them come and go waits for room;
//! * of a port that changes again before controllers heard of it, they hear once, how it is then;
//! * removed rules lie in [`Removals`] until controllers have taken them, and while there are many,
//!   connections look at no further request: who removes rules waits.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PacketIn, PortInfo, RemovedReason, Rule};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::SwitchError;

/// Where what happens comes out.
pub(crate) struct News {
    /// What happened on the control side.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Packets for controllers.
    pub(crate) packet_ins: mpsc::Receiver<PacketIn>,
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
    /// How many wait or are being told.
    count: watch::Sender<usize>,
}

/// A rule that was removed.
pub(crate) struct Removed {
    /// The first version without it.
    pub(crate) version: Version,
    pub(crate) rule: Arc<Rule>,
    pub(crate) reason: RemovedReason,
}

/// Removed rules beyond which none should be added; one change more may be.
const REMOVALS_MAX: usize = 65_536;

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
        let more = removed.len();
        self.waiting.lock().extend(removed);
        self.count.send_if_modified(|count| {
            *count += more;
            more > 0
        });
    }

    /// Waits until there are some, and takes them; each is [`Self::told`] afterwards.
    pub(crate) async fn take(&self) -> Vec<Removed> {
        // The sender is a part of `self`, so this ends by the count alone.
        let _ = self.count.subscribe().wait_for(|count| *count > 0).await;
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Controllers have taken one.
    pub(crate) fn told(&self) {
        self.count.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Whether controllers have so much to hear that nothing should be added.
    pub(crate) fn is_behind(&self) -> bool {
        *self.count.borrow() > REMOVALS_MAX
    }

    /// Waits until [`Self::is_behind`] is over.
    pub(crate) async fn caught_up(&self) {
        let _ = self.count.subscribe().wait_for(|count| *count <= REMOVALS_MAX).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use shunt_pipeline::{
        BridgeSettings, FlowModCommand, Pipeline, RuleFilter, Time, text::parse_rule,
    };

    use super::*;

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn rule() -> Arc<Rule> {
        let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let names = shunt_flow::text::NoPortNames;
        let request = parse_rule(FlowModCommand::Add, "actions=drop", &names).unwrap();
        pipeline.apply(bridge, &[request], Time::ZERO).unwrap();
        pipeline.rules(bridge, &RuleFilter::all()).remove(0)
    }

    #[test]
    fn who_removes_rules_waits_while_controllers_have_too_much_to_hear() {
        let (removals, rule) = (Removals::default(), rule());
        let removed = |count: usize| {
            let (version, reason) = (Version::ZERO, RemovedReason::Delete);
            let removed = || Removed { version, rule: Arc::clone(&rule), reason };
            std::iter::repeat_with(removed).take(count).collect()
        };
        assert!(poll(removals.take()).is_pending());
        removals.add(removed(REMOVALS_MAX));
        assert!(!removals.is_behind() && poll(removals.caught_up()).is_ready());
        removals.add(removed(2));
        assert!(removals.is_behind() && poll(removals.caught_up()).is_pending());
        let Poll::Ready(taken) = poll(removals.take()) else { panic!("there are some") };
        assert_eq!(taken.len(), REMOVALS_MAX + 2);
        assert!(removals.is_behind(), "taken is not told");
        (0..2).for_each(|_| removals.told());
        assert!(!removals.is_behind() && poll(removals.caught_up()).is_ready());
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
