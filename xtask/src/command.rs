//! The commands of `cargo xtask`, with the options that `--help` lists.

use crate::{
    bench, ci, demo, differential, fuzz, lint, loom, man, mutants, p4, package, pipebench,
    shell::TaskError, soak, test,
};

/// One command of `cargo xtask`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The arguments that stand before the options, as in a usage line.
    arguments: &'static str,
    /// The purpose of the command, in one line.
    pub(crate) what: &'static str,
    options: &'static [CommandOption],
    pub(crate) run: fn(&[String]) -> Result<(), TaskError>,
}

/// One option of a command.
struct CommandOption {
    /// The flag, and the name of its value if it has one.
    usage: &'static str,
    what: &'static str,
}

impl CommandOption {
    fn flag(&self) -> &str {
        self.usage.split(' ').next().unwrap_or(self.usage)
    }

    fn has_value(&self) -> bool {
        self.usage.contains(' ')
    }
}

impl Command {
    /// Returns the usage of the command, its purpose and its options.
    pub(crate) fn help(&self) -> String {
        let usages = self.options.iter().map(|option| format!(" [{}]", option.usage));
        let arguments = if self.arguments.is_empty() { "" } else { " " };
        let lines =
            self.options.iter().map(|option| format!("  {:<20} {}\n", option.usage, option.what));
        format!(
            "{what}\n\nusage: cargo xtask {name}{arguments}{of}{usages}\n{space}{lines}",
            what = self.what,
            name = self.name,
            of = self.arguments,
            usages = usages.collect::<String>(),
            space = if self.options.is_empty() { "" } else { "\n" },
            lines = lines.collect::<String>(),
        )
    }

