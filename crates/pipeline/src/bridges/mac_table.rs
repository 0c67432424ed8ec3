//! The MAC table of NORMAL: the port on which each address of each VLAN was last seen.
//!
//! Packets fill it (see [`crate::Learning`]); the newest observation wins. A frame that may be a
//! copy does not move an address. The network sends copies of frames back on a bond that balances,
//! and their source addresses may be those of hosts on other ports. An address without a frame
//! expires after the ageing time of the bridge. The addresses of a port are removed when the port
//! is removed, its VLANs change, or it gets another device. A full table evicts an address of the
//! port with the most addresses (see [`LearnedAges`]).
//!
//! An operator can also add an address (`static_macs.rs`). A static address has no age, and no
//! packet moves or evicts it.

mod port_removals;
pub(crate) mod static_macs;

use std::{
    collections::BTreeSet,
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
    bridge::VersionedBridge,
    expiry_queue::{ExpiredEntries, ExpiryQueue},
    learned_ages::LearnedAges,
    learned_totals::LearnedTotals,
    port::PortInfo,
    port_table::PortTable,
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

/// A MAC address of a VLAN of a bridge, with its port.
#[derive(Debug)]
pub struct MacEntry {
    /// The bridge that learned the address.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The MAC address that was learned.
    pub mac: [u8; 6],
    /// The port on which frames of the address arrive.
    pub port: PortNo,
    /// True for an address that an operator added, and that only an operator removes.
    pub is_static: bool,
    /// Time when a host announced the address on the port, for [`ANNOUNCED_FOR`].
    announced: Option<Time>,
    /// Time of the last frame with the address as source.
    seen: AtomicU64,
}

/// Time for which an announced address does not move to a bond.
///
/// The network sends copies of the announcement back on the bond.
pub(crate) const ANNOUNCED_FOR: Duration = Duration::from_secs(5);

impl MacEntry {
    /// Creates the entry of an address that was seen at `now`.
    const fn new(observation: &MacObservation, now: Time) -> Self {
        let MacObservation { bridge, vlan, mac, port, is_announcement, .. } = *observation;
        let announced = if is_announcement { Some(now) } else { None };
        let seen = AtomicU64::new(now.nanoseconds());
        Self { bridge, vlan, mac, port, is_static: false, announced, seen }
    }

    /// Returns the same entry without its announcement.
    fn without_announcement(&self) -> Self {
        let seen = AtomicU64::new(self.seen().nanoseconds());
        let Self { bridge, vlan, mac, port, is_static, .. } = *self;
        Self { bridge, vlan, mac, port, is_static, announced: None, seen }
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

    /// Records that a frame from the address arrived at `now`.
    pub(crate) fn refresh(&self, now: Time) {
        self.seen.fetch_max(now.nanoseconds(), Ordering::Relaxed);
    }
}

/// An observation of a MAC address.
///
/// A packet that NORMAL forwards has an observation as its learn request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MacObservation {
    /// The bridge that received the frame.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The MAC address that was observed.
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
    /// True in bridges that receive copies of their own frames on a bond. A copy that comes back
    /// then finds the learned address.
    pub precedes_packet: bool,
}

impl fmt::Debug for MacObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bridge, vlan, mac, port, .. } = self;
        write!(f, "{mac:02x?} of VLAN {vlan} at port {port} of bridge {bridge}")
    }
}

/// A VLAN and an address.
pub(crate) type MacKey = (u16, [u8; 6]);

/// The MAC addresses of a bridge, at every retained version.
pub(crate) struct MacTable {
    /// The learned and the static addresses.
    entries: VersionedMap<MacKey, MacEntry>,
    /// The static addresses that the newest version sees, by port.
    statics: BTreeSet<(PortNo, MacKey)>,
    /// The learned addresses that the newest version sees.
    ages: LearnedAges<MacKey>,
    /// The learned addresses, in the order in which they expire.
    expiry: ExpiryQueue<MacKey>,
    /// The announcements by time; some may have ended early.
    announcements: BTreeSet<(Time, MacKey)>,
    /// Totals of the changes by packets.
    totals: LearnedTotals,
}

impl Default for MacTable {
    fn default() -> Self {
        Self {
            entries: VersionedMap::new(),
            statics: BTreeSet::new(),
            ages: LearnedAges::default(),
            expiry: ExpiryQueue::default(),
            announcements: BTreeSet::new(),
            totals: LearnedTotals::default(),
        }
    }
}

impl MacTable {
    /// Returns the entry of an address.
    pub(crate) fn find(&self, vlan: u16, mac: [u8; 6], version: Version) -> Option<&Arc<MacEntry>> {
        self.entries.find((vlan, mac), version)
    }

