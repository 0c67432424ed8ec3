//! Tests of the consulted bits, kind by kind: each test fails if a bit is not recorded.
//!
//! If a mask lacks a consulted bit, a cache entry covers packets that need another result.

use std::{collections::BTreeSet, net::Ipv6Addr};

use shunt_flow::{FieldId, FlowKey, PortNo, layout::word};
use shunt_pipeline::{
    Action, BondCounters, ControllerAction, GroupCommand, GroupKind, HashFields, LacpAdmission,
    MeterId, Mirror, MirrorOutput, MulticastSnooping, MultipathAction, MultipathAlgorithm, Object,
    PacketInReason, PortConfig, PortVlans, Selection, Subfield, Time, Traversal, VlanMode,
};

use crate::{
    bfd::{BFD_PACKET, with_bfd},
    bonds::{LACP_FRAME, ports_with_balancing_bond, with_lacp},
    build::{add_group, group, group_mod, output, rule, weighted},
    dependencies::{NORMAL, assert_reads, assert_whole, consulted_bits, run, run_key},
    learn::learn,
    mirrors::{mirror, set_mirrors, with_vlans},
    multicast,
    switch::{BRIDGE, Switch, key, ports},
};

fn set_field(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

/// Returns a packet with these label stack entries in its key.
fn labelled_packet(entries: [u64; 3]) -> FlowKey {
    let mut key = key("in_port=1,dl_type=0x8847");
    let [first, second, third] = entries;
    key.words_mut()[usize::from(word::MPLS)] = first << 32 | second;
    key.words_mut()[usize::from(word::MPLS_PBB)] = third << 32;
    key
}

/// A label stack entry with label 16 and TTL 64.
const LABEL: u64 = 0x1_0040;
/// The bottom-of-stack bit of a label stack entry.
const BOTTOM: u64 = 0x100;

#[test]
fn matched_bits_are_in_the_mask() {
    let switch = Switch::new(&["tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=output:2"]);
    let traversal = switch.translate("tcp,nw_src=10.0.0.1,tp_dst=80");
    assert_whole(&traversal, &[FieldId::EthType, FieldId::IpProto, FieldId::TcpDst]);
    assert_eq!(consulted_bits(&traversal, FieldId::Ipv4Src), 0xff00_0000);
    let visit = &traversal.visits[0].mask;
    assert_eq!(visit.field(FieldId::TcpDst), 0xffff);
}

#[test]
fn bits_that_exclude_higher_rules_are_consulted() {
    let switch = Switch::new(&[
        "priority=3,in_port=3,actions=drop",
        "priority=2,arp,actions=drop",
        "priority=1,actions=output:2",
    ]);
    assert_whole(&switch.translate("ip,in_port=1"), &[FieldId::InPort, FieldId::EthType]);
    let switch = Switch::new(&[
        "priority=2,ip,nw_dst=10.0.0.0/8,actions=drop",
        "priority=1,actions=output:2",
    ]);
    let traversal = switch.translate("ip,nw_dst=192.168.0.1");
    assert_eq!(
        consulted_bits(&traversal, FieldId::Ipv4Dst),
        0x8000_0000,
        "only the distinguishing bits"
    );
}

#[test]
fn a_lookup_by_ports_consults_the_fragment_bit() {
    let switch = Switch::new(&["tcp,tp_dst=80,actions=output:2"]);
    assert_eq!(consulted_bits(&switch.translate("tcp,tp_dst=80"), FieldId::NwFrag), 1);
    let first = switch.translate("tcp,nw_frag=first");
    assert_eq!(
        [FieldId::NwFrag, FieldId::TcpDst].map(|field| consulted_bits(&first, field)),
        [1, 0]
    );
}

#[test]
fn clauses_of_conjunctions_are_consulted() {
    let switch = Switch::new(&["conj_id=7,actions=output:3"]);
    let clause = |matching: &str, clause| {
        rule(matching, vec![Action::Conjunction { id: 7, clause, clauses_count: 2 }])
    };
    let clauses = [clause("priority=3,ip,nw_src=10.0.0.1", 0), clause("priority=3,in_port=1", 1)];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("the rules are legal");
    let traversal = switch.translate("ip,in_port=1,nw_src=10.0.0.1");
    assert_whole(&traversal, &[FieldId::Ipv4Src, FieldId::InPort]);
    let traversal = switch.translate("ip,in_port=1,nw_src=192.168.0.1");
    assert_eq!(
        consulted_bits(&traversal, FieldId::Ipv4Src),
        0x8000_0000,
        "only the distinguishing bits"
    );
}

#[test]
fn clauses_on_ports_consult_the_fragment_bit() {
    let switch = Switch::new(&["conj_id=7,actions=output:3"]);
    let clause = |matching: &str, clause| {
        rule(matching, vec![Action::Conjunction { id: 7, clause, clauses_count: 2 }])
    };
    let clauses = [clause("priority=3,tcp,tp_dst=80", 0), clause("priority=3,in_port=1", 1)];
    switch.pipeline.apply(BRIDGE, &clauses, Time::ZERO).expect("the rules are legal");
    let traversal = switch.translate("tcp,in_port=1,tp_dst=80");
    assert_eq!(traversal.visits[0].mask.field(FieldId::NwFrag), 1, "where it matches the clauses");
    assert_eq!(consulted_bits(&traversal, FieldId::NwFrag), 1);
}

#[test]
fn bits_consulted_after_resubmit_belong_to_rule() {
    let move_to = |source, target| {
        let [source, target] =
            [source, target].map(|field| Subfield::new(field, 0, 8).expect("bits"));
        Action::Move { source, target }
    };
    let resubmit = Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(1) };
    let actions = vec![
        resubmit,
        move_to(FieldId::EthSrc, FieldId::Reg0),
        move_to(FieldId::EthDst, FieldId::Reg1),
    ];
    let switch = Switch::new(&["table=1,priority=1,conj_id=0,actions=load:5->NXM_OF_ETH_SRC[]"]);
    switch.make([rule("", actions).into()]);
    let first = |switch: &Switch| {
        let visit = switch.translate("ip,in_port=1").visits[0].clone();
        [FieldId::EthSrc, FieldId::EthDst].map(|field| visit.mask.field(field))
    };
    assert_eq!(first(&switch), [0, 0xff], "bits that the other rule wrote are not the packet's");
    // The masks stay the same if table 1 also satisfies a conjunction that has no rule.
    let clause = |clause| {
        let part = Action::Conjunction { id: 7, clause, clauses_count: 2 };
        let matching = ["table=1,priority=3,ip", "table=1,priority=3,in_port=1"];
        rule(matching[usize::from(clause)], vec![part]).into()
    };
    switch.make([clause(0), clause(1)]);
    assert_eq!(switch.translate("ip,in_port=1").visits.len(), 4);
    assert_eq!(first(&switch), [0, 0xff]);
}

