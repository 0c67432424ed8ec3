//! The trainer: the thread that rebuilds a live classifier.

use std::{
    fmt,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{classifier::Shared, statistics::TrainerState};
use crate::{StartIndex, StaticTree};

/// Returns the time since a fixed moment.
pub(super) type Clock = Box<dyn Fn() -> Duration + Send>;

/// A thread that rebuilds a live classifier whenever a rebuild is due.
/// Dropping the `Trainer` stops the thread.
///
/// If the thread panics, [`LiveStatistics`](crate::LiveStatistics) report it. Lookups and changes
/// continue.
pub struct Trainer<const N: usize, I: StartIndex + Clone = StaticTree> {
    shared: Arc<Shared<N, I>>,
    /// The thread; dropping the `Trainer` waits for its end.
    thread: Option<JoinHandle<()>>,
}

impl<const N: usize, I: StartIndex + Clone> fmt::Debug for Trainer<N, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl<const N: usize, I: StartIndex + Clone> Trainer<N, I> {
    /// Starts the trainer thread. Fails if the system cannot start a thread.
    pub(super) fn spawn(shared: Arc<Shared<N, I>>, clock: Option<Clock>) -> std::io::Result<Self>
    where
        I: 'static,
        I::Settings: Send + Sync,
    {
        {
            let mut writer = shared.lock();
            writer.stops = false;
            writer.trainer = TrainerState::Idle;
        }
        let runs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("nuevomatch".into()).spawn(move || {
            let mut life = TrainerLife { shared: &*runs, state: TrainerState::Died };
            run(&runs, clock.as_deref());
            life.state = TrainerState::Absent;
        });
        if thread.is_err() {
            shared.lock().trainer = TrainerState::Absent;
        }
        Ok(Self { shared, thread: Some(thread?) })
    }
}

impl<const N: usize, I: StartIndex + Clone> Drop for Trainer<N, I> {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.due.notify_all();
        // A panic of the thread is reported by the statistics.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A guard that writes the state of the thread when it ends, also by a panic.
struct TrainerLife<'a, const N: usize, I: StartIndex + Clone> {
    shared: &'a Shared<N, I>,
    /// The state to write, which is that of a panic until the thread ends.
    state: TrainerState,
}

impl<const N: usize, I: StartIndex + Clone> Drop for TrainerLife<'_, N, I> {
    fn drop(&mut self) {
        self.shared.lock().trainer = self.state.clone();
    }
}

/// Runs the loop of the thread that rebuilds the classifier.
fn run<const N: usize, I: StartIndex + Clone>(
    shared: &Shared<N, I>,
    clock: Option<&(dyn Fn() -> Duration + Send)>,
) {
    loop {
        {
            let mut writer = shared.lock();
            while !writer.stops && !shared.is_due(&writer) {
                let waited = shared.due.wait(writer);
                writer = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if writer.stops {
                return;
            }
            writer.trainer = TrainerState::Building;
        }
        // A rebuild that fails is counted, and the next change tries again.
        let begin = clock.map(|clock| clock());
        let is_refused = shared.rebuild().is_err();
        let end = clock.map(|clock| clock());
        let mut writer = shared.lock();
        if !is_refused {
            writer.rebuild_time = end.zip(begin).map(|(end, begin)| end.saturating_sub(begin));
        }
        writer.trainer = TrainerState::Idle;
        if is_refused && !writer.stops {
            drop(shared.due.wait(writer));
        }
    }
}
