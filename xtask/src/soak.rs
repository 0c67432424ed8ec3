//! `cargo xtask soak`: a whole switch under random changes, and the laws, for as long as you like.

use std::time::{Duration, Instant};

use crate::shell::{Failure, cargo, run, step};

/// Packets that go through the whole switch unless it is said how many.
const PACKETS: u64 = 10_000_000;

/// Changes that the engines of evictions meet unless it is said how many.
const CHANGES: u64 = 10_000_000;

/// The tests that say by `SHUNT_CHANGES` how many changes they go through: the direct engine, that in a
/// circuit and the relational one against the definition, half as many in each of two against what is
/// true of each packet, and a hundredth as many for the published design beside the direct engine.
const OF_CHANGES: [&str; 3] = [
    "through_a_hundred_thousand_changes",
    "whose_packets_meet_something_else",
    "entries_of_one_packet_go_exactly",
];

/// Packets of one round of the laws; each round has a new seed, which the suite prints.
const PACKETS_PER_ROUND: &str = "20000000";

/// Cases of each property of the eviction engines in a round.
const CASES_PER_ROUND: &str = "2000";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    packets: u64,
    changes: u64,
    minutes: u64,
    seed: u64,
}

/// Sends packets through a whole switch whose rules never rest, and has the engines of evictions meet
/// changes; then, for the minutes that were asked for, repeats the law suites with new seeds.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let Request { packets, changes, minutes, seed } = request(arguments)?;
    let mut passed = 0;
    if packets > 0 {
        step(&format!("{packets} packets through a whole switch"), || run_switch(packets, seed))?;
        passed += 1;
    }
    if changes > 0 {
        let round = [("SHUNT_CHANGES", changes.to_string()), ("SHUNT_SEED", seed.to_string())];
        step(&format!("{changes} changes for the engines of evictions"), || {
            run_evictions(&OF_CHANGES, round)
        })?;
        passed += 1;
    }
    let (start, length) = (Instant::now(), Duration::from_secs(minutes * 60));
    let mut round = seed;
    while start.elapsed() < length {
        round += 1;
        let left = length.saturating_sub(start.elapsed()).as_secs();
        step(&format!("laws with seed {round}, {left} s left"), || run_round(round))?;
        let seed = [("SHUNT_CASES", CASES_PER_ROUND.to_owned()), ("SHUNT_SEED", round.to_string())];
        step(&format!("evictions with seed {round}"), || run_evictions(&[], seed))?;
        passed += 2;
    }
    println!("{passed} passed, 0 failed");
    Ok(())
}

fn request(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request { packets: PACKETS, changes: CHANGES, minutes: 0, seed: 0 };
    let usage = "cargo xtask soak [--packets N] [--changes N] [--minutes N] [--seed N]";
    for pair in arguments.chunks(2) {
        let [flag, number] = pair else { return Err(Failure::new(usage)) };
        let number = number.parse().map_err(|_| Failure::new(usage))?;
        match flag.as_str() {
            "--packets" => request.packets = number,
            "--changes" => request.changes = number,
            "--minutes" => request.minutes = number,
            "--seed" => request.seed = number,
            _ => return Err(Failure::new(usage)),
        }
    }
    Ok(request)
}

/// With the profile of the tests, so that debug assertions look on.
fn run_switch(packets: u64, seed: u64) -> Result<(), Failure> {
    let soak = ["test", "--quiet", "--package", "shunt-tests", "--test", "soak"];
    run(cargo(&soak)
        .args(["--", "--nocapture"])
        .env("SHUNT_SOAK_PACKETS", packets.to_string())
        // What is freed goes back to the system at once, so that what is not freed is seen.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "65536")
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("SHUNT_SEED", seed.to_string()))
}

fn run_round(round: u64) -> Result<(), Failure> {
    let laws = ["test", "--release", "--quiet", "--all-features", "--package", "shunt-datapath"];
    run(cargo(&laws)
        .args(["--test", "switch", "laws"])
        .env("SHUNT_PACKETS", PACKETS_PER_ROUND)
        .env("SHUNT_SEED", round.to_string()))
}

/// The engines of evictions, against each other and against what is true: all tests, or those of which
/// the names hold a word.
fn run_evictions(
    words: &[&str],
    environment: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), Failure> {
    let engines = ["test", "--release", "--quiet", "--all-features", "--package", "shunt-kairo"];
    run(cargo(&engines).args(["--test", "evictors", "--"]).args(words).envs(environment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Request> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words).ok()
    }

    #[test]
    fn a_soak_is_ten_million_packets_and_changes_unless_it_is_said_otherwise() {
        let usual = Request { packets: 10_000_000, changes: 10_000_000, minutes: 0, seed: 0 };
        assert_eq!(read(""), Some(usual));
        let other = Request { packets: 0, changes: 5000, minutes: 5, seed: 7 };
        assert_eq!(read("--minutes 5 --packets 0 --changes 5000 --seed 7"), Some(other));
        assert!(["--minutes", "--packets x", "--hours 1"].iter().all(|line| read(line).is_none()));
    }
}
