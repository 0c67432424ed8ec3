//! A NIC in front of a bridge, as people see it.

use std::fmt::Write;

use serde_json::Value;

use crate::render::{count, list, percent, word};

/// The NIC of a bridge in a line, and how it is.
pub(crate) fn nic_line(nic: &Value) -> String {
    let rules: u64 = list(&nic["stages"]).iter().map(|stage| count(&stage["entries"])).sum();
    format!(
        "nic {} {} ({}, {rules} entries)",
        word(&nic["kind"]),
        word(&nic["address"]),
        state(nic)
    )
}

fn state(nic: &Value) -> String {
    match word(&nic["state"]) {
        "stale" => {
            let seconds = nic["stale_s"].as_f64().unwrap_or_default();
            let trouble = match word(&nic["trouble"]) {
                "" => String::new(),
                trouble => format!(", {trouble}"),
            };
            format!("stale for {seconds:.1} s: {}{trouble}", word(&nic["why"]))
        }
        state => state.to_owned(),
    }
}

/// What a NIC did between two looks, in a line, if it was there; `rate` is of a counter.
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
        format!("{received} packets/s received by the NIC, {hits} hits/s there\n")
    } else {
        format!("{} hits/s of entries of the NIC\n", of(before, now, "packets"))
    }
}

/// The NIC among the caches, a line each.
pub(crate) fn nic(nic: &Value) -> String {
    let mut text = format!("\n{}\n", nic_line(nic));
    let mut line = |name: &str, count: u64, rest: &str| {
        let _ = writeln!(text, "{}", format!("{name:<13} {count:>14}  {rest}").trim_end());
    };
    let (own, traffic) = (|key: &str| count(&nic[key]), &nic["traffic"]);
    if traffic.is_object() {
        let packets = |key: &str| count(&traffic[key]);
        line("nic packets", packets("received"), "");
        let seen = looked_up(traffic);
        let share = |key: &str| format!("{} of {seen} looked up", percent(packets(key), seen));
        line("nic hits", packets("hits"), &share("hits"));
        line("nic misses", packets("missed"), &share("missed"));
        line("nic midway", packets("partial_hits"), &share("partial_hits"));
        for (reason, count) in dropped(traffic) {
            line("nic dropped", count, reason);
        }
    }
    let stages = list(&nic["stages"]).iter();
    let fill = |stage: &Value| format!("{}/{}", stage["entries"], stage["entries_max"]);
    let fills: Vec<String> = stages.clone().map(fill).collect();
    let entries = stages.map(|stage| count(&stage["entries"])).sum();
    line("nic entries", entries, &format!("in stages {}", fills.join(", ")));
    let tags =
        format!("{} waiting, {} stale, {} tags", own("waiting"), own("stale_entries"), own("tags"));
    line("entry hits", own("packets"), &tags);
    line("nic pieces", own("made"), &uses(own("made"), own("shared")));
    line("nic shared", own("shared"), "");
    let coverage = &nic["coverage"];
    if coverage.is_object() {
        let estimates = ["pairs", "published"].map(|key| count(&coverage[key]));
        let estimates = format!("{} by pairs, {} as published", estimates[0], estimates[1]);
        line("nic ways", count(&coverage["chains"]), &estimates);
    }
    let offers =
        format!("{} known, {} dropped", own("candidates_known"), own("candidates_dropped"));
    line("offered", own("offered"), &offers);
    let times: Vec<String> = list(&nic["latency_us"]).iter().map(Value::to_string).collect();
    let operations = &nic["operations"];
    let latency = format!("miss to hit, p50, p99 and p99.9: {} us", times.join(", "));
    line("inserted", count(&operations["inserts"]), &latency);
    line("removed", count(&operations["removes"]), "");
    for refused in list(&nic["refused"]) {
        line("not held", count(&refused[1]), word(&refused[0]));
    }
    let late = if nic["counts_late"] == true { ", counts late" } else { "" };
    let stale = own("stale_count");
    let stale = format!("{stale} times stale, {} versions unconfirmed{late}", own("unconfirmed"));
    line("repaired", own("repairs"), &stale);
    text
}

