//! Static addresses of the MAC table, which an operator adds and removes.
//!
//! A static address does not age, and packets neither move nor evict it. A flush of the table keeps
//! it. A static address ends with its port, and when its port gets other VLANs, joins or leaves a
//! bond, or becomes the output of a mirror. Static and learned addresses share the places of the
//! table; one place is always left for learning. A group address cannot be static, because its
//! frames do not use the table.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{MacEntry, MacKey, MacTable};
use crate::{
    bridges::bridge::VersionedBridge,
    id::BridgeId,
    time::Time,
    update::batch::UpdateBatch,
    versions::delta::{Delta, Object},
};

/// A static address of a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticMac {
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The MAC address that is static.
    pub mac: [u8; 6],
    /// The port to which frames for the address are sent.
    pub port: PortNo,
}

/// The entry that an address had before it became static.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedMac {
    /// The port of the previous entry.
    pub port: PortNo,
    /// True if the previous entry was static.
    pub is_static: bool,
}

/// The reason why a static address was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticMacError {
    /// The bridge of the address was removed.
    #[error("the bridge of the MAC address does not exist: add the bridge first")]
    NoSuchBridge,
    /// The bridge has no port of this number.
    #[error("the bridge has no port {0}: add it first")]
    NoSuchPort(PortNo),
    /// The MAC table does not direct frames to a group address.
    #[error(
        "{} is a group address, and only a unicast address can be static: name the address of one \
         station",
        MacText(*.0)
    )]
    GroupAddress([u8; 6]),
    /// The port does not carry the VLAN of the address.
    #[error("port {port} does not carry VLAN {vlan}: name a VLAN of the port, or change its VLANs")]
    VlanNotCarried {
        /// The port without the VLAN.
        port: PortNo,
        /// The VLAN of the address.
        vlan: u16,
    },
    /// Only copies of a mirror leave on the port.
    #[error("port {0} is the output of a mirror, which sends only copies: name another port")]
    MirrorOutput(PortNo),
    /// All places of the table have static addresses.
    #[error(
        "the MAC table has {0} static addresses, which is its limit: delete one, or raise \
         `mac_entries` (OVSDB: `other_config:mac-table-size`)"
    )]
    Full(usize),
    /// The table has no static address of this VLAN.
    #[error(
        "the MAC table has no static address {} in VLAN {vlan}: see the entries with \
         `fdb/show BRIDGE`",
        MacText(*.mac)
    )]
    NoSuchMac {
        /// The VLAN of the address.
        vlan: u16,
        /// The MAC address that is not static.
        mac: [u8; 6],
    },
}

/// A MAC address as text: six octets with colons.
struct MacText([u8; 6]);

impl fmt::Display for MacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, last] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

impl MacTable {
    /// Returns the number of static addresses that the newest version sees.
    pub(crate) fn statics_count(&self) -> usize {
        self.statics.len()
    }

    /// Adds a static address. A full table evicts a learned address.
    ///
    /// Returns the changed keys; none if the address is static on this port already.
    fn add_static(
        &mut self,
        bridge: BridgeId,
        added: StaticMac,
        entries_max: usize,
        (version, now): (Version, Time),
    ) -> Vec<MacKey> {
        let StaticMac { vlan, mac, port } = added;
        let mac_key = (vlan, mac);
        if self.statics.contains(&(port, mac_key)) {
            return Vec::new();
        }
        if let Some(known) = self.entries.find(mac_key, version) {
            self.statics.remove(&(known.port, mac_key));
        }
        self.ages.remove(mac_key);
        self.expiry.remove(mac_key);
        self.statics.insert((port, mac_key));
        let mut changed = vec![mac_key];
        while let Some(oldest) = self.evict_over(self.learned_max(entries_max), version) {
            changed.push(oldest);
        }
        let seen = AtomicU64::new(now.nanoseconds());
        let entry = MacEntry { bridge, vlan, mac, port, is_static: true, announced: None, seen };
        self.entries.set(mac_key, Arc::new(entry), version);
        changed
    }

    /// Removes a static address, and returns whether it existed.
    fn remove_static(&mut self, mac_key: MacKey, version: Version) -> bool {
        let Some(known) = self.entries.find(mac_key, version) else { return false };
        if !self.statics.remove(&(known.port, mac_key)) {
            return false;
        }
        self.entries.end(mac_key, version);
        true
    }

    /// Removes at most `left` static addresses of a port.
    ///
    /// Reduces `left` by their number.
    pub(crate) fn remove_statics_of(&mut self, port: PortNo, version: Version, left: &mut usize) {
        let own = self.statics.range((port, (0, [0; 6]))..=(port, (u16::MAX, [0xff; 6])));
        let gone: Vec<_> = own.take(*left).copied().collect();
        *left -= gone.len();
        for (_, mac_key) in gone {
            self.remove_static(mac_key, version);
        }
    }

    /// Removes at most `removals_max` static addresses.
    ///
    /// Returns whether none was left.
    pub(crate) fn remove_some_statics(&mut self, version: Version, removals_max: usize) -> bool {
        let gone: Vec<_> = self.statics.iter().take(removals_max).copied().collect();
        for (_, mac_key) in &gone {
            self.remove_static(*mac_key, version);
        }
        gone.is_empty()
    }
}

impl UpdateBatch {
    /// Adds a static address, and returns the entry that it replaces.
    pub(crate) fn add_static_mac(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        added: StaticMac,
    ) -> Result<Option<ReplacedMac>, StaticMacError> {
        let StaticMac { vlan, mac, port } = added;
        if mac[0] & 1 != 0 {
            return Err(StaticMacError::GroupAddress(mac));
        }
        let settings = bridge.settings(self.version).ok_or(StaticMacError::NoSuchBridge)?;
        let entries_max = settings.macs_max;
        let ports = bridge.ports(self.version).ok_or(StaticMacError::NoSuchBridge)?;
        let own = ports.find(port).ok_or(StaticMacError::NoSuchPort(port))?;
        if !own.vlans.carries(vlan) {
            return Err(StaticMacError::VlanNotCarried { port, vlan });
        }
        if ports.mirrors.is_output(port) {
            return Err(StaticMacError::MirrorOutput(port));
        }
        let known = bridge.macs.find(vlan, mac, self.version);
        let replaced =
            known.map(|known| ReplacedMac { port: known.port, is_static: known.is_static });
        let is_new = !replaced.is_some_and(|replaced| replaced.is_static);
        if is_new && bridge.macs.statics_count() >= entries_max {
            return Err(StaticMacError::Full(bridge.macs.statics_count()));
        }
        let times = (self.version, self.now);
        let changed = bridge.macs.add_static(id, added, entries_max, times);
        self.push_statics(id, &changed);
        Ok(replaced.filter(|_| !changed.is_empty()))
    }

    /// Removes a static MAC address of a bridge.
    pub(crate) fn remove_static_mac(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        (vlan, mac): MacKey,
    ) -> Result<(), StaticMacError> {
        if !bridge.macs.remove_static((vlan, mac), self.version) {
            return Err(StaticMacError::NoSuchMac { vlan, mac });
        }
        self.push_statics(id, &[(vlan, mac)]);
        Ok(())
    }

    /// Adds the deltas of changed addresses.
    fn push_statics(&mut self, bridge: BridgeId, changed: &[MacKey]) {
        for (vlan, mac) in changed {
            self.push(Delta::Changed(Object::Mac(bridge, *vlan, *mac)));
        }
    }
}
