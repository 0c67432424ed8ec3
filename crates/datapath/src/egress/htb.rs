//! The hierarchical token bucket (HTB): which egress queue sends next, and when.
//!
//! The rules follow the QoS type `linux-htb` of `ovs-vswitchd.conf.db(5)`. The port has a
//! bucket for its maximum rate. Each queue has a bucket for its minimum rate and a bucket for its
//! maximum rate.
//!
//! 1. A packet leaves only if the bucket of the port and the bucket of its queue's maximum rate
//!    have tokens. A queue with tokens of its minimum rate may overdraw the bucket of the port by
//!    the largest burst of a queue. So a burst leaves at once, and the port sends less afterwards.
//! 2. Queues with tokens of their minimum rate send first. After these queues, other queues borrow
//!    the remaining rate of the port.
//! 3. Among queues with equal rank by rule 2, the queues with the smallest priority send first.
//! 4. Among queues with equal rank by rules 2 and 3, each sends the same number of bits (start-time
//!    fair queueing: P. Goyal, H. M. Vin and H. Cheng, "Start-time fair queueing"). If several
//!    threads hold packets, a queue may be ahead of another by the bits that fit into the bucket of
//!    the port.
//!
//! A packet takes its bits from the bucket of the port and of its queue's maximum rate. The packet
//! also takes bits from the bucket of the minimum rate if this bucket has tokens, so borrowed bits
//! do not count against the minimum rate. One token suffices to send a packet, and the bucket then
//! owes the other bits. So in each interval of time a queue sends at most its burst, one packet,
//! and the bits of its rate in the interval. As in Linux, a burst is at least the bits of a
//! millisecond and one packet.
//!
//! Levels are integers in billionths of a bit: a nanosecond adds a whole number, so no level is
//! rounded.

use std::{collections::BTreeMap, iter, time::Duration};

use shunt_pipeline::{QueueId, Time};

/// The rates of a port with egress queues (`linux-htb`).
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

/// The decision which queue sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextQueue {
    /// The queue with this index sends next.
    Index(usize),
    /// No queue may send before this time has passed.
    After(Duration),
    /// A queue sends next of which only other threads hold packets.
    OtherThread,
}

/// The token buckets of a port and its queues.
#[derive(Debug)]
pub struct HtbTokens {
    /// Time up to which the buckets are filled.
    filled: Time,
    /// The bucket of the port's rate.
    port: BitBucket,
    /// Bits by which minimum rates may overdraw the bucket of the port.
    overdraft: u64,
    /// The buckets of each queue.
    queues: Box<[QueueTokens]>,
    /// The least start tag of each rank, in bits (virtual time).
    ///
    /// The indices are the first queue of the rank, then [`QueueTokens::share`].
    virtual_times: Box<[[u64; 2]]>,
}

/// The token buckets and the scheduling state of one queue.
#[derive(Debug)]
struct QueueTokens {
    /// The bucket of the minimum rate.
    assured: BitBucket,
    /// The bucket of the maximum rate.
    ceiling: BitBucket,
    /// The priority; a lower number sends first.
    priority: u32,
    /// Index of the first queue with the same priority.
    class: usize,
    /// Finish tags of the last packets by [`Self::share`], in bits.
    finish: [u64; 2],
}

/// A bucket of billionths of a bit.
#[derive(Debug)]
struct BitBucket {
    /// The present content of the token bucket.
    level: i128,
    /// The maximum content of the token bucket.
    depth: i128,
    /// Number of bits that flow into the bucket in a second.
    rate: u64,
}

/// The rank of a queue, where the smallest rank sends first.
type QueueRank = (bool, u32);

/// Number of nanoseconds in a second.
const BILLION: i128 = 1_000_000_000;

/// Bits of an Ethernet frame without the check sequence.
const FRAME_BITS: u64 = 1514 * 8;

impl HtbOptions {
    /// The most queues of a port.
    pub const QUEUES_MAX: usize = 64;
}

impl HtbQueue {
    /// A queue without options: the least minimum rate, and the rate of the port.
    pub const DEFAULT: Self =
        Self { min_rate: Self::LEAST_RATE, max_rate: u64::MAX, burst: 0, priority: 0 };

    /// The least minimum rate, in bits per second, so that no queue stops altogether.
    ///
    /// Open vSwitch has the same value: 1500 bytes per second.
    pub const LEAST_RATE: u64 = 12_000;
}

impl QueueSet {
    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a queue to the set.
    pub const fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    /// Removes a queue from the set.
    pub const fn remove(&mut self, index: usize) {
        self.0 &= !(1 << index);
    }

    /// Returns whether the set has a queue.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }

