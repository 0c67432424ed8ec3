//! The recent history of an eviction coordinator: durations of changes, evicted entries, causes.
//!
//! The history serves status output, and its size is bounded. Durations are counted in buckets that
//! double in length. Evictions are counted by cause and by table. The last [`RECENT_MAX`] evictions
//! are kept one by one, each with the delta that caused it.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use shunt_classifier::Version;
use shunt_pipeline::{
    BridgeId, Cause, CauseRun, Delta, EntryId, Object, OwnerId, RuleChange, RuleDelta, TableId,
    Time,
};

use crate::{histogram::Histogram, reasons::reasons};

/// Evictions that are kept one by one.
pub const RECENT_MAX: usize = 1024;

/// Maximum number of versions that wait for their last acknowledgement.
const UNACKED_MAX: usize = 4096;

/// The clock that times the changes and evictions of a coordinator.
#[derive(Clone)]
pub struct CoordinatorClock(Arc<dyn Fn() -> Time + Send + Sync>);

/// The record of an entry that a change evicted.
#[derive(Clone, Debug)]
pub struct Evicted {
    /// The number of the evicted entry.
    pub entry: EntryId,
    /// The version of the change.
    /// For changes that were applied together, it is their newest version.
    pub version: Version,
    /// The time of the eviction.
    pub at: Time,
    /// The reason why the entry was evicted.
    pub kind: EvictedBy,
    /// The delta that evicted the entry, if it is known.
    pub delta: Option<Delta>,
}

/// The history of a coordinator.
#[derive(Clone, Debug, Default)]
pub struct EvictionHistory {
    /// Time from receiving changes to the list of entries that they evict.
    pub time_to_list: Histogram,
    /// Time from publishing a version to the last owner's acknowledgement.
    pub time_to_ack: Histogram,
    /// Number of evicted entries for each reason.
    by_kind: [u64; EvictedBy::COUNT],
    /// Number of evicted entries for each table.
    by_table: BTreeMap<(BridgeId, TableId), u64>,
    /// The last evictions, with their reasons.
    recent: VecDeque<Evicted>,
    /// The versions without all acknowledgements, with their times.
    unacked: VecDeque<(Version, Time)>,
}

reasons! {
    /// The reason of an eviction.
    EvictedBy {
        /// An added rule outranks the deciding rule and overlaps the entry's region.
        RuleAdded = "rule_added",
        /// A deciding rule was removed.
        RuleRemoved = "rule_removed",
        /// A deciding rule was modified.
        RuleModified = "rule_modified",
        /// The ports of a bridge changed.
        Ports = "ports",
        /// The settings of a bridge changed.
        Bridge = "bridge",
        /// A group that the entry depends on has changed.
        Group = "group",
        /// A meter was added or removed.
        Meter = "meter",
        /// A MAC address was learned, moved or forgotten.
        Mac = "mac",
        /// The ports of a multicast group, or the router ports of a VLAN, changed.
        Multicast = "multicast",
        /// The live bits of a bridge changed: its tables can read more hidden state.
        Live = "live",
        /// A learned rule, or the number of rules of a cookie, changed.
        Learned = "learned",
        /// The change was too large to be searched delta by delta.
        Bound = "bound",
        /// The eviction engine failed, so all entries were evicted.
        Fault = "fault",
        /// The engine does not report reasons.
        Unknown = "unknown",
    }
}

impl EvictedBy {
    /// Returns the cause of an eviction by a delta.
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
                Object::MulticastGroup(..) | Object::MulticastRouters(..) => Self::Multicast,
                Object::Live(_) => Self::Live,
                Object::Learned(..) => Self::Learned,
            },
        }
    }
}

impl CoordinatorClock {
    /// Creates a clock that reads the time by `now`.
    #[must_use]
    pub fn new(now: impl Fn() -> Time + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time by the clock of the coordinator.
    #[must_use]
    pub fn now(&self) -> Time {
        (self.0)()
    }
}

impl Default for CoordinatorClock {
    /// A clock that never advances.
    fn default() -> Self {
        Self::new(|| Time::ZERO)
    }
}

impl fmt::Debug for CoordinatorClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CoordinatorClock").field(&self.now()).finish()
    }
}

impl EvictionHistory {
    /// Records that a version was published at `since`.
    /// The acknowledgement by the last owner ends the measurement.
    pub(crate) fn note_published(&mut self, version: Version, since: Time) {
        if self.unacked.len() >= UNACKED_MAX {
            self.unacked.pop_front();
        }
        self.unacked.push_back((version, since));
    }

    /// Records that all owners have acknowledged a version.
    pub(crate) fn note_acked(&mut self, version: Version, now: Time) {
        while let Some((_, since)) = self.unacked.pop_front_if(|(own, _)| *own <= version) {
            self.time_to_ack.add(now.since(since));
        }
    }

