//! The client `shuntctl`.

use std::fs;

use shunt_flow::testing::packet::PacketBuilder;
use shunt_tests::{
    capture,
    daemon::{error_text, text, wait_until},
};

use crate::daemon;

#[test]
fn bridges_and_ports_change_at_run_time() {
    let daemon = daemon();
    text(&daemon.shuntctl(&["add-br", "br1"]));
    text(&daemon.shuntctl(&["add-port", "br1", "x1", "type=null", "number=7"]));
    text(&daemon.shuntctl(&["add-port", "br1", "pa", "type=patch", "peer=pb"]));
    text(&daemon.shuntctl(&["add-port", "br0", "pb", "type=patch", "peer=pa"]));
    let show = text(&daemon.shuntctl(&["show"]));
    for expected in ["br0", "br1", "x1", "null", "patch"] {
        assert!(show.contains(expected), "{show}");
    }
    let ports = text(&daemon.ovs_ofctl("br1", "show", &[]));
    assert!(ports.contains("7(x1)"), "{ports}");
    text(&daemon.ovs_ofctl("br1", "add-flow", &["actions=output:x1"]));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["in_port=p1,actions=output:pb"]));
    let trace = text(&daemon.shuntctl(&["trace", "br0", "in_port=1,udp"]));
    assert!(trace.contains("bridge(\"br1\")"), "a patch port leads on: {trace}");
    text(&daemon.shuntctl(&["del-port", "x1"]));
    text(&daemon.shuntctl(&["del-br", "br1"]));
    assert!(!text(&daemon.shuntctl(&["show"])).contains("br1"));
    assert!(!daemon.run_dir().join("br1.mgmt").exists());
}

#[test]
fn a_trace_can_be_read_by_programs() {
    let daemon = daemon();
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,tcp,actions=output:2"]));
    let trace = text(&daemon.shuntctl(&["trace", "br0", "in_port=1,tcp,tp_dst=80", "--json"]));
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert_eq!(trace["visits"][0]["table"], 0);
    assert_eq!(trace["visits"][0]["rule"]["priority"], 5);
    assert!(trace["actions"].as_array().is_some_and(|actions| !actions.is_empty()), "{trace}");
}

#[test]
fn caches_drops_and_ports_are_shown() {
    let daemon = daemon();
    for (command, expected) in
        [("caches", "megaflow"), ("drops", "total"), ("ports", "p3"), ("show", "p3")]
    {
        let shown = text(&daemon.shuntctl(&[command]));
        assert!(shown.contains(expected), "{command}: {shown}");
    }
}

#[test]
fn a_bridge_without_rules_is_logged_once() {
    let daemon = daemon();
    let file = daemon.run_dir().join("in");
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 9, 0, 1]).build();
    fs::write(&file, capture::write_frames([frame])).expect("a capture");
    let source = format!("rx={}", file.display());
    text(&daemon.shuntctl(&["add-port", "br0", "in", "type=pcap", &source]));
    assert!(
        wait_until(|| daemon.log().contains("bridge br0: the bridge has no rules")),
        "{}",
        daemon.log()
    );
    let drops = text(&daemon.shuntctl(&["drops"]));
    assert!(drops.contains("dropped: no_matching_rule") && drops.contains("br0 has no rules"));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["actions=drop"]));
    assert!(!text(&daemon.shuntctl(&["drops"])).contains("br0 has no rules"));
    assert_eq!(daemon.log().matches("bridge br0: the bridge has no rules").count(), 1);
}

#[test]
fn settings_can_be_changed() {
    let daemon = daemon();
    text(&daemon.shuntctl(&["set", "caches.idle_ms=2000"]));
    let words = error_text(&daemon.shuntctl(&["set", "caches.idel_ms=2000"]));
    assert!(words.contains("idle_ms"), "the error names the nearest setting: {words}");
}

#[test]
fn evicted_entries_under_traffic_are_repaired() {
    let daemon = daemon();
    text(&daemon.shuntctl(&["set", "eviction.repair=on"]));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=1,ip,actions=output:2"]));
    let frames = (1..=8).map(|host| PacketBuilder::ipv4([10, 0, 0, host], [10, 9, 0, 1]).build());
    let file = daemon.run_dir().join("in");
    fs::write(&file, capture::write_frames(frames)).expect("a capture");
    let source = format!("rx={}", file.display());
    text(&daemon.shuntctl(&["add-port", "br0", "in", "type=pcap", &source, "repeat=endless"]));
    let counted = |name: &str| {
        let metrics = text(&daemon.shuntctl(&["evict", "--metrics"]));
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<u64>().ok()).expect("the metric exists")
    };
    assert!(wait_until(|| text(&daemon.shuntctl(&["entries"])).lines().count() > 1));
    // Each rule has a higher priority than the previous rule, and the same effect at first.
    let mut priority = 1;
    let mut change = |actions: &str| {
        priority += 1;
        let rule = format!("priority={priority},ip,actions={actions}");
        text(&daemon.ovs_ofctl("br0", "add-flow", &[&rule]));
    };
    for (metric, actions) in [
        ("shunt_repair_unchanged_total", ["output:2", "output:2"]),
        ("shunt_repair_changed_total", ["output:3", "output:2"]),
    ] {
        let mut turns = actions.iter().cycle();
        let is_counted = || {
            change(turns.next().copied().unwrap_or_default());
            counted(metric) > 0
        };
        assert!(wait_until(is_counted), "{metric}: {}", text(&daemon.shuntctl(&["evict"])));
    }
}

