//! The IPFIX exporter of one bridge: its samples, its flows, and its collectors.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use shunt_datapath::sample::{SampleReceiver, SampledEgress};
use shunt_flow_export::ipfix::{
    FlowDirection, FlowEndReason, IpfixCache, IpfixExporter, IpfixFlow, IpfixLimits,
    ObservationPoint,
};
use shunt_pipeline::{BridgeId, DatapathPort, PortInfo, Time};
use tracing::info;

use super::sample::{SampleObservation, SampleParser};
use crate::{
    config::IpfixOptions,
    exports::{
        collector::TemplateUse,
        collectors::ExportCollectors,
        losses::LossLog,
        sflow::{InterfaceIndices, indices},
        task::CHUNK,
        totals::ExportTotals,
    },
    ports::bridges::Bridges,
    status::ipfix::IpfixStatus,
};

/// The IPFIX exporter of a bridge.
pub(super) struct BridgeIpfix {
    bridge: BridgeId,
    /// The IPFIX options of the bridge.
    options: IpfixOptions,
    /// The collectors of the bridge.
    collectors: ExportCollectors,
    /// The ring of samples of each packet thread.
    receivers: Vec<SampleReceiver>,
    /// The parser of sampled headers.
    parser: SampleParser,
    /// The encoder of IPFIX messages.
    exporter: IpfixExporter,
    /// The flows that are not exported yet.
    cache: IpfixCache,
    /// The ports that the tables had when the indices were read.
    ports: Option<Arc<[Arc<PortInfo>]>>,
    /// The interface indices of the ports, also of removed ports.
    indices: InterfaceIndices,
    /// Time at which the templates are sent again.
    next_templates: Time,
    /// The log of lost samples.
    losses: LossLog,
}

/// The time of a round by the daemon's clock and since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpfixClock {
    /// Time by the clock of the daemon.
    pub(super) now: Time,
    /// Time of the round since 1970.
    pub(super) unix_time: Duration,
}

/// The reason for the end of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpfixEnd {
    /// IPFIX was switched off on the bridge.
    Stopped,
    /// A new exporter has the changed options.
    Replaced,
}

/// Time between two transmissions of the templates.
///
/// A collector program that starts later cannot decode flows until the next transmission.
pub(super) const TEMPLATE_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of flows that the active timeout reports in one round.
const TIMED_OUT_PER_ROUND: usize = 4096;

/// The interface index of a packet without exactly one known output.
///
/// The packet has no output, several outputs, or an unknown output.
pub(super) const NO_INTERFACE: u32 = 0;

/// The reason why packet threads lose samples.
const TOO_MANY_SAMPLES: &str = "more packets are sampled than can be read; set a higher \
                                `sampling`";

