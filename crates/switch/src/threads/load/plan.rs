//! The decision which receive queues move to which packet threads.
//!
//! The plan moves one queue after the other from the thread with the highest load to the one with
//! the lowest. The plan ends when no move makes the variance of the loads smaller. Of the queues of
//! the first thread, the plan takes the one that brings both loads closest together. So few queues
//! move, and a queue that makes a thread busy by itself stays.

use crate::threads::load::history::RxQueueName;

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
    pub(crate) fn new(queues: &[ReceiveQueueLoad], threads: &[usize]) -> Self {
        let mut left: Vec<ReceiveQueueLoad> =
            queues.iter().filter(|own| threads.contains(&own.thread)).copied().collect();
        let mut loads = vec![0; threads.len()];
        for own in &left {
            if let Some(place) = threads.iter().position(|thread| *thread == own.thread) {
                loads[place] += own.busy_ns;
            }
        }
        let mut plan = Self { before: variance(&loads), ..Self::default() };
        while let Some((from, to)) = extremes(&loads) {
            let Some(position) = best(&left, threads[from], loads[from] - loads[to]) else { break };
            let own = left.swap_remove(position);
            loads[from] -= own.busy_ns;
            loads[to] += own.busy_ns;
            plan.moves.push(QueueMove { queue: own.queue, to: threads[to] });
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

/// Returns the positions of the highest and the lowest load.
///
/// `None` if both are equal.
fn extremes(loads: &[u64]) -> Option<(usize, usize)> {
    let highest = (0..loads.len()).max_by_key(|place| loads[*place])?;
    let lowest = (0..loads.len()).min_by_key(|place| loads[*place])?;
    (loads[highest] > loads[lowest]).then_some((highest, lowest))
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

    /// Returns the queues that a plan moves, and their threads.
    fn moves(plan: &LoadPlan) -> Vec<(u16, usize)> {
        plan.moves.iter().map(|own| (own.queue.number, own.to)).collect()
    }

    #[test]
    fn half_of_load_moves_to_idle_thread() {
        let plan = LoadPlan::new(&queues(&[(0, 40), (0, 30), (0, 10), (0, 20)]), &[0, 1]);
        // 50 and 50: the largest queue moves first, and then the smallest.
        assert_eq!(moves(&plan), [(0, 1), (2, 1)]);
        assert_eq!((plan.before, plan.after, plan.improvement()), (5000, 0, 100));
    }

    #[test]
    fn a_queue_that_fills_a_thread_stays() {
        let plan = LoadPlan::new(&queues(&[(0, 90), (0, 0), (1, 10)]), &[0, 1]);
        assert_eq!((moves(&plan), plan.improvement()), (vec![], 0));
    }

    #[test]
    fn a_stopped_thread_gets_no_queue() {
        let plan = LoadPlan::new(&queues(&[(0, 50), (0, 50), (2, 30)]), &[0, 2]);
        assert_eq!(moves(&plan), [(0, 2)]);
        let plan = LoadPlan::new(&queues(&[(0, 50), (0, 50), (1, 99)]), &[0, 2]);
        assert_eq!(moves(&plan), [(0, 2)]);
    }

    #[test]
    fn equal_loads_and_no_loads_stay() {
        for loads in [vec![], vec![(0, 0), (0, 0)], vec![(0, 7), (1, 7)]] {
            let plan = LoadPlan::new(&queues(&loads), &[0, 1]);
            assert_eq!((moves(&plan), plan.improvement()), (vec![], 0), "{loads:?}");
        }
        assert_eq!(LoadPlan::new(&[], &[]), LoadPlan::default());
    }

    proptest! {
        /// Each queue moves once at most, and the highest load does not grow.
        #[test]
        fn a_plan_never_makes_loads_less_equal(
            loads in prop::collection::vec((0..4_usize, 0..60_000_000_000_u64), 0..40),
        ) {
            let (threads, before) = ([0, 1, 2, 3], queues(&loads));
            let plan = LoadPlan::new(&before, &threads);
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
    }
}
