//! Where translations are cut, and how they go on.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, layout::word, rewrite::TtlCopy};
use shunt_pipeline::{
    Action, Continuation, DatapathAction, FlowModCommand, Refresh, Subfield, Time, Traversal,
};

use crate::{
    build::rule,
    learn::learn,
    switch::{BRIDGE, Switch, describe, key, request},
};

const POP: Action = Action::PopMpls { ethertype: 0x0800 };

fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

fn resubmit(table: u8) -> Action {
    Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(table) }
}

fn check(length: u16) -> Action {
    let target = Subfield { field: FieldId::Reg0, offset: 3, width: 1 };
    Action::CheckPktLarger { length, target }
}

/// A switch that does this with every packet, and then goes by these rules.
fn switch(actions: &[Action], rules: &[&str]) -> Switch {
    let switch = Switch::new(rules);
    let mut rule = request(FlowModCommand::Add, "priority=1,cookie=9,actions=drop");
    rule.instructions.apply = actions.into();
    switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
    switch
}

/// A packet with one label.
fn labelled() -> FlowKey {
    let mut key = key("in_port=1,dl_type=0x8847");
    key.words_mut()[usize::from(word::MPLS)] = 0x0001_0140 << 32;
    key
}

fn first(switch: &Switch) -> Traversal {
    switch.pipeline.translate(&labelled(), switch.pipeline.version())
}

/// The continuations that a traversal ends with.
fn continuations(traversal: &Traversal) -> Vec<Arc<Continuation>> {
    let of = |action: &DatapathAction| match action {
        DatapathAction::Recirculate(next) => vec![Arc::clone(next)],
        DatapathAction::CheckLength { larger, other, .. } => {
            vec![Arc::clone(larger), Arc::clone(other)]
        }
        _ => Vec::new(),
    };
    traversal.actions.iter().flat_map(of).collect()
}

/// What a packet does that turns out to be this one.
fn resume(switch: &Switch, continuation: &Arc<Continuation>, packet: &str) -> Traversal {
    let mut parsed = key(packet);
    continuation.enter(&mut parsed);
    switch.pipeline.resume(&parsed, continuation, switch.pipeline.version())
}

/// How a packet with one label goes on that came by this port.
fn next_of(switch: &Switch, port: u32) -> Arc<Continuation> {
    let mut key = labelled();
    key.set_in_port(PortNo::new(port));
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    Arc::clone(&continuations(&traversal)[0])
}

fn after(switch: &Switch, packet: &str) -> String {
    let [next] = &continuations(&first(switch))[..] else { panic!("there is one cut") };
    describe(&resume(switch, next, packet).actions)
}

#[test]
fn a_popped_label_cuts_nothing_as_long_as_nobody_asks_what_was_behind_it() {
    let actions = [
        POP,
        output(2),
        Action::SetField { field: FieldId::EthSrc, value: 1, mask: FieldId::EthSrc.value_max() },
        Action::SetQueue(3),
        output(3),
    ];
    let switch = switch(&actions, &[]);
    assert_eq!(describe(&first(&switch).actions), "pop(800) 2 set(eth_src=1) 3");
}

#[test]
fn what_asks_for_headers_behind_a_popped_label_goes_on_with_them() {
    let dec_ttl = Action::DecTtl { controllers: Box::new([0]) };
    let switch = switch(&[POP, output(2), dec_ttl, output(3)], &[]);
    assert_eq!(describe(&first(&switch).actions), "pop(800) 2 recirculate");
    assert_eq!(after(&switch, "ip,nw_ttl=9"), "set(nw_ttl=8) 3");
    assert_eq!(after(&switch, "ip,nw_ttl=1"), "punt(InvalidTtl,table=0,cookie=0x9)");
}

#[test]
fn a_lookup_after_a_pop_sees_the_packet_and_comes_back_to_where_it_was() {
    let actions = [POP, resubmit(1), output(4)];
    let rules = ["table=1,ip,nw_dst=10.0.0.1,actions=output:2", "table=1,arp,actions=output:3"];
    let switch = switch(&actions, &rules);
    assert_eq!(describe(&first(&switch).actions), "pop(800) recirculate");
    assert_eq!(after(&switch, "ip,nw_dst=10.0.0.1"), "2 4");
    assert_eq!(after(&switch, "arp"), "3 4");
    assert_eq!(after(&switch, "ip"), "4");
}

