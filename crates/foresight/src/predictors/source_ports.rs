//! The source ports of clients that add a constant to the source port for each flow.
//!
//! A client that follows algorithm 3 or 4 of RFC 6056 adds a constant to the source port of its
//! last flow to the same server. The table remembers the last source port of a client, and the
//! added constant as its *step*. A step is certain as soon as two successive flows had it.
//!
//! Linux was a client with a step of 2 until version 5.17. Since then Linux adds a random number
//! for TCP, so its source ports are not certain.

use std::{collections::BTreeMap, time::Duration};

use super::{flow_ends::FlowEnds, scan_hand::ScanHand};

/// The last source port of each client to each service.
#[derive(Debug)]
pub(super) struct SourcePortTable {
    sequences: BTreeMap<ClientService, PortSequence>,
    capacity: usize,
    /// The last client and service that were considered for removal.
    hand: ScanHand<ClientService>,
}

/// A client and the service that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientService {
    bridge: u64,
    protocol: u128,
    source: u128,
    destination: u128,
    port: u128,
}

/// The last source port of a client, and the step to its next one.
#[derive(Clone, Copy, Debug)]
struct PortSequence {
    /// The last source port that the client used.
    last: u128,
    /// The difference to the source port before.
    step: u128,
    is_certain: bool,
    /// The source port of the last forecast, and the time until it is expected.
    forecast: Option<(u128, Duration)>,
    /// True when the client opens a flow.
    /// The search for an entry to remove clears it, and removes entries without it.
    is_used: bool,
}

/// Largest step of a client.
const STEP_MAX: u128 = 16;

/// Maximum number of forecasts beyond the last flow.
const AHEAD_MAX: u128 = 8;

/// Number of entries that are examined to find an entry to remove.
const CANDIDATES_MAX: usize = 8;

impl SourcePortTable {
    /// Returns an empty table with room for `capacity` clients, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { sequences: BTreeMap::new(), capacity: capacity.max(1), hand: ScanHand::new() }
    }

    /// Returns the number of remembered pairs of client and service.
    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Learns the source port of a new flow.
    pub(super) fn observe(&mut self, flow: &FlowEnds) {
        let client = ClientService::of(flow);
        if let Some(sequence) = self.sequences.get_mut(&client) {
            sequence.advance(flow.source_port);
            return;
        }
        self.make_room();
        self.sequences.insert(client, PortSequence::new(flow.source_port));
    }

    /// Returns the next source port of a client; `None` if it is not certain.
    ///
    /// The client and the service are the addresses and the destination port of `flow`. If the flow
    /// does not arrive, the next call before `expected_until` returns the port after this one.
    pub(super) fn next(
        &mut self,
        flow: &FlowEnds,
        now: Duration,
        expected_until: Duration,
    ) -> Option<u128> {
        let sequence = self.sequences.get_mut(&ClientService::of(flow))?;
        if !sequence.is_certain {
            return None;
        }
        let pending = sequence.forecast.filter(|(_, until)| now < *until);
        let from = pending.map_or(sequence.last, |(port, _)| port.max(sequence.last));
        let port = from + sequence.step;
        let is_near = port - sequence.last <= sequence.step * AHEAD_MAX;
        let is_port = port <= u128::from(u16::MAX);
        (is_near && is_port).then(|| {
            sequence.forecast = Some((port, expected_until));
            port
        })
    }

    /// Removes an entry that was not used lately, if the table has too many entries.
    fn make_room(&mut self) {
        if self.sequences.len() < self.capacity {
            return;
        }
        for _ in 0..CANDIDATES_MAX {
            let Some(client) = self.hand.advance(&self.sequences) else { return };
            let sequence = self.sequences.get_mut(&client);
            if sequence.is_some_and(|own| !std::mem::take(&mut own.is_used)) {
                self.sequences.remove(&client);
                return;
            }
        }
        // All of the ports were used lately.
        if let Some(client) = self.hand.advance(&self.sequences) {
            self.sequences.remove(&client);
        }
    }
}

impl ClientService {
    /// Returns the client and the service of a flow.
    const fn of(flow: &FlowEnds) -> Self {
        Self {
            bridge: flow.bridge,
            protocol: flow.protocol,
            source: flow.source,
            destination: flow.destination,
            port: flow.destination_port,
        }
    }
}

impl PortSequence {
    /// Returns a sequence after the first source port, with an unknown step.
    const fn new(port: u128) -> Self {
        Self { last: port, step: 0, is_certain: false, forecast: None, is_used: false }
    }

    /// Records the source port of the next flow.
    fn advance(&mut self, port: u128) {
        self.is_used = true;
        let step = port.checked_sub(self.last).filter(|step| (1..=STEP_MAX).contains(step));
        match step {
            Some(step) => {
                // Several flows at once can skip ports, and the step is still certain.
                self.is_certain = step == self.step || self.is_certain && step % self.step == 0;
                if !self.is_certain {
                    self.step = step;
                }
            }
            // The packet of an older flow came late. This packet gives no information about the
            // next port.
            None if port <= self.last && self.last - port <= STEP_MAX => return,
            None => (self.step, self.is_certain) = (0, false),
        }
        self.last = port;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time after which a forecast flow arrives.
    const SOON: Duration = Duration::from_millis(1);

    /// Returns the ends of a flow of a client.
    fn flow(source: u128, source_port: u128) -> FlowEnds {
        FlowEnds {
            bridge: 1,
            is_ipv4: true,
            protocol: 17,
            source,
            destination: 2,
            source_port,
            destination_port: 53,
        }
    }

    /// Returns a table after flows with some source ports.
    fn table(ports: &[u128]) -> SourcePortTable {
        let mut table = SourcePortTable::new(8);
        ports.iter().for_each(|port| table.observe(&flow(1, *port)));
        table
    }

    #[test]
    fn a_port_step_is_learned_from_two_flows() {
        let next = |ports: &[u128]| table(ports).next(&flow(1, 0), Duration::ZERO, SOON);
        assert_eq!(next(&[40_000]), None);
        assert_eq!(next(&[40_000, 40_002]), None);
        assert_eq!(next(&[40_000, 40_002, 40_004]), Some(40_006));
        assert_eq!(next(&[40_000, 40_002, 40_004, 40_008]), Some(40_010));
        assert_eq!(next(&[40_000, 40_002, 40_004, 51_000]), None);
        assert_eq!(next(&[40_000, 40_002, 40_004, 40_002]), Some(40_006));
        assert_eq!(next(&[65_530, 65_532, 65_534]), None);
    }

    #[test]
    fn forecasts_in_a_row_name_successive_ports() {
        let mut table = table(&[40_000, 40_002, 40_004]);
        let flow = flow(1, 0);
        assert_eq!(table.next(&flow, Duration::ZERO, SOON), Some(40_006));
        assert_eq!(table.next(&flow, Duration::ZERO, SOON), Some(40_008));
        // The forecast flows have not arrived in time.
        assert_eq!(table.next(&flow, SOON, SOON * 2), Some(40_006));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_used_clients() {
        let mut table = table(&[40_000, 40_002, 40_004]);
        for source in 2..1000 {
            table.observe(&flow(source, 50_000));
            table.observe(&flow(1, 40_004));
            assert!(table.len() <= 8);
        }
        assert_eq!(table.next(&flow(1, 0), Duration::ZERO, SOON), Some(40_006));
    }
}
