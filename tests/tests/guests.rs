//! Virtual machines at vhost-user ports: DPDK's virtio driver in `dpdk-testpmd` as the guest.
//!
//! Two cards of one guest are at two ports of a bridge that connects the cards. The guest forwards
//! from each card to the other card. So frames circle until the guest stops, and both sides count
//! the frames.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    fs,
    io::Write,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{scope, sleep},
    time::Duration,
};

use serde_json::Value;
use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::print_skipped,
    testpmd::Testpmd,
};
use tempfile::TempDir;

/// Connects the two ports.
const CABLE: [&str; 2] = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"];

/// The side that listens at the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// The switch has `mode = "client"`.
    Guest,
    /// The switch has `mode = "server"`.
    Switch,
}

/// Starts a guest with two cards. `Testpmd::await_prompt` waits for the guest.
fn start_guest(folder: &Path, listener: Listener, options: &str) -> Testpmd {
    let server = if listener == Listener::Guest { ",server=1" } else { "" };
    let devices = [0, 1].map(|card| {
        let path = socket(folder, card);
        if listener == Listener::Guest {
            // A guest that was killed has left the socket, and DPDK does not replace the socket.
            let _ = fs::remove_file(&path);
        }
        format!("net_virtio_user{card},path={}{server}{options}", path.display())
    });
    Testpmd::start(&devices)
}

fn socket(folder: &Path, card: u32) -> PathBuf {
    folder.join(format!("guest{card}.sock"))
}

/// A switch with two ports for a guest.
struct Switch {
    daemon: Daemon,
    folder: TempDir,
    listener: Listener,
}

