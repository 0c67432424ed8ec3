//! The daemon with a NIC in front of a bridge: embedded, and external with restarts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};
use shunt_flow::testing::packet::PacketBuilder;
use shunt_tests::{
    capture,
    daemon::{Daemon, binary, text, wait_until},
    namespace::namespace_or_skip,
};
use tempfile::TempDir;

/// Sender check, rewrite, forward.
const POLICY: [&str; 6] = [
    "table=0,priority=5,ip,nw_src=10.1.0.0/24,actions=load:1->NXM_NX_REG0[],goto_table:1",
    "table=1,priority=5,reg0=1,ip,actions=dec_ttl,set_field:02:00:00:00:00:99->eth_src,goto_table:2",
    "table=2,priority=5,ip,nw_dst=10.9.0.0,actions=output:2",
    "table=2,priority=5,ip,nw_dst=10.9.0.1,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:2",
    "table=2,priority=5,ip,nw_dst=10.9.0.2,actions=output:2,dec_ttl,output:2",
    "table=2,priority=1,actions=drop",
];

fn frames() -> Vec<Vec<u8>> {
    let targets = (0..4).flat_map(|target| (1..=8).map(move |source| (source, target)));
    let frame = |(source, target)| {
        PacketBuilder::ipv4([10, 1, 0, source], [10, 9, 0, target]).ttl(9).udp(7, 1).build()
    };
    targets.map(frame).collect()
}

fn load(daemon: &Daemon) {
    let file = daemon.run_dir().join("policy");
    fs::write(&file, POLICY.join("\n")).unwrap();
    text(&daemon.ovs_ofctl("br0", "add-flows", &[&file.to_string_lossy()]));
}

