//! The queues of rule changes of all connections.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use shunt_pipeline::{BridgeId, Change};

use super::{MonitorQueue, MonitoredChange};

/// The queues of all connections with flow monitors, of all bridges.
///
/// The lock that orders the changes of the tables also orders the calls of [`Self::add`] and
/// [`Self::record`]. So a queue misses no change that is made after it was added.
#[derive(Debug, Default)]
pub struct MonitorQueues {
    /// Number of queues. The lock of the caller orders its reads and writes.
    count: AtomicUsize,
    /// The queue of each connection with flow monitors.
    queues: Mutex<Vec<BridgeQueue>>,
}

/// The queue of a connection of a bridge.
#[derive(Debug)]
struct BridgeQueue {
    bridge: BridgeId,
    /// The queue, until its connection drops it.
    queue: Weak<MonitorQueue>,
}

impl MonitorQueues {
    /// Adds the queue of a connection of a bridge, until the connection drops it.
    pub fn add(&self, bridge: BridgeId, queue: &Arc<MonitorQueue>) {
        let mut queues = self.lock();
        // A peer can add and drop many queues while no table changes.
        queues.retain(|own| own.queue.strong_count() > 0);
        queues.push(BridgeQueue { bridge, queue: Arc::downgrade(queue) });
        self.count.store(queues.len(), Ordering::Relaxed);
    }

    /// Adds a published change to the queues, in the order of the versions.
    pub fn record(&self, change: &Change) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut by_bridge = BTreeMap::<BridgeId, Arc<[MonitoredChange]>>::new();
        let mut queues = self.lock();
        queues.retain(|own| {
            let Some(queue) = own.queue.upgrade() else { return false };
            let changes = by_bridge
                .entry(own.bridge)
                .or_insert_with(|| MonitoredChange::all_of(own.bridge, change).into());
            queue.record(changes);
            true
        });
        self.count.store(queues.len(), Ordering::Relaxed);
    }

    /// Locks the queues, also after a panic, which leaves them consistent.
    fn lock(&self) -> MutexGuard<'_, Vec<BridgeQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeSettings, Delta, FlowModCommand, Object, Pipeline, Time, Version, text::parse_rule,
    };

    use super::*;

    #[test]
    fn a_queue_gets_the_changes_of_its_bridge() {
        let (queues, pipeline) = (MonitorQueues::default(), Pipeline::new(0));
        let bridges = [1, 2].map(BridgeId::new);
        let all = bridges.map(|bridge| {
            pipeline.add_bridge(bridge, BridgeSettings::default());
            let queue = Arc::new(MonitorQueue::new(1));
            queues.add(bridge, &queue);
            queue
        });
        let rule = parse_rule(FlowModCommand::Add, "actions=drop", &NoPortNames).unwrap();
        let change = pipeline.modify(bridges[1], [rule.into()], Time::ZERO).unwrap();
        queues.record(&change);
        assert_eq!(all.map(|queue| queue.take(true).is_some()), [false, true]);
    }

    #[test]
    fn dropped_queues_are_forgotten_without_a_change() {
        let (queues, bridge) = (MonitorQueues::default(), BridgeId::new(1));
        let kept = Arc::new(MonitorQueue::new(1));
        queues.add(bridge, &kept);
        for _ in 0..3 {
            queues.add(bridge, &Arc::new(MonitorQueue::new(1)));
        }
        assert_eq!(queues.lock().len(), 2, "the kept queue and the last one");
        assert_eq!(queues.count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_dropped_queue_is_forgotten() {
        let (queues, bridge) = (MonitorQueues::default(), BridgeId::new(1));
        let queue = Arc::new(MonitorQueue::new(1));
        let deltas = vec![Delta::Changed(Object::Ports(bridge))];
        let change = Change { version: Version::new(1), deltas };
        queues.add(bridge, &queue);
        queues.record(&change);
        assert_eq!(queues.count.load(Ordering::Relaxed), 1);
        assert!(queue.take(true).is_none(), "a change of ports is no change of a rule");
        drop(queue);
        queues.record(&change);
        assert_eq!(queues.count.load(Ordering::Relaxed), 0);
        assert!(queues.lock().is_empty());
    }
}
