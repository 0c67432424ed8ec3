//! CPU of a complete switch for the first packet of a flow: receive, miss, translate, cache, send.
//!
//! Both switches have two packet sockets each on pairs of virtual devices, and run at the same
//! time; the inactive switch sleeps. A window of packets of new flows is sent and awaited before
//! the next window, so no switch is overrun. The value is the CPU time of all threads, which
//! depends less on other load than wall time. The difference between rows is the cost of tables and
//! actions.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    thread::sleep,
    time::Duration,
};

use super::{
    tables::{self, Case, SOURCE},
    windows::Sink,
};
use crate::{
    cpu::{Account, TimeSpent},
    experiment::{Row, Run, Samples},
    switch::{Contender, PortSpec, Setup, Switch, is_root, output},
};

/// Number of packets in flight between sender and receiver.
const IN_FLIGHT: u32 = 128;

/// Packets of new flows before the measured packets.
const WARM_UP: u32 = 512;

/// Maximum attempts to flush a switch's cache.
const FORGET_ATTEMPTS: usize = 50;

/// Maximum time to wait for a window.
const TIMEOUT: Duration = Duration::from_millis(200);

/// A switch between two pairs of devices.
struct TwoPortSwitch {
    switch: Box<dyn Switch>,
    socket: UdpSocket,
    /// The far end of port 2.
    sink: Sink,
    /// The destination address of the next new flow.
    next: u32,
}

/// Returns the number of progress steps for each switch.
pub(crate) fn steps(run: &Run) -> usize {
    if is_root() { cases(run).len() * rounds(run) } else { 0 }
}

const fn rounds(run: &Run) -> usize {
    run.either(5, 3)
}

fn cases(run: &Run) -> Vec<Case> {
    let chains = run.either(5, 2);
    let chains = if chains == 5 { &[1, 2, 4, 8, 16][..] } else { &[1, 16][..] };
    let actions = tables::actions();
    let actions = actions.into_iter().step_by(run.either(1, 7));
    chains.iter().map(|tables| tables::chain(*tables)).chain(actions).collect()
}

/// Runs every case in alternating rounds.
pub(crate) fn rows(run: &mut Run, contenders: &[Contender]) -> Vec<Row> {
    if !is_root() {
        println!("flow set-up needs virtual devices, and these need root: SKIPPED");
        return Vec::new();
    }
    let mut switches: Vec<TwoPortSwitch> = contenders
        .iter()
        .zip(0..)
        .map(|(one, index)| TwoPortSwitch::new(one, run.folder.path(), index))
        .collect();
    let packets = if run.is_quick { 2_048 } else { 12_288 };
    let mut rows = Vec::new();
    for case in cases(run) {
        let mut samples = vec![Vec::new(); switches.len()];
        for _ in 0..rounds(run) {
            for ((switch, samples), contender) in
                switches.iter_mut().zip(&mut samples).zip(contenders)
            {
                let what = format!("set-up, {}, {}", case.name, contender.name());
                samples.push(run.step(&what, |_| switch.measure(&case, packets)));
            }
        }
        let metric = if case.is_chain { CPU_BY_TABLES } else { CPU_BY_ACTIONS };
        let mut samples = samples.into_iter().map(Samples);
        let ours = samples.next().unwrap_or_default();
        let rival = contenders.get(1).map(Contender::name).zip(samples.next());
        rows.push(Row { ours, rival, ..Row::new(case.name, metric, "us") });
    }
    rows
}

const CPU_BY_TABLES: &str = "CPU of the switch to set up a flow, by number of tables";
const CPU_BY_ACTIONS: &str = "CPU of the switch to set up a flow, by action";

impl TwoPortSwitch {
    fn new(contender: &Contender, folder: &Path, index: u8) -> Self {
        let devices = [format!("in{index}"), format!("out{index}")];
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        for device in &devices {
            let far = format!("{device}-far");
            ip(&["link", "add", device, "type", "veth", "peer", "name", &far]);
            ip(&["link", "set", device, "up"]);
            ip(&["link", "set", &far, "up"]);
        }
        // Each switch has a quarter of 10/8 behind the first device, through a neighbour entry
        // without ARP.
        let far = format!("{}-far", devices[0]);
        let (address, hop) = (Ipv4Addr::from(SOURCE), format!("192.168.{}.2", 100 + index));
        ip(&["address", "add", &format!("{address}/32"), "dev", &far]);
        ip(&["route", "add", &format!("{hop}/32"), "dev", &far]);
        ip(&["neigh", "add", &hop, "lladdr", "02:00:00:00:00:02", "dev", &far, "nud", "permanent"]);
        let network = format!("10.{}.0.0/10", u16::from(index) * 64);
        ip(&["route", "add", &network, "via", &hop, "dev", &far, "src", &address.to_string()]);
        let ports = devices.iter().map(|device| PortSpec::Device(device.clone())).collect();
        let switch = contender.start(folder, &Setup { ports, ..Setup::default() });
        let socket = UdpSocket::bind((address, 0));
        let socket = socket.unwrap_or_else(|error| panic!("no socket: {error}"));
        let sink = Sink { devices: vec![format!("{}-far", devices[1])], timeout: TIMEOUT };
        Self { switch, socket, sink, next: u32::from(index) << 22 }
    }

    /// Returns the CPU microseconds for each of `packets` new flows.
    fn measure(&mut self, case: &Case, packets: u32) -> f64 {
        self.load(case);
        self.send(WARM_UP);
        let account = Account::open(self.switch.id());
        let arrived = self.send(packets);
        let TimeSpent { run_ns, .. } = account.spent();
        assert!(arrived > packets / 2, "{}: {arrived} of {packets} packets arrived", case.name);
        run_ns / 1e3 / f64::from(arrived)
    }

    /// Replaces all rules, which also evicts all cached flows.
    fn load(&self, case: &Case) {
        self.switch.ofctl(&[], "del-flows", &[]);
        self.switch.ofctl(&[], "del-groups", &[]);
        self.switch.ofctl(&[], "del-meters", &[]);
        for group in case.groups {
            self.switch.ofctl(&[], "add-group", &[group]);
        }
        for meter in case.meters {
            self.switch.ofctl(&[], "add-meter", &[meter]);
        }
        let file = self.switch.folder().join("rules");
        let written = fs::write(&file, case.rules.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.switch.ofctl(&["--bundle"], "add-flows", &[&file.display().to_string()]);
        // Background work of a switch after a rule change ends within this time.
        sleep(Duration::from_millis(600));
        self.forget();
    }

    /// Flushes the cached flows.
    ///
    /// If the same rules are added again, Open vSwitch keeps the flows of the previous round and
    /// revalidates these flows in this round.
    fn forget(&self) {
        for _ in 0..FORGET_ATTEMPTS {
            self.switch.forget_flows();
            if self.switch.cached() == 0 {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        panic!("{} flows are still cached", self.switch.cached());
    }

    /// Sends packets of new flows; returns the number of packets that left the switch.
    fn send(&mut self, packets: u32) -> u32 {
        let (first, socket) = (self.next, &self.socket);
        self.next += packets;
        let sent = |number: u32| {
            let [_, high, middle, low] = (first + number).to_be_bytes();
            let _ = socket.send_to(&[0; 18], (Ipv4Addr::new(10, high, middle, low), 2000));
            true
        };
        self.sink.send(0..packets, IN_FLIGHT, sent)
    }
}

fn ip(words: &[&str]) {
    output("ip", words);
}
