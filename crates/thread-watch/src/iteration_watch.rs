//! Records of the iterations of a thread, for a watchdog.
//!
//! The thread notes the begin and the end of each iteration. A thread that sleeps is in no iteration,
//! so the watchdog need not wake it. A thread that hangs stays in one iteration.

use std::sync::atomic::{AtomicU64, Ordering};

/// The iterations of one thread.
#[derive(Debug, Default)]
pub struct IterationWatch {
    /// Number of iterations that have begun.
    begun: AtomicU64,
    /// Number of iterations that have ended.
    ended: AtomicU64,
}

/// The iteration in which a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentIteration(u64);

impl IterationWatch {
    /// Runs one iteration.
    ///
    /// Only the watched thread itself calls this function.
    pub fn run<T>(&self, iterate: impl FnOnce() -> T) -> T {
        self.begin();
        let done = iterate();
        self.end();
        done
    }

    /// Notes that an iteration begins.
    pub fn begin(&self) {
        // The counters carry no other data, so their order among themselves is enough: one thread
        // writes both.
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the iteration has ended.
    pub fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the present iteration, waits by `wait`, and begins the next iteration.
    ///
    /// The thread must be in an iteration.
    pub fn wait_between<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.end();
        let waited = wait();
        self.begin();
        waited
    }

    /// Returns the number of iterations that have ended.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the present iteration; `None` between two iterations.
    ///
    /// A caller that gets the same iteration at two times knows that the thread has not ended it
    /// meanwhile.
    #[must_use]
    pub fn current(&self) -> Option<CurrentIteration> {
        let ended = self.ended.load(Ordering::Relaxed);
        let begun = self.begun.load(Ordering::Relaxed);
        (begun != ended).then_some(CurrentIteration(begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_running_iteration_is_current() {
        let watch = IterationWatch::default();
        assert_eq!(watch.current(), None);
        let first = watch.run(|| watch.current());
        assert!(first.is_some());
        assert_eq!(watch.current(), None);
        watch.begin();
        let second = watch.current();
        assert!(second.is_some() && second != first);
        assert_eq!(watch.current(), second, "the iteration has not ended");
        watch.end();
        assert_eq!(watch.current(), None);
        assert_eq!(watch.count(), 2);
    }

    #[test]
    fn a_wait_belongs_to_no_iteration() {
        let watch = IterationWatch::default();
        watch.begin();
        let first = watch.current();
        assert_eq!(watch.wait_between(|| watch.current()), None);
        assert!(watch.current().is_some() && watch.current() != first);
    }
}
