//! An exhaustive model of the protocol that carries versions and evictions to the owners of caches.
//!
//! The model runs the code of the switch: owners, reports and their rings, the eviction
//! coordinator, mailboxes and their merging. The model itself adds only the order of steps. Owners
//! install and expire entries and take invalidations; the coordinator takes reports and applies
//! changes. The model tries every order of these steps, breadth first, and does not try a known
//! state again. The model reaches a state by replaying all earlier steps, since rings cannot be
//! copied.
//!
//! The model checks two claims. In no state can a packet of an owner hit an entry that the owner's
//! version made stale. Once all queues are empty, the engine tracks exactly the entries that exist.
//!
//! The module `learning` models packets that cause learn requests, with the same code.
//!
//! Each rule of `shunt_datapath::evict::owner` has a test here. A model that finds no fault may
//! overlook faults. So the tests also break each rule, one at a time, in the engine or in the
//! harness around the real code. The model must then find the fault that the rule prevents.

#![expect(clippy::unwrap_used, reason = "a model that cannot be set up fails")]

#[path = "invalidation_model/learning.rs"]
mod learning;
#[path = "invalidation_model/rules.rs"]
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{Arc, Mutex},
};

use rtrb::{Consumer, RingBuffer};
use shunt_classifier::Version;
use shunt_datapath::{
    CoordinatorEndpoint, EvictionCoordinator, InstallError, Invalidation, LearnRequest, LearnSeq,
    Link, Owner, Waker, cache::EntryRef,
};
use shunt_flow::{FieldId, FlowKey, FlowMask, SparseKey, SparseMask};
use shunt_pipeline::{
    BridgeId, Delta, DropCause, EntryId, Evictor, InstallNo, Installed, Learning, Object, OwnerId,
    Time, Traversal,
};

/// The size of the model, and the rule that it breaks, if any.
#[derive(Clone, Copy, Debug)]
struct Model {
    owners: usize,
    installs: usize,
    expires: bool,
    sleeps: bool,
    broken: Option<Rule>,
}

/// A rule to break, with its number in `shunt_datapath::evict::owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// 1: the engine computes with indexed entries, but `seq` counts dequeued reports.
    SeqCoversWhatIsNotIndexed,
    /// 2: the engine records an install with a version older than the engine's.
    LateIsRecorded,
    /// 3: an owner does not report expired entries.
    ExpiryIsSilent,
    /// 4: merged invalidations carry the newest `seq`.
    MergeTakesNewestSeq,
    /// 5: an owner installs a translation although it adopted a newer version since.
    OldTranslationIsInstalled,
    /// 7: ids are slots, and a slot is used again before its `removed` report arrives.
    SlotIsReusedTooEarly,
    /// 10: an owner that wakes does not read its mailbox first.
    WakesBlindly,
    /// 10: the sender checks whether an owner sleeps before it posts the invalidation.
    LooksBeforeItPosts,
}

/// The last version: version 1 changes flow 0, and version 2 changes flow 1.
const LAST: u64 = 2;
/// Number of flows of the model.
const FLOWS: u16 = 2;

fn object(flow: u16) -> Object {
    Object::Ports(BridgeId::new(flow + 1))
}

fn changed_by(version: u64) -> u16 {
    u16::try_from(version - 1).unwrap()
}

/// Returns whether a decision for `flow` at version `seen` is wrong at `current`.
fn is_stale(flow: u16, seen: u64, current: u64) -> bool {
    (seen + 1..=current.min(LAST)).any(|version| changed_by(version) == flow)
}

/// Returns a traversal of `flow` that claims the version `label`.
/// The key encodes the version `seen` that really made the traversal.
fn traversal(flow: u16, seen: u64, label: Version) -> Arc<Traversal> {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::TcpSrc, u128::from(flow));
    key.set_field(FieldId::TcpDst, u128::from(seen));
    Arc::new(Traversal {
        version: label,
        key: SparseKey::from(&key),
        continuation: None,
        next: None,
        mask: SparseMask::from(&FlowMask::EMPTY),
        visits: Box::default(),
        reads: [object(flow)].into(),
        group_hits: Box::default(),
        output_hits: Box::default(),
        learnings: Vec::new(),
        refreshes: Box::default(),
        actions: Arc::new([]),
        error: None,
        drop_cause: DropCause::default(),
    })
}

