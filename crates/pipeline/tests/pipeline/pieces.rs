//! Where traversals can be cut, what the pieces say, and which of them are one.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo};
use shunt_pipeline::{
    Continuation, FlowModCommand, MeterCommand, MeterId, NotedTraversal, Spending, SubTraversal,
    TableId, Time,
};

use crate::{
    build::{meter_mod, rule},
    meters::remark_band,
    switch::{BRIDGE, Switch, describe, key, request},
};

fn noted(switch: &Switch, packet: &str) -> NotedTraversal {
    switch.pipeline.translate_noting(&key(packet), None, switch.pipeline.version())
}

/// The visits that a packet can be cut in front of.
fn points(switch: &Switch, packet: &str) -> Vec<usize> {
    noted(switch, packet).points.iter().map(|point| point.visit).collect()
}

fn pieces(switch: &Switch, packet: &FlowKey, cuts: &[usize]) -> Vec<SubTraversal> {
    switch.pipeline.translate_sub_traversals(packet, None, switch.pipeline.version(), cuts)
}

/// How a packet goes on behind its first visit.
fn next(switch: &Switch, packet: &str) -> Arc<Continuation> {
    let next = pieces(switch, &key(packet), &[1])[0].traversal.next.clone();
    next.expect("it is cut there")
}

/// Whether two packets go on as one behind their first visit: both by the name of the state and by
/// the state.
#[track_caller]
fn assert_one(switch: &Switch, [one, other]: [&str; 2], are_one: bool) {
    let names = [one, other].map(|packet| noted(switch, packet).points[0].name);
    assert_eq!(names[0] == names[1], are_one, "by name");
    assert_eq!(Arc::ptr_eq(&next(switch, one), &next(switch, other)), are_one, "by state");
}

const CHAIN: [&str; 3] = [
    "table=0,actions=set_field:02:00:00:00:00:05->eth_src,goto_table:1",
    "table=1,actions=load:5->NXM_NX_REG0[],goto_table:2",
    "table=2,reg0=5,actions=output:2,output:3",
];

#[test]
fn a_packet_can_be_cut_in_front_of_each_visit_but_the_first() {
    let switch = Switch::new(&CHAIN);
    let noted = noted(&switch, "in_port=1");
    assert_eq!(noted.points.iter().map(|point| point.visit).collect::<Vec<_>>(), [1, 2]);
    let (lookups, actions, refreshes) = (2, 2, 0);
    assert_eq!(noted.spending, Spending { lookups, actions, refreshes });
    assert_eq!(noted.traversal.visits.len(), 3);
}

#[test]
fn a_packet_cannot_be_cut_in_a_copy_or_where_it_is_parsed_again() {
    let chain = ["table=1,actions=goto_table:2", "table=2,actions=output:2"];
    let switch = Switch::new(&chain);
    switch.add(&["table=0,actions=clone(resubmit(,1)),resubmit(,2)"]);
    assert_eq!(points(&switch, "in_port=1"), [3], "behind the copy");
    let switch = Switch::new(&chain);
    switch.add(&["table=0,actions=resubmit(,1),check_pkt_larger(100)->NXM_NX_REG0[0],output:3"]);
    assert!(points(&switch, "in_port=1").is_empty());
    // Nor behind a meter that may have changed it, which no later clone could undo.
    let switch = Switch::new(&chain);
    let remark = meter_mod(MeterCommand::Add, 1, vec![remark_band(1, 0, 1)]);
    let mut metered = rule("table=0", vec![]);
    metered.instructions.meter = Some(MeterId::new(1));
    metered.instructions.goto = TableId::new(1);
    switch.make([remark, metered.into()]);
    assert!(points(&switch, "in_port=1").is_empty());
}

#[test]
fn the_pieces_of_a_packet_do_one_after_the_other_what_it_does() {
    let switch = Switch::new(&CHAIN);
    let whole = describe(&switch.translate("in_port=1").actions);
    for cuts in [&[1, 2][..], &[1], &[2], &[]] {
        let pieces = pieces(&switch, &key("in_port=1"), cuts);
        assert_eq!(pieces.len(), cuts.len() + 1);
        let visits = pieces.iter().map(|piece| piece.traversal.visits.len());
        assert_eq!(visits.sum::<usize>(), 3);
        let says = pieces.iter().map(|piece| describe(&piece.traversal.actions));
        let says: Vec<_> = says.filter(|text| !text.is_empty()).collect();
        assert_eq!(says.join(" "), whole, "{cuts:?}");
    }
}

