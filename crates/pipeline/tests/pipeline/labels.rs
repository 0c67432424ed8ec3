//! Tests of MPLS labels, and of the stack of `push` and `pop`.

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, layout::word};
use shunt_pipeline::{Action, GroupKind, Subfield, Time, TraversalError};

use crate::{
    build::{add_group, bucket, group, rule},
    switch::{BRIDGE, Switch, describe, key},
};

/// Returns a packet with these label stack entries in its key, the outermost first.
fn labelled_packet(entries: [u32; 3]) -> FlowKey {
    let mut key = key("in_port=1,dl_type=0x8847");
    let [first, second, third] = entries.map(u64::from);
    key.words_mut()[usize::from(word::MPLS)] = first << 32 | second;
    key.words_mut()[usize::from(word::MPLS_PBB)] = third << 32;
    key
}

fn label_entry(label: u32, class: u32, ttl: u32) -> u32 {
    label << 12 | class << 9 | ttl
}

/// The bottom-of-stack bit of a label stack entry.
const BOTTOM: u32 = 0x100;
const OUTPUT: Action = output(2);

const fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

const fn push(ethertype: u16) -> Action {
    Action::PushMpls { ethertype }
}

const fn pop(ethertype: u16) -> Action {
    Action::PopMpls { ethertype }
}

