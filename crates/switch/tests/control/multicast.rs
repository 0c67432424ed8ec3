//! Multicast snooping: messages of hosts and routers decide which ports get packets of a group.

use std::net::{Ipv4Addr, Ipv6Addr};

use shunt_flow::testing::PacketBuilder;
use shunt_multicast::testing::{igmp_frame, mld_frame};
use shunt_switch::{
    Config, MulticastMessages, Switch,
    config::{CacheKind, PortOptions},
};

use crate::{
    fixture::{FarEnd, SwitchFixture, frame, in_time, wait_until},
    nic::{NicFixture, add_ports},
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 2);
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// The type of an IGMPv2 report.
const REPORT: u8 = 0x16;
/// The type of an IGMPv2 leave.
const LEAVE: u8 = 0x17;

/// Returns the frame with the source MAC address of the host at a port.
fn frame_from(port: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[11] = port;
    frame
}

/// Returns an IGMPv2 message about a group.
fn message(port: u8, destination: Ipv4Addr, kind: u8, group: Ipv4Addr) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0], &group.octets()[..]].concat();
    frame_from(port, igmp_frame(Ipv4Addr::new(10, 0, 0, port), destination, &message))
}

/// Returns an IGMP query of a router at a port.
fn query(port: u8) -> Vec<u8> {
    message(port, ALL_HOSTS, 0x11, Ipv4Addr::UNSPECIFIED)
}

/// Returns a packet of the host at port 1 to a group.
fn packet(group: Ipv4Addr) -> Vec<u8> {
    let [_, b, c, d] = group.octets();
    let packet = PacketBuilder::ipv4([10, 0, 0, 1], group.octets()).udp(7, 1);
    packet.macs([2, 0, 0, 0, 0, 1], [1, 0, 0x5e, b & 0x7f, c, d]).build()
}

/// Returns a broadcast frame of the host at port 1.
fn broadcast() -> Vec<u8> {
    let mut frame = frame_from(1, frame(9));
    frame[..6].fill(0xff);
    frame
}

async fn snoop(switch: &Switch) {
    switch.add_rules("br0", &["actions=NORMAL"]).await.unwrap();
    switch.set_bridge("br0", &[("mcast_snooping_enable", "true")]).await.unwrap();
}

/// Returns the entries of the multicast table, each as group, VLAN and port.
fn table(switch: &Switch) -> Vec<String> {
    let entries = switch.multicast("br0").unwrap().unwrap();
    let shown = entries.iter().map(|own| match own.group {
        Some(group) => format!("{group} {} {}", own.vlan, own.port.number()),
        None => format!("router {} {}", own.vlan, own.port.number()),
    });
    shown.collect()
}

async fn expect_groups(switch: &Switch, expected: &[&str]) {
    wait_until(|| table(switch) == expected).await;
}

/// Returns whether a port gets a frame before the next broadcast.
async fn gets(end: &FarEnd, frame: &[u8]) -> bool {
    let mut is_there = false;
    loop {
        let received = end.next_received().await;
        if received == broadcast() {
            return is_there;
        }
        is_there |= received == frame;
    }
}

/// Sends packets of a group into port 1 until ports 2 and 3 get them as expected.
///
/// Packet threads adopt a new version only after some packets.
async fn goes_to(ends: &[FarEnd; 3], group: Ipv4Addr, expected: [bool; 2]) {
    let attempts = async {
        loop {
            ends[0].send(&packet(group));
            ends[0].send(&broadcast());
            if [gets(&ends[1], &packet(group)).await, gets(&ends[2], &packet(group)).await]
                == expected
            {
                return;
            }
        }
    };
    in_time(attempts).await;
}

/// Plays a sequence of messages of hosts and of a router.
async fn play(switch: &Switch, ends: &[FarEnd; 3]) {
    snoop(switch).await;
    goes_to(ends, GROUP, [true, true]).await;
    ends[1].send(&message(2, GROUP, REPORT, GROUP));
    expect_groups(switch, &["239.1.1.1 0 2"]).await;
    goes_to(ends, GROUP, [true, false]).await;
    ends[2].send(&query(3));
    expect_groups(switch, &["239.1.1.1 0 2", "router 0 3"]).await;
    goes_to(ends, GROUP, [true, true]).await;
    goes_to(ends, OTHER, [true, true]).await;
    let strictly = [("mcast_snooping_disable_flood_unregistered", "true")];
    switch.set_bridge("br0", &strictly).await.unwrap();
    goes_to(ends, OTHER, [false, true]).await;
    ends[1].send(&message(2, ALL_ROUTERS, LEAVE, GROUP));
    expect_groups(switch, &["router 0 3"]).await;
    goes_to(ends, GROUP, [false, true]).await;
    assert_eq!(switch.multicast_messages(), MulticastMessages { read: 3, ignored: 0, lost: 0 });
    assert!(switch.flush_multicast(Some("br0")).await.unwrap());
    assert!(table(switch).is_empty());
    goes_to(ends, GROUP, [false, false]).await;
    switch.set_bridge("br0", &[("mcast_snooping_enable", "false")]).await.unwrap();
    goes_to(ends, GROUP, [true, true]).await;
    assert_eq!(switch.multicast("br0").unwrap(), None);
    assert!(!switch.flush_multicast(Some("br0")).await.unwrap());
    assert!(switch.flush_multicast(None).await.unwrap());
}

