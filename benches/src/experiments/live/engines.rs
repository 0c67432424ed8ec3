//! The eviction engines in a running switch: what a controller and packets see of each.
//!
//! Which one is the default is decided here, not by the CPU of an engine alone: what lies around it (the
//! connection, the tables, the threads that are woken) is the same for all.

use super::barrier::{MANY, Round, SIZES, around, rows_of, sort};
use crate::{
    experiment::{Row, Run},
    switch::{Contender, Setup},
};

/// The engines that the daemon was built with; the others are beside the first.
const ENGINES: &[&str] = if cfg!(feature = "dbsp") {
    &["direct", "visits", "relational", "iterative"]
} else {
    &["direct", "iterative"]
};

/// Flows below which nobody would see a difference.
const FLOWS_MIN: u32 = 100_000;

/// Each engine, with caches of all sizes but the least.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let Some(shunt) = contenders.first() else { return Vec::new() };
    let sizes = SIZES.iter().filter(|(_, flows)| *flows >= FLOWS_MIN);
    let sizes: Vec<_> = sizes.filter(|(_, flows)| !run.is_quick || *flows < MANY).collect();
    let rounds = run.either(3, 2);
    run.begin(sizes.len() * rounds * ENGINES.len());
    let mut rows = Vec::new();
    for (size, flows) in sizes {
        // Of the iterative engine each takes seconds under a million.
        let pairs = if *flows < MANY { run.either(10, 3) } else { 3 };
        let mut measured: Vec<Vec<Round>> = ENGINES.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (engine, measured) in ENGINES.iter().zip(&mut measured) {
                let setup = Setup { engine: Some(*engine), ..Setup::default() };
                let what = format!("{size} entries, {engine}");
                measured
                    .push(run.step(&what, |folder| around(shunt, folder, setup, (*flows, pairs))));
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

/// The same row, by a name that says whose it is, and why it is worse where it is.
fn of_engine(engine: &str, row: Row) -> Row {
    let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
    let why = if is_worse { why_worse(engine) } else { "" };
    Row { name: format!("{engine}: {}", row.name), why, ..row }
}

fn why_worse(engine: &str) -> &'static str {
    match engine {
        "visits" => {
            "a step of the circuit comes on top of the same search, and its thread is woken for it"
        }
        "relational" => "dbsp merges what its joins hold when a step asks for it",
        "iterative" => "every entry is translated anew",
        _ => "",
    }
}
