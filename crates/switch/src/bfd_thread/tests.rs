//! Tests of the BFD thread: two sessions over a cable between two ports of one switch.

use std::{
    cell::RefCell,
    iter,
    sync::mpsc::{self, TryRecvError},
    thread,
    time::Duration,
};

use shunt_bfd::{BfdDiagnostic, BfdState, BfdStatus};
use shunt_datapath::{
    Pool,
    port::{NoDescriptorStore, Port as _, Queues, pair::pair},
};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    DatapathPort, FlowMod, FlowModCommand, Iterative, Modification, RuleFilter, text::parse_rule,
};
use shunt_tls::TlsIdentity;
use tokio::time::timeout;

use super::*;
use crate::{
    config::{BfdOptions, BridgeOptions, Config, PortOptions},
    openflow::servers::OpenFlowServers,
    ports::frame_inbox::{ArrivedFrame, PortFrames},
    threads::data_plane::EngineMaker,
};

/// Maximum time to wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Time without packets after which the sessions of the tests expire.
const DETECTION_TIME: Duration = Duration::from_secs(1);

/// A control plane without periodic tasks, with BFD sessions at `p1` and `p2`.
struct CabledSessions {
    control: Arc<ControlPlane>,
    thread: BfdThread,
}

impl CabledSessions {
    async fn start() -> Self {
        let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
        let mut config = Config::default();
        // Translations of forecasts would need the tables, which the tests lock.
        config.foresight.predictors.clear();
        let store = Arc::new(NoDescriptorStore);
        let (control, receivers) = ControlPlane::start(&config, None, 1, engine, store).unwrap();
        let inbox = receivers.punts.bfd_packets;
        let thread = BfdThread::start(Arc::clone(&control), inbox).unwrap();
        let (tls, listening) = (TlsIdentity::default(), Arc::default());
        let servers = Arc::new(OpenFlowServers::new(&control, None, tls, listening));
        tokio::spawn(servers.run(receivers.events, receivers.punts.packet_ins));
        let bridge = BridgeOptions { name: "br0".to_owned(), ..BridgeOptions::default() };
        control.structure().await.add_bridge(&bridge).await.unwrap();
        let (left, right) = pair(config.threads.packet, 1);
        for (name, port) in [("p1", left), ("p2", right)] {
            let structure = control.structure().await;
            structure.add_own_port("br0", name, Box::new(port)).await.unwrap();
            let bfd = BfdOptions { min_tx_ms: 100, min_rx_ms: 100, mult: 10, ..Default::default() };
            let options =
                PortOptions { name: name.to_owned(), bfd: Some(bfd), ..PortOptions::default() };
            structure.set_bfd(&options).unwrap();
        }
        let cabled = Self { control, thread };
        let is_fast = |own: &BfdStatus| own.tx_interval == Some(DETECTION_TIME / 10);
        let is_known = |own: &BfdStatus| own.remote.state == BfdState::Up;
        cabled
            .wait_until(|all| all.iter().all(|own| is_up(own) && is_known(own) && is_fast(own)))
            .await;
        cabled
    }

    /// Returns the status of both sessions.
    fn sessions(&self) -> Vec<BfdStatus> {
        let now = self.control.plane.now();
        let current = self.control.bridges.bfd().current();
        current.iter().map(|own| own.status(now).session).collect()
    }

    /// Waits until a condition holds for the sessions.
    async fn wait_until(&self, is_true: impl Fn(&[BfdStatus]) -> bool) {
        let wait = async {
            while !is_true(&self.sessions()) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(WAIT_MAX, wait).await.unwrap();
    }
}

fn is_up(own: &BfdStatus) -> bool {
    own.state == BfdState::Up
}

/// Returns the least number of packets that a session has received since `before`.
fn received(all: &[BfdStatus], before: &[BfdStatus]) -> u64 {
    let counts = all.iter().zip(before);
    let counts = counts.map(|(now, before)| now.counters.rx_packets - before.counters.rx_packets);
    counts.min().unwrap_or_default()
}

/// Returns the number of flaps of each session.
fn flaps(all: &[BfdStatus]) -> Vec<u64> {
    all.iter().map(|own| own.flap_count).collect()
}

fn flow_mod(command: FlowModCommand, text: &str) -> FlowMod {
    parse_rule(command, text, &NoPortNames).unwrap()
}

/// The far end of the port `p3`, with frames that no cache entry matches.
struct MissSource {
    queues: Vec<Queues>,
    pool: Pool,
    sent: u16,
    answered: usize,
}

impl MissSource {
    /// Number of destinations; a rule for each returns the frame.
    const DESTINATIONS: u16 = 4096;

