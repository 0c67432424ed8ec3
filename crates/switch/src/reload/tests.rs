//! Tests of [`crate::reload`].

use std::collections::BTreeSet;

use super::*;
use crate::{
    config::{
        BfdOptions, BondOptions, CacheKind, LocalPort, MirrorOptions, OffloadKind, PortOptions,
        PortType, PortVlanMode, QosOptions, QosType,
    },
    desired::{Difference, StateChange, difference},
};

/// Returns a port with a name.
fn port(name: &str) -> PortOptions {
    PortOptions { name: name.into(), kind: PortType::Null, ..PortOptions::default() }
}

/// Returns a bridge with some ports.
fn bridge(name: &str, ports: &[PortOptions]) -> BridgeOptions {
    BridgeOptions { name: name.into(), ports: ports.to_vec(), ..BridgeOptions::default() }
}

/// Returns a configuration with some bridges.
fn config(bridges: &[BridgeOptions]) -> Config {
    Config { bridges: bridges.to_vec(), ..Config::default() }
}

/// Returns the differences between two configurations.
fn plan(before: &Config, after: &Config) -> Difference {
    let [before, after] = [before, after].map(DesiredState::of);
    difference(&before, &after, ApplyPolicy::Once)
}

/// Returns `after` without the changes `refused`.
fn without_refused(refused: &[StateChange], before: &Config, after: &Config) -> Config {
    let [before, mut state] = [before, after].map(DesiredState::of);
    refused.iter().for_each(|change| change.undo(&before, &mut state));
    state.config()
}

/// Returns the change that removes a bridge.
fn remove_bridge(name: &str) -> StateChange {
    StateChange::RemoveBridge { name: name.into(), replacement: None }
}

/// Returns the change that adds a port.
fn add_port(bridge: &str, port: PortOptions) -> StateChange {
    StateChange::AddPort { bridge: bridge.into(), port: port.into(), last_number: 0 }
}

/// Returns the changes as texts.
fn texts(changes: &[StateChange]) -> Vec<String> {
    changes.iter().map(StateChange::description).collect()
}

#[test]
fn equal_configurations_need_no_step() {
    let config = config(&[bridge("br0", &[port("p1")])]);
    assert_eq!(plan(&config, &config), Difference::default());
}

#[test]
fn bridges_and_ports_come_and_go() {
    let before = config(&[bridge("br0", &[port("p1"), port("p2")]), bridge("br1", &[port("q")])]);
    let after = config(&[bridge("br0", &[port("p2"), port("p3")]), bridge("br2", &[])]);
    let add = add_port("br0", port("p3"));
    let steps = [
        StateChange::RemovePort("p1".into()),
        remove_bridge("br1"),
        StateChange::AddBridge(bridge("br2", &[]).into()),
        add,
    ];
    assert_eq!(plan(&before, &after).changes, steps);
}

#[test]
fn a_port_that_moves_is_removed_and_added() {
    let before = config(&[bridge("br0", &[port("p1")]), bridge("br1", &[])]);
    let after = config(&[bridge("br0", &[]), bridge("br1", &[port("p1")])]);
    let add = add_port("br1", port("p1"));
    assert_eq!(plan(&before, &after).changes, [StateChange::RemovePort("p1".into()), add]);
}

#[test]
fn vlans_change_without_a_new_port() {
    let tagged = PortOptions { vlan_mode: Some(PortVlanMode::Access), tag: Some(10), ..port("p1") };
    let before = config(&[bridge("br0", &[port("p1")])]);
    let after = config(&[bridge("br0", std::slice::from_ref(&tagged))]);
    assert_eq!(plan(&before, &after).changes, [StateChange::SetVlans(tagged.into())]);
}

