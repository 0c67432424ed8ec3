//! The multicast table of NORMAL: the ports that want each group of each VLAN, and router ports.
//!
//! Control fills the table from messages of IGMP and MLD (see [`MulticastSighting`]). A port
//! without a report leaves a group after the ageing time of the bridge. A port without a query is a
//! router port until [`MulticastSnooping::ROUTER_AGEING`] has passed. The entries of a port are
//! removed when the port is removed or its VLANs change.
//!
//! A group counts for its first port, the port that has been in the group longest. A full table
//! finds the port with the most such groups, and removes this port from the group that the port
//! reported longest ago (see [`LearnedAges`]). This repeats until a group is empty. The new group
//! counts for the port that reports it. Among ports with equally many groups, this port leaves one
//! of its own. So a host takes a place only from a port with more groups, or for its first group.
//!
//! A report of a port that is known prolongs its time, and makes no version.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{
    bridge::VersionedBridge,
    learned_ages::LearnedAges,
    learned_totals::LearnedTotals,
    multicast::{MulticastEvent, MulticastSighting, MulticastSnooping},
};
use crate::{
    id::BridgeId,
    time::Time,
    update::batch::UpdateBatch,
    versions::{
        delta::{Delta, Object},
        versioned::Versioned,
    },
};

/// An entry of the multicast table: a port of a group, or a router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastEntry {
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The group; `None`: a multicast router is behind the port.
    pub group: Option<IpAddr>,
    /// The port.
    pub port: PortNo,
    /// Time of the last report, or of the last query.
    pub seen: Time,
}

/// The ports of a group, or the router ports of a VLAN, in the order of addition.
#[derive(Clone, Debug, Default)]
pub(crate) struct MulticastPorts {
    ports: Vec<(PortNo, Arc<AtomicU64>)>,
}

/// A row of the multicast table: its ports change together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MulticastKey {
    /// The ports of a group in a VLAN.
    Group(u16, IpAddr),
    /// The ports of multicast routers in a VLAN.
    Routers(u16),
}

/// The groups and router ports of a bridge, at every retained version.
#[derive(Default)]
pub(crate) struct MulticastTable {
    entries: BTreeMap<MulticastKey, Versioned<MulticastPorts>>,
    /// The groups of the newest version, each with its first port and last report.
    ages: LearnedAges<MulticastKey>,
    /// The totals of changes; each port of a group, and each router port, is an entry.
    totals: LearnedTotals,
}

impl MulticastPorts {
    /// Returns the ports.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PortNo> {
        self.ports.iter().map(|(port, _)| *port)
    }

    /// Returns the port that was added first, and the time of its last message.
    fn first(&self) -> Option<(PortNo, Time)> {
        self.ports.first().map(|(port, seen)| (*port, Self::seen(seen)))
    }

    /// Returns the entries of a group or of router ports, ordered by the last message.
    fn entries(&self, key: MulticastKey) -> Vec<MulticastEntry> {
        let entry = |(port, seen): &(PortNo, Arc<AtomicU64>)| key.entry(*port, Self::seen(seen));
        let mut entries: Vec<_> = self.ports.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.seen);
        entries
    }

    fn seen(seen: &AtomicU64) -> Time {
        Time::from_nanoseconds(seen.load(Ordering::Relaxed))
    }
}

impl MulticastKey {
    fn entry(self, port: PortNo, seen: Time) -> MulticastEntry {
        let (vlan, group) = match self {
            Self::Group(vlan, group) => (vlan, Some(group)),
            Self::Routers(vlan) => (vlan, None),
        };
        MulticastEntry { vlan, group, port, seen }
    }
}

impl MulticastTable {
    /// Returns the ports of a group, or of routers.
    pub(crate) fn find(&self, key: MulticastKey, version: Version) -> Option<&Arc<MulticastPorts>> {
        self.entries.get(&key)?.at(version)
    }

    /// Returns the totals of the changes of the table.
    pub(crate) const fn totals(&self) -> LearnedTotals {
        self.totals
    }

