//! The task that holds a session: batches in, answers out, again and again from the beginning.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::Sender,
    time::Duration,
};

use shunt_gigaflow::target::{Counters, Event, Lost, LtmIndex, TargetError, Ticket};
use tokio::{sync::mpsc, time::sleep};
use tonic::Code;
use tracing::{debug, info, warn};

use super::{
    Packet, PacketToSend, SessionError, Settings,
    repair::repair,
    session::{Session, counter_question, packet_of, update},
};
use crate::wire::p4::v1::{TableEntry, stream_message_response, update::Type};

/// An operation in the device's words.
#[derive(Debug)]
pub(super) enum Task {
    Insert { ticket: Ticket, entry: LtmIndex, value: Box<TableEntry> },
    Modify { ticket: Ticket, entry: LtmIndex, value: Box<TableEntry> },
    Remove { ticket: Ticket, entry: LtmIndex },
    Count { ticket: Ticket, entries: Vec<LtmIndex> },
    Send(PacketToSend),
}

impl Task {
    const fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Insert { ticket, .. }
            | Self::Modify { ticket, .. }
            | Self::Remove { ticket, .. }
            | Self::Count { ticket, .. } => Some(*ticket),
            Self::Send(_) => None,
        }
    }

    /// Tasks of one kind go into one batch.
    const fn kind(&self) -> u8 {
        match self {
            Self::Insert { .. } => 0,
            Self::Modify { .. } => 1,
            Self::Remove { .. } => 2,
            Self::Count { .. } => 3,
            Self::Send(_) => 4,
        }
    }
}

/// What the owner hears.
#[derive(Debug)]
pub(super) enum Told {
    Event(Event),
    /// With what is held: from nothing to this many entries of each table.
    Restored(BTreeMap<u32, usize>),
    Packet(Packet),
}

/// Entries that are counted one by one; of more the whole stages are read.
const COUNT_ALONE_MAX: usize = 64;

/// The longest pause between two tries to connect, as a multiple of the first.
const RETRY_MULTIPLE_MAX: u32 = 16;

/// The other end of a target.
pub(super) struct Worker {
    settings: Settings,
    tasks: mpsc::Receiver<Task>,
    told: Sender<Told>,
    confirmed: BTreeMap<LtmIndex, TableEntry>,
    election: u128,
}

impl Worker {
    pub(super) const fn new(
        settings: Settings,
        tasks: mpsc::Receiver<Task>,
        told: Sender<Told>,
    ) -> Self {
        let election = settings.election_id;
        Self { settings, tasks, told, confirmed: BTreeMap::new(), election }
    }

    /// Works until the target is dropped.
    pub(super) async fn run(mut self) {
        let mut pause = self.settings.retry;
        loop {
            match self.session().await {
                Ok(mut session) => {
                    pause = self.settings.retry;
                    match self.serve(&mut session).await {
                        Ok(()) => return,
                        Err(error) => self.lose(&error),
                    }
                }
                Err(error) => {
                    debug!(%error, "no session");
                    self.learn(&error);
                }
            }
            if !self.rest(pause).await {
                return;
            }
            pause = (pause * 2).min(self.settings.retry * RETRY_MULTIPLE_MAX);
        }
    }

    async fn session(&mut self) -> Result<Session, SessionError> {
        let mut session = Session::open(&self.settings, self.election).await?;
        let held = if session.is_known { session.read_all().await? } else { Vec::new() };
        let repair = repair(&self.confirmed, held);
        let (deleted, inserted) = (repair.delete.len(), repair.insert.len());
        for (kind, entries) in [(Type::Delete, repair.delete), (Type::Insert, repair.insert)] {
            for batch in entries.chunks(self.settings.batch.max(1)) {
                let updates = batch.iter().map(|entry| update(kind, entry.clone())).collect();
                let codes = session.write(updates).await?;
                for (entry, code) in batch.iter().zip(codes) {
                    if kind == Type::Insert && code != Code::Ok {
                        // It cannot hold again what it held: its owner hears that it is idle for
                        // good, and removes it.
                        let index = LtmIndex(entry.controller_metadata);
                        self.confirmed.remove(&index);
                        self.tell(Event::Idle { entry: index });
                    }
                }
            }
        }
        info!(deleted, inserted, held = self.confirmed.len(), "the device holds what it confirmed");
        let mut counts = BTreeMap::new();
        self.confirmed.values().for_each(|entry| *counts.entry(entry.table_id).or_default() += 1);
        // An owner that is gone hears nothing.
        let _ = self.told.send(Told::Restored(counts));
        Ok(session)
    }

