//! How many instructions the kernels need, against `icount.toml`.
//!
//! Counts are callgrind's, so they do not depend on what else the machine does; they see neither
//! cache misses nor contention. A count that grew by more than a hundredth fails, and
//! `cargo xtask test icount --bless` writes those of this build.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]
#![expect(clippy::print_stdout, reason = "says what is skipped")]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// Growth that fails.
const TOLERANCE: f64 = 0.01;

/// Calls whose instructions are counted: the difference, so that the start is not.
const CALLS: [u32; 2] = [1_000, 3_000];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/icount.toml");

const HEAD: &str = "\
# Instructions of one call of each kernel, by callgrind, in the release profile.
# Written by `cargo xtask test icount --bless`; more than one in a hundred more fails the gate.
";

fn kernels(words: &[&str]) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(env!("CARGO_BIN_EXE_kernels")).args(words);
    command
}

/// Instructions of a run, as callgrind's last words have it.
fn instructions(name: &str, calls: u32) -> f64 {
    let output = kernels(&["call", name, &calls.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    collected.and_then(|(_, count)| count.trim().parse().ok()).unwrap()
}

fn counts() -> BTreeMap<String, f64> {
    let names = Command::new(env!("CARGO_BIN_EXE_kernels")).arg("names").output().unwrap();
    let names = String::from_utf8(names.stdout).unwrap();
    let count = |name: &str| {
        let [few, many] = CALLS.map(|calls| instructions(name, calls));
        (name.to_owned(), (many - few) / f64::from(CALLS[1] - CALLS[0]))
    };
    names.lines().map(count).collect()
}

fn committed() -> BTreeMap<String, f64> {
    let text = fs::read_to_string(PAGE).unwrap_or_default();
    let line = |line: &str| {
        let (name, count) = line.split_once(" = ")?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn no_kernel_needs_more_instructions_than_it_did() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: no valgrind");
        return;
    }
    if cfg!(debug_assertions) {
        println!("SKIPPED: instructions are those of the release profile: cargo xtask test icount");
        return;
    }
    let (counts, committed) = (counts(), committed());
    if std::env::var_os("SHUNT_BLESS").is_some() {
        let lines = counts.iter().map(|(name, count)| format!("{name} = {count:.1}\n"));
        fs::write(Path::new(PAGE), HEAD.to_owned() + &lines.collect::<String>()).unwrap();
        return;
    }
    let names: Vec<&String> = counts.keys().collect();
    assert_eq!(names, committed.keys().collect::<Vec<_>>(), "icount.toml has every kernel");
    let grown: Vec<String> = counts
        .iter()
        .filter(|(name, count)| **count > committed[*name] * (1.0 + TOLERANCE))
        .map(|(name, count)| format!("{name}: {count:.1}, was {:.1}", committed[name]))
        .collect();
    let advice = "if it is worth it: cargo xtask test icount --bless";
    assert!(grown.is_empty(), "more instructions than before: {grown:?}; {advice}");
}
