//! The methods of the control socket: some of `ovs-vswitchd`, and our own.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;
use shunt_flow::text::nearest_of;
use shunt_switch::{Announcer, Config, Switch, SwitchError, with_causes};
use tokio::sync::Notify;
use tracing::info;

use super::{
    reload::{self, Reloader},
    state_file::StateFile,
    trace_log,
};
use crate::{
    metrics, render,
    rpc::Methods,
    setting::{self, unknown},
};

/// The methods of a running daemon.
pub(crate) struct DaemonMethods {
    switch: Arc<Switch>,
    reloader: Arc<Reloader>,
    stop: Arc<Notify>,
}

/// A method, as in `list-commands`.
struct RpcMethod {
    name: &'static str,
    usage: &'static str,
    /// Minimum and maximum number of parameters.
    parameters: (usize, usize),
}

const fn method(name: &'static str, usage: &'static str, least: usize, most: usize) -> RpcMethod {
    RpcMethod { name, usage, parameters: (least, most) }
}

/// Maximum number of words for a port or bridge.
const WORDS_MAX: usize = 16;

/// Maximum number of words of a call that announces flows.
const FLOWS_MAX: usize = 4096;

/// Maximum number of settings in one call: more than exist.
const SETTINGS_MAX: usize = 64;

const METHODS: &[RpcMethod] = &[
    method("exit", "[--cleanup]", 0, 1),
    method("fdb/flush", "[bridge]", 0, 1),
    method("fdb/show", "bridge", 1, 1),
    method("list-commands", "", 0, 0),
    method("ofproto/trace", "bridge flow [packet]", 2, 3),
    method("revalidator/wait", "", 0, 0),
    method("shunt/announce", "bridge seconds flow [flow..]", 3, FLOWS_MAX),
    method("shunt/add-bridge", "name [key=value..]", 1, WORDS_MAX),
    method("shunt/add-port", "bridge name [key=value..]", 2, WORDS_MAX),
    method("shunt/caches", "[rule-space]", 0, 1),
    method("shunt/capture-read", "id", 1, 1),
    method("shunt/capture-start", "port|drops", 1, 1),
    method("shunt/capture-stop", "id", 1, 1),
    method("shunt/del-bridge", "name", 1, 1),
    method("shunt/del-port", "name", 1, 1),
    method("shunt/drops", "", 0, 0),
    method("shunt/entries", "[count]", 0, 1),
    method("shunt/evict", "", 0, 0),
    method("shunt/forecast", "", 0, 0),
    method("shunt/metrics", "[caches|drops|evict|forecast]", 0, 1),
    method("shunt/preload", "bridge seconds flow [flow..]", 3, FLOWS_MAX),
    method("shunt/reload", "", 0, 0),
    method("shunt/restore", "file", 1, 1),
    method("shunt/save", "", 0, 0),
    method("shunt/set", "key=value [key=value..]", 1, SETTINGS_MAX),
    method("shunt/set-bridge", "name key=value [key=value..]", 2, WORDS_MAX),
    method("shunt/set-vlans", "port [key=value..]", 1, WORDS_MAX),
    method("shunt/settings", "", 0, 0),
    method("shunt/show", "", 0, 0),
    method("shunt/threads", "", 0, 0),
    method("shunt/trace", "bridge flow [packet]", 2, 3),
    method("shunt/why", "entry", 1, 1),
    method("version", "", 0, 0),
    method("vlog/set", "filter", 1, 1),
];

impl DaemonMethods {
    pub(crate) const fn new(
        switch: Arc<Switch>,
        reloader: Arc<Reloader>,
        stop: Arc<Notify>,
    ) -> Self {
        Self { switch, reloader, stop }
    }

    async fn run(&self, method: &str, parameters: &[String]) -> Result<String, String> {
        match (method, parameters) {
            ("exit", _) => {
                self.stop.notify_one();
                Ok(String::new())
            }
            ("version", _) => Ok(format!("shuntd (Shunt) {}", env!("CARGO_PKG_VERSION"))),
            ("list-commands", _) => Ok(list_commands()),
            // No cache entry outlives its version.
            ("revalidator/wait", _) => Ok(String::new()),
            ("fdb/flush", bridge) => {
                let bridge = bridge.first().map(String::as_str);
                done(self.switch.flush_macs(bridge).await)
            }
            ("fdb/show", [bridge]) => {
                let macs = self.switch.macs(bridge).await;
                macs.map(|macs| render::macs(&macs)).map_err(|error| with_causes(&error))
            }
            ("ofproto/trace", [bridge, flow @ ..]) => {
                let trace = self.switch.trace(bridge, &flow.join(" "));
                trace.map(|trace| trace.to_text()).map_err(|error| error.to_string())
            }
            ("shunt/trace", [bridge, flow @ ..]) => {
                let trace = self.switch.trace(bridge, &flow.join(" "));
                json(&trace.map_err(|error| error.to_string())?)
            }
            ("shunt/forecast", _) => json(&self.switch.forecasts()),
            ("shunt/preload", [bridge, seconds, flows @ ..]) => {
                announce(&self.switch, bridge, seconds, flows, Announcer::Operator)
            }
            ("shunt/announce", [bridge, seconds, flows @ ..]) => {
                announce(&self.switch, bridge, seconds, flows, Announcer::Orchestrator)
            }
            ("vlog/set", [filter]) => trace_log::set(filter).map(|()| String::new()),
            _ => self.run_own(method, parameters).await,
        }
    }

