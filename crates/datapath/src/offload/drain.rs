//! When the numbers of tags may be used again: when no packet is under way any more that was in the
//! target, or was handed over by it, before the last entry with the tag was confirmed gone.

use std::{collections::VecDeque, time::Duration};

use shunt_gigaflow::ltm::Ltm;
use shunt_pipeline::Time;

/// Tags that were retired, and when.
#[derive(Debug, Default)]
pub(super) struct Drain {
    noted: u64,
    /// How many had ever been retired at a moment, oldest first.
    waiting: VecDeque<(Time, u64)>,
}

impl Drain {
    /// Notes what was retired since the last turn, and frees what was retired long enough ago.
    pub(super) fn run_iteration(&mut self, ltm: &mut Ltm, (now, time): (Time, Duration)) {
        let retired = ltm.tags().retired_count();
        if retired > self.noted {
            self.noted = retired;
            self.waiting.push_back((now, retired));
        }
        while let Some((_, count)) = self.waiting.pop_front_if(|(when, _)| now.since(*when) >= time)
        {
            ltm.drained(count);
        }
    }
}