    /// Returns all entries: the groups by their last report, then the router ports.
    pub(crate) fn entries(&self, version: Version) -> Vec<MulticastEntry> {
        let of_key = |(key, own): (&MulticastKey, &Versioned<MulticastPorts>)| {
            own.at(version).map(|ports| ports.entries(*key))
        };
        let mut all: Vec<Vec<MulticastEntry>> = self.entries.iter().filter_map(of_key).collect();
        // The last entry of a group has the newest report of the group.
        all.sort_by_key(|entries| entries.last().map(|last| (last.group.is_none(), last.seen)));
        all.concat()
    }

    /// Adds a port, or prolongs its time. Returns the keys that have got other ports.
    ///
    /// `same` are the ports of the bond of `port`, or `port` alone: at most one of them is in the
    /// table. A full table evicts groups.
    fn add(
        &mut self,
        key: MulticastKey,
        port: PortNo,
        same: &[PortNo],
        groups_max: usize,
        version: Version,
        now: Time,
    ) -> Vec<MulticastKey> {
        let known = self.find(key, version).map(Arc::clone);
        let own = known.as_ref().and_then(|known| {
            known.ports.iter().find(|(own, _)| same.contains(own)).map(|(_, seen)| seen)
        });
        if let Some(seen) = own {
            seen.fetch_max(now.nanoseconds(), Ordering::Relaxed);
            return Vec::new();
        }
        let mut changed = Vec::new();
        if known.is_none() && matches!(key, MulticastKey::Group(..)) {
            changed = self.make_room(groups_max.saturating_sub(1), Some(port), version);
        }
        let mut ports = known.map(|known| MulticastPorts::clone(&known)).unwrap_or_default();
        ports.ports.push((port, Arc::new(AtomicU64::new(now.nanoseconds()))));
        self.replace(key, ports, version);
        self.totals.learned += 1;
        changed.push(key);
        changed
    }

    /// Removes ports from groups until there are at most `groups_max` groups.
    ///
    /// Returns the changed keys.
    pub(crate) fn limit(&mut self, groups_max: usize, version: Version) -> Vec<MulticastKey> {
        self.make_room(groups_max, None, version)
    }

    /// Like [`Self::limit`], for a new group of the port `reporter`.
    ///
    /// The cost is logarithmic in the number of groups for each removed port.
    fn make_room(
        &mut self,
        groups_max: usize,
        reporter: Option<PortNo>,
        version: Version,
    ) -> Vec<MulticastKey> {
        let mut changed = Vec::new();
        while self.ages.len() > groups_max {
            let entries = &self.entries;
            let first = |key: MulticastKey| entries.get(&key)?.at(version)?.first();
            let seen = |key| first(key).map(|(_, seen)| seen);
            let oldest = match reporter {
                Some(port) => self.ages.oldest_for(port, seen),
                None => self.ages.oldest(seen),
            };
            let place = oldest.and_then(|key| Some((key, first(key)?.0)));
            let Some((key, port)) = place else { break };
            self.totals.evicted += self.retain_in(key, version, |entry| entry.port != port);
            changed.push(key);
        }
        changed
    }

    /// Removes ports without a recent report or query; returns the changed keys.
    fn expire(&mut self, ageing: Duration, version: Version, now: Time) -> Vec<MulticastKey> {
        let (changed, removed) = self.retain_counted(version, |entry| {
            let ageing =
                if entry.group.is_some() { ageing } else { MulticastSnooping::ROUTER_AGEING };
            entry.seen.after(ageing) > now
        });
        self.totals.expired += removed;
        changed
    }

    /// Keeps the ports for which `is_kept` is true. Returns the changed keys.
    pub(crate) fn retain(
        &mut self,
        version: Version,
        is_kept: impl Fn(&MulticastEntry) -> bool,
    ) -> Vec<MulticastKey> {
        self.retain_counted(version, is_kept).0
    }

    /// Like [`Self::retain`]; also returns the number of removed ports.
    fn retain_counted(
        &mut self,
        version: Version,
        is_kept: impl Fn(&MulticastEntry) -> bool,
    ) -> (Vec<MulticastKey>, u64) {
        let is_changed = |(key, own): &(&MulticastKey, &Versioned<MulticastPorts>)| {
            let ports = own.at(version).map(|own| own.ports.as_slice()).unwrap_or_default();
            let mut entries = ports.iter().map(|(port, seen)| (*port, MulticastPorts::seen(seen)));
            entries.any(|(port, seen)| !is_kept(&key.entry(port, seen)))
        };
        let changed = self.entries.iter().filter(is_changed).map(|(key, _)| *key);
        let changed: Vec<MulticastKey> = changed.collect();
        let removed = changed.iter().map(|key| self.retain_in(*key, version, &is_kept)).sum();
        (changed, removed)
    }

