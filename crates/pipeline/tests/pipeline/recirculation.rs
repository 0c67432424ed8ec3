//! Tests of recirculations: the end of a translation, and its continuation.

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

fn check_larger(length: u16) -> Action {
    let target = Subfield { field: FieldId::Reg0, offset: 3, width: 1 };
    Action::CheckPktLarger { length, target }
}

/// Returns a switch that runs these actions for every packet, and then these rules.
fn switch(actions: &[Action], rules: &[&str]) -> Switch {
    let switch = Switch::new(rules);
    let mut rule = request(FlowModCommand::Add, "priority=1,cookie=9,actions=drop");
    rule.instructions.apply = actions.into();
    switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
    switch
}

/// Returns a packet with one label.
fn labelled_packet() -> FlowKey {
    let mut key = key("in_port=1,dl_type=0x8847");
    key.words_mut()[usize::from(word::MPLS)] = 0x0001_0140 << 32;
    key
}

fn translate_labelled(switch: &Switch) -> Traversal {
    switch.pipeline.translate(&labelled_packet(), switch.pipeline.version())
}

/// Returns the continuations of a traversal.
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

/// Returns the result of a recirculated packet with these headers.
fn resume(switch: &Switch, continuation: &Arc<Continuation>, packet: &str) -> Traversal {
    let mut parsed = key(packet);
    continuation.enter(&mut parsed);
    switch.pipeline.resume(&parsed, continuation, switch.pipeline.version())
}

/// Returns the continuation of a packet with one label that arrived on this port.
fn next_of(switch: &Switch, port: u32) -> Arc<Continuation> {
    let mut key = labelled_packet();
    key.set_in_port(PortNo::new(port));
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    Arc::clone(&continuations(&traversal)[0])
}

fn run_recirculated(switch: &Switch, packet: &str) -> String {
    let [next] = &continuations(&translate_labelled(switch))[..] else {
        panic!("there is one recirculation")
    };
    describe(&resume(switch, next, packet).actions)
}

#[test]
fn a_pop_recirculates_only_for_uncovered_headers() {
    let actions = [
        POP,
        output(2),
        Action::SetField { field: FieldId::EthSrc, value: 1, mask: FieldId::EthSrc.value_max() },
        Action::SetQueue(3),
        output(3),
    ];
    let switch = switch(&actions, &[]);
    assert_eq!(describe(&translate_labelled(&switch).actions), "pop(800) 2 set(eth_src=1) 3q3");
}

#[test]
fn steps_after_a_pop_see_the_uncovered_headers() {
    let dec_ttl = Action::DecTtl { controllers: Box::new([0]) };
    let switch = switch(&[POP, output(2), dec_ttl, output(3)], &[]);
    assert_eq!(describe(&translate_labelled(&switch).actions), "pop(800) 2 recirculate");
    assert_eq!(run_recirculated(&switch, "ip,nw_ttl=9"), "set(nw_ttl=8) 3");
    assert_eq!(run_recirculated(&switch, "ip,nw_ttl=1"), "punt(InvalidTtl,table=0,cookie=0x9)");
}

#[test]
fn lookup_after_pop_returns_to_its_rule() {
    let actions = [POP, resubmit(1), output(4)];
    let rules = ["table=1,ip,nw_dst=10.0.0.1,actions=output:2", "table=1,arp,actions=output:3"];
    let switch = switch(&actions, &rules);
    assert_eq!(describe(&translate_labelled(&switch).actions), "pop(800) recirculate");
    assert_eq!(run_recirculated(&switch, "ip,nw_dst=10.0.0.1"), "2 4");
    assert_eq!(run_recirculated(&switch, "arp"), "3 4");
    assert_eq!(run_recirculated(&switch, "ip"), "4");
}

#[test]
fn a_recirculation_keeps_state_action_set_and_stack() {
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
    assert_eq!(run_recirculated(&switch, "ip"), "3 4");
}

