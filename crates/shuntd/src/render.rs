//! Tables and lines of text for the JSON values of the daemon.

pub(crate) mod bfd;
pub(crate) mod caches;
mod controllers;
mod copies;
pub(crate) mod drops;
pub(crate) mod evict;
pub(crate) mod exports;
pub(crate) mod forecast;
pub(crate) mod nic;
mod problems;
pub(crate) mod screen;
pub(crate) mod thread_list;
pub(crate) mod top;

use std::fmt::Write;

use serde_json::Value;
use shunt_switch::{MacStatus, MulticastEntryStatus};

use crate::render::{
    bfd::bfd_state,
    controllers::controller_state,
    exports::exports,
    nic::nic_line,
    problems::{bridge_problems, port_problems},
};

/// Header of a capture file with nanosecond timestamps.
pub(crate) const PCAP_HEADER: [u8; 24] =
    [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// Converts a captured packet to a record of a capture file.
///
/// The packet has the form `{"time_ns": .., "frame": hex}`.
pub(crate) fn pcap_record(packet: &Value) -> Vec<u8> {
    let time = packet["time_ns"].as_u64().unwrap_or_default();
    let hex = packet["frame"].as_str().unwrap_or_default();
    let byte = |at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let frame: Vec<u8> = (0..hex.len()).step_by(2).filter_map(byte).collect();
    // The time fields of the file format have 32 bits, so they overflow in the year 2106.
    let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let length = word(frame.len() as u64);
    let seconds = word(time / 1_000_000_000);
    let nanoseconds = word(time % 1_000_000_000);
    [&seconds[..], &nanoseconds, &length, &length, &frame].concat()
}

/// Returns bridges with their controllers and ports.
pub(crate) fn show(bridges: &Value) -> String {
    let mut text = String::new();
    for bridge in list(bridges) {
        let _ = writeln!(
            text,
            "bridge {} (datapath id {}, {})",
            word(&bridge["name"]),
            word(&bridge["datapath_id"]),
            rules(bridge)
        );
        text.push_str(&bridge_problems(bridge));
        for controller in list(&bridge["controllers"]) {
            let (target, state) = (word(&controller["target"]), controller_state(controller));
            let _ = writeln!(text, "    controller {target} ({state})");
        }
        if let Some(counts) = packet_ins(&bridge["packet_ins"]) {
            let _ = writeln!(text, "    packet-ins: {counts}");
        }
        for connection in list(&bridge["connections"]) {
            if let Some(counts) = packet_ins(&connection["packet_ins"]) {
                let _ = writeln!(text, "    packet-ins to {}: {counts}", word(&connection["peer"]));
            }
        }
        if bridge["nic"].is_object() {
            let _ = writeln!(text, "    {}", nic_line(&bridge["nic"]));
        }
        for port in list(&bridge["ports"]) {
            let _ = writeln!(
                text,
                "    port {} {} ({}, {}{}{})",
                number(port),
                word(&port["name"]),
                word(&port["type"]),
                word(&port["link"]),
                vlans_text(port),
                limits(port)
            );
        }
        text.extend(list(&bridge["bonds"]).iter().map(bond_line));
        text.extend(list(&bridge["mirrors"]).iter().map(mirror_line));
        text.push_str(&snooping(&bridge["multicast"]));
        text.push_str(&exports(bridge));
    }
    text
}

/// Returns a bond as a line, with the states of its members.
fn bond_line(bond: &Value) -> String {
    let members = list(&bond["member_status"]).iter().map(|member| {
        let state = match (member["active"] == true, member["enabled"] == true) {
            (true, _) => "active",
            (false, true) => "enabled",
            (false, false) => "disabled",
        };
        let reason = lacp_reason(&member["lacp"]);
        let reason = reason.map(|reason| format!(" (LACP: {reason})")).unwrap_or_default();
        format!("{} {state}{reason}", word(&member["name"]))
    });
    let lacp = match &bond["lacp_status"] {
        status if status.is_string() => format!(", LACP {}", word(status)),
        _ => String::new(),
    };
    let (name, mode) = (word(&bond["name"]), word(&bond["mode"]));
    let members = members.collect::<Vec<_>>().join(", ");
    format!("    bond {name} ({mode}{lacp}: {members}{})\n", vlans_text(bond))
}

/// Returns why LACP does not use a member; `None` if it does, or without LACP.
fn lacp_reason(lacp: &Value) -> Option<&str> {
    let unselected = &lacp["unselected"];
    if unselected.is_string() {
        return Some(word(unselected));
    }
    match word(&lacp["mux"]) {
        "waiting" => Some("waits two seconds before it uses the link"),
        "attached" | "collecting" => Some("waits for the partner to use the link"),
        _ => None,
    }
}

/// Returns a mirror as a line, with the number of copies.
fn mirror_line(mirror: &Value) -> String {
    let names = |key: &str| list(&mirror[key]).iter().map(word).collect::<Vec<_>>().join(",");
    let mut parts = Vec::new();
    if mirror["select_all"] == true {
        parts.push("select_all".to_owned());
    }
    for key in ["select_src_port", "select_dst_port"] {
        parts.extend(
            Some(names(key)).filter(|own| !own.is_empty()).map(|own| format!("{key}={own}")),
        );
    }
    let vlans: Vec<String> = list(&mirror["select_vlan"]).iter().map(Value::to_string).collect();
    if !vlans.is_empty() {
        parts.push(format!("select_vlan={}", vlans.join(",")));
    }
    match count(&mirror["output_vlan"]) {
        0 => parts.push(format!("output_port={}", word(&mirror["output_port"]))),
        vlan => parts.push(format!("output_vlan={vlan}")),
    }
    if count(&mirror["snaplen"]) > 0 {
        parts.push(format!("snaplen={}", count(&mirror["snaplen"])));
    }
    let copied = format!(
        "{}, {}",
        counted(count(&mirror["tx_packets"]), "packet"),
        counted(count(&mirror["tx_bytes"]), "byte")
    );
    let problem = mirror["problem"].as_str().map_or_else(String::new, |own| format!("; {own}"));
    let (name, parts) = (word(&mirror["name"]), parts.join(" "));
    format!("    mirror {name} ({parts}, copied {copied}{problem})\n")
}

/// Returns multicast snooping as a line; empty if it is disabled.
fn snooping(multicast: &Value) -> String {
    if !multicast.is_object() {
        return String::new();
    }
    format!(
        "    multicast snooping ({} of {}, {})\n",
        count(&multicast["multicast_groups"]),
        counted(count(&multicast["multicast_groups_max"]), "group"),
        counted(count(&multicast["router_ports"]), "router port")
    )
}

/// Returns the number of rules of a bridge, with a hint if there are none.
fn rules(bridge: &Value) -> String {
    match count(&bridge["rules"]) {
        0 if bridge["fail_open"] == true => "no rules".to_owned(),
        0 => "no rules: drops every packet".to_owned(),
        count => counted(count, "rule"),
    }
}

/// Returns a number with its noun: `1 rule`, `2 rules`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(start)) => format!("{count} {start}ies"),
        (_, None) => format!("{count} {noun}s"),
    }
}

