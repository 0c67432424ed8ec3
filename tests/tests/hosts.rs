//! Hosts in namespaces with the kernel's default offloads: ping, TCP, TAP, ports that disappear.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use shunt_tests::{
    daemon::{Daemon, error_text, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
    traffic::{ping, ping_once, tcp_stream},
};

/// Forwards between two ports in both directions.
const CABLE: [&str; 2] = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"];

/// Returns the configuration of a bridge with ports of names and types.
///
/// A mode may follow the type: `af_xdp generic`.
fn configuration(threads: u16, ports: &[(&str, &str)]) -> String {
    let mut text = format!("[threads]\npacket = {threads}\n[[bridge]]\nname = \"br0\"\n");
    for (number, (name, kind)) in ports.iter().enumerate() {
        let number = number + 1;
        text += "[[bridge.port]]\n";
        let (kind, mode) = kind.split_once(' ').unwrap_or((kind, "best-effort"));
        text += &format!("name = \"{name}\"\nnumber = {number}\ntype = \"{kind}\"\n");
        if kind == "af_xdp" {
            text += &format!("xdp_mode = \"{mode}\"\n");
        }
    }
    text
}

/// A daemon, and two hosts at its ports.
struct Hosts {
    daemon: Daemon,
    host_a: Namespace,
    host_b: Namespace,
    middle: Namespace,
}

/// Creates hosts a (10.66.1.1) and b (10.66.1.2) on ports 1 and 2 of a switch.
///
/// The switch is in a third namespace.
fn hosts(label: &str, threads: u16) -> Option<Hosts> {
    hosts_at(label, threads, "af_packet")
}

/// Creates hosts on ports of a type.
fn hosts_at(label: &str, threads: u16, kind: &str) -> Option<Hosts> {
    let host_a = namespace_or_skip(label)?;
    let host_b = namespace_or_skip(label)?;
    let middle = namespace_or_skip(label)?;
    host_a.connect("eth0", &middle, "p1");
    host_b.connect("eth0", &middle, "p2");
    host_a.run("ip", &["addr", "add", "10.66.1.1/24", "dev", "eth0"]);
    host_b.run("ip", &["addr", "add", "10.66.1.2/24", "dev", "eth0"]);
    let configuration = configuration(threads, &[("p1", kind), ("p2", kind)]);
    let daemon = start(&configuration, &middle);
    Some(Hosts { daemon, host_a, host_b, middle })
}

fn start(configuration: &str, namespace: &Namespace) -> Daemon {
    let daemon = Daemon::start_with(configuration, |program: &Path| {
        namespace.command(&program.to_string_lossy())
    });
    for rule in CABLE {
        text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
    }
    daemon
}

#[test]
fn hosts_stream_across_veth_with_default_offloads() {
    for threads in [1, 3] {
        let Some(hosts) = hosts("veth", threads) else { return };
        assert!(ping(&hosts.host_a, "10.66.1.2"), "{}", hosts.daemon.log());
        let megabits = tcp_stream(&hosts.host_a, &hosts.host_b, "10.66.1.2");
        assert!(megabits > 10.0, "{megabits} Mbit/s with {threads} threads");
        let stats = text(&hosts.daemon.ovs_ofctl("br0", "dump-flows", &["in_port=1"]));
        assert!(!stats.contains("n_packets=0"), "{stats}");
    }
}

#[test]
fn hosts_ping_and_stream_through_af_xdp_ports() {
    for (threads, kind) in [(1, "af_xdp"), (3, "af_xdp native"), (1, "af_xdp generic")] {
        let Some(hosts) = hosts_at("xdp", threads, kind) else { return };
        if hosts.daemon.log().contains("not permitted to attach an XDP program") {
            print_skipped("this system permits no XDP programs");
            return;
        }
        // AF_XDP does not support partial checksums.
        for host in [&hosts.host_a, &hosts.host_b] {
            host.run("ethtool", &["-K", "eth0", "tx", "off"]);
        }
        assert!(ping(&hosts.host_a, "10.66.1.2"), "{kind}: {}", hosts.daemon.log());
        let megabits = tcp_stream(&hosts.host_a, &hosts.host_b, "10.66.1.2");
        assert!(megabits > 10.0, "{kind}: {megabits} Mbit/s with {threads} threads");
        let stats = text(&hosts.daemon.ovs_ofctl("br0", "dump-flows", &["in_port=1"]));
        assert!(!stats.contains("n_packets=0"), "{kind}: {stats}");
        let log = hosts.daemon.log();
        assert!(log.contains("AF_XDP port attached"), "{log}");
        assert!(log.contains("ethtool -K PEER tx off"), "{log}");
        // The kernel drops longer frames before the port.
        hosts.middle.run("ip", &["link", "set", "p1", "mtu", "1000"]);
        let long = ["-q", "-c", "1", "-W", "0.1", "-s", "1200", "10.66.1.2"];
        let answered = output(hosts.host_a.command("ping").args(long)).status.success();
        assert!(!answered, "{kind}: the frame exceeds the MTU of p1");
        let ports = text(&hosts.daemon.shuntctl(&["ports", "--json"]));
        assert!(ports.contains("device_rx_dropped"), "{kind}: {ports}");
    }
}

