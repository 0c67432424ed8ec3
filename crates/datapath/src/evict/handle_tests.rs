//! Who turns the desk, and whether somebody does.

use shunt_pipeline::{
    BridgeId, Change, Delta, EntryId, Evictor, Installed, Object, OwnerId, Traversal, Version,
};

use super::*;
use crate::evict::coordinator::ChangeSender;

/// An engine without entries.
#[derive(Default)]
struct Engine {
    /// A delta of this object takes long.
    slow: Option<Object>,
    has_backlog: bool,
    /// Who hears of the last version, in the place of who waits for it.
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

/// A change of so many things.
fn change(version: u64, count: usize) -> Change {
    Change { version: Version::new(version), deltas: vec![Delta::Changed(BRIDGE); count] }
}

/// The seat at the desk of an engine, and where changes are handed in.
fn handle(engine: Engine, waker: &Arc<Waker>) -> (Arc<CoordinatorHandle>, ChangeSender) {
    let (engine, waker) = (Box::new(engine), Arc::clone(waker));
    let (coordinator, changes) = EvictionCoordinator::new(engine, Version::ZERO, Vec::new(), waker);
    let handle = CoordinatorHandle::new(coordinator, |_| {});
    let changes = changes.helping(&handle);
    (handle, changes)
}

#[cfg(not(loom))]
mod of_whom {
    use super::*;

    /// A desk whose thread sleeps.
    struct Scene {
        waker: Arc<Waker>,
        handle: Arc<CoordinatorHandle>,
        changes: ChangeSender,
    }

    impl Scene {
        fn of(engine: Engine) -> Self {
            let waker = Arc::new(Waker::new().unwrap());
            waker.prepare_park();
            let (handle, changes) = handle(engine, &waker);
            Self { waker, handle, changes }
        }

        fn send(&self, change: Change) {
            self.changes.send(change).unwrap();
        }

        /// Whether the eviction thread was woken.
        fn is_woken(&self) -> bool {
            self.waker.is_signalled()
        }

        /// The version that the desk is at when it ends.
        fn version(&self) -> Version {
            self.handle.close().unwrap().version()
        }
    }

    #[test]
    fn a_small_change_is_done_by_who_hands_it_in_and_nobody_is_woken() {
        let scene = Scene::of(Engine::default());
        scene.send(change(1, 1));
        assert!(!scene.is_woken());
        assert_eq!(scene.version(), Version::new(1));
    }

    #[test]
    fn a_large_change_that_waits_is_not_done_by_who_hands_in_a_small_one() {
        let scene = Scene::of(Engine::default());
        scene.send(change(1, 1000));
        assert!(scene.is_woken());
        scene.send(change(2, 1));
        assert_eq!(scene.version(), Version::ZERO);

        let scene = Scene::of(Engine::default());
        (1..=3).for_each(|version| scene.send(change(version, 1000)));
        while scene.handle.run_iteration() {}
        assert_eq!(scene.version(), Version::new(3));
    }

    #[test]
    fn small_changes_that_are_many_together_are_not_done_by_who_hands_in_the_last() {
        let scene = Scene::of(Engine::default());
        let place = scene.handle.state.lock().unwrap();
        (1..=100).for_each(|version| scene.send(change(version, 1)));
        drop(place);
        scene.send(change(101, 1));
        assert_eq!(scene.version(), Version::ZERO);
    }

    #[test]
    fn what_takes_the_engine_long_is_for_the_eviction_thread() {
        let scene = Scene::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        scene.send(change(1, 1));
        assert!(scene.is_woken());
        assert!(scene.handle.run_iteration());
        assert_eq!(scene.version(), Version::new(1));
    }

    #[test]
    fn the_eviction_thread_is_woken_for_what_was_put_off() {
        let scene = Scene::of(Engine { has_backlog: true, ..Engine::default() });
        scene.send(change(1, 1));
        assert!(scene.is_woken());
        assert_eq!(scene.version(), Version::new(1));
    }

    #[test]
    fn of_what_was_left_behind_no_more_is_taken_up() {
        let scene = Scene::of(Engine { slow: Some(BRIDGE), ..Engine::default() });
        for version in 1..=u64::try_from(crate::evict::coordinator::CHANGES_MAX).unwrap() {
            scene.send(change(version, 1));
        }
        // One is with the desk, and all others in the queue.
        scene.send(change(1 << 32, 1));
        assert!(scene.changes.send(change(1 << 33, 1)).is_err());
    }
}

#[cfg(loom)]
mod model {
    //! What loom cannot see here: the queue of changes (`std`), which neither end waits for.

    use loom::thread;

    use super::*;

    /// The eviction thread, until it is at the version `last`.
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

    /// Two who make changes, and an eviction thread that sleeps: if a change is left when all rest,
    /// the eviction thread sleeps for ever, which loom reports.
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

    #[test]
    fn no_change_is_left_where_who_hands_it_in_may_do_it() {
        check(None);
    }

    #[test]
    fn no_change_is_left_where_the_eviction_thread_has_to_do_it() {
        check(Some(BRIDGE));
    }
}
