//! Tests of the control plane.

use std::collections::BTreeSet;

use shunt_datapath::port::NoDescriptorStore;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeSettings, BundleStep, Iterative, Pipeline, PortConfig, Time};
use shunt_tls::TlsIdentity;

use super::*;
use crate::{
    config::{self, BondOptions, MirrorOptions, PortType, setting::changed_bridge_settings},
    control::{bonds::BondMemberChange, settings::SettingOrigin, structure::OpenPolicy},
    openflow::servers::OpenFlowServers,
    ports::registry::BridgeRegistry,
    saved_learned::{SavedMac, restore_statics},
    saved_state::{SavedTables, restore, save},
    switch::Switch,
};

/// Returns a bridge with a name.
fn bridge(name: &str) -> config::BridgeOptions {
    config::BridgeOptions { name: name.to_owned(), ..config::BridgeOptions::default() }
}

fn null_port(name: &str) -> config::PortOptions {
    config::PortOptions {
        name: name.to_owned(),
        kind: PortType::Null,
        ..config::PortOptions::default()
    }
}

/// Starts a control plane with a limited range of datapath port numbers.
fn start(numbers: u32) -> Arc<ControlPlane> {
    let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
    let store = Arc::new(NoDescriptorStore);
    let (control, receivers) =
        ControlPlane::start(&Config::default(), None, 1, engine, store).unwrap();
    *control.bridges.lock() = BridgeRegistry::limited(numbers);
    tokio::spawn(
        Arc::new(OpenFlowServers::new(&control, None, TlsIdentity::default(), Arc::default()))
            .run(receivers.events, receivers.punts.packet_ins),
    );
    control
}

#[tokio::test]
async fn numbers_of_bridges_and_ports_are_reused() {
    let control = start(3);
    for _ in 0..20 {
        control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
        for name in ["p1", "p2"] {
            control.structure().await.add_port("br0", null_port(name)).await.unwrap();
        }
        control.structure().await.remove_port("p1").await.unwrap();
        control.structure().await.remove_bridge("br0").await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_request_takes_no_number() {
    let control = start(2);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    control.structure().await.add_port("br0", null_port("p1")).await.unwrap();
    for _ in 0..10 {
        let again = control.structure().await.add_port("br0", null_port("p1")).await;
        assert!(matches!(again, Err(SwitchError::PortExists { .. })), "{again:?}");
        let nowhere = control.structure().await.add_port("br9", null_port("p2")).await;
        assert!(matches!(nowhere, Err(SwitchError::NoSuchBridge { .. })), "{nowhere:?}");
        let again = control.structure().await.add_bridge(&bridge("br0")).await;
        assert!(matches!(again, Err(SwitchError::BridgeExists(_))), "{again:?}");
    }
    control.structure().await.add_port("br0", null_port("p2")).await.unwrap();
    let more = control.structure().await.add_port("br0", null_port("p3")).await;
    assert!(matches!(more, Err(SwitchError::NoNumber { what: "port" })), "{more:?}");
    control.structure().await.add_bridge(&bridge("br1")).await.unwrap();
    let more = control.structure().await.add_bridge(&bridge("br2")).await;
    assert!(matches!(more, Err(SwitchError::NoNumber { what: "bridge" })), "{more:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_of_settings_all_apply() {
    let control = start(1);
    let change = |setting: &'static str, read: fn(&Config) -> u64| {
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            for value in 1..=20_000 {
                control.structure().await.set(&[(setting, &value.to_string())]).await.unwrap();
                assert_eq!(read(&control.config.lock()), value, "no other task changes {setting}");
            }
        })
    };
    let idle = change("caches.idle_ms", |config| config.caches.idle_ms);
    let turn = change("threads.translations_per_iteration", |config| {
        config.threads.translations_per_iteration as u64
    });
    idle.await.unwrap();
    turn.await.unwrap();
}

/// Starts a control plane with the bond `bond0` of the ports `p1` and `p2`.
async fn start_bonded() -> Arc<ControlPlane> {
    let control = start(9);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    let bond = BondOptions {
        name: "bond0".to_owned(),
        members: vec!["p1".to_owned(), "p2".to_owned()],
        ..BondOptions::default()
    };
    control.structure().await.set_bonds("br0", vec![bond]).await.unwrap();
    for name in ["p1", "p2", "p3"] {
        control.structure().await.add_port("br0", null_port(name)).await.unwrap();
    }
    control
}