fn set_field(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

fn run(actions: &[Action], key: &FlowKey) -> String {
    let switch = Switch::of_actions(actions);
    let traversal = switch.pipeline.translate(key, switch.pipeline.version());
    match traversal.error {
        Some(error) => error.to_string(),
        None => describe(&traversal.actions),
    }
}

/// Returns packets with one, two, three, and more labels than a key holds.
fn stacks() -> [FlowKey; 4] {
    let [one, two, three] = [label_entry(16, 3, 9), label_entry(17, 0, 8), label_entry(18, 1, 7)];
    [
        labelled_packet([one | BOTTOM, 0, 0]),
        labelled_packet([one, two | BOTTOM, 0]),
        labelled_packet([one, two, three | BOTTOM]),
        labelled_packet([one, two, three]),
    ]
}

#[test]
fn the_first_label_copies_class_and_ttl() {
    let cases = [
        ("ip,nw_tos=184,nw_ttl=7", "push(8847,0/6/7.) 2"),
        ("ip,nw_tos=184,nw_ttl=0", "push(8847,0/6/64.) 2"),
        ("ipv6,nw_tos=184,nw_ttl=7", "push(8847,2/6/7.) 2"),
        ("arp", "push(8847,0/0/64.) 2"),
        ("dl_type=0x88cc", "push(8847,0/0/64.) 2"),
    ];
    for (packet, expected) in cases {
        assert_eq!(run(&[push(0x8847), OUTPUT], &key(packet)), expected, "{packet}");
    }
}

#[test]
fn a_pushed_label_copies_the_outermost_label() {
    let [one, two, ..] = stacks();
    assert_eq!(run(&[push(0x8848), OUTPUT], &one), "push(8848,16/3/9) 2");
    assert_eq!(run(&[push(0x8847), OUTPUT], &two), "push(8847,16/3/9) 2");
}

#[test]
fn a_fourth_label_drops_the_whole_packet() {
    let [.., three, more] = stacks();
    let expected = TraversalError::TooManyMplsLabels(3).to_string();
    assert_eq!(run(&[OUTPUT, push(0x8847)], &three), expected);
    assert_eq!(run(&[OUTPUT, push(0x8847)], &more), expected);
    let thrice = [push(0x8847), push(0x8847), push(0x8847), OUTPUT];
    assert!(!run(&thrice, &key("arp")).contains("labels"));
    assert_eq!(run(&[&thrice[..], &[push(0x8847)]].concat(), &key("arp")), expected);
}

#[test]
fn a_pop_removes_one_label_if_present() {
    let [one, two, three, more] = stacks();
    assert_eq!(run(&[pop(0x0800), OUTPUT], &one), "pop(800) 2");
    assert_eq!(run(&[pop(0x8847), OUTPUT, pop(0x0800), output(3)], &two), "pop(8847) 2 pop(800) 3");
    assert_eq!(run(&[pop(0x8847), OUTPUT], &three), "pop(8847) 2");
    assert_eq!(run(&[pop(0x0800), OUTPUT], &key("arp")), "2");
    let expected = TraversalError::TooManyMplsLabels(3).to_string();
    assert_eq!(
        run(&[OUTPUT, pop(0x8847)], &more),
        expected,
        "the new third label is not in the key"
    );
}

#[test]
fn a_pop_to_another_type_removes_all_labels() {
    let [_, two, three, more] = stacks();
    assert_eq!(run(&[pop(0x0800), OUTPUT], &two), "pop(800) pop(800) 2");
    assert_eq!(run(&[pop(0x86dd), OUTPUT], &three), "pop(86dd) pop(86dd) pop(86dd) 2");
    assert_eq!(run(&[pop(0x0800), push(0x8848), OUTPUT], &two), "pop(800) pop(800) recirculate");
    let expected = TraversalError::TooManyMplsLabels(3).to_string();
    assert_eq!(run(&[OUTPUT, pop(0x0800)], &more), expected);
}

#[test]
fn rewrites_are_emitted_before_a_label_is_pushed() {
    let actions =
        [set_field(FieldId::NwTtl, 5), push(0x8847), OUTPUT, set_field(FieldId::NwTtl, 6), OUTPUT];
    assert_eq!(run(&actions, &key("ip,nw_ttl=9")), "set(nw_ttl=5) push(8847,0/0/5.) 2 2");
}

#[test]
fn labels_and_tags_are_pushed_independently() {
    let actions =
        [Action::PushVlan { ethertype: 0x8100 }, push(0x8847), OUTPUT, Action::PopVlan, output(3)];
    assert_eq!(run(&actions, &key("arp")), "push(8100,1000) push(8847,0/0/64.) 2 pop 3");
}

#[test]
fn a_rewritten_label_is_set_in_place() {
    let [one, two, ..] = stacks();
    let switch = Switch::of_actions(&[set_field(FieldId::MplsLabel, 40), OUTPUT]);
    let traversal = switch.pipeline.translate(&two, switch.pipeline.version());
    assert_eq!(traversal.actions.len(), 2);
    assert_eq!(traversal.mask.field(FieldId::MplsLabel), 0);
    let actions = [set_field(FieldId::MplsLabel, 40), pop(0x0800), OUTPUT];
    assert_eq!(run(&actions, &one), "pop(800) 2", "no output follows");
    let actions = [set_field(FieldId::MplsTc, 1), push(0x8847), OUTPUT];
    assert_eq!(run(&actions, &one), "pop(8847) push(8847,16/1/9.) push(8847,16/1/9) 2");
}

#[test]
fn a_clone_puts_the_labels_back() {
    let [one, two, ..] = stacks();
    let clone = |inner: &[Action]| Action::Clone(inner.into());
    let actions = [clone(&[pop(0x0800), OUTPUT]), output(3)];
    assert_eq!(run(&actions, &one), "pop(800) 2 push(8847,16/3/9.) 3");
    let actions = [clone(&[pop(0x8847), OUTPUT]), output(3)];
    assert_eq!(run(&actions, &two), "pop(8847) 2 push(8847,16/3/9) 3");
    let actions = [clone(&[push(0x8847), OUTPUT]), output(3)];
    assert_eq!(run(&actions, &key("arp")), "push(8847,0/0/64.) 2 pop(806) 3");
    let actions = [clone(&[pop(0x86dd), OUTPUT]), pop(0x0800), output(3)];
    assert_eq!(run(&actions, &one), "pop(86dd) 2 push(8847,0/0/0) pop(800) 3");
}

#[test]
fn expired_label_ttl_notifies_controllers() {
    let dec = [Action::DecMplsTtl, OUTPUT];
    let switch = Switch::of_actions(&dec);
    let traversal = switch.pipeline.translate(&stacks()[1], switch.pipeline.version());
    assert_eq!(traversal.mask.field(FieldId::MplsTtl), 0xff);
    assert_eq!(traversal.actions.len(), 2);
    for ttl in [0, 1] {
        let used_up = labelled_packet([label_entry(16, 0, ttl) | BOTTOM, 0, 0]);
        assert_eq!(run(&dec, &used_up), "punt(InvalidTtl,table=0,cookie=0x0)");
    }
    assert_eq!(run(&dec, &key("arp")), "", "as in Open vSwitch");
    let actions = [Action::SetMplsTtl(0), Action::DecMplsTtl, OUTPUT];
    assert!(run(&actions, &stacks()[0]).starts_with("set() punt"));
}

#[test]
fn ttl_is_copied_between_two_outermost_labels() {
    let [_, two, three, _] = stacks();
    assert_eq!(
        run(&[Action::CopyTtlIn, OUTPUT], &two),
        "pop(8847) pop(8847) push(8847,17/0/9.) push(8847,16/3/9) 2"
    );
    assert_eq!(
        run(&[Action::CopyTtlOut, OUTPUT], &three),
        "pop(8847) pop(8847) push(8847,17/0/8) push(8847,16/3/8) 2"
    );
    assert_eq!(run(&[Action::CopyTtlOut, Action::CopyTtlIn, OUTPUT], &key("ip")), "2");
}

#[test]
fn action_sets_pop_push_and_decrement_in_order() {
    let switch = Switch::of_actions(&[]);
    let mut rule = crate::switch::request(shunt_pipeline::FlowModCommand::Add, "actions=drop");
    rule.instructions.write = Box::new([
        OUTPUT,
        Action::DecMplsTtl,
        push(0x8847),
        set_field(FieldId::MplsLabel, 40),
        pop(0x8847),
    ]);
    switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
    let traversal = switch.pipeline.translate(&stacks()[1], switch.pipeline.version());
    assert_eq!(
        describe(&traversal.actions),
        "pop(8847) push(8847,40/0/7) 2",
        "{:?}",
        traversal.actions
    );
}

#[test]
fn values_leave_the_stack_in_reverse_order() {
    let bits = |field, width| Subfield { field, offset: 0, width };
    let actions = [
        set_field(FieldId::Reg0, 0x1234),
        Action::Push(bits(FieldId::EthSrc, 12)),
        Action::Push(bits(FieldId::Reg0, 8)),
        Action::Pop(Subfield::whole(FieldId::EthDst)),
        Action::Pop(Subfield { offset: 4, ..bits(FieldId::EthSrc, 8) }),
        Action::Pop(bits(FieldId::EthSrc, 48)),
        OUTPUT,
    ];
    let packet = key("arp,dl_src=02:00:00:00:05:06");
    let expected = "set(eth_src=60,eth_dst=34) 2";
    assert_eq!(
        run(&actions, &packet),
        expected,
        "the lower bits; the last pop finds an empty stack"
    );
    let traversal = Switch::of_actions(&actions).translate("arp");
    assert_eq!(traversal.mask.field(FieldId::EthSrc), 0xfff);
}

#[test]
fn clones_and_peer_bridges_keep_the_stack() {
    let reg = |number| Subfield { field: number, offset: 0, width: 16 };
    let actions = [
        set_field(FieldId::Reg0, 3),
        Action::Push(reg(FieldId::Reg0)),
        Action::Clone(Box::new([
            Action::Pop(reg(FieldId::Reg1)),
            Action::Push(reg(FieldId::Reg2)),
        ])),
        Action::Pop(reg(FieldId::Reg3)),
        Action::OutputField { source: Subfield::whole(FieldId::Reg3), max_len: 0 },
    ];
    assert_eq!(run(&actions, &key("arp")), "3");
}

#[test]
fn a_stack_overflow_drops_the_packet() {
    let push = Action::Push(Subfield::whole(FieldId::Xxreg0));
    let actions = [vec![OUTPUT], vec![push; 65536 / 17 + 1]].concat();
    assert_eq!(
        run(&actions, &key("arp")),
        "the packet needs more than 65536 bytes on the stack \
         of `push` and `pop`, which is the limit"
    );
    assert_eq!(run(&actions[..65536 / 17 + 1], &key("arp")), "2");
    // The stack becomes full: 3855 values take 17 bytes each, and small values take 2 bytes each.
    let small = Action::Push(Subfield { field: FieldId::Reg0, offset: 0, width: 8 });
    let full = |count| [&actions[..3855], &vec![small.clone(); count]].concat();
    assert_eq!(run(&full(9), &key("arp")), "2");
    assert_eq!(
        run(&full(10), &key("arp")),
        "the packet needs more than 65536 bytes on the stack \
         of `push` and `pop`, which is the limit"
    );
    let popped = Action::Pop(Subfield::whole(FieldId::Xxreg0));
    let popped = vec![[actions[1].clone(), popped]; 4000].concat();
    assert_eq!(
        run(&[popped, vec![OUTPUT]].concat(), &key("arp")),
        "2",
        "a popped value is removed"
    );
}

#[test]
fn too_many_labels_end_only_their_bucket() {
    let switch = Switch::new(&["table=1,actions=output:3,push_mpls:0x8847,output:4"]);
    let resubmit = Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(1) };
    let outer = vec![bucket(vec![group(1)]), bucket(vec![output(3)])];
    let inner = vec![bucket(vec![resubmit]), bucket(vec![push(0x8847), output(4)])];
    switch.make([add_group(1, GroupKind::All, inner), add_group(2, GroupKind::All, outer)]);
    let rule = rule("priority=1", vec![OUTPUT, group(2), output(4)]);
    switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
    let [.., three, _] = stacks();
    let traversal = switch.pipeline.translate(&three, switch.pipeline.version());
    assert_eq!((describe(&traversal.actions).as_str(), traversal.error), ("2 3 3 4", None));
}