#[test]
fn bits_written_earlier_are_in_visit_masks() {
    let switch = Switch::new(&[
        "table=0,actions=resubmit(,1),resubmit(,2)",
        "table=1,actions=load:5->NXM_OF_ETH_SRC[]",
        "table=2,actions=move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7]",
    ]);
    let traversal = switch.translate("in_port=1");
    let masks = traversal.visits.iter().map(|visit| visit.mask.field(FieldId::EthSrc));
    assert_eq!(masks.collect::<Vec<_>>(), [0, 0, 0xff]);
    assert_eq!(consulted_bits(&traversal, FieldId::EthSrc), 0, "a constant of the entry");
}

#[test]
fn each_rule_consults_bits_for_its_own_visit() {
    let switch = Switch::new(&[
        "table=0,actions=resubmit(,1),output:2",
        "table=1,actions=move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7]",
    ]);
    let visits = switch.translate("in_port=1").visits;
    let masks = visits.iter().map(|visit| visit.mask.field(FieldId::EthSrc));
    assert_eq!(masks.collect::<Vec<_>>(), [0, 0xff]);
}

#[test]
fn a_write_consults_the_prerequisites_of_its_field() {
    let traversal = run(&[set_field(FieldId::TcpDst, 5), output(2)], "arp");
    assert_whole(&traversal, &[FieldId::EthType]);
    let traversal = run(&[set_field(FieldId::TcpDst, 5), output(2)], "udp");
    assert_whole(&traversal, &[FieldId::EthType, FieldId::IpProto]);
}

