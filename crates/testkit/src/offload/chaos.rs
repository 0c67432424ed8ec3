//! An offload device with the faults that the contract allows.
//!
//! The device is slow, full or lost, or confirms operations out of order.
//!
//! `Chaos` wraps another device and delays operations at random. The device keeps the contract:
//! every operation is completed once, and after `Restored` the device holds exactly the confirmed
//! entries. So before that it undoes insertions with lost results. A seed determines its behaviour.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shunt_gigaflow::{
    offload::{
        Lost, LtmIndex, OffloadCapabilities, OffloadDevice, OffloadError, OffloadEvent, Operation,
        Ticket,
    },
    partition::StageId,
};

/// The probabilities of events, in units of 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosSettings {
    /// A poll of the device returns nothing.
    pub delay: u8,
    /// A result arrives with a later poll, after later results.
    pub hold_back: u8,
    /// An insertion finds no room.
    pub reject: u8,
    /// A poll loses the device.
    pub disconnect: u8,
    /// Number of polls until a lost device is restored.
    pub away: u32,
    /// Number of entries by which `room` is overstated.
    pub made_up_room: usize,
}

/// An offload device that misbehaves.
#[derive(Debug)]
pub struct Chaos<T> {
    inner: T,
    settings: ChaosSettings,
    random: u64,
    waiting: VecDeque<(Ticket, Operation)>,
    /// Operations without a result, with the entry that each inserts, if any.
    under_way: BTreeMap<Ticket, Option<LtmIndex>>,
    /// Operations that are lost for the owner but still under way inside.
    cut_off: BTreeMap<Ticket, Option<LtmIndex>>,
    /// Insertions that the device must undo.
    undone: Vec<LtmIndex>,
    /// Results that are delayed.
    held_back: Vec<OffloadEvent>,
    /// Entries that are omitted after a restart.
    forgotten: BTreeSet<LtmIndex>,
    /// The probability of a restart per poll, and the function that does it.
    restart: Option<(u8, Restart<T>)>,
    restarts_count: u64,
    forgotten_count: u64,
    state: ConnectionState,
}

/// Restarts a device with its confirmed entries.
type Restart<T> = fn(&mut T);

/// The state of the connection to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    There,
    /// The connection will be lost, at the latest when all operations are complete.
    Leaving,
    Away(u32),
}

impl<T: OffloadDevice> Chaos<T> {
    /// Wraps a device that behaves well.
    pub const fn new(inner: T, settings: ChaosSettings, seed: u64) -> Self {
        let random = seed | 1;
        Self {
            inner,
            settings,
            random,
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            cut_off: BTreeMap::new(),
            undone: Vec::new(),
            held_back: Vec::new(),
            forgotten: BTreeSet::new(),
            restart: None,
            restarts_count: 0,
            forgotten_count: 0,
            state: ConnectionState::There,
        }
    }

    /// Adds restarts with the probability `often` per poll.
    ///
    /// `restart` restarts the inner device with its confirmed entries. Entries that are
    /// [forgotten](OffloadDevice::forget) before it is restored are omitted.
    #[must_use]
    pub fn restarting(self, often: u8, restart: fn(&mut T)) -> Self {
        Self { restart: Some((often, restart)), ..self }
    }

