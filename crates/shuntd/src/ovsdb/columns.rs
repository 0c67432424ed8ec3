//! The tables and columns of the database `Open_vSwitch` that the daemon uses.
//!
//! A foreign server may have an older schema; the daemon neither reads nor writes columns that it
//! lacks. It may also lack a table without columns to read: `Datapath` is younger than Open vSwitch
//! 2.12.

use shunt_ovsdb::client::FollowedTable;

/// The name of the database.
pub(super) const DATABASE: &str = "Open_vSwitch";

/// The OVSDB lock that ensures that only one switch uses a database.
pub(super) const LOCK: &str = "ovs_vswitchd";

/// The columns that the daemon follows in a foreign database.
///
/// `db_version` and `ovs_version` are not in the list, because `ovs-ctl` writes them for
/// `ovsdb-server`.
pub(super) const TABLES: [FollowedTable; 15] = [
    FollowedTable {
        name: "Open_vSwitch",
        read: &["bridges", "datapaths", "next_cfg", "other_config", "ssl"],
        written: &[
            "cur_cfg",
            "datapath_types",
            "dpdk_initialized",
            "dpdk_version",
            "iface_types",
            "statistics",
        ],
    },
    FollowedTable { name: "Datapath", read: &[], written: &["capabilities"] },
    FollowedTable {
        name: "SSL",
        read: &["bootstrap_ca_cert", "ca_cert", "certificate", "private_key"],
        written: &[],
    },
    FollowedTable {
        name: "Bridge",
        read: &[
            "auto_attach",
            "controller",
            "datapath_type",
            "fail_mode",
            "flood_vlans",
            "flow_tables",
            "ipfix",
            "mcast_snooping_enable",
            "mirrors",
            "name",
            "netflow",
            "other_config",
            "ports",
            "protocols",
            "rstp_enable",
            "sflow",
            "stp_enable",
        ],
        written: &["datapath_id", "datapath_version", "status"],
    },
    FollowedTable {
        name: "Port",
        read: &[
            "bond_downdelay",
            "bond_fake_iface",
            "bond_mode",
            "bond_updelay",
            "cvlans",
            "interfaces",
            "lacp",
            "mac",
            "name",
            "other_config",
            "protected",
            "qos",
            "tag",
            "trunks",
            "vlan_mode",
        ],
        written: &["bond_active_slave", "status"],
    },
    FollowedTable {
        name: "Interface",
        read: &[
            "bfd",
            "cfm_flap_count",
            "cfm_mpid",
            "ingress_policing_burst",
            "ingress_policing_kpkts_burst",
            "ingress_policing_kpkts_rate",
            "ingress_policing_rate",
            "lldp",
            "mac",
            "mtu_request",
            "name",
            "ofport_request",
            "options",
            "other_config",
            "type",
        ],
        written: &[
            "admin_state",
            "bfd_status",
            "duplex",
            "error",
            "ifindex",
            "lacp_current",
            "link_resets",
            "link_speed",
            "link_state",
            "mac_in_use",
            "mtu",
            "ofport",
            "statistics",
            "status",
        ],
    },
    FollowedTable {
        name: "Controller",
        read: &[
            "connection_mode",
            "controller_burst_limit",
            "controller_queue_size",
            "controller_rate_limit",
            "enable_async_messages",
            "inactivity_probe",
            "local_gateway",
            "local_ip",
            "local_netmask",
            "max_backoff",
            "other_config",
            "target",
            "type",
        ],
        written: &["is_connected", "role", "status"],
    },
    FollowedTable {
        name: "Flow_Table",
        read: &["flow_limit", "groups", "name", "overflow_policy", "prefixes"],
        written: &[],
    },
    FollowedTable { name: "QoS", read: &["other_config", "queues", "type"], written: &[] },
    FollowedTable { name: "Queue", read: &["dscp", "other_config"], written: &[] },
    FollowedTable {
        name: "Mirror",
        read: &[
            "name",
            "output_port",
            "output_vlan",
            "select_all",
            "select_dst_port",
            "select_src_port",
            "select_vlan",
            "snaplen",
        ],
        written: &["statistics"],
    },
    FollowedTable {
        name: "IPFIX",
        read: &[
            "cache_active_timeout",
            "cache_max_flows",
            "obs_domain_id",
            "obs_point_id",
            "other_config",
            "sampling",
            "targets",
        ],
        written: &[],
    },
    FollowedTable {
        name: "Flow_Sample_Collector_Set",
        read: &["bridge", "id", "ipfix"],
        written: &[],
    },
    FollowedTable {
        name: "NetFlow",
        read: &["active_timeout", "add_id_to_interface", "engine_id", "engine_type", "targets"],
        written: &[],
    },
    FollowedTable {
        name: "sFlow",
        read: &["agent", "header", "polling", "sampling", "targets"],
        written: &[],
    },
];
