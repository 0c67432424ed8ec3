//! Explanations of cache entries: why they are valid, and why they were evicted.

use std::{pin::pin, sync::Arc, time::Duration};

use shunt_datapath::evict::coordinator::CHANGES_MAX;
use shunt_flow::text::NoPortNames;
use shunt_kairo::Direct;
use shunt_ofproto::message::Message;
use shunt_pipeline::{
    Delta, EntryId, Evictor, FlowModCommand, Installed, OwnerId, RuleFilter, Traversal, Version,
    text::parse_rule,
};
use shunt_switch::{EngineMaker, EntryExplanation, SwitchError};
use tokio::time::timeout;

use crate::fixture::{Gate, SwitchFixture, frame, in_time, wait_until};

async fn fixture() -> SwitchFixture {
    let engine: EngineMaker = Box::new(|pipeline| Box::new(Direct::new(pipeline.version(), 1)));
    let fixture = SwitchFixture::without_bridge(1, engine).await;
    fixture.add_bridge("br0").await;
    fixture
}

#[tokio::test]
async fn entry_is_explained_before_and_after_eviction() {
    let fixture = fixture().await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let rules =
        ["priority=7,in_port=p1,actions=goto_table:3", "table=3,cookie=5,actions=output:p2"];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    from.send(&frame(1));
    assert_eq!(to.next_received().await, frame(1));
    let list = fixture.switch.entries(5).await;
    assert_eq!((list.total, list.entries.len()), (1, 1));
    assert_eq!(list.entries[0].actions, ["p2"]);
    let name = list.entries[0].entry.clone();

    let EntryExplanation::Live(live) = fixture.switch.explain_entry(&name).await.unwrap() else {
        panic!("the entry is in the cache")
    };
    let tables: Vec<u8> = live.visits.iter().map(|own| own.table).collect();
    assert_eq!((live.status.packets, tables), (1, vec![0, 3]));
    assert_eq!(live.visits[1].rule.as_ref().unwrap().cookie, "0x5");
    let filters = "the port_down and no_recv settings of the ports of br0";
    assert_eq!(live.reads, ["the settings and mirrors of br0", filters, "port 2 of br0"]);

    fixture.switch.add_rules("br0", &["table=3,priority=40000,actions=drop"]).await.unwrap();
    let EntryExplanation::Evicted(evicted) = fixture.switch.explain_entry(&name).await.unwrap()
    else {
        panic!("the entry is evicted")
    };
    let rule = "the rule table=3,priority=40000 of br0 was added";
    assert_eq!((evicted.cause, evicted.delta.as_deref()), ("rule_added", Some(rule)));

    let status = fixture.switch.evictions().await.unwrap();
    assert_eq!((status.engine, status.evicted, status.remembered), ("direct", 1, 1));
    assert_eq!(status.by_cause, [("rule_added", 1)]);
    let tables: Vec<_> = status.by_table.iter().map(|own| (own.table, own.evicted)).collect();
    assert_eq!(tables, [(3, 1)]);
    assert_eq!(status.list_time.count, status.changes);
    assert!(status.ack_time.count > 0 && status.resident_bytes > Some(0), "{status:?}");
}

