//! Counters of packet threads: each has one writer, and readers add up all threads.
//!
//! Every packet ends exactly once, and is counted in one counter. With R received, I injected by a
//! controller and C copied (a packet to three ports is copied twice; the last output takes the
//! original):
//!
//! ```text
//!   R + I + C  =  sent + punted + dropped (by reason) + held
//! ```
//!
//! A transmit queue took the *sent* packets, and the queue to the controllers took the *punted* packets.
//! Each *dropped* packet has one [`DropReason`]. *Held* packets wait in an upcall queue, an egress
//! queue or a transmit batch. *Forwarded* counts original packets with at least one output or punt, even if their copies
//! were dropped later.

use std::{
    ops::Deref,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{histogram::HistogramCounters, reasons::reasons};

/// Maximum number of stages of a chain.
pub const CHAIN_MAX: usize = 16;

const _: () = assert!(CHAIN_MAX <= u8::MAX as usize, "stages are counted with 8 bits");

/// A counter to which one thread adds, and which any thread reads.
///
/// An addition is a load and a store, twenty times cheaper than an atomic addition. No addition is
/// lost, because there is one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the value; only the writing thread may call this.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets the value; only the writing thread may call this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value of the counter.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

reasons! {
    /// The reason why a packet was dropped.
    DropReason {
        /// No rule of a table matches the packet.
        NoMatchingRule = "no_matching_rule",
        /// The rules that match the packet have no output.
        RuleWithoutOutput = "rule_without_output",
        /// Every output was to the ingress port.
        Hairpin = "hairpin",
        /// A controller disabled receiving on the ingress port.
        ///
        /// The port has `OFPPC_PORT_DOWN` or `OFPPC_NO_RECV`.
        IngressPortDisabled = "ingress_port_disabled",
        /// The ingress port of the packet is the output port of a mirror.
        MirrorOutputPort = "mirror_output_port",
        /// A controller disabled sending on the output port.
        ///
        /// The port has `OFPPC_PORT_DOWN` or `OFPPC_NO_FWD`.
        OutputPortDisabled = "output_port_disabled",
        /// The output port does not exist, or has no device.
        OutputPortMissing = "output_port_missing",
        /// A controller disabled packet-ins of the ingress port (`OFPPC_NO_PACKET_IN`).
        PacketInDisabled = "packet_in_disabled",
        /// The TTL of the packet is used up.
        TtlExpired = "ttl_expired",
        /// The group does not exist, or has no live bucket.
        NoLiveBucket = "no_live_bucket",
        /// `NORMAL`: the ingress port does not belong to the bridge.
        UnknownIngressPort = "unknown_ingress_port",
        /// `NORMAL`: the ingress port does not accept the VLAN of the packet.
        VlanNotAllowed = "vlan_not_allowed",
        /// `NORMAL`: the ingress port is a member of a bond that is not in use.
        BondMemberInactive = "bond_member_inactive",
        /// `NORMAL`: the packet came back on a bond: its source address is at another port.
        BondLoop = "bond_loop",
        /// `NORMAL`: the bond of the output has no enabled member.
        BondWithoutMember = "bond_without_member",
        /// `NORMAL`: the ingress port and the port of the destination are protected.
        BothPortsProtected = "both_ports_protected",
        /// `NORMAL`: the packet has a VLAN tag that was not parsed.
        UnparsedVlanTag = "unparsed_vlan_tag",
        /// `NORMAL`: bridges do not forward frames to the destination address.
        ReservedDestination = "reserved_destination",
        /// `NORMAL`: the destination of the packet was learned on its ingress port.
        LearnedOnIngressPort = "learned_on_ingress_port",
        /// `NORMAL`: the packet is flooded, and its VLAN has no other port.
        FloodWithoutPorts = "flood_without_ports",
        /// `NORMAL`: multicast snooping knows no other port that wants the packet.
        MulticastWithoutReceiver = "multicast_without_receiver",
        /// The translation nested resubmits, patch ports, buckets or clones too deep.
        RecursionTooDeep = "recursion_too_deep",
        /// The translation took too many table lookups.
        TooManyResubmits = "too_many_resubmits",
        /// The translation gave too many actions.
        TooManyActions = "too_many_actions",
        /// The translation pushed too many bytes to the stack.
        StackTooDeep = "stack_too_deep",
        /// The translation would learn too many rules.
        TooManyLearnedRules = "too_many_learned_rules",
        /// The ingress port belongs to no bridge.
        BridgeNotFound = "bridge_not_found",
        /// Too many packets of the port, or of all ports, wait for a translation.
        UpcallQueueFull = "upcall_queue_full",
        /// The queue of learn requests to the control plane was full.
        LearnQueueFull = "learn_queue_full",
        /// The port used up its stall budget with packets that wait for a learned version.
        LearnRateLimited = "learn_rate_limited",
        /// A meter dropped the packet.
        Metered = "metered",
        /// The packet was recirculated too often.
        RecirculationTooDeep = "recirculation_too_deep",
        /// The packet and its copies together were recirculated too often.
        RecirculationLimit = "recirculation_limit",
        /// The packet has more MPLS labels than a key, and an action changes their number.
        TooManyMplsLabels = "too_many_mpls_labels",
        /// The output port has no transmit queue on this thread.
        NoTxQueue = "no_tx_queue",
        /// The packet is longer than the output port accepts.
        MtuExceeded = "mtu_exceeded",
        /// The packet needs segmentation, and the output port cannot segment it.
        SegmentationUnsupported = "segmentation_unsupported",
        /// The packet exceeds the egress policing rate of the output port.
        EgressPoliced = "egress_policed",
        /// The egress queue of the output port was full.
        EgressQueueFull = "egress_queue_full",
        /// The transmit queue was full.
        TxQueueFull = "tx_queue_full",
        /// The device of the output port is down, or was removed.
        TxDeviceDown = "tx_device_down",
        /// The device of the output port refused the frame, for example because of its MTU.
        TxRefused = "tx_refused",
        /// The queue of packet-ins to the controllers was full.
        PacketInQueueFull = "packet_in_queue_full",
        /// A message for snooping: its port received too many, or the queue was full.
        SnoopingMessageRefused = "snooping_message_refused",
        /// A frame for LACP: its port received too many, or the queue was full.
        LacpFrameRefused = "lacp_frame_refused",
        /// A packet for BFD was lost: its port received too many, or the queue was full.
        BfdPacketRefused = "bfd_packet_refused",
        /// A VLAN tag or an MPLS label did not fit, or was missing.
        Malformed = "malformed",
        /// No buffer was left for a copy: waiting packets hold all of them.
        NoBuffer = "no_buffer",
        /// The ingress port was removed while the packet waited.
        PortRemoved = "port_removed",
    }
}

/// A counter for each [`DropReason`].
#[derive(Debug)]
pub struct DropCounters([Counter; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Deref for DropCounters {
    type Target = [Counter; DropReason::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The dropped packets of one port, by [`DropReason`].
///
/// The first dropped packet allocates the counters, because most ports drop none.
#[derive(Debug, Default)]
pub struct PortDropCounters(OnceLock<Box<DropCounters>>);

impl PortDropCounters {
    /// Counts dropped packets; only the writing thread may call this.
    #[inline]
    pub fn add(&self, reason: DropReason, count: u64) {
        if count > 0 {
            self.0.get_or_init(Box::default)[reason as usize].add(count);
        }
    }

    /// Returns the number of packets that were dropped for a reason.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get().map_or(0, |counters| counters[reason as usize].get())
    }

    /// Returns the number of dropped packets, all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.get().map_or(0, |counters| counters.iter().map(Counter::get).sum())
    }
}

reasons! {
    /// The reason why a frame was lost at a port before it was looked up.
    RxLoss {
        /// The receive ring or receive queue of the device was full.
        RingFull = "rx_ring_full",
        /// No buffer was left: waiting packets hold all of them.
        NoBuffer = "rx_no_buffer",
        /// The frame is too long or truncated, or its virtio header contradicts its bytes.
        Refused = "rx_refused",
        /// The frame exceeds the ingress policing rate of the port.
        Policed = "rx_policed",
    }
}

/// The cause of a failed training of the learned indexes of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TrainingFailure {
    /// The index of a table cannot hold its rules.
    Unindexable,
    /// The trainer panicked during the training.
    Panicked,
    /// The trainer thread has ended.
    TrainerLost,
}

impl TrainingFailure {
    /// All causes of failed trainings.
    pub const ALL: [Self; Self::COUNT] = [Self::Unindexable, Self::Panicked, Self::TrainerLost];

    /// Number of causes of failed trainings.
    pub const COUNT: usize = 3;
}

/// The number of buckets of [`ThreadCounters::acks`].
pub const ACK_BUCKETS: usize = 4;

/// The counters of one packet thread.
///
/// Two threads never write to the same cache line, nor to two lines that the processor fetches
/// together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    /// Packets received on all ports.
    pub received: Counter,
    /// Packets injected by controllers.
    pub injected: Counter,
    /// Copies of packets that were made.
    pub copied: Counter,
    /// Packets, not copies, with at least one output or punt.
    pub forwarded: Counter,
    /// Packets that transmit queues took.
    pub sent: Counter,
    /// Packets that the queue to the controllers took.
    pub punted: Counter,
    /// Packets in upcall queues and transmit batches at the end of the last iteration.
    pub held: Counter,
    /// Packets dropped, by [`DropReason`].
    pub dropped: DropCounters,
    /// Counters of the exact-match cache.
    pub exact: CacheCounters,
    /// Counters of the wildcard cache: megaflows or LTM entries.
    pub megaflow: CacheCounters,
    /// The signature cache, the first lookup of the megaflow cache.
    pub signature: CacheCounters,
    /// The chain of stages.
    pub chain: ChainCounters,
    /// The learned index, the second lookup of the megaflow cache.
    pub learned: CacheCounters,
    /// Entries in the learned index.
    pub learned_entries: Counter,
    /// Completed trainings of the learned index.
    pub trainings: Counter,
    /// 1 if the trainer thread has panicked, else 0.
    pub trainer_lost: Counter,
    /// Failed trainings of the learned indexes of tables, by [`TrainingFailure`].
    pub table_trainings_failed: [Counter; TrainingFailure::COUNT],
    /// Subtables of the megaflow cache probed, summed over packets.
    pub probes: Counter,
    /// Masks in the wildcard cache.
    pub masks: Counter,
    /// Packets that the tables decided, without a cache.
    pub decided: Counter,
    /// Packets that missed and were translated.
    pub upcalls: Counter,
    /// Times from the receipt of a packet that missed until it was executed.
    ///
    /// The time begins with the poll loop iteration that received the packet. Packets that hit an
    /// entry of another packet's translation while they waited are not counted.
    pub set_up: HistogramCounters,
    /// Live entries in the caches of the thread.
    pub entries: Counter,
    /// Entries not installed because no slot was free.
    pub refused_full: Counter,
    /// Entries not installed because the ring of reports was full.
    pub refused_ring: Counter,
    /// Acknowledged versions, by the poll loop iterations started since their posting.
    ///
    /// The buckets are 0, 1, 2, and 3 or more. Versions that a sleeping thread acknowledged are not
    /// counted.
    pub acks: [Counter; ACK_BUCKETS],
    /// Entries evicted by invalidations.
    pub evicted: Counter,
    /// Entries dropped because they were installed after the invalidation was computed.
    pub install_conflicts: Counter,
    /// Evicted entries that were re-translated with the same actions.
    pub repaired_same: Counter,
    /// Evicted entries that were re-translated with other actions.
    pub repaired_changed: Counter,
    /// Evicted entries that another entry covered before the repair.
    pub repair_covered: Counter,
    /// Evicted entries in the repair queue that were not re-translated.
    pub repair_dropped: Counter,
    /// Entries that expired because they were idle.
    pub expired: Counter,
    /// Learn requests sent to the control plane.
    pub learn_requests: Counter,
    /// Hits that were compared with a fresh translation.
    pub verified: Counter,
    /// Compared hits that differed from the translation.
    pub differences: Counter,
    /// Iterations of the poll loop, idle ones included.
    pub iterations: Counter,
}

/// Hits, misses, insertions and removals of one flow cache.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Packets that hit this cache.
    pub hits: Counter,
    /// Packets that missed this cache.
    pub misses: Counter,
    /// Entries that were inserted into this cache.
    pub inserts: Counter,
}

