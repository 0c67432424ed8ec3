//! CPU cycles per packet through one table with hundreds of masks, compared with OVS-DPDK.
//!
//! The set-up is the same as in `spine`, with rule sets of ClassBench: captures are replayed, and a
//! null port discards the output. With 100,000 flows, most packets miss an exact-match cache, so
//! the wildcard cache determines the cost. Shunt runs with default settings, and a second time
//! without caches (`caches.kind = "flows"`). Open vSwitch runs with each choice of its caches, and
//! the best choice is the rival.

use std::{path::Path, thread::sleep, time::Duration};

use crate::{
    experiment::{Row, Run},
    experiments::{
        captures::{Files, await_flows},
        forwarding::{CHOICES, FORWARDING_CPU, Pair, Sample, pair_rows, sample},
    },
    switch::{Contender, FrontCaches, Setup},
};

/// Rule sets and traffic: name of the rows, and workload.
const WORKLOADS: &[(&str, &str)] = &[
    ("acl 1K, 1K flows", "classbench-acl:1k:rules=1k:sizes=fixed:packets=60k"),
    ("acl 1K, Zipf", "classbench-acl:100k:rules=1k:sizes=zipf:packets=180k"),
    ("acl 1K, uniform", "classbench-acl:100k:rules=1k:sizes=fixed:packets=180k"),
    ("acl 10K, Zipf", "classbench-acl:100k:rules=10k:sizes=zipf:packets=180k"),
    ("acl 10K, uniform", "classbench-acl:100k:rules=10k:sizes=fixed:packets=180k"),
    ("acl 100K, Zipf", "classbench-acl:100k:rules=100k:sizes=zipf:packets=180k"),
    ("acl 100K, uniform", "classbench-acl:100k:rules=100k:sizes=fixed:packets=180k"),
    ("ipc 10K, Zipf", "classbench-ipc:100k:rules=10k:sizes=zipf:packets=180k"),
    ("ipc 10K, uniform", "classbench-ipc:100k:rules=10k:sizes=fixed:packets=180k"),
    ("fw 10K, Zipf", "classbench-fw:100k:rules=10k:sizes=zipf:packets=180k"),
    ("fw 10K, uniform", "classbench-fw:100k:rules=10k:sizes=fixed:packets=180k"),
];

const QUICK_WORKLOADS: &[(&str, &str)] =
    &[("acl 1K, uniform", "classbench-acl:10k:rules=1k:sizes=fixed:packets=20k")];

/// A switch with its cache configuration.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    name: String,
}

/// Compares Shunt with default settings with each choice of caches of OVS-DPDK.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let installed = Subject {
        contender: Contender::ours(),
        caches: FrontCaches::Usual,
        name: "Shunt, as installed".to_owned(),
    };
    let flows = Subject {
        contender: Contender::ours(),
        caches: FrontCaches::Tables,
        name: "Shunt, flows".to_owned(),
    };
    let mut subjects = vec![installed, flows];
    let mut pairs: Vec<Pair> = vec![("flows against megaflows", 1, Some(0))];
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        // The last choice, without a cache, is never the fastest.
        for (caches, words) in &CHOICES[..3] {
            let name = format!("{}, {words}", rival.name());
            subjects.push(Subject { contender: rival.clone(), caches: *caches, name });
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
    let workloads = if run.is_quick { QUICK_WORKLOADS } else { WORKLOADS };
    let (rounds, seconds) = (run.either(3, 1), run.either(3, 1) as u64);
    run.begin(workloads.len() * (1 + rounds * subjects.len()));
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    let mut rows = Vec::new();
    for (title, name) in workloads {
        let files = run.step(name, |folder| Files::of(name, folder));
        let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (subject, samples) in subjects.iter().zip(&mut samples) {
                let what = format!("{title}, {}", subject.name);
                samples.push(run.step(&what, |folder| measure(subject, folder, &files, seconds)));
            }
        }
        rows.extend(pairs.iter().flat_map(|pair| pair_rows(title, pair, &names, &samples)));
    }
    // The main metric first.
    rows.sort_by_key(|row| row.unit != "cycles");
    rows
}

/// Starts a switch with the rules, waits until all flows are cached, and measures.
fn measure(subject: &Subject, folder: &Path, files: &Files, seconds: u64) -> Sample {
    let is_ours = subject.contender == Contender::ours();
    let setup = Setup {
        ports: files.ports.clone(),
        cpu: Some(FORWARDING_CPU),
        caches: subject.caches,
        // With its default settings, the rival expires flows of this experiment.
        keeps_entries: !is_ours,
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
