//! Settings that can change while the switch runs.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer as _, value::Error},
};
use serde_json::Value;

use crate::{
    config::{
        BondOptions, BridgeOptions, Config, MirrorOptions,
        changed_settings::ChangedSettings,
        multicast::{AGEING_RANGE, ENTRIES_RANGE},
    },
    error::SwitchError,
};

/// A field of the options type `T`, identified by its key.
pub(crate) struct SettingField<T> {
    /// Key in the configuration file.
    pub(crate) key: &'static str,
    /// The part of the options with which the field is set and refused.
    pub(crate) section: SettingSection,
    /// Returns whether both options have the same value.
    pub(crate) is_equal: fn(&T, &T) -> bool,
    /// Copies the value of the first options into the second.
    pub(crate) copy: fn(&T, &mut T),
    /// Returns the value as `set` takes it.
    pub(crate) text: fn(&T) -> String,
}

/// The part of the options of a bridge that is set and refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingSection {
    /// Any other setting, which is refused by itself.
    Separate,
    /// The addresses of controllers, and the addresses to listen on.
    Controllers,
    /// The options of sFlow.
    Sflow,
    /// The options of NetFlow.
    Netflow,
    /// The options of IPFIX.
    Ipfix,
}

/// A setting in the options type `T`, identified by the key of its field.
pub(crate) struct KeyedSetting<T> {
    /// The key, the description and the accessors of the field.
    pub(crate) field: SettingField<T>,
    /// Parses a value and writes it to the field.
    write: fn(&mut T, SettingValue<'_>) -> Result<(), SwitchError>,
}

/// Declares a field by its path, which is also its key.
macro_rules! field {
    ($section:ident, $first:ident $(.$field:ident)*) => {
        SettingField {
            key: concat!(stringify!($first) $(, ".", stringify!($field))*),
            section: SettingSection::$section,
            is_equal: |one, two| one.$first$(.$field)* == two.$first$(.$field)*,
            copy: |from, to| to.$first$(.$field)*.clone_from(&from.$first$(.$field)*),
            text: |options| setting_text(&options.$first$(.$field)*),
        }
    };
}

/// Declares settings by the path of their field and the parser of their values.
///
/// The path of the field is the key: so a key cannot write to the wrong field.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $name:ident of $options:ty {
            $($first:ident $(.$field:ident)*: $parse:ident($($range:expr)?) in $section:ident,)+
        }
    ) => {
        $(#[$doc])*
        pub(crate) const $name: &[KeyedSetting<$options>] = &[$(KeyedSetting {
            field: field!($section, $first $(.$field)*),
            write: |options, value| {
                options.$first$(.$field)* = value.$parse($($range)?)?;
                Ok(())
            },
        }),+];
    };
    (
        $(#[$doc:meta])*
        $name:ident of $options:ty {
            $($first:ident $(.$field:ident)*: $parse:ident($($range:expr)?),)+
        }
    ) => {
        settings! {
            $(#[$doc])*
            $name of $options {
                $($first $(.$field)*: $parse($($range)?) in Separate,)+
            }
        }
    };
}

settings! {
    /// The settings of a bridge that can change at run time.
    BRIDGE_SETTINGS of BridgeOptions {
        controllers: texts() in Controllers,
        datapath_id: text() in Separate,
        fail_mode: word("secure or standalone") in Separate,
        flood_vlans: numbers_in(VLANS_RANGE) in Separate,
        ipfix.cache_active_timeout: number_in("from 0 to 4200") in Ipfix,
        ipfix.cache_max_flows: number_in("from 0 to 1048576") in Ipfix,
        ipfix.obs_domain_id: number() in Ipfix,
        ipfix.obs_point_id: number() in Ipfix,
        ipfix.sampling: number_in(POSITIVE_RANGE) in Ipfix,
        ipfix.targets: texts() in Ipfix,
        ipfix.virtual_obs_id: text() in Ipfix,
        listen: texts() in Controllers,
        mac: text() in Separate,
        mac_ageing_s: number() in Separate,
        mac_entries: number() in Separate,
        mcast_snooping_ageing_s: number_in(AGEING_RANGE) in Separate,
        mcast_snooping_disable_flood_unregistered: flag() in Separate,
        mcast_snooping_enable: flag() in Separate,
        mcast_snooping_entries: number_in(ENTRIES_RANGE) in Separate,
        netflow.active_timeout: number_in("from -1 to 2147483647") in Netflow,
        netflow.add_id_to_interface: flag() in Netflow,
        netflow.engine_id: number_in("from -1 to 255") in Netflow,
        netflow.engine_type: number() in Netflow,
        netflow.targets: texts() in Netflow,
        protocols: texts() in Separate,
        sflow.agent: text() in Sflow,
        sflow.header: number_in("from 14 to 256") in Sflow,
        sflow.polling: number() in Sflow,
        sflow.sampling: number_in(POSITIVE_RANGE) in Sflow,
        sflow.targets: texts() in Sflow,
        table_limits: texts() in Separate,
        table_names: texts() in Separate,
        table_overflow: word("refuse or evict") in Separate,
        table_rules: number() in Separate,
    }
}

settings! {
    /// The settings of a bridge that only take effect when it is added.
    BRIDGE_START_SETTINGS of BridgeOptions {
        local: word("none or tap"),
        mtu: number_in("68 to 65535"),
    }
}

settings! {
    /// The settings of a bond.
    BOND_SETTINGS of BondOptions {
        cvlans: numbers_in(VLANS_RANGE),
        downdelay_ms: number(),
        hash_basis: number(),
        lacp: word("off, active or passive"),
        lacp_aggregation_key: numbers_by_name(),
        lacp_fallback_ab: flag(),
        lacp_port_id: numbers_by_name(),
        lacp_port_priority: numbers_by_name(),
        lacp_system_id: text(),
        lacp_system_priority: number_in("from 1 to 65535"),
        lacp_time: word("slow or fast"),
        members: texts(),
        mode: word("active-backup, balance-slb or balance-tcp"),
        primary: text(),
        qinq_ethtype: word("802.1ad or 802.1q"),
        rebalance_interval_ms: number(),
        tag: optional_number_in("a VLAN from 0 to 4095"),
        trunks: numbers_in(VLANS_RANGE),
        updelay_ms: number(),
        vlan_mode: optional_word("access, trunk, native-tagged, native-untagged or dot1q-tunnel"),
    }
}

settings! {
    /// The settings of a mirror.
    MIRROR_SETTINGS of MirrorOptions {
        output_port: text(),
        output_vlan: number_in("from 1 to 4095, or 0 for none"),
        select_all: flag(),
        select_dst_port: texts(),
        select_src_port: texts(),
        select_vlan: numbers_in(VLANS_RANGE),
        snaplen: number_in("from 14 to 65535, or 0 for no limit"),
    }
}

settings! {
    /// The settings of the switch that can change at run time.
    SETTINGS of Config {
    caches.kind: word("megaflow, gigaflow or flows"),
    caches.index: word("adaptive, learned or tuple-space"),
    caches.learned_index: word("tree, segments or rqrmi"),
    caches.signature_entries: number_in("a power of two up to 16777216 (0: none)"),
    caches.megaflow_entries: number_in("from 1 to 16777216"),
    caches.idle_ms: number_in(POSITIVE_RANGE_64),
    caches.verify_one_in: number(),
    caches.gigaflow.stages: number_in("from 1 to 16"),
    caches.gigaflow.stage_entries: number_in("from 1 to 1048576"),
    caches.gigaflow.policy: word(
        "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow"
    ),
    caches.gigaflow.eviction: word("never, least-recent, second-use or least-shared"),
    caches.gigaflow.fallback_one_in: number(),
    caches.gigaflow.tag_bits: number_in("from 1 to 24"),
    caches.gigaflow.offload.kind: word("none, embedded or p4runtime"),
    caches.gigaflow.offload.address: text(),
    caches.gigaflow.offload.device_id: number(),
    caches.gigaflow.offload.device_config: path(),
    caches.gigaflow.offload.bridge: text(),
    caches.gigaflow.offload.ports: numbers_in("numbers from 1 to 65279, separated by commas"),
    caches.gigaflow.offload.stages: number_in("from 1 to 16"),
    caches.gigaflow.offload.stage_entries: number_in("from 1 to 1048576"),
    caches.gigaflow.offload.masks: number(),
    caches.gigaflow.offload.key_bits: number(),
    caches.gigaflow.offload.update_us: number(),
    caches.gigaflow.offload.drain_ms: number_in("from 0 to 10000"),
    caches.gigaflow.offload.stale: word("report or ports-down"),
    threads.auto_lb: flag(),
    threads.auto_lb_improvement_threshold: number_in("from 0 to 100"),
    threads.auto_lb_interval_min: number_in("from 1 to 20000"),
    threads.auto_lb_load_threshold: number_in("from 0 to 100"),
    threads.sleep_max_ms: number_in("from 0 to 10000"),
    threads.translations_per_iteration: number_in(POSITIVE_RANGE_64),
    packets.vlan_limit: number_in("from 1 to 2"),
    eviction.asynchronous: flag(),
    eviction.repair: word("off, on or rate"),
    eviction.repair_rate: number_in(POSITIVE_RANGE),
    }
}

/// The allowed values of a list of VLANs, for errors.
const VLANS_RANGE: &str = "VLANs from 0 to 4095, separated by commas";

/// The allowed values of a number of 32 bits that is not 0, for errors.
const POSITIVE_RANGE: &str = "from 1 to 4294967295";

/// The allowed values of a number of 64 bits that is not 0, for errors.
const POSITIVE_RANGE_64: &str = "from 1 to 18446744073709551615";

/// The fields of the switch that only take effect when it starts.
pub(crate) const START_FIELDS: &[SettingField<Config>] = &[
    field!(Separate, caches.exact_entries),
    field!(Separate, caches.exact_insert_one_in),
    field!(Separate, dpdk.extra_args),
    field!(Separate, dpdk.huge_pages),
    field!(Separate, dpdk.memory_mib),
    field!(Separate, eviction.engine),
    field!(Separate, foresight.entries),
    field!(Separate, foresight.forecasts_per_iteration),
    field!(Separate, foresight.idle_ms),
    field!(Separate, foresight.predictors),
    field!(Separate, threads.cpus),
    field!(Separate, threads.packet),
];

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
        keys[index] = settings[index].field.key;
        index += 1;
    }
    keys
}

