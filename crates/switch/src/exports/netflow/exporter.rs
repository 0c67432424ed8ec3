//! The NetFlow exporter of one bridge: its flows and its collectors.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use shunt_datapath::{
    netflow::{ExpiredFlow, NetflowReceiver},
    sample::SampledEgress,
};
use shunt_flow::PortNo;
use shunt_flow_export::netflow::{NetflowClock, NetflowEngine, NetflowExporter, NetflowRecord};
use shunt_pipeline::{BridgeId, DatapathPort, Time};

use crate::{
    config::NetflowOptions, exports::collectors::ExportCollectors, status::netflow::NetflowStatus,
};

/// The OpenFlow numbers of the ports of all bridges.
pub(super) type PortNumbersByDatapath = BTreeMap<DatapathPort, PortNo>;

/// The NetFlow exporter of a bridge.
pub(super) struct BridgeNetflow {
    bridge: BridgeId,
    options: NetflowOptions,
    collectors: ExportCollectors,
    receivers: Vec<NetflowReceiver>,
    exporter: NetflowExporter,
    /// The ports, with those that were removed.
    ports: PortNumbersByDatapath,
    started: Time,
    /// Time of the next refresh of sockets and ports.
    next_refresh: Time,
    /// Number of flows that were reported.
    flows: u64,
}

/// Time between two refreshes of sockets and ports.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Output interfaces that are no port, as in Open vSwitch.
const OUTPUT_DROPPED: u16 = 65_533;
const OUTPUT_MULTIPLE: u16 = 65_534;

/// The output interface of a flow if it is not known.
const OUTPUT_UNKNOWN: u16 = 0;

/// The IP protocol of ICMP.
const ICMP: u8 = 1;

impl BridgeNetflow {
    /// Creates an exporter.
    pub(super) fn new(
        bridge: BridgeId,
        name: &str,
        receivers: Vec<NetflowReceiver>,
        now: Time,
    ) -> Self {
        Self {
            bridge,
            options: NetflowOptions::default(),
            collectors: ExportCollectors::new(format!("bridge {name}: NetFlow"), Vec::new()),
            receivers,
            exporter: NetflowExporter::default(),
            ports: BTreeMap::new(),
            started: now,
            next_refresh: now,
            flows: 0,
        }
    }

    /// Sets the options, and keeps flows and sequence numbers.
    pub(super) fn set(&mut self, options: &NetflowOptions, targets: Vec<SocketAddr>, now: Time) {
        self.options = options.clone();
        self.collectors.replace(targets);
        self.exporter.set_engine(NetflowEngine { kind: options.engine_type, id: self.engine() });
        for receiver in &self.receivers {
            receiver.set_active_timeout(options.active_timeout());
        }
        self.next_refresh = now;
    }

    /// Returns the state of the exporter.
    pub(super) fn status(&self) -> NetflowStatus {
        let faults = self.collectors.faults();
        NetflowStatus {
            options: self.options.clone(),
            engine: self.engine(),
            active_flows: self.receivers.iter().map(NetflowReceiver::flows).sum(),
            flows: self.flows,
            flows_lost: self.receivers.iter().map(NetflowReceiver::lost).sum(),
            datagrams: self.collectors.sent(),
            datagrams_lost: self.collectors.lost(),
            trouble: (!faults.is_empty()).then(|| faults.join("; ")),
        }
    }

    /// Returns whether [`Self::run`] needs the ports at `now`.
    pub(super) fn needs_ports(&self, now: Time) -> bool {
        now >= self.next_refresh
    }

    /// Sends the flows in the rings; `unix_time` is that of `now`.
    pub(super) fn run(
        &mut self,
        ports: Option<PortNumbersByDatapath>,
        now: Time,
        unix_time: Duration,
    ) {
        if let Some(ports) = ports {
            // Flows of a port that was removed end later: its number stays until it is used again.
            self.ports.extend(ports);
            self.next_refresh = now.after(REFRESH_INTERVAL);
            self.collectors.refresh();
        }
        for index in 0..self.receivers.len() {
            // Bounded by the current content: a flood of flows must not keep the task.
            for _ in 0..self.receivers[index].len() {
                let Some(flow) = self.receivers[index].pop() else { break };
                self.flows += 1;
                self.exporter.add(&self.record(&flow));
            }
        }
        let uptime_ms = self.uptime_ms(now);
        let clock = NetflowClock { uptime_ms, since_epoch: unix_time };
        for datagram in self.exporter.take_datagrams(clock) {
            self.collectors.send(&datagram);
        }
    }

    fn record(&self, flow: &ExpiredFlow) -> NetflowRecord {
        let ExpiredFlow { key, counts, egress } = flow;
        let output = match egress {
            SampledEgress::Unknown => OUTPUT_UNKNOWN,
            SampledEgress::Dropped | SampledEgress::Controller => OUTPUT_DROPPED,
            SampledEgress::Port(port) => {
                self.ports.get(port).copied().map_or(OUTPUT_UNKNOWN, short)
            }
            SampledEgress::Ports(_) => OUTPUT_MULTIPLE,
        };
        // An ICMP message has its type and code in place of the destination port.
        let (source_port, destination_port) = match key.protocol {
            ICMP => (0, key.source_port << 8 | key.destination_port),
            _ => (key.source_port, key.destination_port),
        };
        NetflowRecord {
            source: Ipv4Addr::from(key.source),
            destination: Ipv4Addr::from(key.destination),
            input: self.interface(short(PortNo::new(key.in_port))),
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

    fn engine(&self) -> u8 {
        self.options.engine_of(self.bridge.number())
    }

    /// Returns the milliseconds from the start to a time, which wrap around.
    #[expect(clippy::cast_possible_truncation, reason = "times of NetFlow wrap around")]
    fn uptime_ms(&self, time: Time) -> u32 {
        time.since(self.started).as_millis() as u32
    }
}

/// Returns a port number in 16 bits, as in OpenFlow 1.0: `LOCAL` is 65534.
#[expect(clippy::cast_possible_truncation, reason = "reserved ports have the same low 16 bits")]
const fn short(number: PortNo) -> u16 {
    number.number() as u16
}
