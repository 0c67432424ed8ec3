//! The pair table: learns which sources open flows to the same destinations.
//!
//! In a shuffle each mapper sends to each reducer, and in an all-to-all exchange each host sends to
//! each other one. So two flows of a source and one flow of another source to one of the two
//! destinations make the fourth flow likely. A source is an address with its port here, and a
//! destination too. Each flow that is forecast is a pair of a known source and a known destination,
//! so all of its headers are known. A client with a new source port for each flow has one
//! destination for each source, and no forecasts.
//!
//! Sources are in [groups](SourceGroups). A source joins a group with its second destination. The
//! source joins the group that explains its destinations best, as in a mixture model. The
//! likelihood of the destinations by the counts of the group is compared with equal chances. A
//! source that opens a destination that its group does not share may move to another group.
//!
//! The table forecasts the flows of a source to all destinations that its group shares. When a
//! destination becomes shared, the table forecasts the flows of the other sources to it. Each flow
//! is forecast once, so a wrong forecast is not repeated.
//!
//! Not all destinations of a group are those of all its sources. So the group has a confidence for
//! each of its destinations ([`SourceGroup::confidence`]), and the table makes no forecast below
//! [`CONFIDENCE_MIN`].
//!
//! Most flows of a network may belong to no coflow, each with a new source. Such sources never enter
//! the table of sources, because sources with a single destination are in [`FirstSightings`].
//!
//! [`SourceGroup::confidence`]: super::source_group::SourceGroup::confidence
//!
//! A source or group without a flow for [`AGE_MAX`] is forgotten. So a later coflow between the
//! same ends is learned and forecast again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shunt_flow::{FieldId, FlowKey, SparseKey, hash::KeyHasher};

use super::{
    super::{
        first_sightings::{FirstSightings, Sighting},
        flow_ends::{FlowEnds, FlowService},
        scan_hand::ScanHand,
    },
    destination_set::{DestinationId, DestinationSet},
    destination_table::{DestinationTable, KnownDestination},
    source_group::{GROUPS_MAX, GroupRef, MEMBERS_MAX, SourceGroups},
};
use crate::forecast::{Confidence, Forecast, ForecastSource};

/// Forecasts flows between known sources and known destinations.
#[derive(Debug)]
pub(in crate::predictors) struct PairTable {
    /// The destinations that flows had before.
    destinations: DestinationTable,
    /// The destinations of sources with a single destination.
    first_flows: FirstSightings<DestinationId>,
    /// The hash function of these sources.
    hasher: KeyHasher,
    /// The sources with several destinations.
    sources: BTreeMap<FlowService, PairSource>,
    /// The groups of sources.
    groups: SourceGroups,
    /// The last flows of sources in groups, by which forecasts are due.
    due: VecDeque<DuePair>,
    /// Maximum number of sources.
    capacity: usize,
    /// The last source that was considered for removal.
    hand: ScanHand<FlowService>,
}

/// A source of flows: an address with its port.
#[derive(Debug)]
struct PairSource {
    /// The destinations of flows that the source opened.
    opened: DestinationSet,
    /// The destinations of flows that were forecast.
    expected: DestinationSet,
    /// Number of removals of destinations that the sets know.
    removals: u64,
    /// The group of the source, if it has one.
    group: Option<GroupRef>,
    /// The key of the first flow: a template for all other fields.
    template: SparseKey,
    /// Time of the last flow from the source.
    used: Duration,
}

/// A flow of a source in a group.
#[derive(Clone, Copy, Debug)]
struct DuePair {
    /// Time at which the forecast is due.
    time: Duration,
    /// The source of the flow.
    source: FlowService,
    /// The destination of the flow.
    destination: DestinationId,
    /// The group of the source.
    group: GroupRef,
}

/// Number of destinations with which a source joins a group.
const JOIN_MIN: u32 = 2;

