//! The task that holds a session: batches in, answers out, again and again from the beginning.
//!
//! While the device works on one write the next is already on its way, [`FLIGHTS_MAX`] at most. Those
//! that are under way at the same time are of one kind and change different entries, so that it makes
//! no difference to what the device holds which it takes first. Meanwhile an entry may be there before
//! the one that it leads to, which is a miss and no more. Whoever writes one by one is sent at once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::{HashMap, HashSet};
use prost::Message;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{Lost, LtmIndex, OffloadError, OffloadEvent, Refusal, Ticket},
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use tonic::Code;
use tracing::{debug, info, warn};

use super::{
    SessionError, Settings,
    batch::{Answer, Flight, Held, Kind, Landed, Manner, Part, Task, count, remove, write},
    encoded::{Counted, counter_question},
    repair::{Meant, restore},
    session::{Session, packet_of},
    told::{Teller, Told},
};
use crate::{
    error::{Limit, PartCode},
    wire::p4::v1::{TableEntry, stream_message_response, update::Type},
};

/// Entries that are counted one by one; of more the whole stages are read.
const COUNT_ALONE_MAX: usize = 64;

/// The longest pause between two tries to connect, as a multiple of the first.
const RETRY_MULTIPLE_MAX: u32 = 16;

/// Writes under way.
const FLIGHTS_MAX: usize = 4;

/// The other end of a target.
pub(super) struct Worker {
    settings: Arc<Settings>,
    tasks: mpsc::Receiver<Vec<Task>>,
    teller: Teller,
    meant: Meant,
    election: u128,
    /// The id of the session that there was.
    had: Option<u128>,
    /// Updates of one write: fewer after one that took too long.
    batch: usize,
    /// The device has said in this session that something is wrong: the log has it.
    has_complained: bool,
}

/// Some entries.
type Entries = HashSet<LtmIndex, foldhash::fast::FixedState>;

/// The writes and reads of a session that are under way.
#[derive(Default)]
struct Flights {
    numbers: u64,
    under_way: HashMap<u64, Flight, foldhash::fast::FixedState>,
    /// The entries that they change.
    entries: Entries,
    landing: JoinSet<Landed>,
    /// Tasks that came, and wait for those under way to end.
    waiting: VecDeque<Task>,
}

impl Flights {
    /// Whether a task may be under way beside the others. Counting changes nothing, so it is beside
    /// anything: what is to go does not wait until all has been counted.
    fn takes(&self, task: &Task) -> bool {
        let is_like = |flight: &Flight| {
            flight.kind == task.kind() || [flight.kind, task.kind()].contains(&Kind::Count)
        };
        self.under_way.values().all(is_like) && self.is_apart(task)
    }

    /// Whether a task changes no entry that another is changing.
    fn is_apart(&self, task: &Task) -> bool {
        task.entry().is_none_or(|entry| !self.entries.contains(&entry))
    }

    fn begin(
        &mut self,
        flight: Flight,
        request: impl Future<Output = Result<Answer, SessionError>> + Send + 'static,
    ) {
        let number = self.numbers;
        self.numbers += 1;
        self.entries.extend(flight.parts.iter().map(|part| part.entry));
        self.under_way.insert(number, flight);
        self.landing.spawn(async move { Landed { number, result: request.await } });
    }

    fn end(&mut self, number: u64) -> Option<Flight> {
        let flight = self.under_way.remove(&number)?;
        for part in &flight.parts {
            self.entries.remove(&part.entry);
        }
        Some(flight)
    }
}

impl Worker {
    pub(super) fn new(
        settings: Arc<Settings>,
        tasks: mpsc::Receiver<Vec<Task>>,
        teller: Teller,
    ) -> Self {
        let (election, batch) = (settings.election_id, settings.batch.max(1));
        let meant = Meant::default();
        Self { settings, tasks, teller, meant, election, had: None, batch, has_complained: false }
    }

