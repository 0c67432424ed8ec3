//! Tests that compare the token buckets with an oracle, which computes all levels from all sent
//! packets.

use proptest::prelude::*;

use super::*;

/// A packet that was sent.
struct SentPacket {
    /// Time of sending in nanoseconds.
    time: u64,
    /// Index of the egress queue.
    queue: usize,
    /// Length of the packet in bits.
    bits: u64,
    /// True if the packet took tokens of the minimum rate.
    is_assured: bool,
}

/// The sent packets, from which the oracle decides if a queue may send.
struct HtbOracle {
    /// Maximum rate of the port in bits per second.
    max_rate: u64,
    /// The rates of each queue.
    queues: Vec<HtbQueue>,
    /// The packets that were sent, oldest first.
    sent: Vec<SentPacket>,
}

/// Returns the largest level of a bucket, in bits.
fn depth(rate: u64, burst: u64) -> i128 {
    if rate == 0 { 0 } else { i128::from(burst.max(rate / 1000 + 12_112)) }
}

impl HtbOracle {
    /// Returns the tokens of a bucket in billionths of a bit.
    ///
    /// At each packet, the bucket had at most its depth; since then it has gained its rate, and
    /// lost all packets from that packet on.
    fn tokens_left(
        &self,
        rate: u64,
        burst: u64,
        now: u64,
        takes: impl Fn(&SentPacket) -> bool,
    ) -> i128 {
        let full = depth(rate, burst) * BILLION;
        let (mut level, mut lost) = (full, 0);
        for packet in self.sent.iter().rev().filter(|packet| takes(packet)) {
            lost += i128::from(packet.bits) * BILLION;
            level = level.min(full + i128::from(rate) * i128::from(now - packet.time) - lost);
        }
        level
    }

    /// Returns the tokens of the port, which may be negative.
    fn tokens_of_port(&self, now: u64) -> i128 {
        self.tokens_left(self.max_rate, 0, now, |_| true)
    }

    /// Returns the tokens of a queue under its maximum rate.
    fn tokens_below_maximum(&self, queue: usize, now: u64) -> i128 {
        let HtbQueue { max_rate, burst, .. } = self.queues[queue];
        self.tokens_left(max_rate.min(self.max_rate), burst, now, |packet| packet.queue == queue)
    }

    /// Returns the tokens of a queue under its minimum rate.
    fn tokens_below_minimum(&self, queue: usize, now: u64) -> i128 {
        let HtbQueue { min_rate, burst, .. } = self.queues[queue];
        self.tokens_left(min_rate, burst, now, |packet| packet.queue == queue && packet.is_assured)
    }

    /// Returns whether a queue has tokens.
    ///
    /// A queue with tokens of its minimum rate may overdraw the bucket of the port.
    fn may_send(&self, queue: usize, now: u64) -> bool {
        let burst = self.queues.iter().map(|queue| queue.burst).max().unwrap_or(0);
        let overdraft =
            if self.tokens_below_minimum(queue, now) > 0 { i128::from(burst) * BILLION } else { 0 };
        self.tokens_of_port(now) > -overdraft && self.tokens_below_maximum(queue, now) > 0
    }

    /// Returns whether the rank of queue `one` is before that of queue `other`.
    fn precedes(&self, one: usize, other: usize, now: u64) -> bool {
        let (own, others) =
            (self.tokens_below_minimum(one, now) > 0, self.tokens_below_minimum(other, now) > 0);
        own && !others || own == others && self.queues[one].priority < self.queues[other].priority
    }

    /// Returns whether the decision `turn` obeys the rules.
    fn permits(&self, turn: NextQueue, own: QueueSet, waiting: QueueSet, now: u64) -> bool {
        let all = || 0..self.queues.len();
        let is_outranked = |queue: usize| {
            let mut others = all().filter(|other| waiting.contains(*other));
            others.any(|other| self.may_send(other, now) && self.precedes(other, queue, now))
        };
        let has_ready = |now| all().any(|queue| own.contains(queue) && self.may_send(queue, now));
        match turn {
            NextQueue::Index(queue) => {
                own.contains(queue) && self.may_send(queue, now) && !is_outranked(queue)
            }
            NextQueue::After(wait) => {
                let ready = Time::from_nanoseconds(now).after(wait).nanoseconds();
                has_ready(ready) && !has_ready(ready - 1)
            }
            // Another test checks the lead that a queue may have over queues of equal rank.
            NextQueue::OtherThread => {
                let is_first = |queue: usize| self.may_send(queue, now) && !is_outranked(queue);
                let mut others =
                    all().filter(|queue| waiting.contains(*queue) && !own.contains(*queue));
                has_ready(now) && others.any(is_first)
            }
        }
    }

