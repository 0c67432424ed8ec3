//! The eviction desk: the engine's side of the protocol of [`crate::evict::owner`].
//!
//! One thread at a time turns the [`EvictionCoordinator`], and with it the engine: whoever has its
//! [handle](crate::evict::handle). Reports of owners and the changes of versions reach it; advances leave it. For each change it first takes in what owners have
//! reported (rule 6: else an update would drop a backlog of installs by the rule of `seq`, and they
//! would come back as misses), then asks the engine, then posts an advance to *every* owner, also
//! to those without an eviction: all must answer the version. An owner that sleeps meets no packet
//! before it has taken its advance, so it has answered as soon as it is posted (rule 10).

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
    handle::{CoordinatorHandle, Turned},
    history::{CoordinatorClock, EvictionHistory},
    link::Link,
    mailbox::Invalidation,
    owner::{LearnSeq, Report},
    waker::Waker,
};

/// The desk's end of what joins it with one owner.
#[derive(Debug)]
pub struct CoordinatorEndpoint {
    owner: OwnerId,
    reports: Consumer<Report>,
    link: Arc<Link>,
    sleeper: Sleeper,
}

/// What it means that an owner sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    /// Nothing hits its entries meanwhile, so it has answered (rule 10).
    HasAnswered,
    /// Its entries are in a target, which forwards on: it is woken, and answers itself.
    IsWoken,
}

/// The engine, with all that reaches it and leaves it.
pub struct EvictionCoordinator {
    evictor: Box<dyn Evictor>,
    version: Version,
    owners: Vec<OwnerState>,
    changes: mpsc::Receiver<(Learned, Time)>,
    /// Changes that wait, there and here.
    waiting: Arc<AtomicUsize>,
    /// What was taken from there and is not done yet.
    taken: Taken,
    waker: Arc<Waker>,
    clock: CoordinatorClock,
    totals: EvictionTotals,
    record: EvictionHistory,
}

/// Changes that are applied together: an engine's pass over its entries, and an advance of every
/// owner, are paid once for all of them.
#[derive(Default)]
struct Taken {
    newest: Version,
    deltas: Vec<Delta>,
    learn_requests: Vec<(OwnerId, LearnSeq)>,
    count: usize,
    /// When the first of them was taken up.
    at: Time,
}

/// Where control hands in changes.
#[derive(Clone, Debug)]
pub struct ChangeSender {
    /// Each with the time at which it was handed in.
    changes: mpsc::SyncSender<(Learned, Time)>,
    /// How many wait.
    waiting: Arc<AtomicUsize>,
    waker: Arc<Waker>,
    clock: CoordinatorClock,
    handle: Option<Arc<CoordinatorHandle>>,
}

/// A change, and the lessons that its version and those before it have learned.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The change; if all was known, of nothing, with the newest version there is.
    pub change: Change,
    /// The last lesson of each owner that is answered by it.
    pub learn_requests: Vec<(OwnerId, LearnSeq)>,
}

/// What a desk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTotals {
    /// Entries that owners made.
    pub installed: u64,
    /// Of these, those that were made under a version older than the engine's.
    pub late: u64,
    /// Entries that owners lost of their own accord.
    pub removed: u64,
    /// Entries that changes made stale.
    pub evicted: u64,
    /// Changes applied.
    pub changes: u64,
}

/// How it stands with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerStatus {
    /// The owner.
    pub owner: OwnerId,
    /// The version that it has answered.
    pub answered: Version,
    /// Reports of it that nobody has taken in yet.
    pub reports: usize,
}

/// One owner, as the desk sees it.
struct OwnerState {
    ends: CoordinatorEndpoint,
    /// The last install that the engine has taken in (rule 1).
    seq: InstallNo,
    /// Evictions of the change at hand.
    evictions: Vec<EntryId>,
    /// The last lesson that the engine's version has learned (rule 9).
    learned: LearnSeq,
    /// The last lesson that the owner was told of.
    told: LearnSeq,
    /// The version that it has answered by sleeping (rule 10).
    slept: Version,
}

/// Changes that may wait for the desk; what comes then is refused, and control waits.
pub const CHANGES_MAX: usize = 4096;

/// Changes applied in a turn: so often, at least, whoever waits for answers hears of them.
const CHANGES_PER_ITERATION: usize = 256;

