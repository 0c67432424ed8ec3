//! How often packets hit: pieces in stages, beside whole entries in one table of the same size.
//!
//! Workloads are those of `shunt-pipebench`, of five pipelines, in which flows share much (`high`) and
//! little (`low`).

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
    replay::{Bed, Replay, Resume, STAGE_ENTRIES, config},
};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::{LOCALITIES, PIPELINES, WHY_OLS, why_entries},
};

/// One way of caching.
pub(super) struct Way {
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
        name: "megaflow-second-use",
        policy: PolicyName::Megaflow,
        fallback: Fallback::Off,
        eviction: Eviction::SecondUse,
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
    // As the switch does where nobody says otherwise.
    Way {
        name: "gigaflow-switch",
        policy: PolicyName::Joint,
        fallback: Fallback::OneIn(32),
        eviction: Eviction::SecondUse,
        stages: Stages::Four,
        resume: Resume::GoOn,
        published: None,
    },
];

impl Way {
    /// The one of this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        WAYS.iter().find(|way| way.name == name)
    }

    /// Its stages, where four have so many entries each.
    pub(super) const fn capacity(&self, entries: usize) -> Capacity {
        let (stages_count, stage_entries_max) = match self.stages {
            Stages::One => (1, 4 * entries),
            Stages::Four => (4, entries),
            Stages::Many => (32, entries),
        };
        Capacity { stages_count, stage_entries_max }
    }

    /// A cache of this kind that has seen no packet.
    pub(super) fn replay<'a>(&self, bed: &'a Bed, capacity: Capacity) -> Replay<'a> {
        let config = config(capacity.stages_count, capacity.stage_entries_max, self.policy);
        let config = Config { fallback: self.fallback, eviction: self.eviction, ..config };
        Replay::new(bed, config, self.resume)
    }
}

/// More entries of a stage than there are flows.
const ROOM_FOR_ALL: usize = 1 << 20;

/// What a way of caching came to.
pub(super) struct Outcome {
    pub(super) hits: u64,
    /// Hits among the last third of the packets.
    last_hits: u64,
    last_packets: u64,
    pub(super) packets: u64,
    /// Packets that missed in software behind it as well.
    upcalls: u64,
    pub(super) cache: Gigaflow,
}

/// What `--pipelines` chooses from.
pub(crate) fn pipelines() -> Vec<&'static str> {
    PIPELINES.to_vec()
}

/// What `--ways` chooses from.
pub(crate) fn ways() -> Vec<&'static str> {
    WAYS.iter().map(|way| way.name).collect()
}

/// All pipelines, or those of `--pipelines`, and all ways, or those of `--ways`.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines: Vec<_> =
        PIPELINES.into_iter().filter(|name| run.chooses("--pipelines", name)).collect();
    let ways: Vec<_> = WAYS.iter().filter(|way| run.chooses("--ways", way.name)).collect();
    run.begin(pipelines.len() * LOCALITIES.len() * (ways.len() + 1));
    let scale = run.either(1, 10);
    let (mut rows, mut summaries) = (Vec::new(), Vec::new());
    for pipeline in pipelines {
        for locality in LOCALITIES {
            let title = format!("{pipeline} {locality}");
            let bed = run.step(&title, |_| Bed::published(pipeline, locality, scale));
            for way in &ways {
                let name = format!("{title} {}", way.name);
                let outcome = run.step(&name, |_| replay(&bed, way, scale));
                let entries_max = 4 * STAGE_ENTRIES / scale;
                let of = (pipeline, locality, way.name);
                summaries.push(Summary::of(of, &outcome, entries_max));
                let size = way.published.filter(|_| scale == 1);
                let published =
                    |metric: &str| Some(Figure::find(metric, pipeline, locality, size?)?.value);
                rows.extend(rows_of(&name, &outcome, published));
            }
        }
    }
    // A table for each metric, in the order of the pipelines.
    rows.sort_by_key(|row: &Row| METRICS.iter().position(|metric| *metric == row.metric));
    rows.extend(means::rows(&summaries, scale == 1));
    rows
}

const METRICS: [&str; 11] = [
    "packets that hit",
    "packets of the last third that hit",
    "packets that missed",
    "packets that missed behind it too, in as many stages with room for all",
    "entries in use",
    "pieces that were entries already",
    "ways through the entries",
    "ways by pairs of neighbouring pieces",
    "ways as published: of each partition the best two neighbours",
    "tags in use",
    "lookups in tables that misses made",
];

/// As many ways as the count of them can hold: how many more there are is not known.
const TOO_MANY: f64 = u128::MAX as f64;

/// The last word of a name, the unit, which end is good, and the value.
type Measured = (&'static str, &'static str, Better, f64);

/// What was published of a figure, by the last word of our name for it.
fn metric_of(word: &str) -> Option<&'static str> {
    match word {
        "hit" => Some("hit_rate"),
        "misses" => Some("cache_misses"),
        "published" => Some("rule_space"),
        _ => None,
    }
}

fn rows_of(name: &str, outcome: &Outcome, published: impl Fn(&str) -> Option<f64>) -> Vec<Row> {
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
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
        let row =
            Row { better, ours: value.into(), ..Row::new(format!("{name} {word}"), metric, unit) };
        row.beside_published(published, why(word, name, is_more))
    };
    let is_known = |row: &Row| row.ours.median() < TOO_MANY;
    METRICS.into_iter().zip(figures).map(row).filter(is_known).collect()
}

/// Why a figure is more, or less, than the published one.
fn why(word: &str, name: &str, is_more: bool) -> &'static str {
    let is_whole = name.ends_with("megaflow");
    match (word, is_more) {
        ("published", is_more) => why_ways(name, is_more),
        ("hit" | "misses", is_more) if is_whole => {
            why_entries(&name.replacen(' ', ":", 1), is_more == (word == "misses"))
        }
        ("hit", false) | ("misses", true) if name.starts_with("ols") => WHY_OLS,
        ("hit", true) => {
            "the published partition scores pieces by their length alone; here it counts which of them are \
             there already, so that more flows share them"
        }
        _ => {
            "here it is what hits leave of as many packets as the published misses of whole entries are \
             of; the published misses of pieces are not of one number of packets"
        }
    }
}

/// Why there are more ways through the entries than published, or fewer.
pub(super) fn why_ways(name: &str, is_more: bool) -> &'static str {
    if is_more {
        "cuts are where pieces are shared most, so that many meet at few tags; and which pieces there \
         are hangs on the rules"
    } else if name.starts_with("ols") {
        "a tag here stands for all that is hidden and not for a table alone, so that fewer pieces \
         follow on each other; and which pieces there are hangs on the rules"
    } else {
        "ways multiply with the entries of each stage, and fewer of these are in use here: the published \
         caches are filled to 76 % on average; and which pieces there are hangs on the rules"
    }
}

/// Sends all packets through a cache, and those that miss on to one of the same kind that has room for
/// all: what a NIC misses is not what the switch behind it translates.
fn replay(bed: &Bed, way: &Way, scale: usize) -> Outcome {
    let capacity = way.capacity(STAGE_ENTRIES / scale);
    let mut replay = way.replay(bed, capacity);
    let mut behind = way.replay(bed, Capacity { stage_entries_max: ROOM_FOR_ALL, ..capacity });
    let packets = bed.packets.len();
    let last = packets - packets / 3;
    let mut upcalls = 0;
    let mut hits = |numbers: Range<usize>| {
        let is_hit = |number: &usize| {
            let is_hit = replay.one(*number);
            upcalls += u64::from(!is_hit && !behind.one(*number));
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
