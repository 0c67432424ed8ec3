//! Tests of the shared handle: some thread always runs the coordinator, and the right one.

use shunt_pipeline::{
    BridgeId, Change, Delta, EntryId, Evictor, Installed, Object, OwnerId, Traversal, Version,
};

use super::*;
use crate::evict::coordinator::ChangeSender;

/// An engine without entries.
#[derive(Default)]
struct Engine {
    /// An object with deltas that are not quick.
    slow: Option<Object>,
    /// True if the engine has work that is not done yet.
    has_backlog: bool,
    /// The last version, and the waker of the thread that waits for it.
    last: Option<(Version, Arc<Waker>)>,
}

impl Evictor for Engine {
    fn installed(&mut self, _entry: EntryId, _traversal: &Arc<Traversal>) -> Installed {
        Installed::Recorded
    }

    fn removed(&mut self, _entry: EntryId) {}

    fn apply(&mut self, _deltas: &[Delta], version: Version) -> Vec<EntryId> {
        if let Some((_, waker)) = self.last.as_ref().filter(|(last, _)| *last == version) {
            waker.signal();
        }
        Vec::new()
    }

    fn forget(&mut self, _owner: OwnerId) {}

    fn is_quick(&self, deltas: &[Delta]) -> bool {
        let is_slow = |delta: &Delta| matches!((delta, self.slow), (Delta::Changed(own), Some(slow)) if *own == slow);
        !deltas.iter().any(is_slow)
    }

    fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    fn len(&self) -> usize {
        0
    }
}

const BRIDGE: Object = Object::Bridge(BridgeId::new(1));

/// Returns a change of `count` objects.
fn change(version: u64, count: usize) -> Change {
    Change { version: Version::new(version), deltas: vec![Delta::Changed(BRIDGE); count] }
}

/// Returns the handle of a coordinator with this engine, and the sender of changes.
fn handle(engine: Engine, waker: &Arc<Waker>) -> (Arc<CoordinatorHandle>, ChangeSender) {
    let (engine, waker) = (Box::new(engine), Arc::clone(waker));
    let (coordinator, changes) = EvictionCoordinator::new(engine, Version::ZERO, Vec::new(), waker);
    let handle = CoordinatorHandle::new(coordinator, |_| {});
    let changes = changes.helping(&handle);
    (handle, changes)
}

#[cfg(not(loom))]
mod acting_thread {
    use super::*;
    use crate::evict::coordinator::{CHANGES_MAX, LearnedChange};

    /// A coordinator, and its eviction thread, which is parked.
    struct CoordinatorFixture {
        /// The handle that wakes the eviction thread.
        waker: Arc<Waker>,
        /// The handle of the coordinator.
        handle: Arc<CoordinatorHandle>,
        /// The sender of changes.
        changes: ChangeSender,
    }

    impl CoordinatorFixture {
        /// Returns the fixture of an engine.
        fn of(engine: Engine) -> Self {
            let waker = Arc::new(Waker::new().unwrap());
            waker.prepare_park();
            let (handle, changes) = handle(engine, &waker);
            Self { waker, handle, changes }
        }

        /// Sends a change to the coordinator.
        fn send(&self, change: Change) {
            self.changes.send(change).unwrap();
        }

        /// Returns whether the eviction thread was woken.
        fn is_woken(&self) -> bool {
            self.waker.is_signalled()
        }

        /// Returns the version of the coordinator when it is closed.
        fn version(&self) -> Version {
            self.handle.close().unwrap().version()
        }
    }

    #[test]
    fn the_sender_applies_a_small_change() {
        let fixture = CoordinatorFixture::of(Engine::default());
        fixture.send(change(1, 1));
        assert!(!fixture.is_woken());
        assert_eq!(fixture.version(), Version::new(1));
    }

