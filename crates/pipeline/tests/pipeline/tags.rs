//! Tests of actions on VLAN tags.

use shunt_flow::{FieldId, PortNo, layout::word};
use shunt_pipeline::Action;

use crate::switch::{Switch, describe, key};

/// Returns the result of a packet with these tags, the outer tag in the high half.
fn run(switch: &Switch, tags: u64) -> String {
    let mut key = key("in_port=1");
    key.words_mut()[usize::from(word::VLAN)] = tags;
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    match traversal.error {
        Some(error) => error.to_string(),
        None => describe(&traversal.actions),
    }
}

/// The word of the tags of a packet with one tag.
const ONE: u64 = 0x8100_3005_0000_0000;
/// The word of the tags of a packet with two tags.
const TWO: u64 = 0x88a8_3005_8100_1007;

#[test]
fn a_pushed_tag_has_id_and_priority_zero() {
    let switch = Switch::new(&["actions=push_vlan:0x88a8,output:2"]);
    assert_eq!(run(&switch, 0), "push(88a8,1000) 2");
    assert_eq!(run(&switch, ONE), "push(88a8,1000) 2");
}

#[test]
fn a_tag_is_pushed_in_its_final_form() {
    let switch =
        Switch::new(&["dl_vlan=5,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2"]);
    assert_eq!(run(&switch, ONE), "push(8100,1007) 2");
}

#[test]
fn a_third_tag_replaces_the_innermost_tag() {
    let switch = Switch::new(&["actions=output:2,push_vlan:0x8100,output:3"]);
    assert_eq!(run(&switch, TWO), "2 pop pop push(88a8,3005) push(8100,1000) 3");
    let switch = Switch::new(&["actions=push_vlan:0x8100,output:2,push_vlan:0x88a8,output:3"]);
    assert_eq!(run(&switch, ONE), "push(8100,1000) 2 pop pop push(8100,1000) push(88a8,1000) 3");
}

#[test]
fn a_pop_removes_one_tag_if_present() {
    let output = |port| Action::Output { port: PortNo::new(port), max_len: 0 };
    let switch = Switch::of_actions(&[Action::PopVlan, output(2), Action::PopVlan, output(3)]);
    assert_eq!(run(&switch, TWO), "pop 2 pop 3");
    assert_eq!(run(&switch, ONE), "pop 2 3");
    assert_eq!(run(&switch, 0), "2 3");
}

#[test]
fn a_push_and_a_pop_cancel_out() {
    let switch = Switch::new(&["actions=push_vlan:0x8100,pop_vlan,output:2"]);
    assert_eq!(run(&switch, ONE), "2");
}

#[test]
fn rewritten_vlan_id_consults_only_present_bit() {
    let switch = Switch::new(&["vlan_tci=0x1000/0x1000,actions=set_field:4103->vlan_vid,output:2"]);
    assert_eq!(run(&switch, ONE), "set(vlan_tci=1007) 2");
    let mut key = key("in_port=1");
    key.words_mut()[usize::from(word::VLAN)] = ONE;
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    assert_eq!(traversal.mask.word(usize::from(word::VLAN)), 0x1000 << 32);
}

#[test]
fn the_present_bit_adds_and_removes_a_tag() {
    let of_vid = |value, mask| {
        let vid = Action::SetField { field: FieldId::VlanVid, value, mask };
        let output = Action::Output { port: PortNo::new(2), max_len: 0 };
        Switch::of_actions(&[vid, output])
    };
    assert_eq!(run(&of_vid(0x1005, 0x1fff), 0), "push(8100,1005) 2");
    assert_eq!(run(&of_vid(0x0005, 0x0fff), 0), "2");
    assert_eq!(run(&of_vid(0, 0x1fff), ONE), "pop 2");
    let made = Switch::new(&["actions=load:0x1005->NXM_OF_VLAN_TCI[],output:2"]);
    assert_eq!(run(&made, 0), "push(8100,1005) 2");
    let taken = Switch::new(&["actions=load:0->NXM_OF_VLAN_TCI[],output:2"]);
    assert_eq!(run(&taken, TWO), "pop 2");
    assert_eq!(run(&taken, 0), "2");
}

