//! Tests of actions that write fields.

use shunt_flow::{FieldId, FlowKey, PortNo};
use shunt_pipeline::{Action, DatapathAction, Subfield};

use crate::{build::output, switch::Switch};

#[test]
fn a_port_write_needs_a_protocol_with_ports() {
    let actions = [Action::SetTpSrc(7), Action::SetTpDst(9), output(2)];
    let switch = Switch::of_actions(&actions);
    for (packet, expected) in [
        ("tcp,tp_src=1,tp_dst=2", Some((FieldId::TcpSrc, FieldId::TcpDst))),
        ("udp6,tp_src=1,tp_dst=2", Some((FieldId::UdpSrc, FieldId::UdpDst))),
        ("sctp,tp_src=1,tp_dst=2", Some((FieldId::SctpSrc, FieldId::SctpDst))),
        ("udp,nw_frag=later", None),
        ("icmp", None),
    ] {
        let actions = switch.translate(packet).actions;
        let set = actions.iter().find_map(|action| match action {
            DatapathAction::SetHeader(set) => Some(set.key()),
            _ => None,
        });
        let ports = |(source, target)| {
            let key = set.as_ref().expect("a write");
            (key.field(source), key.field(target))
        };
        assert_eq!(expected.map(ports), expected.map(|_| (7, 9)), "{packet}");
        assert_eq!(set.is_some(), expected.is_some(), "{packet}");
    }
}

#[test]
fn a_rewrite_reaches_the_packet_when_it_leaves() {
    let switch = Switch::new(&["actions=output:2,set_field:02:00:00:00:00:01->eth_dst,\
         set_field:02:00:00:00:00:02->eth_dst,output:3,set_field:02:00:00:00:00:03->eth_src"]);
    assert_eq!(switch.run("in_port=1"), "2 set(eth_dst=20000000002) 3");
}

#[test]
fn rewrite_without_effect_is_emitted() {
    let switch = Switch::new(&["actions=set_field:02:00:00:00:00:01->eth_dst,output:2"]);
    let traversal = switch.translate("in_port=1,dl_dst=02:00:00:00:00:01");
    assert_eq!(traversal.mask.field(FieldId::EthDst), 0);
    assert_eq!(traversal.actions.len(), 2);
}

#[test]
fn field_that_packet_lacks_is_not_written() {
    let mask = FieldId::Ipv4Dst.value_max();
    let rewrite = Action::SetField { field: FieldId::Ipv4Dst, value: 1, mask };
    let output = Action::Output { port: PortNo::new(2), max_len: 0 };
    let switch = Switch::of_actions(&[rewrite, output]);
    assert_eq!(switch.run("arp,in_port=1"), "2");
    assert_eq!(switch.run("ip,in_port=1"), "set(ip_dst=1) 2");
    let traversal = switch.translate("arp,in_port=1");
    assert_eq!(traversal.mask.field(FieldId::EthType), 0xffff);
}

#[test]
fn a_later_fragment_has_no_ports_to_write() {
    let switch = Switch::new(&["udp,actions=set_field:5->udp_dst,output:2"]);
    assert_eq!(switch.translate("udp,nw_frag=later").actions.len(), 1);
    assert_eq!(switch.translate("udp,nw_frag=first").actions.len(), 2);
}

#[test]
fn moves_consult_their_source_and_not_their_target() {
    let switch = Switch::new(&[
        "actions=move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG0[0..15],goto_table:1",
        "table=1,reg0=5,actions=output:2",
    ]);
    let traversal = switch.translate("in_port=1,dl_src=02:00:00:00:00:05");
    assert_eq!(traversal.actions.len(), 1);
    assert_eq!(traversal.mask.field(FieldId::EthSrc), 0xffff);
    assert_eq!(traversal.mask.field(FieldId::Reg0), 0xffff_0000, "the unwritten half");
}

#[test]
fn a_bit_that_was_overwritten_is_not_consulted() {
    let switch = Switch::new(&[
        "actions=set_field:02:00:00:00:00:05->eth_src,move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],\
         output:2",
    ]);
    let traversal = switch.translate("in_port=1");
    assert_eq!(traversal.mask.field(FieldId::EthSrc), 0);
    assert_eq!(traversal.visits[0].mask.field(FieldId::EthSrc), 0);
    assert_eq!(switch.run("in_port=1"), "set(eth_src=20000000005,eth_dst=20000000005) 2");
}