#[test]
fn sflow_changes_without_a_new_bridge() {
    let before = config(&[bridge("br0", &[port("p1")])]);
    let mut after = before.clone();
    after.bridges[0].sflow.targets = vec!["192.0.2.1".into(), "192.0.2.2:99".into()];
    after.bridges[0].sflow.sampling = 64;
    let text = "bridge br0: sflow.sampling=64 sflow.targets=192.0.2.1,192.0.2.2:99";
    assert_eq!(texts(&plan(&before, &after).changes), [text]);
    let changed = before.bridges[0]
        .with_settings(&[("sflow.sampling", "64"), ("sflow.targets", "192.0.2.1,192.0.2.2:99")]);
    assert_eq!(changed.unwrap(), after.bridges[0]);
    assert!(before.bridges[0].with_settings(&[("sflow.targets", "collector")]).is_err());
}

#[test]
fn netflow_changes_without_a_new_bridge() {
    let before = config(&[bridge("br0", &[port("p1")])]);
    let mut after = before.clone();
    after.bridges[0].netflow.targets = vec!["192.0.2.1".into()];
    after.bridges[0].netflow.engine_id = 7;
    after.bridges[0].netflow.add_id_to_interface = true;
    let settings = [
        ("netflow.add_id_to_interface", "true"),
        ("netflow.engine_id", "7"),
        ("netflow.targets", "192.0.2.1"),
    ];
    let words = settings.map(|(key, value)| format!("{key}={value}")).join(" ");
    assert_eq!(texts(&plan(&before, &after).changes), [format!("bridge br0: {words}")]);
    assert_eq!(before.bridges[0].with_settings(&settings).unwrap(), after.bridges[0]);
    assert!(before.bridges[0].with_settings(&[("netflow.engine_id", "256")]).is_err());
}

#[test]
fn ipfix_changes_without_a_new_bridge() {
    let before = config(&[bridge("br0", &[port("p1")])]);
    let mut after = before.clone();
    after.bridges[0].ipfix.targets = vec!["192.0.2.1".into()];
    after.bridges[0].ipfix.obs_domain_id = 7;
    let settings = [("ipfix.obs_domain_id", "7"), ("ipfix.targets", "192.0.2.1")];
    let words = settings.map(|(key, value)| format!("{key}={value}")).join(" ");
    assert_eq!(texts(&plan(&before, &after).changes), [format!("bridge br0: {words}")]);
    assert_eq!(before.bridges[0].with_settings(&settings).unwrap(), after.bridges[0]);
    assert!(before.bridges[0].with_settings(&[("ipfix.sampling", "0")]).is_err());
}

#[test]
fn limits_change_without_a_new_port() {
    let qos = Some(QosOptions { cir: 1000, cbs: 100, ..QosOptions::new(QosType::EgressPolicer) });
    let bfd = Some(BfdOptions::default());
    let limited = PortOptions { ingress_policing_rate: 1000, qos, bfd, ..port("p1") };
    let before = config(&[bridge("br0", &[port("p1")])]);
    let after = config(&[bridge("br0", std::slice::from_ref(&limited))]);
    let steps = plan(&before, &after).changes;
    let own = || limited.clone().into();
    let expected =
        [StateChange::SetPolicing(own()), StateChange::SetQos(own()), StateChange::SetBfd(own())];
    assert_eq!(steps, expected);
    assert_eq!(without_refused(&steps, &before, &after), before);
}

#[test]
fn refused_option_leaves_others_of_its_port() {
    let qos = Some(QosOptions { cir: 1000, cbs: 100, ..QosOptions::new(QosType::EgressPolicer) });
    let old = PortOptions { kind: PortType::Tap, mtu: 1500, ..port("p1") };
    let new = PortOptions {
        tag: Some(5),
        ingress_policing_rate: 1000,
        qos,
        bfd: Some(BfdOptions::default()),
        mtu: 9000,
        mac: "02:00:00:00:00:01".into(),
        ..old.clone()
    };
    let [before, after] = [old, new].map(|own| config(&[bridge("br0", &[own])]));
    let changes = plan(&before, &after).changes;
    assert_eq!(changes.len(), 6);
    for refused in &changes {
        let in_force = without_refused(std::slice::from_ref(refused), &before, &after);
        assert_eq!(plan(&in_force, &after).changes, std::slice::from_ref(refused), "retried");
        assert_eq!(plan(&in_force, &before).changes.len(), 5, "{refused:?}: the others go back");
    }
}

