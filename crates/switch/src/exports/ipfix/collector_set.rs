//! The IPFIX exporter of one set of collectors: flows of the packets that rules sample.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use shunt_datapath::rule_sample::RuleSample;
use shunt_flow::PortNo;
use shunt_flow_export::{
    ExportDatagram,
    ipfix::{
        FlowDirection, FlowEndReason, IpfixCache, IpfixExporter, IpfixFlow, IpfixLimits,
        ObservationPoint,
    },
};
use shunt_pipeline::{BridgeId, PortInfo, SampleAction, SampleDirection, Time};
use tracing::info;

use super::{
    exporter::{IpfixClock, IpfixEnd, NO_INTERFACE, TEMPLATE_INTERVAL, milliseconds, seconds},
    sample::{SampleObservation, SampleParser},
};
use crate::{
    config::CollectorSetOptions,
    exports::{
        collector::TemplateUse,
        collectors::ExportCollectors,
        sflow::{InterfaceIndices, indices, indices_by_number},
        task::CHUNK,
        totals::ExportTotals,
    },
    ports::bridges::Bridges,
    status::collector_set::CollectorSetStatus,
};

/// The IPFIX exporter of a set of collectors.
pub(super) struct CollectorSetIpfix {
    /// The number of the bridge.
    bridge: BridgeId,
    /// The options of the set of collectors.
    options: CollectorSetOptions,
    /// The collectors of the set.
    collectors: ExportCollectors,
    /// The encoders, by the observation domain that rules name.
    exporters: BTreeMap<u32, IpfixExporter>,
    /// The flows that are not exported yet.
    cache: IpfixCache,
    /// The interface indices of ports.
    interfaces: SetInterfaces,
    /// Time at which the templates are sent again.
    next_templates: Time,
}

/// The interface indices of the ports of a bridge.
#[derive(Default)]
struct SetInterfaces {
    /// The ports that the tables had when the indices were read.
    ports: Option<Arc<[Arc<PortInfo>]>>,
    /// Indices by datapath port, also of removed ports.
    by_port: InterfaceIndices,
    /// Indices by the port number in the bridge.
    by_number: BTreeMap<PortNo, u32>,
}

/// Maximum number of observation domains.
///
/// With one more domain, the sequence numbers of all domains begin again.
const DOMAINS_MAX: usize = 256;

impl CollectorSetIpfix {
    /// Creates an exporter; must be called in a tokio runtime.
    ///
    /// `totals` are the counters of the exporter that this exporter replaces.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        options: &CollectorSetOptions,
        targets: &[SocketAddr],
        totals: &Arc<ExportTotals>,
    ) -> Self {
        let limits = IpfixLimits {
            active_timeout_ms: milliseconds(options.active_timeout()),
            flows_max: usize::try_from(options.cache_max_flows).unwrap_or(usize::MAX),
        };
        let owner = format!("bridge {name}: collector set {}", options.id);
        let mut collectors = ExportCollectors::new(owner, TemplateUse::EachSocket, totals);
        collectors.set(targets);
        Self {
            bridge,
            options: options.clone(),
            collectors,
            exporters: BTreeMap::new(),
            cache: IpfixCache::new(limits),
            interfaces: SetInterfaces::default(),
            next_templates: Time::ZERO,
        }
    }

    /// Returns the options of the set of collectors.
    pub(super) const fn options(&self) -> &CollectorSetOptions {
        &self.options
    }

    /// Returns the collectors of the set, with their counters.
    pub(super) const fn collectors(&self) -> &ExportCollectors {
        &self.collectors
    }

    /// Returns the state of the exporter.
    pub(super) fn status(&self) -> CollectorSetStatus {
        let counts = self.collectors.totals().counts();
        let problems = self.collectors.problems();
        CollectorSetStatus {
            options: self.options.clone(),
            active_flows: self.cache.len() as u64,
            samples: counts.samples,
            flows: counts.flows,
            flows_lost: counts.records_lost,
            messages: counts.sent,
            messages_lost: counts.lost,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }

    /// Prepares for samples: reads the ports, and sends templates at intervals.
    pub(super) fn begin_round(&mut self, bridges: &Bridges, clock: IpfixClock) {
        self.interfaces.follow(bridges, self.bridge);
        self.send_templates(clock);
    }

    /// Adds a sample to its flow, unless its sampling port does not exist.
    pub(super) fn add(
        &mut self,
        sample: &RuleSample,
        parser: &mut SampleParser,
        clock: IpfixClock,
    ) {
        let RuleSample { request, packet } = sample;
        let ingress = self.interfaces.by_port.get(&packet.ingress).copied();
        let Some(observation) = self.interfaces.observation(&request.action, ingress) else {
            return;
        };
        let now_ms = milliseconds(clock.unix_time);
        let (key, counts) = parser.flow_by_rule(packet, &observation, now_ms);
        self.collectors.totals().update(|totals| totals.samples += 1);
        if let Some(flow) = self.cache.add(key, counts, now_ms) {
            self.encode(&flow, clock);
        }
    }

    /// Reports flows that have ended, as many as collectors have space for.
    pub(super) fn end_round(&mut self, clock: IpfixClock) {
        let now_ms = milliseconds(clock.unix_time);
        self.report(clock, |cache| cache.pop_timed_out(now_ms));
    }

    /// Reports a part of the remaining flows; returns whether flows are left.
    pub(super) fn report_rest(&mut self, clock: IpfixClock) -> bool {
        self.send_templates(clock);
        self.report(clock, |cache| cache.pop(FlowEndReason::ForcedEnd))
    }

    /// Sends the last messages. Flows that are not reported are lost.
    pub(super) async fn end(self, end: IpfixEnd) {
        let Self { collectors, cache, .. } = self;
        let (totals, owner) = (Arc::clone(collectors.totals()), collectors.owner().to_owned());
        totals.update(|totals| totals.records_lost += cache.len() as u64);
        collectors.end().await;
        let counts = totals.counts();
        let (flows, flows_lost) = (counts.flows, counts.records_lost);
        match end {
            IpfixEnd::Stopped => info!(flows, flows_lost, "{owner}: stopped"),
            IpfixEnd::Replaced => {}
        }
    }

    /// Reports flows that `pop` takes from the cache, if collectors have space.
    ///
    /// Returns whether flows may be left.
    fn report(
        &mut self,
        clock: IpfixClock,
        pop: impl Fn(&mut IpfixCache) -> Option<IpfixFlow>,
    ) -> bool {
        let mut flows = 0;
        while flows < CHUNK
            && self.collectors.has_room()
            && let Some(flow) = pop(&mut self.cache)
        {
            self.encode(&flow, clock);
            flows += 1;
        }
        let messages = self.take_messages(clock);
        self.collectors.send(messages);
        !self.cache.is_empty()
    }

    /// Encodes a flow; the first flow of a domain follows its templates.
    fn encode(&mut self, flow: &IpfixFlow, clock: IpfixClock) {
        let (domain, seconds) = (flow.key.observed_at.domain, seconds(clock.unix_time));
        if self.exporters.len() >= DOMAINS_MAX && !self.exporters.contains_key(&domain) {
            let messages = self.take_messages(clock);
            self.collectors.send(messages);
            self.exporters.clear();
        }
        let exporter = self.exporters.entry(domain).or_insert_with(|| {
            let exporter = IpfixExporter::new(domain, None);
            let mut exporter = exporter.with_virtual_id(&self.options.virtual_obs_id);
            exporter.add_templates(seconds);
            exporter
        });
        exporter.add_flow(flow, seconds);
        self.collectors.totals().update(|totals| totals.flows += 1);
    }

    /// Sends the templates of all domains at intervals,
    /// and immediately through new sockets.
    fn send_templates(&mut self, clock: IpfixClock) {
        if clock.now >= self.next_templates || self.collectors.need_templates() {
            self.next_templates = clock.now.after(TEMPLATE_INTERVAL);
            let seconds = seconds(clock.unix_time);
            self.exporters.values_mut().for_each(|own| own.add_templates(seconds));
            let messages = self.take_messages(clock);
            self.collectors.send_templates(messages);
        }
    }

    /// Returns the messages that are due.
    fn take_messages(&mut self, clock: IpfixClock) -> Vec<ExportDatagram> {
        let seconds = seconds(clock.unix_time);
        self.exporters.values_mut().flat_map(|own| own.take_messages(seconds)).collect()
    }
}

