//! Compares the model of the cache in `shunt_testkit` with the recorded counters of a second
//! implementation.

#![expect(clippy::unwrap_used, reason = "the recorded data is valid")]

use shunt_gigaflow::{
    adaptive::Capacity,
    partition::{
        JointPolicy, MegaflowPolicy, Score,
        research::{DisjointPolicy, Ties},
    },
};
use shunt_testkit::partition::{
    model::{ReplayCounts, replay, replay_adaptive},
    workload::RecordedWorkload,
};

/// Recorded traversals, by name.
const WORKLOADS: [(&str, &str); 7] = [
    ("psc-high", include_str!("data/psc-high.txt")),
    ("psc-low", include_str!("data/psc-low.txt")),
    ("otl-low", include_str!("data/otl-low.txt")),
    ("ofd-low", include_str!("data/ofd-low.txt")),
    ("ant-high", include_str!("data/ant-high.txt")),
    ("ols-high", include_str!("data/ols-high.txt")),
    ("ols-high-matched", include_str!("data/ols-high-matched.txt")),
];

fn capacity(workload: &RecordedWorkload) -> Capacity {
    let words = workload.expected("capacity").unwrap();
    Capacity {
        stages_count: words[0].parse().unwrap(),
        stage_entries_max: words[1].parse().unwrap(),
    }
}

/// Returns the capacity of one stage with the room of all stages together.
fn one_stage(capacity: Capacity) -> Capacity {
    let stage_entries_max = capacity.stage_entries_max * usize::from(capacity.stages_count);
    Capacity { stages_count: 1, stage_entries_max }
}

/// Returns the recorded counters of the second implementation of the model.
fn expected(workload: &RecordedWorkload, name: &str) -> ReplayCounts {
    let words = workload.expected(name).unwrap();
    let nibble = |digit: char| digit.to_digit(16).unwrap();
    let bits =
        words[3].chars().map(nibble).flat_map(|digit| [8, 4, 2, 1].map(|bit| digit & bit != 0));
    ReplayCounts {
        hits: bits.take(workload.packets().count()).collect(),
        entries: words[2].split(',').map(|count| count.parse().unwrap()).collect(),
        written: words[0].parse().unwrap(),
        shared: words[1].parse().unwrap(),
    }
}

fn check(name: &str, run: impl Fn(&RecordedWorkload, Capacity) -> ReplayCounts) {
    for (workload_name, text) in WORKLOADS {
        let workload = RecordedWorkload::parse(text).unwrap();
        let counts = run(&workload, capacity(&workload));
        let expected = expected(&workload, name);
        let differs =
            counts.hits.iter().zip(&expected.hits).position(|(ours, model)| ours != model);
        assert_eq!(differs, None, "{workload_name}: first packet with another result of {name}");
        assert_eq!(counts, expected, "{workload_name}, {name}");
    }
}

#[test]
fn megaflow_counts_what_the_model_counts() {
    check("megaflow", |workload, capacity| {
        replay(workload, one_stage(capacity), &mut MegaflowPolicy::default())
    });
}

#[test]
fn disjoint_counts_what_the_model_counts() {
    check("disjoint", |workload, capacity| {
        replay(workload, capacity, &mut DisjointPolicy::new(Score::Length, Ties::Canonical))
    });
}

#[test]
fn joint_counts_what_the_model_counts() {
    check("joint", |workload, capacity| replay(workload, capacity, &mut JointPolicy::default()));
}

#[test]
fn set_duelling_costs_little_where_sub_traversals_win() {
    for (name, text) in WORKLOADS {
        let workload = RecordedWorkload::parse(text).unwrap();
        let capacity = capacity(&workload);
        let sub_traversals = replay(&workload, capacity, &mut JointPolicy::default()).misses();
        // One packet in four is sampled, so that set duelling decides at least twice.
        let duel = replay_adaptive(&workload, capacity, JointPolicy::default(), 4).misses();
        let packets = workload.packets().count();
        assert!(
            100 * duel <= 100 * sub_traversals + packets,
            "{name}: {duel} beside {sub_traversals}"
        );
    }
}