#[test]
fn entries_are_explained_before_and_after_eviction() {
    let daemon = daemon();
    let rules = ["in_port=5,actions=goto_table:3", "table=3,ip,nw_dst=10.0.0.0/8,actions=output:2"];
    rules.iter().for_each(|rule| drop(text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]))));
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 9, 0, 1]).build();
    let file = daemon.run_dir().join("one");
    fs::write(&file, capture::write_frames([frame])).expect("a capture");
    let source = format!("rx={}", file.display());
    let port = ["add-port", "br0", "in", "type=pcap", &source, "number=5"];
    text(&daemon.shuntctl(&port));
    // Returns the name of the entry of the only packet: three numbers with dots.
    let entry = || {
        let entries = text(&daemon.shuntctl(&["entries"]));
        let mut words = entries.split_whitespace().map(str::to_owned);
        words.find(|word| word.split('.').filter(|part| part.parse::<u32>().is_ok()).count() == 3)
    };
    assert!(wait_until(|| entry().is_some()), "{}", text(&daemon.shuntctl(&["entries"])));
    let entry = entry().expect("the entry exists");

    let explanation = text(&daemon.shuntctl(&["why", &entry]));
    for expected in [
        &format!("entry {entry}: 1 packets"),
        "br0 table 0: priority=32768,in_port=in ",
        "br0 table 3: priority=32768,ip,nw_dst=10.0.0.0/8 ",
        "port 2 of br0",
    ] {
        assert!(explanation.contains(expected), "{expected}: {explanation}");
    }

    let rule = "table=3,priority=40000,ip,nw_dst=10.9.0.0/16,actions=drop";
    text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
    let explanation = text(&daemon.shuntctl(&["why", &entry]));
    assert!(explanation.starts_with(&format!("entry {entry} was evicted ")), "{explanation}");
    let ended = "the rule table=3,priority=40000,ip,nw_dst=10.9.0.0/16 of br0 was added";
    assert!(explanation.contains(ended), "{explanation}");

    let evict = text(&daemon.shuntctl(&["evict"]));
    let has_row = |name: &str, value: &str| {
        let rest = evict.lines().find_map(|line| line.trim_start().strip_prefix(name));
        rest.is_some_and(|rest| rest.split_whitespace().next() == Some(value))
    };
    for (name, value) in [("evicted", "1"), ("rule added", "1"), ("br0 table 3", "1")] {
        assert!(has_row(name, value), "{name}: {evict}");
    }
    assert!(evict.starts_with("engine direct, version "), "{evict}");
    let evict = text(&daemon.shuntctl(&["evict", "--json"]));
    let evict: serde_json::Value = serde_json::from_str(&evict).expect("the output is JSON");
    assert_eq!(evict["by_cause"], serde_json::json!([["rule_added", 1]]));
    let place = serde_json::json!([{"bridge": "br0", "table": 3, "evicted": 1}]);
    assert_eq!(evict["by_table"], place);

    let words = error_text(&daemon.shuntctl(&["why", "0.77.0"]));
    assert!(words.contains("its slot is empty"), "{words}");
}

#[test]
fn mistakes_are_reported_with_advice() {
    let daemon = daemon();
    for (arguments, expected) in [
        (&["add-port", "nosuch", "x", "type=null"][..], "nosuch"),
        (&["add-port", "br0", "p1", "type=null"], "p1"),
        (&["add-port", "br0", "x", "type=nul"], "null"),
        (&["add-port", "br0", "x", "type=pcap", "rx=/nonexistent.pcap"], "nonexistent"),
        (&["add-br", "a-name-that-is-far-too-long"], "15"),
        (&["del-port", "nosuch"], "nosuch"),
        (&["trace", "br0", "tcp,tp_dts=80"], "tp_dst"),
    ] {
        let words = error_text(&daemon.shuntctl(arguments));
        assert!(words.contains(expected), "{arguments:?}: {words}");
    }
}
