//! The decision which receive queues move to which packet threads.
//!
//! The plan moves one queue after the other from the thread with the highest load to the one with
//! the lowest. The plan ends when no move makes the variance of the loads smaller. Of the queues of
//! the first thread, the plan takes the one that brings both loads closest together. So few queues
//! move, and a queue that makes a thread busy by itself stays.
//!
//! The queues of the devices of a NUMA node move only between the threads of this node, if there are
//! any ([`numa`](super::numa)).

use crate::threads::load::{history::RxQueueName, numa::NumaNodes};

/// A receive queue, its packet thread, and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveQueueLoad {
    pub(crate) queue: RxQueueName,
    /// Number of the packet thread that has the queue.
    pub(crate) thread: usize,
    /// Time that the queue has taken, in nanoseconds.
    pub(crate) busy_ns: u64,
}

/// A receive queue, and the packet thread to which it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueMove {
    pub(crate) queue: RxQueueName,
    /// Number of the packet thread.
    pub(crate) to: usize,
}

/// The planned moves, with the variance of the loads before and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadPlan {
    /// The receive queues that change their packet threads.
    pub(crate) moves: Vec<QueueMove>,
    /// The variance of the loads before the moves.
    pub(crate) before: u128,
    /// The expected variance of the loads after the moves.
    pub(crate) after: u128,
}

impl LoadPlan {
    /// Plans moves of `queues` between the running packet threads `threads`.
    pub(crate) fn new(queues: &[ReceiveQueueLoad], threads: &[usize], numa: &NumaNodes) -> Self {
        let (mut loads, mut groups) = (vec![0; threads.len()], Vec::<QueueGroup>::new());
        for own in queues {
            let place = threads.iter().position(|thread| *thread == own.thread);
            let Some(place) = place else { continue };
            loads[place] += own.busy_ns;
            let allowed = numa.threads.allowed(threads, numa.of_queue(own.queue));
            match groups.iter_mut().find(|group| group.allowed == allowed) {
                Some(group) => group.add(*own, place),
                None => groups.push(QueueGroup::new(allowed, threads.len(), *own, place)),
            }
        }
        let mut plan = Self { before: variance(&loads), ..Self::default() };
        loop {
            // The group with the largest gap between two threads is first.
            let moves = groups.iter_mut().filter_map(|group| {
                let next = group.next_move(&loads, threads)?;
                Some((loads[next.from] - loads[next.to], group, next))
            });
            let Some((_, group, next)) = moves.max_by_key(|(gap, ..)| *gap) else { break };
            let own = group.queues.swap_remove(next.position);
            for loads in [&mut loads, &mut group.loads] {
                loads[next.from] -= own.busy_ns;
                loads[next.to] += own.busy_ns;
            }
            plan.moves.push(QueueMove { queue: own.queue, to: threads[next.to] });
        }
        plan.after = variance(&loads);
        plan
    }

    /// Returns by how many percent the variance becomes smaller.
    pub(crate) fn improvement(&self) -> u8 {
        let gain = self.before.saturating_sub(self.after).saturating_mul(100);
        u8::try_from(gain / self.before.max(1)).unwrap_or(100)
    }
}

/// The receive queues that may move to the same packet threads.
#[derive(Debug)]
struct QueueGroup {
    /// Numbers of the packet threads that may have the queues.
    allowed: Vec<usize>,
    /// The queues that have not moved.
    queues: Vec<ReceiveQueueLoad>,
    /// The load of each packet thread by the queues of the group, by position.
    loads: Vec<u64>,
}

/// The next move of a queue of a group.
#[derive(Clone, Copy, Debug)]
struct NextMove {
    /// Position of the queue in its group.
    position: usize,
    /// Position of the packet thread that has the queue.
    from: usize,
    /// Position of the packet thread that gets the queue.
    to: usize,
}

impl QueueGroup {
    /// Creates a group with its first queue, which the thread at position `place` has.
    fn new(allowed: Vec<usize>, count: usize, first: ReceiveQueueLoad, place: usize) -> Self {
        let mut group = Self { allowed, queues: Vec::new(), loads: vec![0; count] };
        group.add(first, place);
        group
    }

