//! The task that runs sessions: it sends batches, returns results, and reconnects.
//!
//! While the device processes one write, the worker already sends the next writes, up to
//! [`PENDING_MAX`] at a time. Concurrent writes are of one kind and change different entries, so
//! their order does not affect the final state of the device. An entry may exist briefly before the
//! entry for its next tag, which only causes a miss. The worker never waits to fill a batch: a
//! single task is sent at once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::{HashMap, HashSet};
use prost::Message;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{Lost, LtmIndex, OffloadError, OffloadEvent, Ticket},
};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use tonic::Code;
use tracing::{debug, info, warn};

use super::{
    ClientSettings, SessionError,
    batch::{
        BatchResult, FinishedRequest, InstalledRule, PendingRequest, PendingUpdate, Task, TaskKind,
        WriteMode, count, remove, result_of, write,
    },
    encoded::{EntryCount, counter_request},
    notifications::{Notification, NotificationSender},
    repair::{DesiredRules, restore},
    session::{Session, packet_of, probed_when_idle},
};
use crate::wire::p4::v1::{TableEntry, stream_message_response, update::Type};

/// Maximum number of counters to read one by one; for more, whole stages are read.
const COUNT_ALONE_MAX: usize = 64;

/// Longest delay between attempts to connect, as a multiple of the first delay.
const RETRY_MULTIPLE_MAX: u32 = 16;

/// Maximum number of concurrent requests.
const PENDING_MAX: usize = 4;

/// The task behind a [`P4RuntimeDevice`](super::P4RuntimeDevice).
pub(super) struct SessionWorker {
    settings: Arc<ClientSettings>,
    tasks: mpsc::Receiver<Vec<Task>>,
    notifications: NotificationSender,
    desired: DesiredRules,
    election: u128,
    /// Election id of the current or last session.
    last_election: Option<u128>,
    /// Maximum number of updates per write; it is halved after a timeout.
    batch: usize,
    /// True after the first stream error of a session has been logged.
    is_error_logged: bool,
}

/// A set of cache entries, by their index.
type EntrySet = HashSet<LtmIndex, foldhash::fast::FixedState>;

/// The requests of a session that are in progress.
#[derive(Default)]
struct PendingRequests {
    numbers: u64,
    by_number: HashMap<u64, PendingRequest, foldhash::fast::FixedState>,
    /// The entries that the requests change.
    entries: EntrySet,
    running: JoinSet<FinishedRequest>,
    /// Received tasks that wait for pending requests to finish.
    waiting: VecDeque<Task>,
}

impl PendingRequests {
    /// Returns whether a task can start now.
    ///
    /// A count changes nothing, so it runs beside any other request: removals do not wait for a
    /// long count.
    fn can_start(&self, task: &Task) -> bool {
        let is_like = |pending_request: &PendingRequest| {
            pending_request.kind == task.kind()
                || [pending_request.kind, task.kind()].contains(&TaskKind::Count)
        };
        self.by_number.values().all(is_like) && self.is_independent(task)
    }

    /// Returns whether a task changes no entry of a pending request.
    fn is_independent(&self, task: &Task) -> bool {
        task.entry().is_none_or(|entry| !self.entries.contains(&entry))
    }

    fn begin(
        &mut self,
        pending_request: PendingRequest,
        request: impl Future<Output = Result<BatchResult, SessionError>> + Send + 'static,
    ) {
        let number = self.numbers;
        self.numbers += 1;
        self.entries.extend(pending_request.parts.iter().map(|part| part.entry));
        self.by_number.insert(number, pending_request);
        self.running.spawn(async move { FinishedRequest { number, result: request.await } });
    }

    fn end(&mut self, number: u64) -> Option<PendingRequest> {
        let pending_request = self.by_number.remove(&number)?;
        for part in &pending_request.parts {
            self.entries.remove(&part.entry);
        }
        Some(pending_request)
    }
}

impl SessionWorker {
    pub(super) fn new(
        settings: Arc<ClientSettings>,
        tasks: mpsc::Receiver<Vec<Task>>,
        notifications: NotificationSender,
    ) -> Self {
        let (election, batch) = (settings.election_id, settings.batch.max(1));
        Self {
            settings,
            tasks,
            notifications,
            desired: DesiredRules::default(),
            election,
            last_election: None,
            batch,
            is_error_logged: false,
        }
    }

