//! The demo with two hosts.

use std::{process::Stdio, thread::sleep, time::Duration};

use shunt_tests::{
    daemon::{Daemon, text},
    namespace::Namespace,
};

/// The rule change: drop ICMP from host a to host b.
const CHANGE: &str = "table=1,priority=200,icmp,nw_src=10.10.0.1,actions=drop";

const PORTS: &str = r#"
[[bridge.port]]
name = "p1"
number = 1
type = "af_packet"

[[bridge.port]]
name = "p2"
number = 2
type = "af_packet"
"#;

/// Number of addresses of host b; each is a separate flow.
const ADDRESSES: u8 = 8;

/// Runs the demo.
pub(crate) fn run(host_a: &Namespace, host_b: &Namespace, middle: &Namespace) {
    println!("\n1. Two hosts, a switch between them: a [p1 br0 p2] b");
    host_a.connect("eth0", middle, "p1");
    host_b.connect("eth0", middle, "p2");
    host_a.run("ip", &["addr", "add", "10.10.0.1/24", "dev", "eth0"]);
    for last in 0..ADDRESSES {
        let address = format!("10.10.0.{}/24", 100 + last);
        host_b.run("ip", &["addr", "add", &address, "dev", "eth0"]);
    }
    let daemon = crate::start("", PORTS, |program| middle.command(&program.to_string_lossy()));
    crate::load_policy(&daemon);
    traffic(&daemon, host_a);
    change(&daemon, host_a, host_b);
    println!("\n5. Cleaning up");
}

fn traffic(daemon: &Daemon, host_a: &Namespace) {
    println!("\n3. Pings to {ADDRESSES} addresses; the caches as they fill");
    let start = |last: u8| {
        let target = format!("10.10.0.{}", 100 + last);
        let mut ping = host_a.command("ping");
        ping.args(["-q", "-i", "0.01", "-c", "300", &target]).stdout(Stdio::null());
        ping.spawn().unwrap_or_else(|error| panic!("ping: {error}"))
    };
    let pings: Vec<_> = (0..ADDRESSES).map(start).collect();
    crate::watch_caches(daemon);
    for mut ping in pings {
        let answered = ping.wait().is_ok_and(|status| status.success());
        assert!(answered, "a ping got no reply");
    }
    let flow = "in_port=1,icmp,nw_src=10.10.0.1,nw_dst=10.10.0.100";
    print!("{}", text(&daemon.shuntctl(&["trace", "br0", flow])));
}

fn change(daemon: &Daemon, host_a: &Namespace, host_b: &Namespace) {
    println!("\n4. A rule changes while pings run: {CHANGE}");
    let mut ping = host_a.command("ping");
    ping.args(["-q", "-i", "0.002", "-c", "100000", "10.10.0.100"]).stdout(Stdio::null());
    let mut ping = ping.spawn().unwrap_or_else(|error| panic!("ping: {error}"));
    sleep(Duration::from_millis(300));
    text(&daemon.ovs_ofctl("br0", "add-flow", &[CHANGE]));
    // ovs-ofctl returned, so the barrier reply has arrived. Packets of the old rule have left the
    // switch, and the kernel delivers these packets within milliseconds.
    sleep(Duration::from_millis(50));
    let before = host_b.echo_requests();
    assert!(before > 0, "no ping was counted");
    sleep(Duration::from_millis(700));
    let after = host_b.echo_requests();
    let _ = ping.kill();
    let _ = ping.wait();
    print!("{}", text(&daemon.shuntctl(&["drops"])));
    assert_eq!(before, after, "packets followed the old rule");
    println!("No packet sent after the barrier reply followed the old rule.");
}
