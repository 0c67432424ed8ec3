//! Commands of Shunt itself, which `shuntctl` calls. Most of these commands answer in JSON.

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde::Serialize;
use shunt_switch::{SwitchError, config::BridgeOptions, with_causes};

use super::{command::commands, methods::DaemonMethods};
use crate::{
    daemon::{reload, state_file::StateFile},
    metrics,
    setting::{self, unknown},
    tls,
};

/// Maximum number of arguments for a port or bridge.
const WORDS_MAX: usize = 16;

/// Maximum number of arguments of a call that announces flows.
const FLOWS_MAX: usize = 4096;

commands! {
    "shunt/add-bond" "bridge name key=value [key=value..]", 3..=WORDS_MAX, Change, add_bond,
        "Add a bond: `shuntctl add-bond`";
    "shunt/add-bridge" "name [key=value..]", 1..=WORDS_MAX, Change, add_bridge,
        "Add a bridge: `shuntctl add-br`";
    "shunt/add-mirror" "bridge name key=value [key=value..]", 3..=WORDS_MAX, Change, add_mirror,
        "Add a mirror: `shuntctl add-mirror`";
    "shunt/add-port" "bridge name [key=value..]", 2..=WORDS_MAX, Change, add_port,
        "Add a port: `shuntctl add-port`";
    "shunt/announce" "bridge seconds flow [flow..]", 3..=FLOWS_MAX, Change, announce,
        "Announce flows, which then get cache entries before their first packets";
    "shunt/caches" "[rule-space]", 0..=1, Read, caches,
        "Show the counters of caches: `shuntctl caches`";
    "shunt/capture-read" "id", 1..=1, Read, capture_read, "Return packets of a capture";
    "shunt/capture-start" "port|drops", 1..=1, Read, capture_start,
        "Start a capture: `shuntctl capture`";
    "shunt/capture-stop" "id", 1..=1, Read, capture_stop, "Stop a capture";
    "shunt/del-bond" "bridge name", 2..=2, Change, del_bond, "Delete a bond: `shuntctl del-bond`";
    "shunt/del-bridge" "name", 1..=1, Change, del_bridge, "Delete a bridge: `shuntctl del-br`";
    "shunt/del-mirror" "bridge name", 2..=2, Change, del_mirror,
        "Delete a mirror: `shuntctl del-mirror`";
    "shunt/del-port" "name", 1..=1, Change, del_port, "Delete a port: `shuntctl del-port`";
    "shunt/drops" "", 0..=0, Read, drops, "Show dropped packets by reason: `shuntctl drops`";
    "shunt/entries" "[count]", 0..=1, Read, entries, "List cache entries: `shuntctl entries`";
    "shunt/evict" "", 0..=0, Read, evict, "Show evictions: `shuntctl evict`";
    "shunt/forecast" "", 0..=0, Read, forecast,
        "Show the outcomes of forecasts: `shuntctl forecast`";
    "shunt/metrics" "[caches|drops|evict|forecast]", 0..=1, Read, show_metrics,
        "Show metrics for Prometheus: `shuntctl metrics`";
    "shunt/preload" "id bridge seconds flow [flow..]", 4..=FLOWS_MAX, Change, preload,
        "Make cache entries before packets arrive: `shuntctl preload`";
    "shunt/preload-read" "id", 1..=1, Read, preload_read,
        "Return the outcomes of a preload, as JSON";
    "shunt/preload-start" "", 0..=0, Change, preload_start,
        "Start a preload, and return its number";
    "shunt/reload" "", 0..=0, Change, reload_file,
        "Load the configuration file again: `shuntctl reload`";
    "shunt/restore" "file", 1..=1, Change, restore, "Restore a saved state: `shuntctl restore`";
    "shunt/save" "", 0..=0, Read, save, "Return the state of the switch: `shuntctl save`";
    "shunt/set-bfd" "port [key=value..]", 1..=WORDS_MAX, Change, set_bfd,
        "Set the BFD session of a port: `shuntctl set-bfd`";
    "shunt/set-bridge" "name key=value [key=value..]", 2..=WORDS_MAX, Change, set_bridge,
        "Change a bridge: `shuntctl set-br`";
    "shunt/set-policing" "port [key=value..]", 1..=WORDS_MAX, Change, set_policing,
        "Limit the packets that a port receives: `shuntctl set-policing`";
    "shunt/set-qos" "port [key=value..]", 1..=WORDS_MAX, Change, set_qos,
        "Set the QoS of a port: `shuntctl set-qos`";
    "shunt/set-vlans" "port [key=value..]", 1..=WORDS_MAX, Change, set_vlans,
        "Set the VLANs of a port: `shuntctl set-vlans`";
    "shunt/show" "", 0..=0, Read, show, "Show bridges, ports and controllers: `shuntctl show`";
    "shunt/threads" "", 0..=0, Read, threads, "Show the threads: `shuntctl threads`";
    "shunt/trace" "bridge flow [packet]", 2..=3, Read, trace,
        "Trace a packet, as JSON: `shuntctl trace --json`";
    "shunt/why" "entry", 1..=1, Read, why,
        "Show why a cache entry is valid, or why it was evicted: `shuntctl why`";
}

