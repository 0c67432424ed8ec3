//! The joints of a target's owner: with control, packet threads, and the eviction thread.
//!
//! ```text
//!                offers (bounded, dropped when full, one ring for each packet thread)
//!   packet thread ──────────────────────────────────► owner
//!                commands                              │  ▲
//!   control      ──────────────────────────────────►   │  │
//!                ◄── status ─────────────────────────  │  │
//!               reports (bounded, entry not made when full) │ invalidation (merged, always fits)
//!                                                      ▼  │
//!                                                    eviction thread
//! ```
//!
//! No packet thread ever waits to send.

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
    metrics::Counter,
};

/// A packet that no cache knew.
#[derive(Clone, Debug)]
pub struct OffloadCandidate {
    /// Its key, as it came in.
    pub key: FlowKey,
    /// When it missed.
    pub missed: Time,
}

/// A packet thread's end.
#[derive(Debug)]
pub struct OffloadCandidates {
    ring: Producer<OffloadCandidate>,
    counters: Arc<CandidateCounters>,
    link: Arc<Link>,
    /// Whether something was offered that the owner was not woken for.
    is_news: bool,
    /// Packets until the next is drawn.
    until_draw: usize,
    /// What decides that: a counter would fall in step with traffic that repeats, and draw one flow
    /// of many for ever.
    random: u64,
}

/// What a packet thread has offered.
#[derive(Debug, Default)]
pub(super) struct CandidateCounters {
    pub(super) made: Counter,
    pub(super) dropped: Counter,
}

/// Control's end.
#[derive(Clone)]
pub struct OffloadHandle {
    commands: mpsc::Sender<OffloadCommand>,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

/// The owner's end.
pub struct OffloadEndpoint {
    pub(super) owner: OwnerId,
    pub(super) version: Version,
    pub(super) reports: Producer<Report>,
    pub(super) learn_requests: Producer<LearnRequest>,
    pub(super) offers: Vec<Consumer<OffloadCandidate>>,
    pub(super) commands: mpsc::Receiver<OffloadCommand>,
    pub(super) link: Arc<Link>,
    pub(super) coordinator: Arc<Waker>,
    pub(super) shared: Arc<Shared>,
}

/// What the owner shows.
#[derive(Debug, Default)]
pub(super) struct Shared {
    status: Mutex<OffloadStatus>,
    offers: Vec<Arc<CandidateCounters>>,
}

/// What control asks of the owner of a target.
pub(super) enum OffloadCommand {
    Pull(Reply<()>),
    Dump(Reply<Vec<DumpedEntry>>),
    Ports(Option<BTreeSet<PortNo>>),
    Tune { max_idle: Duration, drain: Duration },
}

/// One packet of so many is offered whether it missed or not.
const SAMPLED_ONE_IN: usize = 128;

/// Offers of one packet thread that may wait; more are dropped.
const CANDIDATES_MAX: usize = 1024;

/// Reports that may wait for the eviction thread.
const REPORTS_MAX: usize = 16_384;

/// Makes the joints of the owner of a target that begins at `version`, at which the desk is too:
/// control's, the owner's, the desk's, and one for each of so many packet threads. `coordinator` is who turns
/// the desk.
///
/// # Errors
///
/// When the system has no descriptor left.
pub fn offload_endpoint(
    owner: OwnerId,
    version: Version,
    threads_count: usize,
    coordinator: Arc<Waker>,
) -> io::Result<(OffloadHandle, OffloadEndpoint, CoordinatorEndpoint, Vec<OffloadCandidates>)> {
    let (reports, report_receiver) = RingBuffer::new(REPORTS_MAX);
    // A target's owner forwards no packet, so it teaches nothing.
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
            is_news: false,
            until_draw: SAMPLED_ONE_IN,
            random,
        });
        rings.push(receiver);
        counters.push(own);
    }
    let shared = Arc::new(Shared { status: Mutex::default(), offers: counters });
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
        offers: rings,
        commands,
        link,
        coordinator,
        shared,
    };
    Ok((handle, ends, coordinator_endpoint, threads))
}

