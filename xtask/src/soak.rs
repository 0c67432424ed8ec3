//! `cargo xtask soak`: a whole switch and its invariants under random changes, for any duration.
//!
//! The command also runs the daemon while parts of the system fail, and while objects come and go.

use std::time::{Duration, Instant};

use crate::shell::{TaskError, cargo, run, step};

/// Default number of packets through the whole switch.
const PACKETS: u64 = 10_000_000;

/// Default number of changes for the eviction engines.
const CHANGES: u64 = 10_000_000;

/// Default number of minutes with system faults.
const FAULTS: u64 = 1;

/// Default number of minutes in which everything is added and deleted.
const CHURN: u64 = 1;

/// Tests that read the number of changes from `SHUNT_CHANGES`.
///
/// The direct, circuit and relational engines compare all changes with the definition. Two tests
/// compare half of the changes each with a model of packets. The last two tests compare a hundredth
/// and a five-hundredth of the changes with the published design.
const OF_CHANGES: [&str; 5] = [
    "every_engine_equals_the_definition_over_long_sequences",
    "exactly_the_stale_entries_are_evicted",
    "no_entry_stale_by_rewritten_headers_stays",
    "one_packet_entries_are_evicted_exactly_when_stale",
    "no_stale_one_packet_entry_stays",
];

/// Packets of one round of the invariant tests.
///
/// Each round has a new seed, which the suite prints.
const PACKETS_PER_ROUND: &str = "20000000";

/// Cases of each property of the eviction engines in a round.
const CASES_PER_ROUND: &str = "2000";

/// The requested numbers of packets, changes and minutes.
#[derive(Debug, PartialEq, Eq)]
struct SoakRequest {
    packets: u64,
    changes: u64,
    minutes: u64,
    /// Minutes with system faults.
    faults: u64,
    /// Minutes in which everything is added and deleted.
    churn: u64,
    seed: u64,
}

/// Runs a whole switch and the eviction engines under random changes.
///
/// Then repeats the invariant tests with new seeds for the requested number of minutes.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let SoakRequest { packets, changes, minutes, faults, churn, seed } = request(arguments)?;
    let mut passed = 0;
    if packets > 0 {
        step(&format!("{packets} packets through a whole switch"), || run_switch(packets, seed))?;
        passed += 1;
    }
    if changes > 0 {
        let round = [("SHUNT_CHANGES", changes.to_string()), ("SHUNT_SEED", seed.to_string())];
        step(&format!("{changes} changes for the eviction engines"), || {
            run_evictions(&OF_CHANGES, round)
        })?;
        passed += 1;
    }
    if faults > 0 {
        step(&format!("the daemon under faults for {faults} min"), || run_faults(faults, seed))?;
        passed += 1;
    }
    if churn > 0 {
        step(&format!("memory of the daemon under churn for {churn} min"), || {
            run_churn(churn, seed)
        })?;
        passed += 1;
    }
    let (start, length) = (Instant::now(), Duration::from_secs(minutes * 60));
    let mut round = seed;
    while start.elapsed() < length {
        round += 1;
        let left = length.saturating_sub(start.elapsed()).as_secs();
        step(&format!("invariant tests with seed {round}, {left} s left"), || run_round(round))?;
        let seed = [("SHUNT_CASES", CASES_PER_ROUND.to_owned()), ("SHUNT_SEED", round.to_string())];
        step(&format!("evictions with seed {round}"), || run_evictions(&[], seed))?;
        passed += 2;
    }
    println!("{passed} passed, 0 failed");
    Ok(())
}

fn request(arguments: &[String]) -> Result<SoakRequest, TaskError> {
    let mut request = SoakRequest {
        packets: PACKETS,
        changes: CHANGES,
        minutes: 0,
        faults: FAULTS,
        churn: CHURN,
        seed: 0,
    };
    let usage = "cargo xtask soak [--packets N] [--changes N] [--faults MINUTES] \
                 [--churn MINUTES] [--minutes N] [--seed N]";
    for pair in arguments.chunks(2) {
        let [flag, number] = pair else { return Err(TaskError::new(usage)) };
        let number = number.parse().map_err(|_| TaskError::new(usage))?;
        match flag.as_str() {
            "--packets" => request.packets = number,
            "--changes" => request.changes = number,
            "--minutes" => request.minutes = number,
            "--faults" => request.faults = number,
            "--churn" => request.churn = number,
            "--seed" => request.seed = number,
            _ => return Err(TaskError::new(usage)),
        }
    }
    Ok(request)
}

/// Runs the switch with the test profile, so that debug assertions are active.
fn run_switch(packets: u64, seed: u64) -> Result<(), TaskError> {
    let soak = ["test", "--quiet", "--package", "shunt-tests", "--test", "soak"];
    run(cargo(&soak)
        .args(["--", "--nocapture"])
        .env("SHUNT_SOAK_PACKETS", packets.to_string())
        // Freed memory returns to the system immediately, so that leaks are visible.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "65536")
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("SHUNT_SEED", seed.to_string()))
}

/// Runs the daemon while calls, disks, limits and clocks fail.
fn run_faults(minutes: u64, seed: u64) -> Result<(), TaskError> {
    let faults = ["test", "--quiet", "--package", "shunt-tests", "--test", "faults"];
    run(cargo(&faults)
        .args(["--", "--nocapture", "a_daemon_comes_back_from_faults"])
        .env("SHUNT_FAULT_SECONDS", (minutes * 60).to_string())
        .env("SHUNT_SEED", seed.to_string()))
}

/// Runs the daemon while ports, rules, connections and flows come and go.
fn run_churn(minutes: u64, seed: u64) -> Result<(), TaskError> {
    let churn = ["test", "--quiet", "--package", "shunt-tests", "--test", "faults"];
    run(cargo(&churn)
        .args(["--", "--nocapture", "memory_stays_flat_under_churn"])
        .env("SHUNT_CHURN_MINUTES", minutes.to_string())
        .env("SHUNT_SEED", seed.to_string()))
}

fn run_round(round: u64) -> Result<(), TaskError> {
    let tests =
        ["test", "--release", "--quiet", "--package", "shunt-datapath", "--features", "dbsp,serde"];
    run(cargo(&tests)
        .args(["--test", "switch", "invariants"])
        .env("SHUNT_PACKETS", PACKETS_PER_ROUND)
        .env("SHUNT_SEED", round.to_string()))
}

/// Runs the tests of the eviction engines that contain a word in their names,
/// or all tests.
fn run_evictions(
    words: &[&str],
    environment: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), TaskError> {
    let engines = ["test", "--release", "--quiet", "--all-features", "--package", "shunt-kairo"];
    run(cargo(&engines).args(["--test", "evictors", "--"]).args(words).envs(environment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<SoakRequest> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words).ok()
    }

    #[test]
    fn a_soak_has_ten_million_packets_by_default() {
        let usual = SoakRequest {
            packets: 10_000_000,
            changes: 10_000_000,
            minutes: 0,
            faults: 1,
            churn: 1,
            seed: 0,
        };
        assert_eq!(read(""), Some(usual));
        let other =
            SoakRequest { packets: 0, changes: 5000, minutes: 5, faults: 2, churn: 60, seed: 7 };
        let line = "--minutes 5 --packets 0 --changes 5000 --faults 2 --churn 60 --seed 7";
        assert_eq!(read(line), Some(other));
        assert!(
            ["--minutes", "--packets x", "--churn", "--hours 1"]
                .iter()
                .all(|line| read(line).is_none())
        );
    }
}
