//! The counters of the daemon as metrics in the text format of Prometheus.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    render::{count, list, word},
    render_evict::ITERATIONS,
};

/// Returns the metrics of cache evictions.
pub(crate) fn evict(evict: &Value) -> String {
    let mut metrics = Metrics::default();
    metrics.family(
        "shunt_eviction_rows",
        "gauge",
        "Rows in the index of the eviction engine, by relation.",
    );
    for pair in list(&evict["relations"]) {
        let relation = word(&pair[0]).replace(' ', "_");
        metrics.value(&[("relation", &relation)], count(&pair[1]));
    }
    metrics.singles(evict, &EVICT);
    metrics.family(
        "shunt_eviction_evicted_total",
        "counter",
        "Cache entries evicted by changes, by cause.",
    );
    metrics.pairs("cause", &evict["by_cause"]);
    let name = "shunt_eviction_list_seconds";
    metrics.histogram(
        name,
        "Time from the start of a change until its list of stale entries is complete.",
        &evict["list_time"],
    );
    let name = "shunt_eviction_ack_seconds";
    metrics.histogram(name, "Time from the publication of a table version until the last packet thread acknowledged it.", &evict["ack_time"]);
    metrics.family(
        "shunt_eviction_acks_total",
        "counter",
        "Acknowledgements of table versions, by the poll loop iterations that the packet thread started since the version was sent.",
    );
    for (iterations, acks) in ITERATIONS.iter().zip(list(&evict["acks"])) {
        metrics.value(&[("iterations", iterations)], count(acks));
    }
    metrics.0
}

/// Returns the metrics of caches, Gigaflow caches and the NIC.
pub(crate) fn caches(caches: &Value) -> String {
    let mut metrics = Metrics::default();
    metrics.singles(caches, &CACHES);
    metrics.family("shunt_cache_hits_total", "counter", "Packets that hit a cache, by cache.");
    for (cache, key) in [("exact", "exact_hits"), ("megaflow", "megaflow_hits")] {
        metrics.value(&[("cache", cache)], count(&caches[key]));
    }
    metrics.family(
        "shunt_cache_refused_total",
        "counter",
        "Cache entries not installed, by the resource that was full.",
    );
    for (reason, key) in [("cache", "refused_full"), ("reports", "refused_ring")] {
        metrics.value(&[("full", reason)], count(&caches[key]));
    }
    if !caches["gigaflow"].is_null() {
        gigaflow(&mut metrics, caches);
    }
    if caches["nic"].is_object() {
        nic(&mut metrics, &caches["nic"]);
    }
    metrics.0
}

/// Adds the metrics of the Gigaflow cache of each packet thread.
fn gigaflow(metrics: &mut Metrics, caches: &Value) {
    let threads: Vec<(String, &Value)> = list(&caches["gigaflow_threads"])
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
        "shunt_gigaflow_not_partitioned_total",
        "counter",
        "Traversals that were cached as one megaflow, or not cached, by reason.",
    );
    for (thread, own) in &threads {
        for (reason, traversals) in own["not_partitioned"].as_object().into_iter().flatten() {
            metrics.value(&[("thread", thread), ("reason", reason)], count(traversals));
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
        (
            "shunt_gigaflow_rule_space",
            "Complete traversals that the LTM entries of the thread cover, counted exactly.",
            "exact",
        ),
        (
            "shunt_gigaflow_rule_space_pairwise",
            "Estimate of the covered traversals: products of the LTM entries before and after each tag.",
            "pairwise",
        ),
        (
            "shunt_gigaflow_rule_space_published",
            "Estimate of the covered traversals by the formula of the Gigaflow paper.",
            "published",
        ),
    ] {
        metrics.family(name, "gauge", help);
        for ((thread, _), rule_space) in threads.iter().zip(list(&caches["rule_space"])) {
            metrics.value(&[("thread", thread)], count(&rule_space[key]));
        }
    }
}

/// Adds the metrics of the NIC in front of a bridge.
fn nic(metrics: &mut Metrics, nic: &Value) {
    metrics.family(
        "shunt_nic_connected",
        "gauge",
        "1 if the NIC is connected and holds its entries, else 0.",
    );
    metrics.value(&[], u64::from(nic["state"] == "connected"));
    metrics.singles(nic, &NIC);
    metrics.singles(&nic["rule_space"], &NIC_RULE_SPACE);
    metrics.singles(&nic["operations"], &NIC_OPERATIONS);
    metrics.singles(&nic["traffic"], &NIC_TRAFFIC);
    metrics.family("shunt_nic_dropped_total", "counter", "Packets dropped by the NIC, by reason.");
    metrics.pairs("reason", &nic["traffic"]["dropped"]);
    metrics.family(
        "shunt_nic_refused_total",
        "counter",
        "LTM entries that the NIC does not support, by reason.",
    );
    metrics.pairs("reason", &nic["refused"]);
    for (name, help, key) in NIC_STAGE {
        metrics.family(name, "gauge", help);
        for (stage, number) in list(&nic["stages"]).iter().zip(0_u32..) {
            metrics.value(&[("stage", &number.to_string())], count(&stage[key]));
        }
    }
    let name = "shunt_nic_offload_seconds";
    metrics.family(
        name,
        "gauge",
        "Time from a miss until the NIC holds all entries of the traversal; upper bound of a histogram bucket.",
    );
    for (quantile, us) in ["0.5", "0.99", "0.999"].into_iter().zip(list(&nic["latency_us"])) {
        let _ =
            writeln!(metrics.0, "{name}{{quantile=\"{quantile}\"}} {}", seconds(count(us) * 1000));
    }
}

