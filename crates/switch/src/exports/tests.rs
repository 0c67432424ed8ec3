//! Tests of all keys of sFlow, NetFlow and IPFIX, over a restart and a reload.

use std::collections::BTreeSet;

use crate::{
    Switch,
    config::{BridgeOptions, CollectorSetOptions, Config},
    saved_state::SavedState,
};

/// A value for each key that differs from the key's default.
///
/// No collector listens at the addresses.
const VALUES: [(&str, &str); 17] = [
    ("ipfix.cache_active_timeout", "60"),
    ("ipfix.cache_max_flows", "100"),
    ("ipfix.obs_domain_id", "11"),
    ("ipfix.obs_point_id", "22"),
    ("ipfix.sampling", "3"),
    ("ipfix.targets", "127.0.0.1:9,127.0.0.2:9"),
    ("ipfix.virtual_obs_id", "vm7"),
    ("netflow.active_timeout", "7"),
    ("netflow.add_id_to_interface", "true"),
    ("netflow.engine_id", "5"),
    ("netflow.engine_type", "4"),
    ("netflow.targets", "127.0.0.3:9"),
    ("sflow.agent", "127.0.0.1"),
    ("sflow.header", "64"),
    ("sflow.polling", "9"),
    ("sflow.sampling", "2"),
    ("sflow.targets", "127.0.0.4:9"),
];

/// Returns a bridge without ports.
fn bridge() -> BridgeOptions {
    BridgeOptions { name: "br0".into(), ..BridgeOptions::default() }
}

/// Returns a configuration with one bridge.
fn config(bridge: &BridgeOptions) -> Config {
    Config { bridges: vec![bridge.clone()], ..Config::default() }
}

/// Returns a bridge with sFlow, NetFlow, IPFIX and a set of collectors.
fn exporting() -> BridgeOptions {
    let set = CollectorSetOptions {
        id: 7,
        targets: vec!["127.0.0.5:9".into()],
        cache_active_timeout: 8,
        cache_max_flows: 9,
        virtual_obs_id: "vm9".into(),
    };
    BridgeOptions { collector_sets: vec![set], ..bridge().with_settings(&VALUES).unwrap() }
}

/// Returns the sFlow, NetFlow and IPFIX options of a running bridge.
fn exports(switch: &Switch) -> BridgeOptions {
    let BridgeOptions { sflow, netflow, ipfix, collector_sets, .. } =
        switch.running_config().bridges.remove(0);
    BridgeOptions { sflow, netflow, ipfix, collector_sets, ..bridge() }
}

#[test]
fn the_test_values_change_every_export_key() {
    let is_export =
        |key: &&str| ["sflow.", "netflow.", "ipfix."].iter().any(|own| key.starts_with(own));
    let keys: BTreeSet<&str> =
        BridgeOptions::RUNTIME_KEYS.iter().copied().filter(is_export).collect();
    assert_eq!(keys, VALUES.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>());
    for value in VALUES {
        assert_ne!(bridge().with_settings(&[value]).unwrap(), bridge(), "{value:?}");
    }
}

#[tokio::test]
async fn a_saved_state_has_all_keys_of_exports() {
    let switch = Switch::start(&config(&bridge()), None, 1).await.unwrap();
    let expected = exporting();
    switch.set_bridge("br0", &VALUES).await.unwrap();
    switch.set_collector_sets("br0", expected.collector_sets.clone()).await.unwrap();
    assert_eq!(exports(&switch), expected);
    let saved = serde_json::to_string(&switch.save()).unwrap();
    let saved: SavedState = serde_json::from_str(&saved).unwrap();
    let restored = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = restored.restore(&saved).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    assert_eq!(exports(&restored), expected);
    // After the restore, the exporters run.
    let shown = restored.bridges().remove(0);
    assert_eq!(shown.sflow.unwrap().options, expected.sflow);
    assert_eq!(shown.netflow.unwrap().options, expected.netflow);
    assert_eq!(shown.ipfix.unwrap().options, expected.ipfix);
    assert_eq!(shown.collector_sets[0].options, expected.collector_sets[0]);
}

#[tokio::test]
async fn a_reload_changes_all_keys_of_exports() {
    let (before, after) = (bridge(), exporting());
    let switch = Switch::start(&config(&before), None, 1).await.unwrap();
    for (old, new) in [(&before, &after), (&after, &before)] {
        let report = switch.reload(&config(old), &config(new)).await;
        assert_eq!(report.refused, [""; 0]);
        assert_eq!(exports(&switch), *new);
    }
    let shown = switch.bridges().remove(0);
    assert_eq!((shown.sflow, shown.netflow, shown.ipfix), (None, None, None));
    assert_eq!(shown.collector_sets, []);
}
