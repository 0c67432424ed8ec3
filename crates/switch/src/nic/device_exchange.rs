//! An offload device that can be exchanged while its agent runs.
//!
//! The agent sees one device, which is lost and restored. A new device has no entries. When the new
//! device is connected, the agent receives an idle event for each entry of the previous device, and
//! removes that entry. The exchange acknowledges this removal immediately.
//!
//! A NIC without an agent must not continue to forward by its last entries. So the exchange first
//! removes the entries of the previous device. Until all entries are removed, or the device has not
//! answered for [`DRAIN_TIME_MAX`], the agent sees no new device. Meanwhile the device counts as
//! lost, every status shows the reason, and versions are acknowledged without the NIC. Entries that
//! could not be removed are logged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use shunt_gigaflow::{
    offload::{
        Lost, LtmIndex, OffloadCapabilities, OffloadDevice, OffloadError, OffloadEvent, Operation,
        Ticket,
    },
    partition::StageId,
};
use shunt_pipeline::Time;

use super::draining::{DRAIN_TIME_MAX, DrainingDevice, is_gone};

/// An offload device that can be replaced by another while its agent runs.
pub(crate) struct DeviceExchange<T> {
    next: mpsc::Receiver<Successor<T>>,
    /// Number of exchanges with a previous device that is not empty yet.
    pending: Arc<AtomicUsize>,
    now: Box<dyn Fn() -> Time + Send>,
    device: Option<T>,
    /// True if the current device has reported that it is restored.
    is_restored: bool,
    /// True if the agent was notified that the device is restored.
    is_connected: bool,
    /// Capabilities while there is no device.
    empty_capabilities: OffloadCapabilities,
    /// Unacknowledged operations, each with the entry that it changes.
    under_way: BTreeMap<Ticket, Option<EntryChange>>,
    /// Entries that the current device may hold.
    held: BTreeSet<LtmIndex>,
    /// Insertions that were in progress when the device was lost; a part of `held`.
    ///
    /// The agent assumes that these entries were not inserted. The device may hold them until it is
    /// restored.
    unconfirmed: BTreeSet<LtmIndex>,
    /// Entries that the agent assumes in the device, but that no device holds.
    absent: BTreeSet<LtmIndex>,
    events: Vec<OffloadEvent>,
    draining: Vec<DrainingDevice<T>>,
}

/// The sender of new devices; the caller also wakes the agent.
pub(crate) struct SuccessorSender<T> {
    next: mpsc::Sender<Successor<T>>,
    pending: Arc<AtomicUsize>,
}

/// A device that replaces the current device.
struct Successor<T> {
    target: Option<T>,
    before: PredecessorState,
}

/// The state of a device that is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredecessorState {
    /// The device runs, and its entries must be removed.
    Runs,
    /// The device has ended, so it has no entries.
    Ended,
}

/// The change that an operation makes to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryChange {
    Insert(LtmIndex),
    Remove(LtmIndex),
}

impl<T> SuccessorSender<T> {
    /// Replaces the current device by `target`, or by no device.
    pub(crate) fn send(&self, target: Option<T>, before: PredecessorState) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // If sending fails, the agent was stopped or has panicked, and no device is used.
        if self.next.send(Successor { target, before }).is_err() {
            self.pending.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether a previous device may still forward with old entries.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }
}

impl<T: OffloadDevice> DeviceExchange<T> {
    /// Returns an exchange without a device, and the sender of new devices.
    ///
    /// `now` returns the time.
    pub(crate) fn new(
        empty_capabilities: OffloadCapabilities,
        now: impl Fn() -> Time + Send + 'static,
    ) -> (Self, SuccessorSender<T>) {
        let (sender, next) = mpsc::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let exchange = Self {
            next,
            pending: Arc::clone(&pending),
            now: Box::new(now),
            device: None,
            is_restored: false,
            is_connected: false,
            empty_capabilities,
            under_way: BTreeMap::new(),
            held: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
            absent: BTreeSet::new(),
            events: Vec::new(),
            draining: Vec::new(),
        };
        (exchange, SuccessorSender { next: sender, pending })
    }

    /// Takes the next device, if the control plane has given one.
    fn take_successor(&mut self) {
        while let Ok(Successor { target, before }) = self.next.try_recv() {
            match self.device.take() {
                Some(inner) => self.replace_device(inner, before),
                None => self.end_exchange(),
            }
            (self.device, self.is_restored) = (target, false);
        }
    }

