//! Frames between two virtual devices of DPDK, through a switch with one packet thread.
//!
//! `net_null` delivers frames of zeros without end, and discards. These frames cost nearly nothing,
//! so the figure is the switch alone, with the simplest rule. `net_pcap` copies each frame out of a
//! capture, and an L4 rule forwards the frame.

use std::{path::Path, thread::sleep, time::Duration};

use super::{
    forwarding::{FORWARDING_CPU, Sample, rows_by_length, sample},
    kernel_ports::frame,
};
use crate::{
    capture::Capture,
    experiment::{Row, Run},
    switch::{Contender, PortSpec, Setup},
};

/// Frames of the capture, each of another flow.
///
/// The driver keeps all frames in buffers of the port, and a port of Shunt has about 1,500.
const FRAMES: u32 = 256;

/// Time until the caches are full.
const WARM: Duration = Duration::from_secs(2);

/// The source of the frames.
#[derive(Clone, Copy, Debug)]
enum DpdkSource {
    Null,
    Capture,
}

/// Measures Shunt and OVS-DPDK with each source of frames.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let ours = Contender::ours();
    if !ours.has_dpdk(run.folder.path()) {
        return run.skip(
            "shuntd was built without DPDK: run `cargo xtask bench ports-dpdk --dpdk`, which \
             installs libdpdk",
        );
    }
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    let contenders: Vec<Contender> = [Some(ours), rival].into_iter().flatten().collect();
    let mut rows = Vec::new();
    for source in [DpdkSource::Null, DpdkSource::Capture] {
        let measure = |contender: &Contender, folder: &Path, length, seconds| {
            measure(source, contender, folder, length, seconds)
        };
        rows.extend(rows_by_length(run, source.name(), &contenders, measure));
    }
    rows
}

impl DpdkSource {
    const fn name(self) -> &'static str {
        match self {
            Self::Null => "from net_null to net_null",
            Self::Capture => "from net_pcap to net_null",
        }
    }

    /// Returns the rule of the switch.
    const fn rule(self) -> &'static str {
        match self {
            // Frames of zeros have no headers.
            Self::Null => "in_port=1,actions=output:2",
            Self::Capture => "udp,in_port=1,actions=output:2",
        }
    }

    /// Returns the port that receives frames of `length` bytes.
    fn port(self, folder: &Path, length: u16) -> PortSpec {
        match self {
            Self::Null => dpdk("net_null", format!("size={length}")),
            Self::Capture => {
                let file = folder.join("dpdk.pcap");
                let mut capture = Capture::with_room(0);
                (0..FRAMES).for_each(|flow| capture.push(&frame(flow, length)));
                let written = capture.write(&file);
                written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                dpdk("net_pcap", format!("rx_pcap={},infinite_rx=1", file.display()))
            }
        }
    }
}

const fn dpdk(driver: &'static str, arguments: String) -> PortSpec {
    PortSpec::Dpdk { driver, arguments }
}

fn measure(
    source: DpdkSource,
    contender: &Contender,
    folder: &Path,
    length: u16,
    seconds: u64,
) -> Sample {
    let ports = vec![source.port(folder, length), dpdk("net_null", "no-rx=1".to_owned())];
    let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
    let switch = contender.start(folder, &setup);
    switch.ofctl(&[], "add-flow", &[source.rule()]);
    sleep(WARM);
    sample(&*switch, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capture_fits_into_the_buffers() {
        let folder = tempfile::tempdir().unwrap();
        let port = DpdkSource::Capture.port(folder.path(), 512);
        let file = folder.path().join("dpdk.pcap");
        let expected = format!("rx_pcap={},infinite_rx=1", file.display());
        let PortSpec::Dpdk { driver, arguments } = port else {
            panic!("the port has no driver of DPDK")
        };
        assert_eq!((driver, arguments), ("net_pcap", expected));
        let length = std::fs::metadata(file).unwrap().len();
        assert_eq!(length, 24 + u64::from(FRAMES) * (16 + 512));
        const { assert!(FRAMES < 1024) };
    }
}
