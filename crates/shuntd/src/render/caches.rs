//! Tables of cache counters.

use std::{fmt::Write, time::Duration};

use serde_json::Value;

use super::{
    count, counted, counter_line,
    evict::duration,
    list,
    nic::{lookups_count, nic},
    percent, table, word,
};

/// Returns the counters of all caches, one line each.
pub(crate) fn caches(caches: &Value) -> String {
    let hits = |key: &str| count(&caches[key]);
    let received = hits("received");
    let mut text = counter_line("packets", received, "");
    let mut line = |name: &str, count: u64, remark: &str| {
        text += &counter_line(name, count, remark);
    };
    let share = |count| percent(count, received);
    let chain = &caches["gigaflow"];
    let own = |key: &str| count(&chain[key]);
    line("exact match", hits("exact_hits"), &share(hits("exact_hits")));
    let signature = hits("signature_hits");
    if chain.is_null() || signature > 0 {
        line("signature", signature, &share(signature));
    }
    let megaflow = hits("megaflow_hits");
    if chain.is_null() {
        line("megaflow", megaflow, &share(megaflow));
        if hits("trainings") > 0 {
            let (entries, trainings) = (hits("learned_entries"), hits("trainings"));
            let remark = format!("of megaflow; {entries} entries, {trainings} trainings");
            line("learned index", hits("learned_hits"), &remark);
        }
        let gigaflow = hits("gigaflow_hits");
        if gigaflow > 0 {
            line("gigaflow", gigaflow, &format!("{}, {EARLIER_KIND}", share(gigaflow)));
        }
    } else {
        if megaflow > 0 {
            line("megaflow", megaflow, &format!("{}, {EARLIER_KIND}", share(megaflow)));
        }
        let entries = chain["entries_per_hit"].as_f64().unwrap_or_default();
        let remark = format!("{}, {entries:.2} LTM entries per hit", share(own("hits")));
        line("gigaflow", own("hits"), &remark);
        let resumed = format!("{} translated from the table where they missed", own("resumed"));
        line("partial hits", own("partial_hits"), &resumed);
    }
    if hits("decided") > 0 {
        line("tables", hits("decided"), &format!("{}, without a cache", share(hits("decided"))));
    }
    let set_up = share(hits("upcalls")) + &set_up(&caches["set_up_time"]);
    line("translated", hits("upcalls"), &set_up);
    let masks = counted(hits("masks"), "mask");
    let probes = caches["probes"].as_f64().unwrap_or_default();
    let remark = if chain.is_null() {
        format!("{masks}, {probes:.2} masks searched per lookup")
    } else {
        format!("{masks}, {}", counted(own("tags"), "tag"))
    };
    line("entries", hits("entries"), &remark);
    for (name, key, remark) in REMOVED {
        line(name, hits(key), remark);
    }
    if hits("verified") > 0 {
        let remark = format!("{} of them differ from the tables", hits("differences"));
        line("verified", hits("verified"), &remark);
    }
    line("version", hits("version"), "");
    if !chain.is_null() {
        text += &ltm_entries(caches);
    }
    if caches["nic"].is_object() {
        text += &nic(&caches["nic"]);
    }
    text
}

/// Counters of removed and refused entries: title, key and remark.
const REMOVED: [(&str, &str, &str); 5] = [
    ("evicted", "evicted", "stale after a change"),
    ("install conflicts", "install_conflicts", "dropped: rules changed during the install"),
    ("expired", "expired", "without a hit for caches.idle_ms"),
    ("not cached: cache full", "refused_full", ""),
    ("not cached: queue full", "refused_ring", "queue to the eviction thread"),
];

/// The remark on hits of the cache type before `caches.kind` changed.
const EARLIER_KIND: &str = "before caches.kind changed";