#[test]
fn a_register_never_reaches_the_packet() {
    let switch = Switch::new(&["actions=load:5->NXM_NX_REG0[],set_queue:3,pop_queue,output:2"]);
    assert_eq!(switch.run("in_port=1"), "2");
}

#[test]
fn dec_ttl_counts_down_and_consults() {
    let switch = Switch::new(&["ip,actions=dec_ttl,output:2"]);
    assert_eq!(switch.run("ip,in_port=1,nw_ttl=64"), "set(nw_ttl=3f) 2");
    let traversal = switch.translate("ip,in_port=1,nw_ttl=64");
    assert_eq!(traversal.mask.field(FieldId::NwTtl), 0xff);
}

#[test]
fn a_used_up_ttl_keeps_the_action_set() {
    let switch = Switch::new(&[
        "cookie=1,actions=write_actions(output:4),goto_table:1",
        "cookie=2,table=1,ip,actions=dec_ttl(3,5),output:2,goto_table:2",
        "cookie=3,table=2,actions=output:3",
    ]);
    for ttl in [0, 1] {
        let packet = format!("ip,in_port=1,nw_ttl={ttl}");
        let punt = "punt(InvalidTtl,table=1,cookie=0x2)";
        assert_eq!(switch.run(&packet), format!("{punt} {punt} 4"));
        let traversal = switch.translate(&packet);
        let cookies = traversal.actions.iter().filter_map(|action| match action {
            DatapathAction::Punt(punt) => Some(punt.controller_id),
            _ => None,
        });
        assert_eq!(cookies.collect::<Vec<_>>(), [3, 5]);
    }
}

#[test]
fn an_expired_ttl_ends_only_its_clone() {
    let switch = Switch::new(&["ip,actions=clone(dec_ttl(7),output:2),output:3"]);
    assert_eq!(switch.run("ip,in_port=1,nw_ttl=1"), "punt(InvalidTtl,table=0,cookie=0x0) 3");
}

#[test]
fn the_mask_includes_bridge_and_recirculation_id() {
    let switch = Switch::new(&["actions=output:2"]);
    let traversal = switch.translate("in_port=1");
    let bridge = usize::from(shunt_flow::layout::word::BRIDGE);
    assert_eq!(traversal.mask.word(bridge), u64::MAX);
    assert_eq!(traversal.mask.field(FieldId::RecircId), FieldId::RecircId.value_max());
    assert_eq!(traversal.mask.bits_count(), 64 + 32);
    let mut other = FlowKey::ZERO;
    other.set_bridge(1);
    assert!(traversal.mask.agree(&other, &FlowKey::from(&traversal.key)));
}

#[test]
fn bits_move_between_any_offsets() {
    let switch = Switch::new(&[
        "actions=move:NXM_OF_ETH_SRC[4..7]->NXM_NX_REG0[8..11],output:NXM_NX_REG0[8..11],\
         move:NXM_OF_ETH_SRC[4..7]->NXM_OF_ETH_DST[40..43],output:4",
    ]);
    let packet = "in_port=1,dl_src=02:00:00:00:00:35";
    assert_eq!(switch.run(packet), "3 set(eth_dst=30000000000) 4");
}

#[test]
fn moves_of_missing_fields_do_nothing() {
    for (source, target) in [(FieldId::Ipv4Src, FieldId::Reg0), (FieldId::Reg0, FieldId::Ipv4Src)] {
        let whole = Subfield::whole;
        let moved = Action::Move { source: whole(source), target: whole(target) };
        let output_field = Action::OutputField { source: whole(FieldId::Reg0), max_len: 0 };
        let switch = Switch::of_actions(&[moved, output_field, output(2)]);
        assert_eq!(switch.run("arp,arp_spa=0.0.0.3"), "2");
    }
}

#[test]
fn reserved_16_bit_port_is_mapped() {
    let switch = Switch::new(&["actions=load:0xfffe->NXM_OF_IN_PORT[],in_port"]);
    assert_eq!(switch.run("in_port=1"), "100!");
}

