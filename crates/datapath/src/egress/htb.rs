//! The hierarchical token bucket (HTB): which egress queue sends next, and when.
//!
//! The rules are those of the QoS type `linux-htb` of `ovs-vswitchd.conf.db(5)`. The port has a bucket
//! for its maximum rate. Each queue has one for its minimum rate and one for its maximum rate.
//!
//! 1. A packet leaves only if the bucket of the port and that of its queue's maximum rate have tokens.
//! 2. Queues with tokens of their minimum rate come first. Then the others borrow the rest.
//! 3. Among queues that rule 2 treats alike, those with the smallest priority come first.
//! 4. Among queues that are alike by rule 3 too, each gets the same number of bits (start-time fair
//!    queueing: P. Goyal, H. M. Vin and H. Cheng, "Start-time fair queueing").
//!
//! A packet takes its bits from the bucket of the port and of its queue's maximum rate. It takes them
//! from the bucket of the minimum rate only if that has tokens: borrowed bits do not count against the
//! minimum. One token suffices to send a packet, and the bucket owes the rest. So in each window of time
//! a queue sends at most its burst, one packet, and what its rate permits. As in Linux, a small burst
//! grows to what the rate gives in a millisecond, and a packet.
//!
//! Levels are integers in billionths of a bit: a nanosecond adds a whole number, and nothing is rounded.

use std::{collections::BTreeMap, time::Duration};

use shunt_pipeline::{QueueId, Time};

/// The rates of a port with egress queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbOptions {
    /// Rate of all queues together, in bits per second.
    pub max_rate: u64,
    /// The queues; the default queue is added if it is missing.
    pub queues: BTreeMap<QueueId, HtbQueue>,
}

/// The rates of an egress queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtbQueue {
    /// Rate that the queue gets first, in bits per second.
    pub min_rate: u64,
    /// Rate that the queue never exceeds, in bits per second.
    pub max_rate: u64,
    /// Number of bits that an idle queue may send at once.
    pub burst: u64,
    /// Queues with a smaller value borrow first.
    pub priority: u32,
}

/// A set of queues, by their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet(u64);

/// The queue that sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue with this index.
    Of(usize),
    /// None before this time has passed.
    After(Duration),
    /// A queue of which only other threads hold packets.
    OfOtherThread,
}

/// The token buckets of a port and its queues.
#[derive(Debug)]
pub struct HtbTokens {
    /// Time at which the buckets were filled.
    filled: Time,
    port: BitBucket,
    queues: Box<[QueueTokens]>,
    /// Start tag of the packet that was sent last, in bits.
    virtual_time: u64,
}

#[derive(Debug)]
struct QueueTokens {
    /// The bucket of the minimum rate.
    assured: BitBucket,
    /// The bucket of the maximum rate.
    ceiling: BitBucket,
    priority: u32,
    /// Finish tag of the last packet of the queue, in bits.
    finish: u64,
}

/// A bucket of billionths of a bit.
#[derive(Debug)]
struct BitBucket {
    level: i128,
    depth: i128,
    /// Bits per second.
    rate: u64,
}

/// The order of a queue before the others: smaller is earlier.
type QueueRank = (bool, u32);

const BILLION: i128 = 1_000_000_000;

/// Bits of an Ethernet frame without the check sequence.
const FRAME_BITS: u64 = 1514 * 8;

impl HtbOptions {
    /// The most queues of a port.
    pub const QUEUES_MAX: usize = 64;
}

impl HtbQueue {
    /// A queue without options: no minimum rate, and the whole rate of the port.
    pub const DEFAULT: Self = Self { min_rate: 0, max_rate: u64::MAX, burst: 0, priority: 0 };
}

impl QueueSet {
    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a queue.
    pub const fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Removes a queue.
    pub const fn remove(&mut self, index: usize) {
        self.0 &= !(1 << index);
    }

    /// Returns whether the set has a queue.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }

    /// Returns the queues in order.
    fn indices(self) -> impl Iterator<Item = usize> {
        (0..HtbOptions::QUEUES_MAX).filter(move |index| self.contains(*index))
    }
}