#[tokio::test]
async fn a_missing_entry_is_refused_with_the_reason() {
    let fixture = fixture().await;
    let explain = |name: &'static str| fixture.switch.explain_entry(name);
    for (name, words) in [
        ("0.7.0", "its slot is empty"),
        ("9.0.0", "its first number is the packet thread, 0"),
        ("0.7", "three numbers with dots"),
        ("0.-1.0", "three numbers with dots"),
    ] {
        let error: SwitchError = explain(name).await.unwrap_err();
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
}

#[tokio::test]
async fn too_large_change_evicts_whole_tables() {
    let engine: EngineMaker =
        Box::new(|pipeline| Box::new(Direct::new(pipeline.version(), 1).with_deltas_max(1)));
    let fixture = SwitchFixture::without_bridge(1, engine).await;
    fixture.add_bridge("br0").await;
    let mut ports = Vec::new();
    for name in ["p1", "p2", "p3"] {
        ports.push(fixture.add_port(name, 0).await);
    }
    for rule in [
        "priority=7,in_port=p1,actions=goto_table:3",
        "priority=7,in_port=p2,actions=output:p1",
        "table=3,priority=7,actions=output:p2",
    ] {
        fixture.switch.add_rules("br0", &[rule]).await.unwrap();
    }
    let passes = async |from: usize, to: usize| {
        for number in 1..=20 {
            ports[from].send(&frame(number));
            assert_eq!(ports[to].next_received().await, frame(number), "from {from} to {to}");
        }
        assert!(ports.iter().all(|port| port.all_received().is_empty()), "nowhere else");
    };
    passes(0, 1).await;
    passes(1, 0).await;
    let list = fixture.switch.entries(5).await;
    let name = list.entries.iter().find(|entry| entry.actions == ["p2"]).unwrap().entry.clone();
    let before = fixture.switch.evictions().await.unwrap();
    assert_eq!((before.overflows, before.evicted), (0, 0), "{before:?}");

    // The two rules exceed the limit by one. One rule matches packets of the entry.
    let rules = ["table=3,priority=9,in_port=p1,actions=output:p3", "table=3,ip,actions=drop"];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    passes(0, 2).await;
    passes(1, 0).await;
    let EntryExplanation::Evicted(evicted) = fixture.switch.explain_entry(&name).await.unwrap()
    else {
        panic!("the entry is evicted")
    };
    assert_eq!((evicted.cause, evicted.delta), ("bound", None));
    let status = fixture.switch.evictions().await.unwrap();
    assert_eq!((status.overflows, status.evicted), (1, 1), "only of table 3: {status:?}");
    assert_eq!(status.by_cause, [("bound", 1)]);

    // Entries that were installed after the overflow are again evicted one by one.
    let rule = "table=3,priority=11,in_port=p1,actions=output:p2";
    fixture.switch.add_rules("br0", &[rule]).await.unwrap();
    passes(0, 1).await;
    let status = fixture.switch.evictions().await.unwrap();
    assert_eq!((status.overflows, status.evicted), (1, 2), "{status:?}");
    assert_eq!(status.by_cause, [("rule_added", 1), ("bound", 1)]);
    assert_eq!(fixture.switch.caches().differences, 0);
}

/// An eviction engine that waits at a gate before every change.
pub(crate) struct GatedEngine(Direct, Arc<Gate>);

impl GatedEngine {
    /// Returns the constructor of the gated engine.
    pub(crate) fn maker(gate: &Arc<Gate>) -> EngineMaker {
        let own = Arc::clone(gate);
        Box::new(|pipeline| Box::new(Self(Direct::new(pipeline.version(), 1), own)))
    }
}

impl Evictor for GatedEngine {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        self.0.installed(entry, traversal)
    }

    fn removed(&mut self, entry: EntryId) {
        self.0.removed(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        self.1.pass();
        self.0.apply(deltas, version)
    }

    fn forget(&mut self, owner: OwnerId) {
        self.0.forget(owner);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronous_barrier_waits_for_evictions() {
    let gate = Arc::<Gate>::default();
    let fixture = SwitchFixture::without_bridge(1, GatedEngine::maker(&gate)).await;
    fixture.add_bridge("br0").await;
    let mut controller = fixture.controller().await;
    let rule = |text| parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();

    fixture.switch.set(&[("eviction.asynchronous", "true")]).await.unwrap();
    let closed = gate.close();
    let before = fixture.switch.caches().version;
    controller.send(&Message::FlowMod(rule("ip,actions=drop"))).await;
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert_eq!(fixture.switch.rules_count("br0", &RuleFilter::all()).unwrap(), 1);
    assert_eq!(fixture.switch.caches().version, before, "the engine has not let it through");

    fixture.switch.set(&[("eviction.asynchronous", "false")]).await.unwrap();
    controller.send(&Message::FlowMod(rule("arp,actions=drop"))).await;
    let mut asked = pin!(controller.ask(&Message::BarrierRequest));
    let early = timeout(Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "the reply waits");
    drop(closed);
    assert_eq!(asked.await, Message::BarrierReply);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_beyond_the_queue_wait_and_are_counted() {
    let gate = Arc::<Gate>::default();
    let fixture = SwitchFixture::without_bridge(1, GatedEngine::maker(&gate)).await;
    fixture.add_bridge("br0").await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    // The engine has already taken some changes from the queue.
    let changes = CHANGES_MAX + 600;
    let rules =
        |fixture: &SwitchFixture| fixture.switch.rules_count("br0", &RuleFilter::all()).unwrap();
    let mut controller = fixture.controller().await;
    let closed = gate.close();
    let controlling = tokio::spawn(async move {
        for priority in 1..=changes {
            let action = if priority == changes { "output:2" } else { "drop" };
            let text = format!("priority={priority},in_port=1,actions={action}");
            let rule = parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
            controller.send(&Message::FlowMod(rule)).await;
        }
        controller.ask(&Message::BarrierRequest).await
    });
    wait_until(|| rules(&fixture) > CHANGES_MAX).await;
    // A waiting change has no other sign than a call that does not return.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(rules(&fixture) < changes && !controlling.is_finished());
    drop(closed);
    assert_eq!(in_time(controlling).await.unwrap(), Message::BarrierReply);
    assert_eq!(rules(&fixture), changes);
    from.send(&frame(1));
    assert_eq!(to.next_received().await, frame(1), "the last of them is in force");
    let status = fixture.switch.evictions().await.unwrap();
    assert!(status.delayed > 0, "{status:?}");
    assert_eq!((status.waiting, status.waiting_max), (0, CHANGES_MAX as u64));
}