/// Returns the LTM entries and stages of Gigaflow caches as text.
fn ltm_entries(caches: &Value) -> String {
    let (mut text, chain) = ("\n".to_owned(), &caches["gigaflow"]);
    let (created, shared) = (count(&chain["created"]), count(&chain["shared"]));
    #[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
    let uses = (created + shared) as f64 / created.max(1) as f64;
    let remark = format!("used by {uses:.2} traversals on average");
    text += &counter_line("LTM entries created", created, &remark);
    text += &counter_line("sub-traversals shared", shared, "needed no new LTM entry");
    text += &counter_line("evicted for space", count(&chain["evicted_for_space"]), "");
    for (name, key) in [
        ("learns", "learns"),
        ("near a limit", "near_limits"),
        ("no tag", "no_tag"),
        ("stages full", "stages_full"),
        ("refused", "refused"),
    ] {
        let not_partitioned = count(&chain["not_partitioned"][key]);
        if not_partitioned > 0 {
            text += &counter_line("not partitioned", not_partitioned, name);
        }
    }
    let mut rows = vec![vec!["thread".to_owned(), "hits".into(), "partial hits".into()]];
    let coverage = ["traversals covered", "estimate by pairs", "estimate of paper"];
    rows[0].extend(coverage.map(str::to_owned));
    let stages = list(&chain["stages"]).len();
    rows[0].extend((0..stages).map(|stage| format!("stage {stage}")));
    for (number, own) in list(&caches["gigaflow_threads"]).iter().enumerate() {
        let rule_space = &caches["rule_space"][number];
        let mut row =
            vec![number.to_string(), own["hits"].to_string(), own["partial_hits"].to_string()];
        row.extend(["exact", "pairwise", "published"].map(|key| rule_space[key].to_string()));
        row.extend(
            list(&own["stages"]).iter().map(|stage| {
                format!("{}/{}", count(&stage["entries"]), count(&stage["entries_max"]))
            }),
        );
        rows.push(row);
    }
    text + "\n" + &table(&rows)
}

/// Returns the cache counters since the start of the daemon, in one line.
pub(crate) fn caches_line(caches: &Value) -> String {
    line(&Value::Null, caches, "since start")
}

/// Returns the increase of the cache counters between two snapshots, in one line.
pub(crate) fn caches_in_interval(before: &Value, now: &Value, elapsed: Duration) -> String {
    let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    line(before, now, &format!("in {}", duration(nanoseconds)))
}

/// Returns the increase of a counter between two snapshots.
fn increase(before: &Value, now: &Value, key: &str) -> u64 {
    count(&now[key]).saturating_sub(count(&before[key]))
}

/// Returns the packets that each cache, or the tables,
/// decided between two snapshots.
pub(super) fn packets_by_cache(before: &Value, now: &Value) -> Vec<(&'static str, u64)> {
    let own = |key: &str| increase(before, now, key);
    let mut parts = vec![("exact match", own("exact_hits"))];
    let is_gigaflow = word(&now["kind"]) == "gigaflow";
    let signature = own("signature_hits");
    if signature > 0 {
        parts.push(("signature", signature));
    }
    let megaflow = own("megaflow_hits");
    if !is_gigaflow || megaflow > 0 {
        parts.push(("megaflow", megaflow));
    }
    if is_gigaflow {
        let of_chain = |key: &str| increase(&before["gigaflow"], &now["gigaflow"], key);
        parts.extend([("gigaflow", of_chain("hits")), ("partial hits", of_chain("partial_hits"))]);
    } else if own("gigaflow_hits") > 0 {
        parts.push(("gigaflow", own("gigaflow_hits")));
    }
    if own("decided") > 0 {
        parts.push(("tables", own("decided")));
    }
    parts.push(("translated", own("upcalls")));
    parts
}

/// Returns the hits of each cache between two snapshots, as shares of the packets.
fn line(before: &Value, now: &Value, when: &str) -> String {
    let own = |key: &str| increase(before, now, key);
    let received = own("received");
    let parts = packets_by_cache(before, now);
    let shares = parts.iter().map(|(name, hits)| format!("{name} {}", percent(*hits, received)));
    let shares = shares.collect::<Vec<_>>().join(", ");
    let traffic = |caches: &Value| caches["nic"]["traffic"].clone();
    let (traffic_before, traffic) = (traffic(before), traffic(now));
    let mut text = String::new();
    if traffic.is_object() {
        let seen = lookups_count(&traffic).saturating_sub(lookups_count(&traffic_before));
        let hits = percent(increase(&traffic_before, &traffic, "hits"), seen);
        let _ = write!(text, "nic hits {} of {}; ", hits.trim_start(), counted(seen, "packet"));
    }
    let (entries, evicted) = (counted(count(&now["entries"]), "entry"), own("evicted"));
    let packets = counted(received, "packet");
    let _ = writeln!(text, "{packets} {when}: {shares}; {entries}, {evicted} evicted");
    text
}

