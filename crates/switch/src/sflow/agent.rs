//! The sFlow agent of one bridge: its samples, its counters, and its collectors.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex};
use shunt_datapath::sample::{SampleReceiver, SampledEgress, SampledPacket};
use shunt_flow_export::sflow::{
    DiscardReason, FlowSample, SampledInterface, SampledTag, SflowAgent, SflowExporter, SourceId,
};
use shunt_pipeline::{BridgeId, DatapathPort, Time};
use tracing::{info, warn};

use super::interfaces::BridgeInterfaces;
use crate::{collectors::ExportCollectors, config::SflowOptions, status::sflow::SflowStatus};

/// The sFlow agent of a bridge.
pub(super) struct BridgeSflow {
    name: String,
    options: SflowOptions,
    collectors: ExportCollectors,
    receivers: Vec<SampleReceiver>,
    exporter: SflowExporter,
    interfaces: BridgeInterfaces,
    started: Time,
    /// Time of the next refresh of addresses, sockets and indices.
    next_refresh: Time,
    /// Time of the next report of counters; `None`: never.
    next_poll: Option<Time>,
    /// Number of flow samples.
    samples: u64,
    /// Reason why the configured agent has no address.
    agent_fault: Option<String>,
}

/// Time between two refreshes of addresses, sockets and indices.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

