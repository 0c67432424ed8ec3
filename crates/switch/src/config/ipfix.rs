//! The configuration of IPFIX.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use shunt_flow_export::ipfix::IpfixExporter;

use super::collectors::CollectorKey;
use crate::{config::ConfigError, error::SwitchError};

/// The options of IPFIX, with the names of the table `IPFIX` of OVSDB.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IpfixOptions {
    /// Collectors, as `IP` or `IP:PORT`; empty: IPFIX is off.
    pub targets: Vec<String>,
    /// One packet in `sampling` is sampled.
    pub sampling: u32,
    /// Observation domain ID in the messages.
    pub obs_domain_id: u32,
    /// Observation point ID in the records.
    pub obs_point_id: u32,
    /// Text in each record that names the observation point; empty: none.
    pub virtual_obs_id: String,
    /// Seconds for which samples are collected into a flow; 0: each sample is a flow.
    pub cache_active_timeout: u32,
    /// Maximum number of flows that are not reported yet; 0: each sample is a flow.
    pub cache_max_flows: u32,
}

impl Default for IpfixOptions {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            sampling: 400,
            obs_domain_id: 0,
            obs_point_id: 0,
            virtual_obs_id: String::new(),
            cache_active_timeout: 0,
            cache_max_flows: 0,
        }
    }
}

/// The configuration key of the collectors;
/// the default UDP port is registered at IANA.
const COLLECTORS: CollectorKey = CollectorKey {
    section: "ipfix",
    setting: "ipfix.targets",
    port: 4739,
    range: "an IP address with or without a port from 1 to 65535, such as \
            192.0.2.1:4739 or [2001:db8::1]:4739",
};

/// The largest `cache_active_timeout` in seconds.
pub(super) const CACHE_TIMEOUT_MAX: u32 = 4200;
pub(super) const CACHE_FLOWS_MAX: u32 = 1 << 20;

impl IpfixOptions {
    /// Returns whether IPFIX is on.
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

    /// Returns the time for which samples are collected into a flow.
    #[must_use]
    pub fn active_timeout(&self) -> Duration {
        Duration::from_secs(self.cache_active_timeout.into())
    }

    /// Checks the options of IPFIX.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub fn check(&self) -> Result<(), ConfigError> {
        COLLECTORS.check(&self.targets)?;
        let (range, sampling) = (ConfigError::check_range, self.sampling);
        range("ipfix.sampling", sampling.to_string(), sampling > 0, "from 1 to 4294967295")?;
        let (timeout, flows) = (self.cache_active_timeout, self.cache_max_flows);
        let is_possible = timeout <= CACHE_TIMEOUT_MAX;
        range("ipfix.cache_active_timeout", timeout.to_string(), is_possible, "from 0 to 4200")?;
        let is_possible = flows <= CACHE_FLOWS_MAX;
        range("ipfix.cache_max_flows", flows.to_string(), is_possible, "from 0 to 1048576")?;
        let id = &self.virtual_obs_id;
        let is_possible = id.len() <= IpfixExporter::VIRTUAL_ID_MAX;
        range("ipfix.virtual_obs_id", id.clone(), is_possible, "at most 254 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_ipfix_options_are_refused() {
        let check = |options: IpfixOptions| match options.check() {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let on = || IpfixOptions { targets: vec!["192.0.2.1".into()], ..IpfixOptions::default() };
        assert_eq!(check(on()), "fine");
        assert_eq!(
            check(IpfixOptions { sampling: 0, ..on() }),
            "ipfix.sampling = 0: it must be from 1 to 4294967295"
        );
        let text = check(IpfixOptions { cache_active_timeout: 4201, ..on() });
        assert!(text.ends_with("it must be from 0 to 4200"), "{text}");
        let text = check(IpfixOptions { cache_max_flows: 1 << 21, ..on() });
        assert!(text.ends_with("it must be from 0 to 1048576"), "{text}");
        let virtual_obs_id = "a".repeat(255);
        let text = check(IpfixOptions { virtual_obs_id, ..on() });
        assert!(text.ends_with("it must be at most 254 bytes"), "{text}");
        let text = check(IpfixOptions { targets: vec!["x".into()], ..on() });
        assert!(text.starts_with("ipfix.targets[0] = x: it must be an IP address"), "{text}");
    }
}