    /// Adds a queue, which the thread at position `place` has.
    fn add(&mut self, queue: ReceiveQueueLoad, place: usize) {
        self.loads[place] += queue.busy_ns;
        self.queues.push(queue);
    }

    /// Returns the move of a queue to the allowed thread with the lowest load.
    ///
    /// The queue leaves the thread with the highest load among those with load of the group. `loads`
    /// has the loads of all groups together.
    fn next_move(&self, loads: &[u64], threads: &[usize]) -> Option<NextMove> {
        let loaded = (0..loads.len()).filter(|place| self.loads[*place] > 0);
        let from = loaded.max_by_key(|place| loads[*place])?;
        let allowed = (0..loads.len()).filter(|place| self.allowed.contains(&threads[*place]));
        let to = allowed.min_by_key(|place| loads[*place])?;
        let gap = loads[from].checked_sub(loads[to])?;
        let position = best(&self.queues, threads[from], gap)?;
        Some(NextMove { position, from, to })
    }
}

/// Returns the position of the queue of a thread that should move.
///
/// `gap` is the difference of the loads of both threads. Any queue with a smaller load brings them
/// closer together.
fn best(queues: &[ReceiveQueueLoad], thread: usize, gap: u64) -> Option<usize> {
    let moves = |own: &ReceiveQueueLoad| own.thread == thread && (1..gap).contains(&own.busy_ns);
    let all = queues.iter().enumerate().filter(|(_, own)| moves(own));
    let gap_after = |own: &ReceiveQueueLoad| (own.busy_ns * 2).abs_diff(gap);
    all.min_by_key(|(_, own)| gap_after(own)).map(|(position, _)| position)
}

