//! The command line of `shuntctl`.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::key_help;
use crate::number_range::number_in;

/// The run directory of a daemon that is started without `--run-dir`.
pub(super) const RUN_DIR_DEFAULT: &str = "/run/shunt";

/// Control a running shuntd.
///
/// Rules are changed with OpenFlow: `ovs-ofctl .. unix:RUN_DIR/BRIDGE.mgmt`.
#[derive(Debug, Parser)]
#[command(name = "shuntctl", version)]
pub(super) struct Arguments {
    /// Use the daemon with this run directory.
    #[arg(long, value_name = "DIR", default_value = RUN_DIR_DEFAULT, global = true)]
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
    /// Show the threads with their states, and the receive queues with their loads.
    Threads {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a bridge without ports.
    ///
    /// The values of a list have commas between them.
    #[command(after_long_help = key_help::add_br())]
    AddBr {
        /// Name of the bridge: at most 15 bytes.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change a bridge while it forwards.
    ///
    /// All keys change at once, or none if one is refused. A list replaces the whole list before it,
    /// and `controllers=` sets an empty list. Controllers and listeners that are also in the new
    /// list keep their connections. The configuration file does not change.
    #[command(after_long_help = key_help::set_br())]
    SetBr {
        /// Name of the bridge.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE", required = true)]
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
        /// Name of the port: at most 15 bytes for af_packet, af_xdp and tap, else 128.
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
        /// busy_poll_us=MICROSECONDS
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
    /// Omitted keys are reset to their defaults. Without any key the port becomes a trunk of all
    /// VLANs.
    #[command(after_long_help = key_help::set_vlans())]
    SetVlans {
        /// Name of the port.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Limit the rate of the packets that a port receives.
    ///
    /// Packets above a rate are dropped, and counted as `rx_policed`. Omitted keys are reset to their
    /// defaults. Without any key the port has no limit.
    #[command(after_long_help = key_help::set_policing())]
    SetPolicing {
        /// Name of the port.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Set the quality of service of the packets that a port sends.
    ///
    /// An egress-policer drops the packets above a rate, and counts them as `egress_policed`. linux-htb
    /// delays them, in queues with the numbers 0 to 61439 that rules select by `set_queue`. Omitted
    /// keys are reset to their defaults. Without any key the port has no limit.
    #[command(after_long_help = key_help::set_qos())]
    SetQos {
        /// Name of the port.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Set the BFD session of a port, which notices that its link passes no packets.
    ///
    /// Bonds and fast-failover groups use a port only while its session is forwarding. Omitted keys are
    /// reset to their defaults. `enable=true` alone is a session with the defaults, and without any
    /// key the port has no session. Times are in milliseconds. `show` has the state of the session.
    #[command(after_long_help = key_help::set_bfd())]
    SetBfd {
        /// Name of the port.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Add a bond: several ports that NORMAL uses as one.
    ///
    /// Add the bond before its ports: two ports without a bond close a loop. One member is active.
    /// Another member becomes active when the active one loses its link. With balance-slb and
    /// balance-tcp all members send. With LACP, a partner decides with the switch which members are
    /// used. `show` lists bonds.
    #[command(after_long_help = key_help::add_bond())]
    AddBond {
        /// Name of the bridge.
        bridge: String,
        /// Name of the bond.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Delete a bond; its members stay as ports.
    ///
    /// Before, remove or disable all members but one: members without a bond close a loop.
    DelBond {
        /// Name of the bridge.
        bridge: String,
        /// Name of the bond.
        name: String,
    },
    /// Add a mirror, which copies packets of a bridge for analysis.
    ///
    /// The output port sends copies alone: frames that arrive on it are dropped. `show` lists mirrors
    /// with their counters. A mirror has an `output_port` or an `output_vlan`.
    #[command(after_long_help = key_help::add_mirror())]
    AddMirror {
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        name: String,
        /// Set KEY to VALUE; the table of `--help` has the keys.
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
        /// names the valid values.
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
    /// Rules are in the syntax of `ovs-ofctl`. The file also has their counters, and the learned MAC
    /// addresses and multicast groups. Counters of ports are not saved.
    Save {
        /// Write to this file instead of standard output.
        file: Option<PathBuf>,
    },
    /// Restore a file that `save` or `shuntd --state` has written.
    ///
    /// Adds the bridges and ports that are missing, sets the settings, and replaces the rules, groups
    /// and meters of each bridge in the file at once. Fails if a part is refused; the other parts are
    /// in force.
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
        #[arg(
            long,
            default_value_t = 20,
            value_parser = number_in(0..=u64::MAX),
            allow_negative_numbers = true
        )]
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
    /// A change evicts an entry in three cases. The change modifies or removes a rule that a lookup
    /// of the entry matched. The change adds a rule of higher priority that overlaps the fields of
    /// such a lookup. The change concerns an object that the entry depends on, such as a group, a
    /// port or a MAC address.
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
    ///
    /// `injected` counts packet-outs of controllers, and `copied` counts copies for further outputs.
    /// `punted` counts packet-ins for controllers, and frames for LACP, BFD and multicast snooping.
    /// `held` counts packets that wait in an upcall queue for a translation, or in an egress queue.
    ///
    /// received + injected + copied = sent + punted + held + the drops without a remark.
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
        #[arg(
            long,
            value_name = "SECONDS",
            default_value_t = 60,
            value_parser = number_in(1..=u64::MAX),
            allow_negative_numbers = true
        )]
        seconds: u64,
        /// Preload only this share of the flows, in percent.
        #[arg(
            long,
            default_value_t = 100,
            value_parser = number_in(1..=100_u8),
            allow_negative_numbers = true
        )]
        percent: u8,
    },
    /// Show packet rates, caches, drops and evictions until Ctrl-C.
    ///
    /// In a terminal it is a screen: `q` ends it, `f` shows the cache entries with most packets, `o`
    /// orders the ports by packets or drops, `p` pauses and resumes, arrow keys scroll.
    Top {
        /// Set the time between two updates, in seconds.
        #[arg(
            long,
            default_value_t = 1,
            value_parser = number_in(1..=86400_u64),
            allow_negative_numbers = true
        )]
        interval: u64,
        /// End after this number of updates; 0: never.
        #[arg(
            long,
            default_value_t = 0,
            value_parser = number_in(0..=u64::MAX),
            allow_negative_numbers = true
        )]
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
        #[arg(
            long,
            default_value_t = 0,
            value_parser = number_in(0..=u64::MAX),
            allow_negative_numbers = true
        )]
        count: u64,
    },
    /// Check the rights, devices and limits that the switch needs on this host.
    ///
    /// The command also works without the daemon. If the daemon runs, its rights, limits and ports
    /// are checked. Else the configuration file names the ports, and the rights of this user
    /// are checked.
    ///
    /// Shows the command that corrects each missing thing. The exit code is 1 if something is
    /// missing.
    Doctor {
        /// Check only what DPDK ports need, also before there is such a port.
        #[arg(value_parser = ["dpdk"])]
        subject: Option<String>,
        /// Check these network cards for DPDK, by PCI addresses such as 0000:01:00.0.
        #[arg(value_name = "CARD", requires = "subject")]
        cards: Vec<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_numbers_have_a_range() {
        for (words, range) in [
            (["top", "--interval", "1e30"], "from 1 to 86400"),
            (["top", "--interval", "-1"], "from 1 to 86400"),
            (["top", "--interval", "0"], "from 1 to 86400"),
            (["entries", "--count", "99999999999999999999"], "from 0 to 18446744073709551615"),
            (["entries", "--count", "-1"], "from 0 to 18446744073709551615"),
        ] {
            let line = ["shuntctl"].into_iter().chain(words);
            let error = Arguments::try_parse_from(line).unwrap_err().to_string();
            let value = format!("'{}'", words[2]);
            assert!(error.contains(&value), "{error}");
            assert!(error.contains(&format!("use a whole number {range}")), "{error}");
        }
    }
}