    /// Works until the target is dropped.
    pub(super) async fn run(mut self) {
        let mut pause = self.settings.retry;
        loop {
            let mut flights = Flights::default();
            let ended = match self.session().await {
                Ok(mut session) => {
                    pause = self.settings.retry;
                    match self.serve(&mut session, &mut flights).await {
                        Ok(()) => return,
                        Err(error) => {
                            self.settings.trouble.note(&error);
                            warn!(%error, "the device is lost");
                            self.fail_all(&mut flights);
                            self.tell(OffloadEvent::Lost(Lost));
                            error
                        }
                    }
                }
                Err(error) => {
                    if self.settings.trouble.note(&error) {
                        let why = self.settings.trouble.text().unwrap_or_default();
                        warn!(
                            address = self.settings.address,
                            why, "no session: it is tried again"
                        );
                    }
                    error
                }
            };
            self.learn(&ended);
            if !self.rest(pause).await {
                return;
            }
            pause = (pause * 2).min(self.settings.retry * RETRY_MULTIPLE_MAX);
        }
    }

    async fn session(&mut self) -> Result<Session, SessionError> {
        self.had = None;
        let mut session = Session::open(&self.settings, self.election).await?;
        // What this session has sent may arrive when it is long over: the next one has a higher id, and
        // the device refuses the writes of this one from then on.
        self.had = Some(self.election);
        self.election = self.election.saturating_add(1);
        session.prepare().await?;
        let held = if session.is_known { session.requests.read_all().await? } else { Vec::new() };
        while let Ok(tasks) = self.tasks.try_recv() {
            self.turn_down(tasks);
        }
        let (settings, meant) = (Arc::clone(&self.settings), &mut self.meant);
        restore(&mut session.requests, (&settings, self.batch), meant, held).await?;
        self.has_complained = false;
        for entry in std::mem::take(&mut self.meant.lost) {
            // It cannot hold again what it held: its owner hears that it is idle for good, and removes
            // it.
            self.tell(OffloadEvent::Idle { entry });
        }
        info!(held = self.meant.confirmed.len(), "the device holds what it confirmed");
        let mut counts = BTreeMap::new();
        for held in self.meant.confirmed.values() {
            let table = self.settings.program.table_id(held.stage.number());
            *counts.entry(table).or_default() += 1;
        }
        self.settings.trouble.clear();
        self.teller.tell(Told::Restored(counts));
        Ok(session)
    }

    async fn serve(
        &mut self,
        session: &mut Session,
        flights: &mut Flights,
    ) -> Result<(), SessionError> {
        loop {
            if let Some(task) = flights.waiting.front()
                && flights.under_way.len() < FLIGHTS_MAX
                && flights.takes(task)
            {
                self.begin(session, flights).await?;
                continue;
            }
            let is_free = flights.waiting.is_empty() && flights.under_way.len() < FLIGHTS_MAX;
            tokio::select! {
                Some(landed) = flights.landing.join_next() => {
                    // A request that panicked is one that was lost.
                    let landed = landed.map_err(|_| SessionError::Ended)?;
                    self.land(session, flights, landed)?;
                }
                tasks = self.tasks.recv(), if is_free => match tasks {
                    Some(tasks) => flights.waiting.extend(tasks),
                    None => return Ok(()),
                },
                message = session.next() => {
                    let message = message?;
                    self.hear(message);
                }
            }
        }
    }

