//! Keeps the order of the packets of a flow, some of which go through the switch.
//!
//! A packet that misses takes the *long path*: by the representor to a packet thread of the switch,
//! and back by the representor of its output port. A packet that hits leaves at once. When an entry
//! becomes active, packets of a flow that hit would overtake earlier packets that missed. So a
//! packet that hits is held while earlier packets of its flow are on the long path. The held packet
//! is looked up again when the earlier packets have left.
//!
//! ```text
//!   diverted   frames that the NIC has put into a queue of the representor
//!   finished   frames of them that the packet thread has finished: their copies are in its transmit queues
//!   cleared    the same, and all packets that its transmit queues had have left the NIC
//! ```
//!
//! The NIC reads `finished`, then receives all packets that the representors have, and then sets
//! `cleared` to the value that it read. Flows share [`BUCKETS`] hash buckets, so a packet may be
//! held because of another flow. A held packet is never dropped because of a full queue: all held
//! packets of a full queue take the long path, in the order of their arrival.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use shunt_datapath::Packet;

/// Number of hash buckets of a queue.
const BUCKETS: usize = 1024;

/// Maximum number of held packets per queue.
pub(crate) const HELD_MAX: usize = 256;

/// The number of frames of one queue that its packet thread has finished.
#[derive(Debug, Default)]
pub(crate) struct FinishedFrames {
    finished: AtomicU64,
    /// True while the NIC waits for a greater number of finished frames.
    is_awaited: AtomicBool,
}

impl FinishedFrames {
    /// Publishes that the first `count` frames are finished.
    ///
    /// Returns whether the caller must wake the NIC.
    pub(crate) fn publish(&self, count: u64) -> bool {
        // SeqCst pairs with `is_beyond`. The NIC and the packet thread each write one of the two
        // variables and then read the other one. So at least one of the threads sees the write of
        // the other.
        self.finished.store(count, Ordering::SeqCst);
        self.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// Returns the number of finished frames.
    fn finished(&self) -> u64 {
        // Acquire pairs with `publish`. Packets that the packet thread sent before are visible in
        // its queues.
        self.finished.load(Ordering::Acquire)
    }

    /// Returns whether more than `count` frames are finished.
    ///
    /// If the result is false, the next finished frame wakes the NIC.
    fn is_beyond(&self, count: u64) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        self.finished.load(Ordering::SeqCst) > count
    }
}

/// The held and diverted packets of one port, by the hashes of their flows.
#[derive(Debug)]
pub(crate) struct FlowOrder {
    queues: Vec<QueueOrder>,
    /// Number of held packets of all queues.
    held_count: usize,
}

/// The held and diverted packets of one queue of the representor.
#[derive(Debug)]
struct QueueOrder {
    progress: Arc<FinishedFrames>,
    buckets: Box<[FlowBucket]>,
    /// Held packets with the hashes of their flows, oldest first.
    held: VecDeque<(Packet, u64)>,
    /// The number of the frame that was diverted last, over all buckets.
    diverted: u64,
    /// The number of finished frames when the NIC began the current drain.
    observed: u64,
    cleared: u64,
}

/// The flows that share one hash bucket.
#[derive(Clone, Copy, Debug, Default)]
struct FlowBucket {
    /// The number of the last frame of the bucket on the long path.
    /// The number is [`u64::MAX`] until this frame is sent.
    last_diverted: u64,
    /// Number of held packets of the bucket.
    held: u32,
}

impl QueueOrder {
    /// Returns an order in which no packets are held or diverted.
    fn new(progress: Arc<FinishedFrames>) -> Self {
        Self {
            progress,
            buckets: vec![FlowBucket::default(); BUCKETS].into_boxed_slice(),
            held: VecDeque::new(),
            diverted: 0,
            observed: 0,
            cleared: 0,
        }
    }

    /// Returns the bucket of the flows with this hash.
    fn bucket(&mut self, hash: u64) -> &mut FlowBucket {
        &mut self.buckets[bucket_of(hash)]
    }

    /// Returns whether packets of the flow may still be in the switch.
    fn is_diverted(&self, hash: u64) -> bool {
        self.buckets[bucket_of(hash)].last_diverted > self.cleared
    }

    /// Records the count of frames when a flow was last diverted.
    fn set_diverted(&mut self, hash: u64, count: u64) {
        self.bucket(hash).last_diverted = count;
        self.diverted = count;
    }
}

/// Returns the bucket of a flow, by the high bits of the hash.
/// The queue is selected by all bits of the hash.
fn bucket_of(hash: u64) -> usize {
    usize::from((hash >> 48) as u16) % BUCKETS
}