/// Returns a counter as a line of name, value and remark.
pub(crate) fn counter_line(name: &str, value: u64, remark: &str) -> String {
    let line = format!("{name:<NAME_WIDTH$} {value:>14}  {remark}");
    line.trim_end().to_owned() + "\n"
}

/// Width of the column with the names of counters.
const NAME_WIDTH: usize = 25;

/// Returns the VLANs of a port as text; empty if the port accepts all VLANs.
fn vlans_text(port: &Value) -> String {
    let (mode, trunks) = (word(&port["vlan_mode"]), list(&port["trunks"]));
    let mut text = String::new();
    if !mode.is_empty() && (mode != "trunk" || !trunks.is_empty()) {
        let _ = write!(text, ", {mode}");
    }
    if let Some(tag) = port["tag"].as_u64() {
        let _ = write!(text, " tag={tag}");
    }
    for (key, vlans) in [("trunks", trunks), ("cvlans", list(&port["cvlans"]))] {
        if !vlans.is_empty() {
            let vlans: Vec<String> = vlans.iter().map(Value::to_string).collect();
            let _ = write!(text, " {key}={}", vlans.join(","));
        }
    }
    let qinq_ethtype = word(&port["qinq_ethtype"]);
    if mode == "dot1q-tunnel" && qinq_ethtype == "802.1q" {
        let _ = write!(text, " qinq_ethtype={qinq_ethtype}");
    }
    let priority_tags = word(&port["priority_tags"]);
    if !["", "never"].contains(&priority_tags) {
        let _ = write!(text, ", priority_tags={priority_tags}");
    }
    if port["protected"] == true {
        text.push_str(", protected");
    }
    for key in ["mcast_snooping_flood", "mcast_snooping_flood_reports"] {
        if port[key] == true {
            let _ = write!(text, ", {key}");
        }
    }
    text
}

