//! Flows that are announced, by `shuntctl preload` and by `announce.py`.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;
use shunt_flow::testing::packet::PacketBuilder;
use shunt_tests::{
    daemon::{Daemon, error_text, output, text, wait_until},
    namespace::print_skipped,
    repository::root,
};

use crate::daemon_with;

/// A daemon with port `p9`, and a rule for each flow of the port.
fn daemon(foresight: &str, frames: &[Vec<u8>]) -> Daemon {
    let daemon = daemon_with(&format!("[foresight]\n{foresight}\n"));
    let udp = (0..200).map(|port| format!("priority=9,udp,tp_src={port},actions=output:p1\n"));
    let rules = udp.collect::<String>() + "priority=9,arp,actions=normal\n";
    let file = daemon.run_dir().join("rules.txt");
    fs::write(&file, rules).expect("the run directory can be written");
    text(&daemon.ovs_ofctl("br0", "add-flows", &[&file.display().to_string()]));
    let file = daemon.run_dir().join("in.pcap");
    fs::write(&file, capture(frames)).expect("the run directory can be written");
    // No packet can arrive on a null port.
    let rx = format!("rx={}", file.display());
    text(&daemon.shuntctl(&["add-port", "br0", "p9", "number=9", "type=pcap", &rx]));
    daemon
}

/// A daemon that keeps entries for 16 flows.
fn small_daemon() -> Daemon {
    daemon("predictors = []\nentries = 16", &[])
}

/// Returns a classic pcap file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, 1]);
    for frame in frames {
        let length = u32::try_from(frame.len()).expect("a frame is short");
        bytes.extend(words(&[0, 0, length, length]));
        bytes.extend(frame);
    }
    bytes
}

fn preload(daemon: &Daemon, flows: &[String]) -> Output {
    let file = daemon.run_dir().join("flows.txt");
    fs::write(&file, flows.join("\n")).expect("the run directory can be written");
    daemon.shuntctl(&["preload", "br0", &file.display().to_string(), "--seconds", "600"])
}

fn flow(port: u16) -> String {
    format!("in_port=p9,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src={port},tp_dst=53")
}

/// Returns a count for a source of forecasts.
fn count(daemon: &Daemon, source: &str, key: &str) -> u64 {
    let status = text(&daemon.shuntctl(&["forecast", "--json"]));
    let status: Value = serde_json::from_str(&status).expect("the status is JSON");
    let mut sources = status["sources"].as_array().expect("the sources are a list").iter();
    let own = sources.find(|own| own["source"] == source);
    own.and_then(|own| own[key].as_u64()).unwrap_or_default()
}

#[test]
fn a_preload_says_how_many_flows_have_entries() {
    let daemon = small_daemon();
    let flows: Vec<String> = (0..10).map(flow).collect();
    let line = text(&preload(&daemon, &flows));
    assert_eq!(line, "10 flows on 1 packet thread: 10 installed, 0 covered, 0 refused\n");
    let line = text(&preload(&daemon, &flows[..2]));
    assert_eq!(line, "2 flows on 1 packet thread: 0 installed, 2 covered, 0 refused\n");
    // A flow that arrived before its forecast is `late`, and no packet arrived here.
    assert_eq!(count(&daemon, "preload", "late"), 0);
}

#[test]
fn a_preload_that_does_not_fit_fails() {
    let daemon = small_daemon();
    let done = preload(&daemon, &(0..20).map(flow).collect::<Vec<_>>());
    assert_eq!(done.status.code(), Some(1));
    let line = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(line, "20 flows on 1 packet thread: 16 installed, 0 covered, 4 refused\n");
    let error = error_text(&done);
    let expected = "flows without an entry: forecasts_full 4 (a packet thread keeps entries of at \
                    most 16 flows without a hit: raise `foresight.entries`)";
    assert!(error.contains(expected), "{error}");
    // The first entries remain.
    assert_eq!(count(&daemon, "preload", "evicted"), 0);
}

#[test]
fn flow_that_learns_is_refused_with_reason() {
    let daemon = small_daemon();
    let flows = [flow(1), "in_port=p9,arp,arp_op=1,dl_src=02:00:00:00:00:01".to_owned()];
    let done = preload(&daemon, &flows);
    assert!(error_text(&done).contains("flows without an entry: learns 1"), "{done:?}");
}

#[test]
fn a_masked_flow_is_preloaded_if_unambiguous() {
    let daemon = small_daemon();
    let masked = "in_port=p9,udp,nw_src=10.0.0.0/24,nw_dst=10.0.0.2,tp_src=1,tp_dst=53";
    let line = text(&preload(&daemon, &[masked.to_owned()]));
    assert_eq!(line, "1 flow on 1 packet thread: 1 installed, 0 covered, 0 refused\n");
    // The rules consult the source port.
    let done = preload(&daemon, &[flow(2).replace("tp_src=2", "tp_src=2/0xfffe")]);
    assert!(error_text(&done).contains("unknown_bits 1 (the rules match bits"), "{done:?}");
    // A packet of a trace has one value of each field.
    let traced = daemon.shuntctl(&["trace", "br0", masked]);
    assert!(error_text(&traced).contains("ip_src has a mask"), "{traced:?}");
}

#[test]
fn the_example_program_announces_flows() {
    if Command::new("python3").arg("--version").output().is_err() {
        print_skipped("announce.py needs python3: apt-get install python3");
        return;
    }
    let daemon = small_daemon();
    let announce = |bridge: &str, flows: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(root().join("docs/announce.py")).arg(daemon.run_dir());
        output(command.args([bridge, "60"]).args(flows))
    };
    let flows = [flow(1), flow(2)];
    assert_eq!(text(&announce("br0", &[&flows[0], &flows[1]])), "accepted: 2, refused: 0\n");
    assert!(wait_until(|| count(&daemon, "announced", "installed") == 2));
    let refused = announce("br7", &[&flows[0]]);
    let error = error_text(&refused);
    assert!(error.starts_with("announce.py: ") && error.contains("br7"), "{error}");
    let usage = announce("br0", &[]);
    assert!(error_text(&usage).contains("usage: announce.py RUN_DIR BRIDGE SECONDS FLOW.."));
}

/// Each packet thread pauses predictors without enough hits,
/// and the log has this pause.
#[test]
fn a_paused_predictor_is_logged() {
    let frames: Vec<_> = (0..300_u16)
        .map(|port| PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(port, 53).build())
        .collect();
    let daemon = daemon("predictors = [\"successor\"]", &frames);
    let is_logged = || {
        let log = daemon.log();
        log.contains("packet thread 0: predictor successor is paused")
    };
    assert!(wait_until(is_logged), "{}", daemon.log());
    assert_eq!(count(&daemon, "successor", "pauses"), 1);
}
