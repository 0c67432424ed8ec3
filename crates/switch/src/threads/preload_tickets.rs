//! The tickets of preloads, by preload number.

use std::{collections::VecDeque, sync::Arc};

use shunt_datapath::forecast::ForecastTicket;

/// The tickets of the newest preloads.
#[derive(Default)]
pub(crate) struct PreloadTickets {
    /// The tickets of the preloads, oldest first.
    tickets: VecDeque<Arc<ForecastTicket>>,
    /// Number of tickets that were removed, oldest first.
    forgotten: u64,
}

/// Maximum number of tickets that are kept.
pub(crate) const TICKETS_MAX: usize = 64;

impl PreloadTickets {
    /// Starts a preload, and returns its number.
    pub(crate) fn start(&mut self) -> u64 {
        if self.tickets.len() >= TICKETS_MAX {
            self.tickets.pop_front();
            self.forgotten += 1;
        }
        self.tickets.push_back(Arc::default());
        self.forgotten + self.tickets.len() as u64
    }

    /// Returns the ticket of a preload.
    ///
    /// `None` if no preload has this number, or its ticket was removed.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<ForecastTicket>> {
        let index = number.checked_sub(self.forgotten)?.checked_sub(1)?;
        self.tickets.get(usize::try_from(index).ok()?).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_preloads_are_kept() {
        let mut tickets = PreloadTickets::default();
        assert!(tickets.find(0).is_none() && tickets.find(1).is_none());
        let first = tickets.start();
        tickets.find(first).unwrap().count_sent(7);
        for _ in 1..TICKETS_MAX {
            tickets.start();
        }
        assert_eq!(tickets.find(first).unwrap().counts().sent, 7);
        let last = tickets.start();
        assert_eq!(tickets.find(last).unwrap().counts().sent, 0);
        assert!(tickets.find(first).is_none() && tickets.find(last + 1).is_none());
    }
}
