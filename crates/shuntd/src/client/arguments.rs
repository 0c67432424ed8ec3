//! The command line of `shuntctl`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Control a running shuntd.
///
/// Rules are changed with OpenFlow: `ovs-ofctl .. unix:RUN_DIR/BRIDGE.mgmt`.
#[derive(Debug, Parser)]
#[command(name = "shuntctl", version)]
pub(super) struct Arguments {
    /// Use the daemon with this run directory.
    #[arg(long, value_name = "DIR", default_value = "/run/shunt", global = true)]
    pub(super) run_dir: PathBuf,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show bridges, controllers and ports.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show ports with their counters.
    Ports {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the threads with their states.
    Threads {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a bridge: `add-br br0`, `add-br br0 controllers=tcp:192.0.2.10`.
    AddBr {
        /// Name of the bridge: at most 15 bytes.
        name: String,
        /// Set options of the bridge:
        ///
        /// controllers=tcp:IP:PORT,..
        /// listen=ptcp:PORT:IP,..
        /// datapath_id=ID
        /// protocols=OpenFlow10,OpenFlow13
        /// mac=ADDRESS
        /// local=none|tap
        /// mtu=BYTES
        /// table_rules=N
        /// table_overflow=refuse|evict
        /// table_limits=TABLE:N[:evict],..
        /// table_names=TABLE:NAME,..
        /// mac_ageing_s=SECONDS
        /// mac_entries=N
        /// flood_vlans=VLAN,VLAN..
        /// mcast_snooping_enable=true|false
        /// mcast_snooping_ageing_s=SECONDS
        /// mcast_snooping_entries=N
        /// mcast_snooping_disable_flood_unregistered=true|false
        #[arg(verbatim_doc_comment, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change a bridge while it forwards.
    ///
    /// `set-br br0 controllers=tcp:192.0.2.10,tcp:192.0.2.11`, `set-br br0 controllers=`.
    ///
    /// All keys change at once, or none if one is refused. Controllers and listeners that stay keep
    /// their connections. The configuration file does not change.
    SetBr {
        /// Name of the bridge.
        name: String,
        /// Set options of the bridge:
        ///
        /// controllers=tcp:IP:PORT,..
        /// listen=ptcp:PORT:IP,..
        /// datapath_id=ID
        /// protocols=OpenFlow10,OpenFlow13
        /// mac=ADDRESS
        /// table_rules=N
        /// table_overflow=refuse|evict
        /// table_limits=TABLE:N[:evict],..
        /// table_names=TABLE:NAME,..
        /// mac_ageing_s=SECONDS
        /// mac_entries=N
        /// flood_vlans=VLAN,VLAN..
        /// mcast_snooping_enable=true|false
        /// mcast_snooping_ageing_s=SECONDS
        /// mcast_snooping_entries=N
        /// mcast_snooping_disable_flood_unregistered=true|false
        #[arg(verbatim_doc_comment, value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Delete a bridge with its ports and rules.
    DelBr {
        /// Name of the bridge.
        name: String,
    },
    /// Add a port: `add-port br0 eth1`, `add-port br0 tap1 type=tap`.
    AddPort {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port: at most 15 bytes.
        name: String,
        /// Set options of the port:
        ///
        /// type=af_packet|af_xdp|tap|dpdk|vhost_user|memif|pcap|patch|null (default: af_packet)
        /// number=N
        /// device=NAME
        /// mac=ADDRESS
        /// mtu=BYTES
        /// rx_slots=N
        /// devargs=DEVICE[,ARGUMENTS]
        /// queues=N
        /// xdp_mode=best-effort|native-with-zerocopy|native|generic
        /// path=SOCKET
        /// mode=client|server
        /// socket=SOCKET
        /// id=N
        /// role=client|server
        /// secret=WORD
        /// rsize=N
        /// bsize=BYTES
        /// allow_unsealed=true|false
        /// rx=FILE
        /// tx=FILE
        /// repeat=once|endless
        /// peer=PORT
        ///
        /// VLANs:
        /// tag=VLAN
        /// trunks=VLAN,VLAN..
        /// vlan_mode=access|trunk|native-tagged|native-untagged|dot1q-tunnel
        /// cvlans=VLAN,VLAN..
        /// qinq_ethtype=802.1ad|802.1q
        /// priority_tags=never|if-nonzero|always
        /// protected=true|false
        /// mcast_snooping_flood=true|false
        /// mcast_snooping_flood_reports=true|false
        ///
        /// Limits of received packets: the keys of set-policing.
        /// BFD: bfd.KEY with the keys of set-bfd.
        #[arg(verbatim_doc_comment, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Delete a port.
    DelPort {
        /// Name of the port.
        name: String,
    },
    /// Set the VLANs of a port for NORMAL.
    ///
    /// `set-vlans eth1 tag=10`, `set-vlans eth2 vlan_mode=trunk trunks=10,20`.
    ///
    /// Omitted keys are reset to their defaults. Without any key the port becomes a trunk of all
    /// VLANs.
    SetVlans {
        /// Name of the port.
        name: String,
        /// Set vlan_mode=access|trunk|native-tagged|native-untagged|dot1q-tunnel, tag=VLAN,
        /// trunks=VLAN,VLAN.., cvlans=VLAN,VLAN.., qinq_ethtype=802.1ad|802.1q,
        /// priority_tags=never|if-nonzero|always, protected=true|false,
        /// mcast_snooping_flood=true|false, mcast_snooping_flood_reports=true|false
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Limit the rate of the packets that a port receives.
    ///
    /// `set-policing eth1 ingress_policing_rate=10000 ingress_policing_burst=1000`.
    ///
    /// Packets above a rate are dropped, and counted as `rx_policed`. Omitted keys are reset to their
    /// defaults. Without any key the port has no limit.
    SetPolicing {
        /// Name of the port.
        name: String,
        /// Set ingress_policing_rate=KILOBITS_PER_SECOND, ingress_policing_burst=KILOBITS,
        /// ingress_policing_kpkts_rate=KILOPACKETS_PER_SECOND,
        /// ingress_policing_kpkts_burst=KILOPACKETS.
        ///
        /// A rate of 0 is no limit. A burst of 0 is 8000 kilobits, or 16 kilopackets.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Set the quality of service of the packets that a port sends.
    ///
    /// `set-qos eth1 type=egress-policer cir=1250000 cbs=125000`.
    ///
    /// `set-qos eth1 type=linux-htb max_rate=10000000 queue.1.min_rate=2000000`.
    ///
    /// An egress-policer drops the packets above a rate, and counts them as `egress_policed`. linux-htb
    /// delays them, in queues that rules select by `set_queue`. Without any key the port has no limit.
    SetQos {
        /// Name of the port.
        name: String,
        /// Set type=linux-htb|egress-policer|linux-noop, cir=BYTES_PER_SECOND, cbs=BYTES,
        /// max_rate=BITS_PER_SECOND, queue.ID.min_rate|max_rate|burst|priority=N.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Set the BFD session of a port, which notices that its link passes no packets.
    ///
    /// `set-bfd eth1 enable=true`, `set-bfd eth1 min_tx_ms=300 min_rx_ms=300 dst_ip=192.0.2.2`.
    ///
    /// Bonds and fast-failover groups use a port only while its session is forwarding. Omitted keys are
    /// reset to their defaults. Without any key the port has no session. `show` has its state.
    SetBfd {
        /// Name of the port.
        name: String,
        /// Set min_tx_ms=MS, min_rx_ms=MS, decay_min_rx_ms=MS, mult=NUMBER,
        /// enable=true|false, forwarding_if_rx=true|false, cpath_down=true|false, check_tnl_key=true|false, oam=true|false.
        ///
        /// Addresses: local_src_mac=MAC, local_dst_mac=MAC, remote_dst_mac=MAC, src_ip=IP, dst_ip=IP.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Add a bond: several ports that NORMAL uses as one.
    ///
    /// `add-bond br0 bond0 members=eth0,eth1`,
    /// `add-bond br0 bond0 members=eth0,eth1 primary=eth0 updelay_ms=1000`.
    ///
    /// Add the bond before its ports: without it they close a loop. One member is active. Another
    /// one replaces it when it loses its link. With balance-slb and balance-tcp all members send.
    /// With LACP, a partner decides with the switch which members are used. `show` lists bonds.
    AddBond {
        /// Name of the bridge.
        bridge: String,
        /// Name of the bond.
        name: String,
        /// Set members=PORT,PORT.. and mode=active-backup|balance-slb|balance-tcp.
        ///
        /// Also primary=PORT, updelay_ms=MS, downdelay_ms=MS, rebalance_interval_ms=MS,
        /// hash_basis=NUMBER.
        ///
        /// LACP: lacp=off|active|passive, lacp_time=slow|fast, lacp_fallback_ab=true|false,
        /// lacp_system_id=MAC, lacp_system_priority=NUMBER; for members lacp_port_id=PORT:NUMBER..,
        /// lacp_port_priority=PORT:NUMBER.., lacp_aggregation_key=PORT:NUMBER..
        ///
        /// VLANs of all members: vlan_mode=MODE, tag=VLAN, trunks=VLAN,VLAN.., cvlans=VLAN,VLAN..,
        /// qinq_ethtype=802.1ad|802.1q
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Delete a bond; its members stay as ports.
    ///
    /// Remove or disable all members but one before: without the bond they close a loop.
    DelBond {
        /// Name of the bridge.
        bridge: String,
        /// Name of the bond.
        name: String,
    },
    /// Add a mirror, which copies packets of a bridge for analysis.
    ///
    /// `add-mirror br0 m1 select_all=true output_port=p9`,
    /// `add-mirror br0 m2 select_src_port=p1,p2 select_vlan=10 output_vlan=99`.
    ///
    /// The output port sends copies alone: frames that arrive on it are dropped. `show` lists mirrors
    /// with their counters.
    AddMirror {
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        name: String,
        /// The packets, and where their copies go.
        ///
        /// Packets: select_all=true|false, select_src_port=PORT,.., select_dst_port=PORT,..,
        /// select_vlan=VLAN,..
        ///
        /// Copies: output_port=PORT or output_vlan=VLAN. snaplen=BYTES truncates each copy.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Delete a mirror.
    DelMirror {
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        name: String,
    },
    /// Show the MAC addresses that NORMAL has learned in a bridge.
    Macs {
        /// Name of the bridge.
        bridge: String,
    },
    /// Show the multicast groups and router ports that a bridge has learned.
    Mdb {
        /// Name of the bridge.
        bridge: String,
    },
    /// Change settings of the running daemon.
    ///
    /// `set caches.idle_ms=5000`, `set logging.filter=debug`.
    ///
    /// All settings change at once, or none if one is refused. The configuration file does not
    /// change.
    Set {
        /// Set KEY to VALUE.
        ///
        /// `shuntctl settings` lists the keys with their values. The error of an invalid value
        /// names the valid ones.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Load the configuration file of the daemon again, like SIGHUP.
    ///
    /// Bridges, ports and settings that differ from the last load change at once. Keys that only
    /// apply at the start of the daemon are listed. Objects that were added with `shuntctl` stay.
    Reload,
    /// Save bridges, ports, settings, rules, groups and meters to a file.
    ///
    /// Rules are in the syntax of `ovs-ofctl`. Counters and learned MAC addresses are not saved.
    Save {
        /// Write to this file instead of standard output.
        file: Option<PathBuf>,
    },
    /// Restore a file that `save` or `shuntd --state` has written.
    ///
    /// Adds the bridges and ports that are missing, sets the settings, and replaces the rules, groups
    /// and meters of each bridge in the file at once.
    Restore {
        /// File to restore.
        file: PathBuf,
    },
    /// Show the settings that `set` can change.
    Settings {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show cache hits, misses and evictions.
    Caches {
        /// Print JSON.
        #[arg(long, conflicts_with_all = ["line", "metrics"])]
        json: bool,
        /// Print one line.
        #[arg(long, conflicts_with = "metrics")]
        line: bool,
        /// Print metrics in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Show cache entries, those with most packets first.
    Entries {
        /// Limit the number of entries; 0: all.
        #[arg(long, default_value_t = 20)]
        count: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the eviction engine, its latencies, and evictions by cause.
    Evict {
        /// Print JSON.
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// Print metrics in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Explain why a cache entry is valid, or which change evicted it.
    ///
    /// `shuntctl entries` lists entries with their names. A name has three numbers: the packet
    /// thread, a slot, and the number of earlier uses of the slot. A name is never reused.
    ///
    /// A change evicts an entry in three cases. It changes or removes a rule that an earlier lookup
    /// matched. It adds a rule of higher priority that overlaps the fields of that lookup. It changes
    /// an object that the entry depends on, such as a group, a port or a MAC address.
    ///
    /// Entries without hits expire. Expired entries cannot be explained.
    Why {
        /// Name of the entry, such as `0.17.2`.
        entry: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Trace a packet through the tables, and show its megaflow.
    Trace {
        /// Name of the bridge.
        bridge: String,
        /// Describe the packet.
        ///
        /// `in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=80`, or a frame in hexadecimal.
        flow: String,
        /// Use this frame, in hexadecimal; FLOW then only gives the ingress port.
        frame: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show packet counters, and lost packets by reason and by port.
    Drops {
        /// Print JSON.
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// Print metrics in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Print all metrics in the text format of Prometheus.
    ///
    /// The HTTP server of the daemon has the same text at `/metrics`. The metrics of rule-space
    /// coverage are only in `caches --metrics`, because they cost time of the packet threads.
    Metrics,
    /// Show forecasts of flows by predictor, with their outcomes.
    Forecast {
        /// Print JSON.
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// Print metrics in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Make cache entries for flows before their first packets arrive.
    ///
    /// `preload br0 flows.txt`, `preload br0 capture.pcap --in-port p1`.
    ///
    /// A flow has a line in the syntax of `trace`, with in_port. Packet threads translate the flows
    /// while no packet waits. The exit code is 1 if a flow has no entry afterwards.
    Preload {
        /// Name of the bridge.
        bridge: String,
        /// Text file with one flow in each line, or classic pcap file.
        file: PathBuf,
        /// Ingress port of the packets of a capture.
        #[arg(long, value_name = "PORT")]
        in_port: Option<String>,
        /// Remove entries that no packet has hit after this time.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
        /// Take this share of the flows, in percent.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
        percent: u8,
    },
    /// Show packet rates, caches, drops and evictions until Ctrl-C.
    ///
    /// In a terminal it is a screen: `q` ends it, `f` shows the cache entries with most packets, `p`
    /// stops the updates, arrow keys scroll.
    Top {
        /// Set the time between two updates, in seconds.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86400))]
        interval: u64,
        /// End after this number of updates; 0: never.
        #[arg(long, default_value_t = 0)]
        count: u64,
    },
    /// Capture the packets of a port, or dropped packets.
    ///
    /// `shuntctl capture p1 | tcpdump -r -`.
    Capture {
        /// Name of a port, or `drops`.
        #[arg(value_name = "PORT|drops")]
        source: String,
        /// Write to this file instead of standard output.
        file: Option<PathBuf>,
        /// End after this number of packets; 0: at Ctrl-C.
        #[arg(long, default_value_t = 0)]
        count: u64,
    },
    /// Check the rights, devices and limits that the switch needs on this host.
    ///
    /// Works without the daemon, and checks its rights, limits and ports as well if it runs. Else it
    /// reads what the ports need from the configuration file, and checks the rights of this user.
    ///
    /// Shows the command that mends each missing thing. The exit code is 1 if something is missing.
    Doctor {
        /// Read the ports from this configuration file if no daemon runs.
        #[arg(long, value_name = "FILE", default_value = "/etc/shunt/shunt.toml")]
        config: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stop the daemon, and wait until it has ended.
    Exit,
}
