//! Log levels in the syntax of `vlog/set`: modules, destinations and levels.
//!
//! A module is a log target of the daemon, such as `shunt_ofproto`, or a module of `ovs-vswitchd`
//! for the same subject. The daemon logs to standard error, which is the destination `console`.

use super::{command::commands, methods::DaemonMethods};
use crate::daemon::trace_log;

commands! {
    "vlog/close" "", 0..=0, Read, close,
        "Do nothing, because the daemon logs to standard error";
    "vlog/list" "", 0..=0, Read, list, "List the log levels by module";
    "vlog/list-pattern" "", 0..=0, Read, list_pattern, "Show the format of log lines";
    "vlog/reopen" "", 0..=0, Read, reopen,
        "Do nothing, because the daemon logs to standard error";
    "vlog/set" "{spec|filter}", 1..=64, Change, set,
        "Set log levels, as in `ofproto:dbg`, or the filter, as in `info,shunt_ofproto=debug`";
}

/// Log targets of the daemon, each with the `ovs-vswitchd` modules for its subject.
const MODULES: &[(&str, &[&str])] = &[
    ("shunt_datapath", &["dpif", "dpif_netdev", "netdev", "netdev_linux", "netdev_afxdp"]),
    ("shunt_kairo", &["ofproto_dpif_upcall", "ofproto_dpif_xlate"]),
    ("shunt_nic", &["netdev_offload", "netdev_offload_tc"]),
    ("shunt_ofproto", &["connmgr", "ofproto", "rconn", "vconn", "ofp_msgs", "ofp_errors"]),
    ("shunt_ovsdb", &["jsonrpc", "ovsdb_cs", "ovsdb_error", "ovsdb_idl", "reconnect"]),
    ("shunt_p4runtime", &[]),
    ("shunt_switch", &["bridge", "ofproto_dpif"]),
    ("shuntd", &["unixctl", "vlog", "vswitchd", "daemon", "memory"]),
];

/// Levels of `ovs-vswitchd`, each with the level of the daemon.
const LEVELS: &[(&str, &str)] = &[
    ("off", "off"),
    ("emer", "error"),
    ("err", "error"),
    ("warn", "warn"),
    ("info", "info"),
    ("dbg", "debug"),
];

/// A log filter, parsed into levels by target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogLevels {
    /// The level of targets that are not listed.
    default: String,
    /// Levels of targets; also directives that name spans.
    targets: Vec<(String, String)>,
}

impl LogLevels {
    /// Parses the levels of a log filter.
    fn of(filter: &str) -> Self {
        let mut levels = Self { default: "off".to_owned(), targets: Vec::new() };
        for directive in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match directive.rsplit_once('=') {
                Some((target, level)) => levels.targets.push((target.to_owned(), level.to_owned())),
                None => directive.clone_into(&mut levels.default),
            }
        }
        levels
    }

    /// Returns the level of a target:
    /// that of the longest directive with which its name begins.
    fn level(&self, target: &str) -> &str {
        let of_target =
            self.targets.iter().filter(|(prefix, _)| target.starts_with(prefix.as_str()));
        let longest = of_target.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(&self.default, |(_, level)| level)
    }

    /// Sets the level of a target, or of all targets.
    fn set(&mut self, target: Option<&str>, level: &str) {
        let Some(target) = target else {
            *self = Self { default: level.to_owned(), targets: Vec::new() };
            return;
        };
        self.targets.retain(|(own, _)| own != target);
        self.targets.push((target.to_owned(), level.to_owned()));
    }

    /// Returns the levels as a log filter.
    fn filter(&self) -> String {
        let targets = self.targets.iter().map(|(target, level)| format!(",{target}={level}"));
        format!("{}{}", self.default, targets.collect::<String>())
    }
}

/// Handles `vlog/list`: lists the log levels by module.
async fn list(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(format_levels(&LogLevels::of(&trace_log::filter())))
}

/// Returns the levels in the format of `ovs-vswitchd`.
fn format_levels(levels: &LogLevels) -> String {
    let mut text = "                 console    syslog    file\n                 -------    ------    ------\n".to_owned();
    for (target, _) in MODULES {
        let level = ovs_name_of(levels.level(target));
        text += &format!("{target:<16}  {level:>4}       {:>4}       {:>4}\n", "OFF", "OFF");
    }
    text
}

/// Returns the `ovs-vswitchd` name of a level.
fn ovs_name_of(level: &str) -> &'static str {
    match level.to_ascii_lowercase().as_str() {
        "off" => "OFF",
        "error" => "ERR",
        "warn" => "WARN",
        "info" => "INFO",
        _ => "DBG",
    }
}