#[test]
fn a_move_consults_its_source() {
    let source = Subfield::new(FieldId::EthSrc, 4, 8).expect("bits");
    let target = Subfield::new(FieldId::EthDst, 0, 8).expect("bits");
    let traversal = run(&[Action::Move { source, target }, output(2)], "in_port=1");
    assert_eq!(consulted_bits(&traversal, FieldId::EthSrc), 0xff0);
    assert_eq!(traversal.visits[0].mask.field(FieldId::EthSrc), 0xff0);
}

#[test]
fn a_push_consults_the_pushed_bits() {
    let source = Subfield::new(FieldId::EthSrc, 4, 8).expect("bits");
    let traversal = run(&[Action::Push(source), output(2)], "in_port=1");
    assert_eq!(consulted_bits(&traversal, FieldId::EthSrc), 0xff0);
}

#[test]
fn an_output_to_a_field_consults_it() {
    let to_field = Action::OutputField { source: Subfield::whole(FieldId::Reg0), max_len: 0 };
    assert_whole(&run(&[to_field], "in_port=1"), &[FieldId::Reg0]);
}

#[test]
fn a_ttl_decrement_consults_the_ttl() {
    let dec = Action::DecTtl { controllers: [0].into() };
    assert_whole(&run(&[dec, output(2)], "ip,nw_ttl=9"), &[FieldId::NwTtl]);
    let traversal =
        run_key(&[Action::DecMplsTtl, output(2)], &labelled_packet([LABEL | BOTTOM, 0, 0]));
    assert_whole(&traversal, &[FieldId::MplsTtl]);
}

#[test]
fn no_recv_port_consults_ingress_port() {
    let switch = Switch::of_actions(&[output(2)]);
    switch.configure(4, PortConfig { no_recv: true, ..PortConfig::default() });
    assert_whole(&switch.translate("in_port=1"), &[FieldId::InPort]);
}

#[test]
fn outputs_consult_a_partly_written_ingress_port() {
    let some = Action::SetField { field: FieldId::InPort, value: 3, mask: 0xff };
    let traversal = run(&[some, output(2)], "in_port=1");
    assert_eq!(consulted_bits(&traversal, FieldId::InPort), 0xffff_ff00);
}

#[test]
fn a_packet_in_consults_the_fields_it_shows() {
    let punt = Action::Controller(Box::new(ControllerAction {
        meter: Some(MeterId::new(9)),
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    }));
    let traversal = run(&[punt], "in_port=1");
    let shown = [FieldId::InPort, FieldId::Metadata, FieldId::Reg0, FieldId::Reg15, FieldId::TunId];
    assert_whole(&traversal, &shown);
    assert_reads(&traversal, Object::Meter(BRIDGE, MeterId::new(9)));
}

#[test]
fn pushes_and_pops_consult_vlan_tags() {
    let pop = run(&[Action::PopVlan, output(2)], "in_port=1");
    assert_eq!(consulted_bits(&pop, FieldId::VlanTci), 0x1000, "the present bit");
    let tagged = |tags| {
        let mut key = key("in_port=1");
        key.words_mut()[usize::from(word::VLAN)] = tags;
        key
    };
    let one = tagged(0x8100_1007 << 32);
    let push = run_key(&[Action::PushVlan { ethertype: 0x8100 }, output(2)], &one);
    let tags = |traversal: &Traversal| traversal.mask.word(usize::from(word::VLAN));
    assert_eq!(tags(&push) >> 32, 0xffff_ffff, "the tag that becomes the inner one");
    let two = tagged(0x88a8_1007_8100_1008);
    let pop = run_key(&[Action::PopVlan, output(2)], &two);
    assert_eq!(tags(&pop), 0x1000_ffff_ffff, "the tag that becomes the outer one");
}

