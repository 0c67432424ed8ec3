//! The learner thread: publishes rules and MAC addresses that packets made the switch learn.
//!
//! Packet threads put learn requests into bounded rings and wake the learner thread if it is
//! parked. All waiting requests become one version, which is published like any other change. The
//! version carries the sequence number of the last request of each packet thread. So the queues
//! that wait may continue, even if the requests changed nothing.

use std::{io, sync::Arc};

use rtrb::Consumer;
use shunt_datapath::{LearnRequest, Waker};
use shunt_pipeline::OwnerId;

use crate::threads::{
    publisher::Publisher,
    worker::{SLEEP_MAX_MS, WorkerThread},
};

/// Starts the learner thread with the rings of the packet threads, in thread order.
pub(crate) fn start(
    waker: Arc<Waker>,
    rings: Vec<Consumer<LearnRequest>>,
    publisher: Arc<Publisher>,
) -> io::Result<WorkerThread> {
    let mut taker = LearnCollector { rings, publisher };
    WorkerThread::start("shunt-learner", waker, SLEEP_MAX_MS, move || taker.take())
}

/// The receiver of learn requests from the rings of the packet threads.
struct LearnCollector {
    /// The ring of each packet thread.
    rings: Vec<Consumer<LearnRequest>>,
    /// The maker of versions of the tables.
    publisher: Arc<Publisher>,
}

impl LearnCollector {
    /// Publishes a version with all waiting learn requests.
    ///
    /// Returns whether there were any requests.
    fn take(&mut self) -> bool {
        let (mut learnings, mut learn_requests, mut count) = (Vec::new(), Vec::new(), 0);
        for (owner, ring) in (0..).map(OwnerId).zip(&mut self.rings) {
            let mut last = None;
            // The present length bounds the loop; each port has at most one pending request.
            for _ in 0..ring.slots() {
                let Ok(learn_request) = ring.pop() else { break };
                learnings.extend(learn_request.learnings);
                count += 1;
                last = Some((owner, learn_request.number));
            }
            learn_requests.extend(last);
        }
        if learn_requests.is_empty() {
            return false;
        }
        self.publisher.learn(&learnings, learn_requests, count);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rtrb::RingBuffer;
    use shunt_datapath::{CoordinatorEndpoint, EvictionCoordinator, LearnSeq, Link};
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeId, BridgeSettings, FlowModCommand, Iterative, LearnedRule, Learning, Pipeline,
        Version, text::parse_rule,
    };

    use super::*;
    use crate::threads::clock::DaemonClock;

    /// Maximum time that a test waits for the learner thread.
    const WAIT_MAX: Duration = Duration::from_secs(10);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
    fn every_learn_request_is_acknowledged() {
        let pipeline = Arc::new(Pipeline::new(1));
        let bridge = BridgeId::new(1);
        let version = pipeline.add_bridge(bridge, BridgeSettings::default()).version;
        let link = Arc::new(Link::new(version).unwrap());
        let ends = CoordinatorEndpoint::new(OwnerId(0), RingBuffer::new(1).1, Arc::clone(&link));
        let waker = || Arc::new(Waker::new().unwrap());
        let engine = Box::new(Iterative::new(Arc::clone(&pipeline)));
        let (mut coordinator, changes) =
            EvictionCoordinator::new(engine, version, vec![ends], waker());
        let publisher =
            Arc::new(Publisher::new(Arc::clone(&pipeline), changes, DaemonClock::start()));
        let (mut learn_requests, ring) = RingBuffer::new(8);
        let own_waker = waker();
        let learner = start(Arc::clone(&own_waker), vec![ring], publisher).unwrap();

        let text = "table=1,priority=7,actions=output:2";
        let request = parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
        let rule = LearnedRule { bridge, learner: None, request, limit: 0 };
        let mut learn = |number| {
            let learnings = vec![Learning::Rule(Box::new(rule.clone()))];
            learn_requests.push(LearnRequest { number: LearnSeq(number), learnings }).unwrap();
            own_waker.wake();
            let start = Instant::now();
            loop {
                coordinator.run_iteration();
                if let Some(invalidation) = link.mailbox().take() {
                    break (invalidation.version, invalidation.learned);
                }
                assert!(start.elapsed() < WAIT_MAX, "no acknowledgement");
                std::thread::yield_now();
            }
        };
        let learned = version.next();
        assert_eq!(learn(1), (learned, LearnSeq(1)));
        assert_eq!(learn(2), (learned, LearnSeq(2)));
        assert_eq!(pipeline.version(), learned);
        assert_ne!(learned, Version::ZERO);
        learner.stop();
    }
}
