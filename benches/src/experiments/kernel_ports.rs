//! Frames between two network devices, through a switch with one packet thread.
//!
//! Each device is one end of a pair of virtual devices (veth). A sender at the far end of the first sends
//! without pauses, more than the switch takes where the switch is the slower one; the kernel drops the
//! rest. An L4 rule forwards each frame to the second device, and nobody reads at its far end.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{
    cables::Cables,
    forwarding::{FORWARDING_CPU, Sample, pair_rows, sample},
};
use crate::{
    capture,
    experiment::{Row, Run},
    switch::{Contender, PortSpec, Setup},
    wire::WireSender,
};

/// Lengths of the frames in bytes, without their check sequence.
const LENGTHS: [usize; 3] = [64, 512, 1500];

/// Flows of the sender.
const FLOWS: u32 = 1000;

/// The rule: an L4 match, so that no switch can take a shortcut.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// Time for the kernel to see that a port is busy, and for the caches to fill.
const WARM: Duration = Duration::from_secs(2);

/// Measures both switches with each length of frames.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let names: Vec<String> = contenders.iter().map(Contender::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (rounds, seconds) = (run.either(3, 1), run.either(4, 1) as u64);
    run.begin(LENGTHS.len() * rounds * contenders.len());
    let mut rows = Vec::new();
    for length in LENGTHS {
        let mut samples = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (contender, samples) in contenders.iter().zip(&mut samples) {
                let what = format!("{length} bytes, {}", contender.name());
                let measured =
                    run.step(&what, |folder| measure(contender, folder, length, seconds));
                samples.push(measured);
            }
        }
        if !contenders.is_empty() {
            let pair = ("between network devices", 0, (contenders.len() > 1).then_some(1));
            rows.extend(pair_rows(&format!("{length} bytes"), &pair, &names, &samples));
        }
    }
    rows
}

fn measure(contender: &Contender, folder: &Path, length: usize, seconds: u64) -> Sample {
    let cables = Cables::plug("kernel", 2);
    let ports = cables.near().map(PortSpec::Device).collect();
    let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
    let switch = contender.start(folder, &setup);
    switch.ofctl(&[], "add-flow", &[RULE]);
    under_load(&cables.far(1), length, || {
        thread::sleep(WARM);
        sample(&*switch, seconds)
    })
}

/// Runs `measure` while frames are sent into `device`.
fn under_load<R>(device: &str, length: usize, measure: impl FnOnce() -> R) -> R {
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(|flow| frame(flow, length)).collect();
    let (sender, is_over) = (WireSender::open(device), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                sender.send(&frames);
            }
        });
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Returns a UDP frame of `flow` with this length.
fn frame(flow: u32, length: usize) -> Vec<u8> {
    let mut frame = capture::frame(flow).to_vec();
    frame.resize(length, 0);
    frame
}
