//! The sFlow agent of one bridge: its samples, its counters, and its collectors.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use shunt_datapath::sample::{SampleReceiver, SampledEgress, SampledPacket};
use shunt_flow_export::sflow::{
    DiscardReason, FlowSample, SampledInterface, SampledTag, SflowAgent, SflowExporter, SourceId,
};
use shunt_pipeline::{BridgeId, DatapathPort, PortInfo, Time};
use tracing::{info, warn};

use super::{
    interfaces::{InterfaceIndices, indices},
    readings::{AgentReading, DueReadings, SflowReadings},
};
use crate::{
    config::SflowOptions,
    exports::{
        collector::TemplateUse, collectors::ExportCollectors, task::CHUNK, totals::ExportTotals,
    },
    ports::bridges::Bridges,
    status::sflow::SflowStatus,
};

/// The sFlow agent of a bridge.
pub(super) struct BridgeSflow {
    bridge: BridgeId,
    /// The name of the bridge.
    name: String,
    /// The sFlow options of the bridge.
    options: SflowOptions,
    /// The collectors of the bridge.
    collectors: ExportCollectors,
    /// The ring of samples of each packet thread.
    receivers: Vec<SampleReceiver>,
    /// The encoder of sFlow datagrams.
    exporter: SflowExporter,
    /// The ports that the tables had when the indices were read.
    ports: Option<Arc<[Arc<PortInfo>]>>,
    /// The interface indices of the ports, also of removed ports.
    indices: InterfaceIndices,
    /// Time at which the agent was created.
    started: Time,
    /// Time of the next refresh of the agent's address.
    next_refresh: Time,
    /// Time of the next report of port counters; `None`: never.
    next_poll: Option<Time>,
    /// Reason why the configured agent has no IP address.
    agent_fault: Option<String>,
}

/// Time between two refreshes of the agent's address.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