fn flow_and_version(traversal: &Traversal) -> (u16, u64) {
    let field = |field| u64::try_from(traversal.key.field(field)).unwrap();
    (u16::try_from(field(FieldId::TcpSrc)).unwrap(), field(FieldId::TcpDst))
}

/// An eviction engine with optional faults, short enough for a review by eye.
struct Engine {
    broken: Option<Rule>,
    rows: Arc<Mutex<Rows>>,
}

/// The entries that the model engine tracks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rows {
    version: u64,
    /// The flow of each entry's traversal, and the version that made the traversal.
    indexed: BTreeMap<EntryId, (u16, u64)>,
    /// Entries that evictions do not consider yet; used only if rule 1 is broken.
    pending: BTreeMap<EntryId, (u16, u64)>,
    /// Delayed removals; used only if rule 7 is broken.
    delayed: Vec<EntryId>,
}

impl Engine {
    fn name(&self, entry: EntryId) -> EntryId {
        if self.broken == Some(Rule::SlotIsReusedTooEarly) {
            EntryId { generation: 0, ..entry }
        } else {
            entry
        }
    }
}

impl Evictor for Engine {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        let entry = self.name(entry);
        let mut rows = self.rows.lock().unwrap();
        let late = traversal.version.number() < rows.version;
        if late && self.broken != Some(Rule::LateIsRecorded) {
            return Installed::Late;
        }
        let row = (flow_and_version(traversal).0, traversal.version.number());
        if self.broken == Some(Rule::SeqCoversWhatIsNotIndexed) {
            rows.pending.insert(entry, row);
        } else {
            rows.indexed.insert(entry, row);
        }
        for entry in std::mem::take(&mut rows.delayed) {
            rows.indexed.remove(&entry);
        }
        Installed::Recorded
    }

    fn forget(&mut self, owner: OwnerId) {
        self.rows.lock().unwrap().indexed.retain(|entry, _| entry.owner != owner);
    }

    fn removed(&mut self, entry: EntryId) {
        let entry = self.name(entry);
        let mut rows = self.rows.lock().unwrap();
        if self.broken == Some(Rule::SlotIsReusedTooEarly) {
            rows.delayed.push(entry);
        } else {
            rows.indexed.remove(&entry);
            rows.pending.remove(&entry);
        }
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let mut rows = self.rows.lock().unwrap();
        rows.version = version.number();
        let is_changed = |flow: u16| {
            deltas.iter().any(|delta| matches!(delta, Delta::Changed(own) if *own == object(flow)))
        };
        let stale = rows
            .indexed
            .extract_if(.., |_, (flow, seen)| is_changed(*flow) && *seen < version.number());
        stale.map(|(entry, _)| entry).collect()
    }

    fn len(&self) -> usize {
        self.rows.lock().unwrap().indexed.len()
    }
}

/// The owners, the coordinator, and the messages between them.
struct ModelSystem {
    model: Model,
    owners: Vec<OwnerModel>,
    coordinator: EvictionCoordinator,
    rows: Arc<Mutex<Rows>>,
}

/// An owner of the model, with its link to the coordinator.
struct OwnerModel {
    owner: Owner,
    link: Arc<Link>,
    installs: usize,
    /// Flow and version of a translation that is not installed yet.
    /// Used only if rule 5 is broken.
    translated: Option<(u16, u64)>,
    /// Reports in transit; part of [`State`].
    sent: VecDeque<(EntryId, bool)>,
    /// Install numbers of live entries; part of [`State`].
    numbers: BTreeMap<EntryId, usize>,
    pace: Pace,
    /// True if the sender found the owner asleep before it posted.
    /// Used only if rule 10 is broken.
    found_asleep: bool,
    /// The version that counts as acknowledged because the owner seemed asleep.
    acked_when_asleep: u64,
}

/// The sleep state of an owner's packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pace {
    Awake,
    Asleep,
    /// Awake, but before the first read of the mailbox.
    Woken,
}

