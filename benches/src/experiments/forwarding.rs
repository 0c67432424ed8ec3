//! Capture in, one rule, nothing out: how many cycles does a packet cost on one core?
//!
//! Both switches have the same capture and the same rule, in alternating rounds. A figure is cycles
//! of the time stamp counter per packet, weighted by the share of the CPU that the forwarding
//! thread had; both include the cost of their generator and sink.

use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    capture, cpu,
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, PortSpec, Setup, Switch},
    tsc,
};

/// The one rule: an L4 match, so that no switch takes a shorter way.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// The CPU that forwards; everything else has the others.
const FORWARDING_CPU: usize = 1;

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

/// One measurement of one switch.
#[derive(Clone, Copy)]
struct Sample {
    /// Millions of packets per second of wall time.
    rate: f64,
    /// Cycles per packet, weighted by the CPU share.
    cycles: f64,
    /// The CPU share itself, in percent.
    share: f64,
}

/// Beside OVS-DPDK.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    rows(run, &Contender::ours(), Contender::OpenVSwitchDpdk.if_installed().as_ref())
}

/// Beside any other.
pub(crate) fn rows(run: &mut Run, ours: &Contender, rival: Option<&Contender>) -> Vec<Row> {
    let rounds = run.either(3, 2);
    let seconds = run.either(4, 2) as u64;
    let contenders: Vec<&Contender> = [Some(ours), rival].into_iter().flatten().collect();
    run.begin(WORKLOADS.len() * rounds * contenders.len());
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let file = run.path(&format!("{}.pcap", workload.flows));
        capture::write_udp_flows(&file, workload.packets, workload.flows)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut samples = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                let what = format!("{}, {}", workload.name, contender.name());
                let measured = run.step(&what, |folder| measure(contender, folder, &file, seconds));
                samples.push(measured);
            }
        }
        let name = rival.map(Contender::name);
        rows.extend(workload_rows(workload.name, &samples, name.as_deref()));
    }
    rows
}

fn workload_rows(name: &str, samples: &[Vec<Sample>], rival: Option<&str>) -> [Row; 3] {
    let row = |metric, unit, better, of: fn(&Sample) -> f64| {
        let figures = |who: usize| samples[who].iter().map(of).collect();
        let ours = Samples(figures(0));
        let rival = rival.map(|name| (name.to_owned(), Samples(figures(1))));
        Row { better, ours, rival, ..Row::new(name, metric, unit) }
    };
    [
        row("TSC cycles x CPU share per packet", "cycles", Better::Less, |one| one.cycles),
        row("packets a second", "Mpps", Better::Neither, |one| one.rate),
        row("CPU share of the forwarding thread", "%", Better::Neither, |one| one.share),
    ]
}

/// Lets a switch warm up, then measures for some seconds.
fn measure(contender: &Contender, folder: &Path, capture: &Path, seconds: u64) -> Sample {
    let ports = vec![PortSpec::Capture(capture.to_path_buf()), PortSpec::Null];
    let switch = contender.start(folder, &Setup { ports, cpu: Some(FORWARDING_CPU) });
    switch.ofctl(&[], "add-flow", &[RULE]);
    sleep(Duration::from_secs(2));
    sample(&*switch, seconds)
}

fn sample(switch: &dyn Switch, seconds: u64) -> Sample {
    let (process, thread) = (switch.id(), switch.forwarding_thread());
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
    }
}
