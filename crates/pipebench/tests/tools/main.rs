//! Tests the program as users run it, and its files in other tools.
//!
//! A test without a required tool or permission prints a message, and checks nothing.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of test functions fail the test that calls them"
)]

mod bad_input;
mod digests;
mod files;
mod help;
mod live;
mod updates;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pipebench");

/// Runs the program to its end.
fn pipebench(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

/// Runs the program, checks that it succeeds, and returns its output.
fn answer(arguments: &[&str]) -> String {
    let output = pipebench(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a workload into a folder.
fn write(name: &str, folder: &Path) {
    answer(&["write", name, "--out", folder.to_str().unwrap()]);
}

/// Returns the file names of a folder in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Runs another program to its end; `None`, with a message, if it is not installed.
fn tool(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            print_skipped(&format!("{program} cannot be run: {error}"));
            None
        }
    }
}

/// Prints what a passing test did not check.
fn print_skipped(what: &str) {
    // Without standard error there is nowhere to print.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
