//! Tables of cache entries, and of evictions.

use std::fmt::Write;

use serde_json::Value;

use super::{count, counter_line, list, percent, table, word};

/// The answer if the packet threads have no cache.
const NO_ENTRIES: &str = "\
no entries: with caches.kind = \"flows\" the tables decide each packet
`shuntctl trace BRIDGE FLOW` shows a decision, `ovs-ofctl dump-flows BRIDGE` the counts of rules
";

/// Returns cache entries, one line each.
///
/// Without a cache, the text says where to look instead.
pub(crate) fn entries(entries: &Value) -> String {
    let titles = ["entry", "packets", "bytes", "idle ms", "actions", "match"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let shown = list(&entries["entries"]);
    for entry in shown {
        rows.push(vec![
            word(&entry["entry"]).to_owned(),
            entry["packets"].to_string(),
            entry["bytes"].to_string(),
            entry["idle_ms"].to_string(),
            actions(entry),
            word(&entry["megaflow"]).to_owned(),
        ]);
    }
    let (total, shown) = (count(&entries["total"]), shown.len() as u64);
    if total == 0 && entries["kind"] == "flows" {
        return NO_ENTRIES.to_owned();
    }
    let rest = if total > shown {
        format!("{} more: `shuntctl entries --count 0` shows all\n", total - shown)
    } else {
        String::new()
    };
    table(&rows) + &rest
}

/// Returns the actions of an entry as text.
fn actions(entry: &Value) -> String {
    let mut actions: Vec<String> =
        list(&entry["actions"]).iter().map(|action| word(action).to_owned()).collect();
    if entry["next"].is_string() {
        actions.push(format!("next({})", word(&entry["next"])));
    }
    if actions.is_empty() { "drop".to_owned() } else { actions.join(",") }
}

/// Returns a table of the eviction engine, its counters and latencies.
pub(crate) fn evict(evict: &Value) -> String {
    let engine = match word(&evict["engine"]) {
        "" => "custom",
        name => name,
    };
    let (version, acked) = (count(&evict["version"]), count(&evict["acked_version"]));
    let mut text = format!(
        "engine {engine}, version {version}, acknowledged by all threads: {acked}
"
    );
    text += &sizes(evict);
    text += &totals(evict);
    text += &times("time to list the stale entries of a change", &evict["list_time"]);
    text += &times("time until all threads acknowledged a version", &evict["ack_time"]);
    text += &acks(&evict["acks"]);
    text
}

/// Returns the acknowledgements, by poll loop iterations, as text.
fn acks(acks: &Value) -> String {
    let counts: Vec<u64> = list(acks).iter().map(count).collect();
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return String::new();
    }
    let mut text = format!(
        "
acknowledgements by poll loop iterations since the version was sent: {all} (parked threads not counted)
"
    );
    for (name, own) in ITERATIONS.iter().zip(counts) {
        text += &counter_line(&format!("  {name}"), own, &percent(own, all));
    }
    text
}

/// Labels of the acknowledgement buckets.
pub(crate) const ITERATIONS: [&str; 4] = ["0", "1", "2", "more"];

/// Returns the size of the engine and of its queues as text.
fn sizes(evict: &Value) -> String {
    let mut text = String::new();
    for pair in list(&evict["relations"]) {
        // The other relations are for developers, so only `--json` has them.
        if let Some((name, remark)) = RELATIONS.iter().find(|(name, _)| *name == word(&pair[0])) {
            text += &counter_line(&format!("  {name}"), count(&pair[1]), remark);
        }
    }
    for (name, key) in [("engine memory", "engine_bytes"), ("process memory", "resident_bytes")] {
        if let Some(bytes) = evict[key].as_u64() {
            text += &counter_line(&format!("  {name}"), bytes / 1024, "KiB");
        }
    }
    let (waiting, most) = (count(&evict["waiting"]), count(&evict["waiting_max"]));
    text += &counter_line("  queued changes", waiting, &format!("of {most} at most"));
    for owner in list(&evict["owners"]) {
        let (reports, acked) = (count(&owner["reports"]), count(&owner["acked_version"]));
        let name = if owner["is_nic"] == true {
            "nic".to_owned()
        } else {
            format!("thread {}", count(&owner["owner"]))
        };
        let remark = format!("installs and removals not yet read; acknowledged version {acked}");
        text += &counter_line(&format!("  {name}"), reports, &remark);
    }
    text
}

