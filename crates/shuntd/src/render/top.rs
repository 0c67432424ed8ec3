//! The updates of `top`: rates between two snapshots of the daemon.

use std::fmt::Write;

use serde_json::Value;

use super::{
    caches::caches_in_interval,
    count,
    drops::{losses, total},
    list,
    nic::nic_rates,
    number, ports_of, table, word,
};

/// The values that `top` compares.
pub(crate) struct TopSnapshot {
    pub(crate) bridges: Value,
    pub(crate) caches: Value,
    pub(crate) drops: Value,
    /// Evictions; null where nobody looks at them.
    pub(crate) evictions: Value,
}

/// Titles of the table of ports.
pub(super) const TITLES: [&str; 11] = [
    "bridge",
    "port",
    "name",
    "rx packets/s",
    "rx bytes/s",
    "rx dropped/s",
    "forward dropped/s",
    "tx packets/s",
    "tx bytes/s",
    "tx dropped/s",
    "link",
];

/// The counters of a port, in the order of the titles.
const COUNTERS: [&str; 7] = [
    "rx_packets",
    "rx_bytes",
    "rx_dropped",
    "forward_dropped",
    "tx_packets",
    "tx_bytes",
    "tx_dropped",
];

/// Returns one update of `top`.
pub(crate) fn top(before: &TopSnapshot, now: &TopSnapshot, seconds: u64) -> String {
    let seconds = seconds.max(1);
    let rate = |old: &Value, new: &Value| count(new).saturating_sub(count(old)) / seconds;
    let mut text = caches_in_interval(&before.caches, &now.caches, seconds);
    let lost = total(&now.drops).saturating_sub(total(&before.drops)) / seconds;
    let received = rate(&before.caches["received"], &now.caches["received"]);
    let _ = writeln!(text, "{received} packets/s received, {lost} dropped/s");
    text += &drop_rates(&before.drops, &now.drops, seconds);
    text += &nic_rates(&before.caches["nic"], &now.caches["nic"], rate);
    text.push('\n');
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(port_rates(before, now, seconds));
    text + &table(&rows)
}

/// Returns a row for each port, with its rates in the order of [`TITLES`].
pub(super) fn port_rates(
    before: &TopSnapshot,
    now: &TopSnapshot,
    seconds: u64,
) -> Vec<Vec<String>> {
    let rate = |old: &Value, new: &Value| count(new).saturating_sub(count(old)) / seconds.max(1);
    let old = ports_of(&before.bridges);
    let ports = ports_of(&now.bridges);
    let rows = list(&ports).iter().map(|port| {
        let earlier = list(&old).iter().find(|own| own["name"] == port["name"]);
        let earlier = earlier.unwrap_or(port);
        let mut row =
            vec![word(&port["bridge"]).to_owned(), number(port), word(&port["name"]).to_owned()];
        row.extend(COUNTERS.map(|key| rate(&earlier[key], &port[key]).to_string()));
        row.push(word(&port["link"]).to_owned());
        row
    });
    rows.collect()
}

/// Returns the losses of the interval by reason, most packets first.
fn drop_rates(before: &Value, now: &Value, seconds: u64) -> String {
    let rates = losses_by_reason(before, now, seconds);
    if rates.is_empty() {
        return String::new();
    }
    let named = rates.iter().map(|(reason, rate)| format!("{reason} {rate}"));
    format!("dropped/s by reason: {}\n", named.collect::<Vec<_>>().join(", "))
}

/// Returns the lost packets per second by reason, most packets first.
pub(super) fn losses_by_reason<'a>(
    before: &Value,
    now: &'a Value,
    seconds: u64,
) -> Vec<(&'a str, u64)> {
    let earlier = |reason: &str| {
        losses(before).find(|(own, ..)| *own == reason).map_or(0, |(_, packets, _)| packets)
    };
    let mut rates: Vec<(&str, u64)> = losses(now)
        .map(|(reason, packets, _)| {
            (reason, packets.saturating_sub(earlier(reason)).div_ceil(seconds))
        })
        .filter(|(_, rate)| *rate > 0)
        .collect();
    rates.sort_by_key(|(reason, rate)| (std::cmp::Reverse(*rate), *reason));
    rates
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn top_has_the_rates_of_ports_threads_and_a_nic() {
        let look = |packets: u64| {
            let port = json!({"bridge": "br0", "name": "p1", "number": 1, "link": "up",
                "rx_packets": packets, "rx_bytes": 60 * packets, "rx_dropped": 100 * packets,
                "forward_dropped": 2 * packets,
                "tx_packets": 0, "tx_bytes": 0, "tx_dropped": packets / 5});
            let traffic = json!({"received": 3 * packets, "hits": 2 * packets, "dropped": []});
            TopSnapshot {
                bridges: json!([{"ports": [port]}]),
                caches: json!({"received": packets, "exact_hits": packets - 5, "entries": 1,
                    "upcalls": 5, "nic": {"traffic": traffic}}),
                drops: json!({"dropped": [["rule_without_output", packets / 2], ["metered", 1]],
                    "not_received": [["rx_ring_full", 100 * packets]]}),
                evictions: Value::Null,
            }
        };
        let shown = top(&look(10), &look(30), 2);
        let expected = "\
nic hits 100.0 % of 40 packets; 20 packets in 2 s: exact match 100.0 %, megaflow   0.0 %, translated   0.0 %; 1 entry, 0 evicted
10 packets/s received, 1005 dropped/s
dropped/s by reason: rx_ring_full 1000, rule_without_output 5
30 packets/s received by the NIC, 20 hits/s in the NIC

bridge  port  name  rx packets/s  rx bytes/s  rx dropped/s  forward dropped/s  tx packets/s  tx bytes/s  tx dropped/s  link
br0     1     p1    10            600         1000          20                 0             0           2             up
";
        assert_eq!(shown, expected);
    }
}
