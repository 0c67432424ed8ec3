//! The measured loads of receive queues in the last minute.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, Time};

use crate::{config::AutoLbSettings, threads::load::plan::ReceiveQueueLoad};

/// Time between two samples (Open vSwitch: `PMD_INTERVAL_LEN`).
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Number of intervals in the history, which together last a minute.
const INTERVALS: usize = 6;

/// Maximum number of times that the time between two decisions doubles.
const FAILURES_MAX: u32 = 6;

/// The name of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RxQueueName {
    pub(crate) bridge: BridgeId,
    pub(crate) port: PortNo,
    /// Number of the queue among the receive queues of the port.
    pub(crate) number: u16,
}

/// The state of a receive queue in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampledQueue {
    /// Number of the packet thread that has the queue.
    pub(crate) thread: usize,
    /// Time that the queue has taken since it was opened, in nanoseconds.
    pub(crate) busy_ns: u64,
}

/// The receive queues at a time.
#[derive(Clone, Debug)]
pub(crate) struct LoadSample {
    /// Time of the sample.
    pub(crate) at: Time,
    /// The load and the packet thread of each queue.
    pub(crate) queues: BTreeMap<RxQueueName, SampledQueue>,
}

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(crate) struct LoadHistory {
    /// The samples of the last minute, oldest first.
    samples: VecDeque<LoadSample>,
    /// Time of the last decision.
    decided: Option<Time>,
    /// Number of plans in a row of which no queue has moved.
    failures: u32,
}

impl LoadHistory {
    /// Adds a sample; samples that are older than a minute are removed.
    pub(crate) fn add(&mut self, sample: LoadSample) {
        self.samples.push_back(sample);
        while self.samples.len() > INTERVALS + 1 {
            self.samples.pop_front();
        }
    }

    /// Records the number of queues that a plan has moved.
    ///
    /// Moved queues make all samples void. After a plan without a moved queue, the samples stay, and
    /// the time until the next decision doubles.
    pub(crate) fn note_moves(&mut self, moved: usize) {
        if moved == 0 {
            self.failures = self.failures.saturating_add(1);
        } else {
            self.failures = 0;
            self.samples.clear();
        }
    }

    /// Returns whether there is no sample.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns the loads of the queues from the first sample until `last`.
    ///
    /// The history does not keep `last`, since its intervals have equal durations.
    pub(crate) fn loads_until(&self, last: &LoadSample) -> Vec<ReceiveQueueLoad> {
        let first = self.samples.front();
        first.map_or_else(Vec::new, |first| busy_between(first, last).collect())
    }

    /// Returns the loads of the queues in the history.
    pub(crate) fn loads(&self) -> Vec<ReceiveQueueLoad> {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return Vec::new();
        };
        busy_between(first, last).collect()
    }

    /// Returns the duration of the history.
    pub(crate) fn duration(&self) -> Duration {
        let ends = self.samples.front().zip(self.samples.back());
        ends.map_or(Duration::ZERO, |(first, last)| last.at.since(first.at))
    }

    /// Returns whether queues should move now; notes this decision.
    ///
    /// A thread must have been busy in each interval of the last minute. Two decisions are some
    /// minutes apart.
    pub(crate) fn is_due(&mut self, settings: &AutoLbSettings, now: Time) -> bool {
        let interval = settings.interval.saturating_mul(1 << self.failures.min(FAILURES_MAX));
        let is_early = self.decided.is_some_and(|decided| now.since(decided) < interval);
        if is_early || !self.is_overloaded(settings.load_threshold) {
            return false;
        }
        self.decided = Some(now);
        true
    }

    /// Returns whether a thread had this load in each interval of the last minute.
    ///
    /// The threshold is in percent.
    fn is_overloaded(&self, threshold: u8) -> bool {
        if self.samples.len() <= INTERVALS {
            return false;
        }
        let mut always: Option<Vec<usize>> = None;
        for (earlier, later) in self.samples.iter().zip(self.samples.iter().skip(1)) {
            let mut busy = BTreeMap::<usize, u64>::new();
            for own in busy_between(earlier, later) {
                *busy.entry(own.thread).or_default() += own.busy_ns;
            }
            let limit = later.at.since(earlier.at).as_nanos() * u128::from(threshold);
            let is_busy = |thread: &usize| {
                busy.get(thread).is_some_and(|own| u128::from(*own) * 100 >= limit)
            };
            let before = always.unwrap_or_else(|| busy.keys().copied().collect());
            always = Some(before.into_iter().filter(is_busy).collect());
        }
        always.is_some_and(|threads| !threads.is_empty())
    }
}