    /// Begins with the task that has waited longest, and with those of its kind behind it.
    async fn begin(
        &mut self,
        session: &Session,
        flights: &mut Flights,
    ) -> Result<(), SessionError> {
        let Some(first) = flights.waiting.pop_front() else { return Ok(()) };
        let kind = first.kind();
        let mut batch = vec![first];
        while batch.len() < self.batch {
            if flights.waiting.is_empty() {
                let Ok(more) = self.tasks.try_recv() else { break };
                flights.waiting.extend(more);
            }
            let is_next = |task: &Task| task.kind() == kind && flights.is_apart(task);
            if !flights.waiting.front().is_some_and(is_next) {
                break;
            }
            batch.extend(flights.waiting.pop_front());
        }
        match kind {
            Kind::Insert => self.insert(session, flights, batch),
            Kind::Modify => self.modify(session, flights, batch),
            Kind::Remove => self.remove(session, flights, batch),
            Kind::Count => self.count(session, flights, batch),
            // It is there, and the removal follows.
            Kind::Forget => {}
            Kind::Send => {
                for task in batch {
                    if let Task::Send(packet) = task {
                        session.send_packet(packet).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn insert(&self, session: &Session, flights: &mut Flights, batch: Vec<Task>) {
        let mut updates = Vec::with_capacity(batch.len());
        let mut parts = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Insert { ticket, entry, held, update } = task else { continue };
            updates.push(update);
            parts.push(Part { ticket, entry, held });
        }
        let request = write(session.requests.clone(), updates, Manner::Batch);
        flights.begin(flight(Kind::Insert, parts), request);
    }

    fn modify(&self, session: &Session, flights: &mut Flights, batch: Vec<Task>) {
        let mut updates = Vec::with_capacity(batch.len());
        let mut parts = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Modify { ticket, entry, rule } = task else { continue };
            let Some(known) = self.meant.confirmed.get(&entry) else {
                self.answer(ticket, Err(OffloadError::NoSuchEntry));
                continue;
            };
            let held = Held { stage: known.stage, rule: Arc::new(modified(&known.rule, &rule)) };
            match held.update(&self.settings, (Type::Modify, entry)) {
                Ok(update) => {
                    updates.push(update);
                    parts.push(Part { ticket, entry, held });
                }
                Err(refusal) => self.answer(ticket, Err(refusal.into())),
            }
        }
        if !parts.is_empty() {
            let request = write(session.requests.clone(), updates, Manner::Batch);
            flights.begin(flight(Kind::Modify, parts), request);
        }
    }

    fn remove(&self, session: &Session, flights: &mut Flights, batch: Vec<Task>) {
        let mut parts = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Remove { ticket, entry } = task else { continue };
            let Some(held) = self.meant.confirmed.get(&entry) else {
                self.answer(ticket, Err(OffloadError::NoSuchEntry));
                continue;
            };
            match held.place(&self.settings) {
                Ok(place) => {
                    places.push(place);
                    parts.push(Part { ticket, entry, held: held.clone() });
                }
                Err(refusal) => self.answer(ticket, Err(refusal.into())),
            }
        }
        if !parts.is_empty() {
            let request = remove(session.requests.clone(), places);
            flights.begin(flight(Kind::Remove, parts), request);
        }
    }

    fn count(&self, session: &Session, flights: &mut Flights, batch: Vec<Task>) {
        let mut counting = flight(Kind::Count, Vec::new());
        for task in batch {
            let Task::Count { ticket, entries } = task else { continue };
            let is_known = |entry: &LtmIndex| self.meant.confirmed.contains_key(entry);
            if entries.iter().all(is_known) {
                counting.tickets.push(ticket);
            } else {
                // Who asks for what is not there is to hear that it is idle for good.
                let unknown = entries.iter().filter(|entry| !is_known(entry));
                unknown.for_each(|entry| self.tell(OffloadEvent::Idle { entry: *entry }));
                self.answer(ticket, Err(OffloadError::NoSuchEntry));
            }
            counting.asked.extend(entries);
        }
        let known =
            || counting.asked.iter().filter_map(|entry| self.meant.confirmed.get_key_value(entry));
        let questions = if counting.asked.len() <= COUNT_ALONE_MAX {
            let place = |(_, held): (&LtmIndex, &Held)| held.place(&self.settings).ok();
            known().filter_map(place).map(|place| counter_question(&place)).collect()
        } else {
            let stages: BTreeSet<u8> = known().map(|(_, held)| held.stage.number()).collect();
            let tables = stages.into_iter().map(|stage| self.settings.program.table_id(stage));
            let whole = |table_id| TableEntry { table_id, ..TableEntry::default() };
            tables.map(|table| counter_question(&whole(table).encode_to_vec())).collect()
        };
        flights.begin(counting, count(session.requests.clone(), questions));
    }

    fn land(
        &mut self,
        session: &Session,
        flights: &mut Flights,
        landed: Landed,
    ) -> Result<(), SessionError> {
        let answer = match landed.result {
            Ok(answer) => answer,
            Err(SessionError::NoDetails(status)) => {
                debug!(%status, "a batch is written again one by one");
                let again = flights.under_way.get(&landed.number).map(|flight| flight.kind);
                if matches!(again, Some(Kind::Insert | Kind::Modify)) {
                    return self.write_again(session, flights, landed.number);
                }
                return Err(SessionError::NoDetails(status));
            }
            Err(error) => return Err(error),
        };
        let Some(flight) = flights.end(landed.number) else { return Ok(()) };
        self.batch = self.batch.saturating_mul(2).clamp(1, self.settings.batch.max(1));
        let asked = (flight.kind == Kind::Count).then_some(&flight.asked);
        let mut events = self.counted(&answer.counted, asked, &flights.entries);
        events.reserve(flight.parts.len() + flight.tickets.len());
        for (part, code) in flight.parts.into_iter().zip(answer.codes) {
            // What is not there is gone.
            let is_gone = flight.kind == Kind::Remove && code.code == Code::NotFound;
            let result = if is_gone { Ok(()) } else { result_of(code) };
            match (&result, flight.kind) {
                (Err(_), _) => {}
                (Ok(()), Kind::Remove) => {
                    self.meant.confirmed.remove(&part.entry);
                }
                (Ok(()), _) => {
                    self.meant.confirmed.insert(part.entry, part.held);
                }
            }
            events.push(OffloadEvent::Completed { ticket: part.ticket, result });
        }
        let counted = flight.tickets.into_iter();
        events.extend(counted.map(|ticket| OffloadEvent::Completed { ticket, result: Ok(()) }));
        self.teller.tell(Told::Events(events));
        Ok(())
    }

    /// Writes a batch again, one update after the other.
    fn write_again(
        &self,
        session: &Session,
        flights: &mut Flights,
        number: u64,
    ) -> Result<(), SessionError> {
        let Some(flight) = flights.under_way.get(&number) else { return Ok(()) };
        let kind = if flight.kind == Kind::Modify { Type::Modify } else { Type::Insert };
        let again = |part: &Part| Ok(part.held.update(&self.settings, (kind, part.entry))?);
        // Some may have been done: one that cannot be said any more is read back.
        let updates: Result<Vec<_>, SessionError> = flight.parts.iter().map(again).collect();
        let request = write(session.requests.clone(), updates?, Manner::OneByOne);
        if let Some(flight) = flights.end(number) {
            flights.begin(flight, request);
        }
        Ok(())
    }

    /// What was counted of entries that were `asked` for, but for those that `leave`: they come with a
    /// count of their own, which may be older, and counters only grow.
    fn counted(
        &self,
        found: &[Counted],
        asked: Option<&Entries>,
        leave: &Entries,
    ) -> Vec<OffloadEvent> {
        let is_meant = |Counted { entry, .. }: &&Counted| {
            asked.is_none_or(|asked| asked.contains(entry))
                && !leave.contains(entry)
                && self.meant.confirmed.contains_key(entry)
        };
        let meant = found.iter().filter(is_meant);
        meant
            .map(|Counted { entry, counters }| OffloadEvent::Counted {
                entry: *entry,
                counters: *counters,
            })
            .collect()
    }

    fn hear(&mut self, message: stream_message_response::Update) {
        use stream_message_response::Update;
        match message {
            Update::Packet(packet) => {
                if let Some(packet) = packet_of(packet) {
                    self.teller.tell(Told::Packet(packet));
                }
            }
            Update::IdleTimeoutNotification(notice) => {
                for value in notice.table_entry {
                    let entry = LtmIndex(value.controller_metadata);
                    if self.meant.confirmed.contains_key(&entry) {
                        self.tell(OffloadEvent::Idle { entry });
                    }
                }
            }
            Update::Error(error) => {
                let (code, message) = (error.canonical_code, error.message);
                // A device may say so of every packet.
                if std::mem::replace(&mut self.has_complained, true) {
                    debug!(code, message, "the device says");
                } else {
                    warn!(code, message, "the device says");
                }
            }
            Update::Arbitration(_) | Update::Digest(_) | Update::Other(_) => {}
        }
    }

    /// Comes with a higher id the next time if this one is taken, or not above that of a primary that is
    /// gone. As long as another is the primary it comes with the same, and waits.
    fn learn(&mut self, error: &SessionError) {
        match error {
            SessionError::TooLow(highest) => {
                self.election = self.election.max(highest.saturating_add(1));
            }
            SessionError::ElectionTaken => self.election = self.election.saturating_add(1),
            // The other has a higher id, which keeps out what this one has sent.
            SessionError::Backup => self.election = self.had.unwrap_or(self.election),
            SessionError::Silent => self.batch = (self.batch / 2).max(1),
            SessionError::Connect(_)
            | SessionError::Refused(_)
            | SessionError::Ended
            | SessionError::NoDetails(_)
            | SessionError::Repair(_)
            | SessionError::Unrepaired
            | SessionError::StartTag(_)
            | SessionError::Endless { .. }
            | SessionError::Unsaid(_)
            | SessionError::Answers { .. } => {}
        }
    }

    /// Pauses; what comes meanwhile is answered. Says whether the target is still there.
    async fn rest(&mut self, pause: Duration) -> bool {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                tasks = self.tasks.recv() => match tasks {
                    Some(tasks) => self.turn_down(tasks),
                    None => return false,
                },
            }
        }
    }

