//! Keys and commands of Open vSwitch that Shunt lacks, each with an alternative.

use std::path::Path;

/// Returns the alternative to a key or value of Open vSwitch's database.
pub(crate) fn hint(word: &str) -> Option<&'static str> {
    let (_, hint) = WORDS.iter().find(|(words, _)| words.contains(&word))?;
    Some(hint)
}

/// Returns the alternative to a command of Open vSwitch's programs.
///
/// The bridges of the daemon have their sockets in `run_dir`.
pub(crate) fn command_hint(word: &str, run_dir: &Path) -> Option<String> {
    if OFCTL.contains(&word) {
        let socket = format!("unix:{}/BRIDGE.mgmt", run_dir.display());
        // OpenFlow 1.0, the default of ovs-ofctl, has no groups, meters and table features.
        let needs_13 = ["group", "meter", "table-features"].iter().any(|own| word.contains(own));
        let version = if needs_13 { "-O OpenFlow13 " } else { "" };
        return Some(format!(
            "`{word}` is a command of ovs-ofctl: ovs-ofctl {version}{word} {socket}"
        ));
    }
    let (_, own) = COMMANDS.iter().find(|(words, _)| words.contains(&word))?;
    Some(format!("`{word}` is a command of Open vSwitch: {own}"))
}

/// The alternative to a tunnel port.
const TUNNEL: &str = "tunnels do not exist yet";
/// The alternative to spanning tree.
const TREE: &str = "spanning tree does not exist yet";

/// Keys and port types of Open vSwitch, with their alternatives.
const WORDS: &[(&[&str], &str)] = &[
    (&["internal"], "set `local = \"tap\"` in the bridge, or the port type `tap`"),
    (&["system", "veth"], "the port type of a network device is `af_packet`"),
    (&["vxlan", "geneve", "gre", "ip6gre", "erspan", "gtpu", "stt", "lisp", "bareudp"], TUNNEL),
    (&["min_tx"], "the key is `min_tx_ms`, in milliseconds"),
    (&["min_rx"], "the key is `min_rx_ms`, in milliseconds"),
    (&["decay_min_rx"], "the key is `decay_min_rx_ms`, in milliseconds"),
    (&["dpdk-devargs"], "the key is `devargs`, of a port of type `dpdk`"),
    (&["n_rxq"], "the key is `queues`, of a port of type `dpdk`"),
    (
        &["dpdk-init", "dpdk-socket-mem", "dpdk-extra", "dpdk-alloc-mem", "dpdk-lcore-mask"],
        "DPDK has its options in the section [dpdk] of the configuration file",
    ),
    (
        &["dpdkvhostuser", "dpdkvhostuserclient"],
        "the port type is `vhost_user`, with the keys `path` and `mode`",
    ),
    (&["afxdp"], "the port type is `af_xdp`"),
    (&["vhost-server-path"], "the key is `path`, of a port of type `vhost_user`"),
    (&["xdp-mode"], "the key is `xdp_mode`, with the same values"),
    (&["qinq-ethtype"], "the key of a port is `qinq_ethtype`, with the same values"),
    (
        &["vlan-limit"],
        "the key is `vlan_limit`, in the section [packets]; at run time, shuntctl set packets.vlan_limit=2",
    ),
    (&["datapath_type"], "remove it: there is one datapath, in userspace"),
    (&["ofport", "ofport_request"], "use `number`"),
    (&["other_config", "external_ids", "options"], "remove it: every option has a key of its own"),
    (&["stp_enable", "rstp_enable"], TREE),
    (&["mcast-snooping-aging-time"], "the key of a bridge is `mcast_snooping_ageing_s`"),
    (&["mcast-snooping-table-size"], "the key of a bridge is `mcast_snooping_entries`"),
    (
        &["mcast-snooping-disable-flood-unregistered"],
        "the key of a bridge is `mcast_snooping_disable_flood_unregistered`",
    ),
    (
        &["mcast-snooping-flood", "mcast-snooping-flood-reports"],
        "the keys of a port are `mcast_snooping_flood` and `mcast_snooping_flood_reports`",
    ),
    (&["ipfix"], "the keys are `ipfix.targets`, `ipfix.sampling` and `ipfix.cache_active_timeout`"),
    (&["netflow"], "the keys are `netflow.targets` and `netflow.active_timeout`"),
    (&["sflow"], "the keys are `sflow.targets`, `sflow.sampling` and `sflow.polling`"),
    (&["mirrors"], "give each mirror a table `[[bridge.mirror]]`, or run `shuntctl add-mirror`"),
    (&["bond_mode"], "give each bond a table `[[bridge.bond]]` with its `mode`"),
    (&["bond_updelay", "bond_downdelay"], "the keys of a bond are `updelay_ms` and `downdelay_ms`"),
    (
        &["lacp-time", "lacp-system-id", "lacp-system-priority", "lacp-fallback-ab"],
        "the keys of a bond are `lacp_time`, `lacp_system_id`, `lacp_system_priority` and `lacp_fallback_ab`",
    ),
    (
        &["lacp-port-id", "lacp-port-priority", "lacp-aggregation-key"],
        "the keys of a bond are `lacp_port_id`, `lacp_port_priority` and `lacp_aggregation_key`, each with a number for each member",
    ),
    (&["linux-hfsc", "linux-sfq", "linux-codel", "linux-fq_codel"], "use `linux-htb`"),
    (
        &[
            "bfd_local_src_mac",
            "bfd_local_dst_mac",
            "bfd_remote_dst_mac",
            "bfd_src_ip",
            "bfd_dst_ip",
        ],
        "in `bfd`, write the key without `bfd_`, such as `src_ip`",
    ),
    (&["qos"], "run `shuntctl set-qos`, or set it in the configuration file"),
];

