//! Tables of metrics with one value for each status: name, type, help text and value.

use shunt_switch::{
    CacheStatus, EvictionStatus, GigaflowStatus, NicStatus, NicTraffic, OperationsStatus,
    RuleSpaceStatus, StageFill, StageStatus,
};

use super::text::Metric;

/// The metrics of evictions.
pub(super) const EVICT: [Metric<EvictionStatus>; 14] = [
    ("shunt_eviction_engine_bytes", "gauge", "Approximate memory of the eviction engine.", |own| {
        own.engine_bytes.into()
    }),
    ("shunt_process_resident_bytes", "gauge", "Resident memory of the process.", |own| {
        own.resident_bytes.into()
    }),
    ("shunt_eviction_waiting_changes", "gauge", "Queued changes.", |own| own.waiting.into()),
    (
        "shunt_eviction_delayed_changes_total",
        "counter",
        "Changes of the tables that waited because the queue to the eviction thread was full.",
        |own| own.delayed.into(),
    ),
    (
        "shunt_eviction_changes_total",
        "counter",
        "Changes of the tables that the eviction engine has processed.",
        |own| own.changes.into(),
    ),
    (
        "shunt_eviction_overflows_total",
        "counter",
        "Changes that were too large to examine and evicted all entries of their tables.",
        |own| own.overflows.into(),
    ),
    (
        "shunt_eviction_faults_total",
        "counter",
        "Failures of the eviction engine; each evicted all entries.",
        |own| own.faults.into(),
    ),
    ("shunt_eviction_installed_total", "counter", "Cache entries installed.", |own| {
        own.installed.into()
    }),
    (
        "shunt_eviction_install_conflicts_total",
        "counter",
        "Entries dropped because a change arrived while they were installed.",
        |own| own.install_conflicts.into(),
    ),
    (
        "shunt_eviction_removed_total",
        "counter",
        "Cache entries that packet threads or the NIC removed, for example when they expired.",
        |own| own.removed.into(),
    ),
    (
        "shunt_repair_unchanged_total",
        "counter",
        "Evicted entries that were re-translated with the same actions.",
        |own| own.repaired_same.into(),
    ),
    (
        "shunt_repair_changed_total",
        "counter",
        "Evicted entries that were re-translated with other actions.",
        |own| own.repaired_changed.into(),
    ),
    (
        "shunt_repair_covered_total",
        "counter",
        "Repairs that became unnecessary because another entry covered the packets.",
        |own| own.repair_covered.into(),
    ),
    (
        "shunt_repair_dropped_total",
        "counter",
        "Evicted entries that were not re-translated, because they waited too long.",
        |own| own.repair_dropped.into(),
    ),
];

/// The metrics of the caches.
pub(super) const CACHES: [Metric<CacheStatus>; 17] = [
    ("shunt_received_packets_total", "counter", "Packets received.", |own| own.received.into()),
    (
        "shunt_upcalls_total",
        "counter",
        "Packets that missed every cache and were translated.",
        |own| own.upcalls.into(),
    ),
    (
        "shunt_decided_packets_total",
        "counter",
        "Packets that the tables decided without a cache.",
        |own| own.decided.into(),
    ),
    ("shunt_cache_entries", "gauge", "Cache entries.", |own| own.entries.into()),
    ("shunt_cache_masks", "gauge", "Masks in the wildcard cache.", |own| own.masks.into()),
    (
        "shunt_cache_probes_per_lookup",
        "gauge",
        "Average number of subtables searched per lookup in the wildcard cache.",
        |own| own.probes.into(),
    ),
    (
        "shunt_learned_index_hits_total",
        "counter",
        "Packets for which the learned index of the megaflow cache found an entry.",
        |own| own.learned_hits.into(),
    ),
    ("shunt_learned_index_entries", "gauge", "Entries in the learned index.", |own| {
        own.learned_entries.into()
    }),
    (
        "shunt_learned_index_trainings_total",
        "counter",
        "Completed trainings of the learned index.",
        |own| own.trainings.into(),
    ),
    (
        "shunt_learned_index_trainers_lost",
        "gauge",
        "Packet threads without a learned index because their trainer thread has panicked.",
        |own| own.trainers_lost.into(),
    ),
    (
        "shunt_table_trainings_failed_total",
        "counter",
        "Failed trainings of the learned indexes of tables, which are tried again.",
        |own| own.table_trainings_failed.into(),
    ),
    (
        "shunt_cache_evicted_total",
        "counter",
        "Cache entries evicted because a change made them stale.",
        |own| own.evicted.into(),
    ),
    ("shunt_cache_expired_total", "counter", "Cache entries that expired without a hit.", |own| {
        own.expired.into()
    }),
    (
        "shunt_cache_install_conflicts_total",
        "counter",
        "Entries dropped because a change arrived while they were installed.",
        |own| own.install_conflicts.into(),
    ),
    (
        "shunt_cache_verified_total",
        "counter",
        "Cache hits that were also translated, to verify the cache.",
        |own| own.verified.into(),
    ),
    (
        "shunt_cache_differences_total",
        "counter",
        "Verified hits that differed from their translation.",
        |own| own.differences.into(),
    ),
    (
        "shunt_table_version",
        "gauge",
        "Version of the tables that all packet threads have adopted.",
        |own| own.version.into(),
    ),
];

