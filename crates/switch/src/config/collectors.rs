//! The addresses of collectors in the configuration.

use std::net::{IpAddr, SocketAddr};

use crate::{config::ConfigError, error::SwitchError};

/// The configuration key that lists the collectors of a protocol.
pub(super) struct CollectorKey {
    /// Section of the bridge; empty: the key belongs to an element of a list.
    pub(super) section: &'static str,
    /// The section and the key in error messages.
    pub(super) setting: &'static str,
    /// UDP port of collectors that are configured without a port.
    pub(super) port: u16,
    /// The possible values, as errors describe them.
    pub(super) range: &'static str,
}

/// Maximum number of collectors of a bridge for one protocol.
const TARGETS_MAX: usize = 16;

impl CollectorKey {
    /// Parses the addresses of collectors.
    pub(super) fn addresses(&self, targets: &[String]) -> Result<Vec<SocketAddr>, SwitchError> {
        targets.iter().map(|target| self.address(target)).collect()
    }

    /// Checks the number of the collectors, and the address of each.
    pub(super) fn check(&self, targets: &[String]) -> Result<(), ConfigError> {
        for (index, target) in targets.iter().enumerate() {
            self.address(target).map_err(|problem| {
                let error = ConfigError::of_element("targets", index, problem);
                if self.section.is_empty() { error } else { error.under(self.section) }
            })?;
        }
        let count = targets.len();
        let is_possible = count <= TARGETS_MAX;
        ConfigError::check_range(
            self.setting,
            count.to_string(),
            is_possible,
            "at most 16 collectors",
        )
    }

    /// Parses the address of a collector.
    fn address(&self, target: &str) -> Result<SocketAddr, SwitchError> {
        let bare = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let ip = bare.unwrap_or(target).parse::<IpAddr>();
        let parsed = ip.map(|ip| SocketAddr::new(ip, self.port)).or_else(|_| target.parse());
        // The system refuses to send to port 0.
        let address = parsed.ok().filter(|address| address.port() != 0);
        address.ok_or_else(|| SwitchError::Range {
            setting: self.setting,
            value: target.to_owned(),
            range: self.range,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_targets_must_be_addresses() {
        let key =
            CollectorKey { section: "sflow", setting: "sflow.targets", port: 6343, range: "" };
        let text =
            |target: &str| key.address(target).map(|own| own.to_string()).unwrap_or_default();
        assert_eq!(text("192.0.2.1"), "192.0.2.1:6343");
        assert_eq!(text("192.0.2.1:99"), "192.0.2.1:99");
        assert_eq!(text("2001:db8::1"), "[2001:db8::1]:6343");
        assert_eq!(text("[2001:db8::1]"), "[2001:db8::1]:6343");
        assert_eq!(text("[2001:db8::1]:99"), "[2001:db8::1]:99");
        for wrong in [
            "",
            "collector",
            "collector:6343",
            "192.0.2.1:",
            "192.0.2.1:0",
            "[2001:db8::1]:0",
            "192.0.2.1:70000",
        ] {
            assert!(key.address(wrong).is_err(), "{wrong}");
        }
    }
}