#[test]
fn hidden_state_the_action_set_and_the_stack_go_along() {
    let switch = Switch::new(&[
        "table=1,reg0=5,metadata=7,actions=goto_table:2",
        "table=2,actions=output:NXM_NX_REG1[]",
    ]);
    let mut rule = request(FlowModCommand::Add, "cookie=4,actions=drop");
    let reg = |field| Subfield { field, offset: 0, width: 16 };
    let load =
        |field, value| Action::Load { target: Subfield { field, offset: 0, width: 32 }, value };
    rule.instructions.apply = Box::new([
        load(FieldId::Reg0, 5),
        load(FieldId::Reg2, 3),
        Action::Push(reg(FieldId::Reg2)),
        POP,
    ]);
    rule.instructions.write = Box::new([output(4)]);
    rule.instructions.metadata = Some((7, u64::MAX));
    rule.instructions.goto = shunt_pipeline::TableId::new(1);
    switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
    let mut popping =
        request(FlowModCommand::Add, "table=1,reg0=5,metadata=7,actions=goto_table:2");
    popping.instructions.apply = Box::new([Action::Pop(reg(FieldId::Reg1))]);
    switch.pipeline.apply(BRIDGE, &[popping], Time::ZERO).expect("the rule is legal");
    assert_eq!(after(&switch, "ip"), "3 4");
}

#[test]
fn a_length_is_compared_by_the_datapath_and_both_ways_are_known() {
    let rules = ["table=1,reg0=8/8,actions=output:2", "table=1,reg0=0/8,actions=output:3"];
    let switch = switch(&[check(100), resubmit(1)], &rules);
    let traversal = first(&switch);
    assert_eq!(describe(&traversal.actions), "larger(100)");
    let next = continuations(&traversal);
    let ways = next.iter().map(|next| describe(&resume(&switch, next, "ip").actions));
    assert_eq!(ways.collect::<Vec<_>>(), ["2", "3"]);
}

#[test]
fn a_cut_inside_a_clone_concerns_the_copy_alone() {
    let clone = Action::Clone(Box::new([POP, resubmit(1), output(3)]));
    let switch = switch(&[clone, output(4)], &["table=1,arp,actions=output:2,exit"]);
    let expected = "pop(800) recirculate push(8847,16/0/64.) 4";
    assert_eq!(describe(&first(&switch).actions), expected);
    assert_eq!(after(&switch, "ip"), "3");
    assert_eq!(after(&switch, "arp"), "2");
}

#[test]
fn equal_rests_are_one_continuation_whoever_they_come_from() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let next = continuations(&first(&switch));
    let mut other = labelled();
    other.set_in_port(PortNo::new(2));
    let other = switch.pipeline.translate(&other, switch.pipeline.version());
    assert!(Arc::ptr_eq(&next[0], &continuations(&other)[0]));
    assert_eq!(first(&switch).mask.field(FieldId::InPort), 0, "packets of all ports share it");
}

#[test]
fn what_is_taught_behind_a_cut_is_learned_only_while_its_rule_is_there() {
    let switch = switch(&[POP, resubmit(1), learn(|_| {})], &["table=1,actions=output:2"]);
    let [next] = &continuations(&first(&switch))[..] else { panic!("there is one cut") };
    let taught = || resume(&switch, next, "ip,in_port=1").learnings;
    let learnings = taught();
    assert_eq!(switch.pipeline.learn(&learnings, Time::ZERO).deltas.len(), 2, "a rule, an object");
    switch.send(FlowModCommand::Delete, "").expect("legal");
    assert!(switch.pipeline.learn(&taught(), Time::ZERO).deltas.is_empty());
    assert_eq!(switch.pipeline.learnings_refused(), 1);
}

#[test]
fn equal_rests_are_two_where_each_teaches_for_a_rule_of_its_own() {
    let switch = Switch::new(&["table=1,actions=output:2"]);
    let teach = |matching| rule(matching, vec![POP, resubmit(1), learn(|_| {})]).into();
    switch.make(["in_port=1", "in_port=2"].map(teach));
    let next = |port| next_of(&switch, port);
    let (one, other) = (next(1), next(2));
    assert!(!Arc::ptr_eq(&one, &other));
    switch.send(FlowModCommand::DeleteStrict, "in_port=1").expect("there is such a rule");
    let learn = |next| {
        let learnings = resume(&switch, next, "ip,in_port=3").learnings;
        switch.pipeline.learn(&learnings, Time::ZERO).deltas.len()
    };
    assert_eq!((learn(&one), learn(&other)), (0, 2), "what is gone teaches nothing");
}