/// A metric with one value: name, type, help text and JSON key.
type Single = (&'static str, &'static str, &'static str, &'static str);

const EVICT: [Single; 14] = [
    (
        "shunt_eviction_engine_bytes",
        "gauge",
        "Approximate memory of the eviction engine.",
        "engine_bytes",
    ),
    ("shunt_process_resident_bytes", "gauge", "Resident memory of the process.", "resident_bytes"),
    ("shunt_eviction_waiting_changes", "gauge", "Queued changes.", "waiting"),
    (
        "shunt_eviction_delayed_changes_total",
        "counter",
        "Changes that waited because the queue was full.",
        "delayed",
    ),
    (
        "shunt_eviction_changes_total",
        "counter",
        "Changes applied to the eviction engine.",
        "changes",
    ),
    (
        "shunt_eviction_overflows_total",
        "counter",
        "Changes that were too large to examine and evicted all entries of their tables.",
        "overflows",
    ),
    (
        "shunt_eviction_faults_total",
        "counter",
        "Failures of the eviction engine; each evicted all entries.",
        "faults",
    ),
    ("shunt_eviction_installed_total", "counter", "Cache entries installed.", "installed"),
    (
        "shunt_eviction_install_conflicts_total",
        "counter",
        "Entries dropped because a change arrived while they were installed.",
        "install_conflicts",
    ),
    (
        "shunt_eviction_removed_total",
        "counter",
        "Cache entries removed by their owners, for example when they expired.",
        "removed",
    ),
    (
        "shunt_repair_same_total",
        "counter",
        "Evicted entries that were re-translated with the same actions.",
        "repaired_same",
    ),
    (
        "shunt_repair_changed_total",
        "counter",
        "Evicted entries that were re-translated with other actions.",
        "repaired_changed",
    ),
    (
        "shunt_repair_covered_total",
        "counter",
        "Repairs that became unnecessary because another entry covered the packets.",
        "repair_covered",
    ),
    ("shunt_repair_dropped_total", "counter", "Repairs that were dropped.", "repair_dropped"),
];

const CACHES: [Single; 10] = [
    ("shunt_received_packets_total", "counter", "Packets received.", "received"),
    (
        "shunt_upcalls_total",
        "counter",
        "Packets that missed every cache and were translated.",
        "upcalls",
    ),
    ("shunt_cache_entries", "gauge", "Cache entries.", "entries"),
    ("shunt_cache_masks", "gauge", "Masks in the wildcard cache.", "masks"),
    (
        "shunt_cache_evicted_total",
        "counter",
        "Cache entries evicted because a change made them stale.",
        "evicted",
    ),
    (
        "shunt_cache_expired_total",
        "counter",
        "Cache entries that expired without a hit.",
        "expired",
    ),
    (
        "shunt_cache_install_conflicts_total",
        "counter",
        "Entries dropped because a change arrived while they were installed.",
        "install_conflicts",
    ),
    (
        "shunt_cache_verified_total",
        "counter",
        "Cache hits that were also translated, to verify the cache.",
        "verified",
    ),
    (
        "shunt_cache_differences_total",
        "counter",
        "Verified hits that differed from their translation.",
        "differences",
    ),
    (
        "shunt_table_version",
        "gauge",
        "Version of the tables that all packet threads have adopted.",
        "version",
    ),
];

const CHAIN: [Single; 9] = [
    (
        "shunt_gigaflow_hits_total",
        "counter",
        "Packets that hit, up to the end of their traversal.",
        "hits",
    ),
    ("shunt_gigaflow_misses_total", "counter", "Packets that hit no LTM entry.", "misses"),
    (
        "shunt_gigaflow_partial_hits_total",
        "counter",
        "Packets that hit one or more LTM entries and then missed.",
        "partial_hits",
    ),
    (
        "shunt_gigaflow_resumed_total",
        "counter",
        "Partial hits that were translated from the point of the miss.",
        "resumed",
    ),
    ("shunt_gigaflow_created_total", "counter", "LTM entries created.", "created"),
    (
        "shunt_gigaflow_shared_total",
        "counter",
        "Sub-traversals that matched an existing LTM entry.",
        "shared",
    ),
    (
        "shunt_gigaflow_evicted_for_space_total",
        "counter",
        "LTM entries evicted for space.",
        "evicted_for_space",
    ),
    ("shunt_gigaflow_tags", "gauge", "Tags in use.", "tags"),
    (
        "shunt_gigaflow_entries_per_hit",
        "gauge",
        "Average number of LTM entries on the path of a packet that hit.",
        "entries_per_hit",
    ),
];

