//! Tests of groups, `multipath` and `bundle` with packets.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, PortNo};
use shunt_pipeline::{
    Action, Bucket, BundleAction, BundleAlgorithm, DatapathAction, FlowModCommand, GroupCommand,
    GroupId, GroupKind, HashFields, MultipathAction, MultipathAlgorithm, Object, PacketInReason,
    PortConfig, Selection, Subfield, Time,
};

use crate::{
    build::{add_group, bucket, group, group_mod, output, rule, watching, weighted},
    switch::{BRIDGE, Switch, describe, request},
};

/// Returns a switch that sends every packet to group 1.
fn to_group(kind: GroupKind, buckets: Vec<Bucket>) -> Switch {
    let switch = Switch::new(&[]);
    switch.make([add_group(1, kind, buckets), rule("", vec![group(1)]).into()]);
    switch
}

fn set_field(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

fn take_link_down(switch: &Switch, number: u32) {
    let mut ports = switch.infos();
    ports.iter_mut().filter(|port| port.number == PortNo::new(number)).for_each(|port| {
        port.link_up = false;
    });
    switch.set_ports(ports);
}

/// Returns a packet of connection `number`.
fn connection(number: u32) -> String {
    format!("tcp,nw_src=10.0.0.1,nw_dst=10.0.{}.2,tp_src={},tp_dst=80", number % 7, 1000 + number)
}

/// Returns the number of connections for each result.
fn shares(switch: &Switch, connections: u32) -> BTreeMap<String, u32> {
    let mut shares = BTreeMap::new();
    for number in 0..connections {
        *shares.entry(switch.run(&connection(number))).or_insert(0) += 1;
    }
    shares
}

#[test]
fn buckets_of_all_have_own_copies() {
    let rewriting = |ttl, port| bucket(vec![output(port), set_field(FieldId::NwTtl, ttl)]);
    let switch = to_group(GroupKind::All, vec![rewriting(9, 2), bucket(vec![output(3)])]);
    switch.send(FlowModCommand::Delete, "").expect("legal");
    switch.make([rule("ip", vec![group(1), output(4)]).into()]);
    assert_eq!(switch.run("ip,nw_ttl=64"), "set(nw_ttl=9) 2 set(nw_ttl=40) 3 4");
}

#[test]
fn bucket_runs_in_order_of_action_set() {
    let actions = vec![
        output(2),
        Action::Resubmit { port: None, table: None },
        output(3),
        set_field(FieldId::DlVlan, 5),
        Action::PushVlan { ethertype: 0x88a8 },
        Action::Note([1].into()),
    ];
    let switch = to_group(GroupKind::Indirect, vec![bucket(actions)]);
    assert_eq!(switch.run("ip"), "push(88a8,1005) 3");
    let silent = to_group(
        GroupKind::Indirect,
        vec![bucket(vec![Action::DecTtl { controllers: [0].into() }])],
    );
    assert_eq!(silent.run("ip,nw_ttl=1"), "", "an empty group is not executed");
}

#[test]
fn group_wins_over_output_in_action_set() {
    for written in [vec![group(1), output(4)], vec![output(4), group(1)]] {
        let switch = Switch::new(&[]);
        let mut rule = rule("", vec![]);
        rule.instructions.write = written.into();
        switch.make([add_group(1, GroupKind::All, vec![bucket(vec![output(2)])]), rule.into()]);
        assert_eq!(switch.run("ip"), "2");
    }
}

#[test]
fn exit_and_an_expired_ttl_end_one_bucket() {
    let resubmit = Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(1) };
    let dec_ttl = Action::DecTtl { controllers: [].into() };
    let buckets =
        vec![bucket(vec![resubmit]), bucket(vec![dec_ttl, output(2)]), bucket(vec![output(3)])];
    let switch = to_group(GroupKind::All, buckets);
    switch.make([rule("table=1", vec![output(1), Action::Exit, output(2)]).into()]);
    assert_eq!(switch.run("ip,in_port=4,nw_ttl=1"), "1 3");
}