/// Handles `shunt/add-bond`: adds a bond.
async fn add_bond(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, name, words @ ..] = arguments else { return Err(missing_argument()) };
    to_reply(methods.switch.add_bond(bridge, setting::bond(name, words)?).await)
}

/// Handles `shunt/add-bridge`: adds a bridge.
async fn add_bridge(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    let bridge = setting::bridge(name, words)?;
    tls::check_command(methods.switch.tls(), &bridge)?;
    to_reply(methods.switch.add_bridge(&bridge).await)?;
    Ok(bridge_remarks(methods, name))
}

/// Handles `shunt/add-mirror`: adds a mirror.
async fn add_mirror(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, name, words @ ..] = arguments else { return Err(missing_argument()) };
    to_reply(methods.switch.add_mirror(bridge, setting::mirror(name, words)?).await)
}

/// Handles `shunt/add-port`: adds a port.
async fn add_port(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, name, words @ ..] = arguments else { return Err(missing_argument()) };
    let port = setting::port(name, words)?;
    to_reply(methods.switch.add_port(bridge, port).await)?;
    Ok(port_remarks(methods, name))
}

/// Handles `shunt/announce`: makes cache entries for announced flows.
async fn announce(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let AnnouncedWords { bridge, valid, flows } = AnnouncedWords::of(arguments)?;
    let announced = methods.switch.announce(bridge, &flows, valid);
    json(&announced.map_err(|error| error.to_string())?)
}

/// Handles `shunt/preload`: makes cache entries before packets arrive.
async fn preload(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((id, words)) = arguments.split_first() else { return Err(missing_argument()) };
    let AnnouncedWords { bridge, valid, flows } = AnnouncedWords::of(words)?;
    let announced = methods.switch.preload(preload_id(id)?, bridge, &flows, valid);
    json(&announced.map_err(|error| error.to_string())?)
}

/// Handles `shunt/preload-read`: returns the outcomes of a preload as JSON.
async fn preload_read(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let status = methods.switch.preload_status(preload_id(first(arguments))?);
    json(&status.map_err(|error| error.to_string())?)
}

/// Handles `shunt/preload-start`: starts a preload, and returns its number.
async fn preload_start(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(methods.switch.start_preload().to_string())
}

/// Handles `shunt/caches`: shows the counters of the flow caches.
async fn caches(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    match arguments.first().map(String::as_str) {
        None => json(&methods.switch.caches()),
        Some("rule-space") => json(&methods.switch.caches_with_rule_space().await),
        Some(word) => Err(unknown("part of the caches", word, &["rule-space"])),
    }
}

/// Handles `shunt/capture-read`: returns the new packets of a capture.
async fn capture_read(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let captured = methods.switch.read_capture(capture_id(first(arguments))?);
    json(&captured.ok_or(NO_CAPTURE)?)
}

/// Handles `shunt/capture-start`: starts a capture.
async fn capture_start(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let started = methods.switch.start_capture(first(arguments)).await;
    started.map(|id| id.to_string()).map_err(|error| with_causes(&error))
}

/// Handles `shunt/capture-stop`: stops a capture.
async fn capture_stop(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let dropped = methods.switch.stop_capture(capture_id(first(arguments))?).await;
    Ok(dropped.ok_or(NO_CAPTURE)?.to_string())
}

/// Handles `shunt/del-bond`: deletes a bond.
async fn del_bond(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, name] = arguments else { return Err(missing_argument()) };
    to_reply(methods.switch.remove_bond(bridge, name).await)
}

