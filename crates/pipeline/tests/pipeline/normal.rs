//! Tests of NORMAL: learning, flooding, VLANs.

use std::time::Duration;

use shunt_flow::{FieldId, PortNo, layout::word};
use shunt_pipeline::{
    Action, BridgeSettings, DatapathAction, Delta, DropCause, Object, PortVlans, PriorityTags,
    QinqEthtype, Refresh, RuleFilter, Time, Traversal, VlanMode,
};

use crate::switch::{BRIDGE, Switch, describe, key, ports};

/// A packet from host A to host B.
pub(crate) const A_TO_B: &str = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
/// A packet from host B to host A.
pub(crate) const B_TO_A: &str = "in_port=2,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a";

/// Returns a learning switch with these VLANs on ports 1 to 4.
pub(crate) fn switch(vlans: [PortVlans; 4]) -> Switch {
    let switch = Switch::of_actions(&[Action::Output { port: PortNo::NORMAL, max_len: 0 }]);
    let mut all = ports();
    all.iter_mut().zip(vlans).for_each(|(port, vlans)| port.vlans = vlans);
    switch.set_ports(all);
    switch
}

pub(crate) fn switch_without_vlans() -> Switch {
    switch([(); 4].map(|()| PortVlans::default()))
}

pub(crate) fn port_vlans(mode: VlanMode) -> PortVlans {
    PortVlans { mode, ..PortVlans::default() }
}

pub(crate) fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

/// Sends a packet, and applies its learn requests.
pub(crate) fn send(switch: &Switch, packet: &str, second: u64) -> String {
    let mut key = key(packet);
    let tags = &mut key.words_mut()[usize::from(word::VLAN)];
    if *tags != 0 {
        *tags |= 0x8100 << 48;
    }
    let traversal = switch.pipeline.translate_at_newest_version(&key);
    switch.pipeline.learn(&traversal.learnings, at(second));
    switch.pipeline.credit(&traversal, 1, 60, at(second));
    describe(&traversal.actions)
}

pub(crate) fn known_macs(switch: &Switch) -> Vec<(u16, u8, u32)> {
    let macs = switch.pipeline.macs(BRIDGE);
    macs.iter().map(|entry| (entry.vlan, entry.mac[5], entry.port.number())).collect()
}

fn tagged(packet: &str, tci: u64) -> String {
    format!("{packet},vlan_tci={tci:#x}")
}

#[test]
fn an_unknown_destination_floods_and_learns_the_source() {
    let switch = switch_without_vlans();
    assert_eq!(send(&switch, A_TO_B, 1), "2 3 4 100");
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
    assert_eq!(send(&switch, B_TO_A, 2), "1");
    assert_eq!(send(&switch, A_TO_B, 3), "2");
}

#[test]
fn learning_packet_uses_old_rules() {
    let switch = switch_without_vlans();
    let first = switch.translate(A_TO_B);
    assert_eq!(first.learnings.len(), 1);
    switch.pipeline.learn(&first.learnings, at(1));
    let second = switch.translate(A_TO_B);
    assert!(second.learnings.is_empty() && matches!(*second.refreshes, [Refresh::Mac(_)]));
    assert_eq!(describe(&first.actions), describe(&second.actions));
}

#[test]
fn an_address_moves_to_its_latest_port() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 1);
    send(&switch, &A_TO_B.replace("in_port=1", "in_port=3"), 2);
    assert_eq!(known_macs(&switch), [(0, 0x0a, 3)]);
    assert_eq!(send(&switch, B_TO_A, 3), "3");
}

#[test]
fn a_packet_to_its_ingress_port_is_dropped() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 1);
    assert_eq!(send(&switch, &B_TO_A.replace("in_port=2", "in_port=1"), 2), "");
}

#[test]
fn a_packet_to_its_own_source_is_dropped() {
    let switch = switch_without_vlans();
    let own = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0a";
    assert_eq!(send(&switch, own, 1), "");
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
}

