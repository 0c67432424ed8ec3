//! Settings that can change while the switch runs.

use std::str::FromStr;

use serde::{
    Deserialize,
    de::{IntoDeserializer as _, value::Error},
};

use crate::{config::Config, error::SwitchError};

/// A setting that can change at run time.
pub(crate) struct RuntimeSetting {
    /// Key in the configuration file.
    key: &'static str,
    /// Parses a value and writes it to the field of the key.
    write: fn(&mut Config, SettingValue<'_>) -> Result<(), SwitchError>,
}

/// Declares settings by the path of their field and the parser of their values.
///
/// The path is the key. So a key cannot change another field, and no key is without a field.
macro_rules! settings {
    ($($first:ident $(.$field:ident)+: $parse:ident($($range:expr)?),)+) => {
        /// The settings that can change at run time.
        const SETTINGS: &[RuntimeSetting] = &[$(RuntimeSetting {
            key: concat!(stringify!($first) $(, ".", stringify!($field))+),
            write: |config, value| {
                config.$first$(.$field)+ = value.$parse($($range)?)?;
                Ok(())
            },
        }),+];
    };
}

settings! {
    caches.kind: word("megaflow or gigaflow"),
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
    caches.gigaflow.offload.bridge: text(),
    caches.gigaflow.offload.ports: numbers(),
    caches.gigaflow.offload.stages: number(),
    caches.gigaflow.offload.stage_entries: number(),
    caches.gigaflow.offload.masks: number(),
    caches.gigaflow.offload.key_bits: number(),
    caches.gigaflow.offload.update_us: number(),
    caches.gigaflow.offload.drain_ms: number(),
    caches.gigaflow.offload.stale: word("report or ports-down"),
    threads.translations_per_iteration: number(),
    eviction.asynchronous: flag(),
    eviction.repair: word("off, on or rate"),
    eviction.repair_rate: number(),
}

/// The keys of the settings that can change at run time.
pub(crate) const KEYS: &[&str] = &{
    let mut keys = [""; SETTINGS.len()];
    let mut index = 0;
    while index < keys.len() {
        keys[index] = SETTINGS[index].key;
        index += 1;
    }
    keys
};

/// Returns the configuration with new values of these settings.
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
        RuntimeSetting::of_key(key)?.write(&mut changed, value)?;
    }
    changed.check()?;
    Ok(changed)
}

impl RuntimeSetting {
    /// Returns the setting of a key.
    fn of_key(key: &str) -> Result<&'static Self, SwitchError> {
        let setting = SETTINGS.iter().find(|setting| setting.key == key);
        setting.ok_or_else(|| SwitchError::Range {
            setting: "setting",
            value: key.to_owned(),
            range: "a setting that can change while the switch runs",
        })
    }

    /// Writes a value into a configuration.
    fn write(&self, config: &mut Config, value: &str) -> Result<(), SwitchError> {
        (self.write)(config, SettingValue { setting: self.key, value })
    }
}

/// The text of a value, with the name of its setting.
#[derive(Clone, Copy)]
struct SettingValue<'a> {
    setting: &'static str,
    value: &'a str,
}

impl<'a> SettingValue<'a> {
    fn number<T: FromStr>(self) -> Result<T, SwitchError> {
        self.value.parse().map_err(|_| self.out_of_range("a whole number"))
    }

    /// Parses numbers that are separated by commas; an empty value is an empty list.
    fn numbers<T: FromStr>(self) -> Result<Vec<T>, SwitchError> {
        let parts = self.value.split(',').map(str::trim).filter(|_| !self.value.is_empty());
        let numbers: Result<_, _> = parts.map(str::parse).collect();
        numbers.map_err(|_| self.out_of_range("whole numbers between commas"))
    }

    fn flag(self) -> Result<bool, SwitchError> {
        self.value.parse().map_err(|_| self.out_of_range("true or false"))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the parsers have one signature")]
    fn text(self) -> Result<String, SwitchError> {
        Ok(self.value.to_owned())
    }

    /// Parses a keyword, with the spelling of the configuration file.
    fn word<T: Deserialize<'a>>(self, range: &'static str) -> Result<T, SwitchError> {
        let read: Result<T, Error> = T::deserialize(self.value.into_deserializer());
        read.map_err(|_| self.out_of_range(range))
    }

    fn out_of_range(self, range: &'static str) -> SwitchError {
        SwitchError::Range { setting: self.setting, value: self.value.to_owned(), range }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::config::{self, OffloadKind};

    /// Returns a value that is not the default.
    fn value(key: &str) -> &'static str {
        match key {
            "caches.kind" => "gigaflow",
            "caches.index" => "learned",
            "caches.gigaflow.policy" => "one-to-one",
            "caches.gigaflow.eviction" => "never",
            "caches.gigaflow.offload.kind" => "embedded",
            "caches.gigaflow.offload.stale" => "ports-down",
            "eviction.asynchronous" => "true",
            "eviction.repair" => "on",
            _ => "7",
        }
    }

    /// Collects the keys of values that differ.
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

    /// The key of the configuration file, which serde knows, is the key of the setting.
    #[test]
    fn every_setting_changes_its_own_key_only() {
        let before = Config::default();
        for setting in SETTINGS {
            let mut after = before.clone();
            setting.write(&mut after, value(setting.key)).unwrap();
            let [old, new] = [&before, &after].map(|config| serde_json::to_value(config).unwrap());
            let mut keys = BTreeSet::new();
            differing("", &old, &new, &mut keys);
            assert_eq!(keys.into_iter().collect::<Vec<_>>(), [setting.key]);
        }
        assert_eq!(KEYS.len(), KEYS.iter().collect::<BTreeSet<_>>().len());
    }

    #[test]
    fn every_setting_refuses_a_wrong_value() {
        for setting in SETTINGS {
            let mut config = Config::default();
            setting.write(&mut config, value(setting.key)).unwrap();
            let is_refused = setting.write(&mut config, "seven").is_err() || {
                config.caches.gigaflow.offload.kind = OffloadKind::P4runtime;
                config.bridges =
                    vec![config::BridgeOptions { name: "br0".into(), ..Default::default() }];
                config.check().is_err()
            };
            assert!(is_refused, "{}", setting.key);
        }
    }

    #[test]
    fn every_word_of_an_error_is_accepted() {
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
        assert_eq!(words, 2 + 3 + 7 + 4 + 3 + 2 + 2 + 3);
    }
}