impl FlowOrder {
    /// Creates the hash buckets for a representor with these queues, at least one.
    pub(crate) fn new(queues: Vec<Arc<FinishedFrames>>) -> Self {
        Self { queues: queues.into_iter().map(QueueOrder::new).collect(), held_count: 0 }
    }

    /// Returns whether any packet of the port is held or on the long path.
    pub(crate) fn is_busy(&self) -> bool {
        self.held_count > 0 || self.queues.iter().any(|queue| queue.diverted > queue.cleared)
    }

    /// Returns the index of the queue for a hash.
    fn queue_index(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "there are few queues")]
        {
            (hash % self.queues.len() as u64) as usize
        }
    }

    /// Returns the queue to which a hash belongs.
    fn queue(&self, hash: u64) -> &QueueOrder {
        &self.queues[self.queue_index(hash)]
    }

    /// Returns the queue to which a hash belongs, to change it.
    fn queue_mut(&mut self, hash: u64) -> &mut QueueOrder {
        let index = self.queue_index(hash);
        &mut self.queues[index]
    }

    /// Returns whether packets of a flow are held.
    pub(crate) fn is_held(&self, hash: u64) -> bool {
        self.queue(hash).buckets[bucket_of(hash)].held > 0
    }

    /// Returns whether packets of a flow are on the long path.
    pub(crate) fn is_diverted(&self, hash: u64) -> bool {
        self.queue(hash).is_diverted(hash)
    }

    /// Records that a packet of a flow will be diverted to the long path.
    pub(crate) fn divert(&mut self, hash: u64) {
        self.queue_mut(hash).set_diverted(hash, u64::MAX);
    }

    /// Records that a diverted packet was sent, as frame `count` of its queue.
    pub(crate) fn diverted(&mut self, hash: u64, count: u64) {
        self.queue_mut(hash).set_diverted(hash, count);
    }

    /// Returns whether the queue of a flow has room for another held packet.
    pub(crate) fn has_room(&self, hash: u64) -> bool {
        self.queue(hash).held.len() < HELD_MAX
    }

    /// Holds a packet of a flow.
    pub(crate) fn hold(&mut self, hash: u64, packet: Packet) {
        let queue = self.queue_mut(hash);
        queue.bucket(hash).held += 1;
        queue.held.push_back((packet, hash));
        self.held_count += 1;
    }

    /// Takes the oldest held packet of the queue of a flow, with the hash of its flow.
    pub(crate) fn take(&mut self, hash: u64) -> Option<(Packet, u64)> {
        let queue = self.queue_mut(hash);
        let (packet, hash) = queue.held.pop_front()?;
        queue.bucket(hash).held -= 1;
        self.held_count -= 1;
        Some((packet, hash))
    }

    /// Takes a held packet that may leave now, if there is one.
    pub(crate) fn take_cleared(&mut self) -> Option<Packet> {
        if self.held_count == 0 {
            return None;
        }
        let hash = self.queues.iter().find_map(|queue| {
            let (_, hash) = queue.held.front()?;
            (!queue.is_diverted(*hash)).then_some(*hash)
        })?;
        self.take(hash).map(|(packet, _)| packet)
    }

    /// Takes any held packet of the port.
    pub(crate) fn take_any(&mut self) -> Option<Packet> {
        let hash = self.queues.iter().find_map(|queue| Some(queue.held.front()?.1))?;
        self.take(hash).map(|(packet, _)| packet)
    }

    /// Records the number of finished frames, before a drain of all representors.
    pub(crate) fn observe(&mut self) {
        for queue in &mut self.queues {
            queue.observed = queue.observed.max(queue.progress.finished());
        }
    }

    /// Clears the noted frames, after a drain of all representors.
    pub(crate) fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.cleared = queue.observed;
        }
    }

    /// Clears all frames, because the packet thread will finish no more frames.
    pub(crate) fn end(&mut self) {
        for queue in &mut self.queues {
            queue.observed = u64::MAX;
            queue.cleared = u64::MAX;
        }
    }

    /// Returns whether the switch has made progress that a held packet waits for.
    ///
    /// If the result is false, the next progress wakes the NIC.
    pub(crate) fn has_progress(&self) -> bool {
        let waiting = self.queues.iter().filter(|queue| !queue.held.is_empty());
        // `is_beyond` must be called for every queue, so that each of them wakes the NIC.
        waiting.fold(false, |found, queue| queue.progress.is_beyond(queue.cleared) | found)
    }
}