#[test]
fn a_tagged_frame_keeps_its_tag() {
    for kind in ["af_packet", "af_xdp native", "af_xdp generic"] {
        tag_is_kept(kind);
    }
}

fn tag_is_kept(kind: &str) {
    let Some(hosts) = hosts_at("vlan", 1, kind) else { return };
    if hosts.daemon.log().contains("not permitted to attach an XDP program") {
        print_skipped("this system permits no XDP programs");
        return;
    }
    for (host, address) in [(&hosts.host_a, "10.66.2.1/24"), (&hosts.host_b, "10.66.2.2/24")] {
        let vlan = ["link", "add", "link", "eth0", "name", "v7", "type", "vlan", "id", "7"];
        if !output(host.command("ip").args(vlan)).status.success() {
            print_skipped("this kernel has no VLAN devices");
            return;
        }
        host.run("ip", &["addr", "add", address, "dev", "v7"]);
        host.run("ip", &["link", "set", "v7", "up"]);
    }
    assert!(ping(&hosts.host_a, "10.66.2.2"), "{kind}");
    let stats = text(&hosts.daemon.shuntctl(&["trace", "br0", "in_port=1,dl_vlan=7"]));
    assert!(stats.contains("output"), "{stats}");
}

#[test]
fn a_stream_passes_through_tap_ports() {
    let Some(middle) = namespace_or_skip("tap") else { return };
    let Some(host_b) = namespace_or_skip("tap") else { return };
    host_b.connect("eth0", &middle, "p2");
    host_b.run("ip", &["addr", "add", "10.66.3.2/24", "dev", "eth0"]);
    let _daemon = start(&configuration(1, &[("tap1", "tap"), ("p2", "af_packet")]), &middle);
    middle.run("ip", &["addr", "add", "10.66.3.1/24", "dev", "tap1"]);
    middle.run("ip", &["link", "set", "tap1", "up"]);
    assert!(ping(&middle, "10.66.3.2"));
    let megabits = tcp_stream(&middle, &host_b, "10.66.3.2");
    assert!(megabits > 10.0, "{megabits} Mbit/s");
}

/// A stream in VXLAN from a TAP arrives in packets of many segments.
#[test]
fn a_vxlan_stream_passes_in_long_packets() {
    for kind in ["tap", "af_packet"] {
        let Some(middle) = namespace_or_skip("vxlan") else { return };
        let Some(host_a) = namespace_or_skip("vxlan") else { return };
        let Some(host_b) = namespace_or_skip("vxlan") else { return };
        if kind == "af_packet" {
            host_b.connect("p2", &middle, "p2");
        }
        let daemon = start(&configuration(1, &[("p1", "tap"), ("p2", kind)]), &middle);
        middle.move_device("p1", &host_a);
        if kind == "tap" {
            middle.move_device("p2", &host_b);
        }
        for (host, device, own, other) in [(&host_a, "p1", 1, 2), (&host_b, "p2", 2, 1)] {
            let ip = |line: &str| output(host.command("ip").args(line.split(' ')));
            text(&ip(&format!("addr add 10.66.5.{own}/24 dev {device}")));
            text(&ip(&format!("link set {device} up")));
            let tunnel = format!("type vxlan id 7 remote 10.66.5.{other} dstport 4789");
            if !ip(&format!("link add vx0 {tunnel}")).status.success() {
                print_skipped("this kernel has no VXLAN devices");
                return;
            }
            text(&ip(&format!("addr add 10.66.6.{own}/24 dev vx0")));
            text(&ip("link set vx0 up"));
        }
        assert!(wait_until(|| ping(&host_a, "10.66.6.2")), "{}", daemon.log());
        let megabits = tcp_stream(&host_a, &host_b, "10.66.6.2");
        assert!(megabits > 10.0, "{kind}: {megabits} Mbit/s");
        let flows = text(&daemon.ovs_ofctl("br0", "dump-flows", &["in_port=1"]));
        let count = |name: &str| flows.split(name).nth(1)?.split(',').next()?.parse::<u64>().ok();
        let (packets, bytes) = (count("n_packets=").unwrap(), count("n_bytes=").unwrap());
        let offloads = host_a.run("ethtool", &["-k", "p1"]);
        if offloads.contains("tx-udp_tnl-segmentation: on") {
            assert!(bytes / packets > 3000, "{kind}: {flows}");
        }
    }
}

