//! The options of a port from its rows in `Port` and `Interface`.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use shunt_ovsdb::RowView;
use shunt_switch::config::{
    MemifRole, PortOptions, PortType, PortVlanMode, PriorityTags, QinqEthtype, SocketMode,
};

/// Reads the ingress policing of a row of `Interface` into `options`.
pub(super) fn set_ingress_policing(options: &mut PortOptions, interface: RowView<'_>) {
    let limit = |column| unsigned(interface.integer(column));
    options.ingress_policing_rate = limit("ingress_policing_rate");
    options.ingress_policing_burst = limit("ingress_policing_burst");
    options.ingress_policing_kpkts_rate = limit("ingress_policing_kpkts_rate");
    options.ingress_policing_kpkts_burst = limit("ingress_policing_kpkts_burst");
}

/// Reads the VLAN mode of a row of `Port`.
pub(super) fn vlan_mode(port: RowView<'_>) -> Result<Option<PortVlanMode>, String> {
    Ok(match port.string("vlan_mode") {
        None => None,
        Some("access") => Some(PortVlanMode::Access),
        Some("trunk") => Some(PortVlanMode::Trunk),
        Some("native-tagged") => Some(PortVlanMode::NativeTagged),
        Some("native-untagged") => Some(PortVlanMode::NativeUntagged),
        Some("dot1q-tunnel") if port.integer("tag").is_some_and(|tag| tag > 0) => {
            Some(PortVlanMode::Dot1qTunnel)
        }
        Some("dot1q-tunnel") => {
            return Err("vlan_mode dot1q-tunnel needs a tag, its service VLAN: set tag to a VLAN \
                        from 1 to 4095"
                .to_owned());
        }
        Some(other) => {
            return Err(format!(
                "vlan_mode {other} is not supported: use access, trunk, native-tagged, \
                 native-untagged or dot1q-tunnel"
            ));
        }
    })
}

/// Reads the VLANs, protection and multicast flooding of a row of `Port`.
///
/// As in Open vSwitch, a trunk port ignores its tag, and an access port ignores its trunks. Only
/// dot1q-tunnel ports use `cvlans` and `qinq-ethtype`.
pub(super) fn set_vlans(
    options: &mut PortOptions,
    vlan_mode: Option<PortVlanMode>,
    port: RowView<'_>,
) {
    let vlan = |id: i64| u16::try_from(id).ok();
    let tag = port.integer("tag").and_then(vlan);
    let trunks = port.integers("trunks").filter_map(vlan);
    let is_access = vlan_mode == Some(PortVlanMode::Access) || vlan_mode.is_none() && tag.is_some();
    options.vlan_mode = vlan_mode;
    options.tag = tag.filter(|_| vlan_mode != Some(PortVlanMode::Trunk));
    let is_tunnel = vlan_mode == Some(PortVlanMode::Dot1qTunnel);
    options.trunks = if is_access || is_tunnel { Vec::new() } else { trunks.collect() };
    let cvlans = port.integers("cvlans").filter_map(vlan);
    options.cvlans = if is_tunnel { cvlans.collect() } else { Vec::new() };
    options.qinq_ethtype = match port.entry("other_config", "qinq-ethtype") {
        Some("802.1q") if is_tunnel => QinqEthtype::Dot1q,
        _ => QinqEthtype::Dot1ad,
    };
    options.priority_tags = match port.entry("other_config", "priority-tags") {
        // Older versions of Open vSwitch used the value `true`.
        Some("if-nonzero" | "true") => PriorityTags::IfNonzero,
        Some("always") => PriorityTags::Always,
        _ => PriorityTags::Never,
    };
    options.protected = port.boolean("protected") == Some(true);
    let is_set = |key| port.entry("other_config", key) == Some("true");
    options.mcast_snooping_flood = is_set("mcast-snooping-flood");
    options.mcast_snooping_flood_reports = is_set("mcast-snooping-flood-reports");
}

/// Returns the types of `Interface` rows for a port type.
///
/// The empty type means `system`, as in Open vSwitch.
pub(super) const fn interface_types(kind: PortType) -> &'static [&'static str] {
    match kind {
        PortType::AfPacket => &["system"],
        PortType::Tap => &["internal", "tap"],
        PortType::AfXdp => &["afxdp"],
        PortType::VhostUser => &["dpdkvhostuserclient", "dpdkvhostuser"],
        PortType::Memif => &["memif"],
        PortType::Dpdk => &["dpdk"],
        PortType::Null => &["null"],
        PortType::Patch => &["patch"],
        PortType::Pcap | PortType::Unbound => &[],
    }
}

