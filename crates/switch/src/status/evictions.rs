//! The status of cache evictions.

use std::{collections::BTreeMap, fs, time::Duration};

use serde::Serialize;
use shunt_datapath::{
    EvictionCoordinator, Histogram, OwnerStatus,
    evict::{coordinator::CHANGES_MAX, history::RECENT_MAX},
    metrics::ACK_BUCKETS,
};
use shunt_pipeline::{BridgeId, TableId};

use crate::{
    error::SwitchError, ports::bridges::Bridges, threads::data_plane::DataPlane,
    trace::explain::bridge_name,
};

/// The status of cache evictions: engine, latencies, and evictions by cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EvictionStatus {
    /// Name of the engine in the configuration.
    ///
    /// Empty if the program that embeds the switch supplied the engine.
    pub engine: &'static str,
    /// Newest version that was applied to the engine.
    pub version: u64,
    /// Version that all owners of entries have acknowledged.
    pub acked_version: u64,
    /// Number of rows in each relation of the engine.
    pub relations: Vec<(&'static str, u64)>,
    /// Approximate memory of the engine in bytes, if known.
    pub engine_bytes: Option<u64>,
    /// Resident memory of the process in bytes, if known.
    pub resident_bytes: Option<u64>,
    /// Changes applied to the engine; changes that waited together count as one change.
    pub changes: u64,
    /// Changes that were too large to examine:
    /// each evicted all entries of the changed tables.
    pub overflows: u64,
    /// Failures of the engine: each evicted all entries.
    pub faults: u64,
    /// Entries installed by owners.
    pub installed: u64,
    /// Entries that were installed with a version older than the engine's version.
    pub install_conflicts: u64,
    /// Entries removed without an eviction, for example because they expired.
    pub removed: u64,
    /// Entries evicted by changes.
    pub evicted: u64,
    /// Changes that wait for the engine.
    pub waiting: u64,
    /// Maximum number of changes that may wait.
    pub waiting_max: u64,
    /// Changes of which the sender waited because the queue was full.
    pub delayed: u64,
    /// Owners of cache entries.
    pub owners: Vec<EntryOwnerStatus>,
    /// Time from the start of a change until the list of its stale entries is complete.
    pub list_time: LatencyStatus,
    /// Time from the publication of a version until the last owner acknowledged it.
    pub ack_time: LatencyStatus,
    /// Acknowledgements, by poll loop iterations after the version was sent.
    ///
    /// The buckets are: no iteration, one, two, and more. A parked packet thread acknowledges
    /// immediately and is not counted.
    pub acks: [u64; ACK_BUCKETS],
    /// Evictions by cause; causes with count 0 are omitted.
    pub by_cause: Vec<(&'static str, u64)>,
    /// Evictions by the table of the rule that caused them.
    pub by_table: Vec<TableEvictions>,
    /// Evicted entries that were repaired with the same actions.
    pub repaired_same: u64,
    /// Evicted entries that were repaired with other actions.
    pub repaired_changed: u64,
    /// Repairs that were not needed, because another entry already covered the packets.
    pub repair_covered: u64,
    /// Repairs that were dropped from the queue.
    pub repair_dropped: u64,
    /// Evictions that `why` can explain.
    pub remembered: u64,
    /// Maximum number of evictions that `why` can explain.
    pub remembered_max: u64,
}

/// The status of an owner of cache entries.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EntryOwnerStatus {
    /// Number of the owner, which is the first part of entry names.
    ///
    /// Packet threads have the numbers from 0, and the NIC has the next number.
    pub owner: u16,
    /// True for the owner of the NIC's entries.
    pub is_nic: bool,
    /// Version that the owner has acknowledged.
    pub acked_version: u64,
    /// Reports of the owner that wait for the eviction thread.
    pub reports: u64,
}

/// A latency histogram; each bucket is twice as wide as the previous bucket.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyStatus {
    /// Number of measured times.
    pub count: u64,
    /// Sum of all times in nanoseconds.
    pub sum_ns: u64,
    /// Median in nanoseconds: the upper bound of its bucket.
    pub p50_ns: u64,
    /// 99th percentile in nanoseconds: the upper bound of its bucket.
    pub p99_ns: u64,
    /// Longest time in nanoseconds.
    pub longest_ns: u64,
    /// Buckets: upper bound in nanoseconds, and number of times.
    pub buckets: Vec<(u64, u64)>,
}

