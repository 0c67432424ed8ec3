//! Settings that can change while the switch runs.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use serde::{
    Deserialize,
    de::{IntoDeserializer as _, value::Error},
};

use crate::{
    config::{
        BondOptions, BridgeOptions, Config, MirrorOptions,
        multicast::{AGEING_RANGE, ENTRIES_RANGE},
    },
    error::SwitchError,
};

/// A setting in the options type `T`, identified by its key.
pub(crate) struct KeyedSetting<T> {
    /// Key in the configuration file.
    key: &'static str,
    /// Parses a value and writes it to the field that the key names.
    write: fn(&mut T, SettingValue<'_>) -> Result<(), SwitchError>,
}

/// Declares settings by the path of their field and the parser of their values.
///
/// The path of the field is the key: so a key cannot write to the wrong field.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $name:ident of $options:ty {
            $($first:ident $(.$field:ident)*: $parse:ident($($range:expr)?),)+
        }
    ) => {
        $(#[$doc])*
        const $name: &[KeyedSetting<$options>] = &[$(KeyedSetting {
            key: concat!(stringify!($first) $(, ".", stringify!($field))*),
            write: |options, value| {
                options.$first$(.$field)* = value.$parse($($range)?)?;
                Ok(())
            },
        }),+];
    };
}

settings! {
    /// The settings of a bridge that can change at run time.
    BRIDGE_SETTINGS of BridgeOptions {
        controllers: texts(),
        datapath_id: text(),
        flood_vlans: numbers(),
        ipfix.cache_active_timeout: number(),
        ipfix.cache_max_flows: number(),
        ipfix.obs_domain_id: number(),
        ipfix.obs_point_id: number(),
        ipfix.sampling: number(),
        ipfix.targets: texts(),
        ipfix.virtual_obs_id: text(),
        listen: texts(),
        mac: text(),
        mac_ageing_s: number(),
        mac_entries: number(),
        mcast_snooping_ageing_s: number_in(AGEING_RANGE),
        mcast_snooping_disable_flood_unregistered: flag(),
        mcast_snooping_enable: flag(),
        mcast_snooping_entries: number_in(ENTRIES_RANGE),
        netflow.active_timeout: number(),
        netflow.add_id_to_interface: flag(),
        netflow.engine_id: number(),
        netflow.engine_type: number(),
        netflow.targets: texts(),
        protocols: texts(),
        sflow.agent: text(),
        sflow.header: number(),
        sflow.polling: number(),
        sflow.sampling: number(),
        sflow.targets: texts(),
        table_limits: texts(),
        table_names: texts(),
        table_overflow: word("refuse or evict"),
        table_rules: number(),
    }
}

settings! {
    /// The settings of a bridge that only take effect when it is added.
    BRIDGE_START_SETTINGS of BridgeOptions {
        local: word("none or tap"),
        mtu: number(),
    }
}

settings! {
    /// The settings of a bond.
    BOND_SETTINGS of BondOptions {
        cvlans: numbers(),
        downdelay_ms: number(),
        hash_basis: number(),
        lacp: word("off, active or passive"),
        lacp_aggregation_key: numbers_by_name(),
        lacp_fallback_ab: flag(),
        lacp_port_id: numbers_by_name(),
        lacp_port_priority: numbers_by_name(),
        lacp_system_id: text(),
        lacp_system_priority: number(),
        lacp_time: word("slow or fast"),
        members: texts(),
        mode: word("active-backup, balance-slb or balance-tcp"),
        primary: text(),
        qinq_ethtype: word("802.1ad or 802.1q"),
        rebalance_interval_ms: number(),
        tag: some_number(),
        trunks: numbers(),
        updelay_ms: number(),
        vlan_mode: some_word("access, trunk, native-tagged, native-untagged or dot1q-tunnel"),
    }
}

settings! {
    /// The settings of a mirror.
    MIRROR_SETTINGS of MirrorOptions {
        output_port: text(),
        output_vlan: number(),
        select_all: flag(),
        select_dst_port: texts(),
        select_src_port: texts(),
        select_vlan: numbers(),
        snaplen: number(),
    }
}

