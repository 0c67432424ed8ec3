//! Tests of [`crate::config::setting`].

use std::collections::BTreeSet;

use super::*;
use crate::config::OffloadKind;

/// Returns a value for the key that differs from the default.
fn value(key: &str) -> &'static str {
    match key {
        "caches.kind" => "gigaflow",
        "caches.index" => "learned",
        "caches.learned_index" => "rqrmi",
        "caches.gigaflow.policy" => "one-to-one",
        "caches.gigaflow.eviction" => "never",
        "caches.gigaflow.offload.kind" => "embedded",
        "caches.gigaflow.offload.stale" => "ports-down",
        "mode" => "balance-slb",
        "lacp" => "passive",
        "lacp_time" => "fast",
        "lacp_port_id" | "lacp_port_priority" | "lacp_aggregation_key" => "p1:7",
        "vlan_mode" => "access",
        "eviction.asynchronous"
        | "lacp_fallback_ab"
        | "mcast_snooping_disable_flood_unregistered"
        | "mcast_snooping_enable"
        | "netflow.add_id_to_interface"
        | "select_all"
        | "threads.auto_lb" => "true",
        "eviction.repair" => "on",
        "packets.vlan_limit" => "2",
        "qinq_ethtype" => "802.1q",
        "fail_mode" => "standalone",
        "table_overflow" => "evict",
        "local" => "tap",
        _ => "7",
    }
}

/// Collects the keys with values that differ between `before` and `after`.
fn differing(key: &str, before: &Value, after: &Value, keys: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for name in before.keys().chain(after.keys()) {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                let of = |values: &serde_json::Map<String, Value>| {
                    values.get(name).cloned().unwrap_or_default()
                };
                differing(&key, &of(before), &of(after), keys);
            }
        }
        _ if before != after => {
            keys.insert(key.to_owned());
        }
        _ => {}
    }
}

/// Checks that each setting's key is also the key that serde reads from the file.
fn check_keys<T: Clone + Default + Serialize>(settings: &[KeyedSetting<T>]) {
    let before = T::default();
    for setting in settings {
        let mut after = before.clone();
        setting.write(&mut after, value(setting.field.key)).unwrap();
        let [old, new] = [&before, &after].map(|config| serde_json::to_value(config).unwrap());
        let mut keys = BTreeSet::new();
        differing("", &old, &new, &mut keys);
        // A key with numbers by member ends with the name of the member, such as `.p1`.
        let keys: Vec<_> = keys.iter().map(|key| key.trim_end_matches(".p1")).collect();
        assert_eq!(keys, [setting.field.key]);
    }
}

#[test]
fn every_setting_changes_its_own_key_only() {
    check_keys(SETTINGS);
    check_keys(BRIDGE_SETTINGS);
    check_keys(BRIDGE_START_SETTINGS);
    check_keys(BOND_SETTINGS);
    check_keys(MIRROR_SETTINGS);
    assert_eq!(KEYS.len(), KEYS.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn every_key_of_a_bridge_can_be_set() {
    let options = serde_json::to_value(BridgeOptions::default()).unwrap();
    let known: BTreeSet<_> = options.as_object().unwrap().keys().map(String::as_str).collect();
    let keys = BRIDGE_KEYS.iter().chain(BRIDGE_START_KEYS);
    let fields = keys.map(|key| key.split('.').next().unwrap());
    let own = ["name", "port", "bond", "mirror", "collector_set"].into_iter().chain(fields);
    assert_eq!(own.collect::<BTreeSet<_>>(), known);
}

/// Collects the keys of all values; a list is one value.
fn leaves(key: &str, value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                leaves(&key, value, keys);
            }
        }
        _ => drop(keys.insert(key.to_owned())),
    }
}

/// Without this, a changed key would be missing in the report of a reload.
#[test]
fn every_key_changes_now_or_at_the_start() {
    let mut all = BTreeSet::new();
    leaves("", &serde_json::to_value(Config::default()).unwrap(), &mut all);
    let start = START_FIELDS.iter().map(|field| field.key);
    let known = KEYS.iter().copied().chain(start).chain(["bridge"]);
    let known: Vec<_> = known.map(str::to_owned).collect();
    assert_eq!(known.iter().cloned().collect::<BTreeSet<_>>(), all);
    assert_eq!(known.len(), all.len(), "no key is in both lists");
}

