//! The configuration of bonds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use shunt_pipeline::{BondHash, QinqEthtype};

use super::{
    PortOptions, PortVlanMode,
    lacp::{BondLacp, BondLacpTime, SYSTEM_PRIORITY},
};
use crate::{config::ConfigError, error::SwitchError};

/// The options of a bond: several ports of a bridge that `NORMAL` uses as one.
///
/// A member that does not exist carries no packets until it is added.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BondOptions {
    /// Name: at most 64 bytes, not the name of a bridge or port.
    pub name: String,
    /// Mode in which the bond chooses the member that sends a packet.
    pub mode: BondMode,
    /// Names of the ports of the bond, at least two.
    pub members: Vec<String>,
    /// Member that is active whenever it is enabled; empty: no member is preferred.
    pub primary: String,
    /// Milliseconds for which a link must stay up before its member is enabled.
    pub updelay_ms: u32,
    /// Milliseconds for which a link must stay down before its member is disabled.
    pub downdelay_ms: u32,
    /// Milliseconds between two checks of the loads of buckets; 0: no checks.
    pub rebalance_interval_ms: u32,
    /// Seed of the hashes that choose buckets.
    ///
    /// Another value spreads the flows differently over the members.
    pub hash_basis: u32,
    /// Use of LACP, which decides which members are used.
    pub lacp: BondLacp,
    /// Interval of LACPDUs that the bond requests from its partner.
    pub lacp_time: BondLacpTime,
    /// MAC address of the LACP system; empty: the MAC address of the bridge.
    pub lacp_system_id: String,
    /// Priority of the LACP system.
    ///
    /// The system with the lower value decides which members are preferred.
    pub lacp_system_priority: u16,
    /// True if the bond works as `active-backup` while it has no partner.
    pub lacp_fallback_ab: bool,
    /// VLAN mode of all members (`vlan_mode` of a port).
    pub vlan_mode: Option<PortVlanMode>,
    /// VLAN of untagged frames on all members (`tag` of a port).
    pub tag: Option<u16>,
    /// VLANs of tagged frames on all members (`trunks` of a port).
    pub trunks: Vec<u16>,
    /// Customer VLANs that all members carry (`cvlans` of a port).
    pub cvlans: Vec<u16>,
    /// Ethernet type of the service tag (`qinq_ethtype` of a port).
    pub qinq_ethtype: QinqEthtype,
    /// LACP port numbers of members, by member name.
    ///
    /// By default the port number in the bridge is used.
    pub lacp_port_id: BTreeMap<String, u16>,
    /// LACP priorities of members, by member name; by default 65535.
    ///
    /// The member with the lowest value is preferred.
    pub lacp_port_priority: BTreeMap<String, u16>,
    /// LACP keys of members, by member name.
    ///
    /// Only members with equal keys are used together. By default all members of the bond have one key.
    pub lacp_aggregation_key: BTreeMap<String, u16>,
}

/// The longest name of a bond, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The choice of the member that sends a packet (`bond_mode` of OVSDB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// Only the active member sends packets.
    ///
    /// Another member becomes active when the active member loses its link.
    #[default]
    ActiveBackup,
    /// All enabled members send: the source MAC address and the VLAN choose the member.
    BalanceSlb,
    /// All enabled members send: addresses and ports of a connection choose one;
    /// needs LACP.
    BalanceTcp,
}

/// The minimum interval between two checks of the loads, in milliseconds.
const REBALANCE_INTERVAL_MS_MIN: u32 = 1000;

impl Default for BondOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            mode: BondMode::default(),
            members: Vec::new(),
            primary: String::new(),
            updelay_ms: 0,
            downdelay_ms: 0,
            rebalance_interval_ms: 10_000,
            hash_basis: 0,
            lacp: BondLacp::default(),
            lacp_time: BondLacpTime::default(),
            lacp_system_id: String::new(),
            lacp_system_priority: SYSTEM_PRIORITY,
            lacp_fallback_ab: false,
            vlan_mode: None,
            tag: None,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            qinq_ethtype: QinqEthtype::default(),
            lacp_port_id: BTreeMap::new(),
            lacp_port_priority: BTreeMap::new(),
            lacp_aggregation_key: BTreeMap::new(),
        }
    }
}

impl BondMode {
    /// Returns the name of the mode, as in Open vSwitch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceSlb => "balance-slb",
            Self::BalanceTcp => "balance-tcp",
        }
    }
}

impl BondMode {
    /// Returns the packet fields that choose the member.
    ///
    /// `None` in a mode in which one member sends all packets.
    pub(crate) const fn hash(self) -> Option<BondHash> {
        match self {
            Self::ActiveBackup => None,
            Self::BalanceSlb => Some(BondHash::Source),
            Self::BalanceTcp => Some(BondHash::Connection),
        }
    }
}