#[test]
fn fast_failover_uses_the_first_live_bucket() {
    let buckets = vec![
        watching(2, vec![output(2)]),
        watching(3, vec![output(3)]),
        watching(9, vec![output(1)]),
    ];
    let switch = to_group(GroupKind::FastFailover, buckets);
    assert_eq!(switch.run("ip,in_port=4"), "2");
    take_link_down(&switch, 2);
    assert_eq!(switch.run("ip,in_port=4"), "3");
    switch.configure(3, PortConfig { port_down: true, ..PortConfig::default() });
    assert_eq!(switch.run("ip,in_port=4"), "");
    assert!(switch.translate("ip,in_port=4").group_hits.is_empty(), "nothing was chosen");
}

#[test]
fn a_bucket_is_live_while_its_group_is() {
    let switch = Switch::new(&[]);
    let watch =
        |group| Bucket { watch_group: Some(GroupId::new(group)), ..bucket(vec![output(2)]) };
    switch.make([
        add_group(3, GroupKind::FastFailover, vec![watching(3, vec![])]),
        add_group(2, GroupKind::FastFailover, vec![watch(3)]),
        add_group(1, GroupKind::FastFailover, vec![watch(2), watching(4, vec![output(4)])]),
        rule("", vec![group(1)]).into(),
    ]);
    let reads = switch.translate("ip").reads;
    assert!((1..=3).all(|id| reads.contains(&Object::Group(BRIDGE, GroupId::new(id)))));
    assert_eq!(switch.run("ip"), "2");
    take_link_down(&switch, 3);
    assert_eq!(switch.run("ip"), "4");
    let bare = vec![watching(1, vec![])];
    switch.make([group_mod(GroupCommand::Modify, 3, GroupKind::FastFailover, bare).into()]);
    assert_eq!(switch.run("ip"), "2");
    switch.make([group_mod(GroupCommand::Delete, 3, GroupKind::All, vec![]).into()]);
    assert_eq!(switch.run("ip"), "4");
}

#[test]
fn reference_to_removed_group_has_no_effect() {
    let switch = Switch::new(&[]);
    switch.make([add_group(2, GroupKind::Indirect, vec![bucket(vec![output(2)])])]);
    let both = vec![bucket(vec![group(2)]), bucket(vec![output(3)])];
    switch.make([add_group(1, GroupKind::All, both), rule("", vec![group(1)]).into()]);
    assert_eq!(switch.run("ip"), "2 3");
    switch.make([group_mod(GroupCommand::Delete, 2, GroupKind::All, vec![]).into()]);
    assert_eq!(switch.run("ip"), "3");
}

#[test]
fn the_depth_of_group_chains_is_limited() {
    let switch = Switch::new(&[]);
    let end = [add_group(100, GroupKind::Indirect, vec![bucket(vec![output(2)])])];
    let chain = (1..100)
        .rev()
        .map(|id| add_group(id, GroupKind::Indirect, vec![bucket(vec![group(id + 1)])]));
    switch.make(end.into_iter().chain(chain));
    switch.make([rule("tcp", vec![group(1)]).into(), rule("udp", vec![group(50)]).into()]);
    assert_eq!(switch.run("udp"), "2");
    assert_eq!(
        switch.run("tcp"),
        "the packet goes through more than 64 nested resubmits, buckets, patch ports or copies, \
         which is the limit"
    );
}

#[test]
fn buckets_that_multiply_are_stopped() {
    let switch = Switch::new(&[]);
    let twice = |to| vec![bucket(vec![group(to)]), bucket(vec![group(to)])];
    let end = [add_group(40, GroupKind::All, vec![])];
    let chain = (1..40).rev().map(|id| add_group(id, GroupKind::All, twice(id + 1)));
    switch.make(end.into_iter().chain(chain));
    switch.make([rule("", vec![group(1)]).into()]);
    assert_eq!(switch.run("ip"), "the packet needs more than 4096 resubmits, which is the limit");
}