    async fn start(control: &ControlPlane) -> Self {
        let bridge = control.bridges.id("br0").unwrap();
        let threads = control.plane.threads_count();
        let (near, mut far) = pair(threads, 3);
        control.structure().await.add_own_port("br0", "p3", Box::new(near)).await.unwrap();
        let rules = (0..Self::DESTINATIONS).map(|own| {
            let [high, low] = own.to_be_bytes();
            let rule = format!("dl_dst=02:00:00:00:{high:02x}:{low:02x},actions=in_port");
            Modification::from(flow_mod(FlowModCommand::Add, &rule))
        });
        let publisher = control.plane.publisher();
        let added = publisher.change(|pipeline| pipeline.modify(bridge, rules, Time::ZERO));
        control.plane.adopted(added.unwrap()).await;
        let queues = far.split(threads).unwrap();
        Self { queues, pool: Pool::new(), sent: 0, answered: 0 }
    }

    /// Sends a frame to the next destination, and counts the frames that came back.
    fn exchange(&mut self) {
        let [high, low] = (self.sent % Self::DESTINATIONS).to_be_bytes();
        self.sent = self.sent.wrapping_add(1);
        let mut packet = self.pool.take(60, DatapathPort::new(0)).unwrap();
        packet.frame_mut().fill(0);
        packet.frame_mut()[..14]
            .copy_from_slice(&[2, 0, 0, 0, high, low, 2, 0, 0, 1, 0, 0, 0x88, 0xb5]);
        let packets = [packet];
        self.queues[0].tx.tx(&packets);
        packets.into_iter().for_each(|packet| self.pool.put_back(packet));
        for own in &mut self.queues {
            let mut burst = Vec::new();
            own.rx.as_mut().unwrap().rx(&mut self.pool, &mut burst).unwrap();
            self.answered += burst.len();
            burst.into_iter().for_each(|packet| self.pool.put_back(packet));
        }
    }
}

/// A change holds the tables for longer than the detection time of the sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_survive_a_long_hold_of_the_tables() {
    let cabled = CabledSessions::start().await;
    let before = cabled.sessions();
    let (control, bridge) =
        (Arc::clone(&cabled.control), cabled.control.bridges.id("br0").unwrap());
    let (holds, held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = thread::spawn(move || {
        // The change calls this iterator for its requests while it holds the tables.
        let requests = iter::from_fn(|| -> Option<Modification> {
            holds.send(()).ok()?;
            let _ = released.recv();
            None
        });
        control.plane.pipeline().modify(bridge, requests, Time::ZERO)
    });
    held.recv_timeout(WAIT_MAX).unwrap();
    let start = cabled.control.plane.now();
    let is_long = || cabled.control.plane.now().since(start) > DETECTION_TIME * 2;
    let has_received = |all: &[BfdStatus]| received(all, &before) >= 20;
    cabled.wait_until(|all| !all.iter().all(is_up) || is_long() && has_received(all)).await;
    let after = cabled.sessions();
    drop(release);
    holder.join().unwrap().unwrap();
    cabled.thread.stop();
    assert!(after.iter().all(is_up), "{after:?}");
    assert_eq!(flaps(&after), flaps(&before));
}

/// Packets without a cache entry pass during a long change and dumps of all rules.
///
/// The change lasts twice the detection time. If it held the tables for that long, the first of
/// these packets would stop its packet thread, and so the packets of both sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_survive_a_long_change_with_misses() {
    let cabled = CabledSessions::start().await;
    let misses = RefCell::new(MissSource::start(&cabled.control).await);
    let before = cabled.sessions();
    let bridge = cabled.control.bridges.id("br0").unwrap();
    // Both threads end when the test drops its ends of the channels.
    let (change, is_changing) = mpsc::channel::<()>();
    let (read, is_reading) = mpsc::channel::<()>();
    let control = Arc::clone(&cabled.control);
    let changer = thread::spawn(move || {
        // Each request searches the tables for a rule that does not exist.
        let request = flow_mod(FlowModCommand::Delete, "dl_dst=06:00:00:00:00:01");
        let requests = iter::from_fn(|| {
            let continues = is_changing.try_recv() == Err(TryRecvError::Empty);
            continues.then(|| Modification::from(request.clone()))
        });
        control.plane.pipeline().modify(bridge, requests, Time::ZERO)
    });
    let control = Arc::clone(&cabled.control);
    let reader = thread::spawn(move || {
        while is_reading.try_recv() == Err(TryRecvError::Empty) {
            let rules = control.plane.pipeline().rules(bridge, &RuleFilter::all());
            assert_eq!(rules.len(), usize::from(MissSource::DESTINATIONS));
        }
    });
    cabled
        .wait_until(|all| {
            misses.borrow_mut().exchange();
            let is_long = received(all, &before) >= 20 && misses.borrow().answered >= 100;
            !all.iter().all(is_up) || is_long
        })
        .await;
    let after = cabled.sessions();
    drop((change, read));
    changer.join().unwrap().unwrap();
    reader.join().unwrap();
    cabled.thread.stop();
    assert!(after.iter().all(is_up), "{after:?}");
    assert_eq!(flaps(&after), flaps(&before));
}