impl SetInterfaces {
    /// Reads the ports' interface indices if the ports of the bridge have changed.
    fn follow(&mut self, bridges: &Bridges, bridge: BridgeId) {
        let ports = bridges.published(bridge);
        let is_same = match (&ports, &self.ports) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            _ => false,
        };
        if !is_same {
            self.by_port.extend(indices(bridges, bridge));
            self.by_number = indices_by_number(bridges, bridge);
            self.ports = ports;
        }
    }

    /// Returns the observation of a packet: where it was sampled, and its interfaces.
    ///
    /// `ingress` is the interface index of the port that received the packet.
    ///
    /// As in Open vSwitch, a sampling port other than the ingress port is the egress port. A packet
    /// is not sampled if the sampling port does not exist.
    fn observation(
        &self,
        action: &SampleAction,
        ingress: Option<u32>,
    ) -> Option<SampleObservation> {
        let sampling = match action.sampling_port {
            Some(port) => Some(*self.by_number.get(&port)?),
            None => None,
        };
        let egress = sampling.filter(|own| Some(*own) != ingress);
        let direction = match (action.direction, egress) {
            (Some(SampleDirection::Ingress), _) | (None, None) => FlowDirection::Ingress,
            (Some(SampleDirection::Egress), _) | (None, Some(_)) => FlowDirection::Egress,
        };
        let (domain, point) = (action.observation_domain_id, action.observation_point_id);
        Some(SampleObservation {
            observed_at: ObservationPoint { domain, point },
            direction,
            interfaces: [ingress, egress].map(|own| own.unwrap_or(NO_INTERFACE)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are recorded from Open vSwitch 3.1.
    #[test]
    fn another_sampling_port_is_the_egress_port() {
        let interfaces = SetInterfaces {
            by_number: [(PortNo::new(1), 11), (PortNo::new(2), 22)].into(),
            ..SetInterfaces::default()
        };
        let observed = |sampling_port: Option<u32>, direction| {
            let action = SampleAction {
                probability: 1,
                collector_set_id: 2,
                observation_domain_id: 3,
                observation_point_id: 4,
                sampling_port: sampling_port.map(PortNo::new),
                direction,
            };
            let observation = interfaces.observation(&action, Some(11))?;
            assert_eq!(observation.observed_at, ObservationPoint { domain: 3, point: 4 });
            Some((observation.interfaces, observation.direction))
        };
        let (ingress, egress) = (FlowDirection::Ingress, FlowDirection::Egress);
        assert_eq!(observed(None, None), Some(([11, 0], ingress)));
        assert_eq!(observed(Some(1), None), Some(([11, 0], ingress)));
        assert_eq!(observed(Some(2), None), Some(([11, 22], egress)));
        assert_eq!(observed(Some(9), None), None, "no such port");
        assert_eq!(observed(Some(2), Some(SampleDirection::Ingress)), Some(([11, 22], ingress)));
        assert_eq!(observed(Some(1), Some(SampleDirection::Egress)), Some(([11, 0], egress)));
    }
}
