//! The status of the NIC in front of a bridge.

use serde::Serialize;
use shunt_datapath::offload::OffloadState;
use shunt_nic::{NicCounters, NicDropReason};

use super::NicFront;
use crate::{config::OffloadKind, status::chain::RuleSpaceStatus};

/// The status of the NIC in front of a bridge.
#[derive(Clone, Debug, Serialize)]
pub struct NicStatus {
    /// Name of the bridge of the NIC.
    pub bridge: String,
    /// Type of the NIC.
    pub kind: OffloadKind,
    /// Address of the P4Runtime server.
    pub address: String,
    /// `connected`, or `stale`: the NIC may forward by removed rules.
    pub state: &'static str,
    /// Reason for the stale state.
    pub reason: Option<&'static str>,
    /// Error of the P4Runtime connection, if the connection is lost.
    pub error: Option<String>,
    /// Seconds since the NIC became stale.
    pub stale_s: Option<f64>,
    /// Number of times that the NIC became stale.
    pub stale_count: u64,
    /// Number of versions that were acknowledged without the NIC.
    ///
    /// Barrier replies for these versions do not cover the packets of the NIC.
    pub unconfirmed: u64,
    /// True if reading the NIC's counters takes too long for requests to wait.
    pub counters_late: bool,
    /// Number of times that the entries were restored after a lost connection.
    pub repairs: u64,
    /// Fill levels of the stages, from first to last.
    pub stages: Vec<StageFill>,
    /// Entries that wait for insertion.
    pub waiting: u64,
    /// Stale entries that the NIC has not confirmed as removed.
    pub stale_entries: u64,
    /// Number of tags in use.
    pub tags: u64,
    /// LTM entries created for the NIC.
    pub created: u64,
    /// Sub-traversals that needed no new LTM entry, because the NIC had one already.
    pub shared: u64,
    /// Sum of the hit counters of all entries.
    ///
    /// A packet counts once for each entry that it hits.
    pub entry_hits: u64,
    /// Number of entries that the NIC does not support, by reason.
    ///
    /// The packets of these entries stay with the packet threads.
    pub refused: Vec<(String, u64)>,
    /// Packets that missed every cache and became offload candidates.
    pub candidates_offered: u64,
    /// Candidates dropped because their queue was full.
    pub candidates_dropped: u64,
    /// Candidates with entries that were already in the NIC or queued for it.
    pub candidates_known: u64,
    /// Counters of operations on the entries.
    pub operations: OperationsStatus,
    /// Microseconds from a miss to its offload: 50th, 99th and 99.9th percentile.
    ///
    /// A miss is offloaded when the NIC has confirmed all entries of the traversal. Each percentile
    /// is the upper bound of a histogram bucket; each bucket is twice as wide as the previous
    /// bucket.
    pub latency_us: [u64; 3],
    /// Rule-space coverage of the entries of the NIC, if requested.
    pub rule_space: Option<RuleSpaceStatus>,
    /// Packet counters of an embedded NIC.
    pub traffic: Option<NicTraffic>,
}

/// The fill level of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StageFill {
    /// Number of entries in the stage.
    pub entries: u64,
    /// Maximum number of entries in the stage.
    pub entries_max: u64,
}

/// Counters of the operations on a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperationsStatus {
    /// Insertions of entries into the NIC.
    pub inserts: u64,
    /// Removals of entries from the NIC.
    pub removes: u64,
    /// Operations that the NIC refused or could not execute.
    pub failed: u64,
    /// Operations that were not answered before the connection was lost.
    pub lost: u64,
    /// Operations that are not answered yet: the NIC may not have their entries.
    pub pending: u64,
}

/// The packet counters of an embedded NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NicTraffic {
    /// Packets received from ports and from the packet threads.
    pub received: u64,
    /// Packets that hit entries of the NIC up to the end of their traversal.
    pub hits: u64,
    /// Packets that missed in the NIC and were sent to the packet threads.
    pub missed: u64,
    /// Packets that hit one or more entries and then missed in a later stage.
    pub partial_hits: u64,
    /// Packets sent through the ports of the NIC.
    pub sent: u64,
    /// Packets dropped, by reason; reasons with count 0 are omitted.
    pub dropped: Vec<(&'static str, u64)>,
}

/// State of a NIC that is connected and holds its entries.
const CONNECTED: &str = "connected";

/// Reason for the stale state while entries of the previous NIC are being removed.
const DRAINING: &str = "the entries of the previous NIC are being removed";

impl NicStatus {
    /// Returns whether the NIC is connected and holds its entries.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == CONNECTED
    }
}

impl NicTraffic {
    /// Reads the counters of the NIC.
    fn of(traffic: &NicCounters) -> Self {
        let dropped =
            NicDropReason::ALL.iter().map(|reason| (reason.name(), traffic.dropped(*reason)));
        Self {
            received: traffic.received(),
            hits: traffic.hits(),
            missed: traffic.represented(),
            partial_hits: traffic.partial_hits(),
            sent: traffic.sent(),
            dropped: dropped.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

impl NicFront {
    /// Returns the status of the NIC.
    ///
    /// `None` if there is no NIC, and no previous NIC is being emptied.
    pub(crate) fn status(&self) -> Option<NicStatus> {
        let (config, embedded) = self.look();
        let is_draining_device = self.is_draining_device();
        if config.kind == OffloadKind::None && !is_draining_device {
            return None;
        }
        let status = self.handle().status();
        let (state, reason, since) = match status.state {
            OffloadState::Stale { since, .. } if is_draining_device => {
                ("stale", Some(DRAINING), Some(since))
            }
            OffloadState::Connected if is_draining_device => ("stale", Some(DRAINING), None),
            OffloadState::Connected => (CONNECTED, None, None),
            OffloadState::Stale { since, reason } => ("stale", Some(reason.as_str()), Some(since)),
        };
        let address = embedded.as_ref().map(|(address, _)| address.to_string());
        let stage = |(entries, entries_max): (&usize, &usize)| StageFill {
            entries: *entries as u64,
            entries_max: *entries_max as u64,
        };
        // 64 bits of microseconds last for 584,000 years.
        let quantile =
            |q| u64::try_from(status.latency.quantile(q).as_micros()).unwrap_or(u64::MAX);
        let refused = status.refused.iter().map(|(reason, count)| (reason.to_string(), *count));
        Some(NicStatus {
            bridge: self.bridge_name().to_owned(),
            kind: config.kind,
            address: address.unwrap_or(config.address),
            state,
            reason,
            error: self.error(),
            stale_s: since.map(|since| self.clock().now().since(since).as_secs_f64()),
            stale_count: status.stale_count,
            unconfirmed: status.unconfirmed,
            counters_late: status.counts_late,
            repairs: status.repairs,
            stages: status.held.iter().zip(&status.capacity).map(stage).collect(),
            waiting: status.waiting as u64,
            stale_entries: status.stale as u64,
            tags: status.tags as u64,
            created: status.partitioned.made,
            shared: status.partitioned.shared,
            entry_hits: status.packets,
            refused: refused.collect(),
            candidates_offered: status.candidates_offered,
            candidates_dropped: status.candidates_dropped,
            candidates_known: status.candidates_known,
            operations: OperationsStatus {
                inserts: status.operations.inserts,
                removes: status.operations.removes,
                failed: status.operations.failed,
                lost: status.operations.lost,
                pending: status.operations.pending_operations,
            },
            latency_us: [0.5, 0.99, 0.999].map(quantile),
            rule_space: None,
            traffic: embedded.map(|(_, traffic)| NicTraffic::of(&traffic)),
        })
    }
}
