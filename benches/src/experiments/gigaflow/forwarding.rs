//! A pipeline of ten tables on one core: what a packet costs in pieces, in whole entries, and in
//! OVS-DPDK with each choice of its caches.
//!
//! As `spine`, with the rules and packets of a workload: a capture comes in by each port that the
//! workload has flows at, and a null port swallows what is sent. There is room for all entries, so
//! once every flow has come by, packets hit.

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
/// Pieces that each stage has room for: more than there are.
const PIECES_MAX: u32 = 131_072;
/// Seconds until every flow has come by, and is cached.
const WARM_UP: u64 = 10;

/// A switch with its caches.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    pieces_max: Option<u32>,
    name: String,
}

/// Pieces and whole entries, with an exact-match cache in front and without, beside OVS-DPDK.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let ours = |caches, pieces_max, name: &str| Subject {
        contender: Contender::ours(),
        caches,
        pieces_max,
        name: format!("Shunt, {name}"),
    };
    let mut subjects = vec![
        ours(FrontCaches::Usual, Some(PIECES_MAX), "exact match and pieces"),
        ours(FrontCaches::Nothing, Some(PIECES_MAX), "pieces alone"),
        ours(FrontCaches::Usual, None, "exact match and whole entries"),
        ours(FrontCaches::Nothing, None, "whole entries alone"),
        ours(FrontCaches::Both, Some(PIECES_MAX), "exact match of all flows and pieces"),
        ours(FrontCaches::Both, None, "exact match of all flows and whole entries"),
    ];
    let mut pairs: Vec<Pair> = vec![("pieces, beside whole entries", 1, Some(3))];
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        for (caches, words) in CHOICES {
            let name = format!("{}, {words}", rival.name());
            let (contender, caches) = (rival.clone(), *caches);
            subjects.push(Subject { contender, caches, pieces_max: None, name });
        }
        pairs.extend([
            ("exact match of all flows and pieces, beside SMC", 4, Some(7)),
            ("exact match of all flows and pieces, beside both", 4, Some(8)),
            ("exact match and pieces, beside EMC", 0, Some(6)),
            ("exact match and pieces, beside both", 0, Some(8)),
            ("pieces, beside none", 1, Some(9)),
            ("exact match of all flows and whole entries, beside SMC", 5, Some(7)),
            ("exact match of all flows and whole entries, beside both", 5, Some(8)),
            ("exact match and whole entries, beside EMC", 2, Some(6)),
            ("exact match and whole entries, beside both", 2, Some(8)),
            ("whole entries, beside none", 3, Some(9)),
        ]);
    } else {
        pairs.push(("exact match and pieces", 0, None));
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
    // What it is about first.
    rows.sort_by_key(|row| row.unit != "cycles");
    rows
}

/// Starts a switch with the rules, lets it cache all flows, and measures for some seconds.
fn measure(subject: &Subject, folder: &Path, files: &Files, seconds: u64) -> Sample {
    let setup = Setup {
        ports: files.ports.clone(),
        cpu: Some(FORWARDING_CPU),
        caches: subject.caches,
        pieces_max: subject.pieces_max,
        keeps_entries: true,
        ..Setup::default()
    };
    let switch = subject.contender.start(folder, &setup);
    switch.ofctl(&["--bundle"], "add-flows", &[&files.rules.display().to_string()]);
    sleep(Duration::from_secs(WARM_UP));
    sample(&*switch, seconds)
}
