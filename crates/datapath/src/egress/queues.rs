//! The packets of one thread that wait in the egress queues of a port.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use shunt_pipeline::{DatapathPort, QueueId, Time};

use super::{
    htb::{NextQueue, QueueSet},
    scheduler::EgressScheduler,
};
use crate::packet::buffer::{BURST, Packet, Pool};

/// The waiting packets of one thread, by queue.
#[derive(Debug)]
pub(crate) struct EgressQueues {
    /// The queues of the port, which all threads share.
    scheduler: Arc<EgressScheduler>,
    /// The packets of this thread in each queue.
    queues: Box<[EgressQueue]>,
    /// The queues with packets.
    own: QueueSet,
    /// Number of waiting packets.
    len: usize,
    /// Number of packets that were added since the last call of [`Self::take_due`].
    added: usize,
    /// Time before which no packet is due.
    due: Time,
}

/// The waiting packets of one queue, on one thread.
#[derive(Debug, Default)]
struct EgressQueue {
    /// The waiting packets, oldest first.
    packets: VecDeque<Packet>,
    /// Number of waiting packets in large buffers.
    large: usize,
}

/// The most packets of one thread in a queue.
///
/// The value is the usual length of a queue in Linux (`txqueuelen`).
pub(crate) const QUEUE_MAX: usize = 1000;

/// Retry time of a thread that left the tokens to another thread.
const OTHER_THREAD: Duration = Duration::from_micros(100);

impl EgressQueues {
    /// Creates empty queues for a scheduler.
    pub(crate) fn new(scheduler: Arc<EgressScheduler>) -> Self {
        let queues = scheduler.ids().iter().map(|_| EgressQueue::default()).collect();
        Self { scheduler, queues, own: QueueSet::default(), len: 0, added: 0, due: Time::ZERO }
    }

    /// Adds a packet to a queue.
    ///
    /// A queue never holds more packets than the pool has buffers left. So each congested queue
    /// gets the same number of buffers, and the same number stays free for the next queue (A. K.
    /// Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet
    /// switches").
    ///
    /// # Errors
    ///
    /// Returns the packet if the queue is full, or if it has its share of the buffers.
    pub(crate) fn push(
        &mut self,
        queue: QueueId,
        packet: Packet,
        pool: &Pool,
    ) -> Result<(), Packet> {
        let index = self.scheduler.index_of(queue);
        let waiting = &mut self.queues[index];
        if waiting.packets.len() >= QUEUE_MAX
            || waiting.count_of_size(&packet) >= pool.left_to_keep(&packet)
        {
            self.scheduler.count_error(index);
            return Err(packet);
        }
        self.scheduler.add_waiting(index);
        if !self.own.contains(index) {
            self.own.insert(index);
            // The other queues may wait for tokens that this queue does not need.
            self.due = Time::ZERO;
        }
        waiting.push(packet);
        self.len += 1;
        self.added += 1;
        Ok(())
    }

    /// Moves the packets that are due to the end of a batch, at most a burst.
    pub(crate) fn take_due(&mut self, now: Time, batch: &mut Vec<Packet>) {
        self.added = 0;
        if self.len == 0 || now < self.due {
            return;
        }
        // If another thread has the lock, the packets stay due.
        let Some(mut turns) = self.scheduler.try_lock(now) else { return };
        let others = turns.of_others(|index| self.queues[index].packets.len());
        for _ in 0..BURST {
            let index = match turns.next(self.own, others) {
                NextQueue::Index(index) => index,
                NextQueue::After(wait) => {
                    self.due = now.after(wait);
                    return;
                }
                NextQueue::OtherThread => {
                    self.due = now.after(OTHER_THREAD);
                    return;
                }
            };
            let Some(packet) = self.queues[index].pop() else { return };
            turns.take(index, packet.len());
            self.scheduler.remove_waiting(index, 1);
            self.len -= 1;
            if self.queues[index].packets.is_empty() {
                self.own.remove(index);
            }
            batch.push(packet);
            if self.len == 0 {
                return;
            }
        }
    }

    /// Takes all packets out, with their queues, and keeps the order of each queue.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (QueueId, Packet)> {
        self.withdraw();
        (self.own, self.len, self.added) = (QueueSet::default(), 0, 0);
        let queues = self.scheduler.ids().iter().zip(&mut self.queues);
        queues.flat_map(|(id, queue)| {
            queue.large = 0;
            queue.packets.drain(..).map(move |packet| (*id, packet))
        })
    }

    /// Subtracts the packets from the numbers of waiting packets that threads share.
    fn withdraw(&self) {
        for (index, queue) in self.queues.iter().enumerate() {
            self.scheduler.remove_waiting(index, queue.packets.len() as u64);
        }
    }

    /// Returns the number of waiting packets.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a burst was added since the last call of [`Self::take_due`].
    pub(crate) const fn has_new_burst(&self) -> bool {
        self.added >= BURST
    }

    /// Returns whether a packet that the port `ingress` received waits.
    pub(crate) fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        let mut packets = self.queues.iter().flat_map(|queue| &queue.packets);
        self.len > 0 && packets.any(|packet| packet.ingress == ingress)
    }

    /// Returns the time before which no packet is due; `None` if no packet waits.
    pub(crate) fn due(&self) -> Option<Time> {
        (self.len > 0).then_some(self.due)
    }
}

