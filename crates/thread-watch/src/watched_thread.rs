//! The list of the watched threads of the process.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::IterationWatch;

/// The records of all threads that are watched now.
static THREADS: Mutex<Vec<ThreadRecord>> = Mutex::new(Vec::new());

/// Number of threads that were ever watched.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// A thread that notes its iterations for the watchdog of the process.
///
/// The thread owns the value. Dropping it, also by a panic, removes the thread from the list.
#[derive(Debug)]
pub struct WatchedThread(ThreadRecord);

/// The name and the iterations of a watched thread.
#[derive(Clone, Debug)]
pub struct ThreadRecord {
    /// The name of the thread, for logs.
    pub name: Arc<str>,
    /// The number of the thread, which no other thread of the process gets.
    pub number: u64,
    /// Time that an iteration may take, if it is longer than the limit of the watchdog.
    pub iteration_max: Duration,
    /// The iterations of the thread.
    pub iterations: Arc<IterationWatch>,
}

impl WatchedThread {
    /// Adds a thread to the list.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with_iteration_max(name, Duration::ZERO)
    }

    /// Adds a thread with iterations that may take a long time.
    #[must_use]
    pub fn with_iteration_max(name: &str, iteration_max: Duration) -> Self {
        let record = ThreadRecord {
            name: name.into(),
            // The first number is 1, so 0 is free for threads outside of the list.
            number: WATCHED.fetch_add(1, Ordering::Relaxed) + 1,
            iteration_max,
            iterations: Arc::default(),
        };
        THREADS.lock().push(record.clone());
        Self(record)
    }
}

impl Deref for WatchedThread {
    type Target = IterationWatch;

    fn deref(&self) -> &IterationWatch {
        &self.0.iterations
    }
}

impl Drop for WatchedThread {
    fn drop(&mut self) {
        THREADS.lock().retain(|own| own.number != self.0.number);
    }
}

/// Returns the records of all threads that are watched now.
#[must_use]
pub fn watched_threads() -> Vec<ThreadRecord> {
    THREADS.lock().clone()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Returns the records with a name.
    fn named(name: &str) -> Vec<ThreadRecord> {
        watched_threads().into_iter().filter(|own| &*own.name == name).collect()
    }

    #[test]
    fn threads_of_one_name_have_different_numbers() {
        let threads = ["same", "same"].map(WatchedThread::new);
        threads[1].begin();
        let found = named("same");
        assert_eq!(found.len(), 2);
        assert!(found[0].number != found[1].number && found[0].number > 0);
        assert_eq!(found[0].iterations.current(), None);
        assert!(found[1].iterations.current().is_some());
        drop(threads);
        assert!(named("same").is_empty());
    }

    #[test]
    fn thread_that_panics_is_not_watched_any_more() {
        let ended = thread::spawn(|| {
            let watch = WatchedThread::new("panics");
            watch.run(|| panic!("as wanted"));
        });
        assert!(ended.join().is_err());
        assert!(named("panics").is_empty());
    }
}
