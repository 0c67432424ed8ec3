//! The caches, as people see them.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    render::{count, list, percent, table, word},
    render_nic::{looked_up, nic},
};

/// The caches, a line each.
pub(crate) fn caches(caches: &Value) -> String {
    let received = count(&caches["received"]);
    let mut text = format!("packets       {received:>14}\n");
    let mut line = |name: &str, count: u64, rest: &str| {
        let _ = writeln!(text, "{}", format!("{name:<13} {count:>14}  {rest}").trim_end());
    };
    let hits = |key: &str| count(&caches[key]);
    let share = |count| percent(count, received);
    let chain = &caches["chain"];
    line("exact match", hits("exact_hits"), &share(hits("exact_hits")));
    if chain.is_null() {
        line("megaflow", hits("megaflow_hits"), &share(hits("megaflow_hits")));
        line("translated", hits("upcalls"), &share(hits("upcalls")));
        let probes = caches["probes"].as_f64().unwrap_or_default();
        let under = format!("under {} masks, {probes:.2} asked a packet", count(&caches["masks"]));
        line("entries", hits("entries"), &under);
    } else {
        let own = |key: &str| count(&chain[key]);
        let steps = chain["steps"].as_f64().unwrap_or_default();
        let rest = format!("{}, {steps:.2} entries a packet", share(own("hits")));
        line("gigaflow", own("hits"), &rest);
        let resumed = format!("{} went on where they missed", own("resumed"));
        line("midway", own("partial"), &resumed);
        line("translated", hits("upcalls"), &share(hits("upcalls")));
        let under = format!("under {} masks, {} tags", count(&caches["masks"]), own("tags"));
        line("entries", hits("entries"), &under);
    }
    for (name, key) in [
        ("evicted", "evicted"),
        ("install_conflicts", "install_conflicts"),
        ("expired", "expired"),
        ("refused: full", "refused_full"),
        ("refused: ring", "refused_ring"),
    ] {
        line(name, hits(key), "");
    }
    if hits("verified") > 0 {
        line("verified", hits("verified"), &format!("{} of them wrong", hits("differences")));
    }
    line("version", hits("version"), "");
    if !chain.is_null() {
        text += &pieces(caches);
    }
    if caches["nic"].is_object() {
        text += &nic(&caches["nic"]);
    }
    text
}

/// What a chain is made of: pieces, what was not cut, and the stages of each thread.
fn pieces(caches: &Value) -> String {
    let (mut text, chain) = (String::new(), &caches["chain"]);
    let (made, shared) = (count(&chain["made"]), count(&chain["shared"]));
    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    let uses = (made + shared) as f64 / made.max(1) as f64;
    let _ = writeln!(text, "\npieces made   {made:>14}  {uses:.2} ways used each");
    let _ = writeln!(text, "shared        {shared:>14}");
    let _ = writeln!(text, "made room     {:>14}", count(&chain["evicted"]));
    for (name, key) in [
        ("teach", "teaching"),
        ("near a bound", "near_bounds"),
        ("no tag", "without_tags"),
        ("no room", "without_room"),
        ("refused", "refused"),
    ] {
        let not_cut = count(&chain["not_cut"][key]);
        if not_cut > 0 {
            let _ = writeln!(text, "not cut: {name:<12} {not_cut:>6}");
        }
    }
    let mut rows = vec![vec!["thread".to_owned(), "hits".into(), "midway".into(), "ways".into()]];
    rows[0].extend(["pairs", "published"].map(str::to_owned));
    let stages = list(&chain["stages"]).len();
    rows[0].extend((0..stages).map(|stage| format!("stage {stage}")));
    for (number, own) in list(&caches["chains"]).iter().enumerate() {
        let coverage = &caches["coverage"][number];
        let mut row = vec![number.to_string(), own["hits"].to_string(), own["partial"].to_string()];
        row.extend(["chains", "pairs", "published"].map(|key| coverage[key].to_string()));
        row.extend(
            list(&own["stages"]).iter().map(|stage| {
                format!("{}/{}", count(&stage["entries"]), count(&stage["entries_max"]))
            }),
        );
        rows.push(row);
    }
    text + "\n" + &table(&rows)
}

/// The caches in one line.
pub(crate) fn caches_line(caches: &Value) -> String {
    let received = count(&caches["received"]);
    let share = |value: &Value| percent(count(value), received);
    let hits = if word(&caches["kind"]) == "gigaflow" {
        let chain = &caches["chain"];
        format!("gigaflow {}, midway {}", share(&chain["hits"]), share(&chain["partial"]))
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