    /// Runs until the device handle is dropped.
    pub(super) async fn run(mut self) {
        let mut pause = self.settings.retry;
        loop {
            let mut pending = PendingRequests::default();
            let ended = match self.session().await {
                Ok(mut session) => {
                    pause = self.settings.retry;
                    match self.serve(&mut session, &mut pending).await {
                        Ok(()) => return,
                        Err(error) => {
                            self.settings.last_error.note(&error);
                            if self.settings.last_error.is_intended() {
                                debug!(%error, "NIC: the device was removed from the switch");
                            } else {
                                let reason = self.settings.last_error.text().unwrap_or_default();
                                warn!(reason, "NIC: P4Runtime connection lost, reconnecting");
                            }
                            self.fail_all(&mut pending);
                            self.notify(OffloadEvent::Lost(Lost));
                            error
                        }
                    }
                }
                Err(error) => {
                    let is_new = self.settings.last_error.note(&error);
                    if is_new && !self.settings.last_error.is_intended() {
                        let reason = self.settings.last_error.text().unwrap_or_default();
                        let (address, what) = (self.settings.address.as_str(), error.headline());
                        warn!(address, reason, "NIC: {what}, retrying");
                    }
                    error
                }
            };
            self.choose_election(&ended);
            if !self.pause(pause).await {
                return;
            }
            pause = (pause * 2).min(self.settings.retry * RETRY_MULTIPLE_MAX);
        }
    }

    async fn session(&mut self) -> Result<Session, SessionError> {
        self.last_election = None;
        let mut session = Session::open(&self.settings, self.election).await?;
        // Writes of this session may arrive after it has ended. The next session has a higher id,
        // and from then on the device refuses writes of this session.
        self.last_election = Some(self.election);
        self.election = self.election.saturating_add(1);
        session.prepare().await?;
        let installed =
            if session.is_known { session.requests.read_all().await? } else { Vec::new() };
        while let Ok(tasks) = self.tasks.try_recv() {
            self.reject(tasks);
        }
        let (settings, desired) = (Arc::clone(&self.settings), &mut self.desired);
        restore(&mut session.requests, &settings, self.batch, desired, installed).await?;
        self.is_error_logged = false;
        for entry in std::mem::take(&mut self.desired.lost) {
            // The device does not accept the rule again. The owner receives an idle event and
            // removes it.
            self.notify(OffloadEvent::Idle { entry });
        }
        info!(entries = self.desired.confirmed.len(), "NIC: connected");
        let mut counts = BTreeMap::new();
        for installed in self.desired.confirmed.values() {
            let table = self.settings.program.table_id(installed.stage.number());
            *counts.entry(table).or_default() += 1;
        }
        self.settings.last_error.clear();
        self.notifications.send(Notification::Restored(counts));
        Ok(session)
    }

    async fn serve(
        &mut self,
        session: &mut Session,
        pending: &mut PendingRequests,
    ) -> Result<(), SessionError> {
        loop {
            if let Some(task) = pending.waiting.front()
                && pending.by_number.len() < PENDING_MAX
                && pending.can_start(task)
            {
                self.begin(session, pending).await?;
                continue;
            }
            // Other work ends a probe: its answer also proves that the device responds.
            let idle = pending.by_number.is_empty().then(|| session.requests.clone());
            let is_free = pending.waiting.is_empty() && pending.by_number.len() < PENDING_MAX;
            tokio::select! {
                Some(finished) = pending.running.join_next() => {
                    // A request that panicked counts as lost.
                    let finished = finished.map_err(|_| SessionError::Ended)?;
                    self.complete(session, pending, finished)?;
                }
                tasks = self.tasks.recv(), if is_free => match tasks {
                    Some(tasks) => pending.waiting.extend(tasks),
                    None => return Ok(()),
                },
                message = session.next() => {
                    let message = message?;
                    self.handle_message(message);
                }
                probed = probed_when_idle(idle.as_ref(), self.settings.probe) => probed?,
            }
        }
    }

