//! A target that is given up, and emptied as far as it answers.
//!
//! What it was asked before comes first, so that nothing goes in behind its back. One that is lost is
//! asked again when it is back; what it refuses stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shunt_gigaflow::offload::{
    LtmIndex, OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket,
};
use shunt_pipeline::Time;
use tracing::{info, warn};

/// A target that is being given up.
pub(super) struct Leaving<T> {
    target: T,
    is_there: bool,
    /// What it was asked before, and has not answered yet.
    under_way: BTreeSet<Ticket>,
    /// What it is to be asked to remove when it has.
    removals: Vec<(Ticket, Operation)>,
    /// What it was asked to remove.
    asked: BTreeMap<Ticket, LtmIndex>,
    /// What it may hold.
    held: BTreeSet<LtmIndex>,
    /// When it is left as it is.
    until: Time,
}

/// How long a target may take to be emptied: as long as a request that nobody answers, and some more.
pub(super) const LEAVING_MAX: Duration = Duration::from_secs(6);

impl<T: OffloadDevice> Leaving<T> {
    /// A target that is there or not, with what it has not answered and what it may hold; by `until` it is
    /// left as it is.
    pub(super) fn new(
        (target, is_there): (T, bool),
        under_way: BTreeSet<Ticket>,
        held: BTreeSet<LtmIndex>,
        until: Time,
    ) -> Self {
        let removals = held.iter().zip((0..).map(Ticket)).map(|(entry, ticket)| (*entry, ticket));
        let removals = removals.map(|(entry, ticket)| (ticket, Operation::Remove { entry }));
        let (removals, asked) = (removals.collect(), BTreeMap::new());
        Self { target, is_there, under_way, removals, asked, held, until }
    }

    /// Empties the target a bit more; answers whether it goes on.
    pub(super) fn goes_on(&mut self, now: Time) -> bool {
        let mut events = Vec::new();
        self.target.poll(&mut events);
        events.into_iter().for_each(|event| self.note(event));
        if self.is_there && self.under_way.is_empty() && !self.removals.is_empty() {
            self.ask();
        }
        let is_over = self.removals.is_empty() && self.asked.is_empty();
        !is_over && now < self.until
    }

    fn note(&mut self, event: OffloadEvent) {
        match event {
            OffloadEvent::Completed { ticket, result } => {
                if self.under_way.remove(&ticket) {
                    return;
                }
                let Some(entry) = self.asked.remove(&ticket) else { return };
                if is_gone(&result) {
                    self.held.remove(&entry);
                } else if matches!(result, Err(OffloadError::Lost(_))) {
                    self.removals.push((ticket, Operation::Remove { entry }));
                }
            }
            OffloadEvent::Lost(_) => self.is_there = false,
            OffloadEvent::Restored => self.is_there = true,
            OffloadEvent::Counted { .. } | OffloadEvent::Idle { .. } => {}
        }
    }

    fn ask(&mut self) {
        let removal = |(ticket, operation): &(Ticket, Operation)| match operation {
            Operation::Remove { entry } => Some((*ticket, *entry)),
            Operation::Insert { .. } | Operation::Modify { .. } | Operation::Count { .. } => None,
        };
        let asked: Vec<(Ticket, LtmIndex)> = self.removals.iter().filter_map(removal).collect();
        // One that is lost says so when it is asked for events.
        let _ = self.target.submit(&mut self.removals);
        let taken = asked.len() - self.removals.len();
        self.asked.extend(asked.into_iter().take(taken));
    }

    /// It is let go: says what became of it.
    pub(super) fn end(self) {
        let entries = self.held.len();
        if entries == 0 {
            info!("the NIC before is empty");
        } else {
            warn!(entries, "the NIC before is left with rules that nobody takes out");
        }
    }
}

/// Whether a removal has left nothing.
pub(super) const fn is_gone(result: &Result<(), OffloadError>) -> bool {
    matches!(result, Ok(()) | Err(OffloadError::NoSuchEntry))
}
