//! Settings that can be changed while the switch runs.

use std::str::FromStr;

use serde::{
    Deserialize,
    de::{IntoDeserializer as _, value::Error},
};
use shunt_datapath::{Command, command::Tuning};

use crate::{
    config::{Config, Target},
    control::Control,
    error::SwitchError,
};

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
    "caches.gigaflow.target.kind",
    "caches.gigaflow.target.address",
    "caches.gigaflow.target.device_id",
    "caches.gigaflow.target.bridge",
    "caches.gigaflow.target.ports",
    "caches.gigaflow.target.stages",
    "caches.gigaflow.target.stage_entries",
    "caches.gigaflow.target.masks",
    "caches.gigaflow.target.key_bits",
    "caches.gigaflow.target.update_us",
    "caches.gigaflow.target.drain_ms",
    "caches.gigaflow.target.stale",
    "threads.translations_per_iteration",
    "eviction.asynchronous",
    "eviction.repair",
    "eviction.repair_rate",
];

impl Control {
    /// Changes settings at once, each as the configuration spells it; or none, if one is refused.
    pub(crate) async fn set(&self, settings: &[(&str, &str)]) -> Result<(), SwitchError> {
        let _structure = self.structure.lock().await;
        let mut changed = self.config.lock().clone();
        for (setting, value) in settings {
            let Some(setting) = SETTINGS.iter().find(|known| *known == setting) else {
                return Err(SwitchError::Range {
                    setting: "setting",
                    value: (*setting).to_owned(),
                    range: "one of those that can be changed while the switch runs",
                });
            };
            change(&mut changed, setting, value)?;
        }
        changed.check()?;
        self.check_target(&changed.caches.gigaflow.target)?;
        let tuning = tuning(&changed);
        let before = std::mem::replace(&mut *self.config.lock(), changed);
        if let Err(error) = self.apply_nic().await {
            *self.config.lock() = before;
            return Err(error);
        }
        for thread in 0..usize::from(self.plane.threads_count()) {
            self.plane.send(thread, Command::Tune(tuning)).await;
        }
        Ok(())
    }
}

impl Control {
    /// Refuses a bridge that is not there for a NIC that is to come; but where there is one its bridge may
    /// go and come back.
    fn check_target(&self, target: &Target) -> Result<(), SwitchError> {
        let before = self.config.lock().caches.gigaflow.target.clone();
        let is_to_come = before.kind != target.kind && !target.is_none();
        if is_to_come || before.bridge != target.bridge {
            self.bridges.lock().find(&target.bridge)?;
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
        "caches.gigaflow.target.kind" => chain.target.kind = number.word(TARGETS)?,
        "caches.gigaflow.target.address" => chain.target.address = value.to_owned(),
        "caches.gigaflow.target.device_id" => chain.target.device_id = number.number()?,
        "caches.gigaflow.target.bridge" => chain.target.bridge = value.to_owned(),
        "caches.gigaflow.target.ports" => chain.target.ports = number.numbers()?,
        "caches.gigaflow.target.stages" => chain.target.stages = number.number()?,
        "caches.gigaflow.target.stage_entries" => chain.target.stage_entries = number.number()?,
        "caches.gigaflow.target.masks" => chain.target.masks = number.number()?,
        "caches.gigaflow.target.key_bits" => chain.target.key_bits = number.number()?,
        "caches.gigaflow.target.update_us" => chain.target.update_us = number.number()?,
        "caches.gigaflow.target.drain_ms" => chain.target.drain_ms = number.number()?,
        "caches.gigaflow.target.stale" => chain.target.stale = number.word(STALE)?,
        "eviction.asynchronous" => {
            config.eviction.asynchronous =
                number.value.parse().map_err(|_| number.wrong("true or false"))?;
        }
        "eviction.repair" => config.eviction.repair = number.word("off, on or rate")?,
        "eviction.repair_rate" => config.eviction.repair_rate = number.number()?,
        _ => config.threads.translations_per_iteration = number.number()?,
    }
    Ok(())
}

const POLICIES: &str = "disjoint, joint, profiled, first-fit, random, one-to-one or megaflow";

const TARGETS: &str = "none, embedded or p4runtime";

const STALE: &str = "report or ports-down";

const EVICTIONS: &str = "never, least-recent, second-use or least-shared";

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

    /// Numbers between commas; none of an empty value.
    fn numbers<T: FromStr>(self) -> Result<Vec<T>, SwitchError> {
        let parts = self.value.split(',').map(str::trim).filter(|_| !self.value.is_empty());
        let numbers: Result<_, _> = parts.map(str::parse).collect();
        numbers.map_err(|_| self.wrong("whole numbers between commas"))
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
        translations_per_iteration: config.threads.translations_per_iteration,
        repair: config.eviction.repair(),
        wildcard: config.caches.wildcard(),
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
            "caches.gigaflow.target.kind" => "embedded",
            "caches.gigaflow.target.stale" => "ports-down",
            "eviction.asynchronous" => "true",
            "eviction.repair" => "on",
            _ => "7",
        };
        for setting in SETTINGS {
            let (mut config, before) = (Config::default(), Config::default());
            change(&mut config, setting, value(setting)).unwrap();
            assert_ne!(config, before, "{setting}");
            let is_refused = change(&mut config, setting, "seven").is_err() || {
                config.caches.gigaflow.target.kind = OffloadKind::P4runtime;
                config.bridges = vec![config::Bridge { name: "br0".into(), ..Default::default() }];
                config.check().is_err()
            };
            assert!(is_refused, "{setting}");
        }
    }
}