/// Name, help text and JSON key of the metrics of a stage.
const STAGE: [(&str, &str, &str); 3] = [
    ("shunt_gigaflow_stage_entries", "LTM entries in a stage.", "entries"),
    (
        "shunt_gigaflow_stage_entries_max",
        "Maximum number of LTM entries in a stage.",
        "entries_max",
    ),
    (
        "shunt_gigaflow_stage_masks",
        "Masks in a stage; masks of different tags count separately.",
        "masks",
    ),
];

const NIC: [Single; 12] = [
    (
        "shunt_nic_stale_total",
        "counter",
        "Number of times that the NIC became stale.",
        "stale_count",
    ),
    (
        "shunt_nic_unconfirmed_total",
        "counter",
        "Table versions that were acknowledged without the NIC.",
        "unconfirmed",
    ),
    (
        "shunt_nic_restores_total",
        "counter",
        "Number of times that the entries of the NIC were restored after a lost connection.",
        "repairs",
    ),
    ("shunt_nic_waiting_entries", "gauge", "LTM entries to insert into the NIC.", "waiting"),
    (
        "shunt_nic_stale_entries",
        "gauge",
        "Stale entries that the NIC has not confirmed as removed.",
        "stale_entries",
    ),
    ("shunt_nic_tags", "gauge", "Tags in use.", "tags"),
    ("shunt_nic_created_total", "counter", "LTM entries created for the NIC.", "created"),
    (
        "shunt_nic_shared_total",
        "counter",
        "Sub-traversals that matched an LTM entry of the NIC.",
        "shared",
    ),
    (
        "shunt_nic_entry_hits_total",
        "counter",
        "Sum of the hit counters of the LTM entries of the NIC.",
        "entry_hits",
    ),
    (
        "shunt_nic_candidates_offered_total",
        "counter",
        "Packets that missed every cache and were sent to the offload thread.",
        "candidates_offered",
    ),
    (
        "shunt_nic_candidates_known_total",
        "counter",
        "Candidates with entries that were in the NIC already.",
        "candidates_known",
    ),
    (
        "shunt_nic_candidates_dropped_total",
        "counter",
        "Candidates that did not fit their queue.",
        "candidates_dropped",
    ),
];

const NIC_RULE_SPACE: [Single; 3] = [
    (
        "shunt_nic_rule_space",
        "gauge",
        "Complete traversals that the LTM entries of the NIC cover, counted exactly.",
        "exact",
    ),
    (
        "shunt_nic_rule_space_pairwise",
        "gauge",
        "Estimate of the covered traversals: products of the LTM entries before and after each tag.",
        "pairwise",
    ),
    (
        "shunt_nic_rule_space_published",
        "gauge",
        "Estimate of the covered traversals by the formula of the Gigaflow paper.",
        "published",
    ),
];

const NIC_OPERATIONS: [Single; 4] = [
    ("shunt_nic_inserts_total", "counter", "Insertions requested from the NIC.", "inserts"),
    ("shunt_nic_removes_total", "counter", "Removals requested from the NIC.", "removes"),
    (
        "shunt_nic_failed_operations_total",
        "counter",
        "Operations that the NIC refused or could not do.",
        "failed",
    ),
    (
        "shunt_nic_lost_operations_total",
        "counter",
        "Operations without an answer when the connection was lost.",
        "lost",
    ),
];

const NIC_TRAFFIC: [Single; 5] = [
    ("shunt_nic_received_packets_total", "counter", "Packets received by the NIC.", "received"),
    (
        "shunt_nic_hits_total",
        "counter",
        "Packets that hit in the NIC, up to the end of their traversal.",
        "hits",
    ),
    (
        "shunt_nic_misses_total",
        "counter",
        "Packets that missed in the NIC and were sent to the packet threads.",
        "missed",
    ),
    (
        "shunt_nic_partial_hits_total",
        "counter",
        "Packets that hit one or more LTM entries of the NIC and then missed.",
        "partial_hits",
    ),
    (
        "shunt_nic_sent_packets_total",
        "counter",
        "Packets sent through the ports of the NIC.",
        "sent",
    ),
];

const NIC_STAGE: [(&str, &str, &str); 2] = [
    ("shunt_nic_stage_entries", "LTM entries in a stage.", "entries"),
    ("shunt_nic_stage_entries_max", "Maximum number of LTM entries in a stage.", "entries_max"),
];

/// The text of metrics; values belong to the last family.
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

    /// Adds families with one value each; unknown values are omitted.
    fn singles(&mut self, values: &Value, families: &[Single]) {
        for (name, kind, help, key) in families {
            if let Some(value) = values[key].as_number() {
                self.family(name, kind, help);
                self.value(&[], value);
            }
        }
    }

    /// Adds a value for each pair of a name and a count.
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

/// Returns nanoseconds as a number of seconds.
fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

#[cfg(test)]
mod tests;
