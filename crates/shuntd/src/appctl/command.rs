//! A command of the control socket: name, arguments, help and handler.

use std::{ops::RangeInclusive, pin::Pin};

use super::methods::DaemonMethods;

/// A command of the control socket.
pub(super) struct AppctlCommand {
    /// Name of the command, such as `fdb/show`.
    pub(super) name: &'static str,
    /// Arguments as `list-commands` prints them.
    pub(super) arguments: &'static str,
    /// Allowed numbers of arguments.
    pub(super) count: RangeInclusive<usize>,
    /// The effect on the daemon.
    pub(super) effect: CommandEffect,
    /// One line about the command, for the documentation.
    pub(super) help: &'static str,
    /// The function that runs the command.
    pub(super) handler: Handler,
}

/// The effect of a command on the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEffect {
    /// The command only reads.
    Read,
    /// The command changes the daemon, so each call is logged.
    Change,
}

/// A function that executes a command.
pub(super) type Handler = for<'a> fn(&'a DaemonMethods, &'a [String]) -> CommandReply<'a>;

/// The reply of a command: its answer, or the text of an error.
pub(super) type CommandReply<'a> =
    Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// Declares the list of the commands of a module.
///
/// Each command is `name arguments, counts, effect, handler, help`.
macro_rules! commands {
    ($($name:literal $arguments:literal, $count:expr, $effect:ident, $handler:path, $help:literal;)+) => {
        /// The commands of this module.
        pub(super) const COMMANDS: &[$crate::appctl::command::AppctlCommand] = &[
            $($crate::appctl::command::AppctlCommand {
                name: $name,
                arguments: $arguments,
                count: $count,
                effect: $crate::appctl::command::CommandEffect::$effect,
                help: $help,
                handler: |methods, arguments| Box::pin($handler(methods, arguments)),
            },)+
        ];
    };
}

pub(super) use commands;

impl AppctlCommand {
    /// Checks the number of arguments, with the messages of `ovs-vswitchd`.
    ///
    /// # Errors
    ///
    /// If there are too few or too many arguments.
    pub(super) fn check_count(&self, count: usize) -> Result<(), String> {
        let (name, usage) = (self.name, self.arguments);
        let usage = if usage.is_empty() { String::new() } else { format!(": {name} {usage}") };
        if count < *self.count.start() {
            let least = self.count.start();
            return Err(format!("\"{name}\" command requires at least {least} arguments{usage}"));
        }
        if count > *self.count.end() {
            let most = self.count.end();
            return Err(format!("\"{name}\" command takes at most {most} arguments{usage}"));
        }
        Ok(())
    }
}
