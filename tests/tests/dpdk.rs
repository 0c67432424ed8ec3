//! The daemon with DPDK ports: capture files, TAP, packet sockets and virtual machines.
//!
//! `cargo xtask test dpdk_ports` builds the daemon with the feature `dpdk`, and passes the folder.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use shunt_tests::{
    capture,
    daemon::{Daemon, error_text, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    traffic::{ping, tcp_stream},
};

/// Memory without huge pages, which a test machine may lack.
const MEMORY: &str = "[dpdk]\nmemory_mib = 128\nhuge_pages = \"off\"\n";

/// Returns the daemon with DPDK ports.
fn program() -> Option<PathBuf> {
    let Some(folder) = env::var_os("SHUNT_DPDK_PROGRAMS") else {
        print_skipped("a daemon with DPDK ports is built by `cargo xtask test dpdk_ports`");
        return None;
    };
    Some(Path::new(&folder).join("shuntd"))
}

/// Starts the daemon with one bridge; `more` is at the top of its configuration.
fn start(more: &str) -> Option<Daemon> {
    let program = program()?;
    let configuration = format!("{MEMORY}{more}[[bridge]]\nname = \"br0\"\n");
    Some(Daemon::start_with(&configuration, |_| Command::new(program)))
}

fn add_rule(daemon: &Daemon, rule: &str) {
    text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
}

fn add_port(daemon: &Daemon, name: &str, devargs: &str) {
    let devargs = format!("devargs={devargs}");
    text(&daemon.shuntctl(&["add-port", "br0", name, "type=dpdk", &devargs]));
}

/// Returns the error of a port that is refused.
fn refusal_of_port(daemon: &Daemon, name: &str, words: &[&str]) -> String {
    let arguments = [&["add-port", "br0", name, "type=dpdk"], words].concat();
    error_text(&daemon.shuntctl(&arguments))
}

/// Returns the state of a port.
fn port(daemon: &Daemon, name: &str) -> Value {
    let shown: Value =
        serde_json::from_str(&text(&daemon.shuntctl(&["ports", "--json"]))).unwrap_or_default();
    let ports = shown.as_array().cloned().unwrap_or_default();
    let found = ports.into_iter().find(|port| port["name"] == name);
    found.unwrap_or_else(|| panic!("no port {name} in {shown}"))
}

fn count(daemon: &Daemon, name: &str, key: &str) -> u64 {
    port(daemon, name)[key].as_u64().unwrap_or_default()
}

/// Returns Ethernet frames with different numbers and lengths.
fn frames(count: u16) -> Vec<Vec<u8>> {
    let frame = |number: u16| {
        let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
        frame.extend(number.to_be_bytes());
        frame.resize(60 + usize::from(number) % 1455, u8::try_from(number % 251).unwrap_or(0));
        frame
    };
    (0..count).map(frame).collect()
}

#[test]
fn frames_cross_two_devices_unchanged() {
    for threads in [1, 3] {
        let Some(daemon) = start(&format!("[threads]\npacket = {threads}\n")) else { return };
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let (input, written) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
        let sent = frames(3000);
        fs::write(&input, capture::write_frames(sent.clone()))
            .unwrap_or_else(|error| panic!("{error}"));
        add_rule(&daemon, "in_port=2,actions=output:1");
        add_port(&daemon, "out", &format!("net_pcap1,tx_pcap={}", written.display()));
        add_port(&daemon, "in", &format!("net_pcap0,rx_pcap={}", input.display()));
        let arrived = || count(&daemon, "out", "tx_packets") == 3000;
        assert!(wait_until(arrived), "{}\n{}", port(&daemon, "out"), daemon.log());
        assert_eq!(count(&daemon, "in", "rx_packets"), 3000);
        assert_eq!(port(&daemon, "out")["driver_counters"]["tx_good_packets"], 3000);
        for name in ["in", "out"] {
            assert_eq!(port(&daemon, name)["link"], "up");
            text(&daemon.shuntctl(&["del-port", name]));
        }
        let received = capture::read(&fs::read(&written).unwrap_or_default());
        assert_eq!(received.len(), 3000, "with {threads} threads");
        assert!(received == sent, "with {threads} threads");
    }
}

