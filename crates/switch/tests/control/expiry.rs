//! Timeouts of rules and MAC addresses, and the counter reports that precede them.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use shunt_pipeline::{BridgeId, Iterative, Pipeline, RuleFilter};
use shunt_switch::config::BridgeOptions;
use tokio::time::{sleep, timeout};

use crate::{
    evictions::GatedEngine,
    fixture::{Gate, HOLD, SwitchFixture, frame, in_time, wait_until},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_expires_before_all_counts_are_credited() {
    let tables = Arc::<OnceLock<Arc<Pipeline>>>::default();
    let own = Arc::clone(&tables);
    let engine = move |pipeline: Arc<Pipeline>| -> Box<dyn shunt_pipeline::Evictor> {
        own.get_or_init(|| Arc::clone(&pipeline));
        Box::new(Iterative::new(pipeline))
    };
    let fixture = SwitchFixture::without_bridge(1, Box::new(engine)).await;
    let bridge = BridgeOptions { name: "br0".into(), mac_ageing_s: 1, ..BridgeOptions::default() };
    fixture.switch.add_bridge(&bridge).await.unwrap();
    let port = fixture.add_port("p1", 0).await;
    let learning_rule = "table=2,actions=learn(table=1,hard_timeout=1,NXM_OF_ETH_SRC[]),normal";
    let rules = ["idle_timeout=1,actions=resubmit(,2)", learning_rule];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    let tables = Arc::clone(tables.get().unwrap());
    let there = || {
        let rules = fixture.switch.rules_count("br0", &RuleFilter::all()).unwrap();
        (rules, tables.macs(BridgeId::new(1)).len())
    };
    port.send(&frame(1));
    fixture.switch.wait_until_learned().await;
    wait_until(|| there() == (3, 1)).await;
    let closed = port.gate.close();
    // The hit refreshes all three timeouts, and its packet thread reports nothing yet.
    port.send(&frame(1));
    port.send(HOLD);
    port.gate.wait_for_thread().await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(there(), (3, 1), "their time is over, and nobody knows whether they were hit");
    drop(closed);
    wait_until(|| there() == (1, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_that_a_thread_may_use_is_kept() {
    let gate = Arc::<Gate>::default();
    let fixture = SwitchFixture::without_bridge(1, GatedEngine::maker(&gate)).await;
    fixture.add_bridge("br0").await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    // Each source address makes a new flow, which is translated.
    let by_source = "actions=move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7],output:p2";
    fixture.switch.add_rules("br0", &[by_source]).await.unwrap();
    let send = |source| {
        let mut frame = frame(source);
        frame[11] = source;
        from.send(&frame);
        frame
    };
    let first = send(1);
    assert_eq!(to.next_received().await, first);
    let closed = gate.close();
    let mut replacing = pin!(fixture.switch.add_rules("br0", &["actions=drop"]));
    // The switch reclaims old versions twice a second.
    assert!(timeout(Duration::from_millis(1500), &mut replacing).await.is_err());
    gate.wait_for_thread().await;
    let second = send(2);
    assert_eq!(to.next_received().await, second, "its thread is at the version of the first rule");
    drop(closed);
    in_time(replacing).await.unwrap();
    send(3);
    wait_until(|| fixture.switch.drops().total() == 1).await;
}
