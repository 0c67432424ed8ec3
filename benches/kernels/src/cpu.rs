//! CPU time of a thread.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the CPU nanoseconds that this thread spends in `run`.
pub fn measure_ns(run: impl FnOnce()) -> u64 {
    let now = || {
        let now =
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    };
    let start = now();
    run();
    now() - start
}
