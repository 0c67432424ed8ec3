//! A switch with four tables, a controller and cached flows, between cables.

use std::{fs, ops::Range, path::Path, thread::sleep, time::Duration};

use super::{
    super::{
        cables::Cables,
        tables::{self, READ},
        windows::Sink,
    },
    probe::{self, Way},
};
use crate::{
    controller::{CONTROLLER, Controller},
    switch::{Contender, PortSpec, Setup, Switch, output},
    wire::{Frame, WireReceiver, WireSender},
};

/// Tables that every packet goes through.
pub(crate) const TABLES: u8 = 4;
/// Packets under way at once while flows are cached: fewer than the receive ring of a thread holds.
const WINDOW: u32 = 128;
/// How often flows are cached until most are.
const ATTEMPTS: usize = 2;
/// How long a window is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// Flows that leave by way A, or B; those from here on leave by a port of their own.
pub(crate) const WATCHED: u32 = 2048;

/// Port numbers: in, out for all others, and the two ways.
const IN: u32 = 1;
const OTHERS: u32 = 2;
const A: u32 = 3;
const B: u32 = 4;

/// A running switch with its cables.
pub(crate) struct Bed {
    pub(crate) switch: Box<dyn Switch>,
    pub(crate) sender: WireSender,
    /// The far ends of all ports that something leaves by.
    sink: Sink,
    // They go after the switch.
    cables: Cables,
}

impl Bed {
    /// A switch with its rules, and nothing cached.
    pub(crate) fn new(contender: &Contender, folder: &Path, setup: &Setup) -> Self {
        output("ip", &["link", "set", "lo", "up"]);
        let cables = Cables::plug("live", B);
        let ports = cables.near().map(PortSpec::Device).collect();
        let controller = Some(CONTROLLER);
        let setup = Setup { ports, controller, keeps_entries: true, ..setup.clone() };
        let switch = contender.start(folder, &setup);
        let devices = [OTHERS, A, B].map(|port| cables.far(port)).to_vec();
        let sink = Sink { devices, stall_budget: PATIENCE };
        let sender = WireSender::open(&cables.far(IN));
        let bed = Self { switch, sender, sink, cables };
        bed.load();
        bed
    }

    fn load(&self) {
        let mut rules = tables::chain(TABLES).rules;
        rules.push(rule(40_000, WATCHED, Way::A));
        let file = self.switch.folder().join("rules");
        let written = fs::write(&file, rules.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.switch.ofctl(&["--bundle"], "add-flows", &[&file.display().to_string()]);
        // What the switch does after that for itself is over then.
        sleep(Duration::from_millis(600));
    }

    /// Sends a packet of each flow and awaits it, so that all are cached; answers how many arrived.
    pub(crate) fn cache(&self, flows: Range<u32>) -> u32 {
        let mut window: Vec<Frame> = Vec::new();
        let last = flows.end.saturating_sub(1);
        self.sink.send(flows, WINDOW, |flow| {
            window.push(probe::plain(flow));
            if window.len() >= WINDOW as usize || flow == last {
                self.sender.send(&window);
                window.clear();
            }
            true
        })
    }

    /// Caches flows, and does so again where the switch has thrown away most of them; answers how many
    /// it has.
    pub(crate) fn fill(&self, flows: u32) -> u64 {
        let mut cached = 0;
        for _ in 0..ATTEMPTS {
            self.cache(0..flows);
            cached = self.switch.cached();
            if cached >= u64::from(flows / 2) {
                break;
            }
        }
        cached
    }

    /// Waits for the switch to connect, once what takes long is done.
    pub(crate) fn controller(&self) -> Controller {
        Controller::accept()
    }

    /// The far end of a way.
    pub(crate) fn receiver(&self, way: Way) -> WireReceiver {
        WireReceiver::open(&self.cables.far(port(way)))
    }

    /// Packets that came out, by any way.
    pub(crate) fn arrived(&self) -> u32 {
        self.sink.arrived()
    }
}

/// The rule that sends the first flows by a way, in the last table: so many, a power of two.
pub(crate) fn rule(priority: u16, flows: u32, way: Way) -> String {
    format!("{},actions={READ},output:{}", rule_match(priority, flows), port(way))
}

/// The same, with an action before the output.
pub(crate) fn rule_with(priority: u16, flows: u32, (action, way): (&str, Way)) -> String {
    format!("{},actions={READ},{action},output:{}", rule_match(priority, flows), port(way))
}

/// What that rule matches, as a strict deletion names it.
pub(crate) fn rule_match(priority: u16, flows: u32) -> String {
    let bits = 32 - flows.max(1).ilog2();
    format!("table={},priority={priority},udp,nw_dst=10.0.0.0/{bits}", TABLES - 1)
}

/// A rule that no flow meets.
pub(crate) fn elsewhere_match(priority: u16) -> String {
    format!("table={},priority={priority},udp,nw_dst=10.255.0.0/16", TABLES - 1)
}

/// The number of the port of a way.
pub(crate) const fn port(way: Way) -> u32 {
    match way {
        Way::A => A,
        Way::B => B,
    }
}
