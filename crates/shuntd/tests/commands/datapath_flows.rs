//! Commands about the datapath, compared with recorded answers of Open vSwitch.
//!
//! Open vSwitch and Shunt had the same rules and received the same packets. Masks, counters and the
//! order of entries may differ; all other text must be equal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Daemon,
    appctl::{out, ovs_appctl},
    errors, wait_until,
};

fn recorded_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/open-vswitch").join(name)
}

fn recorded_text(name: &str) -> String {
    fs::read_to_string(recorded_path(name)).unwrap()
}

/// Starts a daemon with the recorded rules,
/// and ports that receive the packets endlessly.
///
/// `None` if the programs of Open vSwitch are not installed.
fn daemon() -> Option<Daemon> {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    ovs_appctl(daemon.run_dir(), &["version"])?;
    ovs_ofctl(&daemon, "add-flows", &recorded_path("rules.txt").display().to_string());
    for number in 1..=4 {
        let file = recorded_path(&format!("p{number}.pcap"));
        let rx = format!("rx={}", file.display());
        let (name, number) = (format!("p{number}"), format!("number={number}"));
        daemon.answer(&["add-port", "br0", &name, &number, "type=pcap", &rx, "repeat=endless"]);
    }
    Some(daemon)
}

fn ovs_ofctl(daemon: &Daemon, request: &str, argument: &str) {
    let socket = format!("unix:{}", daemon.run_dir().join("br0.mgmt").display());
    let mut command = Command::new("ovs-ofctl");
    let output = command.args(["-O", "OpenFlow13", request, &socket, argument]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

fn ask(daemon: &Daemon, arguments: &[&str]) -> String {
    ovs_appctl(daemon.run_dir(), arguments).map(|output| out(&output)).unwrap_or_default()
}

/// A parsed line of `dpctl/dump-flows`.
#[derive(Debug)]
struct FlowLine {
    /// Values of the key by attribute and field, without masks.
    key: BTreeMap<String, String>,
    in_port: Option<String>,
    /// Actions, sorted, because independent changes of headers may be in another order.
    actions: Vec<String>,
}

impl FlowLine {
    fn of(line: &str) -> Self {
        let (key, rest) = line.split_once(", packets:").unwrap();
        let (counters, actions) = rest.split_once(", actions:").unwrap();
        let counters: Vec<_> = counters.split(", ").take(3).collect();
        assert!(counters[1].starts_with("bytes:") && counters[2].starts_with("used:"), "{line}");
        let mut values = BTreeMap::new();
        read(key, "", &mut values);
        let in_port = values.remove("in_port");
        let mut actions = split(actions);
        // Recirculation ids of packet-ins differ, because Open vSwitch numbers packet-ins.
        actions.iter_mut().filter(|action| action.starts_with("userspace")).for_each(|action| {
            let (start, rest) = action.split_once("recirc_id=").unwrap();
            *action = format!("{start}{}", rest.split_once(',').unwrap().1);
        });
        actions.sort();
        Self { key: values, in_port, actions }
    }

    /// Returns whether an entry of Open vSwitch covers a part of this entry,
    /// with equal actions.
    fn agrees_with(&self, other: &Self) -> bool {
        let is_in_other = |(name, value): (&String, &String)| {
            // Open vSwitch omits a matched ND target unless the ICMPv6 code is matched too.
            other.key.get(name) == Some(value) || name == "nd.target"
        };
        let port = other.in_port.as_ref().unwrap();
        let is_port = self.in_port.as_ref().is_none_or(|own| own == port);
        // An entry for all ports sends to the ingress port only by the action `in_port`.
        let of_port = |action: &String| match action.as_str() {
            "in_port" => Some(port.clone()),
            own if self.in_port.is_none() && own == port => None,
            own => Some(own.to_owned()),
        };
        let actions: Vec<_> = self.actions.iter().filter_map(of_port).collect();
        is_port && self.key.iter().all(is_in_other) && actions == other.actions
    }
}

/// Parses `name(field=value/mask,..)` and `name(value)`, also nested.
fn read(text: &str, prefix: &str, values: &mut BTreeMap<String, String>) {
    for part in split(text) {
        let value = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        match (part.split_once('('), part.split_once('=')) {
            (Some((name, inner)), _) => {
                let inner = inner.strip_suffix(')').unwrap();
                let name = if name == "encap" { "encap.".to_owned() } else { name.to_owned() };
                read(inner, &format!("{prefix}{name}"), values);
            }
            (None, Some((name, own))) => {
                values.insert(format!("{prefix}.{name}"), value(own));
            }
            (None, None) => {
                values.insert(prefix.to_owned(), value(&part));
            }
        }
    }
}

/// Splits a text at commas outside of parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(letter),
        }
    }
    parts
}

