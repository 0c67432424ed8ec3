//! Replays a recorded workload through a chain of stages with every policy.
//!
//! ```text
//! cargo run --release --example replay -- WORKLOAD [stages [entries of a stage [policy...]]]
//! ```
//!
//! `shunt_testkit::partition::workload` defines the file format. The policy `disjoint` breaks ties
//! canonically, and `disjoint-cached` breaks ties as the switch does.

#![expect(clippy::print_stdout, reason = "printing is the purpose of this example")]

use std::{error::Error, io};

use shunt_gigaflow::{
    adaptive::Capacity,
    partition::{
        JointPolicy, PolicyName, Score,
        research::{DisjointPolicy, OneToOnePolicy, Ties},
    },
};
use shunt_testkit::partition::{
    model::{ReplayCounts, replay, replay_adaptive},
    workload::RecordedWorkload,
};

/// Replays the workload file with each policy, and prints a row for each.
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("no workload file given: pass its path as the first argument")?;
    let text = std::fs::read_to_string(&path)?;
    let workload =
        RecordedWorkload::parse(&text).ok_or_else(|| io::Error::other("not a workload"))?;
    let stages_count = words.next().map_or(Ok(4), |word| word.parse())?;
    let stage_entries_max = words.next().map_or(Ok(8000), |word| word.parse())?;
    let capacity = Capacity { stages_count, stage_entries_max };
    let mut names: Vec<String> = words.collect();
    if names.is_empty() {
        names = PolicyName::ALL.map(|name| name.to_string()).into();
        names.push("adaptive".to_owned());
    }
    println!("policy           hit %  last third  misses  entries  written  shared  by stage");
    for name in names {
        let counts = run(&workload, capacity, &name)?;
        show(&name, &counts);
    }
    Ok(())
}

/// Replays the workload with one policy. Fails if the name is not known.
fn run(
    workload: &RecordedWorkload,
    capacity: Capacity,
    name: &str,
) -> Result<ReplayCounts, Box<dyn Error>> {
    let one = Capacity {
        stages_count: 1,
        stage_entries_max: capacity.stage_entries_max * usize::from(capacity.stages_count),
    };
    let each = Capacity { stages_count: 64, ..capacity };
    Ok(match name {
        "adaptive" => replay_adaptive(workload, capacity, JointPolicy::default(), 32),
        "adaptive-one-to-one" => replay_adaptive(workload, capacity, OneToOnePolicy::default(), 32),
        "disjoint" => {
            replay(workload, capacity, &mut DisjointPolicy::new(Score::Length, Ties::Canonical))
        }
        "disjoint-cached" => replay(workload, capacity, &mut DisjointPolicy::default()),
        "megaflow" => replay(workload, one, &mut PolicyName::Megaflow.policy(0)),
        "one-to-one" => replay(workload, each, &mut PolicyName::OneToOne.policy(0)),
        name => replay(workload, capacity, &mut name.parse::<PolicyName>()?.policy(1)),
    })
}

/// Prints the hit rates in percent and the entries of a policy.
fn show(name: &str, counts: &ReplayCounts) {
    let rate = |hits: &[bool]| {
        let hit = u32::try_from(hits.iter().filter(|hit| **hit).count()).unwrap_or(u32::MAX);
        let all = u32::try_from(hits.len()).unwrap_or(u32::MAX);
        100.0 * f64::from(hit) / f64::from(all.max(1))
    };
    println!(
        "{name:<15} {:6.2}      {:6.2}  {:6}  {:7}  {:7}  {:6}  {:?}",
        rate(&counts.hits),
        rate(&counts.hits[counts.hits.len() * 2 / 3..]),
        counts.misses(),
        counts.entries.iter().sum::<usize>(),
        counts.written,
        counts.shared,
        counts.entries.iter().take(8).collect::<Vec<_>>(),
    );
}
