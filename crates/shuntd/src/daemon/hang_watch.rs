//! Names threads that stay in one iteration.
//!
//! The eviction, learner, listener, foresight, offload and BFD threads note their iterations.
//! Packet threads answer pings instead.

use std::{collections::BTreeMap, time::Duration};

use shunt_switch::CurrentIteration;
use tokio::time::Instant;
use tracing::{error, info};

use super::service_manager::millis;

/// Names threads that have not ended an iteration for a time.
pub(super) struct HangWatch {
    /// The time in an iteration after which a thread hangs.
    limit: Duration,
    /// The iterations at the last observation, each with its first observation.
    seen: BTreeMap<&'static str, SeenIteration>,
}

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
    Hangs(&'static str),
    /// The thread was named, and has ended the iteration.
    Continues(&'static str),
}

impl HangWatch {
    /// Creates a watch that has seen no iteration.
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, seen: BTreeMap::new() }
    }

    /// Logs each thread that began to hang, and each that no longer hangs.
    pub(super) fn observe(&mut self, current: &[(&'static str, CurrentIteration)], now: Instant) {
        for change in self.changes(current, now) {
            match change {
                HangChange::Hangs(thread) => error!(
                    limit_ms = millis(self.limit),
                    "{thread}: an iteration did not end in time: {}",
                    consequence(thread)
                ),
                HangChange::Continues(thread) => {
                    info!("{thread}: the iteration that did not end in time has ended");
                }
            }
        }
    }

    /// Returns the changes since the last observation.
    fn changes(
        &mut self,
        current: &[(&'static str, CurrentIteration)],
        now: Instant,
    ) -> Vec<HangChange> {
        let mut before = std::mem::take(&mut self.seen);
        let mut changes = Vec::new();
        for &(thread, iteration) in current {
            let known = before.remove(thread);
            if let Some(named) = known.as_ref().filter(|own| own.is_named)
                && named.iteration != iteration
            {
                changes.push(HangChange::Continues(thread));
            }
            let known = known.filter(|own| own.iteration == iteration);
            let mut own = known.unwrap_or(SeenIteration { iteration, since: now, is_named: false });
            if !own.is_named && now.duration_since(own.since) >= self.limit {
                own.is_named = true;
                changes.push(HangChange::Hangs(thread));
            }
            self.seen.insert(thread, own);
        }
        let ended = before.into_iter().filter(|(_, own)| own.is_named);
        changes.extend(ended.map(|(thread, _)| HangChange::Continues(thread)));
        changes
    }
}

/// Returns the effect of a thread that hangs, and what to do.
fn consequence(thread: &str) -> &'static str {
    match thread {
        "eviction thread" => "changes wait, and so do replies to barriers: restart the daemon",
        "learner thread" => "packets that learn wait: restart the daemon",
        "listener thread" => "controllers get no packets: restart the daemon",
        "bfd thread" => "BFD sessions send nothing and expire: restart the daemon",
        "offload thread" => "the NIC keeps stale entries: restart the daemon",
        _ => "its work waits: restart the daemon",
    }
}

#[cfg(test)]
mod tests {
    use shunt_switch::IterationWatch;

    use super::*;

    #[test]
    fn a_thread_is_named_once_for_each_hang() {
        let (watch, start) = (IterationWatch::default(), Instant::now());
        let mut hangs = HangWatch::new(Duration::from_secs(5));
        let mut observe = |second| {
            let current: Vec<_> =
                watch.current().map(|current| ("bfd thread", current)).into_iter().collect();
            hangs.changes(&current, start + Duration::from_secs(second))
        };
        assert_eq!(observe(0), []);
        assert_eq!(observe(100), [], "the thread sleeps");
        watch.begin();
        assert_eq!(observe(101), []);
        assert_eq!(observe(105), []);
        assert_eq!(observe(106), [HangChange::Hangs("bfd thread")]);
        assert_eq!(observe(200), [], "named already");
        watch.end();
        watch.begin();
        assert_eq!(observe(201), [HangChange::Continues("bfd thread")]);
        watch.end();
        watch.begin();
        assert_eq!(observe(300), [], "a busy thread, in a later iteration");
        assert_eq!(observe(305), [HangChange::Hangs("bfd thread")]);
        watch.end();
        assert_eq!(observe(306), [HangChange::Continues("bfd thread")]);
    }
}
