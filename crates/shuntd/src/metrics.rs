//! The status of a switch as metrics in the text format of Prometheus.
//!
//! The text is made from the status types of the switch. If a field of a status is renamed or
//! removed, this module does not compile.

mod bridges;
mod drops;
mod exports;
mod families;
mod forecast;
mod open_metrics;
mod text;
mod threads;

use std::{collections::BTreeMap, time::Duration};

use shunt_switch::{
    CacheStatus, EvictionStatus, GigaflowStatus, NicStatus, NotPartitioned, StageFill, StageStatus,
    Switch,
};
use tokio::time::timeout;

pub(crate) use self::{
    bridges::multicast, drops::drops, forecast::forecast, open_metrics::open_metrics,
};
use self::{
    families::{
        CACHES, CHAIN, EVICT, NIC, NIC_OPERATIONS, NIC_RULE_SPACE, NIC_STAGE, NIC_TRAFFIC,
        RULE_SPACE, STAGE,
    },
    text::{MetricsText, seconds},
};
use crate::{memory_use, render::evict::ITERATIONS};

/// Maximum time to wait for the status of the eviction thread.
const EVICTION_TIME_MAX: Duration = Duration::from_secs(2);

/// Returns all metrics that need no work of a packet thread.
///
/// The rule-space coverage needs such work. Metrics of evictions are omitted if the eviction thread
/// has ended or does not reply.
pub(crate) async fn all(switch: &Switch) -> String {
    let mut text = threads::threads(&switch.threads(), &threads::cpu_times());
    text += &bridges::bridges(&switch.bridges(), &switch.tables());
    text += &multicast(switch.multicast_messages());
    text += &caches(&switch.caches());
    text += &drops(&switch.drops());
    text += &forecast(&switch.forecasts());
    if let Ok(Ok(status)) = timeout(EVICTION_TIME_MAX, switch.evictions()).await {
        text += &evict(&status);
        let engine = status.engine_bytes.unwrap_or_default() / 1024;
        let uses = tokio::task::spawn_blocking(move || memory_use::resident(engine)).await;
        if let Ok(Ok(uses)) = uses {
            text += &memory(&uses);
        }
    }
    text
}

/// Returns the metrics of memory; `uses` has the KiB of each use.
fn memory(uses: &BTreeMap<&str, u64>) -> String {
    let mut text = MetricsText::default();
    text.family(
        "shunt_process_memory_bytes",
        "gauge",
        "Resident memory of the process by use; the uses add up to all of it.",
    );
    for (name, size) in uses {
        text.value(&[("use", &name.replace('-', "_"))], size * 1024);
    }
    text.into_text()
}

/// Returns the metrics of cache evictions.
pub(crate) fn evict(status: &EvictionStatus) -> String {
    let mut text = MetricsText::default();
    text.family(
        "shunt_eviction_rows",
        "gauge",
        "Rows in the index of the eviction engine, by relation.",
    );
    for (relation, rows) in &status.relations {
        text.value(&[("relation", &relation.replace(' ', "_"))], rows);
    }
    text.singles(status, &EVICT);
    text.family(
        "shunt_eviction_evicted_total",
        "counter",
        "Cache entries evicted by changes, by cause.",
    );
    text.pairs("cause", &status.by_cause);
    text.family(
        "shunt_eviction_table_evicted_total",
        "counter",
        "Cache entries evicted by changes of rules, by table; a deleted bridge has an empty name.",
    );
    // All tables of deleted bridges have the same labels, so their values are added.
    let mut by_table = BTreeMap::<_, u64>::new();
    for own in &status.by_table {
        *by_table.entry((own.bridge.as_str(), own.table)).or_default() += own.evicted;
    }
    for ((bridge, table), evicted) in by_table {
        text.value(&[("bridge", bridge), ("table", &table.to_string())], evicted);
    }
    text.histogram(
        "shunt_eviction_list_seconds",
        "Time from the start of a change until its list of stale entries is complete.",
        &status.list_time,
    );
    text.histogram(
        "shunt_eviction_ack_seconds",
        "Time from the publication of a table version until the last packet thread acknowledged it.",
        &status.ack_time,
    );
    text.family(
        "shunt_eviction_acks_total",
        "counter",
        "Acknowledgements of table versions, by the poll loop iterations that the packet thread started since the version was sent.",
    );
    for (iterations, acks) in ITERATIONS.iter().zip(&status.acks) {
        text.value(&[("iterations", iterations)], acks);
    }
    text.into_text()
}

