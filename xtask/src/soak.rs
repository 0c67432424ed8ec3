//! `cargo xtask soak`: the laws over random pipelines, for as long as you like.

use std::time::{Duration, Instant};

use crate::shell::{Failure, cargo, run, step};

/// Packets of one round; each round has a new seed, which the suite prints.
const PACKETS: &str = "20000000";

/// Repeats the law suites with new seeds until the time is up.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let minutes = match arguments {
        [flag, number] if flag == "--minutes" => number.parse::<u64>().ok(),
        _ => None,
    };
    let Some(minutes) = minutes else {
        return Err(Failure::new("say how long: cargo xtask soak --minutes N"));
    };
    let start = Instant::now();
    let mut round = 0_u64;
    while start.elapsed() < Duration::from_secs(minutes * 60) {
        round += 1;
        let left = (minutes * 60).saturating_sub(start.elapsed().as_secs());
        step(&format!("round {round}, {left} s left"), || run_round(round))?;
    }
    println!("{round} passed, 0 failed");
    Ok(())
}

fn run_round(round: u64) -> Result<(), Failure> {
    let laws = ["test", "--release", "--quiet", "--all-features", "--package", "shunt-datapath"];
    run(cargo(&laws)
        .args(["--test", "switch", "laws"])
        .env("SHUNT_PACKETS", PACKETS)
        .env("SHUNT_SEED", round.to_string()))
}