/// With one key for two bonds, a partner would aggregate members of both bonds.
#[tokio::test]
async fn a_configured_lacp_key_has_precedence() {
    let control = start(9);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    for name in ["p1", "p2", "p3", "p4"] {
        control.structure().await.add_port("br0", null_port(name)).await.unwrap();
    }
    let bond = |name: &str, members: [&str; 2], keys: &[(&str, u16)]| BondOptions {
        name: name.to_owned(),
        members: members.map(str::to_owned).into(),
        lacp: config::BondLacp::Active,
        lacp_aggregation_key: keys.iter().map(|(own, key)| ((*own).to_owned(), *key)).collect(),
        ..BondOptions::default()
    };
    let set = async |bonds: &[BondOptions]| {
        control.structure().await.set_bonds("br0", bonds.to_vec()).await.unwrap();
    };
    let key = |name: &str| {
        let bridges = control.bridges.lock();
        let state = bridges.find("br0").unwrap().bonds.get(name).unwrap();
        state.lacp().unwrap().key().unwrap().get()
    };
    // The switch chooses the number of the first member.
    let first = bond("bond0", ["p1", "p2"], &[]);
    set(std::slice::from_ref(&first)).await;
    assert_eq!(key("bond0"), 1);
    set(&[first.clone(), bond("bond1", ["p3", "p4"], &[("p4", 77)])]).await;
    assert_eq!((key("bond0"), key("bond1")), (1, 3));
    let mut bonds = [first, bond("bond1", ["p3", "p4"], &[("p4", 1)])];
    set(&bonds).await;
    assert_eq!((key("bond0"), key("bond1")), (2, 3));
    // Keys of a bond without LACP are free.
    bonds[1].lacp = config::BondLacp::Off;
    bonds[1].lacp_aggregation_key.insert("p4".to_owned(), 2);
    set(&bonds).await;
    assert_eq!(key("bond0"), 2);
}

/// Returns the number of the bond's active member in the tables.
fn active_member(control: &ControlPlane) -> Option<PortNo> {
    let id = control.bridges.id("br0").unwrap();
    let ports = control.plane.pipeline().ports(id).unwrap();
    let active = ports.iter().find(|port| port.bond.as_ref().is_some_and(|own| own.is_active));
    active.map(|port| port.number)
}

/// The version that a barrier waits for contains the failover of the bond.
#[tokio::test]
async fn bundle_that_disables_member_has_failover() {
    let control = start_bonded().await;
    assert_eq!(active_member(&control), Some(PortNo::new(1)));
    let id = control.bridges.id("br0").unwrap();
    let set_down = |port_down| {
        let config = PortConfig { port_down, ..PortConfig::default() };
        let version = control.bridges.change_ports(id, |pipeline, configs| {
            configs.push((PortNo::new(1), config));
            let bundle = [BundleStep::Port(PortNo::new(1), config)];
            pipeline.commit(id, bundle, Time::ZERO).map(|(change, _)| change)
        });
        // No other task has run since the bundle.
        assert_eq!(version.unwrap(), control.plane.pipeline().version());
        active_member(&control)
    };
    assert_eq!(set_down(true), Some(PortNo::new(2)));
    assert_eq!(set_down(false), Some(PortNo::new(2)));
}

#[tokio::test]
async fn a_restored_bond_keeps_its_active_member() {
    let control = start_bonded().await;
    let activate = async |member| {
        let change = BondMemberChange::Activate;
        control.structure().await.change_bond_member("bond0", member, change).await
    };
    activate("p2").await.unwrap();
    let saved = save(&control);
    let other = start(9);
    restore(&other, &saved).await.unwrap();
    assert_eq!(active_member(&other), Some(PortNo::new(2)));
    assert_eq!(save(&other), saved);
    // After the restart has ended, p2 is a member without precedence.
    other.structure().await.remove_port("p2").await.unwrap();
    other.structure().await.add_port("br0", null_port("p2")).await.unwrap();
    assert_eq!(active_member(&other), Some(PortNo::new(1)));
}

