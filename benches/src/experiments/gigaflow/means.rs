//! Means over five pipelines, for published statements that give one number for all pipelines.
//!
//! The statements compare LTM entries with megaflows without eviction, and without packets that
//! continue after a partial hit. Source: A. Zulfiqar, *Rearchitecting the End Host Network for the
//! Terabit Per Second Era*, 3.6.2.1 and 3.6.3.

use shunt_pipebench::published::Figure;

use super::hits::{Outcome, why_coverage};
use crate::{
    experiment::{
        Better::{Less, More, Neither},
        Row,
    },
    experiments::loaded::PIPELINES,
};

const TOGETHER: &str = "all pipelines together";
const SPACE: &str = "rule-space coverage, published formula, per megaflow of capacity";

/// Name of the cache of LTM entries in the rows.
const GIGAFLOW: &str = "gigaflow";
/// Name of the megaflow cache in the rows.
const MEGAFLOWS: &str = "megaflow";

/// Name of the cache of LTM entries in the published figures.
const OF_GIGAFLOW: &str = "Gigaflow 4x8K";
/// Name of the megaflow cache in the published figures.
const OF_MEGAFLOW: &str = "Megaflow 32K";
/// Name of the ratio of both caches in the published figures.
const OF_BOTH: &str = "4x8K vs 32K";

const WHY_MEGAFLOWS: &str = "megaflows hit more often here than in the published run, where flows \
                         hardly share masked headers; LTM entries have less to gain, and nothing \
                         for OLS";
const WHY_ROOM: &str = "partition points are where sub-traversals are shared most: few entries \
                        for OFD, PSC and OTL, full stages for OLS and ANT; the published value \
                        covers all pipelines together";
const WHY_SHARING: &str = "sub-traversals that read few fields are shared in either locality; \
                           how many there are depends on the rules";

/// Values of one configuration and pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pipeline: &'static str,
    locality: &'static str,
    cache_case: &'static str,
    /// Hit rate over all packets; the other packets are misses.
    hits: f64,
    misses: f64,
    entries: f64,
    /// Share of the capacity in use.
    usage: f64,
    /// Average number of uses per LTM entry.
    sharing: f64,
    /// Rule-space coverage by the published formula, per entry of capacity.
    space: f64,
}

impl Summary {
    pub(super) fn of(
        pipeline: &'static str,
        locality: &'static str,
        cache_case: &'static str,
        outcome: &Outcome,
        entries_max: usize,
    ) -> Self {
        let (counts, ltm) = (outcome.cache.counts(), outcome.cache.ltm());
        let (entries, room) = (ltm.entries_count() as f64, entries_max.max(1) as f64);
        let packets = outcome.packets.max(1) as f64;
        Self {
            pipeline,
            locality,
            cache_case,
            hits: outcome.hits as f64 / packets,
            misses: counts.misses as f64 / packets,
            entries,
            usage: entries / room,
            sharing: (counts.made + counts.shared) as f64 / counts.made.max(1) as f64,
            space: ltm.coverage().published as f64 / room,
        }
    }
}

/// Returns the means if all pipelines ran with both configurations.
///
/// Smaller workloads are not compared with published values.
pub(super) fn rows(summaries: &[Summary], is_full: bool) -> Vec<Row> {
    let of = |locality, cache_case| {
        let is_of = |one: &&Summary| one.locality == locality && one.cache_case == cache_case;
        summaries.iter().filter(is_of).copied().collect::<Vec<_>>()
    };
    let (gigaflow, megaflow, low) =
        (of("high", GIGAFLOW), of("high", MEGAFLOWS), of("low", GIGAFLOW));
    if [&gigaflow, &megaflow, &low].iter().any(|those| those.len() != PIPELINES.len()) {
        return Vec::new();
    }
    let all =
        rows_of_sentences(&gigaflow, &megaflow, &low).into_iter().chain(coverage_rows(&gigaflow));
    let smaller = |row| if is_full { row } else { Row { published: None, reason: "", ..row } };
    all.map(smaller).collect()
}