    /// Records a sent packet.
    fn send(&mut self, queue: usize, bits: u64, time: u64) {
        let is_assured = self.tokens_below_minimum(queue, time) > 0;
        self.sent.push(SentPacket { time, queue, bits, is_assured });
    }

    /// Checks that in no interval more bits are sent than rate, burst and one packet.
    fn check_windows(&self, rate: u64, burst: u64, of: impl Fn(&SentPacket) -> bool) {
        let sent: Vec<_> = self.sent.iter().filter(|packet| of(packet)).collect();
        for (first, start) in sent.iter().enumerate() {
            let mut before = 0;
            for packet in &sent[first..] {
                let time = i128::from(packet.time - start.time);
                let limit = depth(rate, burst) * BILLION + i128::from(rate) * time;
                assert!(before * BILLION < limit, "{before} bits in {time} ns, before a packet");
                before += i128::from(packet.bits);
            }
        }
    }
}

/// Generates the rates of a queue.
fn any_queue() -> impl Strategy<Value = HtbQueue> {
    let min_rate = prop_oneof![Just(0), 1_000_u64..2_000_000];
    let max_rate = prop_oneof![Just(u64::MAX), 1_000_u64..20_000_000];
    let burst = prop_oneof![Just(0), 1_u64..100_000];
    (min_rate, max_rate, burst, 0_u32..3).prop_map(|(min_rate, max_rate, burst, priority)| {
        HtbQueue { min_rate, max_rate, burst, priority }
    })
}

/// A step of one of two threads: the time since the previous step, and new packets.
#[derive(Clone, Debug)]
struct Moment {
    /// Time since the previous step in nanoseconds.
    wait: u64,
    /// Index of the thread.
    thread: usize,
    /// The queue and the bits of each new packet.
    packets: Vec<(usize, u64)>,
}

/// Generates a step of a thread.
fn any_moment() -> impl Strategy<Value = Moment> {
    let wait = prop_oneof![Just(0), 0..2_000_u64, 0..2_000_000_u64, 0..50_000_000_u64];
    let bits = prop_oneof![Just(64 * 8), Just(1514 * 8), 480..500_000_u64];
    let packets = prop::collection::vec((0..4_usize, bits), 0..6);
    (wait, 0..2_usize, packets).prop_map(|(wait, thread, packets)| Moment { wait, thread, packets })
}

/// The bits of each waiting packet, by thread and queue.
type WaitingBits = [Vec<Vec<u64>>; 2];

/// Returns the set of queues that have packets.
fn set_of(queues: &[Vec<u64>]) -> QueueSet {
    (0..queues.len()).filter(|index| !queues[*index].is_empty()).collect()
}