    /// Replaces the device, and keeps the former one until it is drained.
    fn replace_device(&mut self, target: T, before: PredecessorState) {
        let under_way = std::mem::take(&mut self.under_way);
        let held = std::mem::take(&mut self.held);
        let inserting = |change: &Option<EntryChange>| match change {
            Some(EntryChange::Insert(entry)) => Some(*entry),
            Some(EntryChange::Remove(_)) | None => None,
        };
        let mut unconfirmed = std::mem::take(&mut self.unconfirmed);
        unconfirmed.extend(under_way.values().filter_map(inserting));
        self.absent.extend(held.difference(&unconfirmed));
        for ticket in under_way.keys() {
            let result = Err(OffloadError::Lost(Lost));
            self.events.push(OffloadEvent::Completed { ticket: *ticket, result });
        }
        if std::mem::take(&mut self.is_connected) {
            self.events.push(OffloadEvent::Lost(Lost));
        }
        if before == PredecessorState::Ended || held.is_empty() {
            self.end_exchange();
            return;
        }
        let under_way = under_way.into_keys().collect();
        let until = (self.now)().after(DRAIN_TIME_MAX);
        self.draining.push(DrainingDevice::new(target, self.is_restored, under_way, held, until));
    }

    /// Counts an exchange as complete: the previous device is empty or was abandoned.
    fn end_exchange(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Continues to remove the entries of previous devices.
    fn poll_draining(&mut self) {
        if self.draining.is_empty() {
            return;
        }
        let now = (self.now)();
        let ended: Vec<DrainingDevice<T>> =
            self.draining.extract_if(.., |draining| !draining.poll(now)).collect();
        for draining in ended {
            draining.end();
            self.end_exchange();
        }
    }

    /// Acknowledges all operations on entries that no device holds.
    fn acknowledge_absent(&mut self, batch: &mut Vec<(Ticket, Operation)>) {
        let (absent, events) = (&mut self.absent, &mut self.events);
        batch.retain_mut(|(ticket, operation)| {
            let result = match operation {
                Operation::Remove { entry } if absent.remove(entry) => Ok(()),
                Operation::Modify { entry, .. } if absent.contains(entry) => {
                    Err(OffloadError::NoSuchEntry)
                }
                Operation::Count { entries } => {
                    entries.retain(|entry| !absent.contains(entry));
                    return true;
                }
                Operation::Insert { .. } | Operation::Remove { .. } | Operation::Modify { .. } => {
                    return true;
                }
            };
            events.push(OffloadEvent::Completed { ticket: *ticket, result });
            false
        });
    }

    /// Updates the state of the exchange by an event of the device.
    fn handle_event(&mut self, event: &OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                let is_gone = match self.under_way.remove(ticket).flatten() {
                    Some(EntryChange::Insert(entry))
                        if matches!(result, Err(OffloadError::Lost(_))) =>
                    {
                        self.unconfirmed.insert(entry);
                        None
                    }
                    Some(EntryChange::Insert(entry)) => result.is_err().then_some(entry),
                    Some(EntryChange::Remove(entry)) => is_gone(result).then_some(entry),
                    None => None,
                };
                if let Some(entry) = is_gone {
                    self.held.remove(&entry);
                }
            }
            OffloadEvent::Lost(_) => self.is_restored = false,
            OffloadEvent::Restored => {
                // A restored device holds exactly the entries of which it confirmed the insertion.
                let unconfirmed = std::mem::take(&mut self.unconfirmed);
                self.held.retain(|entry| !unconfirmed.contains(entry));
                self.is_restored = true;
            }
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } => {}
        }
    }
}