#[test]
fn a_length_check_has_two_continuations() {
    let rules = ["table=1,reg0=8/8,actions=output:2", "table=1,reg0=0/8,actions=output:3"];
    let switch = switch(&[check_larger(100), resubmit(1)], &rules);
    let traversal = translate_labelled(&switch);
    assert_eq!(describe(&traversal.actions), "larger(100)");
    let next = continuations(&traversal);
    let results = next.iter().map(|next| describe(&resume(&switch, next, "ip").actions));
    assert_eq!(results.collect::<Vec<_>>(), ["2", "3"]);
}

#[test]
fn recirculation_in_clone_affects_only_copy() {
    let clone = Action::Clone(Box::new([POP, resubmit(1), output(3)]));
    let switch = switch(&[clone, output(4)], &["table=1,arp,actions=output:2,exit"]);
    let expected = "pop(800) recirculate push(8847,16/0/64.) 4";
    assert_eq!(describe(&translate_labelled(&switch).actions), expected);
    assert_eq!(run_recirculated(&switch, "ip"), "3");
    assert_eq!(run_recirculated(&switch, "arp"), "2");
}

#[test]
fn equal_continuations_of_different_rules_are_one() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let next = continuations(&translate_labelled(&switch));
    let mut other = labelled_packet();
    other.set_in_port(PortNo::new(2));
    let other = switch.pipeline.translate(&other, switch.pipeline.version());
    assert!(Arc::ptr_eq(&next[0], &continuations(&other)[0]));
    assert_eq!(
        translate_labelled(&switch).mask.field(FieldId::InPort),
        0,
        "packets of all ports share it"
    );
}

#[test]
fn a_learn_after_a_recirculation_needs_its_rule() {
    let switch = switch(&[POP, resubmit(1), learn(|_| {})], &["table=1,actions=output:2"]);
    let [next] = &continuations(&translate_labelled(&switch))[..] else {
        panic!("there is one recirculation")
    };
    let learnings_again = || resume(&switch, next, "ip,in_port=1").learnings;
    let learnings = learnings_again();
    assert_eq!(switch.pipeline.learn(&learnings, Time::ZERO).deltas.len(), 2, "a rule, an object");
    switch.send(FlowModCommand::Delete, "").expect("legal");
    assert!(switch.pipeline.learn(&learnings_again(), Time::ZERO).deltas.is_empty());
    assert_eq!(switch.pipeline.learnings_refused(), 1);
}

#[test]
fn equal_continuations_of_two_learning_rules_differ() {
    let switch = Switch::new(&["table=1,actions=output:2"]);
    let learner = |matching| rule(matching, vec![POP, resubmit(1), learn(|_| {})]).into();
    switch.make(["in_port=1", "in_port=2"].map(learner));
    let next = |port| next_of(&switch, port);
    let (one, other) = (next(1), next(2));
    assert!(!Arc::ptr_eq(&one, &other));
    switch.send(FlowModCommand::DeleteStrict, "in_port=1").expect("the rule exists");
    let learn = |next| {
        let learnings = resume(&switch, next, "ip,in_port=3").learnings;
        switch.pipeline.learn(&learnings, Time::ZERO).deltas.len()
    };
    assert_eq!((learn(&one), learn(&other)), (0, 2), "a removed rule learns nothing");
}

#[test]
fn equal_continuations_without_rules_are_shared() {
    let switch = Switch::new(&["table=1,actions=output:2"]);
    let continuing = |matching| rule(matching, vec![POP, resubmit(1), output(3)]).into();
    switch.make(["in_port=1", "in_port=2"].map(continuing));
    let next = |port| next_of(&switch, port);
    assert!(Arc::ptr_eq(&next(1), &next(2)));
}

#[test]
fn a_continuation_names_only_the_learning_rule() {
    let switch = Switch::new(&["table=2,actions=output:2"]);
    let continuing = |matching| rule(matching, vec![POP, resubmit(2)]).into();
    switch.make(["table=1,in_port=1", "table=1,in_port=2"].map(continuing));
    switch.make([rule("", vec![resubmit(1), learn(|_| {})]).into()]);
    let next = |port| next_of(&switch, port);
    assert!(Arc::ptr_eq(&next(1), &next(2)));
}