#[test]
fn behind_visits_that_only_lead_on_a_piece_is_put_together_and_behind_others_translated() {
    let leading = ["table=0,actions=goto_table:1", "table=1,actions=goto_table:2", CHAIN[2]];
    for (rules, is_put_together) in [(leading, true), (CHAIN, false)] {
        let switch = Switch::new(&rules);
        switch.add(&["table=2,priority=1,actions=output:2"]);
        let (noted, packet) = (noted(&switch, "in_port=1"), key("in_port=1"));
        let first = switch.pipeline.translate_sub_traversal(&packet, None, &noted, 0..1).traversal;
        let (start, headers) = (first.next.as_ref(), FlowKey::from(&noted.traversal.visits[1].key));
        let last = switch.pipeline.translate_sub_traversal(&headers, start, &noted, 1..3).traversal;
        assert_eq!(Arc::ptr_eq(&last.actions, &noted.traversal.actions), is_put_together);
        assert!(!last.actions.is_empty() && last.visits.len() == 2);
    }
}

#[test]
fn a_piece_tells_the_headers_that_it_wrote_and_the_last_tells_none() {
    let switch = Switch::new(&CHAIN);
    let pieces = pieces(&switch, &key("in_port=1"), &[1, 2]);
    let written = |piece: &SubTraversal| {
        let mask = FlowMask::from(piece.rewrite.mask());
        (mask.field(FieldId::EthSrc) != 0, mask.field(FieldId::Reg0) != 0)
    };
    let written: Vec<_> = pieces.iter().map(written).collect();
    assert_eq!(written, [(true, false), (false, false), (false, false)]);
    assert_eq!(pieces[0].rewrite.key().field(FieldId::EthSrc), 0x0200_0000_0005);
    let lookups = pieces.iter().map(|piece| piece.spending.lookups);
    assert_eq!(lookups.collect::<Vec<_>>(), [1, 1, 0], "each by itself");
}