/// Deltas and reports up to which changes are applied by whoever hands one in.
const DELTAS_AT_ONCE: usize = 64;
const REPORTS_AT_ONCE: usize = 64;

impl CoordinatorEndpoint {
    /// The desk's end of the joint with an owner that reports into `reports`.
    #[must_use]
    pub const fn new(owner: OwnerId, reports: Consumer<Report>, link: Arc<Link>) -> Self {
        Self { owner, reports, link, sleeper: Sleeper::HasAnswered }
    }

    /// The desk's end of the joint with the owner of a target.
    #[must_use]
    pub const fn of_device(owner: OwnerId, reports: Consumer<Report>, link: Arc<Link>) -> Self {
        Self { owner, reports, link, sleeper: Sleeper::IsWoken }
    }
}

impl EvictionCoordinator {
    /// A desk at `version`, at which its owners begin too. `waker` is the one that the owners'
    /// ends were made with.
    #[must_use]
    pub fn new(
        evictor: Box<dyn Evictor>,
        version: Version,
        owners: Vec<CoordinatorEndpoint>,
        waker: Arc<Waker>,
    ) -> (Self, ChangeSender) {
        Self::with_clock(evictor, version, owners, waker, CoordinatorClock::default())
    }

    /// The same, which notes how long changes take.
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
        let owners = owners.into_iter().map(|ends| OwnerState::new(ends, version)).collect();
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
            taken: Taken::default(),
            waker,
            clock,
            totals: EvictionTotals::default(),
            record: EvictionHistory::default(),
        };
        (coordinator, sender)
    }

    /// Takes in one more owner, whose ends were made for [`Self::version`]. It may have the name of one
    /// that is gone.
    ///
    /// # Panics
    ///
    /// When they were made for another version, or one of its name is there.
    pub fn join(&mut self, ends: CoordinatorEndpoint) {
        assert_eq!(ends.link.answered(), self.version, "it begins where the desk is");
        self.forget_retired();
        let is_there = self.owners.iter().any(|lane| lane.ends.owner == ends.owner);
        assert!(!is_there, "owners have names of their own");
        self.owners.push(OwnerState::new(ends, self.version));
    }

    /// Applies changes that wait, then takes in what was reported. Answers whether there was
    /// anything to do.
    pub fn turn(&mut self) -> bool {
        let mut worked = self.forget_retired();
        self.take_changes();
        let taken = std::mem::take(&mut self.taken);
        worked |= taken.count > 0;
        self.take_in_with(&taken);
        self.take_in() > 0 || worked || self.evictor.tidy()
    }

    /// Applies changes that wait, if that is done at once; so anybody may do it. Answers whether it
    /// was done: if not, it waits for the next [`Self::turn`].
    pub(crate) fn run_at_once(&mut self) -> bool {
        // What was left behind once is not looked at again: it is not for whoever comes next.
        if self.taken.count > 0 || self.reported() > REPORTS_AT_ONCE {
            return false;
        }
        self.take_changes();
        let deltas = &self.taken.deltas;
        if deltas.len() > DELTAS_AT_ONCE || !self.evictor.is_quick(deltas) {
            return false;
        }
        let taken = std::mem::take(&mut self.taken);
        self.take_in_with(&taken);
        true
    }

    /// Takes up the changes that wait.
    fn take_changes(&mut self) {
        let (now, taken) = (self.clock.now(), &mut self.taken);
        while taken.count < CHANGES_PER_ITERATION
            && let Ok((learned, since)) = self.changes.try_recv()
        {
            if taken.count == 0 {
                taken.at = now;
            }
            if learned.change.version > taken.newest.max(self.version) {
                self.record.published(learned.change.version, since);
            }
            taken.newest = taken.newest.max(learned.change.version);
            taken.deltas.extend(learned.change.deltas);
            taken.learn_requests.extend(learned.learn_requests);
            taken.count += 1;
        }
    }

    /// Applies changes that were taken up, over all that was reported so far.
    fn take_in_with(&mut self, taken: &Taken) {
        self.waiting.fetch_sub(taken.count, Ordering::Relaxed);
        // What changed nothing has no version of its own.
        if taken.newest > self.version {
            self.take_in();
            self.apply_since(taken.at, taken.newest, &taken.deltas, &taken.learn_requests);
        } else {
            self.ack_learn_requests(&taken.learn_requests);
        }
    }

    /// Forgets owners that are gone: their entries went with them, and so does what they reported
    /// and nobody has taken in. Answers whether there was one.
    pub fn forget_retired(&mut self) -> bool {
        let gone = self.owners.extract_if(.., |lane| lane.ends.link.is_retired());
        let forget = |lane: OwnerState| {
            self.evictor.forget(lane.ends.owner);
            self.record.forget(lane.ends.owner);
        };
        gone.map(forget).count() > 0
    }

    /// Takes in what owners have reported so far; answers how much.
    pub fn take_in(&mut self) -> usize {
        let mut taken = 0;
        for index in 0..self.owners.len() {
            // Bounded by what is there now: an owner that reports without end starves nobody.
            for _ in 0..self.owners[index].ends.reports.slots() {
                taken += usize::from(self.take_one(index));
            }
        }
        taken
    }

    /// Takes in the next report of the owner at `index`; answers whether there was one.
    pub fn take_one(&mut self, index: usize) -> bool {
        let Some(lane) = self.owners.get_mut(index) else { return false };
        let Ok(report) = lane.ends.reports.pop() else { return false };
        match report {
            Report::Installed { entry, number, traversal } => {
                self.totals.installed += 1;
                match self.evictor.installed(entry, &traversal) {
                    Installed::Recorded => {}
                    // Rule 2. The advance of the engine's version was computed before this
                    // install came in, so its `seq` is lower and takes the entry.
                    Installed::Late => self.totals.late += 1,
                }
                lane.seq = number;
            }
            Report::Removed(entry) => {
                self.totals.removed += 1;
                self.evictor.removed(entry);
            }
        }
        true
    }

    /// Applies one change to the engine and tells every owner.
    pub fn apply(&mut self, version: Version, deltas: &[Delta]) {
        self.apply_learned(version, deltas, &[]);
    }

    /// As [`Self::apply`], of a version that has learned these lessons.
    pub fn apply_learned(
        &mut self,
        version: Version,
        deltas: &[Delta],
        learn_requests: &[(OwnerId, LearnSeq)],
    ) {
        self.apply_since(self.clock.now(), version, deltas, learn_requests);
    }

    /// As [`Self::apply_learned`], of deltas that were taken at `taken`.
    fn apply_since(
        &mut self,
        taken: Time,
        version: Version,
        deltas: &[Delta],
        learn_requests: &[(OwnerId, LearnSeq)],
    ) {
        self.note_learn_requests(learn_requests);
        debug_assert!(self.version < version, "versions only grow");
        let evictions = self.evictor.apply(deltas, version);
        let now = self.clock.now();
        self.record.to_list.add(now.since(taken));
        self.record.evicted((version, now), deltas, &evictions, self.evictor.causes());
        self.version = version;
        self.totals.changes += 1;
        self.totals.evicted += evictions.len() as u64;
        // Mostly one owner's come in a row.
        let mut last = 0;
        for entry in evictions {
            let is_own = |lane: &OwnerState| lane.ends.owner == entry.owner;
            if !self.owners.get(last).is_some_and(is_own) {
                let Some(found) = self.owners.iter().position(is_own) else { continue };
                last = found;
            }
            self.owners[last].evictions.push(entry);
        }
        for lane in &mut self.owners {
            let evictions = std::mem::take(&mut lane.evictions);
            let evictions = if evictions.is_empty() { Vec::new() } else { vec![evictions] };
            lane.post(Invalidation { version, evictions, seq: lane.seq, learned: lane.learned });
        }
    }

    /// Tells owners that the engine's version has these lessons: they changed nothing.
    ///
    /// Such an advance drops nothing, whatever was installed meanwhile.
    pub fn ack_learn_requests(&mut self, learn_requests: &[(OwnerId, LearnSeq)]) {
        self.note_learn_requests(learn_requests);
        let version = self.version;
        for lane in &mut self.owners {
            if learn_requests.iter().any(|(owner, _)| *owner == lane.ends.owner) {
                let (evictions, seq) = (Vec::new(), InstallNo(u64::MAX));
                lane.post(Invalidation { version, evictions, seq, learned: lane.learned });
            }
        }
    }

    fn note_learn_requests(&mut self, learn_requests: &[(OwnerId, LearnSeq)]) {
        for (owner, learn_request) in learn_requests {
            for lane in self.owners.iter_mut().filter(|lane| lane.ends.owner == *owner) {
                lane.learned = lane.learned.max(*learn_request);
            }
        }
    }

    /// The version that every owner has answered: no owner can hit what an older one made stale.
    /// One that is gone holds up nobody, and neither does one that sleeps.
    #[must_use]
    pub fn answered(&self) -> Version {
        let answers = self.owners.iter().map(OwnerState::answered);
        answers.min().map_or(self.version, |least| least.min(self.version))
    }

    /// The engine's version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What it has done so far.
    #[must_use]
    pub const fn totals(&self) -> EvictionTotals {
        self.totals
    }

    /// What it remembers of changes.
    #[must_use]
    pub const fn record(&self) -> &EvictionHistory {
        &self.record
    }

    /// How large what the engine keeps is.
    #[must_use]
    pub fn engine(&self) -> EngineState {
        self.evictor.state()
    }

    /// Changes that wait for it.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How it stands with each owner.
    #[must_use]
    pub fn lanes(&self) -> Vec<OwnerStatus> {
        self.owners.iter().map(OwnerState::status).collect()
    }

    /// Notes which version all owners have answered; answers with it.
    pub(crate) fn note_acked(&mut self) -> Version {
        let answered = self.answered();
        self.record.answered(answered, self.clock.now());
        answered
    }

    /// Number of entries that the engine watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.evictor.len()
    }

    /// Whether so much was put off that the thread that has the time for it is to be woken.
    pub(crate) fn is_untidy(&self) -> bool {
        self.evictor.is_untidy()
    }

    /// Reports that nobody has taken in yet.
    fn reported(&self) -> usize {
        self.owners.iter().map(|lane| lane.ends.reports.slots()).sum()
    }

    /// Where others wake the thread that turns this desk.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