/// Returns a remark about the set-up times of flows, if a packet was translated.
fn set_up(times: &Value) -> String {
    if count(&times["count"]) == 0 {
        return String::new();
    }
    let [p50, p99] = ["p50_ns", "p99_ns"].map(|key| duration(count(&times[key])));
    format!(", half within {p50} of their receipt, 99 % within {p99}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the sum of the shares in a text.
    fn shares(text: &str) -> u64 {
        let counters = ["exact match", "megaflow", "gigaflow", "tables", "translated"];
        let of = |line: &str| {
            let name = counters.into_iter().find(|name| line.starts_with(name))?;
            line[name.len()..].split_whitespace().next()?.parse::<u64>().ok()
        };
        text.lines().filter_map(of).sum()
    }

    #[test]
    fn set_up_times_stand_beside_the_translated_packets() {
        let times = json!({"count": 6, "p50_ns": 16_384, "p99_ns": 65_536});
        let status = json!({"received": 12, "upcalls": 6, "gigaflow": null, "set_up_time": times});
        let expected = "50.0 %, half within 16 us of their receipt, 99 % within 65 us";
        assert!(caches(&status).contains(expected), "{}", caches(&status));
    }

    /// After a change of `caches.kind`,
    /// the hits of the earlier cache are still included.
    #[test]
    fn cache_hits_add_up_to_packets() {
        let gigaflow = json!({"kind": "gigaflow", "received": 266, "exact_hits": 200,
            "megaflow_hits": 20, "upcalls": 6, "gigaflow": {"hits": 40, "stages": []}});
        let shown = caches(&gigaflow);
        assert_eq!(shares(&shown), 266, "{shown}");
        assert!(shown.contains("7.5 %, before caches.kind changed"), "{shown}");
        let flows = json!({"kind": "flows", "received": 266, "exact_hits": 200,
            "megaflow_hits": 20, "decided": 40, "upcalls": 6, "gigaflow": null});
        let shown = caches(&flows);
        assert_eq!(shares(&shown), 266, "{shown}");
        assert!(caches_line(&flows).contains("tables  15.0 %"), "{}", caches_line(&flows));
        let megaflow = json!({"kind": "megaflow", "received": 266, "exact_hits": 200,
            "megaflow_hits": 20, "gigaflow_hits": 40, "upcalls": 6, "gigaflow": null});
        let shown = caches(&megaflow);
        assert_eq!(shares(&shown), 266, "{shown}");
        let line = caches_line(&megaflow);
        let expected = "266 packets since start: exact match  75.2 %, megaflow   7.5 %, \
                        gigaflow  15.0 %, translated   2.3 %; 0 entries, 0 evicted\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn cache_shares_are_those_of_the_interval() {
        let before = json!({"received": 100, "exact_hits": 0, "upcalls": 100, "evicted": 6});
        let now = json!({"received": 110, "exact_hits": 10, "upcalls": 100, "entries": 1,
            "evicted": 7});
        let expected = "10 packets in 2.0 s: exact match 100.0 %, megaflow   0.0 %, \
                        translated   0.0 %; 1 entry, 1 evicted\n";
        assert_eq!(caches_in_interval(&before, &now, Duration::from_secs(2)), expected);
    }

    #[test]
    fn all_values_are_in_one_column() {
        let value = json!({"received": 5, "refused_ring": 1, "gigaflow": {"stages": [],
            "not_partitioned": {"stages_full": 3}}});
        let shown = caches(&value);
        let table = shown.split("\nthread").next().unwrap();
        let end = |line: &str| {
            let digits = line.find(|c: char| c.is_ascii_digit())?;
            Some(digits + line[digits..].find(' ').unwrap_or(line.len() - digits))
        };
        let ends: Vec<usize> = table.lines().filter_map(end).collect();
        assert!(ends.iter().all(|own| *own == ends[0]), "{shown}");
    }
}