    /// Like [`Self::retain`], for one key; returns the number of removed ports.
    fn retain_in(
        &mut self,
        key: MulticastKey,
        version: Version,
        is_kept: impl Fn(&MulticastEntry) -> bool,
    ) -> u64 {
        let Some(known) = self.find(key, version) else { return 0 };
        let stays = |(port, seen): &&(PortNo, Arc<AtomicU64>)| {
            is_kept(&key.entry(*port, MulticastPorts::seen(seen)))
        };
        let kept: Vec<_> = known.ports.iter().filter(stays).cloned().collect();
        let removed = known.ports.len() - kept.len();
        if removed == 0 {
            return 0;
        }
        self.replace(key, MulticastPorts { ports: kept }, version);
        removed as u64
    }

    /// Moves ports of a group, and router ports, to their successors.
    ///
    /// `successor` returns `None` for a port that stays. No entry may have both a port and its
    /// successor.
    pub(crate) fn move_ports(
        &mut self,
        version: Version,
        successor: impl Fn(PortNo) -> Option<PortNo>,
    ) {
        let is_moved = |(_, own): &(&MulticastKey, &Versioned<MulticastPorts>)| {
            own.at(version).is_some_and(|own| own.numbers().any(|port| successor(port).is_some()))
        };
        let keys: Vec<_> = self.entries.iter().filter(is_moved).map(|(key, _)| *key).collect();
        for key in keys {
            let Some(known) = self.find(key, version) else { continue };
            let moved = |(port, seen): &(PortNo, Arc<AtomicU64>)| {
                (successor(*port).unwrap_or(*port), Arc::clone(seen))
            };
            let ports = known.ports.iter().map(moved).collect();
            self.replace(key, MulticastPorts { ports }, version);
            self.totals.moved += 1;
        }
    }

