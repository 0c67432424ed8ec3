//! The owner's end of a client.

use std::sync::Arc;

use hashbrown::HashMap;
use shunt_gigaflow::{
    offload::{
        Lost, LtmIndex, OffloadCapabilities, OffloadDevice, OffloadError, OffloadEvent, Operation,
        Ticket,
    },
    partition::StageId,
};
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};

use super::{
    Packet, PacketToSend, Settings,
    batch::{Held, Task},
    told::{Ear, PACKETS_MAX, Told, ends},
    worker::Worker,
};
use crate::wire::p4::v1::update::Type;

/// A device behind P4Runtime as a target of LTM rules. It begins lost, and is there with the first
/// [`OffloadEvent::Restored`].
#[derive(Debug)]
pub struct P4RuntimeDevice {
    settings: Settings,
    capabilities: OffloadCapabilities,
    tasks: mpsc::Sender<Vec<Task>>,
    ear: Ear,
    worker: JoinHandle<()>,
    is_there: bool,
    /// How often the ports had changed when it was last looked.
    port_changes: u64,
    /// Entries of each stage: what is there, and what is on its way.
    held: Vec<usize>,
    /// What an operation that is under way does to its stage if it fails, or if it does not.
    under_way: HashMap<Ticket, Effect, foldhash::fast::FixedState>,
    /// The stage of each entry.
    stages: HashMap<LtmIndex, StageId, foldhash::fast::FixedState>,
    answered: Vec<OffloadEvent>,
    packets: Vec<Packet>,
    packets_dropped: u64,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    Insert(LtmIndex, StageId),
    Remove(LtmIndex),
    Nothing,
}

impl P4RuntimeDevice {
    /// Begins to connect, by tasks of this runtime. `wake` is called, by any thread, whenever there is
    /// something to [poll](OffloadDevice::poll) or to [take](Self::take_packets).
    #[must_use]
    pub fn new(
        settings: Settings,
        runtime: &Handle,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (tasks, task_receiver) = mpsc::channel(settings.operations_max);
        let (teller, ear) = ends(wake);
        let worker = Worker::new(Arc::new(settings.clone()), task_receiver, teller);
        let port_changes = settings.ports.changes();
        Self {
            capabilities: settings.capabilities(),
            held: vec![0; settings.program.stages().into()],
            tasks,
            ear,
            worker: runtime.spawn(worker.run()),
            is_there: false,
            port_changes,
            under_way: HashMap::default(),
            stages: HashMap::default(),
            answered: Vec::new(),
            packets: Vec::new(),
            packets_dropped: 0,
            settings,
        }
    }

    /// Takes the packets that the device has handed over.
    pub fn take_packets(&mut self) -> Vec<Packet> {
        self.hear();
        std::mem::take(&mut self.packets)
    }

    /// Packets that the device has handed over and that were dropped, as too many waited.
    #[must_use]
    pub fn packets_dropped(&self) -> u64 {
        self.packets_dropped + self.ear.packets_dropped()
    }

    /// Has the device send a packet.
    ///
    /// # Errors
    ///
    /// The device is lost, or too many packets are on their way to it: this one is dropped.
    pub fn send(&self, packet: PacketToSend) -> Result<(), Lost> {
        if !self.is_there {
            return Err(Lost);
        }
        self.tasks.try_send(vec![Task::Send(packet)]).map_err(|_| Lost)
    }

    fn hear(&mut self) {
        let changes = self.settings.ports.changes();
        if self.port_changes != changes {
            self.port_changes = changes;
            self.capabilities.outputs = Some(self.settings.outputs());
        }
        while let Some(told) = self.ear.hear() {
            match told {
                Told::Events(events) => events.into_iter().for_each(|event| self.note(event)),
                Told::Restored(counts) => {
                    self.is_there = true;
                    for (stage, held) in (0..).zip(&mut self.held) {
                        let table = self.settings.program.table_id(stage);
                        *held = counts.get(&table).copied().unwrap_or(0);
                    }
                    // What was asked for when it was lost, and is not answered, is still to come.
                    for effect in self.under_way.values() {
                        if let Effect::Insert(_, stage) = effect {
                            self.held[stage.index()] += 1;
                        }
                    }
                    self.answered.push(OffloadEvent::Restored);
                }
                Told::Packet(packet) => {
                    if self.packets.len() < PACKETS_MAX {
                        self.packets.push(packet);
                    } else {
                        self.packets_dropped += 1;
                    }
                }
            }
        }
    }

