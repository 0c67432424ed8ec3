//! Where each MAC address of each VLAN was seen last: what NORMAL forwards by.
//!
//! Packets teach it (see [`crate::Learning`]); the newest sighting wins. An address that was not
//! seen for the bridge's ageing time is forgotten, and so are those of a port that goes or whose
//! VLANs change. A full table forgets an address of the port that has most (see [`Ages`]).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{bridge::Bridge, mac_ages::Ages};
use crate::{
    id::BridgeId,
    time::Time,
    update::batch::Batch,
    versions::{
        delta::{Delta, Object},
        versioned::History,
    },
};

/// A MAC address of a VLAN of a bridge, by port.
#[derive(Debug)]
pub struct MacEntry {
    /// The bridge.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// The port that frames from it came in by.
    pub port: PortNo,
    seen: AtomicU64,
}

impl MacEntry {
    const fn new(sighting: &MacSighting, now: Time) -> Self {
        let MacSighting { bridge, vlan, mac, port } = *sighting;
        Self { bridge, vlan, mac, port, seen: AtomicU64::new(now.nanoseconds()) }
    }

    /// When a frame from it came last.
    #[must_use]
    pub fn seen(&self) -> Time {
        Time::from_nanoseconds(self.seen.load(Ordering::Relaxed))
    }

    /// A frame from it came at `now`.
    pub(crate) fn refresh(&self, now: Time) {
        self.seen.fetch_max(now.nanoseconds(), Ordering::Relaxed);
    }
}

/// A sighting of a MAC address: what a packet that NORMAL forwards teaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MacSighting {
    /// The bridge.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// The port that the frame came in by.
    pub port: PortNo,
}

impl fmt::Debug for MacSighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bridge, vlan, mac, port } = self;
        write!(f, "{mac:02x?} of VLAN {vlan} at port {port} of bridge {bridge}")
    }
}

/// VLAN and address.
pub(crate) type Place = (u16, [u8; 6]);

/// The MAC addresses of a bridge, at every version that is still alive.
#[derive(Default)]
pub(crate) struct MacTable {
    entries: BTreeMap<Place, History<MacEntry>>,
    /// Those that the newest version knows.
    ages: Ages,
}

impl MacTable {
    /// Where an address was seen.
    pub(crate) fn find(&self, vlan: u16, mac: [u8; 6], version: Version) -> Option<&Arc<MacEntry>> {
        self.entries.get(&(vlan, mac))?.at(version)
    }

    /// All addresses, by VLAN.
    pub(crate) fn iter(&self, version: Version) -> impl Iterator<Item = &Arc<MacEntry>> {
        self.entries.values().filter_map(move |entry| entry.at(version))
    }

    /// Takes a sighting in, and makes room for it. Answers with the places that changed.
    pub(crate) fn learn(
        &mut self,
        sighting: &MacSighting,
        entries_max: usize,
        (version, now): (Version, Time),
    ) -> Vec<Place> {
        let place = (sighting.vlan, sighting.mac);
        match self.find(sighting.vlan, sighting.mac, version) {
            Some(known) if known.port == sighting.port => {
                known.refresh(now);
                return Vec::new();
            }
            Some(_) => self.ages.remove(place),
            None => {}
        }
        let mut changed = Vec::new();
        while self.ages.len() >= entries_max.max(1) {
            let entries = &self.entries;
            let seen = |place| entries.get(&place)?.at(version).map(|entry| entry.seen());
            let Some(oldest) = self.ages.oldest(seen) else { break };
            self.forget(oldest, version);
            changed.push(oldest);
        }
        let entry = Arc::new(MacEntry::new(sighting, now));
        self.entries.entry(place).or_insert_with(History::new).set(entry, version);
        self.ages.add(place, sighting.port, now);
        changed.push(place);
        changed
    }

    /// Forgets what was not seen for `ageing`. Answers with the places that changed.
    pub(crate) fn expire(&mut self, ageing: Duration, version: Version, now: Time) -> Vec<Place> {
        self.forget_if(version, |entry| entry.seen().after(ageing) <= now)
    }