/// Returns a value as `set` takes it: a list has commas between its values.
fn setting_text(value: &impl Serialize) -> String {
    let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    // The options are plain values with text keys, so the conversion to JSON never fails.
    match serde_json::to_value(value).unwrap_or_default() {
        Value::Array(items) => items.iter().map(bare).collect::<Vec<_>>().join(","),
        value => bare(&value),
    }
}

/// Returns the changes that texts describe, each a key of the switch and a value.
///
/// # Errors
///
/// If a setting does not exist, or a value does not have the type of its key.
pub(crate) fn changed_settings(
    config: &Config,
    settings: &[(&str, &str)],
) -> Result<ChangedSettings<Config>, SwitchError> {
    with_settings(config, SETTINGS, settings, SETTINGS_RANGE)
}

/// Returns the change of a setting of the switch to its value in `config`.
///
/// # Errors
///
/// If the setting does not exist.
pub(crate) fn change_to(
    config: &Config,
    key: &str,
) -> Result<ChangedSettings<Config>, SwitchError> {
    let setting = find(&[SETTINGS], key, SETTINGS_RANGE)?;
    Ok(ChangedSettings::new(vec![&setting.field], config.clone()))
}

/// The keys that [`changed_settings`] and [`change_to`] take, for errors.
const SETTINGS_RANGE: &str = "a setting that can change while the switch runs";

