//! The offload device that the owner of the client uses.

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
    ClientSettings, DevicePacket, PacketToSend,
    batch::{InstalledRule, Task},
    notifications::{Notification, NotificationReceiver, PACKETS_MAX, notification_channel},
    worker::SessionWorker,
};
use crate::wire::p4::v1::update::Type;

/// A P4Runtime device as an offload device of LTM rules.
///
/// The device starts as lost, and is available after the first [`OffloadEvent::Restored`].
#[derive(Debug)]
pub struct P4RuntimeDevice {
    settings: ClientSettings,
    capabilities: OffloadCapabilities,
    tasks: mpsc::Sender<Vec<Task>>,
    notifications: NotificationReceiver,
    worker: JoinHandle<()>,
    is_connected: bool,
    /// Value of [`LivePorts`] change counter at the last check.
    port_changes: u64,
    /// Number of entries per stage, including pending inserts.
    entry_counts: Vec<usize>,
    /// The effect of each pending operation on the number of entries.
    pending: HashMap<Ticket, StageEffect, foldhash::fast::FixedState>,
    /// The stage of each entry.
    stages: HashMap<LtmIndex, StageId, foldhash::fast::FixedState>,
    events: Vec<OffloadEvent>,
    packets: Vec<DevicePacket>,
    packets_dropped: u64,
}

/// The change of the entries of a stage by an operation.
#[derive(Clone, Copy, Debug)]
enum StageEffect {
    Insert(LtmIndex, StageId),
    Remove(LtmIndex),
    Nothing,
}

impl P4RuntimeDevice {
    /// Starts to connect to the device, with tasks on `runtime`.
    ///
    /// `wake` is called on any thread when there are events to [poll](OffloadDevice::poll) or
    /// packets to [take](Self::take_packets).
    #[must_use]
    pub fn new(
        settings: ClientSettings,
        runtime: &Handle,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (tasks, task_receiver) = mpsc::channel(settings.operations_max);
        let (sender, notifications) = notification_channel(wake);
        let worker = SessionWorker::new(Arc::new(settings.clone()), task_receiver, sender);
        let port_changes = settings.ports.changes();
        Self {
            capabilities: settings.capabilities(),
            entry_counts: vec![0; settings.program.stages().into()],
            tasks,
            notifications,
            worker: runtime.spawn(worker.run()),
            is_connected: false,
            port_changes,
            pending: HashMap::default(),
            stages: HashMap::default(),
            events: Vec::new(),
            packets: Vec::new(),
            packets_dropped: 0,
            settings,
        }
    }

    /// Takes the packets that the device has punted.
    pub fn take_packets(&mut self) -> Vec<DevicePacket> {
        self.receive_notifications();
        std::mem::take(&mut self.packets)
    }

    /// Returns the number of punted packets that were dropped because too many waited.
    #[must_use]
    pub fn packets_dropped(&self) -> u64 {
        self.packets_dropped + self.notifications.packets_dropped()
    }

    /// Sends a packet to the device.
    ///
    /// # Errors
    ///
    /// The device is lost, or too many packets wait; this packet is dropped.
    pub fn send(&self, packet: PacketToSend) -> Result<(), Lost> {
        if !self.is_connected {
            return Err(Lost);
        }
        self.tasks.try_send(vec![Task::Send(packet)]).map_err(|_| Lost)
    }

    /// Takes the notifications of the session, and updates the device by them.
    fn receive_notifications(&mut self) {
        let changes = self.settings.ports.changes();
        if self.port_changes != changes {
            self.port_changes = changes;
            self.capabilities.outputs = Some(self.settings.outputs());
        }
        while let Some(notification) = self.notifications.try_receive() {
            match notification {
                Notification::Events(events) => {
                    events.into_iter().for_each(|event| self.record(event));
                }
                Notification::Restored(counts) => {
                    self.is_connected = true;
                    for (stage, entry_count) in (0..).zip(&mut self.entry_counts) {
                        let table = self.settings.program.table_id(stage);
                        *entry_count = counts.get(&table).copied().unwrap_or(0);
                    }
                    // Inserts that were pending when the session was lost will still be answered.
                    for effect in self.pending.values() {
                        if let StageEffect::Insert(_, stage) = effect {
                            self.entry_counts[stage.index()] += 1;
                        }
                    }
                    self.events.push(OffloadEvent::Restored);
                }
                Notification::Packet(packet) => {
                    if self.packets.len() < PACKETS_MAX {
                        self.packets.push(packet);
                    } else {
                        self.packets_dropped += 1;
                    }
                }
            }
        }
    }