impl Drop for EgressQueues {
    /// Subtracts the packets of this thread from the shared numbers, also on a panic.
    ///
    /// Otherwise other threads would leave the tokens to packets that no longer exist.
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl EgressQueue {
    /// Returns the number of packets with a buffer of the same size as `packet`.
    fn count_of_size(&self, packet: &Packet) -> usize {
        if packet.is_large() { self.large } else { self.packets.len() - self.large }
    }

    /// Appends a packet, and counts it if it is large.
    fn push(&mut self, packet: Packet) {
        self.large += usize::from(packet.is_large());
        self.packets.push_back(packet);
    }

    /// Removes the oldest packet, and its count.
    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.large -= usize::from(packet.is_large());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::egress::htb::{HtbOptions, HtbQueue};

    /// A step of one of two threads: new packets by queue and length, then a wait.
    type Step = (usize, Vec<(u32, usize)>, u64);

    fn any_step() -> impl Strategy<Value = Step> {
        let packets = prop::collection::vec((0..4_u32, 16..1500_usize), 0..40);
        (0..2_usize, packets, prop_oneof![Just(0), 0..3_000_000_u64])
    }

    /// Returns a packet with a length and a number.
    fn packet(pool: &mut Pool, length: usize, number: u64) -> Packet {
        let mut packet = pool.take(length, DatapathPort::new(1)).unwrap();
        packet.frame_mut()[..8].copy_from_slice(&number.to_be_bytes());
        packet
    }

    /// Returns the number of a packet.
    fn number(packet: &Packet) -> u64 {
        u64::from_be_bytes(packet.frame()[..8].try_into().unwrap())
    }

    proptest! {
        /// Each packet leaves once, in the order of its queue, or still waits.
        #[test]
        fn queues_keep_packets_and_their_order(steps in prop::collection::vec(any_step(), 1..60)) {
            let queue = |priority| HtbQueue { min_rate: 50_000, priority, ..HtbQueue::DEFAULT };
            let queues = [(1, queue(0)), (2, queue(1))].map(|(id, own)| (QueueId::new(id), own));
            let options = HtbOptions { max_rate: 2_000_000, queues: queues.into() };
            let scheduler = Arc::new(EgressScheduler::new(&options, Time::ZERO));
            let mut pool = Pool::new();
            let mut threads = [(); 2].map(|()| EgressQueues::new(Arc::clone(&scheduler)));
            let mut expected: [BTreeMap<usize, VecDeque<u64>>; 2] = Default::default();
            let (mut now, mut entered) = (Time::ZERO, 0);
            for (thread, packets, wait) in steps {
                for (id, length) in packets {
                    let id = QueueId::new(id);
                    if let Err(refused) = threads[thread].push(id, packet(&mut pool, length, entered), &pool) {
                        pool.put_back(refused);
                    } else {
                        let index = scheduler.index_of(id);
                        expected[thread].entry(index).or_default().push_back(entered);
                    }
                    entered += 1;
                }
                let mut batch = Vec::new();
                threads[thread].take_due(now, &mut batch);
                prop_assert!(batch.len() <= BURST);
                for packet in batch {
                    let number = number(&packet);
                    let first = |queue: &VecDeque<u64>| queue.front() == Some(&number);
                    let queue = expected[thread].values_mut().find(|queue| first(queue));
                    prop_assert!(queue.and_then(VecDeque::pop_front).is_some(), "out of order");
                    pool.put_back(packet);
                }
                let left: usize = expected[thread].values().map(VecDeque::len).sum();
                prop_assert_eq!(threads[thread].len(), left);
                prop_assert_eq!(threads[thread].due().is_some(), left > 0);
                now = now.after(Duration::from_nanos(wait));
            }
            let [first, second] = &mut threads;
            for (own, expected) in [(first, &expected[0]), (second, &expected[1])] {
                let left: Vec<_> = own.take_all().map(|(_, packet)| packet).collect();
                let numbers: Vec<_> = left.iter().map(number).collect();
                let expected: Vec<_> = expected.values().flatten().copied().collect();
                prop_assert_eq!(numbers, expected);
                left.into_iter().for_each(|packet| pool.put_back(packet));
            }
            prop_assert_eq!(pool.out(), 0);
            let (_, counts): (Vec<_>, Vec<_>) = scheduler.counts().unzip();
            prop_assert!(counts.iter().all(|counts| counts.tx_errors == 0 || entered > 1000));
        }
    }

    #[test]
    fn a_full_queue_returns_the_packet() {
        let options = HtbOptions { max_rate: 1, queues: BTreeMap::new() };
        let scheduler = Arc::new(EgressScheduler::new(&options, Time::ZERO));
        let (mut pool, mut queues) = (Pool::new(), EgressQueues::new(Arc::clone(&scheduler)));
        for number in 0..1000 {
            assert!(queues.push(QueueId::DEFAULT, packet(&mut pool, 60, number), &pool).is_ok());
        }
        // A packet of an unknown queue enters the default queue.
        let refused = queues.push(QueueId::new(7), packet(&mut pool, 60, 1000), &pool);
        assert_eq!(refused.map_err(|packet| number(&packet)), Err(1000));
        assert_eq!((queues.len(), scheduler.counts().next().unwrap().1.tx_errors), (1000, 1));
    }
}
