//! Cost of updates in the published engine, with and without its gates and timer.
//!
//! A gate behind each table holds back work that need not be done at once.
//!
//! This reproduces A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second
//! Era*, figure 4.8. Two updates are five seconds apart: the first update in the fifth-last visited
//! table, the second update in a later table. The second update includes the work that a gate has
//! held since the first update, unless the timer opens the gate in between.
//!
//! The experiment also checks the statement of figure 4.7a without gates and timer. Large updates
//! of the two pipelines with most lookups cost more than with the iterative engine. Without gates
//! and timer, one step processes all tables, which takes unbounded time with a hundred thousand
//! flows. So these cases have ten thousand flows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_kairo::{PublishedKairo, PublishedSettings};
use shunt_pipeline::{FlowModCommand, Iterative, Time};

use super::{
    engines::{RIVAL, published_kairo},
    every_engine::measure,
    workload::{BRIDGE, Clock, UpdateWorkload, Watched},
};
use crate::experiment::{Better, Row, Run, Samples};

/// Time between the two updates.
const UPDATE_GAP: Duration = Duration::from_secs(5);
/// Maximum distance in tables between the two updates.
const DISTANCES: usize = 4;

/// Pipelines with large updates that cost more than with the iterative engine.
const LARGE_OF: [&str; 2] = ["ols", "ant"];
/// Updates: an update of one table, and an update of a tenth of all rules.
const LARGE: [&str; 2] = ["p1", "p2"];

/// Variants: as published, and without gates and timer.
const OF_LARGE: [(&str, bool, bool); 2] = [VARIANTS[0], VARIANTS[2]];

const LARGE_UPDATE_CPU: &str =
    "CPU of the eviction engine for one large update, by gates and timer";
const EVICTED: &str = "entries evicted by a large update, by gates and timer";

const WHY_SLOWER: &str = "without gates and timer each rule is inserted at once for each tuple \
                          (set of matched fields), and each change passes through all later \
                          tables";

const WHY_FEWER: &str = "without the timer, packets that do not fill a batch are never inserted, \
                         and rules overtake them: this is the race of the published design";

const SECOND: &str =
    "CPU of the eviction engine for the second of two updates, by the tables between them";

const WHY_ALONE: &str = "the second update pays for what its gates hold since the first. Without \
                         gates the first has paid already. So the second alone does not show the \
                         published order of the variants";

