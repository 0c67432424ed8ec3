//! Frames between two network devices, through a switch with one packet thread.
//!
//! Each device is one end of a pair of virtual devices (veth), or a TAP device of the switch. A
//! sender at the far end of the first device sends without pauses. The sender is faster than a slow
//! switch, and the kernel drops the excess. An L4 rule forwards each frame to the second device,
//! and nobody reads at the far end.

use std::{
    fs,
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
    capture, cpu,
    experiment::{Row, Run},
    switch::{Contender, PortSpec, Setup, Switch, output},
    wire::WireSender,
};

/// Flows of the sender.
const FLOWS: u32 = 1000;

/// The rule: an L4 match, so that no switch can take a shortcut.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// Time until the kernel treats a port as busy, and until the caches are full.
const WARM: Duration = Duration::from_secs(2);

/// The type of all ports of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DevicePort {
    /// Packet sockets on veth devices.
    Packet,
    /// AF_XDP sockets on veth devices.
    Xdp,
    /// AF_XDP sockets on veth devices, which both switches poll without end.
    PolledXdp,
    /// TAP devices that the switch creates.
    Tap,
}

/// A switch with ports of one type, and the devices at their far ends.
///
/// The switch ends before its devices.
pub(super) struct DeviceSwitch {
    pub(super) switch: Box<dyn Switch>,
    /// The devices behind the ports: frames for the switch are sent here.
    pub(super) outside: Vec<String>,
    _cables: Option<Cables>,
}

impl DevicePort {
    /// The types of ports, each as installed.
    pub(super) const ALL: [Self; 3] = [Self::Packet, Self::Xdp, Self::Tap];

    /// Returns the switches that have ports of this type.
    pub(super) fn contenders(self, all: &[Contender]) -> Vec<Contender> {
        all.iter().filter(|contender| self.is_of(contender)).cloned().collect()
    }

    /// Returns whether a switch has ports of this type.
    pub(super) fn is_of(self, contender: &Contender) -> bool {
        match self {
            Self::Packet | Self::Tap => true,
            Self::Xdp | Self::PolledXdp => contender.has_xdp(),
        }
    }

    /// Returns the function from the name of a device to the port of a switch.
    pub(super) const fn spec(self) -> fn(String) -> PortSpec {
        match self {
            Self::Packet => PortSpec::Device,
            Self::Xdp => PortSpec::Xdp,
            Self::PolledXdp => PortSpec::PolledXdp,
            Self::Tap => PortSpec::Tap,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Packet => "between network devices",
            Self::Xdp => "between network devices by AF_XDP",
            Self::PolledXdp => "between network devices by AF_XDP, with busy polling",
            Self::Tap => "between TAP devices",
        }
    }
}

impl DeviceSwitch {
    /// Starts a switch with `count` ports and one packet thread, without rules.
    ///
    /// `prefix` begins the names of the devices.
    pub(super) fn start(
        contender: &Contender,
        folder: &Path,
        port: DevicePort,
        prefix: &'static str,
        count: u32,
    ) -> Self {
        let (cables, inside, outside) = match port {
            DevicePort::Packet | DevicePort::Xdp | DevicePort::PolledXdp => {
                let cables = Cables::plug(prefix, count);
                let inside: Vec<String> = cables.near().collect();
                let outside = (1..=count).map(|number| cables.far(number)).collect();
                (Some(cables), inside, outside)
            }
            DevicePort::Tap => {
                // A device of the previous switch may still be closing.
                let end = if *contender == Contender::ours() { "own" } else { "rival" };
                let names = (1..=count).map(|number| format!("{prefix}{number}{end}"));
                let names: Vec<String> = names.collect();
                (None, names.clone(), names)
            }
        };
        let ports = inside.into_iter().map(port.spec()).collect();
        let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
        let switch = contender.start(folder, &setup);
        for device in &outside {
            output("ip", &["link", "set", device, "up"]);
        }
        Self { switch, outside, _cables: cables }
    }
}

/// Measures both switches with each type of port and each length of frames.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    // Only packets of the experiment may arrive.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let all = Contender::both_on_devices();
    let mut rows = Vec::new();
    for port in DevicePort::ALL {
        let measure = |contender: &Contender, folder: &Path, length, seconds| {
            measure(port, contender, folder, length, seconds)
        };
        rows.extend(rows_by_length(run, port.name(), &port.contenders(&all), measure));
    }
    rows
}

fn measure(
    port: DevicePort,
    contender: &Contender,
    folder: &Path,
    length: u16,
    seconds: u64,
) -> Sample {
    let devices = DeviceSwitch::start(contender, folder, port, "kernel", 2);
    devices.switch.ofctl(&[], "add-flow", &[RULE]);
    under_load(&devices.outside[0], length, || {
        thread::sleep(WARM);
        sample(&*devices.switch, seconds)
    })
}

/// Runs `measure` while frames are sent into `device`.
pub(super) fn under_load<R>(device: &str, length: u16, measure: impl FnOnce() -> R) -> R {
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(|flow| frame(flow, length)).collect();
    let (sender, is_over) = (WireSender::open(device), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            cpu::avoid(FORWARDING_CPU);
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
pub(super) fn frame(flow: u32, length: u16) -> Vec<u8> {
    let mut frame = capture::frame(flow).to_vec();
    frame.resize(length.into(), 0);
    frame
}
