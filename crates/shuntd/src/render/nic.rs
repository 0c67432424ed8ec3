//! Tables of the NIC in front of a bridge.

use serde_json::Value;

use super::{count, counted, counter_line, list, percent, word};

/// Returns a line with the NIC of a bridge and its state.
pub(crate) fn nic_line(nic: &Value) -> String {
    let rules: u64 = list(&nic["stages"]).iter().map(|stage| count(&stage["entries"])).sum();
    format!(
        "nic {} {} ({}, {})",
        word(&nic["kind"]),
        word(&nic["address"]),
        state(nic),
        counted(rules, "entry")
    )
}

/// Returns the state of a NIC, with the reason if it is stale.
fn state(nic: &Value) -> String {
    match word(&nic["state"]) {
        "stale" => {
            let seconds = nic["stale_s"].as_f64().unwrap_or_default();
            let error = match word(&nic["error"]) {
                "" => String::new(),
                error => format!(", {error}"),
            };
            format!("stale for {seconds:.1} s: {}{error}", word(&nic["reason"]))
        }
        state => state.to_owned(),
    }
}

/// Returns a line with the rates of a NIC between two snapshots.
///
/// `rate` computes a rate from two counters.
pub(crate) fn nic_rates(
    before: &Value,
    now: &Value,
    rate: impl Fn(&Value, &Value) -> u64,
) -> String {
    let of = |before: &Value, now: &Value, key: &str| rate(&before[key], &now[key]);
    let (old, traffic) = (&before["traffic"], &now["traffic"]);
    if !before.is_object() || !now.is_object() {
        String::new()
    } else if old.is_object() && traffic.is_object() {
        let [received, hits] = ["received", "hits"].map(|key| of(old, traffic, key));
        format!("{received} packets/s received by the NIC, {hits} hits/s in the NIC\n")
    } else {
        format!(
            "{} entry hits/s in the NIC
",
            of(before, now, "entry_hits")
        )
    }
}

/// Returns the counters of the NIC, one line each.
pub(crate) fn nic(nic: &Value) -> String {
    let mut text = format!("\n{}\n", nic_line(nic));
    let mut line = |name: &str, count: u64, remark: &str| {
        text += &counter_line(name, count, remark);
    };
    let (own, traffic) = (|key: &str| count(&nic[key]), &nic["traffic"]);
    if traffic.is_object() {
        let packets = |key: &str| count(&traffic[key]);
        line("nic packets", packets("received"), "");
        let seen = lookups_count(traffic);
        let share = |key: &str| format!("{} of {seen} lookups", percent(packets(key), seen));
        line("nic hits", packets("hits"), &share("hits"));
        line("nic misses", packets("missed"), &share("missed"));
        line("nic partial", packets("partial_hits"), &share("partial_hits"));
        for (reason, count) in dropped_by_reason(traffic) {
            line("nic dropped", count, reason);
        }
    }
    let stages = list(&nic["stages"]).iter();
    let fill = |stage: &Value| format!("{}/{}", stage["entries"], stage["entries_max"]);
    let fills: Vec<String> = stages.clone().map(fill).collect();
    let entries = stages.map(|stage| count(&stage["entries"])).sum();
    line("nic entries", entries, &format!("in stages {}", fills.join(", ")));
    let tags = format!(
        "entries to insert: {}, stale entries: {}, tags: {}",
        own("waiting"),
        own("stale_entries"),
        own("tags")
    );
    line("entry hits", own("entry_hits"), &tags);
    line("nic created", own("created"), &uses(own("created"), own("shared")));
    line("nic shared", own("shared"), "sub-traversals that needed no new entry");
    let rule_space = &nic["rule_space"];
    if rule_space.is_object() {
        let estimates = ["pairwise", "published"].map(|key| count(&rule_space[key]));
        let estimates = format!(
            "traversals covered (estimates: {} by pairs of entries, {} by the Gigaflow paper)",
            estimates[0], estimates[1]
        );
        line("nic coverage", count(&rule_space["exact"]), &estimates);
    }
    let candidates = format!(
        "{} already offloaded, {} dropped",
        own("candidates_known"),
        own("candidates_dropped")
    );
    line("candidates", own("candidates_offered"), &candidates);
    let times: Vec<String> = list(&nic["latency_us"]).iter().map(Value::to_string).collect();
    let operations = &nic["operations"];
    let latency = format!("time from miss to offload, p50/p99/p99.9 below {} us", times.join("/"));
    line("inserted", count(&operations["inserts"]), &latency);
    line("removed", count(&operations["removes"]), "");
    for refused in list(&nic["refused"]) {
        line("unsupported", count(&refused[1]), word(&refused[0]));
    }
    let late = if nic["counters_late"] == true { ", counter reads are late" } else { "" };
    let stale = own("stale_count");
    let stale = format!(
        "stale {stale} times, {} versions acknowledged without the NIC{late}",
        own("unconfirmed")
    );
    line("restored", own("repairs"), &stale);
    text
}

