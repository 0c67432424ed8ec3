//! The project's commands: `cargo xtask COMMAND`. Run without one to see them all.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "commands talk to their user")]
#![expect(clippy::disallowed_methods, reason = "commands say how long they took")]

mod bench;
mod demo;
mod differential;
mod fuzz;
mod install;
mod lint;
mod loom;
mod mutants;
mod p4;
mod pipebench;
mod shell;
mod soak;
mod suite;
mod test;

use std::process::ExitCode;

use shell::Failure;

/// One command of `cargo xtask`.
struct Command {
    name: &'static str,
    arguments: &'static str,
    what: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "[--gigaflow]",
        what: "two hosts, a policy, live caches, a rule change: the switch in a minute",
        run: demo::run_command,
    },
    Command {
        name: "test",
        arguments: "[SUITE..] [--list] [--bless]",
        what: "all suites, or those named; installs what is missing where it may",
        run: test::run_command,
    },
    Command {
        name: "lint",
        arguments: "",
        what: "format, clippy, rustdoc",
        run: lint::run_command,
    },
    Command { name: "ci", arguments: "", what: "lint and test: the gate", run: ci },
    Command {
        name: "bench",
        arguments: "NAME.. | --all [--quick] | --list",
        what: "an experiment beside Open vSwitch, or `regress BASE`: two builds of ours",
        run: bench::run_command,
    },
    Command {
        name: "pipebench",
        arguments: "NAME --out DIR",
        what: "a workload by its name: rules, flows, packets, updates",
        run: pipebench::run_command,
    },
    Command {
        name: "p4",
        arguments: "",
        what: "P4Info and bmv2 program of the LTM tables, made anew from their description",
        run: p4::run_command,
    },
    Command {
        name: "differential",
        arguments: "[--seeds FIRST..END] [--kind KIND] [--cases FILE] [--record FILE]",
        what: "random rules and frames, on Shunt and on Open vSwitch side by side",
        run: differential::run_command,
    },
    Command {
        name: "soak",
        arguments: "[--packets N] [--changes N] [--minutes N] [--seed N]",
        what: "a whole switch and eviction under random changes; the laws, for as long as you like",
        run: soak::run_command,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET] [--seconds N] | --list",
        what: "fuzz targets, with the nightly toolchain",
        run: fuzz::run_command,
    },
    Command {
        name: "mutants",
        arguments: "[TARGET..] [--quick|--again] [--jobs N]",
        what: "would the tests fail if the code were wrong: each small change, and who notices",
        run: mutants::run_command,
    },
    Command {
        name: "loom",
        arguments: "",
        what: "the concurrency models under loom",
        run: loom::run_command,
    },
];

/// Commands that answer `--help` by what they run.
const HELP_THEMSELVES: [&str; 2] = ["bench", "pipebench"];

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
        eprintln!("cargo xtask has no command `{name}`\n\n{}", usage());
        return ExitCode::from(2);
    };
    let asks_for_help = rest.iter().any(|word| ["--help", "-h"].contains(&word.as_str()));
    if asks_for_help && !HELP_THEMSELVES.contains(&command.name) {
        println!("cargo xtask {} {}\n    {}", command.name, command.arguments, command.what);
        return ExitCode::SUCCESS;
    }
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn ci(_: &[String]) -> Result<(), Failure> {
    lint::run_all()?;
    test::run_command(&[])
}

fn usage() -> String {
    let lines = COMMANDS.iter().map(|command| {
        format!("  {:<9} {:<32} {}\n", command.name, command.arguments, command.what)
    });
    format!("usage: cargo xtask COMMAND\n\n{}", lines.collect::<String>())
}
