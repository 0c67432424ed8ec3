//! What a configuration must fulfil beyond its grammar.

use std::collections::{HashMap, HashSet};

use crate::{
    Config, Endpoint, SwitchError,
    config::{Bridge, NAME_BYTES_MAX, Port, PortType, Repeat, THREADS_MAX},
};

/// Most entries of an exact-match cache.
const EXACT_ENTRIES_MAX: usize = 1 << 24;

/// Most entries of a megaflow cache.
const MEGAFLOW_ENTRIES_MAX: usize = 1 << 24;

impl Config {
    /// Checks everything that can be checked without opening anything.
    ///
    /// # Errors
    ///
    /// The first mistake, with what would mend it.
    pub fn check(&self) -> Result<(), SwitchError> {
        self.check_ranges()?;
        let mut bridges = HashSet::new();
        let mut ports = HashMap::new();
        for bridge in &self.bridges {
            check_name(&bridge.name)?;
            if !bridges.insert(&bridge.name) {
                return Err(SwitchError::BridgeExists(bridge.name.clone()));
            }
            bridge.check_lists()?;
            bridge.datapath_id()?;
            bridge.mac()?;
            for port in &bridge.ports {
                port.check()?;
                if let Some(other) = ports.insert(&port.name, &bridge.name) {
                    let (name, bridge) = (port.name.clone(), other.clone());
                    return Err(SwitchError::PortExists { name, bridge });
                }
            }
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), SwitchError> {
        let range = |setting, value: String, ok: bool, range| {
            if ok { Ok(()) } else { Err(SwitchError::Range { setting, value, range }) }
        };
        let (threads, caches) = (&self.threads, &self.caches);
        let packet = threads.packet;
        let packet_ok = (1..=THREADS_MAX).contains(&packet);
        range("threads.packet", packet.to_string(), packet_ok, "from 1 to 64")?;
        let turn = threads.translations_per_turn;
        range("threads.translations_per_turn", turn.to_string(), turn > 0, "at least 1")?;
        let exact = caches.exact_entries;
        let exact_ok = exact == 0 || exact.is_power_of_two() && exact <= EXACT_ENTRIES_MAX;
        let exact_range = "0, or a power of two up to 16777216";
        range("caches.exact_entries", exact.to_string(), exact_ok, exact_range)?;
        let one_in = caches.exact_insert_one_in;
        range("caches.exact_insert_one_in", one_in.to_string(), one_in > 0, "at least 1")?;
        let megaflow = caches.megaflow_entries;
        let megaflow_ok = (1..=MEGAFLOW_ENTRIES_MAX).contains(&megaflow);
        range("caches.megaflow_entries", megaflow.to_string(), megaflow_ok, "from 1 to 16777216")?;
        let limit = self.packets.vlan_limit;
        range("packets.vlan_limit", limit.to_string(), (1..=2).contains(&limit), "1 or 2")
    }
}

impl Bridge {
    /// Checks that each address stands in the right list.
    fn check_lists(&self) -> Result<(), SwitchError> {
        let wrong = |setting, value: &String, range| {
            Err(SwitchError::Range { setting, value: value.clone(), range })
        };
        for (index, endpoint) in self.endpoints()?.into_iter().enumerate() {
            match (endpoint, self.controllers.get(index)) {
                (Endpoint::Listen(_), Some(text)) => {
                    return wrong("controllers", text, "addresses to connect to: tcp:IP:PORT");
                }
                (Endpoint::Connect(_), None) => {
                    let text = &self.listen[index - self.controllers.len()];
                    return wrong("listen", text, "addresses to listen on: ptcp:PORT:IP");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Controllers to connect to, then addresses to listen on.
    ///
    /// # Errors
    ///
    /// When a text is not an address.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, SwitchError> {
        let wrong = |source| SwitchError::Endpoint { bridge: self.name.clone(), source };
        let texts = self.controllers.iter().chain(&self.listen);
        texts.map(|text| text.parse().map_err(wrong)).collect()
    }

    /// The datapath id: as configured, or made of the name.
    ///
    /// # Errors
    ///
    /// When it is not sixteen hexadecimal digits.
    pub fn datapath_id(&self) -> Result<u64, SwitchError> {
        if self.datapath_id.is_empty() {
            let [a, b, c, d, e, f] = self.mac()?;
            return Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        }
        let digits = self.datapath_id.len() == 16 && is_hexadecimal(&self.datapath_id);
        let number = u64::from_str_radix(&self.datapath_id, 16).ok().filter(|_| digits);
        number.ok_or_else(|| SwitchError::Range {
            setting: "datapath_id",
            value: self.datapath_id.clone(),
            range: "sixteen hexadecimal digits",
        })
    }

    /// The hardware address of the local port: as configured, or made of the name.
    ///
    /// # Errors
    ///
    /// When it is not six octets with colons.
    pub fn mac(&self) -> Result<[u8; 6], SwitchError> {
        if self.mac.is_empty() {
            return Ok(mac_of_name(&self.name));
        }
        let octet = |text| u8::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal(text));
        let octets: Vec<u8> = self.mac.split(':').filter_map(octet).collect();
        let exact = self.mac.split(':').count() == 6;
        <[u8; 6]>::try_from(octets).ok().filter(|_| exact).ok_or_else(|| SwitchError::Range {
            setting: "mac",
            value: self.mac.clone(),
            range: "six octets like 02:00:00:00:00:01",
        })
    }
}

impl Port {
    /// Checks that every key makes sense for the type of port.
    ///
    /// # Errors
    ///
    /// The first that does not.
    pub fn check(&self) -> Result<(), SwitchError> {
        check_name(&self.name)?;
        if self.number > shunt_flow::PortNo::MAX.number() {
            return Err(SwitchError::NumberRange(self.number));
        }
        let problem = self.problem();
        let wrong = |problem| SwitchError::PortSetting { port: self.name.clone(), problem };
        problem.map_or(Ok(()), |problem| Err(wrong(problem)))
    }

    fn problem(&self) -> Option<&'static str> {
        let files = !self.rx.as_os_str().is_empty() || !self.tx.as_os_str().is_empty();
        let (device, peer) = (!self.device.is_empty(), !self.peer.is_empty());
        if self.repeat != Repeat::Once && self.kind != PortType::Pcap {
            return Some("only a pcap port has `repeat`");
        }
        match self.kind {
            PortType::Patch if !peer => {
                Some("a patch port needs `peer`, the port at its other end")
            }
            PortType::Patch if device || files => Some("a patch port has only `peer`"),
            PortType::Pcap if !files => Some("a pcap port needs `rx`, `tx` or both: capture files"),
            PortType::Pcap if device || peer => Some("a pcap port has only `rx`, `tx`, `repeat`"),
            PortType::Null | PortType::Unbound if device || peer || files => {
                Some("a null port has no further keys")
            }
            PortType::AfPacket | PortType::Tap if peer || files => {
                Some("a port of a device has only `device`")
            }
            PortType::Null
            | PortType::Pcap
            | PortType::Patch
            | PortType::AfPacket
            | PortType::Tap
            | PortType::Unbound => None,
        }
    }

    /// The network device, for ports that have one.
    #[must_use]
    pub fn device(&self) -> &str {
        if self.device.is_empty() { &self.name } else { &self.device }
    }
}

/// Checks the name of a bridge or port.
fn check_name(name: &str) -> Result<(), SwitchError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let length = (1..=NAME_BYTES_MAX).contains(&name.len());
    if length && name.bytes().all(legal) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(SwitchError::BadName(name.to_owned()))
    }
}