/// The metrics of the chain of Gigaflow stages.
pub(super) const CHAIN: [Metric<GigaflowStatus>; 9] = [
    (
        "shunt_gigaflow_hits_total",
        "counter",
        "Packets that hit, up to the end of their traversal.",
        |own| own.hits.into(),
    ),
    ("shunt_gigaflow_misses_total", "counter", "Packets that hit no LTM entry.", |own| {
        own.misses.into()
    }),
    (
        "shunt_gigaflow_partial_hits_total",
        "counter",
        "Packets that hit one or more LTM entries and then missed.",
        |own| own.partial_hits.into(),
    ),
    (
        "shunt_gigaflow_resumed_total",
        "counter",
        "Partial hits that were translated from the point of the miss.",
        |own| own.resumed.into(),
    ),
    ("shunt_gigaflow_created_total", "counter", "LTM entries created.", |own| own.created.into()),
    (
        "shunt_gigaflow_reused_entries_total",
        "counter",
        "Sub-traversals that needed no new LTM entry, because the cache had one already.",
        |own| own.shared.into(),
    ),
    (
        "shunt_gigaflow_evicted_for_space_total",
        "counter",
        "LTM entries evicted for space.",
        |own| own.evicted_for_space.into(),
    ),
    ("shunt_gigaflow_tags", "gauge", "Tags in use.", |own| own.tags.into()),
    (
        "shunt_gigaflow_entries_per_hit",
        "gauge",
        "Average number of LTM entries on the path of a packet that hit.",
        |own| own.entries_per_hit.into(),
    ),
];

/// The metrics of a stage.
pub(super) const STAGE: [Metric<StageStatus>; 3] = [
    ("shunt_gigaflow_stage_entries", "gauge", "LTM entries in a stage.", |own| own.entries.into()),
    (
        "shunt_gigaflow_stage_entries_max",
        "gauge",
        "Maximum number of LTM entries in a stage.",
        |own| own.entries_max.into(),
    ),
    (
        "shunt_gigaflow_stage_masks",
        "gauge",
        "Masks in a stage; masks of different tags count separately.",
        |own| own.masks.into(),
    ),
];

/// The metrics of the rule-space coverage.
pub(super) const RULE_SPACE: [Metric<RuleSpaceStatus>; 3] = [
    (
        "shunt_gigaflow_rule_space",
        "gauge",
        "Complete traversals that the LTM entries of the thread cover, counted exactly.",
        |own| own.exact.into(),
    ),
    (
        "shunt_gigaflow_rule_space_pairwise",
        "gauge",
        "Estimate of the covered traversals by pairs of LTM entries, before and after each tag.",
        |own| own.pairwise.into(),
    ),
    (
        "shunt_gigaflow_rule_space_published",
        "gauge",
        "Estimate of the covered traversals by the formula of the Gigaflow paper.",
        |own| own.published.into(),
    ),
];

