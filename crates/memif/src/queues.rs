//! The running rings of an interface, between the control thread and the threads that move frames.
//!
//! The control thread starts and stops all rings of a connection together; each worker moves frames
//! through its rings. A ring has a lock. A worker only tries this lock, once for a burst, so that
//! it never waits. The control thread waits for the lock for at most one burst. While it has the
//! lock, no worker uses the ring, and the memory may be unmapped.
//!
//! Worker `w` of `N` receives from the rings `w`, `w + N` and so on. The worker sends into the ring
//! `w` modulo the number of rings.

use std::{
    fs::File,
    sync::atomic::{
        AtomicU16,
        Ordering::{Acquire, Release},
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Mutex, MutexGuard};
use shunt_shared_memory::{WakeSet, notify, reset};

use crate::{
    error::MemifRingError,
    ring::{ReceiveRing, TransmitRing},
};

/// The maximum number of rings in each direction.
pub const QUEUES_MAX: u16 = 64;

/// The running rings of an interface.
#[derive(Debug)]
pub(crate) struct InterfaceQueues {
    receive: Box<[Mutex<Option<ReceiveQueue>>]>,
    transmit: Box<[Mutex<Option<TransmitQueue>>]>,
    /// The wake events of each worker: changes of rings, and notifications of the peer.
    workers: Box<[WakeSet]>,
    /// Number of running rings that receive.
    receive_count: AtomicU16,
    transmit_count: AtomicU16,
    /// The first rule that the peer broke since the rings were started.
    failure: Mutex<Option<MemifRingError>>,
    /// Readable while `failure` has an error.
    failed: EventFd,
}

/// A running ring that receives frames.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) ring: ReceiveRing,
    /// The eventfd that the peer sets after it has sent frames.
    pub(crate) event: File,
    /// True while the event wakes the worker.
    is_watched: bool,
}

impl ReceiveQueue {
    /// Returns a queue of which the event does not wake the worker.
    pub(crate) const fn new(ring: ReceiveRing, event: File) -> Self {
        Self { ring, event, is_watched: false }
    }

    /// Returns whether the ring's event wakes the worker.
    pub(crate) const fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Resets the event of the ring.
    pub(crate) fn clear_event(&self) {
        reset(&self.event);
    }
}

/// A running ring that sends frames.
#[derive(Debug)]
pub(crate) struct TransmitQueue {
    pub(crate) ring: TransmitRing,
    /// The eventfd that notifies the peer.
    pub(crate) event: File,
}

impl TransmitQueue {
    /// Publishes sent frames, and notifies the peer if it has requested notifications.
    pub(crate) fn publish(&mut self) {
        if self.ring.publish() {
            notify(&self.event);
        }
    }
}

impl InterfaceQueues {
    /// Creates an interface without running rings.
    pub(crate) fn new(workers: u16) -> nix::Result<Self> {
        let workers = (0..workers.max(1)).map(|_| WakeSet::new()).collect::<nix::Result<_>>()?;
        Ok(Self {
            receive: (0..QUEUES_MAX).map(|_| Mutex::new(None)).collect(),
            transmit: (0..QUEUES_MAX).map(|_| Mutex::new(None)).collect(),
            workers,
            receive_count: AtomicU16::new(0),
            transmit_count: AtomicU16::new(0),
            failure: Mutex::default(),
            failed: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        })
    }

    /// Returns the number of workers, which is at least one.
    #[expect(clippy::cast_possible_truncation, reason = "the value was created from a u16")]
    pub(crate) const fn workers(&self) -> u16 {
        self.workers.len() as u16
    }

    /// Returns the number of running rings that receive.
    pub(crate) fn receive_count(&self) -> u16 {
        self.receive_count.load(Acquire)
    }

    /// Returns the number of running rings that send.
    pub(crate) fn transmit_count(&self) -> u16 {
        self.transmit_count.load(Acquire)
    }

    /// Tries to lock a ring that receives; `None` if it is locked.
    pub(crate) fn try_receive(&self, queue: u16) -> Option<MutexGuard<'_, Option<ReceiveQueue>>> {
        self.receive.get(usize::from(queue))?.try_lock()
    }

    /// Tries to lock a ring that sends; `None` if it is locked.
    pub(crate) fn try_transmit(&self, queue: u16) -> Option<MutexGuard<'_, Option<TransmitQueue>>> {
        self.transmit.get(usize::from(queue))?.try_lock()
    }

    /// Returns the events that wake a worker.
    pub(crate) fn wake_set(&self, worker: u16) -> &WakeSet {
        &self.workers[usize::from(worker) % self.workers.len()]
    }

    /// Starts the rings of a connection; rings beyond [`QUEUES_MAX`] are not used.
    pub(crate) fn start(&self, receive: Vec<ReceiveQueue>, transmit: Vec<TransmitQueue>) {
        self.stop();
        let mut receive_count = 0;
        for ((number, slot), mut queue) in (0_u16..).zip(self.receive.iter()).zip(receive) {
            queue.is_watched = self.wake_set(number).add(&queue.event);
            *slot.lock() = Some(queue);
            receive_count = number + 1;
        }
        let mut transmit_count = 0;
        for ((number, slot), queue) in (0_u16..).zip(self.transmit.iter()).zip(transmit) {
            *slot.lock() = Some(queue);
            transmit_count = number + 1;
        }
        self.receive_count.store(receive_count, Release);
        self.transmit_count.store(transmit_count, Release);
        self.workers.iter().for_each(WakeSet::wake);
    }

    /// Stops all rings; after the call, no worker uses them.
    pub(crate) fn stop(&self) {
        self.receive_count.store(0, Release);
        self.transmit_count.store(0, Release);
        for (number, slot) in (0_u16..).zip(self.receive.iter()) {
            let stopped = slot.lock().take();
            if let Some(queue) = stopped.filter(ReceiveQueue::is_watched) {
                self.wake_set(number).remove(&queue.event);
            }
        }
        for slot in self.transmit.iter() {
            drop(slot.lock().take());
        }
        let _ = self.take_failure();
    }

    /// Stops a ring that receives, because the peer broke a rule.
    ///
    /// The worker holds the lock of the ring.
    #[cold]
    pub(crate) fn fail_receive(
        &self,
        slot: &mut Option<ReceiveQueue>,
        queue: u16,
        error: MemifRingError,
    ) {
        if let Some(queue_before) = slot.take().filter(ReceiveQueue::is_watched) {
            self.wake_set(queue).remove(&queue_before.event);
        }
        self.report(error);
    }

    /// Stops a ring that sends, because the peer broke a rule.
    ///
    /// The worker holds the lock of the ring.
    #[cold]
    pub(crate) fn fail_transmit(&self, slot: &mut Option<TransmitQueue>, error: MemifRingError) {
        drop(slot.take());
        self.report(error);
    }

    /// Reports the first error of a ring to the control thread.
    fn report(&self, error: MemifRingError) {
        self.failure.lock().get_or_insert(error);
        // Writing fails only if the event is already set.
        let _ = self.failed.write(1);
    }

    /// Returns the event that is readable after a failure.
    pub(crate) const fn failed(&self) -> &EventFd {
        &self.failed
    }

    /// Takes the first failure since the last call of this function.
    pub(crate) fn take_failure(&self) -> Option<MemifRingError> {
        let _ = self.failed.read();
        self.failure.lock().take()
    }
}
