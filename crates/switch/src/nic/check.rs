//! What the configuration of a NIC must fulfil beyond its grammar.

use std::net::SocketAddr;

use shunt_p4runtime::program::Program;

use super::NUMBER_MAX;
use crate::config::{ConfigError, OffloadKind, StalePolicy, Target};

/// Milliseconds within which a packet leaves any NIC: so long somebody waits who has another after none.
const DRAIN_MAX_MS: u64 = 10_000;

/// Most entries of a stage.
const TARGET_ENTRIES_MAX: u32 = 1 << 20;

impl Target {
    /// Checks what a target says by itself.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let range = ConfigError::unless_in_range;
        let (setting, stages) = ("caches.gigaflow.target.stages", self.stages);
        let (stages_ok, range_text) = ((1..=Program::STAGES_MAX).contains(&stages), "from 1 to 16");
        range(setting, stages.to_string(), stages_ok, range_text)?;
        let (setting, entries) = ("caches.gigaflow.target.stage_entries", self.stage_entries);
        let entries_ok = (1..=TARGET_ENTRIES_MAX).contains(&entries);
        range(setting, entries.to_string(), entries_ok, "from 1 to 1048576")?;
        let (setting, address) = ("caches.gigaflow.target.address", &self.address);
        let parsed = address.parse::<SocketAddr>();
        let is_ok = match self.kind {
            OffloadKind::P4runtime => parsed.is_ok_and(|address| address.port() != 0),
            OffloadKind::Embedded | OffloadKind::None => parsed.is_ok(),
        };
        let form = match self.kind {
            OffloadKind::P4runtime => "the address and the port of a NIC, such as 192.0.2.7:9559",
            OffloadKind::Embedded | OffloadKind::None => {
                "an address and a port, such as 127.0.0.1:0"
            }
        };
        range(setting, address.clone(), is_ok, form)?;
        let (setting, stale) = ("caches.gigaflow.target.stale", self.stale);
        // To close representors stops what misses, and leaves on what the NIC forwards by stale rules.
        let stale_ok = self.kind != OffloadKind::P4runtime || stale == StalePolicy::Report;
        range(setting, "ports-down".to_owned(), stale_ok, "report, with a NIC elsewhere")?;
        let (setting, drain) = ("caches.gigaflow.target.drain_ms", self.drain_ms);
        range(setting, drain.to_string(), drain <= DRAIN_MAX_MS, "at most 10000")?;
        let (setting, high) = ("caches.gigaflow.target.ports", NUMBER_MAX);
        match self.ports.iter().find(|number| !(1..=high).contains(number)) {
            Some(number) => range(setting, number.to_string(), false, "numbers from 1 to 65279"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bridge, Config};

    #[test]
    fn a_target_has_a_bridge_an_address_and_numbers_that_a_nic_has() {
        let complaint = |target: Target| {
            let mut config = Config { bridges: vec![bridge()], ..Config::default() };
            config.caches.gigaflow.target = target;
            config.check().map_or_else(|error| error.to_string(), |()| "fine".into())
        };
        let embedded = || Target { kind: OffloadKind::Embedded, ..Target::default() };
        let elsewhere = |address: &str| Target {
            kind: OffloadKind::P4runtime,
            address: address.into(),
            ..Target::default()
        };
        assert_eq!(complaint(embedded()), "fine");
        assert_eq!(complaint(elsewhere("[::1]:9559")), "fine");
        let is_at = |target, field: &str| {
            let text = complaint(target);
            let place = format!("caches.gigaflow.target.{field} = ");
            assert!(text.starts_with(&place), "{place}{text}");
        };
        is_at(elsewhere("127.0.0.1:0"), "address");
        is_at(Target { address: "nic0".into(), ..embedded() }, "address");
        is_at(Target { stale: StalePolicy::PortsDown, ..elsewhere("[::1]:9559") }, "stale");
        assert_eq!(complaint(Target { stale: StalePolicy::PortsDown, ..embedded() }), "fine");
        is_at(Target { stages: 17, ..embedded() }, "stages");
        is_at(Target { stage_entries: 0, ..embedded() }, "stage_entries");
        is_at(Target { drain_ms: 10_001, ..embedded() }, "drain_ms");
        is_at(Target { ports: vec![1, 65280], ..embedded() }, "ports");
        let mut config = Config::default();
        config.caches.gigaflow.target = embedded();
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("caches.gigaflow.target.bridge = "), "{error}");
        config.caches.gigaflow.target.bridge = "br7".into();
        assert!(config.check().is_ok(), "it may come later");
        config.bridges.push(bridge());
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("br7"), "{error}");
        config.caches.gigaflow.target.bridge = "br0".into();
        assert!(config.check().is_ok());
    }

    fn bridge() -> Bridge {
        Bridge { name: "br0".into(), ..Bridge::default() }
    }
}
