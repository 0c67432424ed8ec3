//! Comparison of two builds of Shunt, to detect slowdowns.
//!
//! `cargo xtask bench regress BASE` builds the daemon of BASE and passes the folder of this daemon.
//! Forwarding and flow-mods are measured with both daemons in alternating rounds. Kernels are
//! measured with the `kernels` program of each build, if the older build has this program.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use super::{flow_mods, forwarding};
use crate::{
    experiment::{Better, Row, Run, Samples, machine, table_of_builds, target, write_atomically},
    switch::Contender,
};

/// Measures both builds, and returns a page for people.
///
/// The page is also written to a file.
///
/// # Errors
///
/// If there is no other build to compare with, or the page cannot be written.
pub(crate) fn run(run: &mut Run) -> Result<String, String> {
    let base = run.option("--base").map(PathBuf::from);
    let base = base.ok_or("name a build to compare with: cargo xtask bench regress BASE")?;
    if !base.join("shuntd").is_file() {
        let base = base.display();
        return Err(format!("{base} has no program shuntd: --base must be a folder with a build"));
    }
    let name = run.option("--base-name").unwrap_or("the base").to_owned();
    let mut rows = kernel_rows(run, &base);
    rows.extend(daemon_rows(run, &base));
    rows.retain(|row| row.better != Better::Neither);
    let page = page(&name, run.is_quick, &rows);
    let path = target().join("results/regress.md");
    write_atomically(&path, &page)?;
    Ok(format!("{page}\nwrote {}\n", path.display()))
}

/// Returns the page: an explanation, the worse values, and all values.
fn page(base: &str, is_quick: bool, rows: &[Row]) -> String {
    let quick = if is_quick { " --quick" } else { "" };
    let commit = base.split(' ').next().unwrap_or_default();
    format!(
        "# This tree compared with {base}\n\nCommand: `cargo xtask bench regress \
         {commit}{quick}`, on {}.\n\nEach value is the median of all alternating rounds; \
         parentheses hold the smallest and the largest round.\nThe ratio says how many times \
         better this tree is; below 1 is worse.\n\n{}",
        machine(),
        table_of_builds(base, rows),
    )
}

/// Measures both daemons: forwarding and flow-mods.
fn daemon_rows(run: &mut Run, base: &Path) -> Vec<Row> {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        println!("ovs-ofctl is not installed: SKIPPED forwarding and flow-mods");
        return Vec::new();
    }
    let (ours, other) = (Contender::ours(), Contender::Shunt(base.to_path_buf()));
    let mut rows = forwarding::rows(run, &ours, &other);
    run.begin(2 * flow_mods::steps(run));
    rows.extend(flow_mods::rows(run, &[ours, other]));
    rows
}

/// Measures the kernels of both builds with the program of each build.
fn kernel_rows(run: &mut Run, base: &Path) -> Vec<Row> {
    let Contender::Shunt(own) = Contender::ours() else { return Vec::new() };
    if !base.join("kernels").is_file() {
        println!("the base has no program `kernels`: SKIPPED kernels");
        return Vec::new();
    }
    let rounds = run.either(15, 5);
    run.begin(rounds);
    let mut samples: BTreeMap<String, [Samples; 2]> = BTreeMap::new();
    for _ in 0..rounds {
        run.step("kernels", |_| {
            for (subject, folder) in [own.as_path(), base].into_iter().enumerate() {
                for (name, ns) in kernel_times(folder) {
                    samples.entry(name).or_default()[subject].0.push(ns);
                }
            }
        });
    }
    // A kernel that exists in only one build cannot be compared.
    samples.retain(|_, builds| builds.iter().all(|samples| !samples.0.is_empty()));
    let row = |(name, [ours, base]): (String, [Samples; 2])| Row {
        ours,
        rival: Some((String::new(), base)),
        ..Row::new(name, "time of a kernel", "ns")
    };
    samples.into_iter().map(row).collect()
}

/// Parses the output of `kernels time`: a name and nanoseconds per line.
fn kernel_times(folder: &Path) -> Vec<(String, f64)> {
    let output = Command::new(folder.join("kernels")).arg("time").output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}/kernels time: {complaint}", folder.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ')?;
        Some((name.to_owned(), ns.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