impl BondOptions {
    /// Checks the options that concern this bond alone.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub(in crate::config) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, problem| {
            let bond = self.name.clone();
            Err(ConfigError::at(key, SwitchError::BondSetting { bond, problem }))
        };
        // A bond has no network device, so its name may be longer than the name of a port.
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let length = (1..=NAME_BYTES_MAX).contains(&self.name.len());
        if !length || !self.name.bytes().all(legal) || self.name.starts_with('.') {
            return wrong(
                "name",
                "use a `name` of 1 to 64 letters, digits, `-`, `_` or `.`, not beginning with `.`",
            );
        }
        if (1..REBALANCE_INTERVAL_MS_MIN).contains(&self.rebalance_interval_ms) {
            return wrong("rebalance_interval_ms", "give at least 1000, or 0 for no rebalancing");
        }
        let different: BTreeSet<_> = self.members.iter().collect();
        if different.len() != self.members.len() {
            return wrong("members", "a port is in `members` twice: remove one of them");
        }
        if self.members.len() < 2 {
            return wrong("members", "give the bond at least two `members`");
        }
        if self.members.contains(&self.name) {
            return wrong("name", "a member has the name of the bond: choose another name");
        }
        if !self.primary.is_empty() && !self.members.contains(&self.primary) {
            return wrong(
                "primary",
                "`primary` is not among the `members` of the bond: add it to them",
            );
        }
        self.check_lacp()?;
        self.check_vlans()
    }

    /// Checks the VLANs of the bond, with errors that name the bond.
    fn check_vlans(&self) -> Result<(), ConfigError> {
        let probe = PortOptions { name: "port".into(), ..self.as_port() };
        probe.mistake().map_err(|error| match *error.problem {
            SwitchError::PortSetting { problem, .. } => {
                let problem = SwitchError::BondSetting { bond: self.name.clone(), problem };
                ConfigError { problem: Box::new(problem), ..error }
            }
            _ => error,
        })
    }

    /// Returns whether both bonds have the same name, or a member in common.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.name == other.name || self.members.iter().any(|name| other.members.contains(name))
    }

    /// Returns a port with the VLANs of the bond.
    pub(crate) fn as_port(&self) -> PortOptions {
        PortOptions {
            name: self.name.clone(),
            vlan_mode: self.vlan_mode,
            tag: self.tag,
            trunks: self.trunks.clone(),
            cvlans: self.cvlans.clone(),
            qinq_ethtype: self.qinq_ethtype,
            ..PortOptions::default()
        }
    }

    /// Returns the time for which a link must stay up or down before the bond reacts.
    ///
    /// With LACP, both ends agree on a link that came up, so the delay is zero.
    pub(crate) fn delay(&self, is_up: bool) -> Duration {
        let delay = match is_up {
            true if self.has_lacp() => 0,
            true => self.updelay_ms,
            false => self.downdelay_ms,
        };
        Duration::from_millis(delay.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a bond with two members.
    fn bond() -> BondOptions {
        BondOptions {
            name: "bond0".into(),
            members: vec!["p1".into(), "p2".into()],
            ..BondOptions::default()
        }
    }

    /// Returns the error of a bond's options, or `fine`.
    fn text(bond: &BondOptions) -> String {
        bond.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn a_mistake_names_its_key() {
        assert_eq!(text(&bond()), "fine");
        let members = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (options, key) in [
            (BondOptions { name: String::new(), ..bond() }, "name"),
            (BondOptions { name: "p1".into(), ..bond() }, "name"),
            (BondOptions { name: "a/b".into(), ..bond() }, "name"),
            (BondOptions { name: "b".repeat(65), ..bond() }, "name"),
            (BondOptions { members: members(&["p1"]), ..bond() }, "members"),
            (BondOptions { members: members(&["p1", "p2", "p1"]), ..bond() }, "members"),
            (BondOptions { primary: "p3".into(), ..bond() }, "primary"),
            (BondOptions { mode: BondMode::BalanceTcp, ..bond() }, "mode"),
            (BondOptions { rebalance_interval_ms: 10, ..bond() }, "rebalance_interval_ms"),
            (BondOptions { tag: Some(5000), ..bond() }, "tag"),
            (BondOptions { tag: Some(5), trunks: vec![6], ..bond() }, "trunks"),
            (BondOptions { tag: Some(5), cvlans: vec![6], ..bond() }, "cvlans"),
        ] {
            let error = text(&options);
            assert!(
                error.starts_with(&format!("{key}: ")) || error.starts_with(&format!("{key} =")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_mistake_in_vlans_names_the_bond() {
        let error = text(&BondOptions { tag: Some(5), trunks: vec![6], ..bond() });
        assert!(error.contains("bond bond0: "), "{error}");
        let long = BondOptions { name: "bond-mgmt-uplink".into(), ..bond() };
        assert_eq!(text(&long), "fine", "a bond has no device");
    }

    #[test]
    fn balance_tcp_needs_lacp() {
        let balanced = BondOptions { mode: BondMode::BalanceTcp, ..bond() };
        let expected =
            "mode: bond bond0: `balance-tcp` needs LACP: set `lacp` to \"active\" or \"passive\"";
        assert_eq!(text(&balanced), expected);
        assert_eq!(text(&BondOptions { lacp: BondLacp::Passive, ..balanced }), "fine");
    }
}