/// Relations of the engine that are printed, each with its meaning.
const RELATIONS: [(&str, &str); 2] =
    [("entries", "cache entries in the index"), ("visits", "table lookups of these entries")];

/// Returns the numbers of entries by cause and by table as text.
fn totals(evict: &Value) -> String {
    let mut text = String::new();
    for (name, key) in [
        ("installed", "installed"),
        ("install conflicts", "install_conflicts"),
        ("removed by packet threads", "removed"),
        ("changes", "changes"),
        ("delayed", "delayed"),
        ("overflows", "overflows"),
        ("faults", "faults"),
        ("evicted", "evicted"),
    ] {
        text += &counter_line(name, count(&evict[key]), "");
    }
    let all = count(&evict["evicted"]);
    for pair in list(&evict["by_cause"]) {
        let (cause, own) = (word(&pair[0]).replace('_', " "), count(&pair[1]));
        text += &counter_line(&format!("  {cause}"), own, &percent(own, all));
    }
    for own in list(&evict["by_table"]) {
        let place = format!("  {} table {}", word(&own["bridge"]), own["table"]);
        text += &counter_line(&place, count(&own["evicted"]), "");
    }
    let repairs = REPAIRS.map(|(name, key)| (name, count(&evict[key])));
    if repairs.iter().any(|(_, count)| *count > 0) {
        for (name, count) in repairs {
            text += &counter_line(name, count, "");
        }
    }
    text
}

/// Labels and keys of the repair counters.
const REPAIRS: [(&str, &str); 4] = [
    ("repaired: same", "repaired_same"),
    ("repaired: changed", "repaired_changed"),
    ("repair: not needed", "repair_covered"),
    ("repair: dropped", "repair_dropped"),
];

/// Returns a latency histogram as bars; the largest bucket has the longest bar.
fn times(title: &str, times: &Value) -> String {
    let all = count(&times["count"]);
    if all == 0 {
        return format!("\n{title}: none yet\n");
    }
    let [p50, p99, longest] =
        ["p50_ns", "p99_ns", "longest_ns"].map(|key| duration(count(&times[key])));
    let mut text =
        format!("\n{title}: {all}, half below {p50}, 99 % below {p99}, longest {longest}\n");
    let buckets = list(&times["buckets"]);
    let most = buckets.iter().map(|pair| count(&pair[1])).max().unwrap_or(1).max(1);
    for pair in buckets {
        let (below, own) = (duration(count(&pair[0])), count(&pair[1]));
        let bar = "#".repeat(usize::try_from(own * BAR_MAX / most).unwrap_or_default());
        text += &counter_line(&format!("  below {below}"), own, &bar);
    }
    text
}

/// Maximum length of a bar in characters.
const BAR_MAX: u64 = 40;

/// Returns a duration as text with few digits, in the largest fitting unit.
pub(super) fn duration(nanoseconds: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let unit = units.into_iter().find(|(_, length)| nanoseconds >= *length);
    let Some((name, length)) = unit else { return format!("{nanoseconds} ns") };
    let (whole, tenth) = (nanoseconds / length, nanoseconds % length * 10 / length);
    if whole < 10 { format!("{whole}.{tenth} {name}") } else { format!("{whole} {name}") }
}