/// Handles `shunt/del-bridge`: deletes a bridge.
async fn del_bridge(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    to_reply(methods.switch.remove_bridge(first(arguments)).await)
}

/// Handles `shunt/del-mirror`: deletes a mirror.
async fn del_mirror(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, name] = arguments else { return Err(missing_argument()) };
    to_reply(methods.switch.remove_mirror(bridge, name).await)
}

/// Handles `shunt/del-port`: deletes a port.
async fn del_port(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    to_reply(methods.switch.remove_port(first(arguments)).await)
}

/// Handles `shunt/drops`: shows dropped packets by reason.
async fn drops(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    json(&methods.switch.drops())
}

/// Handles `shunt/entries`: lists cache entries.
async fn entries(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let count = match arguments.first() {
        Some(count) => {
            count.parse().map_err(|_| format!("`{count}` is not a number of entries"))?
        }
        None => 0,
    };
    json(&methods.switch.entries(count).await)
}

/// Handles `shunt/evict`: shows how many cache entries were evicted, and why.
async fn evict(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    json(&methods.switch.evictions().await.map_err(|error| with_causes(&error))?)
}

/// Handles `shunt/forecast`: shows the outcomes of forecasts.
async fn forecast(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    json(&methods.switch.forecasts())
}

/// Handles `shunt/metrics`: shows metrics for Prometheus.
async fn show_metrics(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let switch = &methods.switch;
    match arguments.first().map(String::as_str) {
        None => Ok(metrics::all(switch).await),
        Some("caches") => Ok(metrics::caches(&switch.caches_with_rule_space().await)),
        Some("drops") => Ok(metrics::drops(&switch.drops())),
        Some("forecast") => Ok(metrics::forecast(&switch.forecasts())),
        Some("evict") => {
            let status = switch.evictions().await;
            status.map(|status| metrics::evict(&status)).map_err(|error| with_causes(&error))
        }
        Some(part) => {
            Err(unknown("group of metrics", part, &["caches", "drops", "evict", "forecast"]))
        }
    }
}

/// Handles `shunt/reload`: loads the configuration file again.
async fn reload_file(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    methods.reloader.reload().await
}

/// Handles `shunt/restore`: restores a saved state.
async fn restore(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let path = first(arguments);
    let saved = StateFile::read(Path::new(path)).map_err(|error| error.to_string())?;
    let saved = saved.ok_or_else(|| {
        format!("there is no file {path}: name a file that `save` or `shuntd --state` has written")
    })?;
    let report = saved.restore(&methods.switch).await?;
    Ok(reload::text(&report, "nothing changed: the switch has this state already\n"))
}

/// Handles `shunt/save`: returns the state of the switch.
async fn save(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    StateFile::of(&methods.switch, methods.reloader.loaded().await).text()
}

/// Handles `shunt/set-bfd`: sets the BFD session of a port.
async fn set_bfd(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    to_reply(methods.switch.set_bfd(&setting::bfd(name, words)?).await)
}

/// Handles `shunt/set-bridge`: changes a bridge.
async fn set_bridge(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    let settings = setting::bridge_changes(words)?;
    let is_list = |key: &str| matches!(key, "controllers" | "listen");
    let lists: Vec<_> = settings.iter().copied().filter(|(key, _)| is_list(key)).collect();
    // The switch refuses an address that is not valid, with the reason.
    if let Ok(bridge) = BridgeOptions::of_settings(name, &lists) {
        tls::check_command(methods.switch.tls(), &bridge)?;
    }
    to_reply(methods.switch.set_bridge(name, &settings).await)?;
    let is_identity = settings.iter().any(|(key, _)| matches!(*key, "datapath_id" | "mac"));
    Ok(if is_identity { bridge_remarks(methods, name) } else { String::new() })
}

/// Handles `shunt/set-policing`: limits the packets that a port receives.
async fn set_policing(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    to_reply(methods.switch.set_ingress_policing(&setting::policing(name, words)?).await)
}

/// Handles `shunt/set-qos`: sets the QoS of a port.
async fn set_qos(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    to_reply(methods.switch.set_qos(&setting::qos(name, words)?).await)
}

