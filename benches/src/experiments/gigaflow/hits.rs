//! Hit rates: LTM entries in stages, compared with megaflows in one table of the same size.
//!
//! The workloads come from `shunt-pipebench`: five pipelines, each with flows that share many
//! sub-traversals (`high`) or few (`low`).

use std::ops::Range;

use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config, Fallback, Gigaflow},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipebench::published::Figure;

use super::{
    means::{self, Summary},
    replay::{Replay, Resume, STAGE_ENTRIES, Testbed, config},
};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::{LOCALITIES, PIPELINES, WHY_OLS, why_entries},
};

/// One cache configuration.
pub(super) struct CacheCase {
    name: &'static str,
    policy: PolicyName,
    fallback: Fallback,
    eviction: Eviction,
    stages: Stages,
    resume: Resume,
    /// Name of the same configuration in the published figure.
    ///
    /// The figure is 3.10 of "GIGAFLOW: Rethinking the Fast Path".
    published: Option<&'static str>,
}

/// Division of the capacity into stages.
#[derive(Clone, Copy)]
enum Stages {
    /// One table with all entries.
    One,
    /// Four stages with a quarter of the entries each.
    Four,
    /// One stage for each table, each as large as one of four stages.
    Many,
}

/// All measured configurations.
///
/// Set duelling needs eviction by use. Otherwise the first packets that miss fill the space that
/// LTM entries leave free, and later packets find no space.
const CACHE_CASES: &[CacheCase] = &[
    CacheCase {
        name: "megaflow",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: Some("Megaflow 1x32K"),
    },
    CacheCase {
        name: "gigaflow",
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: Some("Gigaflow 4x8K"),
    },
    CacheCase {
        name: "gigaflow-resume",
        policy: PolicyName::Joint,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::GoOn,
        published: None,
    },
    CacheCase {
        name: "first-fit",
        policy: PolicyName::FirstFit,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: None,
    },
    CacheCase {
        name: "one-to-one",
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        stages: Stages::Many,
        resume: Resume::StartOver,
        published: None,
    },
    CacheCase {
        name: "megaflow-lru",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: None,
    },
    CacheCase {
        name: "megaflow-second-use",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::SecondUse,
        stages: Stages::One,
        resume: Resume::StartOver,
        published: None,
    },
    CacheCase {
        name: "gigaflow-lru",
        policy: PolicyName::Joint,
        fallback: Fallback::OneIn(32),
        eviction: Eviction::LeastRecent,
        stages: Stages::Four,
        resume: Resume::StartOver,
        published: None,
    },
    // The default configuration of the switch.
    CacheCase {
        name: "gigaflow-switch",
        policy: PolicyName::Joint,
        fallback: Fallback::OneIn(32),
        eviction: Eviction::SecondUse,
        stages: Stages::Four,
        resume: Resume::GoOn,
        published: None,
    },
];

impl CacheCase {
    /// Returns the configuration with this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        CACHE_CASES.iter().find(|cache_case| cache_case.name == name)
    }

    /// Returns the stages of a cache, for `entries` entries in each of four stages.
    pub(super) const fn capacity(&self, entries: usize) -> Capacity {
        let (stages_count, stage_entries_max) = match self.stages {
            Stages::One => (1, 4 * entries),
            Stages::Four => (4, entries),
            Stages::Many => (32, entries),
        };
        Capacity { stages_count, stage_entries_max }
    }

    /// Returns an empty cache of this configuration.
    pub(super) fn replay<'a>(&self, testbed: &'a Testbed, capacity: Capacity) -> Replay<'a> {
        let config = config(capacity.stages_count, capacity.stage_entries_max, self.policy);
        let config = Config { fallback: self.fallback, eviction: self.eviction, ..config };
        Replay::new(testbed, config, self.resume)
    }
}

/// Entries of a stage without a limit: more than the number of flows.
const ROOM_FOR_ALL: usize = 1 << 20;

/// Results of one configuration.
pub(super) struct Outcome {
    pub(super) hits: u64,
    /// Hits among the last third of the packets.
    last_hits: u64,
    last_packets: u64,
    pub(super) packets: u64,
    /// Packets that also missed the software cache behind this cache.
    upcalls: u64,
    pub(super) cache: Gigaflow,
}

/// Values of `--pipelines`.
pub(crate) fn pipelines() -> Vec<&'static str> {
    PIPELINES.to_vec()
}

/// Values of `--caches`.
pub(crate) fn cache_cases() -> Vec<&'static str> {
    CACHE_CASES.iter().map(|cache_case| cache_case.name).collect()
}

/// Runs the pipelines of `--pipelines` and the configurations of `--caches`.
///
/// The default is all pipelines and all configurations.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines: Vec<_> =
        PIPELINES.into_iter().filter(|name| run.chooses("--pipelines", name)).collect();
    let cache_cases: Vec<_> =
        CACHE_CASES.iter().filter(|cache_case| run.chooses("--caches", cache_case.name)).collect();
    run.begin(pipelines.len() * LOCALITIES.len() * (cache_cases.len() + 1));
    let scale = run.either(1, 10);
    let (mut rows, mut summaries) = (Vec::new(), Vec::new());
    for pipeline in pipelines {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let testbed = run.step(&title, |_| Testbed::published(pipeline, locality, scale));
            for cache_case in &cache_cases {
                let name = format!("{title} {}", cache_case.name);
                let outcome = run.step(&name, |_| replay(&testbed, cache_case, scale));
                let entries_max = 4 * STAGE_ENTRIES / scale;
                summaries.push(Summary::of(
                    pipeline,
                    locality,
                    cache_case.name,
                    &outcome,
                    entries_max,
                ));
                let size = cache_case.published.filter(|_| scale == 1);
                let published =
                    |metric: &str| Some(Figure::find(metric, pipeline, locality, size?)?.value);
                rows.extend(rows_of(&name, &outcome, published));
            }
        }
    }
    // One table per metric, in the order of the pipelines.
    rows.sort_by_key(|row: &Row| METRICS.iter().position(|metric| *metric == row.metric));
    rows.extend(means::rows(&summaries, scale == 1));
    rows
}

