//! What the daemon counts as metrics, in the text format of Prometheus.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    render::{count, list, word},
    render_evict::TURNS,
};

/// Evictions.
pub(crate) fn evict(evict: &Value) -> String {
    let mut metrics = Metrics::default();
    metrics.family("shunt_eviction_rows", "gauge", "Rows of the engine, by relation.");
    for pair in list(&evict["relations"]) {
        let relation = word(&pair[0]).replace(' ', "_");
        metrics.value(&[("relation", &relation)], count(&pair[1]));
    }
    metrics.singles(evict, &EVICT);
    metrics.family(
        "shunt_eviction_evicted_total",
        "counter",
        "Entries that changes ended, by cause.",
    );
    metrics.pairs("cause", &evict["by_cause"]);
    let name = "shunt_eviction_list_seconds";
    metrics.histogram(name, "From a change to the list of what it evicts.", &evict["to_list"]);
    let name = "shunt_eviction_answer_seconds";
    metrics.histogram(name, "From a version to the last answer.", &evict["to_answer"]);
    metrics.family(
        "shunt_eviction_answers_total",
        "counter",
        "Answers of packet threads, by turns begun since the version was posted.",
    );
    for (turns, answers) in TURNS.iter().zip(list(&evict["answers"])) {
        metrics.value(&[("turns", turns)], count(answers));
    }
    metrics.0
}

/// Caches, the chains of packet threads, and the NIC in front of them.
pub(crate) fn caches(caches: &Value) -> String {
    let mut metrics = Metrics::default();
    metrics.singles(caches, &CACHES);
    metrics.family("shunt_cache_hits_total", "counter", "Packets that a cache answered.");
    for (cache, key) in [("exact", "exact_hits"), ("megaflow", "megaflow_hits")] {
        metrics.value(&[("cache", cache)], count(&caches[key]));
    }
    metrics.family("shunt_cache_refused_total", "counter", "Entries not made, by what was full.");
    for (reason, key) in [("cache", "refused_full"), ("reports", "refused_ring")] {
        metrics.value(&[("full", reason)], count(&caches[key]));
    }
    if !caches["chain"].is_null() {
        chains(&mut metrics, caches);
    }
    if caches["nic"].is_object() {
        nic(&mut metrics, &caches["nic"]);
    }
    metrics.0
}

/// The chain of each packet thread.
fn chains(metrics: &mut Metrics, caches: &Value) {
    let threads: Vec<(String, &Value)> = list(&caches["chains"])
        .iter()
        .zip(0..)
        .map(|(own, number): (_, u32)| (number.to_string(), own))
        .collect();
    for (name, kind, help, key) in CHAIN {
        metrics.family(name, kind, help);
        for (thread, own) in &threads {
            metrics.value(&[("thread", thread)], own[key].as_f64().unwrap_or_default());
        }
    }
    metrics.family(
        "shunt_gigaflow_not_cut_total",
        "counter",
        "Ways not cut, or not cached, by why.",
    );
    for (thread, own) in &threads {
        for (reason, ways) in own["not_cut"].as_object().into_iter().flatten() {
            metrics.value(&[("thread", thread), ("reason", reason)], count(ways));
        }
    }
    for (name, help, key) in STAGE {
        metrics.family(name, "gauge", help);
        for (thread, own) in &threads {
            for (stage, number) in list(&own["stages"]).iter().zip(0_u32..) {
                let labels = [("thread", thread.as_str()), ("stage", &number.to_string())];
                metrics.value(&labels, count(&stage[key]));
            }
        }
    }
    for (name, help, key) in [
        ("shunt_gigaflow_ways", "Ways from a bridge to an end that the pieces make.", "chains"),
        ("shunt_gigaflow_ways_pairs", "An estimate of them by pairs of pieces.", "pairs"),
        (
            "shunt_gigaflow_ways_published",
            "An estimate of them by partitions, as published.",
            "published",
        ),
    ] {
        metrics.family(name, "gauge", help);
        for ((thread, _), coverage) in threads.iter().zip(list(&caches["coverage"])) {
            metrics.value(&[("thread", thread)], count(&coverage[key]));
        }
    }
}

