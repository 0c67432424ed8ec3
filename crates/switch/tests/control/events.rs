//! Asynchronous messages: each controller receives all of them, even if it reads slowly.

use std::collections::BTreeSet;

use shunt_ofproto::message::{Message, SwitchConfig};
use shunt_pipeline::{FlowMod, FlowModCommand, Iterative, text::parse_rule};
use shunt_switch::config::{BridgeOptions, OverflowPolicy};

use crate::fixture::{Controller, SwitchFixture, frame, wait_until};

fn flow_mods(command: FlowModCommand, count: u64) -> Vec<FlowMod> {
    let rule = |cookie: u64| {
        let text = format!("send_flow_rem,cookie={cookie},reg0={cookie},actions=drop");
        parse_rule(command, &text, &shunt_flow::text::NoPortNames).unwrap()
    };
    (0..count).map(rule).collect()
}

/// Returns the cookies of the next `count` flow-removed messages.
async fn receive_removed(controller: &mut Controller, count: usize) -> Vec<u64> {
    let mut cookies = Vec::new();
    while cookies.len() < count {
        if let Message::FlowRemoved(removed) = controller.next_received().await {
            cookies.push(removed.cookie.number());
        }
    }
    cookies
}

fn delete_all() -> FlowMod {
    parse_rule(FlowModCommand::Delete, "", &shunt_flow::text::NoPortNames).unwrap()
}

#[tokio::test]
async fn a_slow_controller_receives_every_flow_removed() {
    const COUNT: u64 = 30_000;
    let fixture = SwitchFixture::start(1).await;
    let (mut early, mut late) = (fixture.controller().await, fixture.controller().await);
    for _ in 0..2 {
        fixture
            .switch
            .apply_flow_mods("br0", &flow_mods(FlowModCommand::Add, COUNT))
            .await
            .unwrap();
        fixture.switch.apply_flow_mods("br0", &[delete_all()]).await.unwrap();
    }
    let expected: BTreeSet<u64> = (0..COUNT).collect();
    // The first controller cannot read everything before the second one reads, so they take turns.
    let (mut by_early, mut by_late) = (Vec::new(), Vec::new());
    let read_early = async {
        for _ in 0..2 * COUNT / 1000 {
            by_early.extend(receive_removed(&mut early, 1000).await);
        }
    };
    let read_late = async {
        wait_until(|| {
            fixture.switch.rules_count("br0", &shunt_pipeline::RuleFilter::all()).unwrap() == 0
        })
        .await;
        for _ in 0..2 * COUNT / 100 {
            by_late.extend(receive_removed(&mut late, 100).await);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(read_early, read_late);
    for cookies in [by_early, by_late] {
        let (first, second) = cookies.split_at(cookies.len() / 2);
        for half in [first, second] {
            assert!(half.iter().copied().collect::<BTreeSet<_>>() == expected, "each once");
        }
    }
}

#[tokio::test]
async fn a_controller_that_does_not_read_blocks_nobody() {
    const COUNT: u64 = 80_000;
    let fixture = SwitchFixture::start(1).await;
    let (_deaf, mut reader) = (fixture.controller().await, fixture.controller().await);
    let mut other = fixture.controller().await;
    other.send(&Message::SetConfig(SwitchConfig { miss_send_len: 0 })).await;
    fixture.switch.apply_flow_mods("br0", &flow_mods(FlowModCommand::Add, COUNT)).await.unwrap();
    fixture.switch.apply_flow_mods("br0", &[delete_all()]).await.unwrap();
    fixture.switch.add_rules("br0", &["hard_timeout=1,actions=drop"]).await.unwrap();
    let echo = other.ask(&Message::EchoRequest(vec![7])).await;
    assert_eq!(echo, Message::EchoReply(vec![7]));
    wait_until(|| {
        fixture.switch.rules_count("br0", &shunt_pipeline::RuleFilter::all()).unwrap() == 0
    })
    .await;
    let all_received: BTreeSet<u64> =
        receive_removed(&mut reader, 80_000).await.into_iter().collect();
    assert!(
        all_received == (0..COUNT).collect::<BTreeSet<u64>>(),
        "who reads hears of all of them"
    );
}

#[tokio::test]
async fn a_replaced_learned_rule_sends_flow_removed() {
    let fixture =
        SwitchFixture::without_bridge(1, Box::new(|own| Box::new(Iterative::new(own)))).await;
    let full = BridgeOptions {
        name: "br0".into(),
        table_rules: 2,
        table_overflow: OverflowPolicy::Evict,
        ..BridgeOptions::default()
    };
    fixture.switch.add_bridge(&full).await.unwrap();
    let port = fixture.add_port("p1", 0).await;
    let mut controller = fixture.controller().await;
    let learning_rule = "actions=learn(table=1,hard_timeout=100,send_flow_rem,delete_learned,\
                   cookie=7,NXM_OF_ETH_SRC[])";
    fixture.switch.add_rules("br0", &[learning_rule]).await.unwrap();
    for host in 1..=4 {
        let mut frame = frame(1);
        frame[11] = host;
        port.send(&frame);
        // Waiting for each packet keeps the stall budget of the port from being used up on a busy
        // machine.
        wait_until(|| fixture.port("p1").rx_packets == u64::from(host)).await;
        fixture.switch.wait_until_learned().await;
    }
    assert_eq!(receive_removed(&mut controller, 2).await, [7, 7]);
    // The last two rules are removed together with the rule that learned them.
    fixture.switch.apply_flow_mods("br0", &[delete_all()]).await.unwrap();
    assert_eq!(receive_removed(&mut controller, 2).await, [7, 7]);
}
