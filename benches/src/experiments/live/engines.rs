//! The eviction engines in a running switch, as the controller and packets see them.
//!
//! These results choose the default engine, together with the CPU time of each engine. The
//! connection, the tables and the threads are the same for all engines.

use super::barrier::{MANY, Round, SIZES, measure_barriers, rows_of, sort};
use crate::{
    experiment::{Row, Run},
    switch::{Contender, Setup},
};

/// The engines in this build. The rows compare all engines with the first.
const ENGINES: &[&str] = if cfg!(feature = "dbsp") {
    &["direct", "visits", "relational", "iterative"]
} else {
    &["direct", "iterative"]
};

/// Minimum number of flows that shows a difference between engines.
const FLOWS_MIN: u32 = 100_000;

/// Runs each engine with all cache sizes except the smallest.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let Some(shunt) = contenders.first() else { return Vec::new() };
    let sizes = SIZES.iter().filter(|(_, flows)| *flows >= FLOWS_MIN);
    let sizes: Vec<_> = sizes.filter(|(_, flows)| !run.is_quick || *flows < MANY).collect();
    let rounds = run.either(3, 2);
    run.begin(sizes.len() * rounds * ENGINES.len());
    let mut rows = Vec::new();
    for (size, flows) in sizes {
        // The iterative engine needs seconds for a change, and longer with a million flows.
        let pairs = if *flows < MANY { run.either(10, 3) } else { 3 };
        let mut measured: Vec<Vec<Round>> = ENGINES.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (engine, measured) in ENGINES.iter().zip(&mut measured) {
                let setup = Setup { engine: Some(*engine), ..Setup::default() };
                let what = format!("{size} entries, {engine}");
                measured.push(
                    run.step(&what, |folder| measure_barriers(shunt, folder, setup, *flows, pairs)),
                );
            }
        }
        let beside = Some((ENGINES[0], measured[0].as_slice()));
        for (place, (engine, own)) in ENGINES.iter().zip(&measured).enumerate() {
            let own = rows_of(size, own, beside.filter(|_| place > 0));
            rows.extend(own.into_iter().map(|row| of_engine(engine, row)));
        }
    }
    sort(&mut rows);
    rows
}

/// Prefixes a row with the engine, and adds the reason if the engine is worse.
fn of_engine(engine: &str, row: Row) -> Row {
    let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
    let reason = if is_worse { why_worse(engine) } else { "" };
    Row { name: format!("{engine}: {}", row.name), reason, ..row }
}

fn why_worse(engine: &str) -> &'static str {
    match engine {
        "visits" => "this engine makes the same search as Direct in a step of a dbsp circuit",
        "relational" => "this engine waits while dbsp merges the stored state of its joins",
        "iterative" => "this engine translates every entry again",
        _ => "",
    }
}
