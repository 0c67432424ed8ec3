//! The eviction coordinator: the engine's half of the protocol of [`crate::evict::owner`].
//!
//! One thread at a time runs the [`EvictionCoordinator`] and its engine: the holder of its
//! [handle](crate::evict::handle). The coordinator receives reports of owners and changes of
//! versions, and sends invalidations. The coordinator handles a change in three steps:
//!
//! 1. The coordinator takes the reports of all owners (rule 6). Otherwise owners would drop the
//!    installs in these reports by the rule of `seq`.
//! 2. The coordinator asks the engine for the stale entries.
//! 3. The coordinator posts an invalidation to *every* owner, also to those without an eviction,
//!    because all of them must acknowledge the version.
//!
//! An owner that sleeps takes its invalidation before it handles a packet, so it counts as having
//! acknowledged the version as soon as the invalidation is posted (rule 10).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc::{self, TrySendError},
};

use rtrb::Consumer;
use shunt_classifier::Version;
use shunt_pipeline::{
    Change, Delta, EngineState, EntryId, Evictor, InstallNo, Installed, OwnerId, Time,
};

use crate::evict::{
    handle::{CoordinatorHandle, IterationResult},
    history::{CoordinatorClock, EvictionHistory},
    link::Link,
    mailbox::Invalidation,
    owner::{LearnSeq, Report},
    waker::Waker,
};

/// The coordinator's end of its link with one owner.
#[derive(Debug)]
pub struct CoordinatorEndpoint {
    owner: OwnerId,
    reports: Consumer<Report>,
    link: Arc<Link>,
    parked: ParkedOwner,
}

/// The treatment of a parked owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParkedOwner {
    /// The owner counts as having acknowledged: no packet hits its entries (rule 10).
    CountsAsAcked,
    /// The owner is woken, because an offload device forwards by its entries.
    IsWoken,
}

/// The eviction engine with its inputs and outputs.
pub struct EvictionCoordinator {
    evictor: Box<dyn Evictor>,
    version: Version,
    owners: Vec<OwnerState>,
    changes: mpsc::Receiver<(LearnedChange, Time)>,
    /// Number of changes that wait in the channel and in `batch`.
    waiting: Arc<AtomicUsize>,
    /// Changes that were received and are not applied yet.
    batch: ChangeBatch,
    waker: Arc<Waker>,
    clock: CoordinatorClock,
    totals: EvictionTotals,
    record: EvictionHistory,
}

/// Changes that are applied together.
///
/// The engine searches its entries once, and every owner gets one invalidation.
#[derive(Default)]
struct ChangeBatch {
    newest: Version,
    deltas: Vec<Delta>,
    learn_requests: Vec<(OwnerId, LearnSeq)>,
    count: usize,
    /// Time at which the first change of the batch was received.
    at: Time,
}

/// The sender of changes, for the control plane.
#[derive(Clone, Debug)]
pub struct ChangeSender {
    /// Each change with the time at which it was sent.
    changes: mpsc::SyncSender<(LearnedChange, Time)>,
    /// Number of changes that are not applied yet.
    waiting: Arc<AtomicUsize>,
    waker: Arc<Waker>,
    clock: CoordinatorClock,
    handle: Option<Arc<CoordinatorHandle>>,
}

/// A change, and the learn requests that its version and earlier ones include.
#[derive(Clone, Debug)]
pub struct LearnedChange {
    /// The change, or an empty one with the newest version.
    /// An empty change means that the tables had learned everything before.
    pub change: Change,
    /// The last learn request of each owner that the change acknowledges.
    pub learn_requests: Vec<(OwnerId, LearnSeq)>,
}

/// Total numbers of a coordinator since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTotals {
    /// Entries that owners installed.
    pub installed: u64,
    /// Installed entries with a version older than the engine's.
    pub late: u64,
    /// Entries that owners removed by themselves.
    pub removed: u64,
    /// Entries that changes made stale.
    pub evicted: u64,
    /// Number of changes that were applied.
    pub changes: u64,
}

