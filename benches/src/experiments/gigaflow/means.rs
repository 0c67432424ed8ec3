//! What five pipelines come to together: the sentences of a text that gives one number for all.
//!
//! They are of pieces and whole entries where nothing goes and no packet goes on midway, as in
//! A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, 3.6.2.1 and 3.6.3.

use shunt_pipebench::published::Figure;

use super::hits::Outcome;
use crate::{
    experiment::{
        Better::{Less, More, Neither},
        Row,
    },
    experiments::loaded::PIPELINES,
};

const TOGETHER: &str = "all pipelines together";
const SPACE: &str = "ways by pairs, for each whole entry that there is room for";

/// The ways of caching that the sentences are about.
const PIECES: &str = "gigaflow";
const WHOLE: &str = "megaflow";

const OF_PIECES: &str = "Gigaflow 4x8K";
const OF_WHOLE: &str = "Megaflow 32K";
const OF_BOTH: &str = "4x8K vs 32K";

const WHY_WHOLE: &str = "whole entries hit more here than in the published run, whose flows hardly share \
                         masked headers: pieces have less to win, and OLS wins nothing";
const WHY_ROOM: &str = "the published fill their room with as many entries as flows; here whole entries of OTL \
                        are fewer than there is room for, and pieces of all but OLS";
const WHY_SHARING: &str = "pieces that look at few fields are shared in either locality, and how many there are \
                           hangs on the rules";
const WHY_SPACE: &str = "a tag here stands for all that is hidden, cuts are where pieces are shared most, and \
                         which pieces there are hangs on the rules";

/// What the sentences need of a way of caching.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pipeline: &'static str,
    locality: &'static str,
    way: &'static str,
    /// Of all packets, and so are misses.
    hits: f64,
    misses: f64,
    entries: f64,
    /// Of the entries that there is room for.
    usage: f64,
    /// Uses of a piece for each time that it was made.
    sharing: f64,
    /// Ways by pairs of pieces for each entry that there is room for.
    space: f64,
}

impl Summary {
    pub(super) fn of(
        (pipeline, locality, way): (&'static str, &'static str, &'static str),
        outcome: &Outcome,
        entries_max: usize,
    ) -> Self {
        let (counts, ltm) = (outcome.cache.counts(), outcome.cache.ltm());
        let (entries, room) = (ltm.entries_count() as f64, entries_max.max(1) as f64);
        let packets = outcome.packets.max(1) as f64;
        Self {
            pipeline,
            locality,
            way,
            hits: outcome.hits as f64 / packets,
            misses: counts.misses as f64 / packets,
            entries,
            usage: entries / room,
            sharing: (counts.made + counts.shared) as f64 / counts.made.max(1) as f64,
            space: ltm.coverage().estimate as f64 / room,
        }
    }
}

/// The sentences, where all pipelines were measured in both ways; without what was published where
/// workloads were smaller.
pub(super) fn rows(summaries: &[Summary], is_full: bool) -> Vec<Row> {
    let of = |locality, way| {
        let is_of = |one: &&Summary| one.locality == locality && one.way == way;
        summaries.iter().filter(is_of).copied().collect::<Vec<_>>()
    };
    let (pieces, whole, low) = (of("high", PIECES), of("high", WHOLE), of("low", PIECES));
    if [&pieces, &whole, &low].iter().any(|those| those.len() != PIPELINES.len()) {
        return Vec::new();
    }
    let all = sentences(&pieces, &whole, &low).into_iter().chain(spaces(&pieces));
    let smaller = |row| if is_full { row } else { Row { published: None, why: "", ..row } };
    all.map(smaller).collect()
}

fn sentences(pieces: &[Summary], whole: &[Summary], low: &[Summary]) -> [Row; 8] {
    let sum = |those: &[Summary], what: fn(&Summary) -> f64| those.iter().map(what).sum::<f64>();
    let mean = |those, what| sum(those, what) / PIPELINES.len() as f64;
    let usage = |those| 100.0 * mean(those, |one: &Summary| one.usage);
    let sharing = |those| mean(those, |one: &Summary| one.sharing);
    // How much more the pieces have than the whole entries, together and where it is most.
    let more = |what| 100.0 * (sum(pieces, what) / sum(whole, what) - 1.0);
    let most = |sign: f64, what: fn(&Summary) -> f64| {
        let pairs = pieces.iter().zip(whole);
        let more = pairs.map(|(pieces, whole)| sign * (what(pieces) / what(whole) - 1.0));
        100.0 * more.fold(0.0, f64::max)
    };
    let said = |metric| Figure::find(metric, "-", "high", OF_BOTH);
    let taken = |configuration| Figure::find("cache_usage_mean", "-", "high", configuration);
    let drop = Figure::find("sharing_frequency_drop", "-", "low vs high", "4x8K");
    let row = |name: &str, better, percent: f64, published: Option<&Figure>, why| {
        let row = Row { better, ours: percent.into(), ..Row::new(name, TOGETHER, "%") };
        row.beside_published(published.map(|figure| figure.value), why)
    };
    [
        row(
            "hits more than of whole entries",
            More,
            more(|one| one.hits),
            said("hit_rate_gain_mean"),
            WHY_WHOLE,
        ),
        row(
            "hits more, where most",
            More,
            most(1.0, |one| one.hits),
            said("hit_rate_gain_max"),
            WHY_WHOLE,
        ),
        row(
            "misses fewer than of whole entries",
            More,
            -more(|one| one.misses),
            said("miss_reduction_mean"),
            WHY_WHOLE,
        ),
        row(
            "misses fewer, where most",
            More,
            most(-1.0, |one| one.misses),
            said("miss_reduction_max"),
            WHY_WHOLE,
        ),
        row(
            "entries fewer than whole ones",
            More,
            -more(|one| one.entries),
            said("fewer_entries"),
            WHY_ROOM,
        ),
        row("room that whole entries take", Neither, usage(whole), taken(OF_WHOLE), WHY_ROOM),
        row("room that pieces take", Less, usage(pieces), taken(OF_PIECES), WHY_ROOM),
        row(
            "uses of a piece, fewer in low locality",
            Neither,
            100.0 * (1.0 - sharing(low) / sharing(pieces)),
            drop,
            WHY_SHARING,
        ),
    ]
}

fn spaces(pieces: &[Summary]) -> impl Iterator<Item = Row> {
    pieces.iter().map(|one| {
        let published = Figure::find("rule_space_ratio", one.pipeline, "high", OF_BOTH);
        let name = format!("{} high", one.pipeline);
        let row = Row { better: More, ours: one.space.into(), ..Row::new(name, SPACE, "x") };
        row.beside_published(published.map(|figure| figure.value), WHY_SPACE)
    })
}