/// A guest with DPDK's virtio driver is at a vhost-user port of the same switch.
#[test]
fn dpdk_and_vhost_user_ports_exchange_frames() {
    let Some(daemon) = start("") else { return };
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let [input, written, socket] =
        ["in.pcap", "out.pcap", "guest.sock"].map(|name| folder.path().join(name));
    // The guest has 256 slots, and the reader of the file has no delay.
    let sent = frames(200);
    fs::write(&input, capture::write_frames(sent.clone()))
        .unwrap_or_else(|error| panic!("{error}"));
    let path = format!("path={}", socket.display());
    for rule in ["in_port=4,actions=output:1", "in_port=2,actions=output:3"] {
        add_rule(&daemon, rule);
    }
    text(&daemon.shuntctl(&["add-port", "br0", "vm", "type=vhost_user", &path, "mode=server"]));
    add_port(&daemon, "guest", &format!("net_virtio_user0,path={}", socket.display()));
    let is_up = || port(&daemon, "vm")["link"] == "up" && port(&daemon, "guest")["link"] == "up";
    assert!(wait_until(is_up), "{}\n{}", port(&daemon, "vm"), daemon.log());
    add_port(&daemon, "out", &format!("net_pcap3,tx_pcap={}", written.display()));
    add_port(&daemon, "in", &format!("net_pcap2,rx_pcap={}", input.display()));
    let arrived = || count(&daemon, "out", "tx_packets") == 200;
    assert!(wait_until(arrived), "{}\n{}", port(&daemon, "guest"), daemon.log());
    text(&daemon.shuntctl(&["del-port", "out"]));
    assert!(capture::read(&fs::read(&written).unwrap_or_default()) == sent);
}

/// DPDK's memif driver is at a memif port of the same switch, in both roles.
#[test]
fn dpdk_port_is_peer_of_memif_port() {
    for (own, driver) in [("server", "client"), ("client", "server")] {
        let Some(daemon) = start("") else { return };
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let [input, written, socket] =
            ["in.pcap", "out.pcap", "memif.sock"].map(|name| folder.path().join(name));
        // The ring has 1024 slots, and the reader of the file has no delay.
        let sent = frames(500);
        fs::write(&input, capture::write_frames(sent.clone()))
            .unwrap_or_else(|error| panic!("{error}"));
        // The path is: from the file to DPDK, from DPDK's memif to ours, and to the file.
        for rule in ["in_port=4,actions=output:2", "in_port=1,actions=output:3"] {
            add_rule(&daemon, rule);
        }
        let (place, role) = (format!("socket={}", socket.display()), format!("role={own}"));
        let device = format!("net_memif0,role={driver},{place},socket-abstract=no,id=3");
        let add_own = || {
            let words = ["add-port", "br0", "own", "type=memif", "number=1", &place, &role, "id=3"];
            text(&daemon.shuntctl(&words));
        };
        let add = |name: &str, number: &str, devargs: &str| {
            let devargs = format!("devargs={devargs}");
            text(&daemon.shuntctl(&["add-port", "br0", name, "type=dpdk", number, &devargs]));
        };
        // The driver of a client connects once, so the server starts first.
        add_own();
        add("peer", "number=2", &device);
        let is_up = || ["own", "peer"].iter().all(|name| port(&daemon, name)["link"] == "up");
        assert!(wait_until(is_up), "{}\n{}", port(&daemon, "own"), daemon.log());
        add("out", "number=3", &format!("net_pcap3,tx_pcap={}", written.display()));
        add("in", "number=4", &format!("net_pcap2,rx_pcap={}", input.display()));
        let arrived = || count(&daemon, "out", "tx_packets") == 500;
        assert!(wait_until(arrived), "{}\n{}", port(&daemon, "own"), daemon.log());
        text(&daemon.shuntctl(&["del-port", "out"]));
        assert!(capture::read(&fs::read(&written).unwrap_or_default()) == sent, "{own}");
    }
}

/// Starts the daemon in a namespace that is connected with the namespace of a host.
fn host_and_switch() -> Option<(Namespace, Namespace, Daemon)> {
    let program = program()?;
    let (host, middle) = (namespace_or_skip("dpdk")?, namespace_or_skip("dpdk")?);
    host.connect("eth0", &middle, "p1");
    host.run("ip", &["addr", "add", "10.66.1.1/24", "dev", "eth0"]);
    let configuration = format!("{MEMORY}[[bridge]]\nname = \"br0\"\n");
    let daemon = Daemon::start_with(&configuration, |_| middle.command(&program.to_string_lossy()));
    for rule in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
        add_rule(&daemon, rule);
    }
    Some((host, middle, daemon))
}

