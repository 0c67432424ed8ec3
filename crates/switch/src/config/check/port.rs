//! Checks of the options of a port: its keys, and the ranges of their values.

use shunt_datapath::{
    PortError,
    port::{
        af_packet::AfPacket,
        af_xdp::AfXdp,
        check_device_name,
        memif::{MemifOptions, QUEUES_MAX},
    },
};

use super::{check_mtu, check_name, check_vlan};
use crate::{
    config::{
        BondOptions, ConfigError, MemifRole, NAME_BYTES_MAX, PortOptions, PortType, PortVlanMode,
        PriorityTags, QinqEthtype, Repeat, SocketMode, XdpMode, mac::parse_mac,
    },
    error::SwitchError,
};

/// The loopback device of every network namespace.
const LOOPBACK: &str = "lo";

/// Maximum length of the name of a port without a network device.
///
/// OpenFlow shows the first 15 bytes.
const LONG_NAME_BYTES_MAX: usize = 128;

/// The reason why a port has no key for service VLANs.
const NO_TUNNEL: &str =
    "only a port of mode `dot1q-tunnel` has this key: remove it, or set `vlan_mode`";

/// Allowed numbers of slots of a receive ring.
const RX_SLOTS: std::ops::RangeInclusive<u32> = 32..=AfPacket::SLOTS_MAX;

/// Longest time of a busy poll of an AF_XDP port, in microseconds.
const BUSY_POLL_US_MAX: u32 = 10_000;

/// Description of the allowed MTUs of an AF_XDP port.
const XDP_MTUS: &str = "68 to 9216 for an af_xdp port, or 0 for the MTU of the device";

const _: () = assert!(AfXdp::MTU_MAX == 9216, "the description has the largest MTU");

impl PortOptions {
    /// Checks that every key is allowed for the type of port.
    ///
    /// # Errors
    ///
    /// The first key that the type does not allow.
    pub fn check(&self) -> Result<(), SwitchError> {
        self.mistake().map_err(|error| *error.problem)
    }

    /// Returns the first mistake in the options of this port as a member of `bond`.
    pub(crate) fn bond_mistake(&self, bond: &BondOptions) -> Option<ConfigError> {
        let has_vlans = self.vlan_mode.is_some() || self.tag.is_some() || !self.trunks.is_empty();
        let (key, problem) = if !bond.members.contains(&self.name) {
            return None;
        } else if self.kind == PortType::Patch {
            ("type", "a patch port cannot be a member of a bond: remove it from the bond")
        } else if has_vlans {
            let key = match (self.tag, self.vlan_mode) {
                (Some(_), _) => "tag",
                (None, Some(_)) => "vlan_mode",
                (None, None) => "trunks",
            };
            let (port, bond) = (self.name.clone(), bond.name.clone());
            return Some(ConfigError::at(key, SwitchError::MemberVlans { port, bond, key }));
        } else if self.priority_tags != PriorityTags::default() {
            ("priority_tags", "a member of a bond sends no priority tags: remove the key")
        } else {
            return None;
        };
        let port = self.name.clone();
        Some(ConfigError::at(key, SwitchError::PortSetting { port, problem }))
    }

    /// Checks the settings of the port; an error has the key with the mistake.
    pub(in crate::config) fn mistake(&self) -> Result<(), ConfigError> {
        check_name(&self.name, self.name_bytes_max())
            .map_err(|problem| ConfigError::at("name", self.with_first_name(problem)))?;
        if self.number > shunt_flow::PortNo::MAX.number() {
            return Err(ConfigError::at("number", SwitchError::NumberRange(self.number)));
        }
        check_mtu(self.mtu).map_err(|problem| ConfigError::at("mtu", problem))?;
        if !self.mac.is_empty() {
            parse_mac("mac", &self.mac).map_err(|problem| ConfigError::at("mac", problem))?;
        }
        if self.rx_slots != 0 && !RX_SLOTS.contains(&self.rx_slots) {
            let (setting, range) = ("rx_slots", "32 to 16384, or 0 for the default");
            let problem = SwitchError::Range { setting, value: self.rx_slots.to_string(), range };
            return Err(ConfigError::at(setting, problem));
        }
        if self.busy_poll_us > BUSY_POLL_US_MAX {
            let (setting, range) = ("busy_poll_us", "1 to 10000, or 0 for interrupts");
            let value = self.busy_poll_us.to_string();
            let problem = SwitchError::Range { setting, value, range };
            return Err(ConfigError::at(setting, problem));
        }
        let vlans = [
            ("tag", self.tag.as_slice()),
            ("trunks", self.trunks.as_slice()),
            ("cvlans", self.cvlans.as_slice()),
        ];
        for (setting, vlans) in vlans {
            for vlan in vlans {
                check_vlan(setting, *vlan)?;
            }
        }
        let problems = [
            self.vlan_problem(),
            self.policing_problem(),
            self.qos_problem(),
            self.bfd_problem(),
            self.wrong_value(),
            self.problem(),
        ];
        let Some((field, problem)) = problems.into_iter().flatten().next() else {
            return Ok(());
        };
        let port = self.name.clone();
        Err(ConfigError::at(field, SwitchError::PortSetting { port, problem }))
    }

