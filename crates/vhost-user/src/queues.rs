//! The running queues of a device, between its control thread and the threads that move frames.
//!
//! The control thread starts and stops queues; each worker moves frames through them. A queue has a
//! lock, which a worker only tries, once for a burst, so that it never waits. The control thread
//! waits for the lock for at most one burst. When the control thread has the lock, no worker uses
//! the queue, and the guest's memory may be unmapped.
//!
//! The guest receives by queue `2 n` and sends by queue `2 n + 1`, which form pair `n`. Worker `w`
//! of `N` takes frames from the pairs `w`, `w + N` and so on, and sends into pair `w` modulo the
//! number of pairs.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU16, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Mutex, MutexGuard};
use shunt_shared_memory::{WakeSet, notify, reset};

use crate::{
    error::RingError,
    features::{QUEUE_PAIRS_MAX, VirtioFeatures},
    net_queue::{FramePut, FrameSink, GuestLimits, NetHeader, put_frames, take_frames},
    ring::Virtqueue,
};

/// The virtqueues of a device, with the workers that serve them.
#[derive(Debug)]
pub(crate) struct DeviceQueues {
    slots: Box<[Mutex<Option<RunningQueue>>]>,
    /// The events that wake each worker: changes of its queues, and kicks of the guest.
    workers: Box<[WakeSet]>,
    /// Features that the guest accepted.
    features: AtomicU64,
    /// Number of pairs up to the last pair from which frames are taken.
    pairs_from_guest: AtomicU16,
    /// Number of leading pairs into which frames are sent.
    pairs_to_guest: AtomicU16,
    /// The MAC address that the first worker is to announce, if any.
    announced: AtomicU64,
    /// Queues that workers stopped since the control thread last took the failures.
    failures: Mutex<Vec<QueueFailure>>,
    /// Readable while `failures` has entries.
    failed: EventFd,
    /// True when no queue may start any more; the locks of the queues order it.
    is_closed: AtomicBool,
}

/// A queue in operation.
#[derive(Debug)]
pub(crate) struct RunningQueue {
    pub(crate) ring: Virtqueue,
    pub(crate) limits: GuestLimits,
    /// False while frames to the guest are refused and frames from it discarded.
    pub(crate) is_enabled: bool,
    /// The eventfd that the guest writes when it offers buffers.
    pub(crate) kick: Option<Arc<File>>,
    /// The eventfd that notifies the guest of returned buffers.
    pub(crate) call: Option<Arc<File>>,
}

/// A queue that was stopped because its guest broke a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFailure {
    pub(crate) queue: u16,
    pub(crate) error: RingError,
    /// The position at which the queue continues; `None` if it has never run.
    pub(crate) base: Option<u32>,
}

impl DeviceQueues {
    /// Creates a device without running queues.
    pub(crate) fn new(workers: u16) -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let worker = |_| WakeSet::new();
        Ok(Self {
            slots: (0..QUEUES_MAX).map(|_| Mutex::new(None)).collect(),
            workers: (0..workers.max(1)).map(worker).collect::<nix::Result<_>>()?,
            features: AtomicU64::new(0),
            pairs_from_guest: AtomicU16::new(0),
            pairs_to_guest: AtomicU16::new(0),
            announced: AtomicU64::new(NO_ADDRESS),
            failures: Mutex::default(),
            failed: EventFd::from_flags(flags)?,
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns the number of workers, which is at least one.
    #[expect(clippy::cast_possible_truncation, reason = "the value was created from a u16")]
    pub(crate) const fn workers(&self) -> u16 {
        self.workers.len() as u16
    }

    /// Returns the features that the guest accepted.
    pub(crate) fn features(&self) -> VirtioFeatures {
        VirtioFeatures::from_bits(self.features.load(Acquire))
    }

    /// Sets the features that the guest has accepted.
    pub(crate) fn set_features(&self, features: VirtioFeatures) {
        self.features.store(features.bits(), Release);
    }

    /// Tries to lock a queue.
    pub(crate) fn try_queue(&self, queue: u16) -> Option<MutexGuard<'_, Option<RunningQueue>>> {
        self.slots.get(usize::from(queue))?.try_lock()
    }

    /// Replaces a queue by the result of `change`, which gets the current queue.
    ///
    /// The worker of the queue is woken. After [`Self::close`] there is no queue, whatever the
    /// result is.
    pub(crate) fn change(
        &self,
        queue: u16,
        change: impl FnOnce(Option<RunningQueue>) -> Option<RunningQueue>,
    ) {
        let Some(slot) = self.slots.get(usize::from(queue)) else { return };
        let events = self.wake_set(queue / 2);
        let kick = |queue: &Option<RunningQueue>| queue.as_ref().and_then(|own| own.kick.clone());
        {
            let mut slot = slot.lock();
            let before = kick(&slot);
            let taken = slot.take();
            *slot = change(taken).filter(|_| !self.is_closed.load(Relaxed));
            let after = kick(&slot);
            let is_same = match (&before, &after) {
                (Some(before), Some(after)) => Arc::ptr_eq(before, after),
                (None, None) => true,
                _ => false,
            };
            if is_from_guest(queue) && !is_same {
                if let Some(kick) = before {
                    events.remove(&*kick);
                }
                let is_added = after.is_none_or(|kick| events.add(&*kick));
                if let Some(running) = slot.as_mut().filter(|_| !is_added) {
                    // The system refuses a descriptor that another queue has in the set. This queue
                    // is polled instead.
                    running.kick = None;
                }
            }
        }
        self.count_pairs();
        events.wake();
    }

    /// Stops all queues for ever.
    ///
    /// When the function returns, no worker uses a queue. The control thread may run on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
        for (queue, slot) in (0..QUEUES_MAX).zip(self.slots.iter()) {
            // A queue that starts later takes the lock after this line, and sees the flag.
            let is_running = slot.lock().is_some();
            if is_running {
                self.change(queue, |_| None);
            }
        }
    }

