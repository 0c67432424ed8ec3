//! The IPFIX exporter of one bridge: its samples, its flows, and its collectors.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use shunt_datapath::sample::{SampleReceiver, SampledEgress};
use shunt_flow_export::ipfix::{
    FlowEndReason, IpfixCache, IpfixDomain, IpfixExporter, IpfixFlow, IpfixLimits,
};
use shunt_pipeline::{BridgeId, DatapathPort, PortInfo, Time};

use super::sample::flow_of;
use crate::{
    config::IpfixOptions,
    exports::collectors::ExportCollectors,
    exports::sflow::{InterfaceIndices, indices},
    ports::bridges::Bridges,
    status::ipfix::IpfixStatus,
};

/// The IPFIX exporter of a bridge.
pub(super) struct BridgeIpfix {
    bridge: BridgeId,
    options: IpfixOptions,
    collectors: ExportCollectors,
    receivers: Vec<SampleReceiver>,
    exporter: IpfixExporter,
    cache: IpfixCache,
    /// The ports that the tables had when the indices were read.
    ports: Option<Arc<[PortInfo]>>,
    /// The indices of the ports, with those of removed ports.
    indices: InterfaceIndices,
    /// Time of the next refresh of the sockets.
    next_refresh: Time,
    /// Time of the next templates.
    next_templates: Time,
    samples: u64,
    /// Number of flows that were reported.
    flows: u64,
}

/// Time between two refreshes of the sockets.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two transmissions of the templates.
///
/// A collector that starts later understands no flow until then.
const TEMPLATE_INTERVAL: Duration = Duration::from_secs(60);

/// The interface of a packet without one known output.
///
/// It leaves by none, by several, or by one that is not known.
const NO_INTERFACE: u32 = 0;

impl BridgeIpfix {
    /// Creates an exporter, which sends its templates at once.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        options: &IpfixOptions,
        targets: Vec<SocketAddr>,
        receivers: Vec<SampleReceiver>,
        now: Time,
    ) -> Self {
        let domain = IpfixDomain { domain: options.obs_domain_id, point: options.obs_point_id };
        let limits = IpfixLimits {
            active_timeout_ms: milliseconds(options.active_timeout()),
            flows_max: usize::try_from(options.cache_max_flows).unwrap_or(usize::MAX),
        };
        Self {
            bridge,
            options: options.clone(),
            collectors: ExportCollectors::new(format!("bridge {name}: IPFIX"), targets),
            receivers,
            exporter: IpfixExporter::new(domain, options.sampling),
            cache: IpfixCache::new(limits),
            ports: None,
            indices: InterfaceIndices::new(),
            next_refresh: now,
            next_templates: now,
            samples: 0,
            flows: 0,
        }
    }

    /// Returns the state of the exporter.
    pub(super) fn status(&self) -> IpfixStatus {
        let faults = self.collectors.faults();
        IpfixStatus {
            options: self.options.clone(),
            active_flows: self.cache.len() as u64,
            samples: self.samples,
            samples_dropped: self.receivers.iter().map(SampleReceiver::dropped).sum(),
            flows: self.flows,
            messages: self.collectors.sent(),
            messages_lost: self.collectors.lost(),
            trouble: (!faults.is_empty()).then(|| faults.join("; ")),
        }
    }

    /// Collects the samples in the rings, and sends flows that have ended.
    ///
    /// `unix_time` is that of `now`.
    pub(super) fn run(&mut self, bridges: &Bridges, now: Time, unix_time: Duration) {
        let (seconds, now_ms) = (seconds(unix_time), milliseconds(unix_time));
        if now >= self.next_refresh {
            self.next_refresh = now.after(REFRESH_INTERVAL);
            self.collectors.refresh();
        }
        if now >= self.next_templates {
            self.next_templates = now.after(TEMPLATE_INTERVAL);
            self.exporter.add_templates(seconds);
        }
        // A port is published before threads receive from it. So these samples are of ports that the
        // list below has, and samples that come later may not be.
        let counts: Vec<usize> = self.receivers.iter().map(SampleReceiver::len).collect();
        self.follow_ports(bridges);
        self.add_samples(&counts, now_ms, seconds);
        while let Some(flow) = self.cache.pop_timed_out(now_ms) {
            self.report(&flow, seconds);
        }
        self.send(seconds);
    }

    /// Sends all flows that are not reported yet.
    pub(super) fn end(&mut self, unix_time: Duration) {
        let seconds = seconds(unix_time);
        while let Some(flow) = self.cache.pop(FlowEndReason::ForcedEnd) {
            self.report(&flow, seconds);
        }
        self.send(seconds);
    }

    /// Reads the indices of the ports if the tables have other ports.
    ///
    /// Samples of a removed port may still be in the rings, so its index stays until another port gets
    /// its number.
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

    /// Adds the oldest samples of each ring to their flows.
    ///
    /// `counts` bounds them: a flood of samples must not keep the task.
    fn add_samples(&mut self, counts: &[usize], now_ms: u64, seconds: u32) {
        for (index, count) in counts.iter().enumerate() {
            for _ in 0..*count {
                let Some(packet) = self.receivers[index].pop() else { break };
                self.samples += 1;
                let egress = match packet.egress {
                    SampledEgress::Port(port) => self.interface(port),
                    SampledEgress::Unknown
                    | SampledEgress::Dropped
                    | SampledEgress::Controller
                    | SampledEgress::Ports(_) => NO_INTERFACE,
                };
                let interfaces = [self.interface(packet.ingress), egress];
                let (key, counts) = flow_of(&packet, interfaces, now_ms);
                if let Some(flow) = self.cache.add(key, counts, now_ms) {
                    self.report(&flow, seconds);
                }
            }
        }
    }

    fn interface(&self, port: DatapathPort) -> u32 {
        self.indices.get(&port).copied().unwrap_or(NO_INTERFACE)
    }

    fn report(&mut self, flow: &IpfixFlow, seconds: u32) {
        self.flows += 1;
        self.exporter.add_flow(flow, seconds);
    }

    fn send(&mut self, seconds: u32) {
        for message in self.exporter.take_messages(seconds) {
            self.collectors.send(&message);
        }
    }
}

/// Returns the seconds of a time; the field of messages ends in the year 2106.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