/// Returns the load of each queue between two samples.
fn busy_between(
    earlier: &LoadSample,
    later: &LoadSample,
) -> impl Iterator<Item = ReceiveQueueLoad> {
    later.queues.iter().map(|(queue, own)| {
        // The counter of a queue begins at zero when its port opens.
        let before = earlier.queues.get(queue).map_or(0, |before| before.busy_ns);
        let busy_ns = own.busy_ns.saturating_sub(before);
        ReceiveQueueLoad { queue: *queue, thread: own.thread, busy_ns }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ThreadOptions;

    /// Returns the name of a receive queue.
    fn queue(number: u16) -> RxQueueName {
        RxQueueName { bridge: BridgeId::new(1), port: PortNo::new(1), number }
    }

    /// Returns the time after some seconds.
    fn at(seconds: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(seconds))
    }

    /// Returns the history of a thread, with its load in each interval in percent.
    fn history(loads: &[u64]) -> LoadHistory {
        let mut history = LoadHistory::default();
        let (mut busy_ns, mut seconds) = (5, 100);
        for percent in [0].iter().chain(loads) {
            // An interval of ten seconds.
            busy_ns += percent * 100_000_000;
            let queues = [
                (queue(0), SampledQueue { thread: 0, busy_ns }),
                (queue(1), SampledQueue { thread: 0, busy_ns: 0 }),
                (queue(2), SampledQueue { thread: 1, busy_ns: 0 }),
            ];
            history.add(LoadSample { at: at(seconds), queues: queues.into() });
            seconds += 10;
        }
        history
    }

    /// Returns the settings of the balancer.
    fn settings() -> AutoLbSettings {
        ThreadOptions { auto_lb: true, ..ThreadOptions::default() }.auto_lb()
    }

    #[test]
    fn queues_move_after_a_minute_of_overload() {
        for (loads, expected) in [
            (vec![95; 6], true),
            (vec![100; 20], true),
            (vec![95; 5], false),
            (vec![94; 6], false),
            (vec![100, 100, 100, 94, 100, 100], false),
            (vec![10, 99, 99, 99, 99, 99, 99], true),
        ] {
            let is_due = history(&loads).is_due(&settings(), at(1000));
            assert_eq!(is_due, expected, "{loads:?}");
        }
        let low = AutoLbSettings { load_threshold: 50, ..settings() };
        assert!(history(&[50; 6]).is_due(&low, at(1000)));
    }

    #[test]
    fn two_decisions_have_a_pause() {
        let mut history = history(&[100; 6]);
        let slow = AutoLbSettings { interval: Duration::from_secs(120), ..settings() };
        assert!(history.is_due(&slow, at(1000)));
        assert!(!history.is_due(&slow, at(1119)));
        assert!(history.is_due(&slow, at(1120)));
        history.note_moves(1);
        assert!(!history.is_due(&slow, at(9000)), "the loads of the moved queues are unknown");
    }

    #[test]
    fn the_pause_doubles_if_no_queue_moves() {
        let mut history = history(&[100; 6]);
        let settings = AutoLbSettings { interval: Duration::from_secs(60), ..settings() };
        assert!(history.is_due(&settings, at(1000)));
        history.note_moves(0);
        assert_eq!(history.duration(), Duration::from_secs(60), "the samples stay");
        assert!(!history.is_due(&settings, at(1119)));
        assert!(history.is_due(&settings, at(1120)));
        history.note_moves(0);
        assert!(!history.is_due(&settings, at(1359)));
        assert!(history.is_due(&settings, at(1360)));
        history.note_moves(1);
        assert_eq!(history.duration(), Duration::ZERO);
    }

    #[test]
    fn last_sample_of_command_is_not_kept() {
        let mut history = history(&[100; 5]);
        for _ in 0..10 {
            let own = SampledQueue { thread: 0, busy_ns: 5 + 51_000_000_000 };
            let last = LoadSample { at: at(151), queues: [(queue(0), own)].into() };
            let loads: Vec<_> = history.loads_until(&last).iter().map(|own| own.busy_ns).collect();
            assert_eq!(loads, [51_000_000_000]);
        }
        assert!(!history.is_due(&settings(), at(1000)), "less than a minute of samples");
    }

    #[test]
    fn loads_are_those_of_the_last_minute() {
        let history = history(&[100, 100, 1, 2, 3, 4, 5, 6]);
        assert_eq!(history.duration(), Duration::from_secs(60));
        let loads: Vec<_> = history.loads().iter().map(|own| own.busy_ns).collect();
        assert_eq!(loads, [21 * 100_000_000, 0, 0]);
    }
}