#[test]
fn group_addresses_are_flooded_and_never_learned() {
    let switch = switch_without_vlans();
    let to_all = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=ff:ff:ff:ff:ff:ff";
    assert_eq!(send(&switch, to_all, 1), "2 3 4 100");
    assert_eq!(
        send(&switch, "in_port=2,dl_src=03:00:00:00:00:0c,dl_dst=02:00:00:00:00:0a", 2),
        "1"
    );
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
}

#[test]
fn frames_to_reserved_addresses_of_bridges_go_nowhere() {
    let switch = switch_without_vlans();
    for address in ["01:80:c2:00:00:00", "01:80:c2:00:00:0e", "01:00:0c:cc:cc:cc"] {
        let packet = format!("in_port=1,dl_src=02:00:00:00:00:0a,dl_dst={address}");
        assert_eq!(send(&switch, &packet, 1), "");
    }
    assert!(known_macs(&switch).is_empty());
    let packet = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=01:80:c2:00:00:10";
    assert_eq!(send(&switch, packet, 1), "2 3 4 100");
}

#[test]
fn a_controller_may_send_to_reserved_addresses() {
    let switch = switch_without_vlans();
    let mut packet = key("dl_src=02:00:00:00:00:0a,dl_dst=01:80:c2:00:00:0e");
    packet.set_in_port(PortNo::CONTROLLER);
    let normal = [Action::Output { port: PortNo::NORMAL, max_len: 0 }];
    let traversal = switch.pipeline.translate_actions_at_newest_version(&packet, &normal);
    assert_eq!(describe(&traversal.actions), "1! 2! 3! 4! 100!");
    packet.set_in_port(PortNo::new(1));
    let traversal = switch.pipeline.translate_actions_at_newest_version(&packet, &normal);
    assert_eq!(describe(&traversal.actions), "");
}

#[test]
fn a_frame_with_an_unparsed_tag_is_dropped() {
    let switch = switch_without_vlans();
    for ethertype in ["0x8100", "0x88a8"] {
        assert_eq!(send(&switch, &format!("{A_TO_B},dl_type={ethertype}"), 1), "");
        let below = format!("{A_TO_B},dl_type={ethertype},vlan_tci=0x1005");
        assert_eq!(send(&switch, &below, 1), "2 3 4 100");
    }
    assert_eq!(known_macs(&switch), [(5, 0x0a, 1)]);
    assert_eq!(send(&switch, &format!("{A_TO_B},dl_type=0x88cc"), 1), "2 3 4 100");
}

#[test]
fn an_access_port_sends_only_untagged_frames() {
    let switch = switch([
        PortVlans::default(),
        port_vlans(VlanMode::Access(5)),
        port_vlans(VlanMode::Access(5)),
        PortVlans::default(),
    ]);
    send(&switch, B_TO_A, 1);
    let send_twice_tagged = |packet: &str| {
        let mut key = key(packet);
        key.words_mut()[usize::from(word::VLAN)] = 0x8100_1005_8100_1007;
        describe(&switch.pipeline.translate_at_newest_version(&key).actions)
    };
    assert_eq!(send_twice_tagged(A_TO_B), "pop pop 2");
    let to_all = A_TO_B.replace("dl_dst=02:00:00:00:00:0b", "dl_dst=ff:ff:ff:ff:ff:ff");
    assert_eq!(send_twice_tagged(&to_all), "4 100");
}

#[test]
fn access_port_adds_and_removes_vlan_tag() {
    let access = || port_vlans(VlanMode::Access(5));
    let other = port_vlans(VlanMode::Access(6));
    let switch = switch([access(), PortVlans::default(), access(), other]);
    assert_eq!(send(&switch, A_TO_B, 1), "push(8100,1005) 2 pop 3 push(8100,1005) 100");
    assert_eq!(known_macs(&switch), [(5, 0x0a, 1)]);
    assert_eq!(send(&switch, &tagged(B_TO_A, 0x1005), 2), "pop 1");
    assert_eq!(send(&switch, &tagged(B_TO_A, 0x1006), 2), "pop 4 push(8100,1006) 100");
}

