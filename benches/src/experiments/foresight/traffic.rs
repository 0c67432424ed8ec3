//! Traffic of the foresight experiments: flows with a timetable.

use std::{collections::BTreeMap, net::Ipv4Addr};

use shunt_classifier::testing::workload::SplitMix64;
use shunt_flow::{FieldId, FlowKey};
use shunt_pipebench::traffic::CoflowRole;

use crate::{capture::udp_frame, experiments::loaded::workload, wire::Frame};

/// One flow of a plan.
#[derive(Clone, Debug)]
pub(super) struct PlannedFlow {
    /// The device that sends the flow, from 0.
    pub(super) device: usize,
    pub(super) frame: Frame,
    ends: FlowAddresses,
    /// Set if the receiver replies.
    pub(super) answer: Option<RequestAnswer>,
    /// True for the base flow of a coflow, which no forecast can precede.
    pub(super) is_base: bool,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestAnswer {
    /// Nanoseconds between the arrival of the request and the reply.
    pub(super) after_ns: u64,
}

/// Addresses and ports of a UDP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlowAddresses {
    source: u32,
    destination: u32,
    ports: [u16; 2],
}

/// One packet of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedPacket {
    pub(super) time_ns: u64,
    /// Index of the flow.
    pub(super) flow: u32,
}

/// Flows and their packets in order of time.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) flows: Vec<PlannedFlow>,
    pub(super) packets: Vec<PlannedPacket>,
}

/// Number of hosts. Each host has a separate port.
pub(super) const HOSTS: u32 = 8;

/// Nanoseconds between request and reply of a service.
const SERVICE_NS: u64 = 300_000;

/// Ports from which clients take their source ports (RFC 6056: ephemeral ports).
const EPHEMERAL: u32 = 32_768;

impl PlannedFlow {
    fn new(device: usize, ends: FlowAddresses) -> Self {
        let FlowAddresses { source, destination, ports } = ends;
        let frame = udp_frame(source.to_be_bytes(), destination.to_be_bytes(), ports);
        Self { device, frame, ends, answer: None, is_base: false }
    }

    fn answered(self) -> Self {
        Self { answer: Some(RequestAnswer { after_ns: SERVICE_NS }), ..self }
    }

    /// Returns the addresses of source and destination, with their ports.
    pub(super) const fn socket_addresses(&self) -> [(u32, u16); 2] {
        let FlowAddresses { source, destination, ports: [from, to] } = self.ends;
        [(source, from), (destination, to)]
    }

    /// Returns the flow of the replies of a host, which has no further replies.
    pub(super) fn reply(&self) -> Self {
        let FlowAddresses { source, destination, ports: [from, to] } = self.ends;
        let ends = FlowAddresses { source: destination, destination: source, ports: [to, from] };
        let device = destination.saturating_sub(address(0)) as usize;
        Self { device, frame: reversed(self.frame), ends, answer: None, is_base: false }
    }

    /// Returns the flow in the syntax of `shuntctl trace`.
    pub(super) fn text(&self) -> String {
        let FlowAddresses { source, destination, ports: [from, to] } = self.ends;
        let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
        let (eth_dst, eth_src) = (mac(&self.frame[..6]), mac(&self.frame[6..12]));
        format!(
            "in_port={},udp,dl_src={eth_src},dl_dst={eth_dst},nw_src={source},\
             nw_dst={destination},tp_src={from},tp_dst={to}",
            self.device + 1
        )
    }
}

fn mac(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    words.join(":")
}

impl Plan {
    /// Sends one packet of each flow, at a rate at which no switch loses packets.
    pub(super) fn warm_up(flows: &[PlannedFlow]) -> Self {
        let silent = |flow: &PlannedFlow| PlannedFlow { answer: None, ..flow.clone() };
        let flows: Vec<PlannedFlow> = flows.iter().map(silent).collect();
        let count = u32::try_from(flows.len()).unwrap_or(u32::MAX);
        let packet = |flow: u32| PlannedPacket { time_ns: u64::from(flow) * 30_000, flow };
        Self { flows, packets: (0..count).map(packet).collect() }
    }

    /// Returns all flows, including the flows of replies.
    pub(super) fn with_replies(&self) -> Vec<PlannedFlow> {
        let asked = self.flows.iter().filter(|flow| flow.answer.is_some());
        self.flows.iter().cloned().chain(asked.map(PlannedFlow::reply)).collect()
    }

    /// Sorts packets by time.
    fn of(flows: Vec<PlannedFlow>, mut packets: Vec<PlannedPacket>) -> Self {
        packets.sort_by_key(|packet| packet.time_ns);
        Self { flows, packets }
    }
}

