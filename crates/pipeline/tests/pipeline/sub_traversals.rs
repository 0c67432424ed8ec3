//! Tests of partition points, sub-traversals, and the equality of their states.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo};
use shunt_pipeline::{
    Continuation, FlowModCommand, LimitUse, MeterCommand, MeterId, NotedTraversal, SubTraversal,
    TableId, Time,
};

use crate::{
    build::{meter_mod, rule},
    meters::remark_band,
    switch::{BRIDGE, Switch, describe, key, request},
};

fn noted_traversal(switch: &Switch, packet: &str) -> NotedTraversal {
    switch.pipeline.translate_noted(&key(packet), None, switch.pipeline.version())
}

/// Returns the visits of the partition points of a packet.
fn points(switch: &Switch, packet: &str) -> Vec<usize> {
    noted_traversal(switch, packet).points.iter().map(|point| point.visit).collect()
}

fn sub_traversals(switch: &Switch, packet: &FlowKey, ends: &[usize]) -> Vec<SubTraversal> {
    switch.pipeline.translate_sub_traversals(packet, None, switch.pipeline.version(), ends)
}

/// Returns the continuation of a packet after its first visit.
fn next(switch: &Switch, packet: &str) -> Arc<Continuation> {
    let next = sub_traversals(switch, &key(packet), &[1])[0].traversal.next.clone();
    next.expect("there is a partition point")
}

/// Asserts that two packets have the same state after their first visit, or not.
///
/// Compares the names of the states, and the states.
#[track_caller]
fn assert_one(switch: &Switch, [one, other]: [&str; 2], are_one: bool) {
    let names = [one, other].map(|packet| noted_traversal(switch, packet).points[0].name);
    assert_eq!(names[0] == names[1], are_one, "by name");
    assert_eq!(Arc::ptr_eq(&next(switch, one), &next(switch, other)), are_one, "by state");
}

/// Rules of three tables; the last one reads a register that the second one loads.
const CHAIN: [&str; 3] = [
    "table=0,actions=set_field:02:00:00:00:00:05->eth_src,goto_table:1",
    "table=1,actions=load:5->NXM_NX_REG0[],goto_table:2",
    "table=2,reg0=5,actions=output:2,output:3",
];

#[test]
fn each_visit_but_first_has_partition_point() {
    let switch = Switch::new(&CHAIN);
    let noted = noted_traversal(&switch, "in_port=1");
    assert_eq!(noted.points.iter().map(|point| point.visit).collect::<Vec<_>>(), [1, 2]);
    let (lookups, actions, refreshes) = (2, 2, 0);
    assert_eq!(noted.limit_use, LimitUse { lookups, actions, refreshes });
    assert_eq!(noted.traversal.visits.len(), 3);
}

#[test]
fn copies_and_recirculations_have_no_partition_points() {
    let chain = ["table=1,actions=goto_table:2", "table=2,actions=output:2"];
    let switch = Switch::new(&chain);
    switch.add(&["table=0,actions=clone(resubmit(,1)),resubmit(,2)"]);
    assert_eq!(points(&switch, "in_port=1"), [3], "behind the copy");
    let switch = Switch::new(&chain);
    switch.add(&["table=0,actions=resubmit(,1),check_pkt_larger(100)->NXM_NX_REG0[0],output:3"]);
    assert!(points(&switch, "in_port=1").is_empty());
    // There is no partition point after a meter that may have changed the packet, because a later
    // clone could not undo the change.
    let switch = Switch::new(&chain);
    let remark = meter_mod(MeterCommand::Add, 1, vec![remark_band(1, 0, 1)]);
    let mut metered = rule("table=0", vec![]);
    metered.instructions.meter = Some(MeterId::new(1));
    metered.instructions.goto = TableId::new(1);
    switch.make([remark, metered.into()]);
    assert!(points(&switch, "in_port=1").is_empty());
}

#[test]
fn sub_traversals_in_order_equal_the_traversal() {
    let switch = Switch::new(&CHAIN);
    let whole = describe(&switch.translate("in_port=1").actions);
    for ends in [&[1, 2][..], &[1], &[2], &[]] {
        let sub_traversals = sub_traversals(&switch, &key("in_port=1"), ends);
        assert_eq!(sub_traversals.len(), ends.len() + 1);
        let visits =
            sub_traversals.iter().map(|sub_traversal| sub_traversal.traversal.visits.len());
        assert_eq!(visits.sum::<usize>(), 3);
        let results =
            sub_traversals.iter().map(|sub_traversal| describe(&sub_traversal.traversal.actions));
        let results: Vec<_> = results.filter(|text| !text.is_empty()).collect();
        assert_eq!(results.join(" "), whole, "{ends:?}");
    }
}

