//! Bridges and ports that are added and removed concurrently; bridges with patch ports.

use std::{pin::pin, sync::Arc, time::Duration};

use shunt_flow::{PortNo, text::NoPortNames};
use shunt_ofproto::message::{Message, PortMod, PortStatusReason};
use shunt_pipeline::{FlowModCommand, PortConfig, text::parse_rule};
use shunt_switch::{
    Config,
    config::{PortOptions, PortType},
};
use tokio::time::timeout;

use crate::{
    evictions::GatedEngine,
    fixture::{Gate, HOLD, SwitchFixture, frame, in_time, wait_until, wire},
    log::Log,
};

/// Time during which the test expects that a call does not return.
const WHILE: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_bridge_takes_its_new_ports_along() {
    let fixture = SwitchFixture::start(1).await;
    for round in 0..50 {
        fixture.add_bridge("br1").await;
        let mut far_ends = Vec::new();
        for number in 0..4 {
            let (port, far_end) = wire(0);
            fixture.switch.add_own_port("br1", &format!("old{number}"), port).await.unwrap();
            far_ends.push(far_end);
        }
        let (port, far_end) = wire(0);
        far_ends.push(far_end);
        let adds = async {
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            fixture.switch.add_own_port("br1", "new", port).await
        };
        let (removed, _) =
            in_time(async { tokio::join!(fixture.switch.remove_bridge("br1"), adds) }).await;
        removed.unwrap();
        assert_eq!(fixture.switch.bridges().len(), 1);
        assert!(far_ends.iter().all(|far_end| far_end.is_closed()), "in round {round}");
    }
}

#[tokio::test]
async fn controllers_get_no_event_of_a_refused_port() {
    let fixture = SwitchFixture::start(1).await;
    let mut controller = fixture.controller().await;
    let absent = PortOptions {
        name: "absent".to_owned(),
        kind: PortType::AfPacket,
        ..PortOptions::default()
    };
    fixture.switch.add_port("br0", absent).await.unwrap_err();
    drop(fixture.add_port("p1", 0).await);
    match controller.next_received().await {
        Message::PortStatus(status) => {
            assert_eq!((status.reason, &*status.port.name), (PortStatusReason::Add, "p1"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_disabled_port_passes_no_packets() {
    let fixture = SwitchFixture::start(1).await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    fixture
        .switch
        .add_rules("br0", &["in_port=p1,actions=output:p2", "in_port=p2,actions=output:p1"])
        .await
        .unwrap();
    let mut controller = fixture.controller().await;
    let down = PortConfig { port_down: true, ..PortConfig::default() };
    for (config, passes) in [(down, false), (PortConfig::default(), true), (down, false)] {
        let mac = [2, 0, 0, 0, 1, 1];
        let number = PortNo::new(fixture.port("p2").number);
        let request = PortMod { port: number, mac, config, mask: down, advertise: 0 };
        controller.send(&Message::PortMod(request)).await;
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        assert_eq!(fixture.port("p2").link, if passes { "up" } else { "down: by a controller" });
        let dropped = fixture.switch.drops().total();
        from.send(&frame(1));
        to.send(&frame(2));
        if passes {
            assert_eq!(
                (to.next_received().await, from.next_received().await),
                (frame(1), frame(2))
            );
        } else {
            wait_until(|| fixture.switch.drops().total() == dropped + 2).await;
        }
        assert_eq!((to.all_received().len(), from.all_received().len()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_get_port_before_tables() {
    let fixture = SwitchFixture::start(2).await;
    let (slow, from) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await);
    fixture.switch.add_rules("br0", &["in_port=p2,actions=output:3"]).await.unwrap();
    let closed = slow.gate.close();
    slow.send(HOLD);
    slow.gate.wait_for_thread().await;
    let (port, to) = wire(0);
    {
        let mut adding = pin!(fixture.switch.add_own_port("br0", "p3", port));
        assert!(timeout(WHILE, &mut adding).await.is_err(), "one thread does not have it yet");
        for number in 1..=20 {
            from.send(&frame(number));
        }
        wait_until(|| fixture.switch.drops().total() == 20).await;
        drop(closed);
        assert_eq!(in_time(adding).await.unwrap().number(), 3);
    }
    // The packet threads adopt the version one after the other.
    wait_until(|| {
        from.send(&frame(21));
        to.all_received().first() == Some(&frame(21))
    })
    .await;
    let dropped = fixture.switch.drops().dropped;
    assert!(dropped.iter().all(|(reason, _)| *reason == "output_port_missing"), "{dropped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_stays_open_until_threads_stop() {
    let gate = Arc::<Gate>::default();
    let fixture = SwitchFixture::without_bridge(1, GatedEngine::maker(&gate)).await;
    fixture.add_bridge("br0").await;
    let (from, to) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    from.send(&frame(0));
    assert_eq!(to.next_received().await, frame(0));
    let closed = gate.close();
    {
        let mut removing = pin!(fixture.switch.remove_port("p2"));
        assert!(timeout(WHILE, &mut removing).await.is_err(), "the thread has not adopted it");
        gate.wait_for_thread().await;
        for number in 1..=20 {
            from.send(&frame(number));
            assert_eq!(to.next_received().await, frame(number), "its rules send there");
        }
        drop(closed);
        in_time(removing).await.unwrap();
    }
    assert!(to.is_closed());
    from.send(&frame(21));
    wait_until(|| fixture.switch.drops().dropped == [("output_port_missing", 1)]).await;
}

#[tokio::test]
async fn a_barrier_covers_packets_from_patch_ports() {
    let fixture = SwitchFixture::of(&Config::default()).await;
    fixture.add_bridge("br0").await;
    fixture.add_bridge("br1").await;
    for (bridge, name, peer) in [("br0", "to1", "to0"), ("br1", "to0", "to1")] {
        let kind = PortType::Patch;
        let patch =
            PortOptions { name: name.into(), kind, peer: peer.into(), ..PortOptions::default() };
        fixture.switch.add_port(bridge, patch).await.unwrap();
    }
    let from = fixture.add_port("p1", 0).await;
    let mut targets = Vec::new();
    for name in ["q2", "q3"] {
        let (port, far_end) = wire(0);
        fixture.switch.add_own_port("br1", name, port).await.unwrap();
        targets.push(far_end);
    }
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:to1"]).await.unwrap();
    let mut controller = fixture.controller_of("br1").await;
    for round in 0..20 {
        let target = usize::from(round % 2);
        let text = format!("in_port=1,actions=output:{}", target + 2);
        let rule = parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
        controller.send(&Message::FlowMod(rule)).await;
        assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        // The first packet is re-translated, and the second packet is a hit.
        for number in [round, round] {
            from.send(&frame(number));
            assert_eq!(targets[target].next_received().await, frame(number));
        }
        assert!(targets[1 - target].all_received().is_empty());
    }
}

#[tokio::test]
async fn log_has_new_vlans_of_port() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(1).await;
    fixture.add_port("p1", 0).await;
    let vlans = PortOptions { name: "p1".to_owned(), tag: Some(9), ..PortOptions::default() };
    fixture.switch.set_vlans(&vlans).await.unwrap();
    let lines = log.lines_with("VLANs set");
    assert!(lines.len() == 1 && lines[0].ends_with(": vlan_mode=access tag=9"), "{lines:?}");
}