#[test]
fn an_access_port_drops_tagged_frames() {
    let switch = switch([5, 5, 5, 5].map(|vlan| port_vlans(VlanMode::Access(vlan))));
    assert_eq!(send(&switch, &tagged(A_TO_B, 0x1005), 1), "");
    assert!(known_macs(&switch).is_empty());
}

#[test]
fn a_trunk_sends_and_receives_only_its_vlans() {
    let trunk = |vlan| PortVlans { trunks: Some([vlan].into()), ..PortVlans::default() };
    let switch = switch([trunk(5), trunk(5), trunk(6), PortVlans::default()]);
    assert_eq!(send(&switch, &tagged(A_TO_B, 0x1005), 1), "2 4 100");
    assert_eq!(send(&switch, &tagged(A_TO_B, 0x1006), 1), "");
    assert_eq!(send(&switch, A_TO_B, 1), "");
}

#[test]
fn native_untagged_sends_without_a_tag() {
    let native = [VlanMode::NativeUntagged(5), VlanMode::NativeTagged(5)].map(port_vlans);
    let [untagged, tagged_too] = native;
    let switch = switch([untagged.clone(), untagged, tagged_too, port_vlans(VlanMode::Access(5))]);
    let actions = send(&switch, A_TO_B, 1);
    assert_eq!(actions, "2 push(8100,1005) 3 pop 4 push(8100,1005) 100");
}

#[test]
fn priority_stays_but_not_on_access_port() {
    let switch = switch([
        port_vlans(VlanMode::Access(5)),
        PortVlans::default(),
        port_vlans(VlanMode::Access(5)),
        port_vlans(VlanMode::Access(6)),
    ]);
    let out = send(&switch, &tagged(A_TO_B, 0x7000), 1);
    assert_eq!(out, "set(vlan_tci=5) 2 pop 3 push(8100,7005) 100");
}

/// The expected tags come from `ovs-vswitchd.conf.db(5)`.
#[test]
fn priority_tag_replaces_tag_of_own_vlan() {
    use PriorityTags::{Always, IfNonzero, Never};
    let (access, native) = (VlanMode::Access(5), VlanMode::NativeUntagged(5));
    for (mode, priority_tags, tci, expected) in [
        (access, Never, 0x7005, "pop 2"),
        (access, IfNonzero, 0x7005, "pop push(8100,7000) 2"),
        (access, IfNonzero, 0x1005, "pop 2"),
        (access, Always, 0x1005, "pop push(8100,1000) 2"),
        (native, Never, 0x7005, "pop 2"),
        (native, IfNonzero, 0x7005, "pop push(8100,7000) 2"),
        (native, Always, 0x1005, "pop push(8100,1000) 2"),
        (VlanMode::Trunk, Never, 0x1000, "pop 2"),
        (VlanMode::Trunk, Never, 0x7000, "2"),
        (VlanMode::Trunk, Always, 0x1000, "2"),
    ] {
        let all = PortVlans::default;
        let own = PortVlans { mode, priority_tags, ..all() };
        let switch = switch([all(), own, all(), all()]);
        send(&switch, B_TO_A, 1);
        let sent = send(&switch, &tagged(A_TO_B, tci), 2);
        assert_eq!(sent, expected, "{mode:?} {priority_tags:?} {tci:#x}");
    }
}

#[test]
fn a_native_vlan_tag_carries_the_priority() {
    let switch = switch([
        PortVlans::default(),
        port_vlans(VlanMode::NativeUntagged(5)),
        port_vlans(VlanMode::NativeUntagged(6)),
        PortVlans::default(),
    ]);
    let out = send(&switch, &tagged(A_TO_B, 0x7005), 1);
    assert_eq!(out, "pop 2 push(8100,7005) 3 4 100");
}

/// Returns the settings of a dot1q-tunnel port of VLAN 100.
fn tunnel() -> PortVlans {
    port_vlans(VlanMode::Dot1qTunnel(100))
}

