//! The table of all commands of the control socket.

use serde_json::{Map, Value};
use shunt_flow::text::nearest_of;

use super::{
    absent, bfd, bond, bridge, command::AppctlCommand, coverage, dpctl, dpif, fdb, lacp, mdb,
    memory, ofproto, own, pmd, process, qos, refusals, settings, upcall, vlog,
};

/// The commands of all modules.
const GROUPS: &[&[AppctlCommand]] = &[
    absent::COMMANDS,
    bfd::COMMANDS,
    bond::COMMANDS,
    bridge::COMMANDS,
    coverage::COMMANDS,
    dpctl::COMMANDS,
    dpif::COMMANDS,
    fdb::COMMANDS,
    lacp::COMMANDS,
    mdb::COMMANDS,
    memory::COMMANDS,
    ofproto::COMMANDS,
    own::COMMANDS,
    pmd::COMMANDS,
    process::COMMANDS,
    qos::COMMANDS,
    settings::COMMANDS,
    upcall::COMMANDS,
    vlog::COMMANDS,
];

/// Returns all commands, ordered by name.
pub(super) fn all() -> Vec<&'static AppctlCommand> {
    let mut all: Vec<_> = GROUPS.iter().copied().flatten().collect();
    all.sort_by_key(|command| command.name);
    all
}

/// Returns the command with the given name.
pub(super) fn find(name: &str) -> Option<&'static AppctlCommand> {
    let name = bond::present_name(name);
    GROUPS.iter().copied().flatten().find(|command| command.name == name)
}

/// Returns the error for an unknown command.
pub(super) fn unknown(name: &str) -> String {
    if let Some(instead) = refusals::instead_of(name) {
        return format!(
            "\"{name}\" is a command of ovs-vswitchd that shuntd does not have: {instead}"
        );
    }
    let nearest = nearest_of(name, all().into_iter().map(|command| command.name));
    let hint = nearest.map(|nearest| format!("; did you mean \"{nearest}\"?")).unwrap_or_default();
    format!(
        "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands){hint}"
    )
}

/// Returns the list of the commands with names that begin with `prefix`.
pub(super) fn list(prefix: &str) -> String {
    let all = all().into_iter().filter(|command| command.name.starts_with(prefix));
    let lines = all.map(|command| format!("  {:<23} {}\n", command.name, command.arguments));
    format!("The available commands are:\n{}", lines.collect::<String>())
}

/// Returns the answer to `list-commands` in JSON: the arguments of each command.
pub(super) fn list_json() -> Value {
    let commands = all().into_iter();
    let arguments = commands.map(|command| (command.name.to_owned(), command.arguments.into()));
    Value::Object(arguments.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::appctl::command::CommandEffect;

    /// Prefixes of commands of a debugging build of `ovs-vswitchd`,
    /// which no operator uses.
    const DEBUGGING: &[&str] = &["dpif-dummy/", "netdev-dummy/", "time/"];

    /// Commands of ovs-vswitchd(8) that only a build with DPDK has.
    const DPDK: &[&str] = &[
        "dpdk/get-malloc-stats",
        "dpdk/lcore-list",
        "dpdk/log-list",
        "dpdk/log-set",
        "netdev-dpdk/detach",
        "netdev-dpdk/get-mempool-info",
        "netdev-dpdk/set-admin-state",
    ];

    /// Reads a file of the repository.
    fn file(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn no_command_exists_twice() {
        let names: BTreeSet<_> = all().into_iter().map(|command| command.name).collect();
        assert_eq!(names.len(), all().len());
    }

    /// The recorded file is the answer of `ovs-vswitchd` 3.1 to `list-commands`.
    #[test]
    fn each_open_vswitch_command_exists_or_is_refused() {
        let recorded = file("tests/data/open-vswitch/list-commands.txt");
        let names = recorded.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        for name in names.filter(|name| !DEBUGGING.iter().any(|own| name.starts_with(own))) {
            let is_refused = refusals::instead_of(name).is_some();
            assert_ne!(find(name).is_some(), is_refused, "{name} must be in exactly one table");
        }
        for name in refusals::names() {
            let is_known = recorded.contains(name) || DPDK.contains(&name);
            assert!(is_known, "{name} is not a command of ovs-vswitchd 3.1");
        }
        for name in DPDK {
            assert!(refusals::instead_of(name).is_some(), "{name} must be refused");
        }
    }

    #[test]
    fn the_page_lists_every_command() {
        let page = file("../../docs/appctl.md");
        let escaped = |text: &str| text.replace('|', "\\|");
        let row = |command: &AppctlCommand| {
            let space = if command.arguments.is_empty() { "" } else { " " };
            let call = format!("{}{space}{}", command.name, escaped(command.arguments));
            let change = if command.effect == CommandEffect::Change { "yes" } else { "" };
            format!("| `{call}` | {change} | {} |", escaped(command.help)).replace("|  |", "| |")
        };
        let rows: Vec<_> = all().into_iter().map(row).collect();
        let table: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(table, rows, "the table of docs/appctl.md should be:\n{}", rows.join("\n"));
    }

    #[test]
    fn an_unknown_command_names_the_nearest_one() {
        let error = unknown("fdb/shwo");
        assert!(error.starts_with("\"fdb/shwo\" is not a valid command (use \"list-commands\""));
        assert!(error.ends_with("did you mean \"fdb/show\"?"), "{error}");
        let error = unknown("rstp/tcn");
        assert!(error.contains("does not have: "), "{error}");
    }
}