#[test]
fn select_uses_buckets_by_weight() {
    let buckets =
        [(1, 2), (3, 3), (0, 4)].map(|(weight, port)| weighted(weight, vec![output(port)]));
    let switch = to_group(GroupKind::Select, buckets.to_vec());
    let shares = shares(&switch, 2000);
    assert_eq!(shares.len(), 2, "a bucket without weight is never taken: {shares:?}");
    assert!((430..570).contains(&shares["2"]), "{shares:?}");
}

#[test]
fn dead_select_bucket_moves_own_packets() {
    let watch = |port| Bucket { weight: 1, ..watching(port, vec![output(port)]) };
    let switch = to_group(GroupKind::Select, vec![watch(2), watch(3), watch(4)]);
    let run = |number| switch.run(&connection(number));
    let before: Vec<_> = (0..200).map(run).collect();
    take_link_down(&switch, 3);
    for (number, old) in (0..200).zip(before) {
        let new = run(number);
        assert!(if old == "3" { new != "3" } else { new == old });
    }
    [2, 4].iter().for_each(|port| take_link_down(&switch, *port));
    assert_eq!(run(1), "");
}

#[test]
fn both_directions_of_a_connection_take_one_bucket() {
    let buckets = (2..=4).map(|port| weighted(1, vec![output(port)])).collect();
    let switch = to_group(GroupKind::Select, buckets);
    for port in 1000..1050 {
        let there = format!(
            "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src={port},tp_dst=80,dl_src=02:00:00:00:00:01"
        );
        let back = format!(
            "tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=80,tp_dst={port},nw_ttl=9,in_port=1"
        );
        assert_eq!(switch.run(&there), switch.run(&back));
    }
    let mask = switch.translate("tcp,nw_src=10.0.0.1").mask;
    assert_eq!((mask.field(FieldId::EthSrc), mask.field(FieldId::NwTtl)), (0, 0));
    assert_eq!((mask.field(FieldId::Ipv4Src), mask.field(FieldId::TcpDst)), (0xffff_ffff, 0xffff));
    let arp = switch.translate("arp").mask;
    assert_eq!((arp.field(FieldId::ArpSpa), arp.field(FieldId::EthDst)), (0, 0xffff_ffff_ffff));
}

#[test]
fn all_fragments_of_a_packet_take_one_bucket() {
    let buckets = (2..=4).map(|port| weighted(1, vec![output(port)])).collect();
    let switch = to_group(GroupKind::Select, buckets);
    for host in 0..50 {
        let packet = |rest| format!("udp,nw_src=10.0.0.1,nw_dst=10.0.0.{host},{rest}");
        let first = switch.run(&packet("nw_frag=first"));
        assert_eq!(first, switch.run(&packet("nw_frag=later")));
    }
}

