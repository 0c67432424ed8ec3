//! Switchovers: a receive queue changes from its socket to a ring, or back, and keeps the order.
//!
//! The fan-out program of a port directs each frame to one of two sources. A socket takes memory only for
//! frames that wait, and a ring takes no system call for each frame. The control thread replaces
//! the program. A CPU that already runs the old program for a frame completes that run:
//!
//! | [`RxMode`] | the kernel fills | the reader reads |
//! | --- | --- | --- |
//! | `Socket` | the socket | the rest of the ring, then the socket |
//! | `ToRing` | the socket, then the ring | both, in order |
//! | `Ring` | the ring | the rest of the socket, then the ring |
//! | `ToSocket` | the ring, then the socket | the ring |
//!
//! **No frame overtakes another frame of its flow.** When a frame is in the new source, all frames
//! that the kernel finished earlier are in one of the two sources. So the reader first takes frames
//! from the new source and holds them. After the switch, the reader empties the old source. The
//! reader returns the held frames only after that. A frame that reaches the old source later was
//! processed at the same time on another CPU.
//!
//! This method does not work with a ring as old source. A CPU may still fill a slot that precedes
//! filled slots, and then the ring seems to be empty. So the reader waits until the old program has
//! ended on all CPUs, and frames of the socket wait for some milliseconds. The port is quiet at
//! this time.
//!
//! **No frame stays in the old source.** The control thread sets `Ring` or `Socket` when the kernel
//! has finished all frames of the old program (`PACKET_FANOUT_DATA` waits for this). The reader
//! leaves the old source when it finds the source empty after that.
//!
//! **No switchover begins before the previous switchover has ended.** Otherwise a source could have
//! frames that are older and frames that are newer than those of the other source. The control
//! thread offers the ring before it sets `ToRing`. The control thread sets `ToSocket` only after
//! the reader has left the socket ([`Switchover::is_settled`]), and offers the next ring only after
//! the reader has returned the previous ring.

use std::sync::Arc;

use crate::{
    packet::buffer::{Packet, Pool},
    port::RxReport,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering},
};

/// A source of received frames.
pub(super) trait FrameSource {
    /// Appends frames to `burst` until it has `max`.
    ///
    /// Returns whether the source was empty at the end.
    fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        report: &mut RxReport,
    ) -> bool;

    /// Returns whether no frame waits.
    fn is_empty(&mut self) -> bool;
}

/// A ring as source, which the reader returns after a switchover.
pub(super) trait RingSource: FrameSource {
    /// Clears the error of the socket, such as that of a device that is down.
    ///
    /// Otherwise the error would wake the thread again and again.
    fn clear_error(&self);
}

/// The sources of a receive queue that have frames: see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxMode {
    /// The kernel gives frames only to the socket.
    Socket,
    /// The socket gets frames, and soon the ring.
    ToRing,
    /// The kernel gives frames only to the ring.
    Ring,
    /// The ring gets frames, and soon the socket.
    ToSocket,
}

impl RxMode {
    /// All modes, by number.
    const ALL: [Self; 4] = [Self::Socket, Self::ToRing, Self::Ring, Self::ToSocket];

    /// Returns whether the ring is the newer source.
    const fn is_for_ring(self) -> bool {
        matches!(self, Self::ToRing | Self::Ring)
    }

    /// Returns whether the kernel has finished all frames of the older source.
    const fn is_settled(self) -> bool {
        matches!(self, Self::Socket | Self::Ring)
    }
}

/// The mode of a receive queue, and a ring that is passed to or from the reader.
///
/// The control thread and the reader share this value.
pub(super) struct Switchover<R> {
    /// The number of the [`RxMode`].
    mode: AtomicU64,
    /// True while the reader reads the ring alone.
    is_settled: AtomicBool,
    /// The ring that is offered or returned; the reader only tries the lock.
    ring: Mutex<Option<R>>,
}

impl<R> Switchover<R> {
    /// Creates a switchover in the mode `Socket`.
    pub(super) fn new() -> Self {
        Self {
            mode: AtomicU64::new(RxMode::Socket as u64),
            is_settled: AtomicBool::new(false),
            ring: Mutex::new(None),
        }
    }

    /// Returns which of socket and ring gets frames, and which will soon.
    pub(super) fn mode(&self) -> RxMode {
        // Acquire: pairs with `set`. A reader of `Ring` then finds all frames of the socket.
        let mode = self.mode.load(Ordering::Acquire);
        RxMode::ALL.into_iter().find(|own| *own as u64 == mode).unwrap_or(RxMode::Socket)
    }

    /// Sets the mode of receiving.
    pub(super) fn set(&self, mode: RxMode) {
        if mode != RxMode::Ring {
            self.is_settled.store(false, Ordering::Relaxed);
        }
        // Release: pairs with the load in `mode`.
        self.mode.store(mode as u64, Ordering::Release);
    }

    /// Returns whether the reader has left the socket for the ring.
    pub(super) fn is_settled(&self) -> bool {
        // Acquire: pairs with the store of the reader.
        self.is_settled.load(Ordering::Acquire)
    }

    /// Offers a ring to the reader.
    pub(super) fn offer(&self, ring: R) {
        if let Ok(mut own) = self.ring.lock() {
            *own = Some(ring);
        }
    }