#[test]
fn clone_removes_its_pushed_label() {
    let label = set_field(FieldId::MplsLabel, 5);
    let clone = Action::Clone([push(0x8847), OUTPUT, label.clone(), OUTPUT].into());
    let expected = "push(8847,0/0/64.) 2 set() 2 pop(806) 3";
    assert_eq!(run(&[clone, output(3)], &key("arp")), expected);
    // The clone rewrites a pushed label before it is emitted, so the label after the clone is a new
    // label.
    let clone = Action::Clone([label, OUTPUT].into());
    let expected = "push(8847,5/0/64.) 2 pop(8847) push(8847,0/0/64.) 3";
    assert_eq!(run(&[push(0x8847), clone, output(3)], &key("arp")), expected);
}

#[test]
fn label_that_pop_uncovers_can_be_rewritten() {
    let [_, two, ..] = stacks();
    let actions = [pop(0x8847), set_field(FieldId::MplsLabel, 40), OUTPUT];
    assert_eq!(run(&actions, &two), "pop(8847) set() 2");
}

#[test]
fn pushing_shifts_labels_and_keeps_other_bits() {
    let rule = |actions: &str| format!("table=0,actions={actions},goto_table:1");
    let switch = Switch::new(&[&rule("push_mpls:0x8847"), "table=1,actions=output:2"]);
    let second = |packet: &FlowKey| {
        let visits = switch.pipeline.translate(packet, switch.pipeline.version()).visits;
        FlowKey::from(&visits[1].key)
    };
    let words = |key: &FlowKey| [word::MPLS, word::MPLS_PBB].map(|at| key.words()[usize::from(at)]);
    let [one, mut two, ..] = stacks();
    let [first, next] = [label_entry(16, 3, 9), label_entry(17, 0, 8) | BOTTOM].map(u64::from);
    two.words_mut()[usize::from(word::MPLS_PBB)] |= 7;
    assert_eq!(words(&second(&two)), [first << 32 | first, next << 32 | 7]);
    let bottom = u64::from(BOTTOM);
    assert_eq!(words(&second(&one)), [first << 32 | first | bottom, 0]);
}