/// Returns the variance of loads, times the number of loads.
fn variance(loads: &[u64]) -> u128 {
    let count = loads.len().max(1) as u128;
    let mean = loads.iter().map(|load| u128::from(*load)).sum::<u128>() / count;
    loads.iter().map(|load| u128::from(*load).abs_diff(mean).pow(2)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::PortNo;
    use shunt_pipeline::BridgeId;

    use super::*;

    /// Returns queues of one port with these threads and loads.
    fn queues(loads: &[(usize, u64)]) -> Vec<ReceiveQueueLoad> {
        let (bridge, port) = (BridgeId::new(1), PortNo::new(1));
        let queue = |(number, (thread, busy_ns)): (u16, &(usize, u64))| ReceiveQueueLoad {
            queue: RxQueueName { bridge, port, number },
            thread: *thread,
            busy_ns: *busy_ns,
        };
        (0..).zip(loads).map(queue).collect()
    }

    /// Returns the plan on a system without NUMA nodes.
    fn planned(queues: &[ReceiveQueueLoad], threads: &[usize]) -> LoadPlan {
        LoadPlan::new(queues, threads, &NumaNodes::default())
    }

    /// Returns queues, each of a port with the number of its node.
    fn queues_on_nodes(loads: &[(u32, usize, u64)]) -> Vec<ReceiveQueueLoad> {
        let queue = |(number, (node, thread, busy_ns)): (u16, &(u32, usize, u64))| {
            let (bridge, port) = (BridgeId::new(1), PortNo::new(*node));
            let queue = RxQueueName { bridge, port, number };
            ReceiveQueueLoad { queue, thread: *thread, busy_ns: *busy_ns }
        };
        (0..).zip(loads).map(queue).collect()
    }

    /// Returns the nodes of threads, and of the devices of [`queues_on_nodes`].
    ///
    /// The device of port 9 has no node.
    fn nodes(threads: &[(usize, u32)]) -> NumaNodes {
        let bridge = BridgeId::new(1);
        let devices = (0..9).map(|node| ((bridge, PortNo::new(node)), node)).collect();
        NumaNodes { threads: threads.iter().copied().collect(), devices }
    }

    /// Plans moves as before there were NUMA nodes.
    fn plan_without_nodes(queues: &[ReceiveQueueLoad], threads: &[usize]) -> LoadPlan {
        let mut left = queues.to_vec();
        left.retain(|own| threads.contains(&own.thread));
        let sum = |thread: &usize| {
            left.iter().filter(|own| own.thread == *thread).map(|own| own.busy_ns).sum::<u64>()
        };
        let mut loads: Vec<_> = threads.iter().map(sum).collect();
        let mut plan = LoadPlan { before: variance(&loads), ..LoadPlan::default() };
        while let Some(from) = (0..loads.len()).max_by_key(|place| loads[*place])
            && let Some(to) = (0..loads.len()).min_by_key(|place| loads[*place])
            && let Some(position) = best(&left, threads[from], loads[from] - loads[to])
        {
            let own = left.swap_remove(position);
            loads[from] -= own.busy_ns;
            loads[to] += own.busy_ns;
            plan.moves.push(QueueMove { queue: own.queue, to: threads[to] });
        }
        plan.after = variance(&loads);
        plan
    }

    /// Returns the queues that a plan moves, and their threads.
    fn moves(plan: &LoadPlan) -> Vec<(u16, usize)> {
        plan.moves.iter().map(|own| (own.queue.number, own.to)).collect()
    }

    #[test]
    fn half_of_load_moves_to_idle_thread() {
        let plan = planned(&queues(&[(0, 40), (0, 30), (0, 10), (0, 20)]), &[0, 1]);
        // 50 and 50: the largest queue moves first, and then the smallest.
        assert_eq!(moves(&plan), [(0, 1), (2, 1)]);
        assert_eq!((plan.before, plan.after, plan.improvement()), (5000, 0, 100));
    }

    #[test]
    fn a_queue_that_fills_a_thread_stays() {
        let plan = planned(&queues(&[(0, 90), (0, 0), (1, 10)]), &[0, 1]);
        assert_eq!((moves(&plan), plan.improvement()), (vec![], 0));
    }

    #[test]
    fn a_stopped_thread_gets_no_queue() {
        let plan = planned(&queues(&[(0, 50), (0, 50), (2, 30)]), &[0, 2]);
        assert_eq!(moves(&plan), [(0, 2)]);
        let plan = planned(&queues(&[(0, 50), (0, 50), (1, 99)]), &[0, 2]);
        assert_eq!(moves(&plan), [(0, 2)]);
    }

    #[test]
    fn equal_loads_and_no_loads_stay() {
        for loads in [vec![], vec![(0, 0), (0, 0)], vec![(0, 7), (1, 7)]] {
            let plan = planned(&queues(&loads), &[0, 1]);
            assert_eq!((moves(&plan), plan.improvement()), (vec![], 0), "{loads:?}");
        }
        assert_eq!(planned(&[], &[]), LoadPlan::default());
    }

    #[test]
    fn queues_move_only_inside_their_node() {
        let nodes = nodes(&[(0, 0), (1, 0), (2, 1), (3, 1)]);
        let threads = [0, 1, 2, 3];
        // The threads of node 1 are idle, and thread 1 is less busy than thread 0.
        let loads = queues_on_nodes(&[(0, 0, 40), (0, 0, 40), (0, 1, 20)]);
        assert_eq!(moves(&LoadPlan::new(&loads, &threads, &nodes)), [(0, 1)]);
        assert_eq!(moves(&planned(&loads, &threads)), [(0, 2)], "without nodes");
        // A device without a node may use the idle threads.
        let loads = queues_on_nodes(&[(0, 0, 40), (9, 0, 40), (0, 1, 40)]);
        assert_eq!(moves(&LoadPlan::new(&loads, &threads, &nodes)), [(1, 2)]);
    }

    #[test]
    fn queues_without_threads_on_their_node_move_anywhere() {
        let nodes = nodes(&[(0, 0), (1, 0), (2, 1)]);
        let loads = queues_on_nodes(&[(1, 0, 40), (1, 0, 40), (1, 1, 30)]);
        assert_eq!(moves(&LoadPlan::new(&loads, &[0, 1, 3], &nodes)), [(0, 3)]);
        // The thread of the node takes a queue that another node has.
        assert_eq!(moves(&LoadPlan::new(&loads, &[0, 1, 2], &nodes)), [(0, 2)]);
    }

    proptest! {
        /// Each queue moves once at most, and the highest load does not grow.
        #[test]
        fn a_plan_never_makes_loads_less_equal(
            loads in prop::collection::vec((0..4_usize, 0..60_000_000_000_u64), 0..40),
        ) {
            let (threads, before) = ([0, 1, 2, 3], queues(&loads));
            let plan = planned(&before, &threads);
            let mut after = before.clone();
            let mut moved = Vec::new();
            for own in &plan.moves {
                prop_assert!(!moved.contains(&own.queue));
                moved.push(own.queue);
                let queue = after.iter_mut().find(|queue| queue.queue == own.queue).unwrap();
                prop_assert_ne!(queue.thread, own.to);
                queue.thread = own.to;
            }
            let load = |queues: &[ReceiveQueueLoad], thread| -> u64 {
                queues.iter().filter(|own| own.thread == thread).map(|own| own.busy_ns).sum()
            };
            let loads_of = |queues: &[ReceiveQueueLoad]| threads.map(|thread| load(queues, thread));
            prop_assert_eq!(variance(&loads_of(&before)), plan.before);
            prop_assert_eq!(variance(&loads_of(&after)), plan.after);
            prop_assert!(plan.after <= plan.before);
            prop_assert_eq!(plan.after < plan.before, !plan.moves.is_empty());
            prop_assert!(loads_of(&after).iter().max() <= loads_of(&before).iter().max());
        }

        /// If all threads are on one node, or on none, the plan is as without nodes.
        ///
        /// Some devices are on this node, and others have no node.
        #[test]
        fn one_node_is_planned_as_no_node(
            loads in prop::collection::vec(
                (prop::sample::select(vec![1, 9]), 0..4_usize, 0..60_u64), 0..30,
            ),
            threads in prop::sample::subsequence(vec![0, 1, 2, 3], 0..=4),
        ) {
            let all = queues_on_nodes(&loads);
            let expected = plan_without_nodes(&all, &threads);
            let one = nodes(&[0, 1, 2, 3].map(|thread| (thread, 1)));
            prop_assert_eq!(&LoadPlan::new(&all, &threads, &one), &expected);
            prop_assert_eq!(&planned(&all, &threads), &expected);
            let without_threads = nodes(&[0, 1, 2, 3].map(|thread| (thread, 2)));
            prop_assert_eq!(&LoadPlan::new(&all, &threads, &without_threads), &expected);
        }

        /// Two nodes with their own queues are each planned as if they were alone.
        #[test]
        fn two_nodes_are_planned_one_by_one(
            loads in prop::collection::vec((0..4_usize, 0..60_u64), 0..30),
        ) {
            let node = |thread: usize| u32::from(thread >= 2);
            let all: Vec<_> =
                loads.iter().map(|(thread, busy)| (node(*thread), *thread, *busy)).collect();
            let all = queues_on_nodes(&all);
            let both = nodes(&[0, 1, 2, 3].map(|thread| (thread, node(thread))));
            let plan = LoadPlan::new(&all, &[0, 1, 2, 3], &both);
            for (threads, node) in [([0, 1], 0), ([2, 3], 1)] {
                let own = plan.moves.iter().filter(|own| own.queue.port == PortNo::new(node));
                let own: Vec<_> = own.copied().collect();
                prop_assert_eq!(own, plan_without_nodes(&all, &threads).moves);
            }
        }

        /// No queue leaves a node that has threads, and the loads become more equal.
        #[test]
        fn no_queue_moves_to_another_node(
            loads in prop::collection::vec((0..4_u32, 0..5_usize, 0..60_u64), 0..30),
            of_threads in prop::collection::vec(prop::option::of(0..3_u32), 5),
        ) {
            let loads: Vec<_> = loads
                .into_iter()
                // The devices of port 9 have no node.
                .map(|(node, thread, busy)| (if node == 3 { 9 } else { node }, thread, busy))
                .collect();
            let bound = of_threads.iter().enumerate();
            let bound: Vec<_> =
                bound.filter_map(|(thread, node)| Some((thread, (*node)?))).collect();
            let (nodes, threads) = (nodes(&bound), [0, 1, 2, 3, 4]);
            let plan = LoadPlan::new(&queues_on_nodes(&loads), &threads, &nodes);
            for own in &plan.moves {
                let device = own.queue.port.number();
                let is_local = |thread: usize| of_threads[thread] == Some(device);
                let has_threads = threads.iter().any(|thread| is_local(*thread));
                prop_assert!(device == 9 || !has_threads || is_local(own.to), "{:?}", own);
            }
            prop_assert_eq!(plan.after < plan.before, !plan.moves.is_empty());
        }
    }
}