    /// Answers what is asked of a device that is lost. What is to go is not put back into it.
    fn turn_down(&mut self, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            if let Task::Remove { entry, .. } | Task::Forget { entry } = task {
                self.meant.confirmed.remove(&entry);
            }
            task.ticket().into_iter().for_each(|ticket| self.fail(ticket));
        }
    }

    /// Answers all that is under way to a device that is lost.
    fn fail_all(&mut self, flights: &mut Flights) {
        for (_, flight) in flights.under_way.drain() {
            for part in &flight.parts {
                if flight.kind == Kind::Remove {
                    self.meant.confirmed.remove(&part.entry);
                }
                self.fail(part.ticket);
            }
            flight.tickets.into_iter().for_each(|ticket| self.fail(ticket));
        }
        self.turn_down(flights.waiting.drain(..));
    }

    fn fail(&self, ticket: Ticket) {
        self.answer(ticket, Err(OffloadError::Lost(Lost)));
    }

    fn answer(&self, ticket: Ticket, result: Result<(), OffloadError>) {
        self.tell(OffloadEvent::Completed { ticket, result });
    }

    fn tell(&self, event: OffloadEvent) {
        self.teller.tell(Told::Events(vec![event]));
    }
}

fn flight(kind: Kind, parts: Vec<Part>) -> Flight {
    Flight { kind, parts, tickets: Vec::new(), asked: HashSet::default() }
}

/// A rule that does what another says: match, length and tag stay as they are.
fn modified(known: &LtmRule, rule: &LtmRule) -> LtmRule {
    LtmRule {
        actions: Arc::clone(&rule.actions),
        rewrite: rule.rewrite.clone(),
        next: rule.next,
        ..known.clone()
    }
}

fn result_of(part: PartCode) -> Result<(), OffloadError> {
    match part.limit {
        Some(Limit::Masks) => return Err(OffloadError::Refused(Refusal::Masks)),
        Some(Limit::KeyBits) => return Err(OffloadError::Refused(Refusal::KeyBits)),
        None => {}
    }
    match part.code {
        Code::Ok => Ok(()),
        Code::ResourceExhausted => Err(OffloadError::NoRoom),
        Code::AlreadyExists => Err(OffloadError::Exists),
        Code::NotFound => Err(OffloadError::NoSuchEntry),
        code => Err(OffloadError::Failed(code.into())),
    }
}
