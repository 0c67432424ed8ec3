//! The rules of OVN, loaded with `ovs-ofctl`, and a packet that pauses in the pipeline.
//!
//! The recordings are the recordings of `crates/pipeline/tests/data/ovn`. The page of that folder
//! describes how the recordings were made, and which words `ovs-ofctl` needs in another form.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    repository::read,
};

use crate::daemon;

/// Folder of the recorded rules of OVN.
const DATA: &str = "crates/pipeline/tests/data/ovn/";

/// Actions and fields that are not supported yet.
const ABSENT: &[&str] = &["ct(", "ct_clear", "group:", "tun_metadata"];

/// Returns the rules in the syntax of `ovs-ofctl` for OpenFlow 1.3.
fn rules() -> Vec<String> {
    let dump = read(&format!("{DATA}small.flows"));
    let can_load = |line: &&str| {
        let line = line.to_lowercase();
        !ABSENT.iter().any(|absent| line.contains(absent))
    };
    let in_13 = |line: &str| {
        let line = line.replace("set_field:ANY->in_port", "load:0xffff->NXM_OF_IN_PORT[]");
        line.replace("46/0x3f->ip_dscp", "46->ip_dscp")
    };
    dump.lines().map(str::trim).filter(can_load).map(in_13).collect()
}

/// Returns a packet to trace with the headers that a rule matches.
fn packet(rule: &str) -> String {
    let (matching, _) = rule.split_once(" actions=").expect("a rule has actions");
    let hidden = [
        "cookie", "table", "priority", "reg", "xreg", "xxreg", "metadata", "ct_", "in_port",
        "conj_id", "pkt_mark", "tun",
    ];
    let items = matching.split([',', ' ']).filter(|item| !item.is_empty());
    let shown = items.filter(|item| !hidden.iter().any(|name| item.starts_with(name)));
    let whole = shown.map(|item| item.split_once('/').map_or(item, |(value, _)| value));
    std::iter::once("in_port=1").chain(whole).collect::<Vec<_>>().join(",")
}

#[test]
fn packets_are_traced_through_rules_of_ovn() {
    let daemon = daemon();
    // The test replaces the meters of the recording, because their rates do not matter here.
    for number in 1..=3 {
        let meter = format!("meter={number},kbps,bands=type=drop,rate=10000");
        text(&daemon.ovs_ofctl("br0", "add-meter", &[&meter]));
    }
    let rules = rules();
    let file = daemon.run_dir().join("flows");
    fs::write(&file, rules.join("\n")).expect("the folder exists");
    text(&daemon.ovs_ofctl("br0", "add-flows", &[&file.display().to_string()]));
    let dump = text(&daemon.ovs_ofctl("br0", "dump-flows", &["--no-stats"]));
    let loaded = dump.lines().filter(|line| line.contains("actions=")).count();
    assert_eq!(loaded, rules.len());
    for rule in rules.iter().step_by(10) {
        let trace = text(&daemon.ovs_appctl(&["ofproto/trace", "br0", &packet(rule)]));
        assert!(trace.contains("Datapath actions:"), "{rule}: {trace}");
        assert!(!trace.contains("Dropped:"), "{rule}: {trace}");
    }
}

/// A client that resumes paused packets. On drop, the client ends.
struct Monitor(Child);

impl Monitor {
    fn start(daemon: &Daemon) -> Self {
        let socket = format!("unix:{}", daemon.run_dir().join("br0.mgmt").display());
        let arguments = ["-O", "OpenFlow13", "-P", "nxt_packet_in2", "monitor", &socket, "resume"];
        let mut command = Command::new("ovs-ofctl");
        command.arg(format!("--unixctl={}", daemon.run_dir().join("monitor.ctl").display()));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("ovs-ofctl starts"))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ovs_ofctl_resumes_a_paused_packet() {
    let daemon = daemon();
    for rule in [
        "table=0,actions=set_field:7->reg0,controller(pause,userdata=01.02),resubmit(,1)",
        "table=1,cookie=0x77,reg0=7,udp,actions=output:2",
    ] {
        text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
    }
    let _monitor = Monitor::start(&daemon);
    let frame = concat!(
        "50540000000250540000000108004500001c00010000401166cf0a0000010a000002",
        "0035003500080000"
    );
    let out = format!("in_port=1,packet={frame},actions=table");
    // The monitor may not listen yet, so the first packets may be lost.
    let arrived = || {
        text(&daemon.ovs_ofctl("br0", "packet-out", &[&out]));
        let dump = text(&daemon.ovs_ofctl("br0", "dump-flows", &["cookie=0x77/-1"]));
        !dump.contains("n_packets=0,")
    };
    assert!(wait_until(arrived), "{}", daemon.log());
}