    /// Starts the oldest waiting task, together with the tasks of its kind that follow.
    async fn begin(
        &mut self,
        session: &Session,
        pending: &mut PendingRequests,
    ) -> Result<(), SessionError> {
        let Some(first) = pending.waiting.pop_front() else { return Ok(()) };
        let kind = first.kind();
        let mut batch = vec![first];
        while batch.len() < self.batch {
            if pending.waiting.is_empty() {
                let Ok(more) = self.tasks.try_recv() else { break };
                pending.waiting.extend(more);
            }
            let is_next = |task: &Task| task.kind() == kind && pending.is_independent(task);
            if !pending.waiting.front().is_some_and(is_next) {
                break;
            }
            batch.extend(pending.waiting.pop_front());
        }
        match kind {
            TaskKind::Insert => self.insert(session, pending, batch),
            TaskKind::Modify => self.modify(session, pending, batch),
            TaskKind::Remove => self.remove(session, pending, batch),
            TaskKind::Count => self.count(session, pending, batch),
            // The entry exists, and its removal follows.
            TaskKind::Forget => {}
            TaskKind::Send => {
                for task in batch {
                    if let Task::Send(packet) = task {
                        session.send_packet(packet).await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn insert(&self, session: &Session, pending: &mut PendingRequests, batch: Vec<Task>) {
        let mut updates = Vec::with_capacity(batch.len());
        let mut parts = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Insert { ticket, entry, installed, update } = task else { continue };
            updates.push(update);
            parts.push(PendingUpdate { ticket, entry, installed });
        }
        let request = write(session.requests.clone(), updates, WriteMode::Batch);
        pending.begin(pending_request(TaskKind::Insert, parts), request);
    }

    fn modify(&self, session: &Session, pending: &mut PendingRequests, batch: Vec<Task>) {
        let mut updates = Vec::with_capacity(batch.len());
        let mut parts = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Modify { ticket, entry, rule } = task else { continue };
            let Some(known_rule) = self.desired.confirmed.get(&entry) else {
                self.reply(ticket, Err(OffloadError::NoSuchEntry));
                continue;
            };
            let installed = InstalledRule {
                stage: known_rule.stage,
                rule: Arc::new(with_changes_of(&known_rule.rule, &rule)),
            };
            match installed.update(&self.settings, Type::Modify, entry) {
                Ok(update) => {
                    updates.push(update);
                    parts.push(PendingUpdate { ticket, entry, installed });
                }
                Err(refusal) => self.reply(ticket, Err(refusal.into())),
            }
        }
        if !parts.is_empty() {
            let request = write(session.requests.clone(), updates, WriteMode::Batch);
            pending.begin(pending_request(TaskKind::Modify, parts), request);
        }
    }

    fn remove(&self, session: &Session, pending: &mut PendingRequests, batch: Vec<Task>) {
        let mut parts = Vec::with_capacity(batch.len());
        let mut keys = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Remove { ticket, entry } = task else { continue };
            let Some(installed) = self.desired.confirmed.get(&entry) else {
                self.reply(ticket, Err(OffloadError::NoSuchEntry));
                continue;
            };
            match installed.key(&self.settings) {
                Ok(key) => {
                    keys.push(key);
                    parts.push(PendingUpdate { ticket, entry, installed: installed.clone() });
                }
                Err(refusal) => self.reply(ticket, Err(refusal.into())),
            }
        }
        if !parts.is_empty() {
            let request = remove(session.requests.clone(), keys);
            pending.begin(pending_request(TaskKind::Remove, parts), request);
        }
    }

    fn count(&self, session: &Session, pending: &mut PendingRequests, batch: Vec<Task>) {
        let mut counting = pending_request(TaskKind::Count, Vec::new());
        for task in batch {
            let Task::Count { ticket, entries } = task else { continue };
            let is_known = |entry: &LtmIndex| self.desired.confirmed.contains_key(entry);
            if entries.iter().all(is_known) {
                counting.tickets.push(ticket);
            } else {
                // An unknown entry is reported as idle, so that its owner removes it.
                let unknown = entries.iter().filter(|entry| !is_known(entry));
                unknown.for_each(|entry| self.notify(OffloadEvent::Idle { entry: *entry }));
                self.reply(ticket, Err(OffloadError::NoSuchEntry));
            }
            counting.requested.extend(entries);
        }
        let known_rule = || {
            counting
                .requested
                .iter()
                .filter_map(|entry| self.desired.confirmed.get_key_value(entry))
        };
        let encoded_requests = if counting.requested.len() <= COUNT_ALONE_MAX {
            let key =
                |(_, installed): (&LtmIndex, &InstalledRule)| installed.key(&self.settings).ok();
            known_rule().filter_map(key).map(|key| counter_request(&key)).collect()
        } else {
            let stages: BTreeSet<u8> =
                known_rule().map(|(_, installed)| installed.stage.number()).collect();
            let tables = stages.into_iter().map(|stage| self.settings.program.table_id(stage));
            let whole = |table_id| TableEntry { table_id, ..TableEntry::default() };
            tables.map(|table| counter_request(&whole(table).encode_to_vec())).collect()
        };
        pending.begin(counting, count(session.requests.clone(), encoded_requests));
    }

    fn complete(
        &mut self,
        session: &Session,
        pending: &mut PendingRequests,
        finished: FinishedRequest,
    ) -> Result<(), SessionError> {
        let reply = match finished.result {
            Ok(reply) => reply,
            Err(SessionError::NoDetails(status)) => {
                debug!(%status, "NIC: the updates of a failed batch are sent one by one");
                let again = pending
                    .by_number
                    .get(&finished.number)
                    .map(|pending_request| pending_request.kind);
                if matches!(again, Some(TaskKind::Insert | TaskKind::Modify)) {
                    return self.write_again(session, pending, finished.number);
                }
                return Err(SessionError::NoDetails(status));
            }
            Err(error) => return Err(error),
        };
        let Some(pending_request) = pending.end(finished.number) else { return Ok(()) };
        self.batch = self.batch.saturating_mul(2).clamp(1, self.settings.batch.max(1));
        let requested =
            (pending_request.kind == TaskKind::Count).then_some(&pending_request.requested);
        let mut events = self.count_events(&reply.counts, requested, &pending.entries);
        events.reserve(pending_request.parts.len() + pending_request.tickets.len());
        for (part, code) in pending_request.parts.into_iter().zip(reply.codes) {
            // An entry that does not exist is already removed.
            let is_removed =
                pending_request.kind == TaskKind::Remove && code.code == Code::NotFound;
            let result = if is_removed { Ok(()) } else { result_of(code) };
            match (&result, pending_request.kind) {
                (Err(_), _) => {}
                (Ok(()), TaskKind::Remove) => {
                    self.desired.confirmed.remove(&part.entry);
                }
                (Ok(()), _) => {
                    self.desired.confirmed.insert(part.entry, part.installed);
                }
            }
            events.push(OffloadEvent::Completed { ticket: part.ticket, result });
        }
        let count_events = pending_request.tickets.into_iter();
        events
            .extend(count_events.map(|ticket| OffloadEvent::Completed { ticket, result: Ok(()) }));
        self.notifications.send(Notification::Events(events));
        Ok(())
    }

    /// Writes the updates of a failed batch one by one.
    fn write_again(
        &self,
        session: &Session,
        pending: &mut PendingRequests,
        number: u64,
    ) -> Result<(), SessionError> {
        let Some(pending_request) = pending.by_number.get(&number) else { return Ok(()) };
        let kind =
            if pending_request.kind == TaskKind::Modify { Type::Modify } else { Type::Insert };
        let again =
            |part: &PendingUpdate| Ok(part.installed.update(&self.settings, kind, part.entry)?);
        // Some updates may have succeeded. If an update can no longer be encoded, the session ends
        // and all entries are read back.
        let updates: Result<Vec<_>, SessionError> =
            pending_request.parts.iter().map(again).collect();
        let request = write(session.requests.clone(), updates?, WriteMode::OneByOne);
        if let Some(pending_request) = pending.end(number) {
            pending.begin(pending_request, request);
        }
        Ok(())
    }

    /// Returns count events for the requested entries, except those in `exclude`.
    ///
    /// Excluded entries have a pending count of their own, which may be older, and counters never
    /// decrease.
    fn count_events(
        &self,
        found: &[EntryCount],
        requested: Option<&EntrySet>,
        exclude: &EntrySet,
    ) -> Vec<OffloadEvent> {
        let is_selected = |EntryCount { entry, .. }: &&EntryCount| {
            requested.is_none_or(|requested| requested.contains(entry))
                && !exclude.contains(entry)
                && self.desired.confirmed.contains_key(entry)
        };
        let desired = found.iter().filter(is_selected);
        desired
            .map(|EntryCount { entry, counters }| OffloadEvent::Counted {
                entry: *entry,
                counters: *counters,
            })
            .collect()
    }

    fn handle_message(&mut self, message: stream_message_response::Update) {
        use stream_message_response::Update;
        match message {
            Update::Packet(packet) => {
                if let Some(packet) = packet_of(packet) {
                    self.notifications.send(Notification::Packet(packet));
                }
            }
            Update::IdleTimeoutNotification(notice) => {
                for value in notice.table_entry {
                    let entry = LtmIndex(value.controller_metadata);
                    if self.desired.confirmed.contains_key(&entry) {
                        self.notify(OffloadEvent::Idle { entry });
                    }
                }
            }
            Update::Error(error) => {
                let (code, message) = (error.canonical_code, error.message);
                // A device may send an error for every packet.
                if std::mem::replace(&mut self.is_error_logged, true) {
                    debug!(code, message, "NIC: the device sent an error message of P4Runtime");
                } else {
                    warn!(code, message, "NIC: the device sent an error message of P4Runtime");
                }
            }
            Update::Arbitration(_) | Update::Digest(_) | Update::Other(_) => {}
        }
    }

    /// Chooses the election id of the next session.
    ///
    /// The id is raised if another controller uses it, or if it is not above the id of an earlier
    /// primary. While another controller is primary, the id stays the same.
    fn choose_election(&mut self, error: &SessionError) {
        match error {
            SessionError::TooLow(highest) => {
                self.election = self.election.max(highest.saturating_add(1));
            }
            SessionError::ElectionTaken => self.election = self.election.saturating_add(1),
            // The other controller has a higher id, which blocks late writes of this session.
            SessionError::Backup => self.election = self.last_election.unwrap_or(self.election),
            SessionError::Silent => self.batch = (self.batch / 2).max(1),
            SessionError::Connect(_)
            | SessionError::Connection(_)
            | SessionError::Refused(_)
            | SessionError::ProgramRefused { .. }
            | SessionError::Ended
            | SessionError::NoDetails(_)
            | SessionError::Repair(_)
            | SessionError::Unrepaired
            | SessionError::StartTag(_)
            | SessionError::Endless { .. }
            | SessionError::Unencodable(_)
            | SessionError::DeviceConfig { .. }
            | SessionError::ResultCount { .. } => {}
        }
    }

    /// Waits and rejects tasks meanwhile; returns false if the handle was dropped.
    async fn pause(&mut self, pause: Duration) -> bool {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                tasks = self.tasks.recv() => match tasks {
                    Some(tasks) => self.reject(tasks),
                    None => return false,
                },
            }
        }
    }

