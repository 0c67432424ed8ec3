//! Two copies of a value: readers use one while the writer changes the other.
//!
//! A change has three steps. First the idle copy is changed. After the change, the changed copy
//! becomes the active one. Last, the other copy is changed. Readers never wait:
//!
//! - A reader loads the number of the active copy and tries to lock that copy for reading.
//! - The attempt fails only if the writer holds or awaits the lock of this copy. After a failed
//!   attempt the other copy is active, so the reader loads the number again.
//! - A reader with the lock loads the number once more. If the copy is not active any more, it may
//!   have a change that is not visible yet, so the reader starts again.
//!
//! The writer waits for readers that still use the formerly active copy. A reader holds a copy for
//! one batch.

use std::sync::{PoisonError, TryLockError};

use crate::sync::{AtomicUsize, Ordering, ReadLock};

/// Two copies of a value for one writer and any number of readers.
#[derive(Debug)]
pub(super) struct DoubleBuffer<T> {
    /// The copies: readers use one, and the writer changes the other.
    copies: [ReadLock<T>; 2],
    /// Index of the copy that readers use.
    active: AtomicUsize,
    /// For each copy: not 0 while a change of the copy is incomplete.
    /// Only the writer reads `incomplete`.
    incomplete: [AtomicUsize; 2],
}

impl<T: Clone> DoubleBuffer<T> {
    /// Returns a buffer with two copies of `value`.
    pub(super) fn new(value: T) -> Self {
        let copies = [ReadLock::new(value.clone()), ReadLock::new(value)];
        Self { copies, active: AtomicUsize::new(0), incomplete: [0, 0].map(AtomicUsize::new) }
    }

    /// Reads the active copy, without waiting for the writer.
    pub(super) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        loop {
            // Acquire pairs with the release in `update`.
            let active = self.active.load(Ordering::Acquire);
            let copy = match self.copies[active].try_read() {
                Ok(copy) => Some(copy),
                // An earlier change of this copy panicked. If the copy is active, a later change
                // has repaired it.
                Err(TryLockError::Poisoned(copy)) => Some(copy.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            // A copy that is not active any more may have a change that must not be visible yet.
            let is_active = |_: &_| self.active.load(Ordering::Acquire) == active;
            if let Some(copy) = copy.filter(is_active) {
                return read(&copy);
            }
            std::hint::spin_loop();
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// Changes both copies in the same way. The caller must be the only writer.
    ///
    /// Every read that starts after the return sees the change. A read sees all of the change or
    /// nothing.
    pub(super) fn update<R>(&self, mut change: impl FnMut(&mut T) -> R) -> R {
        let active = self.active.load(Ordering::Relaxed);
        let idle = 1 - active;
        self.change(idle, &mut change);
        // With release, a reader that loads the number sees the changed copy.
        self.active.store(idle, Ordering::Release);
        self.change(active, &mut change)
    }

    /// Changes one copy, which is not active.
    ///
    /// If an earlier change of this copy panicked, the copy is first replaced by a clone of the
    /// other copy.
    fn change<R>(&self, at: usize, change: &mut impl FnMut(&mut T) -> R) -> R {
        let mut copy = self.copies[at].write().unwrap_or_else(PoisonError::into_inner);
        if self.incomplete[at].swap(1, Ordering::Relaxed) != 0 {
            let other = self.copies[1 - at].write().unwrap_or_else(PoisonError::into_inner);
            *copy = other.clone();
        }
        let result = change(&mut copy);
        self.incomplete[at].store(0, Ordering::Relaxed);
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_change_is_visible_after_its_return() {
        let buffer = DoubleBuffer::new(vec![1]);
        for value in 2..6 {
            buffer.update(|copy| copy.push(value));
            assert_eq!(buffer.read(Vec::len), value);
        }
        assert_eq!(buffer.read(Clone::clone), [1, 2, 3, 4, 5]);
    }

    /// No read sees a change that panics, and the next change works.
    #[test]
    fn an_incomplete_change_is_never_read() {
        let buffer = DoubleBuffer::new(vec![1]);
        let change = AssertUnwindSafe(|| {
            buffer.update(|copy| {
                copy.clear();
                assert!(!copy.is_empty(), "a change that fails in the middle");
            });
        });
        assert!(catch_unwind(change).is_err());
        assert_eq!(buffer.read(Clone::clone), [1]);
        buffer.update(|copy| copy.push(2));
        assert_eq!(buffer.read(Clone::clone), [1, 2]);
        buffer.update(|copy| copy.push(3));
        assert_eq!(buffer.read(Clone::clone), [1, 2, 3]);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::{sync::Arc, thread};

    use super::*;

    /// Reads see whole changes in order, with every change that returned before.
    #[test]
    fn reads_are_whole_and_in_order() {
        loom::model(|| {
            let buffer = Arc::new(DoubleBuffer::new([0, 0]));
            let returned = Arc::new(AtomicUsize::new(0));
            let reader = {
                let (buffer, returned) = (Arc::clone(&buffer), Arc::clone(&returned));
                thread::spawn(move || {
                    let mut last = 0;
                    for _ in 0..2 {
                        let least = returned.load(Ordering::Acquire);
                        let [a, b] = buffer.read(|pair| *pair);
                        assert_eq!(a, b, "a change is seen as a whole");
                        assert!(a >= least && a >= last, "{a}: returned {least}, read {last}");
                        last = a;
                    }
                })
            };
            for value in 1..=2 {
                buffer.update(|pair| {
                    pair[0] = value;
                    pair[1] = value;
                });
                returned.store(value, Ordering::Release);
            }
            reader.join().unwrap();
        });
    }
}
