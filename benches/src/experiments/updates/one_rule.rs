//! Single rules of all tables are added and removed with many entries.
//!
//! The tail of the times is the worst wait for a barrier.
//!
//! A second pass does not pause between changes, so the engine has no time for deferred work,
//! except while it registers entries.
//!
//! The last pass adds rules with masks that are new to their tables. The index is not prepared for
//! these masks, and extends itself in slices.
//!
//! A rule that many entries depend on evicts all of these entries, and each eviction costs time. So
//! rules that evict at most [`FEW`] entries have separate rows. Each engine has a separate process,
//! so that the memory of the engine is counted alone. [`COMPARED`] and its rival take turns.

use serde_json::{Value, json};
use shunt_pipeline::{Change, FlowModCommand};

use super::{
    engines::{ENGINES, Engine, PIPELINES},
    workload::{UpdateWorkload, Watched},
};
use crate::experiment::{Better, Row, Run, Samples, quantile};

/// A number of entries: its label, and the number of flows that create the entries.
///
/// The second number of flows is for quick runs. Numbers of flows are in thousands.
type Size = (&'static str, usize, usize);

/// Numbers of entries. Flows may share an entry,
/// so a million entries need more flows.
const SIZES: [Size; 2] = [("100K", 102, 10), ("1M", 1160, 20)];

/// Maximum evictions of a rule that counts as small.
const FEW: f64 = 2000.0;

/// An engine that is compared with another one, and the other one.
const COMPARED: [&str; 2] = ["visits", "direct"];

/// Number of rounds of the two compared engines. The other engines run once.
const ROUNDS: usize = 3;

/// The reason why the compared engine takes longer.
const STEP: &str = "this engine makes the same search in a step of a dbsp circuit, and the \
                    processor waits for data of the circuit in memory";

/// Number of new masks of each kind.
const NEW_MASKS: usize = 100;

/// Kinds of new masks, and their matches with twelve bits set.
const KINDS: [(&str, Matched); 2] = [
    ("an address", |[b, c, d]| format!("ip,nw_dst=0.{b}.{c}.{d}/255.{b}.{c}.{d}")),
    ("two addresses and a port", |[b, c, d]| {
        let port = u16::from_be_bytes([c, d]);
        format!(
            "udp,nw_dst=0.{b}.0.0/255.{b}.0.0,nw_src={b}.{c}.0.0/{b}.{c}.0.0,tp_dst={port}/{port}"
        )
    }),
];

/// Returns the match of a rule for a mask, which is given as three bytes.
type Matched = fn([u8; 3]) -> String;

const CHANGE: &str = "CPU of the eviction engine for a change of one rule";
const NEW_MASK: &str = "CPU of the eviction engine for a new rule with a new mask";
const SLICE: &str = "longest slice of the engine's deferred work, after rules with new masks";
const EVICTED: &str = "entries evicted by a change of one rule";
const LOAD: &str = "CPU to register a cache entry with the eviction engine";
const LOAD_OF_EIGHT: &str =
    "CPU to register eight table lookups of an entry with the eviction engine";
const MEMORY: &str = "memory of the eviction engine for each table lookup of an entry";

pub(super) fn steps() -> usize {
    parts().count()
}

/// Returns all engines and numbers of entries, in the order of their runs.
fn parts() -> impl Iterator<Item = (&'static str, &'static Engine)> {
    let runs = SIZES.iter().flat_map(|size| {
        (0..ROUNDS).flat_map(move |round| ENGINES.iter().map(move |engine| (round, size, engine)))
    });
    let has_room = |(round, size, engine): &(usize, &Size, &Engine)| {
        size.1 <= engine.thousands_max && (*round == 0 || COMPARED.contains(&engine.name))
    };
    runs.filter(has_room).map(|(_, (label, ..), engine)| (*label, engine))
}

pub(super) fn run(run: &mut Run) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (label, engine) in parts() {
        let measured = run.part("kairo-updates", &format!("{} {label}", engine.name));
        for row in rows_of(engine.name, label, &measured) {
            let is_row = |one: &&mut Row| one.name == row.name && one.metric == row.metric;
            match rows.iter_mut().find(is_row) {
                Some(one) => one.ours.0.extend(row.ours.0),
                None => rows.push(row),
            }
        }
    }
    compare(&mut rows);
    let metrics = [CHANGE, NEW_MASK, SLICE, EVICTED, LOAD, LOAD_OF_EIGHT, MEMORY];
    rows.sort_by_key(|row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Adds the samples of the rival to the rows of the compared engine.
fn compare(rows: &mut [Row]) {
    let [compared, rival] = COMPARED;
    let known = rows.to_vec();
    for row in rows.iter_mut().filter(|row| row.better != Better::Neither) {
        let Some(rest) = row.name.strip_prefix(compared) else { continue };
        let name = format!("{rival}{rest}");
        let is_same = |one: &&Row| one.name == name && one.metric == row.metric;
        if let Some(other) = known.iter().find(is_same) {
            row.rival = Some((rival.to_owned(), other.ours.clone()));
            row.reason = STEP;
        }
    }
}

/// Runs one engine, and prints the cost and evictions of each change.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let found = part.split_once(' ').and_then(|(engine, label)| {
        let engine = ENGINES.iter().find(|one| one.name == engine)?;
        Some((engine, SIZES.iter().find(|size| size.0 == label)?))
    });
    let Some((engine, (_, thousands, quick))) = found else { panic!("there is no part {part}") };
    let flows = run.either(*thousands, *quick);
    let name = format!("{}:low:{flows}k:updates=flap@100ms", PIPELINES[0]);
    println!("{}", measure(engine, &name, run.either(200, 20)));
}

