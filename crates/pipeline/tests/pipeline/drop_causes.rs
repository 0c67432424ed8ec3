//! Tests of the cause of a drop, and of the decisions that rules do not show.

use shunt_flow::layout::word;
use shunt_pipeline::{
    Action, DropCause, Explanation, GroupKind, NotedDecision, PortConfig, PortVlans, Time, VlanMode,
};

use crate::{
    build::{add_group, group, output, rule},
    switch::{Switch, key, ports},
};

const A_TO_B: &str = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";

fn drop_cause(switch: &Switch, packet: &str) -> DropCause {
    let traversal = switch.translate(packet);
    assert!(traversal.actions.is_empty(), "{packet}: {:?}", traversal.actions);
    traversal.drop_cause
}

/// Returns the noted decisions of a packet, each with the index of its visit.
fn decisions(switch: &Switch, packet: &str) -> Vec<(Option<usize>, NotedDecision)> {
    let explained = switch.pipeline.explain_at_newest_version(&key(packet), None);
    explained.notes.into_iter().map(|note| (note.visit, note.decision)).collect()
}

#[test]
fn table_miss_differs_from_rule_without_output() {
    let switch = Switch::new(&[
        "in_port=2,actions=drop",
        "in_port=3,actions=resubmit(,1),resubmit(,2)",
        "table=1,actions=drop",
    ]);
    assert_eq!(drop_cause(&switch, "in_port=1"), DropCause::NoMatchingRule);
    assert_eq!(drop_cause(&switch, "in_port=2"), DropCause::RuleWithoutOutput);
    assert_eq!(
        drop_cause(&switch, "in_port=3"),
        DropCause::NoMatchingRule,
        "the last lookup decides"
    );
}

#[test]
fn port_settings_are_drop_causes() {
    let switch = Switch::new(&[
        "in_port=1,actions=output:2",
        "in_port=2,actions=output:77",
        "in_port=3,actions=load:2->NXM_OF_IN_PORT[],output:2",
    ]);
    switch.configure(4, PortConfig { no_recv: true, ..PortConfig::default() });
    assert_eq!(drop_cause(&switch, "in_port=4"), DropCause::IngressPortDisabled);
    assert_eq!(drop_cause(&switch, "in_port=2"), DropCause::OutputPortMissing);
    assert_eq!(drop_cause(&switch, "in_port=3"), DropCause::Hairpin);
    switch.configure(2, PortConfig { port_down: true, ..PortConfig::default() });
    assert_eq!(drop_cause(&switch, "in_port=1"), DropCause::OutputPortDisabled);
}

#[test]
fn expired_ttls_and_empty_groups_are_drop_causes() {
    let switch = Switch::new(&[]);
    let rules = [
        add_group(1, GroupKind::FastFailover, Vec::new()),
        rule("in_port=1", vec![group(1)]).into(),
        rule("in_port=2,ip", vec![Action::DecTtl { controllers: [].into() }, output(3)]).into(),
    ];
    switch.make(rules);
    assert_eq!(drop_cause(&switch, "in_port=1"), DropCause::NoLiveBucket);
    assert_eq!(drop_cause(&switch, "in_port=2,ip,nw_ttl=1"), DropCause::TtlExpired);
}

/// Returns a switch that runs NORMAL for every packet.
///
/// Port 1 is in VLAN 5, port 2 is in VLAN 6, and the other ports are trunks of VLAN 7.
fn normal() -> Switch {
    let switch = Switch::new(&["actions=NORMAL"]);
    let mut all = ports();
    for (port, vlan) in all.iter_mut().zip([5, 6]) {
        port.vlans = PortVlans { mode: VlanMode::Access(vlan), ..PortVlans::default() };
    }
    let only_7 = PortVlans { trunks: Some([7].into()), ..PortVlans::default() };
    all.iter_mut().skip(2).for_each(|port| port.vlans = only_7.clone());
    switch.set_ports(all);
    switch
}

#[test]
fn normal_names_the_drop_cause() {
    let switch = normal();
    let port = shunt_flow::PortNo::new(1);
    let mut tagged = key(A_TO_B);
    tagged.words_mut()[usize::from(word::VLAN)] = 0x8100_1005 << 32;
    let Explanation { traversal, notes, .. } =
        switch.pipeline.explain_at_newest_version(&tagged, None);
    let mode = VlanMode::Access(5);
    assert_eq!(traversal.drop_cause, DropCause::VlanNotAllowed);
    assert_eq!(notes[0].decision, NotedDecision::VlanNotAllowed { port, vlan: 5, mode });

    let reserved = A_TO_B.replace("02:00:00:00:00:0b", "01:80:c2:00:00:0e");
    assert_eq!(drop_cause(&switch, &reserved), DropCause::ReservedDestination);
    assert_eq!(
        drop_cause(&switch, &format!("{A_TO_B},dl_type=0x8100")),
        DropCause::UnparsedVlanTag
    );
    let own = A_TO_B.replace("00:0b", "00:0a");
    assert_eq!(drop_cause(&switch, &own), DropCause::LearnedOnIngressPort);
    assert_eq!(drop_cause(&switch, A_TO_B), DropCause::FloodWithoutPorts);
    let flood = NotedDecision::Flood { vlan: 5, is_group: false };
    assert_eq!(decisions(&switch, A_TO_B), [(Some(0), flood)]);

    let from_b = "in_port=1,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0c";
    switch.pipeline.learn(&switch.translate(from_b).learnings, Time::ZERO);
    assert_eq!(drop_cause(&switch, A_TO_B), DropCause::LearnedOnIngressPort);
    let learned = NotedDecision::LearnedOnIngressPort { port, vlan: 5 };
    assert_eq!(decisions(&switch, A_TO_B), [(Some(0), learned)]);
}

#[test]
fn normal_names_the_learned_port() {
    let switch = Switch::new(&["actions=resubmit(,1)", "table=1,actions=NORMAL"]);
    let from_b = "in_port=2,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0c";
    switch.pipeline.learn(&switch.translate(from_b).learnings, Time::ZERO);
    let learned = NotedDecision::Learned { port: shunt_flow::PortNo::new(2), vlan: 0 };
    assert_eq!(decisions(&switch, A_TO_B), [(Some(1), learned)]);
}