    fn note(&mut self, event: OffloadEvent) {
        match &event {
            OffloadEvent::Completed { ticket, result } => {
                match self.under_way.remove(ticket) {
                    Some(Effect::Insert(entry, stage)) if result.is_err() => {
                        self.leave(entry, stage);
                    }
                    Some(Effect::Remove(entry)) if result.is_ok() => {
                        if let Some(stage) = self.stages.get(&entry).copied() {
                            self.leave(entry, stage);
                        }
                    }
                    // It was lost with a session, and not counted when the next one began.
                    Some(Effect::Remove(entry)) if *result == Err(OffloadError::NoSuchEntry) => {
                        self.stages.remove(&entry);
                    }
                    _ => {}
                }
            }
            OffloadEvent::Lost(_) => self.is_there = false,
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } | OffloadEvent::Restored => {}
        }
        self.answered.push(event);
    }

    fn leave(&mut self, entry: LtmIndex, stage: StageId) {
        self.stages.remove(&entry);
        if let Some(held) = self.held.get_mut(stage.index()) {
            *held = held.saturating_sub(1);
        }
    }

    /// An operation in the device's words, and what it does to its stage.
    fn task(&self, ticket: Ticket, operation: &Operation) -> Result<(Task, Effect), OffloadError> {
        let encoded = |kind, entry: &LtmIndex, stage: StageId, rule| {
            self.capabilities.check(rule)?;
            // What cannot be said is told at once.
            self.settings.encode_update((kind, *entry), (stage, rule))
        };
        match operation {
            Operation::Insert { entry, stage, rule } => {
                if stage.index() >= self.held.len() {
                    return Err(OffloadError::NoSuchStage(stage.number()));
                }
                let update = encoded(Type::Insert, entry, *stage, rule)?;
                if self.room(*stage) == 0 {
                    return Err(OffloadError::NoRoom);
                }
                let held = Held { stage: *stage, rule: Arc::clone(rule) };
                let task = Task::Insert { ticket, entry: *entry, held, update };
                Ok((task, Effect::Insert(*entry, *stage)))
            }
            Operation::Modify { entry, rule } => {
                let stage = self.stages.get(entry).ok_or(OffloadError::NoSuchEntry)?;
                encoded(Type::Modify, entry, *stage, rule)?;
                let rule = Arc::clone(rule);
                Ok((Task::Modify { ticket, entry: *entry, rule }, Effect::Nothing))
            }
            Operation::Remove { entry } => {
                Ok((Task::Remove { ticket, entry: *entry }, Effect::Remove(*entry)))
            }
            Operation::Count { entries } => {
                Ok((Task::Count { ticket, entries: entries.clone() }, Effect::Nothing))
            }
        }
    }
}

impl OffloadDevice for P4RuntimeDevice {
    fn capabilities(&self) -> &OffloadCapabilities {
        &self.capabilities
    }

    fn is_there(&self) -> bool {
        self.is_there
    }

    fn room(&self, stage: StageId) -> usize {
        let held = self.held.get(stage.index()).copied().unwrap_or(usize::MAX);
        (self.settings.program.size() as usize).saturating_sub(held)
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        self.hear();
        if !self.is_there {
            return Err(Lost);
        }
        // All go by one message, so that whoever works on them finds a batch and not the first of one.
        let Ok(permit) = self.tasks.clone().try_reserve_owned() else { return Ok(()) };
        let mut tasks = Vec::with_capacity(batch.len());
        let mut taken = 0;
        for (ticket, operation) in batch.iter() {
            if self.under_way.len() >= self.settings.operations_max {
                break;
            }
            match self.task(*ticket, operation) {
                Ok((task, effect)) => {
                    if let Effect::Insert(entry, stage) = effect {
                        self.held[stage.index()] += 1;
                        self.stages.insert(entry, stage);
                    }
                    self.under_way.insert(*ticket, effect);
                    tasks.push(task);
                }
                Err(error) => {
                    let answer = OffloadEvent::Completed { ticket: *ticket, result: Err(error) };
                    self.answered.push(answer);
                }
            }
            taken += 1;
        }
        if !tasks.is_empty() {
            permit.send(tasks);
        }
        batch.drain(..taken);
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        self.hear();
        events.append(&mut self.answered);
    }

    fn forget(&mut self, entry: LtmIndex) {
        if !self.is_there {
            // Where too much waits already, it is put back, and removed.
            let _ = self.tasks.try_send(vec![Task::Forget { entry }]);
        }
    }
}

impl Drop for P4RuntimeDevice {
    fn drop(&mut self) {
        self.worker.abort();
    }
}