#[test]
fn only_plain_sub_traversals_are_composed() {
    let leading = ["table=0,actions=goto_table:1", "table=1,actions=goto_table:2", CHAIN[2]];
    for (rules, is_put_together) in [(leading, true), (CHAIN, false)] {
        let switch = Switch::new(&rules);
        switch.add(&["table=2,priority=1,actions=output:2"]);
        let (noted, packet) = (noted_traversal(&switch, "in_port=1"), key("in_port=1"));
        let first = switch.pipeline.translate_sub_traversal(&packet, None, &noted, 0..1).traversal;
        let (start, headers) = (first.next.as_ref(), FlowKey::from(&noted.traversal.visits[1].key));
        let last = switch.pipeline.translate_sub_traversal(&headers, start, &noted, 1..3).traversal;
        assert_eq!(Arc::ptr_eq(&last.actions, &noted.traversal.actions), is_put_together);
        assert!(!last.actions.is_empty() && last.visits.len() == 2);
    }
}

#[test]
fn sub_traversal_lists_headers_that_it_wrote() {
    let switch = Switch::new(&CHAIN);
    let sub_traversals = sub_traversals(&switch, &key("in_port=1"), &[1, 2]);
    let written = |sub_traversal: &SubTraversal| {
        let mask = FlowMask::from(sub_traversal.rewrite.mask());
        (mask.field(FieldId::EthSrc) != 0, mask.field(FieldId::Reg0) != 0)
    };
    let written: Vec<_> = sub_traversals.iter().map(written).collect();
    assert_eq!(written, [(true, false), (false, false), (false, false)]);
    assert_eq!(sub_traversals[0].rewrite.key().field(FieldId::EthSrc), 0x0200_0000_0005);
    let lookups = sub_traversals.iter().map(|sub_traversal| sub_traversal.limit_use.lookups);
    assert_eq!(lookups.collect::<Vec<_>>(), [1, 1, 0], "each by itself");
}

/// Packets with different registers share a state if no later step reads them.
#[test]
fn registers_that_nothing_reads_split_no_state() {
    let moved = "move:NXM_NX_REG0[0..15]->NXM_OF_ETH_SRC[0..15]";
    let readers = [
        ("goto_table:1".to_owned(), "table=1,reg0=1,actions=output:2".to_owned()),
        ("goto_table:1".to_owned(), format!("table=1,actions={moved}")),
        ("goto_table:1".to_owned(), format!("table=1,actions=clone({moved},output:2)")),
        ("goto_table:1".to_owned(), format!("table=1,actions=write_actions({moved},output:2)")),
        ("resubmit(,1),goto_table:2".to_owned(), "table=2,reg0=1,actions=output:2".to_owned()),
        ("resubmit(,1),resubmit(,2)".to_owned(), "table=2,reg0=1,actions=output:2".to_owned()),
        (format!("resubmit(,1),{moved}"), "table=1,actions=output:2".to_owned()),
        ("write_actions(resubmit(,1))".to_owned(), "table=1,reg0=1,actions=output:2".to_owned()),
        (
            format!("resubmit(,1),write_actions({moved},output:2)"),
            "table=1,actions=drop".to_owned(),
        ),
        (
            format!("write_actions({moved},output:2),goto_table:1"),
            "table=1,actions=drop".to_owned(),
        ),
    ];
    for (left, reader) in &readers {
        for (register, are_one) in [(9, true), (0, false)] {
            let of =
                |port| format!("in_port={port},actions=load:{port}->NXM_NX_REG{register}[],{left}");
            let without = format!("in_port=3,actions={left}");
            let switch = Switch::new(&[&of(1), &of(2), &without, reader]);
            assert_one(&switch, ["in_port=1", "in_port=2"], are_one);
            assert_one(&switch, ["in_port=1", "in_port=3"], are_one);
        }
    }
}