#[test]
fn a_port_that_vanishes_while_forwarding_comes_back() {
    let Some(hosts) = hosts("gone", 1) else { return };
    assert!(ping(&hosts.host_a, "10.66.1.2"));
    let mut background = hosts.host_a.command("ping");
    background.args(["-q", "-i", "0.01", "-c", "3000", "10.66.1.2"]).stdout(Stdio::null());
    let mut background = background.spawn().unwrap_or_else(|error| panic!("ping: {error}"));
    hosts.host_b.run("ip", &["link", "del", "eth0"]);
    let ports = || text(&hosts.daemon.shuntctl(&["ports"]));
    assert!(wait_until(|| ports().contains("down")), "{}", ports());
    let shown = || text(&hosts.daemon.shuntctl(&["show"]));
    assert!(wait_until(|| shown().contains("down: the device has vanished")), "{}", shown());
    sleep(Duration::from_millis(200));
    let flows = text(&hosts.daemon.ovs_ofctl("br0", "dump-flows", &[]));
    assert_eq!(flows.matches("actions=output").count(), 2, "no rule is lost: {flows}");
    hosts.host_b.connect("eth0", &hosts.middle, "p2");
    hosts.host_b.run("ip", &["addr", "add", "10.66.1.2/24", "dev", "eth0"]);
    // The new device has a new address. Otherwise host a uses the old address for half a minute.
    hosts.host_a.run("ip", &["neigh", "flush", "dev", "eth0"]);
    assert!(wait_until(|| ping(&hosts.host_a, "10.66.1.2")), "{}\n{}", ports(), hosts.daemon.log());
    let _ = background.kill();
    let _ = background.wait();
}

#[test]
fn no_packet_after_barrier_follows_old_rule() {
    let Some(hosts) = hosts("barrier", 3) else { return };
    assert!(ping(&hosts.host_a, "10.66.1.2"));
    let mut flood = hosts.host_a.command("ping");
    flood.args(["-q", "-i", "0.002", "-c", "20000", "10.66.1.2"]).stdout(Stdio::null());
    let mut flood = flood.spawn().unwrap_or_else(|error| panic!("ping: {error}"));
    for _ in 0..5 {
        sleep(Duration::from_millis(100));
        text(&hosts.daemon.ovs_ofctl("br0", "add-flow", &["priority=40000,icmp,actions=drop"]));
        let before = hosts.host_b.echo_requests();
        sleep(Duration::from_millis(100));
        let after = hosts.host_b.echo_requests();
        text(&hosts.daemon.ovs_ofctl("br0", "del-flows", &["--strict", "priority=40000,icmp"]));
        assert_eq!(before, after, "packets followed the old rule");
        let flows = || hosts.host_b.echo_requests() > after;
        assert!(wait_until(flows), "packets flow again");
    }
    let _ = flood.kill();
    let _ = flood.wait();
}

#[test]
fn capture_at_far_host_has_sent_packets() {
    let Some(hosts) = hosts("dump", 1) else { return };
    let mut capture = hosts.host_b.command("tcpdump");
    capture.args(["-i", "eth0", "-c", "2", "-n", "-l", "icmp"]);
    let capture: Result<_, _> = capture.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let capture = capture.unwrap_or_else(|error| panic!("tcpdump: {error}"));
    let sees = || {
        let _ = ping(&hosts.host_a, "10.66.1.2");
        !is_running(capture.id())
    };
    assert!(wait_until(sees), "tcpdump captured nothing");
    let seen = capture.wait_with_output().unwrap_or_else(|error| panic!("tcpdump: {error}"));
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(seen.contains("10.66.1.1 > 10.66.1.2: ICMP echo request"), "{seen}");
}