fn caches(daemon: &Daemon) -> Value {
    serde_json::from_str(&text(&daemon.shuntctl(&["caches", "--json"]))).unwrap()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Returns the number of NIC entries.
fn entries(nic: &Value) -> u64 {
    let stages = nic["stages"].as_array().map_or(&[][..], Vec::as_slice);
    stages.iter().map(|stage| count(&stage["entries"])).sum()
}

/// Returns the distinct frames that leave through port 2.
fn leaves(target: &str) -> (BTreeSet<Vec<u8>>, Daemon) {
    let caches_table = format!("[caches]\nkind = \"gigaflow\"\nverify_one_in = 16\n{target}\n");
    let daemon = Daemon::start(&format!("{caches_table}[[bridge]]\nname = \"br0\"\n"));
    load(&daemon);
    let file = |name: &str| daemon.run_dir().join(name);
    fs::write(file("in"), capture::write_frames(frames())).unwrap();
    let connected = || target.is_empty() || caches(&daemon)["nic"]["state"] == "connected";
    assert!(wait_until(connected), "{}\n{}", caches(&daemon), daemon.log());
    let (out, source) = (file("out"), format!("rx={}", file("in").display()));
    let sink = format!("tx={}", out.display());
    text(&daemon.shuntctl(&["add-port", "br0", "p2", "type=pcap", "number=2", &sink]));
    let words = ["add-port", "br0", "p1", "type=pcap", "number=1", &source, "repeat=endless"];
    text(&daemon.shuntctl(&words));
    let came = || {
        let caches = caches(&daemon);
        let hits = count(&caches["nic"]["traffic"]["hits"]);
        count(&caches["received"]) >= 4 * frames().len() as u64 && (target.is_empty() || hits > 0)
    };
    assert!(wait_until(came), "{}", caches(&daemon));
    text(&daemon.shuntctl(&["del-port", "p1"]));
    let drops = || -> Value {
        serde_json::from_str(&text(&daemon.shuntctl(&["drops", "--json"]))).unwrap()
    };
    assert!(wait_until(|| count(&drops()["held"]) == 0));
    text(&daemon.shuntctl(&["del-port", "p2"]));
    (capture::read(&fs::read(out).unwrap()).into_iter().collect(), daemon)
}

/// The section of the configuration for an embedded NIC.
const EMBEDDED: &str = "[caches.gigaflow.offload]\nkind = \"embedded\"";

#[test]
fn a_nic_forwards_most_packets_with_equal_output() {
    let (expected, _) = leaves("");
    let (sent, daemon) = leaves(EMBEDDED);
    assert_eq!(sent, expected);
    let caches = caches(&daemon);
    let traffic = &caches["nic"]["traffic"];
    assert!(count(&traffic["hits"]) > 0 && count(&traffic["missed"]) > 0, "{caches}");
    assert_eq!(caches["differences"], 0, "{}", daemon.log());
    let shown = text(&daemon.shuntctl(&["caches"]));
    for expected in ["nic hits", "nic misses", "nic entries", "time from miss to offload"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let show = text(&daemon.shuntctl(&["show"]));
    assert!(show.contains("nic embedded 127.0.0.1:"), "{show}");
}

/// A standalone NIC, which is stopped on drop.
struct Nic {
    process: Child,
    folder: TempDir,
}

impl Nic {
    fn start(address: &str, wrap: impl FnOnce(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = wrap(&binary("shuntd"));
        command.current_dir(folder.path()).args(["nic", "--listen", address]);
        command.args(["--port", "1=null", "--port", "2=null", "--representor", "1=null"]);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = command.stderr(Stdio::from(log)).spawn().unwrap();
        let nic = Self { process, folder };
        assert!(wait_until(|| nic.log().contains("NIC ready")), "no NIC: {}", nic.log());
        nic
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the listening address of the NIC.
    fn address(&self) -> String {
        let log = self.log();
        let (_, rest) = log.split_once("127.0.0.1:").unwrap_or_else(|| panic!("{log}"));
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}")
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a daemon with traffic behind the NIC `nic`.
fn daemon_behind(nic: &Nic) -> Daemon {
    let address = nic.address();
    daemon_with_traffic(&format!(
        "[caches.gigaflow.offload]\nkind = \"p4runtime\"\naddress = \"{address}\"\n"
    ))
}

/// Starts a daemon with traffic.
///
/// The daemon has only entries of packets, and no entries of predicted flows.
fn daemon_with_traffic(target: &str) -> Daemon {
    let config = "[foresight]\npredictors = []\n[[bridge]]\nname = \"br0\"\n";
    let daemon = Daemon::start(&format!("{target}{config}"));
    load(&daemon);
    fs::write(daemon.run_dir().join("in"), capture::write_frames(frames())).unwrap();
    text(&daemon.shuntctl(&["add-port", "br0", "p2", "type=null", "number=2"]));
    let source = format!("rx={}", daemon.run_dir().join("in").display());
    let words = ["add-port", "br0", "p1", "type=pcap", "number=1", &source, "repeat=endless"];
    text(&daemon.shuntctl(&words));
    daemon
}

/// Returns whether the NIC has `expected` entries and no pending entries.
fn has(daemon: &Daemon, expected: u64) -> bool {
    let nic = caches(daemon)["nic"].clone();
    nic["state"] == "connected" && entries(&nic) == expected && count(&nic["waiting"]) == 0
}

#[test]
fn a_released_external_nic_is_empty() {
    let nics = [(); 2].map(|()| Nic::start("127.0.0.1:0", |program| Command::new(program)));
    let daemon = daemon_with_traffic("");
    assert_eq!(caches(&daemon)["nic"], Value::Null);
    let address = format!("caches.gigaflow.offload.address={}", nics[0].address());
    let words =
        ["set", "caches.gigaflow.offload.kind=p4runtime", "caches.gigaflow.offload.masks=x"];
    let shuntctl = daemon.shuntctl(&words);
    assert!(!shuntctl.status.success(), "all or none");
    assert_eq!(caches(&daemon)["nic"], Value::Null);
    let words = ["set", "caches.idle_ms=7000", "logging.filter=loud"];
    assert!(!daemon.shuntctl(&words).status.success(), "the log line is checked first");
    let settings = text(&daemon.shuntctl(&["settings"]));
    for expected in ["caches.gigaflow.offload.kind = \"none\"\n", "caches.idle_ms = 10000\n"] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    assert!(!settings.contains("loud") && settings.contains("logging.filter = \""), "{settings}");
    text(&daemon.shuntctl(&["set", "caches.gigaflow.offload.kind=p4runtime", &address]));
    assert!(wait_until(|| has(&daemon, 4)), "{}\n{}", caches(&daemon), daemon.log());
    let words = ["set", &format!("caches.gigaflow.offload.address={}", nics[1].address())];
    text(&daemon.shuntctl(&words));
    let emptied = || daemon.log().matches("previous NIC: all entries removed").count();
    assert!(
        wait_until(|| emptied() == 1 && has(&daemon, 4)),
        "{}\n{}",
        caches(&daemon),
        daemon.log()
    );
    text(&daemon.shuntctl(&["exit"]));
    assert!(wait_until(|| emptied() == 2), "{}", daemon.log());
    assert!(!daemon.log().contains("left with"), "{}", daemon.log());
}

#[test]
fn a_returning_nic_is_synchronised() {
    let nic = Nic::start("127.0.0.1:0", |program| Command::new(program));
    let address = nic.address();
    let daemon = daemon_behind(&nic);
    let nic_of = || caches(&daemon)["nic"].clone();
    let has = |expected| has(&daemon, expected);
    // The entries are: sender check, an output, an output with a pushed tag, and a drop. The NIC
    // refuses two outputs.
    assert!(wait_until(|| has(4)), "{}\n{}", nic_of(), daemon.log());
    // The counter grows each time that the entry is offered.
    let refused = nic_of()["refused"].clone();
    assert!(count(&refused[0][1]) > 0, "{refused}");
    assert_eq!(refused, json!([["actions", refused[0][1]]]));

    drop(nic);
    assert!(wait_until(|| nic_of()["state"] == "stale"), "{}", nic_of());
    let show = text(&daemon.shuntctl(&["show"]));
    assert!(show.contains("stale for"), "{show}");
    // The barrier does not wait for the NIC.
    let stop = "priority=5,table=2,ip,nw_dst=10.9.0.2,actions=drop";
    text(&daemon.ovs_ofctl("br0", "mod-flows", &["--strict", stop]));

    let nic = Nic::start(&address, |program| Command::new(program));
    // The refused entry is now a drop.
    assert!(wait_until(|| has(5)), "{}\n{}", nic_of(), daemon.log());
    assert!(count(&nic_of()["repairs"]) > 0, "{}", nic_of());
    assert!(!nic.log().contains("WARN"), "{}", nic.log());
}

#[test]
fn no_packet_after_barrier_matches_old_rule() {
    let namespaces = ["a", "b", "s"].map(|label| namespace_or_skip(&format!("nic-{label}")));
    let [Some(host_a), Some(host_b), Some(middle)] = namespaces else { return };
    host_a.connect("eth0", &middle, "p1");
    host_b.connect("eth0", &middle, "p2");
    host_a.run("ip", &["addr", "add", "10.10.0.1/24", "dev", "eth0"]);
    host_b.run("ip", &["addr", "add", "10.10.0.2/24", "dev", "eth0"]);
    let ports = "[[bridge]]\nname = \"br0\"\n\
        [[bridge.port]]\nname = \"p1\"\nnumber = 1\ntype = \"af_packet\"\n\
        [[bridge.port]]\nname = \"p2\"\nnumber = 2\ntype = \"af_packet\"\n";
    let daemon = Daemon::start_with(&format!("{EMBEDDED}\n{ports}"), |program| {
        middle.command(&program.to_string_lossy())
    });
    let rules = ["priority=5,in_port=1,actions=output:2", "priority=5,in_port=2,actions=output:1"];
    rules.iter().for_each(|rule| drop(text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]))));
    let mut ping = host_a.command("ping");
    ping.args(["-q", "-i", "0.002", "-c", "100000", "10.10.0.2"]).stdout(Stdio::null());
    let mut ping = ping.spawn().unwrap();
    let hits = || count(&caches(&daemon)["nic"]["traffic"]["hits"]);
    let flows = || host_b.echo_requests();
    assert!(wait_until(|| hits() > 100), "{}\n{}", caches(&daemon), daemon.log());
    let stale_count = || count(&caches(&daemon)["nic"]["stale_count"]);
    let stale_before = stale_count();
    for round in 0..3 {
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=9,icmp,in_port=1,actions=drop"]));
        // Packets of the old rule have left the switch; the kernel delivers these packets within
        // milliseconds.
        sleep(Duration::from_millis(50));
        let before = flows();
        sleep(Duration::from_millis(200));
        assert_eq!(flows(), before, "round {round}: {}", caches(&daemon));
        text(&daemon.ovs_ofctl("br0", "del-flows", &["--strict", "priority=9,icmp,in_port=1"]));
        let (before, hit) = (flows(), hits());
        assert!(wait_until(|| flows() > before + 10 && hits() > hit + 10), "{}", caches(&daemon));
    }
    // With a stale NIC, the barrier reply proves nothing.
    assert_eq!(stale_count(), stale_before, "{}", caches(&daemon));
    let _ = ping.kill();
    let _ = ping.wait();
}

#[test]
fn the_gigaflow_demo_prints_its_results() {
    let said = text(&Command::new(env!("CARGO_BIN_EXE_demo")).arg("--gigaflow").output().unwrap());
    for line in ["LTM entries on the NIC serve 1600 flows", "were removed before the barrier reply"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
}
