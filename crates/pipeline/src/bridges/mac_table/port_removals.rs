//! Removals of the addresses and multicast groups of one port.
//!
//! Each step has a bound, because a port may have all addresses of a table.

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::{MacKey, MacTable};
use crate::{bridges::bridge::VersionedBridge, id::BridgeId, update::batch::UpdateBatch};

impl MacTable {
    /// Removes at most `left` learned addresses of a port.
    ///
    /// Reduces `left` by their number.
    ///
    /// Returns the changed keys.
    pub(crate) fn forget_port(
        &mut self,
        port: PortNo,
        version: Version,
        left: &mut usize,
    ) -> Vec<MacKey> {
        let gone: Vec<MacKey> = self.ages.keys_of(port).take(*left).collect();
        *left -= gone.len();
        gone.iter().for_each(|mac_key| self.forget(*mac_key, version));
        gone
    }
}

impl UpdateBatch {
    /// Removes at most `removals_max` learned addresses and groups of a port.
    ///
    /// Returns false if some may be left.
    pub(crate) fn flush_port(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        port: PortNo,
        removals_max: usize,
    ) -> bool {
        let mut left = removals_max;
        let macs = bridge.macs.forget_port(port, self.version, &mut left);
        self.push_macs(id, macs);
        let table = &mut bridge.multicast;
        let keys = table.keys_of(&[port], left);
        for key in &keys {
            table.retain_in(*key, self.version, |entry| entry.port != port);
        }
        let is_complete = keys.len() < left;
        self.push_multicast(id, keys);
        is_complete
    }
}