    /// Returns the problem of a refused name, with the name to use if a device has it.
    ///
    /// A device may have further names, which are longer than the name of a port can be.
    fn with_first_name(&self, problem: SwitchError) -> SwitchError {
        if !self.has_device() || !self.device.is_empty() {
            return problem;
        }
        match check_device_name(&self.name) {
            Err(source @ PortError::LongName { .. }) => {
                SwitchError::Port { name: self.name.clone(), source }
            }
            _ => problem,
        }
    }

    /// Returns whether a port of this type has a network device with a name.
    const fn has_device(&self) -> bool {
        matches!(self.kind, PortType::AfPacket | PortType::AfXdp | PortType::Tap)
    }

    /// Checks that a network device can have the name that is given as `device`.
    fn check_device(&self) -> Result<(), ConfigError> {
        if !self.has_device() || self.device.is_empty() {
            return Ok(());
        }
        check_device_name(&self.device).map_err(|source| {
            ConfigError::at("device", SwitchError::Port { name: self.name.clone(), source })
        })
    }

    /// Checks the values of a new port that earlier versions accepted.
    ///
    /// Such values are its device, and the MTU of an AF_XDP port. [`Self::check`] accepts them,
    /// because a state file of an earlier version may have them. A port without such a device is
    /// then down, and a device keeps its own MTU.
    pub(crate) fn check_new(&self) -> Result<(), ConfigError> {
        self.check_device()?;
        let is_ok = self.kind != PortType::AfXdp || self.mtu <= AfXdp::MTU_MAX;
        ConfigError::check_range("mtu", self.mtu.to_string(), is_ok, XDP_MTUS)
    }

    /// Returns the maximum length of the name of this port, in bytes.
    ///
    /// The name may also be that of a network device, which the kernel limits.
    const fn name_bytes_max(&self) -> usize {
        match self.kind {
            PortType::AfPacket | PortType::AfXdp | PortType::Tap | PortType::Unbound => {
                NAME_BYTES_MAX
            }
            PortType::Null
            | PortType::Pcap
            | PortType::Patch
            | PortType::VhostUser
            | PortType::Memif
            | PortType::Dpdk => LONG_NAME_BYTES_MAX,
        }
    }

    /// Returns the first key that the VLAN mode does not allow, and the reason.
    fn vlan_problem(&self) -> Option<(&'static str, &'static str)> {
        let tag = "a port of mode `trunk` has no `tag`: use native-tagged or native-untagged, or remove `tag`";
        match self.effective_vlan_mode() {
            PortVlanMode::Dot1qTunnel => self.tunnel_problem(),
            _ if !self.cvlans.is_empty() => Some(("cvlans", NO_TUNNEL)),
            _ if self.qinq_ethtype != QinqEthtype::default() => Some(("qinq_ethtype", NO_TUNNEL)),
            PortVlanMode::Trunk if self.tag.is_some() => Some(("tag", tag)),
            PortVlanMode::Access if !self.trunks.is_empty() => {
                Some(("trunks", "an `access` port has no `trunks`: its VLAN is `tag`"))
            }
            PortVlanMode::Trunk
            | PortVlanMode::Access
            | PortVlanMode::NativeTagged
            | PortVlanMode::NativeUntagged => None,
        }
    }

    /// Returns the first wrong or missing key of a dot1q-tunnel port, and the reason.
    fn tunnel_problem(&self) -> Option<(&'static str, &'static str)> {
        if self.tag.is_none_or(|tag| tag == 0) {
            return Some((
                "tag",
                "a `dot1q-tunnel` port needs `tag`, its service VLAN: give a VLAN from 1 to 4095",
            ));
        }
        (!self.trunks.is_empty()).then_some((
            "trunks",
            "a `dot1q-tunnel` port has no `trunks`: select the VLANs of the customer by `cvlans`",
        ))
    }

