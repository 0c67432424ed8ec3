//! Coflows: flows of a cluster that belong to one application.
//!
//! An application opens many flows: a *base* flow, and *associated* flows that follow it to or from
//! the same machines. A switch that knows these relations can install entries before the first
//! packet. The workload is by E. Ståhl, M. Chiesa, S. Ferlin and E. Chaudron, *On the Benefits of
//! Predictable Traffic in Virtual Switches*, ANRW 2025, section 4: UDP from the machines of a
//! cluster to services with eight pods each, with base flows to port 2100.
//!
//! *Coflowiness* is the share of the associated flows of each coflow that have a common endpoint
//! with the base flow, and are therefore predictable. All other associated flows have no common
//! endpoint. The sizes of coflows were not published: here the k-th coflow has a share of 1 / k of
//! the flows.
//!
//! With a [`CoflowTrace`], the trace determines sizes, arrivals and machines of the coflows, and the
//! predictable flows of a coflow are [pairs](CoflowPairs) of its mappers and reducers.

use std::{collections::HashSet, ops::Range};

use shunt_flow::{FieldId, FlowKey, PortNo};

use super::{
    CoflowTrace, RecordedCoflow, TrafficLength,
    coflow_pairs::CoflowPairs,
    flow::{CoflowRole, Flow},
    published::{Coflows, published},
    schedule::Appearance,
    sizes::{FlowSizes, scale_to_packets},
};
use crate::{RandomStream, Seed, TrafficError, Zipf, traffic::Locality};

/// Number of sending machines, as in the trace of the published workload.
pub(super) const MACHINES: u32 = 3000;
/// Number of machines of a rack: the published trace has 150 racks.
pub(super) const MACHINES_PER_RACK: u32 = 20;
/// The address 10.0.0.0; the first machine has the next address.
pub(super) const MACHINES_FROM: u32 = 0x0a00_0000;
/// The address 2.0.0.0; the first service has the next address.
pub(super) const SERVICES_FROM: u32 = 0x0200_0000;
/// The range of source ports of flows.
pub(super) const SOURCE_PORTS: Range<u64> = 1024..65_536;
/// A base flow lasts one sixteenth of the duration of its coflow.
const BASE_SHARE: u64 = 16;
/// A coflow lasts one eighth of the duration of the traffic.
const COFLOW_SHARE: u64 = 8;
/// Maximum number of pairs of a coflow that are tried for one flow.
const PAIRS_MAX: u32 = 1 << 16;
/// The switch port of the clients; pods have the following ports.
const CLIENTS: u32 = 1;

/// Returns the rules of a cluster with coflows.
///
/// The rules balance each service port over all pods by a hash of the headers, so each flow needs
/// its own cache entry.
#[must_use]
pub fn coflow_rules() -> Vec<String> {
    let Coflows { pods, ports, base_port, .. } = *published_coflows();
    let members: Vec<String> = (1..=pods).map(|pod| (CLIENTS + pod).to_string()).collect();
    let members = members.join(",");
    let rule = |service: u32, port: u16| {
        let address = std::net::Ipv4Addr::from(SERVICES_FROM + service);
        format!(
            "table=0,priority=100,udp,in_port={CLIENTS},nw_dst={address},tp_dst={port},\
             actions=bundle(symmetric_l3l4+udp,0,hrw,ofport,members:{members})"
        )
    };
    let of_service = |service| (0..ports).map(move |port| rule(service, base_port + port));
    (1..=pods).flat_map(of_service).collect()
}

/// Returns the published figures of coflows.
pub(super) fn published_coflows() -> &'static Coflows {
    &published().coflows
}

