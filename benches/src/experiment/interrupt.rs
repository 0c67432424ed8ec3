//! An interrupt (Ctrl-C) leaves no daemon and no folder behind.
//!
//! Switches, captures and huge pages are given back as they are dropped, so the first signal only makes
//! the step under way the last: the next one unwinds. Whoever cannot wait for it interrupts again.
//! Switches that share the terminal end by the same signal, and their step fails at once.

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

/// What the process that measures says.
pub(super) const MEASURING: &str =
    "\ninterrupted: this step is the last; once more to end at once, and leave what it has made\n";

/// What a shell answers for a process that an interrupt has ended.
const INTERRUPTED: i32 = 130;

/// Takes interrupts from now on; says so with these words.
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
                // What fails from here on fails because of it.
                panic::set_hook(Box::new(|_| ()));
                eprint!("{words}");
            }
        });
    });
}

pub(super) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::SeqCst)
}

/// Unwinds if there was an interrupt.
pub(super) fn check() {
    if is_interrupted() {
        panic::resume_unwind(Box::new("interrupted"));
    }
}
