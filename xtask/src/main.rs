//! The commands of the project: `cargo xtask COMMAND`. Without a command, it lists all commands.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "commands print for their user")]
#![expect(clippy::disallowed_methods, reason = "commands report their run time")]

mod bench;
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

use shell::TaskError;

/// One command of `cargo xtask`.
struct Command {
    name: &'static str,
    arguments: &'static str,
    what: &'static str,
    run: fn(&[String]) -> Result<(), TaskError>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "[--gigaflow]",
        what: "show the switch in a minute: two hosts, a policy, live caches, a rule change",
        run: demo::run_command,
    },
    Command {
        name: "test",
        arguments: "[SUITE..] [--list] [--bless]",
        what: "run all or the named test suites; install missing programs if permitted",
        run: test::run_command,
    },
    Command {
        name: "lint",
        arguments: "",
        what: "check format, clippy and rustdoc",
        run: lint::run_command,
    },
    Command { name: "ci", arguments: "", what: "run lint and test: the gate", run: ci },
    Command {
        name: "bench",
        arguments: "NAME.. | --all [--quick] | --list",
        what: "run an experiment against Open vSwitch, or compare two builds with `regress BASE`",
        run: bench::run_command,
    },
    Command {
        name: "pipebench",
        arguments: "NAME --out DIR",
        what: "generate a workload by name: rules, flows, packets, updates",
        run: pipebench::run_command,
    },
    Command {
        name: "p4",
        arguments: "",
        what: "generate the P4Info and the bmv2 program of the LTM tables from their description",
        run: p4::run_command,
    },
    Command {
        name: "package",
        arguments: "[--image] [--check [--upgrades N]] [--quick] [--profile NAME | --programs DIR]",
        what: "build the Debian package (--dpdk: that of DPDK too), or with --image the container image; --check tries it; --programs takes built programs, and compiles the manual unless DIR has examples/manual",
        run: package::run_command,
    },
    Command {
        name: "man",
        arguments: "",
        what: "write the manual pages and shell completions of all programs",
        run: man::run_command,
    },
    Command {
        name: "differential",
        arguments: "[--seeds FIRST..END] [--kind KIND] [--cases FILE] [--record FILE]",
        what: "compare Shunt with Open vSwitch on random rules and frames",
        run: differential::run_command,
    },
    Command {
        name: "soak",
        arguments: "[--packets N] [--changes N] [--faults MINUTES] [--churn MINUTES] [--minutes N] [--seed N]",
        what: "test a whole switch, its memory, the eviction engines and the invariants under random changes",
        run: soak::run_command,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET] [--seconds N] | --list",
        what: "run fuzz targets with the nightly toolchain",
        run: fuzz::run_command,
    },
    Command {
        name: "mutants",
        arguments: "[TARGET..] [--quick|--again] [--jobs N]",
        what: "check that the tests detect small changes of the code (mutation testing)",
        run: mutants::run_command,
    },
    Command {
        name: "loom",
        arguments: "",
        what: "check the concurrency models with loom",
        run: loom::run_command,
    },
];

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
    let asks_for_help = rest.iter().any(|word| ["--help", "-h"].contains(&word.as_str()));
    if asks_for_help && !OWN_HELP.contains(&command.name) {
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

fn ci(_: &[String]) -> Result<(), TaskError> {
    lint::run_all(lint::OnMissing::Fail)?;
    test::run_command(&[])
}

fn usage() -> String {
    let lines = COMMANDS.iter().map(|command| {
        format!("  {:<9} {:<32} {}\n", command.name, command.arguments, command.what)
    });
    format!("usage: cargo xtask COMMAND\n\n{}", lines.collect::<String>())
}