    /// Publishes the number of pairs in operation.
    fn count_pairs(&self) {
        let is_running = |queue: u16, must_be_enabled: bool| {
            let slot = self.slots.get(usize::from(queue)).map(|slot| slot.lock());
            let running = slot.as_ref().and_then(|slot| slot.as_ref());
            running.is_some_and(|running| running.is_enabled || !must_be_enabled)
        };
        let last = (0..QUEUE_PAIRS_MAX).rev().find(|pair| is_running(2 * pair + 1, false));
        let first_missing = (0..QUEUE_PAIRS_MAX).find(|pair| !is_running(2 * pair, true));
        self.pairs_from_guest.store(last.map_or(0, |last| last + 1), Release);
        self.pairs_to_guest.store(first_missing.unwrap_or(QUEUE_PAIRS_MAX), Release);
    }

    /// Returns the number of pairs from which frames are taken.
    pub(crate) fn pairs_from_guest(&self) -> u16 {
        self.pairs_from_guest.load(Acquire)
    }

    /// Returns the number of pairs into which frames are sent.
    pub(crate) fn pairs_to_guest(&self) -> u16 {
        self.pairs_to_guest.load(Acquire)
    }

    /// Returns the events that wake the worker of a pair.
    ///
    /// Worker `w` has pair `w`, and may have further pairs.
    pub(crate) fn wake_set(&self, pair: u16) -> &WakeSet {
        &self.workers[usize::from(pair) % self.workers.len()]
    }

    /// Makes the first worker announce a guest that has moved to this host.
    pub(crate) fn announce(&self, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        self.announced.store(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), Release);
        self.wake_set(0).wake();
    }

    /// Returns whether the worker has a guest to announce.
    pub(crate) fn has_announcement(&self, worker: u16) -> bool {
        worker == 0 && self.announced.load(Acquire) != NO_ADDRESS
    }

    /// Takes the MAC address of a guest to announce.
    pub(crate) fn take_announcement(&self, worker: u16) -> Option<[u8; 6]> {
        if !self.has_announcement(worker) {
            return None;
        }
        let [mac @ .., _, _] = self.announced.swap(NO_ADDRESS, AcqRel).to_le_bytes();
        Some(mac)
    }

    /// Stops a queue because its guest broke a rule; the worker holds the lock `slot`.
    #[cold]
    pub(crate) fn break_queue(
        &self,
        slot: &mut Option<RunningQueue>,
        queue: u16,
        error: RingError,
    ) {
        let broken = slot.take();
        let base = broken.as_ref().map(|running| running.ring.base());
        let kick = broken.and_then(|running| running.kick);
        if let Some(kick) = kick.filter(|_| is_from_guest(queue)) {
            // A kick descriptor that stays in the set would wake the worker for ever.
            self.wake_set(queue / 2).remove(&*kick);
        }
        self.report(QueueFailure { queue, error, base });
    }

    /// Reports to the control thread that a queue has stopped.
    #[cold]
    pub(crate) fn report(&self, failure: QueueFailure) {
        self.failures.lock().push(failure);
        // The counter is full only if the control thread has been woken before.
        let _ = self.failed.write(1);
    }

    /// Returns the event that is readable after [`Self::report`].
    pub(crate) const fn failed(&self) -> &EventFd {
        &self.failed
    }

    /// Takes the failures since the last call.
    pub(crate) fn take_failures(&self) -> Vec<QueueFailure> {
        let _ = self.failed.read();
        std::mem::take(&mut *self.failures.lock())
    }
}

impl RunningQueue {
    /// Moves at most `max` frames from the guest to `sink`, and returns their number.
    pub(crate) fn take(
        &mut self,
        max: usize,
        sink: &mut impl FrameSink,
    ) -> (usize, Result<(), RingError>) {
        let features = self.limits.features;
        match &mut self.ring {
            Virtqueue::Split(ring) => take_frames(ring, features, max, sink),
            Virtqueue::Packed(ring) => take_frames(ring, features, max, sink),
        }
    }

    /// Copies frames into the buffers of the guest, and returns their number.
    pub(crate) fn put<'a>(
        &mut self,
        frames: impl ExactSizeIterator<Item = (NetHeader, &'a [u8])>,
    ) -> (usize, Result<FramePut, RingError>) {
        match &mut self.ring {
            Virtqueue::Split(ring) => put_frames(ring, self.limits, frames),
            Virtqueue::Packed(ring) => put_frames(ring, self.limits, frames),
        }
    }

    /// Publishes returned buffers, and notifies the guest if it requested that.
    pub(crate) fn publish(&mut self) {
        if self.ring.publish() {
            self.notify();
        }
    }

    /// Notifies the guest of used buffers.
    pub(crate) fn notify(&self) {
        if let Some(call) = &self.call {
            notify(call);
        }
    }

    /// Resets the kick event of the guest.
    pub(crate) fn clear_kick(&self) {
        if let Some(kick) = &self.kick {
            reset(kick);
        }
    }
}

/// Returns whether `queue` is one by which the guest sends.
pub(crate) const fn is_from_guest(queue: u16) -> bool {
    queue % 2 == 1
}

/// The maximum number of queues of a device.
pub(crate) const QUEUES_MAX: u16 = 2 * QUEUE_PAIRS_MAX;

/// The value without a MAC address, which has 48 bits.
const NO_ADDRESS: u64 = u64::MAX;

const _: () = assert!(QUEUES_MAX <= 1 << 8, "a message names a queue by eight bits");