/// The progress of one owner of entries: its version and its unread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerStatus {
    /// The id of the owner.
    pub owner: OwnerId,
    /// The version that the owner has acknowledged.
    pub acked: Version,
    /// Reports of the owner that the coordinator has not taken yet.
    pub reports: usize,
}

/// The state of one owner of cache entries.
struct OwnerState {
    endpoint: CoordinatorEndpoint,
    /// The last install that the engine knows (rule 1).
    seq: InstallNo,
    /// The owner's entries that the current change evicts.
    evictions: Vec<EntryId>,
    /// The last learn request that the engine's version includes (rule 9).
    learned: LearnSeq,
    /// The last learn request of which the owner was notified.
    notified: LearnSeq,
    /// The version that counts as acknowledged because the owner sleeps (rule 10).
    slept: Version,
}

/// Maximum number of waiting changes; the sender of a further change waits.
pub const CHANGES_MAX: usize = 4096;

/// Number of changes applied in one iteration.
/// The limit bounds the time until acknowledgements are noticed.
const CHANGES_PER_ITERATION: usize = 256;

/// Maximum numbers of deltas and of reports with which a sender applies changes.
const DELTAS_AT_ONCE: usize = 64;
const REPORTS_AT_ONCE: usize = 64;

impl CoordinatorEndpoint {
    /// Creates the coordinator's end of a link with the owner that writes `reports`.
    #[must_use]
    pub const fn new(owner: OwnerId, reports: Consumer<Report>, link: Arc<Link>) -> Self {
        Self { owner, reports, link, parked: ParkedOwner::CountsAsAcked }
    }

    /// Creates the coordinator's end of a link with the agent of an offload device.
    #[must_use]
    pub const fn of_device(owner: OwnerId, reports: Consumer<Report>, link: Arc<Link>) -> Self {
        Self { owner, reports, link, parked: ParkedOwner::IsWoken }
    }
}

impl EvictionCoordinator {
    /// Creates a coordinator at `version`; its owners must begin at this version.
    ///
    /// `waker` is the waker of the eviction thread, with which the owners were created.
    #[must_use]
    pub fn new(
        evictor: Box<dyn Evictor>,
        version: Version,
        owners: Vec<CoordinatorEndpoint>,
        waker: Arc<Waker>,
    ) -> (Self, ChangeSender) {
        Self::with_clock(evictor, version, owners, waker, CoordinatorClock::default())
    }

    /// Creates a coordinator that also measures the time that changes take.
    #[must_use]
    pub fn with_clock(
        evictor: Box<dyn Evictor>,
        version: Version,
        owners: Vec<CoordinatorEndpoint>,
        waker: Arc<Waker>,
        clock: CoordinatorClock,
    ) -> (Self, ChangeSender) {
        let (sender, changes) = mpsc::sync_channel(CHANGES_MAX);
        let waiting = Arc::<AtomicUsize>::default();
        let owners =
            owners.into_iter().map(|endpoint| OwnerState::new(endpoint, version)).collect();
        let sender = ChangeSender {
            changes: sender,
            waiting: Arc::clone(&waiting),
            waker: Arc::clone(&waker),
            clock: clock.clone(),
            handle: None,
        };
        let coordinator = Self {
            evictor,
            version,
            owners,
            changes,
            waiting,
            batch: ChangeBatch::default(),
            waker,
            clock,
            totals: EvictionTotals::default(),
            record: EvictionHistory::default(),
        };
        (coordinator, sender)
    }

    /// Adds an owner with an endpoint that was created for [`Self::version`].
    ///
    /// The owner may have the id of an owner that has retired.
    ///
    /// # Panics
    ///
    /// If the endpoint was created for another version, or an owner with its id is present.
    pub fn join(&mut self, endpoint: CoordinatorEndpoint) {
        assert_eq!(
            endpoint.link.acked_version(),
            self.version,
            "an owner begins at the coordinator's version"
        );
        self.forget_retired_owners();
        let is_there = self.owners.iter().any(|owner| owner.endpoint.owner == endpoint.owner);
        assert!(!is_there, "owner ids are unique");
        self.owners.push(OwnerState::new(endpoint, self.version));
    }