impl FromIterator<usize> for QueueSet {
    fn from_iter<T: IntoIterator<Item = usize>>(indices: T) -> Self {
        let mut set = Self::default();
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}

impl HtbTokens {
    /// Makes full buckets for the queues, in the order of their indices.
    ///
    /// # Panics
    ///
    /// If there are more than [`HtbOptions::QUEUES_MAX`] queues.
    #[must_use]
    pub fn new(max_rate: u64, queues: &[HtbQueue], now: Time) -> Self {
        assert!(queues.len() <= HtbOptions::QUEUES_MAX, "a set of queues has one bit for each");
        let tokens = |queue: &HtbQueue| QueueTokens {
            assured: BitBucket::full(queue.min_rate, queue.burst),
            ceiling: BitBucket::full(queue.max_rate.min(max_rate), queue.burst),
            priority: queue.priority,
            finish: 0,
        };
        Self {
            filled: now,
            port: BitBucket::full(max_rate, 0),
            queues: queues.iter().map(tokens).collect(),
            virtual_time: 0,
        }
    }

    /// Fills the buckets up to now; an earlier time than before changes nothing.
    pub fn fill(&mut self, now: Time) {
        let elapsed = now.nanoseconds().saturating_sub(self.filled.nanoseconds());
        self.filled = self.filled.max(now);
        self.port.fill(elapsed);
        for queue in &mut self.queues {
            queue.assured.fill(elapsed);
            queue.ceiling.fill(elapsed);
        }
    }

    /// Returns which queue sends next, of those with packets.
    ///
    /// `own` are queues with packets of the calling thread, which is not empty. `waiting` are those with
    /// packets of any thread. O(queues).
    #[must_use]
    pub fn next(&self, own: QueueSet, waiting: QueueSet) -> Turn {
        let ready = own.indices().map(|index| self.queues[index].ceiling.time_to_tokens()).min();
        let time = ready.unwrap_or(u64::MAX).max(self.port.time_to_tokens());
        if time > 0 {
            return Turn::After(Duration::from_nanos(time));
        }
        let ranked = |set: QueueSet| {
            set.indices().filter_map(|index| Some((self.queues[index].rank()?, index)))
        };
        let first = ranked(waiting).chain(ranked(own)).map(|(rank, _)| rank).min();
        let alike = ranked(own).filter(|(rank, _)| Some(*rank) == first);
        let next = alike.map(|(_, index)| index).min_by_key(|index| self.start_tag(*index));
        next.map_or(Turn::OfOtherThread, Turn::Of)
    }

    /// Takes the bits of a packet that a queue sends.
    pub fn take(&mut self, index: usize, bits: u64) {
        let start = self.start_tag(index);
        self.virtual_time = start;
        self.port.take(bits);
        let queue = &mut self.queues[index];
        queue.finish = start.saturating_add(bits);
        queue.ceiling.take(bits);
        if queue.assured.has_tokens() {
            queue.assured.take(bits);
        }
    }

    fn start_tag(&self, index: usize) -> u64 {
        self.queues[index].finish.max(self.virtual_time)
    }
}

impl QueueTokens {
    /// Returns the rank of the queue; `None` if it may not send.
    fn rank(&self) -> Option<QueueRank> {
        let is_borrowing = !self.assured.has_tokens();
        self.ceiling.has_tokens().then_some((is_borrowing, self.priority))
    }
}

impl BitBucket {
    /// Makes a full bucket; without a rate it has no tokens.
    fn full(rate: u64, burst: u64) -> Self {
        let least = if rate == 0 { 0 } else { rate / 1000 + FRAME_BITS };
        let depth = if rate == 0 { 0 } else { i128::from(burst.max(least)) * BILLION };
        Self { level: depth, depth, rate }
    }

    fn fill(&mut self, nanoseconds: u64) {
        let filled = self.level + i128::from(nanoseconds) * i128::from(self.rate);
        self.level = filled.min(self.depth);
    }

    const fn has_tokens(&self) -> bool {
        self.level > 0
    }

    fn take(&mut self, bits: u64) {
        self.level -= i128::from(bits) * BILLION;
    }

    /// Returns the nanoseconds until the bucket has tokens.
    fn time_to_tokens(&self) -> u64 {
        if self.has_tokens() {
            return 0;
        }
        let Some(whole) = (-self.level).checked_div(i128::from(self.rate)) else {
            return u64::MAX;
        };
        u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "htb_tests.rs"]
mod tests;
