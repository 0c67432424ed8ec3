//! Tests the list of ready queues with a model of a level-triggered epoll set.

use proptest::{collection::vec, prelude::*};

use super::*;

/// A step of the model: an event of a receive queue or of the packet thread.
#[derive(Clone, Copy, Debug)]
enum Event {
    Add(ReadySource),
    /// Packets arrive at a receive queue.
    Arrive(usize, usize),
    /// The thread runs an iteration; polls return at most this number of packets.
    Iterate(usize),
    /// A signal interrupts the epoll query of the next iteration.
    Interrupt,
    /// The next poll of a receive queue returns nothing although the queue has packets.
    Hide(usize),
    Close(usize),
    Remove(usize),
}

/// Generates an event of a receive queue.
fn event() -> impl Strategy<Value = Event> {
    let source = prop_oneof![
        4 => Just(ReadySource::Descriptor),
        1 => Just(ReadySource::Polling),
    ];
    prop_oneof![
        3 => source.prop_map(Event::Add),
        8 => (any::<usize>(), 1..80_usize).prop_map(|(queue, count)| Event::Arrive(queue, count)),
        8 => (1..=BURST).prop_map(Event::Iterate),
        1 => Just(Event::Interrupt),
        2 => any::<usize>().prop_map(Event::Hide),
        1 => any::<usize>().prop_map(Event::Close),
        1 => any::<usize>().prop_map(Event::Remove),
    ]
}

/// A receive queue of the model.
#[derive(Clone, Copy, Debug)]
struct ModelQueue {
    /// Number of the queue.
    name: usize,
    /// The source in the epoll set.
    source: ReadySource,
    /// Number of packets in the queue.
    packets: usize,
    /// True if the kernel reports no event for the queue.
    is_hidden: bool,
    /// Number of iterations since the last poll in which the queue had packets.
    waited: usize,
}

/// A packet thread with its receive queues, and the epoll set of the kernel.
#[derive(Default)]
struct Model {
    /// The list of ready queues under test.
    ready: ReadyList,
    /// The receive queues of the model.
    queues: Vec<ModelQueue>,
    /// True if the wait ends by a signal.
    is_interrupted: bool,
    /// Index of the queue from which on the next epoll query looks for packets.
    first_named: usize,
    /// Number of packets that were added.
    added: usize,
}

impl Model {
    /// Lists queues that have packets at this time, as a query of the epoll set does.
    fn ask(&mut self) {
        self.ready.reset_polls();
        if std::mem::take(&mut self.is_interrupted) {
            // The query returns nothing, so the waiting time of all queues begins again.
            self.queues.iter_mut().for_each(|queue| queue.waited = 0);
            return;
        }
        let count = self.queues.len();
        let mut named = 0;
        for step in 0..count {
            let index = (self.first_named + step) % count;
            let queue = &self.queues[index];
            if queue.source == ReadySource::Descriptor && queue.packets > 0 {
                self.ready.list(index);
                named += 1;
                if named == EVENTS_MAX {
                    self.first_named = index + 1;
                    break;
                }
            }
        }
    }

    /// Runs an iteration of the packet thread; returns the number of packets received.
    fn iterate(&mut self, burst: usize) -> usize {
        self.queues.iter_mut().for_each(|queue| queue.waited += usize::from(queue.packets > 0));
        if self.ready.must_query_epoll() {
            self.ask();
        }
        let received = self.poll_round(burst);
        if received > 0 || !self.ready.may_ask_again() {
            return received;
        }
        self.ask();
        self.poll_round(burst)
    }

    /// Polls every ready queue once, and returns the number of packets.
    fn poll_round(&mut self, burst: usize) -> usize {
        self.ready.begin();
        let (mut received, mut polls) = (0, 0);
        while let Some(index) = self.ready.next() {
            polls += 1;
            let queue = &mut self.queues[index];
            assert_ne!(queue.source, ReadySource::Closed, "a closed queue is polled");
            let count =
                if std::mem::take(&mut queue.is_hidden) { 0 } else { queue.packets.min(burst) };
            queue.packets -= count;
            queue.waited = 0;
            received += count;
            self.ready.polled(index, count > 0);
        }
        assert!(polls <= POLLS_PER_ITERATION);
        received
    }

