//! An interrupted run leaves nothing behind.

use std::fs;

use nix::sys::signal::{SigSet, Signal};
use shunt_pipebench::output::remove_parts;

/// What a shell says of a program that a signal has ended: this and the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

/// From now on a signal that ends the program removes unfinished files first.
///
/// All threads that are begun later leave these signals to the one that waits for them.
pub(crate) fn watch() {
    let ignored = ignored();
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // Who runs it may want it to go on, as `nohup` does.
        if ignored & (1 << (signal as u64 - 1)) == 0 {
            signals.add(signal);
        }
    }
    // Where signals cannot be held back, they end the program as they always did.
    if signals.thread_block().is_ok() {
        std::thread::spawn(move || {
            if let Ok(signal) = signals.wait() {
                remove_parts(|| std::process::exit(ENDED_BY_SIGNAL + signal as i32));
            }
        });
    }
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