#[test]
fn mirrors_come_and_go() {
    let mirror = |name: &str, output_vlan| MirrorOptions {
        name: name.into(),
        output_vlan,
        ..MirrorOptions::default()
    };
    let with = |mirrors: &[MirrorOptions]| {
        config(&[BridgeOptions { mirrors: mirrors.to_vec(), ..bridge("br0", &[]) }])
    };
    let before = with(&[mirror("m1", 1), mirror("m2", 2), mirror("m3", 3)]);
    let after = with(&[mirror("m2", 20), mirror("m3", 3), mirror("m4", 4)]);
    let set = |mirror| StateChange::SetMirror { bridge: "br0".into(), mirror };
    let steps = [
        StateChange::RemoveMirror { bridge: "br0".into(), name: "m1".into() },
        set(mirror("m2", 20)),
        set(mirror("m4", 4)),
    ];
    let plan = plan(&before, &after);
    assert_eq!((&*plan.changes, plan.at_restart.len()), (&steps[..], 0));
    let undone = without_refused(&plan.changes, &before, &after);
    let names: BTreeSet<_> = undone.bridges[0].mirrors.iter().map(|own| &*own.name).collect();
    assert_eq!(names, BTreeSet::from(["m1", "m2", "m3"]));
}

#[test]
fn bonds_change_before_the_vlans_of_their_members() {
    let bond = |tag| BondOptions {
        name: "bond0".into(),
        members: vec!["p1".into(), "p2".into()],
        tag,
        ..BondOptions::default()
    };
    let with = |bonds: &[BondOptions], tag| {
        let ports = [PortOptions { tag, ..port("p1") }, port("p2")];
        config(&[BridgeOptions { bonds: bonds.to_vec(), ..bridge("br0", &ports) }])
    };
    let (before, after) = (with(&[], Some(5)), with(&[bond(Some(5))], None));
    let set = |bonds: &[BondOptions]| StateChange::SetBonds {
        bridge: "br0".into(),
        bonds: bonds.to_vec(),
    };
    let joined = plan(&before, &after);
    let steps = [set(&[bond(Some(5))]), StateChange::SetVlans(port("p1").into())];
    assert_eq!((&*joined.changes, joined.at_restart.len()), (&steps[..], 0));
    let left = plan(&after, &before).changes;
    assert_eq!(left.first(), Some(&set(&[])), "a member cannot have VLANs");
    let undone = without_refused(&joined.changes, &before, &after);
    assert!(undone.bridges[0].bonds.is_empty());
}

#[test]
fn bond_leaves_bridge_before_another_gets_it() {
    let bond = BondOptions {
        name: "bond0".into(),
        members: vec!["p1".into(), "p2".into()],
        ..BondOptions::default()
    };
    let ports = [port("p1"), port("p2")];
    let with = |name: &str| BridgeOptions { bonds: vec![bond.clone()], ..bridge(name, &ports) };
    let before = config(&[bridge("br1", &[]), with("br2")]);
    let after = config(&[with("br1"), bridge("br2", &[])]);
    let set = |name: &str, bonds: &[BondOptions]| StateChange::SetBonds {
        bridge: name.into(),
        bonds: bonds.to_vec(),
    };
    let add = |own: &PortOptions| add_port("br1", own.clone());
    let expected = [
        StateChange::RemovePort("p1".into()),
        StateChange::RemovePort("p2".into()),
        set("br2", &[]),
        set("br1", std::slice::from_ref(&bond)),
        add(&ports[0]),
        add(&ports[1]),
    ];
    assert_eq!(plan(&before, &after).changes, expected);
}