#[test]
fn restoring_a_field_after_a_clone_consults_it() {
    let inner = [set_field(FieldId::EthSrc, 5), output(2)].into();
    let traversal = run(&[Action::Clone(inner), output(3)], "in_port=1");
    assert_whole(&traversal, &[FieldId::EthSrc]);
    assert_eq!(traversal.visits[0].mask.field(FieldId::EthSrc), FieldId::EthSrc.value_max());
}

#[test]
fn restoring_a_tag_after_a_clone_consults_it() {
    let mut tagged = key("in_port=1");
    tagged.words_mut()[usize::from(word::VLAN)] = 0x8100_1007 << 32;
    let inner = [Action::PopVlan, output(2)].into();
    let traversal = run_key(&[Action::Clone(inner), output(3)], &tagged);
    assert_eq!(traversal.mask.word(usize::from(word::VLAN)) >> 32, 0xffff_ffff);
}

#[test]
fn pushes_pops_and_clones_consult_labels() {
    let first = |traversal: &Traversal| traversal.mask.word(usize::from(word::MPLS));
    let third = |traversal: &Traversal| traversal.mask.word(usize::from(word::MPLS_PBB)) >> 32;
    let (push, pop) =
        (Action::PushMpls { ethertype: 0x8847 }, Action::PopMpls { ethertype: 0x8847 });
    let one = labelled_packet([LABEL | BOTTOM, 0, 0]);
    let traversal = run_key(&[push, output(2)], &one);
    assert_eq!(first(&traversal) >> 32, 0xffff_ffff, "the label that is copied");
    let three = labelled_packet([LABEL, LABEL, LABEL | BOTTOM]);
    let traversal = run_key(&[pop.clone(), output(2)], &three);
    assert_eq!((first(&traversal), third(&traversal)), (u64::MAX, 0xffff_ffff));
    let back = [Action::Clone([pop, output(2)].into()), output(3)];
    let traversal = run_key(&back, &labelled_packet([LABEL, LABEL | BOTTOM, 0]));
    assert_eq!(first(&traversal), u64::MAX);
    assert_whole(&traversal, &[FieldId::EthType]);
    let back = [Action::Clone([set_field(FieldId::MplsLabel, 5), output(2)].into()), output(3)];
    let traversal = run_key(&back, &labelled_packet([LABEL | BOTTOM, 0, 0]));
    assert_eq!(first(&traversal) >> 32, 0xffff_ffff, "the label that a clone has rewritten");
}

#[test]
fn the_number_of_labels_is_consulted() {
    // A fourth label is refused for any values of the other labels.
    let push = Action::PushMpls { ethertype: 0x8847 };
    let traversal = run_key(&[push], &labelled_packet([LABEL, LABEL, LABEL]));
    let bottoms = [(word::MPLS, BOTTOM << 32 | BOTTOM), (word::MPLS_PBB, 0)];
    for (word, bits) in bottoms {
        assert_eq!(traversal.mask.word(usize::from(word)) & bits, bits);
    }
    let pop = Action::PopMpls { ethertype: 0x8847 };
    let traversal = run_key(&[pop], &labelled_packet([LABEL, LABEL, LABEL]));
    assert_eq!(traversal.mask.word(usize::from(word::MPLS_PBB)), BOTTOM << 32);
}

#[test]
fn a_select_group_consults_the_connection() {
    let switch = Switch::new(&[]);
    let buckets = (2..=3).map(|port| weighted(1, vec![output(port)])).collect();
    switch.make([add_group(1, GroupKind::Select, buckets), rule("", vec![group(1)]).into()]);
    let traversal = switch.translate("tcp,nw_src=10.0.0.1");
    let fields = [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst];
    assert_whole(&traversal, &fields);
    assert_whole(&traversal, &[FieldId::IpProto]);
    assert_eq!(consulted_bits(&traversal, FieldId::NwFrag) & 1, 1, "a fragment has no ports");
    let arp = switch.translate("arp");
    assert_whole(&arp, &[FieldId::EthSrc, FieldId::EthDst, FieldId::EthType]);
}

