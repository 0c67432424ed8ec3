//! The configuration of multicast snooping of bridges, and of multicast flooding on ports.

use std::time::Duration;

use shunt_pipeline::{MulticastFlooding, MulticastSnooping};

use crate::config::{BridgeOptions, ConfigError, PortOptions};

/// The allowed values of `mcast_snooping_ageing_s`, for errors.
pub(crate) const AGEING_RANGE: &str = "seconds from 1 to 3600, or 0 for 300";

/// The allowed values of `mcast_snooping_entries`, for errors.
pub(crate) const ENTRIES_RANGE: &str = "a number of groups from 1 to 1000000, or 0 for 2048";

/// Maximum of `mcast_snooping_ageing_s`, as in Open vSwitch.
const AGEING_MAX_S: u32 = 3600;

/// Maximum of `mcast_snooping_entries`, as in Open vSwitch.
const ENTRIES_MAX: usize = 1_000_000;

impl BridgeOptions {
    /// Checks the limits of multicast snooping.
    pub(crate) fn check_snooping(&self) -> Result<(), ConfigError> {
        let (seconds, entries) = (self.mcast_snooping_ageing_s, self.mcast_snooping_entries);
        let (key, is_possible) = ("mcast_snooping_ageing_s", seconds <= AGEING_MAX_S);
        ConfigError::check_range(key, seconds.to_string(), is_possible, AGEING_RANGE)?;
        let (key, is_possible) = ("mcast_snooping_entries", entries <= ENTRIES_MAX);
        ConfigError::check_range(key, entries.to_string(), is_possible, ENTRIES_RANGE)
    }

    /// Returns the multicast snooping options of the bridge, if snooping is enabled.
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
    /// Returns which multicast packets are always sent on the port.
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

    #[test]
    fn numbers_have_the_limits_of_open_vswitch() {
        let check = |mcast_snooping_ageing_s, mcast_snooping_entries| {
            let own = BridgeOptions {
                mcast_snooping_ageing_s,
                mcast_snooping_entries,
                ..BridgeOptions::default()
            };
            own.check_snooping().map_err(|error| error.to_string())
        };
        assert_eq!((check(0, 0), check(3600, 1_000_000)), (Ok(()), Ok(())));
        for (error, range) in [(check(3601, 0), AGEING_RANGE), (check(0, 1_000_001), ENTRIES_RANGE)]
        {
            let error = error.unwrap_err();
            assert!(error.contains(range), "{error}");
        }
    }
}