proptest! {
    #[test]
    fn service_order_of_queues_equals_the_oracle(
        max_rate in 10_000_u64..50_000_000,
        queues in prop::collection::vec(any_queue(), 1..4),
        moments in prop::collection::vec(any_moment(), 1..40),
    ) {
        let mut tokens = HtbTokens::new(max_rate, &queues, Time::ZERO);
        let count = queues.len();
        let mut oracle = HtbOracle { max_rate, queues, sent: Vec::new() };
        let mut waiting: WaitingBits = [vec![Vec::new(); count], vec![Vec::new(); count]];
        let mut now = 0;
        for Moment { wait, thread, packets } in moments {
            now += wait;
            for (queue, bits) in packets {
                waiting[thread][queue % count].push(bits);
            }
            tokens.fill(Time::from_nanoseconds(now));
            loop {
                let own = set_of(&waiting[thread]);
                if own.is_empty() {
                    break;
                }
                let all = (0..count).filter(|queue| waiting.iter().any(|own| !own[*queue].is_empty()));
                let all = all.collect();
                let turn = tokens.next(own, all);
                prop_assert!(oracle.permits(turn, own, all, now), "{turn:?} at {now}");
                let NextQueue::Index(queue) = turn else { break };
                let bits = waiting[thread][queue].remove(0);
                tokens.take(queue, bits);
                oracle.send(queue, bits, now);
            }
        }
        let burst = oracle.queues.iter().map(|queue| queue.burst).max().unwrap_or(0);
        oracle.check_windows(max_rate, max_rate / 1000 + 12_112 + burst, |_| true);
        for (index, queue) in oracle.queues.iter().enumerate() {
            let rate = queue.max_rate.min(max_rate);
            oracle.check_windows(rate, queue.burst, |packet| packet.queue == index);
        }
    }

    /// Saturated queues get their minimum rates, and together the rate of the port.
    #[test]
    fn saturated_queues_get_their_minimum_rates(
        shares in prop::collection::vec((0_u64..100, 0_u32..3), 1..5),
        spare in 0_u64..100,
    ) {
        /// Rate of the queue in bits per second.
        const RATE: u64 = 10_000_000;
        let total = shares.iter().map(|(share, _)| share).sum::<u64>() + spare;
        let queue = |(share, priority): &(u64, u32)| HtbQueue {
            min_rate: RATE * share / total.max(1),
            priority: *priority,
            ..HtbQueue::DEFAULT
        };
        let queues: Vec<_> = shares.iter().map(queue).collect();
        let sent = saturate(RATE, &queues);
        for (queue, sent) in queues.iter().zip(&sent) {
            let least = (queue.min_rate - queue.min_rate / 50).saturating_sub(2 * FRAME);
            prop_assert!(*sent >= least, "{queue:?} sent {sent} bits in a second");
        }
        let all: u64 = sent.iter().sum();
        prop_assert!(all.abs_diff(RATE) < RATE / 50, "{all}");
    }
}

/// Number of bits of each packet of saturated queues.
const FRAME: u64 = 8_000;

/// Returns the bits that each queue sends in a second with packets in all queues.
fn saturate(max_rate: u64, queues: &[HtbQueue]) -> Vec<u64> {
    saturate_by_threads(max_rate, queues, &[(0..queues.len()).collect()])
}

/// Returns the bits that each queue sends in a second with packets in all queues.
///
/// `threads` are the queues of each thread. In each tenth of a millisecond, another thread is first
/// to send.
fn saturate_by_threads(max_rate: u64, queues: &[HtbQueue], threads: &[QueueSet]) -> Vec<u64> {
    let mut tokens = HtbTokens::new(max_rate, queues, Time::ZERO);
    let mut sent = vec![0; queues.len()];
    let all: QueueSet = (0..queues.len()).collect();
    for tick in 0..10_000 {
        tokens.fill(Time::from_nanoseconds(tick as u64 * 100_000));
        for turn in 0..2 * threads.len() {
            let own = threads[(tick + turn) % threads.len()];
            while let NextQueue::Index(index) = tokens.next(own, all) {
                tokens.take(index, FRAME);
                sent[index] += FRAME;
            }
        }
    }
    sent
}

/// Checks that queues have sent the same number of bits.
fn check_equal(sent: &[u64], expected: u64) {
    assert!(sent.iter().all(|own| own.abs_diff(expected) < 50_000), "{sent:?}, not {expected}");
}

#[test]
fn equal_priorities_share_bandwidth_above_minimum_rates() {
    let queue = |min_rate| HtbQueue { min_rate, ..HtbQueue::DEFAULT };
    for first in [0, 3] {
        let mut queues = [queue(0); 4];
        queues[first] = queue(5_000_000);
        let mut sent = saturate(10_000_000, &queues);
        // Queues with a minimum rate also borrow.
        assert!(sent.remove(first).abs_diff(6_250_000) < 50_000, "{sent:?}");
        check_equal(&sent, 1_250_000);
    }
}

#[test]
fn equal_priorities_share_bandwidth_left_by_higher_ones() {
    let queue = |priority| HtbQueue { priority, min_rate: 0, ..HtbQueue::DEFAULT };
    for first in [0, 3] {
        let mut queues = [queue(1); 4];
        queues[first] = HtbQueue { max_rate: 6_000_000, ..queue(0) };
        let mut sent = saturate(10_000_000, &queues);
        check_equal(&[sent.remove(first)], 6_000_000);
        check_equal(&sent, 1_333_333);
    }
}

