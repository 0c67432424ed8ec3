//! A pipeline of ten tables on one core: what a packet costs in pieces, in whole entries, and in
//! OVS-DPDK with each choice of its caches.
//!
//! As `spine`, with the rules and packets of a workload: a capture comes in by each port that the
//! workload has flows at, and a null port swallows what is sent. There is room for all entries, so
//! once every flow has come by, packets hit.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use shunt_pipebench::traffic::FRAME_MIN;

use crate::{
    capture::Capture,
    experiment::{Row, Run},
    experiments::{
        forwarding::{CHOICES, FORWARDING_CPU, Pair, Sample, pair_rows, sample},
        loaded::workload,
    },
    switch::{Contender, FrontCaches, PortSpec, Setup},
};

/// The workload: ten tables, and fewer packets than OVS-DPDK has buffers.
const NAME: &str = "ofd:high:100k";
const QUICK_NAME: &str = "ofd:high:10k";
/// Packets of the captures.
const PACKETS: usize = 180_000;
/// Pieces that each stage has room for: more than there are.
const PIECES_MAX: u32 = 131_072;
/// By this port all is forwarded.
const OUT: u32 = 2;
/// Seconds until every flow has come by, and is cached.
const WARM_UP: u64 = 10;

/// A switch with its caches.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    pieces_max: Option<u32>,
    name: String,
}

/// The files of a workload.
struct Files {
    rules: PathBuf,
    /// From port 1 on.
    ports: Vec<PortSpec>,
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

impl Files {
    /// Writes the rules of a workload, and a capture for each port that it has packets at.
    fn of(name: &str, folder: &Path) -> Self {
        let workload = workload(name);
        let path = |name: &str| folder.join(name);
        let rules = path("rules");
        let lines: Vec<String> = workload.base_rules().map(ToString::to_string).collect();
        let written = fs::write(&rules, lines.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", rules.display()));
        let mut captures: BTreeMap<u32, Capture> = BTreeMap::new();
        let (flows, mut frame) = (workload.flows(), Vec::new());
        for packet in workload.packets().take(PACKETS) {
            let shortest = u16::try_from(FRAME_MIN).unwrap_or_default();
            let packet = shunt_pipebench::traffic::Packet { bytes: shortest, ..packet };
            let made = packet.write_frame(flows, &mut frame);
            made.unwrap_or_else(|error| panic!("{name}: {error}"));
            let port = flows[packet.flow as usize].in_port().number();
            // Nothing leaves by the port that it came in by.
            if port == OUT {
                continue;
            }
            captures.entry(port).or_insert_with(|| Capture::with_room(0)).push(&frame);
        }
        let last = captures.keys().last().copied().unwrap_or_default().max(OUT);
        let port = |number: u32| match captures.get(&number) {
            Some(capture) => {
                let file = path(&format!("{number}.pcap"));
                let written = capture.write(&file);
                written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                PortSpec::Capture(file)
            }
            None => PortSpec::Null,
        };
        Self { rules, ports: (1..=last).map(port).collect() }
    }
}