/// A `resubmit` at the end of a rule leaves as little to do as `goto_table`.
#[test]
fn final_resubmit_and_goto_share_one_state() {
    let switch = Switch::new(&[
        "table=0,actions=load:1->NXM_NX_REG0[],push:NXM_NX_REG0[],resubmit(,1)",
        "table=1,in_port=1,actions=resubmit(,2)",
        "table=1,in_port=2,actions=goto_table:2",
        "table=2,actions=output:3",
    ]);
    let [one, other] = ["in_port=1", "in_port=2"].map(|packet| {
        let next = sub_traversals(&switch, &key(packet), &[2])[0].traversal.next.clone();
        (noted_traversal(&switch, packet).points[1].name, next.expect("there is a partition point"))
    });
    assert_eq!(one.0, other.0, "by name");
    assert!(Arc::ptr_eq(&one.1, &other.1), "by state");
}

/// The state has the depth of a rule only if a later step of the rule needs it.
#[test]
fn the_depth_of_a_rule_is_carried_over() {
    let next = |left: &str| {
        let switch = Switch::new(&[
            "table=0,actions=write_actions(resubmit(,1))",
            &format!("table=1,actions=resubmit(,2),{left}"),
            "table=2,actions=output:2",
        ]);
        let next = sub_traversals(&switch, &key("in_port=1"), &[2])[0].traversal.next.clone();
        format!("{:?}", next.expect("there is a partition point"))
    };
    assert!(next("goto_table:3").contains("Return"));
    assert!(!next("write_metadata:1").contains("Return"));
}

/// Actions after the lookup add bits to the sub-traversal, and not to the visit.
#[test]
fn bits_after_a_lookup_are_not_its_own() {
    let switch = Switch::new(&[
        "table=0,actions=resubmit(,1),move:NXM_OF_ETH_DST[0..7]->NXM_NX_REG1[0..7]",
        "table=1,actions=output:2",
    ]);
    let last = &sub_traversals(&switch, &key("in_port=1"), &[1])[1].traversal;
    assert_eq!(last.mask.field(FieldId::EthDst), 0xff);
    assert_eq!(last.visits[0].mask.field(FieldId::EthDst), 0);
}

#[test]
fn sub_traversal_consults_state_at_its_end() {
    let switch = Switch::new(&[
        "table=0,actions=set_field:02:00:00:00:00:05->eth_src,goto_table:1",
        "table=1,reg0=3,actions=output:2",
    ]);
    let sub_traversals = sub_traversals(&switch, &key("in_port=1,reg0=3"), &[1]);
    assert_eq!(sub_traversals[0].traversal.mask.field(FieldId::Reg0), 0xffff_ffff);
    let second = FlowKey::from(&sub_traversals[1].traversal.key);
    assert_eq!(second.field(FieldId::EthSrc), 0x0200_0000_0005);
    assert_eq!(second.field(FieldId::Reg0), 0, "in the name");
    assert_eq!(describe(&sub_traversals[1].traversal.actions), "2");
}

#[test]
fn resumed_packet_is_not_partitioned_at_start() {
    let switch = Switch::new(&CHAIN);
    let (next, packet) = (next(&switch, "in_port=1"), key("in_port=1"));
    let version = switch.pipeline.version();
    let noted = switch.pipeline.translate_noted(&next.entering(&packet), Some(&next), version);
    assert_eq!(noted.points.iter().map(|point| point.visit).collect::<Vec<_>>(), [1]);
}

#[test]
fn continuation_has_name_of_its_partition_point() {
    let switch = Switch::new(&CHAIN);
    let next = next(&switch, "in_port=1");
    assert_eq!(next.name(), noted_traversal(&switch, "in_port=1").points[0].name);
    assert_ne!(next.name(), noted_traversal(&switch, "in_port=1").points[1].name);
}

