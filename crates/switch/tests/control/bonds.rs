//! Bonds with traffic: after a failover, no kind of cache sends on the old member.

use std::{cell::Cell, time::Duration};

use shunt_flow::testing::PacketBuilder;
use shunt_switch::{
    BondMemberChange, Config, Switch,
    config::{BondMode, BondOptions, CacheKind},
};
use tokio::time::sleep;

use crate::{
    fixture::{FarEnd, SwitchFixture, in_time, wait_until},
    nic::{NicFixture, add_ports},
};

/// Number of packets for each member;
/// also the most packets until a NIC has their entry.
const PACKETS: usize = 50;
const PACKETS_MAX: usize = 2000;

/// Returns a packet from one host to another.
fn packet_between(source: u8, target: u8) -> Vec<u8> {
    let mut frame = PacketBuilder::ipv4([10, 0, 0, source], [10, 0, 0, target]).udp(7, 1).build();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, target, 2, 0, 0, 0, 0, source]);
    frame
}

/// Adds a bond of `p1` and `p2` with host 1 behind it; host 2 is at `p3`.
///
/// Returns the member on which packets of host 2 are sent.
async fn make_bond(switch: &Switch, ends: &[FarEnd; 3], mode: BondMode) -> usize {
    let members = vec!["p1".to_owned(), "p2".to_owned()];
    let bond = BondOptions { name: "bond0".to_owned(), mode, members, ..BondOptions::default() };
    switch.add_bond("br0", bond).await.unwrap();
    switch.add_rules("br0", &["actions=NORMAL"]).await.unwrap();
    ends[0].send(&packet_between(1, 2));
    assert_eq!(ends[2].next_received().await, packet_between(1, 2));
    ends[2].send(&packet_between(2, 1));
    let member = Cell::new(None);
    let has_left = || {
        let is_here = |index: &usize| ends[*index].all_received().contains(&packet_between(2, 1));
        member.set((0..2).find(is_here));
        member.get().is_some()
    };
    wait_until(has_left).await;
    let learned = async {
        while switch.macs("br0").await.unwrap().len() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(learned).await;
    member.get().unwrap_or_default()
}

/// Sends a packet of host 2 to host 1, which must be sent on a given member.
async fn leaves_on(ends: &[FarEnd; 3], member: usize) {
    ends[2].send(&packet_between(2, 1));
    // The learning packet of host 2 may be received first.
    while ends[member].next_received().await != packet_between(2, 1) {}
}

/// Checks that all packets follow a failover once the call for it has returned.
async fn failover(switch: &Switch, ends: &[FarEnd; 3], old: usize) {
    let new = 1 - old;
    let change = |change| switch.change_bond_member("bond0", ["p1", "p2"][old], change);
    change(BondMemberChange::Disable).await.unwrap();
    ends[old].all_received();
    for _ in 0..PACKETS {
        leaves_on(ends, new).await;
    }
    assert!(!ends[old].all_received().contains(&packet_between(2, 1)), "left on the old member");
    // Host 1 is now reached by the other member.
    ends[new].send(&packet_between(1, 2));
    assert_eq!(ends[2].next_received().await, packet_between(1, 2));
    change(BondMemberChange::Enable).await.unwrap();
}

#[tokio::test]
async fn no_cache_sends_on_the_old_member() {
    for kind in [CacheKind::Megaflow, CacheKind::Gigaflow, CacheKind::Flows] {
        for mode in [BondMode::ActiveBackup, BondMode::BalanceSlb] {
            let mut config = Config::default();
            config.caches.kind = kind;
            config.caches.verify_one_in = 1;
            let fixture = SwitchFixture::of(&config).await;
            fixture.add_bridge("br0").await;
            let ends = add_ports(&fixture.switch).await;
            let active = make_bond(&fixture.switch, &ends, mode).await;
            for _ in 0..PACKETS {
                leaves_on(&ends, active).await;
            }
            for old in [active, 1 - active, active] {
                failover(&fixture.switch, &ends, old).await;
            }
        }
    }
}

#[tokio::test]
async fn a_nic_sends_nothing_on_the_old_member() {
    let nic_fixture = NicFixture::of(1, |_| ()).await;
    let NicFixture { fixture, ends } = &nic_fixture;
    let active = make_bond(&fixture.switch, ends, BondMode::ActiveBackup).await;
    for old in [active, 1 - active, active] {
        let before = nic_fixture.traffic().hits;
        for _ in 0..PACKETS_MAX {
            leaves_on(ends, old).await;
            if nic_fixture.traffic().hits > before {
                break;
            }
        }
        assert!(nic_fixture.traffic().hits > before, "the NIC has no entry for the packets");
        failover(&fixture.switch, ends, old).await;
    }
}
