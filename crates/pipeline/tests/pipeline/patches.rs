//! Tests of patch ports: one translation through several bridges.

use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, Object, PortConfig, PortInfo, PortKind,
    Refresh, Time,
};

use crate::switch::{BRIDGE, Switch, port, ports, request};

pub(crate) const PEER: BridgeId = BridgeId::new(2);

/// Returns a switch of two bridges, connected by patch ports.
///
/// Port 5 of the bridge leads to port 1 of the peer. Port 2 of the peer is datapath port 22.
pub(crate) fn pair(rules: &[&str], peer_rules: &[&str]) -> Switch {
    let switch = Switch::new(rules);
    let patch = |bridge, port| PortKind::Patch { bridge, port: PortNo::new(port) };
    let mut own = ports();
    own.push(port(5, patch(PEER, 1)));
    switch.set_ports(own);
    switch.pipeline.add_bridge(PEER, BridgeSettings::default());
    set_peer_ports(&switch, port(1, patch(BRIDGE, 5)));
    let mods: Vec<_> = peer_rules.iter().map(|rule| request(FlowModCommand::Add, rule)).collect();
    switch.pipeline.apply(PEER, &mods, Time::ZERO).expect("the rules are legal");
    switch
}

fn set_peer_ports(switch: &Switch, first: PortInfo) {
    let ports = vec![first, port(2, PortKind::Datapath(DatapathPort::new(22)))];
    switch.pipeline.set_ports(PEER, ports).expect("the bridge exists");
}

#[test]
fn a_packet_is_restored_after_a_peer_bridge() {
    let switch = pair(
        &["actions=load:7->NXM_NX_REG0[],output:5,output:NXM_NX_REG1[],output:2"],
        &["in_port=1,reg0=0,actions=set_field:02:00:00:00:00:01->eth_dst,\
           load:3->NXM_NX_REG1[],output:2"],
    );
    assert_eq!(
        switch.run("in_port=1,dl_dst=02:00:00:00:00:05"),
        "set(eth_dst=20000000001) 22! set(eth_dst=20000000005) 2"
    );
    let traversal = switch.translate("in_port=1");
    assert_eq!(traversal.visits[1].bridge, PEER);
    assert_eq!(traversal.visits[1].key.bridge(), 2);
    assert_eq!(traversal.visits[1].key.field(FieldId::Reg0), 0);
    let ports = [Object::Port(BRIDGE, PortNo::new(5)), Object::Port(PEER, PortNo::new(1))];
    for object in ports.into_iter().chain([BRIDGE, PEER].map(Object::Bridge)) {
        assert!(traversal.reads.contains(&object));
    }
}

#[test]
fn action_sets_of_patched_bridges_are_separate() {
    let switch = pair(
        &["actions=write_actions(output:3),goto_table:1", "table=1,actions=output:5"],
        &["actions=write_actions(output:2)"],
    );
    assert_eq!(switch.run("in_port=1"), "22! 3");
}

#[test]
fn exit_in_peer_keeps_outer_bridge() {
    let switch = pair(
        &["actions=output:5,output:2"],
        &["actions=resubmit(,1),output:2", "table=1,actions=clone(exit)"],
    );
    assert_eq!(switch.run("in_port=1"), "2");
}

#[test]
fn a_flood_continues_through_a_patch() {
    let switch = pair(&["actions=flood"], &["actions=flood"]);
    assert_eq!(switch.run("in_port=1"), "1 2 3 4 22! 100");
}

#[test]
fn a_peer_port_that_receives_nothing_drops() {
    let switch = pair(&["actions=output:5,output:2"], &["actions=output:2"]);
    let config = PortConfig { no_recv: true, ..PortConfig::default() };
    let patch = PortKind::Patch { bridge: BRIDGE, port: PortNo::new(5) };
    set_peer_ports(&switch, PortInfo { config, ..port(1, patch) });
    assert_eq!(switch.run("in_port=1"), "2");
}

#[test]
fn a_patch_port_without_a_peer_drops() {
    let switch = pair(&["actions=output:5,output:2"], &["actions=output:2"]);
    switch.pipeline.remove_bridge(PEER);
    assert_eq!(switch.run("in_port=1"), "2");
    assert!(switch.translate("in_port=1").reads.contains(&Object::Bridge(PEER)));
}

#[test]
fn a_loop_between_bridges_is_stopped() {
    let bounce = "in_port=5,actions=output:2,in_port";
    let switch = pair(&["priority=1,actions=output:5", bounce], &["actions=in_port"]);
    assert_eq!(
        switch.run("in_port=1"),
        "the packet goes through more than 64 nested resubmits, buckets, patch ports or copies, \
         which is the limit"
    );
}

#[test]
fn a_peer_bridge_starts_with_clean_state() {
    let switch = pair(
        &["actions=load:7->NXM_NX_REG0[],push:NXM_NX_REG0[],output:5"],
        &["actions=load:2->NXM_NX_REG1[],pop:NXM_NX_REG1[],output:NXM_NX_REG1[]"],
    );
    assert_eq!(switch.run("in_port=1"), "22!", "the stack is empty");
    let switch = pair(
        &["actions=write_actions(output:2),goto_table:1", "table=1,actions=output:5"],
        &["actions=drop"],
    );
    assert_eq!(switch.run("in_port=1"), "2", "the action set is empty too");
    let peer = ["actset_output=7,actions=drop", "priority=1,reg0=0,actions=output:2"];
    let switch = pair(&["actions=output:5"], &peer);
    let traversal = switch.translate("in_port=1,actset_output=7,reg0=3");
    assert_eq!(crate::switch::describe(&traversal.actions), "22!");
    let consulted_bits =
        [FieldId::ActsetOutput, FieldId::Reg0].map(|field| traversal.mask.field(field));
    assert_eq!(consulted_bits, [0, 0], "cleared state is not consulted");
}

#[test]
fn packet_ins_show_rule_of_right_bridge() {
    let peer_rules = ["cookie=3,actions=controller"];
    let switch = pair(&["cookie=9,actions=write_actions(output:5)"], &peer_rules);
    assert_eq!(switch.run("in_port=1"), "punt(Action,table=0,cookie=0x3)");
    let switch = pair(&["cookie=9,actions=output:5,controller"], &["cookie=3,actions=output:2"]);
    assert_eq!(switch.run("in_port=1"), "22! punt(Action,table=0,cookie=0x9)");
    let fin = "cookie=9,tcp,actions=output:5,fin_timeout(idle_timeout=3)";
    let switch = pair(&[fin], &["cookie=3,actions=output:2"]);
    let traversal = switch.translate("tcp,in_port=1,tcp_flags=+fin");
    let [Refresh::FinTimeout { rule, .. }] = &*traversal.refreshes else { panic!("a fin") };
    assert_eq!(rule.cookie.number(), 9);
}

#[test]
fn bits_after_patch_belong_to_outer_rule() {
    let rules = ["actions=output:5,move:NXM_OF_ETH_DST[0..7]->NXM_NX_REG1[0..7],output:2"];
    let visits = pair(&rules, &["actions=drop"]).translate("in_port=1").visits;
    let masks = visits.iter().map(|visit| visit.mask.field(FieldId::EthDst));
    assert_eq!(masks.collect::<Vec<_>>(), [0xff, 0]);
}

#[test]
fn a_patch_takes_no_truncated_packet() {
    let switch = pair(&["actions=output(port=5,max_len=64),output:2"], &["actions=output:2"]);
    assert_eq!(switch.run("in_port=1"), "2");
}
