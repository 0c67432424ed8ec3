//! Forwarding time after a change that makes every entry stale: with repair, without it, and before
//! a change.
//!
//! A packet thread forwards a round of flows, one packet each. `before` is a round with all flows
//! cached. `off` and `on` are the first round after the replacement of a rule that every flow
//! depends on. They include the iteration that takes the invalidation, and the wait of each packet.
//! `few` fits the translations of one iteration, `many` does not. Times are CPU time of the thread.

#![expect(clippy::expect_used, reason = "a bench that cannot begin says why and ends")]

use std::{sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::time::{ClockId, clock_gettime};
use shunt_datapath::{
    Command, EvictionCoordinator, Packet, PacketThread, Pool, Repair, ThreadConfig, Waker,
    command::ThreadPort,
    metrics::PortTraffic,
    port::{Port, Queues, pair::pair},
    thread::{ControlEnds, QueueSizes, Wakers, thread_ends},
};
use shunt_flow::{PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, OwnerId, Pipeline, PortInfo, Time,
    text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Flows of a round.
const SIZES: [(&str, u16); 2] = [("few", 16), ("many", 2048)];

/// A packet thread between two ports, with the far ends of both.
struct Bench {
    pipeline: Arc<Pipeline>,
    coordinator: EvictionCoordinator,
    thread: PacketThread,
    ends: Vec<Queues>,
    pool: Pool,
    now: Time,
    flows: u16,
    changes: u32,
}

impl Bench {
    fn new(flows: u16, repair: Repair) -> Self {
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let ports = [1, 2].map(PortInfo::datapath);
        pipeline.set_ports(BRIDGE, ports.into()).expect("the bridge is there");
        let version = pipeline.version();
        let waker = || Arc::new(Waker::new().expect("there are descriptors"));
        let (coordinator_waker, control, learner) = (waker(), waker(), waker());
        let wakers = Wakers { coordinator: Arc::clone(&coordinator_waker), control, learner };
        let made = thread_ends(OwnerId(0), version, QueueSizes::default(), wakers);
        let (thread_end, mut controls, coordinator_endpoint) = made.expect("there are descriptors");
        let config =
            ThreadConfig { repair, translations_per_iteration: 64, ..ThreadConfig::default() };
        let thread = PacketThread::new(config, Arc::clone(&pipeline), thread_end);
        let engine = Box::new(Direct::new(version, 1));
        let (coordinator, _) = EvictionCoordinator::new(
            engine,
            version,
            vec![coordinator_endpoint],
            coordinator_waker,
        );
        let ends = [1, 2].map(|port| attach(&mut controls, port)).into();
        let (pool, now) = (Pool::new(), Time::ZERO.after(Duration::from_secs(1)));
        let mut bench = Self { pipeline, coordinator, thread, ends, pool, now, flows, changes: 0 };
        bench.change();
        bench.round();
        // The second round reports the entries of the first, and counts their hits.
        bench.round();
        bench
    }

    /// Replaces the rule that every flow depends on. The thread is not notified yet.
    fn change(&mut self) {
        self.changes += 1;
        let text = format!(
            "udp,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],load:{}->NXM_NX_REG1[],output:2",
            self.changes
        );
        let rule =
            parse_rule(FlowModCommand::Add, &text, &NoPortNames).expect("the text is a rule");
        let change = self.pipeline.apply(BRIDGE, &[rule], self.now).expect("the rule is legal");
        self.coordinator.take_reports();
        self.coordinator.apply(change.version, &change.deltas);
        self.pipeline.reclaim(self.thread.version());
        // Finish deferred work now, not in the timed round.
        while self.coordinator.run_iteration() {}
    }

    /// Sends a packet of each flow, and runs iterations until all are received.
    fn round(&mut self) {
        let (mut sent, mut came) = (0, 0);
        let mut burst = Vec::new();
        while came < self.flows {
            while sent < self.flows && sent < came + IN_FLIGHT && self.send(sent) {
                sent += 1;
            }
            self.now = self.now.after(Duration::from_micros(10));
            self.thread.run_iteration(self.now);
            if let Some(rx) = &mut self.ends[1].rx {
                while rx.rx(&mut self.pool, &mut burst).is_ok() && !burst.is_empty() {
                    came += u16::try_from(burst.len()).unwrap_or_default();
                    burst.drain(..).for_each(|packet| self.pool.give(packet));
                }
            }
        }
    }

    fn send(&mut self, flow: u16) -> bool {
        let frame = frame(flow);
        let Some(mut packet) = self.pool.take(frame.len(), DatapathPort::new(1)) else {
            return false;
        };
        packet.frame_mut().copy_from_slice(&frame);
        let packets: [Packet; 1] = [packet];
        let is_sent = self.ends[0].tx.tx(&packets) == 1;
        packets.into_iter().for_each(|packet| self.pool.give(packet));
        is_sent
    }
}

/// Maximum number of packets between the two far ends.
const IN_FLIGHT: u16 = 128;

/// Adds a port to the thread; returns its far end.
fn attach(controls: &mut ControlEnds, number: u32) -> Queues {
    let (mut near, mut far) = pair(1, u64::from(number));
    let capabilities = near.capabilities();
    let queues = |port: &mut dyn Port| port.split(1).ok()?.pop();
    let added = ThreadPort {
        port: DatapathPort::new(number),
        bridge: BRIDGE,
        number: PortNo::new(number),
        capabilities,
        queues: queues(&mut near).expect("the port has a queue"),
        traffic: Arc::<PortTraffic>::default(),
    };
    controls.send(Command::AddPort(Box::new(added))).expect("there is room");
    queues(&mut far).expect("the port has a queue")
}

/// Returns a UDP packet from one of many ports.
fn frame(flow: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 53, 0, 26]);
    frame
}

fn repair(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("after a change");
    for (size, flows) in SIZES {
        group.throughput(Throughput::Elements(u64::from(flows)));
        let ways = [("off", Repair::Off, true), ("on", Repair::On, true)];
        for (name, repair, changes) in ways.into_iter().chain([("before", Repair::Off, false)]) {
            let mut bench = Bench::new(flows, repair);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_custom(|count| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..count {
                        if changes {
                            bench.change();
                        }
                        sum += timed(&mut bench);
                    }
                    sum
                });
            });
        }
    }
    group.finish();
}

/// Returns the CPU time of a round: other load on the machine does not count.
fn timed(bench: &mut Bench) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("there is such a clock");
        Duration::from(now)
    };
    let begin = now();
    bench.round();
    now() - begin
}

criterion_group!(benches, repair);
criterion_main!(benches);