#[tokio::test]
async fn messages_direct_the_packets_of_a_group() {
    for kind in [CacheKind::Megaflow, CacheKind::Gigaflow, CacheKind::Flows] {
        let mut config = Config::default();
        config.threads.packet = 1;
        config.caches.kind = kind;
        config.caches.verify_one_in = 1;
        let fixture = SwitchFixture::of(&config).await;
        fixture.add_bridge("br0").await;
        let ends = add_ports(&fixture.switch).await;
        play(&fixture.switch, &ends).await;
    }
}

#[tokio::test]
async fn messages_direct_the_packets_behind_a_nic() {
    let nic_fixture = NicFixture::of(1, |_| ()).await;
    play(&nic_fixture.fixture.switch, &nic_fixture.ends).await;
}

/// Sends an MLD message in the VLAN of its port,
/// and a message with a wrong checksum.
#[tokio::test]
async fn messages_belong_to_the_vlan_of_their_port() {
    let fixture = SwitchFixture::start(1).await;
    let ends = add_ports(&fixture.switch).await;
    snoop(&fixture.switch).await;
    let vlan = PortOptions { name: "p3".to_owned(), tag: Some(10), ..PortOptions::default() };
    fixture.switch.set_vlans(&vlan).await.unwrap();
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 3);
    let [reports, group] = [0x16, 7].map(|last| Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, last));
    // An MLDv2 record that excludes no source.
    let message = [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0], &group.octets()[..]].concat();
    let report = frame_from(3, mld_frame(source, reports, &message));
    let mut broken = report.clone();
    *broken.last_mut().unwrap() ^= 1;
    let counts = |read, ignored| MulticastMessages { read, ignored, lost: 0 };
    ends[2].send(&broken);
    wait_until(|| fixture.switch.multicast_messages() == counts(0, 1)).await;
    assert!(table(&fixture.switch).is_empty());
    ends[2].send(&report);
    expect_groups(&fixture.switch, &["ff05::7 10 3"]).await;
    assert_eq!(fixture.switch.multicast_messages(), counts(1, 1));
    let status = fixture.switch.bridges().remove(0).multicast.unwrap();
    assert_eq!((status.multicast_groups, status.router_ports), (1, 0));
    fixture.switch.remove_port("p3").await.unwrap();
    assert!(table(&fixture.switch).is_empty());
}

/// Each message is read, ignored, or lost; lost messages are counted at their port.
#[tokio::test]
async fn flood_of_reports_costs_no_router_query() {
    let fixture = SwitchFixture::start(1).await;
    let ends = add_ports(&fixture.switch).await;
    snoop(&fixture.switch).await;
    ends[1].send(&message(2, GROUP, REPORT, GROUP));
    expect_groups(&fixture.switch, &["239.1.1.1 0 2"]).await;
    for _report in 0..1000 {
        ends[1].send(&message(2, GROUP, REPORT, GROUP));
    }
    ends[2].send(&query(3));
    expect_groups(&fixture.switch, &["239.1.1.1 0 2", "router 0 3"]).await;
    wait_until(|| {
        let (drops, messages) = (fixture.switch.drops(), fixture.switch.multicast_messages());
        let taken = messages.read + messages.ignored + drops.snooping_inbox_full;
        (drops.received, drops.held, taken) == (1002, 0, drops.punted)
    })
    .await;
    let (drops, messages) = (fixture.switch.drops(), fixture.switch.multicast_messages());
    let refused = drops.dropped.iter().find(|(reason, _)| *reason == "snooping_message_refused");
    let refused = refused.map_or(0, |(_, count)| *count);
    assert!(refused > 0, "{drops:?}");
    assert_eq!(messages.lost, refused + drops.snooping_inbox_full);
    let own = fixture.port("p2").drops.into_iter();
    let own = own.filter(|own| own.direction == "forward" && own.reason.starts_with("snooping_"));
    assert_eq!(own.map(|own| own.packets).sum::<u64>(), messages.lost);
}

#[tokio::test]
async fn trace_shows_why_port_gets_group() {
    let fixture = SwitchFixture::start(1).await;
    let ends = add_ports(&fixture.switch).await;
    snoop(&fixture.switch).await;
    let decisions = || {
        let flow = "in_port=p1,udp,dl_src=02:00:00:00:00:01,dl_dst=01:00:5e:01:01:01,\
                    nw_dst=239.1.1.1";
        let text = fixture.switch.trace("br0", flow).unwrap().to_text();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("-> "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let flooded = "NORMAL: no host has reported the multicast group: flooded in VLAN 0";
    assert_eq!(decisions(), [flooded]);
    ends[1].send(&message(2, GROUP, REPORT, GROUP));
    ends[2].send(&query(3));
    expect_groups(&fixture.switch, &["239.1.1.1 0 2", "router 0 3"]).await;
    let expected = [
        "NORMAL: hosts have reported multicast group 239.1.1.1 in VLAN 0",
        "NORMAL: sent to port 2 (p2): a host at the port has reported the group",
        "NORMAL: sent to port 3 (p3): a multicast router was found",
    ];
    assert_eq!(decisions(), expected);
}