#[test]
fn an_action_set_survives_a_recirculation() {
    let switch = Switch::new(&["table=0,actions=write_actions(output:4),goto_table:1"]);
    switch.make([rule("table=1", vec![POP, resubmit(2)]).into()]);
    assert_eq!(run_recirculated(&switch, "ip"), "4");
}

/// Rules do not see the recirculation id of a packet that continues.
#[test]
fn resumed_packet_is_looked_up_without_name() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let again = resume(&switch, &continuations(&translate_labelled(&switch))[0], "ip");
    assert_eq!(again.visits[0].key.field(FieldId::RecircId), 0);
}

#[test]
fn later_bits_belong_to_outer_rule() {
    let source = Subfield { field: FieldId::EthDst, offset: 0, width: 8 };
    let target = Subfield { field: FieldId::Reg1, offset: 0, width: 8 };
    let copy = Action::Clone([resubmit(1)].into());
    let switch = switch(&[copy, Action::Move { source, target }, output(2)], &[]);
    switch.make([rule("table=1", vec![check_larger(100)]).into()]);
    let visits = translate_labelled(&switch).visits;
    let masks = visits.iter().map(|visit| visit.mask.field(FieldId::EthDst));
    assert_eq!(masks.collect::<Vec<_>>(), [0xff, 0]);
}

#[test]
fn the_ttl_behind_the_last_label_is_copied() {
    for (action, copy) in [(Action::CopyTtlIn, TtlCopy::In), (Action::CopyTtlOut, TtlCopy::Out)] {
        let switch = switch(&[action, output(2)], &[]);
        let [next] = &continuations(&translate_labelled(&switch))[..] else {
            panic!("there is one recirculation")
        };
        assert_eq!(next.ttl_copy(), Some(copy));
    }
    let switch = switch(&[POP, resubmit(1)], &[]);
    assert_eq!(continuations(&translate_labelled(&switch))[0].ttl_copy(), None);
}

#[test]
fn fin_after_recirculation_lowers_right_timeouts() {
    let fin = Action::FinTimeout { idle: 3, hard: 0 };
    let switch = switch(&[POP, fin], &[]);
    let [next] = &continuations(&translate_labelled(&switch))[..] else {
        panic!("there is one recirculation")
    };
    let after = resume(&switch, next, "tcp,in_port=1,tcp_flags=+fin");
    let [Refresh::FinTimeout { rule, idle: 3, .. }] = &after.refreshes[..] else { panic!("a fin") };
    assert_eq!(rule.cookie.number(), 9);
}

#[test]
fn a_continuation_outlives_changes_of_its_rule() {
    let switch = switch(&[POP, resubmit(1), output(3)], &["table=1,actions=output:2"]);
    let old = translate_labelled(&switch);
    switch.send(FlowModCommand::DeleteStrict, "priority=1").expect("the rule exists");
    let next = continuations(&old);
    assert_eq!(describe(&resume(&switch, &next[0], "ip").actions), "2 3");
    switch.send(FlowModCommand::Delete, "table=1").expect("the rule exists");
    assert_eq!(describe(&resume(&switch, &next[0], "ip").actions), "3");
}

#[test]
fn each_side_of_a_recirculation_counts_its_visits() {
    let rules = ["table=1,cookie=5,actions=output:2"];
    let switch = switch(&[POP, resubmit(1)], &rules);
    let traversal = translate_labelled(&switch);
    let again = resume(&switch, &continuations(&traversal)[0], "ip");
    let cookies = |traversal: &Traversal| -> Vec<u64> {
        let rules = traversal.visits.iter().filter_map(|visit| visit.rule.as_ref());
        rules.map(|rule| rule.cookie.number()).collect()
    };
    assert_eq!((cookies(&traversal), cookies(&again)), (vec![9], vec![5]));
}

