//! The counters of caches and drops, summed over the packet threads.

use serde::Serialize;
use shunt_datapath::{DropReason, ThreadCounters};

use crate::{
    config,
    control::Control,
    nic::NicStatus,
    status::chain::{ChainStatus, CoverageStatus},
};

/// The caches and the slow path, summed over packet threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheStatus {
    /// The version of the tables that all threads have adopted.
    pub version: u64,
    /// Packets received.
    pub received: u64,
    /// Packets that the exact-match cache answered.
    pub exact_hits: u64,
    /// Packets that the megaflow cache answered.
    pub megaflow_hits: u64,
    /// Packets that were translated.
    pub upcalls: u64,
    /// Entries.
    pub entries: u64,
    /// Masks of the megaflow cache.
    pub masks: u64,
    /// Subtables asked for one packet, on average.
    pub probes: f64,
    /// Hits that were translated anew, to see whether the cache was right.
    pub verified: u64,
    /// Of these, those of which the tables said something else.
    pub differences: u64,
    /// Entries that a change of rules made stale.
    pub evicted: u64,
    /// Entries that were idle for too long.
    pub expired: u64,
    /// Entries dropped because their install and a change crossed.
    pub install_conflicts: u64,
    /// Entries not made because the cache was full.
    pub refused_full: u64,
    /// Entries not made because their report did not fit the queue.
    pub refused_ring: u64,
    /// What knows packets by the bits that decided: the megaflow cache, or a chain of stages.
    pub kind: config::CacheKind,
    /// The chains of all packet threads together, where that is the kind.
    pub chain: Option<ChainStatus>,
    /// The chain of each packet thread.
    pub chains: Vec<ChainStatus>,
    /// How many ways the entries of each packet thread make, where that was asked for.
    pub coverage: Vec<CoverageStatus>,
    /// The NIC in front of the packet threads.
    pub nic: Option<NicStatus>,
}

/// Where packets went: what came equals what went and what is held.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DropStatus {
    /// Packets received on all ports.
    pub received: u64,
    /// Packets that controllers sent out.
    pub injected: u64,
    /// Copies made for further outputs.
    pub copied: u64,
    /// Packets that transmit queues took.
    pub sent: u64,
    /// Packets that went to controllers.
    pub punted: u64,
    /// Of these, packets that found no room on their way there.
    pub punted_lost: u64,
    /// Packets that wait.
    pub held: u64,
    /// Packets dropped, by reason; reasons that never happened are left out.
    pub dropped: Vec<(&'static str, u64)>,
}

impl DropStatus {
    /// Packets dropped, whatever the reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }
}

impl Control {
    /// The caches, summed over threads.
    pub(crate) fn cache_status(&self) -> CacheStatus {
        let sum = |field: fn(&ThreadCounters) -> u64| -> u64 {
            self.plane.counters().iter().map(|counters| field(counters)).sum()
        };
        let asked = sum(|c| c.megaflow.hits.get() + c.megaflow.misses.get());
        #[expect(clippy::cast_precision_loss, reason = "an average for people")]
        let probes = sum(|c| c.probes.get()) as f64 / asked.max(1) as f64;
        let chains = self.chain_statuses();
        CacheStatus {
            kind: self.config.lock().caches.kind,
            chain: (!chains.is_empty()).then(|| ChainStatus::sum(&chains)),
            chains,
            coverage: Vec::new(),
            nic: self.nic_status(),
            version: self.plane.version().number(),
            received: sum(|c| c.received.get()),
            exact_hits: sum(|c| c.exact.hits.get()),
            megaflow_hits: sum(|c| c.megaflow.hits.get()),
            upcalls: sum(|c| c.upcalls.get()),
            entries: sum(|c| c.entries.get()),
            masks: sum(|c| c.masks.get()),
            probes,
            verified: sum(|c| c.verified.get()),
            differences: sum(|c| c.differences.get()),
            evicted: sum(|c| c.evicted.get()),
            expired: sum(|c| c.expired.get()),
            install_conflicts: sum(|c| c.install_conflicts.get()),
            refused_full: sum(|c| c.refused_full.get()),
            refused_ring: sum(|c| c.refused_ring.get()),
        }
    }

    /// Where packets went, summed over threads.
    pub(crate) fn drop_status(&self) -> DropStatus {
        let mut status = DropStatus::default();
        let mut dropped = [0; DropReason::COUNT];
        for counters in self.plane.counters() {
            status.received += counters.received.get();
            status.injected += counters.injected.get();
            status.copied += counters.copied.get();
            status.sent += counters.sent.get();
            status.punted += counters.punted.get();
            status.held += counters.held.get();
            for (sum, counter) in dropped.iter_mut().zip(&counters.dropped) {
                *sum += counter.get();
            }
        }
        status.punted_lost = self.plane.packet_ins_dropped();
        let named = DropReason::ALL.iter().map(|reason| reason.name()).zip(dropped);
        status.dropped = named.filter(|(_, count)| *count > 0).collect();
        status
    }
}