    /// Applies waiting changes, then takes reports.
    /// Returns whether there was anything to do.
    pub fn run_iteration(&mut self) -> bool {
        let mut worked = self.forget_retired_owners();
        self.collect_batch();
        let batch = std::mem::take(&mut self.batch);
        worked |= batch.count > 0;
        self.apply_batch(&batch);
        self.take_reports() > 0 || worked || self.evictor.run_maintenance()
    }

    /// Applies the waiting changes if this is quick, so any thread may call it.
    ///
    /// Returns whether the changes were applied; if not, they wait for [`Self::run_iteration`].
    pub(crate) fn run_if_quick(&mut self) -> bool {
        // A batch that an earlier call found too large is left to the eviction thread.
        if self.batch.count > 0 || self.reported() > REPORTS_AT_ONCE {
            return false;
        }
        self.collect_batch();
        let deltas = &self.batch.deltas;
        if deltas.len() > DELTAS_AT_ONCE || !self.evictor.is_quick(deltas) {
            return false;
        }
        let batch = std::mem::take(&mut self.batch);
        self.apply_batch(&batch);
        true
    }

    /// Receives waiting changes into the batch.
    fn collect_batch(&mut self) {
        let (now, batch) = (self.clock.now(), &mut self.batch);
        while batch.count < CHANGES_PER_ITERATION
            && let Ok((learned, since)) = self.changes.try_recv()
        {
            if batch.count == 0 {
                batch.at = now;
            }
            if learned.change.version > batch.newest.max(self.version) {
                self.record.note_published(learned.change.version, since);
            }
            batch.newest = batch.newest.max(learned.change.version);
            batch.deltas.extend(learned.change.deltas);
            batch.learn_requests.extend(learned.learn_requests);
            batch.count += 1;
        }
    }

    /// Applies a batch, after all reports so far.
    fn apply_batch(&mut self, batch: &ChangeBatch) {
        self.waiting.fetch_sub(batch.count, Ordering::Relaxed);
        // A change without effect does not create a version.
        if batch.newest > self.version {
            self.take_reports();
            self.apply_since(batch.at, batch.newest, &batch.deltas, &batch.learn_requests);
        } else {
            self.ack_learn_requests(&batch.learn_requests);
        }
    }

    /// Forgets owners that have retired; returns whether an owner had retired.
    ///
    /// The remaining reports of a retired owner are dropped.
    pub fn forget_retired_owners(&mut self) -> bool {
        let gone = self.owners.extract_if(.., |owner| owner.endpoint.link.is_retired());
        let forget = |owner: OwnerState| {
            self.evictor.forget(owner.endpoint.owner);
            self.record.forget(owner.endpoint.owner);
        };
        gone.map(forget).count() > 0
    }

    /// Takes all waiting reports; returns their number.
    pub fn take_reports(&mut self) -> usize {
        let mut batch = 0;
        for index in 0..self.owners.len() {
            // The loop takes only the reports that are present now, so no owner delays the others
            // forever.
            for _ in 0..self.owners[index].endpoint.reports.slots() {
                batch += usize::from(self.take_report(index));
            }
        }
        batch
    }

    /// Takes the next report of the owner at `index`; returns false if it has none.
    pub fn take_report(&mut self, index: usize) -> bool {
        let Some(owner) = self.owners.get_mut(index) else { return false };
        let Ok(report) = owner.endpoint.reports.pop() else { return false };
        match report {
            Report::Installed { entry, number, traversal } => {
                self.totals.installed += 1;
                match self.evictor.installed(entry, &traversal) {
                    Installed::Recorded => {}
                    // Rule 2. The invalidation of the engine's version was computed before this
                    // report was taken. So its `seq` is lower, and the owner drops the entry.
                    Installed::Late => self.totals.late += 1,
                }
                owner.seq = number;
            }
            Report::Removed(entry) => {
                self.totals.removed += 1;
                self.evictor.removed(entry);
            }
        }
        true
    }