settings! {
    /// The settings of the switch that can change at run time.
    SETTINGS of Config {
    caches.kind: word("megaflow, gigaflow or flows"),
    caches.index: word("adaptive, learned or tuple-space"),
    caches.signature_entries: number(),
    caches.idle_ms: number(),
    caches.verify_one_in: number(),
    caches.gigaflow.stages: number(),
    caches.gigaflow.stage_entries: number(),
    caches.gigaflow.policy: word(
        "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow"
    ),
    caches.gigaflow.eviction: word("never, least-recent, second-use or least-shared"),
    caches.gigaflow.fallback_one_in: number(),
    caches.gigaflow.tag_bits: number(),
    caches.gigaflow.offload.kind: word("none, embedded or p4runtime"),
    caches.gigaflow.offload.address: text(),
    caches.gigaflow.offload.device_id: number(),
    caches.gigaflow.offload.device_config: path(),
    caches.gigaflow.offload.bridge: text(),
    caches.gigaflow.offload.ports: numbers(),
    caches.gigaflow.offload.stages: number(),
    caches.gigaflow.offload.stage_entries: number(),
    caches.gigaflow.offload.masks: number(),
    caches.gigaflow.offload.key_bits: number(),
    caches.gigaflow.offload.update_us: number(),
    caches.gigaflow.offload.drain_ms: number(),
    caches.gigaflow.offload.stale: word("report or ports-down"),
    threads.auto_lb: flag(),
    threads.auto_lb_improvement_threshold: number(),
    threads.auto_lb_interval_min: number(),
    threads.auto_lb_load_threshold: number(),
    threads.sleep_max_ms: number(),
    threads.translations_per_iteration: number(),
    packets.vlan_limit: number(),
    eviction.asynchronous: flag(),
    eviction.repair: word("off, on or rate"),
    eviction.repair_rate: number(),
    }
}

/// The keys of switch settings that can change at run time.
pub(crate) const KEYS: &[&str] = &keys::<_, { SETTINGS.len() }>(SETTINGS);

/// The keys of bridge settings that can change at run time.
pub(crate) const BRIDGE_KEYS: &[&str] = &keys::<_, { BRIDGE_SETTINGS.len() }>(BRIDGE_SETTINGS);

/// The keys of bridge settings that only take effect when the bridge is added.
pub(crate) const BRIDGE_START_KEYS: &[&str] =
    &keys::<_, { BRIDGE_START_SETTINGS.len() }>(BRIDGE_START_SETTINGS);

/// The keys of the settings of a bond.
const BOND_KEYS: &[&str] = &keys::<_, { BOND_SETTINGS.len() }>(BOND_SETTINGS);

/// The keys of the settings of a mirror.
const MIRROR_KEYS: &[&str] = &keys::<_, { MIRROR_SETTINGS.len() }>(MIRROR_SETTINGS);

/// Returns the keys of `settings`.
const fn keys<T, const N: usize>(settings: &[KeyedSetting<T>]) -> [&'static str; N] {
    let mut keys = [""; N];
    let mut index = 0;
    while index < N {
        keys[index] = settings[index].key;
        index += 1;
    }
    keys
}

/// Returns the configuration with new values of `settings`.
///
/// # Errors
///
/// If a setting does not exist, or the new configuration is not valid.
pub(crate) fn with_settings(
    config: &Config,
    settings: &[(&str, &str)],
) -> Result<Config, SwitchError> {
    let mut changed = config.clone();
    for (key, value) in settings {
        let range = "a setting that can change while the switch runs";
        find(&[SETTINGS], key, range)?.write(&mut changed, value)?;
    }
    changed.check()?;
    Ok(changed)
}

impl BridgeOptions {
    /// The keys of settings that can change while the bridge forwards.
    pub const RUNTIME_KEYS: &[&str] = BRIDGE_KEYS;

    /// The keys of settings that only take effect when the bridge is added.
    pub const START_KEYS: &[&str] = BRIDGE_START_KEYS;