#[test]
fn hosts_ping_through_tap_and_packet_sockets() {
    let Some((host, middle, daemon)) = host_and_switch() else { return };
    // A DPDK device has no virtio header, so the host must complete checksums.
    host.run("ethtool", &["-K", "eth0", "tx", "off"]);
    add_port(&daemon, "p1", "net_af_packet0,iface=p1");
    add_port(&daemon, "tap", "net_tap0,iface=dtap0");
    middle.run("ip", &["addr", "add", "10.66.1.2/24", "dev", "dtap0"]);
    middle.run("ip", &["link", "set", "dtap0", "up"]);
    assert!(ping(&host, "10.66.1.2"), "{}", daemon.log());
    // The device of the port disappears. The port remains, and the daemon continues.
    middle.run("ip", &["link", "del", "p1"]);
    assert!(daemon.shuntctl(&["show"]).status.success(), "{}", daemon.log());
    text(&daemon.shuntctl(&["del-port", "p1"]));
    text(&daemon.shuntctl(&["del-port", "tap"]));
    assert!(!middle.run("ip", &["link"]).contains("dtap0"), "DPDK removes its TAP");
}

/// A host sends TCP with its default offloads.
///
/// The driver of the TAP refuses the segments, so the port splits them. Then the TAP disappears.
#[test]
fn offloads_of_a_host_reach_a_tap_complete() {
    let Some((host, middle, daemon)) = host_and_switch() else { return };
    text(&daemon.shuntctl(&["add-port", "br0", "p1", "type=af_packet"]));
    let refused = refusal_of_port(&daemon, "tap", &["devargs=net_tap1,iface=dtap1", "mtu=9000"]);
    assert!(refused.contains("mtu 9000 is refused: DPDK device net_tap1 takes"), "{refused}");
    assert!(refused.contains("to 1504 bytes"), "{refused}");
    add_port(&daemon, "tap", "net_tap1,iface=dtap1");
    middle.run("ip", &["addr", "add", "10.66.1.2/24", "dev", "dtap1"]);
    middle.run("ip", &["link", "set", "dtap1", "up"]);
    assert!(ping(&host, "10.66.1.2"), "{}", daemon.log());
    let megabits = tcp_stream(&host, &middle, "10.66.1.2");
    let tap = port(&daemon, "tap");
    assert!(megabits > 10.0, "{megabits} Mbit/s: {tap}\n{}", daemon.log());
    middle.run("ip", &["link", "del", "dtap1"]);
    let is_down = || port(&daemon, "tap")["link"] != "up";
    assert!(wait_until(is_down), "{}\n{}", port(&daemon, "tap"), daemon.log());
    text(&daemon.shuntctl(&["del-port", "tap"]));
    add_port(&daemon, "tap", "net_tap1,iface=dtap1");
    assert!(wait_until(|| port(&daemon, "tap")["link"] == "up"), "{}", daemon.log());
}

#[test]
fn refused_device_has_reason_and_remedy() {
    let Some(daemon) = start("") else { return };
    let error = refusal_of_port(&daemon, "p1", &["devargs=net_nul0"]);
    assert!(error.contains("no driver of DPDK takes the device net_nul0"), "{error}");
    let error = refusal_of_port(&daemon, "p1", &["devargs=0000:ff:1f.7"]);
    assert!(error.contains("dpdk-devbind.py --bind=vfio-pci 0000:ff:1f.7"), "{error}");
    let error = refusal_of_port(&daemon, "p1", &[]);
    assert!(error.contains("a dpdk port needs `devargs`"), "{error}");
    let error = refusal_of_port(&daemon, "p1", &["devargs=net_ring7", "queues=99"]);
    assert!(error.contains("lower `queues` from 99"), "{error}");
    let error = refusal_of_port(&daemon, "p1", &["devargs=net_ring7", "mtu=9000"]);
    assert!(error.contains("does not take an MTU of 9000 bytes"), "{error}");
    add_port(&daemon, "p1", "net_null0");
    let error = refusal_of_port(&daemon, "p2", &["devargs=net_null0,size=64"]);
    assert!(error.contains("DPDK device net_null0") && error.contains("p1"), "{error}");
}

