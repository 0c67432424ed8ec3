//! Fail-open: a bridge that cannot reach its controllers becomes a learning switch.
//!
//! So `ovs-vswitchd.conf.db(5)` describes the `fail_mode` `standalone`. When no controller was
//! connected for three inactivity probes, the host forwards every packet by NORMAL. The first
//! connection ends fail-open, before the controller can send a change of rules. A connection counts
//! from version negotiation on.
//!
//! The state has no clock and no timer. The owner of the state passes the time, about once a
//! second.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shunt_pipeline::Time;

/// Number of inactivity probes without a controller until a bridge fails open.
const PROBES_COUNT: u32 = 3;

/// The reachability of the controllers of a bridge; a clone has the same state.
#[derive(Clone, Debug, Default)]
pub(super) struct FailOpen(Arc<Mutex<FailOpenState>>);

/// The controllers of a bridge, and whether the bridge fails open.
#[derive(Debug, Default)]
struct FailOpenState {
    /// True if the bridge may fail open.
    is_allowed: bool,
    /// True if the bridge fails open.
    is_open: bool,
    /// The controllers of the bridge, by number.
    controllers: BTreeMap<u64, TrackedController>,
    /// The number of the next controller.
    next: u64,
    /// Time since when no controller has sent a message; `None` while one is connected.
    unreachable_since: Option<Time>,
}

/// A controller to which the bridge connects.
#[derive(Debug)]
struct TrackedController {
    /// Time without a message after which the controller is probed.
    inactivity_probe: Duration,
    /// True while a connection to the controller is open.
    is_connected: bool,
}

/// The entry of a controller; dropping it removes the controller.
#[derive(Debug)]
pub(super) struct ControllerEntry {
    /// The state of the bridge.
    fail_open: FailOpen,
    /// The number of the controller.
    number: u64,
}

/// The begin or the end of failing open, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailOpenChange {
    /// No controller was reachable for the given time.
    Unreachable(Duration),
    /// A controller has connected.
    Connected,
    /// The bridge has no controllers any more.
    NoControllers,
    /// The bridge may not fail open any more.
    Refused,
}

impl FailOpen {
    /// Sets whether the bridge may fail open, for the next [`Self::update`].
    pub(super) fn allow(&self, is_allowed: bool) {
        self.lock().is_allowed = is_allowed;
    }

    /// Returns whether the bridge fails open.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// Adds a controller that is not connected, until the returned entry is dropped.
    pub(super) fn add_controller(&self, inactivity_probe: Duration) -> ControllerEntry {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let controller = TrackedController { inactivity_probe, is_connected: false };
        state.controllers.insert(number, controller);
        ControllerEntry { fail_open: self.clone(), number }
    }

    /// Calls `set` with the new state if it changes at `now`, and returns the change.
    ///
    /// The lock orders the calls of `set`, so the last one has the newest state.
    pub(super) fn update(&self, now: Time, set: impl FnOnce(bool)) -> Option<FailOpenChange> {
        let mut state = self.lock();
        let change = state.change(now)?;
        state.is_open = matches!(change, FailOpenChange::Unreachable(_));
        set(state.is_open);
        Some(change)
    }

    /// Locks the state, also after a panic, which leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, FailOpenState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailOpenState {
    /// Returns the change that is due at `now`.
    ///
    /// A bridge that fails open continues when its controllers are replaced by others.
    fn change(&mut self, now: Time) -> Option<FailOpenChange> {
        let has_connection = self.has_connection();
        if has_connection || self.controllers.is_empty() {
            self.unreachable_since = None;
        } else {
            self.unreachable_since = self.unreachable_since.or(Some(now));
        }
        let unreachable = self.unreachable_since.map(|since| now.since(since));
        match (self.is_open, unreachable) {
            (true, _) if !self.is_allowed => Some(FailOpenChange::Refused),
            (true, None) if has_connection => Some(FailOpenChange::Connected),
            (true, None) => Some(FailOpenChange::NoControllers),
            (false, Some(time)) if self.is_allowed && time >= self.delay() => {
                Some(FailOpenChange::Unreachable(time))
            }
            (true, Some(_)) | (false, _) => None,
        }
    }

    /// Records the state of the connection to a controller.
    fn set_connected(&mut self, number: u64, is_connected: bool) {
        if let Some(controller) = self.controllers.get_mut(&number) {
            controller.is_connected = is_connected;
        }
    }

    /// Returns whether a controller is connected.
    fn has_connection(&self) -> bool {
        self.controllers.values().any(|controller| controller.is_connected)
    }

    /// Returns the time without a controller until the bridge fails open.
    fn delay(&self) -> Duration {
        let probes = self.controllers.values().map(|controller| controller.inactivity_probe);
        probes.max().unwrap_or_default().saturating_mul(PROBES_COUNT)
    }
}

impl ControllerEntry {
    /// Records that the controller is connected, for the next [`FailOpen::update`].
    pub(super) fn note_connected(&self) {
        let mut state = self.fail_open.lock();
        state.set_connected(self.number, true);
        state.unreachable_since = None;
    }

    /// Records that the controller is not connected.
    ///
    /// The controller sent its last message `silent_for` before `now`. Both are recorded under one
    /// lock: an update in between would count the time from `now`.
    pub(super) fn note_disconnected(&self, now: Time, silent_for: Duration) {
        let mut state = self.fail_open.lock();
        state.set_connected(self.number, false);
        if !state.has_connection() && state.unreachable_since.is_none() {
            let last_message = now.since(Time::ZERO.after(silent_for));
            state.unreachable_since = Some(Time::ZERO.after(last_message));
        }
    }
}

