//! Health check: every packet thread and every control thread makes progress.
//!
//! Each thread has a count that grows while it works. The counts of progress are iterations of
//! packet threads, runs of the periodic work on the control threads, and replies of the eviction
//! thread. A parked packet thread wakes up after `threads.sleep_max_ms`, so its count grows too. A
//! thread hangs if its count stays the same for too long.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_switch::{Switch, ThreadState, ThreadStatus};
use tokio::time::{Instant, sleep};

/// Observes the progress of the threads of a switch.
pub(super) struct HealthMonitor {
    switch: Arc<Switch>,
    /// Time from which progress is measured.
    start: Instant,
    /// The last progress of each thread.
    progress: std::sync::Mutex<ProgressLog>,
    /// Number of replies of the eviction thread.
    eviction_replies: AtomicU64,
    /// Longest time without progress, apart from the sleep of packet threads.
    stall_max: Duration,
}

/// Longest time without progress, apart from the sleep of packet threads.
pub(super) const STALL_MAX: Duration = Duration::from_secs(5);

/// Time between two observations.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(500);

/// Name for the work of the control threads in problem texts.
const PERIODIC_WORK: &str = "periodic work of the control threads";

/// Name of the eviction thread in the thread status.
const EVICTION: &str = "eviction thread";

impl HealthMonitor {
    pub(super) fn new(switch: Arc<Switch>, stall_max: Duration) -> Self {
        Self {
            switch,
            start: Instant::now(),
            progress: std::sync::Mutex::default(),
            eviction_replies: AtomicU64::default(),
            stall_max,
        }
    }

    /// Observes the threads until the future is dropped.
    pub(super) async fn run(&self) {
        let observe = async {
            loop {
                self.observe();
                sleep(OBSERVE_INTERVAL.min(self.stall_max)).await;
            }
        };
        let ask = async {
            loop {
                // A hanging thread never replies. A panicked thread is reported by its state, not
                // by a count.
                if self.switch.evictions().await.is_ok() {
                    self.eviction_replies.fetch_add(1, Ordering::Relaxed);
                }
                sleep(OBSERVE_INTERVAL.min(self.stall_max)).await;
            }
        };
        tokio::join!(observe, ask);
    }

    /// Returns the reasons why the switch is not healthy; empty if it is healthy.
    pub(super) fn problems(&self) -> Vec<String> {
        let threads = self.observe();
        let sleep_max = Duration::from_millis(self.switch.config().threads.sleep_max_ms);
        let stalled = {
            let progress = self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            progress.stalled(self.start.elapsed(), self.stall_max + sleep_max)
        };
        let ended = threads.iter().filter_map(|thread| match thread.state {
            ThreadState::Running => None,
            ThreadState::Panicked => Some(format!("{}: panicked", thread.name)),
            ThreadState::Stopped => Some(format!("{}: stopped", thread.name)),
        });
        let hangs = stalled
            .into_iter()
            .filter(|(name, _)| is_running(&threads, name))
            .map(|(name, time)| format!("{name}: no progress for {} s", time.as_secs()));
        ended.chain(hangs).collect()
    }

    /// Records the present counts; returns the threads.
    fn observe(&self) -> Vec<ThreadStatus> {
        let threads = self.switch.threads();
        let packet = threads.iter().filter_map(|own| Some((own.name.as_str(), own.iterations?)));
        let counts = packet.chain([
            (PERIODIC_WORK, self.switch.upkeep_runs()),
            (EVICTION, self.eviction_replies.load(Ordering::Relaxed)),
        ]);
        let now = self.start.elapsed();
        let mut progress = self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.for_each(|(name, count)| progress.note(name, count, now));
        threads
    }
}

/// Returns whether a thread is missing in the status, or is running.
fn is_running(threads: &[ThreadStatus], name: &str) -> bool {
    let own = threads.iter().find(|thread| thread.name == name);
    own.is_none_or(|thread| thread.state == ThreadState::Running)
}

/// The last count of each thread, and the time since which the count is unchanged.
#[derive(Default)]
struct ProgressLog(BTreeMap<String, (u64, Duration)>);

impl ProgressLog {
    /// Records the present count of a thread.
    fn note(&mut self, name: &str, count: u64, now: Duration) {
        match self.0.get_mut(name) {
            Some((last, _)) if *last == count => {}
            Some(last) => *last = (count, now),
            None => drop(self.0.insert(name.to_owned(), (count, now))),
        }
    }

    /// Returns the counts that did not grow for longer than `limit`,
    /// with their durations.
    fn stalled(&self, now: Duration, limit: Duration) -> Vec<(String, Duration)> {
        let times = self.0.iter().map(|(name, (_, since))| (name, now.saturating_sub(*since)));
        let stalled = times.filter(|(_, time)| *time > limit);
        stalled.map(|(name, time)| (name.clone(), time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_counter_without_progress_is_a_stall() {
        let mut log = ProgressLog::default();
        for second in 0..10 {
            log.note("a", u64::from(second.min(3_u32)), SECOND * second);
            log.note("b", u64::from(second), SECOND * second);
        }
        let stalled = |now: u32| log.stalled(SECOND * now, SECOND * 5);
        assert_eq!(stalled(8), []);
        assert_eq!(stalled(9), [("a".to_owned(), SECOND * 6)]);
        log.note("a", 4, SECOND * 10);
        assert_eq!(log.stalled(SECOND * 11, SECOND * 5), []);
    }
}
