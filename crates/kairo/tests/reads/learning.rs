//! Tests of the reads of rules learned by `learn`, and of hidden state in tables.

use shunt_pipeline::FlowModCommand;

use crate::{Kind, Switch, any_packet, packet};

#[test]
fn a_deleted_learned_rule_evicts_entries() {
    let switch = Switch::new();
    switch.add(
        "actions=learn(table=1,cookie=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    );
    switch.learn(&any_packet());
    let entry = switch.translate(&any_packet());
    assert!(entry.learnings.is_empty(), "the address is known");
    switch.assert_needed(entry, Kind::Learned, |switch| {
        vec![switch.rule(FlowModCommand::Delete, "cookie=5/-1")]
    });
}

#[test]
fn a_changed_number_of_learned_rules_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=learn(table=1,cookie=5,limit=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])");
    switch.learn(&packet(1, [3, 2]));
    let entry = switch.translate(&any_packet());
    assert!(entry.learnings.is_empty(), "there is no room for another");
    switch.assert_needed(entry, Kind::Learned, |switch| {
        vec![switch.rule(FlowModCommand::Delete, "cookie=5/-1")]
    });
}

#[test]
fn newly_readable_hidden_state_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=load:5->NXM_NX_REG5[],goto_table:1");
    switch.add("table=1,actions=output:2");
    let version = switch.0.version();
    let mut parts = switch.0.translate_sub_traversals(&any_packet(), None, version, &[1]);
    let entry = parts.remove(0).traversal;
    switch.assert_needed(entry, Kind::Live, |switch| {
        vec![switch.add("table=1,priority=9,reg5=5,actions=output:3")]
    });
}
