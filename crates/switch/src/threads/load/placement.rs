//! The decision which packet threads get the receive queues of new ports.
//!
//! As in Open vSwitch (`pmd-rxq-assign=cycles`), a new queue goes to the thread with the least
//! measured load. Of threads with equal loads, the one with the fewest queues gets the queue, and
//! then the one with the lowest number.
//!
//! The load of a new queue is unknown. So a port with several queues gives a second queue to a
//! thread only when each thread has one. Otherwise all queues of a fast device would share the
//! thread that was idle when the device was added.

use std::collections::BTreeMap;

use shunt_datapath::port::FirstThread;

use crate::threads::load::{
    history::{RxQueueName, SampledQueue},
    plan::ReceiveQueueLoad,
};

/// Places the receive queues of new ports on packet threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePlacer {
    /// The load of each packet thread, by number.
    threads: BTreeMap<usize, OccupiedThread>,
}

/// The load and the number of receive queues of a packet thread.
#[derive(Clone, Copy, Debug, Default)]
struct OccupiedThread {
    /// Time that the receive queues have taken, in nanoseconds.
    busy_ns: u64,
    /// Number of receive queues of the packet thread.
    queues_count: usize,
}

impl QueuePlacer {
    /// Creates a placer from the queues that threads have, and their loads.
    pub(crate) fn new(
        queues: &BTreeMap<RxQueueName, SampledQueue>,
        loads: &[ReceiveQueueLoad],
    ) -> Self {
        let mut placer = Self::default();
        for own in queues.values() {
            placer.thread(own.thread).queues_count += 1;
        }
        for own in loads {
            let thread = placer.thread(own.thread);
            thread.busy_ns = thread.busy_ns.saturating_add(own.busy_ns);
        }
        placer
    }

    /// Begins to place the queues of a port on the packet threads `threads`.
    pub(crate) const fn port<'a>(&'a mut self, threads: &'a [usize]) -> PortPlacement<'a> {
        PortPlacement { placer: self, threads, own: BTreeMap::new() }
    }

    /// Returns the load of a thread.
    fn thread(&mut self, number: usize) -> &mut OccupiedThread {
        self.threads.entry(number).or_default()
    }
}

/// Places the receive queues of one port.
#[derive(Debug)]
pub(crate) struct PortPlacement<'a> {
    /// The loads, which each placed queue increases.
    placer: &'a mut QueuePlacer,
    /// The packet threads that may get queues.
    threads: &'a [usize],
    /// Number of queues of the port, by packet thread.
    own: BTreeMap<usize, usize>,
}

impl PortPlacement<'_> {
    /// Returns the packet thread of the next queue.
    ///
    /// `None` if the port has no such thread.
    pub(crate) fn place(&mut self, first: FirstThread) -> Option<usize> {
        let thread = match first {
            FirstThread::At(position) => *self.threads.get(position)?,
            FirstThread::LeastLoaded => {
                self.threads.iter().copied().min_by_key(|thread| self.cost(*thread))?
            }
        };
        *self.own.entry(thread).or_default() += 1;
        self.placer.thread(thread).queues_count += 1;
        Some(thread)
    }

    /// Returns the cost of a thread; the thread with the lowest cost gets the queue.
    fn cost(&self, thread: usize) -> (usize, u64, usize, usize) {
        let own = self.own.get(&thread).copied().unwrap_or_default();
        let OccupiedThread { busy_ns, queues_count } =
            self.placer.threads.get(&thread).copied().unwrap_or_default();
        (own, busy_ns, queues_count, thread)
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::PortNo;
    use shunt_pipeline::BridgeId;

    use super::*;

    /// Returns a placer with a queue for each thread and load.
    fn placer(queues: &[(usize, u64)]) -> QueuePlacer {
        let (bridge, port) = (BridgeId::new(1), PortNo::new(1));
        let named = (0..).zip(queues).map(|(number, (thread, busy_ns))| {
            (
                RxQueueName { bridge, port, number },
                SampledQueue { thread: *thread, busy_ns: *busy_ns },
            )
        });
        let sampled: BTreeMap<_, _> = named.collect();
        let load = |(queue, own): (&RxQueueName, &SampledQueue)| ReceiveQueueLoad {
            queue: *queue,
            thread: own.thread,
            busy_ns: own.busy_ns,
        };
        let loads: Vec<_> = sampled.iter().map(load).collect();
        QueuePlacer::new(&sampled, &loads)
    }

    /// Returns the threads of the queues of a new port.
    fn place_queues(placer: &mut QueuePlacer, queues: usize, threads: &[usize]) -> Vec<usize> {
        let mut port = placer.port(threads);
        (0..queues).filter_map(|_| port.place(FirstThread::LeastLoaded)).collect()
    }

    #[test]
    fn a_new_queue_gets_the_least_loaded_thread() {
        for (queues, expected) in [
            (vec![], 0),
            (vec![(0, 5)], 1),
            (vec![(0, 5), (1, 9), (2, 4)], 2),
            // Many queues with little load.
            (vec![(0, 50), (1, 60), (2, 9), (2, 9), (2, 9)], 2),
            // Equal loads: the fewest queues, and then the lowest number.
            (vec![(0, 10), (1, 5), (1, 5), (2, 10)], 0),
            (vec![(0, 0), (1, 0), (2, 0)], 0),
            (vec![(0, 0), (0, 0), (1, 0)], 2),
        ] {
            assert_eq!(place_queues(&mut placer(&queues), 1, &[0, 1, 2]), [expected], "{queues:?}");
        }
    }

    #[test]
    fn ports_that_are_added_together_are_spread() {
        let mut placer = placer(&[]);
        let ports: Vec<_> = (0..5).flat_map(|_| place_queues(&mut placer, 1, &[0, 1, 2])).collect();
        assert_eq!(ports, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn the_queues_of_a_port_are_spread() {
        let mut placer = placer(&[(0, 90), (1, 10), (2, 50)]);
        assert_eq!(place_queues(&mut placer, 5, &[0, 1, 2]), [1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_stopped_thread_gets_no_new_queue() {
        let mut placer = placer(&[(1, 90), (3, 10)]);
        assert_eq!(place_queues(&mut placer, 3, &[1, 3]), [3, 1, 3]);
        assert_eq!(place_queues(&mut placer, 3, &[]), Vec::<usize>::new());
    }

    #[test]
    fn a_port_may_choose_the_thread() {
        let mut placer = placer(&[(2, 90)]);
        let mut port = placer.port(&[0, 2]);
        assert_eq!(port.place(FirstThread::At(1)), Some(2));
        assert_eq!(port.place(FirstThread::At(2)), None);
        // A later port counts the queue.
        assert_eq!(place_queues(&mut placer, 1, &[0, 2]), [0]);
    }
}
