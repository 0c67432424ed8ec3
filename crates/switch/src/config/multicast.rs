//! Multicast snooping of bridges, and its flooding on ports.

use std::time::Duration;

use shunt_pipeline::{MulticastFlooding, MulticastSnooping};

use crate::config::{BridgeOptions, PortOptions};

impl BridgeOptions {
    /// Returns the multicast snooping of the bridge, if it is enabled.
    pub(crate) fn snooping(&self) -> Option<MulticastSnooping> {
        let defaults = MulticastSnooping::default();
        self.mcast_snooping_enable.then(|| MulticastSnooping {
            ageing: match self.mcast_snooping_ageing_s {
                0 => defaults.ageing,
                seconds => Duration::from_secs(seconds.into()),
            },
            groups_max: match self.mcast_snooping_entries {
                0 => defaults.groups_max,
                entries => entries,
            },
            floods_unregistered: !self.mcast_snooping_disable_flood_unregistered,
        })
    }
}

impl PortOptions {
    /// Returns the multicast packets that leave on the port unconditionally.
    pub(crate) const fn multicast_flooding(&self) -> MulticastFlooding {
        MulticastFlooding {
            packets: self.mcast_snooping_flood,
            reports: self.mcast_snooping_flood_reports,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_means_the_default_of_open_vswitch() {
        assert_eq!(BridgeOptions::default().snooping(), None);
        let bridge = BridgeOptions { mcast_snooping_enable: true, ..BridgeOptions::default() };
        let snooping = bridge.snooping().unwrap();
        assert_eq!(snooping.ageing, Duration::from_secs(300));
        assert!(snooping.groups_max == 2048 && snooping.floods_unregistered);
        let bridge = BridgeOptions {
            mcast_snooping_ageing_s: 20,
            mcast_snooping_entries: 10,
            mcast_snooping_disable_flood_unregistered: true,
            ..bridge
        };
        let snooping = bridge.snooping().unwrap();
        assert_eq!((snooping.ageing, snooping.groups_max), (Duration::from_secs(20), 10));
        assert!(!snooping.floods_unregistered);
    }
}
