//! The configuration of the BFD session of a port.

use std::{
    net::Ipv4Addr,
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use shunt_bfd::{BfdAddresses, BfdSettings};

use crate::{
    config::{PortOptions, PortType, mac::parse_any_mac},
    error::SwitchError,
};

/// The BFD session of a port (`bfd` of `Interface` in `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BfdOptions {
    /// True if the port has a BFD session.
    /// Without `enable`, the other keys have no effect.
    pub enable: bool,
    /// Minimum time between two sent packets in milliseconds.
    pub min_tx_ms: u32,
    /// Minimum time between two received packets in milliseconds.
    pub min_rx_ms: u32,
    /// Value of `min_rx_ms` while the port receives few other packets.
    ///
    /// 0: `min_rx_ms` always applies.
    pub decay_min_rx_ms: u32,
    /// Detection multiplier: losing this number of packets in a row ends the session.
    pub mult: u8,
    /// True if received packets of any kind keep the port in use.
    pub forwarding_if_rx: bool,
    /// True to report to the other end that the path behind this port has failed.
    pub cpath_down: bool,
    /// True if packets of a tunnel need the tunnel id 0;
    /// without effect, as there are no tunnels.
    pub check_tnl_key: bool,
    /// True to mark packets in tunnels as OAM packets; without effect: no tunnels.
    pub oam: bool,
    /// Source MAC address of sent packets; empty: the MAC address of the port.
    pub local_src_mac: String,
    /// Destination MAC address of sent packets; empty: 00:23:20:00:00:01.
    pub local_dst_mac: String,
    /// Destination MAC address of packets that the session accepts; empty: any.
    pub remote_dst_mac: String,
    /// IPv4 source address of sent packets.
    pub src_ip: Ipv4Addr,
    /// IPv4 destination address of sent packets.
    pub dst_ip: Ipv4Addr,
}

impl Default for BfdOptions {
    /// Returns a session with the default values of Open vSwitch.
    fn default() -> Self {
        Self {
            enable: true,
            min_tx_ms: 100,
            min_rx_ms: 1000,
            decay_min_rx_ms: 0,
            mult: 3,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tnl_key: false,
            oam: false,
            local_src_mac: String::new(),
            local_dst_mac: String::new(),
            remote_dst_mac: String::new(),
            src_ip: BfdAddresses::SOURCE_IP,
            dst_ip: BfdAddresses::DESTINATION_IP,
        }
    }
}

impl BfdOptions {
    /// The keys of a BFD session in the configuration.
    pub const KEYS: &[&str] = &[
        "enable",
        "min_tx_ms",
        "min_rx_ms",
        "decay_min_rx_ms",
        "mult",
        "forwarding_if_rx",
        "cpath_down",
        "check_tnl_key",
        "oam",
        "local_src_mac",
        "local_dst_mac",
        "remote_dst_mac",
        "src_ip",
        "dst_ip",
    ];

    /// The longest interval in milliseconds that a control packet can contain.
    pub const INTERVAL_MS_MAX: u32 = 4_294_967;