#[test]
fn queues_of_several_threads_share_too() {
    let set = |indices: &[usize]| indices.iter().copied().collect::<QueueSet>();
    let mut queues = [HtbQueue { min_rate: 0, ..HtbQueue::DEFAULT }; 5];
    for threads in [[set(&[0, 1]), set(&[2, 3])], [set(&[0]), set(&[1, 2, 3])]] {
        check_equal(&saturate_by_threads(10_000_000, &queues[..4], &threads), 2_500_000);
        queues[4].min_rate = 5_000_000;
        let [first, second] = threads;
        let mut sent = saturate_by_threads(10_000_000, &queues, &[first, second.union(set(&[4]))]);
        check_equal(&[sent.remove(4)], 6_000_000);
        check_equal(&sent, 1_000_000);
    }
}

#[test]
fn an_idle_queue_saves_up_no_bandwidth() {
    let mut tokens = HtbTokens::new(10_000_000, &[HtbQueue::DEFAULT; 2], Time::ZERO);
    let mut sent = [0; 2];
    for tick in 0..20_000 {
        tokens.fill(Time::from_nanoseconds(tick * 100_000));
        let own: QueueSet =
            if tick < 10_000 { [0].into_iter().collect() } else { [0, 1].into_iter().collect() };
        while let NextQueue::Index(index) = tokens.next(own, QueueSet::default()) {
            tokens.take(index, FRAME);
            sent[index] += FRAME;
        }
    }
    // In the first second, only the first queue had packets.
    check_equal(&[sent[0] - 10_000_000, sent[1]], 5_000_000);
}

#[test]
fn burst_of_minimum_rate_leaves_at_once() {
    let bursty = HtbQueue { min_rate: 5_000_000, burst: 8_000_000, ..HtbQueue::DEFAULT };
    let mut tokens = HtbTokens::new(10_000_000, &[HtbQueue::DEFAULT, bursty], Time::ZERO);
    let all: QueueSet = [0, 1].into_iter().collect();
    let mut sent = [0; 2];
    while let NextQueue::Index(index) = tokens.next(all, QueueSet::default()) {
        tokens.take(index, FRAME);
        sent[index] += FRAME;
    }
    assert!((8_000_000..8_100_000).contains(&sent[1]), "{sent:?}");
    // The bucket of the port owes the burst: for 0.8 s the other queue gets only its minimum rate.
    for tick in 1..=8_000 {
        tokens.fill(Time::from_nanoseconds(tick * 100_000));
        while let NextQueue::Index(index) = tokens.next(all, QueueSet::default()) {
            tokens.take(index, FRAME);
            sent[index] += FRAME;
        }
    }
    assert!(sent.iter().sum::<u64>() < 8_000_000 + 8_100_000, "{sent:?}");
}

#[test]
fn equal_priorities_share_borrowed_bandwidth() {
    check_equal(&saturate(10_000_000, &[HtbQueue::DEFAULT; 4]), 2_500_000);
}

#[test]
fn the_most_urgent_queue_borrows_all_bandwidth() {
    let queue = |min_rate, priority| HtbQueue { min_rate, priority, ..HtbQueue::DEFAULT };
    let sent = saturate(10_000_000, &[queue(2_000_000, 1), queue(1_000_000, 0)]);
    assert!(sent[0].abs_diff(2_000_000) < 50_000, "{sent:?}");
    assert!(sent[1].abs_diff(8_000_000) < 50_000, "{sent:?}");
}

#[test]
fn bandwidth_above_a_maximum_rate_goes_to_others() {
    let limited = HtbQueue { max_rate: 3_000_000, ..HtbQueue::DEFAULT };
    let sent = saturate(10_000_000, &[limited, HtbQueue { priority: 9, ..HtbQueue::DEFAULT }]);
    assert!(sent[0].abs_diff(3_000_000) < 50_000, "{sent:?}");
    assert!(sent[1].abs_diff(7_000_000) < 50_000, "{sent:?}");
}

#[test]
fn a_thread_yields_to_a_more_urgent_queue() {
    let queue = |priority| HtbQueue { priority, ..HtbQueue::DEFAULT };
    let mut tokens = HtbTokens::new(1_000_000, &[queue(1), queue(0)], Time::ZERO);
    let set = |indices: &[usize]| indices.iter().copied().collect();
    assert_eq!(tokens.next(set(&[0]), set(&[0, 1])), NextQueue::OtherThread);
    assert_eq!(tokens.next(set(&[0]), set(&[0])), NextQueue::Index(0));
    assert_eq!(tokens.next(set(&[0, 1]), set(&[0, 1])), NextQueue::Index(1));
}