/// Time after which destinations, sources and groups without a flow are forgotten.
/// A forecast flow is expected within the same time.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Maximum number of flows with forecasts that wait to be taken.
const DUE_MAX: usize = 64;

/// Maximum number of members of a group that are examined for one flow.
const MEMBERS_AT_ONCE: usize = 64;

/// The least confidence of a forecast: half of the greatest one.
///
/// Some destinations of a coflow have flows from few of its sources.
const CONFIDENCE_MIN: Confidence = Confidence::of_percent(35);

/// Number of sources that are examined to find a source to remove.
const CANDIDATES_MAX: usize = 8;

impl PairTable {
    /// Creates a table of up to `capacity` sources with several destinations.
    pub(in crate::predictors) fn new(capacity: usize, seed: u64) -> Self {
        Self {
            first_flows: FirstSightings::new(capacity.max(1)),
            hasher: KeyHasher::new(seed),
            destinations: DestinationTable::new(),
            sources: BTreeMap::new(),
            groups: SourceGroups::default(),
            due: VecDeque::new(),
            capacity: capacity.max(1),
            hand: ScanHand::new(),
        }
    }

    /// Learns from the ends of a new flow.
    pub(in crate::predictors) fn observe(&mut self, key: &FlowKey, ends: &FlowEnds, now: Duration) {
        let ethernet = key.field(FieldId::EthDst);
        let Some(numbered) = self.destinations.number(ends.service(), ethernet, now, AGE_MAX)
        else {
            return;
        };
        let id = numbered.id;
        if numbered.is_reused {
            self.groups.remove_destination(id);
        }
        let from = ends.source_socket();
        if !self.sources.contains_key(&from) {
            let Some(first) = self.first_destination(&from, id, now) else { return };
            self.make_room();
            let mut source = PairSource::new(key, &self.destinations, now);
            source.opened.insert(first);
            self.sources.insert(from, source);
        }
        let Some(source) = self.sources.get_mut(&from) else { return };
        source.catch_up(&self.destinations);
        if source.is_old(now) {
            if let Some(group) = source.group.and_then(|group| self.groups.find(group)) {
                group.leave(from, source.opened);
            }
            *source = PairSource::new(key, &self.destinations, now);
        }
        source.used = now;
        if source.opened.contains(id) {
            return;
        }
        if let Some(group) = self.group_of(from, id, now) {
            if self.due.len() >= DUE_MAX {
                self.due.pop_front();
            }
            self.due.push_back(DuePair { time: now, source: from, destination: id, group });
        }
    }

    /// Returns the destination of a source that is not in the table of sources.
    ///
    /// The result is `None` if the source is new or old, or has only the destination `id`.
    fn first_destination(
        &mut self,
        from: &FlowService,
        id: DestinationId,
        now: Duration,
    ) -> Option<DestinationId> {
        let hash = self.hasher.hash_array(&from.words());
        let earlier = self.first_flows.find(hash, now);
        self.first_flows.record(hash, id, now);
        let Sighting { value, age } = earlier?;
        let is_numbered = self.destinations.is_numbered_for(value, age, now);
        (value != id && age < AGE_MAX && is_numbered).then_some(value)
    }

    /// Counts a new destination of a source, and returns the group of the source.
    ///
    /// The result is `None` if the source has too few destinations.
    fn group_of(
        &mut self,
        from: FlowService,
        id: DestinationId,
        now: Duration,
    ) -> Option<GroupRef> {
        let source = self.sources.get_mut(&from)?;
        let before = source.opened;
        source.opened.insert(id);
        if let Some(current) = source.group
            && let Some(group) = self.groups.find(current)
        {
            if group.is_recent(now, AGE_MAX) && group.shared().contains(id) {
                group.count_flow(id, now);
                return Some(current);
            }
            // The group is chosen without the counts of the source itself.
            group.leave(from, before);
        }
        source.group = None;
        if source.opened.len() < JOIN_MIN {
            return None;
        }
        let count = self.destinations.len();
        let chosen = self.groups.choose(source.opened, count, now, AGE_MAX);
        self.groups.find(chosen)?.join(from, source.opened, now);
        source.group = Some(chosen);
        Some(chosen)
    }