fn is_running(id: u32) -> bool {
    let state = Command::new("cat").arg(format!("/proc/{id}/stat")).output();
    state.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        !text.is_empty() && !text.contains(") Z ")
    })
}

#[test]
fn the_demo_prints_its_results() {
    if namespace_or_skip("demo").is_none() {
        return;
    }
    let demo = output(&mut Command::new(env!("CARGO_BIN_EXE_demo")));
    assert!(text(&demo).contains("No packet sent after the barrier reply followed the old rule."));
}

/// Starts a daemon with a bridge that has a TAP as its local port.
fn with_local_tap(keys: &str, namespace: &Namespace) -> Daemon {
    let text = format!(
        "[[bridge]]\nname = \"br0\"\nmac = \"02:11:22:33:44:55\"\nlocal = \"tap\"\n{keys}\n"
    );
    Daemon::start_with(&text, |program: &Path| namespace.command(&program.to_string_lossy()))
}

#[test]
fn the_local_port_keeps_addresses_across_a_restart() {
    let Some(middle) = namespace_or_skip("local") else { return };
    let shown = || middle.run("ip", &["addr", "show", "br0"]);
    let daemon = with_local_tap("mtu = 9000", &middle);
    assert!(shown().contains("link/ether 02:11:22:33:44:55"), "{}", shown());
    assert!(shown().contains("mtu 9000"), "{}", shown());
    middle.run("ip", &["addr", "add", "10.66.4.1/24", "dev", "br0"]);
    drop(daemon);
    assert!(shown().contains("10.66.4.1/24"), "without a daemon: {}", shown());
    let daemon = with_local_tap("", &middle);
    assert!(shown().contains("10.66.4.1/24"), "{}", shown());
    assert!(shown().contains("link/ether 02:11:22:33:44:55"), "{}", shown());
    text(&daemon.shuntctl(&["del-br", "br0"]));
    let gone = || !middle.run("ip", &["-br", "link"]).contains("br0");
    assert!(wait_until(gone), "the device of a deleted bridge is removed");
}

/// An MTU that AF_XDP cannot have is not set, and any other one is undone.
#[test]
fn a_refused_port_leaves_mtu_of_device() {
    let Some(middle) = namespace_or_skip("undo") else { return };
    let daemon = with_local_tap("", &middle);
    middle.run("ip", &["link", "add", "p3", "mtu", "1400", "type", "veth", "peer", "name", "e3"]);
    let mut errors = String::new();
    for options in [["mtu=9300", "xdp_mode=generic"], ["mtu=2000", "xdp_mode=native-with-zerocopy"]]
    {
        let add = [&["add-port", "br0", "p3", "type=af_xdp"][..], &options].concat();
        let error = error_text(&daemon.shuntctl(&add));
        let shown = middle.run("ip", &["link", "show", "p3"]);
        assert!(shown.contains("mtu 1400"), "{error}: {shown}");
        errors += &error;
    }
    assert!(errors.contains("mtu = 9300: it must be 68 to 9216 for an af_xdp port"), "{errors}");
    assert!(!daemon.log().contains("cannot be restored"), "{}", daemon.log());
}

/// The ports open with the MTU of their devices, as they do at the start.
#[test]
fn a_reload_reports_an_mtu_without_effect() {
    let Some(middle) = namespace_or_skip("mtu") else { return };
    let daemon = with_local_tap("", &middle);
    let file = daemon.run_dir().join("shunt.toml");
    let more = "[[bridge.port]]\nname = \"t1\"\ntype = \"tap\"\nmtu = 65530\n\
                [[bridge]]\nname = \"br1\"\nlocal = \"tap\"\nmtu = 65530\n";
    fs::write(&file, fs::read_to_string(&file).unwrap() + more).unwrap();
    let report = text(&daemon.shuntctl(&["reload"]));
    for name in ["t1", "br1"] {
        let remark = format!(
            "port {name}: MTU 65530 has no effect: the device {name} does not take \
             it, and keeps its MTU 1500"
        );
        assert!(report.contains(&remark), "{report}");
        let log = daemon.log();
        assert!(log.contains(&format!("configuration: {remark}")), "{log}");
    }
    let report = text(&daemon.shuntctl(&["reload"]));
    assert!(report.contains("no changes to apply"), "{report}");
}