/// The actions that remain after a lookup are a part of the state.
#[test]
fn different_remaining_steps_are_different_states() {
    let lefts = [
        ["goto_table:1", "goto_table:1"],
        ["resubmit(,1)", "resubmit(,1)"],
        ["resubmit(,1),output:3", "resubmit(,1),output:3"],
        ["write_actions(output:3),goto_table:1", "write_actions(output:3),goto_table:1"],
        ["resubmit(,1),output:3", "resubmit(,1),output:4"],
        ["resubmit(,1),output:3", "resubmit(,1)"],
        ["write_actions(output:3),goto_table:1", "write_actions(output:4),goto_table:1"],
        ["push:NXM_NX_REG5[],goto_table:1", "goto_table:1"],
        ["resubmit(,1),clear_actions", "resubmit(,1)"],
        ["resubmit(,1),write_metadata:5", "resubmit(,1)"],
        ["resubmit(,1),write_actions(output:3)", "resubmit(,1)"],
        ["resubmit(,1),write_actions(output:3)", "resubmit(,1),write_actions(output:4)"],
        ["resubmit(,1),goto_table:2", "resubmit(,1)"],
        ["goto_table:1", "goto_table:2"],
    ];
    for [one, other] in lefts {
        let rules = [
            format!("table=0,cookie=1,in_port=1,actions={one}"),
            format!("table=0,cookie=2,in_port=2,actions={other}"),
            "table=1,actions=output:2".to_owned(),
        ];
        let switch = Switch::new(&rules.each_ref().map(String::as_str));
        assert_one(&switch, ["in_port=1", "in_port=2"], one == other);
    }
}

/// Two rules share a state, unless a remaining packet-in shows their cookies.
#[test]
fn packet_in_keeps_states_of_rules_apart() {
    for (left, are_one) in [
        ("resubmit(,1),output:3", true),
        ("resubmit(,1),controller", false),
        ("write_actions(output:3),goto_table:1", true),
        ("write_actions(controller),goto_table:1", false),
    ] {
        let rules = [
            format!("table=0,cookie=1,in_port=1,actions={left}"),
            format!("table=0,cookie=2,in_port=2,actions={left}"),
            "table=1,actions=output:2".to_owned(),
        ];
        let switch = Switch::new(&rules.each_ref().map(String::as_str));
        let [one, other] = ["in_port=1", "in_port=2"].map(|packet| next(&switch, packet));
        assert_eq!(Arc::ptr_eq(&one, &other), are_one, "{left}");
    }
}

/// An ingress port is in the state only if an action has written it.
#[test]
fn only_a_written_port_is_carried_over() {
    let switch = Switch::new(&[
        "table=0,dl_type=0x800,actions=load:3->NXM_OF_IN_PORT[],goto_table:1",
        "table=0,dl_type=0x806,actions=load:4->NXM_OF_IN_PORT[],goto_table:1",
        "table=0,dl_type=0x86dd,actions=goto_table:1",
        "table=1,actions=in_port",
    ]);
    assert_one(&switch, ["ip,in_port=1", "arp,in_port=1"], false);
    assert_one(&switch, ["ip,in_port=1", "ipv6,in_port=1"], false);
    assert_one(&switch, ["ipv6,in_port=1", "ipv6,in_port=2"], true);
    let last = &sub_traversals(&switch, &key("ip,in_port=1"), &[1])[1].traversal;
    assert_eq!(FlowKey::from(&last.visits[0].key).in_port(), PortNo::new(3));
    assert_eq!(describe(&last.actions), "3!");
}

#[test]
fn a_resubmit_keeps_the_states_of_tables_apart() {
    for (left, are_one) in [("resubmit(,3),output:3", true), ("resubmit(,3),controller", false)] {
        let switch = Switch::new(&[
            "table=0,in_port=1,actions=goto_table:1",
            "table=0,in_port=2,actions=goto_table:2",
            &format!("table=1,cookie=5,actions={left}"),
            &format!("table=2,cookie=5,actions={left}"),
            "table=3,actions=output:2",
        ]);
        let [one, other] = ["in_port=1", "in_port=2"].map(|packet| {
            let next = sub_traversals(&switch, &key(packet), &[2])[0].traversal.next.clone();
            next.expect("there is a partition point")
        });
        assert_eq!(Arc::ptr_eq(&one, &other), are_one, "{left}");
    }
}

/// If a new rule reads a register, the state includes it, even if it is zero.
#[test]
fn further_live_bits_make_another_state() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,reg1=0,actions=output:2"]);
    let before = next(&switch, "in_port=1");
    // The new rule reads another register, which is zero in the packet.
    switch.add(&["table=1,priority=7,reg2=7,actions=drop"]);
    let after = next(&switch, "in_port=1");
    assert!(!Arc::ptr_eq(&before, &after));
    // After the removal of the rule, the register stays live, so the old continuation is not used
    // again.
    switch
        .send(FlowModCommand::DeleteStrict, "table=1,priority=7,reg2=7")
        .expect("the rule exists");
    switch.pipeline.reclaim(switch.pipeline.version());
    assert!(Arc::ptr_eq(&after, &next(&switch, "in_port=1")));
}