#[test]
fn select_by_fields_consults_only_those() {
    let switch = Switch::new(&[]);
    let buckets = (2..=4).map(|port| weighted(1, vec![output(port)])).collect();
    let mut request = group_mod(GroupCommand::Add, 1, GroupKind::Select, buckets);
    let fields = [(FieldId::Ipv4Src, 0xff), (FieldId::TcpSrc, 0xffff)];
    request.selection = Selection::Fields { basis: 7, fields: fields.into() };
    switch.make([request.into(), rule("", vec![group(1)]).into()]);
    let mask = switch.translate("tcp,nw_src=10.0.0.1").mask;
    assert_eq!((mask.field(FieldId::Ipv4Src), mask.field(FieldId::Ipv4Dst)), (0xff, 0));
    let runs = (1..50).map(|host| switch.run(&format!("udp,nw_src=10.0.0.{host}")));
    assert_eq!(runs.collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_eq!(switch.translate("arp").mask.field(FieldId::ArpSpa), 0);
}

#[test]
fn hits_count_for_a_group_and_its_buckets() {
    let switch = Switch::new(&[]);
    let failover = vec![watching(9, vec![]), watching(3, vec![output(3)])];
    switch.make([
        add_group(2, GroupKind::FastFailover, failover),
        add_group(1, GroupKind::All, vec![bucket(vec![output(2)]), bucket(vec![group(2)])]),
        rule("", vec![group(1)]).into(),
    ]);
    switch.pipeline.credit(&switch.translate("ip"), 3, 180, Time::ZERO);
    let counted = |index: usize| {
        let stats = &switch.pipeline.groups(BRIDGE)[index].stats;
        let buckets: Vec<_> = stats.bucket_totals().iter().map(|totals| totals.packets).collect();
        (stats.totals().packets, stats.totals().bytes, buckets)
    };
    assert_eq!((counted(0), counted(1)), ((3, 180, vec![3, 3]), (3, 180, vec![0, 3])));
}

#[test]
fn a_packet_in_shows_its_rule() {
    let reason = |switch: &Switch| {
        let actions = switch.translate("ip").actions;
        let [DatapathAction::Punt(punt)] = &actions[..] else { panic!("{actions:?}") };
        punt.reason
    };
    let to_controller = || Action::Output { port: PortNo::CONTROLLER, max_len: 99 };
    let miss = |actions| {
        let mut miss = rule("priority=0", vec![]);
        miss.instructions.apply = actions;
        miss
    };
    let switch = Switch::new(&[]);
    switch.make([
        add_group(1, GroupKind::Indirect, vec![bucket(vec![to_controller()])]),
        miss([group(1)].into()).into(),
    ]);
    assert_eq!(reason(&switch), PacketInReason::Group);
    let mut in_set = miss([].into());
    in_set.instructions.write = [to_controller()].into();
    switch.make([in_set.into()]);
    assert_eq!(reason(&switch), PacketInReason::ActionSet);
    let resubmit = Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(1) };
    let second = request(FlowModCommand::Add, "table=1,priority=0,actions=controller");
    switch.make([
        group_mod(GroupCommand::Modify, 1, GroupKind::Indirect, vec![bucket(vec![resubmit])])
            .into(),
        miss([group(1)].into()).into(),
        second.into(),
    ]);
    assert_eq!(reason(&switch), PacketInReason::NoMatch);
}

fn bundle(algorithm: BundleAlgorithm, members: &[u32], target: Option<Subfield>) -> Action {
    let members = members.iter().map(|port| PortNo::new(*port)).collect();
    let fields = HashFields::SymmetricL4;
    Action::Bundle(Box::new(BundleAction { fields, basis: 0, algorithm, members, target }))
}

#[test]
fn active_backup_takes_the_first_live_port() {
    let switch = Switch::of_actions(&[bundle(BundleAlgorithm::ActiveBackup, &[9, 3, 2], None)]);
    assert_eq!(switch.run("ip,in_port=4"), "3");
    assert_eq!(switch.translate("ip,in_port=4").mask.field(FieldId::EthSrc), 0);
    take_link_down(&switch, 3);
    assert_eq!(switch.run("ip,in_port=4"), "2");
    take_link_down(&switch, 2);
    assert_eq!(switch.run("ip,in_port=4"), "");
}

#[test]
fn bundle_load_writes_the_chosen_port() {
    let target = Subfield::whole(FieldId::Reg0);
    let load = bundle(BundleAlgorithm::HighestRandomWeight, &[3], Some(target));
    let output = Action::OutputField { source: target, max_len: 0 };
    let switch = Switch::of_actions(&[load, output]);
    assert_eq!(switch.run("ip,in_port=4"), "3");
    take_link_down(&switch, 3);
    assert_eq!(switch.run("ip,in_port=4"), "");
    let punted = bundle(BundleAlgorithm::ActiveBackup, &[], Some(target));
    let to_controller = Action::Output { port: PortNo::CONTROLLER, max_len: 99 };
    let actions = Switch::of_actions(&[punted, to_controller]).translate("ip").actions;
    let [DatapathAction::Punt(punt)] = &actions[..] else { panic!("{}", describe(&actions)) };
    assert_eq!(punt.metadata.key().field(FieldId::Reg0), 0xffff);
}

