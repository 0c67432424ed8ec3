//! A target that is exchanged for another while its owner runs.
//!
//! To the owner it is one target, which is lost and restored. What a target before this one held, this
//! one does not: once it is restored, the owner hears of each such entry that it is idle, and removes
//! it, which is done at once as it is not there.
//!
//! A NIC that nobody drives any more is not to forward by what it was told last. So one that is given
//! up is emptied first, and until it is, or has not answered for [`LEAVING_MAX`], no other is there: the
//! owner's target is lost meanwhile, every status says why, and a version that is answered is answered
//! without the NIC. What could not be taken out is told in the log.

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

use super::leaving::{LEAVING_MAX, Leaving, is_gone};

/// A place for a target.
pub(crate) struct Exchange<T> {
    next: mpsc::Receiver<Successor<T>>,
    /// Exchanges in which the target before is not empty yet, for whoever shows it.
    pending: Arc<AtomicUsize>,
    now: Box<dyn Fn() -> Time + Send>,
    inner: Option<T>,
    /// Whether the target that is here is restored.
    is_restored: bool,
    /// Whether the owner was told so.
    is_there: bool,
    /// The capabilities where there is no target.
    nothing: OffloadCapabilities,
    /// What the target has not answered, with the entry that it changes.
    under_way: BTreeMap<Ticket, Option<Change>>,
    /// What the target may hold.
    held: BTreeSet<LtmIndex>,
    /// Of this, what went in as the target was lost: until it is restored it may be there, and the owner
    /// thinks that it was never made.
    unsure: BTreeSet<LtmIndex>,
    /// What the owner takes for held, and no target holds.
    gone: BTreeSet<LtmIndex>,
    acked: Vec<OffloadEvent>,
    leaving: Vec<Leaving<T>>,
}

/// Where targets that are to take the place of others are sent; the owner is woken then.
pub(crate) struct Successors<T> {
    next: mpsc::Sender<Successor<T>>,
    pending: Arc<AtomicUsize>,
}

/// A target that takes the place of another.
struct Successor<T> {
    target: Option<T>,
    before: Before,
}

/// How the target before is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It goes on, and is to be emptied.
    Runs,
    /// It has ended, and its rules with it.
    Ended,
}

/// What an operation does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Insert(LtmIndex),
    Remove(LtmIndex),
}

impl<T> Successors<T> {
    /// Has a target, or none, take the place of the one that is there.
    pub(crate) fn send(&self, target: Option<T>, before: Before) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // Without the owner, which was stopped or has panicked, nobody drives a target.
        if self.next.send(Successor { target, before }).is_err() {
            self.pending.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a target before is not empty yet, so that it may forward by rules that are gone.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }
}

impl<T: OffloadDevice> Exchange<T> {
    /// Without a target, in a time that `now` tells; those to come are sent to the other end.
    pub(crate) fn new(
        nothing: OffloadCapabilities,
        now: impl Fn() -> Time + Send + 'static,
    ) -> (Self, Successors<T>) {
        let (sender, next) = mpsc::channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let exchange = Self {
            next,
            pending: Arc::clone(&pending),
            now: Box::new(now),
            inner: None,
            is_restored: false,
            is_there: false,
            nothing,
            under_way: BTreeMap::new(),
            held: BTreeSet::new(),
            unsure: BTreeSet::new(),
            gone: BTreeSet::new(),
            acked: Vec::new(),
            leaving: Vec::new(),
        };
        (exchange, Successors { next: sender, pending })
    }

    fn take_next(&mut self) {
        while let Ok(Successor { target, before }) = self.next.try_recv() {
            match self.inner.take() {
                Some(inner) => self.give_up(inner, before),
                None => self.end_exchange(),
            }
            (self.inner, self.is_restored) = (target, false);
        }
    }