/// The NIC in front of a bridge.
fn nic(metrics: &mut Metrics, nic: &Value) {
    metrics.family("shunt_nic_connected", "gauge", "Whether the NIC holds what it is meant to.");
    metrics.value(&[], u64::from(nic["state"] == "connected"));
    metrics.singles(nic, &NIC);
    metrics.singles(&nic["coverage"], &NIC_COVERAGE);
    metrics.singles(&nic["operations"], &NIC_OPERATIONS);
    metrics.singles(&nic["traffic"], &NIC_TRAFFIC);
    metrics.family("shunt_nic_dropped_total", "counter", "Packets that the NIC dropped, by why.");
    metrics.pairs("reason", &nic["traffic"]["dropped"]);
    metrics.family(
        "shunt_nic_refused_total",
        "counter",
        "Pieces that the NIC does not hold, by why.",
    );
    metrics.pairs("reason", &nic["refused"]);
    for (name, help, key) in NIC_STAGE {
        metrics.family(name, "gauge", help);
        for (stage, number) in list(&nic["stages"]).iter().zip(0_u32..) {
            metrics.value(&[("stage", &number.to_string())], count(&stage[key]));
        }
    }
    let name = "shunt_nic_miss_to_hit_seconds";
    metrics.family(
        name,
        "gauge",
        "From a miss until all of its way is in the NIC, to a factor of two.",
    );
    for (quantile, us) in ["0.5", "0.99", "0.999"].into_iter().zip(list(&nic["latency_us"])) {
        let _ =
            writeln!(metrics.0, "{name}{{quantile=\"{quantile}\"}} {}", seconds(count(us) * 1000));
    }
}

/// A metric of one value: the name, the kind, what it is, and its key.
type Single = (&'static str, &'static str, &'static str, &'static str);

const EVICT: [Single; 14] = [
    ("shunt_eviction_engine_bytes", "gauge", "Memory of the engine, about.", "engine_bytes"),
    ("shunt_resident_bytes", "gauge", "Memory of the process.", "resident_bytes"),
    ("shunt_eviction_waiting_changes", "gauge", "Changes that wait.", "waiting"),
    ("shunt_eviction_delayed_total", "counter", "Changes that found the queue full.", "delayed"),
    ("shunt_eviction_changes_total", "counter", "Changes applied.", "changes"),
    ("shunt_eviction_overflows_total", "counter", "Changes beyond the bound.", "overflows"),
    ("shunt_eviction_faults_total", "counter", "Faults of the engine.", "faults"),
    ("shunt_eviction_installed_total", "counter", "Entries made.", "installed"),
    ("shunt_eviction_late_total", "counter", "Entries made too late to be watched.", "late"),
    ("shunt_eviction_removed_total", "counter", "Entries given up by their owners.", "removed"),
    ("shunt_repaired_same_total", "counter", "Evicted, made anew, the same.", "repaired_same"),
    ("shunt_repaired_changed_total", "counter", "Evicted, made anew, changed.", "repaired_changed"),
    ("shunt_repair_covered_total", "counter", "Evicted, and covered by others.", "repair_covered"),
    ("shunt_repair_dropped_total", "counter", "Evicted, not made anew.", "repair_dropped"),
];

const CACHES: [Single; 10] = [
    ("shunt_received_packets_total", "counter", "Packets received.", "received"),
    ("shunt_translations_total", "counter", "Packets that were translated.", "upcalls"),
    ("shunt_cache_entries", "gauge", "Cache entries.", "entries"),
    ("shunt_cache_masks", "gauge", "Masks of cache entries.", "masks"),
    ("shunt_cache_evicted_total", "counter", "Entries that changes made stale.", "evicted"),
    ("shunt_cache_expired_total", "counter", "Entries that were idle for too long.", "expired"),
    (
        "shunt_cache_raced_total",
        "counter",
        "Entries whose install and a change crossed.",
        "install_conflicts",
    ),
    ("shunt_cache_verified_total", "counter", "Hits that were translated anew.", "verified"),
    ("shunt_cache_differences_total", "counter", "Of these, those that were wrong.", "differences"),
    (
        "shunt_version",
        "gauge",
        "The version of the tables that all threads have adopted.",
        "version",
    ),
];

const CHAIN: [Single; 9] = [
    ("shunt_gigaflow_hits_total", "counter", "Packets that came to their end.", "hits"),
    ("shunt_gigaflow_misses_total", "counter", "Packets that met no entry.", "misses"),
    ("shunt_gigaflow_midway_total", "counter", "Packets that met some, and no end.", "partial"),
    ("shunt_gigaflow_resumed_total", "counter", "Of these, those that went on there.", "resumed"),
    ("shunt_gigaflow_made_total", "counter", "Pieces that became entries.", "made"),
    ("shunt_gigaflow_shared_total", "counter", "Pieces that were entries already.", "shared"),
    ("shunt_gigaflow_made_room_total", "counter", "Entries that made room.", "evicted"),
    ("shunt_gigaflow_tags", "gauge", "Tags in use.", "tags"),
    ("shunt_gigaflow_steps", "gauge", "Entries that a packet met, on average.", "steps"),
];

