//! The list of receive queues that may have packets: a packet thread polls only these.
//!
//! A thread may have a thousand ports, most of them without packets at any time. A poll of a TAP
//! device is a system call, so the thread keeps a list of the queues that may have packets, and
//! polls only queues on this list:
//!
//! ```text
//!              epoll names it                      a poll returned packets: to the end of the list
//!   unlisted ──────────────────► listed ──────────────────────────────┐
//!       ▲                         │  ▲                                │
//!       └─────────────────────────┘  └────────────────────────────────┘
//!        a poll returned nothing, or drained the queue
//! ```
//!
//! **No wake-up is lost.** The epoll set is level-triggered: each query reports every queue that
//! has a packet *at the time of the query*, whatever earlier queries reported. So a queue that
//! leaves the list too early is soon listed again. The thread queries the set when the list is
//! empty, when an iteration received nothing, and after [`POLLS_PER_QUERY`] polls. The thread
//! sleeps only with an empty list, and waits for the same epoll set. An edge-triggered set would
//! report a queue once. A queue that left the list one packet too early would then not be polled
//! until another packet arrives.
//!
//! **The order is fair.** The list is first in, first out: its first receive queue is polled once,
//! for one burst, and goes to the end. An iteration makes at most [`POLLS_PER_ITERATION`] polls,
//! and the next iteration continues.
//!
//! A receive queue without a file descriptor, such as that of a capture file, is always listed, and
//! keeps the thread awake.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::packet::buffer::BURST;

/// Maximum number of receive queues polled in one round.
pub(super) const POLLS_PER_ITERATION: usize = BURST;

/// Number of polls after which a busy thread queries the epoll set.
///
/// A query is a system call, which costs less than one poll of a kernel port with packets.
const POLLS_PER_QUERY: usize = 8;

/// Maximum number of ready queues that one query of the epoll set returns.
///
/// The next query returns other queues first.
const EVENTS_MAX: usize = 64;

/// The number of the thread's waker in the epoll set.
const WAKER: u64 = u64::MAX;

/// The way to learn that a receive queue may have packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadySource {
    /// The epoll set contains the descriptor of the queue.
    Descriptor,
    /// The queue must be polled.
    Polling,
    /// The queue has ended or failed, and is never polled again.
    Closed,
}

/// The list of receive queues that may have packets, by index.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    /// The state of each receive queue.
    queues: Vec<QueueState>,
    /// Indices of the listed queues; the first is polled next.
    order: VecDeque<u32>,
    /// Number of queues with a descriptor.
    descriptors: usize,
    /// Number of polls since the last query of the epoll set.
    polls: usize,
    /// Number of polls left in this round.
    left: usize,
}

/// A receive queue: its event source, and if the ready list has it.
#[derive(Clone, Copy, Debug)]
struct QueueState {
    /// The event source of the queue.
    source: ReadySource,
    /// True while the ready list has the queue.
    is_listed: bool,
}

impl ReadyList {
    /// Adds a receive queue, with the next index.
    pub(super) fn add(&mut self, source: ReadySource) {
        self.queues.push(QueueState { source, is_listed: false });
        // Reserves space for all queues, so that no poll allocates memory.
        self.order.reserve(self.queues.len() - self.order.len());
        self.descriptors += usize::from(source == ReadySource::Descriptor);
        if source == ReadySource::Polling {
            self.list(self.queues.len() - 1);
        }
    }

    /// Lists a receive queue that may have packets.
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

