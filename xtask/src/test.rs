//! `cargo xtask test`: runs every suite, with one summary line each.

use std::{process::Command, time::Instant};

use crate::{
    dpdk, install, linux_guest,
    shell::{TaskError, cargo, run, run_watched, target},
    suite::{DpdkNeed, FEATURES, FEATURES_AND_DPDK, SUITES, Suite},
};

/// Runs the default suites, or the named suites. `--list` prints all suites.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    if arguments.iter().any(|argument| argument == "--list") {
        SUITES.iter().for_each(|suite| println!("{:<12} {}", suite.name, suite.what));
        return Ok(());
    }
    let (flags, names): (Vec<String>, Vec<String>) =
        arguments.iter().cloned().partition(|argument| argument == "--bless");
    let suites = select_suites(&names)?;
    let environment: &[_] = if flags.is_empty() { &[] } else { &[("SHUNT_BLESS", "1")] };
    if suites.iter().any(|suite| suite.needs_tools) {
        install::ensure(install::TESTS)?;
    }
    if names.is_empty() {
        println!("the first run builds all tests, in silence, for about 15 minutes");
    }
    // The daemon under test is built once, with the test profile.
    run(&mut cargo(&program_arguments(names.is_empty(), false)))?;
    let mut lines = Vec::new();
    for suite in suites {
        println!("\n== {}: {}", suite.name, suite.what);
        let start = Instant::now();
        let mut tally = SuiteCounts::default();
        let verdict = run_suite(suite, names.is_empty(), environment, &mut tally);
        let seconds = start.elapsed().as_secs_f64();
        if let Err(failure) = &verdict {
            eprintln!("{failure}");
        }
        let word = if verdict.is_ok() { "ok" } else { "FAILED" };
        let line = format!("{:<12} {word:<7} {seconds:>6.1} s  {}", suite.name, tally.words());
        lines.push((verdict.is_ok(), line));
    }
    println!("\n== suites");
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let failed = lines.iter().filter(|(ok, _)| !ok).count();
    println!("{} passed, {failed} failed", lines.len() - failed);
    if failed == 0 { Ok(()) } else { Err(TaskError::new(format!("{failed} suites failed"))) }
}