fn flows(text: &str) -> Vec<FlowLine> {
    text.lines().filter(|line| !line.starts_with("flow-dump from ")).map(FlowLine::of).collect()
}

#[test]
fn flows_look_like_open_vswitch() {
    let expected = flows(&recorded_text("dpctl-dump-flows.txt"));
    assert_eq!(expected.len(), 14);
    let Some(daemon) = daemon() else { return };
    let missing = |own: &[FlowLine]| {
        let is_missing = |other: &&FlowLine| !own.iter().any(|own| own.agrees_with(other));
        expected.iter().filter(is_missing).count()
    };
    let mut own = String::new();
    wait_until(|| {
        own = ask(&daemon, &["dpctl/dump-flows", "--names"]);
        missing(&flows(&own)) == 0
    });
    assert_eq!(missing(&flows(&own)), 0, "{own}");
    assert!(own.starts_with("flow-dump from packet thread 0:\n"), "{own}");
    let by_bridge = ask(&daemon, &["dpif/dump-flows", "--names", "br0"]);
    assert_eq!(missing(&flows(&by_bridge)), 0, "{by_bridge}");
    let numbers = ask(&daemon, &["dpctl/dump-flows"]);
    assert!(!numbers.contains("in_port(p") && numbers.contains("in_port("), "{numbers}");
    let of_thread = |word| flows(&ask(&daemon, &["dpctl/dump-flows", "--names", word]));
    assert_eq!(missing(&of_thread("pmd=0")), 0);
    assert!(of_thread("pmd=1").is_empty() && of_thread("type=offloaded").is_empty());
    daemon.answer(&["add-br", "br1"]);
    assert_eq!(ask(&daemon, &["dpif/dump-flows", "br1"]), "");
}

#[test]
fn rules_of_flow_are_those_of_lookups() {
    let Some(daemon) = daemon() else { return };
    let mut line = String::new();
    assert!(wait_until(|| {
        let all = ask(&daemon, &["dpctl/dump-flows", "-m"]);
        let found = all.lines().find(|line| line.contains("tcp(src=1000/0,dst=80)"));
        line = found.unwrap_or_default().to_owned();
        !line.is_empty()
    }));
    let ufid = line.split_once(',').unwrap().0;
    let rules = ask(&daemon, &["ofproto/detrace", ufid]);
    let expected = "priority=20,tcp,nw_dst=10.9.0.0/16,tp_dst=80,actions=set_field:11:22:33:44:55:66->eth_dst,\
                    set_field:1.2.3.4->ip_src,set_field:99->tcp_dst,output:3\n";
    assert!(rules.starts_with("cookie=0x0, duration=") && rules.ends_with(expected), "{rules}");
    assert_eq!(rules.lines().count(), 1, "{rules}");
    let one = ask(&daemon, &["dpctl/get-flow", ufid]);
    assert!(one.starts_with("recirc_id(0),") && one.lines().count() == 1, "{one}");
    let with_key = ask(&daemon, &["dpctl/get-flow", ufid, "-m"]);
    assert_eq!(
        with_key.split_once(", packets:").unwrap().0,
        line.split_once(", packets:").unwrap().0
    );
    let absent = "ufid:00000000-0000-0000-ffff-ffff00000000";
    let error = ovs_appctl(daemon.run_dir(), &["dpctl/get-flow", absent]).unwrap();
    assert!(errors(&error).contains("no such entry"), "{}", errors(&error));
    let error = ovs_appctl(daemon.run_dir(), &["ofproto/detrace", "0.99.0"]).unwrap();
    assert!(errors(&error).contains("no such cache entry"), "{}", errors(&error));
}

