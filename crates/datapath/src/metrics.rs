//! Counters of packet threads: one writer each, relaxed, summed when read.
//!
//! Every packet has one end, and it is counted. With R received, I injected by a controller and C
//! copied (a packet that goes to three ports is copied twice; the last output takes the original):
//!
//! ```text
//!   R + I + C  =  sent + punted + dropped (by reason) + held
//! ```
//!
//! where *sent* was taken by a transmit queue, *punted* by the queue to the controllers, *dropped*
//! has one [`DropReason`], and *held* waits for a translation or in a batch for a transmit queue.
//! *Forwarded* counts original packets with at least one output or punt, whatever became of the
//! copies.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reasons::reasons;

/// The most stages of a chain that a packet walks.
pub const CHAIN_MAX: usize = 16;

/// A counter that one thread adds to and any thread reads.
///
/// Adding is a load and a store, not an atomic addition: twenty times cheaper, and right because
/// there is one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the one writer may.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets; only the one writer may.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

reasons! {
    /// Why a packet was dropped.
    DropReason {
        /// No action of the rules sends it anywhere.
        Policy = "policy",
        /// Every output was to its ingress port.
        Hairpin = "hairpin",
        /// Its translation nested resubmits, patch ports, buckets or clones too deep.
        RecursionTooDeep = "recursion_too_deep",
        /// Its translation took too many table lookups.
        TooManyResubmits = "too_many_resubmits",
        /// Its translation gave too many actions.
        TooManyActions = "too_many_actions",
        /// Its translation pushed too many bytes to the stack.
        StackTooDeep = "stack_too_deep",
        /// Its translation asked for too many learned rules.
        TooManyLearnedRules = "too_many_learned_rules",
        /// Its ingress port belongs to no bridge.
        BridgeNotFound = "bridge_not_found",
        /// Too many packets of its port wait for a translation.
        UpcallQueueFull = "upcall_queue_full",
        /// Its learn request found the queue to the control plane full.
        LearnQueueFull = "learn_queue_full",
        /// Its port used up its stall budget with packets that wait for a learned version.
        LearnRateLimited = "learn_rate_limited",
        /// A meter dropped it.
        Metered = "metered",
        /// It was recirculated too often.
        RecirculationTooDeep = "recirculation_too_deep",
        /// It is a copy of a packet whose copies were recirculated too often in all.
        RecirculationLimit = "recirculation_limit",
        /// It has more MPLS labels than a flow key, and an action pushes or pops one.
        TooManyMplsLabels = "too_many_mpls_labels",
        /// Its output port has no transmit queue on this thread.
        NoTxQueue = "no_tx_queue",
        /// It is longer than the output port accepts.
        MtuExceeded = "mtu_exceeded",
        /// It needs segmentation, and the output port cannot segment it.
        SegmentationUnsupported = "segmentation_unsupported",
        /// The transmit queue was full.
        TxQueueFull = "tx_queue_full",
        /// The device of the output port refused the frame, for example because of its MTU.
        TxRefused = "tx_refused",
        /// The queue of packet-ins to the controllers was full.
        PacketInQueueFull = "packet_in_queue_full",
        /// A tag or a label did not fit, or was not there.
        Malformed = "malformed",
        /// No buffer was left for a copy.
        NoBuffer = "no_buffer",
        /// Its port was removed while it waited.
        PortRemoved = "port_removed",
    }
}

/// Places of [`ThreadCounters::answers`].
pub const ACK_BUCKETS: usize = 4;

