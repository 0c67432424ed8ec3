//! Tests of the BFD thread: two sessions over a cable between two ports of one switch.

use std::{iter, sync::mpsc, thread, time::Duration};

use shunt_bfd::{BfdDiagnostic, BfdState, BfdStatus};
use shunt_datapath::port::{NoDescriptorStore, pair::pair};
use shunt_pipeline::{Iterative, Modification};
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
        cabled.until(|all| all.iter().all(|own| is_up(own) && is_known(own) && is_fast(own))).await;
        cabled
    }

    fn sessions(&self) -> Vec<BfdStatus> {
        let now = self.control.plane.now();
        let current = self.control.bridges.bfd().current();
        current.iter().map(|own| own.status(now).session).collect()
    }

    /// Waits until a condition holds for the sessions.
    async fn until(&self, is_true: impl Fn(&[BfdStatus]) -> bool) {
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
    let has_received = |all: &[BfdStatus]| {
        let counts = all.iter().zip(&before);
        counts.map(|(now, before)| now.counters.rx_packets - before.counters.rx_packets).min()
            >= Some(20)
    };
    cabled.until(|all| !all.iter().all(is_up) || is_long() && has_received(all)).await;
    let after = cabled.sessions();
    drop(release);
    holder.join().unwrap().unwrap();
    cabled.thread.stop();
    assert!(after.iter().all(is_up), "{after:?}");
    let flaps = |all: &[BfdStatus]| all.iter().map(|own| own.flap_count).collect::<Vec<_>>();
    assert_eq!(flaps(&after), flaps(&before));
}

/// The other end learns immediately that the session of a removed port ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_takes_the_other_end_down() {
    let cabled = CabledSessions::start().await;
    let (plane, sessions) = (&cabled.control.plane, cabled.control.bridges.bfd());
    end_sessions(plane, sessions, |own| own.name == "p1").await;
    cabled.until(|all| all.iter().all(|own| !is_up(own))).await;
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
fn a_panic_of_the_thread_is_in_its_status() {
    let handle: JoinHandle<()> = thread::spawn(|| panic!("as the test wants it"));
    let doomed = BfdThread { stop: Arc::default(), slot: Mutex::new(ThreadSlot::Running(handle)) };
    while doomed.status().state == ThreadState::Running {
        thread::yield_now();
    }
    assert_eq!(doomed.status().state, ThreadState::Panicked);
}