    /// Returns the wrapped device.
    pub const fn inner(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns how often the device restarted.
    #[must_use]
    pub const fn restarts_count(&self) -> u64 {
        self.restarts_count
    }

    /// Number of entries that restarts omitted.
    #[must_use]
    pub const fn forgotten_count(&self) -> u64 {
        self.forgotten_count
    }

    /// Returns a random number (xorshift).
    const fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    /// Returns true with a probability of `often` / 256.
    fn draw_event(&mut self, often: u8) -> bool {
        self.draw() % 256 < u64::from(often)
    }

    /// Restarts the device with the set probability; returns whether it restarted.
    fn maybe_restart(&mut self, events: &mut Vec<OffloadEvent>) -> bool {
        let Some((often, restart)) = self.restart else { return false };
        let happens = self.draw_event(often);
        if happens {
            self.cut_off(events);
            restart(&mut self.inner);
            self.restarts_count += 1;
        }
        happens
    }

    /// Takes the results of the inner device, and delays some of them.
    fn poll_inner(&mut self, events: &mut Vec<OffloadEvent>) {
        let start = events.len();
        self.inner.poll(events);
        for event in &events[start..] {
            if let OffloadEvent::Completed { ticket, .. } = event {
                self.under_way.remove(ticket);
            }
        }
        self.hold_back(events, start);
    }

    /// Loses the device and the results of all operations under way.
    fn cut_off(&mut self, events: &mut Vec<OffloadEvent>) {
        events.append(&mut self.held_back);
        self.cut_off.append(&mut self.under_way);
        let cut_off = self.cut_off.keys().copied();
        for ticket in cut_off.chain(self.waiting.drain(..).map(|(ticket, _)| ticket)) {
            events.push(OffloadEvent::Completed { ticket, result: Err(OffloadError::Lost(Lost)) });
        }
        events.push(OffloadEvent::Lost(Lost));
        self.state = ConnectionState::Away(self.settings.away);
    }

    /// Undoes unconfirmed insertions; returns whether none is left.
    fn undo(&mut self) -> bool {
        let mut events = Vec::new();
        self.inner.poll(&mut events);
        for event in events {
            let OffloadEvent::Completed { ticket, result } = event else { continue };
            let inserted = self.cut_off.remove(&ticket).flatten();
            self.undone.extend(inserted.filter(|_| result.is_ok()));
        }
        // Each entry has one write at a time.
        if self.cut_off.is_empty() && self.undone.is_empty() {
            self.forgotten_count += self.forgotten.len() as u64;
            self.undone.extend(std::mem::take(&mut self.forgotten));
        }
        // Tickets of owners are small numbers.
        let undo = |entry: LtmIndex| (Ticket(u64::MAX - entry.0), Operation::Remove { entry });
        let mut batch: Vec<_> = self.undone.drain(..).map(undo).collect();
        self.cut_off.extend(batch.iter().map(|(ticket, _)| (*ticket, None)));
        let _ = self.inner.submit(&mut batch);
        self.cut_off.is_empty()
    }

    /// Delays some of the new results, and returns some of the delayed ones.
    fn hold_back(&mut self, events: &mut Vec<OffloadEvent>, start: usize) {
        let came: Vec<OffloadEvent> = events.drain(start..).collect();
        for event in std::mem::take(&mut self.held_back).into_iter().chain(came) {
            let is_answer = matches!(event, OffloadEvent::Completed { .. });
            if is_answer && self.draw_event(self.settings.hold_back) {
                self.held_back.push(event);
            } else {
                events.push(event);
            }
        }
    }

    /// Delivers the delayed events that are due.
    fn deliver(&mut self, events: &mut Vec<OffloadEvent>) {
        let mut batch = Vec::new();
        while let Some((ticket, operation)) = self.waiting.pop_front() {
            let is_insert = matches!(operation, Operation::Insert { .. });
            if is_insert && self.draw_event(self.settings.reject) {
                let result = Err(OffloadError::NoRoom);
                events.push(OffloadEvent::Completed { ticket, result });
            } else {
                batch.push((ticket, operation));
            }
        }
        let inserted = |(ticket, operation): &(Ticket, Operation)| match operation {
            Operation::Insert { entry, .. } => (*ticket, Some(*entry)),
            _ => (*ticket, None),
        };
        let changes: Vec<_> = batch.iter().map(inserted).collect();
        // Operations that the inner device does not accept keep waiting.
        let _ = self.inner.submit(&mut batch);
        let taken = changes.len() - batch.len();
        self.under_way.extend(changes.into_iter().take(taken));
        self.waiting.extend(batch);
    }
}

impl<T: OffloadDevice> OffloadDevice for Chaos<T> {
    fn capabilities(&self) -> &OffloadCapabilities {
        self.inner.capabilities()
    }

    fn is_connected(&self) -> bool {
        !matches!(self.state, ConnectionState::Away(_)) && self.inner.is_connected()
    }

    fn room(&self, stage: StageId) -> usize {
        self.inner.room(stage).saturating_add(self.settings.made_up_room)
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        if matches!(self.state, ConnectionState::Away(_)) {
            return Err(Lost);
        }
        self.waiting.extend(batch.drain(..));
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        if self.draw_event(self.settings.delay) {
            return;
        }
        if self.state == ConnectionState::There && self.maybe_restart(events) {
            return;
        }
        match self.state {
            ConnectionState::There => {
                self.poll_inner(events);
                if self.draw_event(self.settings.disconnect) {
                    self.state = ConnectionState::Leaving;
                } else {
                    self.deliver(events);
                }
            }
            ConnectionState::Leaving => {
                let is_cut = self.draw_event(64);
                if !is_cut {
                    self.poll_inner(events);
                }
                if is_cut || self.under_way.is_empty() {
                    self.cut_off(events);
                }
            }
            ConnectionState::Away(polls) => {
                let is_undone = self.undo();
                match polls {
                    0 if is_undone => {
                        events.push(OffloadEvent::Restored);
                        self.state = ConnectionState::There;
                    }
                    _ => self.state = ConnectionState::Away(polls.saturating_sub(1)),
                }
            }
        }
    }

