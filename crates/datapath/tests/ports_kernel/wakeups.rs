//! Tests that every packet, and the removal of a device, wakes a sleeping packet thread.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shunt_datapath::{
    Command, CoordinatorEndpoint, PacketThread, Pool, ThreadConfig, Waker,
    command::ThreadPort,
    metrics::PortTraffic,
    port::{Port, PortSpec, Queues, af_xdp::XdpMode, open},
    thread::{
        ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_packet_thread, thread_ends,
    },
};
use shunt_flow::{PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, OwnerId, Pipeline, PortInfo, Time,
    text::parse_rule,
};

use crate::{
    close,
    frames::{frame, packets, settles},
    in_namespace, ip, packet_port, put_all_back, split_one, tap_port,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Time in milliseconds after which a frame counts as lost.
const LOST_MS: u16 = 20_000;

/// A running packet thread that sends all packets to its last port.
struct ForwardingThread {
    running: Running<PacketThread>,
    control: ControlEnds,
    _coordinator: CoordinatorEndpoint,
    traffic: Vec<Arc<PortTraffic>>,
}

impl ForwardingThread {
    #[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
    fn start(ports: &mut [Box<dyn Port>]) -> Self {
        let pipeline = Arc::new(Pipeline::new(7));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let count = u32::try_from(ports.len()).unwrap();
        pipeline.set_ports(BRIDGE, (1..=count).map(PortInfo::datapath).collect()).unwrap();
        let text = format!("actions=output:{count}");
        let rule = parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
        pipeline.apply(BRIDGE, &[rule], Time::ZERO).unwrap();
        let waker = || Arc::new(Waker::new().unwrap());
        let wakers = Wakers { coordinator: waker(), control: waker(), learner: waker() };
        let (ends, mut control, coordinator) =
            thread_ends(OwnerId(0), pipeline.version(), QueueSizes::default(), wakers).unwrap();
        let thread = PacketThread::new(ThreadConfig::default(), pipeline, ends);
        let config = RunnerConfig { index: 0, cpu: None, epoch: Instant::now() };
        let running = spawn_packet_thread(thread, config).unwrap();
        let mut traffic = Vec::new();
        for (port, number) in ports.iter_mut().zip(1..) {
            traffic.push(Arc::<PortTraffic>::default());
            let added = ThreadPort {
                port: DatapathPort::new(number),
                bridge: BRIDGE,
                number: PortNo::new(number),
                capabilities: port.capabilities(),
                queues: split_one(port.as_mut()),
                traffic: Arc::clone(traffic.last().unwrap()),
            };
            control.send(Command::AddPort(Box::new(added))).unwrap();
        }
        Self { running, control, _coordinator: coordinator, traffic }
    }

    /// Waits until the thread sleeps.
    #[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
    fn await_sleep(&self) {
        let start = Instant::now();
        while !self.control.is_asleep() {
            assert!(start.elapsed() < Duration::from_secs(20), "the thread does not sleep");
            thread::yield_now();
        }
    }
}

/// Receives `count` frames; sleeps until they arrive.
fn await_frames(queues: &mut Queues, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let rx = queues.rx.as_mut().unwrap();
    let mut frames = Vec::new();
    while frames.len() < count {
        let mut burst = Vec::new();
        rx.rx(pool, &mut burst).unwrap();
        if burst.is_empty() {
            let mut fds = [PollFd::new(rx.wait_fd().unwrap(), PollFlags::POLLIN)];
            let is_readable = poll(&mut fds, PollTimeout::from(LOST_MS)).unwrap() == 1;
            assert!(is_readable, "{} of {count} frames arrived", frames.len());
        }
        frames.extend(burst.iter().map(|packet| packet.frame().to_vec()));
        put_all_back(pool, burst);
    }
    frames
}

/// Sends a thousand bursts to a packet thread that is asleep, awake or in between.
fn no_frame_is_lost(mut ports: Vec<Box<dyn Port>>, hosts: Vec<Box<dyn Port>>) {
    let thread = ForwardingThread::start(&mut ports);
    let mut hosts: Vec<(Box<dyn Port>, Queues)> = hosts
        .into_iter()
        .map(|mut host| {
            let queues = split_one(host.as_mut());
            (host, queues)
        })
        .collect();
    let (_, mut collector) = hosts.pop().unwrap();
    let mut pool = Pool::new();
    let mut random = 1_u32;
    for round in 0..1000_usize {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match random >> 30 {
            0 => {}
            // Sends at about the time when the thread goes to sleep.
            1 => (0..random >> 18 & 0xfff).for_each(|_| std::hint::spin_loop()),
            _ => thread.await_sleep(),
        }
        let count = if random >> 12 & 15 == 0 { 40 } else { 1 };
        let index = round % hosts.len();
        let sent: Vec<_> = (0..count).map(|number| frame(number, 60 + index)).collect();
        let burst = packets(&mut pool, &sent);
        assert_eq!(hosts[index].1.tx.tx(&burst), burst.len());
        put_all_back(&mut pool, burst);
        assert_eq!(await_frames(&mut collector, &mut pool, sent.len()), sent, "round {round}");
    }
    assert!(thread.running.stop().is_some());
}

#[test]
fn thousand_frames_each_wake_thread_with_taps() {
    in_namespace(|| {
        let names: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
        let ports: Vec<_> = names.iter().map(|name| tap_port(name)).collect();
        let hosts: Vec<_> = names.iter().map(|name| packet_port(name)).collect();
        assert!(settles(|| hosts.iter().all(|host| host.link_up())));
        no_frame_is_lost(ports, hosts);
    });
}

#[test]
fn frames_wake_thread_with_packet_sockets() {
    in_namespace(|| {
        let (mut ports, mut hosts) = (Vec::new(), Vec::new());
        for number in 0..4 {
            ip(&format!("link add a{number} type veth peer name b{number}"));
            ip(&format!("link set a{number} up"));
            ip(&format!("link set b{number} up"));
            ports.push(packet_port(&format!("a{number}")));
            hosts.push(packet_port(&format!("b{number}")));
        }
        assert!(settles(|| hosts.iter().all(|host| host.link_up())));
        no_frame_is_lost(ports, hosts);
    });
}

/// The removal of a device of each kind wakes a sleeping thread.
#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn removed_device_is_noticed_by_sleeping_thread() {
    in_namespace(|| {
        for device in ["a0", "a1"] {
            ip(&format!("link add {device} type veth peer name peer-{device}"));
            ip(&format!("link set {device} up"));
        }
        let mut ports = vec![tap_port("t0"), packet_port("a0")];
        let xdp = PortSpec::AfXdp {
            device: "a1".to_owned(),
            mtu: None,
            mode: XdpMode::Generic,
            busy_poll_us: 0,
        };
        // Without the permission for AF_XDP, the test covers the other kinds.
        if let Ok(mut xdp) = open(&xdp, 0)
            && let Ok(queues) = xdp.split(1)
        {
            drop(queues);
            close(xdp);
            let again = PortSpec::AfXdp {
                device: "a1".to_owned(),
                mtu: None,
                mode: XdpMode::Generic,
                busy_poll_us: 0,
            };
            ports.push(open(&again, 0).unwrap());
        }
        let thread = ForwardingThread::start(&mut ports);
        for (number, device) in ["t0", "a0", "a1"].iter().enumerate().take(ports.len()) {
            thread.await_sleep();
            assert_eq!(thread.traffic[number].rx_broken.get(), 0, "{device}");
            ip(&format!("link del {device}"));
            let start = Instant::now();
            while thread.traffic[number].rx_broken.get() == 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "{device} is still polled");
                thread::yield_now();
            }
        }
        thread.await_sleep();
        assert!(thread.running.stop().is_some());
    });
}

/// The descriptor of a packet thread is readable exactly while a port has packets.
#[test]
fn a_frame_makes_the_thread_readable() {
    in_namespace(|| {
        let port = tap_port("t0");
        let host = packet_port("t0");
        assert!(settles(|| host.link_up()));
        let (mut ports, mut hosts) = (vec![port], vec![host]);
        let thread = ForwardingThread::start(&mut ports);
        thread.await_sleep();
        let mut stopped = thread.running.stop().unwrap();
        let mut host = split_one(hosts[0].as_mut());
        let mut pool = Pool::new();
        let sent = packets(&mut pool, &[frame(1, 60)]);
        let is_readable = |thread: &PacketThread| {
            let mut fds = [PollFd::new(thread.wait_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
        };
        for _ in 0..3 {
            // A thread that was stopped while awake may have work to finish.
            while !stopped.prepare_sleep() {
                stopped.run_iteration(Time::ZERO);
            }
            assert!(!is_readable(&stopped));
            assert_eq!(host.tx.tx(&sent), 1);
            assert!(is_readable(&stopped), "a frame arrived");
            stopped.unpark();
            assert_eq!(stopped.run_iteration(Time::ZERO).received, 1);
        }
        put_all_back(&mut pool, sent);
    });
}
