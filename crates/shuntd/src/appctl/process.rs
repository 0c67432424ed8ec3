//! Commands for the daemon process as a whole.

use super::{
    command::{AppctlCommand, commands},
    methods::DaemonMethods,
    table,
};

commands! {
    "exit" "[--cleanup]", 0..=1, Change, exit,
        "Stop the daemon. Devices of local ports stay, with and without `--cleanup`";
    "list-commands" "", 0..=0, Read, list_commands, "List the commands with their arguments";
    "shunt/help" "[command]", 0..=1, Read, help,
        "Show the effect of a command, or of all commands";
    "version" "", 0..=0, Read, version, "Show the version";
}

/// Handles `exit`: stops the daemon.
async fn exit(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    methods.stop.notify_one();
    Ok(String::new())
}

/// Handles `list-commands`: lists the commands with their arguments.
async fn list_commands(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(table::list(""))
}

/// Handles `shunt/help`: shows the effect of a command, or of all commands.
async fn help(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let line = |command: &AppctlCommand| {
        format!("{} {}\n    {}\n", command.name, command.arguments, command.help)
    };
    match arguments.first() {
        Some(name) => table::find(name).map(line).ok_or_else(|| table::unknown(name)),
        None => Ok(table::all().into_iter().map(line).collect()),
    }
}

/// Handles `version`: shows the version of `shuntd`.
async fn version(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(format!("shuntd (Shunt) {}", env!("CARGO_PKG_VERSION")))
}