    /// Adds at most `budget` forecasts. The flows of the newest new flow come first.
    pub(in crate::predictors) fn forecast(
        &mut self,
        now: Duration,
        budget: usize,
        forecasts: &mut Vec<Forecast>,
    ) {
        let end = forecasts.len() + budget;
        while let Some(due) = self.due.pop_back().filter(|_| forecasts.len() < end) {
            self.forecast_own(&due, now, end, forecasts);
            self.forecast_members(&due, now, end, forecasts);
        }
        self.due.clear();
    }

    /// Forecasts the flows of a source to the other destinations of its group.
    fn forecast_own(
        &mut self,
        due: &DuePair,
        now: Duration,
        end: usize,
        forecasts: &mut Vec<Forecast>,
    ) {
        let Some(group) = self.groups.find(due.group) else { return };
        let Some(source) = self.sources.get_mut(&due.source) else { return };
        let missing = group.shared().without(&source.opened).without(&source.expected);
        let all = missing.iter().map(|id| (id, group.confidence(id)));
        let confident = all.filter(|(_, confidence)| *confidence >= CONFIDENCE_MIN);
        for (id, confidence) in confident.take(end.saturating_sub(forecasts.len())) {
            forecasts.extend(source.expect(id, confidence, &self.destinations, now));
        }
    }

    /// Forecasts the flows of other sources of the group to a destination.
    fn forecast_members(
        &mut self,
        due: &DuePair,
        now: Duration,
        end: usize,
        forecasts: &mut Vec<Forecast>,
    ) {
        let Some(group) = self.groups.find(due.group) else { return };
        let confidence = group.confidence(due.destination);
        if !group.shared().contains(due.destination) || confidence < CONFIDENCE_MIN {
            return;
        }
        for _ in 0..group.len().min(MEMBERS_AT_ONCE) {
            if forecasts.len() >= end {
                return;
            }
            let Some(member) = group.next_member() else { return };
            let Some(source) = self.sources.get_mut(&member) else { continue };
            source.catch_up(&self.destinations);
            let is_known = source.opened.contains(due.destination)
                || source.expected.contains(due.destination);
            if source.group == Some(due.group) && !is_known && !source.is_old(now) {
                let id = due.destination;
                forecasts.extend(source.expect(id, confidence, &self.destinations, now));
            }
        }
    }

    /// Returns the time of the next forecast; `None` means after the next flow.
    pub(in crate::predictors) fn next_due(&self) -> Option<Duration> {
        self.due.front().map(|due| due.time)
    }

    /// Returns the confidence of the flows to the destination of the last new flow.
    pub(in crate::predictors) fn confidence(&self) -> Option<Confidence> {
        let due = self.due.back()?;
        self.groups.find_shared(due.group).map(|group| group.confidence(due.destination))
    }

    /// Returns the number of items in the table.
    pub(in crate::predictors) fn len(&self) -> usize {
        let sources = self.first_flows.len() + self.sources.len();
        sources + self.destinations.len() + self.groups.members() + self.due.len()
    }

    /// Returns the maximum of [`Self::len`].
    pub(in crate::predictors) const fn capacity(&self) -> usize {
        let sources = self.first_flows.capacity() + self.capacity;
        sources + DestinationId::COUNT + GROUPS_MAX * MEMBERS_MAX + DUE_MAX
    }

    /// Removes the least recently used of a few sources, if the table is full.
    fn make_room(&mut self) {
        if self.sources.len() < self.capacity {
            return;
        }
        let sources = &self.sources;
        let candidates = (0..CANDIDATES_MAX).filter_map(|_| self.hand.advance(sources));
        let used = |source: &FlowService| sources.get(source).map(|own| own.used);
        let Some(oldest) = candidates.min_by_key(used) else { return };
        let Some(mut removed) = self.sources.remove(&oldest) else { return };
        removed.catch_up(&self.destinations);
        if let Some(group) = removed.group.and_then(|group| self.groups.find(group)) {
            group.leave(oldest, removed.opened);
        }
    }
}

