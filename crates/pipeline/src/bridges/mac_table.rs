//! The MAC table of NORMAL: the port on which each address of each VLAN was last seen.
//!
//! Packets fill it (see [`crate::Learning`]); the newest sighting wins. A frame that may be a copy
//! does not move an address. The network sends copies of frames back on a bond that balances, and
//! their source addresses may be those of hosts on other ports. An address without a frame expires
//! after the ageing time of the bridge. The addresses of a port are removed when the port is
//! removed or its VLANs change. A full table evicts an address of the port with the most addresses
//! (see [`LearnedAges`]).

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

use super::{
    bridge::VersionedBridge, learned_ages::LearnedAges, learned_totals::LearnedTotals,
    port::PortInfo, port_table::PortTable,
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

/// A MAC address of a VLAN of a bridge, with its port.
#[derive(Debug)]
pub struct MacEntry {
    /// The bridge.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// The port on which frames of the address arrive.
    pub port: PortNo,
    /// Time when a host announced the address on the port, for [`ANNOUNCED_FOR`].
    announced: Option<Time>,
    seen: AtomicU64,
}

/// Time for which an announced address does not move to a bond.
///
/// The network sends copies of the announcement back on the bond.
pub(crate) const ANNOUNCED_FOR: Duration = Duration::from_secs(5);

impl MacEntry {
    const fn new(sighting: &MacSighting, now: Time) -> Self {
        let MacSighting { bridge, vlan, mac, port, is_announcement, .. } = *sighting;
        let announced = if is_announcement { Some(now) } else { None };
        Self { bridge, vlan, mac, port, announced, seen: AtomicU64::new(now.nanoseconds()) }
    }

    /// Returns the same entry without its announcement.
    fn without_announcement(&self) -> Self {
        let seen = AtomicU64::new(self.seen().nanoseconds());
        let Self { bridge, vlan, mac, port, .. } = *self;
        Self { bridge, vlan, mac, port, announced: None, seen }
    }

    /// Returns whether a host announced the address on the port a short time ago.
    pub(crate) const fn is_announced(&self) -> bool {
        self.announced.is_some()
    }

    /// Returns the time of the last frame from the address.
    #[must_use]
    pub fn seen(&self) -> Time {
        Time::from_nanoseconds(self.seen.load(Ordering::Relaxed))
    }

    /// Notes a frame from the address at `now`.
    pub(crate) fn refresh(&self, now: Time) {
        self.seen.fetch_max(now.nanoseconds(), Ordering::Relaxed);
    }
}

/// A sighting of a MAC address: the learn request of a packet that NORMAL forwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MacSighting {
    /// The bridge.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
    /// The port on which the frame arrived.
    pub port: PortNo,
    /// True for a gratuitous ARP packet, which may move the address.
    ///
    /// Only bridges that receive copies of their own frames on a bond need it: in other bridges it
    /// is false.
    pub is_announcement: bool,
    /// True if the packet is sent only after the address has been learned.
    ///
    /// True in bridges that receive copies of their own frames on a bond. Such a copy then finds
    /// the learned address.
    pub precedes_packet: bool,
}

impl fmt::Debug for MacSighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bridge, vlan, mac, port, .. } = self;
        write!(f, "{mac:02x?} of VLAN {vlan} at port {port} of bridge {bridge}")
    }
}

/// A VLAN and an address.
pub(crate) type MacKey = (u16, [u8; 6]);

/// The MAC addresses of a bridge, at every retained version.
#[derive(Default)]
pub(crate) struct MacTable {
    entries: BTreeMap<MacKey, Versioned<MacEntry>>,
    /// The addresses that the newest version sees.
    ages: LearnedAges<MacKey>,
    totals: LearnedTotals,
}

impl MacTable {
    /// Returns the entry of an address.
    pub(crate) fn find(&self, vlan: u16, mac: [u8; 6], version: Version) -> Option<&Arc<MacEntry>> {
        self.entries.get(&(vlan, mac))?.at(version)
    }