/// The expected tags come from Open vSwitch 3.1.
#[test]
fn a_tunnel_adds_and_removes_the_service_tag() {
    let switch = switch([
        tunnel(),
        tunnel(),
        port_vlans(VlanMode::Access(100)),
        port_vlans(VlanMode::NativeUntagged(100)),
    ]);
    for (tci, expected) in [
        (None, "2 3 4 push(88a8,1064) 100"),
        (Some(0x1005), "2 4 push(88a8,1064) 100"),
        (Some(0x7005), "2 4 push(88a8,1064) 100"),
        (Some(0x7000), "2 pop 3 push(8100,7000) 4 push(88a8,1064) 100"),
        (Some(0x1000), "pop 2 3 4 push(88a8,1064) 100"),
    ] {
        let packet = tci.map_or_else(|| A_TO_B.to_owned(), |tci| tagged(A_TO_B, tci));
        assert_eq!(send(&switch, &packet, 1), expected, "{tci:x?}");
    }
    assert_eq!(known_macs(&switch), [(100, 0x0a, 1)], "learned in the service VLAN");
    let answer = B_TO_A.replace("in_port=2", "in_port=LOCAL");
    assert_eq!(send(&switch, &tagged(&answer, 0x1064), 2), "pop 1");
    assert_eq!(send(&switch, &tagged(A_TO_B, 0x1005), 3), "push(88a8,1064) 100");
}

#[test]
fn a_tunnel_uncovers_the_tag_of_the_customer() {
    let switch =
        switch([PortVlans::default(), tunnel(), tunnel(), port_vlans(VlanMode::Access(100))]);
    let send = |tags: u64| {
        let mut key = key(A_TO_B);
        key.words_mut()[usize::from(word::VLAN)] = tags;
        describe(&switch.pipeline.translate_at_newest_version(&key).actions)
    };
    assert_eq!(send(0x88a8_1064_8100_1005), "pop 2 3 push(88a8,1064) 100");
    assert_eq!(send(0x88a8_1064_8100_1000), "pop pop 2 3 4 push(8100,1000) push(88a8,1064) 100");
    assert_eq!(send(0x88a8_1007_8100_1005), "100", "another service VLAN");
}

/// Returns the tags of a packet at its first output, with the outer one first.
fn tags_at_output(actions: &[DatapathAction], mut tags: Vec<u128>) -> Vec<u128> {
    for action in actions {
        match action {
            DatapathAction::PopVlan => {
                tags.remove(0);
            }
            DatapathAction::PushVlan { tci, .. } => tags.insert(0, (*tci).into()),
            DatapathAction::SetHeader(set) => {
                let mask = shunt_flow::FlowMask::from(set.mask()).field(FieldId::VlanTci);
                tags[0] = (tags[0] & !mask) | (set.key().field(FieldId::VlanTci) & mask);
            }
            _ => break,
        }
    }
    tags
}

/// Returns the tags that port 2 sends of a packet in VLAN 100 with these tags.
fn sent_tags(own: PortVlans, outer: u64, inner: Option<u64>) -> Vec<u128> {
    let switch = switch([PortVlans::default(), own, PortVlans::default(), PortVlans::default()]);
    send(&switch, B_TO_A, 1);
    let mut key = key(A_TO_B);
    let below = inner.map_or(0, |tci| 0x8100_0000 | tci);
    key.words_mut()[usize::from(word::VLAN)] = (0x8100_0000 | outer) << 32 | below;
    let actions = switch.pipeline.translate_at_newest_version(&key).actions;
    let tags = [Some(outer), inner].into_iter().flatten().map(u128::from);
    tags_at_output(&actions, tags.collect())
}