/// Generates flows in coflows, with the published proportion of coflows to flows.
///
/// A trace determines the coflows, which are scaled to the number of flows.
///
/// # Errors
///
/// If fewer distinct flows exist.
pub fn coflows(
    flows: u32,
    coflowiness: f64,
    locality: Locality,
    trace: Option<&CoflowTrace>,
    seed: Seed,
) -> Result<Vec<Flow>, TrafficError> {
    let published = published_coflows();
    let count = u64::from(flows) * u64::from(published.coflows) / u64::from(published.flows);
    let count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
    let mut stream = seed.stream("coflows");
    let mut sizes = match trace {
        Some(trace) => trace.coflows().iter().map(RecordedCoflow::pairs).collect(),
        None => FlowSizes::Zipf { hundredths: 100 }.draw(count, &mut stream)?,
    };
    let count = sizes.len();
    if !scale_to_packets(&mut sizes, flows.into()) {
        return Err(TrafficError::Packets { flows: count, packets: flows.into() });
    }
    let machines = match locality {
        Locality::High => Zipf::new(MACHINES, 1.0)?,
        Locality::Low => Zipf::new(MACHINES, 0.0)?,
    };
    let mut recorded = trace.into_iter().flat_map(CoflowTrace::coflows);
    let seen = HashSet::default();
    let mut maker = Maker { stream, machines, recorded: None, seen, wanted: flows };
    let mut all = Vec::new();
    for (coflow, size) in (0..).zip(sizes) {
        maker.recorded = recorded.next();
        maker.coflow(coflow, size, coflowiness, &mut all)?;
    }
    Ok(all)
}

/// Generates the flows of coflows.
struct Maker<'a> {
    stream: RandomStream,
    machines: Zipf,
    /// The racks of the current coflow; `None` without a trace.
    recorded: Option<&'a RecordedCoflow>,
    /// The flows that were generated.
    seen: HashSet<(Endpoints, u16), foldhash::fast::FixedState>,
    /// Number of flows to generate.
    wanted: u32,
}

/// A machine, a service, and the port of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoints {
    pub(super) machine: u32,
    pub(super) service: u32,
    pub(super) port: u16,
}

impl Maker<'_> {
    /// Generates the flows of one coflow.
    fn coflow(
        &mut self,
        coflow: u32,
        size: u32,
        coflowiness: f64,
        all: &mut Vec<Flow>,
    ) -> Result<(), TrafficError> {
        let base = Endpoints { port: published_coflows().base_port, ..self.endpoints() };
        all.push(self.flow(base, CoflowRole::Base { coflow })?);
        let associated = size.saturating_sub(1);
        let predicted = round(f64::from(associated) * coflowiness);
        let mut roles: Vec<bool> = (0..associated).map(|index| index < predicted).collect();
        self.stream.shuffle(&mut roles);
        let mut pairs = self.recorded.map(|recorded| CoflowPairs::new(recorded, &mut self.stream));
        for predicted in roles {
            let role = CoflowRole::Associated { coflow, predicted };
            if let Some(pairs) = pairs.as_mut().filter(|_| predicted) {
                all.push(self.pair(pairs, role)?);
                continue;
            }
            let endpoints =
                if predicted { self.common_endpoints(base) } else { self.disjoint_endpoints(base) };
            all.push(self.flow(endpoints, role)?);
        }
        Ok(())
    }

    /// Returns the flow of the next pair that is distinct from earlier flows.
    fn pair(
        &mut self,
        pairs: &mut CoflowPairs<'_>,
        role: CoflowRole,
    ) -> Result<Flow, TrafficError> {
        for _ in 0..PAIRS_MAX {
            let (endpoints, port) = pairs.next_pair(&mut self.stream);
            if self.seen.insert((endpoints, port)) {
                return Ok(flow_of(endpoints, port, role));
            }
        }
        Err(self.too_few())
    }

    /// Returns a machine and a service of the coflow, and a port not of a base flow.
    ///
    /// Without a trace, machine and service are random.
    fn endpoints(&mut self) -> Endpoints {
        let Some(RecordedCoflow { mappers, reducers, .. }) = self.recorded else {
            return self.any_endpoints();
        };
        let mapper = choose(&mut self.stream, mappers) % (MACHINES / MACHINES_PER_RACK);
        let machine = mapper * MACHINES_PER_RACK + below(&mut self.stream, MACHINES_PER_RACK);
        let service = choose(&mut self.stream, reducers) % published_coflows().pods;
        Endpoints {
            machine: MACHINES_FROM + 1 + machine,
            service: SERVICES_FROM + 1 + service,
            ..self.any_endpoints()
        }
    }

    /// Returns a random machine and service, and a port not of a base flow.
    fn any_endpoints(&mut self) -> Endpoints {
        let Coflows { pods, ports, base_port, .. } = *published_coflows();
        let machine = u32::try_from(self.machines.sample(&mut self.stream)).unwrap_or(0);
        let service = 1 + below(&mut self.stream, pods);
        let port = base_port + 1 + below16(&mut self.stream, ports.saturating_sub(1));
        Endpoints { machine: MACHINES_FROM + 1 + machine, service: SERVICES_FROM + service, port }
    }

    /// Returns endpoints of which exactly one is in `base`.
    fn common_endpoints(&mut self, base: Endpoints) -> Endpoints {
        let mut endpoints = self.endpoints();
        if self.stream.chance(0.5) {
            endpoints.machine = base.machine;
        } else {
            endpoints.service = base.service;
        }
        endpoints
    }

    /// Returns endpoints of which none is in `base`.
    fn disjoint_endpoints(&mut self, base: Endpoints) -> Endpoints {
        loop {
            let endpoints = self.any_endpoints();
            if endpoints.machine != base.machine && endpoints.service != base.service {
                return endpoints;
            }
        }
    }

    /// Returns a flow between two endpoints that is distinct from earlier flows.
    fn flow(&mut self, endpoints: Endpoints, role: CoflowRole) -> Result<Flow, TrafficError> {
        let ports = SOURCE_PORTS.end - SOURCE_PORTS.start;
        let first = self.stream.below(ports);
        // If a source port is in use, the next port is tried, until all ports are tried.
        for step in 0..ports {
            let port = SOURCE_PORTS.start + (first + step) % ports;
            // The range contains only 16-bit numbers.
            let port = u16::try_from(port).unwrap_or(u16::MAX);
            if self.seen.insert((endpoints, port)) {
                return Ok(flow_of(endpoints, port, role));
            }
        }
        Err(self.too_few())
    }

    /// Returns the error of a trace with too few flows.
    fn too_few(&self) -> TrafficError {
        let wanted = usize::try_from(self.wanted).unwrap_or(usize::MAX);
        TrafficError::TooFewFlows { found: self.seen.len(), wanted }
    }
}