#[test]
fn a_select_group_consults_its_hash_fields() {
    let switch = Switch::new(&[]);
    let buckets = (2..=3).map(|port| weighted(1, vec![output(port)])).collect();
    let mut request = group_mod(GroupCommand::Add, 1, GroupKind::Select, buckets);
    request.selection = Selection::Fields { basis: 7, fields: [(FieldId::EthSrc, 0xff)].into() };
    switch.make([request.into(), rule("", vec![group(1)]).into()]);
    assert_eq!(consulted_bits(&switch.translate("in_port=1"), FieldId::EthSrc), 0xff);
}

#[test]
fn multipath_consults_the_fields_that_it_hashes() {
    let multipath = Action::Multipath(Box::new(MultipathAction {
        fields: HashFields::EthSrc,
        basis: 0,
        algorithm: MultipathAlgorithm::ModuloN,
        link_max: 3,
        argument: 0,
        target: Subfield::new(FieldId::Reg0, 0, 8).expect("bits"),
    }));
    assert_whole(&run(&[multipath, output(2)], "in_port=1"), &[FieldId::EthSrc]);
}

#[test]
fn an_untagged_packet_consults_few_type_bits() {
    // One bit proves that the Ethernet type differs from a tag type; one bit may serve for both tag
    // types.
    for (ethertype, bits) in [(0x0800, 0x8000), (0x88cc, 0x0840), (0x88a8, 0xffff)] {
        let traversal = run(&[NORMAL], &format!("in_port=1,dl_type={ethertype:#x}"));
        assert_eq!(consulted_bits(&traversal, FieldId::EthType), bits, "{ethertype:#x}");
    }
    let tagged = run(&[NORMAL], "in_port=1,vlan_tci=0x1005,dl_type=0x8100");
    assert_eq!(consulted_bits(&tagged, FieldId::EthType), 0, "the tag exists");
}

#[test]
fn normal_consults_port_addresses_and_vlan() {
    let packet = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
    let traversal = run(&[NORMAL], packet);
    assert_whole(&traversal, &[FieldId::InPort, FieldId::EthSrc, FieldId::EthDst]);
    assert_eq!(traversal.mask.word(usize::from(word::VLAN)), u64::MAX);
}

#[test]
fn a_flood_to_a_bond_consults_the_vlan() {
    let flood = Action::Output { port: PortNo::FLOOD, max_len: 0 };
    let vlan = |switch: &Switch| switch.translate("in_port=3").mask.word(usize::from(word::VLAN));
    let switch = Switch::of_actions(&[flood]);
    assert_eq!(vlan(&switch), 0, "without a bond");
    switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
    assert_eq!(vlan(&switch), u64::MAX);
    assert_whole(&switch.translate("in_port=3"), &[FieldId::EthSrc]);
}

#[test]
fn an_announcement_consults_its_arp_fields() {
    let switch = Switch::of_actions(&[NORMAL]);
    switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
    let to_all = "in_port=3,dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff";
    assert_whole(&switch.translate(&format!("{to_all},ip")), &[FieldId::EthType]);
    let request = switch.translate(&format!("{to_all},arp,arp_op=1"));
    let fields = [FieldId::EthType, FieldId::ArpOp, FieldId::ArpSpa, FieldId::ArpTpa];
    assert_whole(&request, &fields);
    let reply = switch.translate(&format!("{to_all},arp,arp_op=2"));
    assert_whole(&reply, &[FieldId::EthType, FieldId::ArpOp]);
}

#[test]
fn copy_for_vlan_consults_inner_tag() {
    let switch = Switch::of_actions(&[output(2)]);
    with_vlans(
        &switch,
        [VlanMode::Access(5), VlanMode::Trunk, VlanMode::Access(9), VlanMode::Trunk],
    );
    let to_9 = Mirror { output: MirrorOutput::Vlan(9), ..mirror(&["p1"], &[]) };
    set_mirrors(&switch, &[to_9]);
    let traversal = switch.translate("in_port=1");
    // An access port sends no copy of a packet with a second tag.
    assert_eq!(traversal.mask.word(usize::from(word::VLAN)) & 0xfff, 0xfff);
}