impl Switch {
    /// Starts a switch; `None` without the program of the guest.
    fn start(listener: Listener, threads: u16) -> Option<Self> {
        if !Testpmd::is_installed() {
            print_skipped("vhost-user ports need dpdk-testpmd, of the package dpdk-dev");
            return None;
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let mode = if listener == Listener::Guest { "client" } else { "server" };
        let mut configuration =
            format!("[threads]\npacket = {threads}\n[[bridge]]\nname = \"br0\"\n");
        for card in [0, 1] {
            let (number, path) = (card + 1, socket(folder.path(), card));
            configuration += &format!(
                "[[bridge.port]]\nname = \"g{card}\"\nnumber = {number}\ntype = \"vhost_user\"\n\
                 path = {path:?}\nmode = \"{mode}\"\n"
            );
        }
        let switch = Self { daemon: Daemon::start(&configuration), folder, listener };
        switch.add_rules();
        Some(switch)
    }

    fn add_rules(&self) {
        for rule in CABLE {
            text(&self.daemon.ovs_ofctl("br0", "add-flow", &[rule]));
        }
    }

    /// Kills the switch, and starts the switch again without rules.
    fn kill(&mut self) {
        self.daemon.start_next("-KILL", |program| Command::new(program));
        self.add_rules();
    }

    fn start_guest(&self, options: &str) -> Testpmd {
        let guest = start_guest(self.folder.path(), self.listener, options);
        guest.await_prompt();
        self.await_links("up");
        guest
    }

    fn ports(&self) -> Vec<Value> {
        let ports = text(&self.daemon.shuntctl(&["ports", "--json"]));
        let ports: Value = serde_json::from_str(&ports).unwrap_or_else(|error| panic!("{error}"));
        let ports = ports.as_array().into_iter().flatten();
        ports.filter(|port| port["type"] == "vhost_user").cloned().collect()
    }

    /// Returns a number from the JSON of a port; 0 if the port does not have it.
    fn port_counter(&self, port: usize, key: &str) -> u64 {
        self.ports()[port][key].as_u64().unwrap_or_default()
    }

    fn await_links(&self, state: &str) {
        let is_reached = || {
            let mut ports = self.ports().into_iter();
            ports.all(|port| port["link"].as_str().is_some_and(|link| link.starts_with(state)))
        };
        assert!(wait_until(is_reached), "{:?}\n{}", self.ports(), self.daemon.log());
    }

    /// Lets frames circle for some rounds, and compares the counters of both sides.
    fn exchange(&self, guest: &mut Testpmd) {
        let before = self.ports();
        guest.run("clear port stats all");
        guest.run("start tx_first 1");
        let enough = self.port_counter(0, "rx_packets") + 2000;
        let circles = || self.port_counter(0, "rx_packets") > enough;
        assert!(wait_until(circles), "{:?}\n{}", self.ports(), self.daemon.log());
        guest.run("stop");
        // Frames of the last round may still be in flight.
        let mut last = (Vec::new(), Vec::new());
        let is_quiet = || {
            let now = (guest.counts(), self.ports());
            let is_same = now == last;
            last = now;
            is_same
        };
        assert!(wait_until(is_quiet), "the counters do not rest");
        let (guest_counts, after) = last;
        for (card, (received, sent)) in guest_counts.into_iter().enumerate() {
            let count = |key| {
                let count = |ports: &[Value]| ports[card][key].as_u64().unwrap_or_default();
                count(&after) - count(&before)
            };
            assert_eq!(count("rx_packets"), sent, "what card {card} sent has arrived");
            assert_eq!(count("rx_dropped"), 0);
            // A stopped guest leaves the frames of the last round in its queue.
            let ring = 256;
            let in_queue = count("tx_packets") - received;
            assert!(in_queue <= ring, "card {card} has {in_queue} frames in its queue");
            assert_eq!(
                count("tx_packets") + count("tx_dropped"),
                self.sent_to(card, &before, &after)
            );
        }
    }

    /// Returns the number of frames that the switch has received for a port.
    fn sent_to(&self, card: usize, before: &[Value], after: &[Value]) -> u64 {
        let other = 1 - card;
        let count = |ports: &[Value]| ports[other]["rx_packets"].as_u64().unwrap_or_default();
        count(after) - count(before)
    }
}

#[test]
fn a_guest_survives_a_killed_switch() {
    for options in ["", ",packed_vq=1"] {
        check_kills(options);
    }
}

fn check_kills(options: &str) {
    let Some(mut switch) = Switch::start(Listener::Guest, 1) else { return };
    switch.await_links("down: no hypervisor is connected: ");
    let mut guest = switch.start_guest(options);
    switch.exchange(&mut guest);
    for _ in 0..2 {
        switch.kill();
        switch.await_links("up");
        switch.exchange(&mut guest);
    }
    // The guest ends, and another guest starts.
    drop(guest);
    switch.await_links("down: no hypervisor is connected: ");
    let mut guest = switch.start_guest(options);
    switch.exchange(&mut guest);
    let log = switch.daemon.log();
    let attempts = log.matches("Connection refused").count();
    assert!(attempts <= 2, "each port logs a reason once: {log}");
}

#[test]
fn a_listening_port_serves_successive_guests() {
    let Some(mut switch) = Switch::start(Listener::Switch, 2) else { return };
    for _ in 0..2 {
        let mut guest = switch.start_guest("");
        switch.exchange(&mut guest);
        drop(guest);
        switch.await_links("down: no hypervisor is connected: ");
    }
    switch.kill();
    let mut guest = switch.start_guest("");
    switch.exchange(&mut guest);
}

#[test]
fn split_and_packed_rings_carry_frames() {
    let split = [",mrg_rxbuf=0,in_order=0", ",queue_size=1024", ",queues=2"];
    let packed = [
        ",packed_vq=1,mrg_rxbuf=0,in_order=0",
        ",packed_vq=1,queue_size=1024",
        ",packed_vq=1,queues=2",
    ];
    for options in split.into_iter().chain(packed) {
        let Some(switch) = Switch::start(Listener::Guest, 2) else { return };
        let mut guest = switch.start_guest(options);
        switch.exchange(&mut guest);
    }
}

/// A hypervisor sends a message byte by byte, for longer than an operator waits.
#[test]
fn a_slow_hypervisor_delays_no_change() {
    /// The longest payload of a message.
    const PAYLOAD: u32 = 264;
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = socket(folder.path(), 0);
    let key = format!("path={}", path.display());
    let add = ["add-port", "br0", "slow", "type=vhost_user", &key, "mode=server"];
    text(&daemon.shuntctl(&add));
    let mut stream = UnixStream::connect(&path).unwrap_or_else(|error| panic!("{error}"));
    let header: Vec<u8> = [5, 1, PAYLOAD].into_iter().flat_map(u32::to_le_bytes).collect();
    stream.write_all(&header).unwrap_or_else(|error| panic!("{error}"));
    let is_over = AtomicBool::new(false);
    let sent = scope(|scope| {
        let hypervisor = scope.spawn(|| {
            let is_sent = |_: &u32| {
                sleep(Duration::from_millis(100));
                !is_over.load(Relaxed) && stream.write_all(&[0]).is_ok()
            };
            (0..PAYLOAD).take_while(is_sent).count()
        });
        text(&daemon.shuntctl(&["del-port", "slow"]));
        text(&daemon.shuntctl(&["add-port", "br0", "other", "type=null"]));
        is_over.store(true, Relaxed);
        hypervisor.join().unwrap_or_else(|_| panic!("the hypervisor has panicked"))
    });
    assert!(sent < PAYLOAD as usize, "the changes waited for the whole message");
    assert!(!path.exists(), "the port has removed its socket");
}