/// Commands of `ovs-ofctl` that have no counterpart in `shuntctl`.
const OFCTL: &[&str] = &[
    "add-flow",
    "add-flows",
    "mod-flows",
    "del-flows",
    "replace-flows",
    "diff-flows",
    "dump-flows",
    "dump-aggregate",
    "add-group",
    "add-groups",
    "mod-group",
    "del-groups",
    "dump-groups",
    "dump-group-stats",
    "dump-group-features",
    "add-meter",
    "mod-meter",
    "del-meters",
    "dump-meters",
    "meter-stats",
    "meter-features",
    "dump-ports",
    "dump-ports-desc",
    "dump-desc",
    "dump-tables",
    "dump-table-features",
    "mod-port",
    "packet-out",
    "monitor",
    "probe",
    "ping",
    "get-frags",
];

/// Commands of `ovs-vsctl` and `ovs-appctl`, each with the command of `shuntctl`.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["list-br", "br-exists", "get-controller"], "run `shuntctl show`"),
    (
        &["list-ports", "list-ifaces", "iface-to-br", "port-to-br", "dpif/show"],
        "run `shuntctl ports`",
    ),
    (&["set-controller"], "run `shuntctl set-br BRIDGE controllers=tcp:IP:PORT`"),
    (&["del-controller"], "run `shuntctl set-br BRIDGE controllers=`"),
    (
        &["set-fail-mode", "get-fail-mode", "del-fail-mode"],
        "run `shuntctl set-br BRIDGE fail_mode=standalone`, or `secure`",
    ),
    (&["fdb/show"], "run `shuntctl macs BRIDGE`"),
    (&["ofproto/trace"], "run `shuntctl trace BRIDGE FLOW`"),
    (&["dpctl/dump-flows", "dpif/dump-flows"], "run `shuntctl entries`"),
    (&["coverage/show"], "run `shuntctl caches` or `shuntctl drops`"),
    (&["vlog/set"], "run `shuntctl set logging.filter=debug`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_names_of_open_vswitch_get_a_hint() {
        assert_eq!(hint("vxlan"), Some("tunnels do not exist yet"));
        assert!(hint("internal").unwrap().contains("local = \"tap\""));
        assert_eq!(hint("af_packet"), None);
        let command_hint = |word| command_hint(word, Path::new("/run/shunt"));
        assert_eq!(
            command_hint("dump-flows").unwrap(),
            "`dump-flows` is a command of ovs-ofctl: ovs-ofctl dump-flows unix:/run/shunt/BRIDGE.mgmt"
        );
        for word in ["dump-groups", "add-meter", "meter-stats", "dump-table-features"] {
            let hint = command_hint(word).unwrap();
            assert!(hint.contains(&format!("ovs-ofctl -O OpenFlow13 {word} unix:")), "{hint}");
        }
        assert_eq!(
            command_hint("fdb/show").unwrap(),
            "`fdb/show` is a command of Open vSwitch: run `shuntctl macs BRIDGE`"
        );
        assert_eq!(command_hint("shwo"), None);
    }
}