impl BridgeIpfix {
    /// Creates an exporter, which sends its templates immediately.
    ///
    /// `totals` are the counters of the exporter that this exporter replaces. The function must be
    /// called in a tokio runtime.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        options: &IpfixOptions,
        targets: &[SocketAddr],
        receivers: Vec<SampleReceiver>,
        totals: &Arc<ExportTotals>,
    ) -> Self {
        let limits = IpfixLimits {
            active_timeout_ms: milliseconds(options.active_timeout()),
            flows_max: usize::try_from(options.cache_max_flows).unwrap_or(usize::MAX),
        };
        let owner = format!("bridge {name}: IPFIX");
        let mut collectors = ExportCollectors::new(owner, TemplateUse::EachSocket, totals);
        collectors.set(targets);
        Self {
            bridge,
            options: options.clone(),
            collectors,
            receivers,
            parser: SampleParser::default(),
            exporter: IpfixExporter::new(options.obs_domain_id, Some(options.sampling))
                .with_virtual_id(&options.virtual_obs_id),
            cache: IpfixCache::new(limits),
            ports: None,
            indices: InterfaceIndices::new(),
            next_templates: Time::ZERO,
            losses: LossLog::default(),
        }
    }

    /// Returns the state of the exporter.
    pub(super) fn status(&self, now: Time) -> IpfixStatus {
        let counts = self.collectors.totals().counts();
        let mut problems = self.collectors.problems();
        if self.losses.is_recent(now) {
            problems.push(format!("samples are lost, because {TOO_MANY_SAMPLES}"));
        }
        IpfixStatus {
            options: self.options.clone(),
            active_flows: self.cache.len() as u64,
            samples: counts.samples,
            samples_dropped: counts.samples_dropped + self.dropped(),
            flows: counts.flows,
            flows_lost: counts.records_lost,
            messages: counts.sent,
            messages_lost: counts.lost,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }

    /// Returns the collectors of the bridge, with their counters.
    pub(super) const fn collectors(&self) -> &ExportCollectors {
        &self.collectors
    }

    /// Collects the samples in the rings, and reports flows that have ended.
    ///
    /// Flows and samples wait while no collector has space. Returns a log line if samples were
    /// lost.
    pub(super) fn run(&mut self, bridges: &Bridges, clock: IpfixClock) -> Option<String> {
        self.send_templates(clock);
        self.add_samples(bridges, clock);
        let now_ms = milliseconds(clock.unix_time);
        for _ in 0..TIMED_OUT_PER_ROUND / CHUNK {
            let has_room = self.collectors.has_room();
            if !has_room || self.report_some(clock, |cache| cache.pop_timed_out(now_ms)) {
                break;
            }
        }
        let lost = self.losses.note(self.dropped(), clock.now)?;
        let owner = self.collectors.owner();
        Some(format!("{owner}: {lost} samples were lost, because {TOO_MANY_SAMPLES}"))
    }

    /// Prepares for the end of the exporter, while the ports of its last samples exist.
    ///
    /// Packet threads must have no sampler of the exporter any more.
    pub(super) fn begin_end(&mut self, bridges: &Bridges) {
        self.follow_ports(bridges);
        let dropped = self.dropped();
        self.collectors.totals().update(|totals| totals.samples_dropped += dropped);
    }

    /// Reports a part of the samples in the rings, and then of all flows.
    ///
    /// Returns whether samples or flows are left.
    pub(super) fn report_rest(&mut self, bridges: &Bridges, clock: IpfixClock) -> bool {
        self.send_templates(clock);
        if self.receivers.iter().any(|own| !own.is_empty()) {
            self.add_samples(bridges, clock);
            return true;
        }
        !self.report_some(clock, |cache| cache.pop(FlowEndReason::ForcedEnd))
    }

    /// Sends the last messages. Flows that still wait for a report count as lost.
    pub(super) async fn end(self, end: IpfixEnd) {
        let Self { collectors, cache, .. } = self;
        let (totals, owner) = (Arc::clone(collectors.totals()), collectors.owner().to_owned());
        totals.update(|totals| totals.records_lost += cache.len() as u64);
        collectors.end().await;
        let counts = totals.counts();
        let (flows, flows_lost) = (counts.flows, counts.records_lost);
        match end {
            IpfixEnd::Stopped => info!(flows, flows_lost, "{owner} stopped"),
            IpfixEnd::Replaced => {}
        }
    }

    /// Sends the templates at intervals, and immediately through new sockets.
    fn send_templates(&mut self, clock: IpfixClock) {
        if clock.now >= self.next_templates || self.collectors.need_templates() {
            let seconds = seconds(clock.unix_time);
            self.next_templates = clock.now.after(TEMPLATE_INTERVAL);
            self.exporter.add_templates(seconds);
            self.collectors.send_templates(self.exporter.take_messages(seconds));
        }
    }

    /// Adds samples from the rings to their flows, as long as collectors have space.
    fn add_samples(&mut self, bridges: &Bridges, clock: IpfixClock) {
        // A port is published before packet threads receive from it. So the ports of all samples
        // counted here are in the port list that is read below; later samples wait for the next
        // round. The count also bounds the round, so a flood of samples cannot hold the task.
        let counts: Vec<usize> = self.receivers.iter().map(SampleReceiver::len).collect();
        self.follow_ports(bridges);
        for (index, mut left) in counts.into_iter().enumerate() {
            while left > 0 && self.collectors.has_room() {
                self.add_samples_of(index, left.min(CHUNK), clock);
                left = left.saturating_sub(CHUNK);
            }
        }
    }

    /// Adds at most `count` samples of a ring to their flows.
    fn add_samples_of(&mut self, index: usize, count: usize, clock: IpfixClock) {
        let (seconds, now_ms) = (seconds(clock.unix_time), milliseconds(clock.unix_time));
        let (mut samples, mut flows) = (0, 0);
        for _ in 0..count {
            let Some(packet) = self.receivers[index].pop() else { break };
            samples += 1;
            let egress = match packet.egress {
                SampledEgress::Port(port) => self.interface(port),
                SampledEgress::Unknown
                | SampledEgress::Dropped
                | SampledEgress::Controller
                | SampledEgress::Ports(_) => NO_INTERFACE,
            };
            let observation = SampleObservation {
                observed_at: self.observed_at(),
                direction: FlowDirection::Ingress,
                interfaces: [self.interface(packet.ingress), egress],
            };
            let (key, counts) = self.parser.flow_of(&packet, &observation, now_ms);
            if let Some(flow) = self.cache.add(key, counts, now_ms) {
                self.exporter.add_flow(&flow, seconds);
                flows += 1;
            }
        }
        self.collectors.totals().update(|totals| {
            totals.samples += samples;
            totals.flows += flows;
        });
        self.collectors.send(self.exporter.take_messages(seconds));
    }

    /// Reports flows that `pop` takes from the cache, at most one chunk.
    ///
    /// Returns whether `pop` has no more flows.
    fn report_some(
        &mut self,
        clock: IpfixClock,
        pop: impl Fn(&mut IpfixCache) -> Option<IpfixFlow>,
    ) -> bool {
        let seconds = seconds(clock.unix_time);
        let mut flows = 0;
        while flows < CHUNK
            && let Some(flow) = pop(&mut self.cache)
        {
            self.exporter.add_flow(&flow, seconds);
            flows += 1;
        }
        self.collectors.totals().update(|totals| totals.flows += flows as u64);
        self.collectors.send(self.exporter.take_messages(seconds));
        flows < CHUNK
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

    /// Returns the observation point of the configured options.
    const fn observed_at(&self) -> ObservationPoint {
        let IpfixOptions { obs_domain_id, obs_point_id, .. } = self.options;
        ObservationPoint { domain: obs_domain_id, point: obs_point_id }
    }

    /// Returns the number of samples that did not fit the rings.
    fn dropped(&self) -> u64 {
        self.receivers.iter().map(SampleReceiver::dropped).sum()
    }

    /// Returns the interface number of a port.
    fn interface(&self, port: DatapathPort) -> u32 {
        self.indices.get(&port).copied().unwrap_or(NO_INTERFACE)
    }
}

/// Returns a time in seconds.
///
/// The 32-bit field of IPFIX messages overflows in the year 2106.
pub(super) fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Returns a time in milliseconds.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