/// A step of one thread of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Change,
    TakeIn { owner: usize },
    Index,
    Translate { owner: usize, flow: u16 },
    Install { owner: usize, flow: u16 },
    Expire { owner: usize, slot: u32 },
    Invalidation { owner: usize },
    PreparePark { owner: usize },
    Wake { owner: usize },
    FindAsleep { owner: usize },
}

/// The identity of a state of the model.
type State = (u64, u64, Rows, Vec<OwnerModelState>);
type OwnerModelState = (
    u64,
    usize,
    Option<(u16, u64)>,
    Vec<(EntryId, usize, u16, u64)>,
    VecDeque<(EntryId, bool)>,
    Option<(u64, BTreeSet<EntryId>, u64)>,
    (Pace, bool, u64),
);

/// A violation of a claim of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ModelViolation {
    /// An owner can hit an entry that its version made stale.
    StaleHit,
    /// A version is acknowledged, but an owner without it can still forward a packet.
    AckedTooEarly,
    /// All queues are empty, and the engine tracks an entry that does not exist.
    PhantomRow,
    /// All queues are empty, and the engine does not track an entry that exists.
    UntrackedEntry,
}

impl ModelSystem {
    fn new(model: Model) -> Self {
        let rows = Arc::default();
        let engine = Box::new(Engine { broken: model.broken, rows: Arc::clone(&rows) });
        let (owners, ends): (Vec<_>, Vec<_>) = (0..model.owners).map(Self::new_owner).unzip();
        let waker = Arc::new(Waker::new().unwrap());
        let (coordinator, _) = EvictionCoordinator::new(engine, Version::ZERO, ends, waker);
        Self { model, owners, coordinator, rows }
    }

    fn new_owner(index: usize) -> (OwnerModel, CoordinatorEndpoint) {
        let id = OwnerId(u16::try_from(index).unwrap());
        let (reports, receiver) = RingBuffer::new(16);
        let link = Arc::new(Link::new(Version::ZERO).unwrap());
        let ends = CoordinatorEndpoint::new(id, receiver, Arc::clone(&link));
        let owner = Owner::new(id, Version::ZERO, 8, reports, RingBuffer::new(1).0);
        let (sent, numbers) = (VecDeque::new(), BTreeMap::new());
        let (installs, translated, pace) = (0, None, Pace::Awake);
        let (found_asleep, acked_when_asleep) = (false, 0);
        let owner_model = OwnerModel {
            owner,
            link,
            installs,
            translated,
            sent,
            numbers,
            pace,
            found_asleep,
            acked_when_asleep,
        };
        (owner_model, ends)
    }

