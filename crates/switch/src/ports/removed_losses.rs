//! The losses of removed ports.
//!
//! The totals of the switch are counters of a monitoring system. A counter never decreases, so the
//! totals include the losses of ports that were removed.

use std::collections::BTreeMap;

use crate::status::bridge::PortDrops;

/// The packets that removed ports lost, by direction and reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedPortLosses {
    /// Number of lost packets, by direction and reason.
    packets: BTreeMap<(&'static str, &'static str), u64>,
}

impl RemovedPortLosses {
    /// Adds the losses of a port that is being removed.
    pub(crate) fn add(&mut self, drops: &[PortDrops]) {
        for PortDrops { direction, reason, packets } in drops {
            let sum = self.packets.entry((*direction, *reason)).or_default();
            *sum = sum.saturating_add(*packets);
        }
    }

    /// Returns the number of packets that were lost for a reason.
    pub(crate) fn lost(&self, direction: &'static str, reason: &'static str) -> u64 {
        self.packets.get(&(direction, reason)).copied().unwrap_or_default()
    }
}