#[test]
fn pushed_label_hides_payload() {
    let switch =
        Switch::new(&["table=0,actions=push_mpls:0x8847,goto_table:1", "table=1,actions=output:2"]);
    // A match on an address alone, which no text can express.
    let (packet, mut mask) = (key("ip,nw_src=10.0.0.1,nw_ttl=7"), FlowMask::EMPTY);
    mask.add_field(FieldId::Ipv4Src);
    let mut blind = rule("table=1,priority=9", vec![output(3)]);
    blind.matching = Match::new(&packet, &mask);
    switch.make([blind.into()]);
    let version = switch.pipeline.version();
    let traversal = switch.pipeline.translate(&packet, version);
    assert_eq!(describe(&traversal.actions), "push(8847,0/0/7.) 2");
    assert_eq!(traversal.mask.field(FieldId::Ipv4Src), 0, "any type");
    assert_eq!(traversal.visits[1].key.field(FieldId::Ipv4Src), 0);
    let written = |packet: &FlowKey| {
        let sub_traversals = switch.pipeline.translate_sub_traversals(packet, None, version, &[1]);
        let mask = FlowMask::from(sub_traversals[0].rewrite.mask());
        let [first, third] = [word::MPLS, word::MPLS_PBB].map(|at| mask.words()[usize::from(at)]);
        (mask.field(FieldId::EthType), first, third)
    };
    assert_eq!(written(&stacks()[0]), (0xffff, u64::MAX, u64::MAX << 32));
    assert_eq!(written(&packet), (0xffff, u64::MAX, u64::MAX));
}

#[test]
fn labels_of_a_ttl_copy_are_consulted() {
    let switch = Switch::of_actions(&[Action::CopyTtlIn, OUTPUT]);
    let traversal = switch.pipeline.translate(&stacks()[1], switch.pipeline.version());
    assert_eq!(traversal.mask.word(usize::from(word::MPLS)), u64::MAX);
}
