//! Checks of the options of a bridge, and its derived identifiers: MAC address and datapath id.

use std::{collections::HashMap, fs, sync::LazyLock};

use shunt_ofproto::wire::Codec;

use super::{check_mtu, check_name, check_vlan};
use crate::{
    config::{
        BridgeOptions, CollectorSetOptions, ConfigError, LocalPort, MirrorOptions, NAME_BYTES_MAX,
        PortOptions, PortType, mac::parse_mac,
    },
    error::SwitchError,
    openflow::endpoint::EndpointList,
};

impl BridgeOptions {
    /// Checks the options that concern this bridge alone, not other bridges.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_name(&self.name, NAME_BYTES_MAX)
            .map_err(|problem| ConfigError::at("name", problem))?;
        self.check_addresses(EndpointList::Controllers, &self.controllers)?;
        self.check_addresses(EndpointList::Listen, &self.listen)?;
        // The datapath id is derived from the MAC address unless it is given.
        self.mac().map_err(|problem| ConfigError::at("mac", problem))?;
        self.datapath_id().map_err(|problem| ConfigError::at("datapath_id", problem))?;
        self.versions().map_err(|problem| ConfigError::at("protocols", problem))?;
        for vlan in &self.flood_vlans {
            check_vlan("flood_vlans", *vlan)?;
        }
        self.table_limits().map_err(|problem| ConfigError::at("table_limits", problem))?;
        self.table_names().map_err(|problem| ConfigError::at("table_names", problem))?;
        check_mtu(self.mtu).map_err(|problem| ConfigError::at("mtu", problem))?;
        if self.mtu > 0 && self.local == LocalPort::None {
            let (value, range) = (self.mtu.to_string(), "absent unless `local = \"tap\"`");
            let problem = SwitchError::Range { setting: "mtu", value, range };
            return Err(ConfigError::at("mtu", problem));
        }
        let mut numbers = HashMap::new();
        for (index, port) in self.ports.iter().enumerate() {
            port.mistake().map_err(|error| error.within("ports", index))?;
            let number = port.number;
            if let Some(other) = numbers.insert(number, &port.name).filter(|_| number > 0) {
                let problem = SwitchError::NumberTaken { number, port: other.clone() };
                return Err(ConfigError::at("number", problem).within("ports", index));
            }
        }
        self.check_snooping()?;
        self.check_bonds()?;
        self.sflow.check()?;
        self.netflow.check()?;
        self.ipfix.check()?;
        self.check_collector_sets()?;
        self.check_mirrors()
    }

    /// Returns the OpenFlow versions of connections, bit `n` for wire version `n`.
    ///
    /// # Errors
    ///
    /// If `protocols` has a name that is not the name of a supported version.
    pub fn versions(&self) -> Result<u32, SwitchError> {
        if self.protocols.is_empty() {
            return Ok(Codec::versions());
        }
        self.protocols.iter().try_fold(0, |versions, name| match Codec::find_protocol(name) {
            Some(codec) => Ok(versions | 1 << codec.version()),
            None => Err(SwitchError::Range {
                setting: "protocols",
                value: name.clone(),
                range: "OpenFlow10 or OpenFlow13",
            }),
        })
    }

    /// Checks each set of IPFIX collectors, and that its number is unique.
    fn check_collector_sets(&self) -> Result<(), ConfigError> {
        let sets = &self.collector_sets;
        for (index, set) in sets.iter().enumerate() {
            let is_repeated = sets.iter().take(index).any(|other| other.id == set.id);
            let unique = "a number that no other collector set of the bridge has";
            let (limit, id) = (CollectorSetOptions::COUNT_MAX, set.id.to_string());
            let range = ConfigError::check_range;
            let checked = set.check().and_then(|()| range("id", id, !is_repeated, unique));
            let checked = checked.and_then(|()| {
                let is_possible = index < limit;
                range(
                    "id",
                    set.id.to_string(),
                    is_possible,
                    "one of the first 64 collector sets of the bridge, which is the limit",
                )
            });
            checked.map_err(|error| error.within("collector_sets", index))?;
        }
        Ok(())
    }

    /// Checks each bond, and that bonds share no name and no member.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place in the options.
    pub fn check_bonds(&self) -> Result<(), ConfigError> {
        for (index, bond) in self.bonds.iter().enumerate() {
            bond.check().map_err(|error| error.within("bonds", index))?;
            let error = |key, problem| {
                let problem = SwitchError::BondSetting { bond: bond.name.clone(), problem };
                Err(ConfigError::at(key, problem).within("bonds", index))
            };
            let others = || self.bonds.iter().take(index);
            let is_port = self.ports.iter().any(|port| port.name == bond.name);
            if is_port || self.name == bond.name || others().any(|own| own.name == bond.name) {
                return error("name", "a bridge, port or bond has this name: choose another name");
            }
            if bond.members.contains(&self.name) {
                return error(
                    "members",
                    "the local port of a bridge cannot be a member: remove it",
                );
            }
            if others().any(|own| own.members.iter().any(|name| bond.members.contains(name))) {
                return error("members", "a member is in another bond already: remove it from one");
            }
            if others().any(|own| own.shares_lacp_port_id(bond)) {
                let problem = "a member of another bond has the same number: change one of them";
                return error("lacp_port_id", problem);
            }
            for (at, port) in self.ports.iter().enumerate() {
                if let Some(error) = port.bond_mistake(bond) {
                    return Err(error.within("ports", at));
                }
            }
        }
        Ok(())
    }

    /// Checks each mirror, and that its name is unique.
    fn check_mirrors(&self) -> Result<(), ConfigError> {
        for (index, mirror) in self.mirrors.iter().enumerate() {
            mirror.check().map_err(|error| error.within("mirrors", index))?;
            let problem = if index >= MirrorOptions::COUNT_MAX {
                let (mirror, bridge) = (mirror.name.clone(), self.name.clone());
                SwitchError::TooManyMirrors { mirror, bridge, limit: MirrorOptions::COUNT_MAX }
            } else if self.mirrors.iter().take(index).any(|other| other.name == mirror.name) {
                let (mirror, bridge) = (mirror.name.clone(), self.name.clone());
                SwitchError::MirrorExists { mirror, bridge }
            } else {
                continue;
            };
            return Err(ConfigError::at("name", problem).within("mirrors", index));
        }
        Ok(())
    }

    /// Returns the options of the local port.
    pub(crate) fn local_port(&self) -> PortOptions {
        let kind = match self.local {
            LocalPort::None => PortType::Unbound,
            LocalPort::Tap => PortType::Tap,
        };
        PortOptions { name: self.name.clone(), kind, mtu: self.mtu, ..PortOptions::default() }
    }

    /// Returns the datapath id: the configured id,
    /// or an id derived from the MAC address.
    ///
    /// # Errors
    ///
    /// If the configured id is not sixteen hexadecimal digits, or is 0.
    pub fn datapath_id(&self) -> Result<u64, SwitchError> {
        if self.datapath_id.is_empty() {
            let [a, b, c, d, e, f] = self.mac()?;
            return Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        }
        // Number parsing would also accept a sign.
        let digits = self.datapath_id.len() == 16
            && self.datapath_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(&self.datapath_id, 16).ok();
        // Controllers and `ovs-ofctl` take 0 for no datapath id.
        let number = number.filter(|id| digits && *id != 0);
        number.ok_or_else(|| SwitchError::Range {
            setting: "datapath_id",
            value: self.datapath_id.clone(),
            range: "sixteen hexadecimal digits that are not all 0",
        })
    }

    /// Returns the MAC address of the local port.
    ///
    /// The address is configured, or derived from the id of the host and the name of the bridge.
    ///
    /// # Errors
    ///
    /// If the configured address is not a unicast address of six octets with colons.
    pub fn mac(&self) -> Result<[u8; 6], SwitchError> {
        if self.mac.is_empty() {
            return Ok(derived_mac(host_id(), &self.name));
        }
        parse_mac("mac", &self.mac)
    }
}

