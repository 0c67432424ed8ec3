//! The OpenFlow port numbers of new ports.
//!
//! A requested number has precedence over the last number of another port, and both have precedence over
//! a free number. Numbers therefore do not depend on names, and stay the same over a restart.

use std::collections::BTreeSet;

use shunt_switch::config::PortOptions;

use super::desired::DesiredPort;

/// The numbers that new ports of a bridge can get.
pub(super) struct PortNumbers {
    /// Numbers that a port has, requests, or had before.
    claimed: BTreeSet<u32>,
}

impl PortNumbers {
    /// Collects the numbers that are in use, and those that rows claim.
    pub(super) fn new<'a>(
        running: &[PortOptions],
        ports: impl Iterator<Item = &'a DesiredPort>,
    ) -> Self {
        let mut claimed: BTreeSet<u32> = running.iter().map(|port| port.number).collect();
        claimed.extend(ports.flat_map(|port| [port.options.number, port.last_number]));
        Self { claimed }
    }

    /// Returns the ports in the order of their claims.
    ///
    /// Ports with a requested number come first, then ports with a last number.
    pub(super) fn in_order<'a>(
        ports: impl Iterator<Item = &'a DesiredPort>,
    ) -> Vec<&'a DesiredPort> {
        let mut ports: Vec<_> = ports.collect();
        // A stable sort: ports with equal claims keep their order by name.
        ports.sort_by_key(|port| (port.options.number == 0, port.last_number == 0));
        ports
    }

    /// Returns the numbers to try for a port. The list ends with 0: the switch chooses.
    pub(super) fn candidates(&self, port: &DesiredPort) -> Vec<u32> {
        let mut numbers = vec![port.options.number, port.last_number];
        numbers.retain(|number| *number != 0);
        numbers.extend((1..=PORT_NUMBER_MAX).find(|number| !self.claimed.contains(number)));
        numbers.push(0);
        numbers
    }

    /// Notes that a port has got a number.
    pub(super) fn claim(&mut self, number: u32) {
        self.claimed.insert(number);
    }
}

/// The largest number that a port can request in OVSDB.
const PORT_NUMBER_MAX: u32 = 65279;