const METRICS: [&str; 11] = [
    "hit rate",
    "hit rate in the last third",
    "misses",
    "misses that a second cache of unlimited size missed, too",
    "entries in use",
    "sub-traversals that were already LTM entries",
    "rule-space coverage, exact",
    "rule-space coverage, pairwise",
    "rule-space coverage, published formula",
    "tags in use",
    "table lookups in translations of misses",
];

/// Largest coverage that the counter can hold; greater values are unknown.
const TOO_MANY: f64 = u128::MAX as f64;

/// Key of the metric, unit, better direction and value.
type Measured = (&'static str, &'static str, Better, f64);

/// Returns the published metric for one of our keys.
fn metric_of(word: &str) -> Option<&'static str> {
    match word {
        "hit" => Some("hit_rate"),
        "misses" => Some("cache_misses"),
        "published" => Some("rule_space"),
        _ => None,
    }
}

fn rows_of(name: &str, outcome: &Outcome, published: impl Fn(&str) -> Option<f64>) -> Vec<Row> {
    let percent = |part: u64, total: u64| 100.0 * part as f64 / total.max(1) as f64;
    let counts = outcome.cache.counts();
    let ltm = outcome.cache.ltm();
    let coverage = ltm.coverage();
    let figures = [
        ("hit", "%", Better::More, percent(outcome.hits, outcome.packets)),
        ("late hit", "%", Better::Neither, percent(outcome.last_hits, outcome.last_packets)),
        ("misses", "count", Better::Neither, counts.misses as f64),
        ("upcalls", "count", Better::Neither, outcome.upcalls as f64),
        ("entries", "count", Better::Neither, ltm.entries_count() as f64),
        ("shared", "count", Better::Neither, counts.shared as f64),
        ("coverage", "count", Better::More, coverage.chains as f64),
        ("pairs", "count", Better::Neither, coverage.pairs as f64),
        ("published", "count", Better::Neither, coverage.published as f64),
        ("tags", "count", Better::Neither, ltm.tags().len() as f64),
        ("lookups", "count", Better::Neither, counts.visits as f64),
    ];
    let row = |(metric, (word, unit, better, value)): (&'static str, Measured)| {
        let published = metric_of(word).and_then(&published);
        let is_more = published.is_some_and(|published| value > published);
        let row = Row { better, ours: value.into(), ..Row::new(name, metric, unit) };
        row.beside_published(published, reason(word, name, is_more))
    };
    let is_known = |row: &Row| row.ours.median() < TOO_MANY;
    METRICS.into_iter().zip(figures).map(row).filter(is_known).collect()
}

/// Returns the reason why a value is above or below the published value.
fn reason(word: &str, name: &str, is_more: bool) -> &'static str {
    let is_megaflow = name.ends_with("megaflow");
    match (word, is_more) {
        ("published", is_more) => why_coverage(name, is_more),
        ("hit" | "misses", is_more) if is_megaflow => {
            why_entries(&name.replacen(' ', ":", 1), is_more == (word == "misses"))
        }
        ("hit", false) | ("misses", true) if name.starts_with("ols") => WHY_OLS,
        ("hit", true) => {
            "the published partition scores sub-traversals by length alone; ours also counts how \
             many of them are entries already, so more flows share them"
        }
        _ => {
            "computed from the hit rate here, for the number of packets of the published megaflow \
             misses; the published misses with LTM entries are of other numbers of packets"
        }
    }
}

/// Returns the reason why coverage is above or below the published coverage.
pub(super) fn why_coverage(name: &str, is_more: bool) -> &'static str {
    if is_more {
        "partition points are where sub-traversals are shared most, so few tags connect many \
         entries; and which entries exist depends on the rules"
    } else if name.starts_with("ols") {
        "a tag here identifies all hidden state, not only a table, so fewer entries follow each \
         other; and which entries exist depends on the rules"
    } else {
        "coverage grows with the product of the entries per stage, and fewer are in use here. \
         The published caches are 76 % full on average. The entries also depend on the rules"
    }
}

/// Sends all packets through a cache, and the misses to a second, unlimited cache.
///
/// The second cache models the switch behind a NIC, which does not translate every miss of the NIC.
fn replay(testbed: &Testbed, cache_case: &CacheCase, scale: usize) -> Outcome {
    let capacity = cache_case.capacity(STAGE_ENTRIES / scale);
    let mut replay = cache_case.replay(testbed, capacity);
    let mut behind =
        cache_case.replay(testbed, Capacity { stage_entries_max: ROOM_FOR_ALL, ..capacity });
    let packets = testbed.packets.len();
    let last = packets - packets / 3;
    let mut upcalls = 0;
    let mut hits = |numbers: Range<usize>| {
        let is_hit = |number: &usize| {
            let is_hit = replay.send_one(*number);
            upcalls += u64::from(!is_hit && !behind.send_one(*number));
            is_hit
        };
        numbers.filter(is_hit).count() as u64
    };
    let (first_hits, last_hits) = (hits(0..last), hits(last..packets));
    Outcome {
        hits: first_hits + last_hits,
        last_hits,
        last_packets: (packets - last) as u64,
        packets: packets as u64,
        upcalls,
        cache: replay.cache,
    }
}
