//! Where to cut: the policies side by side, beside whole entries in as much room.

use shunt_gigaflow::partition::PolicyName;
use shunt_pipebench::published::Figure;

use super::replay::{Bed, Replay, Resume, STAGE_ENTRIES, config};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::{PIPELINES, WHY_OLS},
};

/// A policy, its stages, and what the published figure calls it.
struct Way {
    name: &'static str,
    policy: PolicyName,
    stages: u8,
    published: &'static str,
}

const WAYS: &[Way] = &[
    Way {
        name: "random",
        policy: PolicyName::Random,
        stages: 4,
        published: "4x8K, random partition",
    },
    Way {
        name: "disjoint",
        policy: PolicyName::Disjoint,
        stages: 4,
        published: "4x8K, disjoint (DP)",
    },
    Way { name: "joint", policy: PolicyName::Joint, stages: 4, published: "" },
    Way { name: "profiled", policy: PolicyName::Profiled, stages: 4, published: "" },
    Way { name: "first-fit", policy: PolicyName::FirstFit, stages: 4, published: "" },
    // As many stages as any pipeline has tables.
    Way {
        name: "one-to-one",
        policy: PolicyName::OneToOne,
        stages: 32,
        published: "4x8K, 1-1 mapping",
    },
];

const FEWER: &str = "misses fewer than with whole entries";
const USED: &str = "entries in use, of those of whole entries";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * (WAYS.len() + 2));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        let bed = run.step(pipeline, |_| Bed::published(pipeline, "high", scale));
        let entries = STAGE_ENTRIES / scale;
        let mut replay = |title: &str, policy, stages, entries| {
            run.step(&format!("{pipeline} {title}"), |_| {
                let config = config(stages, entries, policy);
                let mut replay = Replay::new(&bed, config, Resume::StartOver);
                replay.send(0..bed.packets.len());
                let used = replay.cache.ltm().entries_count() as f64;
                (replay.cache.counts().misses as f64, used)
            })
        };
        let whole = replay("whole entries", PolicyName::Megaflow, 1, 4 * entries);
        for way in WAYS {
            let (misses, used) = replay(way.name, way.policy, way.stages, entries);
            let published = Figure::find("miss_reduction", pipeline, "-", way.published);
            let published = published.filter(|_| scale == 1).map(|figure| figure.value);
            let fewer = 100.0 * (1.0 - misses / whole.0);
            let name = format!("{pipeline} high {}", way.name);
            let row =
                Row { better: Better::More, ours: fewer.into(), ..Row::new(&name, FEWER, "%") };
            rows.push(row.beside_published(published, why(way.name)));
            rows.push(Row {
                better: Better::Neither,
                ours: (100.0 * used / whole.1).into(),
                ..Row::new(&name, USED, "%")
            });
        }
    }
    rows.sort_by_key(|row: &Row| row.metric != FEWER);
    rows
}

/// Why misses differ from the published by more than a tenth.
fn why(policy: &str) -> &'static str {
    if policy == "random" {
        "random cuts are drawn for each way, and meet again in ways that begin alike as the seed is \
         one; how the published ones were drawn is not said"
    } else {
        WHY_OLS
    }
}