    /// Applies an event to the list and to the model.
    fn apply(&mut self, event: Event) {
        let count = self.queues.len();
        match event {
            Event::Add(source) => {
                self.added += 1;
                let name = self.added;
                self.ready.add(source);
                let queue = ModelQueue { name, source, packets: 0, is_hidden: false, waited: 0 };
                self.queues.push(queue);
            }
            Event::Iterate(burst) => {
                self.iterate(burst);
            }
            Event::Interrupt => self.is_interrupted = true,
            _ if count == 0 => {}
            Event::Arrive(queue, packets) => self.queues[queue % count].packets += packets,
            Event::Hide(queue) => self.queues[queue % count].is_hidden = true,
            Event::Close(queue) => {
                self.ready.close(queue % count);
                let closed = &mut self.queues[queue % count];
                (closed.source, closed.packets) = (ReadySource::Closed, 0);
            }
            Event::Remove(queue) => {
                self.ready.swap_remove(queue % count);
                self.queues.swap_remove(queue % count);
            }
        }
        for queue in &mut self.queues {
            if queue.source == ReadySource::Closed {
                queue.packets = 0;
            }
        }
        self.check();
    }

    /// Checks the invariants that hold between all steps.
    fn check(&self) {
        let has_polled = self.queues.iter().any(|queue| queue.source == ReadySource::Polling);
        assert!(!(has_polled && self.ready.is_empty()), "a thread sleeps that must poll");
        let mut listed: Vec<u32> = self.ready.order.iter().copied().collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), self.ready.order.len(), "a queue is listed twice");
        assert!(listed.iter().all(|index| (*index as usize) < self.queues.len()));
        for (queue, state) in self.queues.iter().zip(&self.ready.queues) {
            assert_eq!(queue.source, state.source, "queue {} has changed", queue.name);
        }
        // Epoll returns a queue at the latest after all other queues, and the thread polls the list
        // in order.
        let bound = 4 + POLLS_PER_QUERY + 4 * self.queues.len() / POLLS_PER_ITERATION;
        assert!(self.queues.iter().all(|queue| queue.waited <= bound), "a queue starves");
    }
}

proptest! {
    /// A queue with packets wakes a sleeping thread, which receives all packets.
    #[test]
    fn every_packet_is_received_or_wakes_the_thread(events in vec(event(), 0..200)) {
        let mut model = Model::default();
        events.into_iter().for_each(|event| model.apply(event));
        let (packets, queues) = (
            model.queues.iter().map(|queue| queue.packets).sum::<usize>(),
            model.queues.len(),
        );
        // Each iteration receives a packet or finds an empty queue. A hidden queue needs one
        // iteration more.
        let mut left = packets + 4 * queues + 8;
        while model.queues.iter().any(|queue| queue.packets > 0) {
            prop_assert!(left > 0, "{:?} keep packets", model.queues);
            left -= 1;
            if model.ready.is_empty() {
                // The thread sleeps in an epoll query, which returns queues with packets.
                model.ask();
            }
            model.iterate(BURST);
            model.check();
        }
    }
}

/// The thread polls each queue once before it polls any queue again.
#[test]
fn a_hundred_busy_queues_are_served_in_turn() {
    let mut model = Model::default();
    for _ in 0..100 {
        model.apply(Event::Add(ReadySource::Descriptor));
    }
    (0..100).for_each(|queue| model.apply(Event::Arrive(queue, 1_000_000)));
    let left =
        |model: &Model| -> Vec<usize> { model.queues.iter().map(|queue| queue.packets).collect() };
    for _ in 0..1000 {
        model.iterate(BURST);
        let left = left(&model);
        let (least, most) = (left.iter().min().unwrap(), left.iter().max().unwrap());
        // Epoll returns the hundred queues in two queries, so some queues start one query later.
        assert!(most - least <= 3 * BURST, "{least} to {most}");
    }
    let received: usize = left(&model).iter().map(|left| 1_000_000 - left).sum();
    assert_eq!(received, 1000 * POLLS_PER_ITERATION * BURST, "each iteration uses its polls");
}

#[test]
fn one_busy_queue_costs_few_queries() {
    let mut ready = ReadyList::default();
    ready.add(ReadySource::Descriptor);
    ready.list(0);
    let mut queries = 0;
    for _ in 0..POLLS_PER_QUERY * 10 {
        if ready.must_query_epoll() {
            queries += 1;
            ready.reset_polls();
        }
        ready.begin();
        assert_eq!(ready.next(), Some(0));
        ready.polled(0, true);
    }
    assert_eq!(queries, 9);
}
