//! The daemon with a Gigaflow chain as its cache.
//!
//! Packets enter through ports and rules change. The output must equal the output with the megaflow
//! cache.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{fs, path::PathBuf};

use serde_json::Value;
use shunt_flow::testing::packet::PacketBuilder;
use shunt_tests::{
    capture,
    daemon::{Daemon, error_text, text, wait_until},
};

/// Sender check, rewrite, forward: all sources and destinations share entries.
const POLICY: [&str; 12] = [
    "table=0,priority=5,ip,nw_src=10.1.0.0/24,actions=load:1->NXM_NX_REG0[],goto_table:1",
    "table=0,priority=5,ip,nw_src=10.2.0.0/24,actions=load:2->NXM_NX_REG0[],goto_table:1",
    "table=1,priority=5,reg0=1,ip,actions=dec_ttl,set_field:02:00:00:00:00:99->eth_src,goto_table:2",
    "table=1,priority=5,reg0=2,ip,actions=goto_table:2",
    "table=2,priority=5,udp,tp_dst=1,actions=goto_table:3",
    "table=2,priority=5,udp,tp_dst=2,actions=goto_table:3",
    "table=2,priority=5,udp,tp_dst=3,actions=drop",
    "table=3,priority=5,ip,nw_dst=10.9.0.0,actions=output:2",
    "table=3,priority=5,ip,nw_dst=10.9.0.1,actions=set_field:02:00:00:00:00:07->eth_dst,output:2",
    "table=3,priority=5,ip,nw_dst=10.9.0.2,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2",
    "table=3,priority=5,ip,nw_dst=10.9.0.3,actions=output:2,dec_ttl,output:2",
    "table=3,priority=1,actions=drop",
];

/// Number of flows: each source sends to each destination.
const FLOWS: usize = 4 * 3 * 5;

fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for source in [[10, 1, 0, 1], [10, 1, 0, 2], [10, 2, 0, 1], [10, 3, 0, 1]] {
        for port in 1..=3 {
            for target in 0..5 {
                let packet = PacketBuilder::ipv4(source, [10, 9, 0, target]).ttl(9);
                frames.push(packet.udp(7, port).build());
            }
        }
    }
    assert_eq!(frames.len(), FLOWS);
    frames
}

/// A daemon with a cache configuration, and the policy in its only bridge.
struct PolicyFixture {
    daemon: Daemon,
}

impl PolicyFixture {
    fn new(caches: &str) -> Self {
        let bridge = "[[bridge]]\nname = \"br0\"\n";
        let daemon = Daemon::start(&format!("[caches]\n{caches}\n{bridge}"));
        text(&daemon.shuntctl(&["add-port", "br0", "p1", "type=null", "number=1"]));
        let fixture = Self { daemon };
        fixture.renew_sink();
        let file = fixture.file("policy");
        fs::write(&file, POLICY.join("\n")).unwrap();
        text(&fixture.daemon.ovs_ofctl("br0", "add-flows", &[&file.to_string_lossy()]));
        fixture
    }

    fn file(&self, name: &str) -> PathBuf {
        self.daemon.run_dir().join(name)
    }

    /// Replaces the output file of port 2 with an empty file.
    fn renew_sink(&self) {
        let sink = format!("tx={}", self.file("out").display());
        text(&self.daemon.shuntctl(&["add-port", "br0", "p2", "type=pcap", "number=2", &sink]));
    }

    /// Sends every flow once; returns the output of port 2.
    fn send(&self) -> Vec<Vec<u8>> {
        fs::write(self.file("in"), capture::write_frames(frames())).unwrap();
        let before = self.caches()["received"].as_u64().unwrap();
        self.replay("once");
        assert!(wait_until(|| self.caches()["received"].as_u64() >= Some(before + FLOWS as u64)));
        assert!(wait_until(|| self.drops()["held"].as_u64() == Some(0)));
        text(&self.daemon.shuntctl(&["del-port", "p1"]));
        text(&self.daemon.shuntctl(&["del-port", "p2"]));
        let mut sent = capture::read(&fs::read(self.file("out")).unwrap());
        self.renew_sink();
        text(&self.daemon.shuntctl(&["add-port", "br0", "p1", "type=null", "number=1"]));
        sent.sort_unstable();
        sent
    }