/// Handles `shunt/set-vlans`: sets the VLANs of a port.
async fn set_vlans(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((name, words)) = arguments.split_first() else { return Err(missing_argument()) };
    to_reply(methods.switch.set_vlans(&setting::vlans(name, words)?).await)
}

/// Handles `shunt/show`: shows bridges, ports and controllers.
async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    json(&methods.switch.bridges())
}

/// Handles `shunt/threads`: shows the threads of the switch and their loads.
async fn threads(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    json(&methods.switch.threads_and_queues())
}

/// Handles `shunt/trace`: traces a packet through the tables, as JSON.
async fn trace(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let Some((bridge, flow)) = arguments.split_first() else { return Err(missing_argument()) };
    let trace = methods.switch.trace(bridge, &flow.join(" "));
    json(&trace.map_err(|error| error.to_string())?)
}

/// Handles `shunt/why`: shows why a cache entry is valid, or why it was evicted.
async fn why(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let explanation = methods.switch.explain_entry(first(arguments)).await;
    json(&explanation.map_err(|error| with_entries(&error))?)
}

/// The error of a capture that does not run.
const NO_CAPTURE: &str = "no such capture: it ended, or never started";

/// Returns the first argument; the table of commands guarantees that it exists.
fn first(arguments: &[String]) -> &str {
    arguments.first().map_or("", String::as_str)
}

/// Returns the error of a call with too few arguments.
fn missing_argument() -> String {
    "an argument is missing: `list-commands` shows the arguments".to_owned()
}

/// Returns the reply to a command without output.
fn to_reply(result: Result<(), SwitchError>) -> Result<String, String> {
    result.map(|()| String::new()).map_err(|error| with_causes(&error))
}

/// Returns the problems of a bridge and of its local port, one a line.
fn bridge_remarks(methods: &DaemonMethods, name: &str) -> String {
    let bridges = methods.switch.bridges_with_ports(&BTreeSet::from([name.to_owned()]));
    let Some(bridge) = bridges.iter().find(|bridge| bridge.name == name) else {
        return String::new();
    };
    let local = bridge.ports.iter().find(|port| port.name == name);
    let problems =
        [bridge.datapath_id_problem.as_deref(), local.and_then(|port| port.mtu_problem.as_deref())];
    problems.into_iter().flatten().map(|problem| format!("bridge {name}: {problem}\n")).collect()
}

/// Returns a line about other users of the device of a port, or an empty text.
fn port_remarks(methods: &DaemonMethods, name: &str) -> String {
    let bridges = methods.switch.bridges_with_ports(&BTreeSet::from([name.to_owned()]));
    let port = bridges.iter().flat_map(|bridge| &bridge.ports).find(|port| port.name == name);
    let problem = port.and_then(|port| port.user_problem.as_deref());
    problem.map_or_else(String::new, |problem| format!("port {name}: {problem}\n"))
}

/// Returns the error, with a hint how to list the entries.
fn with_entries(error: &SwitchError) -> String {
    let hint = match error {
        SwitchError::NoSuchEntry { .. } | SwitchError::EntryText(_) => {
            "; `shuntctl entries` lists the existing entries"
        }
        _ => "",
    };
    with_causes(error) + hint
}

/// The arguments of a call that announces flows.
struct AnnouncedWords<'a> {
    bridge: &'a str,
    /// Time for which the flows are expected.
    valid: Duration,
    /// The texts of the flows.
    flows: Vec<&'a str>,
}

impl<'a> AnnouncedWords<'a> {
    /// Parses the words of an announced flow.
    fn of(words: &'a [String]) -> Result<Self, String> {
        let [bridge, seconds, flows @ ..] = words else { return Err(missing_argument()) };
        let valid = seconds.parse().map(Duration::from_secs);
        let valid: Duration = valid.map_err(|_| {
            format!("`{seconds}` is no time: give a whole number of seconds from 1 to {}", u64::MAX)
        })?;
        if valid.is_zero() {
            let error = "0 seconds would remove the flows at once: give at least 1 second";
            return Err(error.to_owned());
        }
        Ok(Self { bridge, valid, flows: flows.iter().map(String::as_str).collect() })
    }
}

/// Returns a value as JSON.
fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Parses the number of a preload.
fn preload_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not the number of a preload, as `shunt/preload-start` returns it")
    })
}

/// Parses the number of a capture.
fn capture_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a capture number"))
}
