//! Benefit of each additional stage: misses, entries and rule-space coverage.

use shunt_gigaflow::partition::PolicyName;
use shunt_pipebench::published::Figure;

use super::replay::{Replay, Resume, Testbed, config};
use crate::{
    experiment::{Better, Row, Run},
    experiments::loaded::WHY_OLS,
};

/// Pipelines with published curves.
const PIPELINES: [&str; 3] = ["ofd", "psc", "ols"];
/// Numbers of stages. The stages have enough entries never to be full.
const STAGES: [u8; 5] = [1, 2, 3, 4, 5];
const ENTRIES: usize = 100_000;

const MISSES: &str = "misses";
const MISSES_SAVED: &str = "misses saved compared with one stage";
const USED: &str = "entries in use";
const COVERAGE: &str = "rule-space coverage per entry of one stage";
const SUFFICIENT_STAGES: &str = "smallest number of stages with nearly the fewest misses";

const WHY_COVERAGE: &str = "ours is the exact coverage of 100,000 flows; the published formula \
                        counts the best two neighbours of each partition, of 10,000 entries";

const WHY_ENOUGH: &str = "useful partition points depend on which rules prove that none of \
                          higher priority matches; the published entries hold no such proof";

/// Results for a number of stages.
struct Outcome {
    stages: u8,
    misses: f64,
    entries: f64,
    coverage: f64,
}

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * (STAGES.len() + 1));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        let testbed = run.step(pipeline, |_| Testbed::published(pipeline, "high", scale));
        let outcomes = STAGES.map(|stages| {
            run.step(&format!("{pipeline}, K={stages}"), |_| replay(&testbed, stages, scale))
        });
        rows.extend(rows_of(pipeline, &outcomes, scale == 1));
        rows.extend(fewest_stages(pipeline, &outcomes, testbed.packets.len() as f64 / 100.0));
    }
    let metrics = [MISSES_SAVED, SUFFICIENT_STAGES, COVERAGE, MISSES, USED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn replay(testbed: &Testbed, stages: u8, scale: usize) -> Outcome {
    let policy = if stages == 1 { PolicyName::Megaflow } else { PolicyName::Joint };
    let mut replay =
        Replay::new(testbed, config(stages, ENTRIES / scale, policy), Resume::StartOver);
    replay.send(0..testbed.packets.len());
    let ltm = replay.cache.ltm();
    Outcome {
        stages,
        misses: replay.cache.counts().misses as f64,
        entries: ltm.entries_count() as f64,
        coverage: ltm.coverage().chains as f64,
    }
}

fn rows_of(pipeline: &str, outcomes: &[Outcome], is_full: bool) -> Vec<Row> {
    let Some(one) = outcomes.first() else { return Vec::new() };
    let published = |metric, configuration| {
        Figure::find(metric, pipeline, "-", configuration).map(|figure| figure.value)
    };
    let row = |outcome: &Outcome| {
        let name = format!("{pipeline} high {} stages", outcome.stages);
        let is_four = is_full && outcome.stages == 4;
        let published_value =
            |metric, configuration| published(metric, configuration).filter(|_| is_four);
        let of = |metric, unit, better, value: f64| Row {
            better,
            ours: value.into(),
            ..Row::new(name.clone(), metric, unit)
        };
        let fewer =
            of(MISSES_SAVED, "%", Better::More, 100.0 * (1.0 - outcome.misses / one.misses));
        let coverage = of(COVERAGE, "x", Better::More, outcome.coverage / one.entries);
        [
            fewer.beside_published(published_value("miss_reduction", "K=4"), WHY_OLS),
            coverage.beside_another(
                published_value("rule_space_ratio", "K=4, 10K entries"),
                WHY_COVERAGE,
            ),
            of(MISSES, "count", Better::Neither, outcome.misses),
            of(USED, "count", Better::Neither, outcome.entries),
        ]
    };
    outcomes.iter().flat_map(row).collect()
}

/// Returns the fewest stages within `within` packets of the fewest misses.
fn fewest_stages(pipeline: &str, outcomes: &[Outcome], within: f64) -> Option<Row> {
    let fewest = outcomes.iter().map(|outcome| outcome.misses).fold(f64::MAX, f64::min);
    let stages = outcomes.iter().find(|outcome| outcome.misses <= fewest + within)?.stages;
    let published = Figure::find("tables_until_no_gain", pipeline, "-", "2-5 x 100K");
    let row = Row {
        better: Better::Neither,
        ours: f64::from(stages).into(),
        ..Row::new(format!("{pipeline} high"), SUFFICIENT_STAGES, "count")
    };
    Some(row.beside_published(published.map(|figure| figure.value), WHY_ENOUGH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_stages_are_within_the_tolerance() {
        let outcome = |(stages, misses)| Outcome { stages, misses, entries: 1.0, coverage: 1.0 };
        let outcomes = [(1, 900.0), (2, 300.0), (3, 104.0), (4, 100.0)].map(outcome);
        let stages = |within| fewest_stages("ofd", &outcomes, within).unwrap().ours.median();
        assert_eq!([stages(3.0), stages(5.0), stages(1000.0)], [4.0, 3.0, 1.0]);
        assert!(fewest_stages("ofd", &[], 1.0).is_none());
    }
}
