//! Settings on the command line, as `key=value` words.

use std::path;

use shunt_flow::text::nearest_of;
use shunt_switch::{
    config::{
        BondOptions, BridgeOptions, MemifRole, MirrorOptions, PortOptions, PortType, PortVlanMode,
        PriorityTags, QinqEthtype, Repeat, SocketMode,
    },
    with_causes,
};

mod bfd;
mod qos;
mod xdp;

pub(crate) use bfd::bfd;
pub(crate) use qos::qos;
#[cfg(test)]
pub(crate) use qos::{KEYS as QOS_KEYS, QUEUE_KEYS};

use crate::open_vswitch;

/// Keys of a port that the command line accepts.
const PORT_KEYS: &[&str] = &[
    "type",
    "number",
    "device",
    "mac",
    "mtu",
    "rx_slots",
    "xdp_mode",
    "busy_poll_us",
    "devargs",
    "queues",
    "path",
    "mode",
    "socket",
    "id",
    "role",
    "secret",
    "rsize",
    "bsize",
    "allow_unsealed",
    "rx",
    "tx",
    "repeat",
    "peer",
    "vlan_mode",
    "tag",
    "trunks",
    "cvlans",
    "qinq_ethtype",
    "priority_tags",
    "protected",
    "mcast_snooping_flood",
    "mcast_snooping_flood_reports",
    "ingress_policing_rate",
    "ingress_policing_burst",
    "ingress_policing_kpkts_rate",
    "ingress_policing_kpkts_burst",
    "bfd.enable",
];

/// An example word for each key.
const EXAMPLES: &[&str] = &[
    "type=tap",
    "number=7",
    "device=eth1",
    "mac=02:00:00:00:00:01",
    "mtu=9000",
    "rx_slots=4096",
    "xdp_mode=generic",
    "busy_poll_us=20",
    "devargs=0000:01:00.0",
    "queues=4",
    "path=/run/guest1.sock",
    "mode=server",
    "socket=/run/memif.sock",
    "id=0",
    "role=server",
    "secret=word",
    "rsize=10",
    "bsize=2048",
    "allow_unsealed=true",
    "rx=in.pcap",
    "tx=out.pcap",
    "repeat=endless",
    "peer=port2",
    "vlan_mode=trunk",
    "tag=10",
    "trunks=10,20",
    "cvlans=10,20",
    "qinq_ethtype=802.1q",
    "priority_tags=if-nonzero",
    "protected=true",
    "mcast_snooping_flood=true",
    "mcast_snooping_flood_reports=true",
    "ingress_policing_rate=10000",
    "ingress_policing_burst=8000",
    "ingress_policing_kpkts_rate=100",
    "ingress_policing_kpkts_burst=16",
    "bfd.enable=true",
];

/// Keys of a port that have an effect on `NORMAL`.
pub(crate) const VLAN_KEYS: &[&str] = &[
    "vlan_mode",
    "tag",
    "trunks",
    "cvlans",
    "qinq_ethtype",
    "priority_tags",
    "protected",
    "mcast_snooping_flood",
    "mcast_snooping_flood_reports",
];

/// Keys of the ingress policing of a port.
pub(crate) const POLICING_KEYS: &[&str] = &[
    "ingress_policing_rate",
    "ingress_policing_burst",
    "ingress_policing_kpkts_rate",
    "ingress_policing_kpkts_burst",
];

