//! Capture in, one rule, nothing out: how many cycles does a packet cost on one core?
//!
//! All switches have the same capture and the same rule, in alternating rounds. A figure is cycles
//! of the time stamp counter per packet, weighted by the share of the CPU that the forwarding
//! thread had; it includes the cost of generator and sink. The caches in front of the wildcard cache
//! are varied: what is best depends on how many flows there are.

use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    capture,
    cpu::{self, Account},
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, FrontCaches, PortSpec, Setup, Switch},
    tsc,
};

/// The one rule: an L4 match, so that no switch takes a shorter way.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// The CPU that forwards; everything else has the others.
pub(super) const FORWARDING_CPU: usize = 1;

/// One workload: more packets than fit any cache of the CPU, fewer than OVS-DPDK's buffers.
struct Workload {
    name: &'static str,
    flows: u32,
    packets: usize,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "1K flows", flows: 1_000, packets: 65_536 },
    Workload { name: "100K flows", flows: 100_000, packets: 200_000 },
];

/// A switch with its caches.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    name: String,
}

/// Two subjects beside each other: what the rows are called, ours, the other.
pub(super) type Pair = (&'static str, usize, Option<usize>);

/// One measurement of one subject.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// Millions of packets per second of wall time.
    rate: f64,
    /// Cycles per packet, weighted by the CPU share.
    cycles: f64,
    /// The CPU share itself, in percent.
    share: f64,
    /// That of the whole process.
    process_share: f64,
}

/// Beside OVS-DPDK, with each choice of its caches.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let ours = |caches, name: &str| Subject {
        contender: Contender::ours(),
        caches,
        name: format!("Shunt, {name}"),
    };
    let mut subjects = vec![
        ours(FrontCaches::Usual, "exact-match cache"),
        ours(FrontCaches::Nothing, "wildcard cache alone"),
    ];
    let mut pairs: Vec<Pair> = Vec::new();
    if let Some(rival) = Contender::OpenVSwitchDpdk.if_installed() {
        for (caches, words) in CHOICES {
            let name = format!("{}, {words}", rival.name());
            subjects.push(Subject { contender: rival.clone(), caches: *caches, name });
        }
        let beside = |choice: usize| Some(2 + choice);
        pairs.extend([
            ("beside EMC", 0, beside(0)),
            ("beside SMC", 0, beside(1)),
            ("beside both", 0, beside(2)),
            ("beside none", 0, beside(3)),
            ("without exact match, beside none", 1, beside(3)),
        ]);
    } else {
        pairs.extend([("exact match", 0, None), ("without exact match", 1, None)]);
    }
    let rounds = run.either(3, 2);
    measured(run, rounds, &subjects, &pairs)
}

/// Caches of Open vSwitch, and what they are called there.
pub(super) const CHOICES: &[(FrontCaches, &str)] = &[
    (FrontCaches::Usual, "EMC as installed"),
    (FrontCaches::Signature, "SMC"),
    (FrontCaches::Both, "EMC and SMC"),
    (FrontCaches::Nothing, "neither EMC nor SMC"),
];

/// Two builds beside each other, which are alike: it takes more rounds to tell them apart.
pub(crate) fn rows(run: &mut Run, ours: &Contender, rival: &Contender) -> Vec<Row> {
    let subject = |contender: &Contender| Subject {
        contender: contender.clone(),
        caches: FrontCaches::Usual,
        name: contender.name(),
    };
    measured(run, 5, &[subject(ours), subject(rival)], &[("forwarding", 0, Some(1))])
}

fn measured(run: &mut Run, rounds: usize, subjects: &[Subject], pairs: &[Pair]) -> Vec<Row> {
    let seconds = run.either(4, 1) as u64;
    let workloads = if run.is_quick { &WORKLOADS[1..] } else { WORKLOADS };
    run.begin(workloads.len() * rounds * subjects.len());
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
    let mut rows = Vec::new();
    for workload in workloads {
        let file = run.path(&format!("{}.pcap", workload.flows));
        capture::write_udp_flows(&file, workload.packets, workload.flows)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut samples = vec![Vec::new(); subjects.len()];
        for _ in 0..rounds {
            for (subject, samples) in subjects.iter().zip(&mut samples) {
                let what = format!("{}, {}", workload.name, subject.name);
                let measured = run.step(&what, |folder| measure(subject, folder, &file, seconds));
                samples.push(measured);
            }
        }
        rows.extend(pairs.iter().flat_map(|pair| pair_rows(workload.name, pair, &names, &samples)));
    }
    rows
}

/// What two subjects showed, of which all have names.
pub(super) fn pair_rows(
    workload: &str,
    (what, ours, rival): &Pair,
    names: &[&str],
    samples: &[Vec<Sample>],
) -> [Row; 4] {
    let row = |metric, unit, better, of: fn(&Sample) -> f64| {
        let figures = |who: usize| Samples(samples[who].iter().map(of).collect());
        let rival = rival.map(|rival| (names[rival].to_owned(), figures(rival)));
        let name = format!("{workload}, {what}");
        Row { better, ours: figures(*ours), rival, ..Row::new(name, metric, unit) }
    };
    [
        row("TSC cycles x CPU share per packet", "cycles", Better::Less, |one| one.cycles),
        row("packets a second", "Mpps", Better::Neither, |one| one.rate),
        row("CPU share of the forwarding thread", "%", Better::Neither, |one| one.share),
        row("CPU share of the process", "%", Better::Neither, |one| one.process_share),
    ]
}

/// Lets a switch warm up, then measures for some seconds.
fn measure(subject: &Subject, folder: &Path, capture: &Path, seconds: u64) -> Sample {
    let ports = vec![PortSpec::Capture(capture.to_path_buf()), PortSpec::Null];
    let (cpu, caches) = (Some(FORWARDING_CPU), subject.caches);
    let setup = Setup { ports, cpu, caches, ..Setup::default() };
    let switch = subject.contender.start(folder, &setup);
    switch.ofctl(&[], "add-flow", &[RULE]);
    sleep(Duration::from_secs(seconds.min(2)));
    sample(&*switch, seconds)
}

/// Measures a switch that forwards, for some seconds.
pub(super) fn sample(switch: &dyn Switch, seconds: u64) -> Sample {
    let (process, thread) = (switch.id(), switch.forwarding_thread());
    let account = Account::open(process);
    let (packets, run, cycles, time) =
        (switch.received(), cpu::run_ns(process, thread), tsc::cycles(), Instant::now());
    sleep(Duration::from_secs(seconds));
    let (packets, run, cycles, elapsed) = (
        (switch.received() - packets) as f64,
        (cpu::run_ns(process, thread) - run) as f64,
        (tsc::cycles() - cycles) as f64,
        time.elapsed().as_secs_f64(),
    );
    let share = run / (elapsed * 1e9);
    Sample {
        rate: packets / elapsed / 1e6,
        cycles: cycles * share / packets.max(1.0),
        share: share * 100.0,
        process_share: account.spent().share(),
    }
}
