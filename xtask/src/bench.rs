//! `cargo xtask bench`: experiments, each beside its rival in one run.

use crate::{
    install,
    shell::{Failure, cargo, run},
};

/// One experiment.
struct Bench {
    name: &'static str,
    what: &'static str,
    /// The binary or bench of `shunt-benches` that runs it.
    arguments: &'static [&'static str],
    /// Whether it runs Open vSwitch beside us.
    with_rival: bool,
}

const BENCHES: &[Bench] = &[Bench {
    name: "spine",
    what: "pcap -> switch -> null on one core, one L4 rule, 1K and 100K flows, beside OVS-DPDK",
    arguments: &["run", "--release", "--quiet", "--package", "shunt-benches", "--bin", "spine"],
    with_rival: true,
}];

/// Runs the experiment named.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let names = || BENCHES.iter().map(|bench| format!("  {:<10} {}\n", bench.name, bench.what));
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::new(format!("say which:\n{}", names().collect::<String>())));
    };
    if name == "--list" {
        print!("{}", names().collect::<String>());
        return Ok(());
    }
    let bench = BENCHES.iter().find(|bench| bench.name == name).ok_or_else(|| {
        Failure::new(format!("no bench is called `{name}`:\n{}", names().collect::<String>()))
    })?;
    if bench.with_rival
        && let Err(failure) = install::ensure(install::RIVAL)
    {
        println!("running without the rival: {failure}");
    }
    run(&mut cargo(&["build", "--release", "--quiet", "--package", "shuntd", "--bins"]))?;
    run(cargo(bench.arguments).arg("--").args(rest))
}
