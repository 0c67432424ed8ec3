//! The state of a link, which one thread sets and other threads read.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The state of a link to a peer.
#[derive(Debug)]
pub struct LinkState<L> {
    state: Mutex<L>,
    changed: Condvar,
}

impl<L: Clone> LinkState<L> {
    /// Creates a link in a state.
    pub const fn new(state: L) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the state of the link.
    pub fn get(&self) -> L {
        self.state.lock().clone()
    }

    /// Sets the state, and wakes all threads in [`Self::wait_for`].
    pub fn set(&self, state: L) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits at most `timeout` for a state; returns whether it is reached.
    pub fn wait_for(&self, timeout: Duration, mut is_reached: impl FnMut(&L) -> bool) -> bool {
        let mut state = self.state.lock();
        let result = self.changed.wait_while_for(&mut state, |state| !is_reached(state), timeout);
        !result.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;

    #[test]
    fn a_waiting_thread_sees_a_state_change() {
        let link = LinkState::new(0);
        assert!(!link.wait_for(Duration::ZERO, |state| *state == 2));
        scope(|scope| {
            scope.spawn(|| (1..=2).for_each(|state| link.set(state)));
            assert!(link.wait_for(Duration::from_secs(60), |state| *state == 2));
        });
        assert_eq!(link.get(), 2);
    }
}
