//! The signals that end a full screen, after which the terminal is restored.
//!
//! By default, SIGTERM and SIGHUP end a process at once, and its terminal keeps the screen and the
//! raw mode. While a screen is shown, a thread receives these signals, and the loop of the screen
//! asks for them.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, sleep},
    time::Duration,
};

use nix::sys::signal::{SigSet, Signal};

/// The signals that end a screen.
const END_SIGNALS: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];

/// Maximum time from a signal to the end of the process.
///
/// The screen may hang in a write to a terminal that its user has stopped.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// True after a signal.
static HAS_ARRIVED: AtomicBool = AtomicBool::new(false);

/// Starts to receive the signals, which then do not end the process at once.
///
/// # Errors
///
/// If the signals cannot be blocked, or the thread cannot be started.
pub(super) fn watch() -> io::Result<()> {
    let signals: SigSet = END_SIGNALS.into_iter().collect();
    // The new thread inherits the mask, so a signal waits until the thread takes it.
    signals.thread_block()?;
    let receive = move || {
        if signals.wait().is_ok() {
            HAS_ARRIVED.store(true, Relaxed);
            sleep(END_TIME_MAX);
            std::process::exit(1);
        }
    };
    thread::Builder::new().name("end-signals".to_owned()).spawn(receive).map(drop)
}

/// Returns whether one of the signals has arrived.
pub(super) fn has_arrived() -> bool {
    HAS_ARRIVED.load(Relaxed)
}