/// Returns the changes that texts describe, each a key of a bridge and a value.
///
/// # Errors
///
/// If a key does not exist or cannot change, or a value does not have the type of its key.
pub(crate) fn changed_bridge_settings(
    bridge: &BridgeOptions,
    settings: &[(&str, &str)],
) -> Result<ChangedSettings<BridgeOptions>, SwitchError> {
    let range = "a key of a bridge that can change while it forwards";
    with_settings(bridge, BRIDGE_SETTINGS, settings, range)
}

/// Returns the changed settings with these values.
fn with_settings<T: Clone + 'static>(
    options: &T,
    known: &'static [KeyedSetting<T>],
    settings: &[(&str, &str)],
    range: &'static str,
) -> Result<ChangedSettings<T>, SwitchError> {
    let (mut values, mut fields) = (options.clone(), Vec::new());
    for (key, value) in settings {
        let setting = find(&[known], key, range)?;
        setting.write(&mut values, value)?;
        fields.push(&setting.field);
    }
    Ok(ChangedSettings::new(fields, values))
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
    let setting = lists.iter().copied().flatten().find(|setting| setting.field.key == key);
    setting.ok_or_else(|| SwitchError::Range { setting: "key", value: key.to_owned(), range })
}

impl<T> KeyedSetting<T> {
    /// Parses a value and writes it into `options`.
    fn write(&self, options: &mut T, value: &str) -> Result<(), SwitchError> {
        (self.write)(options, SettingValue { setting: self.field.key, value })
    }
}