    fn give_up(&mut self, target: T, before: Before) {
        let under_way = std::mem::take(&mut self.under_way);
        let held = std::mem::take(&mut self.held);
        let inserting = |change: &Option<Change>| match change {
            Some(Change::Insert(entry)) => Some(*entry),
            Some(Change::Remove(_)) | None => None,
        };
        let mut unsure = std::mem::take(&mut self.unsure);
        unsure.extend(under_way.values().filter_map(inserting));
        self.gone.extend(held.difference(&unsure));
        for ticket in under_way.keys() {
            let result = Err(OffloadError::Lost(Lost));
            self.acked.push(OffloadEvent::Completed { ticket: *ticket, result });
        }
        if std::mem::take(&mut self.is_there) {
            self.acked.push(OffloadEvent::Lost(Lost));
        }
        if before == Before::Ended || held.is_empty() {
            self.end_exchange();
            return;
        }
        let under_way = under_way.into_keys().collect();
        let until = (self.now)().after(LEAVING_MAX);
        self.leaving.push(Leaving::new((target, self.is_restored), under_way, held, until));
    }

    /// What was the target before holds nothing, or is left as it is.
    fn end_exchange(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Empties those that are given up a bit more.
    fn see_off(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let now = (self.now)();
        let ended: Vec<Leaving<T>> =
            self.leaving.extract_if(.., |leaving| !leaving.goes_on(now)).collect();
        for leaving in ended {
            leaving.end();
            self.end_exchange();
        }
    }

    /// Answers at once what is asked of an entry that no target holds.
    fn answer_gone(&mut self, batch: &mut Vec<(Ticket, Operation)>) {
        let (gone, acked) = (&mut self.gone, &mut self.acked);
        batch.retain_mut(|(ticket, operation)| {
            let result = match operation {
                Operation::Remove { entry } if gone.remove(entry) => Ok(()),
                Operation::Modify { entry, .. } if gone.contains(entry) => {
                    Err(OffloadError::NoSuchEntry)
                }
                Operation::Count { entries } => {
                    entries.retain(|entry| !gone.contains(entry));
                    return true;
                }
                Operation::Insert { .. } | Operation::Remove { .. } | Operation::Modify { .. } => {
                    return true;
                }
            };
            acked.push(OffloadEvent::Completed { ticket: *ticket, result });
            false
        });
    }

    fn note(&mut self, event: &OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                let is_gone = match self.under_way.remove(ticket).flatten() {
                    Some(Change::Insert(entry)) if matches!(result, Err(OffloadError::Lost(_))) => {
                        self.unsure.insert(entry);
                        None
                    }
                    Some(Change::Insert(entry)) => result.is_err().then_some(entry),
                    Some(Change::Remove(entry)) => is_gone(result).then_some(entry),
                    None => None,
                };
                if let Some(entry) = is_gone {
                    self.held.remove(&entry);
                }
            }
            OffloadEvent::Lost(_) => self.is_restored = false,
            OffloadEvent::Restored => {
                // It holds just what it has confirmed.
                let unsure = std::mem::take(&mut self.unsure);
                self.held.retain(|entry| !unsure.contains(entry));
                self.is_restored = true;
            }
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } => {}
        }
    }
}