#[test]
fn startup_only_keys_are_named() {
    let before = config(&[bridge("br0", &[])]);
    let mut after = before.clone();
    after.threads.packet = 2;
    after.caches.kind = CacheKind::Gigaflow;
    after.caches.gigaflow.offload.ports = vec![1, 2];
    after.bridges[0].listen = vec!["ptcp:6653".into(), "ptcp:6654".into()];
    after.bridges[0].local = LocalPort::Tap;
    let Difference { changes, at_restart, .. } = plan(&before, &after);
    let set = "caches.gigaflow.offload.ports=1,2 caches.kind=gigaflow";
    assert_eq!(texts(&changes), ["bridge br0: listen=ptcp:6653,ptcp:6654", set]);
    let named: Vec<String> = at_restart.iter().map(ToString::to_string).collect();
    assert_eq!(named, ["bridge br0: local", "threads.packet"]);
    // The next reload compares with the running configuration, so it names the same keys again.
    let report = ApplyReport { at_restart, ..ApplyReport::default() };
    let report = ReloadReport { report, ..ReloadReport::default() };
    let running = report.in_force(&before, &after);
    assert_eq!(running.threads.packet, before.threads.packet);
    let again = plan(&running, &after);
    assert_eq!((again.changes, again.at_restart), (Vec::new(), report.report.at_restart));
    let back = plan(&running, &before);
    assert!(back.at_restart.is_empty(), "{back:?}");
}

/// Returns a configuration with a NIC for which no bridge is named.
fn with_nic(bridges: &[BridgeOptions]) -> Config {
    let mut config = config(bridges);
    config.caches.gigaflow.offload.kind = OffloadKind::Embedded;
    config
}

#[test]
fn the_nic_follows_a_renamed_bridge() {
    let (old, new) = (with_nic(&[bridge("br0", &[])]), with_nic(&[bridge("br1", &[])]));
    let mut saved = old.clone();
    saved.caches.gigaflow.offload.bridge = "br0".into();
    assert_eq!(resumed(&saved, &old, &new).caches.gigaflow.offload.bridge, "br1");
    assert_eq!(resumed(&saved, &old, &old).caches.gigaflow.offload.bridge, "br0");
    let set = "caches.gigaflow.offload.bridge=br1";
    assert_eq!(texts(&plan(&old, &new).changes).last().unwrap(), set);
    // The bridge of the NIC that the operator chose at run time stays.
    saved.caches.gigaflow.offload.bridge = "br9".into();
    assert_eq!(resumed(&saved, &old, &old).caches.gigaflow.offload.bridge, "br9");
}

#[test]
fn refused_changes_are_not_part_of_the_result() {
    let mut before = config(&[bridge("br0", &[port("p1"), port("p2")]), bridge("br1", &[])]);
    before.caches.idle_ms = 7000;
    let tagged = PortOptions { tag: Some(10), ..port("p2") };
    let mut after = config(&[bridge("br0", &[tagged, port("p3")]), bridge("br2", &[])]);
    after.bridges[0].mac_entries = 9;
    after.threads.packet = 2;
    let steps = plan(&before, &after).changes;
    let report = ApplyReport { refused: steps, ..ApplyReport::default() };
    let all = ReloadReport { report, ..ReloadReport::default() };
    let mut rest = all.in_force(&before, &after);
    // Keys that take effect at the next start are then in force.
    assert_eq!(rest.threads.packet, 2);
    rest.threads.packet = before.threads.packet;
    rest.bridges[0].ports.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!(rest, before);
    assert_eq!(ReloadReport::default().in_force(&before, &after), after);
}

