//! How often packets hit: pieces in stages, beside whole entries in one table of the same size.
//!
//! Workloads are those of `shunt-pipebench`, of five pipelines, in which flows share much (`high`) and
//! little (`low`). Every packet is looked up in the real stages, every miss goes through the real
//! tables and is installed, so what is counted is what the switch would count. The published figures
//! stand beside ours where there are any: those are of rules and packets that nobody has, so they say
//! which way it goes, and no more. Nothing here is a time, so one round says it all.

use shunt_gigaflow::{
    adaptive::{Capacity, Sight},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, Shelf, Walk},
    partition::PolicyName,
};
use shunt_pipebench::published::Figure;
use shunt_pipeline::Time;

use super::loaded::{LOCALITIES, Loaded, PIPELINES, why_entries, workload};
use crate::experiment::{Better, Row, Run};

/// One way of caching.
struct Way {
    name: &'static str,
    policy: PolicyName,
    fallback: Fallback,
    eviction: Eviction,
    stages: Stages,
    resume: Resume,
    /// Which of the published figures is of the same ("GIGAFLOW: Rethinking the Fast Path", figure
    /// 3.10).
    published: Option<&'static str>,
}

/// What becomes of a packet that misses midway.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resume {
    StartOver,
    GoOn,
}

/// How the room is divided.
#[derive(Clone, Copy)]
enum Stages {
    /// One table with all of it.
    One,
    /// Four, each with a quarter.
    Four,
    /// As many as there are tables, each as large as one of four.
    Many,
}

/// Whether whole entries are better is only asked where entries go by use: else those that the pieces
/// leave room for are of whoever misses first, and who hit pieces until then finds none left.
const WAYS: &[Way] = &[
    Way {
        name: "megaflow",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: Some("Megaflow 1x32K"),
    },
    Way {
        name: "gigaflow",
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: Some("Gigaflow 4x8K"),
    },
    Way {
        name: "gigaflow-resume",
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::GoOn,
        published: None,
    },
    Way {
        name: "first-fit",
        policy: PolicyName::FirstFit,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: None,
    },
    Way {
        name: "one-to-one",
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Many,
        resume: Resume::StartOver,
        published: None,
    },
    Way {
        name: "megaflow-lru",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: None,
    },
    Way {
        name: "gigaflow-lru",
        policy: PolicyName::Joint,
        fallback: Fallback::OneIn(32),
        eviction: Eviction::LeastRecent,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: None,
    },
];

/// Entries of each of four stages.
const STAGE_ENTRIES: usize = 8000;

/// Rules in a pipeline, and the packets that meet them.
struct Bed {
    loaded: Loaded,
    packets: Vec<u32>,
}

/// What a way of caching came to.
struct Outcome {
    hits: u64,
    /// Hits among the last third of the packets.
    last_hits: u64,
    last_packets: u64,
    packets: u64,
    cache: Gigaflow,
}

/// All pipelines, or those of `--pipelines`, and all ways, or those of `--ways`.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let chosen = |option: &str, name: &str| {
        run.option(option).is_none_or(|names| names.split(',').any(|word| word == name))
    };
    let pipelines: Vec<_> =
        PIPELINES.into_iter().filter(|name| chosen("--pipelines", name)).collect();
    let ways: Vec<_> = WAYS.iter().filter(|way| chosen("--ways", way.name)).collect();
    run.begin(pipelines.len() * LOCALITIES.len() * (ways.len() + 1));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let bed = run.step(&title, |_| bed(pipeline, locality, scale));
            for way in &ways {
                let name = format!("{title} {}", way.name);
                let outcome = run.step(&name, |_| replay(&bed, way, scale));
                let published = way.published.filter(|_| scale == 1);
                let published =
                    published.and_then(|size| Figure::find("hit_rate", pipeline, locality, size));
                rows.extend(rows_of(&name, &outcome, published.map(|figure| figure.value)));
            }
        }
    }
    // A table for each metric, in the order of the pipelines.
    let metrics: Vec<&str> = METRICS.to_vec();
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

const METRICS: [&str; 8] = [
    "packets that hit",
    "packets of the last third that hit",
    "packets that missed",
    "entries in use",
    "pieces that were entries already",
    "ways through the entries",
    "tags in use",
    "lookups in tables that misses made",
];