    /// Applies one change to the engine and posts an invalidation to every owner.
    pub fn apply(&mut self, version: Version, deltas: &[Delta]) {
        self.apply_learned(version, deltas, &[]);
    }

    /// Applies one change of a version that includes these learn requests.
    pub fn apply_learned(
        &mut self,
        version: Version,
        deltas: &[Delta],
        learn_requests: &[(OwnerId, LearnSeq)],
    ) {
        self.apply_since(self.clock.now(), version, deltas, learn_requests);
    }

    /// Applies one change with deltas that were received at `received`.
    fn apply_since(
        &mut self,
        received: Time,
        version: Version,
        deltas: &[Delta],
        learn_requests: &[(OwnerId, LearnSeq)],
    ) {
        self.note_learn_requests(learn_requests);
        debug_assert!(self.version < version, "versions only grow");
        let evictions = self.evictor.apply(deltas, version);
        let now = self.clock.now();
        self.record.time_to_list.add(now.since(received));
        self.record.note_evicted(version, now, deltas, &evictions, self.evictor.causes());
        self.version = version;
        self.totals.changes += 1;
        self.totals.evicted += evictions.len() as u64;
        // Entries of one owner are mostly adjacent in the list.
        let mut last = 0;
        for entry in evictions {
            let is_own = |owner: &OwnerState| owner.endpoint.owner == entry.owner;
            if !self.owners.get(last).is_some_and(is_own) {
                let Some(found) = self.owners.iter().position(is_own) else { continue };
                last = found;
            }
            self.owners[last].evictions.push(entry);
        }
        // Owners that wait for a learn request are last: they then send the waiting packet, and the
        // network may send a copy of it to other owners.
        for is_waiting in [false, true] {
            let is_next = |owner: &&mut OwnerState| (owner.learned > owner.notified) == is_waiting;
            for owner in self.owners.iter_mut().filter(is_next) {
                let evictions = std::mem::take(&mut owner.evictions);
                let evictions = if evictions.is_empty() { Vec::new() } else { vec![evictions] };
                let (seq, learned) = (owner.seq, owner.learned);
                owner.post(Invalidation { version, evictions, seq, learned });
            }
        }
    }

    /// Acknowledges learn requests that changed nothing.
    /// The version of the engine already includes these requests.
    ///
    /// The posted invalidation drops no entry, and none that was installed meanwhile.
    pub fn ack_learn_requests(&mut self, learn_requests: &[(OwnerId, LearnSeq)]) {
        self.note_learn_requests(learn_requests);
        let version = self.version;
        for owner in &mut self.owners {
            if learn_requests.iter().any(|(id, _)| *id == owner.endpoint.owner) {
                let (evictions, seq) = (Vec::new(), InstallNo(u64::MAX));
                owner.post(Invalidation { version, evictions, seq, learned: owner.learned });
            }
        }
    }

    fn note_learn_requests(&mut self, learn_requests: &[(OwnerId, LearnSeq)]) {
        for (id, learn_request) in learn_requests {
            for owner in self.owners.iter_mut().filter(|owner| owner.endpoint.owner == *id) {
                owner.learned = owner.learned.max(*learn_request);
            }
        }
    }

    /// Returns the version that every owner has acknowledged.
    ///
    /// No owner can hit an entry that this version or an earlier one made stale. Retired and
    /// sleeping owners delay no version.
    #[must_use]
    pub fn acked_version(&self) -> Version {
        let answers = self.owners.iter().map(OwnerState::acked_version);
        answers.min().map_or(self.version, |least| least.min(self.version))
    }

    /// Returns the version that the engine has reached.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the numbers of changes, evictions and faults since the start.
    #[must_use]
    pub const fn totals(&self) -> EvictionTotals {
        self.totals
    }

    /// Returns the recent changes and their timing.
    #[must_use]
    pub const fn record(&self) -> &EvictionHistory {
        &self.record
    }

    /// Returns the size of the engine's state.
    #[must_use]
    pub fn engine(&self) -> EngineState {
        self.evictor.state()
    }