/// How many ways use a piece: the one that it was made for, and those that found it there.
fn uses(made: u64, shared: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    let uses = (made + shared) as f64 / made.max(1) as f64;
    format!("{uses:.2} ways used each")
}

/// Packets that a NIC looked up: what nobody took from it had missed as well.
pub(crate) fn looked_up(traffic: &Value) -> u64 {
    let lost =
        dropped(traffic).filter(|(reason, _)| ["representor", "controller"].contains(reason));
    let lost: u64 = lost.map(|(_, count)| count).sum();
    count(&traffic["hits"]) + count(&traffic["missed"]) + lost
}

/// Packets that a NIC dropped, by why.
fn dropped(traffic: &Value) -> impl Iterator<Item = (&str, u64)> {
    let reasons = list(&traffic["dropped"]).iter();
    reasons.map(|reason| (word(&reason[0]), count(&reason[1])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        json!({
            "kind": "embedded", "address": "127.0.0.1:9", "state": "connected",
            "stages": [{"entries": 2, "entries_max": 8}, {"entries": 1, "entries_max": 8}],
            "packets": 10, "waiting": 0, "stale_entries": 0, "tags": 2, "offered": 5,
            "made": 4, "shared": 2, "coverage": {"chains": 7, "pairs": 6, "published": 5},
            "candidates_known": 1, "candidates_dropped": 0, "latency_us": [64, 128, 256], "repairs": 1,
            "stale_count": 2, "unconfirmed": 4, "operations": {"inserts": 3, "removes": 0},
            "refused": [["actions", 4]],
            "traffic": {
                "received": 9, "hits": 3, "missed": 1, "partial_hits": 2, "dropped": [["rule", 1], ["representor", 2]],
            },
        })
    }

    #[test]
    fn a_nic_is_shown_with_its_state_and_a_stale_one_says_why() {
        let mut value = status();
        assert_eq!(nic_line(&value), "nic embedded 127.0.0.1:9 (connected, 3 entries)");
        value["state"] = "stale".into();
        value["why"] = "lost".into();
        value["stale_s"] = 1.25.into();
        assert!(nic_line(&value).contains("(stale for 1.2 s: lost, 3 entries)"));
        value["trouble"] = "cannot connect to the device: Connection refused".into();
        let expected =
            "(stale for 1.2 s: lost, cannot connect to the device: Connection refused, 3 ";
        assert!(nic_line(&value).contains(expected));
    }

    #[test]
    fn between_two_looks_a_nic_has_rates() {
        let rates = |before: &Value, now: &Value| {
            nic_rates(before, now, |old, new| count(new).saturating_sub(count(old)) / 2)
        };
        let (before, mut now) = (status(), status());
        now["traffic"]["received"] = 29.into();
        now["traffic"]["hits"] = 13.into();
        now["packets"] = 16.into();
        let expected = "10 packets/s received by the NIC, 5 hits/s there\n";
        assert_eq!(rates(&before, &now), expected);
        now["traffic"] = Value::Null;
        assert_eq!(rates(&before, &now), "3 hits/s of entries of the NIC\n");
        assert_eq!((rates(&Value::Null, &now), rates(&before, &Value::Null)), Default::default());
    }

    #[test]
    fn what_a_nic_has_done_is_a_line_each() {
        let shown = nic(&status());
        for expected in [
            "nic hits                   3   50.0 % of 6 looked up",
            "nic midway                 2   33.3 %",
            "nic pieces                 4  1.50 ways used each",
            "nic shared                 2",
            "nic ways                   7  6 by pairs, 5 as published",
            "nic dropped                1  rule",
            "nic dropped                2  representor",
            "in stages 2/8, 1/8",
            "inserted                   3  miss to hit, p50, p99 and p99.9: 64, 128, 256 us",
            "not held                   4  actions",
            "repaired                   1  2 times stale, 4 versions unconfirmed",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }
}
