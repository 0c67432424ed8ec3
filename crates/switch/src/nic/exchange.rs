//! A target that is exchanged for another while its owner runs.
//!
//! To the owner it is one target, which is lost and restored. What a target before this one held, this
//! one does not: once it is restored, the owner hears of each such entry that it is idle, and removes
//! it, which is done at once as it is not there. A target that is given up is emptied first, as far as
//! it answers: a NIC that nobody drives any more is not to forward by what it was told last.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
};

use shunt_gigaflow::{
    partition::StageId,
    target::{Capabilities, Event, Lost, LtmIndex, LtmTarget, Operation, TargetError, Ticket},
};

/// A place for a target.
pub(crate) struct Exchange<T> {
    next: mpsc::Receiver<Option<T>>,
    inner: Option<T>,
    is_there: bool,
    /// The capabilities where there is no target.
    nothing: Capabilities,
    /// What the target has not answered, with the entry that it changes.
    under_way: BTreeMap<Ticket, Option<Change>>,
    /// What the target may hold.
    held: BTreeSet<LtmIndex>,
    /// What the owner takes for held, and no target holds.
    gone: BTreeSet<LtmIndex>,
    answered: Vec<Event>,
    leaving: Vec<Leaving<T>>,
}

/// What an operation does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Insert(LtmIndex),
    Remove(LtmIndex),
}

/// A target that is being given up.
struct Leaving<T> {
    target: T,
    /// What it has not answered yet.
    under_way: usize,
    /// What it is to be asked to remove.
    removals: Vec<(Ticket, Operation)>,
    /// Whether it has answered all that came before the removals.
    is_asked: bool,
}

impl<T: LtmTarget> Exchange<T> {
    /// Without a target; those to come are sent to the other end, and the owner is woken then.
    pub(crate) fn new(nothing: Capabilities) -> (Self, mpsc::Sender<Option<T>>) {
        let (sender, next) = mpsc::channel();
        let exchange = Self {
            next,
            inner: None,
            is_there: false,
            nothing,
            under_way: BTreeMap::new(),
            held: BTreeSet::new(),
            gone: BTreeSet::new(),
            answered: Vec::new(),
            leaving: Vec::new(),
        };
        (exchange, sender)
    }

    fn take_next(&mut self) {
        while let Ok(next) = self.next.try_recv() {
            if let Some(target) = self.inner.take() {
                self.give_up(target);
            }
            self.inner = next;
        }
    }

    fn give_up(&mut self, target: T) {
        let removals = self.held.iter().zip((0..).map(Ticket));
        let removals =
            removals.map(|(entry, ticket)| (ticket, Operation::Remove { entry: *entry })).collect();
        let under_way = self.under_way.len();
        self.leaving.push(Leaving { target, under_way, removals, is_asked: false });
        for (ticket, _) in std::mem::take(&mut self.under_way) {
            let result = Err(TargetError::Lost(Lost));
            self.answered.push(Event::Answered { ticket, result });
        }
        if std::mem::take(&mut self.is_there) {
            self.answered.push(Event::Lost(Lost));
        }
        self.gone.append(&mut self.held);
    }

    /// Answers at once what is asked of an entry that no target holds.
    fn answer_gone(&mut self, batch: &mut Vec<(Ticket, Operation)>) {
        let (gone, answered) = (&mut self.gone, &mut self.answered);
        batch.retain_mut(|(ticket, operation)| {
            let result = match operation {
                Operation::Remove { entry } if gone.remove(entry) => Ok(()),
                Operation::Modify { entry, .. } if gone.contains(entry) => {
                    Err(TargetError::NoSuchEntry)
                }
                Operation::Count { entries } => {
                    entries.retain(|entry| !gone.contains(entry));
                    return true;
                }
                Operation::Insert { .. } | Operation::Remove { .. } | Operation::Modify { .. } => {
                    return true;
                }
            };
            answered.push(Event::Answered { ticket: *ticket, result });
            false
        });
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Answered { ticket, result } => {
                let is_gone = match self.under_way.remove(ticket).flatten() {
                    Some(Change::Insert(entry)) => result.is_err().then_some(entry),
                    Some(Change::Remove(entry)) => is_gone(result).then_some(entry),
                    None => None,
                };
                if let Some(entry) = is_gone {
                    self.held.remove(&entry);
                }
            }
            Event::Lost(_) => self.is_there = false,
            Event::Restored => self.is_there = true,
            Event::Counted { .. } | Event::Idle { .. } => {}
        }
    }
}

