//! Checks of the options of a NIC beyond their syntax.

use std::{fs::File, net::SocketAddr};

use shunt_p4runtime::program::Program;

use super::{EXTERNAL_NUMBER_MAX, NUMBER_MAX};
use crate::{
    config::{ConfigError, OffloadKind, OffloadOptions, StalePolicy},
    error::SwitchError,
};

/// Maximum of `drain_ms`; enabling a NIC again may wait this long.
const DRAIN_MAX_MS: u64 = 10_000;

/// Maximum number of entries in a stage of a NIC.
const STAGE_ENTRIES_MAX: u32 = 1 << 20;

impl OffloadOptions {
    /// Checks the options of a NIC, apart from its bridge.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let range = ConfigError::check_range;
        let (setting, stages) = ("caches.gigaflow.offload.stages", self.stages);
        let (stages_ok, range_text) = ((1..=Program::STAGES_MAX).contains(&stages), "from 1 to 16");
        range(setting, stages.to_string(), stages_ok, range_text)?;
        let (setting, entries) = ("caches.gigaflow.offload.stage_entries", self.stage_entries);
        let entries_ok = (1..=STAGE_ENTRIES_MAX).contains(&entries);
        range(setting, entries.to_string(), entries_ok, "from 1 to 1048576")?;
        let (setting, address) = ("caches.gigaflow.offload.address", &self.address);
        let parsed = address.parse::<SocketAddr>();
        if self.kind == OffloadKind::P4runtime && *address == Self::default().address {
            return Err(ConfigError::at(setting, SwitchError::NoNicAddress));
        }
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
        self.check_device_config()?;
        let (setting, stale) = ("caches.gigaflow.offload.stale", self.stale);
        // Closing the representors of an external NIC would stop the packets that miss, but not the
        // packets that the NIC forwards with stale entries.
        let stale_ok = self.kind != OffloadKind::P4runtime || stale == StalePolicy::Report;
        range(setting, "ports-down".to_owned(), stale_ok, "report for an external NIC")?;
        let (setting, drain) = ("caches.gigaflow.offload.drain_ms", self.drain_ms);
        range(setting, drain.to_string(), drain <= DRAIN_MAX_MS, "at most 10000")?;
        self.check_ports()
    }

    /// Checks that the NIC can name the ports in its list.
    fn check_ports(&self) -> Result<(), ConfigError> {
        let has_nine_bits =
            self.kind == OffloadKind::P4runtime && self.device_config.as_os_str().is_empty();
        let (high, text) = if has_nine_bits {
            // The P4 program would send to the port with the low nine bits of the number.
            (
                EXTERNAL_NUMBER_MAX,
                "numbers from 1 to 509, since the P4 program has port numbers of nine bits: give the \
                 port another `number`, or name the program of a NIC with longer ones as \
                 `device_config`",
            )
        } else {
            (NUMBER_MAX, "numbers from 1 to 65279")
        };
        let wrong = self.ports.iter().find(|number| !(1..=high).contains(number));
        let Some(wrong) = wrong else { return Ok(()) };
        ConfigError::check_range("caches.gigaflow.offload.ports", wrong.to_string(), false, text)
    }

    /// Checks the path of the device configuration of an external NIC.
    fn check_device_config(&self) -> Result<(), ConfigError> {
        let (setting, path) = ("caches.gigaflow.offload.device_config", &self.device_config);
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let value = path.display().to_string();
        let is_external = self.kind != OffloadKind::Embedded;
        let range = "empty for an embedded NIC, which has its program built in";
        ConfigError::check_range(setting, value.clone(), is_external, range)?;
        // The daemon may change its working directory, and the path may be set by another process.
        let range = "an absolute path, such as /etc/shunt/gigaflow.bin";
        ConfigError::check_range(setting, value, path.is_absolute(), range)?;
        if self.is_none() {
            return Ok(());
        }
        match File::open(path) {
            Ok(_) => Ok(()),
            Err(source) => {
                let doing = format!("read {}", path.display());
                Err(ConfigError::at(setting, SwitchError::System { doing, source }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BridgeOptions, Config};

    #[test]
    fn wrong_offload_options_are_refused() {
        let error_text = |target: OffloadOptions| {
            let mut config = Config { bridges: vec![bridge()], ..Config::default() };
            config.caches.gigaflow.offload = target;
            config.check().map_or_else(|error| error.to_string(), |()| "fine".into())
        };
        let embedded =
            || OffloadOptions { kind: OffloadKind::Embedded, ..OffloadOptions::default() };
        let elsewhere = |address: &str| OffloadOptions {
            kind: OffloadKind::P4runtime,
            address: address.into(),
            ..OffloadOptions::default()
        };
        assert_eq!(error_text(embedded()), "fine");
        assert_eq!(error_text(elsewhere("[::1]:9559")), "fine");
        let is_at = |target, field: &str| {
            let text = error_text(target);
            let place = format!("caches.gigaflow.offload.{field} = ");
            assert!(text.starts_with(&place), "{place}{text}");
        };
        assert_eq!(
            error_text(elsewhere(&OffloadOptions::default().address)),
            "caches.gigaflow.offload.address: the offload kind p4runtime needs the `address` of \
             the NIC, such as 192.0.2.7:9559"
        );
        is_at(elsewhere("127.0.0.2:0"), "address");
        is_at(OffloadOptions { address: "nic0".into(), ..embedded() }, "address");
        is_at(OffloadOptions { stale: StalePolicy::PortsDown, ..elsewhere("[::1]:9559") }, "stale");
        assert_eq!(
            error_text(OffloadOptions { stale: StalePolicy::PortsDown, ..embedded() }),
            "fine"
        );
        let with_file =
            |path: &str, options| OffloadOptions { device_config: path.into(), ..options };
        is_at(with_file("/dev/null", embedded()), "device_config");
        is_at(with_file("gigaflow.bin", elsewhere("[::1]:9559")), "device_config");
        assert_eq!(error_text(with_file("/dev/null", elsewhere("[::1]:9559"))), "fine");
        assert_eq!(
            error_text(with_file("/no/such.bin", elsewhere("[::1]:9559"))),
            "caches.gigaflow.offload.device_config: cannot read /no/such.bin: No such file or \
             directory (os error 2)"
        );
        is_at(OffloadOptions { stages: 17, ..embedded() }, "stages");
        is_at(OffloadOptions { stage_entries: 0, ..embedded() }, "stage_entries");
        is_at(OffloadOptions { drain_ms: 10_001, ..embedded() }, "drain_ms");
        is_at(OffloadOptions { ports: vec![1, 65280], ..embedded() }, "ports");
        assert_eq!(error_text(OffloadOptions { ports: vec![514], ..embedded() }), "fine");
        let external =
            |ports: &[u32]| OffloadOptions { ports: ports.to_vec(), ..elsewhere("[::1]:9559") };
        assert_eq!(error_text(external(&[1, 509])), "fine");
        let refused = error_text(external(&[514]));
        assert!(refused.starts_with("caches.gigaflow.offload.ports = 514: "), "{refused}");
        assert!(refused.contains("from 1 to 509"), "{refused}");
        assert_eq!(error_text(with_file("/dev/null", external(&[514]))), "fine");
        let mut config = Config::default();
        config.caches.gigaflow.offload = embedded();
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("caches.gigaflow.offload.bridge = "), "{error}");
        config.caches.gigaflow.offload.bridge = "br7".into();
        assert!(config.check().is_ok(), "the bridge may be added later");
        config.bridges.push(bridge());
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("br7"), "{error}");
        config.caches.gigaflow.offload.bridge = "br0".into();
        assert!(config.check().is_ok());
    }

    /// Returns the options of a bridge.
    fn bridge() -> BridgeOptions {
        BridgeOptions { name: "br0".into(), ..BridgeOptions::default() }
    }
}