impl<T: OffloadDevice> OffloadDevice for Exchange<T> {
    fn capabilities(&self) -> &OffloadCapabilities {
        self.inner.as_ref().map_or(&self.nothing, OffloadDevice::capabilities)
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

    fn poll(&mut self, events: &mut Vec<OffloadEvent>) {
        self.take_next();
        self.see_off();
        events.append(&mut self.acked);
        let mut heard = Vec::new();
        if let Some(inner) = &mut self.inner {
            inner.poll(&mut heard);
        }
        for event in heard {
            self.note(&event);
            match event {
                OffloadEvent::Restored => {}
                OffloadEvent::Lost(_) if !std::mem::take(&mut self.is_there) => {}
                event => events.push(event),
            }
        }
        if self.is_restored && !self.is_there && self.leaving.is_empty() {
            self.is_there = true;
            events.push(OffloadEvent::Restored);
            events.extend(self.gone.iter().map(|entry| OffloadEvent::Idle { entry: *entry }));
        }
    }

    fn forget(&mut self, entry: LtmIndex) {
        if let Some(inner) = &mut self.inner {
            inner.forget(entry);
        }
    }
}

impl<T> Drop for Exchange<T> {
    /// Nobody empties anything any more.
    fn drop(&mut self) {
        self.pending.store(0, Ordering::Relaxed);
    }
}

fn change(operation: &Operation) -> Option<Change> {
    match operation {
        Operation::Insert { entry, .. } => Some(Change::Insert(*entry)),
        Operation::Remove { entry } => Some(Change::Remove(*entry)),
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
        /// It loses its connection when it is asked for events next.
        is_lost: bool,
    }

    struct Fake(Arc<Mutex<Device>>, OffloadCapabilities);

    fn fake() -> (Fake, Arc<Mutex<Device>>) {
        let device = Arc::new(Mutex::new(Device { is_new: true, ..Device::default() }));
        (Fake(Arc::clone(&device), nothing()), device)
    }

    fn nothing() -> OffloadCapabilities {
        capabilities(&Program::default(), &Skills::default())
    }

    impl OffloadDevice for Fake {
        fn capabilities(&self) -> &OffloadCapabilities {
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

    /// An exchange, and its time.
    fn exchange() -> (Exchange<Fake>, Successors<Fake>, Arc<Mutex<Time>>) {
        let time = Arc::new(Mutex::new(Time::ZERO));
        let now = Arc::clone(&time);
        let (exchange, next) = Exchange::new(nothing(), move || *now.lock());
        (exchange, next, time)
    }

    /// What is shared with an exchange: its targets to come, the device of the first, and its time.
    type Shared = (Successors<Fake>, Arc<Mutex<Device>>, Arc<Mutex<Time>>);

    /// With a first target.
    fn with_first() -> (Exchange<Fake>, Shared) {
        let (mut exchange, next, time) = exchange();
        let (first, device) = fake();
        next.send(Some(first), Before::Runs);
        assert_eq!(heard(&mut exchange), [OffloadEvent::Restored]);
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

    fn heard(exchange: &mut Exchange<Fake>) -> Vec<OffloadEvent> {
        let mut events = Vec::new();
        exchange.poll(&mut events);
        events
    }

    fn remove(ticket: u64, number: u64) -> (Ticket, Operation) {
        (Ticket(ticket), Operation::Remove { entry: LtmIndex(number) })
    }

    fn lost(ticket: u64) -> OffloadEvent {
        OffloadEvent::Completed { ticket: Ticket(ticket), result: Err(OffloadError::Lost(Lost)) }
    }

    fn done(ticket: u64) -> OffloadEvent {
        OffloadEvent::Completed { ticket: Ticket(ticket), result: Ok(()) }
    }

    #[test]
    fn without_a_target_nothing_is_taken() {
        let (mut exchange, next, _) = exchange();
        let mut batch = vec![insert(1)];
        assert_eq!(exchange.submit(&mut batch), Err(Lost));
        assert_eq!((heard(&mut exchange), batch.len()), (vec![], 1));
        next.send(Some(fake().0), Before::Runs);
        assert_eq!(exchange.submit(&mut batch), Err(Lost), "it has not said that it is there");
        assert_eq!(heard(&mut exchange), [OffloadEvent::Restored]);
        exchange.submit(&mut batch).unwrap();
        assert_eq!(heard(&mut exchange), [done(1)]);
    }

    #[test]
    fn what_one_target_held_the_next_does_not_and_the_owner_hears_of_it() {
        let (mut exchange, (next, _, _)) = with_first();
        exchange.submit(&mut vec![insert(1), insert(2)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(1), done(2)]);
        let (second, device) = fake();
        next.send(Some(second), Before::Ended);
        let idle = |number| OffloadEvent::Idle { entry: LtmIndex(number) };
        assert_eq!(
            heard(&mut exchange),
            [OffloadEvent::Lost(Lost), OffloadEvent::Restored, idle(1), idle(2)]
        );
        let entries = vec![LtmIndex(1), LtmIndex(2)];
        let count = (Ticket(4), Operation::Count { entries });
        exchange.submit(&mut vec![count, remove(3, 1), insert(5)]).unwrap();
        let mut events = heard(&mut exchange);
        events.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [done(3), done(4), done(5)]);
        assert_eq!(device.lock().held, BTreeSet::from([LtmIndex(5)]));
        exchange.submit(&mut vec![remove(6, 2), remove(7, 5)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(6), done(7)]);
        assert!(device.lock().held.is_empty());
    }

    #[test]
    fn what_was_on_its_way_into_one_target_goes_into_the_next_and_out_again() {
        let (mut exchange, (next, device, _)) = with_first();
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(1)]).unwrap();
        let (second, device) = fake();
        next.send(Some(second), Before::Ended);
        let lost = [lost(1), OffloadEvent::Lost(Lost), OffloadEvent::Restored];
        assert_eq!(heard(&mut exchange), lost, "it is not there, and nobody thinks that it is");
        exchange.submit(&mut vec![insert(1)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(1)]);
        exchange.submit(&mut vec![remove(2, 1)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(2)]);
        assert!(device.lock().held.is_empty());
    }

    #[test]
    fn no_target_is_there_before_the_one_that_was_is_empty() {
        let (mut exchange, (next, device, _)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        heard(&mut exchange);
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(2)]).unwrap();
        next.send(Some(fake().0), Before::Runs);
        assert_eq!(heard(&mut exchange), [lost(2), OffloadEvent::Lost(Lost)]);
        assert_eq!((heard(&mut exchange), next.is_pending()), (vec![], true));
        assert_eq!(exchange.submit(&mut vec![insert(3)]), Err(Lost));
        device.lock().is_slow = false;
        assert_eq!(heard(&mut exchange), [], "it is asked");
        let idle = OffloadEvent::Idle { entry: LtmIndex(1) };
        assert_eq!(heard(&mut exchange), [OffloadEvent::Restored, idle]);
        assert!(device.lock().held.is_empty(), "{device:?}");
        assert_eq!((Arc::strong_count(&device), next.is_pending()), (1, false), "it is let go");
        exchange.submit(&mut vec![insert(3)]).unwrap();
        assert_eq!(heard(&mut exchange), [done(3)]);
    }

