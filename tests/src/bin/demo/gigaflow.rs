//! The demo of a chain of stages: pieces fill it, flows that never missed hit, and a rule that changes
//! takes its pieces and no others.

use std::{fs, process::Command, thread::sleep, time::Duration};

use shunt_tests::{
    capture::written,
    daemon::{Daemon, text, until},
};

use crate::capture::echo_request;

/// Sources and targets of the capture: any with any is a flow.
const HOSTS: u8 = 40;

/// The change: what is sent to one target stops here.
const CHANGE: &str = "table=2,priority=5,ip,nw_dst=10.20.0.7,actions=drop";

/// Plays a capture over and over through a policy whose tables look at one thing each.
pub(crate) fn run() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let file = folder.path().join("in.pcap");
    let hosts = || 1..=HOSTS;
    let flows = hosts().flat_map(|source| hosts().map(move |target| (source, target)));
    let frames =
        flows.map(|(source, target)| echo_request([10, 10, 0, source], [10, 20, 0, target]));
    fs::write(&file, written(frames)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    println!("1. A switch whose cache is a chain of four stages");
    let ports = format!(
        "[[bridge.port]]\nname = \"p1\"\nnumber = 1\ntype = \"pcap\"\nrx = \"{}\"\n\
         repeat = \"endless\"\n\n[[bridge.port]]\nname = \"p2\"\nnumber = 2\ntype = \"null\"\n",
        file.display()
    );
    let daemon = crate::start(CACHES, &ports, |program| Command::new(program));
    println!("\n2. Who may send, what may be sent, and where it goes: three tables");
    let rules = daemon.run_dir().join("policy.flows");
    fs::write(&rules, policy()).unwrap_or_else(|error| panic!("{}: {error}", rules.display()));
    text(&daemon.ovs_ofctl("br0", "add-flows", &["--bundle", &rules.to_string_lossy()]));
    let flows = u32::from(HOSTS) * u32::from(HOSTS);
    println!("\n3. {flows} flows, over and over; the chain as it fills");
    crate::watch_caches(&daemon);
    print!("{}", text(&daemon.shuntctl(&["caches"])));
    let (entries, _) = counts(&daemon);
    assert!(entries < u64::from(flows) / 4, "{entries} entries: flows share nothing");
    println!("{entries} pieces stand for {flows} flows.");
    println!("\n4. How the way of one of them is cut");
    let flow = "in_port=1,icmp,nw_src=10.10.0.1,nw_dst=10.20.0.7,nw_ttl=64";
    print!("{}", text(&daemon.shuntctl(&["trace", "br0", flow])));
    change(&daemon);
}

fn change(daemon: &Daemon) {
    println!("\n5. A rule changes while packets flow: {CHANGE}");
    let (entries, evicted) = counts(daemon);
    text(&daemon.ovs_ofctl("br0", "mod-flows", &["--strict", CHANGE]));
    let gone = counts(daemon).1 - evicted;
    assert!((1..entries / 4).contains(&gone), "{gone} of {entries} pieces went");
    println!("{gone} of {entries} pieces went, and the others go on.");
    sleep(Duration::from_millis(200));
    assert!(until(|| counts(daemon).0 >= entries), "its pieces do not come back");
    crate::watch_caches(daemon);
}

/// Entries, and how many changes of rules have taken so far.
fn counts(daemon: &Daemon) -> (u64, u64) {
    let caches = text(&daemon.shuntctl(&["caches", "--json"]));
    let caches: serde_json::Value = serde_json::from_str(&caches).unwrap_or_default();
    let count = |key: &str| caches[key].as_u64().unwrap_or_default();
    (count("entries"), count("evicted"))
}

const CACHES: &str = "[caches]\nkind = \"gigaflow\"\n";

fn policy() -> String {
    let mut rules = String::new();
    for host in 1..=HOSTS {
        rules += &format!("table=0,priority=5,ip,nw_src=10.10.0.{host},actions=goto_table:1\n");
        rules += &format!("table=2,priority=5,ip,nw_dst=10.20.0.{host},actions=output:2\n");
    }
    rules + "table=1,priority=5,icmp,actions=dec_ttl,goto_table:2\n"
}
