//! Gates and the timer of the published engine, on and off.
//!
//! As A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, figure 4.8: two
//! updates five seconds apart, the first of the fifth-last table that packets visit, the second ever
//! later.
//! What a gate holds since the first is paid by the second, unless the timer opens the gate in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_kairo::{Mirror, MirrorSettings};
use shunt_pipeline::{FlowModCommand, Time};

use super::scene::{BRIDGE, Clock, Scene, Watched};
use crate::experiment::{Row, Run, Samples};

/// Between the two updates.
const APART: Duration = Duration::from_secs(5);
/// How many tables the second update may lie behind the first.
const DISTANCES: usize = 4;

const SECOND: &str = "the second of two updates, by how many tables it lies behind the first";

const WHY_ALONE: &str = "what its gates hold since the first update is paid by the second; without gates \
                         the first has paid for itself, so that of the second alone the published \
                         order, in which neither is dearest, does not follow";

/// The published design, and what it is without its parts: whether it has gates, and the timer.
const VARIANTS: [(&str, bool, bool); 3] =
    [("gates and timer", true, true), ("gates alone", true, false), ("neither", false, false)];

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(VARIANTS.len() * DISTANCES);
    let (flows, rounds) = (run.either(10, 2), run.either(3, 1));
    let scene = Scene::of(&format!("ols:low:{flows}k:updates=p1@100ms"));
    let (mut tables, visited) = (tables(&scene.base), visited(&scene));
    tables.retain(|table, _| visited.contains(table));
    let tables: Vec<Vec<String>> = tables.into_values().collect();
    let mut rows = Vec::new();
    for distance in 1..=DISTANCES {
        let place = tables.len().saturating_sub(DISTANCES + 1);
        let updates = [&tables[place], &tables[place + distance]];
        for (variant, has_gates, has_timer) in VARIANTS {
            let published = MirrorSettings::default();
            let propagation = published.propagation.filter(|_| has_timer);
            let settings = MirrorSettings { has_gates, propagation, ..published };
            let title = format!("ols {variant}, tables behind: {distance}");
            let spent = run.step(&title, |_| {
                let rounds = (0..rounds).map(|_| second(&scene, settings, updates));
                Samples(rounds.collect())
            });
            let why = if has_gates && !has_timer { WHY_ALONE } else { "" };
            rows.push(Row { ours: spent, why, ..Row::new(title, SECOND, "us") });
        }
    }
    rows
}

/// The tables that some packet is looked up in.
fn visited(scene: &Scene) -> BTreeSet<u8> {
    let version = scene.pipeline.version();
    let tables = |key| {
        let visits = scene.pipeline.translate(key, version).visits;
        visits.into_iter().map(|visit| visit.table.number())
    };
    scene.keys.iter().flat_map(tables).collect()
}

/// Six in a hundred of all rules from each table that has any, or as many as it has.
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

/// Microseconds of CPU of the second of two updates.
fn second(scene: &Scene, settings: MirrorSettings, updates: [&Vec<String>; 2]) -> f64 {
    for rules in updates {
        scene.change(FlowModCommand::DeleteStrict, rules);
    }
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let pass = |time: Duration| {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        now.fetch_add(ns, Ordering::Relaxed);
    };
    let read = move || Time::from_nanoseconds(clock.load(Ordering::Relaxed));
    let mirror = Mirror::new(&scene.pipeline, &[BRIDGE], settings, read);
    let mut watched = Watched::new(Box::new(mirror), scene.keys.len(), Clock::Circuit);
    watched.load(scene);
    for rules in updates {
        pass(APART);
        watched.tidy();
        let change = scene.change(FlowModCommand::Add, rules);
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