/// Variants of the published design:
/// with or without gates, and with or without the timer.
const VARIANTS: [(&str, bool, bool); 3] =
    [("gates and timer", true, true), ("gates alone", true, false), ("neither", false, false)];

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let large = LARGE_OF.len() * LARGE.len() * (OF_LARGE.len() + 1);
    run.begin(VARIANTS.len() * DISTANCES + large);
    let mut rows = second_rows(run);
    rows.extend(large_rows(run));
    let metrics = [SECOND, LARGE_UPDATE_CPU, EVICTED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn second_rows(run: &mut Run) -> Vec<Row> {
    let (flows, rounds) = (run.either(10, 2), run.either(3, 1));
    let workload = UpdateWorkload::of(&format!("ols:low:{flows}k:updates=p1@100ms"));
    let (mut tables, visited) = (tables(&workload.base), visited_tables(&workload));
    tables.retain(|table, _| visited.contains(table));
    let tables: Vec<Vec<String>> = tables.into_values().collect();
    let mut rows = Vec::new();
    for distance in 1..=DISTANCES {
        let place = tables.len().saturating_sub(DISTANCES + 1);
        let updates = [&tables[place], &tables[place + distance]];
        for (variant, has_gates, has_timer) in VARIANTS {
            let settings = settings(has_gates, has_timer);
            let title = format!("ols {variant}, distance in tables: {distance}");
            let spent = run.step(&title, |_| {
                let rounds = (0..rounds).map(|_| second(&workload, settings, updates));
                Samples(rounds.collect())
            });
            let reason = if has_gates && !has_timer { WHY_ALONE } else { "" };
            rows.push(Row { ours: spent, reason, ..Row::new(title, SECOND, "us") });
        }
    }
    rows
}

fn settings(has_gates: bool, has_timer: bool) -> PublishedSettings {
    let published = PublishedSettings::default();
    let propagation = published.propagation.filter(|_| has_timer);
    PublishedSettings { has_gates, propagation, ..published }
}

/// Measures large updates with gates and timer, and without both.
///
/// The rival is the iterative engine.
fn large_rows(run: &mut Run) -> Vec<Row> {
    let (flows, rounds) = (run.either(10, 2), run.either(3, 1));
    let mut rows = Vec::new();
    for (pipeline, update) in LARGE_OF.iter().flat_map(|own| LARGE.map(|update| (own, update))) {
        let name = format!("{pipeline}:low:{flows}k:updates={update}@100ms");
        let title = format!("{pipeline} {update}");
        let (workload, theirs) = run.step(&format!("{title} iterative"), |_| {
            let workload = UpdateWorkload::of(&name);
            let iterative = Box::new(Iterative::new(Arc::clone(&workload.pipeline)));
            let theirs = measure(&workload, iterative, Clock::Thread, rounds);
            (workload, theirs)
        });
        let entries = workload.keys.len();
        for (variant, has_gates, has_timer) in OF_LARGE {
            let ours = run.step(&format!("{title} {variant}"), |_| {
                let published_kairo =
                    published_kairo(&workload.pipeline, settings(has_gates, has_timer));
                measure(&workload, Box::new(published_kairo), Clock::Circuit, rounds)
            });
            let title =
                format!("{title} {variant}, {} rules, {entries} entries", workload.changing.len());
            rows.extend(rows_of_large_update([&ours, &theirs], &title, entries as f64));
        }
    }
    rows
}

/// Returns the cost and evictions of a large update with both engines.
fn rows_of_large_update(both: [&Watched; 2], name: &str, entries: f64) -> [Row; 2] {
    let row = |metric, unit, of: &dyn Fn(&Watched) -> Samples| {
        let [ours, theirs] = both.map(of);
        Row { ours, rival: Some((RIVAL.to_owned(), theirs)), ..Row::new(name, metric, unit) }
    };
    let cost = row(LARGE_UPDATE_CPU, "us", &|watched| watched.spent.in_pairs());
    let is_worse = cost.ratio().is_some_and(|ratio| ratio.middle < 1.0);
    let evicted = row(EVICTED, "%", &|watched| {
        watched.evicted.in_pairs().map(|evicted| 100.0 * evicted / entries)
    });
    let is_fewer =
        evicted.rival.as_ref().is_some_and(|(_, rival)| evicted.ours.median() < rival.median());
    [
        Row { reason: if is_worse { WHY_SLOWER } else { "" }, ..cost },
        Row { better: Better::Neither, reason: if is_fewer { WHY_FEWER } else { "" }, ..evicted },
    ]
}

/// Returns the tables in which at least one packet is looked up.
fn visited_tables(workload: &UpdateWorkload) -> BTreeSet<u8> {
    let version = workload.pipeline.version();
    let tables = |key| {
        let visits = workload.pipeline.translate(key, version).visits;
        visits.into_iter().map(|visit| visit.table.number())
    };
    workload.keys.iter().flat_map(tables).collect()
}

/// Returns 6 % of all rules from each table, or as many rules as the table has.
fn tables(rules: &[String]) -> BTreeMap<u8, Vec<String>> {
    let mut tables: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for rule in rules {
        let number = rule.split(',').find_map(|part| part.strip_prefix("table="));
        let number = number.and_then(|number| number.parse().ok()).unwrap_or_default();
        tables.entry(number).or_default().push(rule.clone());
    }
    let most = rules.len() * 6 / 100;
    tables.values_mut().for_each(|rules| rules.truncate(most));
    tables
}

/// Returns the CPU microseconds of the second of two updates.
fn second(
    workload: &UpdateWorkload,
    settings: PublishedSettings,
    updates: [&Vec<String>; 2],
) -> f64 {
    for rules in updates {
        workload.change(FlowModCommand::DeleteStrict, rules);
    }
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let pass = |time: Duration| {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        now.fetch_add(ns, Ordering::Relaxed);
    };
    let read = move || Time::from_nanoseconds(clock.load(Ordering::Relaxed));
    let published_kairo = PublishedKairo::new(&workload.pipeline, &[BRIDGE], settings, read);
    let mut watched = Watched::new(Box::new(published_kairo), workload.keys.len(), Clock::Circuit);
    watched.load(workload);
    for rules in updates {
        pass(UPDATE_GAP);
        watched.run_maintenance();
        let change = workload.change(FlowModCommand::Add, rules);
        watched.apply(&change);
    }
    watched.spent.0.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_no_more_rules_than_an_update() {
        let rule = |table, rule| format!("table={table},priority={rule},actions=drop");
        let rules: Vec<_> = (0..90).map(|number| rule(7, number)).collect();
        let rules: Vec<_> = rules.into_iter().chain((0..10).map(|own| rule(3, own))).collect();
        let tables = tables(&rules);
        let sizes: Vec<_> = tables.iter().map(|(table, rules)| (*table, rules.len())).collect();
        assert_eq!(sizes, [(3, 6), (7, 6)]);
        assert!(tables[&3][0].starts_with("table=3,"));
    }
}