fn measure(engine: &Engine, workload_name: &str, rounds: usize) -> Value {
    let workload = UpdateWorkload::of(workload_name);
    let apart = (workload.base.len() / rounds).max(1);
    let empty = (engine.new)(&workload.pipeline);
    let mut watched = Watched::new(empty, workload.keys.len(), engine.clock);
    let load = watched.load(&workload);
    let mut go_and_come = |apply_and_restore: fn(&mut Watched, &Change, &UpdateWorkload)| {
        (watched.spent, watched.evicted) = Default::default();
        for rule in workload.base.iter().step_by(apart) {
            for command in [FlowModCommand::DeleteStrict, FlowModCommand::Add] {
                let change = workload.change(command, std::slice::from_ref(rule));
                apply_and_restore(&mut watched, &change, &workload);
            }
        }
        (watched.spent.0.clone(), watched.evicted.0.clone())
    };
    let (spent, evicted) = go_and_come(Watched::apply_and_restore);
    let (spent_untidy, evicted_untidy) = go_and_come(Watched::apply_without_maintenance);
    let new_masks = KINDS.map(|(_, matched)| apply_new_masks(&mut watched, &workload, matched));
    json!({
        "new masks": new_masks,
        "entries": workload.keys.len(),
        "spent": spent,
        "evicted": evicted,
        "spent without maintenance": spent_untidy,
        "evicted without maintenance": evicted_untidy,
        "load": load.us,
        "load of eight": load.us * 8.0 / load.visits,
        "bytes": load.bytes,
    })
}

/// Returns the microseconds of each rule with a new mask, and of the longest slice.
///
/// A slice is a part of the deferred work.
fn apply_new_masks(
    watched: &mut Watched,
    workload: &UpdateWorkload,
    matched: Matched,
) -> (Vec<f64>, f64) {
    watched.run_maintenance();
    let table = workload.base.iter().find(|rule| rule.contains("nw_dst=")).map_or("0", |rule| {
        let table = rule.split(',').find_map(|word| word.strip_prefix("table="));
        table.unwrap_or("0")
    });
    // Masks with the same number of bits do not contain each other. No flow has the values as
    // addresses.
    let masks = (0..1_u32 << 24).filter(|bits| bits.count_ones() == 12).take(NEW_MASKS);
    let mut slice: f64 = 0.0;
    let spent = masks.map(|bits| {
        let [_, address @ ..] = bits.to_be_bytes();
        let rule = format!("table={table},priority=65000,{},actions=drop", matched(address));
        watched.spent.0.clear();
        watched.apply_without_maintenance(&workload.change(FlowModCommand::Add, &[rule]), workload);
        slice = slice.max(watched.longest_slice_us());
        watched.spent.0[0]
    });
    let spent = spent.collect();
    (spent, slice)
}

fn rows_of(engine: &str, label: &str, measured: &Value) -> Vec<Row> {
    let list = |name: &str| -> Vec<f64> {
        measured[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let few = |spent: &[f64], evicted: &[f64]| -> Vec<f64> {
        let few = spent.iter().zip(evicted).filter(|(_, evicted)| **evicted <= FEW);
        few.map(|(spent, _)| *spent).collect()
    };
    let (spent, evicted) = (list("spent"), list("evicted"));
    let name = format!("{engine}, one rule, {label} entries");
    let kinds = [
        ("", spent.clone()),
        (" with at most 2,000 evictions", few(&spent, &evicted)),
        (
            " with at most 2,000 evictions, no maintenance",
            few(&list("spent without maintenance"), &list("evicted without maintenance")),
        ),
    ];
    let mut rows = Vec::new();
    for (word, times) in &kinds {
        for (percent, quantity) in [(50, "p50"), (99, "p99"), (100, "max")] {
            rows.extend(quantile(times, percent).map(|us| Row {
                ours: us.into(),
                ..Row::new(format!("{name}, {quantity}{word}"), CHANGE, "us")
            }));
        }
    }
    let new_masks: Vec<(Vec<f64>, f64)> =
        serde_json::from_value(measured["new masks"].clone()).unwrap_or_default();
    for ((kind, _), (spent, slice)) in KINDS.iter().zip(&new_masks) {
        let name = format!("{engine}, {label} entries, {kind}");
        for (percent, quantity) in [(50, "p50"), (100, "max")] {
            rows.extend(quantile(spent, percent).map(|us| Row {
                ours: us.into(),
                ..Row::new(format!("{name}, {quantity}"), NEW_MASK, "us")
            }));
        }
        rows.push(Row { ours: (*slice).into(), ..Row::new(name, SLICE, "us") });
    }
    for (percent, quantity) in [(50, "p50"), (99, "p99"), (100, "max")] {
        rows.extend(quantile(&evicted, percent).map(|count| Row {
            better: Better::Neither,
            ours: count.into(),
            ..Row::new(format!("{name}, {quantity}"), EVICTED, "count")
        }));
    }
    let one = |key: &str| measured[key].as_f64().map_or_else(Samples::default, Samples::from);
    let size = format!("{engine}, {label}: {} entries", measured["entries"]);
    rows.push(Row { ours: one("load"), ..Row::new(&size, LOAD, "us") });
    rows.push(Row { ours: one("load of eight"), ..Row::new(&size, LOAD_OF_EIGHT, "us") });
    rows.push(Row { ours: one("bytes"), ..Row::new(&size, MEMORY, "B") });
    rows
}
