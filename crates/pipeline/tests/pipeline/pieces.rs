//! Where traversals can be cut, what the pieces say, and which of them are one.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo};
use shunt_pipeline::{Continuation, NotedTraversal, Spending, TraversalPiece};

use crate::switch::{Switch, describe, key};

fn noted(switch: &Switch, packet: &str) -> NotedTraversal {
    switch.pipeline.translate_noting(&key(packet), None, switch.pipeline.version())
}

/// The visits that a packet can be cut in front of.
fn points(switch: &Switch, packet: &str) -> Vec<usize> {
    noted(switch, packet).points.iter().map(|point| point.visit).collect()
}

fn pieces(switch: &Switch, packet: &FlowKey, cuts: &[usize]) -> Vec<TraversalPiece> {
    switch.pipeline.translate_pieces(packet, None, switch.pipeline.version(), cuts)
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
    "table=2,reg0=5,actions=output:2",
];

#[test]
fn a_packet_can_be_cut_in_front_of_each_visit_but_the_first() {
    let switch = Switch::new(&CHAIN);
    let noted = noted(&switch, "in_port=1");
    assert_eq!(noted.points.iter().map(|point| point.visit).collect::<Vec<_>>(), [1, 2]);
    let (lookups, actions, refreshes) = (2, 1, 0);
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
fn a_piece_tells_the_headers_that_it_wrote_and_the_last_tells_none() {
    let switch = Switch::new(&CHAIN);
    let pieces = pieces(&switch, &key("in_port=1"), &[1, 2]);
    let written = |piece: &TraversalPiece| {
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
    let first = |register: u32| {
        [
            format!("table=0,in_port=1,actions=load:1->NXM_NX_REG{register}[],goto_table:1"),
            format!("table=0,in_port=2,actions=load:2->NXM_NX_REG{register}[],goto_table:1"),
            "table=1,reg0=1,actions=output:2".to_owned(),
        ]
    };
    for (register, are_one) in [(9, true), (0, false)] {
        let rules = first(register);
        let switch = Switch::new(&rules.each_ref().map(String::as_str));
        assert_one(&switch, ["in_port=1", "in_port=2"], are_one);
    }
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
    for (left, are_one) in [("output:3", true), ("controller", false)] {
        let rules = [
            format!("table=0,cookie=1,in_port=1,actions=resubmit(,1),{left}"),
            format!("table=0,cookie=2,in_port=2,actions=resubmit(,1),{left}"),
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