#[test]
fn a_tag_popped_in_a_clone_is_restored() {
    let switch = Switch::new(&["vlan_tci=0x1000/0x1000,actions=clone(pop_vlan,output:2),output:3"]);
    assert_eq!(run(&switch, ONE), "pop 2 push(8100,3005) 3");
    assert_eq!(run(&switch, TWO), "pop 2 push(88a8,3005) 3");
}

#[test]
fn tag_rewritten_in_clone_is_restored_whole() {
    let switch = Switch::new(&[
        "vlan_tci=0x1000/0x1000,actions=clone(set_field:4103->vlan_vid,output:2),output:3",
    ]);
    assert_eq!(run(&switch, ONE), "set(vlan_tci=1007) 2 pop push(8100,3005) 3");
}

#[test]
fn tag_rewritten_in_clone_is_put_back() {
    let switch = Switch::new(&[
        "actions=push_vlan:0x8100,clone(load:0x1005->NXM_OF_VLAN_TCI[],output:2),output:3",
    ]);
    assert_eq!(run(&switch, 0), "push(8100,1005) 2 pop push(8100,1000) 3");
}

#[test]
fn pop_above_unparsed_tag_keeps_parsed_key() {
    let switch = Switch::new(&[
        "vlan_tci=0x1000/0x1000,actions=pop_vlan,output:2,resubmit(,1)",
        "table=1,dl_type=0x8100,actions=output:3",
    ]);
    let mut key = key("in_port=1,dl_type=0x8100");
    key.words_mut()[usize::from(word::VLAN)] = ONE;
    let traversal = switch.pipeline.translate(&key, switch.pipeline.version());
    assert_eq!(describe(&traversal.actions), "pop 2 3");
}

/// A key has room for two VLAN tags.
#[test]
fn of_three_pushed_tags_the_last_two_stay() {
    let switch =
        Switch::new(&["actions=push_vlan:0x8100,push_vlan:0x88a8,push_vlan:0x8100,output:2"]);
    assert_eq!(run(&switch, 0), "push(88a8,1000) push(8100,1000) 2");
}

#[test]
fn unchanged_tags_are_not_pushed_again() {
    let switch = Switch::new(&["actions=push_vlan:0x8100,output:2,push_vlan:0x88a8,output:3"]);
    assert_eq!(run(&switch, 0), "push(8100,1000) 2 push(88a8,1000) 3");
    let switch =
        Switch::new(&["actions=push_vlan:0x8100,push_vlan:0x88a8,output:2,pop_vlan,output:3"]);
    assert_eq!(run(&switch, 0), "push(8100,1000) push(88a8,1000) 2 pop 3");
}

#[test]
fn a_rewritten_inner_tag_is_pushed_complete() {
    let switch = Switch::new(&[
        "vlan_tci=0x1000/0x1000,actions=set_field:4103->vlan_vid,push_vlan:0x88a8,output:2",
    ]);
    assert_eq!(run(&switch, ONE), "pop push(8100,3007) push(88a8,1000) 2");
}

#[test]
fn tag_that_pop_uncovers_can_be_rewritten() {
    let vid = Action::SetField { field: FieldId::VlanVid, value: 0x1009, mask: 0x1fff };
    let output = Action::Output { port: PortNo::new(2), max_len: 0 };
    let switch = Switch::of_actions(&[Action::PopVlan, vid, output]);
    assert_eq!(run(&switch, TWO), "pop set(vlan_tci=1009) 2");
}

#[test]
fn clone_removes_its_pushed_tag() {
    let switch = Switch::new(&[
        "actions=clone(push_vlan:0x8100,output:2,load:0x1007->NXM_OF_VLAN_TCI[],output:2),output:3",
    ]);
    assert_eq!(run(&switch, 0), "push(8100,1000) 2 set(vlan_tci=1007) 2 pop 3");
}