    async fn run_own(&self, method: &str, parameters: &[String]) -> Result<String, String> {
        let switch = &self.switch;
        match (method, parameters) {
            ("shunt/show", _) => json(&switch.bridges()),
            ("shunt/threads", _) => json(&switch.threads()),
            ("shunt/caches", []) => json(&switch.caches()),
            ("shunt/caches", [word]) if word == "rule-space" => {
                json(&switch.caches_with_rule_space().await)
            }
            ("shunt/metrics", []) => Ok(metrics::all(switch).await),
            ("shunt/metrics", [part]) => self.metrics(part).await,
            ("shunt/drops", _) => json(&switch.drops()),
            ("shunt/entries", []) => json(&switch.entries(0).await),
            ("shunt/entries", [count]) => {
                let count = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
                json(&switch.entries(count).await)
            }
            ("shunt/evict", _) => {
                json(&switch.evictions().await.map_err(|error| with_causes(&error))?)
            }
            ("shunt/why", [entry]) => {
                json(&switch.why(entry).await.map_err(|error| with_entries(&error))?)
            }
            ("shunt/add-bridge", [name, words @ ..]) => {
                done(switch.add_bridge(&setting::bridge(name, words)?).await)
            }
            ("shunt/set-bridge", [name, words @ ..]) => {
                done(switch.set_bridge(name, &setting::bridge_changes(words)?).await)
            }
            ("shunt/del-bridge", [name]) => done(switch.remove_bridge(name).await),
            ("shunt/add-port", [bridge, name, words @ ..]) => {
                let port = setting::port(name, words)?;
                done(switch.add_port(bridge, port).await)
            }
            ("shunt/del-port", [name]) => done(switch.remove_port(name).await),
            ("shunt/set-vlans", [name, words @ ..]) => {
                done(switch.set_vlans(setting::vlans(name, words)?).await)
            }
            ("shunt/capture-start", [place]) => {
                let id = switch.start_capture(place).await.map_err(|error| with_causes(&error))?;
                Ok(id.to_string())
            }
            ("shunt/capture-read", [id]) => {
                let id = capture_id(id)?;
                json(
                    &switch
                        .read_capture(id)
                        .ok_or("no such capture: it ended, or never started")?,
                )
            }
            ("shunt/capture-stop", [id]) => {
                let dropped = switch.stop_capture(capture_id(id)?).await;
                Ok(dropped.ok_or("no such capture: it ended, or never started")?.to_string())
            }
            ("shunt/reload", _) => self.reloader.reload().await,
            ("shunt/save", _) => StateFile::of(switch, self.reloader.loaded().await).text(),
            ("shunt/restore", [path]) => {
                let saved = StateFile::read(Path::new(path))?;
                let saved = saved.ok_or_else(|| format!("{path} does not exist"))?;
                let report = saved.restore(switch).await?;
                Ok(reload::text(&report, "the state is in force already\n"))
            }
            ("shunt/set", words) => self.set(words).await,
            ("shunt/settings", _) => json(&self.settings()),
            _ => Err(format!("\"{method}\" command is not valid here")),
        }
    }

    /// Returns the metrics of a part of the status.
    async fn metrics(&self, part: &str) -> Result<String, String> {
        match part {
            "caches" => Ok(metrics::caches(&self.switch.caches_with_rule_space().await)),
            "drops" => Ok(metrics::drops(&self.switch.drops())),
            "forecast" => Ok(metrics::forecast(&self.switch.forecasts())),
            "evict" => {
                let status = self.switch.evictions().await;
                status.map(|status| metrics::evict(&status)).map_err(|error| with_causes(&error))
            }
            _ => {
                Err(unknown("part of the metrics", part, &["caches", "drops", "evict", "forecast"]))
            }
        }
    }