    /// Returns the number of addresses that the newest version sees.
    pub(crate) fn len(&self) -> usize {
        self.ages.len() + self.statics.len()
    }

    /// Returns the number of learned addresses that fit beside the static ones.
    ///
    /// At least one address can be learned.
    fn learned_max(&self, entries_max: usize) -> usize {
        entries_max.saturating_sub(self.statics.len()).max(1)
    }

    /// Returns the number of addresses that searches for the oldest one have visited.
    pub(crate) const fn visits(&self) -> usize {
        self.ages.visits()
    }

    /// Returns the totals of the changes of the table.
    pub(crate) const fn totals(&self) -> LearnedTotals {
        self.totals
    }

    /// Returns a page of the addresses, by VLAN; see [`VersionedMap::page`].
    pub(crate) fn page(
        &self,
        after: Option<MacKey>,
        version: Version,
        visits_max: usize,
    ) -> MapPage<MacKey, MacEntry> {
        self.entries.page(after, version, visits_max)
    }

    /// Learns the port of an address; a full table evicts another learned address.
    /// Returns the changed keys.
    ///
    /// The port of a static address stays.
    pub(crate) fn learn(
        &mut self,
        observation: &MacObservation,
        entries_max: usize,
        version: Version,
        now: Time,
    ) -> Vec<MacKey> {
        let mac_key = (observation.vlan, observation.mac);
        match self.find(observation.vlan, observation.mac, version) {
            Some(known) if known.is_static => return Vec::new(),
            Some(known)
                if known.port == observation.port
                    && (!observation.is_announcement || known.is_announced()) =>
            {
                known.refresh(now);
                return Vec::new();
            }
            Some(known) => {
                self.totals.moved += u64::from(known.port != observation.port);
                self.ages.remove(mac_key);
                self.expiry.remove(mac_key);
            }
            None => self.totals.learned += 1,
        }
        let (mut changed, others_max) = (Vec::new(), self.learned_max(entries_max) - 1);
        while let Some(oldest) = self.evict_over(others_max, version) {
            changed.push(oldest);
        }
        self.entries.set(mac_key, Arc::new(MacEntry::new(observation, now)), version);
        self.ages.add(mac_key, observation.port, now);
        self.expiry.insert(mac_key, now);
        if observation.is_announcement {
            self.announcements.insert((now, mac_key));
        }
        changed.push(mac_key);
        changed
    }

    /// Removes a learned address if there are more than `learned_max` of them.
    ///
    /// Returns the removed address.
    fn evict_over(&mut self, learned_max: usize, version: Version) -> Option<MacKey> {
        if self.ages.len() <= learned_max {
            return None;
        }
        let entries = &self.entries;
        let seen = |mac_key| entries.find(mac_key, version).map(|entry| entry.seen());
        let oldest = self.ages.oldest(seen)?;
        self.forget(oldest, version);
        self.totals.evicted += 1;
        Some(oldest)
    }

    /// Removes learned addresses until there are at most `entries_max` addresses.
    ///
    /// Returns false if more are left. Ends after `visits_max` visited addresses, and the search in
    /// progress. A search visits at most 64 addresses.
    pub(crate) fn evict_some(
        &mut self,
        entries_max: usize,
        version: Version,
        visits_max: usize,
    ) -> bool {
        let end = self.ages.visits() + visits_max;
        let learned_max = self.learned_max(entries_max);
        while self.ages.visits() < end {
            if self.evict_over(learned_max, version).is_none() {
                return true;
            }
        }
        false
    }

    /// Removes addresses that were not seen for `ageing`, and ends announcements.
    ///
    /// Visits at most `visits_max` addresses, the oldest ones.
    pub(crate) fn expire_some(
        &mut self,
        ageing: Duration,
        version: Version,
        now: Time,
        visits_max: usize,
    ) -> ExpiredEntries<MacKey> {
        let mut changed = Vec::new();
        for _ in 0..visits_max {
            if let Some(mac_key) = self.expiry.pop_old(|seen| seen.after(ageing) <= now) {
                let seen = self.entries.find(mac_key, version).map(|entry| entry.seen());
                match seen.filter(|seen| seen.after(ageing) > now) {
                    Some(seen) => self.expiry.insert(mac_key, seen),
                    None => {
                        self.forget(mac_key, version);
                        self.totals.expired += 1;
                        changed.push(mac_key);
                    }
                }
            } else if let Some((time, mac_key)) = self.announcements.first().copied()
                && time.after(ANNOUNCED_FOR) <= now
            {
                self.announcements.pop_first();
                changed.extend(self.end_announcement(mac_key, time, version));
            } else {
                return ExpiredEntries { changed, is_complete: true };
            }
        }
        ExpiredEntries { changed, is_complete: false }
    }

