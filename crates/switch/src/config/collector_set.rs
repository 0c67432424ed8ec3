//! The configuration of sets of IPFIX collectors, for the action `sample` of rules.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use shunt_flow_export::ipfix::IpfixExporter;

use super::{
    collectors::CollectorKey,
    ipfix::{CACHE_FLOWS_MAX, CACHE_TIMEOUT_MAX},
};
use crate::{config::ConfigError, error::SwitchError};

/// The options of a set of IPFIX collectors.
///
/// The collectors get the packets that rules sample. The options have the names of the OVSDB tables
/// `Flow_Sample_Collector_Set` and `IPFIX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectorSetOptions {
    /// Number of the set that rules name (`collector_set_id`): unique in the bridge.
    pub id: u32,
    /// Collectors, as `IP` or `IP:PORT`.
    pub targets: Vec<String>,
    /// Seconds for which samples are collected into a flow; 0: each sample is a flow.
    pub cache_active_timeout: u32,
    /// Maximum number of flows that are not reported yet; 0: each sample is a flow.
    pub cache_max_flows: u32,
    /// Text in each record that names the observation point; empty: none.
    pub virtual_obs_id: String,
}

/// The configuration key of the collectors;
/// the default UDP port is registered at IANA.
const COLLECTORS: CollectorKey = CollectorKey {
    section: "",
    setting: "targets",
    port: 4739,
    range: "an IP address with or without a port from 1 to 65535, such as \
            192.0.2.1:4739 or [2001:db8::1]:4739",
};

impl CollectorSetOptions {
    /// Maximum number of sets of collectors of a bridge.
    pub const COUNT_MAX: usize = 64;

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

    /// Checks the options that concern this set alone.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub fn check(&self) -> Result<(), ConfigError> {
        COLLECTORS.check(&self.targets)?;
        let range = ConfigError::check_range;
        let has_targets = !self.targets.is_empty();
        let allowed = "a list of at least one collector: add an address, such as 192.0.2.1";
        range("targets", "[]".to_owned(), has_targets, allowed)?;
        let (timeout, flows) = (self.cache_active_timeout, self.cache_max_flows);
        let is_possible = timeout <= CACHE_TIMEOUT_MAX;
        range("cache_active_timeout", timeout.to_string(), is_possible, "from 0 to 4200")?;
        let is_possible = flows <= CACHE_FLOWS_MAX;
        range("cache_max_flows", flows.to_string(), is_possible, "from 0 to 1048576")?;
        let id = &self.virtual_obs_id;
        let is_possible = id.len() <= IpfixExporter::VIRTUAL_ID_MAX;
        range("virtual_obs_id", id.clone(), is_possible, "at most 254 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_collector_sets_are_refused() {
        let check = |options: CollectorSetOptions| match options.check() {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let on = || CollectorSetOptions { targets: vec!["192.0.2.1".into()], ..Default::default() };
        assert_eq!(check(on()), "fine");
        let text = check(CollectorSetOptions { targets: Vec::new(), ..on() });
        let expected = "targets = []: it must be a list of at least one collector: add an address, \
                        such as 192.0.2.1";
        assert_eq!(text, expected);
        let text = check(CollectorSetOptions { cache_active_timeout: 4201, ..on() });
        assert!(text.ends_with("it must be from 0 to 4200"), "{text}");
        let text = check(CollectorSetOptions { targets: vec!["x".into()], ..on() });
        assert!(text.starts_with("targets[0] = x: it must be an IP address"), "{text}");
    }
}
