//! Tests of tables, metadata, action sets, resubmits, clones and limits.

use shunt_flow::FieldId;
use shunt_pipeline::TraversalError;

use crate::switch::Switch;

#[test]
fn a_table_miss_drops() {
    let switch = Switch::new(&["arp,actions=output:2"]);
    let traversal = switch.translate("ip,in_port=1");
    assert!(traversal.actions.is_empty() && traversal.error.is_none());
    assert!(traversal.visits[0].rule.is_none());
}

#[test]
fn every_fragment_is_looked_up_without_ports() {
    let switch = Switch::new(&[
        "priority=3,tcp,tp_dst=80,actions=output:2",
        "priority=2,tcp,tp_dst=0,actions=output:3,move:NXM_OF_TCP_DST[]->NXM_NX_REG0[0..15],\
         output:NXM_NX_REG0[0..15]",
    ]);
    assert_eq!(switch.run("tcp,tp_dst=80"), "2");
    assert_eq!(switch.run("tcp,tp_dst=4,nw_frag=first"), "3 4", "actions see the ports");
    assert_eq!(switch.run("tcp,nw_frag=later"), "3");
    let mask = |packet| switch.translate(packet).mask.field(FieldId::NwFrag);
    assert_eq!(mask("tcp,tp_dst=80") & 1, 1);
    assert_eq!(mask("udp,tp_dst=80"), 0, "no rule matches UDP ports");
}

#[test]
fn a_missing_bridge_has_no_port() {
    let switch = Switch::new(&[]);
    let mut key = crate::switch::key("in_port=1");
    key.set_bridge(9);
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    assert_eq!(traversal.error, Some(TraversalError::NoSuchPort));
}

#[test]
fn metadata_is_matched_in_the_next_table() {
    let switch = Switch::new(&[
        "actions=write_metadata:0x12/0xff,goto_table:1",
        "table=1,metadata=0x12/0xff,actions=output:2",
    ]);
    assert_eq!(switch.run("in_port=1"), "2");
    let traversal = switch.translate("in_port=1");
    assert_eq!(traversal.mask.field(FieldId::Metadata), 0, "a written field is a constant");
    assert_eq!(traversal.visits[1].mask.field(FieldId::Metadata) & 0xff, 0xff);
}

#[test]
fn action_set_runs_in_order_of_standard() {
    let switch = Switch::new(&[
        "priority=2,ip,actions=write_actions(output:3,set_field:02:00:00:00:00:09->eth_dst,\
         dec_ttl,push_vlan:0x8100),goto_table:1",
    ]);
    assert_eq!(
        switch.run("ip,in_port=1,nw_ttl=9"),
        "push(8100,1000) set(eth_dst=20000000009,nw_ttl=8) 3"
    );
}

#[test]
fn action_set_has_one_action_per_kind() {
    let switch = Switch::new(&[
        "actions=write_actions(output:2,set_field:02:00:00:00:00:01->eth_dst),goto_table:1",
        "table=1,actions=write_actions(output:3,set_field:02:00:00:00:00:02->eth_dst)",
    ]);
    assert_eq!(switch.run("in_port=1"), "set(eth_dst=20000000002) 3");
}

#[test]
fn clear_actions_precedes_later_writes() {
    let switch = Switch::new(&[
        "actions=write_actions(output:2,set_field:02:00:00:00:00:01->eth_dst),goto_table:1",
        "table=1,actions=clear_actions,write_actions(output:3)",
    ]);
    assert_eq!(switch.run("in_port=1"), "3");
}

#[test]
fn goto_an_empty_table_runs_the_action_set() {
    let switch = Switch::new(&["actions=output:2,write_actions(output:3),goto_table:9"]);
    assert_eq!(switch.run("in_port=1"), "2 3");
}

#[test]
fn last_visit_reads_fields_of_set() {
    let switch = Switch::new(&[
        "ip,actions=write_actions(dec_ttl,output:2),goto_table:1",
        "table=1,actions=drop",
    ]);
    let traversal = switch.translate("ip,in_port=1,nw_ttl=9");
    let ttl = |visit: usize| traversal.visits[visit].mask.field(FieldId::NwTtl);
    assert_eq!((ttl(0), ttl(1)), (0, 0xff));
}

#[test]
fn registers_stay_changed_after_a_resubmit() {
    let switch = Switch::new(&[
        "actions=resubmit(,1),output:NXM_NX_REG0[],output:2",
        "table=1,actions=load:3->NXM_NX_REG0[],goto_table:2",
        "table=2,actions=output:4",
    ]);
    assert_eq!(switch.run("in_port=1"), "4 3 2");
}

#[test]
fn resubmit_uses_its_in_port_for_lookup_only() {
    let switch = Switch::new(&[
        "in_port=1,actions=resubmit(2,1),output:3",
        "table=1,in_port=2,actions=output:1,output:4,in_port",
    ]);
    let traversal = switch.translate("in_port=1");
    assert_eq!(switch.run("in_port=1"), "1 4 back 3");
    assert_eq!(traversal.visits[1].key.field(FieldId::InPort), 2);
    assert_eq!(traversal.visits[1].mask.field(FieldId::InPort), 0xffff_ffff);
}