/// The metrics of a NIC.
pub(super) const NIC: [Metric<NicStatus>; 13] = [
    (
        "shunt_nic_connected",
        "gauge",
        "1 if the NIC is connected and holds its entries, else 0.",
        |own| u64::from(own.is_connected()).into(),
    ),
    (
        "shunt_nic_stale_total",
        "counter",
        "Number of times that the NIC became stale: it may then forward by evicted entries.",
        |own| own.stale_count.into(),
    ),
    (
        "shunt_nic_unconfirmed_total",
        "counter",
        "Table versions that were acknowledged while the NIC was stale, without waiting for it.",
        |own| own.unconfirmed.into(),
    ),
    (
        "shunt_nic_restores_total",
        "counter",
        "Number of times that the entries of the NIC were restored after a lost connection.",
        |own| own.repairs.into(),
    ),
    ("shunt_nic_waiting_entries", "gauge", "LTM entries to insert into the NIC.", |own| {
        own.waiting.into()
    }),
    (
        "shunt_nic_stale_entries",
        "gauge",
        "Stale entries that the NIC has not confirmed as removed.",
        |own| own.stale_entries.into(),
    ),
    ("shunt_nic_tags", "gauge", "Tags in use.", |own| own.tags.into()),
    ("shunt_nic_created_total", "counter", "LTM entries created for the NIC.", |own| {
        own.created.into()
    }),
    (
        "shunt_nic_reused_entries_total",
        "counter",
        "Sub-traversals that needed no new LTM entry, because the NIC had one already.",
        |own| own.shared.into(),
    ),
    (
        "shunt_nic_entry_hits_total",
        "counter",
        "Sum of the hit counters of the LTM entries of the NIC.",
        |own| own.entry_hits.into(),
    ),
    (
        "shunt_nic_candidates_offered_total",
        "counter",
        "Packets that missed every cache and were sent to the offload thread.",
        |own| own.candidates_offered.into(),
    ),
    (
        "shunt_nic_candidates_known_total",
        "counter",
        "Offload candidates with entries that were in the NIC already.",
        |own| own.candidates_known.into(),
    ),
    (
        "shunt_nic_candidates_dropped_total",
        "counter",
        "Offload candidates that were dropped because their queue was full.",
        |own| own.candidates_dropped.into(),
    ),
];

/// The metrics of the rule-space coverage of a NIC.
pub(super) const NIC_RULE_SPACE: [Metric<RuleSpaceStatus>; 3] = [
    (
        "shunt_nic_rule_space",
        "gauge",
        "Complete traversals that the LTM entries of the NIC cover, counted exactly.",
        |own| own.exact.into(),
    ),
    (
        "shunt_nic_rule_space_pairwise",
        "gauge",
        "Estimate of the covered traversals by pairs of LTM entries, before and after each tag.",
        |own| own.pairwise.into(),
    ),
    (
        "shunt_nic_rule_space_published",
        "gauge",
        "Estimate of the covered traversals by the formula of the Gigaflow paper.",
        |own| own.published.into(),
    ),
];

/// The metrics of the operations on a NIC.
pub(super) const NIC_OPERATIONS: [Metric<OperationsStatus>; 5] = [
    (
        "shunt_nic_pending_operations",
        "gauge",
        "Operations that the NIC has not answered yet.",
        |own| own.pending.into(),
    ),
    ("shunt_nic_inserts_total", "counter", "Insertions requested from the NIC.", |own| {
        own.inserts.into()
    }),
    ("shunt_nic_removes_total", "counter", "Removals requested from the NIC.", |own| {
        own.removes.into()
    }),
    (
        "shunt_nic_failed_operations_total",
        "counter",
        "Operations that the NIC refused or could not do.",
        |own| own.failed.into(),
    ),
    (
        "shunt_nic_lost_operations_total",
        "counter",
        "Operations without an answer when the connection was lost.",
        |own| own.lost.into(),
    ),
];

/// The metrics of the packets of the embedded NIC.
pub(super) const NIC_TRAFFIC: [Metric<NicTraffic>; 5] = [
    ("shunt_nic_received_packets_total", "counter", "Packets received by the NIC.", |own| {
        own.received.into()
    }),
    (
        "shunt_nic_hits_total",
        "counter",
        "Packets that hit in the NIC, up to the end of their traversal.",
        |own| own.hits.into(),
    ),
    (
        "shunt_nic_misses_total",
        "counter",
        "Packets that missed in the NIC and were sent to the packet threads.",
        |own| own.missed.into(),
    ),
    (
        "shunt_nic_partial_hits_total",
        "counter",
        "Packets that hit one or more LTM entries of the NIC and then missed.",
        |own| own.partial_hits.into(),
    ),
    (
        "shunt_nic_sent_packets_total",
        "counter",
        "Packets sent through the ports of the NIC.",
        |own| own.sent.into(),
    ),
];

/// The metrics of a stage of a NIC.
pub(super) const NIC_STAGE: [Metric<StageFill>; 2] = [
    ("shunt_nic_stage_entries", "gauge", "LTM entries in a stage.", |own| own.entries.into()),
    ("shunt_nic_stage_entries_max", "gauge", "Maximum number of LTM entries in a stage.", |own| {
        own.entries_max.into()
    }),
];
