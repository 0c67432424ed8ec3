//! How often packets hit: pieces in stages, beside whole entries in one table of the same size.
//!
//! Workloads are those of `shunt-pipebench`, of five pipelines, in which flows share much (`high`) and
//! little (`low`). Every packet is looked up in the real stages, every miss goes through the real
//! tables and is installed, so what is counted is what the switch would count. The published figures
//! stand beside ours where there are any: those are of rules and packets that nobody has, so they say
//! which way it goes, and no more. Nothing here is a time, so one round says it all.

use shunt_flow::{FlowKey, PortNo, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::{Capacity, Sight},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, Walk},
    partition::PolicyName,
};
use shunt_pipebench::{Progress, name::Name, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, Pipeline, PortConfig, PortInfo,
    PortKind, PortVlans, Time, text::parse_rule,
};

use crate::experiment::{Better, Row, Run};

/// Pipelines, each with what was published of its hits: high locality, low, as whole entries and in
/// pieces ("GIGAFLOW: Rethinking the Fast Path", figure 3.10).
const PIPELINES: &[(&str, [[f64; 2]; 2])] = &[
    ("psc", [[65.4, 94.4], [65.6, 75.9]]),
    ("ofd", [[64.0, 96.6], [65.7, 71.0]]),
    ("ols", [[65.9, 95.4], [67.5, 40.0]]),
    ("ant", [[73.1, 76.4], [67.3, 55.8]]),
    ("otl", [[99.3, 99.8], [99.4, 99.8]]),
];

const LOCALITIES: [&str; 2] = ["high", "low"];

/// One way of caching.
struct Way {
    name: &'static str,
    policy: PolicyName,
    fallback: Fallback,
    eviction: Eviction,
    stages: Stages,
    resume: Resume,
    /// Which of the published figures is of the same.
    published: Option<usize>,
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

const WAYS: &[Way] = &[
    Way {
        name: "megaflow",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: Some(0),
    },
    Way {
        name: "gigaflow",
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: Some(1),
    },
    Way {
        name: "gigaflow-adaptive",
        policy: PolicyName::Joint,
        fallback: Fallback::OneIn(32),
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: None,
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

const BRIDGE: BridgeId = BridgeId::new(1);
/// Ports of the bridge: more than any workload names.
const PORTS: u32 = 1024;
/// Entries of each of four stages.
const STAGE_ENTRIES: usize = 8000;

/// Rules in a pipeline, and the packets that meet them.
struct Bed {
    pipeline: Pipeline,
    flows: Vec<FlowKey>,
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
        PIPELINES.iter().filter(|(name, _)| chosen("--pipelines", name)).collect();
    let ways: Vec<_> = WAYS.iter().filter(|way| chosen("--ways", way.name)).collect();
    run.begin(pipelines.len() * LOCALITIES.len() * (ways.len() + 1));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for (pipeline, published) in pipelines {
        for (locality, published) in LOCALITIES.into_iter().zip(published) {
            let title = format!("{pipeline} {locality}");
            let bed = run.step(&title, |_| bed(pipeline, locality, scale));
            for way in &ways {
                let name = format!("{title} {}", way.name);
                let outcome = run.step(&name, |_| replay(&bed, way, scale));
                let published = way.published.filter(|_| scale == 1).map(|at| published[at]);
                rows.extend(rows_of(&name, &outcome, published));
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
type Figure = (&'static str, &'static str, Better, f64);

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
        ("coverage", "count", Better::More, ltm.coverage() as f64),
        ("tags", "count", Better::Less, ltm.tags().len() as f64),
        ("lookups", "count", Better::Less, counts.visits as f64),
    ];
    let row = |(metric, (word, unit, better, value)): (&'static str, Figure)| Row {
        better,
        ours: value.into(),
        published: published.filter(|_| word == "hit"),
        why: if word == "hit" { "other rules and packets" } else { "" },
        ..Row::new(format!("{name} {word}"), metric, unit)
    };
    METRICS.into_iter().zip(figures).map(row).collect()
}

fn bed(pipeline: &str, locality: &str, scale: usize) -> Bed {
    let (flows, packets, rules) = (100_000 / scale, 300_000 / scale, 10_000 / scale);
    let name = format!("{pipeline}:{locality}:{flows}:packets={packets}:rules={rules}");
    let name: Name = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    let workload =
        Workload::of(&name, &Progress::hidden()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let key = |flow: &shunt_pipebench::traffic::Flow| {
        let mut key = flow.key();
        key.set_bridge(BRIDGE.number().into());
        key
    };
    Bed {
        pipeline: tables(&workload),
        flows: workload.flows().iter().map(key).collect(),
        packets: workload.packets().map(|packet| packet.flow).collect(),
    }
}

fn tables(workload: &Workload) -> Pipeline {
    let pipeline = Pipeline::new(1);
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    let port = |number| PortInfo {
        number: PortNo::new(number),
        name: format!("p{number}"),
        kind: PortKind::Datapath(DatapathPort::new(number)),
        config: PortConfig::default(),
        link_up: true,
        mac: [2, 0, 0, 0, 0, 1],
        vlans: PortVlans::default(),
    };
    let set = pipeline.set_ports(BRIDGE, (1..=PORTS).map(port).collect());
    set.unwrap_or_else(|error| panic!("{error}"));
    let rule = |text: &str| {
        parse_rule(FlowModCommand::Add, text, &NoPortNames)
            .unwrap_or_else(|error| panic!("{text}: {error:?}"))
    };
    let rules: Vec<_> = workload.base_rules().map(|line| rule(&line.text)).collect();
    let applied = pipeline.apply(BRIDGE, &rules, Time::ZERO);
    applied.unwrap_or_else(|error| panic!("{error:?}"));
    pipeline
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
    let (mut walk, version) = (Walk::default(), bed.pipeline.version());
    let (mut hits, mut last_hits) = (0, 0);
    let last = bed.packets.len() - bed.packets.len() / 3;
    for (number, flow) in bed.packets.iter().enumerate() {
        let key = &bed.flows[*flow as usize];
        let now = Time::from_nanoseconds(number as u64);
        let (is_drawn, is_hit) = (cache.draws(), cache.find(key, &mut walk));
        let miss = Miss { key, start: None, version, now };
        if is_hit {
            hits += 1;
            last_hits += u64::from(number >= last);
            cache.hit(&walk, 64, now);
            if is_drawn {
                cache.witness(&bed.pipeline, miss);
            }
        } else {
            let resumes = way.resume == Resume::GoOn;
            let rest = resumes.then(|| cache.go_on(&bed.pipeline, miss, &walk)).flatten();
            if rest.is_none() {
                let sight = if is_drawn { Sight::Sampled } else { Sight::Missed };
                cache.miss(&bed.pipeline, miss, sight);
            }
        }
        cache.take_changes();
    }
    let packets = bed.packets.len() as u64;
    Outcome { hits, last_hits, last_packets: packets - last as u64, packets, cache }
}