/// Returns the reason why an entry is valid, or why it was evicted, as text.
pub(crate) fn why(explanation: &Value) -> String {
    let entry = word(&explanation["entry"]);
    let seconds = |key: &str| duration(count(&explanation[key]) * 1_000_000);
    if explanation["state"] == "evicted" {
        let (version, ago) = (count(&explanation["version"]), seconds("ago_ms"));
        let cause = match word(&explanation["delta"]) {
            "" => text_of_cause(word(&explanation["cause"])),
            delta => delta.to_owned(),
        };
        return format!("entry {entry} was evicted {ago} ago by version {version}:\n  {cause}\n");
    }
    let [packets, bytes, version] =
        ["packets", "bytes", "version"].map(|key| count(&explanation[key]));
    let idle = seconds("idle_ms");
    let mut text = format!("entry {entry}: {packets} packets, {bytes} bytes, idle {idle}\n");
    let megaflow = match word(&explanation["megaflow"]) {
        "" => "any packet",
        own => own,
    };
    let _ = writeln!(text, "  matches    {megaflow}\n  actions    {}", actions(explanation));
    if let Some(reason) = explanation["drop_reason"].as_str() {
        let _ = writeln!(text, "  dropped    {reason}");
    }
    let _ = writeln!(text, "  installed  under version {version}");
    if let Some(source) = explanation["forecast"].as_str() {
        let _ = writeln!(text, "  forecast   by {source}, before a packet of the flow arrived");
    }
    text += &decisions(explanation);
    text += "It is valid while these lookups return the same result:\n";
    list(&explanation["visits"]).iter().for_each(|own| text += &visit(own));
    if !list(&explanation["reads"]).is_empty() {
        text += "It also depends on:\n";
    }
    for object in list(&explanation["reads"]) {
        let _ = writeln!(text, "  {}", word(object));
    }
    text
}

/// Returns the cause of an eviction as text, if no single change is known.
fn text_of_cause(cause: &str) -> String {
    match cause {
        "bound" => "too many rules changed at once: all entries of these tables were evicted",
        "fault" => "the eviction engine failed: all entries were evicted",
        _ => "one of several changes (this engine does not report which)",
    }
    .to_owned()
}

/// Returns a lookup as text, with its rule and the bits that it consulted.
fn visit(visit: &Value) -> String {
    let mut text = String::new();
    let place = format!("{} table {}", word(&visit["bridge"]), visit["table"]);
    for conjunction in list(&visit["conjunctions"]) {
        let _ = writeln!(
            text,
            "  {place}: conj_id {} matched by these clauses:",
            conjunction["conj_id"]
        );
        for clause in list(&conjunction["clauses"]) {
            let _ = writeln!(text, "    {}", rule(clause));
        }
    }
    let decided = if visit["rule"].is_null() { "no rule".to_owned() } else { rule(&visit["rule"]) };
    let _ = writeln!(text, "  {place}: {decided}");
    let consulted = match word(&visit["consulted"]) {
        "" => "any packet",
        own => own,
    };
    let _ = writeln!(text, "    depends on all rules of higher priority that overlap {consulted}");
    text + &decisions(visit)
}

/// Returns the decisions that rules do not show as text.
fn decisions(of: &Value) -> String {
    list(&of["decisions"]).iter().map(|own| format!("    -> {}\n", word(own))).collect()
}

