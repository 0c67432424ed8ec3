//! CPU cycles per packet through one table with hundreds of masks, compared with OVS-DPDK.
//!
//! The set-up is the same as in `spine`, with rule sets of ClassBench: captures are replayed, and a
//! null port discards the output. With 100,000 flows, most packets miss an exact-match cache, so
//! the wildcard cache determines the cost. Shunt runs with default settings, and a second time
//! without caches (`caches.kind = "flows"`). Open vSwitch runs with each choice of its caches, and
//! the best choice is the rival.

use std::{path::Path, thread::sleep, time::Duration};

use crate::{
    experiment::{Better, Row, Run, Samples},
    experiments::{
        captures::{Files, await_flows},
        forwarding::{CHOICES, FORWARDING_CPU, Pair, Sample, pair_rows, sample},
    },
    switch::{Contender, FrontCaches, Setup},
};

/// A rule set with traffic.
struct RuleSetWorkload {
    /// The value of `--only` that selects it.
    rules: &'static str,
    /// Its name in the rows.
    title: &'static str,
    /// Its name for the workload generator.
    name: &'static str,
}

impl RuleSetWorkload {
    /// Returns a workload.
    const fn new(rules: &'static str, title: &'static str, name: &'static str) -> Self {
        Self { rules, title, name }
    }
}

/// The workloads of a whole run.
const WORKLOADS: &[RuleSetWorkload] = &[
    RuleSetWorkload::new(
        "acl-1k",
        "acl 1K, 1K flows",
        "classbench-acl:1k:rules=1k:sizes=fixed:packets=60k",
    ),
    RuleSetWorkload::new(
        "acl-1k",
        "acl 1K, Zipf",
        "classbench-acl:100k:rules=1k:sizes=zipf:packets=180k",
    ),
    RuleSetWorkload::new(
        "acl-1k",
        "acl 1K, uniform",
        "classbench-acl:100k:rules=1k:sizes=fixed:packets=180k",
    ),
    RuleSetWorkload::new(
        "acl-10k",
        "acl 10K, Zipf",
        "classbench-acl:100k:rules=10k:sizes=zipf:packets=180k",
    ),
    RuleSetWorkload::new(
        "acl-10k",
        "acl 10K, uniform",
        "classbench-acl:100k:rules=10k:sizes=fixed:packets=180k",
    ),
    RuleSetWorkload::new(
        "acl-100k",
        "acl 100K, Zipf",
        "classbench-acl:100k:rules=100k:sizes=zipf:packets=180k",
    ),
    RuleSetWorkload::new(
        "acl-100k",
        "acl 100K, uniform",
        "classbench-acl:100k:rules=100k:sizes=fixed:packets=180k",
    ),
    RuleSetWorkload::new(
        "ipc-10k",
        "ipc 10K, Zipf",
        "classbench-ipc:100k:rules=10k:sizes=zipf:packets=180k",
    ),
    RuleSetWorkload::new(
        "ipc-10k",
        "ipc 10K, uniform",
        "classbench-ipc:100k:rules=10k:sizes=fixed:packets=180k",
    ),
    RuleSetWorkload::new(
        "fw-10k",
        "fw 10K, Zipf",
        "classbench-fw:100k:rules=10k:sizes=zipf:packets=180k",
    ),
    RuleSetWorkload::new(
        "fw-10k",
        "fw 10K, uniform",
        "classbench-fw:100k:rules=10k:sizes=fixed:packets=180k",
    ),
    // Defaults that fit one seed alone would show here.
    RuleSetWorkload::new(
        "other-seed",
        "acl 10K of seed 7, uniform",
        "classbench-acl:100k:rules=10k:sizes=fixed:packets=180k:seed=7",
    ),
    RuleSetWorkload::new(
        "other-seed",
        "ipc 10K of seed 7, uniform",
        "classbench-ipc:100k:rules=10k:sizes=fixed:packets=180k:seed=7",
    ),
];

/// The workload of a short run.
const QUICK_WORKLOADS: &[RuleSetWorkload] = &[RuleSetWorkload::new(
    "acl-1k",
    "acl 1K, uniform",
    "classbench-acl:10k:rules=1k:sizes=fixed:packets=20k",
)];

/// A switch with its cache configuration.
pub(super) struct Subject {
    pub(super) contender: Contender,
    pub(super) caches: FrontCaches,
    pub(super) name: String,
    /// Largest number of megaflows; `None`: the default of the switch.
    pub(super) entries_max: Option<u32>,
}