/// The counters of a chain of stages.
#[derive(Debug, Default)]
pub struct ChainCounters {
    /// Packets that hit in every stage that they needed.
    pub hits: Counter,
    /// Entries that packets with a complete hit have hit.
    pub steps: Counter,
    /// Packets that hit no entry.
    pub misses: Counter,
    /// Packets that hit some entries and then missed.
    pub partial: Counter,
    /// Translations that resumed where the packet missed.
    pub resumed: Counter,
    /// Sub-traversals that became entries.
    pub made: Counter,
    /// Sub-traversals that were entries already.
    pub shared: Counter,
    /// Entries evicted or replaced to make room for new entries.
    pub evicted: Counter,
    /// Translations not cached because they learn.
    pub learning: Counter,
    /// Translations cached as one entry because of a nearby limit.
    pub near_bounds: Counter,
    /// Translations cached as one entry, or not at all, because no tag was free.
    pub without_tags: Counter,
    /// Translations cached partly or not at all because a stage was full.
    pub without_room: Counter,
    /// Sub-traversals not installed: no slot was free or the ring was full.
    pub refused: Counter,
    /// Tags that are in use.
    pub tags: Counter,
    /// The stages; counters of stages that do not exist stay zero.
    pub stages: [StageCounters; CHAIN_MAX],
}

