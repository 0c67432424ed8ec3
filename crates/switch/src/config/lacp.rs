//! The configuration of LACP, the protocol that decides which members of a bond are used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shunt_lacp::{AggregatorSettings, LacpTime, MemberSettings};

use super::{BondMode, BondOptions, ConfigError, mac::parse_mac};
use crate::error::SwitchError;

/// The use of LACP by a bond (`lacp` of the table `Port`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BondLacp {
    /// LACP is off: the bond uses every member with a link.
    #[default]
    Off,
    /// The bond sends LACPDUs without waiting for its partner.
    Active,
    /// The bond sends LACPDUs only after the partner has sent an LACPDU.
    Passive,
}

/// The interval of LACPDUs that the bond requests from its partner (`lacp-time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BondLacpTime {
    /// Every 30 seconds; a silent partner expires after 90 seconds.
    #[default]
    Slow,
    /// Every second; a silent partner expires after three seconds.
    Fast,
}

impl BondLacp {
    /// Returns the name in the configuration, as in Open vSwitch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }

    /// Returns the mode of the LACP actor; `None` without LACP.
    pub(crate) const fn mode(self) -> Option<shunt_lacp::LacpMode> {
        match self {
            Self::Off => None,
            Self::Active => Some(shunt_lacp::LacpMode::Active),
            Self::Passive => Some(shunt_lacp::LacpMode::Passive),
        }
    }
}

impl BondLacpTime {
    /// Returns the LACPDU interval in the form that the LACP actor takes.
    pub(crate) const fn time(self) -> LacpTime {
        match self {
            Self::Slow => LacpTime::Slow,
            Self::Fast => LacpTime::Fast,
        }
    }
}

/// The configuration key of the MAC address of the LACP system.
const SYSTEM_ID: &str = "lacp_system_id";

/// The default of `lacp_system_priority`.
pub(super) const SYSTEM_PRIORITY: u16 = AggregatorSettings::SYSTEM_PRIORITY;

impl BondOptions {
    /// Returns whether the bond uses LACP.
    #[must_use]
    pub fn has_lacp(&self) -> bool {
        self.lacp != BondLacp::Off
    }

    /// Returns whether a text can be the `lacp_system_id` of a bond.
    #[must_use]
    pub fn is_lacp_system_id(text: &str) -> bool {
        parse_mac(SYSTEM_ID, text).is_ok()
    }

    /// Returns the MAC address of the LACP system, if one is configured.
    pub(crate) fn lacp_system(&self) -> Option<[u8; 6]> {
        parse_mac(SYSTEM_ID, &self.lacp_system_id).ok()
    }

    /// Returns the LACP priority of a member.
    pub(crate) fn lacp_priority_of(&self, member: &str) -> u16 {
        self.lacp_port_priority.get(member).copied().unwrap_or(MemberSettings::PORT_PRIORITY)
    }

    /// Checks the options of LACP.
    pub(super) fn check_lacp(&self) -> Result<(), ConfigError> {
        let wrong = |key, problem| {
            let bond = self.name.clone();
            Err(ConfigError::at(key, SwitchError::BondSetting { bond, problem }))
        };
        if self.mode == BondMode::BalanceTcp && !self.has_lacp() {
            return wrong(
                "mode",
                "`balance-tcp` needs LACP: set `lacp` to \"active\" or \"passive\"",
            );
        }
        if !self.lacp_system_id.is_empty() && self.lacp_system().is_none() {
            let problem =
                "`lacp_system_id` is not a unicast MAC address: write one like 02:00:00:00:00:01";
            return wrong("lacp_system_id", problem);
        }
        if self.lacp_system_priority == 0 {
            return wrong("lacp_system_priority", "give a priority from 1 to 65535");
        }
        for (key, values) in self.lacp_numbers() {
            if values.keys().any(|member| !self.members.contains(member)) {
                return wrong(
                    key,
                    "it names a port that is not among the `members` of the bond: add the port \
                     to them",
                );
            }
            if values.values().any(|value| *value == 0) {
                return wrong(key, "give numbers from 1 to 65535");
            }
        }
        let ids = &self.lacp_port_id;
        if ids.values().any(|id| ids.values().filter(|other| *other == id).count() > 1) {
            return wrong("lacp_port_id", "two members have the same number: change one of them");
        }
        Ok(())
    }

    /// Returns whether members of two bonds have the same configured LACP port number.
    pub(super) fn shares_lacp_port_id(&self, other: &Self) -> bool {
        let is_own = |id: &u16| self.lacp_port_id.values().any(|own| own == id);
        self.has_lacp() && other.has_lacp() && other.lacp_port_id.values().any(is_own)
    }

    /// Returns the LACP options that have a number for each member, with their keys.
    fn lacp_numbers(&self) -> [(&'static str, &BTreeMap<String, u16>); 3] {
        [
            ("lacp_port_id", &self.lacp_port_id),
            ("lacp_port_priority", &self.lacp_port_priority),
            ("lacp_aggregation_key", &self.lacp_aggregation_key),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a bond with LACP.
    fn bond() -> BondOptions {
        BondOptions {
            name: "bond0".into(),
            members: vec!["p1".into(), "p2".into()],
            lacp: BondLacp::Active,
            ..BondOptions::default()
        }
    }

    #[test]
    fn a_mistake_of_lacp_names_its_key() {
        let numbers = |values: &[(&str, u16)]| {
            values.iter().map(|(member, value)| ((*member).to_owned(), *value)).collect()
        };
        assert!(bond().check().is_ok());
        for (options, key) in [
            (BondOptions { lacp_system_id: "02:00:00".into(), ..bond() }, "lacp_system_id"),
            (BondOptions { lacp_system_priority: 0, ..bond() }, "lacp_system_priority"),
            (
                BondOptions { lacp_port_id: numbers(&[("p1", 5), ("p2", 5)]), ..bond() },
                "lacp_port_id",
            ),
            (
                BondOptions { lacp_port_priority: numbers(&[("p3", 5)]), ..bond() },
                "lacp_port_priority",
            ),
            (
                BondOptions { lacp_aggregation_key: numbers(&[("p1", 0)]), ..bond() },
                "lacp_aggregation_key",
            ),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{key}: ")), "{error}");
        }
    }
}