/// Starts a daemon immediately after a signal to the previous daemon.
///
/// The next daemon opens all devices when it starts.
#[test]
fn daemon_starts_while_last_one_releases_devices() {
    let Some(middle) = namespace_or_skip("next") else { return };
    let names: Vec<_> = (0..16).map(|number| format!("v{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let peer = format!("w{number}");
        middle.run("ip", &["link", "add", name, "type", "veth", "peer", "name", &peer]);
    }
    let ports: Vec<_> = names.iter().map(|name| (name.as_str(), "af_packet")).collect();
    let text =
        configuration(2, &ports).replace("name = \"br0\"", "name = \"br0\"\nlocal = \"tap\"");
    let mut daemon =
        Daemon::start_with(&text, |program: &Path| middle.command(&program.to_string_lossy()));
    for signal in ["-TERM", "-KILL", "-TERM"] {
        daemon.start_next(signal, |program: &Path| middle.command(&program.to_string_lossy()));
        let log = daemon.log();
        assert!(!log.contains("belongs to another") && !log.contains("down until"), "{log}");
    }
}

#[test]
fn device_in_use_is_refused_by_name() {
    let Some(hosts) = hosts("guard", 1) else { return };
    let second = Daemon::start_with("[[bridge]]\nname = \"br9\"\n", |program: &Path| {
        hosts.middle.command(&program.to_string_lossy())
    });
    let refused = error_text(&second.shuntctl(&["add-port", "br9", "p1"]));
    assert!(refused.contains("p1 belongs to another shuntd (process "), "{refused}");
    assert!(ping(&hosts.host_a, "10.66.1.2"), "the first switch goes on");
}

/// A device may have further names.
#[test]
fn a_second_name_of_a_device_is_refused() {
    let Some(hosts) = hosts("altname", 1) else { return };
    hosts.middle.run("ip", &["link", "property", "add", "dev", "p2", "altname", "p2alt"]);
    let refused = error_text(&hosts.daemon.shuntctl(&["add-port", "br0", "p2alt"]));
    let expected = "device p2alt, which is p2 by another name, belongs to port p2 of bridge br0: ";
    assert!(refused.contains(expected), "{refused}");
    // A longer name than that of a port.
    let long = "a-further-name-of-p2";
    hosts.middle.run("ip", &["link", "property", "add", "dev", "p2", "altname", long]);
    let refused = error_text(&hosts.daemon.shuntctl(&["add-port", "br0", long]));
    let expected = "a device name has at most 15: use p2, the first name of the device";
    assert!(refused.contains(expected), "{refused}");
    assert!(ping(&hosts.host_a, "10.66.1.2"), "the first port goes on");
}

#[test]
fn an_addressed_device_is_attached_with_a_warning() {
    let Some(hosts) = hosts("addr", 1) else { return };
    hosts.middle.run("ip", &["link", "add", "p3", "type", "veth", "peer", "name", "q3"]);
    hosts.middle.run("ip", &["addr", "add", "10.66.5.1/24", "dev", "p3"]);
    let added = hosts.daemon.shuntctl(&["add-port", "br0", "p3"]);
    text(&added);
    let expected = "port p3: device p3 has the address 10.66.5.1 of this host";
    assert!(hosts.daemon.log().contains(expected), "{}", hosts.daemon.log());
    let remarks = String::from_utf8_lossy(&added.stderr);
    assert!(remarks.starts_with(&format!("warning: {expected}")), "{remarks}");
    let shown = text(&hosts.daemon.shuntctl(&["show"]));
    assert!(shown.contains("; device p3 has the address 10.66.5.1"), "{shown}");
}

/// The kernel reports addresses by the first name of a device.
#[test]
fn a_second_name_has_the_address_warning() {
    let Some(hosts) = hosts("altaddr", 1) else { return };
    let middle = &hosts.middle;
    middle.run("ip", &["link", "add", "p3", "type", "veth", "peer", "name", "q3"]);
    middle.run("ip", &["link", "property", "add", "dev", "p3", "altname", "p3alt"]);
    middle.run("ip", &["addr", "add", "10.66.5.1/24", "dev", "p3"]);
    let added = hosts.daemon.shuntctl(&["add-port", "br0", "p3alt"]);
    text(&added);
    let expected = "warning: port p3alt: device p3alt has the address 10.66.5.1 of this host";
    let remarks = String::from_utf8_lossy(&added.stderr);
    assert!(remarks.starts_with(expected), "{remarks}");
}

#[test]
fn later_user_of_device_is_logged_once() {
    let Some(hosts) = hosts("user", 1) else { return };
    let middle = &hosts.middle;
    let warnings = |text: &str| hosts.daemon.log().matches(text).count();
    let address = "port p1: device p1 has the address 10.66.7.1 of this host";
    middle.run("ip", &["addr", "add", "10.66.7.1/24", "dev", "p1"]);
    assert!(wait_until(|| warnings(address) == 1), "{}", hosts.daemon.log());
    let bridge = ["link", "add", "lan0", "type", "bridge"];
    if !output(middle.command("ip").args(bridge)).status.success() {
        print_skipped("this kernel has no bridges");
        return;
    }
    middle.run("ip", &["link", "set", "p1", "master", "lan0"]);
    let member = "port p1: device p1 is a member of lan0";
    assert!(wait_until(|| warnings(member) == 1), "{}", hosts.daemon.log());
    // A user of the device that returns is logged again, and other users are not logged.
    middle.run("ip", &["link", "set", "p1", "nomaster"]);
    // A label of an address is no name of a device.
    middle.run("ip", &["addr", "add", "10.66.7.2/24", "dev", "p2", "label", "p2:1"]);
    let other = "port p2: device p2 has the address 10.66.7.2";
    assert!(wait_until(|| warnings(other) == 1), "{}", hosts.daemon.log());
    middle.run("ip", &["link", "set", "p1", "master", "lan0"]);
    assert!(wait_until(|| warnings(member) == 2), "{}", hosts.daemon.log());
    assert_eq!(warnings(address), 1, "{}", hosts.daemon.log());
}

#[test]
fn a_renamed_device_takes_its_port_down() {
    let Some(hosts) = hosts("name", 1) else { return };
    hosts.middle.run("ip", &["link", "set", "p2", "down"]);
    hosts.middle.run("ip", &["link", "set", "p2", "name", "q2"]);
    hosts.middle.run("ip", &["link", "set", "q2", "up"]);
    let shown = || text(&hosts.daemon.shuntctl(&["show"]));
    let reason = "down: the device p2 was renamed to q2";
    assert!(wait_until(|| shown().contains(reason)), "{}", shown());
    hosts.middle.run("ip", &["link", "set", "q2", "down"]);
    hosts.middle.run("ip", &["link", "set", "q2", "name", "p2"]);
    hosts.middle.run("ip", &["link", "set", "p2", "up"]);
    assert!(wait_until(|| ping(&hosts.host_a, "10.66.1.2")), "{}", hosts.daemon.log());
}

/// Both ports are opened at the same time.
#[test]
fn the_owner_of_a_device_is_named() {
    let Some(middle) = namespace_or_skip("owner") else { return };
    middle.run("ip", &["link", "add", "x0", "type", "veth", "peer", "name", "y0"]);
    middle.run("ip", &["link", "property", "add", "dev", "x0", "altname", "second"]);
    let ports = [("x0", "af_packet"), ("second", "af_packet")];
    let daemon = start(&configuration(1, &ports), &middle);
    let shown = text(&daemon.shuntctl(&["show"]));
    assert!(shown.contains("by another name, belongs to port"), "{shown}");
}

/// A second name can move to a device that has a port of its own.
#[test]
fn a_port_explains_that_its_second_name_moved() {
    let Some(hosts) = hosts("second", 1) else { return };
    let ip = |line: &str| hosts.middle.run("ip", &line.split(' ').collect::<Vec<_>>());
    ip("link add x0 type veth peer name y0");
    ip("link property add dev x0 altname second");
    for port in ["second", "y0"] {
        text(&hosts.daemon.shuntctl(&["add-port", "br0", port]));
    }
    let shown = || text(&hosts.daemon.shuntctl(&["show"]));
    ip("link property del dev x0 altname second");
    let reason = "down: the device x0 no longer has the name second";
    assert!(wait_until(|| shown().contains(reason)), "{}", shown());
    ip("link property add dev y0 altname second");
    let reason = "device second, which is y0 by another name, belongs to port y0 of bridge br0";
    assert!(wait_until(|| shown().contains(reason)), "{}", shown());
    ip("link property del dev y0 altname second");
    let reason = "down: port second: there is no device second";
    assert!(wait_until(|| shown().contains(reason)), "{}", shown());
    ip("link property add dev x0 altname second");
    assert!(wait_until(|| !shown().contains(reason)), "{}", shown());
}

/// Ports lose their learned addresses when they get other devices.
///
/// The hosts know each other's addresses and ask for none. So the switch learns no address during
/// the swap.
#[test]
fn hosts_are_reached_after_devices_swap_names() {
    let Some(hosts) = hosts("swap", 1) else { return };
    text(&hosts.daemon.ovs_ofctl("br0", "del-flows", &[]));
    text(&hosts.daemon.ovs_ofctl("br0", "add-flow", &["actions=NORMAL"]));
    let macs = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"];
    let ends = [
        (&hosts.host_a, macs[0], "10.66.1.2", macs[1]),
        (&hosts.host_b, macs[1], "10.66.1.1", macs[0]),
    ];
    for (host, own, address, other) in ends {
        host.run("ip", &["link", "set", "eth0", "address", own]);
        let neighbour = ["neigh", "replace", address, "lladdr", other, "dev", "eth0"];
        host.run("ip", &[&neighbour[..], &["nud", "permanent"]].concat());
    }
    let learned = || text(&hosts.daemon.ovs_appctl(&["fdb/show", "br0"]));
    let knows = |mac: &&str| learned().contains(*mac);
    assert!(ping(&hosts.host_a, "10.66.1.2"), "{}", hosts.daemon.log());
    assert!(wait_until(|| macs.iter().all(knows)), "{}", learned());
    for (name, new) in [("p1", "swap"), ("p2", "p1"), ("swap", "p2")] {
        hosts.middle.run("ip", &["link", "set", name, "down"]);
        hosts.middle.run("ip", &["link", "set", name, "name", new]);
        hosts.middle.run("ip", &["link", "set", new, "up"]);
    }
    for port in ["p1", "p2"] {
        let flushed = format!("port {port}: has another device");
        assert!(wait_until(|| hosts.daemon.log().contains(&flushed)), "{}", hosts.daemon.log());
    }
    assert!(!macs.iter().any(knows), "{}", learned());
    assert!(wait_until(|| ping_once(&hosts.host_a, "10.66.1.2")), "{}", hosts.daemon.log());
}

/// Number of carrier losses that the switch must notice.
///
/// Without events, the switch checks its devices every 10 seconds, and the test fails.
const CARRIER_LOSSES: usize = 6;

#[test]
fn lost_carrier_moves_packets_to_next_bucket() {
    let Some(hosts) = hosts("failover", 1) else { return };
    let Hosts { daemon, host_a, host_b, middle } = &hosts;
    host_b.connect("eth1", middle, "p3");
    text(&daemon.shuntctl(&["add-port", "br0", "p3", "number=3"]));
    let buckets = "group_id=1,type=ff,bucket=watch_port:2,actions=output:2,\
                   bucket=watch_port:3,actions=output:3";
    text(&daemon.ovs_ofctl("br0", "add-group", &[buckets]));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["in_port=1,actions=group:1"]));
    // The address of a host that does not exist: no host answers, and no host is asked for the
    // address.
    let neighbour = ["neigh", "add", "10.66.1.9", "lladdr", "02:00:00:00:00:09", "dev", "eth0"];
    host_a.run("ip", &neighbour);
    let sent_to = |port: u64| {
        let ports = text(&daemon.shuntctl(&["ports", "--json"]));
        let ports: Vec<serde_json::Value> = serde_json::from_str(&ports).unwrap();
        let own = ports.iter().find(|own| own["number"] == port).unwrap();
        own["tx_packets"].as_u64().unwrap()
    };
    let leaves_by = |port: u64| {
        let before = sent_to(port);
        let ping = ["-q", "-c", "1", "-W", "0.05", "10.66.1.9"];
        let _ = output(host_a.command("ping").args(ping));
        sent_to(port) > before
    };
    assert!(wait_until(|| leaves_by(2)), "{}", daemon.log());
    let mut moves = 0;
    let has_followed = wait_until(|| {
        let (state, port) = if moves % 2 == 0 { ("down", 3) } else { ("up", 2) };
        host_b.run("ip", &["link", "set", "eth0", state]);
        moves += usize::from(leaves_by(port));
        moves == 2 * CARRIER_LOSSES
    });
    assert!(has_followed, "{moves} moves: {}", daemon.log());
}