/// The name, what it is, and its key.
const STAGE: [(&str, &str, &str); 3] = [
    ("shunt_gigaflow_stage_entries", "Entries of a stage.", "entries"),
    ("shunt_gigaflow_stage_entries_max", "How many a stage has room for.", "entries_max"),
    ("shunt_gigaflow_stage_masks", "Masks of a stage, of different tags apart.", "masks"),
];

const NIC: [Single; 12] = [
    ("shunt_nic_stale_total", "counter", "How often the NIC became stale.", "stale_count"),
    (
        "shunt_nic_unconfirmed_total",
        "counter",
        "Versions answered though it may forward by what they made stale.",
        "unconfirmed",
    ),
    ("shunt_nic_repairs_total", "counter", "How often it was restored.", "repairs"),
    ("shunt_nic_waiting", "gauge", "Pieces that are to be there and are not yet.", "waiting"),
    ("shunt_nic_stale_entries", "gauge", "Stale entries not confirmed gone.", "stale_entries"),
    ("shunt_nic_tags", "gauge", "Tags in use.", "tags"),
    ("shunt_nic_made_total", "counter", "Pieces that were made to be there.", "made"),
    ("shunt_nic_shared_total", "counter", "Pieces that were to be there already.", "shared"),
    ("shunt_nic_entry_packets_total", "counter", "Packets that its entries counted.", "packets"),
    ("shunt_nic_offered_total", "counter", "Packets that no cache knew.", "offered"),
    (
        "shunt_nic_candidates_known_total",
        "counter",
        "Of these, those that it had.",
        "candidates_known",
    ),
    (
        "shunt_nic_candidates_dropped_total",
        "counter",
        "Of these, those lost.",
        "candidates_dropped",
    ),
];

const NIC_COVERAGE: [Single; 3] = [
    ("shunt_nic_ways", "gauge", "Ways from the bridge to an end that its pieces make.", "chains"),
    ("shunt_nic_ways_pairs", "gauge", "An estimate of them by pairs of pieces.", "pairs"),
    (
        "shunt_nic_ways_published",
        "gauge",
        "An estimate of them by partitions, as published.",
        "published",
    ),
];

const NIC_OPERATIONS: [Single; 4] = [
    ("shunt_nic_inserts_total", "counter", "Entries that it was to add.", "inserts"),
    ("shunt_nic_removes_total", "counter", "Entries that it was to take out.", "removes"),
    ("shunt_nic_failed_total", "counter", "What it refused, or could not do.", "failed"),
    ("shunt_nic_lost_total", "counter", "What it did not answer.", "lost"),
];

const NIC_TRAFFIC: [Single; 5] = [
    ("shunt_nic_received_packets_total", "counter", "Packets that came to it.", "received"),
    ("shunt_nic_hits_total", "counter", "Packets that came to their end there.", "hits"),
    ("shunt_nic_misses_total", "counter", "Packets that it gave to the switch.", "missed"),
    (
        "shunt_nic_midway_total",
        "counter",
        "Packets that met some pieces, and no end.",
        "partial_hits",
    ),
    ("shunt_nic_sent_packets_total", "counter", "Packets that left by its ports.", "sent"),
];

const NIC_STAGE: [(&str, &str, &str); 2] = [
    ("shunt_nic_stage_entries", "Entries of a stage.", "entries"),
    ("shunt_nic_stage_entries_max", "How many a stage has room for.", "entries_max"),
];