/// A key of `dpctl/dump-flows -m` contains all fields of a packet.
#[test]
fn a_trace_takes_the_key_of_a_flow() {
    let Some(daemon) = daemon() else { return };
    let mut lines = Vec::new();
    assert!(wait_until(|| {
        let all = ask(&daemon, &["dpctl/dump-flows", "-m"]);
        lines = all.lines().skip(1).map(str::to_owned).collect();
        lines.len() == 14
    }));
    for line in &lines {
        let key = line.split_once(", packets:").unwrap().0;
        let actions = line.split_once(" actions:").unwrap().1;
        let text = ask(&daemon, &["ofproto/trace", "ovs-netdev", key, "-generate"]);
        let last = text.lines().find_map(|line| line.strip_prefix("Datapath actions: ")).unwrap();
        assert_eq!(last == "drop", actions == "drop", "{key}: {text}");
        let port = key.split_once("in_port(").unwrap().1.split_once([')', '/']).unwrap().0;
        assert!(text.contains(&format!("in_port={port}")), "{text}");
    }
    let error = ovs_appctl(daemon.run_dir(), &["ofproto/trace", "eth_type(0x0800)"]).unwrap();
    assert!(errors(&error).contains("needs in_port(..)"), "{}", errors(&error));
}

/// Returns the lines of a text without numbers, and with single spaces.
fn shape(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let without: String = word.chars().filter(|own| !own.is_ascii_digit()).collect();
        without.replace("?", "").replace('.', "")
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect()
}

#[test]
fn rules_are_listed_as_by_open_vswitch() {
    let Some(daemon) = daemon() else { return };
    let set = |text: &str| -> BTreeSet<String> {
        let visible = text.lines().filter(|line| !line.starts_with("table_id=254"));
        visible
            .filter_map(|line| Some(line.split_once("n_bytes=")?.1.split_once(", ")?.1.to_owned()))
            .collect()
    };
    let own = ask(&daemon, &["bridge/dump-flows", "br0"]);
    assert_eq!(set(&own), set(&recorded_text("bridge-dump-flows.txt")));
    assert_eq!(shape(&own)[0].split(", ").count(), 4, "{own}");
    let error = ovs_appctl(daemon.run_dir(), &["bridge/dump-flows", "br9"]).unwrap();
    assert!(errors(&error).starts_with("Unknown bridge"), "{}", errors(&error));
}

