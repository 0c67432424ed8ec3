//! A switch with four tables, a controller and cached flows, between virtual devices.

use std::{fs, ops::Range, path::Path, thread::sleep, time::Duration};

use super::{
    super::{
        cables::Cables,
        tables::{self, READ},
        windows::Sink,
    },
    probe::{self, Exit},
};
use crate::{
    controller::{CONTROLLER, Controller},
    switch::{Contender, PortSpec, Setup, Switch, output},
    wire::{Frame, WireReceiver, WireSender},
};

/// Number of tables that every packet passes.
pub(crate) const TABLES: u8 = 4;
/// Packets in flight while flows are cached.
///
/// The number is less than the size of the receive ring of a thread.
const WINDOW: u32 = 128;
/// Maximum attempts until most flows are cached.
const ATTEMPTS: usize = 2;
/// Maximum time to wait for a window.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Number of watched flows, which leave through exit A or B.
///
/// Later flows leave through another port.
pub(crate) const WATCHED: u32 = 2048;

/// Number of the ingress port.
const IN: u32 = 1;
/// Number of the port of flows that are not watched.
const OTHERS: u32 = 2;
/// Number of the port of exit A.
const A: u32 = 3;
/// Number of the port of exit B.
const B: u32 = 4;

/// A running switch with its virtual devices.
pub(crate) struct Testbed {
    pub(crate) switch: Box<dyn Switch>,
    pub(crate) sender: WireSender,
    /// The far ends of all exits.
    sink: Sink,
    // This field is dropped after the switch.
    cables: Cables,
}

impl Testbed {
    /// Creates a switch with its rules and an empty cache.
    pub(crate) fn new(contender: &Contender, folder: &Path, setup: &Setup) -> Self {
        output("ip", &["link", "set", "lo", "up"]);
        let cables = Cables::plug("live", B);
        let ports = cables.near().map(PortSpec::Device).collect();
        let controller = Some(CONTROLLER);
        let setup = Setup { ports, controller, keeps_entries: true, ..setup.clone() };
        let switch = contender.start(folder, &setup);
        let devices = [OTHERS, A, B].map(|port| cables.far(port)).to_vec();
        let sink = Sink { devices, timeout: TIMEOUT };
        let sender = WireSender::open(&cables.far(IN));
        let testbed = Self { switch, sender, sink, cables };
        testbed.load();
        testbed
    }

    fn load(&self) {
        let mut rules = tables::chain(TABLES).rules;
        rules.push(rule(40_000, WATCHED, Exit::A));
        let file = self.switch.folder().join("rules");
        let written = fs::write(&file, rules.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.switch.ofctl(&["--bundle"], "add-flows", &[&file.display().to_string()]);
        // Background work of the switch has ended after this pause.
        sleep(Duration::from_millis(600));
    }

    /// Sends one packet per flow and waits for the packet,
    /// so that all flows are cached.
    ///
    /// Returns the number of packets that arrived.
    pub(crate) fn cache(&self, flows: Range<u32>) -> u32 {
        let mut window: Vec<Frame> = Vec::new();
        let last = flows.end.saturating_sub(1);
        self.sink.send(flows, WINDOW, |flow| {
            window.push(probe::plain_packet(flow));
            if window.len() >= WINDOW as usize || flow == last {
                self.sender.send(&window);
                window.clear();
            }
            true
        })
    }

    /// Caches flows, and repeats this if the switch evicted most of the flows.
    ///
    /// Returns the number of entries.
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

    /// Waits for the switch to connect. Callers wait after the slow preparations.
    pub(crate) fn controller(&self) -> Controller {
        Controller::accept()
    }

    /// Returns the far end of an exit.
    pub(crate) fn receiver(&self, exit: Exit) -> WireReceiver {
        WireReceiver::open(&self.cables.far(port(exit)))
    }

    /// Returns the number of packets that left through any exit.
    pub(crate) fn arrived(&self) -> u32 {
        self.sink.arrived()
    }
}

/// Returns the rule that sends the first `flows` flows to an exit.
///
/// The rule is in the last table, and `flows` is a power of two.
pub(crate) fn rule(priority: u16, flows: u32, exit: Exit) -> String {
    format!("{},actions={READ},output:{}", rule_match(priority, flows), port(exit))
}

/// Returns the same rule with an action before the output.
pub(crate) fn rule_with(priority: u16, flows: u32, action: &str, exit: Exit) -> String {
    format!("{},actions={READ},{action},output:{}", rule_match(priority, flows), port(exit))
}

/// Returns the match of the rule of [`rule`], for a strict deletion.
pub(crate) fn rule_match(priority: u16, flows: u32) -> String {
    let bits = 32 - flows.max(1).ilog2();
    format!("table={},priority={priority},udp,nw_dst=10.0.0.0/{bits}", TABLES - 1)
}

/// Returns a match that no flow has.
pub(crate) fn elsewhere_match(priority: u16) -> String {
    format!("table={},priority={priority},udp,nw_dst=10.255.0.0/16", TABLES - 1)
}

/// Returns the port number of an exit.
pub(crate) const fn port(exit: Exit) -> u32 {
    match exit {
        Exit::A => A,
        Exit::B => B,
    }
}
