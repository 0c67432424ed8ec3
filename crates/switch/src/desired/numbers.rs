//! The OpenFlow port numbers of new ports.
//!
//! A requested number has precedence over the previous number of another port, and both have
//! precedence over a free number. So numbers do not depend on the order of port names, and stay the
//! same over a restart.

use std::collections::BTreeSet;

use shunt_flow::PortNo;

use super::state::DeclaredPort;
use crate::ports::bridge_ports::BridgePorts;

/// The numbers that new ports of a bridge can get.
pub(super) struct NumberCandidates {
    /// Numbers that a declared port requests, had before, or has got.
    claimed: BTreeSet<PortNo>,
}

impl NumberCandidates {
    /// Collects the numbers that declared ports request or had before.
    pub(super) fn new(ports: &[DeclaredPort]) -> Self {
        let numbers = ports.iter().flat_map(|port| [port.options.number, port.last_number]);
        Self { claimed: numbers.map(PortNo::new).collect() }
    }

    /// Returns the numbers to try for a port, in order.
    ///
    /// `ports` has the ports of the bridge. The last number is 0, for which the switch chooses one.
    pub(super) fn of(&self, requested: u32, last: u32, ports: Option<&BridgePorts>) -> Vec<u32> {
        let mut numbers = vec![requested, last];
        numbers.retain(|number| *number != 0);
        numbers.extend(ports.map(|ports| ports.free_number(&self.claimed).number()));
        numbers.push(0);
        numbers
    }

    /// Records that a port has got a number.
    pub(super) fn claim(&mut self, number: u32) {
        self.claimed.insert(PortNo::new(number));
    }
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::Time;

    use super::*;
    use crate::{config::PortOptions, ports::port::BridgePort};

    #[test]
    fn a_free_number_is_claimed_by_no_port() {
        let mut ports = BridgePorts::default();
        for number in [1, 2, 5] {
            let number = PortNo::new(number);
            ports.insert(BridgePort::new(PortOptions::default(), number, 1, Time::ZERO));
        }
        let requesting = PortOptions { number: 3, ..PortOptions::default() };
        let mut candidates = NumberCandidates::new(&[DeclaredPort::of(requesting)]);
        assert_eq!(candidates.of(0, 9, Some(&ports)), [9, 4, 0]);
        assert_eq!(candidates.of(3, 0, Some(&ports)), [3, 4, 0]);
        candidates.claim(4);
        assert_eq!(candidates.of(0, 0, Some(&ports)), [6, 0]);
        ports.remove(PortNo::new(1));
        assert_eq!(candidates.of(0, 0, Some(&ports)), [1, 0]);
        assert_eq!(candidates.of(0, 0, None), [0]);
    }
}