/// Whether a removal has left nothing.
const fn is_gone(result: &Result<(), TargetError>) -> bool {
    matches!(result, Ok(()) | Err(TargetError::NoSuchEntry))
}

impl<T: LtmTarget> LtmTarget for Exchange<T> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.as_ref().map_or(&self.nothing, LtmTarget::capabilities)
    }

    fn is_there(&self) -> bool {
        self.is_there
    }

    fn room(&self, stage: StageId) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.room(stage))
    }

    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
        self.take_next();
        if !self.is_there {
            return Err(Lost);
        }
        self.answer_gone(batch);
        let changes: Vec<(Ticket, Option<Change>)> =
            batch.iter().map(|(ticket, operation)| (*ticket, change(operation))).collect();
        let Some(inner) = &mut self.inner else { return Err(Lost) };
        inner.submit(batch)?;
        let taken = changes.len() - batch.len();
        for (ticket, change) in changes.into_iter().take(taken) {
            if let Some(Change::Insert(entry)) = change {
                self.held.insert(entry);
            }
            self.under_way.insert(ticket, change);
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        self.take_next();
        self.leaving.retain_mut(Leaving::goes_on);
        events.append(&mut self.answered);
        let from = events.len();
        if let Some(inner) = &mut self.inner {
            inner.poll(events);
        }
        let mut is_restored = false;
        for event in &events[from..] {
            self.note(event);
            is_restored |= *event == Event::Restored;
        }
        if is_restored && self.is_there {
            events.extend(self.gone.iter().map(|entry| Event::Idle { entry: *entry }));
        }
    }
}

fn change(operation: &Operation) -> Option<Change> {
    match operation {
        Operation::Insert { entry, .. } => Some(Change::Insert(*entry)),
        Operation::Remove { entry } => Some(Change::Remove(*entry)),
        Operation::Modify { .. } | Operation::Count { .. } => None,
    }
}

impl<T: LtmTarget> Leaving<T> {
    /// Empties the target a bit more; answers whether it goes on.
    fn goes_on(&mut self) -> bool {
        let mut events = Vec::new();
        self.target.poll(&mut events);
        for event in events {
            match event {
                Event::Answered { .. } => self.under_way = self.under_way.saturating_sub(1),
                // It holds nothing that anybody could still take out.
                Event::Lost(_) => return false,
                Event::Counted { .. } | Event::Idle { .. } | Event::Restored => {}
            }
        }
        self.is_asked |= self.under_way == 0;
        if self.is_asked && !self.removals.is_empty() {
            let before = self.removals.len();
            if self.target.submit(&mut self.removals).is_err() {
                return false;
            }
            self.under_way += before - self.removals.len();
        }
        !self.is_asked || self.under_way > 0 || !self.removals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use shunt_flow::Match;
    use shunt_gigaflow::ltm::{LtmRule, Next, Tag};
    use shunt_p4runtime::{
        codec::{Skills, capabilities},
        program::Program,
    };

    use super::*;

    /// A device: the entries that it holds, and operations that it has not answered.
    #[derive(Debug, Default)]
    struct Device {
        held: BTreeSet<LtmIndex>,
        waiting: Vec<(Ticket, Operation)>,
        is_new: bool,
        is_slow: bool,
    }

    struct Fake(Arc<Mutex<Device>>, Capabilities);

    fn fake() -> (Fake, Arc<Mutex<Device>>) {
        let device = Arc::new(Mutex::new(Device { is_new: true, ..Device::default() }));
        (Fake(Arc::clone(&device), nothing()), device)
    }

    fn nothing() -> Capabilities {
        capabilities(&Program::default(), &Skills::default())
    }

    impl LtmTarget for Fake {
        fn capabilities(&self) -> &Capabilities {
            &self.1
        }

        fn is_there(&self) -> bool {
            !self.0.lock().is_new
        }

        fn room(&self, _: StageId) -> usize {
            9
        }

        fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost> {
            self.0.lock().waiting.append(batch);
            Ok(())
        }

        fn poll(&mut self, events: &mut Vec<Event>) {
            let device = &mut *self.0.lock();
            if std::mem::take(&mut device.is_new) {
                events.push(Event::Restored);
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
                        Err(TargetError::NoSuchEntry)
                    }
                };
                events.push(Event::Answered { ticket, result });
            }
        }
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

