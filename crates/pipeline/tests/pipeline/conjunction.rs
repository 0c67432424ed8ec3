//! Tests of conjunctive matches (`ovs-fields(7)`, "Conjunctive Match Fields").

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    text::{NoPortNames, format_match, parse_match},
};
use shunt_pipeline::{
    Action, FlowMod, FlowModCommand, FlowModError, Priority, RuleFilter, TableId, Time, Traversal,
};

use crate::switch::{BRIDGE, Switch, key, request};

/// Returns a rule that is a clause of conjunctions.
/// Each conjunction is (id, clause, number of clauses).
fn clause(matching: &str, of: &[(u32, u8, u8)]) -> FlowMod {
    let mut request = request(FlowModCommand::Add, &format!("{matching},actions=drop"));
    let action = |(id, clause, clauses_count): &(u32, u8, u8)| Action::Conjunction {
        id: *id,
        clause: *clause,
        clauses_count: *clauses_count,
    };
    request.instructions.apply = of.iter().map(action).collect();
    request
}

/// Returns a switch with conjunction 7: two sources, two targets, output to port 3.
fn switch(rules: &[&str]) -> Switch {
    let switch = Switch::new(&["conj_id=7,priority=12,actions=output:3"]);
    switch.add(rules);
    let clauses = [
        clause("priority=10,ip,nw_src=10.0.0.1", &[(7, 0, 2)]),
        clause("priority=10,ip,nw_src=10.0.1.0/24", &[(7, 0, 2)]),
        clause("priority=10,ip,nw_dst=10.0.0.2", &[(7, 1, 2)]),
        clause("priority=10,tcp,tp_dst=80", &[(7, 1, 2)]),
    ];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("the rules are legal");
    switch
}

fn packet(source: &str, target: &str) -> String {
    format!("tcp,in_port=1,nw_src={source},nw_dst={target},tp_dst=81")
}

fn shape(traversal: &Traversal) -> Vec<(u128, usize, bool)> {
    let visits = traversal.visits.iter();
    visits
        .map(|visit| (visit.key.field(FieldId::ConjId), visit.clauses.len(), visit.rule.is_some()))
        .collect()
}

#[test]
fn packet_that_matches_all_clauses_hits_conjunction() {
    let switch = switch(&["priority=0,actions=output:4"]);
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "3");
    assert_eq!(switch.run(&packet("10.0.1.9", "10.0.0.2")), "3");
    assert_eq!(switch.run("tcp,in_port=1,nw_src=10.0.0.1,nw_dst=1.1.1.1,tp_dst=80"), "3");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.3")), "4");
    assert_eq!(switch.run(&packet("10.0.2.1", "10.0.0.2")), "4");
}

#[test]
fn a_rule_at_the_clause_priority_wins() {
    for (priority, port) in [(9, "3"), (10, "4"), (11, "4")] {
        let rule = format!("priority={priority},ip,actions=output:4");
        let switch = switch(&[&rule]);
        assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), port, "priority {priority}");
    }
}

#[test]
fn a_conjunction_without_a_rule_is_ignored() {
    let switch = switch(&["priority=0,conj_id=0,actions=output:4"]);
    switch.send(FlowModCommand::DeleteStrict, "priority=12,conj_id=7").expect("legal");
    let traversal = switch.translate(&packet("10.0.0.1", "10.0.0.2"));
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "4");
    assert_eq!(shape(&traversal), [(0, 2, false), (7, 0, false), (0, 0, true)]);
    // The lookup continues with a conjunction of lower priority.
    let lower = [
        clause("priority=5,ip", &[(8, 0, 2)]),
        clause("priority=5,tcp", &[(8, 1, 2)]),
        request(FlowModCommand::Add, "priority=2,conj_id=8,actions=output:2"),
    ];
    switch.pipeline.apply(BRIDGE, &lower, Time::ZERO).expect("legal");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "2");
}

#[test]
fn a_higher_rule_wins_in_the_second_lookup() {
    let switch =
        Switch::new(&["conj_id=7,priority=1,actions=output:3", "priority=9,actions=output:4"]);
    let clauses = [clause("priority=10,ip", &[(7, 0, 2)]), clause("priority=10,tcp", &[(7, 1, 2)])];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("legal");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "4");
}

#[test]
fn clauses_are_not_found_by_their_conj_id() {
    let switch = switch(&["priority=20,conj_id=7,ip,nw_dst=10.0.0.2,actions=output:4"]);
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "4");
    assert_eq!(switch.run("tcp,in_port=1,nw_src=10.0.0.1,nw_dst=1.1.1.1,tp_dst=80"), "3");
}

