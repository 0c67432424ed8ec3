//! The multicast table of NORMAL: the ports that want each group of each VLAN, and router ports.
//!
//! Control fills the table from messages of IGMP and MLD (see [`MulticastObservation`]). A port
//! without a report leaves a group after the ageing time of the bridge. A port without a query is a
//! router port until [`MulticastSnooping::ROUTER_AGEING`] has passed. The entries of a port are
//! removed when the port is removed, its VLANs change, or it gets another device.
//!
//! Each group is charged to one port: the one that has been in it longest. A full table finds the
//! port that is charged with the most groups, and removes this port from the group that the port
//! reported longest ago (see [`LearnedAges`]). Ports leave groups until a group is empty. After
//! [`MulticastSnooping::DEPARTURES_MAX`] ports, the last of these groups ends with all of its
//! ports. The new group is charged to the port that reports it. Among ports with equally many
//! groups, this port leaves one of its own. So a host takes a place only from a port with more
//! groups, or for its first group.
//!
//! A report of a port that is known prolongs its time, and makes no version.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    expiry_queue::{ExpiredEntries, ExpiryQueue},
    learned_ages::LearnedAges,
    learned_totals::LearnedTotals,
    multicast::{MulticastEvent, MulticastObservation, MulticastSnooping},
};
use crate::{
    id::BridgeId,
    time::Time,
    update::batch::UpdateBatch,
    versions::{
        delta::{Delta, Object},
        versioned_map::{MapPage, VersionedMap},
    },
};

/// An entry of the multicast table: a port of a group, or a router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastEntry {
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The group; `None`: a multicast router is behind the port.
    pub group: Option<IpAddr>,
    /// The port that wants the packets of the group.
    pub port: PortNo,
    /// Time of the last report, or of the last query.
    pub seen: Time,
}

/// The ports of a group, or the router ports of a VLAN, in the order of addition.
#[derive(Clone, Debug, Default)]
pub(crate) struct MulticastPorts {
    /// The ports, each with the time when it was last seen, in nanoseconds.
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
pub(crate) struct MulticastTable {
    /// The ports of each group, and the router ports of each VLAN.
    entries: VersionedMap<MulticastKey, MulticastPorts>,
    /// The groups of the newest version, each with its first port and last report.
    ages: LearnedAges<MulticastKey>,
    /// The groups, in the order in which their ports expire.
    groups_expiry: ExpiryQueue<MulticastKey>,
    /// The VLANs with router ports, in the order in which these expire.
    routers_expiry: ExpiryQueue<MulticastKey>,
    /// The keys of each port in the newest version; no entry for a port without keys.
    by_port: BTreeMap<PortNo, BTreeSet<MulticastKey>>,
    /// The totals of changes; each port of a group, and each router port, is an entry.
    totals: LearnedTotals,
}

impl Default for MulticastTable {
    fn default() -> Self {
        Self {
            entries: VersionedMap::new(),
            ages: LearnedAges::default(),
            groups_expiry: ExpiryQueue::default(),
            routers_expiry: ExpiryQueue::default(),
            by_port: BTreeMap::new(),
            totals: LearnedTotals::default(),
        }
    }
}

impl MulticastPorts {
    /// Returns the ports that receive the group.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = PortNo> {
        self.ports.iter().map(|(port, _)| *port)
    }

    /// Returns the port that was added first, and the time of its last message.
    fn first(&self) -> Option<(PortNo, Time)> {
        self.ports.first().map(|(port, seen)| (*port, Self::time_of(seen)))
    }

    /// Returns the time of the oldest last message of a port.
    fn oldest(&self) -> Option<Time> {
        self.ports.iter().map(|(_, seen)| Self::time_of(seen)).min()
    }

    /// Returns the entries of a group or of router ports, ordered by the last message.
    pub(crate) fn entries(&self, key: MulticastKey) -> Vec<MulticastEntry> {
        let entry = |(port, seen): &(PortNo, Arc<AtomicU64>)| key.entry(*port, Self::time_of(seen));
        let mut entries: Vec<_> = self.ports.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.seen);
        entries
    }

    /// Returns the time of the last report from a port.
    fn time_of(seen: &AtomicU64) -> Time {
        Time::from_nanoseconds(seen.load(Ordering::Relaxed))
    }
}

/// Sorts entries: the groups by their last report, then the router ports.
pub(crate) fn in_order(mut entries: Vec<Vec<MulticastEntry>>) -> Vec<MulticastEntry> {
    // The last entry of a group has the newest report of the group.
    entries.sort_by_key(|entries| entries.last().map(|last| (last.group.is_none(), last.seen)));
    entries.concat()
}

