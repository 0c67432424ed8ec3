//! Settings that can be changed while the switch runs.

use std::str::FromStr;

use serde::{
    Deserialize,
    de::{IntoDeserializer as _, value::Error},
};
use shunt_datapath::{Command, command::Tuning};

use crate::{Config, SwitchError, control::Control};

/// The settings, as the configuration spells them.
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
    "threads.translations_per_turn",
];

impl Control {
    /// Changes a setting, as the configuration spells it.
    pub(crate) async fn set(&self, setting: &str, value: &str) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        let mut changed = self.config.lock().clone();
        let Some(setting) = SETTINGS.iter().find(|known| **known == setting) else {
            return Err(SwitchError::Range {
                setting: "setting",
                value: setting.to_owned(),
                range: "one of those that can be changed while the switch runs",
            });
        };
        change(&mut changed, setting, value)?;
        changed.check()?;
        let tuning = tuning(&changed);
        *self.config.lock() = changed;
        for thread in 0..usize::from(self.plane.threads_count()) {
            self.plane.send(thread, Command::Tune(tuning)).await;
        }
        Ok(())
    }
}

/// Writes a value into a configuration; `setting` is one of [`SETTINGS`].
fn change(config: &mut Config, setting: &'static str, value: &str) -> Result<(), SwitchError> {
    let (caches, number) = (&mut config.caches, Value { setting, value });
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
        _ => config.threads.translations_per_turn = number.number()?,
    }
    Ok(())
}

const POLICIES: &str = "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow";

const EVICTIONS: &str = "never, least-recent or least-shared";

/// A value that is to be read.
#[derive(Clone, Copy)]
struct Value<'a> {
    setting: &'static str,
    value: &'a str,
}

impl<'a> Value<'a> {
    fn number<T: FromStr>(self) -> Result<T, SwitchError> {
        self.value.parse().map_err(|_| self.wrong("a whole number"))
    }

    /// One of some words, spelled as in the configuration.
    fn word<T: Deserialize<'a>>(self, range: &'static str) -> Result<T, SwitchError> {
        let read: Result<T, Error> = T::deserialize(self.value.into_deserializer());
        read.map_err(|_| self.wrong(range))
    }

    fn wrong(self, range: &'static str) -> SwitchError {
        SwitchError::Range { setting: self.setting, value: self.value.to_owned(), range }
    }
}

const fn tuning(config: &Config) -> Tuning {
    Tuning {
        max_idle: config.caches.idle(),
        verify_one_in: config.caches.verify_one_in,
        translations_per_turn: config.threads.translations_per_turn,
        wildcard: config.caches.wildcard(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_one_of_the_configuration() {
        let value = |setting: &str| match setting {
            "caches.kind" => "gigaflow",
            "caches.gigaflow.policy" => "one-to-one",
            "caches.gigaflow.eviction" => "never",
            _ => "7",
        };
        for setting in SETTINGS {
            let (mut config, before) = (Config::default(), Config::default());
            change(&mut config, setting, value(setting)).unwrap();
            assert_ne!(config, before, "{setting}");
            assert!(change(&mut config, setting, "seven").is_err(), "{setting}");
        }
    }
}