#[test]
fn a_copy_for_cvlans_consults_the_inner_tag() {
    let switch = Switch::of_actions(&[output(2)]);
    let to_9 = Mirror { output: MirrorOutput::Vlan(9), ..mirror(&["p1"], &[]) };
    set_mirrors(&switch, &[to_9]);
    let consulted = |cvlans: Option<BTreeSet<u16>>| {
        let mut all = ports();
        let mode = VlanMode::Dot1qTunnel(9);
        all[2].vlans = PortVlans { mode, cvlans, ..PortVlans::default() };
        switch.set_ports(all);
        let traversal = switch.translate("in_port=1,vlan_tci=0x1005");
        traversal.mask.word(usize::from(word::VLAN)) & 0xfff
    };
    assert_eq!(consulted(None), 0, "the port sends all customer VLANs");
    assert_eq!(consulted(Some([5].into())), 0xfff);
}

#[test]
fn learn_consults_the_sources_of_its_values() {
    let traversal = run(&[learn(|_| {})], "in_port=3,dl_dst=02:00:00:00:00:02");
    assert_whole(&traversal, &[FieldId::EthDst, FieldId::InPort]);
}

#[test]
fn fin_timeout_consults_fin_and_rst() {
    let fin = Action::FinTimeout { idle: 5, hard: 5 };
    let traversal = run(&[fin, output(2)], "tcp,tcp_flags=ack");
    assert_eq!(consulted_bits(&traversal, FieldId::TcpFlags), 0b101);
}

#[test]
fn a_recirculation_consults_all_carried_state() {
    let pop = Action::PopMpls { ethertype: 0x0800 };
    let actions = [pop, set_field(FieldId::NwTtl, 5), output(2)];
    let traversal = run_key(&actions, &labelled_packet([LABEL | BOTTOM, 0, 0]));
    let live = [FieldId::Reg0, FieldId::Reg15, FieldId::Metadata, FieldId::TunId];
    assert_whole(&traversal, &live);
    assert_eq!(consulted_bits(&traversal, FieldId::InPort), 0, "the packet has the register");
}

#[test]
fn a_recirculation_consults_a_partly_written_port() {
    let some = Action::SetField { field: FieldId::InPort, value: 3, mask: 0xff };
    let pop = Action::PopMpls { ethertype: 0x0800 };
    let actions = [some, pop, set_field(FieldId::NwTtl, 5)];
    let traversal = run_key(&actions, &labelled_packet([LABEL | BOTTOM, 0, 0]));
    assert_eq!(consulted_bits(&traversal, FieldId::InPort), 0xffff_ff00);
}

#[test]
fn a_length_check_consults_all_carried_state() {
    let target = Subfield::new(FieldId::Reg1, 0, 1).expect("a bit");
    let check = Action::CheckPktLarger { length: 100, target };
    let traversal = run(&[check, output(2)], "in_port=1");
    assert_whole(&traversal, &[FieldId::Reg0, FieldId::Reg1, FieldId::Metadata]);
}

#[test]
fn lacp_frame_consults_type_address_port() {
    let switch = Switch::of_actions(&[output(3)]);
    switch.set_ports(with_lacp(LacpAdmission::All));
    let frame = switch.translate(LACP_FRAME);
    assert_whole(&frame, &[FieldId::EthType, FieldId::EthDst, FieldId::InPort]);
    assert_whole(
        &switch.translate(&LACP_FRAME.replace("c2:00:00:02", "c2:00:00:01")),
        &[FieldId::EthType, FieldId::EthDst],
    );
    let other = switch.translate("ip,in_port=1");
    assert_whole(&other, &[FieldId::EthType]);
    assert_eq!(consulted_bits(&other, FieldId::EthDst), 0);
}

