//! Repair: translates stale entries with traffic again, before the next packet misses.
//!
//! The invalidation evicts all stale entries first, so no packet hits a stale entry, and the thread
//! acknowledges the version at once. A repair translates at the thread's current version (rule 5 of
//! [`crate::evict::owner`]). The new entry is like any other: it has an install number, is
//! reported, and starts without hits. The hits of the old entry are credited to the rules of the
//! old entry. The new entry takes over the old entry's time of last use, so repair does not delay
//! expiry.
//!
//! An iteration repairs some entries before it receives packets, within its budget of translations.
//! Repairs use at most half of this budget, even if the iteration adopts several versions. The
//! share is an eighth if packets wait from the previous iteration, or a queue returned a full
//! burst. Packets that miss need translations now: repairs for other flows would make their queues
//! overflow.
//!
//! Most recently hit entries are repaired first. The repair of an entry is abandoned after a
//! second; if few slots are free, the repairs of the least recently hit entries are abandoned. A
//! packet that arrives before the repair of its entry is translated like any miss; the repair then
//! finds an entry that covers the flow.

use std::time::Duration;

use shunt_pipeline::{Pipeline, Time};

use crate::{
    cache::{Caches, index::RepairOutcome},
    command::Repair,
    metrics::ThreadCounters,
};

/// The mode and the budget of repairs.
#[derive(Debug, Default)]
pub(in crate::thread) struct Repairer {
    /// The mode of repairs.
    mode: Repair,
    /// Number of translations left for repairs in this iteration.
    left: usize,
    /// Earliest time of the next repair, if repairs have a rate limit.
    next: Time,
}

/// Maximum time that a stale entry waits for its repair.
///
/// By then, packets of a flow with traffic have missed.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Time without repairs that later repairs may make up for, under a rate limit.
const SAVED_MAX: Duration = Duration::from_millis(10);

/// Maximum number of repairs abandoned in one iteration.
const ABANDONED_PER_ITERATION: usize = 64;

impl Repairer {
    /// Creates a repairer with a full budget.
    pub(in crate::thread) fn new(mode: Repair) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Sets the mode of repairs.
    pub(in crate::thread) const fn set(&mut self, mode: Repair) {
        self.mode = mode;
    }

    /// Returns whether evicted entries are repaired.
    pub(in crate::thread) fn is_on(&self) -> bool {
        self.mode != Repair::Off
    }

    /// Starts an iteration with a budget of `translations`; `is_busy` if packets wait.
    pub(in crate::thread) const fn begin(&mut self, translations: usize, is_busy: bool) {
        self.left = translations.div_ceil(if is_busy { 8 } else { 2 });
    }

    /// Returns whether the rate limit allows one more repair, and counts the repair.
    fn allows(&mut self, now: Time) -> bool {
        let Repair::Rate(rate) = self.mode else { return self.is_on() };
        if self.next > now || rate == 0 {
            return false;
        }
        // The conversion cannot fail: the constant is less than a second.
        let saved = u64::try_from(SAVED_MAX.as_nanos()).unwrap_or(u64::MAX);
        let earliest = Time::from_nanoseconds(now.nanoseconds().saturating_sub(saved));
        self.next = self.next.max(earliest).after(Duration::from_secs(1) / rate);
        true
    }

    /// Repairs some stale entries, and deducts their cost from `translations_left`.
    ///
    /// Returns whether an entry was repaired.
    pub(in crate::thread) fn run(
        &mut self,
        caches: &mut Caches,
        pipeline: &Pipeline,
        translations_left: &mut usize,
        counters: &ThreadCounters,
        now: Time,
    ) -> bool {
        let mut has_repaired = false;
        while self.left.min(*translations_left) > 0
            && caches.owner.entries().pending_repairs() > 0
            && self.allows(now)
        {
            let Some(repaired) = caches.repair(pipeline) else { break };
            repaired.reclaimed.apply_credit(pipeline);
            match repaired.outcome {
                RepairOutcome::Same => counters.repaired_same.add(1),
                RepairOutcome::Changed => counters.repaired_changed.add(1),
                RepairOutcome::Covered => counters.repair_covered.add(1),
                RepairOutcome::Dropped => counters.repair_dropped.add(1),
            }
            // The search for a covering entry is a lookup, so it counts as one translation.
            let cost = usize::try_from(repaired.translations).unwrap_or(usize::MAX).max(1);
            self.left = self.left.saturating_sub(cost);
            *translations_left = translations_left.saturating_sub(cost);
            has_repaired = true;
        }
        has_repaired
    }

    /// Abandons repairs that have waited too long; returns whether there was one.
    pub(in crate::thread) fn abandon_late(
        &self,
        caches: &mut Caches,
        counters: &ThreadCounters,
        now: Time,
    ) -> bool {
        let since_start = Duration::from_nanos(now.nanoseconds());
        let late = since_start.checked_sub(WAIT_MAX).map(|until| Time::ZERO.after(until));
        match (self.is_on(), late) {
            (true, None) => false,
            (true, late) => abandon(caches, counters, late),
            (false, _) => abandon(caches, counters, None),
        }
    }
}

/// Abandons some repairs of entries evicted until `until`; `None`: of any entries.
pub(in crate::thread) fn abandon(
    caches: &mut Caches,
    counters: &ThreadCounters,
    until: Option<Time>,
) -> bool {
    let abandoned = caches.abandon_repairs(ABANDONED_PER_ITERATION, until);
    counters.repair_dropped.add(abandoned as u64);
    abandoned > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_bounds_repairs() {
        let mut repairer = Repairer::new(Repair::Rate(1000));
        let mut made = 0;
        for micros in (0..1_000_000).step_by(50) {
            let now = Time::ZERO.after(Duration::from_micros(micros));
            made += usize::from(repairer.allows(now));
        }
        assert!((990..=1010).contains(&made), "{made}");
        // After a pause, only the repairs of the last 10 ms may be made up for.
        let later = Time::ZERO.after(Duration::from_secs(60));
        let at_once = (0..1000).filter(|_| repairer.allows(later)).count();
        assert!((9..=12).contains(&at_once), "{at_once}");
    }
}