fn rows_of_sentences(gigaflow: &[Summary], megaflow: &[Summary], low: &[Summary]) -> [Row; 8] {
    let sum = |those: &[Summary], what: fn(&Summary) -> f64| those.iter().map(what).sum::<f64>();
    let mean = |those, what| sum(those, what) / PIPELINES.len() as f64;
    let usage = |those| 100.0 * mean(those, |one: &Summary| one.usage);
    let sharing = |those| mean(those, |one: &Summary| one.sharing);
    // Advantage of LTM entries over megaflows: for the sums of all pipelines, and for the best
    // pipeline. The ratio of sums reproduces the published statements from the published values.
    let more = |what| 100.0 * (sum(gigaflow, what) / sum(megaflow, what) - 1.0);
    let most = |sign: f64, what: fn(&Summary) -> f64| {
        let pairs = gigaflow.iter().zip(megaflow);
        let more = pairs.map(|(gigaflow, megaflow)| sign * (what(gigaflow) / what(megaflow) - 1.0));
        100.0 * more.fold(0.0, f64::max)
    };
    let published_value = |metric| Figure::find(metric, "-", "high", OF_BOTH);
    let taken = |configuration| Figure::find("cache_usage_mean", "-", "high", configuration);
    let drop = Figure::find("sharing_frequency_drop", "-", "low vs high", "4x8K");
    let row = |name: &str, better, percent: f64, published: Option<&Figure>, reason| {
        let row = Row { better, ours: percent.into(), ..Row::new(name, TOGETHER, "%") };
        row.beside_published(published.map(|figure| figure.value), reason)
    };
    [
        row(
            "more hits than with megaflows",
            More,
            more(|one| one.hits),
            published_value("hit_rate_gain_mean"),
            WHY_MEGAFLOWS,
        ),
        row(
            "more hits, best pipeline",
            More,
            most(1.0, |one| one.hits),
            published_value("hit_rate_gain_max"),
            WHY_MEGAFLOWS,
        ),
        row(
            "fewer misses than with megaflows",
            More,
            -more(|one| one.misses),
            published_value("miss_reduction_mean"),
            WHY_MEGAFLOWS,
        ),
        row(
            "fewer misses, best pipeline",
            More,
            most(-1.0, |one| one.misses),
            published_value("miss_reduction_max"),
            WHY_MEGAFLOWS,
        ),
        row(
            "fewer entries than megaflows",
            More,
            -more(|one| one.entries),
            published_value("fewer_entries"),
            WHY_ROOM,
        ),
        row("capacity used by megaflows", Neither, usage(megaflow), taken(OF_MEGAFLOW), WHY_ROOM),
        row("capacity used by LTM entries", Less, usage(gigaflow), taken(OF_GIGAFLOW), WHY_ROOM),
        row(
            "fewer uses of an LTM entry in low locality",
            Neither,
            100.0 * (1.0 - sharing(low) / sharing(gigaflow)),
            drop,
            WHY_SHARING,
        ),
    ]
}

fn coverage_rows(gigaflow: &[Summary]) -> impl Iterator<Item = Row> {
    gigaflow.iter().map(|one| {
        let published = Figure::find("rule_space_ratio", one.pipeline, "high", OF_BOTH);
        let name = format!("{} high", one.pipeline);
        let row = Row { better: More, ours: one.space.into(), ..Row::new(name, SPACE, "x") };
        let published = published.map(|figure| figure.value);
        row.beside_published(
            published,
            why_coverage(
                one.pipeline,
                published.is_some_and(|published_value| one.space > published_value),
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hit rates of 90 % with LTM entries and of 60 % with megaflows.
    ///
    /// One pipeline has 99 %.
    fn summaries() -> Vec<Summary> {
        let summary = |pipeline, locality, cache_case, hits: f64| Summary {
            pipeline,
            locality,
            cache_case,
            hits,
            misses: 1.0 - hits,
            entries: if cache_case == GIGAFLOW { 60.0 } else { 80.0 },
            usage: if cache_case == GIGAFLOW { 0.6 } else { 0.8 },
            sharing: if locality == "high" { 8.0 } else { 6.0 },
            space: 459.0,
        };
        let of = |pipeline: &'static str| {
            let best = if pipeline == "psc" { 0.99 } else { 0.9 };
            [
                summary(pipeline, "high", GIGAFLOW, best),
                summary(pipeline, "high", MEGAFLOWS, 0.6),
                summary(pipeline, "low", GIGAFLOW, 0.7),
            ]
        };
        PIPELINES.into_iter().flat_map(of).collect()
    }

    #[test]
    fn means_compare_gigaflow_with_megaflows() {
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
    fn partial_runs_show_no_published_values() {
        let all = summaries();
        assert!(rows(&all[1..], true).is_empty());
        assert!(
            rows(&all, false).iter().all(|row| row.published.is_none() && row.reason.is_empty())
        );
    }
}
