//! Threads that panic: no caller is blocked, and the status shows the panic.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use shunt_ofproto::message::{Message, MultipartReply, MultipartRequest, PortStatusReason};
use shunt_pipeline::{
    Delta, EntryId, Evictor, Installed, Iterative, OwnerId, RuleFilter, Traversal, Version,
};
use shunt_switch::{
    Config, EngineMaker, SwitchError,
    ThreadState::{Panicked, Running, Stopped},
    config::OffloadKind,
};

use crate::fixture::{BREAK, Controller, PANIC, SwitchFixture, frame, wait_until};

/// Returns the packet count of the only rule of a bridge.
async fn packet_count(controller: &mut Controller) -> u64 {
    let request = Message::MultipartRequest(MultipartRequest::Flow(RuleFilter::all()));
    match controller.ask(&request).await {
        Message::MultipartReply { reply: MultipartReply::Flow(flows), .. } => flows[0].packets,
        other => panic!("{other:?}"),
    }
}

fn is_down(message: &Message, name: &str) -> bool {
    match message {
        Message::PortStatus(status) => {
            status.reason == PortStatusReason::Modify
                && status.port.name == name
                && !status.port.link_up
        }
        _ => false,
    }
}

#[tokio::test]
async fn a_panicked_thread_takes_its_ports_down() {
    let fixture = SwitchFixture::start(2).await;
    let (doomed, from) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await);
    let to = fixture.add_port("p3", 1).await;
    fixture.switch.add_rules("br0", &["in_port=p2,actions=output:p3"]).await.unwrap();
    let mut controller = fixture.controller().await;
    from.send(&frame(1));
    assert_eq!(to.next_received().await, frame(1));

    doomed.send(PANIC);
    wait_until(|| fixture.port("p1").link == "down: packet thread 0 panicked").await;
    assert!(doomed.is_closed());
    assert_eq!(fixture.threads(), [Panicked, Running, Running, Running, Running, Running, Running]);
    assert_eq!(fixture.port("p2").link, "up");

    fixture.switch.add_rules("br0", &["in_port=p2,actions=output:p3,output:p3"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    from.send(&frame(2));
    assert_eq!([to.next_received().await, to.next_received().await], [frame(2), frame(2)]);
    assert_eq!(packet_count(&mut controller).await, 2);
    assert!(controller.events.iter().any(|event| is_down(event, "p1")));
    fixture.switch.remove_port("p1").await.unwrap();
    fixture.switch.remove_port("p2").await.unwrap();
    assert!(from.is_closed());
}

/// An eviction engine that panics at the next change after its flag is set.
struct PanickingEngine {
    inner: Iterative,
    doom: Arc<AtomicBool>,
    is_quick: bool,
}

impl Evictor for PanickingEngine {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        self.inner.installed(entry, traversal)
    }

    fn removed(&mut self, entry: EntryId) {
        self.inner.removed(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        assert!(!self.doom.load(Ordering::Relaxed), "the test requests this panic");
        self.inner.apply(deltas, version)
    }

    fn forget(&mut self, owner: OwnerId) {
        self.inner.forget(owner);
    }

    fn is_quick(&self, _deltas: &[Delta]) -> bool {
        self.is_quick
    }

    fn len(&self) -> usize {
        self.inner.len()
    }
}

#[tokio::test]
async fn without_the_eviction_thread_barriers_are_answered() {
    // The engine panics on the eviction thread, or on the thread that changes a rule.
    for is_quick in [false, true] {
        lose_the_eviction_thread(is_quick).await;
    }
}

/// Returns the constructor of the engine, and the flag that makes it panic.
fn panicking_engine(is_quick: bool) -> (EngineMaker, Arc<AtomicBool>) {
    let doom = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&doom);
    let engine = move |pipeline| -> Box<dyn Evictor> {
        Box::new(PanickingEngine { inner: Iterative::new(pipeline), doom: own, is_quick })
    };
    (Box::new(engine), doom)
}