    /// Records the effect of an event on the entries of each stage.
    fn record(&mut self, event: OffloadEvent) {
        match &event {
            OffloadEvent::Completed { ticket, result } => {
                match self.pending.remove(ticket) {
                    Some(StageEffect::Insert(entry, stage)) if result.is_err() => {
                        self.remove_from_stage(entry, stage);
                    }
                    Some(StageEffect::Remove(entry)) if result.is_ok() => {
                        if let Some(stage) = self.stages.get(&entry).copied() {
                            self.remove_from_stage(entry, stage);
                        }
                    }
                    // The entry was lost with a session, and the next session did not count it.
                    Some(StageEffect::Remove(entry))
                        if *result == Err(OffloadError::NoSuchEntry) =>
                    {
                        self.stages.remove(&entry);
                    }
                    _ => {}
                }
            }
            OffloadEvent::Lost(_) => self.is_connected = false,
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } | OffloadEvent::Restored => {}
        }
        self.events.push(event);
    }

    /// Removes an entry from the count of its stage.
    fn remove_from_stage(&mut self, entry: LtmIndex, stage: StageId) {
        self.stages.remove(&entry);
        if let Some(entry_count) = self.entry_counts.get_mut(stage.index()) {
            *entry_count = entry_count.saturating_sub(1);
        }
    }

    /// Returns the task of an operation, and its effect on the number of entries.
    fn task(
        &self,
        ticket: Ticket,
        operation: &Operation,
    ) -> Result<(Task, StageEffect), OffloadError> {
        let encoded = |kind, entry: &LtmIndex, stage: StageId, rule| {
            self.capabilities.check(rule)?;
            // A rule that cannot be encoded fails at once.
            self.settings.encode_update(kind, *entry, stage, rule)
        };
        match operation {
            Operation::Insert { entry, stage, rule } => {
                if stage.index() >= self.entry_counts.len() {
                    return Err(OffloadError::NoSuchStage(stage.number()));
                }
                let update = encoded(Type::Insert, entry, *stage, rule)?;
                if self.room(*stage) == 0 {
                    return Err(OffloadError::NoRoom);
                }
                let installed = InstalledRule { stage: *stage, rule: Arc::clone(rule) };
                let task = Task::Insert { ticket, entry: *entry, installed, update };
                Ok((task, StageEffect::Insert(*entry, *stage)))
            }
            Operation::Modify { entry, rule } => {
                let stage = self.stages.get(entry).ok_or(OffloadError::NoSuchEntry)?;
                encoded(Type::Modify, entry, *stage, rule)?;
                let rule = Arc::clone(rule);
                Ok((Task::Modify { ticket, entry: *entry, rule }, StageEffect::Nothing))
            }
            Operation::Remove { entry } => {
                Ok((Task::Remove { ticket, entry: *entry }, StageEffect::Remove(*entry)))
            }
            Operation::Count { entries } => {
                Ok((Task::Count { ticket, entries: entries.clone() }, StageEffect::Nothing))
            }
        }
    }
}

impl OffloadDevice for P4RuntimeDevice {
    fn capabilities(&self) -> &OffloadCapabilities {
        &self.capabilities
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn room(&self, stage: StageId) -> usize {
        // A stage that the program lacks has no room.
        let entry_count = self.entry_counts.get(stage.index()).copied().unwrap_or(usize::MAX);
        (self.settings.program.size() as usize).saturating_sub(entry_count)
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        self.receive_notifications();
        if !self.is_connected {
            return Err(Lost);
        }
        // One message carries all tasks, so the worker finds a whole batch.
        let Ok(permit) = self.tasks.clone().try_reserve_owned() else { return Ok(()) };
        let mut tasks = Vec::with_capacity(batch.len());
        let mut taken = 0;
        for (ticket, operation) in batch.iter() {
            if self.pending.len() >= self.settings.operations_max {
                break;
            }
            match self.task(*ticket, operation) {
                Ok((task, effect)) => {
                    if let StageEffect::Insert(entry, stage) = effect {
                        self.entry_counts[stage.index()] += 1;
                        self.stages.insert(entry, stage);
                    }
                    self.pending.insert(*ticket, effect);
                    tasks.push(task);
                }
                Err(error) => {
                    let event = OffloadEvent::Completed { ticket: *ticket, result: Err(error) };
                    self.events.push(event);
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
        self.receive_notifications();
        events.append(&mut self.events);
    }

    fn forget(&mut self, entry: LtmIndex) {
        if !self.is_connected {
            // If the task queue is full, a reconnect restores the entry, which is removed later.
            let _ = self.tasks.try_send(vec![Task::Forget { entry }]);
        }
    }
}

impl Drop for P4RuntimeDevice {
    fn drop(&mut self) {
        self.worker.abort();
    }
}