#[test]
fn the_lowest_conjunction_id_wins() {
    let switch = Switch::new(&["conj_id=5,actions=output:2", "conj_id=6,actions=output:3"]);
    let clauses = [
        clause("priority=10,ip,nw_src=10.0.0.1", &[(6, 0, 2), (5, 0, 2)]),
        clause("priority=10,ip,nw_dst=10.0.0.1", &[(6, 1, 2)]),
        clause("priority=10,ip,nw_dst=10.0.0.0/24", &[(5, 1, 2)]),
    ];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("legal");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "2");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.1")), "2", "both conjunctions are satisfied");
    switch.send(FlowModCommand::Delete, "conj_id=5").expect("legal");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.1")), "3");
}

#[test]
fn only_clauses_of_one_conjunction_count() {
    let switch = Switch::new(&["conj_id=5,actions=output:2"]);
    let clauses = [
        clause("priority=10,ip", &[(5, 0, 2)]),
        clause("priority=11,tcp", &[(5, 1, 2)]),
        clause("priority=10,tcp", &[(5, 1, 3)]),
    ];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("legal");
    assert_eq!(switch.run(&packet("10.0.0.1", "10.0.0.2")), "");
}

#[test]
fn a_received_packet_has_no_conj_id() {
    let switch = Switch::new(&["conj_id=7,actions=output:3", "priority=0,actions=output:4"]);
    let mut packet = key("tcp,in_port=1");
    packet.set_field(FieldId::ConjId, 7);
    let traversal = switch.pipeline.translate(&packet, switch.pipeline.version());
    assert_eq!(crate::switch::describe(&traversal.actions), "4");
    assert_eq!(traversal.mask.field(FieldId::ConjId), 0);
}

#[test]
fn conjunction_ranks_below_rules_of_its_priority() {
    let switch = switch(&[]);
    let traversal = switch.translate(&packet("10.0.0.1", "10.0.0.2"));
    assert_eq!(shape(&traversal), [(0, 2, false), (7, 0, true)]);
    let rank = traversal.visits[0].rank().expect("the conjunction decided");
    assert_eq!((rank.priority.number(), rank.age), (10, u64::MAX));
    assert_eq!(traversal.visits[1].rank(), traversal.visits[1].rule.as_ref().map(|own| own.rank()));
}

#[test]
fn a_conjunction_counts_as_one_lookup() {
    let switch = switch(&[]);
    let traversal = switch.translate(&packet("10.0.0.1", "10.0.0.2"));
    switch.pipeline.credit(&traversal, 2, 120, Time::ZERO);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let packets: Vec<_> = rules.iter().map(|rule| rule.stats.totals().packets).collect();
    assert_eq!(packets, [2, 0, 0, 0, 0]);
    let table = &switch.pipeline.table_stats(BRIDGE)[0];
    assert_eq!((table.lookups, table.matches), (2, 2));
}

#[test]
fn conjunctions_count_towards_the_limit_of_resubmits() {
    let switch = Switch::new(&[]);
    let clauses = (0..64).flat_map(|rule: u32| {
        let of = |clause| (0..100).map(|id| (rule * 100 + id, clause, 2)).collect::<Vec<_>>();
        [
            clause(&format!("priority={},ip", 100 + rule), &of(0)),
            clause(&format!("priority={},tcp", 100 + rule), &of(1)),
        ]
    });
    let clauses: Vec<_> = clauses.collect();
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("legal");
    assert_eq!(
        switch.run(&packet("10.0.0.1", "10.0.0.2")),
        "the packet needs more than 4096 resubmits, which is the limit"
    );
}

/// Returns the mask and the result of a packet, as a match and a text.
fn megaflow(switch: &Switch, packet: &str) -> (Match, String) {
    let traversal = switch.translate(packet);
    let mut mask = FlowMask::from(&traversal.mask);
    mask.remove_bits(FieldId::RecircId, u128::MAX);
    mask.words_mut()[usize::from(shunt_flow::layout::word::BRIDGE)] = 0;
    // The text has a word only for both bits of `nw_frag`: a packet that is no fragment is also no
    // later fragment.
    mask.add_bits(FieldId::NwFrag, 0b11);
    let megaflow = Match::new(&FlowKey::from(&traversal.key), &mask);
    let text = format_match(&megaflow, &NoPortNames);
    (megaflow, text)
}

