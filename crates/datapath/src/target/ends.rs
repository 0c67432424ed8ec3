//! The joints of a target's owner: with control, packet threads, and the eviction thread.
//!
//! ```text
//!                offers (bounded, dropped when full, one ring for each packet thread)
//!   packet thread ──────────────────────────────────► owner
//!                commands                              │  ▲
//!   control      ──────────────────────────────────►   │  │
//!                ◄── status ─────────────────────────  │  │
//!               reports (bounded, entry not made when full) │ advance (merged, always fits)
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

use super::TargetStatus;
use crate::{
    cache::split_mix,
    command::{DumpedEntry, Reply},
    desk::DeskEnds,
    link::Link,
    metrics::Counter,
    owner::{Lesson, Report},
    sleep::Waker,
};

/// A packet that no cache knew.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its key, as it came in.
    pub key: FlowKey,
    /// When it missed.
    pub missed: Time,
}

/// A packet thread's end.
#[derive(Debug)]
pub struct Offers {
    ring: Producer<Offer>,
    counters: Arc<OfferCounters>,
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
pub(super) struct OfferCounters {
    pub(super) made: Counter,
    pub(super) dropped: Counter,
}

/// Control's end.
#[derive(Clone)]
pub struct TargetHandle {
    commands: mpsc::Sender<TargetCommand>,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

/// The owner's end.
pub struct TargetEnds {
    pub(super) owner: OwnerId,
    pub(super) version: Version,
    pub(super) reports: Producer<Report>,
    pub(super) lessons: Producer<Lesson>,
    pub(super) offers: Vec<Consumer<Offer>>,
    pub(super) commands: mpsc::Receiver<TargetCommand>,
    pub(super) link: Arc<Link>,
    pub(super) desk: Arc<Waker>,
    pub(super) shared: Arc<Shared>,
}

/// What the owner shows.
#[derive(Debug, Default)]
pub(super) struct Shared {
    status: Mutex<TargetStatus>,
    offers: Vec<Arc<OfferCounters>>,
}

/// What control asks of the owner of a target.
pub(super) enum TargetCommand {
    Pull(Reply<()>),
    Dump(Reply<Vec<DumpedEntry>>),
    Ports(Option<BTreeSet<PortNo>>),
    Tune { max_idle: Duration, drain: Duration },
}

/// One packet of so many is offered whether it missed or not.
const DRAWN_ONE_IN: usize = 128;

/// Offers of one packet thread that may wait; more are dropped.
const OFFERS_MAX: usize = 1024;

/// Reports that may wait for the eviction thread.
const REPORTS_MAX: usize = 16_384;

/// Makes the joints of the owner of a target that begins at `version`, at which the desk is too:
/// control's, the owner's, the desk's, and one for each of so many packet threads. `desk` is who turns
/// the desk.
///
/// # Errors
///
/// When the system has no descriptor left.
pub fn target_ends(
    owner: OwnerId,
    version: Version,
    threads_count: usize,
    desk: Arc<Waker>,
) -> io::Result<(TargetHandle, TargetEnds, DeskEnds, Vec<Offers>)> {
    let (reports, report_receiver) = RingBuffer::new(REPORTS_MAX);
    // A target's owner forwards no packet, so it teaches nothing.
    let (lessons, _) = RingBuffer::new(1);
    let (command_sender, commands) = mpsc::channel();
    let link = Arc::new(Link::new(version)?);
    let (mut threads, mut rings, mut counters) = (Vec::new(), Vec::new(), Vec::new());
    for random in (0..).take(threads_count) {
        let (ring, receiver) = RingBuffer::new(OFFERS_MAX);
        let own = Arc::new(OfferCounters::default());
        threads.push(Offers {
            ring,
            counters: Arc::clone(&own),
            link: Arc::clone(&link),
            is_news: false,
            until_draw: DRAWN_ONE_IN,
            random,
        });
        rings.push(receiver);
        counters.push(own);
    }
    let shared = Arc::new(Shared { status: Mutex::default(), offers: counters });
    let handle = TargetHandle {
        commands: command_sender,
        link: Arc::clone(&link),
        shared: Arc::clone(&shared),
    };
    let desk_ends = DeskEnds::of_target(owner, report_receiver, Arc::clone(&link));
    let ends = TargetEnds {
        owner,
        version,
        reports,
        lessons,
        offers: rings,
        commands,
        link,
        desk,
        shared,
    };
    Ok((handle, ends, desk_ends, threads))
}

impl Offers {
    /// Offers a packet that no cache knew; it is dropped, and counted, if the owner does not keep up.
    /// [`Self::tell`] is to be called some time afterwards.
    pub fn offer(&mut self, key: &FlowKey, missed: Time) {
        self.counters.made.add(1);
        self.is_news = true;
        // A key is large: it is not copied in vain.
        if self.ring.is_full() || self.ring.push(Offer { key: key.clone(), missed }).is_err() {
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
        let gap = split_mix(&mut self.random) % (2 * DRAWN_ONE_IN as u64);
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

impl TargetHandle {
    /// How the target is.
    #[must_use]
    pub fn status(&self) -> TargetStatus {
        let mut status = self.shared.lock().clone();
        for own in &self.shared.offers {
            status.offers_made += own.made.get();
            status.offers_dropped += own.dropped.get();
        }
        status
    }

    /// Has the target's counters read and credited, and then answers. A target that is stale is not
    /// waited for.
    pub fn pull(&self, reply: Reply<()>) {
        if let Err(TargetCommand::Pull(reply)) = self.send(TargetCommand::Pull(reply)) {
            reply(());
        }
    }

    /// Answers with the pieces that are meant to be in the target, with their place in the chain. Of a
    /// thread that is gone: none.
    pub fn dump(&self, reply: Reply<Vec<DumpedEntry>>) {
        if let Err(TargetCommand::Dump(reply)) = self.send(TargetCommand::Dump(reply)) {
            reply(Vec::new());
        }
    }

    /// Says by which ports packets come in at the target, by their numbers in the bridge; what comes in
    /// elsewhere never meets it, so no rules are made for that. `None`, as at the beginning: by all.
    pub fn set_ports(&self, ports: Option<BTreeSet<PortNo>>) {
        // Of a thread that is gone nothing depends on it.
        let _ = self.send(TargetCommand::Ports(ports));
    }

    /// Says after how long without a hit a piece goes, and how long a packet may be under way in the
    /// target.
    pub fn tune(&self, max_idle: Duration, drain: Duration) {
        // Of a thread that is gone nothing depends on it.
        let _ = self.send(TargetCommand::Tune { max_idle, drain });
    }

    /// Wakes the owner: the target has something to tell. Any thread may call it.
    pub fn wake(&self) {
        self.link.waker().wake();
    }

    /// The version that it has answered.
    #[must_use]
    pub fn answered(&self) -> Version {
        self.link.answered()
    }

    fn send(&self, command: TargetCommand) -> Result<(), TargetCommand> {
        let sent = self.commands.send(command);
        self.wake();
        sent.map_err(|mpsc::SendError(command)| command)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, TargetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TargetHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetHandle").field("answered", &self.answered()).finish_non_exhaustive()
    }
}

impl fmt::Debug for TargetEnds {
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
        let desk = Arc::new(Waker::new().unwrap());
        let (.., mut threads) = target_ends(OwnerId(1), Version::new(1), 1, desk).unwrap();
        let offers = &mut threads[0];
        let drawn: BTreeSet<_> = (0..4000).filter_map(|_| offers.draws(32)).collect();
        assert_eq!(drawn, (0..32).collect(), "one flow at each place of a burst");
    }
}
