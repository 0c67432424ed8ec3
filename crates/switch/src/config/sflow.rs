//! The configuration of sFlow.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use shunt_datapath::sample::SAMPLE_HEADER_MAX;

use crate::{config::ConfigError, error::SwitchError};

/// The options of sFlow, with the names of the table `sFlow` of OVSDB.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SflowOptions {
    /// Collectors, as `IP` or `IP:PORT`; empty: sFlow is off.
    pub targets: Vec<String>,
    /// IP address in the datagrams, or the network device that has it.
    ///
    /// Empty: the local address of the route to the first collector.
    pub agent: String,
    /// One packet in `sampling` is sampled.
    pub sampling: u32,
    /// Seconds between two reports of the counters of each port; 0: none.
    pub polling: u32,
    /// Maximum number of bytes of a sampled packet that are sent.
    pub header: u32,
}

impl Default for SflowOptions {
    fn default() -> Self {
        Self { targets: Vec::new(), agent: String::new(), sampling: 400, polling: 30, header: 128 }
    }
}

/// The UDP port of sFlow collectors (registered at IANA).
const SFLOW_PORT: u16 = 6343;

/// The most collectors of a bridge.
const TARGETS_MAX: usize = 16;

/// The least number of bytes of a sampled packet: its Ethernet header.
const HEADER_MIN: u32 = 14;

const _: () = assert!(SAMPLE_HEADER_MAX == 256, "the range of `header` says so");

impl SflowOptions {
    /// Returns whether samples are sent.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Returns the addresses of the collectors.
    ///
    /// # Errors
    ///
    /// If a target is not an address.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, SwitchError> {
        self.targets.iter().map(|target| address(target)).collect()
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first mistake, with its key.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (index, target) in self.targets.iter().enumerate() {
            address(target).map_err(|problem| {
                ConfigError::of_element("targets", index, problem).under("sflow")
            })?;
        }
        let range = ConfigError::check_range;
        let (count, header) = (self.targets.len(), self.header);
        range("sflow.targets", count.to_string(), count <= TARGETS_MAX, "at most 16 collectors")?;
        let sampling = self.sampling;
        range("sflow.sampling", sampling.to_string(), sampling > 0, "from 1 to 4294967295")?;
        let is_possible = (HEADER_MIN..=256).contains(&header);
        range("sflow.header", header.to_string(), is_possible, "from 14 to 256")
    }
}

/// Parses the address of a collector.
fn address(target: &str) -> Result<SocketAddr, SwitchError> {
    let bare = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ip = bare.unwrap_or(target).parse::<IpAddr>();
    let parsed = ip.map(|ip| SocketAddr::new(ip, SFLOW_PORT)).or_else(|_| target.parse());
    parsed.map_err(|_| SwitchError::Range {
        setting: "sflow.targets",
        value: target.to_owned(),
        range: "an IP address with or without a port, such as 192.0.2.1:6343 or [2001:db8::1]:6343",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses() {
        let text = |target: &str| address(target).map(|own| own.to_string()).unwrap_or_default();
        assert_eq!(text("192.0.2.1"), "192.0.2.1:6343");
        assert_eq!(text("192.0.2.1:99"), "192.0.2.1:99");
        assert_eq!(text("2001:db8::1"), "[2001:db8::1]:6343");
        assert_eq!(text("[2001:db8::1]"), "[2001:db8::1]:6343");
        assert_eq!(text("[2001:db8::1]:99"), "[2001:db8::1]:99");
        for wrong in ["", "collector", "collector:6343", "192.0.2.1:", "192.0.2.1:70000"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        let check = |options: SflowOptions| match options.check() {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let on = || SflowOptions { targets: vec!["192.0.2.1".into()], ..SflowOptions::default() };
        assert_eq!(check(on()), "fine");
        assert_eq!(check(SflowOptions { polling: 0, sampling: 1, ..on() }), "fine");
        assert_eq!(
            check(SflowOptions { sampling: 0, ..on() }),
            "sflow.sampling = 0: it must be from 1 to 4294967295"
        );
        for header in [13, 257] {
            assert!(check(SflowOptions { header, ..on() }).starts_with("sflow.header = "));
        }
        let wrong = SflowOptions { targets: vec!["192.0.2.1".into(), "x".into()], ..on() };
        let text = check(wrong);
        assert!(text.starts_with("sflow.targets[1] = x: it must be an IP address"), "{text}");
        let many = SflowOptions { targets: vec!["192.0.2.1".into(); 17], ..on() };
        assert!(check(many).ends_with("at most 16 collectors"));
    }
}