    /// Takes a receive queue off the list for good.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index) {
            self.descriptors -= usize::from(queue.source == ReadySource::Descriptor);
            *queue = QueueState { source: ReadySource::Closed, is_listed: false };
            self.order.retain(|listed| *listed as usize != index);
        }
    }

    /// Lists a closed receive queue again.
    pub(super) fn open(&mut self, index: usize, source: ReadySource) {
        if let Some(queue) = self.queues.get_mut(index) {
            *queue = QueueState { source, is_listed: false };
            self.descriptors += usize::from(source == ReadySource::Descriptor);
            self.list(index);
        }
    }

    /// Removes a receive queue; the last queue gets the index of the removed queue.
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

    /// Returns whether the thread must query the epoll set in this iteration.
    #[inline]
    pub(super) fn must_query_epoll(&self) -> bool {
        self.descriptors > 0 && (self.order.is_empty() || self.polls >= POLLS_PER_QUERY)
    }

    /// Returns whether a query of the epoll set may find unlisted queues with packets.
    ///
    /// An iteration that received nothing queries again, so it finds a packet at any port.
    #[inline]
    pub(super) const fn may_ask_again(&self) -> bool {
        self.descriptors > 0 && self.polls > 0
    }

    /// Begins a round of polls: one for each listed queue, up to the limit.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.left = self.order.len().min(POLLS_PER_ITERATION);
    }

    /// Takes the next queue off the list; `None` at the end of the round.
    #[inline]
    pub(super) fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.order.pop_front()? as usize;
        self.polls += 1;
        self.queues[index].is_listed = false;
        Some(index)
    }

    /// Lists a polled queue again if it may have more packets or needs polling.
    #[inline]
    pub(super) fn polled(&mut self, index: usize, may_have_more: bool) {
        if may_have_more || self.queues[index].source == ReadySource::Polling {
            self.list(index);
        }
    }

    /// Records a query of the epoll set: the count of polls begins at zero.
    pub(super) const fn reset_polls(&mut self) {
        self.polls = 0;
    }

    /// Returns whether no queue is listed, so that the thread may sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// The epoll set of a packet thread: its waker and its receive queues.
#[derive(Debug)]
pub(crate) struct PortEvents {
    /// The epoll set of the packet thread.
    epoll: Epoll,
    /// Scratch: the events of the last query.
    events: Vec<EpollEvent>,
}

impl PortEvents {
    /// Creates an epoll set with the waker of the thread.
    pub(crate) fn new(waker: &impl AsFd) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(waker, EpollEvent::new(EpollFlags::EPOLLIN, WAKER))?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); EVENTS_MAX] })
    }

    /// Adds the descriptor of a receive queue; returns how the thread finds packets.
    ///
    /// The kernel may refuse a descriptor. The thread must then poll the queue.
    pub(super) fn add(&self, descriptor: Option<BorrowedFd<'_>>, index: usize) -> ReadySource {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        match descriptor.map(|descriptor| self.epoll.add(descriptor, event)) {
            Some(Ok(())) => ReadySource::Descriptor,
            Some(Err(_)) | None => ReadySource::Polling,
        }
    }

    /// Changes the index of a receive queue in the epoll set.
    pub(super) fn renumber(&self, descriptor: Option<BorrowedFd<'_>>, index: usize) {
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
        // The call fails for a descriptor that is not in the set, which needs no index.
        let _ = descriptor.map(|descriptor| self.epoll.modify(descriptor, &mut event));
    }

    /// Removes the descriptor of a receive queue from the epoll set.
    pub(super) fn remove(&self, descriptor: Option<BorrowedFd<'_>>) {
        let _ = descriptor.map(|descriptor| self.epoll.delete(descriptor));
    }

    /// Lists the receive queues that have packets; waits for a packet until `timeout`.
    pub(super) fn ask(&mut self, ready: &mut ReadyList, timeout: EpollTimeout) {
        ready.reset_polls();
        // After a signal or an error, the next query returns the same events.
        let count = self.epoll.wait(&mut self.events, timeout).unwrap_or(0);
        for event in &self.events[..count] {
            if let Ok(index) = usize::try_from(event.data())
                && event.data() != WAKER
            {
                ready.list(index);
            }
        }
    }

    /// Returns the descriptor of the epoll set.
    ///
    /// The descriptor is readable while a receive queue has packets or another thread wakes this
    /// thread.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