/// Workloads that also run with a cache for few of their megaflows.
const SMALL_WORKLOADS: [&str; 2] = ["acl 10K, uniform", "acl 100K, uniform"];

/// Number of megaflows of that cache.
const SMALL_ENTRIES: u32 = 8_192;

/// Reason why computational flows are slower than a cache.
const WHY_FLOWS: &str = "each packet is looked up in the table, and counted for its rule; a hit in a \
                         cache compares one entry. Computational flows pay for packets that miss";

/// Number of configurations of OVS-DPDK. Each follows the two of Shunt.
const RIVALS: usize = 3;

impl Subject {
    /// Returns Shunt as installed, and Shunt with computational flows.
    pub(super) fn own() -> Vec<Self> {
        let subject = |caches, name: &str| Self {
            contender: Contender::ours(),
            caches,
            name: name.to_owned(),
            entries_max: None,
        };
        let installed = subject(FrontCaches::Usual, "Shunt, as installed");
        vec![installed, subject(FrontCaches::Tables, "Shunt, flows")]
    }
}

/// Returns the values of `--only`.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = WORKLOADS.iter().map(|own| own.rules).collect();
    names.dedup();
    names
}

/// Compares Shunt with default settings with each choice of caches of OVS-DPDK.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let mut subjects = Subject::own();
    let mut pairs: Vec<Pair> = vec![("flows against megaflows", 1, Some(0))];
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        // The last choice, without a cache, is never the fastest.
        for (caches, words) in &CHOICES[..RIVALS] {
            let name = format!("{}, {words}", rival.name());
            let (contender, caches) = (rival.clone(), *caches);
            subjects.push(Subject { contender, caches, name, entries_max: None });
        }
        pairs.extend([
            ("against EMC", 0, Some(2)),
            ("against SMC", 0, Some(3)),
            ("against EMC and SMC", 0, Some(4)),
            ("flows against EMC and SMC", 1, Some(4)),
        ]);
    } else {
        pairs.push(("as installed", 0, None));
    }
    let small = subjects.len();
    subjects.push(Subject {
        contender: Contender::ours(),
        caches: FrontCaches::Usual,
        name: "Shunt, 8,192 megaflows".to_owned(),
        entries_max: Some(SMALL_ENTRIES),
    });
    let workloads = if run.is_quick { QUICK_WORKLOADS } else { WORKLOADS };
    let workloads: Vec<&RuleSetWorkload> =
        workloads.iter().filter(|own| run.chooses("--only", own.rules)).collect();
    let small_count = workloads.iter().filter(|own| SMALL_WORKLOADS.contains(&own.title)).count();
    let (rounds, seconds) = (run.either(3, 1), run.either(3, 1) as u64);
    run.begin(workloads.len() * (1 + rounds * small) + rounds * small_count);
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    let mut rows = Vec::new();
    for RuleSetWorkload { title, name, .. } in workloads {
        let files = run.step(name, |folder| Files::of(name, folder));
        let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            let is_small = SMALL_WORKLOADS.contains(title);
            let count = if is_small { subjects.len() } else { small };
            for (subject, samples) in subjects[..count].iter().zip(&mut samples) {
                let what = format!("{title}, {}", subject.name);
                samples.push(run.step(&what, |folder| measure(subject, folder, &files, seconds)));
            }
        }
        rows.extend(pairs.iter().flat_map(|pair| pair_rows(title, pair, &names, &samples)));
        if SMALL_WORKLOADS.contains(title) {
            let pair = ("flows against 8,192 megaflows", 1, Some(small));
            rows.extend(pair_rows(title, &pair, &names, &samples));
        }
    }
    explain(&mut rows);
    // The main metric first.
    rows.sort_by_key(|row| row.unit != "cycles");
    rows.splice(0..0, best_rows(&rows));
    rows
}

/// Adds the reason to the rows in which computational flows are worse.
pub(super) fn explain(rows: &mut [Row]) {
    for row in rows.iter_mut().filter(|row| row.name.contains(", flows against ")) {
        if row.ratio().is_some_and(|ratio| ratio.middle < 1.0) {
            row.reason = WHY_FLOWS;
        }
    }
}

