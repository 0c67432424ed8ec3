//! The demo of Gigaflow on an emulated NIC.
//!
//! LTM entries for sub-traversals fill a NIC in front of the switch, and new flows hit these
//! entries without a miss. A rule change evicts only the entries that depend on the rule.

use std::{fs, process::Command, thread::sleep, time::Duration};

use serde_json::Value;
use shunt_tests::{
    capture::write_frames,
    daemon::{Daemon, text, wait_until},
};

use crate::capture::echo_request;

/// Number of source hosts and of destination hosts; each pair is a flow.
const HOSTS: u8 = 40;

/// The rule change: drop packets to one destination.
const CHANGE: &str = "table=2,priority=5,ip,nw_dst=10.20.0.7,actions=drop";

/// Replays a capture in a loop through a policy with one field per table.
pub(crate) fn run() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let file = folder.path().join("in.pcap");
    let hosts = || 1..=HOSTS;
    let flows = hosts().flat_map(|source| hosts().map(move |target| (source, target)));
    let frames =
        flows.map(|(source, target)| echo_request([10, 10, 0, source], [10, 20, 0, target]));
    fs::write(&file, write_frames(frames))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    println!("1. A switch with a NIC of four stages in front of it, driven by P4Runtime");
    let ports = format!(
        "[[bridge.port]]\nname = \"p1\"\nnumber = 1\ntype = \"pcap\"\nrx = \"{}\"\n\
         repeat = \"endless\"\n\n[[bridge.port]]\nname = \"p2\"\nnumber = 2\ntype = \"null\"\n",
        file.display()
    );
    let daemon = crate::start(CACHES, &ports, |program| Command::new(program));
    assert!(wait_until(|| nic(&daemon)["state"] == "connected"), "{}", daemon.log());
    println!("\n2. Sender, payload and destination checks: three tables");
    let rules = daemon.run_dir().join("policy.flows");
    let (first, policy) = (policy(1), policy(HOSTS));
    first.lines().for_each(|rule| println!("   {rule}"));
    println!("   and the first two of these for {} more hosts", HOSTS - 1);
    fs::write(&rules, policy).unwrap_or_else(|error| panic!("{}: {error}", rules.display()));
    text(&daemon.ovs_ofctl("br0", "add-flows", &["--bundle", &rules.to_string_lossy()]));
    let flows = u32::from(HOSTS) * u32::from(HOSTS);
    println!("\n3. {flows} flows in a loop; the NIC as it fills");
    crate::watch_caches(&daemon);
    assert!(wait_until(|| has_all(&daemon)), "{}", nic(&daemon));
    print!("{}", text(&daemon.shuntctl(&["caches"])));
    let ltm_entries = entries(&daemon);
    assert!(ltm_entries < u64::from(flows) / 4, "{ltm_entries} entries: flows share nothing");
    println!("{ltm_entries} LTM entries on the NIC serve {flows} flows.");
    println!("\n4. How the traversal of one flow is partitioned");
    let flow = "in_port=1,icmp,nw_src=10.10.0.1,nw_dst=10.20.0.7,nw_ttl=64";
    print!("{}", text(&daemon.shuntctl(&["trace", "br0", flow])));
    change(&daemon);
}

fn change(daemon: &Daemon) {
    println!("\n5. A rule changes while packets flow: {CHANGE}");
    let (before, removed) = (entries(daemon), count_removed(daemon));
    text(&daemon.ovs_ofctl("br0", "mod-flows", &["--strict", CHANGE]));
    // The barrier reply has arrived, so no stale entry remains.
    let gone = count_removed(daemon) - removed;
    assert!((1..before / 4).contains(&gone), "{gone} of {before} LTM entries were removed");
    println!("{gone} of {before} LTM entries were removed before the barrier reply.");
    assert!(wait_until(|| entries(daemon) >= before), "the removed entries are not replaced");
    println!("They are replaced according to the new rule; the others stayed in use.");
    crate::watch_caches(daemon);
}

/// Returns whether the NIC forwards nearly all packets.
fn has_all(daemon: &Daemon) -> bool {
    let count = |key: &str| nic(daemon)["traffic"][key].as_u64().unwrap_or_default();
    let missed = count("missed");
    count("hits") > 1000 * missed.max(1) || {
        let before = count("hits");
        sleep(Duration::from_millis(200));
        count("missed") == missed && count("hits") > before
    }
}

/// Returns the number of NIC entries.
fn entries(daemon: &Daemon) -> u64 {
    let nic = nic(daemon);
    let stages = nic["stages"].as_array().map_or(&[][..], Vec::as_slice);
    stages.iter().filter_map(|stage| stage["entries"].as_u64()).sum()
}

/// Returns the number of entries that the switch has removed from the NIC.
fn count_removed(daemon: &Daemon) -> u64 {
    nic(daemon)["operations"]["removes"].as_u64().unwrap_or_default()
}

fn nic(daemon: &Daemon) -> Value {
    let caches = text(&daemon.shuntctl(&["caches", "--json"]));
    let caches: Value = serde_json::from_str(&caches).unwrap_or_default();
    caches["nic"].clone()
}

const CACHES: &str =
    "[caches]\nkind = \"gigaflow\"\n[caches.gigaflow.offload]\nkind = \"embedded\"\n";

/// Returns the rules for `hosts` hosts.
fn policy(hosts: u8) -> String {
    let mut rules = String::new();
    for host in 1..=hosts {
        rules += &format!("table=0,priority=5,ip,nw_src=10.10.0.{host},actions=goto_table:1\n");
        rules += &format!("table=2,priority=5,ip,nw_dst=10.20.0.{host},actions=output:2\n");
    }
    rules + "table=1,priority=5,icmp,actions=dec_ttl,goto_table:2\n"
}
