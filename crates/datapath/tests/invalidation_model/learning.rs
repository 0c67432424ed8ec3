//! A model of packets that cause learn requests.
//!
//! Each owner has a queue of packets. After a packet that sent a learn request, the next packet
//! must be forwarded by a version that includes the request, and no queue may wait forever. The
//! harness acts as the control thread, which publishes versions with learn requests. Owners,
//! coordinator and mailboxes run the code of the switch.

use super::*;

/// A rule to break, with its number in `shunt_datapath::evict::owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// 8: packets after a packet that sent a learn request do not wait.
    NoPacketIsHeld,
    /// 9: the control thread acknowledges a learn request when it takes the request.
    /// The version of the request is not yet published then.
    AckedTooEarly,
    /// 9: merged invalidations carry only the earlier invalidation's learn requests.
    MergeForgetsLearnRequests,
    /// 9: a learn request that changes nothing is not acknowledged.
    NothingIsNotAcked,
    /// 9: an acknowledgement without a change evicts entries installed meanwhile.
    NothingDropsInstalls,
}

/// A violation of a claim of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelViolation {
    /// A packet was forwarded without an earlier learn request of its queue.
    Overtaken,
    /// A queue waits although no message is in transit.
    WaitsForEver,
    /// An entry that no version made stale is missing.
    LostEntry,
}

/// A step of one thread of the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A change that is unrelated to learn requests.
    Change,
    /// The control thread takes learn requests, to publish them later.
    Collect,
    /// The control thread publishes a version with the learn requests that it took.
    /// Learn requests without a new fact make no version.
    Publish,
    /// The coordinator applies the next change.
    Coordinator,
    /// An owner forwards the next packet of its queue.
    Forward(usize),
    /// An owner takes the invalidation from its mailbox.
    Invalidation(usize),
}

/// The facts that the packets of each queue learn, in order.
const QUEUE: [u64; 3] = [7, 8, 7];

/// The size of a model.
#[derive(Clone, Copy, Debug)]
struct Size {
    owners: usize,
    packets: usize,
    changes: usize,
}

/// A model with one owner.
const ONE: Size = Size { owners: 1, packets: 3, changes: 2 };
/// A model with two owners.
const TWO: Size = Size { owners: 2, packets: 2, changes: 1 };

/// The owners, the coordinator, and the learn requests between them.
struct ModelSystem {
    size: Size,
    broken: Option<Broken>,
    owners: Vec<OwnerModel>,
    coordinator: EvictionCoordinator,
    changes: usize,
    /// The learned facts of each published version, from version 1 on.
    published: Vec<BTreeSet<u64>>,
    taken: Vec<(OwnerId, LearnSeq, u64)>,
    sent: VecDeque<Sent>,
    overtaken: bool,
}

/// An owner of the model, with its queue of packets that learn.
struct OwnerModel {
    owner: Owner,
    link: Arc<Link>,
    learn_requests: Consumer<LearnRequest>,
    forwarded: usize,
    awaited: Option<LearnSeq>,
}

/// A message to the coordinator about a version.
/// The flag is true for a new version. The list contains the learn requests that the message
/// acknowledges.
type Sent = (Version, bool, Vec<(OwnerId, LearnSeq)>);

/// The identity of a state of the model.
type State = (
    (usize, Vec<BTreeSet<u64>>, Vec<(OwnerId, LearnSeq, u64)>, u64, bool),
    VecDeque<Sent>,
    Vec<(u64, usize, Option<LearnSeq>, bool, usize, Option<(u64, u64, LearnSeq)>)>,
);

/// An engine that tracks no entries: no change makes an entry stale.
struct Nothing;

impl Evictor for Nothing {
    fn forget(&mut self, _: OwnerId) {}

    fn installed(&mut self, _: EntryId, _: &Arc<Traversal>) -> Installed {
        Installed::Recorded
    }

    fn removed(&mut self, _: EntryId) {}

    fn apply(&mut self, _: &[Delta], _: Version) -> Vec<EntryId> {
        Vec::new()
    }

    fn len(&self) -> usize {
        0
    }
}

impl ModelSystem {
    fn new(size: Size, broken: Option<Broken>) -> Self {
        let (owners, ends): (Vec<_>, Vec<_>) = (0..size.owners).map(Self::new_owner).unzip();
        let waker = Arc::new(Waker::new().unwrap());
        let (mut coordinator, _) =
            EvictionCoordinator::new(Box::new(Nothing), Version::ZERO, ends, waker);
        coordinator.take_reports();
        Self {
            size,
            broken,
            owners,
            coordinator,
            changes: 0,
            published: Vec::new(),
            taken: Vec::new(),
            sent: VecDeque::new(),
            overtaken: false,
        }
    }