/// What one packet thread counts. Two threads never write to one cache line, nor to two that the
/// processor fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    /// Packets received on all ports.
    pub received: Counter,
    /// Packets that controllers sent out.
    pub injected: Counter,
    /// Copies made.
    pub copied: Counter,
    /// Packets, not copies, with at least one output or punt.
    pub forwarded: Counter,
    /// Packets that transmit queues took.
    pub sent: Counter,
    /// Packets that the queue to the controllers took.
    pub punted: Counter,
    /// Packets that wait for a translation or a transmit queue, at the end of the last turn.
    pub held: Counter,
    /// Packets dropped, by [`DropReason`].
    pub dropped: [Counter; DropReason::COUNT],
    /// The exact-match cache.
    pub exact: CacheCounters,
    /// The wildcard cache.
    pub megaflow: CacheCounters,
    /// The chain of stages.
    pub chain: ChainCounters,
    /// Subtables of the wildcard cache asked, once per packet.
    pub probes: Counter,
    /// Masks in the wildcard cache.
    pub masks: Counter,
    /// Packets translated.
    pub upcalls: Counter,
    /// Entries live.
    pub entries: Counter,
    /// Entries not made because no slot was free.
    pub refused_full: Counter,
    /// Entries not made because their report did not fit.
    pub refused_ring: Counter,
    /// Versions answered, by the turns that were begun from when they were posted: none, one, two,
    /// and more. Those that a thread has answered by sleeping are not among them.
    pub answers: [Counter; ACK_BUCKETS],
    /// Entries that advances named.
    pub evicted: Counter,
    /// Entries that advances dropped because nobody had looked at them.
    pub install_conflicts: Counter,
    /// Of the entries that advances named, those that were made anew and do what they did.
    pub repaired_same: Counter,
    /// Those that were made anew and do something else.
    pub repaired_changed: Counter,
    /// Those that waited to be made anew, and by then there was another that takes their packets.
    pub repair_covered: Counter,
    /// Those that waited and were not made anew.
    pub repair_dropped: Counter,
    /// Entries that were idle for too long.
    pub expired: Counter,
    /// Lessons handed to control.
    pub taught: Counter,
    /// Hits that were translated anew, to see whether the cache was right.
    pub verified: Counter,
    /// Of these, those of which the tables said something else.
    pub differences: Counter,
    /// Turns, idle ones too.
    pub turns: Counter,
}

/// What one cache counts.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Packets that it answered for.
    pub hits: Counter,
    /// Packets that it was asked for in vain.
    pub misses: Counter,
    /// Entries put in.
    pub inserts: Counter,
}

/// What a chain of stages counts.
#[derive(Debug, Default)]
pub struct ChainCounters {
    /// Packets that came to an end.
    pub hits: Counter,
    /// Entries that these met, one after the other.
    pub steps: Counter,
    /// Packets that met no entry.
    pub misses: Counter,
    /// Packets that met some, and no end.
    pub partial: Counter,
    /// Translations that went on where their packets missed.
    pub resumed: Counter,
    /// Pieces that became entries.
    pub made: Counter,
    /// Pieces that were entries already.
    pub shared: Counter,
    /// Entries that made room for others, or gave way to them.
    pub evicted: Counter,
    /// Translations that left no entry, as they teach.
    pub teaching: Counter,
    /// Translations that are one entry, as their pieces would come near to a bound.
    pub near_bounds: Counter,
    /// Translations that are one entry, or none, as no tag was left.
    pub without_tags: Counter,
    /// Translations of which not all is cached, as no stage had room.
    pub without_room: Counter,
    /// Pieces for which no slot was free, or whose report did not fit.
    pub refused: Counter,
    /// Tags in use.
    pub tags: Counter,
    /// Its stages; those that it does not have stay empty.
    pub stages: [StageCounters; CHAIN_MAX],
}

/// What a stage holds.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Entries, dead ones included that nobody has unlinked.
    pub entries: Counter,
    /// Masks, those of different tags counted apart.
    pub masks: Counter,
}

/// What one packet thread counts of one port; on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct PortTraffic {
    /// Packets received.
    pub rx_packets: Counter,
    /// Their bytes.
    pub rx_bytes: Counter,
    /// Frames that the queue could not take: too long, or cut.
    pub rx_refused: Counter,
    /// Whether the receive queue is broken: 1, else 0.
    pub rx_broken: Counter,
    /// Packets sent.
    pub tx_packets: Counter,
    /// Their bytes.
    pub tx_bytes: Counter,
    /// Packets that were to be sent and were dropped.
    pub tx_dropped: Counter,
}

impl ChainCounters {
    /// Nothing is held any more, as far as is known; only the one writer may say so.
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

    /// Counts dropped packets.
    #[inline]
    pub fn drop_many(&self, reason: DropReason, count: u64) {
        self.dropped[reason as usize].add(count);
    }

    /// Packets dropped, whatever the reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().map(Counter::get).sum()
    }

    /// What came in or was made, less what has come to its end or is held: zero between turns.
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
    fn every_reason_has_a_counter_and_a_name_of_its_own() {
        let counters = ThreadCounters::default();
        let mut names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        DropReason::ALL.iter().for_each(|reason| counters.drop(*reason));
        assert!(counters.dropped.iter().all(|counter| counter.get() == 1));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
    }
}
