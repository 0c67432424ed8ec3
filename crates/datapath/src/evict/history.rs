//! What a desk remembers of the changes that it applied: how long they took, what they ended, and
//! why.
//!
//! It is for people, and of bounded size: times are counted in buckets that double, evictions by
//! cause and by table, and of single evictions the last [`RECENT_MAX`] are kept, each with the delta
//! that ended it.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use shunt_classifier::Version;
use shunt_pipeline::{
    BridgeId, Cause, CauseRun, Delta, EntryId, Object, OwnerId, RuleChange, RuleDelta, TableId,
    Time,
};

use crate::reasons::reasons;

/// Evictions that are remembered one by one.
pub const RECENT_MAX: usize = 1024;

/// Versions whose last answer is waited for.
const UNANSWERED_MAX: usize = 4096;

/// Buckets of a histogram: the last of them holds what took minutes.
const BUCKETS: usize = 40;

/// Tells a desk the time.
#[derive(Clone)]
pub struct CoordinatorClock(Arc<dyn Fn() -> Time + Send + Sync>);

/// Times in buckets that double.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Of bucket *n*, how many took at least half of 2^n nanoseconds and less than that.
    counts: [u64; BUCKETS],
    sum: Duration,
    longest: Duration,
}

/// An entry that a change ended.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// The entry.
    pub entry: EntryId,
    /// The version of the change, or of the newest of several that were applied together.
    pub version: Version,
    /// When it was ended.
    pub at: Time,
    /// Why.
    pub kind: EvictedBy,
    /// The delta that ended it, if one alone did.
    pub delta: Option<Delta>,
}

/// What a desk remembers.
#[derive(Clone, Debug, Default)]
pub struct EvictionHistory {
    /// From taking changes to the list of the entries that they end.
    pub to_list: Histogram,
    /// From publishing a version to the last answer of an owner.
    pub to_answer: Histogram,
    by_kind: [u64; EvictedBy::COUNT],
    by_table: BTreeMap<(BridgeId, TableId), u64>,
    recent: VecDeque<Evicted>,
    unanswered: VecDeque<(Version, Time)>,
}

reasons! {
    /// Why an entry was evicted.
    EvictedBy {
        /// A rule that outranks what decided, and overlaps its region, was added.
        RuleAdded = "rule_added",
        /// A rule that decided was removed.
        RuleRemoved = "rule_removed",
        /// A rule that decided was modified.
        RuleModified = "rule_modified",
        /// The ports of a bridge changed.
        Ports = "ports",
        /// The settings of a bridge changed.
        Bridge = "bridge",
        /// A group changed.
        Group = "group",
        /// A meter came or went.
        Meter = "meter",
        /// A MAC address was learned, moved or forgotten.
        Mac = "mac",
        /// What tables can read behind a cut changed.
        Live = "live",
        /// What a `learn` would find changed.
        Learned = "learned",
        /// The change was too much to be looked at one by one.
        Bound = "bound",
        /// The engine failed.
        Fault = "fault",
        /// The engine does not tell.
        Untold = "untold",
    }
}

impl EvictedBy {
    const fn of(delta: &Delta) -> Self {
        match delta {
            Delta::Rule(RuleDelta { change, .. }) => match change {
                RuleChange::Added => Self::RuleAdded,
                RuleChange::Removed(_) => Self::RuleRemoved,
                RuleChange::Modified(_) => Self::RuleModified,
            },
            Delta::Changed(object) => match object {
                Object::Ports(_) | Object::Port(..) | Object::PortFilters(_) => Self::Ports,
                Object::Bridge(_) => Self::Bridge,
                Object::Group(..) => Self::Group,
                Object::Meter(..) => Self::Meter,
                Object::Mac(..) => Self::Mac,
                Object::Live(_) => Self::Live,
                Object::Learned(..) => Self::Learned,
            },
        }
    }
}

impl CoordinatorClock {
    /// A clock that reads time by `now`.
    #[must_use]
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        (self.0)()
    }
}

