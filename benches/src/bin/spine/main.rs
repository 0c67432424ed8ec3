//! Capture in, one rule, nothing out: how many cycles does a packet cost on one core?
//!
//! Shunt and OVS-DPDK, the same capture, the same rule, in alternating rounds of one run. A figure
//! is cycles of the time stamp counter per packet, weighted by the share of the CPU that the
//! forwarding thread had; both include the cost of their generator and sink.

#![expect(clippy::panic, reason = "an experiment that cannot be set up says why and stops")]
#![expect(clippy::print_stdout, reason = "it reports to its user")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

mod report;
mod rival;
mod shunt;

use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_benches::{capture, cpu, tsc};

/// The one rule: an L4 match, so that no switch takes a shorter way.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// The CPU that forwards; everything else has the other.
const FORWARDING_CPU: usize = 1;

/// Packets of a capture: more than fit any cache of the CPU, fewer than OVS-DPDK's buffers.
const PACKETS: usize = 200_000;

/// One workload.
struct Workload {
    name: &'static str,
    flows: u32,
    packets: usize,
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "1K flows", flows: 1_000, packets: 65_536 },
    Workload { name: "100K flows", flows: 100_000, packets: PACKETS },
];

/// One measurement of one switch.
#[derive(Clone, Copy)]
struct Sample {
    /// Packets per second of wall time.
    rate: f64,
    /// Cycles per packet, weighted by the CPU share.
    cycles: f64,
    /// The CPU share itself.
    share: f64,
}

/// A switch that is running and forwarding.
trait Switch {
    /// Packets that it has received so far.
    fn received(&self) -> u64;

    /// Its process, and the thread that forwards.
    fn thread(&self) -> (u32, u32);
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, seconds) = if quick { (1, 2) } else { (3, 4) };
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let with_rival = rival::installed();
    if !with_rival {
        println!("OVS-DPDK is not installed (openvswitch-switch-dpdk): measuring Shunt alone");
    }
    let mut rows = Vec::new();
    let steps = WORKLOADS.len() * rounds * if with_rival { 2 } else { 1 };
    let start = Instant::now();
    for workload in WORKLOADS {
        let file = folder.path().join(format!("{}.pcap", workload.flows));
        capture::write_udp_flows(&file, workload.packets, workload.flows)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut row = report::Row::new(workload.name);
        for _ in 0..rounds {
            let ours = shunt::Shunt::start(&folder.path().join("shunt"), &file);
            row.ours.push(measure(&ours, seconds));
            drop(ours);
            progress(start, row.ours.len() + row.rival.len() + rows_done(&rows), steps);
            if with_rival {
                let rival = rival::OvsDpdk::start(&folder.path().join("ovs"), &file);
                row.rival.push(measure(&rival, seconds));
                drop(rival);
                progress(start, row.ours.len() + row.rival.len() + rows_done(&rows), steps);
            }
        }
        rows.push(row);
    }
    println!();
    report::print(&rows);
    report::write(Path::new("docs/results/spine.json"), &rows);
}

fn rows_done(rows: &[report::Row]) -> usize {
    rows.iter().map(|row| row.ours.len() + row.rival.len()).sum()
}

fn progress(start: Instant, done: usize, steps: usize) {
    let elapsed = start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let left = elapsed / done as f64 * (steps - done) as f64;
    println!("[{}{}] {left:.0} s left", "#".repeat(done), ".".repeat(steps - done));
}

/// Lets a switch warm up, then measures for some seconds.
fn measure(switch: &impl Switch, seconds: u64) -> Sample {
    sleep(Duration::from_secs(2));
    let (process, thread) = switch.thread();
    let (packets, run, cycles, time) =
        (switch.received(), cpu::run_ns(process, thread), tsc::cycles(), Instant::now());
    sleep(Duration::from_secs(seconds));
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds fit a float")]
    let (packets, run, cycles, elapsed) = (
        (switch.received() - packets) as f64,
        (cpu::run_ns(process, thread) - run) as f64,
        (tsc::cycles() - cycles) as f64,
        time.elapsed().as_secs_f64(),
    );
    let share = run / (elapsed * 1e9);
    Sample { rate: packets / elapsed, cycles: cycles * share / packets.max(1.0), share }
}
