//! Ways that are on their way into the target: from the miss of a packet until all of its pieces that
//! were new are confirmed.

use hashbrown::HashMap;
use shunt_pipeline::Time;

/// Ways that are not confirmed yet.
#[derive(Debug, Default)]
pub(super) struct Ways {
    open: HashMap<u64, Open, foldhash::fast::FixedState>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    missed: Time,
    left: usize,
}

impl Ways {
    /// A way of so many new pieces, and its number.
    pub(super) fn begin(&mut self, missed: Time, pieces_count: usize) -> u64 {
        self.count += 1;
        if pieces_count > 0 {
            self.open.insert(self.count, Open { missed, left: pieces_count });
        }
        self.count
    }

    /// A piece of a way is confirmed. Answers when its packet missed, if it was the last.
    pub(super) fn confirm(&mut self, way: u64) -> Option<Time> {
        let open = self.open.get_mut(&way)?;
        open.left = open.left.saturating_sub(1);
        if open.left > 0 {
            return None;
        }
        self.open.remove(&way).map(|open| open.missed)
    }

    /// A way will not be complete.
    pub(super) fn give_up(&mut self, way: u64) {
        self.open.remove(&way);
    }
}
