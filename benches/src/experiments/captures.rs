//! A workload as capture files, for switches with ports that replay captures.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use shunt_pipebench::traffic::FRAME_MIN;

use super::loaded::workload;
use crate::{
    capture::Capture,
    switch::{PortSpec, Switch},
};

/// Maximum packets of all captures.
///
/// OVS-DPDK keeps the packets in its buffers, and has more buffers than that.
const PACKETS: usize = 180_000;
/// The port that all packets leave through.
const OUT: u32 = 2;

/// Maximum time for a switch to set up all flows.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until a switch with replaying ports has set up all of its flows.
pub(crate) fn await_flows(switch: &dyn Switch) {
    let mut cached = 0;
    for _ in 0..TIMEOUT.as_secs() {
        sleep(Duration::from_secs(1));
        let before = std::mem::replace(&mut cached, switch.cached());
        if cached > 0 && cached == before {
            break;
        }
    }
}

/// The files of a workload.
pub(crate) struct Files {
    pub(crate) rules: PathBuf,
    /// Ports from number 1 on.
    pub(crate) ports: Vec<PortSpec>,
}

impl Files {
    /// Writes the rules of a workload, and a capture for each port with packets.
    pub(crate) fn of(name: &str, folder: &Path) -> Self {
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
            let packet = shunt_pipebench::traffic::ScheduledPacket { bytes: shortest, ..packet };
            let made = packet.write_frame(flows, &mut frame);
            made.unwrap_or_else(|error| panic!("{name}: {error}"));
            let port = flows[packet.flow as usize].in_port().number();
            // OpenFlow does not send a packet out of its ingress port.
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