    /// Takes the ring that the reader has returned, or has not taken.
    pub(super) fn take(&self) -> Option<R> {
        self.ring.lock().ok()?.take()
    }

    /// Returns whether the reader does not have the ring.
    pub(super) fn has_ring(&self) -> bool {
        self.ring.lock().is_ok_and(|ring| ring.is_some())
    }
}

/// The reader of both sources.
pub(super) struct SwitchingReader<S, R> {
    /// The mode, which the control thread changes.
    shared: Arc<Switchover<R>>,
    /// The source that is in use without a ring.
    socket: S,
    /// The ring, while the reader has it.
    ring: Option<R>,
    /// The mode at the last receive.
    mode: RxMode,
    /// True while the older source may have frames.
    is_switching: bool,
    /// Frames of the newer source, held until the older source is empty.
    held: Vec<Packet>,
    /// Number of consecutive receives that found the ring empty.
    empty: u32,
}

/// Number of receives without a frame after which the socket is also read.
///
/// While the device goes up, the fan-out group is incomplete, and the kernel may direct a frame to the
/// socket. The socket then is readable, so the queue is polled until the frame is read.
const EMPTY_MAX: u32 = 2;

impl<S: FrameSource, R: RingSource> SwitchingReader<S, R> {
    /// Creates a reader of a socket.
    pub(super) const fn new(shared: Arc<Switchover<R>>, socket: S) -> Self {
        Self {
            shared,
            socket,
            ring: None,
            mode: RxMode::Socket,
            is_switching: false,
            held: Vec::new(),
            empty: 0,
        }
    }

    /// Appends frames to `burst` until it has `max`.
    ///
    /// Returns whether no frame was left, so that another receive would find none.
    pub(super) fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        report: &mut RxReport,
    ) -> bool {
        self.follow_mode();
        let Some(ring) = &mut self.ring else {
            return self.socket.receive(pool, burst, max, report);
        };
        if self.is_switching {
            return self.receive_in_order(pool, burst, max, report);
        }
        ring.receive(pool, burst, max, report);
        if !burst.is_empty() {
            self.empty = 0;
            // Another receive from the ring costs no system call.
            return false;
        }
        self.empty += 1;
        if self.empty < EMPTY_MAX {
            return true;
        }
        self.empty = 0;
        ring.clear_error();
        self.socket.receive(pool, &mut self.held, max, report);
        // A switchover may have begun meanwhile. The control thread sets the mode before the first
        // frame arrives, so the reader sees the mode now, and reads the ring first.
        self.follow_mode();
        if self.is_switching {
            return self.receive_in_order(pool, burst, max, report);
        }
        burst.append(&mut self.held);
        burst.is_empty()
    }

    /// Reads both sources: see the [module](self).
    fn receive_in_order(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        report: &mut RxReport,
    ) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        if self.mode == RxMode::ToSocket {
            ring.receive(pool, burst, max, report);
            // No event announces held frames, so the queue must be polled.
            report.must_poll = !self.held.is_empty();
            return burst.is_empty();
        }
        let (newer, older): (&mut dyn FrameSource, &mut dyn FrameSource) =
            if self.mode.is_for_ring() {
                (ring, &mut self.socket)
            } else {
                (&mut self.socket, ring)
            };
        if self.held.is_empty() {
            newer.receive(pool, &mut self.held, max, report);
        }
        if !older.receive(pool, burst, max, report) {
            return false;
        }
        let count = self.held.len().min(max.saturating_sub(burst.len()));
        burst.extend(self.held.drain(..count));
        self.settle();
        burst.is_empty()
    }

    /// Adopts the mode that the control thread has set.
    fn follow_mode(&mut self) {
        let mode = self.shared.mode();
        if mode == self.mode {
            return;
        }
        if self.ring.is_none() {
            // The control thread may hold the lock for a moment; the next receive tries it again.
            self.ring = self.shared.ring.try_lock().ok().and_then(|mut ring| ring.take());
        }
        if self.ring.is_some() {
            self.mode = mode;
            self.is_switching = true;
        }
    }

    /// Ends a switchover after its older source was found empty.
    ///
    /// If the ring is the older source, returns the ring to the control thread.
    fn settle(&mut self) {
        if !self.held.is_empty() || !self.mode.is_settled() {
            return;
        }
        if self.mode == RxMode::Socket {
            let Ok(mut ring) = self.shared.ring.try_lock() else { return };
            *ring = self.ring.take();
        }
        self.is_switching = false;
        if self.mode == RxMode::Ring {
            // Release: pairs with `Switchover::is_settled`. The next switchover begins after the
            // last frame of this switchover.
            self.shared.is_settled.store(true, Ordering::Release);
        }
    }

    /// Ends a switchover while no frame arrives.
    ///
    /// The thread calls this at intervals, because it does not receive from an idle queue.
    pub(super) fn settle_idle(&mut self) {
        self.follow_mode();
        let Some(ring) = self.ring.as_mut().filter(|_| self.is_switching) else { return };
        let is_empty =
            if self.mode.is_for_ring() { self.socket.is_empty() } else { ring.is_empty() };
        if is_empty {
            self.settle();
        }
    }
}

#[cfg(test)]
#[path = "switchover_tests.rs"]
mod tests;