/// The contents of a stage.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Entries, including dead ones that are not removed yet.
    pub entries: Counter,
    /// Masks, counted separately for each tag.
    pub masks: Counter,
}

/// The counters of one packet thread for one port, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PortTraffic {
    /// Packets that the thread received on the port.
    pub rx_packets: Counter,
    /// Bytes that the thread received on the port.
    pub rx_bytes: Counter,
    /// Lost before they were looked up, by [`RxLoss`]; the device counts more.
    pub rx_lost: [Counter; RxLoss::COUNT],
    /// 1 if the receive queue is broken, else 0.
    pub rx_broken: Counter,
    /// Packets received here and then dropped in the switch, by [`DropReason`].
    pub forward_dropped: PortDropCounters,
    /// Packets that the thread sent on the port.
    pub tx_packets: Counter,
    /// Bytes that the thread sent on the port.
    pub tx_bytes: Counter,
    /// Packets dropped at transmission, by [`DropReason`].
    pub tx_dropped: PortDropCounters,
}

const _: () = assert!(
    size_of::<PortTraffic>() == 128,
    "a port has these counters once for each packet thread, so they are small"
);

/// The measured load of a receive queue.
///
/// The load moves with the queue between packet threads. Only the thread that has the queue writes
/// the load.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RxLoad {
    /// Time that packet threads took for the packets of the queue, in nanoseconds.
    pub busy_ns: Counter,
    /// Packets of the queue.
    pub packets: Counter,
    /// Bursts of packets: one for each poll loop iteration with packets of the queue.
    pub bursts: Counter,
}