#[test]
fn equal_rests_of_two_rules_are_one_where_neither_says_which_it_is_of() {
    let switch = Switch::new(&["table=1,actions=output:2"]);
    let go_on = |matching| rule(matching, vec![POP, resubmit(1), output(3)]).into();
    switch.make(["in_port=1", "in_port=2"].map(go_on));
    let next = |port| next_of(&switch, port);
    assert!(Arc::ptr_eq(&next(1), &next(2)));
}

#[test]
fn a_rest_names_the_rule_that_teaches_and_no_other() {
    let switch = Switch::new(&["table=2,actions=output:2"]);
    let go_on = |matching| rule(matching, vec![POP, resubmit(2)]).into();
    switch.make(["table=1,in_port=1", "table=1,in_port=2"].map(go_on));
    switch.make([rule("", vec![resubmit(1), learn(|_| {})]).into()]);
    let next = |port| next_of(&switch, port);
    assert!(Arc::ptr_eq(&next(1), &next(2)));
}

#[test]
fn an_action_set_that_was_written_before_a_cut_is_executed_behind_it() {
    let switch = Switch::new(&["table=0,actions=write_actions(output:4),goto_table:1"]);
    switch.make([rule("table=1", vec![POP, resubmit(2)]).into()]);
    assert_eq!(after(&switch, "ip"), "4");
}

#[test]
fn a_packet_that_goes_on_is_looked_up_as_if_it_had_no_name() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let again = resume(&switch, &continuations(&first(&switch))[0], "ip");
    assert_eq!(again.visits[0].key.field(FieldId::RecircId), 0);
}

#[test]
fn what_is_looked_at_behind_a_copy_that_was_cut_is_of_the_rule_around_it() {
    let source = Subfield { field: FieldId::EthDst, offset: 0, width: 8 };
    let target = Subfield { field: FieldId::Reg1, offset: 0, width: 8 };
    let copy = Action::Clone([resubmit(1)].into());
    let switch = switch(&[copy, Action::Move { source, target }, output(2)], &[]);
    switch.make([rule("table=1", vec![check(100)]).into()]);
    let visits = first(&switch).visits;
    let masks = visits.iter().map(|visit| visit.mask.field(FieldId::EthDst));
    assert_eq!(masks.collect::<Vec<_>>(), [0xff, 0]);
}

#[test]
fn a_ttl_behind_the_last_label_is_copied_in_the_frame() {
    for (action, copy) in [(Action::CopyTtlIn, TtlCopy::In), (Action::CopyTtlOut, TtlCopy::Out)] {
        let switch = switch(&[action, output(2)], &[]);
        let [next] = &continuations(&first(&switch))[..] else { panic!("there is one cut") };
        assert_eq!(next.ttl_copy(), Some(copy));
    }
    let switch = switch(&[POP, resubmit(1)], &[]);
    assert_eq!(continuations(&first(&switch))[0].ttl_copy(), None);
}

#[test]
fn a_fin_behind_a_cut_lowers_the_timeouts_of_the_rule_before_it() {
    let fin = Action::FinTimeout { idle: 3, hard: 0 };
    let switch = switch(&[POP, fin], &[]);
    let [next] = &continuations(&first(&switch))[..] else { panic!("there is one cut") };
    let after = resume(&switch, next, "tcp,in_port=1,tcp_flags=+fin");
    let [Refresh::FinTimeout { rule, idle: 3, .. }] = &after.refreshes[..] else { panic!("a fin") };
    assert_eq!(rule.cookie.number(), 9);
}

#[test]
fn a_continuation_does_not_change_when_the_rule_does_that_it_came_from() {
    let switch = switch(&[POP, resubmit(1), output(3)], &["table=1,actions=output:2"]);
    let old = first(&switch);
    switch.send(FlowModCommand::DeleteStrict, "priority=1").expect("there is such a rule");
    let next = continuations(&old);
    assert_eq!(describe(&resume(&switch, &next[0], "ip").actions), "2 3");
    switch.send(FlowModCommand::Delete, "table=1").expect("there is such a rule");
    assert_eq!(describe(&resume(&switch, &next[0], "ip").actions), "3");
}

