//! What five pipelines come to together: the sentences of a text that gives one number for all.
//!
//! They are of pieces and whole entries where nothing goes and no packet goes on midway, as in
//! A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, 3.6.2.1 and 3.6.3.

use shunt_pipebench::published::Figure;

use super::hits::{Outcome, why_ways};
use crate::{
    experiment::{
        Better::{Less, More, Neither},
        Row,
    },
    experiments::loaded::PIPELINES,
};

const TOGETHER: &str = "all pipelines together";
const SPACE: &str = "ways as published, for each whole entry that there is room for";

/// The ways of caching that the sentences are about.
const PIECES: &str = "gigaflow";
const WHOLE: &str = "megaflow";

const OF_PIECES: &str = "Gigaflow 4x8K";
const OF_WHOLE: &str = "Megaflow 32K";
const OF_BOTH: &str = "4x8K vs 32K";

const WHY_WHOLE: &str = "whole entries hit more here than in the published run, whose flows hardly share \
                         masked headers: pieces have less to win, and OLS wins nothing";
const WHY_ROOM: &str = "cuts are where pieces are shared most: those of OFD, PSC and OTL are few, those of OLS \
                        and ANT fill their room; the published are told of all pipelines together alone";
const WHY_SHARING: &str = "pieces that look at few fields are shared in either locality, and how many there are \
                           hangs on the rules";

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
    /// Ways, counted as the published ones are, for each entry that there is room for.
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
            space: ltm.coverage().published as f64 / room,
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
    // How much more the pieces have than the whole entries, together and where it is most. Together is
    // the ratio of the sums, which of the published figures gives the published sentences.
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
        let published = published.map(|figure| figure.value);
        row.beside_published(
            published,
            why_ways(one.pipeline, published.is_some_and(|said| one.space > said)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces that hit 90 of 100 packets beside whole entries that hit 60; of one pipeline 99.
    fn summaries() -> Vec<Summary> {
        let summary = |pipeline, locality, way, hits: f64| Summary {
            pipeline,
            locality,
            way,
            hits,
            misses: 1.0 - hits,
            entries: if way == PIECES { 60.0 } else { 80.0 },
            usage: if way == PIECES { 0.6 } else { 0.8 },
            sharing: if locality == "high" { 8.0 } else { 6.0 },
            space: 459.0,
        };
        let of = |pipeline: &'static str| {
            let best = if pipeline == "psc" { 0.99 } else { 0.9 };
            [
                summary(pipeline, "high", PIECES, best),
                summary(pipeline, "high", WHOLE, 0.6),
                summary(pipeline, "low", PIECES, 0.7),
            ]
        };
        PIPELINES.into_iter().flat_map(of).collect()
    }

    #[test]
    fn each_sentence_says_what_pieces_have_over_whole_entries() {
        let rows = rows(&summaries(), true);
        let together: Vec<f64> = rows
            .iter()
            .filter(|row| row.metric == TOGETHER)
            .map(|row| row.ours.median().round())
            .collect();
        // (4 * 0.9 + 0.99) / 3 - 1, 0.99 / 0.6 - 1, 1 - (4 * 0.1 + 0.01) / 2, 1 - 0.01 / 0.4, ..
        assert_eq!(together, [53.0, 65.0, 80.0, 98.0, 25.0, 80.0, 60.0, 25.0]);
        let published = rows.iter().filter(|row| row.published.is_some()).count();
        assert_eq!(published, together.len() + PIPELINES.len());
    }

    #[test]
    fn of_a_part_or_of_smaller_workloads_nothing_is_said_to_be_published() {
        let all = summaries();
        assert!(rows(&all[1..], true).is_empty());
        assert!(rows(&all, false).iter().all(|row| row.published.is_none() && row.why.is_empty()));
    }
}
