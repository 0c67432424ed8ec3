//! The time after which numbers of tags are reused.
//!
//! A number is reused when no packet can carry the tag any more. A packet with the tag must have
//! entered the device before the removal of the last entry with the tag was confirmed.

use std::{collections::VecDeque, time::Duration};

use shunt_gigaflow::ltm::Ltm;
use shunt_pipeline::Time;

/// The numbers of retired tags, with the times at which they retired.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Number of retired tags that were recorded.
    noted: u64,
    /// The total number of retired tags at each time, oldest first.
    waiting: VecDeque<(Time, u64)>,
}

impl Drain {
    /// Records tags that were retired since the last iteration.
    /// The function also frees the tags that retired before `time`.
    pub(super) fn run_iteration(&mut self, ltm: &mut Ltm, now: Time, time: Duration) {
        let retired = ltm.tags().retired_count();
        if retired > self.noted {
            self.noted = retired;
            self.waiting.push_back((now, retired));
        }
        while let Some((_, count)) = self.waiting.pop_front_if(|(when, _)| now.since(*when) >= time)
        {
            ltm.free_retired(count);
        }
    }
}
