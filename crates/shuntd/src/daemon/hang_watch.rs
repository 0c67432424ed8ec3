//! Names threads that stay in one iteration.
//!
//! The threads of the switch other than packet threads note their iterations, and so do the trainer,
//! nic, vhost-user, memif and ovsdb threads. A thread that waits is in no iteration, for any time.
//! Packet threads answer pings instead.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use shunt_switch::{CurrentIteration, ThreadIteration};
use tokio::time::Instant;
use tracing::{error, info};

use super::service_manager::millis;

/// Names threads that have not ended an iteration for a time.
pub(super) struct HangWatch {
    /// The time in an iteration after which a thread hangs.
    limit: Duration,
    /// The iterations at the last observation, each with its first observation.
    seen: BTreeMap<ThreadKey, SeenIteration>,
}

/// The name of a thread, and its number among threads of this name.
type ThreadKey = (Arc<str>, u64);

/// An iteration that was observed.
struct SeenIteration {
    /// The iteration that was observed.
    iteration: CurrentIteration,
    /// Time of the first observation.
    since: Instant,
    /// True if the thread was named.
    is_named: bool,
}

/// A change of the state of a thread.
#[derive(Debug, PartialEq, Eq)]
enum HangChange {
    /// The thread has stayed in an iteration for the limit.
    Hangs(Arc<str>, Duration),
    /// The thread was named, and has ended the iteration.
    Continues(Arc<str>),
}

impl HangWatch {
    /// Creates a watch that has seen no iteration.
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, seen: BTreeMap::new() }
    }

    /// Logs each thread that began to hang, and each that no longer hangs.
    pub(super) fn observe(&mut self, current: &[ThreadIteration], now: Instant) {
        for change in self.changes(current, now) {
            match change {
                HangChange::Hangs(thread, limit) => error!(
                    limit_ms = millis(limit),
                    "{thread}: an iteration did not end in time: {}",
                    consequence(&thread)
                ),
                HangChange::Continues(thread) => {
                    info!("{thread}: the iteration that did not end in time has ended");
                }
            }
        }
    }

    /// Returns the changes since the last observation.
    fn changes(&mut self, current: &[ThreadIteration], now: Instant) -> Vec<HangChange> {
        let mut before = std::mem::take(&mut self.seen);
        let mut changes = Vec::new();
        for ThreadIteration { name, number, iteration_max, iteration } in current {
            let key = (Arc::clone(name), *number);
            let known = before.remove(&key);
            if let Some(named) = known.as_ref().filter(|own| own.is_named)
                && named.iteration != *iteration
            {
                changes.push(HangChange::Continues(Arc::clone(name)));
            }
            let known = known.filter(|own| own.iteration == *iteration);
            let first = SeenIteration { iteration: *iteration, since: now, is_named: false };
            let mut own = known.unwrap_or(first);
            let limit = self.limit.max(*iteration_max);
            if !own.is_named && now.duration_since(own.since) >= limit {
                own.is_named = true;
                changes.push(HangChange::Hangs(Arc::clone(name), limit));
            }
            self.seen.insert(key, own);
        }
        let ended = before.into_iter().filter(|(_, own)| own.is_named);
        changes.extend(ended.map(|((name, _), _)| HangChange::Continues(name)));
        changes
    }
}

/// The first words of the names of threads, and the effects if such a thread hangs.
const CONSEQUENCES: [(&str, &str); 10] = [
    ("eviction thread", "changes wait, and so do replies to barriers: restart the daemon"),
    ("learner thread", "packets that learn wait: restart the daemon"),
    ("listener thread", "controllers get no packets: restart the daemon"),
    ("bfd thread", "BFD sessions send nothing and expire: restart the daemon"),
    ("offload thread", "the NIC keeps stale entries: restart the daemon"),
    ("nic thread", "packets of the NIC wait: restart the daemon"),
    ("trainer thread", "lookups use the earlier learned index: restart the daemon"),
    ("vhost-user thread", "the guest cannot connect or disconnect: restart the daemon"),
    ("memif thread", "memif clients and servers cannot connect: restart the daemon"),
    ("ovsdb thread", "ovs-vsctl waits: check the disk of the log, or restart the daemon"),
];

