//! Reading a target's counters, and who waits for it.
//!
//! One reading is under way at a time. Who pulls waits for one that began afterwards, and for the
//! removals that were under way then: their answers come with the last counts of what they remove.

use std::{collections::BTreeSet, fmt, time::Duration};

use shunt_gigaflow::offload::Ticket;
use shunt_pipeline::Time;

use crate::command::Reply;

/// Readings, one after the other.
#[derive(Default)]
pub(super) struct Reading {
    current: Option<Current>,
    /// Who waits for the next.
    waiting: Vec<Reply<()>>,
    /// When the last one began.
    began: Time,
}

struct Current {
    began: Time,
    /// What is not answered yet.
    tickets: BTreeSet<Ticket>,
    is_good: bool,
    replies: Vec<Reply<()>>,
}

/// A reading that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) began: Time,
    /// Whether the target answered all of it.
    pub(super) is_good: bool,
}

impl Reading {
    /// Somebody waits for what was counted until now.
    pub(super) fn pull(&mut self, reply: Reply<()>) {
        self.waiting.push(reply);
    }

    /// Whether a reading is to begin.
    pub(super) fn is_due(&self, now: Time, every: Duration) -> bool {
        self.current.is_none() && (!self.waiting.is_empty() || now.since(self.began) >= every)
    }

    /// A reading begins; it is over when all of these are answered.
    pub(super) fn begin(&mut self, now: Time, tickets: impl IntoIterator<Item = Ticket>) {
        self.began = now;
        self.current = Some(Current {
            began: now,
            tickets: tickets.into_iter().collect(),
            is_good: true,
            replies: std::mem::take(&mut self.waiting),
        });
    }

    /// Something was answered, by a reading or not.
    pub(super) fn complete(&mut self, ticket: Ticket, is_good: bool) {
        if let Some(current) = &mut self.current
            && current.tickets.remove(&ticket)
        {
            current.is_good &= is_good;
        }
    }

    /// Ends the reading that is under way if all of it is answered, and answers who waits for it.
    pub(super) fn finish(&mut self) -> Option<Read> {
        let Current { began, is_good, replies, .. } =
            self.current.take_if(|current| current.tickets.is_empty())?;
        replies.into_iter().for_each(|reply| reply(()));
        Some(Read { began, is_good })
    }

    /// Whether the target has been asked for longer than it may take.
    pub(super) fn is_late(&self, now: Time, within: Duration) -> bool {
        self.current.as_ref().is_some_and(|current| now.since(current.began) > within)
    }

    /// Nobody waits any longer.
    pub(super) fn give_up(&mut self) {
        let current = self.current.iter_mut().flat_map(|current| current.replies.drain(..));
        current.chain(self.waiting.drain(..)).for_each(|reply| reply(()));
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("began", &self.began).finish_non_exhaustive()
    }
}