/// Coflows at a constant rate, and the flows that can be predicted.
pub(super) struct Coflows {
    pub(super) plan: Plan,
    pub(super) rules: Vec<String>,
    /// Indices of the predictable flows.
    predicted: Vec<usize>,
}

impl Coflows {
    /// Creates the named workload with one packet every `gap_ns` nanoseconds.
    pub(super) fn new(name: &str, gap_ns: u64) -> Self {
        let workload = workload(name);
        let rules = workload.base_rules().map(ToString::to_string).collect();
        let flows = workload.flows().iter().map(|flow| {
            let key = flow.key();
            let device = key.in_port().number().saturating_sub(1) as usize;
            let is_base = matches!(flow.role, CoflowRole::Base { .. });
            PlannedFlow { is_base, ..PlannedFlow::new(device, FlowAddresses::of(&key)) }
        });
        let predicted = |role| matches!(role, CoflowRole::Associated { predicted: true, .. });
        let known = workload.flows().iter().enumerate();
        let known = known.filter(|(_, flow)| predicted(flow.role)).map(|(index, _)| index);
        let packets = workload
            .packets()
            .zip(0..)
            .map(|(packet, number)| PlannedPacket { time_ns: number * gap_ns, flow: packet.flow });
        let plan = Plan { flows: flows.collect(), packets: packets.collect() };
        Self { plan, rules, predicted: known.collect() }
    }

    /// Returns the predictable flows.
    pub(super) fn predicted_flows(&self) -> Vec<PlannedFlow> {
        self.predicted.iter().map(|index| self.plan.flows[*index].clone()).collect()
    }
}

impl FlowAddresses {
    fn of(key: &FlowKey) -> Self {
        let word = |field| u32::try_from(key.field(field)).unwrap_or_default();
        let port = |field| u16::try_from(key.field(field)).unwrap_or_default();
        Self {
            source: word(FieldId::Ipv4Src),
            destination: word(FieldId::Ipv4Dst),
            ports: [port(FieldId::UdpSrc), port(FieldId::UdpDst)],
        }
    }
}

/// Rules that send packets to hosts, one port each.
///
/// Each flow needs a separate entry, because a hash of all headers chooses the output, as for
/// services with back ends.
pub(super) fn host_rules() -> Vec<String> {
    let rule = |host: u32| {
        let port = host + 1;
        format!(
            "table=0,priority=100,udp,nw_dst={},\
             actions=bundle(symmetric_l3l4+udp,0,hrw,ofport,members:{port},{port})",
            Ipv4Addr::from(address(host)),
        )
    };
    (0..HOSTS).map(rule).collect()
}

/// Returns the address of a host.
const fn address(host: u32) -> u32 {
    0x0a00_0001 + host
}

/// Clients that count their source ports up (RFC 6056, algorithm 4).
///
/// The step is 2, as in Linux until version 5.17. Later versions add a random number for TCP.
#[derive(Debug, Default)]
struct SourcePorts(BTreeMap<(u32, u32, u16), u32>);

impl SourcePorts {
    /// Returns the addresses of the next flow of a client to a service.
    fn connect(&mut self, client: u32, server: u32, port: u16) -> FlowAddresses {
        let first = EPHEMERAL + (client * 7919 + server * 104_729 + u32::from(port) * 31) % 28_000;
        let next = self.0.entry((client, server, port)).or_insert(first);
        let source = u16::try_from(*next % (1 << 16)).unwrap_or_default();
        *next += 2;
        if *next > 0xfff0 {
            *next = EPHEMERAL;
        }
        FlowAddresses {
            source: address(client),
            destination: address(server),
            ports: [source, port],
        }
    }
}

/// Traffic of a service graph: a call of a service calls other services.
///
/// The number of calls of a service has a heavy tail in published graphs: most services call no
/// service or one service, few call many (S. Luo et al., *Characterizing Microservice Dependency
/// and Performance: Alibaba Trace Analysis*, section 4). Here the shares are a half, a quarter, an
/// eighth, and so on.
pub(super) fn call_graph(requests: u32, gap_ns: u64) -> Plan {
    /// Number of services in the graph of calls.
    const SERVICES: usize = 24;
    let mut random = SplitMix64(11);
    let host = |service: usize| u32::try_from(service).unwrap_or_default() % HOSTS;
    // A service calls only services with higher numbers, so the graph has no cycle.
    let calls: Vec<Vec<usize>> = (0..SERVICES)
        .map(|service| {
            let count = usize::try_from(random.draw().trailing_zeros()).unwrap_or_default().min(4);
            let count = if service == 0 { 3 } else { count };
            let rest = SERVICES - service - 1;
            let callee = |random: &mut SplitMix64| service + 1 + random.below(rest);
            (0..if rest == 0 { 0 } else { count }).map(|_| callee(&mut random)).collect()
        })
        .collect();
    let (mut flows, mut packets, mut ports) = (Vec::new(), Vec::new(), SourcePorts::default());
    for request in 0..requests {
        // The last host calls the front end.
        let mut due = vec![(u64::from(request) * gap_ns, HOSTS - 1, 0, 0)];
        while let Some((time_ns, client, service, depth)) = due.pop() {
            let port = u16::try_from(8000 + service).unwrap_or_default();
            let server = host(service);
            let flow = u32::try_from(flows.len()).unwrap_or(u32::MAX);
            let ends = ports.connect(client, server, port);
            flows.push(PlannedFlow::new(client as usize, ends).answered());
            packets.push(PlannedPacket { time_ns, flow });
            let calls = if depth < 4 { &calls[service][..] } else { &[] };
            for (callee, order) in calls.iter().zip(1..) {
                due.push((time_ns + order * SERVICE_NS, server, *callee, depth + 1));
            }
        }
    }
    Plan::of(flows, packets)
}