/// Parses a port from its name and words such as `type=patch peer=p2`.
///
/// # Errors
///
/// If a word is not `key=value`, or its key or value is unknown; the message suggests the most
/// similar valid word.
pub(crate) fn port(name: &str, words: &[String]) -> Result<PortOptions, String> {
    let mut port = PortOptions { name: name.to_owned(), ..PortOptions::default() };
    for word in words {
        let (key, value) = split(word)?;
        match key {
            "type" => port.kind = port_type(value)?,
            "number" => {
                let wrong = |_| format!("number={value}: a port number is 1 to 65279");
                port.number = value.parse().map_err(wrong)?;
            }
            "device" => value.clone_into(&mut port.device),
            "mac" => value.clone_into(&mut port.mac),
            "mtu" => {
                let wrong = |_| format!("mtu={value}: an MTU is a number of bytes, 68 to 65535");
                port.mtu = value.parse().map_err(wrong)?;
            }
            "rx_slots" => {
                let wrong = |_| format!("rx_slots={value}: a receive ring has 32 to 16384 slots");
                port.rx_slots = value.parse().map_err(wrong)?;
            }
            "xdp_mode" => port.xdp_mode = xdp::xdp_mode(value)?,
            "busy_poll_us" => port.busy_poll_us = xdp::busy_poll_us(value)?,
            "devargs" => value.clone_into(&mut port.devargs),
            "queues" => {
                let wrong = |_| format!("queues={value}: a number of queues is 1 to 65535");
                port.queues = value.parse().map_err(wrong)?;
            }
            "path" => port.path = value.into(),
            "mode" => port.mode = socket_mode(value)?,
            "rx" => port.rx = value.into(),
            "tx" => port.tx = value.into(),
            "repeat" => port.repeat = repeat(value)?,
            "peer" => value.clone_into(&mut port.peer),
            _ if set_memif(&mut port, key, value)? => {}
            _ if set_vlan(&mut port, key, value)?
                || set_policing(&mut port, key, value)?
                || bfd::set_bfd(&mut port, key, value)? => {}
            _ => return Err(unknown("key", key, PORT_KEYS)),
        }
    }
    Ok(port)
}

/// Parses a bridge from its name and words such as `table_rules=1000`.
///
/// # Errors
///
/// Like [`port`].
pub(crate) fn bridge(name: &str, words: &[String]) -> Result<BridgeOptions, String> {
    let known = [BridgeOptions::RUNTIME_KEYS, BridgeOptions::START_KEYS].concat();
    let settings: Vec<_> = words.iter().map(|word| split(word)).collect::<Result<_, _>>()?;
    match settings.iter().find(|(key, _)| !known.contains(key)) {
        Some((key, _)) => Err(unknown("key", key, &known)),
        None => BridgeOptions::of_settings(name, &settings).map_err(|error| with_causes(&error)),
    }
}

/// Returns the keys and values in words such as `controllers=tcp:192.0.2.1`.
///
/// # Errors
///
/// If a word is not `key=value`, or its key is unknown or only takes effect when a bridge is added.
pub(crate) fn bridge_changes(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let known = BridgeOptions::RUNTIME_KEYS;
    let split = |word| {
        let (key, value) = split(word)?;
        if BridgeOptions::START_KEYS.contains(&key) {
            return Err(format!(
                "`{key}` cannot change while the bridge exists: change the configuration file and \
                 restart the daemon, or delete the bridge and add it with {word}"
            ));
        }
        if !known.contains(&key) {
            return Err(unknown("key", key, known));
        }
        Ok((key, value))
    };
    words.iter().map(|word| split(word)).collect()
}

/// Parses a bond from its name and words such as `members=p1,p2`.
///
/// # Errors
///
/// Like [`port`].
pub(crate) fn bond(name: &str, words: &[String]) -> Result<BondOptions, String> {
    let settings: Vec<_> = words.iter().map(|word| split(word)).collect::<Result<_, _>>()?;
    let known = BondOptions::KEYS;
    match settings.iter().find(|(key, _)| !known.contains(key)) {
        Some((key, _)) => Err(unknown("key", key, known)),
        None => BondOptions::of_settings(name, &settings).map_err(|error| with_causes(&error)),
    }
}

/// Parses a mirror from its name and words such as `output_port=p9`.
///
/// # Errors
///
/// Like [`port`].
pub(crate) fn mirror(name: &str, words: &[String]) -> Result<MirrorOptions, String> {
    let settings: Vec<_> = words.iter().map(|word| split(word)).collect::<Result<_, _>>()?;
    let known = MirrorOptions::KEYS;
    match settings.iter().find(|(key, _)| !known.contains(key)) {
        Some((key, _)) => Err(unknown("key", key, known)),
        None => MirrorOptions::of_settings(name, &settings).map_err(|error| with_causes(&error)),
    }
}