    /// Returns the options of a new bridge with the values in `settings`, by key.
    ///
    /// # Errors
    ///
    /// If a key does not exist, or a value is not valid.
    pub fn of_settings(name: &str, settings: &[(&str, &str)]) -> Result<Self, SwitchError> {
        let mut options = Self { name: name.to_owned(), ..Self::default() };
        for (key, value) in settings {
            let setting =
                find(&[BRIDGE_SETTINGS, BRIDGE_START_SETTINGS], key, "a key of a bridge")?;
            setting.write(&mut options, value)?;
        }
        options.check().map_err(|error| *error.problem)?;
        Ok(options)
    }

    /// Returns these bridge options with new values of runtime keys.
    ///
    /// # Errors
    ///
    /// If a key does not exist or cannot change, or a value is not valid.
    pub(crate) fn with_settings(&self, settings: &[(&str, &str)]) -> Result<Self, SwitchError> {
        let mut changed = self.clone();
        for (key, value) in settings {
            let range = "a key of a bridge that can change while it forwards";
            find(&[BRIDGE_SETTINGS], key, range)?.write(&mut changed, value)?;
        }
        changed.check().map_err(|error| *error.problem)?;
        Ok(changed)
    }
}

impl BondOptions {
    /// The keys of the settings of a bond.
    pub const KEYS: &[&str] = BOND_KEYS;

    /// Returns the options of a bond with the values in `settings`, by key.
    ///
    /// # Errors
    ///
    /// If a key does not exist, or a value does not have the type of its key.
    pub fn of_settings(name: &str, settings: &[(&str, &str)]) -> Result<Self, SwitchError> {
        let mut options = Self { name: name.to_owned(), ..Self::default() };
        for (key, value) in settings {
            find(&[BOND_SETTINGS], key, "a key of a bond")?.write(&mut options, value)?;
        }
        Ok(options)
    }
}

impl MirrorOptions {
    /// The keys of the settings of a mirror.
    pub const KEYS: &[&str] = MIRROR_KEYS;

    /// Returns the options of a mirror with the values in `settings`, by key.
    ///
    /// # Errors
    ///
    /// If a key does not exist, or a value does not have the type of its key.
    pub fn of_settings(name: &str, settings: &[(&str, &str)]) -> Result<Self, SwitchError> {
        let mut options = Self { name: name.to_owned(), ..Self::default() };
        for (key, value) in settings {
            find(&[MIRROR_SETTINGS], key, "a key of a mirror")?.write(&mut options, value)?;
        }
        Ok(options)
    }
}

/// Finds the setting with a key; `range` names the existing keys in the error.
fn find<T>(
    lists: &[&'static [KeyedSetting<T>]],
    key: &str,
    range: &'static str,
) -> Result<&'static KeyedSetting<T>, SwitchError> {
    let setting = lists.iter().copied().flatten().find(|setting| setting.key == key);
    setting.ok_or_else(|| SwitchError::Range { setting: "key", value: key.to_owned(), range })
}

impl<T> KeyedSetting<T> {
    /// Parses a value and writes it into `options`.
    fn write(&self, options: &mut T, value: &str) -> Result<(), SwitchError> {
        (self.write)(options, SettingValue { setting: self.key, value })
    }
}

/// The text of a value, with the name of its setting for errors.
#[derive(Clone, Copy)]
struct SettingValue<'a> {
    setting: &'static str,
    value: &'a str,
}

impl<'a> SettingValue<'a> {
    fn number<T: FromStr>(self) -> Result<T, SwitchError> {
        self.number_in("a whole number")
    }

    /// Parses a number; `range` describes the allowed numbers, which are checked later.
    fn number_in<T: FromStr>(self, range: &'static str) -> Result<T, SwitchError> {
        self.value.parse().map_err(|_| self.out_of_range(range))
    }

    /// Returns the elements of a list that are separated by commas,
    /// with or without brackets.
    ///
    /// An empty text is an empty list.
    fn parts(&self) -> impl Iterator<Item = &str> {
        let bare = self.value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        let list = bare.unwrap_or(self.value).trim();
        list.split(',').map(str::trim).filter(|_| !list.is_empty())
    }