#[tokio::test]
async fn a_refused_change_is_tried_again() {
    let before = config(&[bridge("br0", &[])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    switch.add_port("br0", PortOptions { number: 7, ..port("p1") }).await.unwrap();
    let after = config(&[bridge("br0", &[PortOptions { number: 8, ..port("p1") }, port("p2")])]);
    let report = switch.reload(&before, &after).await;
    assert_eq!(report.refused.len(), 1);
    let base = report.in_force(&before, &after);
    switch.remove_port("p1").await.unwrap();
    let report = switch.reload(&base, &after).await;
    assert_eq!(report.applied, ["port p1: added to br0"]);
    assert_eq!(report.in_force(&base, &after), after);
}

#[tokio::test]
async fn port_stays_if_new_options_are_refused() {
    let before = config(&[bridge("br0", &[PortOptions { number: 1, ..port("p1") }])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    switch.add_port("br0", PortOptions { number: 2, ..port("p2") }).await.unwrap();
    let after = config(&[bridge("br0", &[PortOptions { number: 2, ..port("p1") }])]);
    let report = switch.reload(&before, &after).await;
    assert_eq!((report.applied.len(), report.refused.len()), (0, 1), "{report:?}");
    let ports = switch.running_config().bridges.remove(0).ports;
    let numbers: Vec<_> = ports.iter().map(|own| (own.name.as_str(), own.number)).collect();
    assert_eq!(numbers, [("p1", 1), ("p2", 2)]);
    assert_eq!(report.in_force(&before, &after), before);
}

/// An operator adds a port, and then adds the same port to the file.
#[tokio::test]
async fn an_equal_port_that_exists_is_not_refused() {
    let before = config(&[bridge("br0", &[])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    switch.add_port("br0", port("p1")).await.unwrap();
    switch.add_bridge(&bridge("br1", &[])).await.unwrap();
    let after = config(&[bridge("br0", &[port("p1")]), bridge("br1", &[])]);
    let report = switch.reload(&before, &after).await;
    assert!(report.is_empty(), "{report:?}");
}

#[tokio::test]
async fn a_reload_changes_a_running_switch() {
    let before = config(&[bridge("br0", &[port("p1")])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    let mut after = config(&[bridge("br0", &[port("p2")])]);
    after.caches.idle_ms = 5000;
    let report = switch.reload(&before, &after).await;
    assert_eq!(report.refused, [""; 0]);
    let expected = ["port p1: removed", "port p2: added to br0", "caches.idle_ms=5000"];
    assert_eq!(report.applied, expected);
    assert_eq!(switch.config().caches.idle_ms, 5000);
    let names: Vec<_> = switch.bridges()[0].ports.iter().map(|port| port.name.clone()).collect();
    assert_eq!(names, ["p2", "br0"]);
    assert!(switch.reload(&after, &after).await.is_empty());
}

/// A port that cannot be opened is retried, as the report states.
#[tokio::test]
async fn a_port_that_cannot_be_opened_is_added() {
    let before = config(&[bridge("br0", &[])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    let rx = "/nowhere/in.pcap".into();
    let missing = PortOptions { kind: PortType::Pcap, rx, ..port("p1") };
    let after = config(&[bridge("br0", &[missing])]);
    let report = switch.reload(&before, &after).await;
    let [added] = report.applied.as_slice() else { panic!("{report:?}") };
    assert!(added.starts_with("port p1: added to br0, but down: "), "{added}");
    assert_eq!(switch.running_config().bridges[0].ports.len(), 1);
}

#[tokio::test]
async fn a_refused_step_does_not_prevent_the_others() {
    let before = config(&[bridge("br0", &[])]);
    let switch = Switch::start(&before, None, 1).await.unwrap();
    switch.add_port("br0", PortOptions { number: 7, ..port("p1") }).await.unwrap();
    let own = PortOptions { number: 8, ..port("p1") };
    let after = config(&[bridge("br0", &[own, port("p2")])]);
    let report = switch.reload(&before, &after).await;
    assert_eq!(report.applied, ["port p2: added to br0"]);
    let [refused] = report.refused.as_slice() else { panic!("{report:?}") };
    assert!(refused.starts_with("port p1: not added to br0: port p1 exists already"), "{refused}");
}