/// Returns a UDP flow between two hosts.
fn flow_of(endpoints: Endpoints, source_port: u16, role: CoflowRole) -> Flow {
    let mut flow = Flow::new(&key(endpoints, source_port), 0);
    flow.role = role;
    flow
}

/// Returns the key of a UDP packet between two hosts.
fn key(endpoints: Endpoints, source_port: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(CLIENTS));
    for (field, value) in [
        (FieldId::EthSrc, 0x0200_0000_0001),
        (FieldId::EthDst, 0x0200_0000_0002),
        (FieldId::EthType, 0x0800),
        (FieldId::NwTtl, 64),
        (FieldId::IpProto, 17),
        (FieldId::Ipv4Src, endpoints.machine.into()),
        (FieldId::Ipv4Dst, endpoints.service.into()),
        (FieldId::UdpSrc, source_port.into()),
        (FieldId::UdpDst, endpoints.port.into()),
    ] {
        key.set_field(field, value);
    }
    key
}

/// Sets the times of coflows within the traffic.
///
/// Each coflow has a random time, or the time of its arrival in a trace. The base flow of a coflow
/// comes first, and associated flows come after the first packet of the base flow.
#[must_use]
pub fn place_coflows(
    flows: &[Flow],
    packets: &[u32],
    course: &TrafficLength,
    trace: Option<&CoflowTrace>,
    seed: Seed,
) -> Vec<Appearance> {
    let mut stream = seed.stream("place coflows");
    let last_ms = trace.map_or(0, CoflowTrace::last_arrival_ms).max(1);
    let mut arrivals = trace.into_iter().flat_map(CoflowTrace::coflows);
    let length = course.ticks / COFLOW_SHARE;
    let (mut begin, mut follow) = (0, 0);
    let mut place = |(index, (flow, packets)): (u32, (&Flow, &u32))| {
        if let CoflowRole::Base { .. } = flow.role {
            let room = course.ticks.saturating_sub(length);
            begin = match arrivals.next() {
                Some(coflow) => fraction_of(room, coflow.arrival_ms, last_ms),
                None => stream.below(room.saturating_add(1)),
            };
            let base = length / BASE_SHARE;
            // The first packet of the base flow is within its first slot, so associated packets
            // come after this slot.
            follow = begin.saturating_add(base / u64::from((*packets).max(1)));
            let until = begin.saturating_add(base);
            return Appearance { flow: index, packets: *packets, from: begin, until };
        }
        let room = TrafficLength { ticks: begin.saturating_add(length), active: course.active };
        room.place(index, *packets, follow, &mut stream)
    };
    (0..).zip(flows.iter().zip(packets)).map(&mut place).collect()
}