/// The other end learns immediately that the session of a removed port ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_takes_the_other_end_down() {
    let cabled = CabledSessions::start().await;
    let (plane, sessions) = (&cabled.control.plane, cabled.control.bridges.bfd());
    end_sessions(plane, sessions, |own| own.name == "p1").await;
    cabled.wait_until(|all| all.iter().all(|own| !is_up(own))).await;
    let reasons: Vec<_> = cabled.sessions().iter().map(|own| own.diagnostic).collect();
    assert_eq!(reasons, [BfdDiagnostic::ADMIN_DOWN, BfdDiagnostic::NEIGHBOR_DOWN]);
    cabled.thread.stop();
    assert_eq!(cabled.thread.status().state, ThreadState::Stopped);
}

/// A session does not expire while frames wait that arrived in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_thread_takes_no_session_down() {
    let cabled = CabledSessions::start().await;
    // From here on, no thread runs the sessions, and no packet is exchanged.
    cabled.thread.stop();
    let current = cabled.control.bridges.bfd().current();
    let [session, other] = &*current else { panic!("a session for each port") };
    let start = cabled.control.plane.now();
    let at = |ms| start.after(Duration::from_millis(ms));
    for (removed, sent, arrived, now) in [
        // The frame arrived in time, and is read later.
        (0, at(500), at(500), at(1200)),
        // Five earlier frames were dropped unread.
        (5, at(750), at(3000), at(3000)),
    ] {
        let (_, frame) = other.run(sent).frame.unwrap();
        let frames = [ArrivedFrame { arrived, frame }].into();
        assert!(session.receive(&PortFrames { frames, removed }).is_empty());
        assert!(session.run(now).events.is_empty(), "{removed} packets were removed");
        assert!(is_up(&session.status(now).session));
    }
}

#[test]
fn panic_of_thread_is_in_its_status() {
    let handle: JoinHandle<()> = thread::spawn(|| panic!("the test requests this panic"));
    let doomed = BfdThread {
        stop: Arc::default(),
        iterations: Arc::default(),
        slot: Mutex::new(ThreadSlot::Running(handle)),
    };
    while doomed.status().state == ThreadState::Running {
        thread::yield_now();
    }
    assert_eq!(doomed.status().state, ThreadState::Panicked);
}
