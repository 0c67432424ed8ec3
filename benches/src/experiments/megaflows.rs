//! Number of megaflows that the masks of lookups produce.
//!
//! Each packet that no earlier entry covers is looked up, and the mask of the lookup makes an entry
//! in an unbounded cache. Fewer entries and fewer masks are better. Counts do not vary, so one
//! round is enough.

use serde_json::json;
use shunt_classifier::testing::workload::Priorities;

use super::classifier::{OurTable, class_bench, start_rival, synthetic};
use crate::experiment::{Row, Run, Samples};

const TABLES: &[&str] =
    &["random", "specific", "acl_1k", "fw_1k", "ipc_1k", "acl_10k", "fw_10k", "ipc_10k"];
const QUICK_TABLES: &[&str] = &["random", "specific", "acl_1k"];

const WHY_WORSE: &str = "a table of one mask chooses its own proof that no rule matches: the \
                         address that adds fewer bits, limited to the table's prefix. So masks \
                         are more diverse. This means fewer entries for some rule sets, and more \
                         for others";

const fn packets_count(run: &Run) -> usize {
    run.either(30_000, 4_000)
}

/// Runs all tables.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let tables = if run.is_quick { QUICK_TABLES } else { TABLES };
    run.begin(tables.len());
    let mut rows = [Vec::new(), Vec::new()];
    for table in tables {
        let value = run.part("megaflows", table);
        let figure =
            |subject: &str, index: usize| value[subject][index].as_f64().map(Samples::from);
        for (index, (metric, rows)) in
            ["cache entries after all packets", "different masks of these entries"]
                .iter()
                .zip(&mut rows)
                .enumerate()
        {
            let name = value["name"].as_str().unwrap_or_default();
            let rival =
                figure("rival", index).map(|of| ("Open vSwitch's classifier".to_owned(), of));
            let ours = figure("ours", index).unwrap_or_default();
            let row = Row { ours, rival, ..Row::new(name, metric, "count") };
            let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
            rows.push(Row { reason: if is_worse { WHY_WORSE } else { "" }, ..row });
        }
    }
    rows.concat()
}

/// Runs one table, and prints the counts.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let count = packets_count(run);
    let workload = match part {
        "random" => synthetic(1000, 100, Priorities::Random, count),
        "specific" => synthetic(1000, 100, Priorities::Specific, count),
        name => class_bench(name, count),
    };
    let (entries, masks) = OurTable::new(&workload).megaflows();
    let rival = start_rival(run, &workload).map(|mut rival| rival.ask::<usize>("megaflows"));
    let name = workload.title();
    println!("{}", json!({ "name": name, "ours": [entries, masks], "rival": rival }));
}
