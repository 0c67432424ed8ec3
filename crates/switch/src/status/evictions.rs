//! What the eviction desk says of itself: plain values that programs read as JSON and people as
//! tables.

use std::{collections::BTreeMap, fs, time::Duration};

use serde::Serialize;
use shunt_datapath::{
    EvictionCoordinator, Histogram, OwnerStatus,
    evict::{coordinator::CHANGES_MAX, history::RECENT_MAX},
    metrics::ACK_BUCKETS,
};
use shunt_pipeline::{BridgeId, TableId};

use crate::{control::Control, error::SwitchError, trace::explain::bridge_name};

/// How evictions go: what the engine keeps, how long changes take, what they ended and why.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EvictionStatus {
    /// The engine, as the configuration calls it; empty for one that an embedder brings.
    pub engine: &'static str,
    /// Its version: the newest that was applied to it.
    pub version: u64,
    /// The version that all owners of entries have answered.
    pub acked: u64,
    /// Rows that it keeps, by relation.
    pub relations: Vec<(&'static str, u64)>,
    /// Bytes that these take, about, if it knows.
    pub engine_bytes: Option<u64>,
    /// Bytes of the whole process in memory, if the system says so.
    pub resident_bytes: Option<u64>,
    /// Changes applied; those that waited together count as one.
    pub changes: u64,
    /// Changes that were too much to be looked at one by one: each took all entries of its tables.
    pub overflows: u64,
    /// Faults of the engine: each took all entries.
    pub faults: u64,
    /// Entries that owners made.
    pub installed: u64,
    /// Of these, those that were made under an older version than the engine's.
    pub late: u64,
    /// Entries that owners lost of their own accord.
    pub removed: u64,
    /// Entries that changes ended.
    pub evicted: u64,
    /// Changes that wait.
    pub waiting: u64,
    /// How many may wait.
    pub waiting_max: u64,
    /// Changes that found so many waiting, and that whoever made them held back until there was room.
    pub delayed: u64,
    /// Owners of entries.
    pub owners: Vec<EntryOwnerStatus>,
    /// From taking changes to the list of entries that they end.
    pub to_list: Times,
    /// From publishing a version to the last answer.
    pub to_answer: Times,
    /// Answers of packet threads by the turns that each had begun since the version was posted: none,
    /// one, two, and more. A thread that sleeps has answered, and is not counted.
    pub answers: [u64; ACK_BUCKETS],
    /// Evictions by cause; causes that never happened are left out.
    pub by_cause: Vec<(&'static str, u64)>,
    /// Evictions by the table of the rule that caused them.
    pub by_table: Vec<TableEvictions>,
    /// Evicted entries that were made anew and do what they did.
    pub repaired_same: u64,
    /// Those that were made anew and do something else.
    pub repaired_changed: u64,
    /// Those that waited to be made anew until another took their packets.
    pub repair_covered: u64,
    /// Those that waited and were given up.
    pub repair_dropped: u64,
    /// Evictions that `why` knows of.
    pub remembered: u64,
    /// How many it knows of at most.
    pub remembered_max: u64,
}

/// An owner of cache entries, as the eviction desk sees it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EntryOwnerStatus {
    /// The number that its entries begin with: that of a packet thread, or the one after the last.
    pub owner: u16,
    /// Whether it is the owner of the NIC.
    pub is_nic: bool,
    /// The version that it has answered.
    pub acked: u64,
    /// Reports of it that wait to be taken in.
    pub reports: u64,
}

/// Times, in buckets that double.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// Half of them are below this, to within a bucket.
    pub p50_ns: u64,
    /// 99 of 100 are below this, to within a bucket.
    pub p99_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Buckets: nanoseconds that all in it are below, and how many there are.
    pub buckets: Vec<(u64, u64)>,
}

/// Evictions that rules of one table caused.
#[derive(Clone, Debug, Serialize)]
pub struct TableEvictions {
    /// The bridge; empty if it is gone.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// Entries.
    pub evicted: u64,
}

impl Times {
    fn of(histogram: &Histogram) -> Self {
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

impl Control {
    /// How evictions go.
    pub(crate) async fn eviction_status(&self) -> Result<EvictionStatus, SwitchError> {
        let looked = self
            .plane
            .inspect_coordinator(|coordinator| (status(coordinator), by_table(coordinator)))
            .await;
        let (mut status, tables) = looked.ok_or(SwitchError::NoEvictionThread)?;
        let bridges = self.bridges.lock();
        let of = |((bridge, table), evicted): ((BridgeId, TableId), u64)| TableEvictions {
            bridge: bridge_name(&bridges, bridge),
            table: table.number(),
            evicted,
        };
        status.by_table = tables.into_iter().map(of).collect();
        status.resident_bytes = resident_bytes();
        status.delayed = self.plane.delayed();
        for owner in &mut status.owners {
            owner.is_nic = owner.owner == self.plane.threads_count();
        }
        for own in self.plane.counters() {
            for (sum, own) in status.answers.iter_mut().zip(&own.acks) {
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

fn by_table(coordinator: &EvictionCoordinator) -> BTreeMap<(BridgeId, TableId), u64> {
    coordinator.record().by_table().clone()
}

fn status(coordinator: &EvictionCoordinator) -> EvictionStatus {
    let (totals, record, engine) =
        (coordinator.totals(), coordinator.record(), coordinator.engine());
    let by_cause = record.by_kind().filter(|(_, count)| *count > 0);
    let owner = |own: OwnerStatus| EntryOwnerStatus {
        owner: own.owner.0,
        is_nic: false,
        acked: own.acked.number(),
        reports: own.reports as u64,
    };
    EvictionStatus {
        engine: engine.name,
        version: coordinator.version().number(),
        acked: coordinator.acked_version().number(),
        relations: engine.relations.iter().map(|(name, rows)| (*name, *rows as u64)).collect(),
        engine_bytes: engine.bytes.map(|bytes| bytes as u64),
        resident_bytes: None,
        changes: totals.changes,
        overflows: engine.overflows,
        faults: engine.faults,
        installed: totals.installed,
        late: totals.late,
        removed: totals.removed,
        evicted: totals.evicted,
        waiting: coordinator.waiting() as u64,
        waiting_max: CHANGES_MAX as u64,
        delayed: 0,
        owners: coordinator.owner_statuses().into_iter().map(owner).collect(),
        to_list: Times::of(&record.to_list),
        to_answer: Times::of(&record.to_answer),
        answers: [0; ACK_BUCKETS],
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

/// Bytes of the process in memory, as `/proc/self/status` says (proc(5)).
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
