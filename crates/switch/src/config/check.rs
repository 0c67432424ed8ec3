//! Checks of a configuration beyond its syntax: ranges, names, exclusive devices and patch ports.

mod bridge;
mod port;

use std::collections::HashMap;

use shunt_datapath::metrics::CHAIN_MAX;
use shunt_gigaflow::tag::TAG_BITS_MAX;

use crate::{
    config::{
        Config, ConfigError, EalOptions, PortOptions, PortType, THREADS_MAX,
        switch::{AUTO_LB_INTERVAL_MAX, CPU_MAX, SLEEP_MS_MAX},
    },
    error::SwitchError,
    ports::{exclusive::ExclusiveResource, registry::listed},
};

/// Maximum number of entries in an exact-match cache.
const EXACT_ENTRIES_MAX: usize = 1 << 24;

/// Maximum number of entries in a megaflow cache.
const MEGAFLOW_ENTRIES_MAX: usize = 1 << 24;

/// Maximum number of entries in a Gigaflow stage.
///
/// All stages together have at most as many entries as a megaflow cache.
const STAGE_ENTRIES_MAX: usize = MEGAFLOW_ENTRIES_MAX / CHAIN_MAX;

impl Config {
    /// Checks everything that can be checked without opening a device, file or socket.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place in the configuration and a way to correct it.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_parts()?;
        self.check_new_ports()?;
        self.check_patches()?;
        self.check_nic_bridge()
    }

    /// Checks all but patch peers, the bridge of the NIC, and values of new ports.
    ///
    /// A running switch may lack this peer or bridge, and another configuration may contain it. A
    /// state file of an earlier version may have values that a new port cannot have.
    pub(crate) fn check_parts(&self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        for (index, bridge) in self.bridges.iter().enumerate() {
            bridge.check().map_err(|error| error.within("bridges", index))?;
        }
        self.check_names()?;
        self.check_exclusive()
    }

    /// Checks the values that only new ports cannot have.
    fn check_new_ports(&self) -> Result<(), ConfigError> {
        for (index, bridge) in self.bridges.iter().enumerate() {
            for (place, port) in bridge.ports.iter().enumerate() {
                let checked = port.check_new().map_err(|error| error.within("ports", place));
                checked.map_err(|error| error.within("bridges", index))?;
            }
        }
        Ok(())
    }

    /// Checks that names are unique.
    ///
    /// The name of a bridge is also the name of its local port.
    fn check_names(&self) -> Result<(), ConfigError> {
        let mut taken = HashMap::new();
        for (index, bridge) in self.bridges.iter().enumerate() {
            let error = |problem| ConfigError::at("name", problem).within("bridges", index);
            if let Some(problem) = name_conflict(&taken, &bridge.name) {
                return Err(error(problem));
            }
            taken.insert(bridge.name.as_str(), NameOwner::Bridge);
            for (at, port) in bridge.ports.iter().enumerate() {
                let problem = if port.name == bridge.name {
                    Some(SwitchError::LocalPort(port.name.clone()))
                } else {
                    name_conflict(&taken, &port.name)
                };
                if let Some(problem) = problem {
                    let error = ConfigError::at("name", problem).within("ports", at);
                    return Err(error.within("bridges", index));
                }
                taken.insert(&port.name, NameOwner::PortOf(&bridge.name));
            }
            for (at, bond) in bridge.bonds.iter().enumerate() {
                if taken.contains_key(bond.name.as_str()) {
                    let problem = "a bridge, port or bond has this name: choose another name";
                    let problem = SwitchError::BondSetting { bond: bond.name.clone(), problem };
                    let error = ConfigError::at("name", problem).within("bonds", at);
                    return Err(error.within("bridges", index));
                }
                taken.insert(&bond.name, NameOwner::Bond);
            }
        }
        Ok(())
    }

    /// Checks that no two ports use the same device or output file.
    ///
    /// TAP devices of local ports are included.
    fn check_exclusive(&self) -> Result<(), ConfigError> {
        let mut taken = HashMap::new();
        for (index, bridge) in self.bridges.iter().enumerate() {
            let local = bridge.local_port();
            let ports = bridge.ports.iter().enumerate().map(|(at, port)| (port, Some(at)));
            for (port, at) in std::iter::once((&local, None)).chain(ports) {
                let Some((field, wanted)) = ExclusiveResource::of(port) else { continue };
                let owner = (port.name.clone(), &bridge.name);
                if let Some((port, bridge)) = taken.insert(wanted.clone(), owner) {
                    let problem = wanted.in_use_by(&port, bridge);
                    let error = match at {
                        Some(at) => ConfigError::at(field, problem).within("ports", at),
                        None => ConfigError::at("local", problem),
                    };
                    return Err(error.within("bridges", index));
                }
            }
        }
        Ok(())
    }

    /// Checks that both ends of every patch link name each other.
    fn check_patches(&self) -> Result<(), ConfigError> {
        let ports = || self.bridges.iter().flat_map(|bridge| &bridge.ports);
        let by_name: HashMap<&str, &PortOptions> =
            ports().map(|port| (port.name.as_str(), port)).collect();
        for (index, bridge) in self.bridges.iter().enumerate() {
            let patches = bridge.ports.iter().enumerate();
            for (at, port) in patches.filter(|(_, port)| port.kind == PortType::Patch) {
                let wrong = |problem| SwitchError::PortSetting { port: port.name.clone(), problem };
                let problem = match by_name.get(port.peer.as_str()) {
                    None => SwitchError::NoSuchPort {
                        name: port.peer.clone(),
                        known: listed(ports().map(|port| port.name.as_str())),
                    },
                    Some(peer) if peer.kind != PortType::Patch => wrong(
                        "the port that `peer` names is not a patch port: set its `type` to patch",
                    ),
                    Some(peer) if peer.peer != port.name => wrong(
                        "the port that `peer` names has another `peer`: both ends must name each other",
                    ),
                    Some(_) => continue,
                };
                let error = ConfigError::at("peer", problem).within("ports", at);
                return Err(error.within("bridges", index));
            }
        }
        Ok(())
    }

    /// Refuses numbers outside of their ranges.
    fn check_ranges(&self) -> Result<(), ConfigError> {
        let range = ConfigError::check_range;
        let (threads, caches) = (&self.threads, &self.caches);
        let packet = threads.packet;
        let packet_ok = (1..=THREADS_MAX).contains(&packet);
        range("threads.packet", packet.to_string(), packet_ok, "from 1 to 64")?;
        self.check_cpus()?;
        let turn = threads.translations_per_iteration;
        range("threads.translations_per_iteration", turn.to_string(), turn > 0, "at least 1")?;
        let sleep = threads.sleep_max_ms;
        let sleep_ok = sleep <= SLEEP_MS_MAX;
        range("threads.sleep_max_ms", sleep.to_string(), sleep_ok, "from 0 to 10000")?;
        let percents = [
            ("threads.auto_lb_load_threshold", threads.auto_lb_load_threshold),
            ("threads.auto_lb_improvement_threshold", threads.auto_lb_improvement_threshold),
        ];
        for (key, percent) in percents {
            range(key, percent.to_string(), percent <= 100, "from 0 to 100")?;
        }
        let pause = threads.auto_lb_interval_min;
        let pause_ok = (1..=AUTO_LB_INTERVAL_MAX).contains(&pause);
        range("threads.auto_lb_interval_min", pause.to_string(), pause_ok, "from 1 to 20000")?;
        let exact = caches.exact_entries;
        let exact_ok = exact == 0 || exact.is_power_of_two() && exact <= EXACT_ENTRIES_MAX;
        let exact_range = "0, or a power of two up to 16777216";
        range("caches.exact_entries", exact.to_string(), exact_ok, exact_range)?;
        let signatures = caches.signature_entries;
        let signatures_ok =
            signatures == 0 || signatures.is_power_of_two() && signatures <= EXACT_ENTRIES_MAX;
        range("caches.signature_entries", signatures.to_string(), signatures_ok, exact_range)?;
        let one_in = caches.exact_insert_one_in;
        range("caches.exact_insert_one_in", one_in.to_string(), one_in > 0, "at least 1")?;
        let megaflow = caches.megaflow_entries;
        let megaflow_ok = (1..=MEGAFLOW_ENTRIES_MAX).contains(&megaflow);
        range("caches.megaflow_entries", megaflow.to_string(), megaflow_ok, "from 1 to 16777216")?;
        let idle = caches.idle_ms;
        range("caches.idle_ms", idle.to_string(), idle > 0, "at least 1")?;
        let chain = &caches.gigaflow;
        let stages_ok = (1..=CHAIN_MAX).contains(&usize::from(chain.stages));
        range("caches.gigaflow.stages", chain.stages.to_string(), stages_ok, "from 1 to 16")?;
        let (entries, setting) = (chain.stage_entries, "caches.gigaflow.stage_entries");
        let entries_ok = (1..=STAGE_ENTRIES_MAX).contains(&entries);
        range(setting, entries.to_string(), entries_ok, "from 1 to 1048576")?;
        let (bits, setting) = (chain.tag_bits, "caches.gigaflow.tag_bits");
        range(setting, bits.to_string(), (1..=TAG_BITS_MAX).contains(&bits), "from 1 to 24")?;
        let (rate, setting) = (self.eviction.repair_rate, "eviction.repair_rate");
        range(setting, rate.to_string(), rate > 0, "at least 1")?;
        let engine = self.eviction.engine;
        if !engine.is_built() {
            let problem = SwitchError::EngineNotBuilt(engine.name());
            return Err(ConfigError::at("eviction.engine", problem));
        }
        self.check_foresight()?;
        let limit = self.packets.vlan_limit;
        range("packets.vlan_limit", limit.to_string(), (1..=2).contains(&limit), "1 or 2")?;
        let memory = self.dpdk.memory_mib;
        let memory_ok = (EalOptions::MEMORY_MIN..=EalOptions::MEMORY_MAX).contains(&memory);
        range("dpdk.memory_mib", memory.to_string(), memory_ok, "from 64 to 1048576")?;
        chain.offload.check()
    }

    /// Checks the numbers of CPUs, not whether this system has the CPUs.
    ///
    /// The configuration may be checked on another system than the one that runs it.
    fn check_cpus(&self) -> Result<(), ConfigError> {
        let setting = "threads.cpus";
        for (index, cpu) in self.threads.cpus.iter().enumerate() {
            if *cpu > CPU_MAX {
                let (value, range) = (cpu.to_string(), "the number of a CPU, from 0 to 1023");
                let problem = SwitchError::Range { setting, value, range };
                return Err(ConfigError::of_element("cpus", index, problem).under("threads"));
            }
        }
        Ok(())
    }

    /// Refuses settings of predictors outside of their ranges.
    fn check_foresight(&self) -> Result<(), ConfigError> {
        let own = &self.foresight;
        let range = ConfigError::check_range;
        let (forecasts, setting) =
            (own.forecasts_per_iteration, "foresight.forecasts_per_iteration");
        range(setting, forecasts.to_string(), forecasts > 0, "at least 1")?;
        range("foresight.idle_ms", own.idle_ms.to_string(), own.idle_ms > 0, "at least 1")?;
        let entries_ok = (1..=MEGAFLOW_ENTRIES_MAX).contains(&own.entries);
        range("foresight.entries", own.entries.to_string(), entries_ok, "from 1 to 16777216")
    }

    /// Checks that the bridge of the NIC exists, or may be added later.
    fn check_nic_bridge(&self) -> Result<(), ConfigError> {
        // Without a name, the NIC serves the first bridge, if the configuration has one.
        let offload = &self.caches.gigaflow.offload;
        let setting = "caches.gigaflow.offload.bridge";
        let mut names = self.bridges.iter().map(|bridge| &bridge.name);
        let is_known = match (offload.bridge.is_empty(), self.bridges.is_empty()) {
            (true, _) => !self.bridges.is_empty(),
            // A program that embeds the switch may add its bridges later.
            (false, true) => true,
            (false, false) => names.any(|name| *name == offload.bridge),
        };
        let (value, is_known) = (format!("{:?}", offload.bridge), offload.is_none() || is_known);
        let text = "the name of a bridge in this configuration";
        ConfigError::check_range(setting, value, is_known, text)
    }
}