/// Returns `numerator / denominator` of a number.
fn fraction_of(number: u64, numerator: u64, denominator: u64) -> u64 {
    let part = u128::from(number) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Returns a random element of a list that is not empty.
fn choose(stream: &mut RandomStream, list: &[u32]) -> u32 {
    let index = stream.below(list.len() as u64);
    usize::try_from(index).ok().and_then(|index| list.get(index).copied()).unwrap_or_default()
}

/// Returns a random number below `bound`.
pub(super) fn below(stream: &mut RandomStream, bound: u32) -> u32 {
    u32::try_from(stream.below(bound.into())).unwrap_or(0)
}

/// Returns a random number below `bound`.
fn below16(stream: &mut RandomStream, bound: u16) -> u16 {
    u16::try_from(stream.below(bound.into())).unwrap_or(0)
}

/// Rounds a share to the nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is a share of a number that fits"
)]
fn round(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::traffic::{Gaps, PacketSizes, Schedule};

    fn generate_flows(coflowiness: f64) -> Vec<Flow> {
        coflows(20_000, coflowiness, Locality::Low, None, Seed::new(1)).unwrap()
    }

    /// Returns the addresses of a flow.
    fn endpoints(flow: &Flow) -> (u128, u128) {
        let key = flow.key();
        (key.field(FieldId::Ipv4Src), key.field(FieldId::Ipv4Dst))
    }

    #[test]
    fn the_number_of_coflows_is_proportional() {
        let flows = generate_flows(0.5);
        let bases =
            flows.iter().filter(|flow| matches!(flow.role, CoflowRole::Base { .. })).count();
        assert_eq!((flows.len(), bases), (20_000, 54));
        let differ: HashSet<_> = flows.iter().map(|flow| *flow.headers()).collect();
        assert_eq!(differ.len(), 20_000);
    }

    #[test]
    fn the_coflow_share_counts_common_endpoints() {
        for coflowiness in [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0] {
            let (mut base, mut shared, mut associated) = ((0, 0), 0, 0);
            for flow in generate_flows(coflowiness) {
                match flow.role {
                    CoflowRole::Base { .. } => base = endpoints(&flow),
                    CoflowRole::Associated { predicted, .. } => {
                        let own = endpoints(&flow);
                        let shares = own.0 == base.0 || own.1 == base.1;
                        assert_eq!(shares, predicted);
                        associated += 1;
                        shared += u32::from(shares);
                    }
                    CoflowRole::Alone => panic!("every flow is in a coflow"),
                }
            }
            let share = f64::from(shared) / f64::from(associated);
            assert!((share - coflowiness).abs() < 0.002, "{share} for {coflowiness}");
        }
    }

    #[test]
    fn base_flows_alone_go_to_their_port() {
        for flow in generate_flows(1.0) {
            let is_base = flow.key().field(FieldId::UdpDst) == 2100;
            assert_eq!(is_base, matches!(flow.role, CoflowRole::Base { .. }));
        }
    }

    #[test]
    fn base_flow_is_first_of_its_coflow() {
        let flows = generate_flows(0.25);
        let packets: Vec<u32> = (0..20_000).map(|index| 1 + index % 7).collect();
        let course = TrafficLength::of(packets.iter().map(|count| u64::from(*count)).sum(), None);
        let placed = place_coflows(&flows, &packets, &course, None, Seed::new(1));
        let gaps = Gaps::Constant.sampler(1000).unwrap();
        let lengths = PacketSizes::Fixed(64).sampler().unwrap();
        let mut begun = BTreeMap::new();
        for packet in Schedule::new(placed, gaps, lengths, Seed::new(1)) {
            match flows[packet.flow as usize].role {
                CoflowRole::Base { coflow } => *begun.entry(coflow).or_insert(0) += 1,
                CoflowRole::Associated { coflow, .. } => assert!(begun.contains_key(&coflow)),
                CoflowRole::Alone => panic!("every flow is in a coflow"),
            }
        }
    }

    #[test]
    fn machines_share_high_locality_unevenly_and_low_evenly() {
        let busiest = |locality| {
            let mut flows_of = BTreeMap::new();
            for flow in coflows(20_000, 0.0, locality, None, Seed::new(1)).unwrap() {
                *flows_of.entry(endpoints(&flow).0).or_insert(0_u32) += 1;
            }
            flows_of.into_values().max().unwrap()
        };
        let [high, low] = [Locality::High, Locality::Low].map(busiest);
        assert!(high > 5 * low, "{high} and {low} flows of the busiest machine");
    }

    #[test]
    fn coflow_traces_give_sizes_and_racks() {
        let trace =
            CoflowTrace::parse("150 2\n1 0 1 7 3 1:1 2:1 3:1\n2 900 3 10 11 12 3 1:1 2:1 3:1\n");
        let trace = trace.unwrap();
        let flows = coflows(1000, 1.0, Locality::Low, Some(&trace), Seed::new(1)).unwrap();
        let bases: Vec<usize> = (0..flows.len())
            .filter(|index| matches!(flows[*index].role, CoflowRole::Base { .. }))
            .collect();
        // The trace has coflows of three and of nine pairs.
        assert_eq!((flows.len(), bases), (1000, vec![0, 200]));
        let rack = |flow: &Flow| (endpoints(flow).0 - u128::from(MACHINES_FROM) - 1) / 20;
        assert!(flows[..200].iter().all(|flow| rack(flow) == 7));
        assert!(flows[200..].iter().all(|flow| (10..=12).contains(&rack(flow))));
        let course = TrafficLength::of(1000, None);
        let placed = place_coflows(&flows, &[1; 1000], &course, Some(&trace), Seed::new(1));
        let room = course.ticks - course.ticks / COFLOW_SHARE;
        assert_eq!([placed[0].from, placed[200].from], [0, room]);
    }

    #[test]
    fn recorded_coflow_pairs_share_ports() {
        let trace = CoflowTrace::parse("150 1\n1 0 3 10 11 12 3 1:1 2:1 9:1\n").unwrap();
        let flows = coflows(10, 1.0, Locality::Low, Some(&trace), Seed::new(1)).unwrap();
        let ends = |flow: &Flow, fields: [FieldId; 2]| fields.map(|field| flow.key().field(field));
        let pairs: HashSet<_> = flows[1..]
            .iter()
            .map(|flow| {
                let source = ends(flow, [FieldId::Ipv4Src, FieldId::UdpSrc]);
                (source, ends(flow, [FieldId::Ipv4Dst, FieldId::UdpDst]))
            })
            .collect();
        let sources: HashSet<_> = pairs.iter().map(|(source, _)| *source).collect();
        let destinations: HashSet<_> = pairs.iter().map(|(_, destination)| *destination).collect();
        // Reducers 1 and 9 are on one service, with two ports.
        let services: HashSet<_> = destinations.iter().map(|[service, _]| *service).collect();
        assert_eq!((services.len(), sources.len(), destinations.len()), (2, 3, 3));
        assert_eq!(pairs.len(), 9);
        // A coflow with more flows than pairs has more machines in the same racks.
        let flows = coflows(19, 1.0, Locality::Low, Some(&trace), Seed::new(1)).unwrap();
        let sources: HashSet<_> =
            flows[1..].iter().map(|flow| ends(flow, [FieldId::Ipv4Src, FieldId::UdpSrc])).collect();
        assert_eq!(sources.len(), 6);
    }

    #[test]
    fn each_service_and_port_has_a_rule() {
        assert_eq!(coflow_rules().len(), 8 * 9);
    }
}