impl BridgeSflow {
    /// Creates an agent, which reports port counters immediately.
    ///
    /// `totals` are the counters of the agent that this agent replaces. The function must be called
    /// in a tokio runtime.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        options: &SflowOptions,
        targets: &[SocketAddr],
        receivers: Vec<SampleReceiver>,
        totals: &Arc<ExportTotals>,
        now: Time,
    ) -> Self {
        // Bridges may have the same agent address, so each bridge has its own sub-agent number.
        let sub_agent = bridge.number().into();
        let agent = SflowAgent { address: Ipv4Addr::UNSPECIFIED.into(), sub_agent };
        let owner = format!("bridge {name}: sFlow");
        let mut collectors = ExportCollectors::new(owner, TemplateUse::Never, totals);
        collectors.set(targets);
        Self {
            bridge,
            name: name.to_owned(),
            options: options.clone(),
            collectors,
            receivers,
            exporter: SflowExporter::new(agent),
            ports: None,
            indices: InterfaceIndices::new(),
            started: now,
            next_refresh: now,
            next_poll: (options.polling > 0).then_some(now),
            agent_fault: None,
        }
    }

    /// Returns the state of the agent.
    pub(super) fn status(&self) -> SflowStatus {
        let problems = self.agent_fault.iter().cloned().chain(self.collectors.problems());
        let problems: Vec<String> = problems.collect();
        let counts = self.collectors.totals().counts();
        SflowStatus {
            options: self.options.clone(),
            agent_address: self.exporter.agent().address.to_string(),
            samples: counts.samples,
            samples_dropped: counts.samples_dropped + self.dropped(),
            datagrams: counts.sent,
            datagrams_lost: counts.lost,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }

    /// Returns the readings that [`Self::run`] needs at `now`.
    pub(super) fn due(&self, now: Time) -> DueReadings {
        DueReadings {
            agent: (now >= self.next_refresh).then(|| self.options.agent.clone()),
            counters: self.next_poll.is_some_and(|next| now >= next),
        }
    }

    /// Sends the samples in the rings, and the port counters if they are due.
    pub(super) fn run(&mut self, bridges: &Bridges, readings: SflowReadings, now: Time) {
        // The agent must have its address before its first sample.
        if let Some(agent) = readings.agent.filter(|own| own.agent == self.options.agent) {
            self.next_refresh = now.after(REFRESH_INTERVAL);
            self.refresh(agent);
        }
        self.send_samples(bridges, now);
        let uptime_ms = milliseconds(now.since(self.started));
        if let Some((next, statistics)) = self.next_poll.zip(readings.statistics) {
            let interval = Duration::from_secs(self.options.polling.into());
            // If a busy host delays a report, the missed reports are skipped.
            let next = next.after(interval);
            self.next_poll = Some(if next > now { next } else { now.after(interval) });
            for statistics in &statistics {
                self.exporter.add_counters(statistics, uptime_ms);
            }
            let polled: Vec<SourceId> =
                statistics.iter().map(|own| SourceId::interface(own.index)).collect();
            self.exporter.retain_interfaces(|source| polled.contains(&source));
        }
        self.collectors.send(self.exporter.take_datagrams(uptime_ms));
    }

    /// Returns the collectors of the bridge, with their counters.
    pub(super) const fn collectors(&self) -> &ExportCollectors {
        &self.collectors
    }

    /// Prepares for the end of the agent, while the ports of its last samples exist.
    ///
    /// Packet threads must have no sampler of the agent any more.
    pub(super) fn begin_end(&mut self, bridges: &Bridges) {
        self.follow_ports(bridges);
        let dropped = self.dropped();
        self.collectors.totals().update(|totals| totals.samples_dropped += dropped);
    }

    /// Sends samples that still wait in the rings; returns whether there were any.
    pub(super) fn send_rest(&mut self, bridges: &Bridges, now: Time) -> bool {
        let is_some_left = self.receivers.iter().any(|own| !own.is_empty());
        if is_some_left {
            self.send_samples(bridges, now);
        }
        is_some_left
    }

    /// Returns when the last datagrams are sent.
    pub(super) async fn end(self) {
        self.collectors.end().await;
    }

    /// Reads the ports' interface indices if the ports of the bridge have changed.
    ///
    /// Samples of a removed port may still be in the rings. So its index stays until another port
    /// gets its datapath number.
    fn follow_ports(&mut self, bridges: &Bridges) {
        let ports = bridges.published(self.bridge);
        let is_same = match (&ports, &self.ports) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            _ => false,
        };
        if !is_same {
            self.indices.extend(indices(bridges, self.bridge));
            self.ports = ports;
        }
    }

    /// Sends samples from the rings, as long as collectors have space.
    fn send_samples(&mut self, bridges: &Bridges, now: Time) {
        // A port is published before packet threads receive from it. So the ports of all samples
        // counted here are in the port list that is read below; later samples wait for the next
        // round. The count also bounds the round, so a flood of samples cannot hold the task.
        let counts: Vec<usize> = self.receivers.iter().map(SampleReceiver::len).collect();
        self.follow_ports(bridges);
        let uptime_ms = milliseconds(now.since(self.started));
        for (index, mut left) in counts.into_iter().enumerate() {
            while left > 0 && self.collectors.has_room() {
                self.encode_samples(index, left.min(CHUNK), uptime_ms);
                self.collectors.send(self.exporter.take_datagrams(uptime_ms));
                left = left.saturating_sub(CHUNK);
            }
        }
    }

    /// Moves at most `count` samples of a ring into the datagrams.
    fn encode_samples(&mut self, index: usize, count: usize, uptime_ms: u32) {
        let mut samples = 0;
        for _ in 0..count {
            let Some(packet) = self.receivers[index].pop() else { break };
            samples += 1;
            let pool = self.receivers.iter().map(SampleReceiver::pool).sum();
            self.exporter.add_flow(
                &FlowSample {
                    source: SourceId::bridge(),
                    rate: self.options.sampling,
                    pool: wrap(pool),
                    drops: wrap(self.dropped()),
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
        self.collectors.totals().update(|totals| totals.samples += samples);
    }

    /// Returns the interface of a port.
    fn interface(&self, port: DatapathPort) -> SampledInterface {
        let index = self.indices.get(&port);
        index.map_or(SampledInterface::Unknown, |index| SampledInterface::Index(*index))
    }

    /// Returns the egress interface of a sampled packet.
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

    /// Refreshes the address of the agent.
    fn refresh(&mut self, agent: AgentReading) {
        let (of_agent, fault) = match agent.address {
            None => (None, None),
            Some(Ok(address)) => (Some(address), None),
            Some(Err(fault)) => (None, Some(fault)),
        };
        if let Some(address) = of_agent.or_else(|| self.collectors.local_address()) {
            self.exporter.set_address(address);
        }
        self.note_agent_fault(fault);
    }

    /// Logs a new fault of the agent's address, or the end of the fault.
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

/// Returns the low 32 bits of a counter.
#[expect(clippy::cast_possible_truncation, reason = "counters of sFlow wrap around")]
const fn wrap(count: u64) -> u32 {
    count as u32
}

/// Returns a time in milliseconds, modulo 2^32.
fn milliseconds(time: Duration) -> u32 {
    wrap(u64::try_from(time.as_millis()).unwrap_or_default())
}