    #[test]
    fn a_target_that_is_given_up_and_lost_is_emptied_when_it_is_back() {
        let (mut exchange, (next, device, _)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        heard(&mut exchange);
        device.lock().is_slow = true;
        next.send(None, Before::Runs);
        assert_eq!(heard(&mut exchange), [OffloadEvent::Lost(Lost)]);
        device.lock().is_lost = true;
        assert_eq!((heard(&mut exchange), next.is_pending()), (vec![], true));
        (device.lock().is_new, device.lock().is_slow) = (true, false);
        assert_eq!((heard(&mut exchange), heard(&mut exchange)), (vec![], vec![]));
        assert!(device.lock().held.is_empty() && !next.is_pending(), "{device:?}");
    }

    #[test]
    fn what_went_in_as_the_target_was_lost_is_waited_for_too() {
        let (mut exchange, (next, device, _)) = with_first();
        device.lock().is_slow = true;
        exchange.submit(&mut vec![insert(1)]).unwrap();
        device.lock().is_lost = true;
        assert_eq!(heard(&mut exchange), [lost(1), OffloadEvent::Lost(Lost)]);
        next.send(Some(fake().0), Before::Runs);
        assert_eq!((heard(&mut exchange), next.is_pending()), (vec![], true), "it may be there");
        (device.lock().is_new, device.lock().is_slow) = (true, false);
        assert_eq!(heard(&mut exchange), [], "it is asked");
        assert_eq!(
            heard(&mut exchange),
            [OffloadEvent::Restored],
            "nobody thinks that it is there"
        );
        assert!(!next.is_pending());
    }

    #[test]
    fn a_target_that_does_not_answer_is_left_after_some_time() {
        let (mut exchange, (next, device, time)) = with_first();
        exchange.submit(&mut vec![insert(1)]).unwrap();
        heard(&mut exchange);
        device.lock().is_slow = true;
        next.send(Some(fake().0), Before::Runs);
        assert_eq!(heard(&mut exchange), [OffloadEvent::Lost(Lost)]);
        *time.lock() = Time::ZERO.after(LEAVING_MAX - Duration::from_millis(1));
        assert_eq!((heard(&mut exchange), next.is_pending()), (vec![], true));
        *time.lock() = Time::ZERO.after(LEAVING_MAX);
        assert_eq!(heard(&mut exchange).first(), Some(&OffloadEvent::Restored));
        assert_eq!((Arc::strong_count(&device), next.is_pending()), (1, false));
    }
}