    /// Makes port 1 replay the file once or in a loop.
    fn replay(&self, repeat: &str) {
        text(&self.daemon.shuntctl(&["del-port", "p1"]));
        let (source, repeat) =
            (format!("rx={}", self.file("in").display()), format!("repeat={repeat}"));
        let words = ["add-port", "br0", "p1", "type=pcap", "number=1", &source, &repeat];
        text(&self.daemon.shuntctl(&words));
    }

    fn caches(&self) -> Value {
        serde_json::from_str(&text(&self.daemon.shuntctl(&["caches", "--json"]))).unwrap()
    }

    fn drops(&self) -> Value {
        serde_json::from_str(&text(&self.daemon.shuntctl(&["drops", "--json"]))).unwrap()
    }

    fn set(&self, word: &str) {
        text(&self.daemon.shuntctl(&["set", word]));
    }
}

#[test]
fn the_output_equals_that_of_the_megaflow_cache() {
    let megaflow = PolicyFixture::new("");
    let expected = megaflow.send();
    assert!(expected.len() > FLOWS / 4, "{} frames", expected.len());
    let policies =
        ["disjoint", "joint", "profiled", "first-fit", "random", "one-to-one", "megaflow"];
    let gigaflow = PolicyFixture::new("kind = \"gigaflow\"\nverify_one_in = 1");
    for policy in policies {
        gigaflow.set(&format!("caches.gigaflow.policy={policy}"));
        for round in 0..2 {
            assert_eq!(gigaflow.send(), expected, "{policy}, round {round}");
        }
    }
    let caches = gigaflow.caches();
    assert!(caches["verified"].as_u64() > Some(FLOWS as u64), "{caches}");
    assert_eq!(caches["differences"], 0, "{}", gigaflow.daemon.log());
}

#[test]
fn a_rule_change_removes_only_dependent_entries() {
    // Each entry is the entry of a packet.
    let chain = "[caches.gigaflow]\npolicy = \"one-to-one\"\n[foresight]\npredictors = []";
    let fixture = PolicyFixture::new(&format!("kind = \"gigaflow\"\nverify_one_in = 1\n{chain}"));
    fs::write(fixture.file("in"), capture::write_frames(frames())).unwrap();
    text(&fixture.daemon.shuntctl(&["del-port", "p2"]));
    text(&fixture.daemon.shuntctl(&["add-port", "br0", "p2", "type=null", "number=2"]));
    fixture.replay("endless");
    let count = |value: &Value| value.as_u64().unwrap();
    let all_have_come = || count(&fixture.caches()["received"]) > 20 * FLOWS as u64;
    assert!(wait_until(all_have_come), "{}", fixture.caches());
    let caches = fixture.caches();
    let (chain, entries) = (&caches["gigaflow"], count(&caches["entries"]));
    assert!(count(&chain["hits"]) > FLOWS as u64 && count(&chain["shared"]) > 0, "{caches}");
    assert!(entries < FLOWS as u64 / 2, "{entries} entries of {FLOWS} flows");
    assert!(count(&caches["rule_space"][0]["exact"]) > entries, "{caches}");
    assert_eq!(caches["gigaflow_threads"][0]["stages"].as_array().map(Vec::len), Some(4));

    let evicted = count(&caches["evicted"]);
    let stop = "priority=5,table=3,ip,nw_dst=10.9.0.1,actions=drop";
    text(&fixture.daemon.ovs_ofctl("br0", "mod-flows", &["--strict", stop]));
    let met = || {
        let flows = "table=3,ip,nw_dst=10.9.0.1";
        let stats = text(&fixture.daemon.ovs_ofctl("br0", "dump-flows", &[flows]));
        stats.contains("actions=drop") && !stats.contains("n_packets=0,")
    };
    assert!(wait_until(met), "packets follow the new rule");
    let caches = fixture.caches();
    let gone = count(&caches["evicted"]) - evicted;
    assert!((1..=4).contains(&gone), "{gone} of {entries} entries were removed");
    assert!(count(&caches["verified"]) > 0);
    assert_eq!(caches["differences"], 0, "{}", fixture.daemon.log());
}

