//! What the switch says of cache entries, of why they stay and why they went.

use std::{pin::pin, sync::Arc, time::Duration};

use shunt_flow::text::NoPortNames;
use shunt_kairo::Direct;
use shunt_ofproto::message::Message;
use shunt_pipeline::{
    Delta, EntryId, Evictor, FlowModCommand, Installed, OwnerId, RuleFilter, Traversal, Version,
    text::parse_rule,
};
use shunt_switch::{EngineMaker, SwitchError, Why};
use tokio::time::timeout;

use crate::bench::{Bench, Gate, frame};

async fn bench() -> Bench {
    let engine: EngineMaker = Box::new(|pipeline| Box::new(Direct::new(pipeline.version(), 1)));
    let bench = Bench::without_bridge(1, engine).await;
    bench.add_bridge("br0").await;
    bench
}

#[tokio::test]
async fn an_entry_is_explained_while_it_is_there_and_when_a_rule_has_ended_it() {
    let bench = bench().await;
    let (from, to) = (bench.add_port("p1", 0).await, bench.add_port("p2", 0).await);
    let rules =
        ["priority=7,in_port=p1,actions=goto_table:3", "table=3,cookie=5,actions=output:p2"];
    bench.switch.add_rules("br0", &rules).await.unwrap();
    from.send(&frame(1));
    assert_eq!(to.hear().await, frame(1));
    let list = bench.switch.entries(5).await;
    assert_eq!((list.total, list.entries.len()), (1, 1));
    assert_eq!(list.entries[0].actions, ["p2"]);
    let name = list.entries[0].entry.clone();

    let Why::Live(live) = bench.switch.why(&name).await.unwrap() else { panic!("it is there") };
    let tables: Vec<u8> = live.visits.iter().map(|own| own.table).collect();
    assert_eq!((live.status.packets, tables), (1, vec![0, 3]));
    assert_eq!(live.visits[1].rule.as_ref().unwrap().cookie, "0x5");
    let filters = "whether any port of br0 drops packets";
    assert_eq!(live.reads, ["the settings of br0", filters, "port 2 of br0"]);

    bench.switch.add_rules("br0", &["table=3,priority=40000,actions=drop"]).await.unwrap();
    let Why::Evicted(evicted) = bench.switch.why(&name).await.unwrap() else { panic!("it went") };
    let rule = "the rule table=3,priority=40000 of br0 was added";
    assert_eq!((evicted.cause, evicted.delta.as_deref()), ("rule_added", Some(rule)));

    let status = bench.switch.evictions().await.unwrap();
    assert_eq!((status.engine, status.evicted, status.remembered), ("direct", 1, 1));
    assert_eq!(status.by_cause, [("rule_added", 1)]);
    let tables: Vec<_> = status.by_table.iter().map(|own| (own.table, own.evicted)).collect();
    assert_eq!(tables, [(3, 1)]);
    assert_eq!(status.to_list.count, status.changes);
    assert!(status.to_answer.count > 0 && status.resident_bytes > Some(0), "{status:?}");
}

#[tokio::test]
async fn an_entry_that_is_not_there_is_refused_with_what_there_is() {
    let bench = bench().await;
    let why = |name: &'static str| bench.switch.why(name);
    for (name, words) in [
        ("0.7.0", "its slot is empty"),
        ("9.0.0", "the packet threads are 0 to 0"),
        ("0.7", "three numbers with dots"),
        ("0.-1.0", "three numbers with dots"),
    ] {
        let told: SwitchError = why(name).await.unwrap_err();
        assert!(told.to_string().contains(words), "{name}: {told}");
    }
}

/// An engine that waits at a gate with every change.
pub(crate) struct Held(Direct, Arc<Gate>);

impl Held {
    /// What makes it.
    pub(crate) fn maker(gate: &Arc<Gate>) -> EngineMaker {
        let own = Arc::clone(gate);
        Box::new(|pipeline| Box::new(Self(Direct::new(pipeline.version(), 1), own)))
    }
}

impl Evictor for Held {
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
async fn a_barrier_waits_for_evictions_unless_it_is_asynchronous() {
    let gate = Arc::<Gate>::default();
    let bench = Bench::without_bridge(1, Held::maker(&gate)).await;
    bench.add_bridge("br0").await;
    let mut controller = bench.controller().await;
    let rule = |text| parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();

    bench.switch.set("eviction.asynchronous", "true").await.unwrap();
    let closed = gate.close();
    let before = bench.switch.caches().version;
    controller.send(&Message::FlowMod(rule("ip,actions=drop"))).await;
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert_eq!(bench.switch.rules_count("br0", &RuleFilter::all()).unwrap(), 1);
    assert_eq!(bench.switch.caches().version, before, "the engine has not let it through");

    bench.switch.set("eviction.asynchronous", "false").await.unwrap();
    controller.send(&Message::FlowMod(rule("arp,actions=drop"))).await;
    let mut asked = pin!(controller.ask(&Message::BarrierRequest));
    let early = timeout(Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "the reply waits");
    drop(closed);
    assert_eq!(asked.await, Message::BarrierReply);
}