impl OffloadCandidates {
    /// Offers a packet that no cache knew; it is dropped, and counted, if the owner does not keep up.
    /// [`Self::tell`] is to be called some time afterwards.
    pub fn offer(&mut self, key: &FlowKey, missed: Time) {
        self.counters.made.add(1);
        self.is_news = true;
        // A key is large: it is not copied in vain.
        if self.ring.is_full()
            || self.ring.push(OffloadCandidate { key: key.clone(), missed }).is_err()
        {
            self.counters.dropped.add(1);
        }
    }

    /// Which packet of a burst is to be offered though a cache may know it, if any: what the target has
    /// lost, or had no room for, would hit in software for ever and never be offered again.
    pub fn draws(&mut self, burst: usize) -> Option<usize> {
        if burst <= self.until_draw {
            self.until_draw -= burst;
            return None;
        }
        let place = self.until_draw;
        // Any gap up to twice the mean, of which the rest of the burst is a part.
        let gap = split_mix(&mut self.random) % (2 * SAMPLED_ONE_IN as u64);
        let gap = usize::try_from(gap).unwrap_or_default();
        self.until_draw = gap.saturating_sub(burst - place - 1);
        Some(place)
    }

    /// Wakes the owner, if something was offered since the last time and it sleeps.
    pub fn tell(&mut self) {
        if std::mem::take(&mut self.is_news) {
            self.link.waker().wake();
        }
    }
}

impl OffloadHandle {
    /// How the target is.
    #[must_use]
    pub fn status(&self) -> OffloadStatus {
        let mut status = self.shared.lock().clone();
        for own in &self.shared.offers {
            status.candidates_offered += own.made.get();
            status.candidates_dropped += own.dropped.get();
        }
        status
    }

    /// Has the target's counters read and credited, and then answers. A target that is stale is not
    /// waited for.
    pub fn pull(&self, reply: Reply<()>) {
        if let Err(OffloadCommand::Pull(reply)) = self.send(OffloadCommand::Pull(reply)) {
            reply(());
        }
    }

    /// Answers with the pieces that are meant to be in the target, with their place in the chain. Of a
    /// thread that is gone: none.
    pub fn dump(&self, reply: Reply<Vec<DumpedEntry>>) {
        if let Err(OffloadCommand::Dump(reply)) = self.send(OffloadCommand::Dump(reply)) {
            reply(Vec::new());
        }
    }

    /// Says by which ports packets come in at the target, by their numbers in the bridge; what comes in
    /// elsewhere never meets it, so no rules are made for that. `None`, as at the beginning: by all.
    pub fn set_ports(&self, ports: Option<BTreeSet<PortNo>>) {
        // Of a thread that is gone nothing depends on it.
        let _ = self.send(OffloadCommand::Ports(ports));
    }

    /// Says after how long without a hit a piece goes, and how long a packet may be under way in the
    /// target.
    pub fn tune(&self, max_idle: Duration, drain: Duration) {
        // Of a thread that is gone nothing depends on it.
        let _ = self.send(OffloadCommand::Tune { max_idle, drain });
    }

    /// Wakes the owner: the target has something to tell. Any thread may call it.
    pub fn wake(&self) {
        self.link.waker().wake();
    }

    /// The version that it has answered.
    #[must_use]
    pub fn acked_version(&self) -> Version {
        self.link.acked_version()
    }

    fn send(&self, command: OffloadCommand) -> Result<(), OffloadCommand> {
        let sent = self.commands.send(command);
        self.wake();
        sent.map_err(|mpsc::SendError(command)| command)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, OffloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OffloadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetHandle")
            .field("answered", &self.acked_version())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OffloadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetEnds").field("owner", &self.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn traffic_that_repeats_is_drawn_from_wherever_it_is() {
        let coordinator = Arc::new(Waker::new().unwrap());
        let (.., mut threads) =
            offload_endpoint(OwnerId(1), Version::new(1), 1, coordinator).unwrap();
        let offers = &mut threads[0];
        let sampled: BTreeSet<_> = (0..4000).filter_map(|_| offers.draws(32)).collect();
        assert_eq!(sampled, (0..32).collect(), "one flow at each place of a burst");
    }
}