    fn new_owner(index: usize) -> (OwnerModel, CoordinatorEndpoint) {
        let id = OwnerId(u16::try_from(index).unwrap());
        let (reports, receiver) = RingBuffer::new(2);
        let (learn_requests, requests) = RingBuffer::new(8);
        let link = Arc::new(Link::new(Version::ZERO).unwrap());
        let ends = CoordinatorEndpoint::new(id, receiver, Arc::clone(&link));
        let mut owner = Owner::new(id, Version::ZERO, 8, reports, learn_requests);
        owner.install(traversal(0, 0, Version::ZERO), Time::ZERO).unwrap();
        (OwnerModel { owner, link, learn_requests: requests, forwarded: 0, awaited: None }, ends)
    }

    fn rules_seen_by(&self, version: u64) -> BTreeSet<u64> {
        let index = usize::try_from(version).unwrap().checked_sub(1);
        index.map(|index| self.published[index].clone()).unwrap_or_default()
    }

    fn newest(&self) -> Version {
        Version::new(self.published.len() as u64)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Change => {
                self.changes += 1;
                self.publish(self.rules_seen_by(self.newest().number()), Vec::new());
            }
            Step::Collect => self.collect(),
            Step::Publish => self.learn(),
            Step::Coordinator => self.notify_coordinator(),
            Step::Forward(owner) => self.forward(owner),
            Step::Invalidation(owner) => {
                let owner_model = &mut self.owners[owner];
                let invalidation = owner_model.link.mailbox().take().unwrap();
                owner_model.owner.apply(&invalidation);
                if owner_model
                    .awaited
                    .is_some_and(|learn_request| owner_model.owner.has_learned(learn_request))
                {
                    owner_model.awaited = None;
                }
            }
        }
    }

    fn publish(&mut self, known: BTreeSet<u64>, learn_requests: Vec<(OwnerId, LearnSeq)>) {
        self.published.push(known);
        self.sent.push_back((self.newest(), true, learn_requests));
    }

    fn collect(&mut self) {
        let mut early = Vec::new();
        for (index, owner_model) in self.owners.iter_mut().enumerate() {
            let owner = OwnerId(u16::try_from(index).unwrap());
            while let Ok(learn_request) = owner_model.learn_requests.pop() {
                let fact = QUEUE[usize::try_from(learn_request.number.0 - 1).unwrap()];
                self.taken.push((owner, learn_request.number, fact));
                early.push((owner, learn_request.number));
            }
        }
        if self.broken == Some(Broken::AckedTooEarly) {
            self.sent.push_back((self.newest(), false, early));
        }
    }

    fn learn(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        let learn_requests =
            taken.iter().map(|(owner, learn_request, _)| (*owner, *learn_request)).collect();
        let before = self.rules_seen_by(self.newest().number());
        let mut known = before.clone();
        known.extend(taken.iter().map(|(.., fact)| *fact));
        if known != before {
            self.publish(known, learn_requests);
        } else if self.broken != Some(Broken::NothingIsNotAcked) {
            self.sent.push_back((self.newest(), false, learn_requests));
        }
    }

    fn notify_coordinator(&mut self) {
        let (version, is_new, learn_requests) = self.sent.pop_front().unwrap();
        let breaks_merge = self.broken == Some(Broken::MergeForgetsLearnRequests);
        let earlier: Vec<Option<Invalidation>> = self
            .owners
            .iter()
            .map(|owner_model| breaks_merge.then(|| owner_model.link.mailbox().take()).flatten())
            .collect();
        self.coordinator.take_reports();
        if is_new {
            self.coordinator.apply_learned(version, &[], &learn_requests);
        } else {
            self.coordinator.ack_learn_requests(&learn_requests);
        }
        for (owner_model, earlier) in self.owners.iter().zip(earlier) {
            let mailbox = owner_model.link.mailbox();
            if let Some(earlier) = earlier {
                let learned = earlier.learned;
                let mut merged = earlier;
                if let Some(later) = mailbox.take() {
                    merged.merge(later);
                }
                mailbox.post(Invalidation { learned, ..merged });
            }
            if self.broken == Some(Broken::NothingDropsInstalls)
                && !is_new
                && let Some(invalidation) = mailbox.take()
            {
                mailbox.post(Invalidation { seq: InstallNo(0), ..invalidation });
            }
        }
    }

    /// Forwards the next packet of an owner.
    /// The packet sends a learn request, for which its queue waits, if the owner's version lacks
    /// its fact.
    fn forward(&mut self, owner: usize) {
        let at = self.owners[owner].owner.version().number();
        let known = self.rules_seen_by(at);
        let owner_model = &mut self.owners[owner];
        let before = &QUEUE[..owner_model.forwarded];
        self.overtaken |= before.iter().any(|fact| !known.contains(fact));
        if known.contains(&QUEUE[owner_model.forwarded]) {
            // Each packet uses up one number of a learn request, in this model.
            owner_model.owner.learn(Vec::new()).unwrap();
            drop(owner_model.learn_requests.pop().unwrap());
        } else {
            owner_model.awaited = Some(owner_model.owner.learn(Vec::<Learning>::new()).unwrap());
        }
        owner_model.forwarded += 1;
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.changes < self.size.changes {
            steps.push(Step::Change);
        }
        if self.owners.iter().any(|owner_model| owner_model.learn_requests.slots() > 0) {
            steps.push(Step::Collect);
        }
        if !self.taken.is_empty() {
            steps.push(Step::Publish);
        }
        if !self.sent.is_empty() {
            steps.push(Step::Coordinator);
        }
        for (owner, owner_model) in self.owners.iter().enumerate() {
            let waits =
                owner_model.awaited.is_some() && self.broken != Some(Broken::NoPacketIsHeld);
            if owner_model.forwarded < self.size.packets && !waits {
                steps.push(Step::Forward(owner));
            }
            if owner_model.link.mailbox().is_flagged() {
                steps.push(Step::Invalidation(owner));
            }
        }
        steps
    }

    fn state(&self) -> State {
        let version = self.coordinator.version().number();
        let owner_models = self.owners.iter().map(|owner_model| {
            let pending = owner_model.link.mailbox().take().map(|invalidation| {
                let pending =
                    (invalidation.version.number(), invalidation.seq.0, invalidation.learned);
                owner_model.link.mailbox().post(invalidation);
                pending
            });
            (
                owner_model.owner.version().number(),
                owner_model.forwarded,
                owner_model.awaited,
                owner_model.owner.entries().is_empty(),
                owner_model.learn_requests.slots(),
                pending,
            )
        });
        let shared =
            (self.changes, self.published.clone(), self.taken.clone(), version, self.overtaken);
        (shared, self.sent.clone(), owner_models.collect())
    }

    fn fault(&self) -> Option<ModelViolation> {
        let waits = self.owners.iter().any(|owner_model| owner_model.awaited.is_some());
        if self.overtaken {
            Some(ModelViolation::Overtaken)
        } else if waits && self.steps().is_empty() {
            Some(ModelViolation::WaitsForEver)
        } else if self.owners.iter().any(|owner_model| owner_model.owner.entries().is_empty()) {
            Some(ModelViolation::LostEntry)
        } else {
            None
        }
    }
}