#[test]
fn down_port_moves_only_own_connections() {
    let members = [2, 3, 4];
    let switch =
        Switch::of_actions(&[bundle(BundleAlgorithm::HighestRandomWeight, &members, None)]);
    let run = |number| switch.run(&format!("in_port=LOCAL,{}", connection(number)));
    let before: Vec<_> = (0..300).map(run).collect();
    for port in ["2", "3", "4"] {
        assert!(before.iter().filter(|run| *run == port).count() > 70);
    }
    take_link_down(&switch, 2);
    for (number, old) in (0..300).zip(before) {
        assert!(if old == "2" { run(number) != "2" } else { run(number) == old });
    }
}

#[test]
fn bundle_load_writes_the_bits_that_it_names() {
    let target = Subfield { field: FieldId::Reg0, offset: 4, width: 16 };
    let load = bundle(BundleAlgorithm::ActiveBackup, &[3], Some(target));
    let switch = Switch::of_actions(&[load, Action::OutputField { source: target, max_len: 0 }]);
    assert_eq!(switch.run("ip,in_port=4"), "3");
}

#[test]
fn reserved_members_are_live_except_the_controller() {
    let first_of = |port: PortNo| {
        let members = [port.number(), 2];
        Switch::of_actions(&[bundle(BundleAlgorithm::ActiveBackup, &members, None)]).run("ip")
    };
    assert_eq!(first_of(PortNo::IN_PORT), "back");
    assert_eq!(first_of(PortNo::ALL), "1 2 3 4 100");
    assert_eq!(first_of(PortNo::CONTROLLER), "2");
}

#[test]
fn multipath_writes_the_bits_that_it_names() {
    let target = Subfield { field: FieldId::Reg0, offset: 4, width: 8 };
    let multipath = Action::Multipath(Box::new(MultipathAction {
        fields: HashFields::SymmetricL4,
        basis: 0,
        algorithm: MultipathAlgorithm::ModuloN,
        link_max: 3,
        argument: 0,
        target,
    }));
    let output = Action::OutputField { source: target, max_len: 0 };
    let switch = Switch::of_actions(&[multipath, output]);
    let results = shares(&switch, 100);
    assert!(results.keys().eq(["", "1", "2", "3"]), "{results:?}");
}

#[test]
fn actions_after_a_group_belong_to_the_rule() {
    let switch = Switch::new(&[]);
    let punt = Action::Output { port: PortNo::CONTROLLER, max_len: 99 };
    switch.make([
        add_group(1, GroupKind::Indirect, vec![bucket(vec![output(2)])]),
        rule("priority=1,cookie=9", vec![group(1), punt]).into(),
    ]);
    assert_eq!(switch.run("ip"), "2 punt(Action,table=0,cookie=0x9)");
}

#[test]
fn widely_watched_group_is_checked_once() {
    let switch = Switch::new(&[]);
    let watcher = |group| Bucket { watch_group: Some(GroupId::new(group)), ..bucket(vec![]) };
    let last = add_group(60, GroupKind::FastFailover, vec![watching(9, vec![])]);
    let others = (1..60).rev().map(|number| {
        let buckets = vec![watcher(number + 1), watcher(number + 1)];
        add_group(number, GroupKind::FastFailover, buckets)
    });
    switch.make([last].into_iter().chain(others).chain([rule("", vec![group(1)]).into()]));
    assert_eq!(switch.run("ip"), "");
}

#[test]
fn fields_that_choose_a_bucket_are_always_consulted() {
    let buckets = (2..=4).map(|port| weighted(1, vec![output(port)])).collect();
    let switch = to_group(GroupKind::Select, buckets);
    let mask = |packet| switch.translate(packet).mask;
    let addresses = [FieldId::Ipv6Src, FieldId::Ipv6Dst];
    assert_eq!(addresses.map(|field| mask("tcp6").field(field)), [u128::MAX; 2]);
    assert_eq!(addresses.map(|field| mask("arp").field(field)), [0; 2]);
    assert_eq!(mask("tcp,nw_frag=first").field(FieldId::NwFrag) & 1, 1, "a fragment has no ports");
}
