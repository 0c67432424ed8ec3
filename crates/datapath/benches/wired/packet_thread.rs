//! A packet thread between two ports, and the far ends of both ports.

use std::{sync::Arc, time::Duration};

use nix::time::{ClockId, clock_gettime};
use shunt_datapath::{
    Command, EvictionCoordinator, Packet, PacketThread, Pool, ThreadConfig, Waker,
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

/// The bridge of the ports.
pub(crate) const BRIDGE: BridgeId = BridgeId::new(1);

/// A packet thread and its two ports.
pub(crate) struct WiredThread {
    pipeline: Arc<Pipeline>,
    coordinator: EvictionCoordinator,
    thread: PacketThread,
    controls: ControlEnds,
    ends: Vec<Queues>,
    pool: Pool,
    now: Time,
}

/// Maximum number of sent packets that are not received yet.
const IN_FLIGHT: u16 = 128;

impl WiredThread {
    pub(crate) fn new(config: ThreadConfig) -> Self {
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let ports = [1, 2].map(PortInfo::datapath);
        pipeline.set_ports(BRIDGE, ports.into()).expect("the bridge is there");
        let version = pipeline.version();
        let waker = || Arc::new(Waker::new().expect("there are descriptors"));
        let (coordinator_waker, control, learner) = (waker(), waker(), waker());
        let wakers = Wakers { coordinator: Arc::clone(&coordinator_waker), control, learner };
        let made = thread_ends(OwnerId(0), version, QueueSizes::default(), wakers);
        let (thread_end, controls, coordinator_endpoint) = made.expect("there are descriptors");
        let thread = PacketThread::new(config, Arc::clone(&pipeline), thread_end);
        let engine = Box::new(Direct::new(version, 1));
        let (coordinator, _) = EvictionCoordinator::new(
            engine,
            version,
            vec![coordinator_endpoint],
            coordinator_waker,
        );
        let (ends, pool) = (Vec::new(), Pool::new());
        let now = Time::ZERO.after(Duration::from_secs(1));
        let mut own = Self { pipeline, coordinator, thread, controls, ends, pool, now };
        own.ends = [1, 2].map(|port| own.attach(port)).into();
        own
    }

    /// Sends a command to the thread, which takes it in its next iteration.
    pub(crate) fn command(&mut self, command: Command) {
        self.controls.send(command).expect("there is room");
    }

    /// Adds a port to the thread; returns its far end.
    fn attach(&mut self, number: u32) -> Queues {
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
        self.command(Command::AddPort(Box::new(added)));
        queues(&mut far).expect("the port has a queue")
    }

    /// Adds or replaces a rule. The thread is not notified yet.
    pub(crate) fn add_rule(&mut self, text: &str) {
        let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames).expect("the text is a rule");
        let change = self.pipeline.apply(BRIDGE, &[rule], self.now).expect("the rule is legal");
        self.coordinator.take_reports();
        self.coordinator.apply(change.version, &change.deltas);
        self.pipeline.reclaim(self.thread.version());
        // Finish deferred work now, not in the timed round.
        while self.coordinator.run_iteration() {}
    }

    /// Sends a packet of each flow, and runs iterations until all are received.
    pub(crate) fn round(&mut self, flows: u16) {
        let (mut sent, mut came) = (0, 0);
        let mut burst = Vec::new();
        while came < flows {
            while sent < flows && sent < came + IN_FLIGHT && self.send(sent) {
                sent += 1;
            }
            self.now = self.now.after(Duration::from_micros(10));
            self.thread.run_iteration(self.now);
            if let Some(rx) = &mut self.ends[1].rx {
                while rx.rx(&mut self.pool, &mut burst).is_ok() && !burst.is_empty() {
                    came += u16::try_from(burst.len()).unwrap_or_default();
                    burst.drain(..).for_each(|packet| self.pool.put_back(packet));
                }
            }
        }
    }

    /// Returns the CPU time of a round: other load on the machine does not count.
    pub(crate) fn timed_round(&mut self, flows: u16) -> Duration {
        let now = || {
            let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
            Duration::from(now.expect("there is such a clock"))
        };
        let begin = now();
        self.round(flows);
        now() - begin
    }

    fn send(&mut self, flow: u16) -> bool {
        let frame = frame(flow);
        let Some(mut packet) = self.pool.take(frame.len(), DatapathPort::new(1)) else {
            return false;
        };
        packet.frame_mut().copy_from_slice(&frame);
        let packets: [Packet; 1] = [packet];
        let is_sent = self.ends[0].tx.tx(&packets) == 1;
        packets.into_iter().for_each(|packet| self.pool.put_back(packet));
        is_sent
    }
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
