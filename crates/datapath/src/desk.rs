//! The eviction desk: the engine's side of the protocol of [`crate::owner`].
//!
//! One thread owns the [`EvictionDesk`], and with it the engine. Reports of owners and the changes
//! of versions reach it; advances leave it. For each change it first takes in what owners have
//! reported (rule 6: else an update would drop a backlog of installs by the rule of `seq`, and they
//! would come back as misses), then asks the engine, then posts an advance to *every* owner, also
//! to those without an eviction: all must answer the version. An owner that sleeps meets no packet
//! before it has taken its advance, so it has answered as soon as it is posted (rule 10).

use std::sync::{
    Arc,
    mpsc::{self, TrySendError},
};

use rtrb::Consumer;
use shunt_classifier::Version;
use shunt_pipeline::{Change, Delta, EntryId, Evictor, InstallNo, Installed, OwnerId};

use crate::{
    link::Link,
    mailbox::Advance,
    owner::{LessonNo, Report},
    seat::DeskSeat,
    sleep::Waker,
};

/// The desk's end of what joins it with one owner.
#[derive(Debug)]
pub struct DeskEnds {
    owner: OwnerId,
    reports: Consumer<Report>,
    link: Arc<Link>,
}

/// The engine, with all that reaches it and leaves it.
pub struct EvictionDesk {
    evictor: Box<dyn Evictor>,
    version: Version,
    owners: Vec<Lane>,
    changes: mpsc::Receiver<Learned>,
    waker: Arc<Waker>,
    totals: DeskTotals,
}

/// Where control hands in changes.
#[derive(Clone, Debug)]
pub struct ChangeSender {
    changes: mpsc::SyncSender<Learned>,
    waker: Arc<Waker>,
    seat: Option<Arc<DeskSeat>>,
}

/// A change, and the lessons that its version and those before it have learned.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The change; if all was known, of nothing, with the newest version there is.
    pub change: Change,
    /// The last lesson of each owner that is answered by it.
    pub lessons: Vec<(OwnerId, LessonNo)>,
}

/// What a desk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskTotals {
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

/// One owner, as the desk sees it.
struct Lane {
    ends: DeskEnds,
    /// The last install that the engine has taken in (rule 1).
    seq: InstallNo,
    /// Evictions of the change at hand.
    evictions: Vec<EntryId>,
    /// The last lesson that the engine's version has learned (rule 9).
    learned: LessonNo,
    /// The last lesson that the owner was told of.
    told: LessonNo,
    /// The version that it has answered by sleeping (rule 10).
    slept: Version,
}

/// Changes that may wait for the desk; what comes then is refused, and control waits.
pub const CHANGES_MAX: usize = 4096;

/// Changes applied in a turn: so often, at least, whoever waits for answers hears of them.
const CHANGES_PER_TURN: usize = 256;

/// Deltas and reports up to which a turn is done at once, by whoever hands in the change.
const DELTAS_AT_ONCE: usize = 64;
const REPORTS_AT_ONCE: usize = 64;

impl DeskEnds {
    /// The desk's end of the joint with an owner that reports into `reports`.
    #[must_use]
    pub const fn new(owner: OwnerId, reports: Consumer<Report>, link: Arc<Link>) -> Self {
        Self { owner, reports, link }
    }
}

impl EvictionDesk {
    /// A desk at `version`, at which its owners begin too. `waker` is the one that the owners'
    /// ends were made with.
    #[must_use]
    pub fn new(
        evictor: Box<dyn Evictor>,
        version: Version,
        owners: Vec<DeskEnds>,
        waker: Arc<Waker>,
    ) -> (Self, ChangeSender) {
        let (sender, changes) = mpsc::sync_channel(CHANGES_MAX);
        let owners = owners.into_iter().map(|ends| Lane::new(ends, version)).collect();
        let sender = ChangeSender { changes: sender, waker: Arc::clone(&waker), seat: None };
        let totals = DeskTotals::default();
        (Self { evictor, version, owners, changes, waker, totals }, sender)
    }

    /// Applies changes that wait, then takes in what was reported. Answers whether there was
    /// anything to do.
    pub fn turn(&mut self) -> bool {
        // Changes that wait together are applied together: an engine's pass over its entries, and
        // an advance of every owner, are paid once for all of them.
        let (mut newest, mut deltas) = (self.version, Vec::new());
        let mut lessons = Vec::new();
        let mut worked = self.forget_retired();
        for _ in 0..CHANGES_PER_TURN {
            let Ok(learned) = self.changes.try_recv() else { break };
            newest = newest.max(learned.change.version);
            deltas.extend(learned.change.deltas);
            lessons.extend(learned.lessons);
            worked = true;
        }
        // What changed nothing has no version of its own.
        if newest > self.version {
            self.take_in();
            self.apply_learned(newest, &deltas, &lessons);
        } else {
            self.answer_lessons(&lessons);
        }
        self.take_in() > 0 || worked || self.evictor.tidy()
    }

