//! The OpenFlow port numbers of new ports.
//!
//! A requested number has precedence over the previous number of another port, and both have
//! precedence over a free number. So numbers do not depend on the order of port names, and stay the
//! same over a restart.

use std::collections::BTreeSet;

use shunt_flow::PortNo;

use super::state::DeclaredPort;

/// The numbers that new ports of a bridge can get.
pub(super) struct NumberCandidates {
    /// Numbers that any port has, requests, or had before.
    claimed: BTreeSet<u32>,
}

impl NumberCandidates {
    /// Collects the numbers in use, and the numbers that ports request or had before.
    pub(super) fn new(in_use: impl Iterator<Item = u32>, ports: &[DeclaredPort]) -> Self {
        let mut claimed: BTreeSet<u32> = in_use.collect();
        claimed.extend(ports.iter().flat_map(|port| [port.options.number, port.last_number]));
        Self { claimed }
    }

    /// Returns the numbers to try for a port, in order.
    ///
    /// The last of them is 0, for which the switch chooses a number.
    pub(super) fn of(&self, requested: u32, last: u32) -> Vec<u32> {
        let mut numbers = vec![requested, last];
        numbers.retain(|number| *number != 0);
        numbers.extend((1..=PortNo::MAX.number()).find(|number| !self.claimed.contains(number)));
        numbers.push(0);
        numbers
    }

    /// Records that a port has got a number.
    pub(super) fn claim(&mut self, number: u32) {
        self.claimed.insert(number);
    }
}