/// Whether a text is nothing but digits; parsing a number would also take a sign.
fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A locally administered address that a name always gives (FNV-1a).
fn mac_of_name(name: &str) -> [u8; 6] {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let [a, b, c, d, e, ..] = name.bytes().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes();
    [0x02, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(port: Port) -> String {
        let port = Port { name: "p1".into(), ..port };
        port.check().map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn keys_that_make_no_sense_for_a_type_of_port_are_named() {
        let patch = Port { kind: PortType::Patch, ..Port::default() };
        let expected = "port p1: a patch port needs `peer`, the port at its other end";
        assert_eq!(complaint(patch), expected);
        let pcap = Port { kind: PortType::Pcap, ..Port::default() };
        assert!(complaint(pcap).contains("needs `rx`, `tx` or both"));
        let null = Port { device: "eth0".into(), ..Port::default() };
        assert_eq!(complaint(null), "port p1: a null port has no further keys");
        let tap = Port { kind: PortType::Tap, device: "tap9".into(), ..Port::default() };
        assert_eq!(complaint(tap), "fine");
        let number = Port { number: 0xffff_fffe, ..Port::default() };
        assert!(complaint(number).contains("4294967040"));
    }

    #[test]
    fn names_are_what_a_device_can_be_called() {
        for (name, ok) in
            [("br0", true), ("a.b-c_d", true), ("", false), ("sixteen-bytes-oo", false)]
        {
            assert_eq!(check_name(name).is_ok(), ok, "{name}");
        }
        assert!(check_name("br 0").is_err() && check_name("../x").is_err());
    }

    #[test]
    fn a_bridge_without_ids_has_the_same_ones_in_every_run() {
        let bridge = Bridge { name: "br0".into(), ..Bridge::default() };
        assert_eq!(bridge.mac().unwrap(), bridge.mac().unwrap());
        assert_eq!(bridge.mac().unwrap()[0], 2);
        assert_ne!(bridge.datapath_id().unwrap(), 0);
        let given = Bridge { datapath_id: "00000000000000c1".into(), ..bridge };
        assert_eq!(given.datapath_id().unwrap(), 0xc1);
    }

    #[test]
    fn ids_are_digits_without_a_sign() {
        let datapath_id = Bridge { datapath_id: "+0000000000000c1".into(), ..Bridge::default() };
        let mac = Bridge { mac: "02:00:00:00:00:+1".into(), ..Bridge::default() };
        assert!(datapath_id.datapath_id().is_err() && mac.mac().is_err());
    }

    #[test]
    fn two_ports_of_one_name_are_refused() {
        let port = Port { name: "p1".into(), ..Port::default() };
        let bridge = |name: &str| Bridge {
            name: name.into(),
            ports: vec![port.clone()],
            ..Bridge::default()
        };
        let config = Config { bridges: vec![bridge("br0"), bridge("br1")], ..Config::default() };
        let words = config.check().unwrap_err().to_string();
        assert_eq!(words, "there is a port p1 already, on bridge br0");
    }
}
