//! Cleanup after an interrupt (Ctrl-C): no daemon and no folder is left behind.
//!
//! Switches, captures and huge pages are released on drop. The first signal lets the running step
//! finish, and the next step unwinds. A second signal ends the program at once. Switches that share
//! the terminal receive the same signal and end, so their step fails at once.

use std::{
    panic,
    process::exit,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use tokio::{
    runtime::Builder,
    select,
    signal::unix::{SignalKind, signal},
};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Message of the measuring process.
pub(super) const MEASURING: &str = "\ninterrupted: finishing this step; interrupt again to stop at once and leave its files \
     behind\n";

/// Exit code that a shell reports for an interrupted process.
const INTERRUPTED: i32 = 130;

/// Handles interrupts from now on, and prints this message for the first.
pub(super) fn watch(words: &'static str) {
    thread::spawn(move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
            let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
            loop {
                select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
                if IS_INTERRUPTED.swap(true, Ordering::SeqCst) {
                    exit(INTERRUPTED);
                }
                // Failures after an interrupt are its consequence.
                panic::set_hook(Box::new(|_| ()));
                eprint!("{words}");
            }
        });
    });
}

pub(super) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::SeqCst)
}

/// Unwinds after an interrupt.
pub(super) fn check() {
    if is_interrupted() {
        panic::resume_unwind(Box::new("interrupted"));
    }
}