    /// Sends more changes than can wait, in another thread.
    fn overfill(changes: ChangeSender) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            for version in 1..=CHANGES_MAX as u64 + 3 {
                let learned =
                    LearnedChange { change: change(version, 1), learn_requests: Vec::new() };
                if let Err(back) = changes.send_learned(learned) {
                    changes.send_waiting(back);
                }
            }
        })
    }

    #[test]
    fn full_queue_takes_change_once_there_is_room() {
        let fixture = CoordinatorFixture::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        let sender = overfill(fixture.changes.clone());
        let all = Version::new(CHANGES_MAX as u64 + 3);
        while fixture.handle.inspect(EvictionCoordinator::version) != Some(all) {
            fixture.handle.run_iteration();
        }
        sender.join().unwrap();
        assert!(fixture.is_woken());
        assert_eq!(fixture.handle.inspect(EvictionCoordinator::waiting), Some(0));
    }

    /// A sender that waits for room continues when the eviction thread ends.
    #[test]
    fn a_full_queue_that_is_closed_delays_nobody() {
        let fixture = CoordinatorFixture::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        let sender = overfill(fixture.changes.clone());
        while fixture.handle.inspect(EvictionCoordinator::waiting).unwrap() < CHANGES_MAX {
            std::thread::yield_now();
        }
        drop(fixture.handle.close());
        sender.join().unwrap();
    }

    #[test]
    fn a_waiting_large_change_wakes_the_thread() {
        let fixture = CoordinatorFixture::of(Engine::default());
        fixture.send(change(1, 1000));
        assert!(fixture.is_woken());
        fixture.send(change(2, 1));
        assert_eq!(fixture.version(), Version::ZERO);

        let fixture = CoordinatorFixture::of(Engine::default());
        (1..=3).for_each(|version| fixture.send(change(version, 1000)));
        while fixture.handle.run_iteration() {}
        assert_eq!(fixture.version(), Version::new(3));
    }

    #[test]
    fn many_small_changes_wake_the_thread() {
        let fixture = CoordinatorFixture::of(Engine::default());
        let place = fixture.handle.state.lock().unwrap();
        (1..=100).for_each(|version| fixture.send(change(version, 1)));
        drop(place);
        fixture.send(change(101, 1));
        assert_eq!(fixture.version(), Version::ZERO);
    }

    #[test]
    fn slow_changes_wake_the_thread() {
        let fixture = CoordinatorFixture::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        fixture.send(change(1, 1));
        assert!(fixture.is_woken());
        assert!(fixture.handle.run_iteration());
        assert_eq!(fixture.version(), Version::new(1));
    }

    #[test]
    fn deferred_work_wakes_the_thread() {
        let fixture = CoordinatorFixture::of(Engine { has_backlog: true, ..Engine::default() });
        fixture.send(change(1, 1));
        assert!(fixture.is_woken());
        assert_eq!(fixture.version(), Version::new(1));
    }

    /// Changes that cannot join the batch wait in the queue until it is full.
    #[test]
    fn an_unmerged_batch_does_not_grow() {
        let fixture = CoordinatorFixture::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        for version in 1..=u64::try_from(CHANGES_MAX).unwrap() {
            fixture.send(change(version, 1));
        }
        // One change is in the batch, and all other changes are in the queue.
        fixture.send(change(1 << 32, 1));
        assert!(fixture.changes.send(change(1 << 33, 1)).is_err());
    }
}

#[cfg(loom)]
mod model {
    //! Loom cannot see the queue of changes (`std`), which is never full in these models.

    use loom::thread;

    use super::*;

    /// Runs the eviction thread until it is at the version `last`.
    fn run(handle: &CoordinatorHandle, last: Version) {
        let is_over = || match &*handle.state.lock().unwrap() {
            HandleState::Open(open) => open.coordinator.version() == last,
            HandleState::Panicked(_) | HandleState::Closed => true,
        };
        while !is_over() {
            if handle.run_iteration() {
                continue;
            }
            handle.waker.prepare_park();
            if !handle.run_iteration() {
                handle.waker.wait();
            }
            handle.waker.unpark();
        }
    }

    /// Two senders of changes, and an eviction thread that sleeps.
    ///
    /// If the other threads have ended and a change is not applied, the eviction thread sleeps
    /// forever. Loom reports this as a deadlock.
    fn check(slow: Option<Object>) {
        loom::model(move || {
            let waker = Arc::new(Waker::new().unwrap());
            let last = Version::new(2);
            let engine =
                Engine { slow, last: Some((last, Arc::clone(&waker))), ..Engine::default() };
            let (handle, changes) = handle(engine, &waker);
            let eviction = {
                let handle = Arc::clone(&handle);
                thread::spawn(move || run(&handle, last))
            };
            (1..=2).for_each(|version| changes.send(change(version, 1)).unwrap());
            eviction.join().unwrap();
        });
    }

    /// Concurrent senders apply quick changes; at the end, none waits in the queue.
    #[test]
    fn no_quick_change_is_left_behind() {
        check(None);
    }

    /// Concurrent senders leave slow changes to the thread; at the end, none waits.
    #[test]
    fn no_slow_change_is_left_behind() {
        check(Some(BRIDGE));
    }
}
