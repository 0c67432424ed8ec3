//! Tables of keys, and examples, for the help of commands that take `KEY=VALUE`.

use std::iter;

/// A row of a table: key, values, default and meaning.
///
/// A row without a key continues the row above it. A default in parentheses is a description, and
/// not a value.
type KeyRow = [&'static str; 4];

/// Returns the help of `add-br`.
pub(super) fn add_br() -> String {
    let rows = [BRIDGE_START_ROWS, BRIDGE_ROWS].concat();
    key_help(&rows, "add-br br0 controllers=tcp:192.0.2.10,tcp:192.0.2.11 table_rules=10000")
}

/// Returns the help of `set-br`.
pub(super) fn set_br() -> String {
    key_help(BRIDGE_ROWS, "set-br br0 controllers=tcp:192.0.2.10,tcp:192.0.2.11 mac_ageing_s=60")
}

/// Returns the help of `set-vlans`.
pub(super) fn set_vlans() -> String {
    key_help(VLAN_ROWS, "set-vlans eth1 vlan_mode=trunk trunks=10,20")
}

/// Returns the help of `set-policing`.
pub(super) fn set_policing() -> String {
    let example = "set-policing eth1 ingress_policing_rate=100000 ingress_policing_burst=10000";
    key_help(POLICING_ROWS, example)
}

/// Returns the help of `set-qos`.
pub(super) fn set_qos() -> String {
    key_help(QOS_ROWS, "set-qos eth1 type=linux-htb max_rate=100000000 queue.1.min_rate=20000000")
}

/// Returns the help of `set-bfd`.
pub(super) fn set_bfd() -> String {
    key_help(BFD_ROWS, "set-bfd eth1 min_tx_ms=300 min_rx_ms=300 dst_ip=192.0.2.2")
}

/// Returns the help of `add-bond`.
pub(super) fn add_bond() -> String {
    key_help(BOND_ROWS, "add-bond br0 bond0 members=eth0,eth1 primary=eth0 updelay_ms=1000")
}

/// Returns the help of `add-mirror`.
pub(super) fn add_mirror() -> String {
    key_help(MIRROR_ROWS, "add-mirror br0 m1 select_src_port=p1,p2 select_vlan=10 output_port=p9")
}

/// Returns a table of keys with one example.
fn key_help(rows: &[KeyRow], example: &str) -> String {
    let all = || iter::once(&HEADER).chain(rows);
    let width =
        |cell: fn(&KeyRow) -> &'static str| all().map(cell).map(str::len).max().unwrap_or_default();
    let (values_width, default_width) = (width(|row| row[1]), width(|row| row[2]));
    let others = values_width + default_width + width(|row| row[3]) + SPACES;
    let key_max = WIDTH_MAX.saturating_sub(others);
    let keys = all().map(|row| row[0].len()).filter(|length| *length <= key_max);
    let key_width = keys.max().unwrap_or_default();
    let lines = all().map(|[key, values, default, meaning]| {
        // A long key has a line of its own.
        let is_long = key.len() > key_width;
        let end = if is_long { format!("\n  {:key_width$}", "") } else { String::new() };
        let cells = format!("{values:values_width$}  {default:default_width$}  {meaning}");
        format!("  {key:key_width$}{end}  {cells}").trim_end().to_owned()
    });
    let table = lines.collect::<Vec<_>>().join("\n");
    format!("Keys:\n{table}\n\nExample:\n  shuntctl {example}")
}

/// Maximum width of a table, in characters.
const WIDTH_MAX: usize = 100;

/// Number of spaces before the columns of a table.
const SPACES: usize = 8;

/// The names of the columns.
const HEADER: KeyRow = ["KEY", "VALUES", "DEFAULT", "MEANING"];

/// The keys of a bridge that `set-br` cannot change.
const BRIDGE_START_ROWS: &[KeyRow] = &[
    ["local", "none|tap", "none", "tap: a TAP device for the host"],
    ["mtu", "68 to 65535", "0", "MTU of the TAP device; 0: not changed"],
];

/// The keys of a bridge.
const BRIDGE_ROWS: &[KeyRow] = &[
    ["controllers", "tcp:IP[:PORT],..", "(none)", "controllers to connect to"],
    ["listen", "ptcp:[PORT[:IP]],..", "(none)", "addresses at which controllers connect"],
    ["protocols", "VERSION,..", "(all)", "OpenFlow10, OpenFlow13 or both"],
    ["fail_mode", "secure|standalone", "secure", "standalone: NORMAL without a controller"],
    ["datapath_id", "16 hex digits", "(from mac)", "identity for controllers"],
    ["mac", "MAC", "(from name)", "address of the local port"],
    ["table_rules", "N", "0", "maximum rules of a table; 0: no limit"],
    ["table_overflow", "refuse|evict", "refuse", "full table: refuse rules, or evict some"],
    ["table_limits", "TABLE:N[:evict],..", "(none)", "maximum rules of the named tables"],
    ["table_names", "TABLE:NAME,..", "(none)", "names of tables"],
    ["mac_ageing_s", "SECONDS", "0", "seconds an unused address stays; 0 means 300"],
    ["mac_entries", "N", "0", "maximum learned addresses; 0 means 8192"],
    ["flood_vlans", "VLAN,..", "(none)", "VLANs in which NORMAL only floods"],
    ["mcast_snooping_enable", "true|false", "false", "send groups only to ports with members"],
    ["mcast_snooping_ageing_s", "1 to 3600", "0", "seconds until ports leave; 0 means 300"],
    ["mcast_snooping_entries", "1 to 1000000", "0", "maximum learned groups; 0 means 2048"],
    [
        "mcast_snooping_disable_flood_unregistered",
        "true|false",
        "false",
        "do not flood groups that no port wants",
    ],
    ["sflow.targets", "IP[:PORT],..", "(none)", "collectors of sFlow"],
    ["sflow.agent", "IP|DEVICE", "(from route)", "agent address in the datagrams"],
    ["sflow.sampling", "N", "400", "one packet in N is sampled"],
    ["sflow.polling", "SECONDS", "30", "time between counter reports; 0: none"],
    ["sflow.header", "14 to 256", "128", "maximum bytes of a sampled packet"],
    ["netflow.targets", "IP[:PORT],..", "(none)", "collectors of NetFlow"],
    ["netflow.active_timeout", "SECONDS", "600", "seconds until a report; -1: at the end"],
    ["netflow.engine_type", "0 to 255", "0", "engine type in the datagrams"],
    ["netflow.engine_id", "0 to 255", "-1", "engine id; -1: of the bridge"],
    [
        "netflow.add_id_to_interface",
        "true|false",
        "false",
        "add the engine id to interface numbers",
    ],
    ["ipfix.targets", "IP[:PORT],..", "(none)", "collectors of IPFIX"],
    ["ipfix.sampling", "N", "400", "one packet in N is sampled"],
    ["ipfix.obs_domain_id", "N", "0", "observation domain in the messages"],
    ["ipfix.obs_point_id", "N", "0", "observation point in the records"],
    ["ipfix.virtual_obs_id", "TEXT", "(none)", "name of the observation point"],
    ["ipfix.cache_active_timeout", "0 to 4200", "0", "seconds until a report; 0: each sample"],
    ["ipfix.cache_max_flows", "0 to 1048576", "0", "maximum unreported flows; 0: no flows"],
];

/// The keys about the VLANs of a port.
const VLAN_ROWS: &[KeyRow] = &[
    ["vlan_mode", "access", "(with a tag)", "untagged frames, which are in the VLAN `tag`"],
    ["", "trunk", "(without)", "tagged frames of the VLANs in `trunks`"],
    ["", "native-tagged", "", "trunk; VLAN `tag` is tagged when sent"],
    ["", "native-untagged", "", "trunk; VLAN `tag` is untagged when sent"],
    ["", "dot1q-tunnel", "", "customer frames in service VLAN `tag` (QinQ)"],
    ["tag", "0 to 4095", "(none)", "VLAN of untagged frames"],
    ["trunks", "VLAN,..", "(all)", "VLANs of a trunk; 0: untagged frames"],
    ["cvlans", "VLAN,..", "(all)", "customer VLANs; 0: untagged frames"],
    ["qinq_ethtype", "802.1ad|802.1q", "802.1ad", "type of the service tag of a tunnel"],
    ["priority_tags", "never", "never", "no frame has a tag of VLAN 0"],
    ["", "if-nonzero", "", "frames with a priority have a tag of VLAN 0"],
    ["", "always", "", "frames that had a tag keep one"],
    ["protected", "true|false", "false", "NORMAL sends nothing to protected ports"],
    ["mcast_snooping_flood", "true|false", "false", "the port receives all multicast groups"],
    ["mcast_snooping_flood_reports", "true|false", "false", "the port receives all reports"],
];

/// The keys about the policing of a port.
const POLICING_ROWS: &[KeyRow] = &[
    ["ingress_policing_rate", "N", "0", "kilobits per second; 0: no limit"],
    ["ingress_policing_burst", "N", "0", "burst in kilobits; 0 means 8000"],
    ["ingress_policing_kpkts_rate", "N", "0", "thousands of packets per second; 0: no limit"],
    ["ingress_policing_kpkts_burst", "N", "0", "burst in thousands of packets; 0 means 16"],
];

/// The keys about the QoS of a port.
const QOS_ROWS: &[KeyRow] = &[
    ["type", "linux-noop", "linux-noop", "no limit"],
    ["", "linux-htb", "", "delays packets above `max_rate`, in queues"],
    ["", "egress-policer", "", "drops packets above `cir`"],
    ["max_rate", "BITS", "0", "linux-htb: bits per second; 0: speed of the link"],
    ["queue.ID.min_rate", "BITS", "0", "bits per second before any queue borrows"],
    ["queue.ID.max_rate", "BITS", "0", "maximum bits per second; 0 means `max_rate`"],
    ["queue.ID.burst", "BITS", "0", "bits that the idle queue may send at once"],
    ["queue.ID.priority", "N", "0", "queues with a lower value borrow first"],
    ["cir", "BYTES", "(required)", "egress-policer: bytes per second"],
    ["cbs", "BYTES", "(required)", "egress-policer: bytes of a burst"],
];

/// The keys about the BFD session of a port.
const BFD_ROWS: &[KeyRow] = &[
    ["enable", "true|false", "true", "false: the port has no session"],
    ["min_tx_ms", "1 to 4294967", "100", "minimum time between two sent packets"],
    ["min_rx_ms", "1 to 4294967", "1000", "minimum time between two received packets"],
    ["decay_min_rx_ms", "0 to 4294967", "0", "`min_rx_ms` while idle; 0: the same"],
    ["mult", "1 to 255", "3", "lost packets in a row that end the session"],
    ["forwarding_if_rx", "true|false", "false", "any received packet keeps the port in use"],
    ["cpath_down", "true|false", "false", "report a failed path behind the switch"],
    ["check_tnl_key", "true|false", "false", "no effect: there are no tunnels"],
    ["oam", "true|false", "false", "no effect: there are no tunnels"],
    ["local_src_mac", "MAC", "(of the port)", "source address of sent packets"],
    ["local_dst_mac", "MAC", "(00:23:20:00:00:01)", "destination address of sent packets"],
    ["remote_dst_mac", "MAC", "(any)", "destination address of received packets"],
    ["src_ip", "IP", "169.254.1.1", "source address of sent packets"],
    ["dst_ip", "IP", "169.254.1.0", "destination address of sent packets"],
];

/// The keys of a bond.
const BOND_ROWS: &[KeyRow] = &[
    ["members", "PORT,PORT..", "(required)", "ports of the bond, at least two"],
    ["mode", "active-backup", "active-backup", "the active member sends"],
    ["", "balance-slb", "", "source address and VLAN choose a member"],
    ["", "balance-tcp", "", "addresses and ports choose one; needs `lacp`"],
    ["primary", "PORT", "(none)", "member that is active while enabled"],
    ["updelay_ms", "MS", "0", "time until a link that is up is enabled"],
    ["downdelay_ms", "MS", "0", "time from the loss of a link to disabling it"],
    ["rebalance_interval_ms", "1000 or more", "10000", "time between checks of the loads; 0: none"],
    ["hash_basis", "N", "0", "seed of the hashes that choose a member"],
    ["lacp", "off", "off", "no LACP: every member with a link is used"],
    ["", "active", "", "LACP; the switch sends LACPDUs at once"],
    ["", "passive", "", "LACP; the switch only answers the partner"],
    ["lacp_time", "slow|fast", "slow", "notice of a silent partner: 90 s or 3 s"],
    ["lacp_fallback_ab", "true|false", "false", "active-backup while there is no partner"],
    ["lacp_system_id", "MAC", "(of the bridge)", "address of the LACP system"],
    ["lacp_system_priority", "1 to 65535", "65534", "the system with the lower number decides"],
    ["lacp_port_id", "PORT:N,..", "(of the ports)", "LACP port numbers of members"],
    ["lacp_port_priority", "PORT:N,..", "(65535)", "priorities; the lowest is preferred"],
    ["lacp_aggregation_key", "PORT:N,..", "(of the bond)", "members of equal keys work together"],
    ["vlan_mode", "MODE", "(as a port)", "VLAN mode of all members, as in set-vlans"],
    ["tag", "0 to 4095", "(none)", "VLAN of all members"],
    ["trunks", "VLAN,..", "(all)", "VLANs that all members carry"],
    ["cvlans", "VLAN,..", "(all)", "customer VLANs of all members"],
    ["qinq_ethtype", "802.1ad|802.1q", "802.1ad", "type of the service tag of all members"],
];

/// The keys of a mirror.
const MIRROR_ROWS: &[KeyRow] = &[
    ["select_all", "true|false", "false", "packets that arrive or leave on any port"],
    ["select_src_port", "PORT,..", "(none)", "packets that arrive on these ports"],
    ["select_dst_port", "PORT,..", "(none)", "packets that leave on these ports"],
    ["select_vlan", "VLAN,..", "(all)", "only packets of these VLANs; 0: without a VLAN"],
    ["output_port", "PORT", "(none)", "port that sends the copies"],
    ["output_vlan", "1 to 4095", "0", "VLAN in which the copies are flooded; 0: none"],
    ["snaplen", "14 to 65535", "0", "maximum bytes of a copy; 0: no limit"],
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Debug};

    use clap::{CommandFactory, Parser};
    use shunt_switch::{
        config::{BfdOptions, BondOptions, BridgeOptions, MirrorOptions},
        with_causes,
    };

    use super::*;
    use crate::{
        client::arguments::{Arguments, Command},
        setting,
    };

    /// Splits a text into words.
    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Compares the keys of a table with those that the command accepts.
    fn check_keys(rows: &[KeyRow], keys: &[&str]) {
        let listed: Vec<&str> =
            rows.iter().map(|row| row[0]).filter(|key| !key.is_empty()).collect();
        let unique: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(unique.len(), listed.len(), "{listed:?}");
        assert_eq!(unique, keys.iter().copied().collect::<BTreeSet<_>>());
    }

    /// A key that a command accepts is in its help, and no other key.
    #[test]
    fn each_table_has_the_keys_of_its_command() {
        check_keys(BRIDGE_ROWS, BridgeOptions::RUNTIME_KEYS);
        check_keys(BRIDGE_START_ROWS, BridgeOptions::START_KEYS);
        check_keys(VLAN_ROWS, setting::VLAN_KEYS);
        check_keys(POLICING_ROWS, setting::POLICING_KEYS);
        check_keys(BFD_ROWS, BfdOptions::KEYS);
        check_keys(BOND_ROWS, BondOptions::KEYS);
        check_keys(MIRROR_ROWS, MirrorOptions::KEYS);
        let of_queue = setting::QUEUE_KEYS.map(|key| format!("queue.ID.{key}"));
        let mut keys: Vec<&str> = of_queue.iter().map(String::as_str).collect();
        keys.extend(setting::QOS_KEYS.iter().filter(|key| **key != "queue.ID.KEY"));
        check_keys(QOS_ROWS, &keys);
    }

    /// Compares the defaults of a table with the options that have no further keys.
    fn check_defaults<T: PartialEq + Debug>(
        rows: &[KeyRow],
        needed: &str,
        parse: impl Fn(&[String]) -> Result<T, String>,
    ) {
        let usual = parse(&words(needed)).unwrap();
        let is_value = |text: &str| !text.is_empty() && !text.starts_with('(');
        for [key, _, default, _] in rows.iter().filter(|row| is_value(row[2])) {
            // A queue that is named exists.
            if !key.starts_with("queue.") {
                let text = format!("{needed} {key}={default}");
                assert_eq!(parse(&words(&text)).unwrap(), usual, "{text}");
            }
        }
    }

    #[test]
    fn each_table_has_the_defaults_of_its_keys() {
        check_defaults(BRIDGE_ROWS, "", |words| setting::bridge("br0", words));
        check_defaults(BRIDGE_START_ROWS, "", |words| setting::bridge("br0", words));
        check_defaults(VLAN_ROWS, "", |words| setting::vlans("p1", words));
        check_defaults(POLICING_ROWS, "", |words| setting::policing("p1", words));
        check_defaults(QOS_ROWS, "type=linux-noop", |words| setting::qos("p1", words));
        check_defaults(BFD_ROWS, "enable=true", |words| setting::bfd("p1", words));
        check_defaults(BOND_ROWS, "", |words| setting::bond("bond0", words));
        check_defaults(MIRROR_ROWS, "", |words| setting::mirror("m1", words));
    }

    /// Checks that a key takes the values of its range, and no others but its default.
    fn has_ranges(rows: &[KeyRow], needed: &str, check: impl Fn(&[String]) -> Result<(), String>) {
        for [key, values, default, _] in rows {
            let Some((min, max)) = values.split_once(" to ") else { continue };
            let [min, max] = [min, max].map(|end| end.parse::<i64>().unwrap());
            let accepts = |value: i64| check(&words(&format!("{needed} {key}={value}"))).is_ok();
            assert!(accepts(min) && accepts(max), "{key}");
            assert!(!accepts(max + 1), "{key}");
            assert!(default.parse::<i64>() == Ok(min - 1) || !accepts(min - 1), "{key}");
        }
    }

    #[test]
    fn each_table_has_the_ranges_of_its_keys() {
        let bridge = |words: &[String]| setting::bridge("br0", words).map(drop);
        has_ranges(BRIDGE_ROWS, "", bridge);
        has_ranges(BRIDGE_START_ROWS, "local=tap", bridge);
        has_ranges(VLAN_ROWS, "", |words| {
            setting::vlans("p1", words)?.check().map_err(|error| with_causes(&error))
        });
        has_ranges(BFD_ROWS, "", |words| {
            let session = setting::bfd("p1", words)?.bfd.unwrap_or_default();
            session.check().map_err(str::to_owned)
        });
        has_ranges(BOND_ROWS, "members=p1,p2 lacp=active", |words| {
            let bonds = vec![setting::bond("bond0", words)?];
            let bridge = BridgeOptions { bonds, ..BridgeOptions::default() };
            bridge.check_bonds().map_err(|error| with_causes(&*error.problem))
        });
        has_ranges(MIRROR_ROWS, "output_vlan=7", |words| {
            setting::mirror("m1", words)?.check().map_err(|error| with_causes(&*error.problem))
        });
    }

    /// Returns the number of keys in the example of a help text, which must be valid.
    fn check_example(help: &str) -> usize {
        let example = help.lines().last().unwrap_or_default();
        let arguments = Arguments::try_parse_from(words(example)).unwrap();
        let (checked, settings) = match arguments.command {
            Command::AddBr { name, settings } => {
                (setting::bridge(&name, &settings).map(drop), settings)
            }
            Command::SetBr { settings, .. } => {
                (setting::bridge_changes(&settings).map(drop), settings)
            }
            Command::SetVlans { name, settings } => {
                (setting::vlans(&name, &settings).map(drop), settings)
            }
            Command::SetPolicing { name, settings } => {
                (setting::policing(&name, &settings).map(drop), settings)
            }
            Command::SetQos { name, settings } => {
                (setting::qos(&name, &settings).map(drop), settings)
            }
            Command::SetBfd { name, settings } => {
                (setting::bfd(&name, &settings).map(drop), settings)
            }
            Command::AddBond { name, settings, .. } => {
                (setting::bond(&name, &settings).map(drop), settings)
            }
            Command::AddMirror { name, settings, .. } => {
                (setting::mirror(&name, &settings).map(drop), settings)
            }
            other => panic!("{example}: {other:?}"),
        };
        checked.unwrap();
        settings.len()
    }

    #[test]
    fn the_help_of_drops_explains_each_counter() {
        let mut command = Arguments::command();
        let help = command.find_subcommand_mut("drops").unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for counter in ["injected", "copied", "punted", "held"] {
            assert!(help.contains(&format!("`{counter}` counts ")), "{counter}: {help}");
        }
    }

    /// The help of eight commands has a table with one example, and fits a terminal.
    #[test]
    fn each_help_has_a_valid_example() {
        let mut count = 0;
        for command in Arguments::command().get_subcommands() {
            let Some(help) = command.get_after_long_help() else { continue };
            let help = help.to_string();
            assert!(check_example(&help) > 0, "{help}");
            assert!(help.lines().all(|line| line.len() <= WIDTH_MAX), "{help}");
            count += 1;
        }
        assert_eq!(count, 8);
        let mut command = Arguments::command();
        let command = command.find_subcommand_mut("set-bfd").unwrap();
        let help = command.render_long_help().to_string();
        let row = help.lines().find(|line| line.trim_start().starts_with("mult ")).unwrap();
        let cells: Vec<&str> =
            row.split("  ").map(str::trim).filter(|own| !own.is_empty()).collect();
        assert_eq!(cells, ["mult", "1 to 255", "3", "lost packets in a row that end the session"]);
    }
}