/// The masks on the right come from Open vSwitch 3.1 (`ofproto/trace`).
///
/// The masks of Open vSwitch always contain `in_port`.
#[test]
fn masks_equal_or_exceed_those_of_open_vswitch() {
    let switch = switch(&[
        "priority=0,actions=output:4",
        "priority=5,udp,nw_tos=4,actions=output:2",
        "priority=3,in_port=4,dl_src=00:00:00:00:00:05,actions=output:2",
    ]);
    let cases = [
        (
            packet("10.0.0.1", "10.0.0.2"),
            "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no,tp_dst=81",
            "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=0,nw_frag=no,tp_dst=81",
        ),
        (
            packet("10.0.0.1", "10.0.0.3"),
            "tcp,in_port=1,nw_src=10.0.0.1,nw_dst=10.0.0.3,nw_tos=0,nw_frag=no,tp_dst=81",
            "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.3,nw_tos=0,nw_frag=no,tp_dst=81",
        ),
        (
            "tcp,in_port=1,nw_src=10.0.1.9,nw_dst=1.1.1.1,tp_dst=80".to_owned(),
            "tcp,nw_src=10.0.1.0/24,nw_dst=0.0.0.0/5,nw_frag=no,tp_dst=80",
            "in_port=1,tcp,nw_src=10.0.1.0/24,nw_dst=0.0.0.0/5,nw_tos=0,nw_frag=no,tp_dst=80",
        ),
        (
            "tcp,in_port=1,nw_src=10.9.1.9,nw_dst=1.1.1.1,tp_dst=80".to_owned(),
            "tcp,in_port=1,nw_src=10.8.0.0/13,nw_dst=0.0.0.0/5,nw_tos=0,nw_frag=no,tp_dst=80",
            "in_port=1,tcp,nw_src=10.8.0.0/13,nw_dst=0.0.0.0/5,nw_tos=0,nw_frag=no,tp_dst=80",
        ),
    ];
    for (packet, own, rival) in cases {
        let (megaflow, text) = megaflow(&switch, &packet);
        assert_eq!(text, own, "{packet}");
        let rival = parse_match(rival, &NoPortNames).expect("a match");
        let (own, rival) = (FlowMask::from(megaflow.mask()), FlowMask::from(rival.mask()));
        assert!(own.is_subset_of(&rival), "{packet}: {text}");
    }
}

#[test]
fn rules_below_a_conjunction_are_not_consulted() {
    let switch = switch(&["priority=9,tcp,nw_tos=4,tp_src=7,actions=output:4"]);
    let of_none = [clause("priority=8,udp,nw_ttl=7", &[(9, 0, 2)])];
    switch.pipeline.apply(BRIDGE, &of_none, Time::ZERO).expect("legal");
    let (_, text) = megaflow(&switch, &packet("10.0.0.1", "10.0.0.2"));
    assert_eq!(text, "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_frag=no,tp_dst=81");
}

#[test]
fn clauses_are_filtered_and_overlap_as_rules() {
    let switch = switch(&[]);
    let mut overlapping =
        request(FlowModCommand::Add, "priority=10,ip,nw_src=10.0.1.9,actions=drop");
    overlapping.flags.check_overlap = true;
    let refused = switch.pipeline.apply(BRIDGE, &[overlapping.clone()], Time::ZERO);
    let error = refused.expect_err("a clause overlaps").error;
    assert_eq!(error, FlowModError::Overlap(Priority::new(10)).into());
    let apart = "udp,nw_src=10.9.1.9,nw_dst=10.0.0.9";
    overlapping.matching = parse_match(apart, &NoPortNames).expect("a match");
    switch.pipeline.apply(BRIDGE, &[overlapping], Time::ZERO).expect("nothing overlaps");
    switch.send(FlowModCommand::Delete, "ip,nw_src=10.0.0.0/8").expect("legal");
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let left: Vec<_> =
        rules.iter().map(|rule| format_match(&rule.matching, &NoPortNames)).collect();
    assert_eq!(left, ["conj_id=7", "ip,nw_dst=10.0.0.2", "tcp,tp_dst=80"]);
}

#[test]
fn each_satisfied_conjunction_is_one_more_lookup() {
    let run = |resubmits: usize| {
        let switch = Switch::new(&["table=1,conj_id=7,actions=output:3"]);
        let clauses = [("table=1,ip", 0), ("table=1,in_port=1", 1)];
        let clauses = clauses.map(|(matching, number)| clause(matching, &[(7, number, 2)]));
        switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("the rules are legal");
        let resubmit = |table| Action::Resubmit { port: None, table: TableId::new(table) };
        let mut first = request(FlowModCommand::Add, "table=0,actions=drop");
        let others = std::iter::repeat_n(resubmit(2), resubmits);
        first.instructions.apply = others.chain([resubmit(1)]).collect();
        switch.pipeline.apply(BRIDGE, &[first], Time::ZERO).expect("the rule is legal");
        switch.run("ip,in_port=1")
    };
    assert_eq!(run(4094), "3");
    assert_eq!(run(4095), "the packet needs more than 4096 resubmits, which is the limit");
}