    /// Returns all settings that [`Self::set`] can change, by key.
    fn settings(&self) -> BTreeMap<&'static str, Value> {
        let config = serde_json::to_value(self.switch.config()).unwrap_or_default();
        let of = |key: &&'static str| (*key, value_of(&config, key).cloned().unwrap_or_default());
        let mut all: BTreeMap<_, _> = Switch::settings().iter().map(of).collect();
        all.insert("logging.filter", trace_log::filter().into());
        all
    }

    /// Changes settings of the switch at once, then the log filter.
    async fn set(&self, words: &[String]) -> Result<String, String> {
        let settings: Result<Vec<_>, _> = words.iter().map(|word| setting::split(word)).collect();
        let (filters, settings): (Vec<_>, Vec<_>) =
            settings?.into_iter().partition(|(key, _)| *key == "logging.filter");
        settings.iter().try_for_each(|(key, _)| check_setting(key))?;
        filters.iter().try_for_each(|(_, filter)| trace_log::check(filter))?;
        if !settings.is_empty() {
            done(self.switch.set(&settings).await)?;
        }
        for (_, filter) in filters {
            trace_log::set(filter)?;
        }
        info!("settings: {}", words.join(" "));
        Ok(String::new())
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

/// Returns whether this configuration key only applies at the start.
fn is_of_start(key: &str) -> bool {
    let config = serde_json::to_value(Config::default()).unwrap_or_default();
    // Bridges have commands of their own.
    value_of(&config, key).is_some_and(|value| !value.is_object()) && key != "bridge"
}

/// The methods that change the daemon.
const CHANGES: &[&str] = &[
    "exit",
    "fdb/flush",
    "shunt/add-bridge",
    "shunt/add-port",
    "shunt/announce",
    "shunt/del-bridge",
    "shunt/del-port",
    "shunt/preload",
    "shunt/reload",
    "shunt/restore",
    "shunt/set",
    "shunt/set-bridge",
    "shunt/set-vlans",
    "vlog/set",
];

impl Methods for DaemonMethods {
    fn is_change(&self, method: &str) -> bool {
        CHANGES.contains(&method)
    }

    async fn call(&self, method: &str, parameters: Vec<String>) -> Result<String, String> {
        let Some(known) = METHODS.iter().find(|known| known.name == method) else {
            let nearest = nearest_of(method, METHODS.iter().map(|known| known.name));
            let hint = match nearest {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => "\"list-commands\" shows all commands".to_owned(),
            };
            return Err(format!("\"{method}\" is not a valid command; {hint}"));
        };
        let (least, most) = known.parameters;
        if parameters.len() < least || parameters.len() > most {
            let usage = known.usage;
            return Err(format!("\"{method}\" command takes {least} to {most} arguments: {usage}"));
        }
        self.run(method, &parameters).await
    }
}

fn list_commands() -> String {
    let lines = METHODS.iter().map(|method| format!("  {:<22} {}\n", method.name, method.usage));
    format!("The available commands are:\n{}", lines.collect::<String>())
}

fn done(result: Result<(), SwitchError>) -> Result<String, String> {
    result.map(|()| String::new()).map_err(|error| with_causes(&error))
}

/// Returns the error, with a hint to the list of entries.
fn with_entries(error: &SwitchError) -> String {
    let hint = match error {
        SwitchError::NoSuchEntry { .. } | SwitchError::EntryText(_) => {
            "; `shuntctl entries` lists the existing entries"
        }
        _ => "",
    };
    with_causes(error) + hint
}

/// Announces flows for a number of seconds; returns their number.
fn announce(
    switch: &Switch,
    bridge: &str,
    seconds: &str,
    flows: &[String],
    announcer: Announcer,
) -> Result<String, String> {
    let valid = seconds.parse().map(Duration::from_secs);
    let valid: Duration = valid.map_err(|_| format!("`{seconds}` is not a number of seconds"))?;
    if valid.is_zero() {
        return Err("the flows would be over at once: give at least 1 second".to_owned());
    }
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    let count = switch.announce(bridge, &flows, valid, announcer);
    count.map(|count| count.to_string()).map_err(|error| error.to_string())
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

fn capture_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a capture number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_a_method() {
        for name in CHANGES {
            assert!(METHODS.iter().any(|method| method.name == *name), "{name}");
        }
    }

    #[test]
    fn every_setting_has_a_value() {
        let config = serde_json::to_value(Config::default()).unwrap();
        for key in Switch::settings() {
            assert!(value_of(&config, key).is_some(), "{key}");
        }
    }

    #[test]
    fn keys_for_the_start_differ_from_unknown_keys() {
        for key in ["caches.exact_entries", "caches.megaflow_entries", "threads.packet"] {
            assert!(is_of_start(key), "{key}");
        }
        for key in ["caches", "caches.exact_entires", "cashes.kind", "bridge", ""] {
            assert!(!is_of_start(key), "{key}");
        }
    }
}
