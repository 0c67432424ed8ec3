//! Two builds of Shunt beside each other: did a change make it slower?
//!
//! `cargo xtask bench regress BASE` builds the daemon of BASE and says where. Forwarding and
//! flow-mods are measured of both daemons, in rounds that take turns; kernels by the `kernels`
//! program of each build, where the older one has it.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use super::{flow_mods, forwarding};
use crate::{
    experiment::{Row, Run, Samples, table, target},
    switch::Contender,
};

/// Measures, and answers with a table for people; it is kept beside the results of quick runs.
pub(crate) fn run(run: &mut Run) -> String {
    let Some(base) = run.option("--base").map(Path::new).map(Path::to_path_buf) else {
        panic!("say which build to compare with: cargo xtask bench regress BASE");
    };
    let name = run.option("--base-name").unwrap_or("the base").to_owned();
    let ours = Contender::ours();
    let other = Contender::Shunt(base.clone());
    let mut rows = kernel_rows(run, &base);
    rows.extend(forwarding::rows(run, &ours, &other));
    run.begin(2 * flow_mods::steps(run));
    rows.extend(flow_mods::rows(run, &[ours, other]));
    for row in &mut rows {
        if let Some((rival, _)) = &mut row.rival {
            rival.clone_from(&name);
        }
    }
    let text = table(&rows);
    let path = target().join("results/regress.md");
    let written =
        fs::create_dir_all(target().join("results")).and_then(|()| fs::write(&path, &text));
    match written {
        Ok(()) => format!("{text}\nwrote {}\n", path.display()),
        Err(error) => format!("{text}\n{} was not written: {error}\n", path.display()),
    }
}

/// The kernels of both builds, by the programs that came with them.
fn kernel_rows(run: &mut Run, base: &Path) -> Vec<Row> {
    let Contender::Shunt(own) = Contender::ours() else { return Vec::new() };
    if !base.join("kernels").is_file() {
        println!("the base has no program `kernels`: without kernels");
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
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ')?;
        Some((name.to_owned(), ns.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