/// The expected tags come from Open vSwitch 3.1 with `vlan-limit=2`.
///
/// With priority tags, the tag below a removed one gets the priority of the removed tag, also 0.
#[test]
fn a_removed_tag_passes_its_priority_on() {
    use PriorityTags::{Always, IfNonzero, Never};
    let modes = [VlanMode::NativeUntagged(100), VlanMode::Dot1qTunnel(100)];
    // The outer tag has priority 0, and then 3. The tag below it has priority 0 or 5.
    for (inner, priority_tags, expected) in [
        (None, Never, [None, None]),
        (Some(0x1000), Never, [None, None]),
        (Some(0x1007), Never, [Some(0x1007), Some(0x1007)]),
        (Some(0xb007), Never, [Some(0xb007), Some(0xb007)]),
        (Some(0xb000), Never, [Some(0xb000), Some(0xb000)]),
        (None, IfNonzero, [None, Some(0x7000)]),
        (Some(0x1000), IfNonzero, [None, Some(0x7000)]),
        (Some(0x1007), IfNonzero, [Some(0x1007), Some(0x7007)]),
        (Some(0xb007), IfNonzero, [Some(0x1007), Some(0x7007)]),
        (Some(0xb000), IfNonzero, [None, Some(0x7000)]),
        (Some(0x1000), Always, [Some(0x1000), Some(0x7000)]),
        (Some(0x1007), Always, [Some(0x1007), Some(0x7007)]),
        (Some(0xb007), Always, [Some(0x1007), Some(0x7007)]),
        (Some(0xb000), Always, [Some(0x1000), Some(0x7000)]),
    ] {
        for mode in modes {
            let own = PortVlans { mode, priority_tags, ..PortVlans::default() };
            let sent = [0x1064, 0x7064].map(|outer| sent_tags(own.clone(), outer, inner));
            let expected = expected.map(|tag: Option<u128>| tag.into_iter().collect::<Vec<_>>());
            assert_eq!(sent, expected, "{mode:?} {priority_tags:?} {inner:x?}");
        }
    }
}

#[test]
fn service_tag_has_type_of_its_port() {
    let own = PortVlans { qinq_ethtype: QinqEthtype::Dot1q, ..tunnel() };
    let with_priority =
        PortVlans { priority_tags: PriorityTags::IfNonzero, ..PortVlans::default() };
    let switch = switch([own, port_vlans(VlanMode::NativeTagged(7)), with_priority, tunnel()]);
    assert_eq!(
        send(&switch, &tagged(A_TO_B, 0x7005), 1),
        "push(8100,1064) 2 pop push(8100,7064) 3 pop 4 push(8100,1064) 100",
        "the priority of the customer is copied with priority tags alone"
    );
}

#[test]
fn cvlans_select_the_customer_vlans() {
    let some = PortVlans { cvlans: Some([5].into()), ..tunnel() };
    let switch = switch([some.clone(), tunnel(), some, PortVlans::default()]);
    assert_eq!(send(&switch, A_TO_B, 1), "");
    assert_eq!(send(&switch, &tagged(A_TO_B, 0x1007), 1), "");
    assert_eq!(
        send(&switch, &tagged(A_TO_B, 0x1005), 1),
        "2 3 push(88a8,1064) 4 pop push(88a8,1064) 100"
    );
    assert_eq!(send(&switch, &tagged(B_TO_A, 0x1005), 1), "1");
    let unknown = "in_port=2,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0c";
    assert_eq!(
        send(&switch, &tagged(unknown, 0x1007), 2),
        "push(88a8,1064) 4 pop push(88a8,1064) 100",
        "a flood leaves out ports without the customer VLAN"
    );
}

#[test]
fn no_flood_ports_get_known_unicast() {
    let switch = switch_without_vlans();
    let config = shunt_pipeline::PortConfig { no_flood: true, ..Default::default() };
    switch.configure(2, config);
    assert_eq!(send(&switch, A_TO_B, 1), "3 4 100");
    send(&switch, B_TO_A, 2);
    assert_eq!(send(&switch, A_TO_B, 3), "2");
}

