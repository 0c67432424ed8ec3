//! The thread that makes versions of what packets teach.
//!
//! Packet threads put lessons into bounded rings and wake this thread if it sleeps. What lies in all
//! rings becomes one version, which goes the way of every other change, with the number of the last
//! lesson of each thread: so the queues that wait hear that they may go on, also where all was
//! known already.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use rtrb::Consumer;
use shunt_datapath::{ChangeSender, Learned, Lesson, Waker};
use shunt_pipeline::{OwnerId, Pipeline};

use crate::{clock::Clock, plane::FULL_QUEUE_PAUSE};

/// Longest sleep, so that a stop is never missed.
const SLEEP_MAX_MS: u16 = 500;

/// The thread, and what ends it.
pub(crate) struct Learner {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

/// Where versions are made.
pub(crate) struct Publisher {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) changes: Arc<Mutex<ChangeSender>>,
    pub(crate) clock: Clock,
}

impl Learner {
    /// Starts the thread over the rings of the packet threads, in the order of their numbers.
    pub(crate) fn start(
        waker: Arc<Waker>,
        rings: Vec<Consumer<Lesson>>,
        publisher: Publisher,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut taker = Taker { rings, publisher, stopped: Arc::clone(&stop) };
        let own_waker = Arc::clone(&waker);
        let handle = Builder::new().name("shunt-learner".to_owned()).spawn(move || {
            while !taker.is_stopped() {
                own_waker.doze();
                if !taker.take() && !taker.is_stopped() {
                    let mut fds = [PollFd::new(own_waker.as_fd(), PollFlags::POLLIN)];
                    // Interrupted or woken, it looks again either way.
                    let _ = poll(&mut fds, PollTimeout::from(SLEEP_MAX_MS));
                }
                own_waker.rise();
            }
        })?;
        Ok(Self { stop, waker, handle: Mutex::new(Some(handle)) })
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(handle) = self.handle.lock().take() {
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
}

struct Taker {
    rings: Vec<Consumer<Lesson>>,
    publisher: Publisher,
    stopped: Arc<AtomicBool>,
}

impl Taker {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Makes a version of what was taught; answers whether there was anything.
    fn take(&mut self) -> bool {
        let (mut learnings, mut lessons) = (Vec::new(), Vec::new());
        for (owner, ring) in (0..).map(OwnerId).zip(&mut self.rings) {
            let mut last = None;
            // Bounded by what is there now: each port has one lesson on its way.
            for _ in 0..ring.slots() {
                let Ok(lesson) = ring.pop() else { break };
                learnings.extend(lesson.learnings);
                last = Some((owner, lesson.number));
            }
            lessons.extend(last);
        }
        if lessons.is_empty() {
            return false;
        }
        let Publisher { pipeline, changes, clock } = &self.publisher;
        let changes = changes.lock();
        let change = pipeline.learn(&learnings, clock.now());
        let mut refused = changes.send_learned(Learned { change, lessons });
        while let Err(back) = refused {
            if self.is_stopped() {
                break;
            }
            std::thread::sleep(FULL_QUEUE_PAUSE);
            refused = changes.send_learned(back);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rtrb::RingBuffer;
    use shunt_datapath::{DeskEnds, EvictionDesk, LessonNo, Link};
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeId, BridgeSettings, FlowModCommand, Iterative, LearnedRule, Learning, Version,
        text::parse_rule,
    };

    use super::*;

    /// How long the thread may take for what takes it microseconds.
    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
    fn every_lesson_is_answered_whether_it_changed_anything_or_not() {
        let pipeline = Arc::new(Pipeline::new(1));
        let bridge = BridgeId::new(1);
        let version = pipeline.add_bridge(bridge, BridgeSettings::default()).version;
        let link = Arc::new(Link::new(version).unwrap());
        let ends = DeskEnds::new(OwnerId(0), RingBuffer::new(1).1, Arc::clone(&link));
        let waker = || Arc::new(Waker::new().unwrap());
        let engine = Box::new(Iterative::new(Arc::clone(&pipeline)));
        let (mut desk, changes) = EvictionDesk::new(engine, version, vec![ends], waker());
        let publisher = Publisher {
            pipeline: Arc::clone(&pipeline),
            changes: Arc::new(Mutex::new(changes)),
            clock: Clock::start(),
        };
        let (mut lessons, ring) = RingBuffer::new(8);
        let own_waker = waker();
        let learner = Learner::start(Arc::clone(&own_waker), vec![ring], publisher).unwrap();

        let text = "table=1,priority=7,actions=output:2";
        let request = parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
        let rule = LearnedRule { bridge, teacher: None, request, limit: 0 };
        let mut teach = |number| {
            let learnings = vec![Learning::Rule(Box::new(rule.clone()))];
            lessons.push(Lesson { number: LessonNo(number), learnings }).unwrap();
            own_waker.wake();
            let start = Instant::now();
            loop {
                desk.turn();
                if let Some(advance) = link.mailbox().take() {
                    break (advance.version, advance.learned);
                }
                assert!(start.elapsed() < PATIENCE, "nobody answers");
                std::thread::yield_now();
            }
        };
        let learned = version.next();
        assert_eq!(teach(1), (learned, LessonNo(1)));
        assert_eq!(teach(2), (learned, LessonNo(2)));
        assert_eq!(pipeline.version(), learned);
        assert_ne!(learned, Version::ZERO);
        learner.stop();
    }
}
