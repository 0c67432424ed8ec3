//! The pairs of a recorded coflow: each mapper sends to each reducer.
//!
//! The published generator gives a sender one source port in a coflow, and a receiver one port of
//! its service (`add_ports_to_trace.py` of E. Ståhl's *Open-vSwitch-with-Coflow-Aware-Prediction*).
//! So a pair has both of its ends in common with other pairs of the coflow. The pairs are in the
//! order of that generator: all mappers send to the first reducer, then to the second one. A coflow
//! with fewer flows than pairs ends early.
//!
//! Unlike there, source ports are random and not counted from 10,000, and two receivers of a coflow
//! never share a port of a service. A coflow with more flows than pairs continues with other
//! machines in the racks of its mappers.

use super::{
    RecordedCoflow,
    coflow::{
        Endpoints, MACHINES, MACHINES_FROM, MACHINES_PER_RACK, SERVICES_FROM, SOURCE_PORTS, below,
        published_coflows,
    },
    published::Coflows,
};
use crate::RandomStream;

/// The pairs of the mappers and reducers of a coflow.
#[derive(Debug)]
pub(super) struct CoflowPairs<'a> {
    recorded: &'a RecordedCoflow,
    /// The machine of each mapper, with its source port.
    sources: Vec<(u32, u16)>,
    /// The service of each reducer, with its port.
    destinations: Vec<(u32, u16)>,
    /// The position of the next pair.
    next: usize,
}

impl<'a> CoflowPairs<'a> {
    /// Chooses the machines and the ports of a coflow.
    pub(super) fn new(recorded: &'a RecordedCoflow, stream: &mut RandomStream) -> Self {
        let Coflows { pods, ports, base_port, .. } = *published_coflows();
        let mut free: Vec<Vec<u16>> =
            (0..pods).map(|_| (1..ports).map(|port| base_port + port).collect()).collect();
        free.iter_mut().for_each(|ports| stream.shuffle(ports));
        let destination = |reducer: &u32| {
            let pod = reducer % pods;
            // A service has eight ports. A reducer without a free port is left out.
            let port = free.get_mut(usize::try_from(pod).ok()?)?.pop()?;
            Some((SERVICES_FROM + 1 + pod, port))
        };
        let destinations = recorded.reducers.iter().filter_map(destination).collect();
        let mut pairs = Self { recorded, sources: Vec::new(), destinations, next: 0 };
        pairs.choose_sources(stream);
        pairs
    }

    /// Chooses a source for each mapper of the coflow.
    fn choose_sources(&mut self, stream: &mut RandomStream) {
        let source = |mapper: &u32| {
            let rack = mapper % (MACHINES / MACHINES_PER_RACK);
            let machine = rack * MACHINES_PER_RACK + below(stream, MACHINES_PER_RACK);
            let port = SOURCE_PORTS.start + stream.below(SOURCE_PORTS.end - SOURCE_PORTS.start);
            // The range contains only 16-bit numbers.
            (MACHINES_FROM + 1 + machine, u16::try_from(port).unwrap_or(u16::MAX))
        };
        self.sources = self.recorded.mappers.iter().map(source).collect();
        self.next = 0;
    }

    /// Returns the next pair, with the source port of its machine.
    pub(super) fn next_pair(&mut self, stream: &mut RandomStream) -> (Endpoints, u16) {
        if self.next >= self.sources.len() * self.destinations.len() {
            self.choose_sources(stream);
        }
        // A coflow has at least one mapper and one reducer.
        let count = self.sources.len().max(1);
        let source = self.sources.get(self.next % count).copied().unwrap_or_default();
        let destination = self.destinations.get(self.next / count).copied().unwrap_or_default();
        self.next += 1;
        let ((machine, source_port), (service, port)) = (source, destination);
        (Endpoints { machine, service, port }, source_port)
    }
}
