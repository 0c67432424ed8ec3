//! A receive queue that waits: a packet of it has taught, and what is behind it meets what was
//! learned.
//!
//! The packet itself fares as its version says. Then its queue stands still, nothing is received
//! and nothing that waits is served, until the thread has taken the advance that answers the lesson
//! (rule 8 of [`crate::evict::owner`]). Other queues go on.
//!
//! Two hosts that claim one address teach with every packet, and so would stop everything that
//! shares a queue with them. So a port has *patience*: it may stand still for half of all time, and
//! for a while more in a row. When its patience is used up, packets that would teach are dropped.

use std::time::Duration;

use shunt_pipeline::{Time, Traversal};

use super::PacketThread;
use crate::{evict::owner::LearnSeq, metrics::DropReason, packet::buffer::Packet};

/// What a receive queue waits for, and how long it may.
#[derive(Debug)]
pub(super) struct StallBudget {
    /// The lesson that it waits for, and since when.
    awaited: Option<(LearnSeq, Time)>,
    /// Nanoseconds that it may stand still; less than zero: it has stood still for longer.
    left: i64,
    left_max: i64,
    /// When it began to move again.
    moved: Time,
}

impl StallBudget {
    /// A queue that moves.
    pub(super) fn new(max: Duration, now: Time) -> Self {
        let max = nanoseconds(max);
        Self { awaited: None, left: max, left_max: max, moved: now }
    }

    /// Whether the queue stands still.
    pub(super) const fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether a packet may teach and make the queue stand still.
    fn is_left(&mut self, now: Time) -> bool {
        if self.awaited.is_none() {
            let moved = nanoseconds(now.since(self.moved));
            self.left = self.left.saturating_add(moved).min(self.left_max);
            self.moved = now;
        }
        self.left >= 0
    }

    fn wait_for(&mut self, learn_request: LearnSeq, now: Time) {
        // A packet that was parsed again may teach while its queue waits already.
        let since = self.awaited.map_or(now, |(_, since)| since);
        self.awaited = Some((learn_request, since));
    }

    /// Lets the queue move again if the lesson that it waits for is learned.
    fn look(&mut self, has_learned: impl Fn(LearnSeq) -> bool, now: Time) {
        if let Some((learn_request, since)) = self.awaited
            && has_learned(learn_request)
        {
            self.awaited = None;
            self.left = self.left.saturating_sub(nanoseconds(now.since(since)));
            self.moved = now;
        }
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl PacketThread {
    /// Hands on what a packet teaches; its queue waits from now on.
    ///
    /// # Errors
    ///
    /// Why the packet is dropped, as if it had never come.
    pub(super) fn learn(
        &mut self,
        packet: &Packet,
        traversal: &Traversal,
    ) -> Result<(), DropReason> {
        let mut input = self.inputs.iter_mut().find(|input| input.port == packet.ingress);
        if input.as_mut().is_some_and(|input| !input.patience.is_left(self.now)) {
            return Err(DropReason::LearnRateLimited);
        }
        let taught = self.caches.owner.learn(traversal.learnings.clone());
        let learn_request = taught.map_err(|_| DropReason::LearnQueueFull)?;
        self.counters.taught.add(1);
        if let Some(input) = input {
            input.patience.wait_for(learn_request, self.now);
        }
        Ok(())
    }

    /// Lets the queues move whose lessons the thread's version has learned.
    pub(super) fn check_learn_requests(&mut self) {
        let owner = &self.caches.owner;
        for input in &mut self.inputs {
            input.patience.look(|learn_request| owner.has_learned(learn_request), self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_stands_still_for_half_of_all_time_at_most() {
        let at = |millis| Time::ZERO.after(Duration::from_millis(millis));
        let mut patience = StallBudget::new(Duration::from_millis(100), at(0));
        let (mut still, mut refused) = (0, 0);
        for (round, now) in (0..10_000).step_by(10).enumerate() {
            // Every packet teaches, and each lesson takes 9 of 10 milliseconds.
            if patience.is_left(at(now)) {
                patience.wait_for(LearnSeq(round as u64), at(now));
                assert!(patience.is_waiting());
                patience.look(|_| true, at(now + 9));
                still += 9;
            } else {
                refused += 1;
            }
            assert!(!patience.is_waiting());
        }
        assert!((4900..=5200).contains(&still), "{still}");
        assert!(refused > 400, "{refused}");
    }

    #[test]
    fn a_queue_waits_for_its_own_lesson() {
        let mut patience = StallBudget::new(Duration::from_secs(1), Time::ZERO);
        patience.wait_for(LearnSeq(4), Time::ZERO);
        patience.look(|learn_request| learn_request <= LearnSeq(3), Time::ZERO);
        assert!(patience.is_waiting());
        patience.look(|learn_request| learn_request <= LearnSeq(4), Time::ZERO);
        assert!(!patience.is_waiting());
    }
}