    /// Sets a key to a value; returns false for an unknown key.
    ///
    /// # Errors
    ///
    /// If the text is not a value of the key.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, SwitchError> {
        match key {
            "enable" => self.enable = flag("enable", value)?,
            "min_tx_ms" => self.min_tx_ms = parse_milliseconds("min_tx_ms", value)?,
            "min_rx_ms" => self.min_rx_ms = parse_milliseconds("min_rx_ms", value)?,
            "decay_min_rx_ms" => {
                self.decay_min_rx_ms = parse_milliseconds("decay_min_rx_ms", value)?;
            }
            "mult" => self.mult = parse_value("mult", value, "1 to 255")?,
            "forwarding_if_rx" => self.forwarding_if_rx = flag("forwarding_if_rx", value)?,
            "cpath_down" => self.cpath_down = flag("cpath_down", value)?,
            "check_tnl_key" => self.check_tnl_key = flag("check_tnl_key", value)?,
            "oam" => self.oam = flag("oam", value)?,
            "local_src_mac" => value.clone_into(&mut self.local_src_mac),
            "local_dst_mac" => value.clone_into(&mut self.local_dst_mac),
            "remote_dst_mac" => value.clone_into(&mut self.remote_dst_mac),
            "src_ip" => self.src_ip = parse_value("src_ip", value, IP)?,
            "dst_ip" => self.dst_ip = parse_value("dst_ip", value, IP)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the values of the session.
    ///
    /// # Errors
    ///
    /// The reason why a value is refused.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_interval = |ms: u32| (1..=Self::INTERVAL_MS_MAX).contains(&ms);
        if !is_interval(self.min_tx_ms) || !is_interval(self.min_rx_ms) {
            return Err("`min_tx_ms` and `min_rx_ms` of `bfd` must be from 1 to 4294967");
        }
        if self.decay_min_rx_ms != 0
            && !(self.min_rx_ms..=Self::INTERVAL_MS_MAX).contains(&self.decay_min_rx_ms)
        {
            return Err("`decay_min_rx_ms` of `bfd` must be 0, or from `min_rx_ms` to 4294967");
        }
        if self.mult == 0 {
            return Err("`mult` of `bfd` must be from 1 to 255");
        }
        let addresses = [&self.local_src_mac, &self.local_dst_mac, &self.remote_dst_mac];
        if addresses.into_iter().any(|text| !text.is_empty() && parse_any_mac(text).is_none()) {
            return Err("`local_src_mac`, `local_dst_mac` and `remote_dst_mac` of `bfd` must be \
                        MAC addresses, like 02:00:00:00:00:01");
        }
        Ok(())
    }

    /// Returns the settings of the session as the BFD state machine takes them.
    pub(crate) fn settings(&self) -> BfdSettings {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let default = BfdSettings::default();
        BfdSettings {
            min_tx: ms(self.min_tx_ms),
            min_rx: ms(self.min_rx_ms),
            decay_min_rx: NonZeroU32::new(self.decay_min_rx_ms).map(|own| ms(own.get())),
            multiplier: NonZeroU8::new(self.mult).unwrap_or(default.multiplier),
            cpath_down: self.cpath_down,
            forwarding_if_rx: self.forwarding_if_rx,
        }
    }

    /// Returns the addresses of sent packets. `mac` is the MAC address of the port.
    pub(crate) fn addresses(&self, mac: [u8; 6], source_port: u16) -> BfdAddresses {
        let destination = parse_any_mac(&self.local_dst_mac);
        BfdAddresses {
            source_mac: parse_any_mac(&self.local_src_mac).unwrap_or(mac),
            destination_mac: destination.unwrap_or(BfdAddresses::DESTINATION_MAC),
            source_ip: self.src_ip,
            destination_ip: self.dst_ip,
            source_port,
        }
    }

    /// Returns the destination MAC address of packets that the session accepts.
    ///
    /// `None`: any address.
    pub(crate) fn remote_destination(&self) -> Option<[u8; 6]> {
        // As in Open vSwitch, an address of zeros means that no address is set.
        parse_any_mac(&self.remote_dst_mac).filter(|address| *address != [0; 6])
    }
}

impl PortOptions {
    /// Returns the BFD session of the port, if the port has one.
    #[must_use]
    pub fn bfd_session(&self) -> Option<&BfdOptions> {
        self.bfd.as_ref().filter(|own| own.enable)
    }

    /// Returns the key and the reason for which the port may not have its BFD session.
    pub(crate) fn bfd_problem(&self) -> Option<(&'static str, &'static str)> {
        let bfd = self.bfd.as_ref()?;
        if self.kind == PortType::Patch {
            let problem = "a patch port has no `bfd`: its peer is in the same switch";
            return Some(("bfd", problem));
        }
        bfd.check().err().map(|problem| ("bfd", problem))
    }
}