/// The text of a value, with the name of its setting for errors.
#[derive(Clone, Copy)]
struct SettingValue<'a> {
    /// The name of the setting, which errors quote.
    setting: &'static str,
    /// The text of the value.
    value: &'a str,
}

impl<'a> SettingValue<'a> {
    /// Parses a number of a setting that allows all values of its type.
    fn number<T: WholeNumber>(self) -> Result<T, SwitchError> {
        self.number_in(T::RANGE)
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

    /// Parses numbers, separated by commas; `range` describes the allowed numbers.
    fn numbers_in<T: FromStr>(self, range: &'static str) -> Result<Vec<T>, SwitchError> {
        let numbers: Result<_, _> = self.parts().map(str::parse).collect();
        numbers.map_err(|_| self.out_of_range(range))
    }

    /// Parses texts that are separated by commas.
    #[expect(clippy::unnecessary_wraps, reason = "all parsers have the same signature")]
    fn texts(self) -> Result<Vec<String>, SwitchError> {
        Ok(self.parts().map(str::to_owned).collect())
    }

    /// Parses pairs of name and number, such as `eth0:100,eth1:200`.
    fn numbers_by_name(self) -> Result<BTreeMap<String, u16>, SwitchError> {
        let pair = |part: &str| {
            let (name, number) = part.rsplit_once(':')?;
            Some((name.to_owned(), number.parse().ok()?))
        };
        let pairs: Option<_> = self.parts().map(pair).collect();
        pairs.ok_or_else(|| {
            self.out_of_range("PORT:NUMBER, separated by commas, with numbers up to 65535")
        })
    }

    /// Parses `true` or `false`.
    fn flag(self) -> Result<bool, SwitchError> {
        self.value.parse().map_err(|_| self.out_of_range("true or false"))
    }

    /// Returns the value as text.
    #[expect(clippy::unnecessary_wraps, reason = "all parsers have the same signature")]
    fn text(self) -> Result<String, SwitchError> {
        Ok(self.value.to_owned())
    }

    /// Returns the value as the name of a file.
    #[expect(clippy::unnecessary_wraps, reason = "all parsers have the same signature")]
    fn path(self) -> Result<PathBuf, SwitchError> {
        Ok(self.value.into())
    }

    /// Parses a keyword in the spelling of the configuration file.
    fn word<T: Deserialize<'a>>(self, range: &'static str) -> Result<T, SwitchError> {
        let read: Result<T, Error> = T::deserialize(self.value.into_deserializer());
        read.map_err(|_| self.out_of_range(range))
    }

    /// Parses a number; `range` describes the allowed numbers.
    fn optional_number_in<T: FromStr>(self, range: &'static str) -> Result<Option<T>, SwitchError> {
        self.number_in(range).map(Some)
    }

    /// Parses a keyword; an empty text means no keyword.
    fn optional_word<T: Deserialize<'a>>(
        self,
        range: &'static str,
    ) -> Result<Option<T>, SwitchError> {
        self.word(range).map(Some)
    }

    /// Returns the error of a value outside of a range.
    fn out_of_range(self, range: &'static str) -> SwitchError {
        SwitchError::Range { setting: self.setting, value: self.value.to_owned(), range }
    }
}

/// A type of whole numbers, with the range of its values for errors.
trait WholeNumber: FromStr {
    /// Description of the values of the type.
    const RANGE: &'static str;
}

impl WholeNumber for u8 {
    const RANGE: &'static str = "a whole number from 0 to 255";
}

impl WholeNumber for u32 {
    const RANGE: &'static str = "a whole number from 0 to 4294967295";
}

impl WholeNumber for u64 {
    const RANGE: &'static str = "a whole number from 0 to 18446744073709551615";
}

impl WholeNumber for usize {
    #[cfg(target_pointer_width = "64")]
    const RANGE: &'static str = u64::RANGE;
    #[cfg(not(target_pointer_width = "64"))]
    const RANGE: &'static str = u32::RANGE;
}

#[cfg(test)]
mod tests;
