//! The thread of an [`OffloadAgent`].

use std::{
    io,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::Builder,
    time::Instant,
};

use shunt_gigaflow::offload::OffloadDevice;

use super::OffloadAgent;
use crate::thread::{
    IterationWatch, Running,
    runner::{EpollSleeper, time_since},
};

/// Starts the thread `shunt-offload`; `epoch` is the time of
/// [`Time::ZERO`](shunt_pipeline::Time::ZERO).
///
/// # Errors
///
/// If the system has no thread left.
pub fn spawn_offload_thread<T: OffloadDevice + Send + 'static>(
    mut owner: OffloadAgent<T>,
    epoch: Instant,
) -> io::Result<Running<OffloadAgent<T>>> {
    let stop = Arc::new(AtomicBool::new(false));
    let link = Arc::clone(owner.link());
    let mut sleeper = EpollSleeper::new()?;
    let iterations = Arc::<IterationWatch>::default();
    let watch = Arc::clone(&iterations);
    let (stopped, own) = (Arc::clone(&stop), Arc::clone(&link));
    let handle = Builder::new().name("shunt-offload".to_owned()).spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            if watch.run(|| owner.run_iteration(time_since(epoch))) {
                continue;
            }
            // The thread announces its sleep before the last check of its queues, so a later
            // message wakes it.
            own.waker().prepare_park();
            let worked = watch.run(|| owner.run_iteration(time_since(epoch)));
            if !worked && !stopped.load(Ordering::Relaxed) {
                sleeper.wait(own.waker().as_fd());
            }
            own.waker().unpark();
        }
        owner
    })?;
    Ok(Running::new(stop, move || link.waker().wake(), handle, Some(iterations)))
}
