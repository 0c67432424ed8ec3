//! How many cache entries the masks of lookups make.
//!
//! Each packet that no earlier entry covers is looked up, and the mask makes an entry, in a cache
//! without a bound. Fewer entries are better, and fewer masks. Nothing here is a time, so one round
//! says it all.

use serde_json::json;
use shunt_classifier::testing::workload::Priorities;

use super::classifier::{Ours, Workload, class_bench, start_rival, synthetic};
use crate::experiment::{Row, Run, Samples};

/// Tables of `--classbench`, a folder of rule-sets.
const CLASS_BENCH: &[&str] = &["acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k"];

const fn packets_count(run: &Run) -> usize {
    run.either(30_000, 8_000)
}

/// All tables.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let class_bench = run.option("--classbench").map_or(&[][..], |_| CLASS_BENCH);
    let tables: Vec<&str> = ["random", "specific"].iter().chain(class_bench).copied().collect();
    run.begin(tables.len());
    let mut rows = [Vec::new(), Vec::new()];
    for table in tables {
        let value = run.part("megaflows", table);
        let figure = |who: &str, index: usize| value[who][index].as_f64().map(Samples::from);
        for (index, (metric, rows)) in
            ["entries of the cache", "masks of the entries"].iter().zip(&mut rows).enumerate()
        {
            let name = value["name"].as_str().unwrap_or_default();
            let rival =
                figure("rival", index).map(|of| ("Open vSwitch's classifier".to_owned(), of));
            let ours = figure("ours", index).unwrap_or_default();
            rows.push(Row { ours, rival, ..Row::new(name, metric, "count") });
        }
    }
    rows.concat()
}

/// One table: prints the counts.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let count = packets_count(run);
    let workload: Option<Workload> = match part {
        "random" => Some(synthetic(1000, 100, Priorities::Random, count)),
        "specific" => Some(synthetic(1000, 100, Priorities::Specific, count)),
        name => {
            run.option("--classbench").and_then(|folder| class_bench(folder.as_ref(), name, count))
        }
    };
    let Some(workload) = workload else { panic!("{part} is not in the folder of --classbench") };
    let (entries, masks) = Ours::new(&workload).megaflows();
    let rival = start_rival(run, &workload).map(|mut rival| rival.ask::<usize>("megaflows"));
    let name = workload.title();
    println!("{}", json!({ "name": name, "ours": [entries, masks], "rival": rival }));
}