fn select_suites(names: &[String]) -> Result<Vec<&'static Suite>, TaskError> {
    if names.is_empty() {
        return Ok(SUITES.iter().filter(|suite| !suite.is_on_request).collect());
    }
    let find = |name: &String| {
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
            let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            TaskError::new(format!("unknown suite `{name}`; choose from: {}", all.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

/// Returns the arguments of cargo that build the programs of the daemon.
///
/// If all suites run, tests of the daemon build the programs. A build of only the programs selects
/// other features, and thus builds all dependencies once more.
fn program_arguments(shares_build: bool, has_dpdk: bool) -> Vec<&'static str> {
    let shared = ["test", "--quiet", "--no-run", "--test", "commands", "--workspace", "--features"];
    let alone = ["build", "--quiet", "--bins", "--package", "shuntd"];
    match (shares_build, has_dpdk) {
        (true, false) => [&shared[..], &[FEATURES]].concat(),
        (true, true) => [&shared[..], &[FEATURES_AND_DPDK]].concat(),
        (false, false) => alone.to_vec(),
        (false, true) => [&alone[..], &["--features", "dpdk"]].concat(),
    }
}

/// Runs one suite. `shares_build` is true if other suites run, too.
fn run_suite(
    suite: &Suite,
    shares_build: bool,
    environment: &[(&str, &str)],
    tally: &mut SuiteCounts,
) -> Result<(), TaskError> {
    if suite.is_package {
        // The suite `crates` has built the programs with all engines, and the writer of the manual.
        let built = target().join("debug");
        let mut check = Command::new(std::env::current_exe()?);
        check.args(["package", "--check", "--quick"]);
        if shares_build {
            check.arg("--programs").arg(built);
        } else {
            check.args(["--profile", "dev"]);
        }
        return run_watched(&mut check, |line| tally.note(line));
    }
    let mut command = cargo(&["test", "--quiet"]);
    command.envs(environment.iter().copied());
    command
        .args(suite.arguments(shares_build))
        .env("PROPTEST_VERBOSE", "0")
        .env("INSTA_UPDATE", "no");
    install::ensure(suite.own_tools)?;
    if let Some(python) = suite.python {
        command.env(python.variable, install::ensure_python(python)?);
    }
    if suite.dpdk != DpdkNeed::Nothing {
        dpdk::ensure_library()?;
    }
    if suite.dpdk == DpdkNeed::Daemon {
        let [without, with_dpdk] =
            [false, true].map(|has_dpdk| program_arguments(shares_build, has_dpdk));
        command.env(dpdk::VARIABLE, dpdk::ensure_programs(&with_dpdk, &without)?);
    }
    if suite.has_linux_guest {
        command.env(linux_guest::VARIABLE, linux_guest::ensure()?);
    }
    run_watched(&mut command, |line| tally.note(line))
}

/// Test counts and skipped tests from the output of a suite.
#[derive(Default)]
struct SuiteCounts {
    tests: usize,
    /// Messages of skipped tests.
    skipped: Vec<String>,
}

impl SuiteCounts {
    /// Processes a line of output.
    fn note(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("SKIPPED: ") {
            self.skipped.push(reason.trim_end().to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            // `ok. 9 passed; 0 failed; ..`: failed tests count, too.
            let words: Vec<&str> = counts.split([' ', ';']).collect();
            let ran = words.windows(2).filter(|pair| ["passed", "failed"].contains(&pair[1]));
            self.tests += ran.filter_map(|pair| pair[0].parse::<usize>().ok()).sum::<usize>();
        }
    }

    /// Returns the end of the summary line: `9 tests, 1 skipped (no 8021q module)`.
    fn words(&self) -> String {
        let mut parts = Vec::new();
        match self.tests {
            0 => {}
            1 => parts.push("1 test".to_owned()),
            tests => parts.push(format!("{tests} tests")),
        }
        if !self.skipped.is_empty() {
            let mut reasons = self.skipped.clone();
            reasons.sort();
            reasons.dedup();
            parts.push(format!("{} skipped ({})", self.skipped.len(), reasons.join("; ")));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn closing(lines: &str) -> String {
        let mut tally = SuiteCounts::default();
        lines.lines().for_each(|line| tally.note(line));
        tally.words()
    }

    #[test]
    fn the_count_of_tests_names_skipped_ones() {
        let result = "test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(closing(result), "9 tests");
        let one = format!("SKIPPED: no 8021q module\n{result}");
        assert_eq!(closing(&one), "9 tests, 1 skipped (no 8021q module)");
        let many = format!("SKIPPED: b\nSKIPPED: a\n{result}\nSKIPPED: b\n{result}");
        assert_eq!(closing(&many), "18 tests, 3 skipped (a; b)");
        assert_eq!(closing("Testing kernels\nSuccess"), "");
    }

    #[test]
    fn failed_tests_are_counted_as_tests() {
        assert_eq!(closing("test result: FAILED. 2 passed; 3 failed; 1 ignored"), "5 tests");
    }

    #[test]
    fn both_output_streams_are_counted() {
        let mut tally = SuiteCounts::default();
        let words = "echo 'test result: ok. 1 passed; 0 failed'; echo 'SKIPPED: x' >&2";
        let mut command = Command::new("sh");
        assert!(run_watched(command.args(["-c", words]), |line| tally.note(line)).is_ok());
        assert_eq!(tally.words(), "1 test, 1 skipped (x)");
        assert!(run_watched(Command::new("sh").args(["-c", "exit 3"]), |_| ()).is_err());
    }
}