/// Returns ingress policing, QoS and BFD session of a port as text.
///
/// The text is empty if the port has none of them.
fn limits(port: &Value) -> String {
    let policing = port["ingress_policing"].as_object().into_iter().flatten();
    let policing: Vec<String> = policing.map(|(key, value)| format!("{key}={value}")).collect();
    let mut text =
        if policing.is_empty() { String::new() } else { format!(", {}", policing.join(" ")) };
    if let Some(kind) = port["qos"]["type"].as_str() {
        let _ = write!(text, ", qos {kind}");
        for key in ["cir", "cbs", "max_rate"] {
            if let Some(amount) = port["qos"][key].as_u64().filter(|amount| *amount > 0) {
                let _ = write!(text, " {key}={amount}");
            }
        }
        let queues: Vec<String> =
            list(&port["queues"]).iter().map(|own| count(&own["id"]).to_string()).collect();
        if !queues.is_empty() {
            let _ = write!(text, " queues={}", queues.join(","));
        }
    }
    text + &bfd_state(&port["bfd"]) + &port_problems(port)
}

/// Returns the numbers of packet-ins by result; `None` if there were none.
fn packet_ins(counts: &Value) -> Option<String> {
    let field = |name: &str| counts[name].as_u64().unwrap_or(0);
    let delivered = field("delivered");
    let reasons = [
        (field("dropped_unread"), "unread by a slow peer"),
        (field("dropped_missed"), "too many at once"),
        (field("no_connection"), "without a connection"),
    ];
    let dropped = reasons.iter().fold(0_u64, |sum, (count, _)| sum.saturating_add(*count));
    let named = reasons.iter().filter(|(count, _)| *count > 0);
    let named: Vec<String> = named.map(|(count, reason)| format!("{count} {reason}")).collect();
    match (delivered, dropped) {
        (0, 0) => None,
        (_, 0) => Some(format!("{delivered} delivered, 0 dropped")),
        _ => Some(format!("{delivered} delivered, {dropped} dropped ({})", named.join(", "))),
    }
}

/// Returns MAC addresses in the format of `ovs-appctl fdb/show`.
pub(crate) fn macs(macs: &[MacStatus]) -> String {
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for entry in macs {
        let [a, b, c, d, e, f] = entry.mac;
        let age = match entry.is_static {
            true => "static".to_owned(),
            false => entry.age.as_secs().to_string(),
        };
        let _ = writeln!(
            text,
            "{:>5}  {:>4}  {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}  {age:>3}",
            entry.port.to_string(),
            entry.vlan,
        );
    }
    text
}

/// Returns a multicast table in the format of `ovs-appctl mdb/show`.
pub(crate) fn multicast(entries: &[MulticastEntryStatus]) -> String {
    let mut text = " port  VLAN  GROUP                Age\n".to_owned();
    for entry in entries {
        let (port, vlan, age) = (entry.port.to_string(), entry.vlan, entry.age.as_secs());
        let _ = match entry.group {
            Some(group) => writeln!(text, "{port:>5}  {vlan:>4}  {group}         {age:>3}"),
            None => writeln!(text, "{port:>5}  {vlan:>4}  querier             {age:>3}"),
        };
    }
    text
}

/// Returns the threads that have panicked; empty if there are none.
pub(crate) fn threads(threads: &Value) -> String {
    let gone = list(threads).iter().filter(|thread| thread["state"] == "panicked");
    let line = |thread: &Value| {
        let name = word(&thread["name"]);
        let action = match name {
            "offload thread" => {
                "set caches.gigaflow.offload.kind to none and then to its old value"
            }
            _ if name.starts_with("trainer of") => {
                "masks are searched one by one; restart the daemon to use the learned index again"
            }
            _ => "restart the daemon",
        };
        format!(
            "{name}: panicked; {action}
"
        )
    };
    gone.map(line).collect()
}