/// Returns the metrics of caches, Gigaflow caches and the NIC.
pub(crate) fn caches(status: &CacheStatus) -> String {
    let mut text = MetricsText::default();
    text.singles(status, &CACHES);
    text.family("shunt_cache_hits_total", "counter", "Packets that hit a cache, by cache.");
    text.value(&[("cache", "exact")], status.exact_hits);
    text.value(&[("cache", "signature")], status.signature_hits);
    text.value(&[("cache", "megaflow")], status.megaflow_hits);
    text.value(&[("cache", "gigaflow")], status.gigaflow_hits);
    text.family(
        "shunt_cache_refused_total",
        "counter",
        "Cache entries not installed, by the resource that was full.",
    );
    text.value(&[("full", "cache")], status.refused_full);
    text.value(&[("full", "reports")], status.refused_ring);
    text.histogram(
        "shunt_set_up_seconds",
        "Time from the receipt of a packet that missed every cache until it was translated and executed.",
        &status.set_up_time,
    );
    if status.gigaflow.is_some() {
        gigaflow(&mut text, status);
    }
    if let Some(status) = &status.nic {
        nic(&mut text, status);
    }
    text.into_text()
}

/// Adds the metrics of the Gigaflow cache of each packet thread.
fn gigaflow(text: &mut MetricsText, status: &CacheStatus) {
    let threads: Vec<(String, &GigaflowStatus)> =
        status.gigaflow_threads.iter().zip(0..).map(numbered).collect();
    let of_threads: Vec<_> =
        threads.iter().map(|(thread, own)| (vec![("thread", thread.as_str())], *own)).collect();
    text.families(&of_threads, &CHAIN);
    text.family(
        "shunt_gigaflow_not_partitioned_total",
        "counter",
        "Traversals that were cached as one megaflow, or not cached, by reason.",
    );
    for (thread, own) in &threads {
        let NotPartitioned { learns, near_limits, no_tag, refused, stages_full } =
            own.not_partitioned;
        for (reason, traversals) in [
            ("learns", learns),
            ("near_limits", near_limits),
            ("no_tag", no_tag),
            ("refused", refused),
            ("stages_full", stages_full),
        ] {
            text.value(&[("thread", thread), ("reason", reason)], traversals);
        }
    }
    let stages: Vec<(&str, String, &StageStatus)> = threads
        .iter()
        .flat_map(|(thread, own)| {
            let stages = own.stages.iter().zip(0..).map(numbered);
            stages.map(|(stage, own)| (thread.as_str(), stage, own))
        })
        .collect();
    let of_stages: Vec<_> = stages
        .iter()
        .map(|(thread, stage, own)| (vec![("thread", *thread), ("stage", stage.as_str())], *own))
        .collect();
    text.families(&of_stages, &STAGE);
    let rule_space: Vec<_> = threads
        .iter()
        .zip(&status.rule_space)
        .map(|((thread, _), own)| (vec![("thread", thread.as_str())], own))
        .collect();
    text.families(&rule_space, &RULE_SPACE);
}

/// Adds the metrics of the NIC in front of a bridge.
fn nic(text: &mut MetricsText, status: &NicStatus) {
    text.singles(status, &NIC);
    if let Some(rule_space) = &status.rule_space {
        text.singles(rule_space, &NIC_RULE_SPACE);
    }
    text.singles(&status.operations, &NIC_OPERATIONS);
    let traffic = status.traffic.as_ref();
    if let Some(traffic) = traffic {
        text.singles(traffic, &NIC_TRAFFIC);
    }
    text.family("shunt_nic_dropped_total", "counter", "Packets dropped by the NIC, by reason.");
    text.pairs("reason", traffic.map_or(&[][..], |traffic| &traffic.dropped));
    text.family(
        "shunt_nic_refused_total",
        "counter",
        "LTM entries that the NIC does not support, by reason.",
    );
    text.pairs("reason", &status.refused);
    let stages: Vec<(String, &StageFill)> = status.stages.iter().zip(0..).map(numbered).collect();
    let of_stages: Vec<_> =
        stages.iter().map(|(stage, own)| (vec![("stage", stage.as_str())], *own)).collect();
    text.families(&of_stages, &NIC_STAGE);
    text.family(
        "shunt_nic_offload_seconds",
        "gauge",
        "Time from a miss until the NIC holds all entries of the traversal; upper bound of a histogram bucket.",
    );
    for (quantile, us) in ["0.5", "0.99", "0.999"].into_iter().zip(status.latency_us) {
        text.value(&[("quantile", quantile)], seconds(us * 1000));
    }
}

/// Returns the number of a value as a label.
fn numbered<T>((value, number): (&T, u32)) -> (String, &T) {
    (number.to_string(), value)
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
