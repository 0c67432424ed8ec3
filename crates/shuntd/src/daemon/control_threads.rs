//! The control threads: the tokio runtime of the daemon.

use std::{io, panic, process::exit, time::Duration};

use tokio::runtime::{Builder, Runtime};

/// Time after which an idle thread for blocking calls ends.
///
/// Ports are opened at the same time, each by a thread. 500 idle threads have six megabytes.
const BLOCKING_THREAD_IDLE_MAX: Duration = Duration::from_secs(1);

/// Number of control threads.
const THREADS: usize = 2;

/// Starts the control threads.
///
/// If the system refuses a thread, the process ends with a message: tokio panics, and its unwinding
/// would wait forever for the threads that have started.
///
/// # Errors
///
/// If the system refuses the descriptors of the runtime.
pub(super) fn start() -> io::Result<Runtime> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|panic| end(panic.payload_as_str().unwrap_or("unknown reason"))));
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("shunt-control")
        .thread_keep_alive(BLOCKING_THREAD_IDLE_MAX)
        .enable_all()
        .build();
    panic::set_hook(hook);
    runtime
}

/// Ends the daemon, because its control threads cannot start.
#[expect(clippy::print_stderr, reason = "the reason why a daemon does not start is for its user")]
fn end(reason: &str) {
    eprintln!(
        "shuntd: cannot start the {THREADS} control threads: {reason}; raise the limit of threads \
         (`TasksMax` of systemd, `ulimit -u`)"
    );
    exit(1);
}