    /// Parses numbers that are separated by commas.
    fn numbers<T: FromStr>(self) -> Result<Vec<T>, SwitchError> {
        let numbers: Result<_, _> = self.parts().map(str::parse).collect();
        numbers.map_err(|_| self.out_of_range("whole numbers between commas"))
    }

    /// Parses texts that are separated by commas.
    #[expect(clippy::unnecessary_wraps, reason = "the parsers have one signature")]
    fn texts(self) -> Result<Vec<String>, SwitchError> {
        Ok(self.parts().map(str::to_owned).collect())
    }

    /// Parses pairs of name and number, such as `eth0:100,eth1:200`.
    fn numbers_by_name<T: FromStr>(self) -> Result<BTreeMap<String, T>, SwitchError> {
        let pair = |part: &str| {
            let (name, number) = part.rsplit_once(':')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        let pairs: Option<_> = self.parts().map(pair).collect();
        pairs.ok_or_else(|| self.out_of_range("PORT:NUMBER between commas"))
    }

    fn flag(self) -> Result<bool, SwitchError> {
        self.value.parse().map_err(|_| self.out_of_range("true or false"))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the parsers have one signature")]
    fn text(self) -> Result<String, SwitchError> {
        Ok(self.value.to_owned())
    }

    /// Returns the value as the name of a file.
    #[expect(clippy::unnecessary_wraps, reason = "the parsers have one signature")]
    fn path(self) -> Result<PathBuf, SwitchError> {
        Ok(self.value.into())
    }

    /// Parses a keyword in the spelling of the configuration file.
    fn word<T: Deserialize<'a>>(self, range: &'static str) -> Result<T, SwitchError> {
        let read: Result<T, Error> = T::deserialize(self.value.into_deserializer());
        read.map_err(|_| self.out_of_range(range))
    }

    /// Parses a number; an empty text means no number.
    fn some_number<T: FromStr>(self) -> Result<Option<T>, SwitchError> {
        self.number().map(Some)
    }

    /// Parses a keyword; an empty text means no keyword.
    fn some_word<T: Deserialize<'a>>(self, range: &'static str) -> Result<Option<T>, SwitchError> {
        self.word(range).map(Some)
    }

    fn out_of_range(self, range: &'static str) -> SwitchError {
        SwitchError::Range { setting: self.setting, value: self.value.to_owned(), range }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Serialize;
    use serde_json::Value;

    use super::*;
    use crate::config::OffloadKind;

    /// Returns a value for the key that differs from the default.
    fn value(key: &str) -> &'static str {
        match key {
            "caches.kind" => "gigaflow",
            "caches.index" => "learned",
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
            | "select_all" => "true",
            "eviction.repair" => "on",
            "packets.vlan_limit" => "2",
            "qinq_ethtype" => "802.1q",
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
            setting.write(&mut after, value(setting.key)).unwrap();
            let [old, new] = [&before, &after].map(|config| serde_json::to_value(config).unwrap());
            let mut keys = BTreeSet::new();
            differing("", &old, &new, &mut keys);
            // A key with numbers by member ends with the name of the member, such as `.p1`.
            let keys: Vec<_> = keys.iter().map(|key| key.trim_end_matches(".p1")).collect();
            assert_eq!(keys, [setting.key]);
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
            setting.write(&mut config, value(setting.key)).unwrap();
            let is_refused = setting.write(&mut config, "seven").is_err() || {
                config.caches.gigaflow.offload.kind = OffloadKind::P4runtime;
                config.bridges = vec![BridgeOptions { name: "br0".into(), ..Default::default() }];
                config.check().is_err()
            };
            assert!(is_refused, "{}", setting.key);
        }
    }

    #[test]
    fn a_printed_list_parses_back() {
        let setting = SETTINGS.iter().find(|own| own.key.ends_with("offload.ports")).unwrap();
        let mut config = Config::default();
        for (text, ports) in [
            ("7, 8", vec![7, 8]),
            ("[]", vec![]),
            ("[1,2]", vec![1, 2]),
            ("", vec![]),
            ("3", vec![3]),
        ] {
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
        assert_eq!(words, 3 + 3 + 7 + 4 + 3 + 2 + 2 + 3);
    }
}