/// Returns the average number of traversals that use one LTM entry, as text.
fn uses(created: u64, shared: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
    let uses = (created + shared) as f64 / created.max(1) as f64;
    format!("used by {uses:.2} traversals on average")
}

/// Returns the number of packets that a NIC looked up, including dropped misses.
pub(crate) fn lookups_count(traffic: &Value) -> u64 {
    let lost = dropped_by_reason(traffic)
        .filter(|(reason, _)| ["representor", "controller"].contains(reason));
    let lost: u64 = lost.map(|(_, count)| count).sum();
    count(&traffic["hits"]) + count(&traffic["missed"]) + lost
}

/// Returns the packets that a NIC dropped, by reason.
fn dropped_by_reason(traffic: &Value) -> impl Iterator<Item = (&str, u64)> {
    let reasons = list(&traffic["dropped"]).iter();
    reasons.map(|reason| (word(&reason[0]), count(&reason[1])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the status of a NIC.
    fn status() -> Value {
        json!({
            "kind": "embedded", "address": "127.0.0.1:9", "state": "connected",
            "stages": [{"entries": 2, "entries_max": 8}, {"entries": 1, "entries_max": 8}],
            "entry_hits": 10, "waiting": 0, "stale_entries": 0, "tags": 2, "candidates_offered": 5,
            "created": 4, "shared": 2, "rule_space": {"exact": 7, "pairwise": 6, "published": 5},
            "candidates_known": 1, "candidates_dropped": 0, "latency_us": [64, 128, 256], "repairs": 1,
            "stale_count": 2, "unconfirmed": 4, "operations": {"inserts": 3, "removes": 0},
            "refused": [["actions", 4]],
            "traffic": {
                "received": 9, "hits": 3, "missed": 1, "partial_hits": 2, "dropped": [["rule", 1], ["representor", 2]],
            },
        })
    }

    #[test]
    fn a_stale_nic_is_shown_with_the_reason() {
        let mut value = status();
        assert_eq!(nic_line(&value), "nic embedded 127.0.0.1:9 (connected, 3 entries)");
        value["state"] = "stale".into();
        value["reason"] = "lost".into();
        value["stale_s"] = 1.25.into();
        assert!(nic_line(&value).contains("(stale for 1.2 s: lost, 3 entries)"));
        value["error"] = "cannot connect to the device: Connection refused".into();
        let expected =
            "(stale for 1.2 s: lost, cannot connect to the device: Connection refused, 3 ";
        assert!(nic_line(&value).contains(expected));
    }

    #[test]
    fn nic_rates_are_computed_from_two_snapshots() {
        let rates = |before: &Value, now: &Value| {
            nic_rates(before, now, |old, new| count(new).saturating_sub(count(old)) / 2)
        };
        let (before, mut now) = (status(), status());
        now["traffic"]["received"] = 29.into();
        now["traffic"]["hits"] = 13.into();
        now["entry_hits"] = 16.into();
        let expected = "10 packets/s received by the NIC, 5 hits/s in the NIC\n";
        assert_eq!(rates(&before, &now), expected);
        now["traffic"] = Value::Null;
        assert_eq!(rates(&before, &now), "3 entry hits/s in the NIC\n");
        assert_eq!((rates(&Value::Null, &now), rates(&before, &Value::Null)), Default::default());
    }

    #[test]
    fn each_nic_counter_has_a_line() {
        let shown = nic(&status());
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = squeezed(&shown);
        for expected in [
            "nic hits                   3   50.0 % of 6 lookups",
            "nic partial                2   33.3 %",
            "nic created                4  used by 1.50 traversals on average",
            "nic shared                 2",
            "nic coverage               7  traversals covered (estimates: 6 by pairs of entries, 5 by the Gigaflow paper)",
            "nic dropped                1  rule",
            "nic dropped                2  representor",
            "in stages 2/8, 1/8",
            "inserted                   3  time from miss to offload, p50/p99/p99.9 below 64/128/256 us",
            "unsupported                4  actions",
            "restored                   1  stale 2 times, 4 versions acknowledged without the NIC",
        ] {
            assert!(shown.contains(&squeezed(expected)), "{expected}: {shown}");
        }
    }
}
