//! Tests of the metrics text.

use serde_json::json;

use super::*;

/// Checks that each line exists, and that no family is declared twice.
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
    let times = json!({"count": 3, "sum_ns": 1_500_000_000_u64, "buckets": [[1024, 2], [2048, 1]]});
    let value = json!({"list_time": times, "waiting": 4, "by_cause": [["rule", 7]],
        "acks": [5, 3, 0, 1]});
    let text = evict(&value);
    let lines = [
        "shunt_eviction_acks_total{iterations=\"0\"} 5",
        "shunt_eviction_acks_total{iterations=\"more\"} 1",
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
fn gigaflow_metrics_have_thread_and_stage_labels() {
    let chain = json!({"hits": 7, "entries_per_hit": 2.5, "not_partitioned": {"learns": 3},
        "stages": [{"entries": 1, "entries_max": 8, "masks": 1}, {"entries": 2}]});
    let nic = json!({"state": "connected", "stages": [{"entries": 5, "entries_max": 9}],
        "latency_us": [64, 128, 256], "operations": {"inserts": 6},
        "created": 8, "shared": 3, "rule_space": {"exact": 6, "pairwise": 5, "published": 4},
        "traffic": {"hits": 40, "partial_hits": 4, "dropped": [["rule", 2]]}, "refused": [["actions", 1]]});
    let text = caches(&json!({"received": 9, "exact_hits": 1, "gigaflow": chain,
        "gigaflow_threads": [chain, chain], "rule_space": [{"exact": 12, "pairwise": 10, "published": 9}], "nic": nic}));
    let lines = [
        "shunt_received_packets_total 9",
        "shunt_cache_hits_total{cache=\"exact\"} 1",
        "shunt_gigaflow_hits_total{thread=\"1\"} 7",
        "shunt_gigaflow_not_partitioned_total{thread=\"0\",reason=\"learns\"} 3",
        "shunt_gigaflow_stage_entries{thread=\"0\",stage=\"1\"} 2",
        "shunt_gigaflow_rule_space{thread=\"0\"} 12",
        "shunt_gigaflow_rule_space_pairwise{thread=\"0\"} 10",
        "shunt_gigaflow_rule_space_published{thread=\"0\"} 9",
        "shunt_nic_connected 1",
        "shunt_nic_inserts_total 6",
        "shunt_nic_created_total 8",
        "shunt_nic_shared_total 3",
        "shunt_nic_rule_space 6",
        "shunt_nic_rule_space_pairwise 5",
        "shunt_nic_rule_space_published 4",
        "shunt_nic_partial_hits_total 4",
        "shunt_nic_dropped_total{reason=\"rule\"} 2",
        "shunt_nic_stage_entries_max{stage=\"0\"} 9",
        "shunt_nic_offload_seconds{quantile=\"0.99\"} 0.000128000",
    ];
    assert_has(&text, &lines);
    assert_has(
        &caches(&json!({"received": 9, "gigaflow": null, "nic": null})),
        &["shunt_received_packets_total 9"],
    );
}