impl BridgeSflow {
    /// Creates an agent, which sends counters at once.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        options: &SflowOptions,
        targets: Vec<SocketAddr>,
        receivers: Vec<SampleReceiver>,
        now: Time,
    ) -> Self {
        // Bridges may have the same address, so each has a number of its own.
        let sub_agent = bridge.number().into();
        let agent = SflowAgent { address: Ipv4Addr::UNSPECIFIED.into(), sub_agent };
        Self {
            name: name.to_owned(),
            options: options.clone(),
            collectors: ExportCollectors::new(format!("bridge {name}: sFlow"), targets),
            receivers,
            exporter: SflowExporter::new(agent),
            interfaces: BridgeInterfaces::default(),
            started: now,
            next_refresh: now,
            next_poll: (options.polling > 0).then_some(now),
            samples: 0,
            agent_fault: None,
        }
    }

    /// Returns the state of the agent.
    pub(super) fn status(&self) -> SflowStatus {
        let faults = self.agent_fault.iter().cloned().chain(self.collectors.faults());
        let faults: Vec<String> = faults.collect();
        SflowStatus {
            options: self.options.clone(),
            agent_address: self.exporter.agent().address.to_string(),
            samples: self.samples,
            samples_dropped: self.dropped(),
            datagrams: self.collectors.sent(),
            datagrams_lost: self.collectors.lost(),
            trouble: (!faults.is_empty()).then(|| faults.join("; ")),
        }
    }

    /// Returns whether [`Self::run`] needs the ports of the bridge at `now`.
    pub(super) fn needs_ports(&self, now: Time) -> bool {
        now >= self.next_refresh || self.next_poll.is_some_and(|next| now >= next)
    }

    /// Sends the samples in the rings, and the counters if they are due.
    pub(super) fn run(&mut self, ports: Option<BridgeInterfaces>, now: Time) {
        if let Some(ports) = ports {
            self.interfaces = ports;
        }
        if now >= self.next_refresh {
            self.next_refresh = now.after(REFRESH_INTERVAL);
            self.refresh();
        }
        let uptime_ms = milliseconds(now.since(self.started));
        self.add_samples(uptime_ms);
        if let Some(next) = self.next_poll.filter(|next| now >= *next) {
            let interval = Duration::from_secs(self.options.polling.into());
            // Reports that a busy host delayed are not made up for.
            let next = next.after(interval);
            self.next_poll = Some(if next > now { next } else { now.after(interval) });
            for statistics in &self.interfaces.statistics {
                self.exporter.add_counters(statistics, uptime_ms);
            }
            let indices: Vec<SourceId> =
                self.interfaces.indices.values().map(|own| SourceId::interface(*own)).collect();
            self.exporter.retain_interfaces(|source| indices.contains(&source));
        }
        for datagram in self.exporter.take_datagrams(uptime_ms) {
            self.collectors.send(&datagram);
        }
    }

    /// Adds the samples that are in the rings now.
    fn add_samples(&mut self, uptime_ms: u32) {
        for index in 0..self.receivers.len() {
            // Bounded by the current content: a flood of samples must not keep the task.
            for _ in 0..self.receivers[index].len() {
                let Some(packet) = self.receivers[index].pop() else { break };
                self.samples += 1;
                let pool = self.receivers.iter().map(SampleReceiver::pool).sum();
                self.exporter.add_flow(
                    &FlowSample {
                        source: SourceId::bridge(),
                        rate: self.options.sampling,
                        pool: wrapped(pool),
                        drops: wrapped(self.dropped()),
                        input: self.interface(packet.ingress),
                        output: self.egress(&packet),
                        vlan_in: SampledTag::of_tci(packet.vlan_in),
                        vlan_out: SampledTag::of_tci(packet.vlan_out),
                        frame_length: u32::try_from(packet.frame_length).unwrap_or(u32::MAX),
                        header: packet.header(),
                    },
                    uptime_ms,
                );
            }
        }
    }

    fn interface(&self, port: DatapathPort) -> SampledInterface {
        let index = self.interfaces.indices.get(&port);
        index.map_or(SampledInterface::Unknown, |index| SampledInterface::Index(*index))
    }

    fn egress(&self, packet: &SampledPacket) -> SampledInterface {
        match packet.egress {
            SampledEgress::Unknown => SampledInterface::Unknown,
            SampledEgress::Dropped => SampledInterface::Discarded(DiscardReason::Unknown),
            SampledEgress::Controller => SampledInterface::Internal,
            SampledEgress::Port(port) => self.interface(port),
            SampledEgress::Ports(count) => SampledInterface::Multiple(count),
        }
    }

    /// Returns the number of samples that did not fit the rings.
    fn dropped(&self) -> u64 {
        self.receivers.iter().map(SampleReceiver::dropped).sum()
    }

    /// Refreshes the sockets, and finds the address of the agent.
    fn refresh(&mut self) {
        self.collectors.refresh();
        let agent = &self.options.agent;
        let of_agent = agent_address(agent);
        let fault = (of_agent.is_none() && !agent.is_empty()).then(|| {
            let fault = match if_nametoindex(agent.as_str()) {
                Ok(_) => "has no IP address",
                Err(_) => "is no network device",
            };
            format!("agent {agent} {fault}")
        });
        if let Some(address) = of_agent.or_else(|| self.collectors.local_address()) {
            self.exporter.set_address(address);
        }
        self.note_agent_fault(fault);
    }

    /// Logs a fault of the agent that is new, and its end.
    fn note_agent_fault(&mut self, fault: Option<String>) {
        if fault == self.agent_fault {
            return;
        }
        let (name, address) = (&self.name, self.exporter.agent().address);
        match &fault {
            Some(fault) => warn!(
                "bridge {name}: sFlow: {fault}; datagrams have the address {address}, trying again \
                 each second"
            ),
            None => {
                let agent = &self.options.agent;
                info!("bridge {name}: sFlow: agent {agent} has the address {address}");
            }
        }
        self.agent_fault = fault;
    }
}

/// Returns the address of an agent: an address itself, or that of a network device.
///
/// An IPv4 address is preferred.
fn agent_address(agent: &str) -> Option<IpAddr> {
    if let Ok(address) = agent.parse() {
        return Some(address);
    }
    let (mut v4, mut v6) = (None, None);
    for own in getifaddrs().ok()?.filter(|own| own.interface_name == agent) {
        let Some(address) = own.address else { continue };
        v4 = v4.or_else(|| address.as_sockaddr_in().map(|own| IpAddr::from(own.ip())));
        let of_link = |ip: &Ipv6Addr| ip.is_unicast_link_local();
        let ip = address.as_sockaddr_in6().map(|own| own.ip()).filter(|ip| !of_link(ip));
        v6 = v6.or_else(|| ip.map(IpAddr::from));
    }
    v4.or(v6)
}

/// Returns the low 32 bits of a count.
#[expect(clippy::cast_possible_truncation, reason = "counters of sFlow wrap around")]
const fn wrapped(count: u64) -> u32 {
    count as u32
}

/// Returns the milliseconds of a time, which wrap around.
fn milliseconds(time: Duration) -> u32 {
    wrapped(u64::try_from(time.as_millis()).unwrap_or_default())
}
