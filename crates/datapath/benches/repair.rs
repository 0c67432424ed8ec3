//! The dip after a change that makes every entry stale: with and without repair, and how it is before
//! any change.
//!
//! A packet thread forwards a round of flows, one packet each. `before` is such a round when all is
//! cached. `off` and `on` are the first round after a rule that every flow depends on was replaced, from
//! the advance on: what the turn does that takes it, and what each packet has to wait for, is in it.
//! `few` fits a turn's translations, `many` does not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_datapath::{
    Command, EvictionDesk, Packet, PacketThread, Pool, Repair, ThreadConfig, Waker,
    command::ThreadPort,
    metrics::PortTraffic,
    port::{Port as _, Queues, pair::pair},
    thread::{ControlEnds, QueueSizes, Wakers, thread_ends},
};
use shunt_flow::{PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, Iterative, OwnerId, Pipeline, PortInfo,
    Time, text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Flows of a round.
const SIZES: [(&str, u16); 2] = [("few", 16), ("many", 2048)];

/// A packet thread between two ports, with the far ends of both.
struct Bench {
    pipeline: Arc<Pipeline>,
    desk: EvictionDesk,
    thread: PacketThread,
    ends: Vec<Queues>,
    pool: Pool,
    now: Time,
    flows: u16,
    priority: u16,
}

impl Bench {
    fn new(flows: u16, repair: Repair) -> Option<Self> {
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).ok()?;
        let version = pipeline.version();
        let waker = || Waker::new().map(Arc::new);
        let desk_waker = waker().ok()?;
        let (control, learner) = (waker().ok()?, waker().ok()?);
        let wakers = Wakers { desk: Arc::clone(&desk_waker), control, learner };
        let made = thread_ends(OwnerId(0), version, QueueSizes::default(), wakers).ok()?;
        let (thread_end, mut controls, desk_end) = made;
        let config = ThreadConfig { repair, translations_per_turn: 64, ..ThreadConfig::default() };
        let thread = PacketThread::new(config, Arc::clone(&pipeline), thread_end);
        let engine = Box::new(Iterative::new(Arc::clone(&pipeline)));
        let (desk, _) = EvictionDesk::new(engine, version, vec![desk_end], desk_waker);
        let ends =
            [1, 2].map(|port| attach(&mut controls, port)).into_iter().collect::<Option<_>>();
        let (pool, now) = (Pool::new(), Time::ZERO.after(Duration::from_secs(1)));
        let mut bench = Self { pipeline, desk, thread, ends: ends?, pool, now, flows, priority: 1 };
        bench.change()?;
        bench.round();
        Some(bench)
    }

    /// Replaces what every flow depends on. The thread has not heard of it.
    fn change(&mut self) -> Option<()> {
        self.priority += 1;
        let text = format!(
            "priority={},actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],output:2",
            self.priority
        );
        let rule = parse_rule(FlowModCommand::Add, &text, &NoPortNames).ok()?;
        let change = self.pipeline.apply(BRIDGE, &[rule], self.now).ok()?;
        self.desk.take_in();
        self.desk.apply(change.version, &change.deltas);
        self.pipeline.reclaim(self.thread.version());
        Some(())
    }

    /// Sends a packet of each flow, and turns until all have come out.
    fn round(&mut self) {
        let (mut sent, mut came) = (0, 0);
        let mut burst = Vec::new();
        while came < self.flows {
            while sent < self.flows && sent < came + IN_FLIGHT && self.send(sent) {
                sent += 1;
            }
            self.now = self.now.after(Duration::from_micros(10));
            self.thread.turn(self.now);
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

/// Packets between the two far ends at most.
const IN_FLIGHT: u16 = 128;

/// Gives the thread a port; answers with its far end.
fn attach(controls: &mut ControlEnds, number: u32) -> Option<Queues> {
    let (mut near, mut far) = pair(1, u64::from(number));
    let capabilities = near.capabilities();
    let added = ThreadPort {
        port: DatapathPort::new(number),
        bridge: BRIDGE,
        number: PortNo::new(number),
        capabilities,
        queues: near.split(1).ok()?.pop()?,
        traffic: Arc::<PortTraffic>::default(),
    };
    controls.send(Command::AddPort(Box::new(added))).ok()?;
    far.split(1).ok()?.pop()
}

/// A UDP packet from one of many ports.
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
            let Some(mut bench) = Bench::new(flows, repair) else { continue };
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

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn timed(bench: &mut Bench) -> Duration {
    let begin = Instant::now();
    bench.round();
    begin.elapsed()
}

criterion_group!(benches, repair);
criterion_main!(benches);
