//! The OpenFlow port numbers of new ports.
//!
//! A requested number has precedence over the previous number of another port, and both have
//! precedence over a free number. So numbers do not depend on the order of port names, and stay the
//! same over a restart.

use std::collections::BTreeSet;

use shunt_switch::config::PortOptions;

use super::desired::DesiredPort;

/// The numbers that new ports of a bridge can get.
pub(super) struct PortNumbers {
    /// Numbers that any port has, requests, or had before.
    claimed: BTreeSet<u32>,
}

impl PortNumbers {
    /// Collects the numbers in use, and the numbers that rows request or had before.
    pub(super) fn new<'a>(
        running: &[PortOptions],
        ports: impl Iterator<Item = &'a DesiredPort>,
    ) -> Self {
        let mut claimed: BTreeSet<u32> = running.iter().map(|port| port.number).collect();
        claimed.extend(ports.flat_map(|port| [port.options.number, port.last_number]));
        Self { claimed }
    }

    /// Returns the ports in the order in which they get their numbers.
    ///
    /// Ports with a requested number are first, followed by ports with a previous number.
    pub(super) fn in_order<'a>(
        ports: impl Iterator<Item = &'a DesiredPort>,
    ) -> Vec<&'a DesiredPort> {
        let mut ports: Vec<_> = ports.collect();
        // The sort is stable: ports of equal precedence stay ordered by name.
        ports.sort_by_key(|port| (port.options.number == 0, port.last_number == 0));
        ports
    }

    /// Returns the numbers to try for a port, in order.
    ///
    /// The last number is 0, for which the switch chooses a number.
    pub(super) fn candidates(&self, port: &DesiredPort) -> Vec<u32> {
        let mut numbers = vec![port.options.number, port.last_number];
        numbers.retain(|number| *number != 0);
        numbers.extend((1..=PORT_NUMBER_MAX).find(|number| !self.claimed.contains(number)));
        numbers.push(0);
        numbers
    }

    /// Records that a port has got a number.
    pub(super) fn claim(&mut self, number: u32) {
        self.claimed.insert(number);
    }
}

/// The largest number that a port can request in OVSDB.
const PORT_NUMBER_MAX: u32 = 65279;
