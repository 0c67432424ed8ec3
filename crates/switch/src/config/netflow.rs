//! The configuration of NetFlow.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use super::collectors::CollectorKey;
use crate::{config::ConfigError, error::SwitchError};

/// The options of NetFlow, with the names of the table `NetFlow` of OVSDB.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetflowOptions {
    /// Collectors, as `IP` or `IP:PORT`; empty: NetFlow is off.
    pub targets: Vec<String>,
    /// Seconds after which a flow that has not ended is reported.
    ///
    /// 0: 600 seconds; -1: a flow is reported only when it ends.
    pub active_timeout: i32,
    /// Engine type in the datagrams.
    pub engine_type: u8,
    /// Engine number in the datagrams; -1: the number of the bridge.
    pub engine_id: i32,
    /// True if port numbers in records begin with the low 7 bits of the engine number.
    ///
    /// The other 9 bits are the low bits of the port number.
    pub add_id_to_interface: bool,
}

impl Default for NetflowOptions {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            active_timeout: ACTIVE_TIMEOUT_DEFAULT,
            engine_type: 0,
            engine_id: -1,
            add_id_to_interface: false,
        }
    }
}

/// Seconds of the active timeout, as in Open vSwitch.
const ACTIVE_TIMEOUT_DEFAULT: i32 = 600;

/// The configuration key of the collectors.
///
/// NetFlow has no registered UDP port; most collectors listen on this default port.
const COLLECTORS: CollectorKey = CollectorKey {
    section: "netflow",
    setting: "netflow.targets",
    port: 2055,
    range: "an IP address with or without a port from 1 to 65535, such as \
            192.0.2.1:2055 or [2001:db8::1]:2055",
};

impl NetflowOptions {
    /// Returns whether NetFlow is on.
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

    /// Returns the time after which a flow that has not ended is reported.
    ///
    /// `None`: a flow is reported only when it ends.
    #[must_use]
    pub fn active_timeout(&self) -> Option<Duration> {
        let seconds = match self.active_timeout {
            0 => ACTIVE_TIMEOUT_DEFAULT,
            seconds => seconds,
        };
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    /// Returns the engine number for a bridge with the number `bridge`.
    #[must_use]
    pub fn engine_of(&self, bridge: u16) -> u8 {
        let [_, low] = bridge.to_be_bytes();
        u8::try_from(self.engine_id).unwrap_or(low)
    }

    /// Checks the options of NetFlow.
    ///
    /// # Errors
    ///
    /// The first mistake, with the key of the option.
    pub fn check(&self) -> Result<(), ConfigError> {
        COLLECTORS.check(&self.targets)?;
        let range = ConfigError::check_range;
        let (timeout, engine) = (self.active_timeout, self.engine_id);
        range(
            "netflow.active_timeout",
            timeout.to_string(),
            timeout >= -1,
            "from -1 to 2147483647",
        )?;
        let is_possible = (-1..=255).contains(&engine);
        range("netflow.engine_id", engine.to_string(), is_possible, "from -1 to 255")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_netflow_options_are_refused() {
        let check = |options: NetflowOptions| match options.check() {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let on =
            || NetflowOptions { targets: vec!["192.0.2.1".into()], ..NetflowOptions::default() };
        assert_eq!(check(on()), "fine");
        assert_eq!(check(NetflowOptions { active_timeout: -1, engine_id: 255, ..on() }), "fine");
        assert_eq!(
            check(NetflowOptions { active_timeout: -2, ..on() }),
            "netflow.active_timeout = -2: it must be from -1 to 2147483647"
        );
        for engine_id in [-2, 256] {
            let text = check(NetflowOptions { engine_id, ..on() });
            assert!(text.ends_with("it must be from -1 to 255"), "{text}");
        }
        let wrong = NetflowOptions { targets: vec!["192.0.2.1".into(), "x".into()], ..on() };
        let text = check(wrong);
        assert!(text.starts_with("netflow.targets[1] = x: it must be an IP address"), "{text}");
        let many = NetflowOptions { targets: vec!["192.0.2.1".into(); 17], ..on() };
        assert!(check(many).ends_with("at most 16 collectors"));
    }

    #[test]
    fn special_values_are_those_of_open_vswitch() {
        let timeout = |active_timeout| {
            NetflowOptions { active_timeout, ..NetflowOptions::default() }.active_timeout()
        };
        assert_eq!(timeout(0), Some(Duration::from_secs(600)));
        assert_eq!((timeout(7), timeout(-1)), (Some(Duration::from_secs(7)), None));
        let engine =
            |engine_id| NetflowOptions { engine_id, ..NetflowOptions::default() }.engine_of(0x103);
        assert_eq!((engine(-1), engine(0), engine(255)), (3, 0, 255));
    }
}