/// Tries every interleaving; returns the number of states and the first fault.
///
/// The fault comes with a shortest sequence of steps that leads to it.
fn explore(size: Size, broken: Option<Broken>) -> (usize, Option<(ModelViolation, Vec<Step>)>) {
    let mut seen: HashSet<State> = HashSet::new();
    let start = ModelSystem::new(size, broken);
    seen.insert(start.state());
    let mut queue = VecDeque::from([(Vec::new(), start.steps())]);
    while let Some((path, steps)) = queue.pop_front() {
        for step in steps {
            let path: Vec<Step> = path.iter().copied().chain([step]).collect();
            let mut system = ModelSystem::new(size, broken);
            path.iter().for_each(|step| system.run(*step));
            if !seen.insert(system.state()) {
                continue;
            }
            if let Some(fault) = system.fault() {
                return (seen.len(), Some((fault, path)));
            }
            queue.push_back((path, system.steps()));
        }
    }
    (seen.len(), None)
}

fn check(size: Size) -> usize {
    let (states, fault) = explore(size, None);
    assert!(fault.is_none(), "{fault:#?}");
    states
}

fn check_broken(broken: Broken, expected: ModelViolation) {
    let (_, fault) = explore(TWO, Some(broken));
    let found = fault.as_ref().map(|(fault, _)| *fault);
    assert_eq!(found, Some(expected), "breaking {broken:?} leads to {fault:?}");
}

#[test]
fn learn_request_queue_is_safe_in_every_interleaving() {
    let states = check(ONE);
    assert!(states > 100, "{states}");
}

#[test]
fn two_queues_with_one_fact_are_always_safe() {
    let states = check(TWO);
    assert!(states > 1000, "{states}");
}

#[test]
fn rule_8_packets_behind_a_learning_packet_wait() {
    check_broken(Broken::NoPacketIsHeld, ModelViolation::Overtaken);
}

#[test]
fn rule_9_version_acknowledges_learn_request() {
    check_broken(Broken::AckedTooEarly, ModelViolation::Overtaken);
}

#[test]
fn rule_9_merged_invalidations_carry_last_learn_request() {
    check_broken(Broken::MergeForgetsLearnRequests, ModelViolation::WaitsForEver);
}

#[test]
fn rule_9_learn_request_without_change_is_acknowledged() {
    check_broken(Broken::NothingDropsInstalls, ModelViolation::LostEntry);
    check_broken(Broken::NothingIsNotAcked, ModelViolation::WaitsForEver);
}