#[test]
fn replacing_the_cache_loses_no_packet() {
    let fixture = PolicyFixture::new("verify_one_in = 2");
    fs::write(fixture.file("in"), capture::write_frames(frames())).unwrap();
    fixture.replay("endless");
    for change in [
        "caches.kind=gigaflow",
        "caches.gigaflow.stages=2",
        "caches.gigaflow.stage_entries=3",
        "caches.gigaflow.eviction=never",
        "caches.gigaflow.tag_bits=2",
        "caches.gigaflow.fallback_one_in=7",
        "caches.kind=megaflow",
        "caches.gigaflow.stage_entries=1000",
        "caches.kind=gigaflow",
        "caches.gigaflow.fallback_one_in=0",
    ] {
        fixture.set(change);
        let hits = |caches: &Value| {
            let count = |value: &Value| value.as_u64().unwrap_or_default();
            let chain = &caches["gigaflow"]["hits"];
            let wildcard = if chain.is_null() { &caches["megaflow_hits"] } else { chain };
            ["exact_hits", "signature_hits"].map(|key| count(&caches[key])).iter().sum::<u64>()
                + count(wildcard)
        };
        let before = hits(&fixture.caches());
        let goes_on = wait_until(|| hits(&fixture.caches()) > before + 1000);
        assert!(goes_on, "{change}: {}", fixture.caches());
    }
    text(&fixture.daemon.shuntctl(&["del-port", "p1"]));
    assert!(wait_until(|| fixture.drops()["held"].as_u64() == Some(0)));
    let (caches, drops) = (fixture.caches(), fixture.drops());
    assert_eq!(caches["differences"], 0, "{}", fixture.daemon.log());
    let count = |key: &str| drops[key].as_u64().unwrap();
    let dropped = drops["dropped"].as_array().unwrap().iter();
    let dropped: u64 = dropped.map(|pair| pair[1].as_u64().unwrap()).sum();
    let came = count("received") + count("injected") + count("copied");
    assert_eq!(came, count("sent") + count("punted") + dropped);
}

#[test]
fn a_trace_shows_the_sub_traversals() {
    let fixture =
        PolicyFixture::new("kind = \"gigaflow\"\n[caches.gigaflow]\npolicy = \"one-to-one\"");
    let flow = "in_port=1,udp,nw_src=10.1.0.1,nw_dst=10.9.0.1,tp_dst=1";
    let trace = text(&fixture.daemon.shuntctl(&["trace", "br0", flow]));
    for expected in [
        "Sub-traversals: policy one-to-one, stages 0 to 3, computed for empty stages",
        "stage 0: table 0; matches bridge br0, ",
        "; then end",
        ">> partitioned after table 0: the policy puts each table in its own sub-traversal",
    ] {
        assert!(trace.contains(expected), "{expected}: {trace}");
    }
    fixture.set("caches.gigaflow.stages=1");
    let trace = text(&fixture.daemon.shuntctl(&["trace", "br0", flow, "--json"]));
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let parts = &trace["sub_traversals"]["sub_traversals"];
    assert_eq!(parts.as_array().map(Vec::len), Some(1), "{trace}");
    assert!(parts[0]["tables"][0]["joined"].is_string(), "{trace}");
    fixture.set("caches.kind=megaflow");
    let trace = text(&fixture.daemon.shuntctl(&["trace", "br0", flow]));
    assert!(!trace.contains("Sub-traversals"), "{trace}");
}

#[test]
fn invalid_settings_are_refused_with_advice() {
    let fixture = PolicyFixture::new("");
    for (setting, expected) in [
        ("caches.kind=gigafow", "megaflow, gigaflow or flows"),
        ("caches.gigaflow.stages=17", "from 1 to 16"),
        ("caches.gigaflow.stages=0", "from 1 to 16"),
        ("caches.gigaflow.policy=best", "one-to-one"),
        ("caches.gigaflow.stage_entries=0", "from 1 to"),
        ("caches.gigaflow.tag_bits=25", "from 1 to 24"),
        ("caches.gigaflow.polcy=joint", "caches.gigaflow.policy"),
    ] {
        let words = error_text(&fixture.daemon.shuntctl(&["set", setting]));
        assert!(words.contains(expected), "{setting}: {words}");
    }
    assert_eq!(fixture.caches()["kind"], "megaflow", "nothing has changed");
}