#[test]
fn the_queue_is_kept_until_it_is_popped() {
    let switch = Switch::new(&[
        "actions=set_queue:7,goto_table:1",
        "table=1,actions=pop_queue,goto_table:2",
        "table=2,actions=output:2",
    ]);
    let visits = switch.translate("in_port=1").visits;
    let queues = visits.iter().map(|visit| visit.key.field(FieldId::SkbPriority));
    assert_eq!(queues.collect::<Vec<_>>(), [0, 7, 0]);
}

#[test]
fn outputs_carry_the_queue_of_the_packet() {
    let run = |actions: &str| Switch::new(&[&format!("actions={actions}")]).run("in_port=1");
    assert_eq!(run("enqueue:2:5,output:3"), "2q5 3");
    assert_eq!(run("set_queue:5,output:2,clone(pop_queue,output:3),in_port"), "2q5 3 backq5");
    assert_eq!(run("write_actions(output:2,set_queue:4)"), "2q4", "an action set outputs last");
    // The mask has no bit of the queue, because packets arrive with the default queue.
    let traversal = Switch::new(&["actions=set_queue:5,output:2"]).translate("in_port=1");
    assert_eq!(traversal.mask.field(FieldId::SkbPriority), 0);
}

#[test]
fn a_write_before_a_clone_is_emitted_once() {
    let write = "set_field:02:00:00:00:00:05->eth_src";
    let other = "set_field:02:00:00:00:00:06->eth_dst";
    let run = |actions: &str| Switch::new(&[&format!("actions={actions}")]).run("in_port=1");
    assert_eq!(run(&format!("{write},clone({other}),output:3")), "set(eth_src=20000000005) 3");
    // A field that only the outer clone wrote must be restored after the outer clone.
    let nested = format!("clone({write},output:2,clone({other},output:2)),output:3");
    let expected =
        "set(eth_src=20000000005) 2 set(eth_dst=20000000006) 2 set(eth_src=0,eth_dst=0) 3";
    assert_eq!(run(&nested), expected);
    let nested = format!("clone({write},output:2,clone(output:2)),output:3");
    assert_eq!(run(&nested), "set(eth_src=20000000005) 2 2 set(eth_src=0) 3");
}

#[test]
fn the_actions_of_a_traversal_are_bounded() {
    let error_of = |count| Switch::of_actions(&vec![output(2); count]).translate("ip").error;
    assert_eq!(error_of(1 << 16), None);
    assert_eq!(error_of((1 << 16) + 1).map(|error| error.to_string()).as_deref(), Some(TOO_MANY));
}

#[test]
fn outputs_to_missing_ports_are_bounded() {
    let error_of = |count| Switch::of_actions(&vec![output(99); count]).translate("ip").error;
    assert_eq!(error_of(1 << 16), None);
    assert_eq!(error_of((1 << 16) + 1).map(|error| error.to_string()).as_deref(), Some(TOO_MANY));
}

const TOO_MANY: &str = "the packet needs more than 65536 datapath actions, which is the limit";

#[test]
fn writes_to_an_action_set_are_bounded() {
    let error_of = |count| {
        let load = Action::SetField { field: FieldId::Reg0, value: 1, mask: 1 };
        let switch = Switch::new(&[]);
        let mut rule = crate::build::rule("", vec![]);
        rule.instructions.write = vec![load; count].into();
        switch.make([rule.into()]);
        switch.translate("ip").error.map(|error| error.to_string())
    };
    assert_eq!(error_of(1 << 16), None);
    assert_eq!(error_of((1 << 16) + 1).as_deref(), Some(TOO_MANY));
}

#[test]
fn only_port_accesses_consult_the_fragment_bit() {
    let moved = Action::Move {
        source: Subfield::whole(FieldId::TcpSrc),
        target: Subfield { width: 16, ..Subfield::whole(FieldId::Reg0) },
    };
    for (action, looks) in [
        (moved, 1),
        (Action::SetTpDst(5), 1),
        (Action::FinTimeout { idle: 5, hard: 5 }, 0),
        (Action::SetNwTtl(5), 0),
    ] {
        let switch = Switch::of_actions(std::slice::from_ref(&action));
        let traversal = switch.translate("tcp,tcp_flags=ack");
        assert_eq!(traversal.mask.field(FieldId::NwFrag) & 1, looks, "{action:?}");
        assert_eq!(traversal.visits[0].mask.field(FieldId::NwFrag) & 1, looks, "{action:?}");
    }
}