impl Drop for ControllerEntry {
    fn drop(&mut self) {
        self.fail_open.lock().controllers.remove(&self.number);
    }
}

impl FailOpenChange {
    /// Logs the change of a bridge, with its reason.
    pub(super) fn log(self, bridge: &str) {
        match self {
            Self::Unreachable(time) => {
                let seconds = time.as_secs();
                tracing::warn!(
                    "bridge {bridge}: no controller was reachable for {seconds} s, so the bridge \
                     forwards as a learning switch (fail_mode standalone)"
                );
            }
            Self::Connected => {
                tracing::info!(
                    "bridge {bridge}: a controller connected, so the bridge forwards \
                     by its rules again"
                );
            }
            Self::NoControllers => {
                tracing::info!(
                    "bridge {bridge}: the bridge has no controllers any more, so it \
                     forwards by its rules again"
                );
            }
            Self::Refused => {
                tracing::info!(
                    "bridge {bridge}: fail_mode is now secure, so the bridge forwards \
                     by its rules again"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU32, Ordering},
        thread,
    };

    use super::*;

    const PROBE: Duration = Duration::from_secs(5);

    fn at(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    /// Returns the change at a second; `None` if nothing changes.
    fn change(fail_open: &FailOpen, second: u64) -> Option<FailOpenChange> {
        let mut set = None;
        let change = fail_open.update(at(second), |is_open| set = Some(is_open));
        assert_eq!(set, change.map(|_| fail_open.is_open()), "the host is called for each change");
        change
    }

    #[test]
    fn fails_open_after_three_probes_without_controllers() {
        let fail_open = FailOpen::default();
        fail_open.allow(true);
        assert_eq!(change(&fail_open, 100), None, "a bridge without controllers");
        let [one, two] = [PROBE, PROBE].map(|probe| fail_open.add_controller(probe));
        assert_eq!(change(&fail_open, 101), None);
        assert_eq!(change(&fail_open, 115), None);
        let unreachable = FailOpenChange::Unreachable(Duration::from_secs(15));
        assert_eq!(change(&fail_open, 116), Some(unreachable));
        assert_eq!(change(&fail_open, 117), None);
        two.note_connected();
        assert_eq!(change(&fail_open, 118), Some(FailOpenChange::Connected));
        // One controller is enough.
        one.note_disconnected(at(119), Duration::ZERO);
        assert_eq!(change(&fail_open, 200), None);
        two.note_disconnected(at(200), Duration::ZERO);
        assert_eq!(change(&fail_open, 214), None);
        assert_eq!(change(&fail_open, 215), Some(unreachable));
        drop((one, two));
        assert_eq!(change(&fail_open, 216), Some(FailOpenChange::NoControllers));
    }

    /// The time counts from the last message of a controller.
    #[test]
    fn silent_controller_is_unreachable_since_its_message() {
        let fail_open = FailOpen::default();
        fail_open.allow(true);
        let controller = fail_open.add_controller(PROBE);
        controller.note_connected();
        assert_eq!(change(&fail_open, 10), None);
        controller.note_disconnected(at(20), PROBE * 2);
        assert_eq!(change(&fail_open, 24), None);
        assert!(change(&fail_open, 25).is_some());
    }

    /// No update of another thread falls between the two parts of a disconnection.
    #[test]
    fn concurrent_update_keeps_the_time_of_silence() {
        const UPDATES: u32 = 20_000;
        let fail_open = FailOpen::default();
        let controller = fail_open.add_controller(PROBE);
        let (updates, is_done) = (AtomicU32::new(0), AtomicBool::new(false));
        let wrong = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fail_open.update(at(20), |_| ());
                    updates.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut wrong = None;
            while wrong.is_none() && updates.load(Ordering::Relaxed) < UPDATES {
                controller.note_connected();
                controller.note_disconnected(at(20), PROBE * 2);
                let since = fail_open.lock().unreachable_since;
                wrong = Some(since).filter(|since| *since != Some(at(10)));
            }
            is_done.store(true, Ordering::Relaxed);
            wrong
        });
        assert_eq!(wrong, None, "the last message was at second 10");
    }

    #[test]
    fn secure_bridge_never_fails_open() {
        let fail_open = FailOpen::default();
        let _controller = fail_open.add_controller(PROBE);
        assert_eq!(change(&fail_open, 0), None);
        assert_eq!(change(&fail_open, 1000), None);
        fail_open.allow(true);
        assert!(change(&fail_open, 1001).is_some());
        fail_open.allow(false);
        assert_eq!(change(&fail_open, 1002), Some(FailOpenChange::Refused));
        assert!(!fail_open.is_open());
    }

    /// The server closes a socket before it opens its successor.
    #[test]
    fn replaced_controllers_leave_the_bridge_open() {
        let fail_open = FailOpen::default();
        fail_open.allow(true);
        let first = fail_open.add_controller(PROBE);
        assert_eq!(change(&fail_open, 0), None);
        assert!(change(&fail_open, 15).is_some());
        drop(first);
        let _second = fail_open.add_controller(PROBE);
        assert_eq!(change(&fail_open, 16), None);
        assert!(fail_open.is_open());
    }
}