impl Default for CoordinatorClock {
    /// A clock that stands still.
    fn default() -> Self {
        Self::new(|| Time::ZERO)
    }
}

impl fmt::Debug for CoordinatorClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeskClock").field(&self.now()).finish()
    }
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
    }

    /// Number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// The buckets from the first to the last that has any, each with the time that all in it are
    /// below.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let is_used = |count: &u64| *count > 0;
        let first = self.counts.iter().position(is_used).unwrap_or(BUCKETS);
        let last = self.counts.iter().rposition(is_used).unwrap_or_default();
        let own = self.counts.iter().enumerate().take(last + 1).skip(first);
        own.map(|(bucket, count)| (Duration::from_nanos(1 << bucket), *count))
    }

    /// A time that so many of a thousand are below, to within its bucket.
    #[must_use]
    pub fn below(&self, per_mille: u64) -> Duration {
        let wanted = (self.count() * per_mille).div_ceil(1000);
        let mut seen = 0;
        let found = self.buckets().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(Duration::ZERO, |(below, _)| below.min(self.longest))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: Duration::ZERO, longest: Duration::ZERO }
    }
}

impl EvictionHistory {
    /// A version was published at `since`: its last answer is still to come.
    pub(crate) fn published(&mut self, version: Version, since: Time) {
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((version, since));
    }

    /// All owners have answered a version.
    pub(crate) fn note_acked(&mut self, version: Version, now: Time) {
        while let Some((_, since)) = self.unanswered.pop_front_if(|(own, _)| *own <= version) {
            self.to_answer.add(now.since(since));
        }
    }

    /// A change ended these entries, for these causes.
    pub(crate) fn evicted(
        &mut self,
        (version, now): (Version, Time),
        deltas: &[Delta],
        entries: &[EntryId],
        causes: &[CauseRun],
    ) {
        let told = causes.iter().map(|run| (Some(run.cause), run.count));
        let told_count: usize = causes.iter().map(|run| run.count).sum();
        let untold = (None, entries.len().saturating_sub(told_count));
        let mut rest = entries;
        for (cause, count) in told.chain([untold]) {
            let (own, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            let (kind, table, delta) = explain(cause, deltas);
            self.by_kind[kind as usize] += own.len() as u64;
            if let Some(table) = table.filter(|_| !own.is_empty()) {
                *self.by_table.entry(table).or_default() += own.len() as u64;
            }
            // Of more than are remembered, the last.
            for entry in own.iter().skip(own.len().saturating_sub(RECENT_MAX)) {
                if self.recent.len() >= RECENT_MAX {
                    self.recent.pop_front();
                }
                let (entry, delta) = (*entry, delta.cloned());
                self.recent.push_back(Evicted { entry, version, at: now, kind, delta });
            }
        }
    }

    /// Evictions by why.
    pub fn by_kind(&self) -> impl Iterator<Item = (EvictedBy, u64)> + '_ {
        EvictedBy::ALL.iter().copied().zip(self.by_kind)
    }

    /// Evictions by the table of the rule that caused them.
    #[must_use]
    pub const fn by_table(&self) -> &BTreeMap<(BridgeId, TableId), u64> {
        &self.by_table
    }

    /// What became of an entry, if it is one of the last that were evicted.
    #[must_use]
    pub fn find(&self, entry: EntryId) -> Option<&Evicted> {
        self.recent.iter().rev().find(|own| own.entry == entry)
    }

    /// Forgets the evictions of an owner that is gone: the next one of its name gives its entries the
    /// same names.
    pub(crate) fn forget(&mut self, owner: OwnerId) {
        self.recent.retain(|own| own.entry.owner != owner);
    }

    /// The last evictions, the oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &Evicted> {
        self.recent.iter()
    }
}