    /// Records that a change evicted these entries, for these causes.
    pub(crate) fn note_evicted(
        &mut self,
        version: Version,
        now: Time,
        deltas: &[Delta],
        entries: &[EntryId],
        causes: &[CauseRun],
    ) {
        let reported = causes.iter().map(|run| (Some(run.cause), run.count));
        let reported_count: usize = causes.iter().map(|run| run.count).sum();
        let unreported = (None, entries.len().saturating_sub(reported_count));
        let mut rest = entries;
        for (cause, count) in reported.chain([unreported]) {
            let (own, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            let (kind, table, delta) = explain(cause, deltas);
            self.by_kind[kind as usize] += own.len() as u64;
            if let Some(table) = table.filter(|_| !own.is_empty()) {
                *self.by_table.entry(table).or_default() += own.len() as u64;
            }
            // Only the most recent evictions are kept.
            for entry in own.iter().skip(own.len().saturating_sub(RECENT_MAX)) {
                if self.recent.len() >= RECENT_MAX {
                    self.recent.pop_front();
                }
                let (entry, delta) = (*entry, delta.cloned());
                self.recent.push_back(Evicted { entry, version, at: now, kind, delta });
            }
        }
    }

    /// Returns the number of evicted entries for each reason.
    pub fn evictions_by_reason(&self) -> impl Iterator<Item = (EvictedBy, u64)> + '_ {
        EvictedBy::ALL.iter().copied().zip(self.by_kind)
    }

    /// Returns evictions by the table of the rule that caused them.
    #[must_use]
    pub const fn evictions_by_table(&self) -> &BTreeMap<(BridgeId, TableId), u64> {
        &self.by_table
    }

    /// Returns the record of an evicted entry, if it is still kept.
    #[must_use]
    pub fn find(&self, entry: EntryId) -> Option<&Evicted> {
        self.recent.iter().rev().find(|own| own.entry == entry)
    }

    /// Forgets the evictions of a retired owner.
    /// A later owner with this id reuses the ids of entries.
    pub(crate) fn forget(&mut self, owner: OwnerId) {
        self.recent.retain(|own| own.entry.owner != owner);
    }

    /// Returns the records of recent evictions, the oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &Evicted> {
        self.recent.iter()
    }
}

/// Returns the reason of an eviction, the table, and the delta that caused it.
fn explain(
    cause: Option<Cause>,
    deltas: &[Delta],
) -> (EvictedBy, Option<(BridgeId, TableId)>, Option<&Delta>) {
    match cause {
        Some(Cause::Delta(number)) => {
            let Some(delta) = deltas.get(number) else { return (EvictedBy::Unknown, None, None) };
            let table = match delta {
                Delta::Rule(RuleDelta { rule, .. }) => Some((rule.bridge, rule.table)),
                Delta::Changed(_) => None,
            };
            (EvictedBy::of(delta), table, Some(delta))
        }
        Some(Cause::Bound(bridge, table)) => (EvictedBy::Bound, Some((bridge, table)), None),
        Some(Cause::Fault) => (EvictedBy::Fault, None, None),
        // If the engine reports no cause, a single delta must be the cause.
        None if deltas.len() == 1 => explain(Some(Cause::Delta(0)), deltas),
        None => (EvictedBy::Unknown, None, None),
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the id of the entry in a slot.
    const fn entry(slot: u32) -> EntryId {
        EntryId { owner: OwnerId(0), slot, generation: 0 }
    }

    #[test]
    fn evictions_are_counted_and_the_last_kept() {
        let mut record = EvictionHistory::default();
        let entries: Vec<_> = (0..3000).map(entry).collect();
        let object = Delta::Changed(Object::Ports(BridgeId::new(1)));
        let place = (BridgeId::new(1), TableId::FIRST);
        let causes = [
            CauseRun { cause: Cause::Bound(place.0, place.1), count: 1000 },
            CauseRun { cause: Cause::Delta(1), count: 1500 },
        ];
        let deltas = [object.clone(), object];
        record.note_evicted(Version::new(7), Time::ZERO, &deltas, &entries, &causes);
        let counts: Vec<_> = record.evictions_by_reason().filter(|(_, count)| *count > 0).collect();
        let expected =
            [(EvictedBy::Ports, 1500), (EvictedBy::Bound, 1000), (EvictedBy::Unknown, 500)];
        assert_eq!(counts, expected);
        assert_eq!(record.evictions_by_table().iter().collect::<Vec<_>>(), [(&place, &1000)]);
        assert_eq!(record.recent().count(), RECENT_MAX);
        let kind = |slot| record.find(entry(slot)).map(|own| own.kind);
        assert_eq!(kind(2999), Some(EvictedBy::Unknown));
        assert_eq!(kind(2499), Some(EvictedBy::Ports));
        assert_eq!(kind(999), None);
    }

    #[test]
    fn acks_include_earlier_versions_once() {
        let mut record = EvictionHistory::default();
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        (1..=3).for_each(|number| record.note_published(Version::new(number), at(number)));
        record.note_acked(Version::new(2), at(6));
        record.note_acked(Version::new(2), at(9));
        assert_eq!((record.time_to_ack.count(), record.time_to_ack.sum().as_secs()), (2, 9));
        record.note_acked(Version::new(u64::MAX), at(4));
        assert_eq!((record.time_to_ack.count(), record.time_to_ack.longest().as_secs()), (3, 5));
    }
}