/// Metrics as text; values are of the family that was begun last.
#[derive(Default)]
struct Metrics(String, &'static str);

impl Metrics {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self.1 = name;
    }

    fn value(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, own)| format!("{name}=\"{own}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{}{labels} {value}", self.1);
    }

    /// Families of one value each; what is not known is left out.
    fn singles(&mut self, values: &Value, families: &[Single]) {
        for (name, kind, help, key) in families {
            if let Some(value) = values[key].as_number() {
                self.family(name, kind, help);
                self.value(&[], value);
            }
        }
    }

    /// A value for each pair of a name and a count.
    fn pairs(&mut self, label: &str, pairs: &Value) {
        list(pairs).iter().for_each(|pair| self.value(&[(label, word(&pair[0]))], count(&pair[1])));
    }

    fn histogram(&mut self, name: &'static str, help: &str, times: &Value) {
        self.family(name, "histogram", help);
        let mut below = 0;
        for pair in list(&times["buckets"]) {
            below += count(&pair[1]);
            let bound = seconds(count(&pair[0]));
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(self.0, "{name}_bucket{{le=\"+Inf\"}} {}", count(&times["count"]));
        let _ = writeln!(self.0, "{name}_sum {}", seconds(count(&times["sum_ns"])));
        let _ = writeln!(self.0, "{name}_count {}", count(&times["count"]));
    }
}

/// Nanoseconds as a number of seconds.
fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each line is there, and each family is described once.
    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|own| own == *line), "{line} in {text}");
        }
        let mut families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count, "{text}");
    }

    #[test]
    fn buckets_of_a_metric_add_up() {
        let times =
            json!({"count": 3, "sum_ns": 1_500_000_000_u64, "buckets": [[1024, 2], [2048, 1]]});
        let value = json!({"to_list": times, "waiting": 4, "by_cause": [["rule", 7]],
            "answers": [5, 3, 0, 1]});
        let text = evict(&value);
        let lines = [
            "shunt_eviction_answers_total{turns=\"0\"} 5",
            "shunt_eviction_answers_total{turns=\"more\"} 1",
            "shunt_eviction_waiting_changes 4",
            "shunt_eviction_evicted_total{cause=\"rule\"} 7",
            "shunt_eviction_list_seconds_bucket{le=\"0.000001024\"} 2",
            "shunt_eviction_list_seconds_bucket{le=\"0.000002048\"} 3",
            "shunt_eviction_list_seconds_bucket{le=\"+Inf\"} 3",
            "shunt_eviction_list_seconds_sum 1.500000000",
        ];
        assert_has(&text, &lines);
    }

    #[test]
    fn chains_are_told_by_thread_and_stage_and_a_nic_by_stage() {
        let chain = json!({"hits": 7, "steps": 2.5, "not_cut": {"teaching": 3},
            "stages": [{"entries": 1, "entries_max": 8, "masks": 1}, {"entries": 2}]});
        let nic = json!({"state": "connected", "stages": [{"entries": 5, "entries_max": 9}],
            "latency_us": [64, 128, 256], "operations": {"inserts": 6},
            "made": 8, "shared": 3, "coverage": {"chains": 6, "pairs": 5, "published": 4},
            "traffic": {"hits": 40, "partial_hits": 4, "dropped": [["rule", 2]]}, "refused": [["actions", 1]]});
        let text = caches(&json!({"received": 9, "exact_hits": 1, "chain": chain,
            "chains": [chain, chain], "coverage": [{"chains": 12, "pairs": 10, "published": 9}], "nic": nic}));
        let lines = [
            "shunt_received_packets_total 9",
            "shunt_cache_hits_total{cache=\"exact\"} 1",
            "shunt_gigaflow_hits_total{thread=\"1\"} 7",
            "shunt_gigaflow_not_cut_total{thread=\"0\",reason=\"teaching\"} 3",
            "shunt_gigaflow_stage_entries{thread=\"0\",stage=\"1\"} 2",
            "shunt_gigaflow_ways{thread=\"0\"} 12",
            "shunt_gigaflow_ways_pairs{thread=\"0\"} 10",
            "shunt_gigaflow_ways_published{thread=\"0\"} 9",
            "shunt_nic_connected 1",
            "shunt_nic_inserts_total 6",
            "shunt_nic_made_total 8",
            "shunt_nic_shared_total 3",
            "shunt_nic_ways 6",
            "shunt_nic_ways_pairs 5",
            "shunt_nic_ways_published 4",
            "shunt_nic_midway_total 4",
            "shunt_nic_dropped_total{reason=\"rule\"} 2",
            "shunt_nic_stage_entries_max{stage=\"0\"} 9",
            "shunt_nic_miss_to_hit_seconds{quantile=\"0.99\"} 0.000128000",
        ];
        assert_has(&text, &lines);
        assert_has(
            &caches(&json!({"received": 9, "chain": null, "nic": null})),
            &["shunt_received_packets_total 9"],
        );
    }
}