#[tokio::test]
async fn another_member_than_an_enabled_primary_is_refused() {
    let control = start_bonded().await;
    let mut bonds = control.structure().await.running_config().bridges.remove(0).bonds;
    bonds[0].primary = "p1".to_owned();
    control.structure().await.set_bonds("br0", bonds).await.unwrap();
    let change = async |member, change| {
        let changed = control.structure().await.change_bond_member("bond0", member, change).await;
        changed.map_err(|error| error.to_string())
    };
    let refused = change("p2", BondMemberChange::Activate).await.unwrap_err();
    assert!(refused.contains("while the primary member p1 is enabled"), "{refused}");
    assert_eq!(change("p1", BondMemberChange::Activate).await, Ok(()));
    assert_eq!(change("p1", BondMemberChange::Disable).await, Ok(()));
    assert_eq!(active_member(&control), Some(PortNo::new(2)));
    assert_eq!(change("p2", BondMemberChange::Activate).await, Ok(()));
}

/// A mirror to a bond needs an enabled member,
/// and a member cannot replace its bond as output.
#[tokio::test]
async fn a_mirror_to_a_bond_has_its_problem() {
    let control = start_bonded().await;
    let problem = |output: &str| {
        let mirror = MirrorOptions {
            name: "m1".to_owned(),
            select_all: true,
            output_port: output.to_owned(),
            ..MirrorOptions::default()
        };
        let bridges = control.bridges.lock();
        bridges.find("br0").unwrap().mirror_problem(&mirror).unwrap_or_default()
    };
    assert_eq!([problem("bond0"), problem("p3")], ["", ""]);
    assert!(problem("p2").ends_with("set output_port to bond0"), "{}", problem("p2"));
    for member in ["p1", "p2"] {
        let change = BondMemberChange::Disable;
        control.structure().await.change_bond_member("bond0", member, change).await.unwrap();
    }
    assert!(problem("bond0").contains("until a member of bond bond0"), "{}", problem("bond0"));
}

/// Each refusal has the address, and the other addresses are restored.
#[tokio::test]
async fn restored_static_addresses_are_one_version() {
    let control = start(9);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    control.structure().await.add_port("br0", null_port("p1")).await.unwrap();
    let id = control.bridges.id("br0").unwrap();
    let ports = control.plane.pipeline().ports(id).unwrap();
    let port = ports.iter().find(|own| own.name == "p1").unwrap().number.number();
    let saved = |mac| SavedMac { vlan: 0, mac, port, is_static: true };
    let macs = [[2, 0, 0, 0, 0, 1], [0xff; 6], [2, 0, 0, 0, 0, 2]].map(saved);
    let tables = SavedTables { macs: macs.into(), ..save(&control).tables.swap_remove(0) };
    let before = control.plane.pipeline().version();
    let refused = restore_statics(&control, id, &tables);
    assert_eq!(refused.len(), 1, "{refused:?}");
    let expected = "bridge br0: static MAC address ff:ff:ff:ff:ff:ff: ";
    assert!(refused[0].starts_with(expected), "{refused:?}");
    assert_eq!(control.plane.pipeline().static_macs_count(id), 2);
    assert_eq!(control.plane.pipeline().version(), before.next());
}

/// A later bridge of the same name has other totals.
#[tokio::test]
async fn each_bridge_has_an_id_of_its_own() {
    let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
    let mut ids = BTreeSet::new();
    for _ in 0..2 {
        switch.add_bridge(&bridge("br0")).await.unwrap();
        let table = switch.mac_table("br0").unwrap();
        assert_eq!(switch.mac_tables(), [table]);
        ids.insert(table.bridge);
        switch.remove_bridge("br0").await.unwrap();
    }
    assert_eq!((ids.len(), switch.mac_tables()), (2, Vec::new()));
}

/// A change of settings does not end it, and a saved state does not have it.
#[tokio::test]
async fn changed_settings_keep_failing_open() {
    let control = start(9);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    let id = control.bridges.id("br0").unwrap();
    let saved = save(&control);
    let open = |pipeline: &Pipeline| {
        let settings = pipeline.settings(id).unwrap();
        pipeline.set_settings(id, BridgeSettings { fails_open: true, ..settings })
    };
    control.plane.publisher().change(open).unwrap();
    assert_eq!(save(&control), saved);
    let settings = changed_bridge_settings(&bridge("br0"), &[("mac_entries", "9")]).unwrap();
    let (policy, origin) = (OpenPolicy::Required, SettingOrigin::Operator);
    let structure = control.structure().await;
    structure.change_bridge("br0", &settings, policy, origin).await.unwrap();
    let own = control.plane.pipeline().settings(id).unwrap();
    assert_eq!((own.macs_max, own.fails_open), (9, true));
}
