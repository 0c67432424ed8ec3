//! The NetFlow exporter of one bridge: its flows and its collectors.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use shunt_datapath::{
    netflow::{ExpiredFlow, NetflowReceiver},
    sample::SampledEgress,
};
use shunt_flow::PortNo;
use shunt_flow_export::netflow::{NetflowClock, NetflowEngine, NetflowExporter, NetflowRecord};
use shunt_pipeline::{BridgeId, DatapathPort, Time};
use tracing::info;

use crate::{
    config::NetflowOptions,
    exports::{collector::TemplateUse, collectors::ExportCollectors, losses::LossLog, task::CHUNK},
    status::netflow::NetflowStatus,
};

/// The OpenFlow numbers of the ports of all bridges.
pub(super) type PortNumbersByDatapath = BTreeMap<DatapathPort, PortNo>;

/// The NetFlow exporter of a bridge.
pub(super) struct BridgeNetflow {
    bridge: BridgeId,
    /// The NetFlow options of the bridge.
    options: NetflowOptions,
    /// The collectors of the bridge.
    collectors: ExportCollectors,
    /// The ring of ended flows of each packet thread.
    receivers: Vec<NetflowReceiver>,
    /// Index of the receiver that the next round reads first.
    ///
    /// The first receiver changes each round, so every receiver is served when collectors have
    /// little space.
    first_receiver: usize,
    /// The encoder of NetFlow datagrams.
    exporter: NetflowExporter,
    /// The port numbers, also of removed ports.
    ports: PortNumbersByDatapath,
    /// Time at which the exporter was created.
    started: Time,
    /// Time at which the ports are read next.
    next_ports: Time,
    /// The log of lost flows.
    losses: LossLog,
}

/// Time between two readings of the ports.
const PORTS_INTERVAL: Duration = Duration::from_secs(1);

/// Output interface number of dropped packets, as in Open vSwitch.
const OUTPUT_DROPPED: u16 = 65_533;
/// Output interface number of packets to several ports, as in Open vSwitch.
const OUTPUT_MULTIPLE: u16 = 65_534;

/// The output interface number of a flow if the output is not known.
const OUTPUT_UNKNOWN: u16 = 0;

/// The IP protocol number of ICMP.
const ICMP: u8 = 1;

/// The reason why packet threads lose flows.
const TOO_MANY_FLOWS: &str = "more flows end than can be reported; sFlow and IPFIX can sample \
                              packets instead";

