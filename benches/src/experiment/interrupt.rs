//! Cleanup after an interrupt (Ctrl-C), which leaves no daemon and no folder behind.
//!
//! Switches, captures and huge pages are released on drop. After the first signal, the running step
//! finishes, and the next step unwinds. A second signal ends the program immediately. Switches that
//! share the terminal receive the same signal and end, so the step of these switches fails
//! immediately.

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

/// Handles interrupts from now on, and prints `words` at the first interrupt.
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
                // Failures after an interrupt are caused by the interrupt.
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