/// Returns settings as in the configuration file, one line each.
pub(crate) fn settings(settings: &Value) -> String {
    let all = settings.as_object().into_iter().flatten();
    all.map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// Returns the ports of all bridges as one JSON list.
pub(crate) fn ports_of(bridges: &Value) -> Value {
    list(bridges).iter().flat_map(|bridge| list(&bridge["ports"])).cloned().collect()
}

/// Returns a table of ports with their counters, and one of their copies.
pub(crate) fn ports(bridges: &Value) -> String {
    let mut rows = vec![
        [
            "bridge",
            "port",
            "name",
            "type",
            "rx packets",
            "rx dropped",
            "forward dropped",
            "tx packets",
            "tx dropped",
            "link",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for port in list(&ports_of(bridges)) {
        rows.push(vec![
            word(&port["bridge"]).to_owned(),
            number(port),
            word(&port["name"]).to_owned(),
            word(&port["type"]).to_owned(),
            port["rx_packets"].to_string(),
            port["rx_dropped"].to_string(),
            port["forward_dropped"].to_string(),
            port["tx_packets"].to_string(),
            port["tx_dropped"].to_string(),
            word(&port["link"]).to_owned()
                + &bfd_state(&port["bfd"])
                + &numa_node(port)
                + &port_problems(port),
        ]);
    }
    table(&rows) + &copies::copies(bridges)
}

/// Returns the NUMA node of the device of a port; empty without one.
fn numa_node(port: &Value) -> String {
    port["numa_node"].as_u64().map_or_else(String::new, |node| format!(", node {node}"))
}

/// Formats rows as a table with aligned columns.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Returns the number of a port, or `LOCAL`.
pub(crate) fn number(port: &Value) -> String {
    match port["number"].as_u64() {
        Some(0xffff_fffe) => "LOCAL".to_owned(),
        other => other.unwrap_or_default().to_string(),
    }
}

/// Formats a part as percent of the whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the percentage is only displayed")]
    let share = part as f64 * 100.0 / whole.max(1) as f64;
    format!("{share:5.1} %")
}

/// Returns the elements of an array; no elements for other values.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a string; an empty one for other values.
pub(crate) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a number; zero for other values.
pub(crate) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unused_lacp_member_has_reason() {
        let reason = |lacp: Value| lacp_reason(&lacp).map(str::to_owned);
        let unselected = reason(json!({"mux": "detached", "unselected": "the link is down"}));
        assert_eq!(unselected.as_deref(), Some("the link is down"));
        let attached = reason(json!({"mux": "attached"}));
        assert_eq!(attached.as_deref(), Some("waits for the partner to use the link"));
        assert_eq!(reason(json!({"mux": "collecting_distributing"})), None);
        assert_eq!(reason(Value::Null), None);
    }

    #[test]
    fn port_is_shown_with_counters_in_columns() {
        let port = json!({"bridge": "br0", "name": "p1", "number": 1, "type": "null", "link": "up",
            "rx_packets": 5, "rx_dropped": 0, "forward_dropped": 2,
            "tx_packets": 7, "tx_dropped": 1});
        let shown = ports(&json!([{"ports": [port]}]));
        let expected = "\
bridge  port  name  type  rx packets  rx dropped  forward dropped  tx packets  tx dropped  link
br0     1     p1    null  5           0           2                7           1           up
";
        assert_eq!(shown, expected);
        let bound = json!({"name": "p1", "link": "up", "numa_node": 1});
        assert!(ports(&json!([{"ports": [bound]}])).ends_with("  up, node 1\n"));
    }

    #[test]
    fn a_count_is_shown_with_its_unit() {
        let texts =
            [counted(1, "rule"), counted(0, "rule"), counted(1, "entry"), counted(2, "entry")];
        assert_eq!(texts, ["1 rule", "0 rules", "1 entry", "2 entries"]);
    }

    #[test]
    fn a_local_port_is_shown_with_its_type() {
        let port =
            json!({"name": "br0", "number": 0xffff_fffe_u32, "type": "unbound", "link": "up"});
        let shown =
            show(&json!([{"name": "br0", "datapath_id": "1", "rules": 1, "ports": [port]}]));
        let expected = "bridge br0 (datapath id 1, 1 rule)\n    port LOCAL br0 (unbound, up)\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_bridge_without_rules_says_so() {
        let shown = show(&json!([{"name": "br0", "datapath_id": "1", "rules": 0, "ports": []}]));
        assert_eq!(shown, "bridge br0 (datapath id 1, no rules: drops every packet)\n");
    }

    #[test]
    fn port_shows_vlans_unless_it_has_all() {
        let line = |port: Value| {
            let shown = show(&json!([{"name": "br0", "rules": 0, "ports": [port]}]));
            shown.lines().nth(1).unwrap().trim().to_owned()
        };
        let port = |mode: &str, tag: Option<u16>, trunks: &[u16]| {
            line(json!({"name": "p1", "number": 1, "type": "null", "link": "up",
                "vlan_mode": mode, "tag": tag, "trunks": trunks}))
        };
        assert_eq!(port("trunk", None, &[]), "port 1 p1 (null, up)");
        assert_eq!(port("access", Some(10), &[]), "port 1 p1 (null, up, access tag=10)");
        assert_eq!(port("trunk", None, &[10, 20]), "port 1 p1 (null, up, trunk trunks=10,20)");
        let protected = json!({"name": "p1", "number": 1, "type": "null", "link": "up",
            "vlan_mode": "access", "tag": 10, "priority_tags": "always", "protected": true});
        assert_eq!(
            line(protected),
            "port 1 p1 (null, up, access tag=10, priority_tags=always, protected)"
        );
        let tunnel = json!({"name": "p1", "number": 1, "type": "null", "link": "up",
            "vlan_mode": "dot1q-tunnel", "tag": 100, "cvlans": [5, 6], "qinq_ethtype": "802.1q"});
        assert_eq!(
            line(tunnel),
            "port 1 p1 (null, up, dot1q-tunnel tag=100 cvlans=5,6 qinq_ethtype=802.1q)"
        );
    }

    #[test]
    fn a_port_shows_its_limits() {
        let limits = json!({"ingress_policing_rate": 1000, "ingress_policing_burst": 80});
        let port = json!({"name": "p1", "number": 1, "type": "null", "link": "up",
            "vlan_mode": "access", "tag": 5, "ingress_policing": limits,
            "qos": {"type": "egress-policer", "cir": 1000, "cbs": 500}});
        let shown = show(&json!([{"name": "br0", "rules": 0, "ports": [port]}]));
        let limits = "ingress_policing_burst=80 ingress_policing_rate=1000";
        assert!(
            shown.contains(&format!("tag=5, {limits}, qos egress-policer cir=1000 cbs=500)")),
            "{shown}"
        );
    }

    #[test]
    fn packet_ins_are_shown_for_each_connection() {
        let counts = |delivered: u64, unread: u64, missed: u64| json!({"delivered": delivered, "dropped_unread": unread, "dropped_missed": missed});
        let connections = json!([
            {"peer": "tcp:1.2.3.4", "role": "master", "packet_ins": counts(7, 0, 0)},
            {"peer": "unix:br0.mgmt", "role": "equal", "packet_ins": counts(0, 0, 0)},
        ]);
        let shown = show(&json!([{"name": "br0", "rules": 0, "connections": connections,
            "packet_ins": {"delivered": 10, "dropped_unread": 4, "dropped_missed": 5,
                "no_connection": 3}}]));
        let lines: Vec<&str> = shown.lines().skip(1).map(str::trim).collect();
        let expected = [
            "packet-ins: 10 delivered, 12 dropped (4 unread by a slow peer, 5 too many at once, \
             3 without a connection)",
            "packet-ins to tcp:1.2.3.4: 7 delivered, 0 dropped",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_ended_thread_is_named() {
        let thread = |name, state| json!({"name": name, "state": state});
        let (one, two) = ("packet thread 0", "packet thread 1");
        let both = json!([thread(one, "running"), thread(two, "panicked")]);
        assert_eq!(threads(&both), "packet thread 1: panicked; restart the daemon\n");
        let trainer =
            json!([thread(one, "running"), thread("trainer of packet thread 0", "panicked")]);
        let advice =
            "masks are searched one by one; restart the daemon to use the learned index again";
        assert_eq!(threads(&trainer), format!("trainer of packet thread 0: panicked; {advice}\n"));
        let end = json!([thread(one, "stopped"), thread("eviction thread", "panicked")]);
        assert_eq!(threads(&end), "eviction thread: panicked; restart the daemon\n");
        assert_eq!(threads(&json!([thread(one, "running")])), "");
    }

    #[test]
    fn a_captured_packet_becomes_a_record() {
        let record = pcap_record(&json!({"time_ns": 2_000_000_003_u64, "frame": "ffee01"}));
        assert_eq!(record, [2, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0xff, 0xee, 1]);
    }
}