#[test]
fn a_packet_out_is_flooded_and_learns_nothing() {
    let switch = switch_without_vlans();
    let mut packet = key(A_TO_B);
    packet.set_in_port(PortNo::CONTROLLER);
    let normal = [Action::Output { port: PortNo::NORMAL, max_len: 0 }];
    let traversal = switch.pipeline.translate_actions_at_newest_version(&packet, &normal);
    assert_eq!(describe(&traversal.actions), "1! 2! 3! 4! 100!");
    assert!(traversal.learnings.is_empty());
}

#[test]
fn hits_keep_an_address_from_ageing() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 0);
    send(&switch, B_TO_A, 0);
    send(&switch, A_TO_B, 200);
    let change = switch.pipeline.expire(at(300));
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
    assert_eq!(change.deltas.len(), 1, "{:?}", change.deltas);
    assert!(switch.pipeline.expire(at(499)).deltas.is_empty());
    switch.pipeline.expire(at(500));
    assert!(known_macs(&switch).is_empty());
}

#[test]
fn late_refresh_neither_moves_nor_adds_address() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 0);
    let refreshing = switch.translate(A_TO_B);
    assert!(matches!(*refreshing.refreshes, [Refresh::Mac(_)]));
    send(&switch, &A_TO_B.replace("in_port=1", "in_port=3"), 100);
    // The cache entry is older than the move of the address.
    switch.pipeline.credit(&refreshing, 1, 60, at(250));
    assert_eq!(known_macs(&switch), [(0, 0x0a, 3)], "the address is on its last port");
    assert_eq!(switch.pipeline.macs(BRIDGE)[0].seen(), at(100));
    switch.pipeline.expire(at(400));
    assert!(known_macs(&switch).is_empty());
    let version = switch.pipeline.version();
    switch.pipeline.credit(&refreshing, 1, 60, at(401));
    assert!(known_macs(&switch).is_empty() && switch.pipeline.version() == version);
}

#[test]
fn a_removed_port_loses_its_addresses() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 0);
    switch.set_ports(ports().into_iter().filter(|port| port.number != PortNo::new(1)).collect());
    assert!(known_macs(&switch).is_empty());
}

#[test]
fn changed_vlans_remove_the_addresses_of_a_port() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 0);
    send(&switch, B_TO_A, 0);
    let mut all = ports();
    all[0].vlans = port_vlans(VlanMode::Access(5));
    switch.set_ports(all.clone());
    assert_eq!(known_macs(&switch), [(0, 0x0b, 2)], "the addresses of the other port stay");
    all[0].config.no_flood = true;
    send(&switch, A_TO_B, 1);
    switch.set_ports(all);
    assert_eq!(
        known_macs(&switch),
        [(0, 0x0b, 2), (5, 0x0a, 1)],
        "other settings remove no address"
    );
}

#[test]
fn address_of_removed_vlan_is_not_learned() {
    let switch = switch_without_vlans();
    let learn_requests = switch.translate(A_TO_B).learnings;
    let mut all = ports();
    all[0].vlans = port_vlans(VlanMode::Access(5));
    switch.set_ports(all);
    switch.pipeline.learn(&learn_requests, at(1));
    assert!(known_macs(&switch).is_empty());
}

#[test]
fn observation_in_removed_vlan_refreshes_no_address() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 0);
    let learn_requests = switch.translate(&A_TO_B.replace("in_port=1", "in_port=3")).learnings;
    assert_eq!(learn_requests.len(), 1);
    let mut all = ports();
    all[2].vlans = port_vlans(VlanMode::Access(5));
    switch.set_ports(all);
    switch.pipeline.learn(&learn_requests, at(1));
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
    assert_eq!(switch.pipeline.macs(BRIDGE)[0].seen(), at(0), "the frame arrived on another port");
}

#[test]
fn a_full_table_replaces_its_oldest_address() {
    let switch = switch_without_vlans();
    let settings = BridgeSettings { macs_max: 1, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    send(&switch, A_TO_B, 1);
    send(&switch, B_TO_A, 2);
    assert_eq!(known_macs(&switch), [(0, 0x0b, 2)]);
}

#[test]
fn a_flush_removes_all_addresses_and_reports_them() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 1);
    assert_eq!(switch.pipeline.flush_macs(BRIDGE).deltas.len(), 1);
    assert!(known_macs(&switch).is_empty());
}