/// Handles `vlog/list-pattern`: shows the format of log lines.
async fn list_pattern(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok("         prefix                            format\n         ------                            ------\n\
        CONSOLE  none                              %D{%Y-%m-%dT%H:%M:%S.######Z} %p %c: %m\n"
        .to_owned())
}

/// Handles `vlog/close`: does nothing, as the daemon logs to standard error.
async fn close(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

/// Handles `vlog/reopen`: does nothing, as the daemon logs to standard error.
async fn reopen(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok("Logging to file not configured".to_owned())
}

/// Handles `vlog/set`: sets the log level of modules, or the log filter.
async fn set(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let filter = change_filter(&trace_log::filter(), arguments)?;
    trace_log::set(&filter).map(|()| String::new())
}

/// Returns a log filter with changes applied.
///
/// Each word is a filter, or combines a module, a destination and a level in any order.
fn change_filter(filter: &str, words: &[String]) -> Result<String, String> {
    let mut levels = LogLevels::of(filter);
    for word in words {
        if is_filter(word) {
            levels = LogLevels::of(word);
        } else {
            change_levels(&mut levels, word)?;
        }
    }
    Ok(levels.filter())
}

/// Returns whether a word is a filter, and not a word of `vlog/set`.
fn is_filter(word: &str) -> bool {
    word.contains(['=', ',', '[']) || ["error", "debug", "trace"].contains(&word)
}

/// Changes the levels as an argument of `vlog/set` requests.
fn change_levels(levels: &mut LogLevels, spec: &str) -> Result<(), String> {
    if spec.to_ascii_lowercase().starts_with("pattern:") {
        return Err("the format of log lines is fixed".to_owned());
    }
    let (mut targets, mut level) = (Vec::new(), "debug");
    for part in spec.split([':', ' ']).filter(|part| !part.is_empty()) {
        let word = part.to_ascii_lowercase();
        if let Some((_, own)) = LEVELS.iter().find(|(name, _)| *name == word) {
            level = own;
        } else if word == "syslog" || word == "file" {
            return Err(format!(
                "{spec}: the daemon logs to standard error only: write `console` instead of `{word}`, \
                 or leave it out"
            ));
        } else if word != "any" && word != "console" {
            targets.push(target(part).ok_or_else(|| unknown_word(part))?);
        }
    }
    if targets.is_empty() {
        levels.set(None, level);
    }
    targets.into_iter().for_each(|target| levels.set(Some(target), level));
    Ok(())
}

/// Returns the log target of a module.
fn target(module: &str) -> Option<&'static str> {
    let found = MODULES.iter().find(|(target, own)| *target == module || own.contains(&module));
    found.map(|(target, _)| *target)
}

/// Returns the error of a word that is no destination, level or module.
fn unknown_word(word: &str) -> String {
    let modules = MODULES.iter().map(|(target, _)| *target).collect::<Vec<_>>().join(", ");
    format!("no destination, level, or module \"{word}\"; modules: {modules}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_all(filter: &str, words: &[&str]) -> Result<String, String> {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        let changed = change_filter(filter, &words)?;
        trace_log::check(&changed).map(|()| changed)
    }

    #[test]
    fn words_of_open_vswitch_set_levels() {
        for (words, expected) in [
            (&["dbg"][..], "debug"),
            (&["ANY:console:warn"], "warn"),
            (&["ofproto"], "info,shunt_ofproto=debug"),
            (&["connmgr:err", "bridge:off"], "info,shunt_ofproto=error,shunt_switch=off"),
            (&["shunt_ovsdb:console:dbg", "shunt_ovsdb:info"], "info,shunt_ovsdb=info"),
            (&["warn,shunt_ofproto=trace"], "warn,shunt_ofproto=trace"),
            (&["debug"], "debug"),
        ] {
            assert_eq!(set_all("info", words).as_deref(), Ok(expected), "{words:?}");
        }
        assert_eq!(set_all("info,shuntd=debug", &["any:info"]).as_deref(), Ok("info"));
    }

    #[test]
    fn an_absent_module_is_refused_by_name() {
        let error = set_all("info", &["ofprotoo:dbg"]).unwrap_err();
        assert!(error.starts_with("no destination, level, or module \"ofprotoo\""), "{error}");
        let error = set_all("info", &["ofproto:syslog:dbg"]).unwrap_err();
        assert!(error.contains("standard error only"), "{error}");
        let error = set_all("info", &["PATTERN:console:%m"]).unwrap_err();
        assert!(error.contains("fixed"), "{error}");
    }

    #[test]
    fn levels_are_listed_by_target() {
        let text = format_levels(&LogLevels::of("warn,shunt_ofproto=debug"));
        let level = |module: &str| {
            let line = text.lines().find(|line| line.starts_with(module)).unwrap_or_default();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!((level("shunt_ofproto").as_str(), level("shuntd").as_str()), ("DBG", "WARN"));
    }
}