/// Returns the ratios of each workload to the best configuration of OVS-DPDK.
///
/// The best configuration has the least ratio, because Shunt's cycles are the same in each pair.
fn best_rows(rows: &[Row]) -> Vec<Row> {
    let mut least: Vec<(&str, f64)> = Vec::new();
    let compared = rows.iter().filter(|row| row.unit == "cycles" && row.rival.is_some());
    for row in compared {
        let Some((workload, _)) = row.name.split_once(", against ") else { continue };
        let Some(ratio) = row.ratio() else { continue };
        match least.iter_mut().find(|(name, _)| *name == workload) {
            Some((_, best)) => *best = best.min(ratio.middle),
            None => least.push((workload, ratio.middle)),
        }
    }
    let row = |name: String, ours: f64| Row {
        ours: ours.into(),
        better: Better::More,
        ..Row::new(name, "rate in multiples of the best configuration of OVS-DPDK", "")
    };
    let ratios = Samples(least.iter().map(|(_, ratio)| *ratio).collect());
    let mut best: Vec<Row> =
        least.iter().map(|(name, ratio)| row((*name).to_owned(), *ratio)).collect();
    if best.len() > 1 {
        best.push(row("all workloads, least".to_owned(), ratios.least()));
        best.push(row("all workloads, median".to_owned(), ratios.median()));
    }
    best
}

/// Starts a switch with the rules, waits until all flows are cached, and measures.
pub(super) fn measure(subject: &Subject, folder: &Path, files: &Files, seconds: u64) -> Sample {
    let is_ours = subject.contender == Contender::ours();
    let setup = Setup {
        ports: files.ports.clone(),
        cpu: Some(FORWARDING_CPU),
        caches: subject.caches,
        // With its default settings, the rival expires flows of this experiment.
        keeps_entries: !is_ours || subject.entries_max.is_some(),
        entries_max: subject.entries_max,
        ..Setup::default()
    };
    let switch = subject.contender.start(folder, &setup);
    switch.ofctl(&["--bundle"], "add-flows", &[&files.rules.display().to_string()]);
    if subject.caches != FrontCaches::Tables {
        await_flows(&*switch);
    }
    sleep(Duration::from_secs(1));
    sample(&*switch, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ours: f64, rival: f64) -> Row {
        let rival = Some(("OVS-DPDK".to_owned(), Samples(vec![rival; 3])));
        let ours = Samples(vec![ours; 3]);
        Row { ours, rival, ..Row::new(name, "CPU cycles per packet", "cycles") }
    }

    #[test]
    fn best_configuration_has_the_least_ratio() {
        let rows = [
            row("acl 1K, Zipf, flows against EMC and SMC", 1000.0, 500.0),
            row("acl 1K, Zipf, against EMC", 100.0, 900.0),
            row("acl 1K, Zipf, against SMC", 100.0, 150.0),
            row("fw 10K, uniform, against EMC", 100.0, 250.0),
            row("ipc 10K, Zipf, against EMC", 100.0, 200.0),
        ];
        let best = best_rows(&rows);
        let values: Vec<(&str, f64)> =
            best.iter().map(|row| (row.name.as_str(), row.ours.median())).collect();
        let expected = [
            ("acl 1K, Zipf", 1.5),
            ("fw 10K, uniform", 2.5),
            ("ipc 10K, Zipf", 2.0),
            ("all workloads, least", 1.5),
            ("all workloads, median", 2.0),
        ];
        assert_eq!(values, expected);
        assert!(best_rows(&rows[..1]).is_empty(), "no configuration of the rival");
    }

    #[test]
    fn workloads_are_legal_and_small_ones_are_known() {
        for RuleSetWorkload { title, name, .. } in WORKLOADS.iter().chain(QUICK_WORKLOADS) {
            assert!(name.parse::<shunt_pipebench::name::WorkloadName>().is_ok(), "{title}: {name}");
        }
        let titles: Vec<&str> = WORKLOADS.iter().map(|own| own.title).collect();
        assert!(SMALL_WORKLOADS.iter().all(|title| titles.contains(title)));
    }

    #[test]
    fn slower_flows_have_a_reason() {
        let mut rows = [
            row("acl 1K, Zipf, flows against megaflows", 1000.0, 300.0),
            row("acl 1K, Zipf, flows against EMC", 1000.0, 3000.0),
            row("acl 1K, Zipf, against EMC", 400.0, 300.0),
        ];
        explain(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.reason), [WHY_FLOWS, "", ""]);
    }
}