impl PortTraffic {
    /// Counts packets that were dropped at transmission.
    #[inline]
    pub fn drop_many(&self, reason: DropReason, count: u64) {
        self.tx_dropped.add(reason, count);
    }

    /// Returns the number of packets dropped at transmission, all reasons together.
    #[must_use]
    pub fn tx_dropped_total(&self) -> u64 {
        self.tx_dropped.total()
    }

    /// Returns the number of frames that were lost before a thread looked them up.
    #[must_use]
    pub fn rx_lost_total(&self) -> u64 {
        self.rx_lost.iter().map(Counter::get).sum()
    }
}

impl ChainCounters {
    /// Sets the counts of tags and stages to zero; only the writer may call this.
    pub fn clear_stages(&self) {
        self.tags.set(0);
        for stage in &self.stages {
            stage.entries.set(0);
            stage.masks.set(0);
        }
    }
}

impl ThreadCounters {
    /// Counts a dropped packet.
    #[inline]
    pub fn drop(&self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    /// Counts several packets that were dropped for one reason.
    #[inline]
    pub fn drop_many(&self, reason: DropReason, count: u64) {
        self.dropped[reason as usize].add(count);
    }

    /// Returns the number of dropped packets, all reasons together.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().map(Counter::get).sum()
    }

    /// Returns the number of packets that are in no counter.
    ///
    /// The number is that of received, injected and copied packets minus ended and held packets:
    /// zero between iterations.
    #[must_use]
    pub fn unaccounted(&self) -> i128 {
        let came = self.received.get() + self.injected.get() + self.copied.get();
        let went = self.sent.get() + self.punted.get() + self.dropped_total() + self.held.get();
        i128::from(came) - i128::from(went)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_reasons_have_different_counters_and_names() {
        let counters = ThreadCounters::default();
        let mut names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        DropReason::ALL.iter().for_each(|reason| counters.drop(*reason));
        assert!(counters.dropped.iter().all(|counter| counter.get() == 1));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
    }
}