/// Returns the resident memory of a process, in KiB.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_else(|_| panic!("{status}"))
}

/// A port is added and deleted a hundred times, with packets.
#[test]
fn ports_come_and_go_in_constant_memory() {
    let Some(daemon) = start("") else { return };
    add_rule(&daemon, "in_port=1,actions=output:2");
    text(&daemon.shuntctl(&["add-port", "br0", "sink", "type=null", "number=2"]));
    let cycle = || {
        let words = ["type=dpdk", "number=1", "devargs=net_null1,size=64"];
        text(&daemon.shuntctl(&[&["add-port", "br0", "source"], &words[..]].concat()));
        assert!(wait_until(|| count(&daemon, "source", "rx_packets") > 1000), "{}", daemon.log());
        text(&daemon.shuntctl(&["del-port", "source"]));
    };
    (0..10).for_each(|_| cycle());
    let before = memory(daemon.id());
    (0..90).for_each(|_| cycle());
    let after = memory(daemon.id());
    assert!(after < before + 8 * 1024, "{before} KiB, then {after} KiB");
}

/// Packets of a device that never pauses are sent or dropped, and counted.
#[test]
fn packets_of_an_endless_device_are_counted() {
    let Some(daemon) = start("") else { return };
    add_rule(&daemon, "in_port=1,actions=output:2");
    for (name, number) in [("sink", "number=2"), ("source", "number=1")] {
        let devargs = format!("devargs=net_null{},size=64", if name == "source" { 3 } else { 4 });
        text(&daemon.shuntctl(&["add-port", "br0", name, "type=dpdk", number, &devargs]));
    }
    assert!(wait_until(|| count(&daemon, "sink", "tx_packets") > 100_000), "{}", daemon.log());
    text(&daemon.shuntctl(&["del-port", "source"]));
    let flows = text(&daemon.ovs_ofctl("br0", "dump-flows", &["in_port=1"]));
    let packets = flows.split("n_packets=").nth(1).and_then(|rest| rest.split(',').next());
    let hits: u64 = packets.and_then(|text| text.parse().ok()).unwrap_or_default();
    assert_eq!(hits, count(&daemon, "sink", "tx_packets") + count(&daemon, "sink", "tx_dropped"));
}

#[test]
fn vsctl_adds_a_dpdk_port() {
    let (Some(program), Some(middle)) = (program(), namespace_or_skip("dpdk")) else { return };
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let [socket, log] = ["db.sock", "conf.db"].map(|name| folder.path().join(name));
    let configuration = format!("{MEMORY}[ovsdb]\nsocket = {socket:?}\nlog = {log:?}\n");
    let daemon = Daemon::start_with(&configuration, |_| middle.command(&program.to_string_lossy()));
    let database = format!("--db=unix:{}", socket.display());
    let vsctl = |line: &str| {
        let mut command = Command::new("ovs-vsctl");
        output(command.args([&database, "--timeout=20"]).args(line.split_whitespace()))
    };
    let root = || text(&vsctl("get Open_vSwitch . dpdk_initialized iface_types"));
    text(&vsctl("add-br br0"));
    assert!(root().starts_with("false\n") && root().contains("dpdk,"), "{}", root());
    let refused = vsctl("add-port br0 d0 -- set Interface d0 type=dpdk");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("a dpdk port needs options:dpdk-devargs"), "{message}");
    text(&vsctl(
        "set Interface d0 options:dpdk-devargs=net_null0 options:n_rxq=1 mtu_request=9000",
    ));
    let row = text(&vsctl("get Interface d0 error ofport link_state"));
    assert_eq!(row.trim_end(), "[]\n1\nup", "{}", daemon.log());
    assert!(root().starts_with("true\n"), "{}", root());
    assert!(text(&vsctl("get Open_vSwitch . dpdk_version")).contains("DPDK 2"), "{}", daemon.log());
    assert!(text(&daemon.ovs_appctl(&["dpif/show"])).contains("(dpdk)"), "{}", daemon.log());
}
