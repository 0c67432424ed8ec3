//! Commands for settings of the daemon: `shunt/set` and `shunt/settings`.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;
use shunt_switch::{Config, Switch, with_causes};
use tracing::info;

use super::{command::commands, methods::DaemonMethods};
use crate::{
    daemon::trace_log,
    setting::{self, unknown},
};

/// Maximum number of settings in one call; it exceeds the number of settings.
const SETTINGS_MAX: usize = 64;

commands! {
    "shunt/set" "key=value [key=value..]", 1..=SETTINGS_MAX, Change, set,
        "Change settings at once: `shuntctl set`";
    "shunt/settings" "", 0..=0, Read, settings, "Show the settings as JSON: `shuntctl settings`";
}

/// Returns all settings that `shunt/set` can change, by key.
async fn settings(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let config = serde_json::to_value(methods.switch.config()).unwrap_or_default();
    let of = |key: &&'static str| (*key, value_of(&config, key).cloned().unwrap_or_default());
    let mut all: BTreeMap<_, _> = Switch::settings().iter().map(of).collect();
    all.insert("logging.filter", trace_log::filter().into());
    serde_json::to_string(&all).map_err(|error| error.to_string())
}

/// Changes several settings of the switch in one step, then the log filter.
async fn set(methods: &DaemonMethods, words: &[String]) -> Result<String, String> {
    let settings: Result<Vec<_>, _> = words.iter().map(|word| key_and_value(word)).collect();
    let settings = settings?;
    let (filters, settings): (Vec<_>, Vec<_>) = settings
        .iter()
        .map(|(key, value)| (*key, value.as_ref()))
        .partition(|(key, _)| *key == "logging.filter");
    settings.iter().try_for_each(|(key, _)| check_setting(key))?;
    filters.iter().try_for_each(|(_, filter)| trace_log::check(filter))?;
    if !settings.is_empty() {
        methods.switch.set(&settings).await.map_err(|error| with_causes(&error))?;
    }
    for (_, filter) in filters {
        trace_log::set(filter)?;
    }
    info!("settings: {}", words.join(" "));
    Ok(String::new())
}

/// Splits `key=value`; also accepts `key = "value"`, as `settings` prints it.
fn key_and_value(word: &str) -> Result<(&str, Cow<'_, str>), String> {
    let (key, value) = setting::split(word)?;
    Ok((key.trim(), unquote(value.trim())))
}

/// Removes the quotes of a text, or of the elements of a list.
///
/// Other values are returned unchanged.
fn unquote(value: &str) -> Cow<'_, str> {
    match serde_json::from_str(value) {
        Ok(Value::String(text)) => text.into(),
        Ok(Value::Array(list)) => {
            let words = list.iter().map(|element| match element {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            words.collect::<Vec<_>>().join(",").into()
        }
        _ => value.into(),
    }
}

/// Returns the value of a configuration key.
fn value_of<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(config, |value, name| value.get(name))
}

/// Refuses a key that cannot change at run time.
fn check_setting(key: &str) -> Result<(), String> {
    let known = Switch::settings();
    if known.contains(&key) {
        return Ok(());
    }
    if is_of_start(key) {
        return Err(format!(
            "`{key}` cannot change at run time: change the configuration file and restart the daemon"
        ));
    }
    let mut all = known.to_vec();
    all.push("logging.filter");
    Err(unknown("setting", key, &all))
}

/// Returns whether a configuration key only takes effect at the start.
fn is_of_start(key: &str) -> bool {
    let config = serde_json::to_value(Config::default()).unwrap_or_default();
    // Keys of bridges are changed by other commands.
    value_of(&config, key).is_some_and(|value| !value.is_object()) && key != "bridge"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_value() {
        let config = serde_json::to_value(Config::default()).unwrap();
        for key in Switch::settings() {
            assert!(value_of(&config, key).is_some(), "{key}");
        }
    }

    #[test]
    fn quotes_of_a_value_are_optional() {
        for (word, key, value) in [
            ("caches.kind=megaflow", "caches.kind", "megaflow"),
            ("caches.kind=\"megaflow\"", "caches.kind", "megaflow"),
            ("caches.kind = \"megaflow\"", "caches.kind", "megaflow"),
            ("a=\"b \\\"c\\\"\"", "a", "b \"c\""),
            ("a=[1, 2]", "a", "1,2"),
            ("a=[\"b\",\"c\"]", "a", "b,c"),
            ("a=[]", "a", ""),
            ("a=", "a", ""),
            ("a=info,shunt=debug", "a", "info,shunt=debug"),
            ("a=\"b", "a", "\"b"),
        ] {
            assert_eq!(key_and_value(word), Ok((key, value.into())), "{word}");
        }
    }

    #[test]
    fn startup_only_keys_differ_from_unknown_keys() {
        for key in ["caches.exact_entries", "caches.exact_insert_one_in", "threads.packet"] {
            assert!(is_of_start(key), "{key}");
        }
        for key in ["caches", "caches.exact_entires", "cashes.kind", "bridge", ""] {
            assert!(!is_of_start(key), "{key}");
        }
    }
}