/// The bridge, port or bond that has a name.
#[derive(Clone, Copy)]
enum NameOwner<'a> {
    Bridge,
    PortOf(&'a str),
    Bond,
}

/// Returns the error for a name that is already in use.
fn name_conflict(taken: &HashMap<&str, NameOwner<'_>>, name: &str) -> Option<SwitchError> {
    let name = name.to_owned();
    Some(match taken.get(name.as_str())? {
        NameOwner::Bridge => SwitchError::BridgeExists(name),
        NameOwner::PortOf(bridge) => SwitchError::PortExists { name, bridge: (*bridge).to_owned() },
        NameOwner::Bond => {
            let problem = "a bond has this name: choose another name";
            SwitchError::PortSetting { port: name, problem }
        }
    })
}

/// Checks an MTU; 0 means that the switch does not set it.
fn check_mtu(mtu: u32) -> Result<(), SwitchError> {
    if mtu == 0 || PortOptions::MTUS.contains(&mtu) {
        return Ok(());
    }
    Err(SwitchError::Range { setting: "mtu", value: mtu.to_string(), range: "68 to 65535" })
}

/// The highest VLAN id: 12 bits.
const VLAN_MAX: u16 = 0xfff;

/// Checks a VLAN id.
fn check_vlan(setting: &'static str, vlan: u16) -> Result<(), ConfigError> {
    let (value, range) = (vlan.to_string(), "a VLAN from 0 to 4095");
    ConfigError::check_range(setting, value, vlan <= VLAN_MAX, range)
}