    /// Answers tasks for a lost device with `Lost`.
    ///
    /// Removed entries are not restored later.
    fn reject(&mut self, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            if let Task::Remove { entry, .. } | Task::Forget { entry } = task {
                self.desired.confirmed.remove(&entry);
            }
            task.ticket().into_iter().for_each(|ticket| self.fail_ticket(ticket));
        }
    }

    /// Answers all pending operations with `Lost`.
    fn fail_all(&mut self, pending: &mut PendingRequests) {
        for (_, pending_request) in pending.by_number.drain() {
            for part in &pending_request.parts {
                if pending_request.kind == TaskKind::Remove {
                    self.desired.confirmed.remove(&part.entry);
                }
                self.fail_ticket(part.ticket);
            }
            pending_request.tickets.into_iter().for_each(|ticket| self.fail_ticket(ticket));
        }
        self.reject(pending.waiting.drain(..));
    }

    fn fail_ticket(&self, ticket: Ticket) {
        self.reply(ticket, Err(OffloadError::Lost(Lost)));
    }

    fn reply(&self, ticket: Ticket, result: Result<(), OffloadError>) {
        self.notify(OffloadEvent::Completed { ticket, result });
    }

    fn notify(&self, event: OffloadEvent) {
        self.notifications.send(Notification::Events(vec![event]));
    }
}

fn pending_request(kind: TaskKind, parts: Vec<PendingUpdate>) -> PendingRequest {
    PendingRequest { kind, parts, tickets: Vec::new(), requested: HashSet::default() }
}

/// Returns `known_rule` with the actions, rewrite and next tag of `rule`.
fn with_changes_of(known_rule: &LtmRule, rule: &LtmRule) -> LtmRule {
    LtmRule {
        actions: Arc::clone(&rule.actions),
        rewrite: rule.rewrite.clone(),
        next: rule.next,
        ..known_rule.clone()
    }
}