#[test]
fn resubmit_consults_only_the_real_ingress_port() {
    let switch = Switch::new(&[
        "actions=resubmit(2,1)",
        "table=1,in_port=2,actions=move:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]",
    ]);
    let traversal = switch.translate("in_port=1");
    let in_port = |visit: usize| traversal.visits[visit].mask.field(FieldId::InPort);
    assert_eq!(traversal.mask.field(FieldId::InPort), 0xffff);
    assert_eq!((in_port(0), in_port(1)), (0xffff, 0xffff_ffff));
}

#[test]
fn a_clone_changes_nothing_for_what_follows() {
    let switch = Switch::new(&[
        "tcp,actions=load:7->NXM_NX_REG0[],clone(load:9->NXM_NX_REG0[],dec_ttl,push_vlan:0x8100,\
         output:2,resubmit(,1)),resubmit(,1),output:3",
        "table=1,reg0=9,actions=output:4",
        "table=1,reg0=7,actions=output:LOCAL,exit,output:1",
    ]);
    assert_eq!(
        switch.run("tcp,in_port=1,nw_ttl=64"),
        "push(8100,1000) set(nw_ttl=3f) 2 4 pop set(nw_ttl=40) 100"
    );
}

#[test]
fn clone_executes_its_copy_of_action_set() {
    let switch = Switch::new(&[
        "actions=write_actions(output:4),goto_table:1",
        "table=1,actions=clone(set_field:02:00:00:00:00:01->eth_dst,output:2),output:3",
    ]);
    assert_eq!(
        switch.run("in_port=1,dl_dst=02:00:00:00:00:05"),
        "set(eth_dst=20000000001) 2 4 set(eth_dst=20000000005) 3 4"
    );
}

#[test]
fn restored_field_is_consulted_only_for_output() {
    let rewrites = "clone(set_field:02:00:00:00:00:01->eth_dst,output:2)";
    let consulted = |actions: String| {
        let switch = Switch::new(&[&format!("actions={actions}")]);
        switch.translate("in_port=1").mask.field(FieldId::EthDst)
    };
    assert_eq!(consulted(rewrites.to_owned()), 0);
    assert_eq!(consulted(format!("{rewrites},output:3")), 0xffff_ffff_ffff);
}

#[test]
fn exit_also_skips_the_action_set() {
    let switch = Switch::new(&[
        "actions=write_actions(output:4),goto_table:1",
        "table=1,actions=resubmit(,2),output:3",
        "table=2,actions=output:2,clone(exit),output:1",
    ]);
    assert_eq!(switch.run("in_port=1"), "2");
}

#[test]
fn the_depth_of_resubmits_is_limited() {
    let switch = Switch::new(&["actions=output:2,resubmit(,0)"]);
    assert_eq!(
        switch.run("in_port=1"),
        "the packet goes through more than 64 nested resubmits, buckets, patch ports or copies, \
         which is the limit"
    );
    assert!(switch.translate("in_port=1").actions.is_empty());
}

#[test]
fn resubmits_to_higher_tables_do_not_deepen() {
    let rules: Vec<_> =
        (0..200).map(|table| format!("table={table},actions=resubmit(,{})", table + 1)).collect();
    let mut rules: Vec<_> = rules.iter().map(String::as_str).collect();
    rules.push("table=200,actions=output:2");
    assert_eq!(Switch::new(&rules).run("in_port=1"), "2");
}

#[test]
fn the_number_of_resubmits_is_limited() {
    let many = |table: u8| vec![format!("resubmit(,{table})"); 16].join(",");
    let rules: Vec<_> =
        (0..4).map(|table| format!("table={table},actions=output:2,{}", many(table + 1))).collect();
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    assert_eq!(
        Switch::new(&rules).run("in_port=1"),
        "the packet needs more than 4096 resubmits, \
         which is the limit"
    );
}

#[test]
fn clones_nest_up_to_the_limit_of_rules() {
    let depth = 500;
    let actions = format!("{}output:2{}", "clone(".repeat(depth), ")".repeat(depth));
    let parsed = shunt_pipeline::text::parse_actions(&actions, &shunt_flow::text::NoPortNames);
    if parsed.is_ok() {
        assert_eq!(Switch::new(&[]).packet_out("in_port=1", &actions), "2!");
    }
}

#[test]
fn a_note_does_nothing() {
    assert_eq!(Switch::new(&["actions=note:01.02,output:2"]).run("in_port=1"), "2");
}

#[test]
fn a_resubmit_returns_to_its_rule() {
    let many = vec!["resubmit(2,1)"; 100].join(",");
    let switch = Switch::new(&[
        "cookie=9,actions=resubmit(,1),controller",
        &format!("table=1,in_port=1,actions={many}"),
        "table=1,in_port=2,actions=output:3",
    ]);
    let expected = format!("{}punt(Action,table=0,cookie=0x9)", "3 ".repeat(100));
    assert_eq!(switch.run("in_port=1"), expected, "at the same depth, and for its own rule");
}

#[test]
fn bits_after_goto_belong_to_next_visit() {
    let switch = Switch::new(&[
        "table=0,actions=resubmit(,1),move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7]",
        "table=1,actions=goto_table:2",
        "table=2,actions=output:2",
    ]);
    let visits = switch.translate("in_port=1").visits;
    let masks = visits.iter().map(|visit| visit.mask.field(FieldId::EthSrc));
    assert_eq!(masks.collect::<Vec<_>>(), [0xff, 0, 0]);
}