#[test]
fn a_resumed_packet_matches_by_recirculation_id_only() {
    let switch = switch(&[check_larger(1), resubmit(1)], &["table=1,reg0=8,actions=output:2"]);
    let next = continuations(&translate_labelled(&switch));
    let traversal = resume(&switch, &next[0], "ip");
    assert_eq!(traversal.key.field(FieldId::RecircId), u128::from(next[0].id()));
    assert_eq!(traversal.mask.field(FieldId::RecircId), FieldId::RecircId.value_max());
    assert_eq!(traversal.mask.field(FieldId::Reg0), 0);
    assert_eq!(traversal.visits[0].key.field(FieldId::Reg0), 8, "the visit has its real key");
    assert_ne!(traversal.visits[0].mask.field(FieldId::Reg0), 0);
}

#[test]
fn a_packet_is_recirculated_at_most_six_times() {
    let switch = switch(&[check_larger(9), resubmit(0)], &[]);
    let mut traversal = translate_labelled(&switch);
    for _ in 0..6 {
        traversal = resume(&switch, &continuations(&traversal)[0], "ip");
    }
    assert_eq!(
        traversal.error.unwrap().to_string(),
        "the packet needs more than 6 \
         recirculations, which is the limit"
    );
}

#[test]
fn lookups_are_summed_up_along_recirculations() {
    let many: Vec<_> = std::iter::repeat_n(resubmit(1), 4000).collect();
    let actions = [many.as_slice(), &[check_larger(9)], &many].concat();
    let switch = switch(&actions, &[]);
    let traversal = resume(&switch, &continuations(&translate_labelled(&switch))[0], "ip");
    assert_eq!(
        traversal.error.unwrap().to_string(),
        "the packet needs more than 4096 resubmits, \
         which is the limit"
    );
    assert_eq!(traversal.visits.len(), 96);
}

#[test]
fn tags_are_changed_once_the_headers_are_parsed() {
    for change in [Action::PushVlan { ethertype: 0x8100 }, Action::PopVlan] {
        let switch = switch(&[POP, change, output(2)], &[]);
        assert_eq!(continuations(&translate_labelled(&switch)).len(), 1);
    }
}

#[test]
fn move_of_uncovered_field_waits_for_parsing() {
    let whole = Subfield::whole;
    for (source, target) in [(FieldId::Ipv4Src, FieldId::Reg0), (FieldId::Reg0, FieldId::Ipv4Dst)] {
        let moved = Action::Move { source: whole(source), target: whole(target) };
        let switch = switch(&[POP, moved, output(2)], &[]);
        assert_eq!(describe(&translate_labelled(&switch).actions), "pop(800) recirculate");
    }
}

/// The actions of the set before the pop are not run a second time.
#[test]
fn a_recirculated_action_set_continues_with_its_rest() {
    let of_set = |actions: &[Action]| {
        let switch = switch(&[], &["table=1,ip,actions=output:3"]);
        let mut rule = rule("priority=9", vec![]);
        rule.instructions.write = actions.into();
        switch.make([rule.into()]);
        switch
    };
    let dec_ttl = Action::DecTtl { controllers: Box::new([0]) };
    let switch = of_set(&[POP, output(2), dec_ttl]);
    assert_eq!(describe(&translate_labelled(&switch).actions), "pop(800) recirculate");
    assert_eq!(run_recirculated(&switch, "ip,nw_ttl=9"), "set(nw_ttl=8) 2");
    let switch = of_set(&[POP, resubmit(1)]);
    assert_eq!(run_recirculated(&switch, "ip"), "3");
    let steps = format!("{:?}", continuations(&translate_labelled(&switch))[0]);
    assert!(!steps.contains("([])"), "executed steps are not stored: {steps}");
}

/// A continuation has no list without actions.
#[test]
fn a_finished_action_list_is_not_kept() {
    let switch = switch(&[POP, resubmit(1)], &["table=1,actions=output:2"]);
    let steps = format!("{:?}", continuations(&translate_labelled(&switch))[0]);
    assert!(!steps.contains("([])"), "{steps}");
}