#[test]
fn counters_have_the_lines_of_open_vswitch() {
    let Some(daemon) = daemon() else { return };
    let own = ask(&daemon, &["dpif-netdev/pmd-stats-show"]);
    let recorded = recorded_text("dpif-netdev-pmd-stats-show.txt");
    assert_eq!(shape(&own)[1..], shape(&recorded)[1..]);
    let own = ask(&daemon, &["fdb/stats-show", "br0"]);
    assert_eq!(shape(&own), shape(&recorded_text("fdb-stats-show.txt")));
    let own = ask(&daemon, &["upcall/show"]);
    assert_eq!(shape(&own)[1..], shape(&recorded_text("upcall-show.txt"))[1..]);

    let recorded = recorded_text("dpctl-show.txt");
    let of_port = |text: &str| {
        let from = text.lines().skip_while(|line| !line.contains(": p2 ("));
        shape(&from.take(5).collect::<Vec<_>>().join("\n"))[1..].to_vec()
    };
    let own = ask(&daemon, &["dpctl/show", "-s"]);
    let lines = |text: &str| {
        of_port(text)
            .iter()
            .map(|line| line.replace(" ( KiB)", "").replace(" ( MiB)", ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&own), lines(&recorded));
    assert!(own.starts_with("netdev@ovs-netdev:\n  lookups: hit:"), "{own}");
    let own = ask(&daemon, &["dpif/show"]);
    assert!(own.contains("\n  br0:\n    br0 65534/none: (internal)\n    p1 1/"), "{own}");
}

#[test]
fn cleared_counters_are_zero() {
    let Some(daemon) = daemon() else { return };
    let received = || ask(&daemon, &["dpif-netdev/pmd-stats-show"]);
    let is_zero = |text: &str| text.contains("packets received: 0\n");
    assert!(wait_until(|| !is_zero(&received())), "{}", received());
    for port in ["p1", "p2", "p3", "p4"] {
        daemon.answer(&["del-port", port]);
    }
    assert_eq!(ask(&daemon, &["dpif-netdev/pmd-stats-clear", "-pmd", "9"]), "");
    assert!(!is_zero(&received()), "{}", received());
    let lookups = || ask(&daemon, &["dpif/show"]);
    let is_cleared = || {
        // Packets that were received before are counted when they are translated.
        let cleared = ask(&daemon, &["dpif-netdev/pmd-stats-clear"]);
        let is_shown = lookups().starts_with("netdev@ovs-netdev: hit:0 missed:0\n");
        cleared.is_empty() && is_shown && is_zero(&received())
    };
    assert!(wait_until(is_cleared), "{}{}", received(), lookups());
    assert_eq!(ask(&daemon, &["fdb/stats-clear", "br0"]), "statistics successfully cleared\n");
    let shown = ask(&daemon, &["fdb/stats-show", "br0"]);
    assert!(shown.contains("learned MAC entries     : 0\n"), "{shown}");
    let error = ovs_appctl(daemon.run_dir(), &["fdb/stats-clear", "br9"]).unwrap();
    assert!(errors(&error).contains("br9"), "{}", errors(&error));
}

#[test]
fn coverage_uses_open_vswitch_drop_names() {
    let Some(daemon) = daemon() else { return };
    let mut text = String::new();
    assert!(
        wait_until(|| {
            text = ask(&daemon, &["coverage/show"]);
            ["netdev_received", "drop_action_of_pipeline", "dpif_flow_put"]
                .iter()
                .all(|name| text.contains(name))
        }),
        "{text}"
    );
    let recorded = recorded_text("coverage-show.txt");
    let columns = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        shape(line)
    };
    assert_eq!(columns(&text, "dpif_flow_put"), columns(&recorded, "dpif_flow_put"));
    assert_eq!(shape(text.lines().last().unwrap()), shape(recorded.lines().last().unwrap()));
    let total: u64 =
        ask(&daemon, &["coverage/read-counter", "drop_action_of_pipeline"]).trim().parse().unwrap();
    assert!(total > 0);
    assert!(wait_until(|| ask(&daemon, &["dpctl/dump-flows"]).contains("eth_type(0x0806)")));
    ovs_ofctl(&daemon, "del-flows", "arp");
    let text = ask(&daemon, &["coverage/show"]);
    assert!(text.contains("flow_evicted_rule_removed"), "{text}");
}

#[test]
fn memory_adds_up_to_the_resident_set() {
    let Some(daemon) = daemon() else { return };
    let text = ask(&daemon, &["memory/show"]);
    let words = text.split(' ').filter_map(|word| word.trim().rsplit_once(':'));
    let sizes: Vec<(&str, u64)> = words
        .filter(|(name, _)| name.ends_with("-kB"))
        .map(|(name, size)| (name, size.parse().unwrap()))
        .collect();
    let (total, parts) = sizes.split_last().unwrap();
    assert_eq!(total.0, "resident-kB");
    assert_eq!(parts.iter().map(|(_, size)| size).sum::<u64>(), total.1, "{text}");
    assert!(text.starts_with("handlers:1 ports:5 rules:13 udpif keys:"), "{text}");
}

#[test]
fn a_purge_removes_all_entries() {
    // Without packets, no entry is added again after it was removed.
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let rx = format!("rx={}", recorded_path("p1.pcap").display());
    daemon.answer(&["add-port", "br0", "p1", "type=pcap", &rx]);
    let entries = |daemon: &Daemon| ask(daemon, &["dpctl/dump-flows"]).lines().count();
    if ovs_appctl(daemon.run_dir(), &["version"]).is_none() {
        return;
    }
    assert!(wait_until(|| entries(&daemon) > 0));
    ask(&daemon, &["revalidator/purge"]);
    assert!(wait_until(|| entries(&daemon) == 0));
    assert!(daemon.answer(&["settings"]).contains("megaflow"), "the kind of cache is as before");
}
