//! memif ports with DPDK's driver `net_memif` in `dpdk-testpmd` at the other end.
//!
//! Two devices of one program are at two ports of a bridge that connects the devices. The program
//! forwards from each device to the other device. So frames circle until the program stops, and
//! both sides count the frames. Both ports share a socket, and have the numbers 0 and 1.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;
use shunt_tests::{
    daemon::{Daemon, error_text, text, wait_until},
    namespace::print_skipped,
    testpmd::Testpmd,
};
use tempfile::TempDir;

/// Connects the two ports.
const CABLE: [&str; 2] = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"];

/// The side that listens at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemifServer {
    Peer,
    Switch,
}

/// A switch with two memif ports.
struct MemifSwitch {
    daemon: Daemon,
    folder: TempDir,
    server: MemifServer,
}

impl MemifSwitch {
    /// Starts a switch; `None` without the program of the peer.
    fn start(server: MemifServer, threads: u16, options: &str) -> Option<Self> {
        if !Testpmd::is_installed() {
            print_skipped("memif ports need dpdk-testpmd, of the package dpdk-dev");
            return None;
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let role = if server == MemifServer::Switch { "server" } else { "client" };
        let socket = folder.path().join("memif.sock");
        let mut configuration =
            format!("[threads]\npacket = {threads}\n[[bridge]]\nname = \"br0\"\n");
        for id in [0, 1] {
            configuration += &format!(
                "[[bridge.port]]\nname = \"m{id}\"\nnumber = {}\ntype = \"memif\"\n\
                 socket = {socket:?}\nid = {id}\nrole = \"{role}\"\n{options}\n",
                id + 1
            );
        }
        let switch = Self { daemon: Daemon::start(&configuration), folder, server };
        switch.add_rules();
        Some(switch)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("memif.sock")
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

    /// Starts a peer, and waits for the links.
    fn start_peer(&self, options: &str) -> Testpmd {
        let role = if self.server == MemifServer::Peer { "server" } else { "client" };
        if self.server == MemifServer::Peer {
            // A peer that was killed has left the socket, and DPDK does not replace the socket.
            let _ = fs::remove_file(self.socket());
        }
        let socket = self.socket();
        let devices = [0, 1].map(|id| {
            let place = format!("socket={},socket-abstract=no,id={id}", socket.display());
            format!("net_memif{id},role={role},{place}{options}")
        });
        let peer = Testpmd::start(&devices);
        peer.await_prompt();
        self.await_links("up");
        peer
    }

    fn ports(&self) -> Vec<Value> {
        let ports = text(&self.daemon.shuntctl(&["ports", "--json"]));
        let ports: Value = serde_json::from_str(&ports).unwrap_or_else(|error| panic!("{error}"));
        let ports = ports.as_array().into_iter().flatten();
        ports.filter(|port| port["type"] == "memif").cloned().collect()
    }

    fn await_links(&self, state: &str) {
        let is_reached = || {
            let ports = self.ports();
            let mut links = ports.iter().map(|port| port["link"].as_str().unwrap_or_default());
            ports.len() == 2 && links.all(|link| link.starts_with(state))
        };
        assert!(wait_until(is_reached), "{:?}\n{}", self.ports(), self.daemon.log());
    }

    /// Lets frames circle for some rounds, and compares the counters of both sides.
    fn exchange(&self, peer: &mut Testpmd) {
        let before = self.ports();
        let received = |ports: &[Value]| ports[0]["rx_packets"].as_u64().unwrap_or_default();
        peer.run("clear port stats all");
        peer.run("start tx_first 1");
        let circles = || received(&self.ports()) > received(&before) + 2000;
        assert!(wait_until(circles), "{:?}\n{}", self.ports(), self.daemon.log());
        peer.run("stop");
        // Frames of the last round may still be in flight.
        let mut last = (Vec::new(), Vec::new());
        let is_quiet = || {
            let now = (peer.counts(), self.ports());
            let is_same = now == last;
            last = now;
            is_same
        };
        assert!(wait_until(is_quiet), "the counters do not rest");
        let (counts, after) = last;
        for (device, (received, sent)) in counts.into_iter().enumerate() {
            let count = |port: usize, key| {
                let count = |ports: &[Value]| ports[port][key].as_u64().unwrap_or_default();
                count(&after) - count(&before)
            };
            assert_eq!(count(device, "rx_packets"), sent, "what device {device} sent has arrived");
            assert_eq!(count(device, "rx_dropped"), 0);
            // A stopped peer leaves the frames of the last round in its ring.
            let in_ring = count(device, "tx_packets") - received;
            assert!(in_ring <= 1024, "device {device} has {in_ring} frames in its ring");
            let sent = count(device, "tx_packets") + count(device, "tx_dropped");
            assert_eq!(sent, count(1 - device, "rx_packets"));
        }
    }
}

#[test]
fn client_reconnects_after_either_restarts() {
    let Some(mut switch) = MemifSwitch::start(MemifServer::Peer, 1, "") else { return };
    switch.await_links("down: no peer is connected: ");
    let mut peer = switch.start_peer("");
    switch.exchange(&mut peer);
    switch.kill();
    switch.await_links("up");
    switch.exchange(&mut peer);
    drop(peer);
    switch.await_links("down: no peer is connected: ");
    let mut peer = switch.start_peer("");
    switch.exchange(&mut peer);
    let log = switch.daemon.log();
    let attempts = log.matches("Connection refused").count();
    assert!(attempts <= 2, "each port logs a reason once: {log}");
}

#[test]
fn a_server_serves_one_client_after_the_other() {
    let Some(mut switch) = MemifSwitch::start(MemifServer::Switch, 2, "") else { return };
    for options in ["", ",rsize=5,bsize=64"] {
        let mut peer = switch.start_peer(options);
        switch.exchange(&mut peer);
        drop(peer);
        switch.await_links("down: no peer is connected: ");
    }
    switch.kill();
    let mut peer = switch.start_peer("");
    switch.exchange(&mut peer);
    // The driver of DPDK connects again when the DPDK ports start again.
    switch.kill();
    peer.run("port stop all");
    peer.run("port start all");
    switch.await_links("up");
    switch.exchange(&mut peer);
}

#[test]
fn both_sides_need_the_same_secret() {
    let secret = "secret = \"word\"";
    let Some(switch) = MemifSwitch::start(MemifServer::Switch, 1, secret) else { return };
    let mut peer = switch.start_peer(",secret=word");
    switch.exchange(&mut peer);
    drop(peer);
    let Some(switch) = MemifSwitch::start(MemifServer::Peer, 1, secret) else { return };
    let mut peer = switch.start_peer(",secret=word");
    switch.exchange(&mut peer);
    drop(peer);
    let _ = fs::remove_file(switch.socket());
    let socket = switch.socket();
    let device = format!("net_memif0,role=server,socket={},secret=other", socket.display());
    let _other = Testpmd::start(&[format!("{device},socket-abstract=no")]);
    let is_refused = || {
        let ports = switch.ports();
        ports[0]["link"].as_str().is_some_and(|link| link.contains("Incorrect secret"))
    };
    assert!(wait_until(is_refused), "{:?}\n{}", switch.ports(), switch.daemon.log());
}

#[test]
fn ports_are_added_and_deleted_at_run_time() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let socket = format!("socket={}", folder.path().join("memif.sock").display());
    let add = |name: &str, more: &[&str]| {
        daemon.shuntctl(&[&["add-port", "br0", name, "type=memif", &socket], more].concat())
    };
    text(&add("s0", &["role=server", "id=5"]));
    text(&add("c0", &["id=5"]));
    let error = error_text(&add("s1", &["role=server", "id=5"]));
    assert!(error.contains("memif server with id 5 at ") && error.contains("s0"), "{error}");
    let error = error_text(&add("s1", &["role=master"]));
    assert!(error.contains("unknown value of role `master`"), "{error}");
    let both_up = || {
        let ports = text(&daemon.shuntctl(&["ports", "--json"]));
        let ports: Value = serde_json::from_str(&ports).unwrap_or_default();
        let mut ports = ports.as_array().into_iter().flatten();
        ports.all(|port| port["type"] != "memif" || port["link"] == "up")
    };
    assert!(wait_until(both_up), "{}", daemon.log());
    text(&daemon.shuntctl(&["del-port", "s0"]));
    let is_down = || text(&daemon.shuntctl(&["show"])).contains("c0 (memif, down: no peer");
    assert!(wait_until(is_down), "{}", text(&daemon.shuntctl(&["show"])));
    text(&add("s0", &["role=server", "id=5"]));
    assert!(wait_until(both_up), "{}", daemon.log());
}