/// Returns the effect of a thread that hangs, and what to do.
fn consequence(thread: &str) -> &'static str {
    let found = CONSEQUENCES.iter().find(|(name, _)| thread.starts_with(name));
    found.map_or("its work waits: restart the daemon", |(_, effect)| *effect)
}

#[cfg(test)]
mod tests {
    use shunt_switch::IterationWatch;

    use super::*;

    /// Returns the change of a thread that begins to hang.
    fn hangs(name: &str, seconds: u64) -> HangChange {
        HangChange::Hangs(name.into(), Duration::from_secs(seconds))
    }

    /// Returns the change of a thread that no longer hangs.
    fn continues(name: &str) -> HangChange {
        HangChange::Continues(name.into())
    }

    /// Returns the present iteration of a thread.
    fn iteration(
        (name, number): (&str, u64),
        iteration_max: Duration,
        watch: &IterationWatch,
    ) -> Option<ThreadIteration> {
        let iteration = watch.current()?;
        Some(ThreadIteration { name: name.into(), number, iteration_max, iteration })
    }

    #[test]
    fn a_thread_is_named_once_for_each_hang() {
        let (watch, start) = (IterationWatch::default(), Instant::now());
        let mut all = HangWatch::new(Duration::from_secs(5));
        let mut observe = |second| {
            let current = iteration(("bfd thread", 0), Duration::ZERO, &watch);
            all.changes(current.as_slice(), start + Duration::from_secs(second))
        };
        assert_eq!(observe(0), []);
        assert_eq!(observe(100), [], "the thread sleeps");
        watch.begin();
        assert_eq!(observe(101), []);
        assert_eq!(observe(105), []);
        assert_eq!(observe(106), [hangs("bfd thread", 5)]);
        assert_eq!(observe(200), [], "named already");
        watch.end();
        watch.begin();
        assert_eq!(observe(201), [continues("bfd thread")]);
        watch.end();
        watch.begin();
        assert_eq!(observe(300), [], "a busy thread, in a later iteration");
        assert_eq!(observe(305), [hangs("bfd thread", 5)]);
        watch.end();
        assert_eq!(observe(306), [continues("bfd thread")]);
    }

    #[test]
    fn threads_of_one_name_are_watched_separately() {
        let watches = [IterationWatch::default(), IterationWatch::default()];
        let (start, name) = (Instant::now(), "memif thread");
        let mut all = HangWatch::new(Duration::from_secs(5));
        let mut observe = |second| {
            let own = (1..).zip(&watches);
            let own =
                own.filter_map(|(number, own)| iteration((name, number), Duration::ZERO, own));
            all.changes(&own.collect::<Vec<_>>(), start + Duration::from_secs(second))
        };
        watches[0].begin();
        watches[1].begin();
        assert_eq!(observe(0), []);
        watches[1].end();
        watches[1].begin();
        assert_eq!(observe(5), [hangs(name, 5)], "only the first thread hangs");
        watches[0].end();
        assert_eq!(observe(10), [hangs(name, 5), continues(name)]);
    }

    #[test]
    fn a_long_training_is_no_hang() {
        let (watch, start) = (IterationWatch::default(), Instant::now());
        let mut all = HangWatch::new(Duration::from_secs(5));
        let name = "trainer thread of packet thread 0";
        watch.begin();
        let mut observe = |second| {
            let current = iteration((name, 3), Duration::from_secs(60), &watch);
            all.changes(current.as_slice(), start + Duration::from_secs(second))
        };
        assert_eq!(observe(0), []);
        assert_eq!(observe(59), []);
        assert_eq!(observe(60), [hangs(name, 60)]);
    }

    #[test]
    fn each_thread_has_its_consequence() {
        assert!(consequence("vhost-user thread of /run/vm1.sock").starts_with("the guest"));
        assert!(consequence("trainer thread of packet thread 3").starts_with("lookups"));
        assert!(consequence("foresight thread").starts_with("its work waits"));
    }
}