#[test]
fn packets_whose_state_differs_in_what_nothing_reads_go_on_as_one() {
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

#[test]
fn whether_a_tail_was_called_or_gone_to_is_forgotten() {
    let switch = Switch::new(&[
        "table=0,actions=load:1->NXM_NX_REG0[],push:NXM_NX_REG0[],resubmit(,1)",
        "table=1,in_port=1,actions=resubmit(,2)",
        "table=1,in_port=2,actions=goto_table:2",
        "table=2,actions=output:3",
    ]);
    let [one, other] = ["in_port=1", "in_port=2"].map(|packet| {
        let next = pieces(&switch, &key(packet), &[2])[0].traversal.next.clone();
        (noted(&switch, packet).points[1].name, next.expect("it is cut there"))
    });
    assert_eq!(one.0, other.0, "by name");
    assert!(Arc::ptr_eq(&one.1, &other.1), "by state");
}

#[test]
fn how_deep_a_rule_stands_goes_along_where_it_leads_on() {
    let next = |left: &str| {
        let switch = Switch::new(&[
            "table=0,actions=write_actions(resubmit(,1))",
            &format!("table=1,actions=resubmit(,2),{left}"),
            "table=2,actions=output:2",
        ]);
        let next = pieces(&switch, &key("in_port=1"), &[2])[0].traversal.next.clone();
        format!("{:?}", next.expect("it is cut there"))
    };
    assert!(next("goto_table:3").contains("Return"));
    assert!(!next("write_metadata:1").contains("Return"));
}

#[test]
fn what_is_looked_at_behind_a_lookup_is_no_bit_of_its_visit() {
    let switch = Switch::new(&[
        "table=0,actions=resubmit(,1),move:NXM_OF_ETH_DST[0..7]->NXM_NX_REG1[0..7]",
        "table=1,actions=output:2",
    ]);
    let last = &pieces(&switch, &key("in_port=1"), &[1])[1].traversal;
    assert_eq!(last.mask.field(FieldId::EthDst), 0xff);
    assert_eq!(last.visits[0].mask.field(FieldId::EthDst), 0);
}

#[test]
fn a_piece_depends_on_the_state_that_it_hands_on_and_the_next_has_its_headers() {
    let switch = Switch::new(&[
        "table=0,actions=set_field:02:00:00:00:00:05->eth_src,goto_table:1",
        "table=1,reg0=3,actions=output:2",
    ]);
    let pieces = pieces(&switch, &key("in_port=1,reg0=3"), &[1]);
    assert_eq!(pieces[0].traversal.mask.field(FieldId::Reg0), 0xffff_ffff);
    let second = FlowKey::from(&pieces[1].traversal.key);
    assert_eq!(second.field(FieldId::EthSrc), 0x0200_0000_0005);
    assert_eq!(second.field(FieldId::Reg0), 0, "in the name");
    assert_eq!(describe(&pieces[1].traversal.actions), "2");
}

#[test]
fn a_packet_that_goes_on_is_not_cut_where_it_was_cut() {
    let switch = Switch::new(&CHAIN);
    let (next, packet) = (next(&switch, "in_port=1"), key("in_port=1"));
    let version = switch.pipeline.version();
    let noted = switch.pipeline.translate_noting(&next.entering(&packet), Some(&next), version);
    assert_eq!(noted.points.iter().map(|point| point.visit).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_continuation_has_the_name_of_the_point_that_it_was_cut_at() {
    let switch = Switch::new(&CHAIN);
    let next = next(&switch, "in_port=1");
    assert_eq!(next.name(), noted(&switch, "in_port=1").points[0].name);
    assert_ne!(next.name(), noted(&switch, "in_port=1").points[1].name);
}

#[test]
fn packets_that_have_other_things_left_to_do_do_not_go_on_as_one() {
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

#[test]
fn what_tells_of_its_rule_goes_on_for_it_alone() {
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

#[test]
fn a_port_that_was_written_goes_along_and_one_that_was_not_does_not() {
    let switch = Switch::new(&[
        "table=0,dl_type=0x800,actions=load:3->NXM_OF_IN_PORT[],goto_table:1",
        "table=0,dl_type=0x806,actions=load:4->NXM_OF_IN_PORT[],goto_table:1",
        "table=0,dl_type=0x86dd,actions=goto_table:1",
        "table=1,actions=in_port",
    ]);
    assert_one(&switch, ["ip,in_port=1", "arp,in_port=1"], false);
    assert_one(&switch, ["ip,in_port=1", "ipv6,in_port=1"], false);
    assert_one(&switch, ["ipv6,in_port=1", "ipv6,in_port=2"], true);
    let last = &pieces(&switch, &key("ip,in_port=1"), &[1])[1].traversal;
    assert_eq!(FlowKey::from(&last.visits[0].key).in_port(), PortNo::new(3));
    assert_eq!(describe(&last.actions), "3!");
}

#[test]
fn what_tells_of_its_table_goes_on_for_that_table_alone() {
    for (left, are_one) in [("resubmit(,3),output:3", true), ("resubmit(,3),controller", false)] {
        let switch = Switch::new(&[
            "table=0,in_port=1,actions=goto_table:1",
            "table=0,in_port=2,actions=goto_table:2",
            &format!("table=1,cookie=5,actions={left}"),
            &format!("table=2,cookie=5,actions={left}"),
            "table=3,actions=output:2",
        ]);
        let [one, other] = ["in_port=1", "in_port=2"].map(|packet| {
            let next = pieces(&switch, &key(packet), &[2])[0].traversal.next.clone();
            next.expect("it is cut there")
        });
        assert_eq!(Arc::ptr_eq(&one, &other), are_one, "{left}");
    }
}

#[test]
fn a_state_of_which_more_is_read_is_another_though_its_values_are_the_same() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,reg1=0,actions=output:2"]);
    let before = next(&switch, "in_port=1");
    // The register is zero, whoever reads it.
    switch.add(&["table=1,priority=7,reg2=7,actions=drop"]);
    let after = next(&switch, "in_port=1");
    assert!(!Arc::ptr_eq(&before, &after));
    // No less is read ever after: what left the register out does not come back.
    switch.send(FlowModCommand::DeleteStrict, "table=1,priority=7,reg2=7").expect("it is there");
    switch.pipeline.reclaim(switch.pipeline.version());
    assert!(Arc::ptr_eq(&after, &next(&switch, "in_port=1")));
}

#[test]
fn each_version_has_states_of_its_own_and_requests_that_are_refused_change_none() {
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
    // Who is at the version before sees what was so then.
    let packet = key("in_port=1");
    let then = &switch.pipeline.translate_sub_traversals(&packet, None, version, &[1])[0];
    assert!(then.traversal.next.as_ref().is_some_and(|then| Arc::ptr_eq(then, &before)));
}

#[test]
fn each_version_has_plain_cuts_of_its_own() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,reg1=0,actions=output:2"]);
    let packet = key("in_port=1");
    let first = |noted: &NotedTraversal| {
        let piece =
            || switch.pipeline.translate_sub_traversal(&packet, None, noted, 0..1).traversal.next;
        // The first time it is translated, and then it is known.
        let [made, known] = [piece(), piece()].map(|next| next.expect("it is cut there"));
        assert!(Arc::ptr_eq(&made, &known));
        made
    };
    let old = noted(&switch, "in_port=1");
    let before = first(&old);
    switch.add(&["table=1,priority=7,reg2=7,actions=drop"]);
    assert!(Arc::ptr_eq(&first(&noted(&switch, "in_port=1")), &next(&switch, "in_port=1")));
    assert!(Arc::ptr_eq(&first(&old), &before), "at the version before");
    assert!(!Arc::ptr_eq(&before, &next(&switch, "in_port=1")));
}

#[test]
fn how_deep_a_lookup_stands_is_part_of_its_state() {
    let switch = Switch::new(&[
        "in_port=1,actions=resubmit(,1)",
        "in_port=2,actions=resubmit(,2)",
        "in_port=3,actions=resubmit(,3)",
        // Back to a table before it: one deeper.
        "table=2,actions=resubmit(,1)",
        "table=3,actions=resubmit(,1)",
        "table=1,actions=output:4",
    ]);
    let [flat, deep, as_deep] = [(1, 1), (2, 2), (3, 2)].map(|(port, visit)| {
        let packet = format!("in_port={port}");
        let next = pieces(&switch, &key(&packet), &[visit])[0].traversal.next.clone();
        (noted(&switch, &packet).points[visit - 1].name, next.expect("it is cut there"))
    });
    assert!(flat.0 != deep.0 && deep.0 == as_deep.0, "by name");
    assert!(!Arc::ptr_eq(&flat.1, &deep.1) && Arc::ptr_eq(&deep.1, &as_deep.1), "by state");
}

#[test]
fn a_packet_that_ends_at_a_bound_is_cut_nowhere() {
    let many = vec!["resubmit(,2)"; 4096].join(",");
    for ends in ["resubmit(,1)".to_owned(), format!("clone({many})")] {
        let switch = Switch::new(&["actions=goto_table:1", &format!("table=1,actions={ends}")]);
        let noted = noted(&switch, "in_port=1");
        assert!(noted.traversal.error.is_some() && noted.traversal.visits.len() > 60, "{ends}");
        assert!(noted.points.is_empty(), "{ends}");
    }
}

#[test]
fn as_many_pieces_fit_as_stay_within_each_bound_of_one_translation() {
    let none = Spending::default();
    for (spending, fitting) in [
        (Spending { lookups: 63, ..none }, 64),
        (Spending { actions: 1 << 10, ..none }, 64),
        (Spending { refreshes: 16, ..none }, 64),
        (none, 4096),
    ] {
        assert!(spending.fits(fitting), "{spending:?}");
        assert!(!spending.fits(fitting + 1), "{spending:?}");
    }
    assert!(!Spending { refreshes: usize::MAX, ..none }.fits(2));
}
