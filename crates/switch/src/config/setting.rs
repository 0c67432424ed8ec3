//! Settings that can change while the switch runs.

use std::str::FromStr;

use serde::{
    Deserialize,
    de::{IntoDeserializer as _, value::Error},
};

use crate::{config::Config, error::SwitchError};

/// The names of the settings that can change at run time.
pub(crate) const SETTINGS: &[&str] = &[
    "caches.kind",
    "caches.idle_ms",
    "caches.verify_one_in",
    "caches.gigaflow.stages",
    "caches.gigaflow.stage_entries",
    "caches.gigaflow.policy",
    "caches.gigaflow.eviction",
    "caches.gigaflow.fallback_one_in",
    "caches.gigaflow.tag_bits",
    "caches.gigaflow.offload.kind",
    "caches.gigaflow.offload.address",
    "caches.gigaflow.offload.device_id",
    "caches.gigaflow.offload.bridge",
    "caches.gigaflow.offload.ports",
    "caches.gigaflow.offload.stages",
    "caches.gigaflow.offload.stage_entries",
    "caches.gigaflow.offload.masks",
    "caches.gigaflow.offload.key_bits",
    "caches.gigaflow.offload.update_us",
    "caches.gigaflow.offload.drain_ms",
    "caches.gigaflow.offload.stale",
    "threads.translations_per_iteration",
    "eviction.asynchronous",
    "eviction.repair",
    "eviction.repair_rate",
];

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
    for (setting, value) in settings {
        let Some(setting) = SETTINGS.iter().find(|known| *known == setting) else {
            return Err(SwitchError::Range {
                setting: "setting",
                value: (*setting).to_owned(),
                range: "a setting that can change while the switch runs",
            });
        };
        change(&mut changed, setting, value)?;
    }
    changed.check()?;
    Ok(changed)
}

/// Writes a value into a configuration; `setting` is one of [`SETTINGS`].
fn change(config: &mut Config, setting: &'static str, value: &str) -> Result<(), SwitchError> {
    let (caches, number) = (&mut config.caches, SettingValue { setting, value });
    let chain = &mut caches.gigaflow;
    match setting {
        "caches.kind" => caches.kind = number.word("megaflow or gigaflow")?,
        "caches.idle_ms" => caches.idle_ms = number.number()?,
        "caches.verify_one_in" => caches.verify_one_in = number.number()?,
        "caches.gigaflow.stages" => chain.stages = number.number()?,
        "caches.gigaflow.stage_entries" => chain.stage_entries = number.number()?,
        "caches.gigaflow.policy" => chain.policy = number.word(POLICIES)?,
        "caches.gigaflow.eviction" => chain.eviction = number.word(EVICTIONS)?,
        "caches.gigaflow.fallback_one_in" => chain.fallback_one_in = number.number()?,
        "caches.gigaflow.tag_bits" => chain.tag_bits = number.number()?,
        "caches.gigaflow.offload.kind" => chain.offload.kind = number.word(DEVICES)?,
        "caches.gigaflow.offload.address" => chain.offload.address = value.to_owned(),
        "caches.gigaflow.offload.device_id" => chain.offload.device_id = number.number()?,
        "caches.gigaflow.offload.bridge" => chain.offload.bridge = value.to_owned(),
        "caches.gigaflow.offload.ports" => chain.offload.ports = number.numbers()?,
        "caches.gigaflow.offload.stages" => chain.offload.stages = number.number()?,
        "caches.gigaflow.offload.stage_entries" => chain.offload.stage_entries = number.number()?,
        "caches.gigaflow.offload.masks" => chain.offload.masks = number.number()?,
        "caches.gigaflow.offload.key_bits" => chain.offload.key_bits = number.number()?,
        "caches.gigaflow.offload.update_us" => chain.offload.update_us = number.number()?,
        "caches.gigaflow.offload.drain_ms" => chain.offload.drain_ms = number.number()?,
        "caches.gigaflow.offload.stale" => chain.offload.stale = number.word(STALE)?,
        "eviction.asynchronous" => {
            config.eviction.asynchronous =
                number.value.parse().map_err(|_| number.wrong("true or false"))?;
        }
        "eviction.repair" => config.eviction.repair = number.word("off, on or rate")?,
        "eviction.repair_rate" => config.eviction.repair_rate = number.number()?,
        "threads.translations_per_iteration" => {
            config.threads.translations_per_iteration = number.number()?;
        }
        // A test checks that every name in `SETTINGS` has an arm.
        _ => return Err(number.wrong("a setting that can change while the switch runs")),
    }
    Ok(())
}

const POLICIES: &str = "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow";

const DEVICES: &str = "none, embedded or p4runtime";

const STALE: &str = "report or ports-down";

const EVICTIONS: &str = "never, least-recent, second-use or least-shared";

/// The text of a value, with the name of its setting.
#[derive(Clone, Copy)]
struct SettingValue<'a> {
    setting: &'static str,
    value: &'a str,
}

impl<'a> SettingValue<'a> {
    fn number<T: FromStr>(self) -> Result<T, SwitchError> {
        self.value.parse().map_err(|_| self.wrong("a whole number"))
    }

    /// Parses numbers that are separated by commas; an empty value is an empty list.
    fn numbers<T: FromStr>(self) -> Result<Vec<T>, SwitchError> {
        let parts = self.value.split(',').map(str::trim).filter(|_| !self.value.is_empty());
        let numbers: Result<_, _> = parts.map(str::parse).collect();
        numbers.map_err(|_| self.wrong("whole numbers between commas"))
    }

    /// Parses a keyword, with the spelling of the configuration file.
    fn word<T: Deserialize<'a>>(self, range: &'static str) -> Result<T, SwitchError> {
        let read: Result<T, Error> = T::deserialize(self.value.into_deserializer());
        read.map_err(|_| self.wrong(range))
    }

    fn wrong(self, range: &'static str) -> SwitchError {
        SwitchError::Range { setting: self.setting, value: self.value.to_owned(), range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, OffloadKind};

    #[test]
    fn every_setting_is_one_of_the_configuration() {
        let value = |setting: &str| match setting {
            "caches.kind" => "gigaflow",
            "caches.gigaflow.policy" => "one-to-one",
            "caches.gigaflow.eviction" => "never",
            "caches.gigaflow.offload.kind" => "embedded",
            "caches.gigaflow.offload.stale" => "ports-down",
            "eviction.asynchronous" => "true",
            "eviction.repair" => "on",
            _ => "7",
        };
        for setting in SETTINGS {
            let (mut config, before) = (Config::default(), Config::default());
            change(&mut config, setting, value(setting)).unwrap();
            assert_ne!(config, before, "{setting}");
            let is_refused = change(&mut config, setting, "seven").is_err() || {
                config.caches.gigaflow.offload.kind = OffloadKind::P4runtime;
                config.bridges =
                    vec![config::BridgeOptions { name: "br0".into(), ..Default::default() }];
                config.check().is_err()
            };
            assert!(is_refused, "{setting}");
        }
    }
}