impl BridgeNetflow {
    /// Creates an exporter without collectors.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        receivers: Vec<NetflowReceiver>,
        now: Time,
    ) -> Self {
        let owner = format!("bridge {name}: NetFlow");
        Self {
            bridge,
            options: NetflowOptions::default(),
            collectors: ExportCollectors::new(owner, TemplateUse::Never, &Arc::default()),
            receivers,
            first_receiver: 0,
            exporter: NetflowExporter::default(),
            ports: BTreeMap::new(),
            started: now,
            next_ports: now,
            losses: LossLog::default(),
        }
    }

    /// Sets the options; keeps flows, sequence numbers and unchanged collectors.
    ///
    /// The function must be called in a tokio runtime.
    pub(super) fn set(&mut self, options: &NetflowOptions, targets: &[SocketAddr]) {
        self.options = options.clone();
        self.collectors.set(targets);
        self.exporter.set_engine(NetflowEngine { kind: options.engine_type, id: self.engine() });
        for receiver in &self.receivers {
            receiver.set_active_timeout(options.active_timeout());
        }
    }

    /// Returns the state of the exporter.
    pub(super) fn status(&self, now: Time) -> NetflowStatus {
        let counts = self.collectors.totals().counts();
        let mut problems = self.collectors.problems();
        if self.losses.is_recent(now) {
            problems.push(format!("flows are lost, because {TOO_MANY_FLOWS}"));
        }
        NetflowStatus {
            options: self.options.clone(),
            engine: self.engine(),
            active_flows: self.receivers.iter().map(NetflowReceiver::flows).sum(),
            flows: counts.flows,
            flows_lost: self.lost_by_threads() + counts.records_lost,
            datagrams: counts.sent,
            datagrams_lost: counts.lost,
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }

    /// Returns whether [`Self::set_ports`] is due at `now`.
    pub(super) fn needs_ports(&self, now: Time) -> bool {
        now >= self.next_ports
    }

    /// Adds ports, or changes the numbers of ports.
    ///
    /// Flows of a removed port end later, so its number stays until another port gets its datapath
    /// number.
    pub(super) fn set_ports(&mut self, ports: PortNumbersByDatapath, now: Time) {
        self.ports.extend(ports);
        self.next_ports = now.after(PORTS_INTERVAL);
    }

    /// Reports the flows in the rings, as long as collectors have space.
    ///
    /// `unix_time` is the time since 1970 at `now`. Returns a log line if flows were lost.
    pub(super) fn run(&mut self, now: Time, unix_time: Duration) -> Option<String> {
        self.report_ended(self.clock(now, unix_time));
        let lost = self.losses.note(self.lost_by_threads(), now)?;
        let owner = self.collectors.owner();
        Some(format!("{owner}: {lost} flows were lost, because {TOO_MANY_FLOWS}"))
    }

    /// Reports a part of the flows in the rings, and then of `rest`.
    ///
    /// Returns whether flows are left.
    pub(super) fn report_rest(
        &mut self,
        rest: &mut impl Iterator<Item = ExpiredFlow>,
        now: Time,
        unix_time: Duration,
    ) -> bool {
        let clock = self.clock(now, unix_time);
        if self.receivers.iter().any(|own| !own.is_empty()) {
            self.report_ended(clock);
            return true;
        }
        let flows: Vec<ExpiredFlow> = rest.take(CHUNK).collect();
        self.report(&flows, clock);
        flows.len() == CHUNK
    }

    /// Returns the collectors of the bridge, with their counters.
    pub(super) const fn collectors(&self) -> &ExportCollectors {
        &self.collectors
    }

    /// Sends the last datagrams; counts `unreported` flows as lost.
    pub(super) async fn end(self, unreported: usize) {
        let (totals, owner) = (Arc::clone(self.collectors.totals()), self.collectors.owner());
        let (owner, by_threads) = (owner.to_owned(), self.lost_by_threads());
        totals.update(|totals| totals.records_lost += unreported as u64);
        self.collectors.end().await;
        let counts = totals.counts();
        let flows_lost = by_threads + counts.records_lost;
        info!(flows = counts.flows, flows_lost, "{owner} stopped");
    }

    /// Reports the flows that have ended.
    fn report_ended(&mut self, clock: NetflowClock) {
        let count = self.receivers.len();
        for step in 0..count {
            let index = (self.first_receiver + step) % count;
            // The present length bounds the round, so a flood of flows cannot hold the task.
            let mut left = self.receivers[index].len();
            while left > 0 && self.collectors.has_room() {
                let receiver = &mut self.receivers[index];
                let chunk = (0..left.min(CHUNK)).map_while(|_| receiver.pop());
                let flows: Vec<ExpiredFlow> = chunk.collect();
                self.report(&flows, clock);
                left = left.saturating_sub(CHUNK);
            }
        }
        self.first_receiver = (self.first_receiver + 1) % count.max(1);
    }

    /// Sends the records of flows to the collectors.
    fn report(&mut self, flows: &[ExpiredFlow], clock: NetflowClock) {
        for flow in flows {
            self.exporter.add(&self.record(flow));
        }
        self.collectors.totals().update(|totals| totals.flows += flows.len() as u64);
        self.collectors.send(self.exporter.take_datagrams(clock));
    }

    /// Returns the number of flows that packet threads have lost.
    fn lost_by_threads(&self) -> u64 {
        self.receivers.iter().map(NetflowReceiver::lost).sum()
    }

    /// Returns the record of a flow.
    fn record(&self, flow: &ExpiredFlow) -> NetflowRecord {
        let ExpiredFlow { key, counts, egress } = flow;
        let output = match egress {
            SampledEgress::Unknown => OUTPUT_UNKNOWN,
            SampledEgress::Dropped | SampledEgress::Controller => OUTPUT_DROPPED,
            SampledEgress::Port(port) => {
                self.ports.get(port).copied().map_or(OUTPUT_UNKNOWN, to_u16)
            }
            SampledEgress::Ports(_) => OUTPUT_MULTIPLE,
        };
        // The destination port of an ICMP record has the type and code of the message.
        let (source_port, destination_port) = match key.protocol {
            ICMP => (0, key.source_port << 8 | key.destination_port),
            _ => (key.source_port, key.destination_port),
        };
        NetflowRecord {
            source: Ipv4Addr::from(key.source),
            destination: Ipv4Addr::from(key.destination),
            input: self.interface(to_u16(PortNo::new(key.in_port))),
            output: self.interface(output),
            packets: counts.packets,
            bytes: counts.bytes,
            first_ms: self.uptime_ms(counts.first),
            last_ms: self.uptime_ms(counts.last),
            source_port,
            destination_port,
            tcp_flags: counts.tcp_flags,
            protocol: key.protocol,
            tos: key.tos,
        }
    }

    /// Returns the number of an interface in a record.
    fn interface(&self, number: u16) -> u16 {
        if self.options.add_id_to_interface {
            u16::from(self.engine() & 0x7f) << 9 | number & 0x1ff
        } else {
            number
        }
    }

    /// Returns the engine id of the bridge.
    fn engine(&self) -> u8 {
        self.options.engine_of(self.bridge.number())
    }

    /// Returns the times in the header of a datagram.
    fn clock(&self, now: Time, unix_time: Duration) -> NetflowClock {
        NetflowClock { uptime_ms: self.uptime_ms(now), since_epoch: unix_time }
    }

    /// Returns the milliseconds from the start of the exporter to a time, modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "times of NetFlow wrap around")]
    fn uptime_ms(&self, time: Time) -> u32 {
        time.since(self.started).as_millis() as u32
    }
}

/// Returns a port number in 16 bits, as in OpenFlow 1.0: `LOCAL` is 65534.
#[expect(clippy::cast_possible_truncation, reason = "reserved ports have the same low 16 bits")]
const fn to_u16(number: PortNo) -> u16 {
    number.number() as u16
}