#[test]
fn normal_consults_addresses_vlan_and_ingress() {
    let switch = switch_without_vlans();
    let Traversal { mask, reads, .. } = switch.translate(A_TO_B);
    for field in [FieldId::EthSrc, FieldId::EthDst, FieldId::VlanTci, FieldId::InPort] {
        let whole = u128::MAX >> (128 - field.width());
        assert_eq!(mask.field(field), whole, "{field:?}");
    }
    assert_eq!(mask.field(FieldId::Ipv4Src), 0);
    for last in [0x0a, 0x0b] {
        assert!(reads.contains(&Object::Mac(BRIDGE, 0, [2, 0, 0, 0, 0, last])), "{reads:?}");
    }
}

/// Protected ports reach ports that are not protected, and not each other.
///
/// The reads of the packet contain both protected ports.
#[test]
fn protected_ports_do_not_reach_each_other() {
    let switch = switch_without_vlans();
    let protect = |numbers: [u32; 2]| {
        let mut all = ports();
        for port in &mut all {
            port.is_protected = numbers.contains(&port.number.number());
        }
        switch.set_ports(all);
    };
    protect([1, 2]);
    assert_eq!(send(&switch, A_TO_B, 1), "3 4 100", "flooded");
    assert_eq!(send(&switch, &A_TO_B.replace("in_port=1", "in_port=3"), 2), "1 2 4 100");
    send(&switch, B_TO_A, 3);
    send(&switch, A_TO_B, 4);
    let known = switch.translate(A_TO_B);
    assert!(known.actions.is_empty(), "{:?}", known.actions);
    assert_eq!(known.drop_cause, DropCause::BothPortsProtected);
    for port in [1, 2].map(PortNo::new) {
        assert!(known.reads.contains(&Object::Port(BRIDGE, port)), "{:?}", known.reads);
    }
    protect([1, 3]);
    assert_eq!(send(&switch, A_TO_B, 5), "2");
}

/// A VLAN without learning floods every packet; other VLANs learn.
#[test]
fn flood_vlans_learn_nothing() {
    let switch = switch_without_vlans();
    let flood_vlans = [5].into();
    let settings = BridgeSettings { flood_vlans, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).unwrap();
    let flooded = tagged(A_TO_B, 0x1005);
    for second in 1..4 {
        assert_eq!(send(&switch, &flooded, second), "2 3 4 100");
        assert_eq!(send(&switch, &tagged(B_TO_A, 0x1005), second), "1 3 4 100");
    }
    assert_eq!(known_macs(&switch), []);
    send(&switch, A_TO_B, 4);
    assert_eq!(send(&switch, B_TO_A, 5), "1");
}

/// A bridge that fails open forwards by NORMAL, and keeps its rules.
#[test]
fn bridge_that_fails_open_ignores_its_tables() {
    let switch = Switch::new(&["priority=65535,actions=output:4"]);
    let set = |fails_open| {
        let settings = BridgeSettings { fails_open, ..BridgeSettings::default() };
        switch.pipeline.set_settings(BRIDGE, settings).unwrap()
    };
    assert_eq!(send(&switch, A_TO_B, 1), "4");
    let stale = switch.translate(A_TO_B);
    let change = set(true);
    assert!(change.deltas.iter().any(|delta| {
        stale.reads.iter().any(|read| matches!(delta, Delta::Changed(object) if object == read))
    }));
    assert_eq!(send(&switch, A_TO_B, 2), "2 3 4 100");
    assert_eq!(send(&switch, B_TO_A, 3), "1");
    assert!(switch.translate(A_TO_B).visits.is_empty());
    assert_eq!(switch.pipeline.rules(BRIDGE, &RuleFilter::all()).len(), 1);
    set(false);
    assert_eq!(send(&switch, A_TO_B, 4), "4");
}
