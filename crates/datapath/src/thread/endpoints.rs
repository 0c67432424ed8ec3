//! The joints of a packet thread: with control, and with the eviction thread.
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
//! No end ever waits to send.

use std::{io, sync::Arc};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_classifier::Version;
use shunt_pipeline::{OwnerId, PuntedPacket};

use super::Difference;
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

/// Differences that wait to be told of: each of them says the same, that something is wrong.
const DIFFERENCES_MAX: usize = 16;

/// Sizes of the queues of one packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Commands from control.
    pub commands: usize,
    /// Reports to the eviction thread.
    pub reports: usize,
    /// Packets to the controllers.
    pub packet_ins: usize,
    /// What packets teach, to control.
    pub learn_requests: usize,
}

impl Default for QueueSizes {
    fn default() -> Self {
        Self { commands: 1024, reports: 16_384, packet_ins: 1024, learn_requests: 1024 }
    }
}

/// Who is woken when a packet thread has something for them.
#[derive(Clone, Debug)]
pub struct Wakers {
    /// The thread that turns the eviction desk.
    pub coordinator: Arc<Waker>,
    /// The thread that takes packet-ins.
    pub control: Arc<Waker>,
    /// The thread that makes versions of lessons.
    pub learner: Arc<Waker>,
}

/// The packet thread's end.
#[derive(Debug)]
pub struct ThreadEnds {
    pub(crate) owner: OwnerId,
    pub(crate) version: Version,
    pub(crate) commands: Consumer<Command>,
    pub(crate) reports: Producer<Report>,
    pub(crate) packet_ins: Producer<PuntedPacket>,
    pub(crate) learn_requests: Producer<LearnRequest>,
    pub(crate) differences: Producer<Difference>,
    pub(crate) link: Arc<Link>,
    pub(crate) wakers: Wakers,
    pub(crate) counters: Arc<ThreadCounters>,
}

/// Control's end.
#[derive(Debug)]
pub struct ControlEnds {
    commands: Producer<Command>,
    /// Packets on their way to controllers.
    pub packet_ins: Consumer<PuntedPacket>,
    /// What packets taught, for whoever makes a version of it, who takes it out of here.
    pub learn_requests: Option<Consumer<LearnRequest>>,
    /// Hits of which the tables said something else; what found no room here is counted only.
    pub differences: Consumer<Difference>,
    /// What the thread counts.
    pub counters: Arc<ThreadCounters>,
    link: Arc<Link>,
}

/// Makes the joints of a packet thread that begins at `version`, at which the desk is too.
///
/// # Errors
///
/// When the system has no descriptor left.
pub fn thread_ends(
    owner: OwnerId,
    version: Version,
    sizes: QueueSizes,
    wakers: Wakers,
) -> io::Result<(ThreadEnds, ControlEnds, CoordinatorEndpoint)> {
    let (command_sender, commands) = RingBuffer::new(sizes.commands);
    let (reports, report_receiver) = RingBuffer::new(sizes.reports);
    let (packet_ins, packet_in_receiver) = RingBuffer::new(sizes.packet_ins);
    let (learn_requests, learn_receiver) = RingBuffer::new(sizes.learn_requests);
    let (differences, difference_receiver) = RingBuffer::new(DIFFERENCES_MAX);
    let link = Arc::new(Link::new(version)?);
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
        wakers,
        counters,
    };
    Ok((thread, control, coordinator))
}

impl ControlEnds {
    /// Sends a command, and wakes the thread if it sleeps.
    ///
    /// # Errors
    ///
    /// Gives the command back when the thread has too many before it.
    pub fn send(&mut self, command: Command) -> Result<(), Command> {
        let sent = self.commands.push(command);
        self.link.waker().wake();
        sent.map_err(|rtrb::PushError::Full(command)| command)
    }

    /// Whether the thread sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.link.waker().is_asleep()
    }

    /// The version that the thread has answered.
    #[must_use]
    pub fn answered(&self) -> Version {
        self.link.answered()
    }
}
