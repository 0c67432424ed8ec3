//! The counters of caches and of dropped packets, summed over the packet threads.

use serde::Serialize;
use shunt_datapath::{DropReason, Histogram, RxLoss, ThreadCounters, metrics::Counter};
use shunt_nic::NicDropReason;

use crate::{
    config,
    nic::NicStatus,
    ports::removed_losses::RemovedPortLosses,
    status::{
        bridge::{BridgePortStatus, BridgeStatus, DEVICE_LOST, PortDrops},
        chain::{GigaflowStatus, RuleSpaceStatus},
        evictions::LatencyStatus,
    },
    threads::data_plane::DataPlane,
};

/// The counters of caches and upcalls, summed over packet threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheStatus {
    /// Version of the tables that all packet threads have adopted.
    pub version: u64,
    /// Packets that all packet threads received.
    pub received: u64,
    /// Packets that hit the exact-match cache.
    pub exact_hits: u64,
    /// Packets that hit the signature cache.
    pub signature_hits: u64,
    /// Packets of `megaflow_hits` that the learned index found.
    pub learned_hits: u64,
    /// Entries in the learned index.
    pub learned_entries: u64,
    /// Trainings of the learned index.
    pub trainings: u64,
    /// Packet threads without a learned index because their trainer has panicked.
    pub trainers_lost: u64,
    /// Failed trainings of the learned indexes of tables.
    pub table_trainings_failed: u64,
    /// Packets that hit the megaflow cache.
    pub megaflow_hits: u64,
    /// Packets that hit the Gigaflow cache up to the end of their traversal.
    pub gigaflow_hits: u64,
    /// Packets that the tables decided without a cache.
    pub decided: u64,
    /// Packets that missed all caches and were translated.
    pub upcalls: u64,
    /// Times from the receipt of a missing packet to the execution of its actions.
    pub set_up_time: LatencyStatus,
    /// Number of entries in the wildcard cache.
    pub entries: u64,
    /// Number of masks in the wildcard cache.
    pub masks: u64,
    /// Average number of searched subtables (masks) per lookup in the megaflow cache.
    pub probes: f64,
    /// Hits that were also translated, to verify the cache.
    pub verified: u64,
    /// Verified hits that differed from their translation.
    pub differences: u64,
    /// Entries that a change made stale.
    pub evicted: u64,
    /// Entries that expired without a hit.
    pub expired: u64,
    /// Entries that were dropped because a change arrived during their installation.
    pub install_conflicts: u64,
    /// Entries not installed because the cache was full.
    pub refused_full: u64,
    /// Entries not installed because the queue of reports was full.
    pub refused_ring: u64,
    /// Type of the wildcard cache.
    pub kind: config::CacheKind,
    /// Sum of the Gigaflow caches of all packet threads, if `kind` is `gigaflow`.
    pub gigaflow: Option<GigaflowStatus>,
    /// Gigaflow cache of each packet thread, if `kind` is `gigaflow`.
    pub gigaflow_threads: Vec<GigaflowStatus>,
    /// Rule-space coverage of each packet thread, if requested.
    pub rule_space: Vec<RuleSpaceStatus>,
    /// NIC in front of the packet threads.
    pub nic: Option<NicStatus>,
}

/// The packet counters of the switch, and every loss by reason and by port.
///
/// Received + injected + copied = sent + punted + held + dropped. Frames in `not_received` are lost
/// before they are counted in `received`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DropStatus {
    /// Packets received on all ports.
    pub received: u64,
    /// Packets sent by controllers (packet-outs).
    pub injected: u64,
    /// Copies made for further outputs.
    pub copied: u64,
    /// Packets accepted by transmit queues.
    pub sent: u64,
    /// Packets for controllers (packet-ins), and frames for LACP,
    /// BFD and multicast snooping.
    pub punted: u64,
    /// The packets for controllers, by their result.
    pub packet_ins: PacketInOutcomes,
    /// Messages for multicast snooping that were dropped before they were read.
    ///
    /// A message is dropped when too many newer messages of its port wait.
    pub snooping_inbox_full: u64,
    /// Packets that wait in upcall queues for a translation, or in egress queues.
    pub held: u64,
    /// Packets dropped after they were received, by reason.
    ///
    /// Reasons with count 0 are omitted.
    pub dropped: Vec<(&'static str, u64)>,
    /// Frames lost before a packet thread looked them up, by reason.
    ///
    /// The losses of an embedded NIC and of removed ports are among them. Reasons with count 0 are
    /// omitted.
    pub not_received: Vec<(&'static str, u64)>,
    /// Packets that devices accepted but could not send; they are counted as sent.
    ///
    /// The number includes the packets of removed ports.
    pub device_lost: u64,
    /// Losses at each present port, which `dropped` and `not_received` include.
    pub ports: Vec<PortDropStatus>,
    /// Names of bridges without rules, which drop every packet.
    pub bridges_without_rules: Vec<String>,
}

/// Numbers of packet-ins, by their result.
///
/// The sum is the number of packets that were punted for controllers, without packets that still
/// wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketInOutcomes {
    /// Packet-ins that were handed to all OpenFlow connections of their bridge.
    pub handed_over: u64,
    /// Packet-ins dropped because the queue after the listener thread was full.
    pub listener_full: u64,
    /// Packet-ins that were dropped because no OpenFlow connection of the bridge
    /// receives any.
    pub no_connection: u64,
    /// Packet-ins that were dropped because the bridge was deleted.
    pub no_bridge: u64,
}

