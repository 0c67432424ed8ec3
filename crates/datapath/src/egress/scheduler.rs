//! The state of the egress queues of a port that packet threads share.
//!
//! Each thread holds its own packets. The threads share the tokens, behind a lock that a thread
//! only tries, and the number of waiting packets of each queue. By that number, a thread with
//! packets of a low priority sees that another thread has more urgent packets, and leaves the
//! tokens to that thread.
//!
//! A thread counts a packet as waiting before it tries the lock, and until it has taken the packet
//! out. So a number is never too small. A thread that ends subtracts all of its packets, so no
//! other thread waits for them.

use std::sync::TryLockError;

use shunt_pipeline::{QueueId, Time};

use super::{
    counters::{QueueCounters, QueueCounts},
    htb::{HtbOptions, HtbQueue, HtbTokens, NextQueue, QueueSet},
};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The egress queues of a port that packet threads share.
#[derive(Debug)]
pub struct EgressScheduler {
    /// The number of each queue, ascending.
    ids: Box<[QueueId]>,
    /// The token buckets; a packet thread only tries the lock.
    tokens: Mutex<HtbTokens>,
    /// Number of waiting packets of each queue, of all threads.
    waiting: Box<[AtomicU64]>,
    /// The counters of each queue.
    counters: Box<[QueueCounters]>,
    /// Time at which the scheduler was created.
    pub created: Time,
}

/// The locked tokens, filled up to the current time.
pub(crate) struct LockedTokens<'s> {
    /// The scheduler of the port.
    scheduler: &'s EgressScheduler,
    /// The token buckets, locked.
    tokens: MutexGuard<'s, HtbTokens>,
}

impl EgressScheduler {
    /// Creates a scheduler with full buckets.
    ///
    /// # Panics
    ///
    /// If there are more than [`HtbOptions::QUEUES_MAX`] queues, including the default queue.
    #[must_use]
    pub fn new(options: &HtbOptions, now: Time) -> Self {
        let mut queues = options.queues.clone();
        queues.entry(QueueId::DEFAULT).or_insert(HtbQueue::DEFAULT);
        let least = |queue: HtbQueue| HtbQueue {
            min_rate: queue.min_rate.max(HtbQueue::LEAST_RATE),
            ..queue
        };
        let rates: Vec<_> = queues.values().copied().map(least).collect();
        Self {
            ids: queues.keys().copied().collect(),
            tokens: Mutex::new(HtbTokens::new(options.max_rate, &rates, now)),
            waiting: rates.iter().map(|_| AtomicU64::new(0)).collect(),
            counters: rates.iter().map(|_| QueueCounters::default()).collect(),
            created: now,
        }
    }

    /// Returns the number of each queue, in the order of the indices.
    #[must_use]
    pub const fn ids(&self) -> &[QueueId] {
        &self.ids
    }

    /// Returns the counts of each queue, in the order of the indices.
    pub fn counts(&self) -> impl Iterator<Item = (QueueId, QueueCounts)> {
        self.ids.iter().zip(&self.counters).map(|(queue, counters)| (*queue, counters.counts()))
    }

    /// Returns the index of a queue; a queue that does not exist is the default queue.
    #[must_use]
    pub fn index_of(&self, queue: QueueId) -> usize {
        // The default queue has the least number, and so the index 0.
        self.ids.binary_search(&queue).unwrap_or(0)
    }

    /// Adds a waiting packet of this thread.
    pub(crate) fn add_waiting(&self, index: usize) {
        // Relaxed suffices: the lock on the tokens orders the addition before the thread's turn.
        self.waiting[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Removes waiting packets of this thread.
    pub(crate) fn remove_waiting(&self, index: usize, packets: u64) {
        self.waiting[index].fetch_sub(packets, Ordering::Relaxed);
    }

    /// Counts a packet that found its queue full.
    pub(crate) fn count_error(&self, index: usize) {
        self.counters[index].count_error();
    }

    /// Locks the tokens and fills them up to `now`, unless another thread has the lock.
    pub(crate) fn try_lock(&self, now: Time) -> Option<LockedTokens<'_>> {
        // After a panic of another thread the tokens are still valid, so the poisoned lock stays
        // usable.
        let mut tokens = match self.tokens.try_lock() {
            Ok(tokens) => tokens,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        tokens.fill(now);
        Some(LockedTokens { scheduler: self, tokens })
    }
}

impl LockedTokens<'_> {
    /// Returns the queues of which other threads hold packets.
    ///
    /// `own` returns the number of packets of this thread in a queue.
    pub(crate) fn of_others(&self, own: impl Fn(usize) -> usize) -> QueueSet {
        let waiting = self.scheduler.waiting.iter().enumerate();
        let is_of_others = |(index, number): &(usize, &AtomicU64)| {
            number.load(Ordering::Relaxed) > own(*index) as u64
        };
        waiting.filter(is_of_others).map(|(index, _)| index).collect()
    }

    /// Decides which queue sends next.
    ///
    /// `own` are the queues with packets of this thread, and `others` those with packets of other
    /// threads.
    pub(crate) fn next(&mut self, own: QueueSet, others: QueueSet) -> NextQueue {
        self.tokens.next(own, others)
    }

    /// Takes the tokens of a packet that this thread sends, and counts it.
    pub(crate) fn take(&mut self, index: usize, bytes: usize) {
        let bytes = bytes as u64;
        self.tokens.take(index, bytes.saturating_mul(8));
        self.scheduler.counters[index].count_sent(bytes);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::{sync::Arc, thread};

    use super::*;

    /// Number of bytes of a packet that empties a bucket.
    const BYTES: usize = 2000;

    /// Decides which queue sends next if this thread holds a packet of one queue.
    fn next(turns: &mut LockedTokens<'_>, index: usize) -> NextQueue {
        let others = turns.of_others(|queue| usize::from(queue == index));
        turns.next([index].into_iter().collect(), others)
    }

    /// Adds a packet to a queue, and sends it if permitted; true if it was sent.
    fn send(scheduler: &EgressScheduler, index: usize) -> bool {
        scheduler.add_waiting(index);
        let Some(mut turns) = scheduler.try_lock(Time::ZERO) else { return false };
        let may = next(&mut turns, index) == NextQueue::Index(index);
        if may {
            turns.take(index, BYTES);
            scheduler.remove_waiting(index, 1);
        }
        may
    }

    /// Two threads never send more than the tokens permit, and no turn is lost.
    #[test]
    fn threads_share_tokens_and_yield_to_urgent_queues() {
        loom::model(|| {
            let queues = [(QueueId::new(1), HtbQueue { priority: 1, ..HtbQueue::DEFAULT })];
            let options = HtbOptions { max_rate: 1000, queues: queues.into() };
            let scheduler = Arc::new(EgressScheduler::new(&options, Time::ZERO));
            let own = Arc::clone(&scheduler);
            let urgent = thread::spawn(move || send(&own, 0));
            let lazy = send(&scheduler, 1);
            let urgent = urgent.join().unwrap();
            assert!(!(urgent && lazy), "the tokens suffice for one packet only");
            let sent = u64::from(urgent) + u64::from(lazy);
            let waiting: u64 =
                scheduler.waiting.iter().map(|own| own.load(Ordering::Relaxed)).sum();
            assert_eq!(waiting, 2 - sent);
            if sent == 0 {
                // The urgent packet found the lock taken, and is sent next.
                let mut turns = scheduler.try_lock(Time::ZERO).unwrap();
                assert_eq!(next(&mut turns, 0), NextQueue::Index(0));
                assert_eq!(next(&mut turns, 1), NextQueue::OtherThread);
            }
        });
    }
}
