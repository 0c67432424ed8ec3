//! The queues between a packet thread, the control plane and the eviction thread.
//!
//! ```text
//!             commands (bounded, refused when full)
//!   control ────────────────────────────────────────► packet thread
//!           ◄──────────────────────────────────────── packet-ins (bounded, dropped when full)
//!           ◄──────────────────────────────────────── learn_requests (bounded, dropped when full)
//!           ◄──────────────────────────────────────── differences (bounded, dropped when full)
//!                                                      │  ▲
//!             reports (bounded, entry not made when full) │ invalidation (merged, always fits)
//!                                                      ▼  │
//!                                                    eviction thread
//! ```
//!
//! No endpoint ever waits to send.

use std::{io, sync::Arc};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_classifier::Version;
use shunt_pipeline::OwnerId;

use super::{
    CacheMismatch,
    packet_in::{PacketInReceiver, PacketInSender, packet_in_queue},
    readiness::PortEvents,
};
use crate::{
    command::Command,
    evict::{
        coordinator::CoordinatorEndpoint,
        link::Link,
        owner::{LearnRequest, Report},
        waker::Waker,
    },
    metrics::ThreadCounters,
};

/// Capacity of the ring of cache mismatches.
///
/// The ring is small because a single mismatch already reveals an error.
const DIFFERENCES_MAX: usize = 16;

/// Sizes of the queues of one packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Capacity for commands of the control plane.
    pub commands: usize,
    /// Capacity for reports to the eviction thread.
    pub reports: usize,
    /// Capacity for packets to controllers.
    pub packet_ins: usize,
    /// Capacity for learn requests to the control plane.
    pub learn_requests: usize,
}

impl Default for QueueSizes {
    fn default() -> Self {
        Self { commands: 1024, reports: 16_384, packet_ins: 1024, learn_requests: 1024 }
    }
}

/// The threads that a packet thread wakes.
#[derive(Clone, Debug)]
pub struct Wakers {
    /// Wakes the eviction thread, which runs the coordinator.
    pub coordinator: Arc<Waker>,
    /// Wakes the thread that takes packet-ins.
    pub control: Arc<Waker>,
    /// Wakes the thread that applies learn requests.
    pub learner: Arc<Waker>,
}

/// The packet thread's ends of its queues.
#[derive(Debug)]
pub struct ThreadEnds {
    /// The number of the thread among the cache owners.
    pub(crate) owner: OwnerId,
    /// The version at which the thread starts.
    pub(crate) version: Version,
    /// The commands of the control plane.
    pub(crate) commands: Consumer<Command>,
    /// The ring of installs and removals, to the eviction engine.
    pub(crate) reports: Producer<Report>,
    /// The queue of packets for the control plane.
    pub(crate) packet_ins: PacketInSender,
    /// The ring of learn requests, to the eviction engine.
    pub(crate) learn_requests: Producer<LearnRequest>,
    /// The ring of cache hits with wrong actions.
    pub(crate) differences: Producer<CacheMismatch>,
    /// The mailbox and the acknowledged version of the thread.
    pub(crate) link: Arc<Link>,
    /// The epoll set of the thread.
    pub(crate) events: PortEvents,
    /// The threads that this thread wakes.
    pub(crate) wakers: Wakers,
    /// The counters that the thread publishes.
    pub(crate) counters: Arc<ThreadCounters>,
}

/// The control plane's ends of the queues of one packet thread.
#[derive(Debug)]
pub struct ControlEnds {
    /// The ring of commands to the thread.
    commands: Producer<Command>,
    /// The queue of packets for controllers and protocols.
    pub packet_ins: PacketInReceiver,
    /// The queue of learn requests; the thread that applies the requests takes it out.
    pub learn_requests: Option<Consumer<LearnRequest>>,
    /// The ring of cache hits with actions that differed from a new translation.
    ///
    /// If the ring is full, a mismatch is only counted.
    pub differences: Consumer<CacheMismatch>,
    /// The counters of the thread.
    pub counters: Arc<ThreadCounters>,
    /// The mailbox and the acknowledged version of the thread.
    link: Arc<Link>,
}

/// Creates the queues of a packet thread that starts at the coordinator's version.
///
/// # Errors
///
/// If the process has no file descriptor left.
pub fn thread_ends(
    owner: OwnerId,
    version: Version,
    sizes: QueueSizes,
    wakers: Wakers,
) -> io::Result<(ThreadEnds, ControlEnds, CoordinatorEndpoint)> {
    let (command_sender, commands) = RingBuffer::new(sizes.commands);
    let (reports, report_receiver) = RingBuffer::new(sizes.reports);
    let (packet_ins, packet_in_receiver) = packet_in_queue(sizes.packet_ins);
    let (learn_requests, learn_receiver) = RingBuffer::new(sizes.learn_requests);
    let (differences, difference_receiver) = RingBuffer::new(DIFFERENCES_MAX);
    let link = Arc::new(Link::new(version)?);
    let events = PortEvents::new(link.waker())?;
    let counters = Arc::new(ThreadCounters::default());
    let control = ControlEnds {
        commands: command_sender,
        packet_ins: packet_in_receiver,
        learn_requests: Some(learn_receiver),
        differences: difference_receiver,
        counters: Arc::clone(&counters),
        link: Arc::clone(&link),
    };
    let coordinator = CoordinatorEndpoint::new(owner, report_receiver, Arc::clone(&link));
    let thread = ThreadEnds {
        owner,
        version,
        commands,
        reports,
        packet_ins,
        learn_requests,
        differences,
        link,
        events,
        wakers,
        counters,
    };
    Ok((thread, control, coordinator))
}

impl ControlEnds {
    /// Queues a command, and wakes the packet thread if it sleeps.
    ///
    /// # Errors
    ///
    /// If the queue is full: the error contains the command.
    pub fn send(&mut self, command: Command) -> Result<(), Command> {
        let sent = self.commands.push(command);
        self.link.waker().wake();
        sent.map_err(|rtrb::PushError::Full(command)| command)
    }

    /// Returns the link to the packet thread, through which callers wake it.
    pub(crate) const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Returns whether the packet thread sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.link.waker().is_asleep()
    }

    /// Returns the last version that the packet thread has acknowledged.
    #[must_use]
    pub fn acked_version(&self) -> Version {
        self.link.acked_version()
    }
}