    /// Returns the number of addresses that the newest version sees.
    pub(crate) fn len(&self) -> usize {
        self.ages.len()
    }

    /// Returns the totals of the changes of the table.
    pub(crate) const fn totals(&self) -> LearnedTotals {
        self.totals
    }

    /// Returns all addresses, by VLAN.
    pub(crate) fn iter(&self, version: Version) -> impl Iterator<Item = &Arc<MacEntry>> {
        self.entries.values().filter_map(move |entry| entry.at(version))
    }

    /// Learns the port of an address; a full table evicts another address.
    /// Returns the changed keys.
    pub(crate) fn learn(
        &mut self,
        sighting: &MacSighting,
        entries_max: usize,
        version: Version,
        now: Time,
    ) -> Vec<MacKey> {
        let mac_key = (sighting.vlan, sighting.mac);
        match self.find(sighting.vlan, sighting.mac, version) {
            Some(known)
                if known.port == sighting.port
                    && (!sighting.is_announcement || known.is_announced()) =>
            {
                known.refresh(now);
                return Vec::new();
            }
            Some(known) => {
                self.totals.moved += u64::from(known.port != sighting.port);
                self.ages.remove(mac_key);
            }
            None => self.totals.learned += 1,
        }
        let mut changed = Vec::new();
        while self.ages.len() >= entries_max.max(1) {
            let entries = &self.entries;
            let seen = |mac_key| entries.get(&mac_key)?.at(version).map(|entry| entry.seen());
            let Some(oldest) = self.ages.oldest(seen) else { break };
            self.forget(oldest, version);
            self.totals.evicted += 1;
            changed.push(oldest);
        }
        let entry = Arc::new(MacEntry::new(sighting, now));
        self.entries.entry(mac_key).or_insert_with(Versioned::new).set(entry, version);
        self.ages.add(mac_key, sighting.port, now);
        changed.push(mac_key);
        changed
    }

    /// Removes addresses that were not seen for `ageing`, and ends announcements.
    ///
    /// Returns the changed keys.
    pub(crate) fn expire(&mut self, ageing: Duration, version: Version, now: Time) -> Vec<MacKey> {
        let mut changed = self.forget_if(version, |entry| entry.seen().after(ageing) <= now);
        self.totals.expired += changed.len() as u64;
        let is_over = |entry: &&Arc<MacEntry>| {
            entry.announced.is_some_and(|time| time.after(ANNOUNCED_FOR) <= now)
        };
        let over: Vec<_> = self.iter(version).filter(is_over).cloned().collect();
        for entry in over {
            let mac_key = (entry.vlan, entry.mac);
            let own = self.entries.entry(mac_key).or_insert_with(Versioned::new);
            own.set(Arc::new(entry.without_announcement()), version);
            changed.push(mac_key);
        }
        changed
    }

    /// Removes the addresses for which `is_gone` is true. Returns the changed keys.
    pub(crate) fn forget_if(
        &mut self,
        version: Version,
        is_gone: impl Fn(&MacEntry) -> bool,
    ) -> Vec<MacKey> {
        let gone = self.iter(version).filter(|entry| is_gone(entry));
        let gone: Vec<MacKey> = gone.map(|entry| (entry.vlan, entry.mac)).collect();
        gone.iter().for_each(|mac_key| self.forget(*mac_key, version));
        gone
    }