    async fn serve(&mut self, session: &mut Session) -> Result<(), SessionError> {
        let mut next = None;
        loop {
            let task = match next.take() {
                Some(task) => task,
                None => tokio::select! {
                    task = self.tasks.recv() => match task {
                        Some(task) => task,
                        None => return Ok(()),
                    },
                    message = session.next() => {
                        self.hear(message?);
                        continue;
                    }
                },
            };
            let mut batch = vec![task];
            while batch.len() < self.settings.batch.max(1)
                && let Ok(task) = self.tasks.try_recv()
            {
                if task.kind() != batch[0].kind() {
                    next = Some(task);
                    break;
                }
                batch.push(task);
            }
            let tickets: Vec<Ticket> = batch.iter().filter_map(Task::ticket).collect();
            if let Err(error) = self.work(session, batch).await {
                let rest = next.as_ref().and_then(Task::ticket);
                tickets.into_iter().chain(rest).for_each(|ticket| self.fail(ticket));
                return Err(error);
            }
        }
    }

    async fn work(&mut self, session: &mut Session, batch: Vec<Task>) -> Result<(), SessionError> {
        match batch.first().map(Task::kind) {
            Some(0 | 1) => self.put(session, batch).await,
            Some(2) => self.remove(session, batch).await,
            Some(3) => self.count(session, batch).await,
            _ => {
                for task in batch {
                    if let Task::Send(packet) = task {
                        session.send_packet(packet).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn put(&mut self, session: &mut Session, batch: Vec<Task>) -> Result<(), SessionError> {
        let mut updates = Vec::with_capacity(batch.len());
        let mut noted = Vec::with_capacity(batch.len());
        for task in batch {
            let (kind, ticket, entry, value) = match task {
                Task::Insert { ticket, entry, value } => (Type::Insert, ticket, entry, *value),
                Task::Modify { ticket, entry, value } => {
                    let Some(known) = self.confirmed.get(&entry) else {
                        self.answer(ticket, Err(TargetError::NoSuchEntry));
                        continue;
                    };
                    // Match, priority and name stay as they are.
                    (
                        Type::Modify,
                        ticket,
                        entry,
                        TableEntry { action: value.action, ..known.clone() },
                    )
                }
                Task::Remove { .. } | Task::Count { .. } | Task::Send(_) => continue,
            };
            updates.push(update(kind, value.clone()));
            noted.push((ticket, entry, value));
        }
        if updates.is_empty() {
            return Ok(());
        }
        let codes = session.write(updates).await?;
        for ((ticket, entry, value), code) in noted.into_iter().zip(codes) {
            if code == Code::Ok {
                self.confirmed.insert(entry, value);
            }
            self.answer(ticket, result_of(code));
        }
        Ok(())
    }

    async fn remove(
        &mut self,
        session: &mut Session,
        batch: Vec<Task>,
    ) -> Result<(), SessionError> {
        let mut known = Vec::with_capacity(batch.len());
        for task in batch {
            let Task::Remove { ticket, entry } = task else { continue };
            match self.confirmed.get(&entry) {
                Some(value) => known.push((ticket, entry, value.clone())),
                None => self.answer(ticket, Err(TargetError::NoSuchEntry)),
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let questions = known.iter().map(|(_, _, value)| counter_question(value)).collect();
        match session.read(questions).await {
            Ok(found) => self.tell_counters(&found, None),
            // What cannot be counted can still be deleted.
            Err(SessionError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        let updates = known.iter().map(|(_, _, value)| update(Type::Delete, value.clone()));
        let codes = session.write(updates.collect()).await?;
        for ((ticket, entry, _), code) in known.into_iter().zip(codes) {
            // What is not there is gone.
            if matches!(code, Code::Ok | Code::NotFound) {
                self.confirmed.remove(&entry);
                self.answer(ticket, Ok(()));
            } else {
                self.answer(ticket, result_of(code));
            }
        }
        Ok(())
    }

    async fn count(&mut self, session: &mut Session, batch: Vec<Task>) -> Result<(), SessionError> {
        let mut tickets = Vec::new();
        let mut asked = BTreeSet::new();
        for task in batch {
            let Task::Count { ticket, entries } = task else { continue };
            let is_known = entries.iter().all(|entry| self.confirmed.contains_key(entry));
            tickets.push((ticket, if is_known { Ok(()) } else { Err(TargetError::NoSuchEntry) }));
            asked.extend(entries);
        }
        let known = || asked.iter().filter_map(|entry| self.confirmed.get(entry));
        let questions: Vec<TableEntry> = if asked.len() <= COUNT_ALONE_MAX {
            known().map(counter_question).collect()
        } else {
            let tables: BTreeSet<u32> = known().map(|entry| entry.table_id).collect();
            let whole = |table_id| TableEntry { table_id, ..TableEntry::default() };
            tables.into_iter().map(|table| counter_question(&whole(table))).collect()
        };
        if !questions.is_empty() {
            let found = session.read(questions).await?;
            self.tell_counters(&found, Some(&asked));
        }
        tickets.into_iter().for_each(|(ticket, result)| self.answer(ticket, result));
        Ok(())
    }

    fn tell_counters(&self, found: &[TableEntry], asked: Option<&BTreeSet<LtmIndex>>) {
        for value in found {
            let (entry, Some(data)) = (LtmIndex(value.controller_metadata), &value.counter_data)
            else {
                continue;
            };
            let is_meant = asked.is_none_or(|asked| asked.contains(&entry));
            if is_meant && self.confirmed.contains_key(&entry) {
                let count = |number: i64| u64::try_from(number).unwrap_or(0);
                let (packets, bytes) = (count(data.packet_count), count(data.byte_count));
                self.tell(Event::Counted { entry, counters: Counters { packets, bytes } });
            }
        }
    }

    fn hear(&self, message: stream_message_response::Update) {
        use stream_message_response::Update;
        match message {
            Update::Packet(packet) => {
                if let Some(packet) = packet_of(packet) {
                    let _ = self.told.send(Told::Packet(packet));
                }
            }
            Update::IdleTimeoutNotification(notice) => {
                for value in notice.table_entry {
                    let entry = LtmIndex(value.controller_metadata);
                    if self.confirmed.contains_key(&entry) {
                        self.tell(Event::Idle { entry });
                    }
                }
            }
            Update::Error(error) => {
                warn!(code = error.canonical_code, message = error.message, "the device says");
            }
            Update::Arbitration(_) | Update::Digest(_) | Update::Other(_) => {}
        }
    }

    fn lose(&mut self, error: &SessionError) {
        warn!(%error, "the device is lost");
        self.learn(error);
        self.tell(Event::Lost(Lost));
    }

    /// Comes with another id the next time, if this one is taken, or below that of a primary that is
    /// gone. As long as another is the primary it comes with the same, and waits.
    fn learn(&mut self, error: &SessionError) {
        match error {
            SessionError::TooLow(highest) => self.election = self.election.max(*highest),
            SessionError::Refused(status) if status.code() == Code::InvalidArgument => {
                self.election = self.election.saturating_add(1);
            }
            _ => {}
        }
    }

    /// Pauses; what comes meanwhile is answered. Says whether the target is still there.
    async fn rest(&mut self, pause: Duration) -> bool {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                task = self.tasks.recv() => match task {
                    Some(task) => {
                        if let Some(ticket) = task.ticket() {
                            self.fail(ticket);
                        }
                    }
                    None => return false,
                },
            }
        }
    }

    fn fail(&self, ticket: Ticket) {
        self.answer(ticket, Err(TargetError::Lost(Lost)));
    }

    fn answer(&self, ticket: Ticket, result: Result<(), TargetError>) {
        self.tell(Event::Answered { ticket, result });
    }

    fn tell(&self, event: Event) {
        // An owner that is gone hears nothing.
        let _ = self.told.send(Told::Event(event));
    }
}

fn result_of(code: Code) -> Result<(), TargetError> {
    match code {
        Code::Ok => Ok(()),
        Code::ResourceExhausted => Err(TargetError::NoRoom),
        Code::AlreadyExists => Err(TargetError::Exists),
        Code::NotFound => Err(TargetError::NoSuchEntry),
        code => Err(TargetError::Failed(code.into())),
    }
}
