//! Records of the iterations of threads, for a watchdog.
//!
//! A thread notes the begin and the end of each iteration in an [`IterationWatch`]. Outside of an
//! iteration the thread waits, for any time. A watchdog that finds a thread in one iteration for a
//! long time knows that the thread hangs. The watchdog never wakes a thread.
//!
//! A thread that no other object of the switch refers to adds itself to the list of its process, as
//! a [`WatchedThread`].
//!
//! ```
//! use shunt_thread_watch::{WatchedThread, watched_threads};
//!
//! let thread = WatchedThread::new("example thread");
//! thread.run(|| {
//!     let own = watched_threads().into_iter().find(|own| &*own.name == "example thread");
//!     assert!(own.is_some_and(|own| own.iterations.current().is_some()));
//! });
//! assert_eq!(thread.current(), None);
//! ```

mod iteration_watch;
mod watched_thread;

pub use iteration_watch::{CurrentIteration, IterationWatch};
pub use watched_thread::{ThreadRecord, WatchedThread, watched_threads};