#[tokio::test]
async fn without_the_eviction_thread_a_nic_is_stale() {
    let (engine, doom) = panicking_engine(false);
    let mut config = Config::default();
    let target = &mut config.caches.gigaflow.offload;
    (target.kind, target.bridge) = (OffloadKind::Embedded, "br0".to_owned());
    let fixture = SwitchFixture::with_engine(&config, engine).await;
    fixture.add_bridge("br0").await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let state = || fixture.switch.caches().nic.map(|nic| (nic.state, nic.reason));
    wait_until(|| state() == Some(("connected", None))).await;
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    from.send(&frame(1));
    assert_eq!(to.next_received().await, frame(1));

    doom.store(true, Ordering::Relaxed);
    fixture.switch.add_rules("br0", &["in_port=p1,actions=drop"]).await.unwrap();
    wait_until(|| state() == Some(("stale", Some("the offload thread has ended")))).await;
    wait_until(|| from.is_closed() && to.is_closed()).await;
    assert!(to.all_received().is_empty());
}

async fn lose_the_eviction_thread(is_quick: bool) {
    let (engine, doom) = panicking_engine(is_quick);
    let fixture = SwitchFixture::without_bridge(2, engine).await;
    fixture.add_bridge("br0").await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await);
    let mut controller = fixture.controller().await;
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    from.send(&frame(1));
    assert_eq!(to.next_received().await, frame(1));
    assert_eq!(packet_count(&mut controller).await, 1);
    assert_eq!(fixture.threads(), [Running; 7]);

    doom.store(true, Ordering::Relaxed);
    fixture.switch.add_rules("br0", &["in_port=p1,actions=drop"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    from.send(&frame(2));
    let problem = "down: the eviction thread panicked";
    wait_until(|| ["p1", "p2"].iter().all(|port| fixture.port(port).link == problem)).await;
    assert!(from.is_closed() && to.all_received().is_empty());
    assert_eq!(fixture.threads(), [Stopped, Stopped, Panicked, Running, Running, Running, Running]);

    assert_eq!(packet_count(&mut controller).await, 1);
    fixture.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    while !controller.events.iter().any(|event| is_down(event, "p1")) {
        let event = controller.next_received().await;
        controller.events.push(event);
    }
}

#[tokio::test]
async fn requests_are_answered_while_a_thread_is_dying() {
    for _ in 0..8 {
        let fixture = SwitchFixture::start(2).await;
        let doomed = fixture.add_port("p1", 0).await;
        let mut controller = fixture.controller().await;
        fixture.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
        doomed.send(PANIC);
        for _ in 0..5 {
            assert_eq!(packet_count(&mut controller).await, 0);
            fixture.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
            assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        }
    }
}

#[tokio::test]
async fn without_packet_threads_every_port_is_down() {
    let fixture = SwitchFixture::start(1).await;
    let (doomed, other) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 9).await);
    let mut controller = fixture.controller().await;
    doomed.send(PANIC);
    wait_until(|| ["p1", "p2"].iter().all(|port| fixture.port(port).link.starts_with("down: pa")))
        .await;
    assert!(other.is_closed());
    fixture.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert_eq!(packet_count(&mut controller).await, 0);
    let (port, _far_end) = crate::fixture::wire(0);
    let refused = fixture.switch.add_own_port("br0", "p3", port).await;
    assert!(matches!(refused, Err(SwitchError::NoThreads)), "{refused:?}");
    fixture.switch.remove_bridge("br0").await.unwrap();
}

#[tokio::test]
async fn broken_port_goes_down_and_keeps_number() {
    let fixture = SwitchFixture::start(2).await;
    let broken = fixture.add_port("p1", 0).await;
    let number = fixture.port("p1").number;
    let mut controller = fixture.controller().await;
    broken.send(BREAK);
    wait_until(|| fixture.port("p1").link == "down: the device has vanished").await;
    assert!(broken.is_closed());
    assert_eq!(fixture.port("p1").number, number);
    assert_eq!(fixture.threads(), [Running; 7]);
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert!(controller.events.iter().any(|event| is_down(event, "p1")));
}
