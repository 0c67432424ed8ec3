//! Two builds of Shunt beside each other: did a change make it slower?
//!
//! `cargo xtask bench regress BASE` builds the daemon of BASE and says where. Forwarding and
//! flow-mods are measured of both daemons, in rounds that take turns; kernels by the `kernels`
//! program of each build, where the older one has it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use super::{flow_mods, forwarding};
use crate::{
    experiment::{Better, Row, Run, Samples, machine, table_of_builds, target, write_whole},
    switch::Contender,
};

/// Measures, and answers with a page for people; it is kept beside the results of quick runs.
///
/// # Errors
///
/// When there is nothing to compare with, or the page cannot be written.
pub(crate) fn run(run: &mut Run) -> Result<String, String> {
    let base = run.option("--base").map(PathBuf::from);
    let base = base.ok_or("say which build to compare with: cargo xtask bench regress BASE")?;
    if !base.join("shuntd").is_file() {
        let base = base.display();
        return Err(format!("{base} has no program shuntd: --base is a folder with a build"));
    }
    let name = run.option("--base-name").unwrap_or("the base").to_owned();
    let mut rows = kernel_rows(run, &base);
    rows.extend(daemon_rows(run, &base));
    rows.retain(|row| row.better != Better::Neither);
    let page = page(&name, run.is_quick, &rows);
    let path = target().join("results/regress.md");
    write_whole(&path, &page)?;
    Ok(format!("{page}\nwrote {}\n", path.display()))
}

/// What is written: how to read it, what is worse, and all figures.
fn page(base: &str, is_quick: bool, rows: &[Row]) -> String {
    let quick = if is_quick { " --quick" } else { "" };
    let commit = base.split(' ').next().unwrap_or_default();
    format!(
        "# This tree beside {base}\n\nCommand: `cargo xtask bench regress {commit}{quick}`, on {}.\n\n\
         Medians, and in parentheses the least and the most of the rounds, in which the builds take turns.\n\
         A ratio above 1 means that this tree is the better one.\n\n{}",
        machine(),
        table_of_builds(base, rows),
    )
}

/// What the daemons of both builds do: forwarding, and flow-mods.
fn daemon_rows(run: &mut Run, base: &Path) -> Vec<Row> {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        println!("there is no ovs-ofctl: SKIPPED forwarding and flow-mods");
        return Vec::new();
    }
    let (ours, other) = (Contender::ours(), Contender::Shunt(base.to_path_buf()));
    let mut rows = forwarding::rows(run, &ours, &other);
    run.begin(2 * flow_mods::steps(run));
    rows.extend(flow_mods::rows(run, &[ours, other]));
    rows
}

/// The kernels of both builds, by the programs that came with them.
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
            for (who, folder) in [own.as_path(), base].into_iter().enumerate() {
                for (name, ns) in kernel_times(folder) {
                    samples.entry(name).or_default()[who].0.push(ns);
                }
            }
        });
    }
    // A kernel that only one of them has is no comparison.
    samples.retain(|_, builds| builds.iter().all(|samples| !samples.0.is_empty()));
    let row = |(name, [ours, base]): (String, [Samples; 2])| Row {
        ours,
        rival: Some((String::new(), base)),
        ..Row::new(name, "time of a kernel", "ns")
    };
    samples.into_iter().map(row).collect()
}

/// What `kernels time` prints: a name and nanoseconds a line.
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
