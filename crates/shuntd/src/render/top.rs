//! The updates of `top`: rates between two snapshots of the daemon.

use std::{fmt::Write, time::Duration};

use serde_json::Value;

use super::{
    caches::caches_in_interval,
    count,
    drops::{losses, total},
    list,
    nic::nic_rates,
    number, ports_of, table, word,
};

/// The status values of the daemon that `top` compares.
pub(crate) struct TopSnapshot {
    /// Time of the snapshot, since a fixed time in the past.
    pub(crate) taken: Duration,
    pub(crate) bridges: Value,
    pub(crate) caches: Value,
    pub(crate) drops: Value,
    /// Status of evictions; null if it was not requested.
    pub(crate) evictions: Value,
}

/// Titles of the columns of the table of ports.
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

/// The keys of a port's counters, in the order of [`TITLES`].
const COUNTERS: [&str; 7] = [
    "rx_packets",
    "rx_bytes",
    "rx_dropped",
    "forward_dropped",
    "tx_packets",
    "tx_bytes",
    "tx_dropped",
];

impl TopSnapshot {
    /// Returns the time since an earlier snapshot.
    ///
    /// Rates are per second of this time, not of the interval that the operator set, because a busy
    /// daemon answers later.
    pub(super) const fn since(&self, before: &Self) -> Duration {
        self.taken.saturating_sub(before.taken)
    }

    /// Returns the received packets per second since an earlier snapshot.
    pub(super) fn received_rate(&self, before: &Self) -> u64 {
        rate(&before.caches["received"], &self.caches["received"], self.since(before))
    }

    /// Returns the lost packets per second since an earlier snapshot.
    pub(super) fn loss_rate(&self, before: &Self) -> u64 {
        per_second(total(&self.drops).saturating_sub(total(&before.drops)), self.since(before))
    }
}

/// Returns events per second, rounded down.
pub(super) fn per_second(events: u64, elapsed: Duration) -> u64 {
    let per_second = u128::from(events) * 1_000_000_000 / elapsed.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Returns events per second, rounded up.
///
/// So the rate is zero only if there were no events.
pub(super) fn per_second_at_least(events: u64, elapsed: Duration) -> u64 {
    let per_second = (u128::from(events) * 1_000_000_000).div_ceil(elapsed.as_nanos().max(1));
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Returns the increase per second between two values of a counter.
fn rate(old: &Value, new: &Value, elapsed: Duration) -> u64 {
    per_second(count(new).saturating_sub(count(old)), elapsed)
}

/// Returns the text of one update of `top`.
pub(crate) fn top(before: &TopSnapshot, now: &TopSnapshot) -> String {
    let elapsed = now.since(before);
    let mut text = caches_in_interval(&before.caches, &now.caches, elapsed);
    let (received, lost) = (now.received_rate(before), now.loss_rate(before));
    let _ = writeln!(text, "{received} packets/s received, {lost} dropped/s");
    text += &drop_rates(&before.drops, &now.drops, elapsed);
    text +=
        &nic_rates(&before.caches["nic"], &now.caches["nic"], |old, new| rate(old, new, elapsed));
    text.push('\n');
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(port_rates(before, now));
    text + &table(&rows)
}

/// Returns a table row for each port, with its rates in the order of [`TITLES`].
pub(super) fn port_rates(before: &TopSnapshot, now: &TopSnapshot) -> Vec<Vec<String>> {
    let elapsed = now.since(before);
    let old = ports_of(&before.bridges);
    let ports = ports_of(&now.bridges);
    let rows = list(&ports).iter().map(|port| {
        let earlier = list(&old).iter().find(|own| own["name"] == port["name"]);
        let earlier = earlier.unwrap_or(port);
        let mut row =
            vec![word(&port["bridge"]).to_owned(), number(port), word(&port["name"]).to_owned()];
        row.extend(COUNTERS.map(|key| rate(&earlier[key], &port[key], elapsed).to_string()));
        row.push(word(&port["link"]).to_owned());
        row
    });
    rows.collect()
}

/// Returns the losses of the interval by reason, most packets first, as text.
fn drop_rates(before: &Value, now: &Value, elapsed: Duration) -> String {
    let rates = losses_by_reason(before, now, elapsed);
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
    elapsed: Duration,
) -> Vec<(&'a str, u64)> {
    let earlier = |reason: &str| {
        losses(before).find(|(own, ..)| *own == reason).map_or(0, |(_, packets, _)| packets)
    };
    let mut rates: Vec<(&str, u64)> = losses(now)
        .map(|(reason, packets, _)| {
            (reason, per_second_at_least(packets.saturating_sub(earlier(reason)), elapsed))
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
    fn top_has_port_thread_nic_rates() {
        let look = |packets: u64, taken: Duration| {
            let port = json!({"bridge": "br0", "name": "p1", "number": 1, "link": "up",
                "rx_packets": packets, "rx_bytes": 60 * packets, "rx_dropped": 100 * packets,
                "forward_dropped": 2 * packets,
                "tx_packets": 0, "tx_bytes": 0, "tx_dropped": packets / 5});
            let traffic = json!({"received": 3 * packets, "hits": 2 * packets, "dropped": []});
            TopSnapshot {
                taken,
                bridges: json!([{"ports": [port]}]),
                caches: json!({"received": packets, "exact_hits": packets - 5, "entries": 1,
                    "upcalls": 5, "nic": {"traffic": traffic}}),
                drops: json!({"dropped": [["rule_without_output", packets / 2], ["metered", 1]],
                    "not_received": [["rx_ring_full", 100 * packets], ["nic_representor", 4 * packets]]}),
                evictions: Value::Null,
            }
        };
        let shown = top(&look(10, Duration::ZERO), &look(30, Duration::from_secs(2)));
        let expected = "\
nic hits 100.0 % of 40 packets; 20 packets in 2.0 s: exact match 100.0 %, megaflow   0.0 %, translated   0.0 %; 1 entry, 0 evicted
10 packets/s received, 1045 dropped/s
dropped/s by reason: rx_ring_full 1000, nic_representor 40, rule_without_output 5
30 packets/s received by the NIC, 20 hits/s in the NIC

bridge  port  name  rx packets/s  rx bytes/s  rx dropped/s  forward dropped/s  tx packets/s  tx bytes/s  tx dropped/s  link
br0     1     p1    10            600         1000          20                 0             0           2             up
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn rates_are_per_second_of_the_measured_time() {
        assert_eq!(per_second(3_000, Duration::from_secs(60)), 50);
        assert_eq!(per_second(3, Duration::from_millis(1_500)), 2);
        assert_eq!(per_second(1, Duration::from_secs(2)), 0);
        assert_eq!(per_second_at_least(1, Duration::from_secs(2)), 1);
        assert_eq!(per_second_at_least(0, Duration::from_secs(2)), 0);
        assert_eq!(per_second(u64::MAX, Duration::ZERO), u64::MAX);
    }
}