    /// Returns the number of changes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the status of each owner.
    #[must_use]
    pub fn owner_statuses(&self) -> Vec<OwnerStatus> {
        self.owners.iter().map(OwnerState::status).collect()
    }

    /// Returns the version that all owners have acknowledged, and records the time.
    pub(crate) fn note_acked(&mut self) -> Version {
        let acked = self.acked_version();
        self.record.note_acked(acked, self.clock.now());
        acked
    }

    /// Returns the number of entries that the engine watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.evictor.len()
    }

    /// Returns whether the engine has deferred enough work to wake its thread.
    pub(crate) fn has_backlog(&self) -> bool {
        self.evictor.has_backlog()
    }

    /// Returns the number of reports that are not taken yet.
    fn reported(&self) -> usize {
        self.owners.iter().map(|owner| owner.endpoint.reports.slots()).sum()
    }

    /// Returns the waker of the eviction thread.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

impl OwnerState {
    const fn new(endpoint: CoordinatorEndpoint, version: Version) -> Self {
        let (seq, learned) = (InstallNo(0), LearnSeq(0));
        Self { endpoint, seq, evictions: Vec::new(), learned, notified: learned, slept: version }
    }

    /// Posts an invalidation, and wakes the owner if the owner must act.
    ///
    /// A sleeping owner counts as having acknowledged (rule 10). The sleeping owner is woken only
    /// to drop entries, or to resume a queue that waits for a learn request.
    fn post(&mut self, invalidation: Invalidation) {
        let (version, learned) = (invalidation.version, invalidation.learned);
        let parked = self.endpoint.parked;
        let is_urgent = parked == ParkedOwner::IsWoken
            || !invalidation.evictions.is_empty()
            || learned > self.notified;
        self.endpoint.link.mailbox().post(invalidation);
        self.notified = learned;
        if self.endpoint.link.waker().finds_asleep() {
            if parked == ParkedOwner::CountsAsAcked {
                self.slept = version;
            }
            if is_urgent {
                self.endpoint.link.waker().signal();
            }
        }
    }

    fn acked_version(&self) -> Version {
        self.endpoint.link.acked_version().max(self.slept)
    }

    fn status(&self) -> OwnerStatus {
        let reports = self.endpoint.reports.slots();
        OwnerStatus { owner: self.endpoint.owner, acked: self.acked_version(), reports }
    }
}

impl ChangeSender {
    /// Sends a change with a greater version than all earlier changes.
    ///
    /// A closed coordinator accepts any number of changes, because no owner is left.
    ///
    /// # Errors
    ///
    /// Returns the change if [`CHANGES_MAX`] changes wait.
    pub fn send(&self, change: Change) -> Result<(), Change> {
        self.send_learned(LearnedChange { change, learn_requests: Vec::new() })
            .map_err(|back| back.change)
    }

    /// Returns a sender that applies quick changes itself, through `handle`.
    #[must_use]
    pub fn helping(self, handle: &Arc<CoordinatorHandle>) -> Self {
        Self { handle: Some(Arc::clone(handle)), ..self }
    }

    /// Sends a change that acknowledges learn requests; the change may be empty.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_learned(&self, learned: LearnedChange) -> Result<(), LearnedChange> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.changes.try_send((learned, self.clock.now()));
        let turned =
            self.handle.as_ref().map_or(IterationResult::NotNow, |handle| handle.try_iteration());
        if turned != IterationResult::Done {
            self.waker.wake();
        }
        match sent {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full((learned, _))) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Err(learned)
            }
        }
    }

    /// Sends a change that [`Self::send_learned`] has returned; waits for room.
    ///
    /// The caller sleeps until the coordinator has taken changes.
    pub fn send_waiting(&self, learned: LearnedChange) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The send fails only if the coordinator has ended, and then no owner is left.
        let _ = self.changes.send((learned, self.clock.now()));
        self.waker.wake();
    }
}

impl std::fmt::Debug for EvictionCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvictionCoordinator")
            .field("version", &self.version)
            .field("watched", &self.evictor.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}