    fn replay(model: Model, steps: &[Step]) -> Self {
        let mut system = Self::new(model);
        steps.iter().for_each(|step| system.run(*step));
        system
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Change => self.change(),
            Step::TakeIn { owner } => {
                assert!(self.coordinator.take_report(owner));
                self.owners[owner].sent.pop_front();
            }
            Step::Index => {
                let rows = &mut *self.rows.lock().unwrap();
                rows.indexed.append(&mut rows.pending);
            }
            Step::Translate { owner, flow } => {
                let owner_model = &mut self.owners[owner];
                owner_model.translated = Some((flow, owner_model.owner.version().number()));
            }
            Step::Install { owner, flow } => self.owners[owner].install(flow),
            Step::Expire { owner, slot } => {
                let silent = self.model.broken == Some(Rule::ExpiryIsSilent);
                self.owners[owner].expire(slot, silent);
            }
            Step::Invalidation { owner } => self.owners[owner].invalidation(),
            Step::PreparePark { owner } => self.owners[owner].prepare_park(),
            Step::Wake { owner } => {
                let owner_model = &mut self.owners[owner];
                owner_model.link.waker().unpark();
                let is_blind = self.model.broken == Some(Rule::WakesBlindly);
                owner_model.pace = if is_blind { Pace::Awake } else { Pace::Woken };
                owner_model.look();
            }
            Step::FindAsleep { owner } => self.owners[owner].found_asleep = true,
        }
    }

    fn change(&mut self) {
        let version = self.coordinator.version().next();
        let delta = Delta::Changed(object(changed_by(version.number())));
        let breaks_merge = self.model.broken == Some(Rule::MergeTakesNewestSeq);
        let earlier: Vec<Option<Invalidation>> = self
            .owners
            .iter()
            .map(|owner_model| breaks_merge.then(|| owner_model.link.mailbox().take()).flatten())
            .collect();
        self.coordinator.apply(version, &[delta]);
        for owner_model in self.owners.iter_mut().filter(|owner_model| owner_model.found_asleep) {
            (owner_model.found_asleep, owner_model.acked_when_asleep) = (false, version.number());
        }
        for (owner_model, earlier) in self.owners.iter().zip(earlier) {
            let mailbox = owner_model.link.mailbox();
            if let Some(mut merged) = earlier {
                let later = mailbox.take().unwrap();
                let seq = later.seq;
                merged.merge(later);
                mailbox.post(Invalidation { seq, ..merged });
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.coordinator.version().number() < LAST {
            steps.push(Step::Change);
        }
        if !self.rows.lock().unwrap().pending.is_empty() {
            steps.push(Step::Index);
        }
        for (owner, owner_model) in self.owners.iter().enumerate() {
            if !owner_model.sent.is_empty() {
                steps.push(Step::TakeIn { owner });
            }
            if owner_model.pace == Pace::Asleep {
                steps.push(Step::Wake { owner });
                let is_early = self.model.broken == Some(Rule::LooksBeforeItPosts);
                steps.extend(
                    (is_early && !owner_model.found_asleep).then_some(Step::FindAsleep { owner }),
                );
                continue;
            }
            if self.model.sleeps {
                steps.push(Step::PreparePark { owner });
            }
            if owner_model.link.mailbox().is_flagged() {
                steps.push(Step::Invalidation { owner });
            }
            if owner_model.pace == Pace::Woken {
                continue;
            }
            if owner_model.installs < self.model.installs {
                let slow = self.model.broken == Some(Rule::OldTranslationIsInstalled);
                steps.extend((0..FLOWS).filter_map(|flow| match owner_model.translated {
                    Some((own, _)) => (own == flow).then_some(Step::Install { owner, flow }),
                    None if slow => Some(Step::Translate { owner, flow }),
                    None => Some(Step::Install { owner, flow }),
                }));
            }
            if self.model.expires {
                let live = owner_model.live().into_iter();
                steps.extend(live.map(|(id, ..)| Step::Expire { owner, slot: id.slot }));
            }
        }
        steps
    }

    fn state(&self) -> State {
        let rows = self.rows.lock().unwrap().clone();
        let (version, acked) =
            (self.coordinator.version().number(), self.coordinator.acked_version().number());
        (version, acked, rows, self.owners.iter().map(OwnerModel::state).collect())
    }

    fn faults(&self) -> Vec<ModelViolation> {
        let mut faults = Vec::new();
        let live: Vec<_> = self.owners.iter().flat_map(OwnerModel::live).collect();
        for owner_model in &self.owners {
            let current = owner_model.owner.version().number();
            if owner_model.live().iter().any(|(_, _, flow, seen)| is_stale(*flow, *seen, current)) {
                faults.push(ModelViolation::StaleHit);
            }
            let acked =
                self.coordinator.acked_version().number().max(owner_model.acked_when_asleep);
            if owner_model.pace == Pace::Awake && current < acked {
                faults.push(ModelViolation::AckedTooEarly);
            }
        }
        let rows = self.rows.lock().unwrap();
        let is_quiet = self.coordinator.version().number() == LAST
            && rows.pending.is_empty()
            && rows.delayed.is_empty()
            && self.owners.iter().all(|owner_model| {
                owner_model.sent.is_empty() && !owner_model.link.mailbox().is_flagged()
            });
        if is_quiet && self.model.broken != Some(Rule::SlotIsReusedTooEarly) {
            let watched: BTreeSet<EntryId> = rows.indexed.keys().copied().collect();
            let exists: BTreeSet<EntryId> = live.iter().map(|(id, ..)| *id).collect();
            faults.extend((!watched.is_subset(&exists)).then_some(ModelViolation::PhantomRow));
            faults.extend((!exists.is_subset(&watched)).then_some(ModelViolation::UntrackedEntry));
        }
        faults
    }
}

impl OwnerModel {
    fn install(&mut self, flow: u16) {
        let current = self.owner.version();
        let (_, seen) = self.translated.take().unwrap_or_else(|| (flow, current.number()));
        let entry = self.owner.install(traversal(flow, seen, current), Time::ZERO).unwrap();
        self.installs += 1;
        let id = self.owner.entry_id(entry);
        self.sent.push_back((id, true));
        self.numbers.insert(id, self.installs);
    }

    fn expire(&mut self, slot: u32, silent: bool) {
        let entry = self.owner.entries().live_at(slot).unwrap();
        if silent {
            assert!(self.owner.entries_mut().kill(entry));
        } else {
            assert!(self.owner.expire(entry));
            self.sent.push_back((self.owner.entry_id(entry), false));
        }
        self.owner.entries_mut().reclaim();
    }

    fn invalidation(&mut self) {
        let invalidation = self.link.mailbox().take().unwrap();
        let before = self.owner.reported();
        self.owner.apply(&invalidation);
        assert_eq!(self.owner.reported(), before, "rule 3: an invalidation is not reported");
        self.link.ack(invalidation.version);
        while self.owner.entries_mut().reclaim().is_some() {}
        self.pace = Pace::Awake;
    }

    /// Goes to sleep like a packet thread: checks the mailbox once more first.
    fn prepare_park(&mut self) {
        self.link.waker().prepare_park();
        self.pace = Pace::Asleep;
        if self.link.mailbox().is_flagged() {
            self.link.waker().unpark();
            self.pace = Pace::Woken;
        }
    }

    /// Checks the mailbox; a woken owner with an empty mailbox is then awake.
    fn look(&mut self) {
        if self.pace == Pace::Woken && !self.link.mailbox().is_flagged() {
            self.pace = Pace::Awake;
        }
    }

    fn live(&self) -> Vec<(EntryId, usize, u16, u64)> {
        let entries = self.owner.entries();
        let slots = 0..u32::try_from(entries.slots()).unwrap();
        let live = slots.filter_map(|slot| entries.live_at(slot));
        let named = live.map(|entry: EntryRef| {
            let id = self.owner.entry_id(entry);
            let (flow, seen) = flow_and_version(entries.traversal(entry.slot).unwrap());
            (id, self.numbers[&id], flow, seen)
        });
        named.collect()
    }

    fn state(&self) -> OwnerModelState {
        let mailbox = self.link.mailbox();
        let pending = mailbox.take().map(|invalidation| {
            let evictions = invalidation.evictions.iter().flatten().copied().collect();
            let pending = (invalidation.version.number(), evictions, invalidation.seq.0);
            mailbox.post(invalidation);
            pending
        });
        let version = self.owner.version().number();
        let pace = (self.pace, self.found_asleep, self.acked_when_asleep);
        (version, self.installs, self.translated, self.live(), self.sent.clone(), pending, pace)
    }
}

/// Tries every interleaving; returns the number of states and the faults found.
///
/// Each fault comes with a shortest sequence of steps that leads to it.
fn explore(model: Model) -> (usize, BTreeMap<ModelViolation, Vec<Step>>) {
    let mut seen: HashSet<State> = HashSet::new();
    let mut faults = BTreeMap::new();
    let start = ModelSystem::new(model);
    seen.insert(start.state());
    let mut queue = VecDeque::from([(Vec::new(), start.steps())]);
    while let Some((path, steps)) = queue.pop_front() {
        for step in steps {
            let path: Vec<Step> = path.iter().copied().chain([step]).collect();
            let system = ModelSystem::replay(model, &path);
            if !seen.insert(system.state()) {
                continue;
            }
            for fault in system.faults() {
                faults.entry(fault).or_insert_with(|| path.clone());
            }
            queue.push_back((path, system.steps()));
        }
    }
    (seen.len(), faults)
}
