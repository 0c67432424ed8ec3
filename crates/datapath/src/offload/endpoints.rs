//! The channels of an offload agent: to the control plane, the packet threads and the eviction
//! thread.
//!
//! ```text
//!                candidates (bounded, dropped when full, one ring for each packet thread)
//!   packet thread ──────────────────────────────────► agent
//!                commands                              │  ▲
//!   control      ──────────────────────────────────►   │  │
//!                ◄── status ─────────────────────────  │  │
//!               reports (bounded, entry not installed  │ invalidation (merged, always fits)
//!               when full)                             ▼  │
//!                                                    eviction thread
//! ```
//!
//! No packet thread ever waits for room in a ring.

use std::{
    collections::BTreeSet,
    fmt, io,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_classifier::Version;
use shunt_flow::{FlowKey, PortNo};
use shunt_pipeline::{OwnerId, Time};

use super::OffloadStatus;
use crate::{
    cache::split_mix,
    command::{DumpedEntry, Reply},
    evict::{
        coordinator::CoordinatorEndpoint,
        link::Link,
        owner::{LearnRequest, Report},
        waker::Waker,
    },
    forecast::{DeviceForecast, DeviceWatch, EntryForecast, ForecastTicket, device_forecast},
    metrics::Counter,
};

/// A packet that missed in every cache, or the forecast of a flow.
#[derive(Debug)]
pub struct OffloadCandidate {
    /// Key of the packet, as it was received.
    pub key: FlowKey,
    /// The time of the miss, or of the forecast.
    pub missed: Time,
    /// The forecast of the flow; `None` if a packet missed.
    pub forecast: Option<DeviceForecast>,
}

/// A packet thread's end of its ring of candidates.
#[derive(Debug)]
pub struct OffloadCandidates {
    /// The ring to the agent.
    ring: Producer<OffloadCandidate>,
    /// Counters of offered and refused candidates.
    counters: Arc<CandidateCounters>,
    /// The link of the agent: its mailbox, waker and acknowledged version.
    link: Arc<Link>,
    /// True if the agent was not woken for the last candidates.
    has_unnotified: bool,
    /// Number of packets until the next sample.
    until_sample: usize,
    /// The source of random gaps between samples.
    /// With a fixed gap, periodic traffic could be sampled always at the same flow.
    random: u64,
}

/// Counters of the candidates of one packet thread.
#[derive(Debug, Default)]
pub(super) struct CandidateCounters {
    /// Number of candidates that were created.
    pub(super) made: Counter,
    /// Number of candidates that the full ring dropped.
    pub(super) dropped: Counter,
}

/// The control plane's end of the channels of an agent.
#[derive(Clone)]
pub struct OffloadHandle {
    /// The queue of commands for the agent.
    commands: mpsc::Sender<OffloadCommand>,
    /// The link of the agent: its mailbox, waker and acknowledged version.
    link: Arc<Link>,
    /// The status that the agent publishes.
    shared: Arc<SharedStatus>,
}

/// The agent's end of its channels.
pub struct OffloadEndpoint {
    /// The number of the agent as an owner of entries.
    pub(super) owner: OwnerId,
    /// The version of the rules at the start.
    pub(super) version: Version,
    /// The ring of installs and removals, to the eviction engine.
    pub(super) reports: Producer<Report>,
    /// The ring of learn requests, to the eviction engine.
    pub(super) learn_requests: Producer<LearnRequest>,
    /// The ring of candidates of each packet thread.
    pub(super) candidate_rings: Vec<Consumer<OffloadCandidate>>,
    /// The queue of commands from the control plane.
    pub(super) commands: mpsc::Receiver<OffloadCommand>,
    /// The link with the eviction coordinator.
    pub(super) link: Arc<Link>,
    /// Wakes the eviction thread after a report.
    pub(super) coordinator: Arc<Waker>,
    /// The status that the agent publishes.
    pub(super) shared: Arc<SharedStatus>,
}

/// The status that the agent publishes.
#[derive(Debug, Default)]
pub(super) struct SharedStatus {
    /// The last published status of the agent.
    status: Mutex<OffloadStatus>,
    /// The candidate counters of each packet thread.
    candidate_counters: Vec<Arc<CandidateCounters>>,
}

/// A command of the control plane.
pub(super) enum OffloadCommand {
    Pull(Reply<()>),
    Dump(Reply<Vec<DumpedEntry>>),
    Ports(Option<BTreeSet<PortNo>>),
    Tune { max_idle: Duration, drain: Duration },
}

/// One packet in `SAMPLED_ONE_IN` is a candidate, even if it hit in a cache.
const SAMPLED_ONE_IN: usize = 128;

/// Maximum number of waiting candidates of one packet thread; more are dropped.
const CANDIDATES_MAX: usize = 1024;

/// Maximum number of reports that wait for the eviction thread.
const REPORTS_MAX: usize = 16_384;

/// Creates the channels of an agent that begins at `version`.
/// The coordinator must also be at this version.
///
/// Returns the ends of the control plane, the agent, the coordinator and each packet thread.
/// The argument `coordinator` is the waker of the eviction thread.
///
/// # Errors
///
/// If the system has no descriptor left.
pub fn offload_endpoint(
    owner: OwnerId,
    version: Version,
    threads_count: usize,
    coordinator: Arc<Waker>,
) -> io::Result<(OffloadHandle, OffloadEndpoint, CoordinatorEndpoint, Vec<OffloadCandidates>)> {
    let (reports, report_receiver) = RingBuffer::new(REPORTS_MAX);
    // The agent forwards no packet, so it sends no learn requests.
    let (learn_requests, _) = RingBuffer::new(1);
    let (command_sender, commands) = mpsc::channel();
    let link = Arc::new(Link::new(version)?);
    let (mut threads, mut rings, mut counters) = (Vec::new(), Vec::new(), Vec::new());
    for random in (0..).take(threads_count) {
        let (ring, receiver) = RingBuffer::new(CANDIDATES_MAX);
        let own = Arc::new(CandidateCounters::default());
        threads.push(OffloadCandidates {
            ring,
            counters: Arc::clone(&own),
            link: Arc::clone(&link),
            has_unnotified: false,
            until_sample: SAMPLED_ONE_IN,
            random,
        });
        rings.push(receiver);
        counters.push(own);
    }
    let shared = Arc::new(SharedStatus { status: Mutex::default(), candidate_counters: counters });
    let handle = OffloadHandle {
        commands: command_sender,
        link: Arc::clone(&link),
        shared: Arc::clone(&shared),
    };
    let coordinator_endpoint =
        CoordinatorEndpoint::of_device(owner, report_receiver, Arc::clone(&link));
    let ends = OffloadEndpoint {
        owner,
        version,
        reports,
        learn_requests,
        candidate_rings: rings,
        commands,
        link,
        coordinator,
        shared,
    };
    Ok((handle, ends, coordinator_endpoint, threads))
}

impl OffloadCandidates {
    /// Queues a packet that missed in every cache as a candidate.
    /// Call [`Self::notify`] some time afterwards.
    ///
    /// The candidate is dropped and counted if the ring is full, or if the agent has ended.
    pub fn offer(&mut self, key: &FlowKey, missed: Time) {
        self.push(key, missed, None);
    }

    /// Queues a forecast as a candidate.
    /// Call [`Self::notify`] some time afterwards.
    ///
    /// A dropped candidate has the outcome
    /// [`DeviceOutcome::Unused`](crate::forecast::DeviceOutcome::Unused). The flow may belong to a
    /// preload, by its `ticket`.
    pub fn offer_forecast(
        &mut self,
        key: &FlowKey,
        now: Time,
        entry: EntryForecast,
        ticket: Option<Arc<ForecastTicket>>,
    ) -> DeviceWatch {
        let (forecast, watch) = device_forecast(entry, ticket);
        self.push(key, now, Some(forecast));
        watch
    }

    /// Returns whether a forecast leaves room in the ring for packets that miss.
    ///
    /// If the agent has ended, all candidates are dropped, so the function returns true.
    pub(crate) fn has_room_for_forecast(&self) -> bool {
        self.ring.slots() > CANDIDATES_MAX / 2 || self.ring.is_abandoned()
    }

    /// Offers the key of a missed packet to the device, if there is room.
    fn push(&mut self, key: &FlowKey, missed: Time, forecast: Option<DeviceForecast>) {
        self.counters.made.add(1);
        self.has_unnotified = true;
        // A key is large: it is copied only if there is room.
        if self.ring.is_full()
            || self.ring.is_abandoned()
            || self.ring.push(OffloadCandidate { key: key.clone(), missed, forecast }).is_err()
        {
            self.counters.dropped.add(1);
        }
    }

    /// Returns the sampled packet of a burst, if any.
    /// The sampled packet is a candidate even if it hit in a cache.
    ///
    /// Without samples, a flow that the device has lost, or had no room for, would hit in software
    /// forever and never become a candidate again.
    pub fn next_sample(&mut self, burst: usize) -> Option<usize> {
        if burst <= self.until_sample {
            self.until_sample -= burst;
            return None;
        }
        let key = self.until_sample;
        // The gap is random, up to twice the mean. The gap includes the remaining packets of this
        // burst.
        let gap = split_mix(&mut self.random) % (2 * SAMPLED_ONE_IN as u64);
        let gap = usize::try_from(gap).unwrap_or_default();
        self.until_sample = gap.saturating_sub(burst - key - 1);
        Some(key)
    }

    /// Wakes the agent, if it sleeps and a candidate was sent since the last call.
    pub fn notify(&mut self) {
        if std::mem::take(&mut self.has_unnotified) {
            self.link.waker().wake();
        }
    }
}

impl OffloadHandle {
    /// Returns the status of the device.
    #[must_use]
    pub fn status(&self) -> OffloadStatus {
        let mut status = self.shared.lock().clone();
        for own in &self.shared.candidate_counters {
            status.candidates_offered += own.made.get();
            status.candidates_dropped += own.dropped.get();
        }
        status
    }

    /// Reads and credits the device's counters, and then replies.
    /// Does not wait for a stale device.
    pub fn pull(&self, reply: Reply<()>) {
        if let Err(OffloadCommand::Pull(reply)) = self.send(OffloadCommand::Pull(reply)) {
            reply(());
        }
    }

    /// Replies with the intended entries and their positions in the chain.
    /// The reply is empty if the thread has ended.
    pub fn dump(&self, reply: Reply<Vec<DumpedEntry>>) {
        if let Err(OffloadCommand::Dump(reply)) = self.send(OffloadCommand::Dump(reply)) {
            reply(Vec::new());
        }
    }

    /// Sets the ingress ports of the device, by their numbers in the bridge.
    /// `None`, the default, means all ports.
    ///
    /// Packets of other ports never enter the device, so the agent makes no entries for them.
    pub fn set_ports(&self, ports: Option<BTreeSet<PortNo>>) {
        // The command is lost only if the thread has ended, and then it needs no ports.
        let _ = self.send(OffloadCommand::Ports(ports));
    }

    /// Sets the idle timeout, and the longest time of a packet in the device.
    pub fn tune(&self, max_idle: Duration, drain: Duration) {
        // The command is lost only if the thread has ended, and then it needs no settings.
        let _ = self.send(OffloadCommand::Tune { max_idle, drain });
    }

    /// Wakes the agent: the device has events. Any thread may call this function.
    pub fn wake(&self) {
        self.link.waker().wake();
    }

    /// Returns the version that the agent has acknowledged.
    #[must_use]
    pub fn acked_version(&self) -> Version {
        self.link.acked_version()
    }

    /// Sends a command to the agent, or returns it if the agent has ended.
    fn send(&self, command: OffloadCommand) -> Result<(), OffloadCommand> {
        let sent = self.commands.send(command);
        self.wake();
        sent.map_err(|mpsc::SendError(command)| command)
    }
}

impl SharedStatus {
    /// Locks the status, to read or write it.
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, OffloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OffloadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadHandle")
            .field("acked", &self.acked_version())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OffloadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadEndpoint").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_position_of_a_burst_is_sampled() {
        let coordinator = Arc::new(Waker::new().unwrap());
        let (.., mut threads) =
            offload_endpoint(OwnerId(1), Version::new(1), 1, coordinator).unwrap();
        let candidate_rings = &mut threads[0];
        let sampled: BTreeSet<_> =
            (0..4000).filter_map(|_| candidate_rings.next_sample(32)).collect();
        assert_eq!(sampled, (0..32).collect(), "one flow at each place of a burst");
    }
}
