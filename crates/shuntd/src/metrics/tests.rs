//! Tests of the metrics text.

use shunt_switch::{
    DropStatus, LatencyStatus, NicTraffic, OperationsStatus, PortDropStatus, PortDrops,
    RuleSpaceStatus, config::OffloadKind,
};

use super::*;

/// Checks that each line exists in a metrics text,
/// and that no family is declared twice.
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
    let list_time = LatencyStatus {
        count: 3,
        sum_ns: 1_500_000_000,
        buckets: vec![(1024, 2), (2048, 1)],
        ..LatencyStatus::default()
    };
    let status = EvictionStatus {
        list_time,
        waiting: 4,
        by_cause: vec![("rule", 7)],
        acks: [5, 3, 0, 1],
        engine_bytes: Some(9),
        resident_bytes: None,
        ..EvictionStatus::default()
    };
    let text = evict(&status);
    let lines = [
        "shunt_eviction_acks_total{iterations=\"0\"} 5",
        "shunt_eviction_acks_total{iterations=\"more\"} 1",
        "shunt_eviction_waiting_changes 4",
        "shunt_eviction_engine_bytes 9",
        "shunt_eviction_evicted_total{cause=\"rule\"} 7",
        "shunt_eviction_list_seconds_bucket{le=\"0.000001024\"} 2",
        "shunt_eviction_list_seconds_bucket{le=\"0.000002048\"} 3",
        "shunt_eviction_list_seconds_bucket{le=\"+Inf\"} 3",
        "shunt_eviction_list_seconds_sum 1.500000000",
        "shunt_eviction_list_seconds_count 3",
    ];
    assert_has(&text, &lines);
    assert!(!text.contains("shunt_process_resident_bytes"), "an unknown value is omitted");
}

fn nic_status() -> NicStatus {
    NicStatus {
        bridge: "br0".to_owned(),
        kind: OffloadKind::Embedded,
        address: String::new(),
        state: "connected",
        reason: None,
        error: None,
        stale_s: None,
        stale_count: 0,
        unconfirmed: 0,
        counters_late: false,
        repairs: 0,
        stages: vec![StageFill { entries: 5, entries_max: 9 }],
        waiting: 0,
        stale_entries: 0,
        tags: 0,
        created: 8,
        shared: 3,
        entry_hits: 0,
        refused: vec![("actions".to_owned(), 1)],
        candidates_offered: 0,
        candidates_dropped: 0,
        candidates_known: 0,
        operations: OperationsStatus { inserts: 6, ..OperationsStatus::default() },
        latency_us: [64, 128, 256],
        rule_space: Some(RuleSpaceStatus { exact: 6, pairwise: 5, published: 4 }),
        traffic: Some(NicTraffic {
            hits: 40,
            partial_hits: 4,
            dropped: vec![("rule", 2)],
            ..NicTraffic::default()
        }),
    }
}

/// Returns a status with a Gigaflow cache in two threads, and a NIC.
pub(super) fn cache_status() -> CacheStatus {
    let chain = GigaflowStatus {
        hits: 7,
        entries_per_hit: 2.5,
        not_partitioned: NotPartitioned { learns: 3, ..NotPartitioned::default() },
        stages: vec![
            StageStatus { entries: 1, entries_max: 8, masks: 1 },
            StageStatus { entries: 2, ..StageStatus::default() },
        ],
        ..GigaflowStatus::default()
    };
    CacheStatus {
        received: 9,
        exact_hits: 1,
        gigaflow: Some(chain.clone()),
        gigaflow_threads: vec![chain.clone(), chain],
        rule_space: vec![RuleSpaceStatus { exact: 12, pairwise: 10, published: 9 }],
        nic: Some(nic_status()),
        ..CacheStatus::default()
    }
}

#[test]
fn gigaflow_metrics_have_thread_and_stage_labels() {
    let status = cache_status();
    let lines = [
        "shunt_received_packets_total 9",
        "shunt_cache_hits_total{cache=\"exact\"} 1",
        "shunt_gigaflow_hits_total{thread=\"1\"} 7",
        "shunt_gigaflow_entries_per_hit{thread=\"0\"} 2.5",
        "shunt_gigaflow_not_partitioned_total{thread=\"0\",reason=\"learns\"} 3",
        "shunt_gigaflow_stage_entries{thread=\"0\",stage=\"1\"} 2",
        "shunt_gigaflow_rule_space{thread=\"0\"} 12",
        "shunt_gigaflow_rule_space_pairwise{thread=\"0\"} 10",
        "shunt_gigaflow_rule_space_published{thread=\"0\"} 9",
        "shunt_nic_connected 1",
        "shunt_nic_inserts_total 6",
        "shunt_nic_created_total 8",
        "shunt_nic_reused_entries_total 3",
        "shunt_nic_rule_space 6",
        "shunt_nic_rule_space_pairwise 5",
        "shunt_nic_rule_space_published 4",
        "shunt_nic_partial_hits_total 4",
        "shunt_nic_dropped_total{reason=\"rule\"} 2",
        "shunt_nic_refused_total{reason=\"actions\"} 1",
        "shunt_nic_stage_entries_max{stage=\"0\"} 9",
        "shunt_nic_offload_seconds{quantile=\"0.99\"} 0.000128000",
    ];
    assert_has(&caches(&status), &lines);
    let stale = CacheStatus {
        nic: Some(NicStatus { state: "stale", rule_space: None, traffic: None, ..nic_status() }),
        ..CacheStatus::default()
    };
    assert_has(&caches(&stale), &["shunt_nic_connected 0"]);
    assert_has(&caches(&CacheStatus::default()), &["shunt_received_packets_total 0"]);
}

#[test]
fn metrics_of_drops_agree_with_the_status() {
    let drops = PortDrops { direction: "rx", reason: "rx_ring_full", packets: 540_000 };
    let port = PortDropStatus { bridge: "br0".into(), name: "p1".into(), number: 1, drops };
    let status = DropStatus {
        sent: 7,
        dropped: vec![("no_matching_rule", 2)],
        not_received: vec![("rx_ring_full", 540_000)],
        ports: vec![port],
        ..DropStatus::default()
    };
    let lines = [
        "shunt_sent_packets_total 7",
        "shunt_dropped_packets_total{reason=\"no_matching_rule\"} 2",
        "shunt_not_received_packets_total{reason=\"rx_ring_full\"} 540000",
        "shunt_port_dropped_packets_total{bridge=\"br0\",port=\"p1\",direction=\"rx\",reason=\"rx_ring_full\"} 540000",
    ];
    assert_has(&drops::drops(&status), &lines);
}