    /// Sets the ports of a key; without ports, removes the key.
    fn replace(&mut self, key: MulticastKey, ports: MulticastPorts, version: Version) {
        let (before, now) = (self.find(key, version).and_then(|own| own.first()), ports.first());
        let own = self.entries.entry(key).or_insert_with(Versioned::new);
        if now.is_some() {
            own.set(Arc::new(ports), version);
        } else {
            own.end(version);
        }
        if matches!(key, MulticastKey::Group(..)) && now != before {
            self.ages.remove(key);
            now.into_iter().for_each(|(port, seen)| self.ages.add(key, port, seen));
        }
    }

    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.entries.values_mut().for_each(|entry| entry.reclaim(oldest));
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl UpdateBatch {
    /// Learns from a message.
    ///
    /// Nothing is learned if the port, bridge or VLAN was removed meanwhile.
    pub(crate) fn learn_multicast(
        &mut self,
        bridge: &mut VersionedBridge,
        sighting: &MulticastSighting,
    ) {
        let MulticastSighting { bridge: id, vlan, port, event } = *sighting;
        let snooping = bridge.settings(self.version).and_then(|own| own.multicast);
        let Some(MulticastSnooping { groups_max, .. }) = snooping else { return };
        let Some(ports) = bridge.ports(self.version) else { return };
        let Some(own) = ports.find(port) else { return };
        if !own.vlans.carries(vlan) || ports.mirrors.is_output(port) || own.multicast.packets {
            return;
        }
        let keeps_groups = own.multicast.reports;
        let same: Vec<PortNo> = match own.bond {
            None => vec![port],
            Some(_) => {
                let same = ports.ports().iter().filter(|other| other.is_one_with(own));
                same.map(|other| other.number).collect()
            }
        };
        let (version, now) = (self.version, self.now);
        let routers = MulticastKey::Routers(vlan);
        let table = &mut bridge.multicast;
        let is_router = table
            .find(routers, version)
            .is_some_and(|known| known.numbers().any(|own| same.contains(&own)));
        let changed = match event {
            MulticastEvent::Query => table.add(routers, port, &same, usize::MAX, version, now),
            // A router port gets the packets of all groups already.
            MulticastEvent::Join(_) if is_router => Vec::new(),
            MulticastEvent::Join(group) => {
                let key = MulticastKey::Group(vlan, group);
                table.add(key, port, &same, groups_max, version, now)
            }
            // Another host behind the port may still want the group.
            MulticastEvent::Leave(_) if keeps_groups => Vec::new(),
            MulticastEvent::Leave(group) => {
                let key = MulticastKey::Group(vlan, group);
                let stays = |entry: &MulticastEntry| !same.contains(&entry.port);
                let removed = table.retain_in(key, version, stays);
                (removed > 0).then_some(key).into_iter().collect()
            }
        };
        self.push_multicast(id, changed);
    }

    /// Removes the ports without a report or query in time.
    pub(crate) fn expire_multicast(&mut self, id: BridgeId, bridge: &mut VersionedBridge) {
        let snooping = bridge.settings(self.version).and_then(|own| own.multicast);
        let Some(MulticastSnooping { ageing, .. }) = snooping else { return };
        let changed = bridge.multicast.expire(ageing, self.version, self.now);
        self.push_multicast(id, changed);
    }

    /// Removes all groups and router ports.
    pub(crate) fn flush_multicast(&mut self, id: BridgeId, bridge: &mut VersionedBridge) {
        let changed = bridge.multicast.retain(self.version, |_| false);
        self.push_multicast(id, changed);
    }

    fn push_multicast(&mut self, bridge: BridgeId, changed: Vec<MulticastKey>) {
        for key in changed {
            self.push(Delta::Changed(match key {
                MulticastKey::Group(vlan, group) => Object::MulticastGroup(bridge, vlan, group),
                MulticastKey::Routers(vlan) => Object::MulticastRouters(bridge, vlan),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const GROUPS_MAX: usize = 2;

    fn key(last: u8) -> MulticastKey {
        MulticastKey::Group(0, IpAddr::V4(Ipv4Addr::new(239, 0, 0, last)))
    }

    fn at(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    fn add(table: &mut MulticastTable, key: MulticastKey, port: u32, second: u64) -> usize {
        let (port, version) = (PortNo::new(port), Version::new(second + 1));
        table.add(key, port, &[port], GROUPS_MAX, version, at(second)).len()
    }

    fn groups(table: &MulticastTable, version: u64) -> Vec<(u8, u32)> {
        let entries = table.entries(Version::new(version)).into_iter();
        let last = |entry: &MulticastEntry| match entry.group {
            Some(IpAddr::V4(group)) => group.octets()[3],
            _ => 0,
        };
        entries.map(|entry| (last(&entry), entry.port.number())).collect()
    }

    #[test]
    fn a_known_port_makes_no_change() {
        let mut table = MulticastTable::default();
        assert_eq!(add(&mut table, key(1), 1, 1), 1);
        assert_eq!(add(&mut table, key(1), 1, 2), 0, "known already");
        assert_eq!(add(&mut table, key(1), 2, 3), 1);
        assert_eq!(groups(&table, 4), [(1, 1), (1, 2)]);
        let old = table.find(key(1), Version::new(2)).unwrap();
        assert_eq!(old.numbers().collect::<Vec<_>>(), [PortNo::new(1)], "an older version");
    }

    #[test]
    fn a_full_table_evicts_the_group_with_the_oldest_report() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 1, 1);
        add(&mut table, key(2), 1, 2);
        add(&mut table, key(1), 1, 3);
        assert_eq!(add(&mut table, key(3), 1, 4), 2);
        assert_eq!(groups(&table, 5), [(1, 1), (3, 1)]);
        assert_eq!(table.limit(1, Version::new(6)), [key(1)]);
        assert_eq!(groups(&table, 6), [(3, 1)]);
    }

    #[test]
    fn a_port_with_many_groups_evicts_its_own() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 1, 1);
        for last in 2..9 {
            add(&mut table, key(last), 2, last.into());
        }
        assert_eq!(groups(&table, 9), [(1, 1), (8, 2)]);
        let totals = LearnedTotals { learned: 8, evicted: 6, ..LearnedTotals::default() };
        assert_eq!(table.totals(), totals);
    }

    /// The port numbers do not matter, and neither does the order of the reports.
    #[test]
    fn no_port_loses_groups_to_an_equal_one() {
        for (small, large) in [(1, 2), (2, 1)] {
            let mut table = MulticastTable::default();
            add(&mut table, key(1), small, 1);
            for last in 2..9 {
                add(&mut table, key(last), large, last.into());
            }
            assert_eq!(groups(&table, 9), [(1, small), (8, large)]);
            // The first group of a port takes a place, and its second one does not.
            add(&mut table, key(9), 3, 9);
            let after = groups(&table, 10);
            assert!(after.contains(&(9, 3)), "{after:?}");
            add(&mut table, key(10), 3, 10);
            let others = |all: &[(u8, u32)]| all.iter().filter(|own| own.1 != 3).count();
            let last = groups(&table, 11);
            assert_eq!((others(&last), others(&after), last.len()), (1, 1, 2), "{last:?}");
        }
    }

    #[test]
    fn a_shared_group_counts_for_its_first_port() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 2, 1);
        add(&mut table, key(1), 1, 2);
        add(&mut table, key(2), 2, 3);
        assert_eq!(add(&mut table, key(3), 3, 4), 3, "port 2 loses both, and port 1 stays");
        assert_eq!(groups(&table, 5), [(1, 1), (3, 3)]);
        assert_eq!(table.limit(0, Version::new(6)).len(), 2);
        assert!(groups(&table, 6).is_empty());
    }

    #[test]
    fn router_ports_are_not_counted_as_groups() {
        let mut table = MulticastTable::default();
        for vlan in 0..3 {
            add(&mut table, MulticastKey::Routers(vlan), 4, 1);
        }
        add(&mut table, key(1), 1, 2);
        add(&mut table, key(2), 1, 3);
        assert_eq!(groups(&table, 4), [(1, 1), (2, 1), (0, 4), (0, 4), (0, 4)]);
    }

    #[test]
    fn a_moved_port_keeps_its_place_and_its_time() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 1, 1);
        add(&mut table, key(1), 2, 2);
        add(&mut table, MulticastKey::Routers(0), 1, 3);
        let to_3 = |port: PortNo| (port == PortNo::new(1)).then(|| PortNo::new(3));
        table.move_ports(Version::new(5), to_3);
        assert_eq!(groups(&table, 5), [(1, 3), (1, 2), (0, 3)]);
        assert_eq!((table.entries(Version::new(5))[0].seen, table.totals().moved), (at(1), 2));
        add(&mut table, key(2), 3, 5);
        assert_eq!(add(&mut table, key(3), 4, 6), 3, "port 3 has two groups");
        assert_eq!(groups(&table, 7), [(1, 2), (3, 4), (0, 3)]);
    }

    #[test]
    fn ports_that_expire_are_counted() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 1, 1);
        add(&mut table, key(1), 2, 2);
        add(&mut table, key(1), 3, 8);
        add(&mut table, MulticastKey::Routers(0), 4, 1);
        let ageing = Duration::from_secs(5);
        assert_eq!(table.expire(ageing, Version::new(9), at(7)), [key(1)]);
        assert_eq!(groups(&table, 9), [(1, 3), (0, 4)]);
        assert_eq!(table.expire(ageing, Version::new(9), at(12)), []);
        let totals = LearnedTotals { learned: 4, expired: 2, ..LearnedTotals::default() };
        assert_eq!(table.totals(), totals);
    }

    #[test]
    fn a_group_ends_with_its_last_port() {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), 1, 1);
        add(&mut table, key(1), 2, 2);
        let without = |port: u32| move |entry: &MulticastEntry| entry.port != PortNo::new(port);
        assert_eq!(table.retain(Version::new(4), without(1)), [key(1)]);
        assert_eq!(table.retain(Version::new(5), without(1)), []);
        assert!(table.find(key(1), Version::new(5)).is_some());
        assert_eq!(table.retain(Version::new(6), without(2)), [key(1)]);
        assert!(table.find(key(1), Version::new(6)).is_none() && groups(&table, 6).is_empty());
        table.reclaim(Version::new(6));
        assert!(table.is_empty());
    }
}