/// The packets lost at a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortDropStatus {
    /// Name of the bridge.
    pub bridge: String,
    /// Name of the port.
    pub name: String,
    /// OpenFlow port number; 4294967294 for the local port.
    pub number: u32,
    /// Direction, reason and number of the lost packets.
    #[serde(flatten)]
    pub drops: PortDrops,
}

impl CacheStatus {
    /// Returns the cache counters, summed over packet threads.
    pub(crate) fn of(
        plane: &DataPlane,
        config: &config::CacheOptions,
        nic: Option<NicStatus>,
    ) -> Self {
        let sum = |field: fn(&ThreadCounters) -> u64| -> u64 {
            plane.counters().iter().map(|counters| field(counters)).sum()
        };
        let lookups = sum(|c| c.megaflow.hits.get() + c.megaflow.misses.get());
        #[expect(clippy::cast_precision_loss, reason = "the average is only displayed")]
        let probes = sum(|c| c.probes.get()) as f64 / lookups.max(1) as f64;
        let threads = GigaflowStatus::of_threads(plane.counters(), config);
        let mut set_up = Histogram::default();
        plane.counters().iter().for_each(|own| set_up.add_all(&own.set_up));
        Self {
            kind: config.kind,
            gigaflow: (!threads.is_empty()).then(|| GigaflowStatus::sum(&threads)),
            gigaflow_threads: threads,
            rule_space: Vec::new(),
            nic,
            version: plane.version().number(),
            received: sum(|c| c.received.get()),
            exact_hits: sum(|c| c.exact.hits.get()),
            signature_hits: sum(|c| c.signature.hits.get()),
            learned_hits: sum(|c| c.learned.hits.get()),
            learned_entries: sum(|c| c.learned_entries.get()),
            trainings: sum(|c| c.trainings.get()),
            trainers_lost: sum(|c| c.trainer_lost.get()),
            table_trainings_failed: sum(|c| {
                c.table_trainings_failed.iter().map(Counter::get).sum()
            }),
            megaflow_hits: sum(|c| c.megaflow.hits.get()),
            gigaflow_hits: sum(|c| c.chain.hits.get()),
            decided: sum(|c| c.decided.get()),
            upcalls: sum(|c| c.upcalls.get()),
            set_up_time: LatencyStatus::of(&set_up),
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
}

impl DropStatus {
    /// Returns the packet counters and drop reasons, summed over packet threads.
    ///
    /// `removed` has the losses of removed ports.
    pub(crate) fn of(
        plane: &DataPlane,
        bridges: &[BridgeStatus],
        removed: &RemovedPortLosses,
    ) -> Self {
        let mut status = Self::default();
        let mut dropped = [0; DropReason::COUNT];
        for counters in plane.counters() {
            status.received += counters.received.get();
            status.injected += counters.injected.get();
            status.copied += counters.copied.get();
            status.sent += counters.sent.get();
            status.punted += counters.punted.get();
            status.held += counters.held.get();
            for (sum, counter) in dropped.iter_mut().zip(counters.dropped.iter()) {
                *sum += counter.get();
            }
        }
        let named = DropReason::ALL.iter().map(|reason| reason.name()).zip(dropped);
        status.dropped = named.filter(|(_, count)| *count > 0).collect();
        let without_rules = bridges.iter().filter(|bridge| bridge.rules == 0 && !bridge.fail_open);
        status.bridges_without_rules = without_rules.map(|bridge| bridge.name.clone()).collect();
        status.ports = bridges.iter().flat_map(|bridge| &bridge.ports).flat_map(lost_at).collect();
        let lost = |direction: &'static str, reason: &'static str| -> u64 {
            let all = status.ports.iter().map(|port| port.drops);
            let own = all.filter(|own| (own.direction, own.reason) == (direction, reason));
            own.map(|own| own.packets).sum::<u64>() + removed.lost(direction, reason)
        };
        let reasons = RxLoss::ALL.iter().map(|reason| reason.name());
        let of_nic = NicDropReason::ALL.iter().map(|reason| reason.loss_name());
        let not_received = reasons.chain(of_nic).map(|reason| (reason, lost("rx", reason)));
        status.not_received = not_received.filter(|(_, count)| *count > 0).collect();
        status.device_lost = lost("tx", DEVICE_LOST);
        status
    }

    /// Returns the number of packets dropped after they were received,
    /// over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }
}

/// Returns the lost packets of a port, by reason.
fn lost_at(port: &BridgePortStatus) -> impl Iterator<Item = PortDropStatus> {
    port.drops.iter().map(|drops| PortDropStatus {
        bridge: port.bridge.clone(),
        name: port.name.clone(),
        number: port.number,
        drops: *drops,
    })
}
