//! Tables of lost packets: by reason, and by port.

use std::{fmt::Write, path::Path};

use serde_json::Value;

use super::{count, list, number, table, word};

/// Returns a table of packet counters, and of losses by reason and by port.
///
/// `run_dir` is the directory of the daemon's sockets, for a hint.
pub(crate) fn drops(drops: &Value, run_dir: &Path) -> String {
    let mut text = String::new();
    for (key, remark) in COUNTERS {
        let line = format!("{key:<NAME_WIDTH$} {:>COUNT_WIDTH$}", count(&drops[key]));
        let _ = writeln!(text, "{}", format!("{line}  {remark}").trim_end());
    }
    for (reason, packets, remark) in losses(drops) {
        let line = dropped_line(reason, packets);
        let _ = writeln!(text, "{}", format!("{line}  {remark}").trim_end());
    }
    let _ = writeln!(text, "{}", dropped_line("total", total(drops)));
    let ports = list(&drops["ports"]);
    if !ports.is_empty() {
        text.push('\n');
        let titles = ["bridge", "port", "name", "direction", "reason", "packets"];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        rows.extend(ports.iter().map(|port| {
            vec![
                word(&port["bridge"]).to_owned(),
                number(port),
                word(&port["name"]).to_owned(),
                word(&port["direction"]).to_owned(),
                word(&port["reason"]).to_owned(),
                port["packets"].to_string(),
            ]
        }));
        text += &table(&rows);
    }
    for bridge in list(&drops["bridges_without_rules"]) {
        let bridge = word(bridge);
        let socket = run_dir.join(format!("{bridge}.mgmt"));
        let _ = writeln!(
            text,
            "\nbridge {bridge} has no rules and drops every packet; to forward as a learning \
             switch:\n    ovs-ofctl add-flow unix:{} priority=0,actions=NORMAL",
            socket.display()
        );
    }
    text
}

/// Formats a drop reason and its count as a line.
fn dropped_line(reason: &str, packets: u64) -> String {
    let name = format!("dropped: {reason}");
    format!("{name:<NAME_WIDTH$} {packets:>COUNT_WIDTH$}")
}

/// Returns all losses, each with reason, number of packets, and remark.
pub(crate) fn losses(drops: &Value) -> impl Iterator<Item = (&str, u64, &str)> {
    let pairs = |key: &str, remark: &'static str| {
        list(&drops[key]).iter().map(move |pair| (word(&pair[0]), count(&pair[1]), remark))
    };
    let packet_ins = &drops["packet_ins"];
    let others = [
        ("device_lost", count(&drops["device_lost"]), "also in `sent`"),
        ("packet_in_listener_full", count(&packet_ins["listener_full"]), "also in `punted`"),
        ("packet_in_no_connection", count(&packet_ins["no_connection"]), "also in `punted`"),
        ("packet_in_no_bridge", count(&packet_ins["no_bridge"]), "also in `punted`"),
        ("snooping_inbox_full", count(&drops["snooping_inbox_full"]), "also in `punted`"),
    ];
    pairs("dropped", "")
        .chain(pairs("not_received", "not in `received`"))
        .chain(others.into_iter().filter(|(_, packets, _)| *packets > 0))
}

/// Returns the total number of lost packets.
pub(crate) fn total(drops: &Value) -> u64 {
    losses(drops).map(|(_, packets, _)| packets).sum()
}

/// The counters of packets that were not lost, with remarks.
const COUNTERS: [(&str, &str); 6] = [
    ("received", ""),
    ("injected", "packet-outs of controllers"),
    ("copied", "copies for further outputs"),
    ("sent", ""),
    ("punted", "packet-ins, LACP, BFD, snooping"),
    ("held", "in upcall and egress queues"),
];

/// Width of the column with the names of counters.
const NAME_WIDTH: usize = 32;
/// Width of the column with the counters.
const COUNT_WIDTH: usize = 14;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn losses_are_listed_by_reason_and_port() {
        let value = json!({"received": 10, "sent": 7, "dropped": [["no_matching_rule", 2], ["tx_queue_full", 1]],
            "not_received": [["rx_ring_full", 540_000], ["nic_representor", 7_842]], "device_lost": 4, "packet_ins": {"handed_over": 5, "no_connection": 6}, "snooping_inbox_full": 1,
            "ports": [{"bridge": "br0", "number": 1, "name": "p1", "direction": "rx", "reason": "rx_ring_full", "packets": 540_000}],
            "bridges_without_rules": ["br1"]});
        let expected = "\
received                                     10
injected                                      0  packet-outs of controllers
copied                                        0  copies for further outputs
sent                                          7
punted                                        0  packet-ins, LACP, BFD, snooping
held                                          0  in upcall and egress queues
dropped: no_matching_rule                     2
dropped: tx_queue_full                        1
dropped: rx_ring_full                    540000  not in `received`
dropped: nic_representor                   7842  not in `received`
dropped: device_lost                          4  also in `sent`
dropped: packet_in_no_connection              6  also in `punted`
dropped: snooping_inbox_full                  1  also in `punted`
dropped: total                           547856

bridge  port  name  direction  reason        packets
br0     1     p1    rx         rx_ring_full  540000

bridge br1 has no rules and drops every packet; to forward as a learning switch:
    ovs-ofctl add-flow unix:/run/shunt/br1.mgmt priority=0,actions=NORMAL
";
        assert_eq!(drops(&value, Path::new("/run/shunt")), expected);
    }
}