    /// Refuses an option or an argument that the command does not have.
    pub(crate) fn check_options(&self, words: &[String]) -> Result<(), TaskError> {
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match self.options.iter().find(|option| option.flag() == word) {
                // The command checks the value.
                Some(option) if option.has_value() => drop(rest.next()),
                Some(_) => {}
                None if word.starts_with("--") => {
                    let flags: Vec<_> = self.options.iter().map(CommandOption::flag).collect();
                    let known = if flags.is_empty() { "none".to_owned() } else { flags.join(", ") };
                    let text = format!("unknown option `{word}`; options: {known}");
                    return Err(TaskError::new(text));
                }
                None if self.arguments.is_empty() => {
                    let text = format!("unknown argument `{word}`: {} has only options", self.name);
                    return Err(TaskError::new(text));
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// All commands, in the order in which the usage lists them.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "",
        what: "show the switch in a minute: two hosts, a policy, live caches, a rule change",
        options: &[CommandOption { usage: "--gigaflow", what: "show the emulated NIC instead" }],
        run: demo::run_command,
    },
    Command {
        name: "test",
        arguments: "[SUITE..]",
        what: "run all or the named test suites; install missing programs if permitted",
        options: &[
            CommandOption { usage: "--list", what: "list the suites and stop" },
            CommandOption { usage: "--bless", what: "write measured counts as the expected ones" },
        ],
        run: test::run_command,
    },
    Command {
        name: "lint",
        arguments: "",
        what: "check format, clippy and rustdoc",
        options: &[],
        run: lint::run_command,
    },
    Command {
        name: "ci",
        arguments: "",
        what: "run lint and test: the gate",
        options: &[],
        run: ci,
    },
    Command {
        name: "bench",
        arguments: "NAME..",
        what: "run experiments against Open vSwitch, or compare two builds with `regress BASE`",
        options: &[],
        run: bench::run_command,
    },
    Command {
        name: "pipebench",
        arguments: "NAME --out DIR",
        what: "generate a workload by name: rules, flows, packets, updates",
        options: &[],
        run: pipebench::run_command,
    },
    Command {
        name: "p4",
        arguments: "",
        what: "generate the P4Info and the bmv2 program of the LTM tables",
        options: &[],
        run: p4::run_command,
    },
    Command {
        name: "package",
        arguments: "",
        what: "build the Debian package or the container image, and try it",
        options: PACKAGE,
        run: package::run_command,
    },
    Command {
        name: "man",
        arguments: "",
        what: "write the manual pages and shell completions of all programs",
        options: &[],
        run: man::run_command,
    },
    Command {
        name: "differential",
        arguments: "",
        what: "compare Shunt with Open vSwitch on random rules and frames",
        options: DIFFERENTIAL,
        run: differential::run_command,
    },
    Command {
        name: "soak",
        arguments: "",
        what: "test a whole switch for hours under random changes, faults and churn",
        options: SOAK,
        run: soak::run_command,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET..]",
        what: "run all or the named fuzz targets with the nightly toolchain",
        options: &[
            CommandOption { usage: "--seconds N", what: "seconds for each target (default 60)" },
            CommandOption { usage: "--list", what: "list the targets and stop" },
        ],
        run: fuzz::run_command,
    },
    Command {
        name: "mutants",
        arguments: "[TARGET..]",
        what: "check that the tests detect small changes of the code (mutation testing)",
        options: MUTANTS,
        run: mutants::run_command,
    },
    Command {
        name: "loom",
        arguments: "",
        what: "check the concurrency models with loom",
        options: &[],
        run: loom::run_command,
    },
];

const PACKAGE: &[CommandOption] = &[
    CommandOption { usage: "--dpdk", what: "build the package with DPDK ports, too" },
    CommandOption { usage: "--image", what: "build the container image instead" },
    CommandOption {
        usage: "--check",
        what: "install the package in a fresh root, start, upgrade, remove and purge it",
    },
    CommandOption { usage: "--upgrades N", what: "upgrades of the check, under load (default 1)" },
    CommandOption { usage: "--quick", what: "compress less: a larger package in less time" },
    CommandOption { usage: "--profile NAME", what: "profile of cargo (default release)" },
    CommandOption {
        usage: "--programs DIR",
        what: "package the programs of DIR; compile the manual unless DIR/examples has it",
    },
];

const DIFFERENTIAL: &[CommandOption] = &[
    CommandOption { usage: "--seeds FIRST..END", what: "seeds of the cases (default 0..16)" },
    CommandOption { usage: "--kind KIND", what: "only cases of tables, normal or mirrors" },
    CommandOption { usage: "--cases FILE", what: "replay the cases of this file" },
    CommandOption {
        usage: "--record FILE",
        what: "write the answers of Open vSwitch to this file",
    },
];

const SOAK: &[CommandOption] = &[
    CommandOption {
        usage: "--packets N",
        what: "packets through a whole switch (default 10000000)",
    },
    CommandOption {
        usage: "--changes N",
        what: "changes for the eviction engines (default 10000000)",
    },
    CommandOption {
        usage: "--faults MINUTES",
        what: "the daemon while system calls fail and limits are reached (default 1)",
    },
    CommandOption {
        usage: "--churn MINUTES",
        what: "memory while everything is added and deleted (default 1)",
    },
    CommandOption {
        usage: "--minutes N",
        what: "repeat the invariant tests with new seeds (default 0)",
    },
    CommandOption { usage: "--seed N", what: "first seed of the random values (default 0)" },
];

const MUTANTS: &[CommandOption] = &[
    CommandOption {
        usage: "--quick",
        what: "fewer cases and no long tests; survivors need a full run",
    },
    CommandOption { usage: "--again", what: "test unexplained survivors and timeouts again" },
    CommandOption { usage: "--list", what: "list the mutants and stop" },
    CommandOption { usage: "--jobs N", what: "tests that run in parallel (default 1)" },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str) -> &'static Command {
        COMMANDS.iter().find(|command| command.name == name).unwrap()
    }

    #[test]
    fn help_lists_each_option_once() {
        let help = command("package").help();
        for option in ["--dpdk", "--image", "--check", "--upgrades N", "--programs DIR"] {
            let line = format!("\n  {option:<20} ");
            assert_eq!(help.matches(&line).count(), 1, "{option} in {help}");
        }
        assert!(
            COMMANDS.iter().all(|command| command
                .help()
                .lines()
                .skip(3)
                .all(|line| line.len() <= 100))
        );
    }

    #[test]
    fn an_unknown_option_is_refused_with_known_ones() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let soak = command("soak");
        assert!(soak.check_options(&words("--faults 60 --churn 60")).is_ok());
        let error = soak.check_options(&words("--hours 1")).unwrap_err().to_string();
        assert!(error.contains("`--hours`") && error.contains("--churn"), "{error}");
        assert!(command("lint").check_options(&words("--fix")).is_err());
        assert!(command("lint").check_options(&words("datapath")).is_err());
        assert!(command("test").check_options(&words("datapath --list")).is_ok());
    }
}
