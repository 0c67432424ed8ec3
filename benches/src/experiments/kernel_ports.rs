//! Frames between two network devices, through a switch with one packet thread.
//!
//! Each device is one end of a pair of virtual devices (veth). A sender at the far end of the first
//! device sends without pauses. The sender is faster than a slow switch, and the kernel drops the
//! excess. An L4 rule forwards each frame to the second device, and nobody reads at the far end.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{
    cables::Cables,
    forwarding::{FORWARDING_CPU, Sample, rows_by_length, sample},
};
use crate::{
    capture,
    experiment::{Row, Run},
    switch::{Contender, PortSpec, Setup},
    wire::WireSender,
};

/// Flows of the sender.
const FLOWS: u32 = 1000;

/// The rule: an L4 match, so that no switch can take a shortcut.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// Time until the kernel treats a port as busy, and until the caches are full.
const WARM: Duration = Duration::from_secs(2);

/// Measures both switches with each length of frames.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    rows_by_length(run, "between network devices", &Contender::both_on_devices(), measure)
}

fn measure(contender: &Contender, folder: &Path, length: u16, seconds: u64) -> Sample {
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
fn under_load<R>(device: &str, length: u16, measure: impl FnOnce() -> R) -> R {
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

/// Returns a UDP frame of `flow` with `length` bytes.
fn frame(flow: u32, length: u16) -> Vec<u8> {
    let mut frame = capture::frame(flow).to_vec();
    frame.resize(length.into(), 0);
    frame
}
