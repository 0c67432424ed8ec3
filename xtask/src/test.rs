//! `cargo xtask test`: every suite, one closing line each.

use std::time::Instant;

use crate::{
    install,
    shell::{Failure, cargo, run},
    suite::{SUITES, Suite},
};

/// Runs all suites, or those named; `--list` says which there are.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    if arguments.iter().any(|argument| argument == "--list") {
        SUITES.iter().for_each(|suite| println!("{:<12} {}", suite.name, suite.what));
        return Ok(());
    }
    let suites = chosen(arguments)?;
    if suites.iter().any(|suite| suite.needs_tools) {
        install::ensure(install::TESTS)?;
    }
    // The daemon under test is built once, with the profile of the tests.
    run(&mut cargo(&["build", "--quiet", "--package", "shuntd", "--bins"]))?;
    let mut lines = Vec::new();
    for suite in suites {
        println!("\n== {}: {}", suite.name, suite.what);
        let start = Instant::now();
        let verdict = run_suite(suite);
        let seconds = start.elapsed().as_secs_f64();
        if let Err(failure) = &verdict {
            eprintln!("{failure}");
        }
        let word = if verdict.is_ok() { "ok" } else { "FAILED" };
        lines.push((verdict.is_ok(), format!("{:<12} {word:<7} {seconds:>6.1} s", suite.name)));
    }
    println!("\n== suites");
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let failed = lines.iter().filter(|(ok, _)| !ok).count();
    println!("{} passed, {failed} failed", lines.len() - failed);
    if failed == 0 { Ok(()) } else { Err(Failure::new(format!("{failed} suites failed"))) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Suite>, Failure> {
    if names.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    let find = |name: &String| {
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
            let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            Failure::new(format!("no suite is called `{name}`; there are: {}", all.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn run_suite(suite: &Suite) -> Result<(), Failure> {
    let mut command = cargo(&["test", "--quiet"]);
    command.args(suite.arguments).env("PROPTEST_VERBOSE", "0").env("INSTA_UPDATE", "no");
    if suite.needs_os_ken {
        command.env("SHUNT_OS_KEN_PYTHON", install::ensure_os_ken()?);
    }
    run(&mut command)
}