    /// Returns the queues of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the queues in order.
    fn indices(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(index as usize)
        })
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
    /// Creates full buckets for the queues, in the order of their indices.
    ///
    /// # Panics
    ///
    /// If there are more than [`HtbOptions::QUEUES_MAX`] queues.
    #[must_use]
    pub fn new(max_rate: u64, queues: &[HtbQueue], now: Time) -> Self {
        assert!(
            queues.len() <= HtbOptions::QUEUES_MAX,
            "a set of queues is 64 bits, one for each queue"
        );
        let class = |own: &HtbQueue| queues.iter().position(|queue| queue.priority == own.priority);
        let tokens = |queue: &HtbQueue| QueueTokens {
            assured: BitBucket::full(queue.min_rate, queue.burst),
            ceiling: BitBucket::full(queue.max_rate.min(max_rate), queue.burst),
            priority: queue.priority,
            class: class(queue).unwrap_or(0),
            finish: [0; 2],
        };
        Self {
            filled: now,
            port: BitBucket::full(max_rate, 0),
            overdraft: queues.iter().map(|queue| queue.burst).max().unwrap_or(0),
            queues: queues.iter().map(tokens).collect(),
            virtual_times: queues.iter().map(|_| [0; 2]).collect(),
        }
    }

    /// Fills the buckets up to `now`; a time before the last call changes nothing.
    pub fn fill(&mut self, now: Time) {
        let elapsed = now.nanoseconds().saturating_sub(self.filled.nanoseconds());
        self.filled = self.filled.max(now);
        self.port.fill(elapsed);
        for queue in &mut self.queues {
            queue.assured.fill(elapsed);
            queue.ceiling.fill(elapsed);
        }
    }

    /// Decides which of the queues with packets sends next.
    ///
    /// `own` are the queues with packets of the calling thread, at least one. `others` are the
    /// queues with packets of other threads. The cost is linear in the number of queues with
    /// packets.
    #[must_use]
    pub fn next(&mut self, own: QueueSet, others: QueueSet) -> NextQueue {
        let Some(own_first) = self.first_of(own) else {
            let time = own.indices().map(|index| self.time_to_turn(index)).min();
            return NextQueue::After(Duration::from_nanos(time.unwrap_or(u64::MAX)));
        };
        let first = self.first_of(others).map_or(own_first, |other| other.min(own_first));
        let (rank, least, index) = first;
        let queue = &self.queues[index];
        self.virtual_times[queue.class][queue.share()] = least;
        let (own_rank, tag, index) = own_first;
        if own_rank == rank && tag - least <= self.port.depth_bits() {
            NextQueue::Index(index)
        } else {
            NextQueue::OtherThread
        }
    }

    /// Takes the bits of a packet that a queue sends.
    pub fn take(&mut self, index: usize, bits: u64) {
        let start = self.start_tag(index);
        self.port.take(bits);
        let queue = &mut self.queues[index];
        queue.finish[queue.share()] = start.saturating_add(bits);
        queue.ceiling.take(bits);
        if queue.assured.has_tokens() {
            queue.assured.take(bits);
        }
    }

    /// Returns the nanoseconds after which a queue may send.
    fn time_to_turn(&self, index: usize) -> u64 {
        let QueueTokens { assured, ceiling, .. } = &self.queues[index];
        let overdrawn = assured.time_to_tokens().max(self.port.time_above(self.overdraft));
        ceiling.time_to_tokens().max(self.port.time_to_tokens().min(overdrawn))
    }

    /// Returns the first queue that may send: its rank, start tag and index.
    fn first_of(&self, queues: QueueSet) -> Option<(QueueRank, u64, usize)> {
        let may_borrow = self.port.has_tokens();
        let may_send = may_borrow || self.port.is_above(self.overdraft);
        let first = queues.indices().filter_map(|index| {
            let QueueTokens { assured, ceiling, priority, .. } = &self.queues[index];
            let is_borrowing = !assured.has_tokens();
            let may_send = if is_borrowing { may_borrow } else { may_send };
            let rank = (may_send && ceiling.has_tokens()).then_some((is_borrowing, *priority))?;
            Some((rank, self.start_tag(index), index))
        });
        first.min()
    }

    /// Returns the start tag of the next packet of a queue.
    fn start_tag(&self, index: usize) -> u64 {
        let queue = &self.queues[index];
        queue.finish[queue.share()].max(self.virtual_times[queue.class][queue.share()])
    }
}

impl QueueTokens {
    /// Returns 0 if the next packet takes tokens of the minimum rate; 1 if it borrows.
    fn share(&self) -> usize {
        usize::from(!self.assured.has_tokens())
    }
}

impl BitBucket {
    /// Creates a full bucket; a bucket with rate 0 never has tokens.
    fn full(rate: u64, burst: u64) -> Self {
        let least = if rate == 0 { 0 } else { rate / 1000 + FRAME_BITS };
        let depth = if rate == 0 { 0 } else { i128::from(burst.max(least)) * BILLION };
        Self { level: depth, depth, rate }
    }

    /// Adds the tokens of a time in nanoseconds.
    fn fill(&mut self, nanoseconds: u64) {
        let filled = self.level + i128::from(nanoseconds) * i128::from(self.rate);
        self.level = filled.min(self.depth);
    }

    /// Returns whether the bucket has any tokens.
    const fn has_tokens(&self) -> bool {
        self.level > 0
    }

    /// Takes tokens for a number of bits.
    fn take(&mut self, bits: u64) {
        self.level -= i128::from(bits) * BILLION;
    }

    /// Returns whether the bucket owes less than `bits`, or has tokens.
    fn is_above(&self, bits: u64) -> bool {
        self.level > -i128::from(bits) * BILLION
    }

    /// Returns the bits of a full bucket.
    fn depth_bits(&self) -> u64 {
        u64::try_from(self.depth / BILLION).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds after which the bucket has tokens.
    fn time_to_tokens(&self) -> u64 {
        self.time_above(0)
    }

    /// Returns the nanoseconds after which [`Self::is_above`] returns true.
    fn time_above(&self, bits: u64) -> u64 {
        if self.is_above(bits) {
            return 0;
        }
        let missing = -self.level - i128::from(bits) * BILLION;
        let Some(whole) = missing.checked_div(i128::from(self.rate)) else {
            return u64::MAX;
        };
        u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "htb_tests.rs"]
mod tests;