/// What a cause is called, the table that it is of, and its delta.
fn explain(
    cause: Option<Cause>,
    deltas: &[Delta],
) -> (EvictedBy, Option<(BridgeId, TableId)>, Option<&Delta>) {
    match cause {
        Some(Cause::Delta(number)) => {
            let Some(delta) = deltas.get(number) else { return (EvictedBy::Untold, None, None) };
            let table = match delta {
                Delta::Rule(RuleDelta { rule, .. }) => Some((rule.bridge, rule.table)),
                Delta::Changed(_) => None,
            };
            (EvictedBy::of(delta), table, Some(delta))
        }
        Some(Cause::Bound(bridge, table)) => (EvictedBy::Bound, Some((bridge, table)), None),
        Some(Cause::Fault) => (EvictedBy::Fault, None, None),
        // There is no question where there is one delta.
        None if deltas.len() == 1 => explain(Some(Cause::Delta(0)), deltas),
        None => (EvictedBy::Untold, None, None),
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn entry(slot: u32) -> EntryId {
        EntryId { owner: OwnerId(0), slot, generation: 0 }
    }

    proptest! {
        #[test]
        fn a_time_is_in_a_bucket_that_is_above_it_and_less_than_double(
            times in prop::collection::vec(1..1_u64 << 36, 1..50),
        ) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|time| histogram.add(Duration::from_nanos(*time)));
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_nanos(times.iter().sum()));
            for (below, count) in histogram.buckets() {
                let below = u64::try_from(below.as_nanos()).unwrap();
                let own = times.iter().filter(|time| **time < below && **time >= below / 2);
                prop_assert_eq!(own.count() as u64, count);
            }
            let mut sorted = times;
            sorted.sort_unstable();
            for per_mille in [1, 500, 990, 1000] {
                let place = (sorted.len() as u64 * per_mille).div_ceil(1000) - 1;
                let exact = Duration::from_nanos(sorted[usize::try_from(place).unwrap()]);
                let told = histogram.below(per_mille);
                prop_assert!(exact <= told && told <= exact * 2, "{exact:?} told as {told:?}");
            }
        }
    }

    #[test]
    fn of_evictions_the_last_are_remembered_and_all_are_counted() {
        let mut record = EvictionHistory::default();
        let entries: Vec<_> = (0..3000).map(entry).collect();
        let object = Delta::Changed(Object::Ports(BridgeId::new(1)));
        let place = (BridgeId::new(1), TableId::FIRST);
        let causes = [
            CauseRun { cause: Cause::Bound(place.0, place.1), count: 1000 },
            CauseRun { cause: Cause::Delta(1), count: 1500 },
        ];
        let deltas = [object.clone(), object];
        record.evicted((Version::new(7), Time::ZERO), &deltas, &entries, &causes);
        let counts: Vec<_> = record.by_kind().filter(|(_, count)| *count > 0).collect();
        let expected =
            [(EvictedBy::Ports, 1500), (EvictedBy::Bound, 1000), (EvictedBy::Untold, 500)];
        assert_eq!(counts, expected);
        assert_eq!(record.by_table().iter().collect::<Vec<_>>(), [(&place, &1000)]);
        assert_eq!(record.recent().count(), RECENT_MAX);
        let kind = |slot| record.find(entry(slot)).map(|own| own.kind);
        assert_eq!(kind(2999), Some(EvictedBy::Untold));
        assert_eq!(kind(2499), Some(EvictedBy::Ports));
        assert_eq!(kind(999), None);
    }

    #[test]
    fn a_version_is_answered_once_and_those_before_it_too() {
        let mut record = EvictionHistory::default();
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        (1..=3).for_each(|number| record.published(Version::new(number), at(number)));
        record.note_acked(Version::new(2), at(6));
        record.note_acked(Version::new(2), at(9));
        assert_eq!((record.to_answer.count(), record.to_answer.sum().as_secs()), (2, 9));
        record.note_acked(Version::new(u64::MAX), at(4));
        assert_eq!((record.to_answer.count(), record.to_answer.longest().as_secs()), (3, 5));
    }
}