    fn forget(&mut self, entry: LtmIndex) {
        if self.restart.is_some() && matches!(self.state, ConnectionState::Away(_)) {
            self.forgotten.insert(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shunt_flow::Match;
    use shunt_gigaflow::ltm::{LtmRule, Next, Tag};

    use super::*;
    use crate::offload::SoftwareDevice;

    /// Settings of a device without faults.
    const FAULTLESS: ChaosSettings = ChaosSettings {
        delay: 0,
        hold_back: 0,
        reject: 0,
        disconnect: 0,
        away: 1,
        made_up_room: 0,
    };

    /// Returns the insertion of an entry.
    fn insert(number: u32) -> (Ticket, Operation) {
        let rule = LtmRule {
            tag: Tag::new(number),
            matching: Match::any(),
            length: 1,
            actions: Arc::new([]),
            rewrite: Match::any(),
            next: Next::End,
        };
        let (stage, rule) = (StageId::new(0).unwrap(), Arc::new(rule));
        let number = number.into();
        (Ticket(number), Operation::Insert { entry: LtmIndex(number), stage, rule })
    }

    fn held_entries(target: &mut Chaos<SoftwareDevice>) -> Vec<u64> {
        target.inner().entries().keys().map(|index| index.0).collect()
    }

    /// Polls until the device is restored.
    ///
    /// Returns the operations that it confirmed until then.
    fn confirm_entries(target: &mut Chaos<SoftwareDevice>) -> Vec<u64> {
        let mut events = Vec::new();
        for _ in 0..100 {
            target.poll(&mut events);
            if events.contains(&OffloadEvent::Restored) {
                break;
            }
        }
        assert!(
            events.contains(&OffloadEvent::Lost(Lost)) && events.contains(&OffloadEvent::Restored)
        );
        let confirmed = |event: &OffloadEvent| match event {
            OffloadEvent::Completed { ticket, result: Ok(()) } => Some(ticket.0),
            _ => None,
        };
        events.iter().filter_map(confirmed).collect()
    }

    #[test]
    fn restarted_device_keeps_entries_without_counters() {
        let inner = SoftwareDevice::new(1, 100);
        let mut target = Chaos::new(inner, FAULTLESS, 5).restarting(64, SoftwareDevice::restart);
        target.submit(&mut (0..8).map(insert).collect()).unwrap();
        let first = confirm_entries(&mut target);
        assert_eq!(held_entries(&mut target), first);
        for seed in 1..20 {
            let inner = SoftwareDevice::new(1, 100);
            let mut target =
                Chaos::new(inner, FAULTLESS, seed).restarting(0, SoftwareDevice::restart);
            let mut events = Vec::new();
            target.submit(&mut (0..8).map(insert).collect()).unwrap();
            (0..3).for_each(|_| target.poll(&mut events));
            assert!(target.inner().send(Tag::new(3), &shunt_flow::FlowKey::ZERO, 64));
            let mut target = target.restarting(128, SoftwareDevice::restart);
            confirm_entries(&mut target);
            assert_eq!(held_entries(&mut target), (0..8).collect::<Vec<_>>());
            let counted = target.inner().entries()[&LtmIndex(3)].counters;
            assert_eq!(counted.packets, 0, "seed {seed}");
        }
    }

    #[test]
    fn a_restart_omits_forgotten_entries() {
        let mut target = Chaos::new(SoftwareDevice::new(1, 100), FAULTLESS, 3);
        let mut events = Vec::new();
        target.submit(&mut (0..4).map(insert).collect()).unwrap();
        (0..3).for_each(|_| target.poll(&mut events));
        let mut target = target.restarting(255, SoftwareDevice::restart);
        while target.is_connected() {
            target.poll(&mut events);
        }
        target.forget(LtmIndex(2));
        while !target.is_connected() {
            target.poll(&mut events);
        }
        assert_eq!(held_entries(&mut target), [0, 1, 3]);
        assert_eq!((target.restarts_count(), target.forgotten_count()), (1, 1));
    }
}