    /// Returns the first key that lacks a value or has an unusable value,
    /// and the reason.
    fn wrong_value(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            PortType::Patch if self.peer.is_empty() => {
                Some(("peer", "a patch port needs `peer`, the port at its other end"))
            }
            PortType::Patch if self.peer == self.name => {
                Some(("peer", "`peer` is the port itself: name another patch port"))
            }
            PortType::AfPacket | PortType::AfXdp if self.device() == LOOPBACK => Some((
                "device",
                "the loopback device returns every frame that it gets: use another device",
            )),
            PortType::Pcap if self.rx.as_os_str().is_empty() && self.tx.as_os_str().is_empty() => {
                Some(("rx", "a pcap port needs `rx`, `tx` or both: capture files"))
            }
            PortType::VhostUser if !self.path.is_absolute() => Some((
                "path",
                "a vhost_user port needs `path`, the absolute path of the socket of its virtual machine",
            )),
            PortType::Memif => self.wrong_memif_value(),
            PortType::Dpdk if self.devargs.is_empty() => Some((
                "devargs",
                "a dpdk port needs `devargs`: a driver with a number, such as net_null0, or a PCI address, such as 0000:01:00.0",
            )),
            _ => None,
        }
    }

    /// Returns the first key of a memif port with an unusable value, and the reason.
    fn wrong_memif_value(&self) -> Option<(&'static str, &'static str)> {
        let is_name =
            self.socket.to_str().is_some_and(|name| name.len() > 1 && name.starts_with('@'));
        let of_client =
            [("rsize", self.rsize > 0), ("bsize", self.bsize > 0), ("queues", self.queues > 0)];
        let mut given = of_client.into_iter().filter(|(_, is_given)| *is_given);
        if !self.socket.is_absolute() && !is_name {
            let needed = "a memif port needs `socket`: an absolute path, or @ and the name of an abstract socket";
            Some(("socket", needed))
        } else if self.secret.len() > MemifOptions::SECRET_BYTES {
            Some(("secret", "`secret` is too long: use at most 24 bytes"))
        } else if self.rsize > MemifOptions::RING_LOG2_MAX {
            Some((
                "rsize",
                "`rsize` is the binary logarithm of a number of descriptors: use at most 14",
            ))
        } else if self.bsize != 0 && self.bsize < MemifOptions::BUFFER_BYTES_MIN {
            Some((
                "bsize",
                "`bsize` is the length of a buffer: use 64 to 65535 bytes, or 0 for 2048",
            ))
        } else if self.queues > QUEUES_MAX {
            Some(("queues", "a memif port has at most 64 `queues`: use fewer"))
        } else if self.role == MemifRole::Server {
            let excess =
                "the client chooses `rsize`, `bsize` and `queues`: remove them from the server";
            given.next().map(|(key, _)| (key, excess))
        } else if self.allow_unsealed {
            Some(("allow_unsealed", "a client has its own memory: remove `allow_unsealed`"))
        } else {
            None
        }
    }

    /// Returns the first key that the type of port does not allow, and the reason.
    fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.repeat != Repeat::Once && self.kind != PortType::Pcap {
            return Some(("repeat", "only a pcap port has `repeat`: remove it"));
        }
        if self.xdp_mode != XdpMode::default() && self.kind != PortType::AfXdp {
            return Some(("xdp_mode", "only an af_xdp port has `xdp_mode`: remove it"));
        }
        if self.mode != SocketMode::default() && self.kind != PortType::VhostUser {
            return Some(("mode", "only a vhost_user port has `mode`: remove it"));
        }
        if self.role != MemifRole::default() && self.kind != PortType::Memif {
            return Some(("role", "only a memif port has `role`: remove it"));
        }
        let given = [
            ("device", !self.device.is_empty()),
            ("mac", !self.mac.is_empty()),
            ("mtu", self.mtu > 0),
            ("rx_slots", self.rx_slots > 0),
            ("busy_poll_us", self.busy_poll_us > 0),
            ("rx", !self.rx.as_os_str().is_empty()),
            ("tx", !self.tx.as_os_str().is_empty()),
            ("peer", !self.peer.is_empty()),
            ("path", !self.path.as_os_str().is_empty()),
            ("devargs", !self.devargs.is_empty()),
            ("queues", self.queues > 0),
            ("socket", !self.socket.as_os_str().is_empty()),
            ("id", self.id > 0),
            ("secret", !self.secret.is_empty()),
            ("rsize", self.rsize > 0),
            ("bsize", self.bsize > 0),
            ("allow_unsealed", self.allow_unsealed),
        ];
        let (known, excess): (&[&str], _) = match self.kind {
            PortType::Patch => (&["peer"], "a patch port takes only `peer`: remove this key"),
            PortType::Pcap => {
                (&["rx", "tx"], "a pcap port takes only `rx`, `tx` and `repeat`: remove this key")
            }
            PortType::Null | PortType::Unbound => {
                (&[], "a null port has no further keys: remove them, or set `type`")
            }
            PortType::AfPacket => (
                &["device", "mtu", "rx_slots"],
                "an af_packet port takes only `device`, `mtu` and `rx_slots`: remove this key",
            ),
            PortType::AfXdp => (
                &["device", "mtu", "busy_poll_us"],
                "an af_xdp port takes only `device`, `mtu`, `xdp_mode` and `busy_poll_us`: remove \
                 this key",
            ),
            PortType::Tap => (
                &["device", "mac", "mtu"],
                "a tap port takes only `device`, `mac` and `mtu`: remove this key",
            ),
            PortType::VhostUser => {
                (&["path"], "a vhost_user port takes only `path` and `mode`: remove this key")
            }
            PortType::Memif => (
                &["socket", "id", "secret", "rsize", "bsize", "queues", "allow_unsealed"],
                "a memif port takes only `socket`, `id`, `role`, `secret`, `rsize`, \
                 `bsize`, `queues` and `allow_unsealed`: remove this key",
            ),
            PortType::Dpdk => (
                &["devargs", "queues", "mtu"],
                "a dpdk port takes only `devargs`, `queues` and `mtu`: remove this key",
            ),
        };
        let mut excessive = given.into_iter().filter(|(field, is)| *is && !known.contains(field));
        excessive.next().map(|(field, _)| (field, excess))
    }

    /// Returns the name of the network device, for ports with a device.
    #[must_use]
    pub fn device(&self) -> &str {
        if self.device.is_empty() { &self.name } else { &self.device }
    }

    /// Returns the MTU that the switch sets, if one is configured.
    pub(crate) fn mtu(&self) -> Option<u32> {
        (self.mtu > 0).then_some(self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(port: PortOptions) -> String {
        let port = PortOptions { name: "p1".into(), ..port };
        let checked = port.check().and_then(|()| port.check_new().map_err(|error| *error.problem));
        checked.map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    /// Open vSwitch limits device names alone, and OVN names patch ports after bridges.
    #[test]
    fn ports_without_a_device_have_long_names() {
        let check = |kind, length| {
            let port = PortOptions { kind, name: "p".repeat(length), ..PortOptions::default() };
            port.check().map_or_else(|error| error.to_string(), |()| "fine".into())
        };
        assert_eq!(check(PortType::Null, 128), "fine");
        assert!(check(PortType::Null, 129).contains("use 1 to 128 letters"));
        assert_eq!(check(PortType::Tap, 15), "fine");
        assert!(check(PortType::Tap, 16).contains("use 1 to 15 letters"));
    }

    #[test]
    fn device_and_mac_of_a_tap_are_checked() {
        let tap =
            PortOptions { kind: PortType::Tap, device: "tap9".into(), ..PortOptions::default() };
        assert_eq!(error_text(tap.clone()), "fine");
        let on = |device: &str| error_text(PortOptions { device: device.into(), ..tap.clone() });
        assert_eq!(on("fifteen-bytes-x"), "fine");
        for device in ["twenty-two-bytes-xxxxx", "a/b"] {
            let expected = format!("port p1: {device:?} is not a device name: use 1 to 15 bytes");
            assert!(on(device).starts_with(&expected), "{}", on(device));
        }
        let addressed = |mac: &str| error_text(PortOptions { mac: mac.into(), ..tap.clone() });
        assert_eq!(addressed("02:00:00:00:00:01"), "fine");
        assert!(addressed("zz").starts_with("mac = zz: it must be six octets"));
    }

    #[test]
    fn busy_polling_has_a_range() {
        let text = |kind, busy_poll_us| {
            error_text(PortOptions { kind, busy_poll_us, ..PortOptions::default() })
        };
        assert_eq!(text(PortType::AfXdp, 10_000), "fine");
        let expected = "busy_poll_us = 10001: it must be 1 to 10000, or 0 for interrupts";
        assert_eq!(text(PortType::AfXdp, 10_001), expected);
        let other = text(PortType::AfPacket, 20);
        assert!(other.contains("takes only `device`, `mtu` and `rx_slots`"), "{other}");
    }

    #[test]
    fn keys_of_another_port_type_are_named() {
        let patch = PortOptions { kind: PortType::Patch, ..PortOptions::default() };
        let expected = "port p1: a patch port needs `peer`, the port at its other end";
        assert_eq!(error_text(patch), expected);
        let pcap = PortOptions { kind: PortType::Pcap, ..PortOptions::default() };
        assert!(error_text(pcap).contains("needs `rx`, `tx` or both"));
        let null =
            PortOptions { kind: PortType::Null, device: "eth0".into(), ..PortOptions::default() };
        assert_eq!(
            error_text(null),
            "port p1: a null port has no further keys: remove them, or set `type`"
        );
        let packet = PortOptions { mac: "02:00:00:00:00:01".into(), ..PortOptions::default() };
        assert!(error_text(packet).contains("takes only `device`, `mtu` and `rx_slots`"));
        let number = PortOptions { number: 0xffff_fffe, ..PortOptions::default() };
        assert!(error_text(number).contains("1 to 65279"));
        let slots =
            |kind, rx_slots| error_text(PortOptions { kind, rx_slots, ..Default::default() });
        assert_eq!(slots(PortType::AfPacket, 16_384), "fine");
        let expected = "rx_slots = 16385: it must be 32 to 16384, or 0 for the default";
        assert_eq!(slots(PortType::AfPacket, 16_385), expected);
        let vhost = |path: &str, mode| {
            let kind = PortType::VhostUser;
            error_text(PortOptions { kind, path: path.into(), mode, ..PortOptions::default() })
        };
        assert_eq!(vhost("/run/guest.sock", SocketMode::Server), "fine");
        assert!(
            vhost("guest.sock", SocketMode::Client).contains("the absolute path of the socket")
        );
        let memif = |socket: &str, port: PortOptions| {
            error_text(PortOptions { kind: PortType::Memif, socket: socket.into(), ..port })
        };
        let client = PortOptions { id: 7, rsize: 14, queues: 64, ..PortOptions::default() };
        assert_eq!(memif("/run/memif.sock", client.clone()), "fine");
        assert_eq!(memif("@memif", client.clone()), "fine");
        assert!(memif("memif.sock", client.clone()).contains("a memif port needs `socket`"));
        let server = PortOptions { role: MemifRole::Server, ..client };
        assert!(memif("@memif", server).contains("the client chooses `rsize`"));
        let wrong = [
            PortOptions { rsize: 15, ..PortOptions::default() },
            PortOptions { bsize: 63, ..PortOptions::default() },
            PortOptions { queues: 65, ..PortOptions::default() },
            PortOptions { secret: "s".repeat(25), ..PortOptions::default() },
            PortOptions { mtu: 1500, ..PortOptions::default() },
            PortOptions { allow_unsealed: true, ..PortOptions::default() },
        ];
        for port in wrong {
            assert_ne!(memif("@memif", port.clone()), "fine", "{port:?}");
        }
        let role = PortOptions { role: MemifRole::Server, ..PortOptions::default() };
        assert!(error_text(role).contains("only a memif port has `role`"));
        let dpdk = |devargs: &str, device: &str| {
            let (devargs, device) = (devargs.to_owned(), device.to_owned());
            error_text(PortOptions { kind: PortType::Dpdk, devargs, device, ..Default::default() })
        };
        assert_eq!(dpdk("net_null0", ""), "fine");
        assert!(dpdk("", "").contains("a dpdk port needs `devargs`"));
        assert!(dpdk("net_null0", "eth0").contains("takes only `devargs`, `queues` and `mtu`"));
        let mode = PortOptions { mode: SocketMode::Server, ..PortOptions::default() };
        assert!(error_text(mode).contains("only a vhost_user port has `mode`"));
        assert!(slots(PortType::Tap, 64).contains("a tap port takes only `device`"));
    }
}