    /// Ends the announcement of an address that began at `announced`.
    ///
    /// Returns the changed key; `None` if the address was learned again since.
    fn end_announcement(
        &mut self,
        mac_key: MacKey,
        announced: Time,
        version: Version,
    ) -> Option<MacKey> {
        let entry = self.entries.find(mac_key, version)?;
        if entry.announced != Some(announced) {
            return None;
        }
        let ended = Arc::new(entry.without_announcement());
        self.entries.set(mac_key, ended, version);
        Some(mac_key)
    }

    /// Removes at most `removals_max` learned addresses. Returns the changed keys.
    pub(crate) fn forget_some(&mut self, version: Version, removals_max: usize) -> Vec<MacKey> {
        let gone: Vec<MacKey> = self.ages.keys().take(removals_max).collect();
        gone.iter().for_each(|mac_key| self.forget(*mac_key, version));
        gone
    }

    /// Removes a learned address from the table.
    fn forget(&mut self, mac_key: MacKey, version: Version) {
        self.entries.end(mac_key, version);
        self.ages.remove(mac_key);
        self.expiry.remove(mac_key);
    }

    /// Calls [`VersionedMap::reclaim`] on the addresses.
    pub(crate) fn reclaim(&mut self, oldest: Version, left: &mut usize) -> bool {
        self.entries.reclaim(oldest, left)
    }

    /// Returns whether no retained version has an address.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl UpdateBatch {
    /// Learns the port of an address from an observation.
    /// Learns nothing if the port, bridge or VLAN was removed meanwhile, if the address is static
    /// now, or if the frame may be a copy.
    pub(crate) fn learn_mac(&mut self, bridge: &mut VersionedBridge, observation: &MacObservation) {
        let Some(settings) = bridge.settings(self.version) else { return };
        let macs_max = settings.macs_max;
        let Some(ports) = bridge.ports(self.version) else { return };
        let Some(port) = ports.find(observation.port) else { return };
        let known = bridge.macs.find(observation.vlan, observation.mac, self.version);
        if !port.vlans.carries(observation.vlan)
            || ports.mirrors.is_output(observation.port)
            || known.is_some_and(|known| {
                known.is_static || may_be_copy(observation, port, known, ports)
            })
        {
            return;
        }
        // The time of an announcement is kept for hosts only.
        let is_announcement = observation.is_announcement && port.bond.is_none();
        let observation = MacObservation { is_announcement, ..*observation };
        let visits = bridge.macs.visits();
        let changed = bridge.macs.learn(&observation, macs_max, self.version, self.now);
        self.add_visits(bridge.macs.visits() - visits);
        self.push_macs(observation.bridge, changed);
    }

    /// Removes expired addresses; returns whether none is left.
    ///
    /// Visits at most `visits_max` addresses.
    pub(crate) fn expire_macs(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        visits_max: usize,
    ) -> bool {
        let Some(settings) = bridge.settings(self.version) else { return true };
        let ageing = settings.mac_ageing;
        let expired = bridge.macs.expire_some(ageing, self.version, self.now, visits_max);
        self.push_macs(id, expired.changed);
        expired.is_complete
    }

    /// Removes at most `removals_max` addresses; returns false if some may be left.
    pub(crate) fn flush_macs(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        removals_max: usize,
    ) -> bool {
        let gone = bridge.macs.forget_some(self.version, removals_max);
        let is_complete = gone.len() < removals_max;
        self.push_macs(id, gone);
        is_complete
    }

    /// Adds the deltas of changed MAC addresses.
    fn push_macs(&mut self, bridge: BridgeId, changed: Vec<MacKey>) {
        for (vlan, mac) in changed {
            self.push(Delta::Changed(Object::Mac(bridge, vlan, mac)));
        }
    }
}

/// Returns whether an observation may be of a frame that came back on a bond.
///
/// `Egress::is_admitted` applies the same rule to packets. The rule is applied again here, because
/// the address may have been learned on another port since the packet was translated.
fn may_be_copy(
    observation: &MacObservation,
    port: &PortInfo,
    known: &MacEntry,
    ports: &PortTable,
) -> bool {
    let is_here = || ports.find(known.port).is_some_and(|own| own.is_one_with(port));
    port.receives_copies() && !is_here() && (known.is_announced() || !observation.is_announcement)
}

#[cfg(test)]
mod tests;
