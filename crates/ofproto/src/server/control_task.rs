//! Tasks of the control threads, and the log line about an iteration that takes long.
//!
//! A few control threads run the tasks of all controllers, of the database, of commands and of
//! timers. A task that computes, or waits without giving its thread back, delays all others. So
//! each iteration of a task, between two of its waits, is measured.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;
use tracing::info;

/// Time that an iteration of a control task may take without a log line.
const ITERATION_MAX: Duration = Duration::from_millis(10);

/// Minimum time between two log lines about the same task.
const LINE_PAUSE: Duration = Duration::from_secs(10);

/// A task of a control thread, with a name for the log.
///
/// An iteration of over 10 ms is logged, at most once in 10 seconds.
#[must_use = "a task does nothing unless it is polled"]
#[derive(Debug)]
pub struct ControlTask<F> {
    name: String,
    /// The future that the task polls.
    task: Pin<Box<F>>,
    /// The long iterations so far.
    long: LongIterations,
}

/// The long iterations of a task so far.
#[derive(Debug, Default)]
struct LongIterations {
    /// The time of the last log line.
    logged: Option<Instant>,
    /// Long iterations since the last log line.
    omitted: u64,
}

impl<F: Future> ControlTask<F> {
    /// Gives a task a name, such as `OVSDB rows`.
    pub fn new(name: impl Into<String>, task: F) -> Self {
        Self { name: name.into(), task: Box::pin(task), long: LongIterations::default() }
    }
}

impl<F: Future> Future for ControlTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begin = Instant::now();
        let polled = self.task.as_mut().poll(context);
        let end = Instant::now();
        let took = end.saturating_duration_since(begin);
        if let Some(omitted) = self.long.admit(took, end) {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            info!(
                took_ms,
                omitted,
                "control task {}: one iteration took over 10 ms, so requests \
                 waited",
                self.name
            );
        }
        polled
    }
}

impl LongIterations {
    /// Returns the number of omitted lines if an iteration is logged, otherwise `None`.
    fn admit(&mut self, took: Duration, end: Instant) -> Option<u64> {
        if took <= ITERATION_MAX {
            return None;
        }
        let is_recent = |logged| end.saturating_duration_since(logged) < LINE_PAUSE;
        if self.logged.is_some_and(is_recent) {
            self.omitted = self.omitted.saturating_add(1);
            return None;
        }
        self.logged = Some(end);
        Some(mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, hint::spin_loop, pin::pin, task::Waker};

    use tracing::Level;

    use super::*;
    use crate::connection::tests::log::logged_at;

    #[test]
    fn long_iterations_are_logged_with_a_limit() {
        let mut long = LongIterations::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(long.admit(ITERATION_MAX, at(0)), None);
        let took = ITERATION_MAX + Duration::from_millis(1);
        assert_eq!(long.admit(took, at(0)), Some(0));
        assert_eq!([long.admit(took, at(1)), long.admit(took, at(9))], [None, None]);
        assert_eq!(long.admit(took, at(10)), Some(2));
        assert_eq!(long.admit(took, at(20)), Some(0));
    }

    #[test]
    fn a_long_iteration_names_its_task() {
        let long = async {
            let begin = Instant::now();
            while begin.elapsed() <= ITERATION_MAX {
                spin_loop();
            }
            7
        };
        let lines = logged_at(Level::INFO, || {
            assert_eq!(poll_once(ControlTask::new("quick", ready(5))), Poll::Ready(5));
            assert_eq!(poll_once(ControlTask::new("slow", long)), Poll::Ready(7));
        });
        let is_slow = |line: &&String| line.contains("control task slow: one iteration took");
        assert_eq!(lines.iter().filter(is_slow).count(), 1, "{lines:?}");
    }

    fn poll_once<F: Future>(task: F) -> Poll<F::Output> {
        pin!(task).poll(&mut Context::from_waker(Waker::noop()))
    }
}