    /// Forgets owners that are gone: their entries went with them, and so does what they reported
    /// and nobody has taken in. Answers whether there was one.
    pub fn forget_retired(&mut self) -> bool {
        let gone = self.owners.extract_if(.., |lane| lane.ends.link.is_retired());
        gone.map(|lane| self.evictor.forget(lane.ends.owner)).count() > 0
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
        lessons: &[(OwnerId, LessonNo)],
    ) {
        self.note_lessons(lessons);
        debug_assert!(self.version < version, "versions only grow");
        let evictions = self.evictor.apply(deltas, version);
        self.version = version;
        self.totals.changes += 1;
        self.totals.evicted += evictions.len() as u64;
        for entry in evictions {
            let lane = self.owners.iter_mut().find(|lane| lane.ends.owner == entry.owner);
            if let Some(lane) = lane {
                lane.evictions.push(entry);
            }
        }
        for lane in &mut self.owners {
            let evictions = std::mem::take(&mut lane.evictions);
            let evictions = if evictions.is_empty() { Vec::new() } else { vec![evictions] };
            lane.post(Advance { version, evictions, seq: lane.seq, learned: lane.learned });
        }
    }

    /// Tells owners that the engine's version has these lessons: they changed nothing.
    ///
    /// Such an advance drops nothing, whatever was installed meanwhile.
    pub fn answer_lessons(&mut self, lessons: &[(OwnerId, LessonNo)]) {
        self.note_lessons(lessons);
        let version = self.version;
        for lane in &mut self.owners {
            if lessons.iter().any(|(owner, _)| *owner == lane.ends.owner) {
                let (evictions, seq) = (Vec::new(), InstallNo(u64::MAX));
                lane.post(Advance { version, evictions, seq, learned: lane.learned });
            }
        }
    }

    fn note_lessons(&mut self, lessons: &[(OwnerId, LessonNo)]) {
        for (owner, lesson) in lessons {
            for lane in self.owners.iter_mut().filter(|lane| lane.ends.owner == *owner) {
                lane.learned = lane.learned.max(*lesson);
            }
        }
    }

    /// The version that every owner has answered: no owner can hit what an older one made stale.
    /// One that is gone holds up nobody, and neither does one that sleeps.
    #[must_use]
    pub fn answered(&self) -> Version {
        let answers = self.owners.iter().map(Lane::answered);
        answers.min().map_or(self.version, |least| least.min(self.version))
    }

    /// The engine's version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What it has done so far.
    #[must_use]
    pub const fn totals(&self) -> DeskTotals {
        self.totals
    }

    /// Number of entries that the engine watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.evictor.len()
    }

    /// Whether a turn is done at once: then anybody may do it.
    pub(crate) fn is_quick(&self) -> bool {
        let reported: usize = self.owners.iter().map(|lane| lane.ends.reports.slots()).sum();
        self.evictor.is_quick() && reported <= REPORTS_AT_ONCE
    }

    /// Where others wake the thread that turns this desk.
    #[must_use]
    pub const fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

impl Lane {
    const fn new(ends: DeskEnds, version: Version) -> Self {
        let (seq, learned) = (InstallNo(0), LessonNo(0));
        Self { ends, seq, evictions: Vec::new(), learned, told: learned, slept: version }
    }

    /// Posts an advance. An owner that sleeps has answered it (rule 10), and is woken only if there
    /// is something for it to do: entries to drop, or a queue that waits for its lesson.
    fn post(&mut self, advance: Advance) {
        let (version, learned) = (advance.version, advance.learned);
        let is_urgent = !advance.evictions.is_empty() || learned > self.told;
        self.ends.link.mailbox().post(advance);
        self.told = learned;
        if self.ends.link.waker().finds_asleep() {
            self.slept = version;
            if is_urgent {
                self.ends.link.waker().signal();
            }
        }
    }

    fn answered(&self) -> Version {
        self.ends.link.answered().max(self.slept)
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
        self.send_learned(Learned { change, lessons: Vec::new() }).map_err(|back| back.change)
    }

    /// The sender, which from now on does the desk's turn itself where that is done at once.
    #[must_use]
    pub fn helping(self, seat: &Arc<DeskSeat>) -> Self {
        Self { seat: Some(Arc::clone(seat)), ..self }
    }

    /// Hands in a change that answers lessons, also one of nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_learned(&self, learned: Learned) -> Result<(), Learned> {
        let is_small = learned.change.deltas.len() <= DELTAS_AT_ONCE;
        let sent = self.changes.try_send(learned);
        let is_done = is_small && self.seat.as_ref().is_some_and(|seat| seat.try_turn());
        if !is_done {
            self.waker.wake();
        }
        match sent {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(learned)) => Err(learned),
        }
    }
}

impl std::fmt::Debug for EvictionDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvictionDesk")
            .field("version", &self.version)
            .field("watched", &self.evictor.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}
