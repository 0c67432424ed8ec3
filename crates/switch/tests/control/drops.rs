//! Every lost packet is counted: by reason, and by port.

use shunt_switch::{DropStatus, PacketInOutcomes, PortCopyStatus, PortDrops};

use crate::fixture::{SwitchFixture, frame, wait_until};

fn owned_reasons(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(reason, packets)| ((*reason).to_owned(), *packets)).collect()
}

#[tokio::test]
async fn losses_of_ports_add_up_to_the_totals() {
    let fixture = SwitchFixture::start(1).await;
    let (one, two) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    one.lose(540_000, 0);
    two.lose(7, 3);
    let DropStatus { not_received, device_lost, ports, .. } = fixture.switch.drops();
    assert_eq!(owned_reasons(&not_received), owned_reasons(&[("rx_ring_full", 540_007)]));
    assert_eq!(device_lost, 3);
    let of = |name: &str| fixture.port(name);
    for direction in ["rx", "tx"] {
        let listed: u64 = ports
            .iter()
            .filter(|port| port.drops.direction == direction)
            .map(|port| port.drops.packets)
            .sum();
        let dropped =
            |name| if direction == "rx" { of(name).rx_dropped } else { of(name).tx_dropped };
        assert_eq!(listed, dropped("p1") + dropped("p2"), "{direction}");
    }
    let lost = PortDrops { direction: "rx", reason: "rx_ring_full", packets: 540_000 };
    assert_eq!((of("p1").rx_dropped, of("p1").drops), (540_000, vec![lost]));
}

#[tokio::test]
async fn a_port_is_shown_with_its_copies() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    assert_eq!(fixture.port("p1").copies, PortCopyStatus::default());
    port.lose(7, 3);
    let copies =
        PortCopyStatus { rx_copies: 7, rx_copied_bytes: 420, tx_copies: 3, tx_copied_bytes: 180 };
    assert_eq!(fixture.port("p1").copies, copies);
    let shown = serde_json::to_value(fixture.port("p1")).unwrap();
    let keys = ["rx_copies", "rx_copied_bytes", "tx_copies", "tx_copied_bytes"];
    assert_eq!(keys.map(|key| shown[key].as_u64()), [7, 420, 3, 180].map(Some));
}

/// Totals are counters, so they keep the losses of removed ports and bridges.
#[tokio::test]
async fn totals_keep_the_losses_of_removed_ports() {
    let fixture = SwitchFixture::start(1).await;
    let (one, two) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    one.lose(50, 1);
    two.lose(7, 3);
    let totals = || {
        let DropStatus { not_received, device_lost, ports, .. } = fixture.switch.drops();
        let names: Vec<_> = ports.iter().map(|port| port.name.clone()).collect();
        (owned_reasons(&not_received), device_lost, names.join(" "))
    };
    let lost = |rx: u64| owned_reasons(&[("rx_ring_full", rx)]);
    assert_eq!(totals(), (lost(57), 4, "p1 p1 p2 p2".to_owned()));
    fixture.switch.remove_port("p1").await.unwrap();
    assert_eq!(totals(), (lost(57), 4, "p2 p2".to_owned()));
    // A new port of the same name begins at 0, and adds to the totals.
    fixture.add_port("p1", 0).await.lose(2, 0);
    assert_eq!(totals().0, lost(59));
    assert_eq!(fixture.port("p1").rx_dropped, 2);
    fixture.switch.remove_bridge("br0").await.unwrap();
    assert_eq!(totals(), (lost(59), 4, String::new()));
}

#[tokio::test]
async fn a_flood_without_other_ports_has_a_reason() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    fixture.switch.add_rules("br0", &["actions=NORMAL"]).await.unwrap();
    port.send(&frame(1));
    wait_until(|| fixture.switch.drops().total() == 1).await;
    assert_eq!(fixture.switch.drops().dropped, [("flood_without_ports", 1)]);
    // The loss is counted at the ingress port.
    let lost = PortDrops { direction: "forward", reason: "flood_without_ports", packets: 1 };
    let own = fixture.port("p1");
    assert_eq!((own.rx_dropped, own.forward_dropped, own.drops), (0, 1, vec![lost]));
}

#[tokio::test]
async fn a_bridge_without_rules_is_named() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    fixture.switch.add_rules("br0", &["in_port=9,actions=drop"]).await.unwrap();
    assert!(fixture.switch.drops().bridges_without_rules.is_empty());
    fixture.add_bridge("br1").await;
    port.send(&frame(1));
    wait_until(|| fixture.switch.drops().dropped == [("no_matching_rule", 1)]).await;
    assert_eq!(fixture.switch.drops().bridges_without_rules, ["br1"]);
}

#[tokio::test]
async fn every_punted_packet_is_delivered_or_counted() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    fixture.switch.add_rules("br0", &["actions=CONTROLLER"]).await.unwrap();
    let ends = || fixture.switch.drops().packet_ins;
    (0..3).for_each(|number| port.send(&frame(number)));
    let alone = PacketInOutcomes { no_connection: 3, ..PacketInOutcomes::default() };
    wait_until(|| ends() == alone).await;
    assert_eq!(fixture.switch.bridges()[0].packet_ins.no_connection, 3);
    let controller = fixture.controller().await;
    port.send(&frame(4));
    wait_until(|| ends() == PacketInOutcomes { handed_over: 1, ..alone }).await;
    let status = fixture.switch.drops();
    let PacketInOutcomes { handed_over, listener_full, no_connection, no_bridge } =
        status.packet_ins;
    assert_eq!(status.punted, handed_over + listener_full + no_connection + no_bridge);
    wait_until(|| fixture.switch.bridges()[0].packet_ins.delivered == 1).await;
    drop(controller);
}