impl<T: OffloadDevice> OffloadDevice for DeviceExchange<T> {
    fn capabilities(&self) -> &OffloadCapabilities {
        self.device.as_ref().map_or(&self.empty_capabilities, OffloadDevice::capabilities)
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn room(&self, stage: StageId) -> usize {
        self.device.as_ref().map_or(0, |inner| inner.room(stage))
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        self.take_successor();
        if !self.is_connected {
            return Err(Lost);
        }
        self.acknowledge_absent(batch);
        let changes: Vec<(Ticket, Option<EntryChange>)> =
            batch.iter().map(|(ticket, operation)| (*ticket, change(operation))).collect();
        let Some(inner) = &mut self.device else { return Err(Lost) };
        inner.submit(batch)?;
        let taken = changes.len() - batch.len();
        for (ticket, change) in changes.into_iter().take(taken) {
            if let Some(EntryChange::Insert(entry)) = change {
                self.held.insert(entry);
            }
            self.under_way.insert(ticket, change);
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        self.take_successor();
        self.poll_draining();
        events.append(&mut self.events);
        let mut device_events = Vec::new();
        if let Some(inner) = &mut self.device {
            inner.poll(&mut device_events);
        }
        for event in device_events {
            self.handle_event(&event);
            match event {
                OffloadEvent::Restored => {}
                OffloadEvent::Lost(_) if !std::mem::take(&mut self.is_connected) => {}
                event => events.push(event),
            }
        }
        if self.is_restored && !self.is_connected && self.draining.is_empty() {
            self.is_connected = true;
            events.push(OffloadEvent::Restored);
            events.extend(self.absent.iter().map(|entry| OffloadEvent::Idle { entry: *entry }));
        }
    }

    fn forget(&mut self, entry: LtmIndex) {
        if let Some(inner) = &mut self.device {
            inner.forget(entry);
        }
    }
}

impl<T> Drop for DeviceExchange<T> {
    /// Resets the count of pending exchanges: no device is emptied after the drop.
    fn drop(&mut self) {
        self.pending.store(0, Ordering::Relaxed);
    }
}

/// Returns the entry that an operation adds or removes.
fn change(operation: &Operation) -> Option<EntryChange> {
    match operation {
        Operation::Insert { entry, .. } => Some(EntryChange::Insert(*entry)),
        Operation::Remove { entry } => Some(EntryChange::Remove(*entry)),
        Operation::Modify { .. } | Operation::Count { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use shunt_flow::Match;
    use shunt_gigaflow::ltm::{LtmRule, Next, Tag};
    use shunt_p4runtime::{
        codec::{DeviceFeatures, capabilities},
        program::Program,
    };

    use super::*;

    /// A device for tests, with its entries and its unacknowledged operations.
    #[derive(Debug, Default)]
    struct FakeDevice {
        held: BTreeSet<LtmIndex>,
        waiting: Vec<(Ticket, Operation)>,
        is_new: bool,
        is_slow: bool,
        /// If true, the connection is lost at the next poll.
        is_lost: bool,
    }

    /// A handle of a fake device, which the test also sees.
    struct FakeHandle(Arc<Mutex<FakeDevice>>, OffloadCapabilities);

    fn fake_device() -> (FakeHandle, Arc<Mutex<FakeDevice>>) {
        let device = Arc::new(Mutex::new(FakeDevice { is_new: true, ..FakeDevice::default() }));
        (FakeHandle(Arc::clone(&device), empty_capabilities()), device)
    }

    fn empty_capabilities() -> OffloadCapabilities {
        capabilities(&Program::default(), &DeviceFeatures::default())
    }

    impl OffloadDevice for FakeHandle {
        fn capabilities(&self) -> &OffloadCapabilities {
            &self.1
        }

        fn is_connected(&self) -> bool {
            !self.0.lock().is_new
        }

        fn room(&self, _: StageId) -> usize {
            9
        }

        fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
            self.0.lock().waiting.append(batch);
            Ok(())
        }

        fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
            let device = &mut *self.0.lock();
            if std::mem::take(&mut device.is_lost) {
                for (ticket, _) in device.waiting.drain(..) {
                    let result = Err(OffloadError::Lost(Lost));
                    events.push(OffloadEvent::Completed { ticket, result });
                }
                events.push(OffloadEvent::Lost(Lost));
                return;
            }
            if std::mem::take(&mut device.is_new) {
                events.push(OffloadEvent::Restored);
            }
            if device.is_slow {
                return;
            }
            for (ticket, operation) in device.waiting.drain(..) {
                let result = match operation {
                    Operation::Insert { entry, .. } => {
                        assert!(device.held.insert(entry));
                        Ok(())
                    }
                    Operation::Remove { entry } if device.held.remove(&entry) => Ok(()),
                    Operation::Count { entries } => {
                        assert!(entries.iter().all(|entry| device.held.contains(entry)));
                        Ok(())
                    }
                    Operation::Remove { .. } | Operation::Modify { .. } => {
                        Err(OffloadError::NoSuchEntry)
                    }
                };
                events.push(OffloadEvent::Completed { ticket, result });
            }
        }
    }

    /// Returns an exchange without a device, its sender of devices and its clock.
    fn exchange() -> (DeviceExchange<FakeHandle>, SuccessorSender<FakeHandle>, Arc<Mutex<Time>>) {
        let time = Arc::new(Mutex::new(Time::ZERO));
        let now = Arc::clone(&time);
        let (exchange, next) = DeviceExchange::new(empty_capabilities(), move || *now.lock());
        (exchange, next, time)
    }

    /// The sender of devices, the first device and the clock of an exchange.
    type ExchangeParts = (SuccessorSender<FakeHandle>, Arc<Mutex<FakeDevice>>, Arc<Mutex<Time>>);

    /// Returns an exchange with a first, connected device.
    fn with_first() -> (DeviceExchange<FakeHandle>, ExchangeParts) {
        let (mut exchange, next, time) = exchange();
        let (first, device) = fake_device();
        next.send(Some(first), PredecessorState::Runs);
        assert_eq!(device_events(&mut exchange), [OffloadEvent::Restored]);
        assert!(!next.is_pending(), "there was none before it");
        (exchange, (next, device, time))
    }

    fn insert(number: u64) -> (Ticket, Operation) {
        let rule = LtmRule {
            tag: Tag::new(0),
            matching: Match::any(),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::End,
        };
        let entry = LtmIndex(number);
        let stage = StageId::new(0).unwrap();
        (Ticket(number), Operation::Insert { entry, stage, rule: Arc::new(rule) })
    }

    fn device_events(exchange: &mut DeviceExchange<FakeHandle>) -> Vec<OffloadEvent> {
        let mut events = Vec::new();
        exchange.poll(&mut events);
        events
    }

    fn remove(ticket: u64, number: u64) -> (Ticket, Operation) {
        (Ticket(ticket), Operation::Remove { entry: LtmIndex(number) })
    }

    fn lost_event(ticket: u64) -> OffloadEvent {
        OffloadEvent::Completed { ticket: Ticket(ticket), result: Err(OffloadError::Lost(Lost)) }
    }

    fn done_event(ticket: u64) -> OffloadEvent {
        OffloadEvent::Completed { ticket: Ticket(ticket), result: Ok(()) }
    }

    #[test]
    fn without_a_device_nothing_is_accepted() {
        let (mut exchange, next, _) = exchange();
        let mut batch = vec![insert(1)];
        assert_eq!(exchange.submit(&mut batch), Err(Lost));
        assert_eq!((device_events(&mut exchange), batch.len()), (vec![], 1));
        next.send(Some(fake_device().0), PredecessorState::Runs);
        assert_eq!(exchange.submit(&mut batch), Err(Lost), "the new device has not responded");
        assert_eq!(device_events(&mut exchange), [OffloadEvent::Restored]);
        exchange.submit(&mut batch).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(1)]);
    }