/// Reads the type of a port, and the options that are specific to the type.
///
/// # Errors
///
/// The reason why the switch refuses the port.
pub(super) fn port_options(
    interface: RowView<'_>,
    vhost_folder: &Path,
) -> Result<PortOptions, String> {
    let name = interface.string("type").filter(|name| !name.is_empty()).unwrap_or("system");
    let kind = PortType::ALL.into_iter().find(|kind| interface_types(*kind).contains(&name));
    let kind = kind.ok_or_else(|| {
        format!(
            "interface type {name} is not supported: use system, internal, tap, afxdp, dpdk, dpdkvhostuserclient, memif, patch or null"
        )
    })?;
    let peer = interface.entry("options", "peer").unwrap_or_default();
    if kind == PortType::Patch && peer.is_empty() {
        return Err("a patch port needs options:peer: name the port at the other end".to_owned());
    }
    let (path, mode) = vhost_socket(interface, vhost_folder)?;
    let (devargs, queues) = if kind == PortType::Dpdk { dpdk_device(interface)? } else { ("", 0) };
    let own = match kind {
        PortType::Memif => memif_options(interface)?,
        _ => PortOptions { queues, ..PortOptions::default() },
    };
    Ok(PortOptions {
        name: interface.string("name").unwrap_or_default().to_owned(),
        number: unsigned(interface.integer("ofport_request")),
        kind,
        peer: if kind == PortType::Patch { peer.to_owned() } else { String::new() },
        devargs: devargs.to_owned(),
        path,
        mode,
        ..own
    })
}

/// Returns the socket of a vhost-user port; an empty path for any other port.
///
/// A `dpdkvhostuserclient` port connects to `options:vhost-server-path`. A `dpdkvhostuser` port
/// listens at a path that ends with the name of the port.
fn vhost_socket(interface: RowView<'_>, folder: &Path) -> Result<(PathBuf, SocketMode), String> {
    let name = interface.string("name").unwrap_or_default();
    match interface.string("type") {
        Some("dpdkvhostuser") if name.contains('/') => {
            Err("a dpdkvhostuser port listens at a socket of its name: choose one without `/`"
                .to_owned())
        }
        Some("dpdkvhostuser") => Ok((folder.join(name), SocketMode::Server)),
        Some("dpdkvhostuserclient") => {
            let path = interface.entry("options", "vhost-server-path").unwrap_or_default();
            if !path.starts_with('/') {
                return Err(
                    "a dpdkvhostuserclient port needs options:vhost-server-path: the absolute \
                            path of the socket at which the hypervisor listens"
                        .to_owned(),
                );
            }
            Ok((path.into(), SocketMode::Client))
        }
        _ => Ok((PathBuf::new(), SocketMode::default())),
    }
}

/// Returns the devargs and the number of receive queues of a DPDK port.
fn dpdk_device<'a>(interface: RowView<'a>) -> Result<(&'a str, u16), String> {
    let devargs = interface.entry("options", "dpdk-devargs").unwrap_or_default();
    if devargs.is_empty() {
        return Err("a dpdk port needs options:dpdk-devargs: a driver with a number, such as \
                    net_null0, or a PCI address, such as 0000:01:00.0"
            .to_owned());
    }
    let queues = number_option(interface, "n_rxq", "a number of queues: use 1 to 65535")?;
    Ok((devargs, queues))
}

/// Reads the options of a memif port, which have the names of DPDK's `net_memif`.
fn memif_options(interface: RowView<'_>) -> Result<PortOptions, String> {
    let option = |key| interface.entry("options", key).unwrap_or_default();
    let socket = option("socket");
    if !socket.starts_with(['/', '@']) {
        return Err(
            "a memif port needs options:socket: an absolute path, or @ and the name of an \
                    abstract socket"
                .to_owned(),
        );
    }
    let role = match option("role") {
        "" | "client" => MemifRole::Client,
        "server" => MemifRole::Server,
        other => return Err(format!("options:role {other} is unknown: use client or server")),
    };
    Ok(PortOptions {
        socket: socket.into(),
        role,
        allow_unsealed: option("allow_unsealed") == "true",
        secret: option("secret").to_owned(),
        id: number_option(interface, "id", "a number of an interface: use 0 to 4294967295")?,
        rsize: number_option(interface, "rsize", "a binary logarithm: use 1 to 14")?,
        bsize: number_option(interface, "bsize", "a length of buffers: use 64 to 65535")?,
        queues: number_option(interface, "n_rxq", "a number of queues: use 1 to 64")?,
        ..PortOptions::default()
    })
}

/// Returns the number in an option; 0 if the option is absent.
fn number_option<T: Default + FromStr>(
    interface: RowView<'_>,
    key: &str,
    meaning: &str,
) -> Result<T, String> {
    let text = interface.entry("options", key);
    let wrong = |text| format!("options:{key} {text} is not {meaning}");
    text.map_or_else(|| Ok(T::default()), |text| text.parse().map_err(|_| wrong(text)))
}

/// Returns whether the MTU of a port type can be set.
pub(super) const fn has_mtu(kind: PortType) -> bool {
    match kind {
        PortType::AfPacket | PortType::AfXdp | PortType::Tap | PortType::Dpdk => true,
        PortType::VhostUser
        | PortType::Memif
        | PortType::Null
        | PortType::Pcap
        | PortType::Patch
        | PortType::Unbound => false,
    }
}

/// Returns an OVSDB integer as `u32`; 0 if it is absent or out of range.
pub(super) fn unsigned(value: Option<i64>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or_default()
}