impl OwnerState {
    const fn new(ends: CoordinatorEndpoint, version: Version) -> Self {
        let (seq, learned) = (InstallNo(0), LearnSeq(0));
        Self { ends, seq, evictions: Vec::new(), learned, told: learned, slept: version }
    }

    /// Posts an advance. An owner that sleeps has answered it (rule 10), and is woken only if there
    /// is something for it to do: entries to drop, or a queue that waits for its lesson.
    fn post(&mut self, invalidation: Invalidation) {
        let (version, learned) = (invalidation.version, invalidation.learned);
        let sleeper = self.ends.sleeper;
        let is_urgent = sleeper == Sleeper::IsWoken
            || !invalidation.evictions.is_empty()
            || learned > self.told;
        self.ends.link.mailbox().post(invalidation);
        self.told = learned;
        if self.ends.link.waker().finds_asleep() {
            if sleeper == Sleeper::HasAnswered {
                self.slept = version;
            }
            if is_urgent {
                self.ends.link.waker().signal();
            }
        }
    }

    fn answered(&self) -> Version {
        self.ends.link.answered().max(self.slept)
    }

    fn status(&self) -> OwnerStatus {
        let reports = self.ends.reports.slots();
        OwnerStatus { owner: self.ends.owner, answered: self.answered(), reports }
    }
}

impl ChangeSender {
    /// Hands in a change. Versions must grow from change to change. A desk that is gone takes any
    /// number: nobody is left who would meet what they replace.
    ///
    /// # Errors
    ///
    /// Gives the change back when [`CHANGES_MAX`] are waiting.
    pub fn send(&self, change: Change) -> Result<(), Change> {
        self.send_learned(Learned { change, learn_requests: Vec::new() })
            .map_err(|back| back.change)
    }

    /// The sender, which from now on does the desk's turn itself where that is done at once.
    #[must_use]
    pub fn helping(self, handle: &Arc<CoordinatorHandle>) -> Self {
        Self { handle: Some(Arc::clone(handle)), ..self }
    }

    /// Hands in a change that answers lessons, also one of nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_learned(&self, learned: Learned) -> Result<(), Learned> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.changes.try_send((learned, self.clock.now()));
        let turned = self.handle.as_ref().map_or(Turned::NotNow, |handle| handle.try_iteration());
        if turned != Turned::Done {
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
}

impl std::fmt::Debug for EvictionCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvictionDesk")
            .field("version", &self.version)
            .field("watched", &self.evictor.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}
