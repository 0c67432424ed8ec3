//! What a NIC in front of a bridge says of itself: plain values that programs read as JSON and people
//! as tables.

use serde::Serialize;
use shunt_datapath::offload::OffloadState;
use shunt_nic::{NicCounters, NicDropReason};

use super::NicFront;
use crate::{config::OffloadKind, status::chain::CoverageStatus};

/// The NIC in front of a bridge.
#[derive(Clone, Debug, Serialize)]
pub struct NicStatus {
    /// The bridge.
    pub bridge: String,
    /// What it is.
    pub kind: OffloadKind,
    /// Where it speaks P4Runtime.
    pub address: String,
    /// `connected`, or `stale`: it may forward by rules that are gone.
    pub state: &'static str,
    /// Why it is stale.
    pub why: Option<&'static str>,
    /// What went wrong with the connection to it, if it is lost.
    pub trouble: Option<String>,
    /// Seconds since it is stale.
    pub stale_s: Option<f64>,
    /// How often it became stale.
    pub stale_count: u64,
    /// Versions that were answered though it may forward by what they made stale: barriers that waited
    /// for them say nothing of the NIC.
    pub unconfirmed: u64,
    /// Whether its counters are being read for so long that nobody waits for them.
    pub counts_late: bool,
    /// How often it was restored after it was lost.
    pub repairs: u64,
    /// Its stages, first to last.
    pub stages: Vec<StageFill>,
    /// Pieces that are meant to be there and are not yet.
    pub waiting: u64,
    /// Entries that versions made stale, and that are not confirmed gone.
    pub stale_entries: u64,
    /// Tags in use.
    pub tags: u64,
    /// Pieces of ways that were made to be there.
    pub made: u64,
    /// Pieces that were meant to be there already.
    pub shared: u64,
    /// Packets that its entries have counted: one is counted by each entry of its way.
    pub packets: u64,
    /// Rules that it does not hold, so that their packets stay with the switch, by why.
    pub refused: Vec<(String, u64)>,
    /// Packets without an entry in any cache, of which it was to hear.
    pub offered: u64,
    /// Of these, those that found no room on their way to its owner.
    pub candidates_dropped: u64,
    /// Of these, those for which it had all rules, or was about to.
    pub candidates_known: u64,
    /// Operations on its entries.
    pub operations: OperationsStatus,
    /// Microseconds from the miss of a packet until all of its way was confirmed, to a factor of two:
    /// half of all take less, 99 in 100, and 999 in 1000.
    pub latency_us: [u64; 3],
    /// How many ways the pieces that are meant to be there make, where that was asked for.
    pub coverage: Option<CoverageStatus>,
    /// Packets of an embedded NIC.
    pub traffic: Option<NicTraffic>,
}

/// A stage of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StageFill {
    /// Its entries.
    pub entries: u64,
    /// How many it has room for.
    pub entries_max: u64,
}

/// Operations on a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperationsStatus {
    /// Entries that it was to add.
    pub inserts: u64,
    /// Entries that it was to take out.
    pub removes: u64,
    /// What it refused, or could not do.
    pub failed: u64,
    /// What it did not answer before it was lost.
    pub lost: u64,
}

/// Packets of an embedded NIC by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NicTraffic {
    /// Packets from ports and from the switch.
    pub received: u64,
    /// Packets that came to an end in its stages.
    pub hits: u64,
    /// Packets that it gave to the switch.
    pub missed: u64,
    /// Packets that met some pieces of their way there, and no end.
    pub partial_hits: u64,
    /// Packets that left by its ports.
    pub sent: u64,
    /// Packets dropped, by reason; reasons that never happened are left out.
    pub dropped: Vec<(&'static str, u64)>,
}

/// Why a NIC is stale while the one before it is not empty.
const LEAVING: &str = "the NIC before is being emptied";

impl NicTraffic {
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
    /// How the NIC is; `None` while there is none, and none that was given up is left.
    pub(crate) fn status(&self) -> Option<NicStatus> {
        let (config, embedded) = self.look();
        let is_leaving = self.is_leaving();
        if config.kind == OffloadKind::None && !is_leaving {
            return None;
        }
        let status = self.handle().status();
        let (state, why, since) = match status.state {
            OffloadState::Stale { since, .. } if is_leaving => {
                ("stale", Some(LEAVING), Some(since))
            }
            OffloadState::Connected if is_leaving => ("stale", Some(LEAVING), None),
            OffloadState::Connected => ("connected", None, None),
            OffloadState::Stale { since, why } => ("stale", Some(why.as_str()), Some(since)),
        };
        let address = embedded.as_ref().map(|(address, _)| address.to_string());
        let stage = |(entries, entries_max): (&usize, &usize)| StageFill {
            entries: *entries as u64,
            entries_max: *entries_max as u64,
        };
        let quantile =
            |q| u64::try_from(status.latency.quantile(q).as_micros()).unwrap_or(u64::MAX);
        let refused = status.refused.iter().map(|(reason, count)| (reason.to_string(), *count));
        Some(NicStatus {
            bridge: self.bridge.0.clone(),
            kind: config.kind,
            address: address.unwrap_or(config.address),
            state,
            why,
            trouble: self.trouble(),
            stale_s: since.map(|since| self.clock().now().since(since).as_secs_f64()),
            stale_count: status.stale_count,
            unconfirmed: status.unconfirmed,
            counts_late: status.counts_late,
            repairs: status.repairs,
            stages: status.held.iter().zip(&status.capacity).map(stage).collect(),
            waiting: status.waiting as u64,
            stale_entries: status.stale as u64,
            tags: status.tags as u64,
            made: status.cuts.made,
            shared: status.cuts.shared,
            packets: status.packets,
            refused: refused.collect(),
            offered: status.candidates_offered,
            candidates_dropped: status.candidates_dropped,
            candidates_known: status.candidates_known,
            operations: OperationsStatus {
                inserts: status.operations.inserts,
                removes: status.operations.removes,
                failed: status.operations.failed,
                lost: status.operations.lost,
            },
            latency_us: [0.5, 0.99, 0.999].map(quantile),
            coverage: None,
            traffic: embedded.map(|(_, traffic)| NicTraffic::of(&traffic)),
        })
    }
}