impl MulticastKey {
    /// Returns an entry of the group for a port.
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
        self.entries.find(key, version)
    }

    /// Returns the number of groups that searches for the oldest one have visited.
    const fn visits(&self) -> usize {
        self.ages.visits()
    }

    /// Returns the totals of the changes of the table.
    pub(crate) const fn totals(&self) -> LearnedTotals {
        self.totals
    }

    /// Returns a page of the groups and router ports; see [`VersionedMap::page`].
    pub(crate) fn page(
        &self,
        after: Option<MulticastKey>,
        version: Version,
        visits_max: usize,
    ) -> MapPage<MulticastKey, MulticastPorts> {
        self.entries.page(after, version, visits_max)
    }

    /// Returns the keys of some ports, at most `keys_max`.
    ///
    /// The cost depends on these keys, and not on the size of the table.
    pub(crate) fn keys_of(&self, ports: &[PortNo], keys_max: usize) -> Vec<MulticastKey> {
        let keys = ports.iter().filter_map(|port| self.by_port.get(port)).flatten();
        keys.take(keys_max).copied().collect()
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
    /// `reporter` is the port of a new group. Returns the changed keys.
    fn make_room(
        &mut self,
        groups_max: usize,
        reporter: Option<PortNo>,
        version: Version,
    ) -> Vec<MulticastKey> {
        let mut changed = Vec::new();
        while let Some(key) = self.evict_over(groups_max, reporter, version) {
            changed.push(key);
            // Ports that share all of their groups would all leave most of them.
            let is_shared = self.ages.len() > groups_max;
            if is_shared && changed.len() >= MulticastSnooping::DEPARTURES_MAX {
                self.totals.evicted += self.retain_in(key, version, |_| false);
            }
        }
        changed
    }

    /// Removes a port from a group if there are more than `groups_max` groups.
    ///
    /// `reporter` is the port of a new group that needs room, if there is one. Returns the changed
    /// key. The cost is logarithmic in the number of groups.
    fn evict_over(
        &mut self,
        groups_max: usize,
        reporter: Option<PortNo>,
        version: Version,
    ) -> Option<MulticastKey> {
        if self.ages.len() <= groups_max {
            return None;
        }
        let entries = &self.entries;
        let first = |key: MulticastKey| entries.find(key, version)?.first();
        let seen = |key| first(key).map(|(_, seen)| seen);
        let key = match reporter {
            Some(port) => self.ages.oldest_for(port, seen),
            None => self.ages.oldest(seen),
        }?;
        let (port, _) = first(key)?;
        self.totals.evicted += self.retain_in(key, version, |entry| entry.port != port);
        Some(key)
    }

    /// Removes ports from groups until there are at most `groups_max` groups.
    ///
    /// Returns whether the number is reached. Ends after `visits_max` visited groups, and the
    /// search in progress. A search visits at most 64 groups.
    pub(crate) fn evict_some(
        &mut self,
        groups_max: usize,
        version: Version,
        visits_max: usize,
    ) -> bool {
        let end = self.ages.visits() + visits_max;
        while self.ages.visits() < end {
            if self.evict_over(groups_max, None, version).is_none() {
                return true;
            }
        }
        false
    }

    /// Removes ports without a recent report or query.
    ///
    /// Visits at most `visits_max` groups and VLANs, the oldest ones.
    fn expire_some(
        &mut self,
        ageing: Duration,
        version: Version,
        now: Time,
        visits_max: usize,
    ) -> ExpiredEntries<MulticastKey> {
        let mut changed = Vec::new();
        for _ in 0..visits_max {
            let is_old = |ageing| move |seen: Time| seen.after(ageing) <= now;
            let group = self.groups_expiry.pop_old(is_old(ageing));
            let router_ageing = MulticastSnooping::ROUTER_AGEING;
            let (key, ageing) = match group {
                Some(key) => (key, ageing),
                None => match self.routers_expiry.pop_old(is_old(router_ageing)) {
                    Some(key) => (key, router_ageing),
                    None => return ExpiredEntries { changed, is_complete: true },
                },
            };
            let removed = self.retain_in(key, version, |entry| entry.seen.after(ageing) > now);
            self.totals.expired += removed;
            changed.extend((removed > 0).then_some(key));
            if let Some(seen) = self.find(key, version).and_then(|ports| ports.oldest()) {
                self.expiry(key).insert(key, seen);
            }
        }
        ExpiredEntries { changed, is_complete: false }
    }

    /// Returns the queue in which the ports of a key expire.
    const fn expiry(&mut self, key: MulticastKey) -> &mut ExpiryQueue<MulticastKey> {
        match key {
            MulticastKey::Group(..) => &mut self.groups_expiry,
            MulticastKey::Routers(_) => &mut self.routers_expiry,
        }
    }

    /// Removes the ports of a key that `is_kept` rejects; returns their number.
    pub(crate) fn retain_in(
        &mut self,
        key: MulticastKey,
        version: Version,
        is_kept: impl Fn(&MulticastEntry) -> bool,
    ) -> u64 {
        let Some(known) = self.find(key, version) else { return 0 };
        let stays = |(port, seen): &&(PortNo, Arc<AtomicU64>)| {
            is_kept(&key.entry(*port, MulticastPorts::time_of(seen)))
        };
        let kept: Vec<_> = known.ports.iter().filter(stays).cloned().collect();
        let removed = known.ports.len() - kept.len();
        if removed == 0 {
            return 0;
        }
        self.replace(key, MulticastPorts { ports: kept }, version);
        removed as u64
    }

    /// Moves ports of a group, or router ports, to their successors.
    ///
    /// `successor` returns `None` for a port that stays. The key may not have both a port and its
    /// successor.
    pub(crate) fn move_ports(
        &mut self,
        key: MulticastKey,
        version: Version,
        successor: impl Fn(PortNo) -> Option<PortNo>,
    ) {
        let Some(known) = self.find(key, version) else { return };
        if !known.numbers().any(|port| successor(port).is_some()) {
            return;
        }
        let moved = |(port, seen): &(PortNo, Arc<AtomicU64>)| {
            (successor(*port).unwrap_or(*port), Arc::clone(seen))
        };
        let ports = known.ports.iter().map(moved).collect();
        self.replace(key, MulticastPorts { ports }, version);
        self.totals.moved += 1;
    }

    /// Sets the ports of a key; without ports, removes the key.
    fn replace(&mut self, key: MulticastKey, ports: MulticastPorts, version: Version) {
        let known = self.find(key, version).map(Arc::clone).unwrap_or_default();
        self.index(key, &known, &ports);
        let (before, now) = (known.first(), ports.first());
        match ports.oldest() {
            Some(oldest) => {
                self.entries.set(key, Arc::new(ports), version);
                self.expiry(key).insert(key, oldest);
            }
            None => {
                self.entries.end(key, version);
                self.expiry(key).remove(key);
            }
        }
        if matches!(key, MulticastKey::Group(..)) && now != before {
            self.ages.remove(key);
            now.into_iter().for_each(|(port, seen)| self.ages.add(key, port, seen));
        }
    }

    /// Replaces the ports of a key in the index by port.
    fn index(&mut self, key: MulticastKey, before: &MulticastPorts, now: &MulticastPorts) {
        let [before, now] = [before, now].map(|ports| ports.numbers().collect::<BTreeSet<_>>());
        for port in before.difference(&now) {
            if let Some(keys) = self.by_port.get_mut(port) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.by_port.remove(port);
                }
            }
        }
        for port in now.difference(&before) {
            self.by_port.entry(*port).or_default().insert(key);
        }
    }

    /// Calls [`VersionedMap::reclaim`] on the groups and router ports.
    pub(crate) fn reclaim(&mut self, oldest: Version, left: &mut usize) -> bool {
        self.entries.reclaim(oldest, left)
    }

    /// Returns whether no group or router port is stored, in any retained version.
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
        observation: &MulticastObservation,
    ) {
        let MulticastObservation { bridge: id, vlan, port, event } = *observation;
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
        let visits = table.visits();
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
        self.add_visits(table.visits() - visits);
        self.push_multicast(id, changed);
    }

    /// Removes ports without a report or query in time; returns whether none is left.
    ///
    /// Visits at most `visits_max` groups and VLANs.
    pub(crate) fn expire_multicast(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        visits_max: usize,
    ) -> bool {
        let snooping = bridge.settings(self.version).and_then(|own| own.multicast);
        let Some(MulticastSnooping { ageing, .. }) = snooping else { return true };
        let expired = bridge.multicast.expire_some(ageing, self.version, self.now, visits_max);
        self.push_multicast(id, expired.changed);
        expired.is_complete
    }

    /// Removes a group, or the router ports of a VLAN.
    pub(crate) fn forget_multicast(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        key: MulticastKey,
    ) {
        let removed = bridge.multicast.retain_in(key, self.version, |_| false);
        self.push_multicast(id, (removed > 0).then_some(key).into_iter().collect());
    }

    /// Adds the deltas of changed multicast groups.
    pub(super) fn push_multicast(&mut self, bridge: BridgeId, changed: Vec<MulticastKey>) {
        for key in changed {
            self.push(Delta::Changed(match key {
                MulticastKey::Group(vlan, group) => Object::MulticastGroup(bridge, vlan, group),
                MulticastKey::Routers(vlan) => Object::MulticastRouters(bridge, vlan),
            }));
        }
    }
}

#[cfg(test)]
mod tests;