#[test]
fn refused_request_changes_no_state_of_version() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,reg1=0,actions=output:2"]);
    let version = switch.pipeline.version();
    let next = || next(&switch, "in_port=1");
    let before = next();
    let reads = "table=1,priority=7,reg2=7,actions=write_actions(controller)";
    let mods = [reads, "actions=group:9"].map(|rule| request(FlowModCommand::Add, rule));
    switch.pipeline.apply(BRIDGE, &mods, Time::ZERO).expect_err("there is no such group");
    assert!(Arc::ptr_eq(&before, &next()));
    switch.add(&[reads]);
    assert!(!Arc::ptr_eq(&before, &next()));
    // The previous version has its own continuation.
    let packet = key("in_port=1");
    let then = &switch.pipeline.translate_sub_traversals(&packet, None, version, &[1])[0];
    assert!(then.traversal.next.as_ref().is_some_and(|then| Arc::ptr_eq(then, &before)));
}

#[test]
fn each_version_has_its_own_plain_continuations() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,reg1=0,actions=output:2"]);
    let packet = key("in_port=1");
    let first = |noted: &NotedTraversal| {
        let sub_traversal =
            || switch.pipeline.translate_sub_traversal(&packet, None, noted, 0..1).traversal.next;
        // The first call translates the sub-traversal, and the second call composes it.
        let [made, known] = [sub_traversal(), sub_traversal()]
            .map(|next| next.expect("there is a partition point"));
        assert!(Arc::ptr_eq(&made, &known));
        made
    };
    let old = noted_traversal(&switch, "in_port=1");
    let before = first(&old);
    switch.add(&["table=1,priority=7,reg2=7,actions=drop"]);
    assert!(Arc::ptr_eq(
        &first(&noted_traversal(&switch, "in_port=1")),
        &next(&switch, "in_port=1")
    ));
    assert!(Arc::ptr_eq(&first(&old), &before), "at the version before");
    assert!(!Arc::ptr_eq(&before, &next(&switch, "in_port=1")));
}

/// Lookups in one table at different `resubmit` depths begin in different states.
#[test]
fn the_depth_of_a_lookup_is_state() {
    let switch = Switch::new(&[
        "in_port=1,actions=resubmit(,1)",
        "in_port=2,actions=resubmit(,2)",
        "in_port=3,actions=resubmit(,3)",
        // A resubmit to an earlier table is one level deeper.
        "table=2,actions=resubmit(,1)",
        "table=3,actions=resubmit(,1)",
        "table=1,actions=output:4",
    ]);
    let [flat, deep, as_deep] = [(1, 1), (2, 2), (3, 2)].map(|(port, visit)| {
        let packet = format!("in_port={port}");
        let next = sub_traversals(&switch, &key(&packet), &[visit])[0].traversal.next.clone();
        (
            noted_traversal(&switch, &packet).points[visit - 1].name,
            next.expect("there is a partition point"),
        )
    });
    assert!(flat.0 != deep.0 && deep.0 == as_deep.0, "by name");
    assert!(!Arc::ptr_eq(&flat.1, &deep.1) && Arc::ptr_eq(&deep.1, &as_deep.1), "by state");
}

#[test]
fn limited_packet_has_no_partition_point() {
    let many = vec!["resubmit(,2)"; 4096].join(",");
    for ends in ["resubmit(,1)".to_owned(), format!("clone({many})")] {
        let switch = Switch::new(&["actions=goto_table:1", &format!("table=1,actions={ends}")]);
        let noted = noted_traversal(&switch, "in_port=1");
        assert!(noted.traversal.error.is_some() && noted.traversal.visits.len() > 60, "{ends}");
        assert!(noted.points.is_empty(), "{ends}");
    }
}

#[test]
fn sub_traversals_fit_within_the_limits() {
    let none = LimitUse::default();
    for (limit_use, fitting) in [
        (LimitUse { lookups: 63, ..none }, 64),
        (LimitUse { actions: 1 << 10, ..none }, 64),
        (LimitUse { refreshes: 16, ..none }, 64),
        (none, 4096),
    ] {
        assert!(limit_use.fits(fitting), "{limit_use:?}");
        assert!(!limit_use.fits(fitting + 1), "{limit_use:?}");
    }
    assert!(!LimitUse { refreshes: usize::MAX, ..none }.fits(2));
}