/// The last word of a name, the unit, which end is good, and the value.
type Measured = (&'static str, &'static str, Better, f64);

fn rows_of(name: &str, outcome: &Outcome, published: Option<f64>) -> Vec<Row> {
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let counts = outcome.cache.counts();
    let ltm = outcome.cache.ltm();
    let figures = [
        ("hit", "%", Better::More, percent(outcome.hits, outcome.packets)),
        ("late hit", "%", Better::More, percent(outcome.last_hits, outcome.last_packets)),
        ("misses", "count", Better::Less, counts.misses as f64),
        ("entries", "count", Better::Less, ltm.entries_count() as f64),
        ("shared", "count", Better::More, counts.shared as f64),
        ("coverage", "count", Better::More, ltm.coverage().chains as f64),
        ("tags", "count", Better::Less, ltm.tags().len() as f64),
        ("lookups", "count", Better::Less, counts.visits as f64),
    ];
    let row = |(metric, (word, unit, better, value)): (&'static str, Measured)| Row {
        better,
        ours: value.into(),
        published: published.filter(|_| word == "hit"),
        why: if word == "hit" { why(name, published, value) } else { "" },
        ..Row::new(format!("{name} {word}"), metric, unit)
    };
    METRICS.into_iter().zip(figures).map(row).collect()
}

/// Why hits differ from the published by more than a tenth.
fn why(name: &str, published: Option<f64>, hits: f64) -> &'static str {
    let Some(published) = published else { return "" };
    match hits / published {
        0.9..=1.1 => "",
        _ if name.ends_with("megaflow") => why_entries(&name.replacen(' ', ":", 1)),
        ratio if ratio > 1.1 => {
            "the published falls to the hits of whole entries, or below, where flows share little; \
             here a partition counts which of its pieces are there already"
        }
        _ => {
            "through thirty tables most bits of a piece prove that no rule of higher priority \
             matches, and they differ from flow to flow; which rules the published had is not known"
        }
    }
}

fn bed(pipeline: &str, locality: &str, scale: usize) -> Bed {
    let (flows, packets, rules) = (100_000 / scale, 300_000 / scale, 10_000 / scale);
    let name = format!("{pipeline}:{locality}:{flows}:packets={packets}:rules={rules}");
    let workload = workload(&name);
    Bed {
        loaded: Loaded::new(&workload),
        packets: workload.packets().map(|packet| packet.flow).collect(),
    }
}

fn replay(bed: &Bed, way: &Way, scale: usize) -> Outcome {
    let entries = STAGE_ENTRIES / scale;
    let (stages_count, stage_entries_max) = match way.stages {
        Stages::One => (1, 4 * entries),
        Stages::Four => (4, entries),
        Stages::Many => (32, entries),
    };
    let mut cache = Gigaflow::new(Config {
        capacity: Capacity { stages_count, stage_entries_max },
        policy: way.policy,
        fallback: way.fallback,
        eviction: way.eviction,
        tag_bits: 16,
        seed: 1,
    });
    let (mut shelf, mut walk) = (Shelf::default(), Walk::default());
    let (pipeline, version) = (&*bed.loaded.pipeline, bed.loaded.pipeline.version());
    let (mut hits, mut last_hits) = (0, 0);
    let last = bed.packets.len() - bed.packets.len() / 3;
    for (number, flow) in bed.packets.iter().enumerate() {
        let key = &bed.loaded.keys[*flow as usize];
        let now = Time::from_nanoseconds(number as u64);
        let (is_drawn, is_hit) = (cache.draws(), cache.find(&shelf, key, &mut walk));
        let miss = Miss { pipeline, key, start: None, version, now };
        if is_hit {
            hits += 1;
            last_hits += u64::from(number >= last);
            shelf.hit(&walk, 64, now);
            if is_drawn {
                cache.witness(miss);
            }
        } else {
            let resumes = way.resume == Resume::GoOn;
            let rest = resumes.then(|| cache.go_on(&mut shelf, miss, &walk)).flatten();
            if rest.is_none() {
                let sight = if is_drawn { Sight::Sampled } else { Sight::Missed };
                cache.miss(&mut shelf, miss, sight);
            }
        }
        shelf.clear_notes();
    }
    let packets = bed.packets.len() as u64;
    Outcome { hits, last_hits, last_packets: packets - last as u64, packets, cache }
}