    fn forget(&mut self, mac_key: MacKey, version: Version) {
        if let Some(entry) = self.entries.get_mut(&mac_key) {
            entry.end(version);
            self.ages.remove(mac_key);
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
    /// Learns the port of an address from a sighting.
    /// Learns nothing if the port, bridge or VLAN was removed meanwhile, or if the frame may be a
    /// copy.
    pub(crate) fn learn_mac(&mut self, bridge: &mut VersionedBridge, sighting: &MacSighting) {
        let Some(settings) = bridge.settings(self.version) else { return };
        let macs_max = settings.macs_max;
        let Some(ports) = bridge.ports(self.version) else { return };
        let Some(port) = ports.find(sighting.port) else { return };
        let known = bridge.macs.find(sighting.vlan, sighting.mac, self.version);
        if !port.vlans.carries(sighting.vlan)
            || ports.mirrors.is_output(sighting.port)
            || known.is_some_and(|known| may_be_copy(sighting, port, known, ports))
        {
            return;
        }
        // The time of an announcement is kept for hosts only.
        let is_announcement = sighting.is_announcement && port.bond.is_none();
        let sighting = MacSighting { is_announcement, ..*sighting };
        let changed = bridge.macs.learn(&sighting, macs_max, self.version, self.now);
        self.push_macs(sighting.bridge, changed);
    }

    /// Removes the expired addresses.
    pub(crate) fn expire_macs(&mut self, id: BridgeId, bridge: &mut VersionedBridge) {
        let Some(settings) = bridge.settings(self.version) else { return };
        let ageing = settings.mac_ageing;
        let changed = bridge.macs.expire(ageing, self.version, self.now);
        self.push_macs(id, changed);
    }

    /// Removes all addresses.
    pub(crate) fn flush_macs(&mut self, id: BridgeId, bridge: &mut VersionedBridge) {
        let changed = bridge.macs.forget_if(self.version, |_| true);
        self.push_macs(id, changed);
    }

    fn push_macs(&mut self, bridge: BridgeId, changed: Vec<MacKey>) {
        for (vlan, mac) in changed {
            self.push(Delta::Changed(Object::Mac(bridge, vlan, mac)));
        }
    }
}

/// Returns whether a sighting may be of a frame that came back on a bond.
///
/// `Egress::is_admitted` applies the same rule to packets. The rule is applied again here, because
/// the address may have been learned on another port since the packet was translated.
fn may_be_copy(
    sighting: &MacSighting,
    port: &PortInfo,
    known: &MacEntry,
    ports: &PortTable,
) -> bool {
    let is_here = || ports.find(known.port).is_some_and(|own| own.is_one_with(port));
    port.receives_copies() && !is_here() && (known.is_announced() || !sighting.is_announcement)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 2;

    fn seen(table: &mut MacTable, last: u8, port: u32, second: u64) -> usize {
        let mac = [2, 0, 0, 0, 0, last];
        let sighting = MacSighting {
            bridge: BridgeId::new(1),
            vlan: 0,
            mac,
            port: PortNo::new(port),
            is_announcement: false,
            precedes_packet: false,
        };
        table.learn(&sighting, ROOM, Version::new(second + 1), at(second)).len()
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
        let totals = LearnedTotals { learned: 1, moved: 1, ..LearnedTotals::default() };
        assert_eq!((table.len(), table.totals()), (1, totals));
    }

    #[test]
    fn a_full_table_forgets_the_oldest_address() {
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
        let totals = LearnedTotals { learned: 8, evicted: 6, ..LearnedTotals::default() };
        assert_eq!((table.len(), table.totals()), (2, totals));
    }

    #[test]
    fn an_address_expires_exactly_at_its_timeout() {
        let mut table = MacTable::default();
        seen(&mut table, 1, 1, 1);
        let ageing = Duration::from_secs(10);
        assert!(table.expire(ageing, Version::new(9), at(10)).is_empty());
        seen(&mut table, 1, 1, 5);
        assert!(table.expire(ageing, Version::new(9), at(14)).is_empty());
        assert_eq!(table.expire(ageing, Version::new(9), at(15)).len(), 1);
        assert!(known(&table, 9).is_empty());
        let totals = LearnedTotals { learned: 1, expired: 1, ..LearnedTotals::default() };
        assert_eq!((table.len(), table.totals()), (0, totals));
    }
}
