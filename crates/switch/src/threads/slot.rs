//! A thread, or the way in which it ended.

use std::thread::JoinHandle;

use shunt_datapath::thread::Running;

use crate::status::thread::ThreadState;

/// A handle that can wait for the end of its thread.
pub(crate) trait ThreadHandle {
    /// Returns whether the thread has ended.
    fn is_finished(&self) -> bool;

    /// Waits for the end of the thread; returns whether it ended without a panic.
    fn finish(self) -> bool;
}

/// A running thread, or the way in which it ended.
pub(crate) enum ThreadSlot<H> {
    Running(H),
    /// The thread ended by a panic.
    Panicked,
    /// The thread was stopped by the switch.
    Stopped,
}

impl<T> ThreadHandle for Running<T> {
    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn finish(self) -> bool {
        self.stop().is_some()
    }
}

impl ThreadHandle for JoinHandle<()> {
    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn finish(self) -> bool {
        self.join().is_ok()
    }
}

impl<H: ThreadHandle> ThreadSlot<H> {
    /// Returns whether the thread panicked since the last check.
    pub(crate) fn has_panicked(&mut self) -> bool {
        let is_over = matches!(self, Self::Running(thread) if thread.is_finished());
        if is_over {
            *self = Self::Panicked;
        }
        is_over
    }

    /// Stops the thread and waits for its end; returns whether it was running.
    pub(crate) fn stop(&mut self) -> bool {
        match std::mem::replace(self, Self::Stopped) {
            Self::Running(thread) => {
                if !thread.finish() {
                    *self = Self::Panicked;
                }
                true
            }
            over => {
                *self = over;
                false
            }
        }
    }

    /// Returns the handle of a running thread.
    pub(crate) const fn running(&self) -> Option<&H> {
        match self {
            Self::Running(thread) => Some(thread),
            Self::Panicked | Self::Stopped => None,
        }
    }

    /// Returns the state of the thread as of the last check.
    pub(crate) const fn state(&self) -> ThreadState {
        match self {
            Self::Running(_) => ThreadState::Running,
            Self::Panicked => ThreadState::Panicked,
            Self::Stopped => ThreadState::Stopped,
        }
    }
}
