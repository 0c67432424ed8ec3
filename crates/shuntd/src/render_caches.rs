//! Tables of cache counters.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    render::{count, list, percent, table, word},
    render_nic::{looked_up, nic},
};

/// Returns the counters of all caches, one line each.
pub(crate) fn caches(caches: &Value) -> String {
    let received = count(&caches["received"]);
    let mut text = format!("packets       {received:>14}\n");
    let mut line = |name: &str, count: u64, rest: &str| {
        let _ = writeln!(text, "{}", format!("{name:<13} {count:>14}  {rest}").trim_end());
    };
    let hits = |key: &str| count(&caches[key]);
    let share = |count| percent(count, received);
    let chain = &caches["gigaflow"];
    line("exact match", hits("exact_hits"), &share(hits("exact_hits")));
    if chain.is_null() {
        line("megaflow", hits("megaflow_hits"), &share(hits("megaflow_hits")));
        line("translated", hits("upcalls"), &share(hits("upcalls")));
        let probes = caches["probes"].as_f64().unwrap_or_default();
        let under =
            format!("{} masks, {probes:.2} masks searched per lookup", count(&caches["masks"]));
        line("entries", hits("entries"), &under);
    } else {
        let own = |key: &str| count(&chain[key]);
        let entries = chain["entries_per_hit"].as_f64().unwrap_or_default();
        let rest = format!("{}, {entries:.2} LTM entries per hit", share(own("hits")));
        line("gigaflow", own("hits"), &rest);
        let resumed = format!("{} translated from the table where they missed", own("resumed"));
        line("partial hits", own("partial_hits"), &resumed);
        line("translated", hits("upcalls"), &share(hits("upcalls")));
        let under = format!("{} masks, {} tags", count(&caches["masks"]), own("tags"));
        line("entries", hits("entries"), &under);
    }
    for (name, key) in [
        ("evicted", "evicted"),
        ("conflicts", "install_conflicts"),
        ("expired", "expired"),
        ("not cached: full", "refused_full"),
        ("not cached: queue", "refused_ring"),
    ] {
        line(name, hits(key), "");
    }
    if hits("verified") > 0 {
        line(
            "verified",
            hits("verified"),
            &format!("{} of them differ from the tables", hits("differences")),
        );
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

/// Returns the LTM entries and stages of Gigaflow caches.
fn ltm_entries(caches: &Value) -> String {
    let (mut text, chain) = (String::new(), &caches["gigaflow"]);
    let (created, shared) = (count(&chain["created"]), count(&chain["shared"]));
    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    let uses = (created + shared) as f64 / created.max(1) as f64;
    let _ = writeln!(
        text,
        "
LTM entries created   {created:>12}  used by {uses:.2} traversals on average"
    );
    let _ = writeln!(text, "sub-traversals shared {shared:>12}  matched an existing LTM entry");
    let _ = writeln!(text, "evicted for space     {:>12}", count(&chain["evicted_for_space"]));
    for (name, key) in [
        ("learns", "learns"),
        ("near a limit", "near_limits"),
        ("no tag", "no_tag"),
        ("stages full", "stages_full"),
        ("refused", "refused"),
    ] {
        let not_partitioned = count(&chain["not_partitioned"][key]);
        if not_partitioned > 0 {
            let _ = writeln!(text, "not partitioned: {name:<12} {not_partitioned:>5}");
        }
    }
    let mut rows = vec![vec!["thread".to_owned(), "hits".into(), "partial hits".into()]];
    rows[0].extend(["traversals covered", "(pairwise)", "(published)"].map(str::to_owned));
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

/// Returns the cache counters in one line.
pub(crate) fn caches_line(caches: &Value) -> String {
    let received = count(&caches["received"]);
    let share = |value: &Value| percent(count(value), received);
    let hits = if word(&caches["kind"]) == "gigaflow" {
        let chain = &caches["gigaflow"];
        format!(
            "gigaflow {}, partial hits {}",
            share(&chain["hits"]),
            share(&chain["partial_hits"])
        )
    } else {
        format!("megaflow {}", share(&caches["megaflow_hits"]))
    };
    let traffic = &caches["nic"]["traffic"];
    let nic = if traffic.is_object() {
        let seen = looked_up(traffic);
        format!("nic {} of {seen}; ", percent(count(&traffic["hits"]), seen))
    } else {
        String::new()
    };
    format!(
        "{nic}{received:>9} packets: exact match {}, {hits}, translated {}; {} entries, {} evicted\n",
        share(&caches["exact_hits"]),
        share(&caches["upcalls"]),
        count(&caches["entries"]),
        count(&caches["evicted"])
    )
}
