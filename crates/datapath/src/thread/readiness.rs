//! Receive queues that may have packets: the thread polls only these.
//!
//! A thread may have a thousand ports, and most have no packet at most times. A poll of a TAP device is
//! a system call, so the thread keeps a list of the queues that may have packets, and polls only those:
//!
//! ```text
//!              epoll names it                      a poll returned packets: to the end of the list
//!   unlisted ──────────────────► listed ──────────────────────────────┐
//!       ▲                         │  ▲                                │
//!       └─────────────────────────┘  └────────────────────────────────┘
//!        a poll returned nothing, or drained the queue
//! ```
//!
//! **No wake-up is lost.** The epoll set is level-triggered: it names every queue that has a packet *when it
//! is asked*, however the packet got there and whatever it named before. So a queue may leave the list
//! too early, but not for long: the thread asks when the list is empty, when an iteration received
//! nothing, and after [`POLLS_PER_QUERY`] polls. It sleeps only with an empty list, in the same epoll
//! set. An edge-triggered set would name a queue once, and a queue that left the list one packet too early
//! would stay silent.
//!
//! **The order is fair.** The list is a queue: its first receive queue is polled once, for one burst, and
//! goes to the end. An iteration makes at most [`POLLS_PER_ITERATION`] polls, and the next one continues.
//!
//! A queue without a descriptor, such as a capture file, is always listed, and keeps the thread awake.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::packet::buffer::BURST;

/// Maximum number of receive queues polled in an iteration with packets.
pub(super) const POLLS_PER_ITERATION: usize = BURST;

/// Number of polls after which a busy thread asks for further queues.
///
/// A query is a system call, which costs less than one poll of a kernel port with packets.
const POLLS_PER_QUERY: usize = 8;

/// Maximum number of queues that one query to the epoll set names.
///
/// The kernel names others first the next time.
const EVENTS_MAX: usize = 64;

/// Number in the epoll set of the thread's own waker.
const WAKER: u64 = u64::MAX;

/// The source of the readiness of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadySource {
    /// The descriptor of the queue, in the epoll set.
    Descriptor,
    /// No source: the queue must be polled.
    Polling,
    /// The queue has ended or failed, and is never polled again.
    Closed,
}

/// The list of receive queues that may have packets, by index.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    queues: Vec<QueueState>,
    /// The listed queues; the first is polled next.
    order: VecDeque<u32>,
    /// Number of queues with a descriptor.
    descriptors: usize,
    /// Polls since the epoll set was last asked.
    polls: usize,
    /// Polls left in this round.
    left: usize,
}

#[derive(Clone, Copy, Debug)]
struct QueueState {
    source: ReadySource,
    is_listed: bool,
}

impl ReadyList {
    /// Adds the queue of the next index.
    pub(super) fn add(&mut self, source: ReadySource) {
        self.queues.push(QueueState { source, is_listed: false });
        // Room for all queues, so that no poll allocates.
        self.order.reserve(self.queues.len() - self.order.len());
        self.descriptors += usize::from(source == ReadySource::Descriptor);
        if source == ReadySource::Polling {
            self.list(self.queues.len() - 1);
        }
    }

    /// Lists a queue that may have packets.
    pub(super) fn list(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index)
            && !queue.is_listed
            && queue.source != ReadySource::Closed
        {
            queue.is_listed = true;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "there are at most DATAPATH_PORT_MAX + 1 queues"
            )]
            self.order.push_back(index as u32);
        }
    }

    /// Never lists a queue again.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index) {
            self.descriptors -= usize::from(queue.source == ReadySource::Descriptor);
            *queue = QueueState { source: ReadySource::Closed, is_listed: false };
            self.order.retain(|listed| *listed as usize != index);
        }
    }

    /// Removes a queue. The last queue takes its index.
    pub(super) fn swap_remove(&mut self, index: usize) {
        self.close(index);
        self.queues.swap_remove(index);
        let moved = self.queues.len();
        for listed in self.order.iter_mut().filter(|listed| **listed as usize == moved) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "there are at most DATAPATH_PORT_MAX + 1 queues"
            )]
            {
                *listed = index as u32;
            }
        }
    }

    /// Returns whether the epoll set must be asked in this iteration.
    #[inline]
    pub(super) fn must_query_epoll(&self) -> bool {
        self.descriptors > 0 && (self.order.is_empty() || self.polls >= POLLS_PER_QUERY)
    }

    /// Returns whether the epoll set may name a queue that was not polled since.
    ///
    /// An iteration that received nothing asks again, so it finds a packet at any port.
    #[inline]
    pub(super) const fn may_ask_again(&self) -> bool {
        self.descriptors > 0 && self.polls > 0
    }

    /// Begins a round of polls: one for each listed queue, up to the limit.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.left = self.order.len().min(POLLS_PER_ITERATION);
    }

    /// Takes the next queue to poll in this round off the list.
    #[inline]
    pub(super) fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.order.pop_front()? as usize;
        self.polls += 1;
        self.queues[index].is_listed = false;
        Some(index)
    }

    /// Lists a queue again after a poll, if it may have more packets or must be polled.
    #[inline]
    pub(super) fn polled(&mut self, index: usize, may_have_more: bool) {
        if may_have_more || self.queues[index].source == ReadySource::Polling {
            self.list(index);
        }
    }

    /// Notes that the epoll set was asked.
    pub(super) const fn asked(&mut self) {
        self.polls = 0;
    }

    /// Returns whether no queue is listed; only then may the thread sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// The epoll set of a packet thread: its waker and its receive queues.
#[derive(Debug)]
pub(crate) struct PortEvents {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl PortEvents {
    /// Creates a set that holds the waker of the thread.
    pub(crate) fn new(waker: &impl AsFd) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(waker, EpollEvent::new(EpollFlags::EPOLLIN, WAKER))?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); EVENTS_MAX] })
    }

    /// Adds the descriptor of a queue. Returns what makes the queue ready.
    ///
    /// The system may refuse a descriptor. Its queue must be polled then.
    pub(super) fn add(&self, descriptor: Option<BorrowedFd<'_>>, index: usize) -> ReadySource {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        match descriptor.map(|descriptor| self.epoll.add(descriptor, event)) {
            Some(Ok(())) => ReadySource::Descriptor,
            Some(Err(_)) | None => ReadySource::Polling,
        }
    }

    /// Changes the index of a queue.
    pub(super) fn renumber(&self, descriptor: Option<BorrowedFd<'_>>, index: usize) {
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        // A descriptor that was refused, or removed, has no index.
        let _ = descriptor.map(|descriptor| self.epoll.modify(descriptor, &mut event));
    }

    /// Removes the descriptor of a queue.
    pub(super) fn remove(&self, descriptor: Option<BorrowedFd<'_>>) {
        let _ = descriptor.map(|descriptor| self.epoll.delete(descriptor));
    }

    /// Lists the queues that have packets; waits for one until `timeout`.
    pub(super) fn ask(&mut self, ready: &mut ReadyList, timeout: EpollTimeout) {
        ready.asked();
        // After an interrupt or an error, the next wait returns the same events.
        let count = self.epoll.wait(&mut self.events, timeout).unwrap_or(0);
        for event in &self.events[..count] {
            if let Ok(index) = usize::try_from(event.data())
                && event.data() != WAKER
            {
                ready.list(index);
            }
        }
    }

    /// Returns the descriptor of the set.
    ///
    /// It is readable while a queue has packets or the thread is woken.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