#[test]
fn each_half_counts_its_own_visits() {
    let rules = ["table=1,cookie=5,actions=output:2"];
    let switch = switch(&[POP, resubmit(1)], &rules);
    let traversal = first(&switch);
    let again = resume(&switch, &continuations(&traversal)[0], "ip");
    let cookies = |traversal: &Traversal| -> Vec<u64> {
        let rules = traversal.visits.iter().filter_map(|visit| visit.rule.as_ref());
        rules.map(|rule| rule.cookie.number()).collect()
    };
    assert_eq!((cookies(&traversal), cookies(&again)), (vec![9], vec![5]));
}

#[test]
fn a_resumed_packet_depends_on_its_name_and_not_on_its_hidden_words() {
    let switch = switch(&[check(1), resubmit(1)], &["table=1,reg0=8,actions=output:2"]);
    let next = continuations(&first(&switch));
    let traversal = resume(&switch, &next[0], "ip");
    assert_eq!(traversal.key.field(FieldId::RecircId), u128::from(next[0].id()));
    assert_eq!(traversal.mask.field(FieldId::RecircId), FieldId::RecircId.value_max());
    assert_eq!(traversal.mask.field(FieldId::Reg0), 0);
    assert_eq!(traversal.visits[0].key.field(FieldId::Reg0), 8, "the visit has its real key");
    assert_ne!(traversal.visits[0].mask.field(FieldId::Reg0), 0);
}

#[test]
fn a_packet_is_parsed_again_six_times_and_no_more() {
    let switch = switch(&[check(9), resubmit(0)], &[]);
    let mut traversal = first(&switch);
    for _ in 0..6 {
        traversal = resume(&switch, &continuations(&traversal)[0], "ip");
    }
    assert_eq!(traversal.error.unwrap().to_string(), "more than 6 recirculations");
}

#[test]
fn lookups_are_summed_up_along_a_chain_of_cuts() {
    let many: Vec<_> = std::iter::repeat_n(resubmit(1), 4000).collect();
    let actions = [many.as_slice(), &[check(9)], &many].concat();
    let switch = switch(&actions, &[]);
    let traversal = resume(&switch, &continuations(&first(&switch))[0], "ip");
    assert_eq!(traversal.error.unwrap().to_string(), "more than 4096 resubmits");
    assert_eq!(traversal.visits.len(), 96);
}

#[test]
fn tags_are_changed_once_the_headers_are_parsed() {
    for change in [Action::PushVlan { ethertype: 0x8100 }, Action::PopVlan] {
        let switch = switch(&[POP, change, output(2)], &[]);
        assert_eq!(continuations(&first(&switch)).len(), 1);
    }
}

#[test]
fn a_move_from_or_to_what_was_uncovered_waits_for_it() {
    let whole = Subfield::whole;
    for (source, target) in [(FieldId::Ipv4Src, FieldId::Reg0), (FieldId::Reg0, FieldId::Ipv4Dst)] {
        let moved = Action::Move { source: whole(source), target: whole(target) };
        let switch = switch(&[POP, moved, output(2)], &[]);
        assert_eq!(describe(&first(&switch).actions), "pop(800) recirculate");
    }
}

#[test]
fn an_action_set_that_is_cut_goes_on_with_what_is_left_of_it_alone() {
    let of_set = |actions: &[Action]| {
        let switch = switch(&[], &["table=1,ip,actions=output:3"]);
        let mut rule = rule("priority=9", vec![]);
        rule.instructions.write = actions.into();
        switch.make([rule.into()]);
        switch
    };
    let dec_ttl = Action::DecTtl { controllers: Box::new([0]) };
    let switch = of_set(&[POP, output(2), dec_ttl]);
    assert_eq!(describe(&first(&switch).actions), "pop(800) recirculate");
    assert_eq!(after(&switch, "ip,nw_ttl=9"), "set(nw_ttl=8) 2");
    let switch = of_set(&[POP, resubmit(1)]);
    assert_eq!(after(&switch, "ip"), "3");
    let steps = format!("{:?}", continuations(&first(&switch))[0]);
    assert!(!steps.contains("([])"), "what is done is not kept: {steps}");
}

#[test]
fn a_list_of_actions_that_is_done_is_not_kept() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let steps = format!("{:?}", continuations(&first(&switch))[0]);
    assert!(!steps.contains("([])"), "{steps}");
}
