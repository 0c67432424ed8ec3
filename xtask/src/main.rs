//! The commands of the project: `cargo xtask COMMAND`. Without a command, it lists all commands.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "commands print for their user")]
#![expect(clippy::disallowed_methods, reason = "commands report their run time")]

mod bench;
mod command;
mod demo;
mod differential;
mod dpdk;
mod fuzz;
mod install;
mod lint;
mod linux_guest;
mod loom;
mod man;
mod mutants;
mod p4;
mod package;
mod pipebench;
mod shell;
mod soak;
mod suite;
mod test;

use std::process::ExitCode;

use command::{COMMANDS, Command};
use shell::TaskError;

/// Commands that print `--help` themselves.
const OWN_HELP: [&str; 2] = ["bench", "pipebench"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("unknown command `cargo xtask {name}`\n\n{}", usage());
        return ExitCode::from(2);
    };
    let has_own_help = OWN_HELP.contains(&command.name);
    if !has_own_help && rest.iter().any(|word| ["--help", "-h"].contains(&word.as_str())) {
        print!("{}", command.help());
        return ExitCode::SUCCESS;
    }
    let known = if has_own_help { Ok(()) } else { command.check_options(rest) };
    match known.and_then(|()| (command.run)(rest)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn ci(_: &[String]) -> Result<(), TaskError> {
    lint::run_all(lint::OnMissing::Fail)?;
    test::run_command(&[])
}

fn usage() -> String {
    let line = |command: &Command| format!("  {:<12} {}\n", command.name, command.what);
    let lines: String = COMMANDS.iter().map(line).collect();
    format!(
        "usage: cargo xtask COMMAND\n\n{lines}\n`cargo xtask COMMAND --help` lists its options."
    )
}