    #[test]
    fn agent_gets_entries_missing_on_device() {
        let (mut exchange, (next, _, _)) = with_first();
        exchange.submit(&mut vec![insert(1), insert(2)]).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(1), done_event(2)]);
        let (second, device) = fake_device();
        next.send(Some(second), PredecessorState::Ended);
        let idle = |number| OffloadEvent::Idle { entry: LtmIndex(number) };
        assert_eq!(
            device_events(&mut exchange),
            [OffloadEvent::Lost(Lost), OffloadEvent::Restored, idle(1), idle(2)]
        );
        let entries = vec![LtmIndex(1), LtmIndex(2)];
        let count = (Ticket(4), Operation::Count { entries });
        exchange.submit(&mut vec![count, remove(3, 1), insert(5)]).unwrap();
        let mut events = device_events(&mut exchange);
        events.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [done_event(3), done_event(4), done_event(5)]);
        assert_eq!(device.lock().held, BTreeSet::from([LtmIndex(5)]));
        exchange.submit(&mut vec![remove(6, 2), remove(7, 5)]).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(6), done_event(7)]);
        assert!(device.lock().held.is_empty());
    }

    #[test]
    fn next_device_repeats_pending_insertion() {
        let (mut exchange, (next, device, _)) = with_first();
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(1)]).unwrap();
        let (second, device) = fake_device();
        next.send(Some(second), PredecessorState::Ended);
        let lost = [lost_event(1), OffloadEvent::Lost(Lost), OffloadEvent::Restored];
        assert_eq!(
            device_events(&mut exchange),
            lost,
            "the entry is absent, and the agent knows it"
        );
        exchange.submit(&mut vec![insert(1)]).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(1)]);
        exchange.submit(&mut vec![remove(2, 1)]).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(2)]);
        assert!(device.lock().held.is_empty());
    }

    #[test]
    fn a_device_starts_after_the_previous_is_empty() {
        let (mut exchange, (next, device, _)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        device_events(&mut exchange);
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(2)]).unwrap();
        next.send(Some(fake_device().0), PredecessorState::Runs);
        assert_eq!(device_events(&mut exchange), [lost_event(2), OffloadEvent::Lost(Lost)]);
        assert_eq!((device_events(&mut exchange), next.is_pending()), (vec![], true));
        assert_eq!(exchange.submit(&mut vec![insert(3)]), Err(Lost));
        device.lock().is_slow = false;
        assert_eq!(device_events(&mut exchange), [], "the device is queried");
        let idle = OffloadEvent::Idle { entry: LtmIndex(1) };
        assert_eq!(device_events(&mut exchange), [OffloadEvent::Restored, idle]);
        assert!(device.lock().held.is_empty(), "{device:?}");
        assert_eq!(
            (Arc::strong_count(&device), next.is_pending()),
            (1, false),
            "the previous device is dropped"
        );
        exchange.submit(&mut vec![insert(3)]).unwrap();
        assert_eq!(device_events(&mut exchange), [done_event(3)]);
    }

    #[test]
    fn a_lost_device_is_emptied_when_it_returns() {
        let (mut exchange, (next, device, _)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        device_events(&mut exchange);
        device.lock().is_slow = true;
        next.send(None, PredecessorState::Runs);
        assert_eq!(device_events(&mut exchange), [OffloadEvent::Lost(Lost)]);
        device.lock().is_lost = true;
        assert_eq!((device_events(&mut exchange), next.is_pending()), (vec![], true));
        (device.lock().is_new, device.lock().is_slow) = (true, false);
        assert_eq!((device_events(&mut exchange), device_events(&mut exchange)), (vec![], vec![]));
        assert!(device.lock().held.is_empty() && !next.is_pending(), "{device:?}");
    }

    #[test]
    fn an_insertion_during_a_disconnect_is_removed_too() {
        let (mut exchange, (next, device, _)) = with_first();
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(1)]).unwrap();
        device.lock().is_lost = true;
        assert_eq!(device_events(&mut exchange), [lost_event(1), OffloadEvent::Lost(Lost)]);
        next.send(Some(fake_device().0), PredecessorState::Runs);
        assert_eq!(
            (device_events(&mut exchange), next.is_pending()),
            (vec![], true),
            "the entry may be in the device"
        );
        (device.lock().is_new, device.lock().is_slow) = (true, false);
        assert_eq!(device_events(&mut exchange), [], "the device is queried");
        assert_eq!(
            device_events(&mut exchange),
            [OffloadEvent::Restored],
            "the agent takes the entry for absent"
        );
        assert!(!next.is_pending());
    }

    #[test]
    fn a_silent_device_is_abandoned_after_a_time() {
        let (mut exchange, (next, device, time)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        device_events(&mut exchange);
        device.lock().is_slow = true;
        next.send(Some(fake_device().0), PredecessorState::Runs);
        assert_eq!(device_events(&mut exchange), [OffloadEvent::Lost(Lost)]);
        *time.lock() = Time::ZERO.after(DRAIN_TIME_MAX - Duration::from_millis(1));
        assert_eq!((device_events(&mut exchange), next.is_pending()), (vec![], true));
        *time.lock() = Time::ZERO.after(DRAIN_TIME_MAX);
        assert_eq!(device_events(&mut exchange).first(), Some(&OffloadEvent::Restored));
        assert_eq!((Arc::strong_count(&device), next.is_pending()), (1, false));
    }
}
