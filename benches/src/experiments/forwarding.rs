//! CPU cycles per packet on one core: a capture in, one rule, a null port out.
//!
//! All switches get the same capture and the same rule, in alternating rounds. The value is the
//! number of time stamp counter cycles per packet, weighted by the CPU share of the forwarding
//! thread. The value includes packet generator and sink. The experiment varies the caches in front
//! of the wildcard cache, because the best choice depends on the number of flows.

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

/// The rule: an L4 match, so that no switch can take a shortcut.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// Lengths of the frames between ports in bytes, without the frame check sequence.
const LENGTHS: [u16; 3] = [64, 512, 1500];

/// The CPU that forwards; all other threads use the other CPUs.
pub(super) const FORWARDING_CPU: usize = 1;

/// A workload that exceeds the CPU caches and fits into the buffers of OVS-DPDK.
struct Workload {
    name: &'static str,
    flows: u32,
    packets: usize,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "1K flows", flows: 1_000, packets: 65_536 },
    Workload { name: "100K flows", flows: 100_000, packets: 200_000 },
];

/// A switch with its cache configuration.
struct Subject {
    contender: Contender,
    caches: FrontCaches,
    name: String,
}

/// Two compared subjects: name of the rows, our subject, and the other subject.
pub(super) type Pair = (&'static str, usize, Option<usize>);

/// One measurement of one subject.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// Millions of packets per second of wall time.
    rate: f64,
    /// Cycles per packet, weighted by the CPU share.
    cycles: f64,
    /// CPU share of the forwarding thread in percent.
    share: f64,
    /// CPU share of the process in percent.
    process_share: f64,
}

/// Compares with OVS-DPDK for each choice of its caches.
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
            ("against EMC", 0, beside(0)),
            ("against SMC", 0, beside(1)),
            ("against EMC and SMC", 0, beside(2)),
            ("against no cache", 0, beside(3)),
            ("without exact match, against no cache", 1, beside(3)),
        ]);
    } else {
        pairs.extend([("exact match", 0, None), ("without exact match", 1, None)]);
    }
    let rounds = run.either(3, 2);
    measure_pairs(run, rounds, &subjects, &pairs)
}

/// Caches of Open vSwitch, and the names of the caches in Open vSwitch.
pub(super) const CHOICES: &[(FrontCaches, &str)] = &[
    (FrontCaches::Usual, "EMC as installed"),
    (FrontCaches::Signature, "SMC"),
    (FrontCaches::Both, "EMC and SMC"),
    (FrontCaches::Nothing, "neither EMC nor SMC"),
];

/// Compares two builds. The difference is small,
/// so the comparison takes more rounds.
pub(crate) fn rows(run: &mut Run, ours: &Contender, rival: &Contender) -> Vec<Row> {
    let subject = |contender: &Contender| Subject {
        contender: contender.clone(),
        caches: FrontCaches::Usual,
        name: contender.name(),
    };
    measure_pairs(run, 5, &[subject(ours), subject(rival)], &[("forwarding", 0, Some(1))])
}

fn measure_pairs(run: &mut Run, rounds: usize, subjects: &[Subject], pairs: &[Pair]) -> Vec<Row> {
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

/// Measures frames of each length, with both contenders.
pub(super) fn rows_by_length(
    run: &mut Run,
    what: &'static str,
    contenders: &[Contender],
    measure: impl Fn(&Contender, &Path, u16, u64) -> Sample,
) -> Vec<Row> {
    let names: Vec<String> = contenders.iter().map(Contender::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (rounds, seconds) = (run.either(3, 1), run.either(4, 1) as u64);
    run.begin(LENGTHS.len() * rounds * contenders.len());
    let mut rows = Vec::new();
    for length in LENGTHS {
        let mut samples = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                let step = format!("{length} bytes, {}", contender.name());
                samples.push(run.step(&step, |folder| measure(contender, folder, length, seconds)));
            }
        }
        if !contenders.is_empty() {
            let pair = (what, 0, (contenders.len() > 1).then_some(1));
            rows.extend(pair_rows(&format!("{length} bytes"), &pair, &names, &samples));
        }
    }
    rows
}

/// Returns the rows of all pairs of subjects.
pub(super) fn pair_rows(
    workload: &str,
    (what, ours, rival): &Pair,
    names: &[&str],
    samples: &[Vec<Sample>],
) -> [Row; 4] {
    let row = |metric, unit, better, of: fn(&Sample) -> f64| {
        let figures = |subject: usize| Samples(samples[subject].iter().map(of).collect());
        let rival = rival.map(|rival| (names[rival].to_owned(), figures(rival)));
        let name = format!("{workload}, {what}");
        Row { better, ours: figures(*ours), rival, ..Row::new(name, metric, unit) }
    };
    [
        row("CPU cycles per packet", "cycles", Better::Less, |one| one.cycles),
        row("packets per second", "Mpps", Better::Neither, |one| one.rate),
        row("CPU share of the forwarding thread", "%", Better::Neither, |one| one.share),
        row("CPU share of the process", "%", Better::Neither, |one| one.process_share),
    ]
}

/// Warms a switch up, then measures for some seconds.
fn measure(subject: &Subject, folder: &Path, capture: &Path, seconds: u64) -> Sample {
    let ports = vec![PortSpec::Capture(capture.to_path_buf()), PortSpec::Null];
    let (cpu, caches) = (Some(FORWARDING_CPU), subject.caches);
    let setup = Setup { ports, cpu, caches, ..Setup::default() };
    let switch = subject.contender.start(folder, &setup);
    switch.ofctl(&[], "add-flow", &[RULE]);
    sleep(Duration::from_secs(seconds.min(2)));
    sample(&*switch, seconds)
}

/// Measures a forwarding switch for some seconds.
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
    assert!(packets > 0.0, "the switch in {} receives nothing", switch.folder().display());
    let share = run / (elapsed * 1e9);
    Sample {
        rate: packets / elapsed / 1e6,
        cycles: cycles * share / packets,
        share: share * 100.0,
        process_share: account.spent().share(),
    }
}