/// Parses the VLANs of a port from words such as `vlan_mode=trunk trunks=10,20`.
///
/// # Errors
///
/// Like [`port`].
pub(crate) fn vlans(name: &str, words: &[String]) -> Result<PortOptions, String> {
    port_of(name, words, VLAN_KEYS, set_vlan)
}

/// Parses the settings of a port from words `KEY=VALUE`.
///
/// `set` stores a setting, and returns false for an unknown key. The error then lists `keys`.
fn port_of(
    name: &str,
    words: &[String],
    keys: &[&str],
    set: fn(&mut PortOptions, &str, &str) -> Result<bool, String>,
) -> Result<PortOptions, String> {
    let mut port = PortOptions { name: name.to_owned(), ..PortOptions::default() };
    for word in words {
        let (key, value) = split(word)?;
        if !set(&mut port, key, value)? {
            return Err(unknown("key", key, keys));
        }
    }
    Ok(port)
}

/// Sets a VLAN option of a port; returns false for any other key.
fn set_vlan(port: &mut PortOptions, key: &str, value: &str) -> Result<bool, String> {
    let vlan = |text: &str| {
        text.parse()
            .map_err(|_| format!("{key}={value}: a VLAN is a decimal number from 0 to 4095"))
    };
    match key {
        "vlan_mode" => {
            let names = PortVlanMode::ALL.map(PortVlanMode::name);
            let found = PortVlanMode::ALL.into_iter().find(|mode| mode.name() == value);
            let found = found.ok_or_else(|| unknown("VLAN mode", value, &names))?;
            port.vlan_mode = Some(found);
        }
        "tag" => port.tag = Some(vlan(value)?),
        "trunks" => port.trunks = value.split(',').map(vlan).collect::<Result<_, _>>()?,
        "cvlans" => port.cvlans = value.split(',').map(vlan).collect::<Result<_, _>>()?,
        "qinq_ethtype" => {
            let names = QinqEthtype::ALL.map(QinqEthtype::name);
            let found = QinqEthtype::ALL.into_iter().find(|own| own.name() == value);
            port.qinq_ethtype =
                found.ok_or_else(|| unknown("value of qinq_ethtype", value, &names))?;
        }
        "priority_tags" => {
            let names = PriorityTags::ALL.map(PriorityTags::name);
            let found = PriorityTags::ALL.into_iter().find(|tags| tags.name() == value);
            port.priority_tags =
                found.ok_or_else(|| unknown("value of priority_tags", value, &names))?;
        }
        "protected" => port.protected = flag(key, value)?,
        "mcast_snooping_flood" => port.mcast_snooping_flood = flag(key, value)?,
        "mcast_snooping_flood_reports" => port.mcast_snooping_flood_reports = flag(key, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses `true` or `false`.
fn flag(key: &str, value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{key}={value}: use true or false"))
}

/// Parses the ingress policing of a port from words.
///
/// An example is `ingress_policing_rate=10000 ingress_policing_burst=1000`.
///
/// # Errors
///
/// Like [`port`].
pub(crate) fn policing(name: &str, words: &[String]) -> Result<PortOptions, String> {
    port_of(name, words, POLICING_KEYS, set_policing)
}

/// Sets an option of ingress policing; returns false for any other key.
fn set_policing(port: &mut PortOptions, key: &str, value: &str) -> Result<bool, String> {
    let (field, unit) = match key {
        "ingress_policing_rate" => (&mut port.ingress_policing_rate, "kilobits per second"),
        "ingress_policing_burst" => (&mut port.ingress_policing_burst, "kilobits"),
        "ingress_policing_kpkts_rate" => {
            (&mut port.ingress_policing_kpkts_rate, "thousands of packets per second")
        }
        "ingress_policing_kpkts_burst" => {
            (&mut port.ingress_policing_kpkts_burst, "thousands of packets")
        }
        _ => return Ok(false),
    };
    *field = value.parse().map_err(|_| {
        format!("{key}={value}: use a number of {unit}, from 0 to {max}", max = u32::MAX)
    })?;
    Ok(true)
}

/// Keys that have a path as value.
const PATH_KEYS: &[&str] = &["rx", "tx", "path", "socket"];

/// Makes the path in a word absolute, if the word contains a path.
///
/// The daemon does not have the working directory of the client.
///
/// # Errors
///
/// If the absolute path cannot be determined or is not valid UTF-8.
pub(crate) fn resolved(word: &str) -> Result<String, String> {
    match word.split_once('=') {
        // The name of an abstract socket is not a path.
        Some(("socket", name)) if name.starts_with('@') => Ok(word.to_owned()),
        Some((key, path)) if PATH_KEYS.contains(&key) && !path.is_empty() => {
            let whole = path::absolute(path).map_err(|error| format!("{word}: {error}"))?;
            let text =
                whole.to_str().ok_or_else(|| format!("{} is not valid UTF-8", whole.display()))?;
            Ok(format!("{key}={text}"))
        }
        _ => Ok(word.to_owned()),
    }
}

/// Splits `key=value`.
pub(crate) fn split(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| {
        let is_type = PortType::find(word).is_some();
        let example = EXAMPLES
            .iter()
            .find(|example| example.split_once('=').is_some_and(|(key, _)| key == word));
        match example {
            Some(example) => format!("`{word}` has no value: write KEY=VALUE, such as {example}"),
            None if is_type => format!("`{word}` has no key: write type={word}"),
            None => format!("`{word}` is not KEY=VALUE"),
        }
    })
}

/// Returns the message for an unknown word, with the most similar known word.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    if let Some(hint) = open_vswitch::hint(word) {
        return format!("unknown {what} `{word}`: {hint}");
    }
    match nearest_of(word, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} `{word}`: did you mean `{nearest}`?"),
        None => format!("unknown {what} `{word}`: valid values: {}", known.join(", ")),
    }
}