    /// Forgets the addresses for which `is_gone` holds. Answers with the places that changed.
    pub(crate) fn forget_if(
        &mut self,
        version: Version,
        is_gone: impl Fn(&MacEntry) -> bool,
    ) -> Vec<Place> {
        let gone = self.iter(version).filter(|entry| is_gone(entry));
        let gone: Vec<Place> = gone.map(|entry| (entry.vlan, entry.mac)).collect();
        gone.iter().for_each(|place| self.forget(*place, version));
        gone
    }

    fn forget(&mut self, place: Place, version: Version) {
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.end(version);
            self.ages.remove(place);
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

impl Batch {
    /// Takes a sighting in, unless its port, its bridge or its VLAN has gone meanwhile.
    pub(crate) fn learn_mac(&mut self, bridge: &mut Bridge, sighting: &MacSighting) {
        let Some(settings) = bridge.settings(self.version) else { return };
        let macs_max = settings.macs_max;
        let port = bridge.ports(self.version).and_then(|ports| ports.find(sighting.port));
        if port.is_some_and(|port| port.vlans.carries(sighting.vlan)) {
            let changed = bridge.macs.learn(sighting, macs_max, (self.version, self.now));
            self.push_macs(sighting.bridge, changed);
        }
    }

    /// Forgets the addresses whose time is over.
    pub(crate) fn expire_macs(&mut self, id: BridgeId, bridge: &mut Bridge) {
        let Some(settings) = bridge.settings(self.version) else { return };
        let ageing = settings.mac_ageing;
        let changed = bridge.macs.expire(ageing, self.version, self.now);
        self.push_macs(id, changed);
    }

    /// Forgets all addresses.
    pub(crate) fn flush_macs(&mut self, id: BridgeId, bridge: &mut Bridge) {
        let changed = bridge.macs.forget_if(self.version, |_| true);
        self.push_macs(id, changed);
    }

    fn push_macs(&mut self, bridge: BridgeId, changed: Vec<Place>) {
        for (vlan, mac) in changed {
            self.push(Delta::Changed(Object::Mac(bridge, vlan, mac)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 2;

    fn seen(table: &mut MacTable, last: u8, port: u32, second: u64) -> usize {
        let mac = [2, 0, 0, 0, 0, last];
        let sighting =
            MacSighting { bridge: BridgeId::new(1), vlan: 0, mac, port: PortNo::new(port) };
        table.learn(&sighting, ROOM, (Version::new(second + 1), at(second))).len()
    }

    fn at(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    fn known(table: &MacTable, version: u64) -> Vec<(u8, u32)> {
        let entries = table.iter(Version::new(version));
        entries.map(|entry| (entry.mac[5], entry.port.number())).collect()
    }

    #[test]
    fn the_newest_sighting_wins_and_older_versions_see_the_older() {
        let mut table = MacTable::default();
        assert_eq!(seen(&mut table, 1, 1, 1), 1);
        assert_eq!(seen(&mut table, 1, 1, 2), 0, "known already");
        assert_eq!(seen(&mut table, 1, 2, 3), 1);
        assert_eq!((known(&table, 2), known(&table, 4)), (vec![(1, 1)], vec![(1, 2)]));
    }

    #[test]
    fn a_full_table_forgets_what_was_not_seen_for_longest() {
        let mut table = MacTable::default();
        seen(&mut table, 1, 1, 1);
        seen(&mut table, 2, 1, 2);
        seen(&mut table, 1, 1, 3);
        assert_eq!(seen(&mut table, 3, 1, 4), 2);
        assert_eq!(known(&table, 5), [(1, 1), (3, 1)]);
    }

    #[test]
    fn a_port_that_floods_a_table_forgets_its_own_addresses_only() {
        let mut table = MacTable::default();
        seen(&mut table, 1, 1, 1);
        for last in 2..9 {
            seen(&mut table, last, 2, last.into());
        }
        assert_eq!(known(&table, 10), [(1, 1), (8, 2)]);
    }

    #[test]
    fn an_address_goes_when_its_time_is_over_and_not_before() {
        let mut table = MacTable::default();
        seen(&mut table, 1, 1, 1);
        let ageing = Duration::from_secs(10);
        assert!(table.expire(ageing, Version::new(9), at(10)).is_empty());
        seen(&mut table, 1, 1, 5);
        assert!(table.expire(ageing, Version::new(9), at(14)).is_empty());
        assert_eq!(table.expire(ageing, Version::new(9), at(15)).len(), 1);
        assert!(known(&table, 9).is_empty());
    }
}