#[test]
fn a_bridge_is_read_from_settings() {
    let settings = [("listen", "ptcp:6653,ptcp:6654"), ("table_rules", "5"), ("mtu", "0")];
    let bridge = BridgeOptions::of_settings("br0", &settings).unwrap();
    assert_eq!(bridge.listen, ["ptcp:6653", "ptcp:6654"]);
    assert_eq!((bridge.name.as_str(), bridge.table_rules), ("br0", 5));
    let wrong = BridgeOptions::of_settings("br0", &[("mtu", "1500")]).unwrap_err();
    assert!(wrong.to_string().contains("absent unless `local"), "{wrong}");
}

#[test]
fn every_setting_refuses_a_wrong_value() {
    for setting in SETTINGS {
        let mut config = Config::default();
        setting.write(&mut config, value(setting.field.key)).unwrap();
        let is_refused = setting.write(&mut config, "seven").is_err() || {
            config.caches.gigaflow.offload.kind = OffloadKind::P4runtime;
            config.bridges = vec![BridgeOptions { name: "br0".into(), ..Default::default() }];
            config.check().is_err()
        };
        assert!(is_refused, "{}", setting.field.key);
    }
}

/// Checks that the error for a large number has the largest allowed number.
fn check_ranges<T: Default>(settings: &[KeyedSetting<T>]) {
    /// A number that no type holds.
    const LARGE: &str = "99999999999999999999999";
    for setting in settings {
        let mut options = T::default();
        let is_number = setting.write(&mut options, "7").is_ok()
            && setting.write(&mut options, "seven").is_err();
        if !is_number || setting.field.key.ends_with("offload.ports") {
            continue;
        }
        let error = setting.write(&mut options, LARGE).unwrap_err();
        let SwitchError::Range { value, range, .. } = error else { panic!("{error}") };
        let has_limit =
            range.split([' ', ',']).any(|word| word.parse::<u64>().is_ok_and(|limit| limit > 0));
        assert!(value == LARGE && has_limit, "{}: {range}", setting.field.key);
    }
}

#[test]
fn number_that_is_too_large_gets_range() {
    check_ranges(SETTINGS);
    check_ranges(BRIDGE_SETTINGS);
    check_ranges(BRIDGE_START_SETTINGS);
    check_ranges(BOND_SETTINGS);
    check_ranges(MIRROR_SETTINGS);
    for (range, max) in [
        (u8::RANGE, u64::from(u8::MAX)),
        (u32::RANGE, u64::from(u32::MAX)),
        (u64::RANGE, u64::MAX),
        (usize::RANGE, usize::MAX as u64),
    ] {
        assert_eq!(range, format!("a whole number from 0 to {max}"));
    }
}

#[test]
fn a_printed_list_parses_back() {
    let setting = SETTINGS.iter().find(|own| own.field.key.ends_with("offload.ports")).unwrap();
    let mut config = Config::default();
    for (text, ports) in
        [("7, 8", vec![7, 8]), ("[]", vec![]), ("[1,2]", vec![1, 2]), ("", vec![]), ("3", vec![3])]
    {
        setting.write(&mut config, text).unwrap();
        assert_eq!(config.caches.gigaflow.offload.ports, ports, "{text}");
    }
    assert!(setting.write(&mut config, "[1").is_err());
}

#[test]
fn every_suggested_value_is_accepted() {
    let mut words = 0;
    for setting in SETTINGS {
        let mut config = Config::default();
        let Err(SwitchError::Range { range, .. }) = setting.write(&mut config, "seven") else {
            continue;
        };
        if !range.contains(" or ") {
            continue;
        }
        for word in range.replace(" or ", ", ").split(", ") {
            setting.write(&mut config, word).unwrap();
            words += 1;
        }
    }
    assert_eq!(words, 3 + 3 + 3 + 7 + 4 + 3 + 2 + 2 + 3 + 2);
}