/// Parses the type of a port.
fn port_type(value: &str) -> Result<PortType, String> {
    let names = PortType::ALL.map(PortType::name);
    PortType::find(value).ok_or_else(|| unknown("port type", value, &names))
}

/// Parses the mode of a socket.
fn socket_mode(value: &str) -> Result<SocketMode, String> {
    match value {
        "client" => Ok(SocketMode::Client),
        "server" => Ok(SocketMode::Server),
        _ => Err(unknown("value of mode", value, &["client", "server"])),
    }
}

/// Sets a key that only memif ports have; returns false for any other key.
fn set_memif(port: &mut PortOptions, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "socket" => port.socket = value.into(),
        "id" => {
            let wrong = |_| format!("id={value}: the number of an interface is 0 to 4294967295");
            port.id = value.parse().map_err(wrong)?;
        }
        "role" => {
            port.role = match value {
                "client" => MemifRole::Client,
                "server" => MemifRole::Server,
                _ => return Err(unknown("value of role", value, &["client", "server"])),
            };
        }
        "secret" => value.clone_into(&mut port.secret),
        "rsize" => {
            let wrong = |_| format!("rsize={value}: a ring has 2^1 to 2^14 descriptors: 1 to 14");
            port.rsize = value.parse().map_err(wrong)?;
        }
        "bsize" => {
            let wrong = |_| format!("bsize={value}: a buffer has 64 to 65535 bytes");
            port.bsize = value.parse().map_err(wrong)?;
        }
        "allow_unsealed" => {
            let wrong = |_| format!("allow_unsealed={value}: use true or false");
            port.allow_unsealed = value.parse().map_err(wrong)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses how often a capture is repeated.
fn repeat(value: &str) -> Result<Repeat, String> {
    match value {
        "once" => Ok(Repeat::Once),
        "endless" => Ok(Repeat::Endless),
        _ => Err(unknown("value of repeat", value, &["once", "endless"])),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shunt_switch::config::{BondLacp, BondLacpTime};

    use super::*;

    /// Splits a text into words.
    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_bond_is_parsed_from_the_command_line() {
        let all =
            "members=p1,p2 primary=p2 updelay_ms=100 vlan_mode=native-tagged tag=5 trunks=6,7";
        let own = bond("bond0", &words(all)).unwrap();
        assert_eq!((own.members, own.primary.as_str()), (vec!["p1".into(), "p2".into()], "p2"));
        assert_eq!((own.updelay_ms, own.tag, own.trunks), (100, Some(5), vec![6, 7]));
        assert_eq!(own.vlan_mode, Some(PortVlanMode::NativeTagged));
        let all = "members=p1,p2 lacp=passive lacp_time=fast lacp_port_priority=p1:5,p2:60";
        let own = bond("bond0", &words(all)).unwrap();
        assert_eq!((own.lacp, own.lacp_time), (BondLacp::Passive, BondLacpTime::Fast));
        assert_eq!(own.lacp_port_priority, BTreeMap::from([("p1".into(), 5), ("p2".into(), 60)]));
        let wrong = bond("bond0", &words("members=p1,p2 lacp_port_id=5")).unwrap_err();
        assert!(wrong.contains("PORT:NUMBER, separated by commas"), "{wrong}");
        let wrong = bond("bond0", &words("slaves=p1,p2")).unwrap_err();
        assert!(wrong.contains("slaves"), "{wrong}");
        assert!(bond("bond0", &words("members=p1,p2 mode=broadcast")).is_err());
    }

    #[test]
    fn a_mirror_is_parsed_from_the_command_line() {
        let own = mirror("m1", &words("select_src_port=p1,p2 select_vlan=10 output_port=p9"));
        let own = own.unwrap();
        assert_eq!(
            (own.select_src_port.len(), own.select_vlan, own.select_all),
            (2, vec![10], false)
        );
        let own = mirror("m1", &words("select_all=true output_vlan=7 snaplen=128")).unwrap();
        assert_eq!((own.select_all, own.output_vlan, own.snaplen), (true, 7, 128));
        let wrong = mirror("m1", &words("select_port=p1")).unwrap_err();
        assert!(wrong.contains("did you mean"), "{wrong}");
        assert!(mirror("m1", &words("select_all=yes")).is_err());
    }

    #[test]
    fn a_port_is_parsed_from_the_command_line() {
        let xdp = port("eth1", &words("type=af_xdp xdp_mode=generic busy_poll_us=20")).unwrap();
        assert_eq!((xdp.kind, xdp.xdp_mode.name()), (PortType::AfXdp, "generic"));
        assert_eq!(xdp.busy_poll_us, 20);
        let guest = port("g1", &words("type=vhost_user path=/run/g1.sock mode=server")).unwrap();
        assert_eq!((guest.kind, guest.mode), (PortType::VhostUser, SocketMode::Server));
        assert_eq!(guest.path.to_str(), Some("/run/g1.sock"));
        let text = "type=memif socket=@vpp id=7 role=server secret=s rsize=9 bsize=4096";
        let memif = port("m1", &words(text)).unwrap();
        assert_eq!((memif.kind, memif.id, memif.role), (PortType::Memif, 7, MemifRole::Server));
        assert_eq!((memif.secret.as_str(), memif.rsize, memif.bsize), ("s", 9, 4096));
        assert_eq!(resolved("socket=@vpp").as_deref(), Ok("socket=@vpp"));
        let port = port("in", &words("type=pcap rx=a.pcap repeat=endless number=4")).unwrap();
        assert_eq!((port.kind, port.repeat, port.number), (PortType::Pcap, Repeat::Endless, 4));
        assert_eq!(port.rx.to_str(), Some("a.pcap"));
    }

    /// Also a number that is too large for the type of its key gets the range.
    #[test]
    fn a_number_out_of_range_gets_the_range() {
        for (word, range) in [
            ("number=99999999999", "a port number is 1 to 65279"),
            ("mtu=99999999999", "68 to 65535"),
            ("rx_slots=99999999999", "32 to 16384"),
            ("busy_poll_us=99999999999", "1 to 10000"),
            ("queues=99999999999", "1 to 65535"),
            ("tag=99999", "from 0 to 4095"),
            ("ingress_policing_rate=99999999999", "from 0 to 4294967295"),
        ] {
            let error = port("p1", &words(word)).unwrap_err();
            assert!(error.starts_with(word) && error.contains(range), "{error}");
        }
    }

    #[test]
    fn a_path_is_relative_to_its_configuration_file() {
        let here = std::env::current_dir().unwrap();
        let whole = |path: &str| here.join(path).to_str().unwrap().to_owned();
        assert_eq!(resolved("rx=in.pcap"), Ok(format!("rx={}", whole("in.pcap"))));
        assert_eq!(resolved("tx=../out.pcap"), Ok(format!("tx={}", whole("../out.pcap"))));
        for word in ["tx=/var/out.pcap", "rx=", "device=eth0", "type=pcap", "rx", "nonsense"] {
            assert_eq!(resolved(word).as_deref(), Ok(word));
        }
    }

    #[test]
    fn vlans_are_parsed_from_the_command_line() {
        let port = vlans("p", &words("vlan_mode=native-untagged tag=10 trunks=20,30")).unwrap();
        assert_eq!((port.vlan_mode, port.tag), (Some(PortVlanMode::NativeUntagged), Some(10)));
        assert_eq!(port.trunks, [20, 30]);
        let text = "vlan_mode=dot1q-tunnel tag=100 cvlans=5,6 qinq_ethtype=802.1q";
        let port = vlans("p", &words(text)).unwrap();
        assert_eq!((port.vlan_mode, port.tag), (Some(PortVlanMode::Dot1qTunnel), Some(100)));
        assert_eq!((port.cvlans, port.qinq_ethtype), (vec![5, 6], QinqEthtype::Dot1q));
        let wrong = vlans("p", &words("qinq_ethtype=802.1x")).unwrap_err();
        assert!(wrong.contains("did you mean"), "{wrong}");
        assert!(vlans("p", &words("peer=q")).is_err() && vlans("p", &words("tag=x")).is_err());
    }

    #[test]
    fn policing_is_parsed_from_the_command_line() {
        let limits = "ingress_policing_rate=1000 ingress_policing_kpkts_burst=5";
        for port in [policing("p", &words(limits)), port("p", &words(limits))] {
            let port = port.unwrap();
            assert_eq!((port.ingress_policing_rate, port.ingress_policing_kpkts_burst), (1000, 5));
        }
        assert!(policing("p", &words("tag=5")).unwrap_err().contains("unknown key `tag`"));
        let wrong = policing("p", &words("ingress_policing_rate=-1")).unwrap_err();
        assert!(wrong.contains("a number of kilobits per second, from 0 to 4294967295"), "{wrong}");
    }

    #[test]
    fn a_wrong_bridge_key_is_refused_with_cause() {
        let changes = |text: &str| bridge_changes(&words(text)).map(|settings| settings.len());
        assert_eq!(changes("controllers= mac_entries=7"), Ok(2));
        assert_eq!(
            changes("controlers=tcp:1.2.3.4").unwrap_err(),
            "unknown key `controlers`: did you mean `controllers`?"
        );
        let error = changes("local=tap").unwrap_err();
        assert!(error.starts_with("`local` cannot change while the bridge exists: "), "{error}");
        let added = bridge("br0", &words("mac=02:00:00:00:00:01 listen=ptcp:6653,ptcp:6654"));
        let added = added.unwrap();
        assert_eq!((added.mac.as_str(), added.listen.len()), ("02:00:00:00:00:01", 2));
        assert!(bridge("br0", &words("fail_mode=open")).unwrap_err().contains("or standalone"));
        assert!(bridge("br0", &words("table_overflow=drop")).unwrap_err().contains("or evict"));
    }

    #[test]
    fn a_misspelled_word_gets_a_suggestion() {
        let error_text = |text: &str| port("x", &words(text)).unwrap_err();
        assert_eq!(error_text("tpye=null"), "unknown key `tpye`: did you mean `type`?");
        assert_eq!(error_text("type=nul"), "unknown port type `nul`: did you mean `null`?");
        assert!(error_text("type=zzzzzzzz").contains("valid values: null, pcap"));
        assert_eq!(error_text("null"), "`null` has no key: write type=null");
        assert_eq!(error_text("tag"), "`tag` has no value: write KEY=VALUE, such as tag=10");
        assert_eq!(error_text("nil"), "`nil` is not KEY=VALUE");
        assert_eq!(error_text("type=vxlan"), "unknown port type `vxlan`: tunnels do not exist yet");
        assert_eq!(EXAMPLES.len(), PORT_KEYS.len());
        assert!(EXAMPLES.iter().zip(PORT_KEYS).all(|(own, key)| own.starts_with(key)));
    }
}