/// The allowed values of an IPv4 address, for errors.
const IP: &str = "an IPv4 address, such as 192.0.2.1";

/// Parses `true` or `false`.
fn flag(setting: &'static str, value: &str) -> Result<bool, SwitchError> {
    parse_value(setting, value, "true or false")
}

/// Parses an interval in milliseconds.
fn parse_milliseconds(setting: &'static str, value: &str) -> Result<u32, SwitchError> {
    parse_value(setting, value, "a number of milliseconds, at most 4294967")
}

/// Parses the value of a BFD setting.
fn parse_value<T: std::str::FromStr>(
    setting: &'static str,
    value: &str,
    range: &'static str,
) -> Result<T, SwitchError> {
    value.parse().map_err(|_| SwitchError::Range { setting, value: value.to_owned(), range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_set_from_text() {
        let mut options = BfdOptions::default();
        for (key, value) in [
            ("enable", "false"),
            ("min_tx_ms", "300"),
            ("min_rx_ms", "400"),
            ("decay_min_rx_ms", "3000"),
            ("mult", "5"),
            ("forwarding_if_rx", "true"),
            ("cpath_down", "true"),
            ("check_tnl_key", "true"),
            ("oam", "true"),
            ("local_src_mac", "02:00:00:00:00:01"),
            ("local_dst_mac", "01:00:5e:90:00:01"),
            ("remote_dst_mac", "02:00:00:00:00:03"),
            ("src_ip", "192.0.2.1"),
            ("dst_ip", "192.0.2.2"),
        ] {
            assert!(BfdOptions::KEYS.contains(&key));
            assert!(options.set(key, value).unwrap(), "{key}");
        }
        assert_eq!(options.check(), Ok(()));
        let settings = options.settings();
        assert_eq!((settings.min_tx.as_millis(), settings.multiplier.get()), (300, 5));
        assert_eq!(settings.decay_min_rx.map(|own| own.as_secs()), Some(3));
        let addresses = options.addresses([2; 6], 50_000);
        assert_eq!(addresses.source_mac, [2, 0, 0, 0, 0, 1]);
        assert_eq!(addresses.destination_mac, [1, 0, 0x5e, 0x90, 0, 1]);
        assert_eq!(options.remote_destination(), Some([2, 0, 0, 0, 0, 3]));
        assert_eq!(addresses.destination_ip.to_string(), "192.0.2.2");
        assert!(!options.set("min_tx", "1").unwrap());
        let error = options.set("mult", "256").unwrap_err().to_string();
        assert_eq!(error, "mult = 256: it must be 1 to 255");
    }

    #[test]
    fn defaults_are_those_of_open_vswitch() {
        let options = BfdOptions::default();
        assert_eq!(options.settings(), BfdSettings::default());
        let addresses = options.addresses([2; 6], 50_000);
        assert_eq!(addresses.source_mac, [2; 6]);
        assert_eq!(addresses.destination_mac, BfdAddresses::DESTINATION_MAC);
        assert_eq!(options.remote_destination(), None);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let wrong = |change: fn(&mut BfdOptions)| {
            let mut options = BfdOptions::default();
            change(&mut options);
            options.check().is_err()
        };
        assert!(wrong(|own| own.min_tx_ms = 0) && wrong(|own| own.min_rx_ms = 4_294_968));
        assert!(wrong(|own| own.decay_min_rx_ms = 999) && !wrong(|own| own.decay_min_rx_ms = 1000));
        assert!(wrong(|own| own.mult = 0) && wrong(|own| own.local_dst_mac = "zz".into()));
        let kind = PortType::Patch;
        let bfd = Some(BfdOptions::default());
        let patch = PortOptions { kind, bfd: bfd.clone(), ..PortOptions::default() };
        assert!(patch.bfd_problem().is_some_and(|(key, _)| key == "bfd"));
        let port = PortOptions { bfd, ..PortOptions::default() };
        assert!(port.bfd_problem().is_none() && port.bfd_session().is_some());
    }
}
