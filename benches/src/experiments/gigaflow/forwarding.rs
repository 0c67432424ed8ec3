//! CPU cycles per packet through ten tables on one core: LTM entries, megaflows, and OVS-DPDK with
//! each cache.
//!
//! The set-up is the same as in `spine`, with the rules and packets of a workload. Each port with
//! flows replays a capture, and a null port discards the output. The caches have space for all
//! entries, so every flow hits after its first packet.

use std::{path::Path, thread::sleep, time::Duration};

use crate::{
    experiment::{Row, Run},
    experiments::{
        captures::Files,
        forwarding::{CHOICES, FORWARDING_CPU, Pair, Sample, pair_rows, sample},
    },
    switch::{Contender, FrontCaches, Setup},
};

/// The workload: ten tables, and fewer packets than OVS-DPDK has buffers.
const NAME: &str = "ofd:high:100k";
const QUICK_NAME: &str = "ofd:high:10k";
/// Entries of each stage: more than the workload needs.
const LTM_ENTRIES_MAX: u32 = 131_072;
/// Seconds until every flow has been seen and cached.
const WARM_UP: u64 = 10;

/// A switch with its cache configuration.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    ltm_entries_max: Option<u32>,
    name: String,
}

/// Compares LTM entries and megaflows with OVS-DPDK.
///
/// All run with and without an exact-match cache.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let ours = |caches, ltm_entries_max, name: &str| Subject {
        contender: Contender::ours(),
        caches,
        ltm_entries_max,
        name: format!("Shunt, {name}"),
    };
    let mut subjects = vec![
        ours(FrontCaches::Usual, Some(LTM_ENTRIES_MAX), "exact match and LTM entries"),
        ours(FrontCaches::Nothing, Some(LTM_ENTRIES_MAX), "LTM entries alone"),
        ours(FrontCaches::Usual, None, "exact match and megaflows"),
        ours(FrontCaches::Nothing, None, "megaflows alone"),
        ours(FrontCaches::Both, Some(LTM_ENTRIES_MAX), "exact match of all flows and LTM entries"),
        ours(FrontCaches::Both, None, "exact match of all flows and megaflows"),
    ];
    let mut pairs: Vec<Pair> = vec![("LTM entries, against megaflows", 1, Some(3))];
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        for (caches, words) in CHOICES {
            let name = format!("{}, {words}", rival.name());
            let (contender, caches) = (rival.clone(), *caches);
            subjects.push(Subject { contender, caches, ltm_entries_max: None, name });
        }
        pairs.extend([
            ("exact match of all flows and LTM entries, against SMC", 4, Some(7)),
            ("exact match of all flows and LTM entries, against EMC and SMC", 4, Some(8)),
            ("exact match and LTM entries, against EMC", 0, Some(6)),
            ("exact match and LTM entries, against EMC and SMC", 0, Some(8)),
            ("LTM entries, against no cache", 1, Some(9)),
            ("exact match of all flows and megaflows, against SMC", 5, Some(7)),
            ("exact match of all flows and megaflows, against EMC and SMC", 5, Some(8)),
            ("exact match and megaflows, against EMC", 2, Some(6)),
            ("exact match and megaflows, against EMC and SMC", 2, Some(8)),
            ("megaflows, against no cache", 3, Some(9)),
        ]);
    } else {
        pairs.push(("exact match and LTM entries", 0, None));
    }
    let (rounds, seconds) = (run.either(3, 2), run.either(4, 1) as u64);
    let name = if run.is_quick { QUICK_NAME } else { NAME };
    run.begin(1 + rounds * subjects.len());
    let files = run.step(name, |folder| Files::of(name, folder));
    let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            samples
                .push(run.step(&subject.name, |folder| measure(subject, folder, &files, seconds)));
        }
    }
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    let mut rows: Vec<Row> =
        pairs.iter().flat_map(|pair| pair_rows(name, pair, &names, &samples)).collect();
    // The main metric first.
    rows.sort_by_key(|row| row.unit != "cycles");
    rows
}

/// Starts a switch with the rules, waits until all flows are cached, and measures.
fn measure(subject: &Subject, folder: &Path, files: &Files, seconds: u64) -> Sample {
    let setup = Setup {
        ports: files.ports.clone(),
        cpu: Some(FORWARDING_CPU),
        caches: subject.caches,
        ltm_entries_max: subject.ltm_entries_max,
        keeps_entries: true,
        ..Setup::default()
    };
    let switch = subject.contender.start(folder, &setup);
    switch.ofctl(&["--bundle"], "add-flows", &[&files.rules.display().to_string()]);
    sleep(Duration::from_secs(WARM_UP));
    sample(&*switch, seconds)
}
