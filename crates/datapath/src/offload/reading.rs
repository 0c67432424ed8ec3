//! Readings of a device's counters, and the pulls that wait for them.
//!
//! One reading is pending at a time. A pull waits for a reading that begins after the pull, and for
//! the removals that are pending at that time: their responses contain the last counts.

use std::{collections::BTreeSet, fmt, time::Duration};

use shunt_gigaflow::offload::Ticket;
use shunt_pipeline::Time;

use crate::command::Reply;

/// Readings, one after the other.
#[derive(Default)]
pub(super) struct Reading {
    /// The reading of counters in progress.
    current: Option<CurrentReading>,
    /// Pulls that wait for the next reading.
    waiting: Vec<Reply<()>>,
    /// The time at which the last reading began.
    began_at: Time,
}

/// The reading of counters that is in progress.
struct CurrentReading {
    /// Time at which the reading began.
    began_at: Time,
    /// The tickets of operations without a response.
    tickets: BTreeSet<Ticket>,
    /// False after an operation of the reading has failed.
    is_complete: bool,
    /// The requests for the result of this reading.
    replies: Vec<Reply<()>>,
}

/// The start and the result of a reading of counters that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct FinishedReading {
    /// Time at which the reading began.
    pub(super) began_at: Time,
    /// True if the device has responded to all operations of the reading.
    pub(super) is_complete: bool,
}

impl Reading {
    /// Adds a pull, which waits for the counts of all hits until now.
    pub(super) fn pull(&mut self, reply: Reply<()>) {
        self.waiting.push(reply);
    }

    /// Returns whether a reading has to begin.
    pub(super) fn is_due(&self, now: Time, every: Duration) -> bool {
        self.current.is_none() && (!self.waiting.is_empty() || now.since(self.began_at) >= every)
    }

    /// Begins a reading, which ends with the responses to all of `tickets`.
    pub(super) fn begin(&mut self, now: Time, tickets: impl IntoIterator<Item = Ticket>) {
        self.began_at = now;
        self.current = Some(CurrentReading {
            began_at: now,
            tickets: tickets.into_iter().collect(),
            is_complete: true,
            replies: std::mem::take(&mut self.waiting),
        });
    }

    /// Records a response to an operation, which may belong to the reading.
    pub(super) fn complete(&mut self, ticket: Ticket, is_complete: bool) {
        if let Some(current) = &mut self.current
            && current.tickets.remove(&ticket)
        {
            current.is_complete &= is_complete;
        }
    }

    /// Finishes the pending reading if all of its responses have arrived.
    /// Replies to the pulls of the reading.
    pub(super) fn finish(&mut self) -> Option<FinishedReading> {
        let CurrentReading { began_at, is_complete, replies, .. } =
            self.current.take_if(|current| current.tickets.is_empty())?;
        replies.into_iter().for_each(|reply| reply(()));
        Some(FinishedReading { began_at, is_complete })
    }

    /// Returns whether the pending reading takes longer than allowed.
    pub(super) fn is_late(&self, now: Time, within: Duration) -> bool {
        self.current.as_ref().is_some_and(|current| now.since(current.began_at) > within)
    }

    /// Replies to all pulls, although no counters were read.
    pub(super) fn abandon(&mut self) {
        let current = self.current.iter_mut().flat_map(|current| current.replies.drain(..));
        current.chain(self.waiting.drain(..)).for_each(|reply| reply(()));
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("began", &self.began_at).finish_non_exhaustive()
    }
}