/// Evictions that rules of one table caused.
#[derive(Clone, Debug, Serialize)]
pub struct TableEvictions {
    /// Name of the bridge; empty if the bridge was deleted.
    pub bridge: String,
    /// Number of the table with the changed rules.
    pub table: u8,
    /// Number of entries that these rules evicted.
    pub evicted: u64,
}

impl LatencyStatus {
    /// Returns the percentiles of a histogram.
    pub(crate) fn of(histogram: &Histogram) -> Self {
        // 64 bits of nanoseconds last for 584 years.
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            count: histogram.count(),
            sum_ns: nanoseconds(histogram.sum()),
            p50_ns: nanoseconds(histogram.below(500)),
            p99_ns: nanoseconds(histogram.below(990)),
            longest_ns: nanoseconds(histogram.longest()),
            buckets: histogram.buckets().map(|(below, own)| (nanoseconds(below), own)).collect(),
        }
    }
}

impl EvictionStatus {
    /// Returns the status of cache evictions.
    pub(crate) async fn of(plane: &DataPlane, bridges: &Bridges) -> Result<Self, SwitchError> {
        let looked = plane
            .inspect_coordinator(|coordinator| {
                (status(coordinator), evictions_by_table(coordinator))
            })
            .await;
        let (mut status, tables) = looked.ok_or(SwitchError::NoEvictionThread)?;
        status.by_table = {
            let bridges = bridges.lock();
            let of = |((bridge, table), evicted): ((BridgeId, TableId), u64)| TableEvictions {
                bridge: bridge_name(&bridges, bridge),
                table: table.number(),
                evicted,
            };
            tables.into_iter().map(of).collect()
        };
        status.resident_bytes = resident_bytes();
        status.delayed = plane.publisher().delayed();
        for owner in &mut status.owners {
            owner.is_nic = owner.owner == plane.threads_count();
        }
        for own in plane.counters() {
            for (sum, own) in status.acks.iter_mut().zip(&own.acks) {
                *sum += own.get();
            }
            status.repaired_same += own.repaired_same.get();
            status.repaired_changed += own.repaired_changed.get();
            status.repair_covered += own.repair_covered.get();
            status.repair_dropped += own.repair_dropped.get();
        }
        Ok(status)
    }
}

/// Returns the number of evictions by changes of each table.
fn evictions_by_table(coordinator: &EvictionCoordinator) -> BTreeMap<(BridgeId, TableId), u64> {
    coordinator.record().evictions_by_table().clone()
}

/// Returns the status of the eviction coordinator.
fn status(coordinator: &EvictionCoordinator) -> EvictionStatus {
    let (totals, record, engine) =
        (coordinator.totals(), coordinator.record(), coordinator.engine());
    let by_cause = record.evictions_by_reason().filter(|(_, count)| *count > 0);
    let owner = |own: OwnerStatus| EntryOwnerStatus {
        owner: own.owner.0,
        is_nic: false,
        acked_version: own.acked.number(),
        reports: own.reports as u64,
    };
    EvictionStatus {
        engine: engine.name,
        version: coordinator.version().number(),
        acked_version: coordinator.acked_version().number(),
        relations: engine.relations.iter().map(|(name, rows)| (*name, *rows as u64)).collect(),
        engine_bytes: engine.bytes.map(|bytes| bytes as u64),
        resident_bytes: None,
        changes: totals.changes,
        overflows: engine.overflows,
        faults: engine.faults,
        installed: totals.installed,
        install_conflicts: totals.late,
        removed: totals.removed,
        evicted: totals.evicted,
        waiting: coordinator.waiting() as u64,
        waiting_max: CHANGES_MAX as u64,
        delayed: 0,
        owners: coordinator.owner_statuses().into_iter().map(owner).collect(),
        list_time: LatencyStatus::of(&record.time_to_list),
        ack_time: LatencyStatus::of(&record.time_to_ack),
        acks: [0; ACK_BUCKETS],
        by_cause: by_cause.map(|(cause, count)| (cause.name(), count)).collect(),
        by_table: Vec::new(),
        repaired_same: 0,
        repaired_changed: 0,
        repair_covered: 0,
        repair_dropped: 0,
        remembered: record.recent().count() as u64,
        remembered_max: RECENT_MAX as u64,
    }
}

/// Returns the resident memory of the process from `/proc/self/status` (proc(5)).
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
