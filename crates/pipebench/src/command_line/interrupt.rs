//! Cleanup after a signal: an interrupted run leaves no files behind.

use std::fs;

use crate::output::remove_parts;
use nix::sys::signal::{SigSet, Signal};

/// Base of a shell's exit code for a program that a signal has ended.
const ENDED_BY_SIGNAL: i32 = 128;

/// Removes unfinished files before a signal ends the program.
///
/// Threads started later leave these signals to the thread that waits for them.
pub(crate) fn watch() {
    let ignored = ignored_signals();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // A parent may ignore the signal on purpose, as `nohup` does.
        if ignored & (1 << (signal as u64 - 1)) == 0 {
            signals.add(signal);
        }
    }
    // Where signals cannot be blocked, they end the program as usual.
    if signals.thread_block().is_ok() {
        std::thread::spawn(move || {
            if let Ok(signal) = signals.wait() {
                remove_parts(|| std::process::exit(ENDED_BY_SIGNAL + signal as i32));
            }
        });
    }
}

/// Returns the ignored signals of this process as a bit mask.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
