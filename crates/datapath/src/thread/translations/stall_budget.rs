//! The stall of a receive queue for a learn request, and its time budget.
//!
//! A packet that sends a learn request is forwarded by the current version. Then its receive queue
//! stalls: the thread neither polls the queue nor serves its upcalls until the thread has taken the
//! invalidation that contains the request (rule 8 of [`crate::evict::owner`]). So later packets of
//! the queue match the learned rules. Other queues continue.
//!
//! If two hosts claim one address, every packet learns, which would stall all traffic of their
//! queue. So each receive queue has a *stall budget*, of at most a configured time. The budget
//! grows with the time that the queue runs, and stalls use it up: in the long run, a queue stalls
//! for half of the time. When the budget is used up, packets that would learn are dropped.

use std::time::Duration;

use shunt_pipeline::Time;

use crate::evict::owner::LearnSeq;

/// The learn request that a receive queue waits for, and its budget of stall time.
#[derive(Debug)]
pub(in crate::thread) struct StallBudget {
    /// The learn request for which the queue stalls, and the start of the stall.
    awaited: Option<(LearnSeq, Time)>,
    /// Nanoseconds of stall time left; negative after a stall that took longer.
    left: i64,
    /// The maximum that remains of the budget in nanoseconds.
    left_max: i64,
    /// Time at which the last stall ended, or the budget was last increased.
    resumed_at: Time,
}

impl StallBudget {
    /// Creates a full budget for a receive queue without a stall.
    pub(in crate::thread) fn new(max: Duration, now: Time) -> Self {
        let max = nanoseconds(max);
        Self { awaited: None, left: max, left_max: max, resumed_at: now }
    }

    /// Returns whether the receive queue stalls.
    pub(in crate::thread) const fn is_stalled(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns whether the budget allows a packet to learn and stall the queue.
    pub(in crate::thread) fn allows(&mut self, now: Time) -> bool {
        if self.awaited.is_none() {
            let running = nanoseconds(now.since(self.resumed_at));
            self.left = self.left.saturating_add(running).min(self.left_max);
            self.resumed_at = now;
        }
        self.left >= 0
    }

    /// Stalls the port until a learn request is applied.
    pub(in crate::thread) fn stall_for(&mut self, learn_request: LearnSeq, now: Time) {
        // The queue may stall already: a recirculated packet may learn after an earlier learn
        // request.
        let since = self.awaited.map_or(now, |(_, since)| since);
        self.awaited = Some((learn_request, since));
    }

    /// Ends the stall if the awaited learn request has been applied.
    pub(in crate::thread) fn resume_if(
        &mut self,
        has_learned: impl Fn(LearnSeq) -> bool,
        now: Time,
    ) {
        if let Some((learn_request, since)) = self.awaited
            && has_learned(learn_request)
        {
            self.awaited = None;
            self.left = self.left.saturating_sub(nanoseconds(now.since(since)));
            self.resumed_at = now;
        }
    }
}

/// Returns a duration in nanoseconds.
fn nanoseconds(duration: Duration) -> i64 {
    // A budget of more than 292 years, such as `Duration::MAX`, is as good as unlimited.
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_stalls_at_most_half_the_time() {
        let at = |millis| Time::ZERO.after(Duration::from_millis(millis));
        let mut stall_budget = StallBudget::new(Duration::from_millis(100), at(0));
        let (mut still, mut refused) = (0, 0);
        for (round, now) in (0..10_000).step_by(10).enumerate() {
            // Every packet learns, and each learn request stalls the queue for 9 of 10 ms.
            if stall_budget.allows(at(now)) {
                stall_budget.stall_for(LearnSeq(round as u64), at(now));
                assert!(stall_budget.is_stalled());
                stall_budget.resume_if(|_| true, at(now + 9));
                still += 9;
            } else {
                refused += 1;
            }
            assert!(!stall_budget.is_stalled());
        }
        assert!((4900..=5200).contains(&still), "{still}");
        assert!(refused > 400, "{refused}");
    }

    #[test]
    fn a_queue_waits_for_its_own_request() {
        let mut stall_budget = StallBudget::new(Duration::from_secs(1), Time::ZERO);
        stall_budget.stall_for(LearnSeq(4), Time::ZERO);
        stall_budget.resume_if(|learn_request| learn_request <= LearnSeq(3), Time::ZERO);
        assert!(stall_budget.is_stalled());
        stall_budget.resume_if(|learn_request| learn_request <= LearnSeq(4), Time::ZERO);
        assert!(!stall_budget.is_stalled());
    }
}
