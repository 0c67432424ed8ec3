//! Entries that a version made stale although packets come to them: translated anew and put in the
//! place of the old ones, so that the next packet hits and need not wait for its translation.
//!
//! The advance drops them first, as it does all: nothing stale is hit, and the version is answered at
//! once. What is made anew is translated under the version that the thread is at then (rule 5 of
//! [`crate::evict::owner`]), and is an entry like any other: it has a number, is reported, and begins with no
//! hits. Those of the old one are credited to the rules that it was made of, and the new one was used
//! when the old one was: to be made anew prolongs nothing.
//!
//! A turn makes some before it receives, at the expense of the translations that packets may ask for
//! in it: half of them at most, however many versions it takes and however many translations one entry
//! needs. Where packets wait from the turn before, or a queue gave a whole burst in it so that more may
//! lie there, it is an eighth: packets that miss make entries that are asked for already, and what is
//! made for others meanwhile makes them wait longer, in queues that overflow.
//!
//! Those that were hit last come first; what has waited for a second is given up, and so are those that
//! were hit longest ago where room is short. A packet that comes before its entry was made anew is
//! translated as ever, and finds out that the work is done, or does it itself.

use std::time::Duration;

use shunt_pipeline::Time;

use super::PacketThread;
use crate::{cache::index::RepairOutcome, command::Repair};

/// Which entries are made anew, and when.
#[derive(Debug, Default)]
pub(super) struct Repairer {
    mode: Repair,
    /// Translations that it may still make in this turn.
    left: usize,
    /// By rate: the moment of the next.
    next: Time,
}

/// How long an entry may wait to be made anew: after that, its packets have seen to it.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// By rate: as much as is due in this time may be done at once.
const SAVED_MAX: Duration = Duration::from_millis(10);

/// Entries that wait in vain, given up in a turn.
const ABANDONED_PER_ITERATION: usize = 64;

impl Repairer {
    pub(super) fn new(mode: Repair) -> Self {
        Self { mode, ..Self::default() }
    }

    /// From now on it is done so.
    pub(super) const fn set(&mut self, mode: Repair) {
        self.mode = mode;
    }

    pub(super) fn is_on(&self) -> bool {
        self.mode != Repair::Off
    }

    /// A turn begins, in which so many translations may be made; packets wait, or none does.
    pub(super) const fn begin(&mut self, translations: usize, is_pressed: bool) {
        self.left = translations.div_ceil(if is_pressed { 8 } else { 2 });
    }

    /// Whether one more may be made; it is counted.
    fn allows(&mut self, now: Time) -> bool {
        let Repair::Rate(rate) = self.mode else { return self.is_on() };
        if self.next > now || rate == 0 {
            return false;
        }
        let saved = u64::try_from(SAVED_MAX.as_nanos()).unwrap_or(u64::MAX);
        let earliest = Time::from_nanoseconds(now.nanoseconds().saturating_sub(saved));
        self.next = self.next.max(earliest).after(Duration::from_secs(1) / rate);
        true
    }
}

impl PacketThread {
    /// Makes some entries anew. Answers whether there was one.
    pub(super) fn repair(&mut self) -> bool {
        let mut has_made = false;
        while self.repairer.left.min(self.translations_left) > 0
            && self.caches.owner.entries().fallen() > 0
            && self.repairer.allows(self.now)
        {
            let Some(repaired) = self.caches.repair(&self.pipeline) else { break };
            self.credit_reclaimed(&repaired.reclaimed);
            match repaired.outcome {
                RepairOutcome::Same => self.counters.repaired_same.add(1),
                RepairOutcome::Changed => self.counters.repaired_changed.add(1),
                RepairOutcome::Covered => self.counters.repair_covered.add(1),
                RepairOutcome::Dropped => self.counters.repair_dropped.add(1),
            }
            // To find that there is nothing to do is work as well.
            let cost = usize::try_from(repaired.translations).unwrap_or(usize::MAX).max(1);
            self.repairer.left = self.repairer.left.saturating_sub(cost);
            self.translations_left = self.translations_left.saturating_sub(cost);
            has_made = true;
        }
        has_made
    }

    /// Gives up entries that have waited for too long to be made anew. Answers whether there was one.
    pub(super) fn give_up_repairs(&mut self) -> bool {
        let since_start = Duration::from_nanos(self.now.nanoseconds());
        let late = since_start.checked_sub(WAIT_MAX).map(|until| Time::ZERO.after(until));
        match (self.repairer.is_on(), late) {
            (true, None) => false,
            (true, late) => self.give_up(late),
            (false, _) => self.give_up(None),
        }
    }

    /// Leaves room to packets that ask for it now.
    pub(super) fn make_room(&mut self) {
        if self.caches.needs_reclaims() {
            self.give_up(None);
            self.reclaim();
        }
    }

    fn give_up(&mut self, until: Option<Time>) -> bool {
        let given_up = self.caches.give_up(ABANDONED_PER_ITERATION, until);
        self.counters.repair_dropped.add(given_up as u64);
        given_up > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_rate_no_more_are_made_than_are_due() {
        let mut repairer = Repairer::new(Repair::Rate(1000));
        let mut made = 0;
        for micros in (0..1_000_000).step_by(50) {
            let now = Time::ZERO.after(Duration::from_micros(micros));
            made += usize::from(repairer.allows(now));
        }
        assert!((990..=1010).contains(&made), "{made}");
        // What was not done in time is lost, but for a moment's worth.
        let later = Time::ZERO.after(Duration::from_secs(60));
        let at_once = (0..1000).filter(|_| repairer.allows(later)).count();
        assert!((9..=12).contains(&at_once), "{at_once}");
    }
}