/// Rounds of a collective operation, in which each host sends to all others.
///
/// Each round uses the same addresses and ports, because a training job keeps its queue pairs.
pub(super) fn all_to_all(rounds: u32, round_ns: u64) -> Plan {
    let mut flows = Vec::new();
    let mut peers = Vec::new();
    for host in 0..HOSTS {
        for step in 1..HOSTS {
            flows.push(queue_pair(host, (host + step) % HOSTS));
            peers.push((host, step));
        }
    }
    let mut packets = Vec::new();
    for round in 0..rounds {
        let begin = u64::from(round) * round_ns;
        for (flow, (host, step)) in (0..).zip(&peers) {
            let begin = begin + u64::from(*step) * STEP_NS + u64::from(*host) * 1000;
            packets.extend(chunk(flow, begin, 32));
        }
    }
    Plan::of(flows, packets)
}

/// Rounds of a ring, in which each host sends to the next host.
///
/// As in ring all-reduce, each host but one adds two steps to a round. In each step, a host sends
/// the chunk that the host received in the previous step.
pub(super) fn ring(rounds: u32, round_ns: u64) -> Plan {
    let flows = (0..HOSTS).map(|host| queue_pair(host, (host + 1) % HOSTS)).collect();
    let mut packets = Vec::new();
    for round in 0..rounds {
        for step in 0..2 * (HOSTS - 1) {
            let begin = u64::from(round) * round_ns + u64::from(step) * STEP_NS;
            for host in 0..HOSTS {
                packets.extend(chunk(host, begin + u64::from(host) * 1000, 16));
            }
        }
    }
    Plan::of(flows, packets)
}

/// Nanoseconds between two steps of a collective operation.
const STEP_NS: u64 = 2_000_000;

/// Returns the flow of a pair of hosts.
fn queue_pair(host: u32, peer: u32) -> PlannedFlow {
    /// The UDP port of RDMA over Converged Ethernet (RoCEv2).
    const PORT: u16 = 4791;
    let source = u16::try_from(49_152 + host * HOSTS + peer).unwrap_or_default();
    let (from, to) = (address(host), address(peer));
    let ends = FlowAddresses { source: from, destination: to, ports: [source, PORT] };
    PlannedFlow::new(host as usize, ends)
}

/// Returns the packets of one step of a flow.
fn chunk(flow: u32, begin: u64, count: u64) -> impl Iterator<Item = PlannedPacket> {
    (0..count).map(move |packet| PlannedPacket { time_ns: begin + packet * 40_000, flow })
}

/// Packets without structure: each packet is the only packet of its flow.
pub(super) fn random(count: u32, gap_ns: u64, seed: u64) -> Plan {
    let mut random = SplitMix64(seed);
    let mut port = || u16::try_from(1024 + random.draw() % 64_000).unwrap_or_default();
    let ports: Vec<[u16; 2]> = (0..count).map(|_| [port(), port()]).collect();
    let mut hosts = SplitMix64(17);
    let flow = |ports: &[u16; 2]| {
        let host = u32::try_from(hosts.below(HOSTS as usize)).unwrap_or_default();
        let step = u32::try_from(hosts.below(HOSTS as usize - 1)).unwrap_or_default();
        let peer = (host + 1 + step) % HOSTS;
        let ends =
            FlowAddresses { source: address(host), destination: address(peer), ports: *ports };
        PlannedFlow::new(host as usize, ends)
    };
    let flows = ports.iter().map(flow).collect();
    let packet = |flow: u32| PlannedPacket { time_ns: u64::from(flow) * gap_ns, flow };
    Plan { flows, packets: (0..count).map(packet).collect() }
}

/// Swaps source and destination of all layers.
pub(super) fn reversed(mut frame: Frame) -> Frame {
    for (first, second, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for byte in 0..length {
            frame.swap(first + byte, second + byte);
        }
    }
    frame
}