/// Returns a rule as `ovs-ofctl` writes it.
fn rule(rule: &Value) -> String {
    let matching = word(&rule["match"]);
    let comma = if matching.is_empty() { "" } else { "," };
    format!("priority={}{comma}{matching} (cookie {})", rule["priority"], word(&rule["cookie"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_list_has_reason_only_without_cache() {
        let list = |kind| json!({"kind": kind, "total": 0, "entries": []});
        assert_eq!(entries(&list("flows")), NO_ENTRIES);
        assert!(entries(&list("megaflow")).starts_with("entry"));
    }

    #[test]
    fn times_are_shown_with_proportional_bars() {
        let value = json!({"count": 5, "p50_ns": 2048, "p99_ns": 8192, "longest_ns": 5000,
            "buckets": [[2048, 4], [4096, 0], [8192, 1]]});
        let expected = "
title: 5, half below 2.0 us, 99 % below 8.1 us, longest 5.0 us
  below 2.0 us                         4  ########################################
  below 4.0 us                         0
  below 8.1 us                         1  ##########
";
        assert_eq!(times("title", &value), expected);
    }

    #[test]
    fn acknowledgements_are_listed_by_iterations() {
        assert_eq!(acks(&json!([0, 0, 0, 0])), "");
        let expected = "
acknowledgements by poll loop iterations since the version was sent: 8 (parked threads not counted)
  0                                    6   75.0 %
  1                                    2   25.0 %
  2                                    0    0.0 %
  more                                 0    0.0 %
";
        assert_eq!(acks(&json!([6, 2, 0, 0])), expected);
    }

    /// Sizes that only developers understand are only printed with `--json`.
    #[test]
    fn index_is_shown_in_words_of_operator() {
        let value = json!({"engine": "direct", "relations": [["entries", 3], ["visits", 9],
            ["projections", 7], ["chained", 12]], "owners": [{"owner": 0, "reports": 2}]});
        let shown = evict(&value);
        for words in ["table lookups of these entries", "2  installs and removals not yet read"] {
            assert!(shown.contains(words), "{shown}");
        }
        assert!(!shown.contains("projections") && !shown.contains("chained"), "{shown}");
    }

    #[test]
    fn ltm_entry_with_tag_drops_nothing() {
        assert_eq!(actions(&json!({"actions": [], "next": null})), "drop");
        assert_eq!(actions(&json!({"actions": [], "next": "tag=2"})), "next(tag=2)");
        let more = json!({"actions": ["set(nw_ttl=63)"], "next": "tag=2"});
        assert_eq!(actions(&more), "set(nw_ttl=63),next(tag=2)");
    }

    #[test]
    fn lookups_and_reads_explain_valid_entry() {
        let rule = json!({"match": "ip", "priority": 7, "cookie": "0x1", "actions": "output:2"});
        let visits = json!([
            {"bridge": "br0", "table": 0, "conjunctions": [], "rule": rule, "consulted": "ip"},
            {"bridge": "br0", "table": 4, "conjunctions": [], "rule": null, "consulted": ""},
        ]);
        let value = json!({"state": "live", "entry": "0.1.2", "packets": 3, "bytes": 180,
            "idle_ms": 1500, "megaflow": "ip", "actions": ["2"], "version": 9, "visits": visits,
            "reads": ["the ports of br0"]});
        let expected = "\
entry 0.1.2: 3 packets, 180 bytes, idle 1.5 s
  matches    ip
  actions    2
  installed  under version 9
It is valid while these lookups return the same result:
  br0 table 0: priority=7,ip (cookie 0x1)
    depends on all rules of higher priority that overlap ip
  br0 table 4: no rule
    depends on all rules of higher priority that overlap any packet
It also depends on:
  the ports of br0
";
        assert_eq!(why(&value), expected);
    }

    #[test]
    fn the_entry_of_a_forecast_has_its_origin() {
        let shown = |forecast: Option<&str>| {
            why(&json!({"state": "live", "version": 9, "forecast": forecast}))
        };
        let line = "\n  forecast   by reply, before a packet of the flow arrived\n";
        assert!(shown(Some("reply")).contains(line), "{}", shown(Some("reply")));
        assert!(!shown(None).contains("forecast"), "{}", shown(None));
    }

    #[test]
    fn an_evicted_entry_is_explained_by_its_cause() {
        let value = json!({"state": "evicted", "entry": "0.1.2", "version": 9, "ago_ms": 20,
            "cause": "group", "delta": "group 3 of br0 changed"});
        let expected =
            "entry 0.1.2 was evicted 20 ms ago by version 9:\n  group 3 of br0 changed\n";
        assert_eq!(why(&value), expected);
        let value = json!({"state": "evicted", "cause": "unknown", "delta": null});
        assert!(why(&value).contains("does not report which"), "{}", why(&value));
    }
}