/// Returns a locally administered MAC address,
/// derived from host and bridge name (FNV-1a).
///
/// Bridges of one name on several hosts need different MAC addresses, because datapath ids and LACP
/// system ids derive from them.
fn derived_mac(host: &str, name: &str) -> [u8; 6] {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = host.bytes().chain(name.bytes());
    let [a, b, c, d, e, ..] = bytes.fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes();
    [0x02, a, b, c, d, e]
}

/// Returns the id of the host (`machine-id(5)`); empty if the host has none.
fn host_id() -> &'static str {
    /// The text of the file, which is read once.
    static HOST: LazyLock<String> =
        LazyLock::new(|| fs::read_to_string("/etc/machine-id").unwrap_or_default());
    HOST.trim()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::config::{BondLacp, BondOptions, Config};

    #[test]
    fn generated_bridge_ids_are_stable() {
        let bridge = BridgeOptions { name: "br0".into(), ..BridgeOptions::default() };
        assert_eq!(bridge.mac().unwrap(), bridge.mac().unwrap());
        assert_eq!(bridge.mac().unwrap()[0], 2);
        let [own, other_name, other_host] =
            [("a", "br0"), ("a", "br1"), ("b", "br0")].map(|(host, name)| derived_mac(host, name));
        assert!(own != other_name && own != other_host, "{own:?} {other_name:?} {other_host:?}");
        assert_eq!(bridge.mac().unwrap(), derived_mac(host_id(), &bridge.name));
        assert_ne!(bridge.datapath_id().unwrap(), 0);
        let given = BridgeOptions { datapath_id: "00000000000000c1".into(), ..bridge };
        assert_eq!(given.datapath_id().unwrap(), 0xc1);
    }

    #[test]
    fn members_of_bonds_belong_to_one_bond() {
        let bond = |name: &str, members: &[&str]| BondOptions {
            name: name.into(),
            members: members.iter().map(|name| (*name).to_owned()).collect(),
            ..BondOptions::default()
        };
        let check = |bonds: &[BondOptions], ports: &[PortOptions]| {
            let (bonds, ports) = (bonds.to_vec(), ports.to_vec());
            let bridge = BridgeOptions { name: "br0".into(), bonds, ports, ..Default::default() };
            bridge.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
        };
        let (one, two) = (bond("b1", &["p1", "p2"]), bond("b2", &["p3", "p4"]));
        let port = PortOptions { name: "p1".into(), ..PortOptions::default() };
        let other_bond = two.clone();
        assert_eq!(check(&[one.clone(), two], from_ref(&port)), "fine");
        let twice = check(&[one.clone(), bond("b2", &["p2", "p3"])], &[]);
        assert!(twice.starts_with("bonds[1].members: bond b2: a member is in another"), "{twice}");
        for name in ["b1", "br0", "p9"] {
            let port = PortOptions { name: "p9".into(), ..PortOptions::default() };
            let same = check(&[one.clone(), bond(name, &["p3", "p4"])], &[port]);
            assert!(same.starts_with("bonds[1].name: bond"), "{same}");
        }
        let other = BridgeOptions { name: "br1".into(), ..BridgeOptions::default() };
        let twice = |name: &str| {
            let bonds = vec![bond(name, &["p1", "p2"])];
            let whole = BridgeOptions { name: "br0".into(), bonds, ..BridgeOptions::default() };
            let bonds = vec![bond("b1", &["p3", "p4"])];
            let bridges = vec![whole, BridgeOptions { bonds, ..other.clone() }];
            let config = Config { bridges, ..Config::default() };
            config.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
        };
        assert_eq!(twice("b0"), "fine");
        let same = twice("b1");
        assert!(same.starts_with("bridges[1].bonds[0].name: bond b1: "), "{same}");
        let with_lacp = |bond: BondOptions, member: &str| BondOptions {
            lacp: BondLacp::Active,
            lacp_port_id: [(member.to_owned(), 7)].into(),
            ..bond
        };
        let shared = check(&[with_lacp(one.clone(), "p1"), with_lacp(other_bond, "p3")], &[]);
        assert!(shared.starts_with("bonds[1].lacp_port_id: bond b2: "), "{shared}");
        let local = check(&[bond("b1", &["p1", "br0"])], &[]);
        assert!(local.starts_with("bonds[0].members: "), "{local}");
        let tagged = check(from_ref(&one), &[PortOptions { tag: Some(5), ..port.clone() }]);
        let expected = "ports[0].tag: port p1: its VLANs are those of its bond b1: remove `tag`, and \
                        set it in the bond";
        assert_eq!(tagged, expected);
        let patch = PortOptions { kind: PortType::Patch, peer: "q".into(), ..port };
        let patch = check(&[one], &[patch]);
        assert!(patch.starts_with("ports[0].type: port p1: a patch port"), "{patch}");
    }

    #[test]
    fn the_numbers_of_collector_sets_are_unique() {
        let set =
            |id| CollectorSetOptions { id, targets: vec!["::1".into()], ..Default::default() };
        let check = |ids: std::ops::Range<u32>, more: Option<u32>| {
            let collector_sets = ids.chain(more).map(set).collect();
            BridgeOptions { name: "br0".into(), collector_sets, ..BridgeOptions::default() }.check()
        };
        assert!(check(0..64, None).is_ok());
        let error = check(0..2, Some(1)).unwrap_err();
        assert_eq!(error.path.to_string(), "collector_sets[2].id");
        assert!(check(0..65, None).is_err());
    }

    #[test]
    fn the_names_of_mirrors_are_unique() {
        let mirror = |name: &str| MirrorOptions {
            name: name.into(),
            output_vlan: 7,
            ..MirrorOptions::default()
        };
        let check = |mirrors: Vec<MirrorOptions>| {
            BridgeOptions { name: "br0".into(), mirrors, ..BridgeOptions::default() }.check()
        };
        assert!(check(vec![mirror("m1"), mirror("m2")]).is_ok());
        let error = check(vec![mirror("m1"), mirror("m2"), mirror("m1")]).unwrap_err();
        assert_eq!(error.path.to_string(), "mirrors[2].name");
        let many = |count: usize| (0..count).map(|index| mirror(&format!("m{index}"))).collect();
        assert!(check(many(32)).is_ok() && check(many(33)).is_err());
    }

    #[test]
    fn entry_ids_have_no_sign() {
        let datapath_id =
            BridgeOptions { datapath_id: "+0000000000000c1".into(), ..BridgeOptions::default() };
        let mac = BridgeOptions { mac: "02:00:00:00:00:+1".into(), ..BridgeOptions::default() };
        assert!(datapath_id.datapath_id().is_err() && mac.mac().is_err());
    }

    #[test]
    fn numbers_zero_that_name_nothing_are_refused() {
        let check = |bridge: BridgeOptions| {
            let bridge = BridgeOptions { name: "br0".into(), ..bridge };
            bridge.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned())
        };
        let id = |id: &str| check(BridgeOptions { datapath_id: id.into(), ..Default::default() });
        assert_eq!(id("0000000000000001"), "fine");
        assert_eq!(
            id("0000000000000000"),
            "datapath_id = 0000000000000000: it must be sixteen hexadecimal digits that are not \
             all 0"
        );
        let controller = |target: &str| {
            check(BridgeOptions { controllers: vec![target.into()], ..Default::default() })
        };
        assert_eq!(controller("tcp:192.0.2.1:1"), "fine");
        assert_eq!(
            controller("ssl:192.0.2.1:0"),
            "controllers[0]: bridge br0: `ssl:192.0.2.1:0` has port 0, on which no controller \
             listens: use a port from 1 to 65535, such as 6653"
        );
    }
}