#[test]
fn a_multicast_packet_consults_its_group() {
    let switch = multicast::switch(MulticastSnooping::default());
    let masked = |key: &FlowKey| switch.pipeline.translate(key, switch.pipeline.version());
    let group = masked(&multicast::packet(1, multicast::GROUP));
    assert_whole(&group, &[FieldId::EthType, FieldId::IpProto, FieldId::Ipv4Dst]);
    assert_eq!(consulted_bits(&group, FieldId::TcpSrc), 0);
    let report = masked(&multicast::message(1, multicast::GROUP, 0x16));
    assert_whole(&report, &[FieldId::EthType, FieldId::IpProto, FieldId::IcmpType]);
    assert_eq!(consulted_bits(&report, FieldId::Ipv4Dst), 0);
    let group_v6 = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 1);
    let group = masked(&multicast::packet_v6(1, group_v6, None));
    assert_whole(&group, &[FieldId::EthType, FieldId::IpProto, FieldId::Ipv6Dst]);
    let report = masked(&multicast::packet_v6(1, group_v6, Some(131)));
    assert_whole(&report, &[FieldId::IpProto, FieldId::Icmpv6Type]);
    let other = masked(&key("arp,in_port=1,dl_dst=01:00:5e:01:01:01"));
    assert_whole(&other, &[FieldId::EthType]);
    assert_eq!(consulted_bits(&other, FieldId::IpProto), 0);
    let unicast = masked(&key("udp,in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b"));
    assert_eq!(consulted_bits(&unicast, FieldId::IpProto), 0);
}

#[test]
fn bfd_packet_consults_protocol_port_and_address() {
    let switch = Switch::of_actions(&[output(3)]);
    switch.set_ports(with_bfd(Some([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]), true));
    let packet = switch.translate(BFD_PACKET);
    assert_whole(&packet, &[FieldId::EthType, FieldId::IpProto, FieldId::UdpDst]);
    assert_whole(&packet, &[FieldId::NwTtl, FieldId::InPort, FieldId::EthDst]);
    let other = switch.translate(&BFD_PACKET.replace("00:01", "00:03"));
    assert_eq!(consulted_bits(&other, FieldId::EthDst), 2, "one bit differs");
    assert_whole(&other, &[FieldId::UdpDst, FieldId::NwTtl, FieldId::InPort]);
}

#[test]
fn a_remote_bfd_packet_consults_one_ttl_bit() {
    let switch = Switch::of_actions(&[output(3)]);
    switch.set_ports(with_bfd(None, true));
    for (ttl, bit) in [(254, 1), (247, 1 << 3), (127, 1 << 7), (1, 1 << 7)] {
        let remote = switch.translate(&BFD_PACKET.replace("ttl=255", &format!("ttl={ttl}")));
        assert_whole(&remote, &[FieldId::EthType, FieldId::IpProto, FieldId::UdpDst]);
        assert_eq!(consulted_bits(&remote, FieldId::NwTtl), bit, "TTL {ttl}");
        assert_eq!(consulted_bits(&remote, FieldId::InPort), 0);
    }
}

#[test]
fn other_udp_ports_consult_one_bfd_bit() {
    let switch = Switch::of_actions(&[output(3)]);
    switch.set_ports(with_bfd(None, true));
    for (port, bit) in [(3785, 1), (53, 1 << 11), (4789, 1 << 12), (50_000, 1 << 15)] {
        let other = switch.translate(&BFD_PACKET.replace("3784", &format!("{port}")));
        assert_whole(&other, &[FieldId::EthType, FieldId::IpProto]);
        assert_eq!(consulted_bits(&other, FieldId::UdpDst), bit, "port {port}");
        assert_eq!(consulted_bits(&other, FieldId::NwTtl), 0);
        assert_eq!(consulted_bits(&other, FieldId::InPort), 0);
    }
    let tcp = switch.translate("tcp,in_port=1,tp_dst=3784");
    assert_whole(&tcp, &[FieldId::EthType, FieldId::IpProto]);
    assert_eq!(consulted_bits(&tcp, FieldId::TcpDst), 0);
    let arp = switch.translate("arp,in_port=1");
    assert_eq!(consulted_bits(&arp, FieldId::IpProto), 0);
}
