//! The configuration of sFlow.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use shunt_datapath::sample::SAMPLE_HEADER_MAX;

use super::collectors::CollectorKey;
use crate::{config::ConfigError, error::SwitchError};

/// The options of sFlow, with the names of the table `sFlow` of OVSDB.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SflowOptions {
    /// Collectors, as `IP` or `IP:PORT`; empty: sFlow is off.
    pub targets: Vec<String>,
    /// IP address of the agent in the datagrams,
    /// or the network device that has the address.
    ///
    /// Empty: the source address of the route to the first collector.
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

/// The configuration key of the collectors;
/// the default UDP port is registered at IANA.
const COLLECTORS: CollectorKey = CollectorKey {
    section: "sflow",
    setting: "sflow.targets",
    port: 6343,
    range: "an IP address with or without a port from 1 to 65535, such as \
            192.0.2.1:6343 or [2001:db8::1]:6343",
};

/// The least `header`: the length of the Ethernet header.
const HEADER_MIN: u32 = 14;

const _: () = assert!(SAMPLE_HEADER_MAX == 256, "the documented range of `header` ends at 256");

impl SflowOptions {
    /// Returns whether sFlow is on.
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
        COLLECTORS.addresses(&self.targets)
    }

    /// Checks the options of sFlow.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub fn check(&self) -> Result<(), ConfigError> {
        COLLECTORS.check(&self.targets)?;
        let (range, header) = (ConfigError::check_range, self.header);
        let sampling = self.sampling;
        range("sflow.sampling", sampling.to_string(), sampling > 0, "from 1 to 4294967295")?;
        let is_possible = (HEADER_MIN..=256).contains(&header);
        range("sflow.header", header.to_string(), is_possible, "from 14 to 256")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
