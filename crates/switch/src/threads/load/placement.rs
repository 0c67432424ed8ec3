//! The decision which packet threads get the receive queues of new ports.
//!
//! As in Open vSwitch (`pmd-rxq-assign=cycles`), a new queue goes to the thread with the least
//! measured load. Of threads with equal loads, the one with the fewest queues gets the queue, and
//! then the one with the lowest number.
//!
//! A queue of a device with a NUMA node goes only to threads of this node, if there are any
//! ([`numa`](super::numa)).
//!
//! The load of a new queue is unknown. So a port with several queues gives a second queue to a
//! thread only when each thread has one. Otherwise all queues of a fast device would share the
//! thread that was idle when the device was added.

use std::{collections::BTreeMap, path::Path};

use shunt_datapath::port::FirstThread;

use crate::threads::load::{
    history::{RxQueueName, SampledQueue},
    numa::{LazyThreadNodes, ThreadNodes},
    plan::ReceiveQueueLoad,
};

/// Places the receive queues of new ports on packet threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePlacer {
    /// The load of each packet thread, by number.
    threads: BTreeMap<usize, OccupiedThread>,
    /// The NUMA nodes of the packet threads.
    nodes: LazyThreadNodes,
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

    /// Returns the placer with the NUMA nodes of threads, from the files below `root`.
    pub(crate) fn with_nodes(self, root: &Path) -> Self {
        Self { nodes: LazyThreadNodes::new(root), ..self }
    }

    /// Begins to place the queues of a port on the packet threads `threads`.
    ///
    /// `node` is the NUMA node of the device of the port.
    pub(crate) fn port<'a>(
        &'a mut self,
        threads: &'a [usize],
        node: Option<u32>,
    ) -> PortPlacement<'a> {
        let nodes = self.nodes.for_device(node).clone();
        PortPlacement { placer: self, threads, node, nodes, own: BTreeMap::new() }
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
    /// The NUMA node of the device.
    node: Option<u32>,
    /// The NUMA nodes of the packet threads.
    nodes: ThreadNodes,
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
    ///
    /// The first part is true for a thread on another NUMA node than the device. So such a thread
    /// gets the queue only if no thread of the node runs.
    fn cost(&self, thread: usize) -> (bool, usize, u64, usize, usize) {
        let own = self.own.get(&thread).copied().unwrap_or_default();
        let OccupiedThread { busy_ns, queues_count } =
            self.placer.threads.get(&thread).copied().unwrap_or_default();
        let is_remote = self.nodes.is_remote(thread, self.node);
        (is_remote, own, busy_ns, queues_count, thread)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let mut port = placer.port(threads, None);
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
        let mut port = placer.port(&[0, 2], None);
        assert_eq!(port.place(FirstThread::At(1)), Some(2));
        assert_eq!(port.place(FirstThread::At(2)), None);
        // A later port counts the queue.
        assert_eq!(place_queues(&mut placer, 1, &[0, 2]), [0]);
    }

    /// Returns files that describe two nodes, with the threads 0 and 1, and 2 and 3.
    fn two_nodes() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for thread in 0..4 {
            let task = root.path().join("proc/self/task").join(thread.to_string());
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("shunt-packet-{thread}\n")).unwrap();
            fs::write(task.join("status"), format!("Cpus_allowed_list:\t{thread}\n")).unwrap();
        }
        for (node, cpus) in [("node0", "0-1\n"), ("node1", "2-3\n")] {
            let folder = root.path().join("sys/devices/system/node").join(node);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpulist"), cpus).unwrap();
        }
        root
    }

    /// Returns the threads of the queues of a new port with a device of a node.
    fn place_on(
        placer: &mut QueuePlacer,
        node: u32,
        queues: usize,
        threads: &[usize],
    ) -> Vec<usize> {
        let mut port = placer.port(threads, Some(node));
        (0..queues).filter_map(|_| port.place(FirstThread::LeastLoaded)).collect()
    }

    #[test]
    fn a_queue_goes_to_a_thread_of_its_node() {
        let root = two_nodes();
        let threads = [0, 1, 2, 3];
        // The threads of node 1 are the busy ones.
        let mut loaded = placer(&[(2, 90), (3, 80), (1, 5)]).with_nodes(root.path());
        assert_eq!(place_on(&mut loaded, 1, 3, &threads), [3, 2, 3]);
        assert_eq!(place_on(&mut loaded, 0, 3, &threads), [0, 1, 0]);
        // Without a node, all threads are alike.
        assert_eq!(place_queues(&mut loaded, 4, &threads), [0, 1, 3, 2]);
    }

    #[test]
    fn a_queue_without_threads_on_its_node_is_placed() {
        let root = two_nodes();
        let mut loaded = placer(&[(0, 90), (1, 5)]).with_nodes(root.path());
        assert_eq!(place_on(&mut loaded, 1, 3, &[0, 1]), [1, 0, 1], "the threads have stopped");
        assert_eq!(place_on(&mut loaded, 7, 2, &[0, 1]), [1, 0], "no such node");
        assert_eq!(place_on(&mut loaded, 1, 2, &[0, 1, 3]), [3, 3], "one thread of the node");
    }

    #[test]
    fn queues_inside_a_node_are_placed_as_without_nodes() {
        let root = two_nodes();
        for queues in [vec![], vec![(2, 5)], vec![(2, 50), (3, 60), (3, 9)], vec![(2, 7), (3, 7)]] {
            let mut with = placer(&queues).with_nodes(root.path());
            let placed = place_on(&mut with, 1, 5, &[0, 1, 2, 3]);
            assert_eq!(placed, place_queues(&mut placer(&queues), 5, &[2, 3]), "{queues:?}");
        }
    }
}