impl PairSource {
    /// Creates a source from its first flow.
    fn new(key: &FlowKey, destinations: &DestinationTable, now: Duration) -> Self {
        Self {
            opened: DestinationSet::default(),
            expected: DestinationSet::default(),
            removals: destinations.removals(),
            group: None,
            template: SparseKey::from(key),
            used: now,
        }
    }

    /// Returns whether the source had no flow for [`AGE_MAX`].
    fn is_old(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) >= AGE_MAX
    }

    /// Removes destinations that are no longer in the table.
    fn catch_up(&mut self, destinations: &DestinationTable) {
        destinations.catch_up(self.removals, [&mut self.opened, &mut self.expected]);
        self.removals = destinations.removals();
    }

    /// Returns the forecast of the flow to a destination.
    fn expect(
        &mut self,
        id: DestinationId,
        confidence: Confidence,
        destinations: &DestinationTable,
        now: Duration,
    ) -> Option<Forecast> {
        self.expected.insert(id);
        let KnownDestination { service, ethernet, .. } = destinations.find(id)?;
        let mut key = FlowKey::from(&self.template);
        let [_, destination] = FlowEnds::address_fields(service.is_ipv4);
        key.set_field(destination, service.address);
        // The ports of all protocols are in the same bits of a key.
        key.set_field(FieldId::UdpDst, service.port);
        key.set_field(FieldId::EthDst, *ethernet);
        Some(Forecast {
            key: SparseKey::from(&key),
            known: None,
            confidence,
            made: now,
            valid_until: now + AGE_MAX,
            source: ForecastSource::Successor,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn start_flow(
        table: &mut PairTable,
        source: u128,
        destination: u128,
        now: Duration,
    ) -> Vec<u128> {
        let mut key = FlowKey::ZERO;
        for (field, value) in [
            (FieldId::EthType, 0x0800),
            (FieldId::EthDst, 0x0200_0000_0000 + destination),
            (FieldId::IpProto, 17),
            (FieldId::Ipv4Src, source),
            (FieldId::Ipv4Dst, destination),
            (FieldId::UdpSrc, 40_000),
            (FieldId::UdpDst, 80),
        ] {
            key.set_field(field, value);
        }
        table.observe(&key, &FlowEnds::of(&key).unwrap(), now);
        let mut forecasts = Vec::new();
        table.forecast(now, 1000, &mut forecasts);
        let keys = forecasts.iter().map(|forecast| FlowKey::from(&forecast.key));
        keys.filter(|key| key.field(FieldId::Ipv4Src) == source)
            .map(|key| {
                let destination = key.field(FieldId::Ipv4Dst);
                // A forecast has the Ethernet address of its own destination.
                assert_eq!(key.field(FieldId::EthDst), 0x0200_0000_0000 + destination);
                destination
            })
            .collect()
    }

    /// Checks that the counts of each group are the sums over its sources.
    fn check_counts(table: &PairTable) {
        for (group, counts) in table.groups.all_counts() {
            let mut expected = [0_u16; DestinationId::COUNT];
            for source in table.sources.values().filter(|source| source.group == Some(group)) {
                let (mut opened, mut forecast) = (source.opened, source.expected);
                table.destinations.catch_up(source.removals, [&mut opened, &mut forecast]);
                opened.iter().for_each(|id| expected[id.index()] += 1);
            }
            assert_eq!(*counts, expected, "{group:?}");
        }
    }

    /// Returns a table with two sources that opened flows to destinations 1 to 4.
    fn table() -> PairTable {
        table_of(16)
    }

    /// Returns the table with room for a number of sources.
    fn table_of(capacity: usize) -> PairTable {
        let mut table = PairTable::new(capacity, 1);
        for source in [100, 101] {
            (1..=4)
                .for_each(|destination| drop(start_flow(&mut table, source, destination, SECOND)));
        }
        table
    }

    #[test]
    fn source_joins_group_with_its_second_destination() {
        let mut table = table();
        assert!(start_flow(&mut table, 102, 1, SECOND).is_empty());
        assert_eq!(start_flow(&mut table, 102, 2, SECOND), [3, 4]);
        // Each flow is forecast once.
        assert!(start_flow(&mut table, 102, 3, SECOND).is_empty());
    }

    #[test]
    fn old_groups_are_not_joined() {
        let (mut table, now) = (table(), SECOND * 60);
        assert!(start_flow(&mut table, 102, 1, now).is_empty());
        assert!(start_flow(&mut table, 102, 2, now).is_empty());
    }

    #[test]
    fn an_old_member_does_not_revive_its_group() {
        let mut table = table();
        for (source, destination) in [(101, 5), (102, 1), (102, 2), (102, 5)] {
            start_flow(&mut table, source, destination, SECOND);
        }
        // The group shares destination 5, which source 100 has not opened.
        assert!(start_flow(&mut table, 103, 1, SECOND).is_empty());
        assert_eq!(start_flow(&mut table, 103, 2, SECOND), [3, 4, 5]);
        let now = SECOND * 60;
        for (source, destination) in [(100, 5), (104, 1), (104, 2)] {
            assert!(start_flow(&mut table, source, destination, now).is_empty(), "{source}");
            check_counts(&table);
        }
    }

    #[test]
    fn later_coflow_of_same_sources_is_forecast() {
        let mut table = table();
        for now in [SECOND, SECOND * 60] {
            for source in [100, 101] {
                (1..=4)
                    .for_each(|destination| drop(start_flow(&mut table, source, destination, now)));
            }
            assert!(start_flow(&mut table, 102, 1, now).is_empty());
            assert_eq!(start_flow(&mut table, 102, 2, now), [3, 4]);
            check_counts(&table);
        }
    }

    /// All destinations of the sources are removed before they open other ones.
    #[test]
    fn a_source_leaves_its_group_once() {
        let mut table = table_of(1000);
        check_counts(&table);
        let now = SECOND * 2 + AGE_MAX;
        (1000..1300).for_each(|other| drop(start_flow(&mut table, other, other, now)));
        assert!(table.destinations.removals() >= 4);
        check_counts(&table);
        for (source, destination) in [(100, 5), (100, 6), (101, 5), (101, 6), (100, 7)] {
            start_flow(&mut table, source, destination, now + AGE_MAX);
            check_counts(&table);
        }
    }

    proptest! {
        #[test]
        fn counts_of_groups_are_sums_over_sources(
            flows in prop::collection::vec((0..6_u128, 0..6_u128, 0..4_u32), 0..200),
        ) {
            let (mut table, mut now) = (PairTable::new(5, 1), SECOND);
            for (source, destination, pause) in flows {
                // 0, 2, 4 or 6 seconds.
                now += SECOND * 2 * pause;
                start_flow(&mut table, 100 + source, 1 + destination, now);
                check_counts(&table);
            }
        }
    }

    #[test]
    fn a_removed_destination_is_not_forecast() {
        let mut table = table();
        let now = SECOND + AGE_MAX / 2;
        start_flow(&mut table, 102, 1, now);
        // The table has room for 252 more destinations, and the first ones are old.
        for destination in 1000..1300 {
            start_flow(&mut table, destination, destination, SECOND + AGE_MAX);
        }
        assert_eq!(table.destinations.len(), DestinationId::COUNT);
        assert!(table.destinations.removals() > 0);
        for source in [100, 101, 102] {
            assert!(start_flow(&mut table, source, 1, SECOND + AGE_MAX).is_empty());
        }
    }
}