    fn heard(exchange: &mut Exchange<Fake>) -> Vec<Event> {
        let mut events = Vec::new();
        exchange.poll(&mut events);
        events
    }

    fn done(ticket: u64) -> Event {
        Event::Answered { ticket: Ticket(ticket), result: Ok(()) }
    }

    #[test]
    fn without_a_target_nothing_is_taken() {
        let (mut exchange, next) = Exchange::new(nothing());
        let mut batch = vec![insert(1)];
        assert_eq!(exchange.submit(&mut batch), Err(Lost));
        assert_eq!((heard(&mut exchange), batch.len()), (vec![], 1));
        next.send(Some(fake().0)).unwrap();
        assert_eq!(exchange.submit(&mut batch), Err(Lost), "it has not said that it is there");
        assert_eq!(heard(&mut exchange), [Event::Restored]);
        exchange.submit(&mut batch).unwrap();
        assert_eq!(heard(&mut exchange), [done(1)]);
    }

    #[test]
    fn what_one_target_held_the_next_does_not_and_the_owner_hears_of_it() {
        let (mut exchange, next) = Exchange::new(nothing());
        next.send(Some(fake().0)).unwrap();
        heard(&mut exchange);
        exchange.submit(&mut vec![insert(1), insert(2)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(1), done(2)]);
        let (second, device) = fake();
        next.send(Some(second)).unwrap();
        let idle = |number| Event::Idle { entry: LtmIndex(number) };
        assert_eq!(heard(&mut exchange), [Event::Lost(Lost), Event::Restored, idle(1), idle(2)]);
        let entries = vec![LtmIndex(1), LtmIndex(2)];
        let remove = |number| Operation::Remove { entry: LtmIndex(number) };
        let count = (Ticket(4), Operation::Count { entries });
        exchange.submit(&mut vec![count, (Ticket(3), remove(1)), insert(5)]).unwrap();
        let mut events = heard(&mut exchange);
        events.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [done(3), done(4), done(5)]);
        assert_eq!(device.lock().held, BTreeSet::from([LtmIndex(5)]));
        exchange.submit(&mut vec![(Ticket(6), remove(2)), (Ticket(7), remove(5))]).unwrap();
        assert_eq!(heard(&mut exchange), [done(6), done(7)]);
        assert!(device.lock().held.is_empty());
    }

    #[test]
    fn a_target_that_is_given_up_is_emptied_once_it_has_answered() {
        let (mut exchange, next) = Exchange::new(nothing());
        let (first, device) = fake();
        next.send(Some(first)).unwrap();
        heard(&mut exchange);
        exchange.submit(&mut vec![insert(1)]).unwrap();
        heard(&mut exchange);
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(2)]).unwrap();
        next.send(None).unwrap();
        let lost = Event::Answered { ticket: Ticket(2), result: Err(TargetError::Lost(Lost)) };
        assert_eq!(heard(&mut exchange), [lost, Event::Lost(Lost)]);
        assert_eq!(exchange.submit(&mut vec![insert(3)]), Err(Lost));
        device.lock().is_slow = false;
        for _ in 0..3 {
            assert_eq!(heard(&mut exchange), []);
        }
        assert!(device.lock().held.is_empty(), "{device:?}");
        assert_eq!(Arc::strong_count(&device), 1, "it is let go");
    }
}