/// Checks the name of a bridge or port, which has at most `bytes_max` bytes.
pub(in crate::config) fn check_name(name: &str, bytes_max: usize) -> Result<(), SwitchError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let length = (1..=bytes_max).contains(&name.len());
    if name.is_empty() {
        return Err(SwitchError::NoName);
    }
    if length && name.bytes().all(legal) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(SwitchError::BadName { name: name.to_owned(), bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BridgeOptions, NAME_BYTES_MAX};

    #[test]
    fn an_invalid_value_is_reported_at_one_position() {
        let mut config = Config::default();
        let error_text = |config: &Config| config.check().unwrap_err().to_string();
        config.caches.idle_ms = 0;
        assert_eq!(error_text(&config), "caches.idle_ms = 0: it must be at least 1");
        config.threads.packet = 0;
        assert_eq!(error_text(&config), "threads.packet = 0: it must be from 1 to 64");
        let mut config = Config::default();
        config.threads.cpus = vec![0, 1023];
        assert!(config.check().is_ok());
        config.threads.cpus.push(4096);
        let expected = "threads.cpus[2] = 4096: it must be the number of a CPU, from 0 to 1023";
        assert_eq!(error_text(&config), expected);
        let bridge = BridgeOptions {
            name: "br0".into(),
            datapath_id: "c1".into(),
            ..BridgeOptions::default()
        };
        let config = Config { bridges: vec![bridge], ..Config::default() };
        let expected = "bridges[0].datapath_id = c1: it must be ";
        assert!(error_text(&config).starts_with(expected), "{}", error_text(&config));
    }

    #[test]
    fn unusable_device_names_are_refused() {
        for (name, ok) in
            [("br0", true), ("a.b-c_d", true), ("", false), ("sixteen-bytes-oo", false)]
        {
            assert_eq!(check_name(name, NAME_BYTES_MAX).is_ok(), ok, "{name}");
        }
        for name in ["br 0", "../x"] {
            assert!(check_name(name, NAME_BYTES_MAX).is_err(), "{name}");
        }
    }

    /// Returns a bridge with some ports.
    fn bridge(name: &str, ports: &[PortOptions]) -> BridgeOptions {
        BridgeOptions { name: name.into(), ports: ports.to_vec(), ..BridgeOptions::default() }
    }

    fn port_named(name: &str) -> PortOptions {
        PortOptions { name: name.into(), ..PortOptions::default() }
    }

    /// Returns a patch port.
    fn patch(name: &str, peer: &str) -> PortOptions {
        PortOptions { kind: PortType::Patch, peer: peer.into(), ..port_named(name) }
    }

    fn error_of(bridges: &[BridgeOptions]) -> String {
        let config = Config { bridges: bridges.to_vec(), ..Config::default() };
        config.check().map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn names_of_bridges_and_ports_are_unique() {
        let (p1, p2) = (port_named("p1"), port_named("p2"));
        let again = bridge("br1", &[p2.clone(), p1.clone()]);
        let twice = error_of(&[bridge("br0", &[p1]), again]);
        assert_eq!(
            twice,
            "bridges[1].ports[1].name: port p1 exists already, on bridge br0: choose another name"
        );
        let bridges = error_of(&[bridge("br0", &[]), bridge("br0", &[])]);
        assert_eq!(bridges, "bridges[1].name: bridge br0 exists already: choose another name");
        let bridge_like_port = error_of(&[bridge("br0", &[p2]), bridge("p2", &[])]);
        assert_eq!(
            bridge_like_port,
            "bridges[1].name: port p2 exists already, on bridge br0: choose another name"
        );
        let port_like_bridge = error_of(&[bridge("br0", &[port_named("br0")])]);
        assert_eq!(
            port_like_bridge,
            "bridges[0].ports[0].name: br0 is the local port of its bridge already: remove this \
             port, and set `local = \"tap\"` in the bridge for a TAP device"
        );
        let port_like_other = error_of(&[bridge("br0", &[]), bridge("br1", &[port_named("br0")])]);
        assert_eq!(
            port_like_other,
            "bridges[1].ports[0].name: bridge br0 exists already: choose another name"
        );
        assert_eq!(
            error_of(&[bridge("", &[])]),
            "bridges[0].name: `name` is missing: give 1 to 15 letters, digits, `-`, `_` or `.`"
        );
    }

    /// A state file of an earlier version is accepted.
    #[test]
    fn af_xdp_port_has_lower_mtu_limit() {
        let port = |kind, mtu| PortOptions { kind, mtu, ..port_named("p1") };
        let config = |port| Config { bridges: vec![bridge("br0", &[port])], ..Config::default() };
        let jumbo = config(port(PortType::AfXdp, 9217));
        assert_eq!(
            error_of(&jumbo.bridges),
            "bridges[0].ports[0].mtu = 9217: it must be 68 to 9216 for an af_xdp port, or 0 for \
             the MTU of the device"
        );
        assert!(jumbo.check_parts().is_ok());
        assert_eq!(error_of(&config(port(PortType::AfXdp, 9216)).bridges), "fine");
        assert_eq!(error_of(&config(port(PortType::AfPacket, 9217)).bridges), "fine");
        assert_eq!(PortOptions::mtus(PortType::AfXdp), 68..=9216);
    }

    #[test]
    fn port_numbers_are_unique_in_a_bridge() {
        let port = |name, number| PortOptions { number, ..port_named(name) };
        let twice = error_of(&[bridge("br0", &[port("a", 3), port("b", 0), port("c", 3)])]);
        assert!(
            twice.starts_with("bridges[0].ports[2].number: number 3 belongs to port a"),
            "{twice}"
        );
        let apart = [bridge("br0", &[port("a", 3), port("b", 0)]), bridge("br1", &[port("c", 3)])];
        assert_eq!(error_of(&apart), "fine");
        assert_eq!(error_of(&[bridge("br0", &[port("a", 0), port("b", 0)])]), "fine");
    }

    #[test]
    fn the_ends_of_a_patch_name_each_other() {
        let ends = |near, far| error_of(&[bridge("br0", &[near]), bridge("br1", &[far])]);
        assert_eq!(ends(patch("a", "b"), patch("b", "a")), "fine");
        let unknown = "bridges[0].ports[0].peer: there is no port c; existing ports: a, b";
        assert_eq!(ends(patch("a", "c"), patch("b", "a")), unknown);
        let no_patch = ends(patch("a", "b"), port_named("b"));
        assert!(
            no_patch.ends_with(
                "port a: the port that `peer` names is not a patch port: set its `type` to patch"
            ),
            "{no_patch}"
        );
        let own = ends(patch("a", "a"), patch("b", "a"));
        assert!(
            own.ends_with("port a: `peer` is the port itself: name another patch port"),
            "{own}"
        );
        let three = [bridge("br0", &[patch("a", "b"), patch("b", "a"), patch("c", "a")])];
        assert!(error_of(&three).starts_with("bridges[0].ports[2].peer: port c"), "{three:?}");
    }

    #[test]
    fn a_mistake_has_a_position() {
        let place =
            |bridge: BridgeOptions| error_of(&[BridgeOptions { name: "br0".into(), ..bridge }]);
        let bad = || vec!["ptcp:6653".to_owned(), "tcp:1.2.3".to_owned()];
        let listen = place(BridgeOptions { listen: bad(), ..BridgeOptions::default() });
        assert!(listen.starts_with("bridges[0].listen[1]: bridge br0: `tcp:1.2.3`"), "{listen}");
        let controllers = place(BridgeOptions { controllers: bad(), ..BridgeOptions::default() });
        assert_eq!(
            controllers,
            "bridges[0].controllers[0]: bridge br0: `ptcp:6653`: `controllers` takes tcp:IP:PORT, \
             such as tcp:127.0.0.1:6653"
        );
        let twice = vec!["tcp:1.2.3.4".to_owned(), "tcp:1.2.3.4:6653".to_owned()];
        let twice = place(BridgeOptions { controllers: twice, ..BridgeOptions::default() });
        assert_eq!(
            twice,
            "bridges[0].controllers[1]: bridge br0: `tcp:1.2.3.4:6653` is given twice: remove one \
             of them"
        );
        let mac = place(BridgeOptions { mac: "1:2".into(), ..BridgeOptions::default() });
        assert!(mac.starts_with("bridges[0].mac = 1:2: it must be "), "{mac}");
    }

    #[test]
    fn a_patch_may_precede_its_far_end() {
        let bridges = vec![bridge("br0", &[patch("a", "b")])];
        let config = Config { bridges, ..Config::default() };
        assert!(config.check_parts().is_ok() && config.check().is_err());
    }
}
